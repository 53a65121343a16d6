"""An example of a rule: a small run, what must be said about it, and what the real libraries do with it."""

from __future__ import annotations

from typing import Literal

from zerocfg.record import record, replace
from zerocfg.rulebook.proof import Proof

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@record(frozen=True, slots=True)
class Expected:
    """What a rule must say about its bad example, to the letter.

    ``place``: the file and what is underlined there: ``ds.json: "stage": 3``; the file alone where something is
    missing in it as a whole. ``figures``: every number in message and help, in their order. ``also``: the related
    places. ``fix``: "safe" or "unsafe" where one is offered.
    """

    severity: Level
    place: str
    figures: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    fix: str = ""


@record(frozen=True)
class Example:
    """A complete small run: named files with their text.

    Names tell the role: ``accelerate.yaml``, ``ds.json``, ``recipe.yaml``, ``train.sh`` (launch line),
    ``model/config.json``, ``zerocfg.yaml``. ``consumer`` says who reads it where the files do not. ``proof`` replaces
    the rule's own where this example shows something else (another phase, another error). ``expected``: all that the
    rule finds in a bad example, in the order of places. ``releases``: those in which its claim is seen, where that is
    not in all of which the rule speaks ("transformers>=5.10"). ``told``: the files tell the consumer by themselves, as
    was seen where the example is shown.
    """

    files: dict[str, str]
    consumer: str | None = None
    note: str = ""
    proof: Proof | None = None
    expected: tuple[Expected, ...] = ()
    releases: str = ""
    told: bool = False

    def finds(self, severity: Level, place: str, *figures: float | str, also: tuple[str, ...] = ()) -> Example:
        """This example with one more finding that the rule must report."""
        one = Expected(severity, place, tuple(map(str, figures)), also)
        return replace(self, expected=(*self.expected, one))
