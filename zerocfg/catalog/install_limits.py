"""The newest releases of a library that an installer can combine with older packages or an older Python.

``python -m tools.facts.beside`` resolved them and wrote ``schemas/releases/beside.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from zerocfg.catalog.schema import schema_folder

Edges = Mapping[str, str]
"""Lowest first: a release of the package, and the newest release of the library where only older ones may be had."""


@lru_cache(maxsize=1)
def install_limits() -> Mapping[str, Mapping[str, Edges]]:
    """By library, perhaps with an extra (``transformers[torch]``), and package; ``python`` is one, too."""
    found: dict[str, dict[str, dict[str, str]]] = json.loads(
        (schema_folder() / "releases" / "beside.json").read_text(encoding="utf-8")
    )
    return found
