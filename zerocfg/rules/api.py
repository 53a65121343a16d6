"""What a rule is and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from zerocfg.rules.proof import Proof
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.source.edit import Edit
from zerocfg.source.node import Path
from zerocfg.source.text import Span


class Severity(str, Enum):
    """The consequence. error: crash, silently something else than written, or weights lost. warning: runs as written,
    wastes memory, time or safety. note: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        return {"note": 0, "warning": 1, "error": 2}[self.value]


@dataclass(frozen=True, slots=True)
class Location:
    """Symbolic place: a file and a key path in it (``at`` "key", "value" or "entry"), or a span of its text.

    Turned into line and column only when something is reported.
    """

    file: SourceFile
    path: Path = ()
    at: str = "entry"
    span: Span | None = None
    label: str = ""

    def concrete(self) -> Span:
        """The span to show. A key path that is not there falls back to its nearest parent, then the file's start."""
        if self.span is not None:
            return self.span
        document = self.file.document
        path = self.path
        while document is not None and path:
            entry = document.entry(path)
            if entry is not None:
                exact = path == self.path
                if not exact or self.at == "key":
                    return entry.key_span
                if self.at == "value":
                    return entry.value.span
                return Span(entry.key_span.start, max(entry.key_span.end, entry.value.span.end))
            node = document.get(path)
            if node is not None:
                return node.span
            path = path[:-1]
        return Span(0, 0)


def at(origin: Origin, label: str = "", where: str = "entry") -> Location | None:
    """The place that an origin speaks of, or None when it is no place in a file."""
    if origin.file is None:
        return None
    return Location(origin.file, origin.path, where, origin.span, label)


@dataclass(frozen=True, slots=True)
class Intent:
    """What a fix means to set: an effective setting by its dotted name, a training argument, or an option of
    accelerate's launcher, wherever it is written."""

    name: str
    value: object
    of: Literal["setting", "argument", "option"] = "setting"


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that remove the finding. ``edits`` by file; safe keeps what the author meant, unsafe makes a choice.

    ``gives``: what must have come of it afterwards in every run that reads the file.
    """

    description: str
    edits: tuple[tuple[SourceFile, Edit], ...]
    safe: bool = True
    gives: tuple[Intent, ...] = ()


@dataclass(slots=True)
class Finding:
    """One thing found. ``message`` names both values and the consequence; ``help`` says what to do instead.

    ``assumes``: the libraries whose newest release it is about, because nothing tells which one the project has.
    ``versions``: the releases for which it holds, where its rule holds for more.
    """

    location: Location
    message: str
    help: str = ""
    related: list[Location] = field(default_factory=list)
    fix: Fix | None = None
    severity: Severity | None = None
    assumes: frozenset[str] = frozenset()
    versions: str = ""


Check = Callable[[Run], Iterator[Finding]]
Status = Literal["preview", "stable", "deprecated"]
"""preview: runs only when asked for (--preview, or selected by its code). deprecated: runs, and says what replaces it
(``replaced_by``). A rule that is removed leaves its code in `zerocfg.rules.codes` for ever."""


Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a rule must say about its bad example, to the letter.

    ``place``: the file and what is underlined there: ``ds.json: "stage": 3``; the file alone where something is
    missing in it as a whole. ``figures``: every number in message and help, in their order. ``also``: the related
    places.
    """

    severity: Level
    place: str
    figures: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    """A complete small run: named files with their text.

    Names tell the role: ``accelerate.yaml``, ``ds.json``, ``recipe.yaml``, ``train.sh`` (launch line),
    ``model/config.json``, ``zerocfg.yaml``. ``consumer`` says who reads it where the files do not. ``proof`` replaces
    the rule's own where this example shows something else (another phase, another error). ``expected``: all that the
    rule finds in a bad example, in the order of places. ``told``: the files tell the consumer by themselves, as was
    seen where the example is shown.
    """

    files: dict[str, str]
    consumer: str | None = None
    note: str = ""
    proof: Proof | None = None
    expected: tuple[Expected, ...] = ()
    told: bool = False

    def finds(self, severity: Level, place: str, *figures: float | str, also: tuple[str, ...] = ()) -> Example:
        """This example with one more finding that the rule must report."""
        one = Expected(severity, place, tuple(map(str, figures)), also)
        return Example(self.files, self.consumer, self.note, self.proof, (*self.expected, one))


@dataclass(frozen=True)
class Rule:
    code: str
    name: str
    severity: Severity
    check: Check
    summary: str
    explanation: str
    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    proof: Proof
    consumers: frozenset[str] = frozenset()
    since: str = "0.1"
    status: Status = "stable"
    fixable: bool = False
    references: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    versions: str = ""
    replaced_by: str = ""


def rule(
    code: str,
    name: str,
    severity: Severity,
    *,
    bad: Example | tuple[Example, ...],
    good: Example | tuple[Example, ...],
    proof: Proof,
    consumers: frozenset[str] | set[str] = frozenset(),
    since: str = "0.1",
    status: Status = "stable",
    fixable: bool = False,
    references: tuple[str, ...] = (),
    needs: frozenset[str] | set[str] = frozenset(),
    versions: str = "",
    replaced_by: str = "",
) -> Callable[[Check], Rule]:
    """Declare a rule. The docstring is its documentation.

    First line: the summary ("What it does"). Paragraphs up to the first label: why it is bad. Then labelled paragraphs:
    ``What happens:`` with the library's own words, ``Instead:``, ``Fix:`` (what a fix changes and what it assumes),
    ``When to ignore:``.

    ``consumers`` empty: holds whoever reads the file. ``needs``: what must be known for the rule to speak: "model",
    "hardware", "versions", "launch". ``versions``: the releases for which it holds, where not for all
    ("deepspeed>=0.19.3"). ``references``: source files at their release, threads as owner/name#number.
    """

    def declare(check: Check) -> Rule:
        doc = (check.__doc__ or "").strip()
        summary, _, explanation = doc.partition("\n")
        return Rule(
            code=code,
            name=name,
            severity=severity,
            check=check,
            summary=summary.strip(),
            explanation="\n".join(line.strip() for line in explanation.strip().splitlines()),
            bad=bad if isinstance(bad, tuple) else (bad,),
            good=good if isinstance(good, tuple) else (good,),
            proof=proof,
            consumers=frozenset(consumers),
            since=since,
            status=status,
            fixable=fixable,
            references=references,
            needs=frozenset(needs),
            versions=versions,
            replaced_by=replaced_by,
        )

    return declare
