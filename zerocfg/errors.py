"""The errors that zerocfg raises for Python programs."""

from __future__ import annotations

from dataclasses import dataclass

from zerocfg.source.text import Where


class Error(Exception):
    """zerocfg could not do what it was asked to: wrong use, an unreadable file, a spec that does not resolve."""


@dataclass(frozen=True)
class Refusal:
    """One key that a library does not take.

    ``key``: dotted; ``written``: the text of its value in the file; ``value``: what the file's reader makes of it;
    ``message``: why the library refuses it, as `zerocfg lint` says it.
    """

    place: Where
    key: str
    written: str
    value: object
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class ValidationError(Error, ValueError):
    """A config file holds what its library refuses. ``refusals`` in the order of the file; the text lists them."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        super().__init__("\n".join(map(str, refusals)))
        self.refusals = refusals
