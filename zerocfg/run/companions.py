"""Which releases of transformers are left where a project holds back a package that transformers needs.

From resolving ``transformers`` beside each bound: the newest release that a package below it leaves is the one before
the release named here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerocfg.catalog.versions import only_below
from zerocfg.run.declared import Declared

_FIRST_TO_NEED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "tokenizers": (("0.19", "4.40.0"), ("0.20", "4.45.0"), ("0.21", "4.47.0"), ("0.22", "4.56.0")),
    "huggingface-hub": (("1.3", "5.0.0"),),
}
"""By package, lowest first: a release of it, and the first transformers that takes none below."""


def left(found: Mapping[str, Declared]) -> Iterator[Declared]:
    """What the packages that one file states beside transformers leave of it."""
    base = found.get("transformers")
    if base is None or not base.clauses:
        return
    for package, needs in _FIRST_TO_NEED.items():
        stated = found.get(package)
        if stated is None or not stated.clauses or not _files(base) <= _files(stated):
            continue
        cap = next((first for below, first in needs if only_below(stated.clauses, below)), None)
        if cap is not None:
            yield Declared(f"<{cap}", stated.places)


def _files(declared: Declared) -> set[str]:
    return {place.file.name for place in declared.places if place.file is not None}
