"""The names of those who read configs: the libraries, and the front ends."""

from __future__ import annotations

from zerocfg.frontends import registry
from zerocfg.run.model import LIBRARIES, Consumer


def consumers() -> tuple[Consumer, ...]:
    """All names, those of front ends of other packages too."""
    return (*LIBRARIES, *registry.names())


def consumer_of(word: object) -> Consumer | None:
    """The consumer that a file or an option names; None for any other word."""
    return next((name for name in consumers() if name == word), None)
