"""Which keywords the constructor of a trainer, or `Accelerator()`, accepts in a release."""

from __future__ import annotations

from functools import lru_cache

from zerocfg.catalog.history import signatures
from zerocfg.catalog.versions import Release

LIBRARIES = frozenset(("accelerate", "transformers", "trl"))


@lru_cache(maxsize=256)
def is_known(library: str, of: str) -> bool:
    """Whether the signature of a class is known in some release."""
    return library in LIBRARIES and of in signatures(library).raw


def accepts(library: str, of: str, keyword: str, at: Release) -> bool | None:
    """None where the release does not export the class, or the class takes any keyword."""
    known = signatures(library)
    state = known.state(of, at)
    if state is None or state.get("open"):
        return None
    return known.state(f"{of}.{keyword}", at) is not None


def parameters(library: str, of: str) -> frozenset[str]:
    """The keywords that a class accepts in the newest known release."""
    known, prefix = signatures(library), f"{of}."
    return frozenset(
        key.removeprefix(prefix) for key in known.raw if key.startswith(prefix) and known.today(key) is not None
    )


def was_ever_accepted(library: str, of: str, keyword: str) -> bool:
    """Whether some known release accepts a keyword, or may: because the class took any in it."""
    known = signatures(library)
    return f"{of}.{keyword}" in known.raw or any((state or {}).get("open") for _, state in known.raw.get(of, ()))


def may_ever_accept(library: str, of: str, keyword: str) -> bool:
    """As `was_ever_accepted`; also where releases before the known ones had the class: what those took is open."""
    return was_ever_accepted(library, of, keyword) or signatures(library).raw[of][0][1] is not None
