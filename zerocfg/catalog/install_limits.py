"""The newest releases of a library that can be combined with older packages or an older Python: by an installer
(``python -m tools.facts.beside`` resolved them and wrote ``schemas/releases/beside.json``), or by an import of TRL
(``tools.facts.needed_names``, ``trl-imports.json``; ``tools.facts.trl_names``, ``trl-names.json``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from zerocfg.catalog.schema import schema_folder

Edges = Mapping[str, str]
"""Lowest first: a release of the package, and the newest release of the library where only older ones may be had."""


@lru_cache(maxsize=1)
def install_limits() -> Mapping[str, Mapping[str, Edges]]:
    """By library, perhaps with an extra (``transformers[torch]``), and package; ``python`` is one, too."""
    found: dict[str, dict[str, dict[str, str]]] = _read("beside")
    return found


@lru_cache(maxsize=1)
def limits_of_trl() -> Mapping[str, Edges]:
    """By library: the releases of TRL below which no trainer can be imported with a newer release of the library."""
    found: dict[str, dict[str, str]] = _read("trl-imports")
    return found


@lru_cache(maxsize=1)
def names_of_trl() -> Mapping[str, Edges]:
    """By release of transformers: public names of TRL, and the release of TRL below which none lets them be imported
    with that transformers or a newer one."""
    found: dict[str, dict[str, str]] = _read("trl-names")["transformers"]
    return found


@lru_cache(maxsize=1)
def torch_floor() -> Mapping[str, str]:
    """By release of transformers, oldest first: the release of torch below which that one and newer ones do without
    torch, although they can be installed beside it (`tools.facts.torch_floor`)."""
    found: dict[str, str] = _read("torch-floor")
    return found


def _read(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((schema_folder() / "releases" / f"{name}.json").read_text(encoding="utf-8"))
    return read
