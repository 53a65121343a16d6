"""The errors that zerocfg raises for what its user asked."""

from __future__ import annotations

from zerocfg.record import record
from zerocfg.source.text import Where


class Error(Exception):
    """zerocfg could not do what it was asked to: wrong use, an unreadable file, a spec that does not resolve."""


class UsageError(Error):
    """Wrong use: options or settings that make no sense, a path that is not there. On a command line it is shown with
    the usage of the command."""


@record(frozen=True)
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
