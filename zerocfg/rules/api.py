"""What a rule is and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import wraps
from typing import Any, Generic, Literal, TypeVar

from zerocfg.frontends.registry import OWN_NAMES, front_end
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

    ``gives``: what must have come of it afterwards in every run that reads the file. ``renames``: it gives a key
    another name, so that a value may count that did not, and which other values that suits is not known to the rule.
    """

    description: str
    edits: tuple[tuple[SourceFile, Edit], ...]
    safe: bool = True
    gives: tuple[Intent, ...] = ()
    renames: bool = False


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


Given = TypeVar("Given")
Scope = Literal["key", "document", "arguments", "call", "line", "comments", "run"]
"""What a rule looks at: each key of a config by itself, several keys of one config, training arguments, each call of
the script, the launch line, the comments that suppress findings, or anything of the run."""
Config = Literal["", "deepspeed", "accelerate"]
"""A config of a run, by the name that `Run` has for it; empty for any, or none."""
ALONE: tuple[Scope, ...] = ("key", "comments")
"""Where other keys of the config are not known, as in a dict that a script goes on changing, only rules with one of
these scopes are asked."""


@record(frozen=True)
class Subject(Generic[Given]):
    """What a rule is handed. ``of`` gives it from a run: the rule's function is called for each item. ``config``: the
    one that all items are in, so that a run without this config has none.

    `zerocfg.rules.subjects` has those that several families use.
    """

    scope: Scope
    of: Callable[[Run], Iterable[Given]]
    config: Config = ""


OWN = "ZC"
"""What the codes of zerocfg's own rules begin with, and those of no other package."""
Check = Callable[[Run], Iterator[Finding]]
Histories = Literal["", "keys", "arguments"]
Status = Literal["preview", "stable", "deprecated"]
"""preview: runs only when asked for (--preview, or selected by its code). deprecated: runs, and says what replaces it
(``replaced_by``). A rule that is removed leaves its code in `zerocfg.rules.codes` for ever."""


@record(frozen=True)
class Rule:
    """``check`` and what linting must know of it; what is said about the rule stands on its page (`zerocfg.rulebook`).

    ``consumers`` empty: holds whoever reads the file. ``needs``: what must be known for the rule to speak: "model",
    "hardware", "versions", "launch". ``versions``: the releases for which it holds, where not for all
    ("deepspeed>=0.19.3"). ``scope``: what it looks at, ``config``: in which config. ``histories``: the rule judges
    each key, or each argument, by the admitted releases itself. ``package``: the distribution that brings it, empty for
    zerocfg's own.
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
    scope: Scope = "run"
    config: Config = ""
    histories: Histories = ""
    package: str = ""

    @property
    def alone(self) -> bool:
        """Whether it holds where other keys of the config are not known."""
        return self.scope in ALONE

    def concerns(self, consumer: str | None) -> bool:
        """Whether it is about what this one reads. A rule for every front end of zerocfg's own is for those of other
        packages, too."""
        if not self.consumers or consumer in self.consumers:
            return True
        return self.consumers.issuperset(OWN_NAMES) and front_end(consumer) is not None

    @property
    def by_each_release(self) -> bool:
        """Whether it compares the admitted releases itself, so that its findings are not restricted again."""
        return self.histories == "keys" or "versions" in self.needs


def _whole(run: Run) -> Iterable[Run]:
    return (run,)


WHOLE_RUN = Subject("run", _whole)
"""Anything of the run: for rules that compare files, or ask what the process gets."""


def rule(
    code: str,
    name: str,
    severity: Severity,
    looks_at: Subject[Given] = WHOLE_RUN,  # type: ignore[assignment]
    *,
    consumers: frozenset[str] | set[str] = frozenset(),
    since: str = "0.1",
    status: Status = "stable",
    needs: frozenset[str] | set[str] = frozenset(),
    versions: str = "",
    replaced_by: str = "",
    histories: Histories = "",
) -> Callable[[Callable[[Given], Iterator[Finding]]], Rule]:
    """Declare the rule whose page is ``docs/rules/CODE.md``. Its function is handed what it looks at."""

    def declare(body: Callable[[Given], Iterator[Finding]]) -> Rule:
        return Rule(
            code,
            name,
            severity,
            _checking(body, looks_at),
            frozenset(consumers),
            since,
            status,
            frozenset(needs),
            versions,
            replaced_by,
            looks_at.scope,
            looks_at.config,
            histories,
        )

    return declare


def _checking(body: Callable[[Given], Iterator[Finding]], looks_at: Subject[Given]) -> Check:
    """The function of a rule as the linter calls it."""
    given: Any = body
    if looks_at.of is _whole:
        check: Check = given  # handed the run itself
        return check

    @wraps(body)
    def each(run: Run) -> Iterator[Finding]:
        for item in looks_at.of(run):
            yield from body(item)

    return each
