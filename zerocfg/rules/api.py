"""What a rule is and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Literal

from zerocfg.record import field, record
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


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
class Intent:
    """What a fix means to set: an effective setting by its dotted name, a training argument, or an option of
    accelerate's launcher, wherever it is written."""

    name: str
    value: object
    of: Literal["setting", "argument", "option"] = "setting"


@record(frozen=True, slots=True)
class Fix:
    """Edits that remove the finding. ``edits`` by file; safe keeps what the author meant, unsafe makes a choice.

    ``gives``: what must have come of it afterwards in every run that reads the file.
    """

    description: str
    edits: tuple[tuple[SourceFile, Edit], ...]
    safe: bool = True
    gives: tuple[Intent, ...] = ()


@record(slots=True)
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


@record(frozen=True)
class Rule:
    """``check`` and what linting must know of it; what is said about the rule stands on its page (`zerocfg.rulebook`).

    ``consumers`` empty: holds whoever reads the file. ``needs``: what must be known for the rule to speak: "model",
    "hardware", "versions", "launch". ``versions``: the releases for which it holds, where not for all
    ("deepspeed>=0.19.3").
    """

    code: str
    name: str
    severity: Severity
    check: Check
    consumers: frozenset[str] = frozenset()
    since: str = "0.1"
    status: Status = "stable"
    needs: frozenset[str] = frozenset()
    versions: str = ""
    replaced_by: str = ""


def rule(
    code: str,
    name: str,
    severity: Severity,
    *,
    consumers: frozenset[str] | set[str] = frozenset(),
    since: str = "0.1",
    status: Status = "stable",
    needs: frozenset[str] | set[str] = frozenset(),
    versions: str = "",
    replaced_by: str = "",
) -> Callable[[Check], Rule]:
    """Declare the rule whose page is ``docs/rules/CODE.md``."""

    def declare(check: Check) -> Rule:
        return Rule(
            code, name, severity, check, frozenset(consumers), since, status, frozenset(needs), versions, replaced_by
        )

    return declare
