"""The fence around everything that only measures: what breaks there costs its own figure, and never the run.

The loops and hooks of this program do what a training needs, and ask the fence for the rest. Whatever happens behind
the fence, the user's training goes on; the report says which instrument did not measure, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .report_schema import ABSENT
from .votes import Vote

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
LONGEST = 300
"""Characters of a reason."""


class AbsentError(Exception):
    """The ranks do not measure together, because one of them cannot."""


class Fence:
    """Runs the instruments of one rank.

    ``instruments``: by name, "" of an instrument that measures, else the reason why it does not. One that broke stays
    off: its later figures would rest on those that are missing.
    """

    def __init__(self, instruments: dict[str, str]) -> None:
        self.instruments = instruments

    def measure(self, name: str, function: Callable[..., T], *arguments: Any, otherwise: Any = None) -> T | Any:
        """The result of ``function``; ``otherwise`` where the instrument breaks, or has broken before."""
        if self.instruments.get(name):
            return otherwise
        try:
            result = function(*arguments)
        except Exception as error:
            self.instruments[name] = reason(error)
            return otherwise
        self.instruments.setdefault(name, "")
        return result

    def measure_together(
        self, name: str, occasion: str, function: Callable[..., T], *arguments: Any, otherwise: Any = None
    ) -> T | Any:
        """`measure` for a function that calls collectives: either all ranks come to them, or none.

        ``function`` gets, before its ``arguments``, a call that it has to make right before its first collective; the
        call raises AbsentError where another rank does not come. ``occasion``: what tells this vote from the others of
        the instrument, the same on all ranks.
        """
        vote = Vote(f"{name}/{occasion}")

        def meet() -> None:
            if not vote.all_ready():
                raise AbsentError(ABSENT)

        result = self.measure(name, function, meet, *arguments, otherwise=otherwise)
        self.measure("votes", vote.decline)
        return result

    def broken(self, name: str) -> bool:
        """Whether an instrument was tried and does not measure."""
        return bool(self.instruments.get(name))


def reason(error: BaseException) -> str:
    """An exception in one line."""
    try:
        text = " ".join(str(error).split())[:LONGEST]
    except Exception:  # an exception whose own text cannot be made
        text = ""
    if isinstance(error, AbsentError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
