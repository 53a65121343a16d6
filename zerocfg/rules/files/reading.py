"""ZC0xx: files that cannot be read, or that their readers read differently."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.budgets import TENSORS
from zerocfg.record import record
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, Subject, rule
from zerocfg.rules.effects import with_accelerate
from zerocfg.rules.repairs import strict_json
from zerocfg.run.discover import launches
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.templates import has_placeholders, stops_at_placeholder
from zerocfg.source.edit import delete_duplicate
from zerocfg.source.load import OUTSIDE
from zerocfg.source.node import Document, Mapping, Path, Problem, dotted, plain

_UNREADABLE = frozenset(("unreadable", "encoding", "too-large", "too-deep", "alias-cycle"))
_REPORTED_ELSEWHERE = frozenset(("duplicate-key", "hjson-only", "readers-differ", "non-string-key", "empty", OUTSIDE))


@record(frozen=True, slots=True)
class _Read:
    """A config of a run, and what was read of it."""

    run: Run
    file: SourceFile
    document: Document


def _documents(run: Run) -> Iterator[_Read]:
    for file in (run.accelerate, run.deepspeed, run.recipe, run.framework_recipe, run.spec):
        if file is not None and file.document is not None:
            yield _Read(run, file, file.document)


EACH_CONFIG = Subject("document", _documents)


def _where(file: SourceFile, problem: Problem) -> Location:
    return Location(file, problem.path, span=problem.span)


@rule("ZC001", "unreadable-file", Severity.ERROR, EACH_CONFIG)
def unreadable_file(read: _Read) -> Iterator[Finding]:
    file = read.file
    for problem in read.document.problems:
        if problem.kind in _UNREADABLE:
            yield Finding(_where(file, problem), f"{file.name} cannot be read: {problem.message}")


@rule("ZC002", "syntax-error", Severity.ERROR, EACH_CONFIG)
def syntax_error(read: _Read) -> Iterator[Finding]:
    run, file, document = read.run, read.file, read.document
    for problem in document.problems:
        if not problem.fatal or problem.kind in _UNREADABLE | _REPORTED_ELSEWHERE:
            continue
        if run.launch is None and run.spec is None and stops_at_placeholder(document, problem.span.start):
            continue  # a template; what it is shows when it is filled in
        why = problem.why or problem.message
        yield Finding(_where(file, problem), f"{file.name} is not valid {document.format.upper()}: {why}")


@rule("ZC003", "duplicate-key", Severity.ERROR, EACH_CONFIG)
def duplicate_key(read: _Read) -> Iterator[Finding]:
    run, file, document = read.run, read.file, read.document
    if file is run.framework_recipe:
        return  # some of the frameworks refuse it, some take the last
    alike: dict[Path, bool] = {}
    for problem in document.problems:
        if problem.kind == "duplicate-key":
            if document.format == "yaml" and problem.path not in alike:
                alike[problem.path] = _alike(document, problem.path)
            yield _written_twice(run, file, document, problem, alike.get(problem.path, False))


def _written_twice(run: Run, file: SourceFile, document: Document, problem: Problem, alike: bool) -> Finding:
    severity, earlier = None, problem.related
    if document.format == "json":
        what = "DeepSpeed refuses the file, accelerate and transformers silently take this one"
    elif alike:
        what, severity = "both say the same", Severity.NOTE
    else:
        what = "this one silently replaces the first"
    return Finding(
        _where(file, problem),
        f"'{dotted(problem.path)}' is written twice; {what}",
        "remove one of the two",
        [Location(file, problem.path, span=earlier, label="first written here")] if earlier else [],
        _without_earlier(run, file, document, problem),
        severity,
    )


def _alike(document: Document, path: Path) -> bool:
    """Whether a key that is written twice has the same value each time."""
    holder = document.get(path[:-1])
    entries = holder.entries if isinstance(holder, Mapping) else []
    values = [plain(entry.value) for entry in entries if entry.key == path[-1]]
    return len(values) > 1 and all(value == values[0] for value in values)


def _without_earlier(run: Run, file: SourceFile, document: Document, problem: Problem) -> Fix | None:
    """The one that counts is left. Both may be the same, then nothing is chosen either."""
    if problem.related is None or document.root is None:
        return None
    try:
        edits = delete_duplicate(document, problem.path, problem.related)
    except ValueError:
        return None
    judged = document.format == "yaml" or with_accelerate(run)
    return Fix("remove the earlier one", tuple((file, edit) for edit in edits), safe=judged)


@rule("ZC004", "json-not-strict", Severity.ERROR, EACH_CONFIG)
def json_not_strict(read: _Read) -> Iterator[Finding]:
    file, document = read.file, read.document
    run = read.run
    others = run.elsewhere.readers if run.consumer is None and file is run.deepspeed else frozenset((run.consumer,))
    if others == {"deepspeed"}:
        return
    problems = [problem for problem in document.problems if problem.kind == "hjson-only"]
    if document.format == "json" and problems and not has_placeholders(document):
        more = f" ({len(problems)} such places)" if len(problems) > 1 else ""
        yield Finding(
            _where(file, problems[0]),
            f"{file.name} is not strict JSON{more}: {problems[0].message}",
            "write strict JSON, unless DeepSpeed alone reads this file",
            fix=strict_json(file, problems),
            severity=None if run.consumer else Severity.WARNING,
        )


@rule("ZC015", "checked-in-part", Severity.WARNING, WHOLE_RUN)
def checked_in_part(run: Run) -> Iterator[Finding]:
    # That a rule finds too much is told by the lint itself: see `zerocfg.linter.engine`.
    if run.launch_file is not None:
        for problem in launches(run.launch_file).exhausted:
            message = f"{run.launch_file.name} is checked in part: {problem.message}"
            yield Finding(_where(run.launch_file, problem), message, "split the file, or take out what nobody needs")
    if run.spec is not None and run.spec.document is not None and run.model is not None and run.model.too_large:
        written = ("runs", run.name, "model")
        place = Location(run.spec, written if run.spec.document.get(written) is not None else ("runs",))
        message = f"the memory of `{run.name}` is not predicted: its model has more than {TENSORS:,} tensors"
        yield Finding(place, message, "correct its sizes")


@rule("ZC008", "not-a-mapping", Severity.ERROR, EACH_CONFIG)
def not_a_mapping(read: _Read) -> Iterator[Finding]:
    run, file, document = read.run, read.file, read.document
    if file in (run.framework_recipe, run.spec) or any(problem.fatal for problem in document.problems):
        return
    data = document.data()
    if not isinstance(data, dict):
        what = "is empty" if data is None else "has no keys at its top level"
        # An empty file looks like no kind of config: whoever names it is shown as well.
        named = [Location(run.launch_file, span=run.launch.span)] if run.launch_file and run.launch else []
        yield Finding(Location(file), f"{file.name} {what}; a mapping of keys to values is expected", related=named)
