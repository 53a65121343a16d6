"""A migration: the steps for all runs, made in the texts of their files, and what is left to a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from zerocfg.frontends.registry import programs
from zerocfg.linter.engine import real_name
from zerocfg.migrate import arguments, code, configs, kept, pins
from zerocfg.migrate.dicts import dict_edits, dropped
from zerocfg.migrate.plan import Plan, plan_of
from zerocfg.migrate.steps import Left, Step, changed, editable
from zerocfg.rules.place import FileSpan, file_span
from zerocfg.run.model import Run, SourceFile, original
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.shell_check import intact
from zerocfg.source.node import dotted
from zerocfg.source.text import Span

_PARTS: tuple[Callable[[Run, Plan], Iterator[Step | Left]], ...] = (
    arguments.steps,
    configs.deepspeed,
    configs.accelerate,
    code.steps,
    kept.steps,
)


@dataclass(frozen=True, slots=True)
class Done:
    """One change or one thing that is left, made concrete. ``names``: the arguments whose default it is about."""

    span: FileSpan
    why: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Migration:
    """``texts``: by real path, the new text of each file that changes. ``touched``: the keys, dotted, that are written
    or taken out."""

    texts: Mapping[str, str]
    touched: frozenset[str]
    done: tuple[Done, ...]
    left: tuple[Done, ...]


def migrate(
    runs: Sequence[Run], new: Mapping[str, str], old: Mapping[str, str], *, with_pins: bool = False
) -> Migration:
    """What to change so that the runs stay what they are at the releases ``new``. Nothing is written. ``old``: those
    that the files are for, where the project does not tell."""
    parts = [*_PARTS, pins.steps] if with_pins else _PARTS
    found = [_for_line(item, run) for run in runs for part in parts for item in part(run, plan_of(run, new, old))]
    steps = [item for item in found if isinstance(item, Step)]
    left = [item for item in found if isinstance(item, Left)]
    agreed, disputed = _agreed(steps)
    texts: dict[str, str] = {}
    done: list[Step] = []
    for file, own in agreed.items():
        text, made, refused = _made(file, own)
        done += made
        left += refused
        if text != file.source.text:
            texts[real_name(file)] = text
    touched = frozenset(dotted(operation.path) for step in done for operation in step.operations)
    return Migration(texts, touched, _each_once(done), _each_once([*left, *disputed]))


def _agreed(steps: Iterable[Step]) -> tuple[dict[SourceFile, list[Step]], list[Left]]:
    """By file the steps, each once; places of which runs that share a file want different things are left."""
    wanted: dict[tuple[str, object], dict[str, Step]] = {}
    for step in steps:
        file = original(step.at.file)
        ways = wanted.setdefault((real_name(file), _subject(step)), {})
        first = ways.setdefault(repr(step.what), step)
        if not step.lines <= first.lines:
            ways[repr(step.what)] = replace(first, lines=first.lines | step.lines)
    agreed: dict[SourceFile, list[Step]] = {}
    files: dict[str, SourceFile] = {}
    left: list[Left] = []
    for (name, _), ways in wanted.items():
        first = next(iter(ways.values()))
        if len(ways) > 1:
            left.append(Left(first.at, f"{first.why}; the runs that read it need different values"))
            continue
        agreed.setdefault(files.setdefault(name, first.at.file), []).append(first)
    return agreed, left


def _subject(step: Step) -> object:
    """What a step changes: two that change the same differently cannot both be made."""
    if step.operations:
        document = step.at.file.document
        root = document.root if document is not None and not editable(step.at.file) else None
        return step.operations[0].path, root.span.start if root is not None else 0
    return step.edits[0].span


def _made(file: SourceFile, steps: Sequence[Step]) -> tuple[str, list[Step], list[Left]]:
    """The text after the steps, those that were made, and those for which the file leaves no room."""
    text = file.source.text
    done: list[Step] = []
    left: list[Left] = []
    edits: list[Edit] = []
    lines: frozenset[Span] = frozenset()
    gone = {start for step in steps if not editable(file) for start in dropped(step.at.file, step.operations)}
    for step in steps:
        if step.operations and editable(file):
            continue
        try:
            own = list(step.edits) or dict_edits(step.at.file, step.operations, gone)
        except ValueError as error:
            left.append(Left(step.at, f"{step.why}; it cannot be edited here: {error}"))
            continue
        if not _fits(file, [*edits, *own], lines | step.lines):
            left.append(Left(step.at, f"{step.why}; its words cannot be told from others there"))
            continue
        edits += own
        lines |= step.lines
        done.append(step)
    text = apply_edits(text, edits)
    for step in steps:
        if not step.operations or not editable(file):
            continue
        try:
            text = changed(file, text, step.operations)
        except ValueError as error:
            left.append(Left(step.at, f"{step.why}; it cannot be edited here: {error}"))
            continue
        done.append(step)
    return text, done, left


def _for_line(found: Step | Left, run: Run) -> Step | Left:
    if isinstance(found, Left) or run.launch is None or original(found.at.file) is not run.launch_file:
        return found
    return replace(found, lines=frozenset((run.launch.span,)))


def _fits(file: SourceFile, edits: Sequence[Edit], lines: frozenset[Span]) -> bool:
    """Whether edits do not overlap, and change no other words of a shell text, nor any of other lines."""
    try:
        apply_edits(file.source.text, edits)
        return file.kind != "launch" or intact(file.source, edits, lines, programs=programs())
    except ValueError:
        return False


def _each_once(found: Iterable[Step | Left]) -> tuple[Done, ...]:
    """Each once, in the order of files and lines."""
    made = (Done(file_span(item.at), item.why, item.names) for item in found)
    items = {(item.span.file.name, item.span.start, item.why): item for item in made}
    return tuple(items[key] for key in sorted(items))
