"""What changes for the files of some runs from one set of releases to another, without an edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from zerocfg.catalog.history import Histories, histories, name_in
from zerocfg.catalog.versions import Release, release
from zerocfg.linter.engine import Diagnostic
from zerocfg.linter.selection import Selection
from zerocfg.migrate.argument_history import since
from zerocfg.migrate.arguments import lacking
from zerocfg.migrate.configs import changed_accelerate, changed_deepspeed, is_gone, written_keys
from zerocfg.migrate.defaults import changed_arguments, changed_dtype
from zerocfg.migrate.outcome import Changed, changed_settings, coming, reported
from zerocfg.migrate.releases import at_releases, pinned_release
from zerocfg.rules.api import Location, at
from zerocfg.rules.argument_reader import reader
from zerocfg.rules.arguments import arguments
from zerocfg.rules.place import FileSpan, file_span
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.node import Mapping as Tree
from zerocfg.source.node import dotted

Kind = Literal["gone", "new", "default", "refused", "accepted"]
_BOUNDS = ("ge", "gt", "le", "lt")


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key that the files write, or whose default applies to them, and that the releases read differently.

    ``kind``: "gone" or "new" (only one side has it), "default" (nobody writes it, ``before`` and ``after`` apply),
    "refused" or "accepted" (the value that is written, by the other side). ``since``: the release that changed it.
    ``instead``: what takes its place.
    """

    span: FileSpan
    library: str
    name: str
    kind: Kind
    since: str = ""
    before: object = None
    after: object = None
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Impact:
    """``comes`` and ``goes``: findings that only the second or the first set of releases has."""

    comes: tuple[Diagnostic, ...]
    goes: tuple[Diagnostic, ...]
    settings: tuple[Changed, ...]
    keys: tuple[KeyChange, ...]

    @property
    def breaks(self) -> bool:
        """Whether something is worse, or means something else."""
        return bool(self.comes or self.settings or self.keys)

    @property
    def same(self) -> bool:
        return not self.breaks and not self.goes


def impact(
    runs: Sequence[Run], item: Mapping[str, str], other: Mapping[str, str], selection: Selection | None = None
) -> Impact:
    """What changes for the runs from the releases ``one`` to ``other``."""
    old, new = at_releases(runs, item), at_releases(runs, other)
    before, after = reported(old, selection), reported(new, selection)
    keys: dict[tuple[object, ...], KeyChange] = {}
    for run in runs:
        for change in _keys(run, _complete(run, item, other), _complete(run, other, item)):
            keys.setdefault((change.span.file.name, change.span.start, change.name, change.kind), change)
    ordered = sorted(keys.values(), key=lambda change: (change.span.file.name, change.span.start, change.name))
    settings = changed_settings(old, new)
    return Impact(tuple(coming(before, after)), tuple(coming(after, before)), tuple(settings), tuple(ordered))


def _complete(run: Run, named: Mapping[str, str], against: Mapping[str, str]) -> dict[str, Release]:
    """The releases of one side; of a library that only the other side names the one that the run pins."""
    pinned = {library: pin for library in against if (pin := pinned_release(run, library)) is not None}
    return {library: release(version) for library, version in {**pinned, **named}.items()}


def _keys(run: Run, old: dict[str, Release], new: dict[str, Release]) -> Iterator[KeyChange]:
    for library, file in (("deepspeed", run.deepspeed), ("accelerate", run.accelerate)):
        known = histories(library)
        data = file.data() if file is not None else None
        if file is None or not isinstance(data, dict) or not {library} <= old.keys() & new.keys():
            continue
        yield from _written(known, library, file, data, old[library], new[library])
        if run.parts:
            continue
        changed = changed_deepspeed if library == "deepspeed" else changed_accelerate
        for key, path, then, now in changed(known, data, old[library], new[library]):
            section = Location(file, path[:-1], "key") if path[:-1] else Location(file)
            edge = since(known, key, max(old[library], new[library]), "default")
            yield KeyChange(file_span(section), library, dotted(path), "default", edge, then, now)
    yield from _arguments(run, old, new)
    dtype = changed_dtype(old, new)
    for default_dtype in run.script.default_dtypes if dtype is not None and run.script is not None else ():
        if dtype is not None and (place := at(default_dtype.origin)) is not None:
            yield KeyChange(
                file_span(place),
                dtype.library,
                f"{default_dtype.name}(dtype=)",
                "default",
                dtype.since,
                dtype.then,
                dtype.now,
            )


def _written(
    known: Histories, library: str, file: SourceFile, data: dict[str, Any], old: Release, new: Release
) -> Iterator[KeyChange]:
    """Keys that stand in a config; of a section that comes or goes only the section."""
    covered: set[tuple[str, ...]] = set()
    for path, value in written_keys(data):
        key = name_in(library, path)
        if key not in known.raw or path[:-1] in covered:
            covered |= {path} if path[:-1] in covered else set()
            continue
        then, now = known.state(key, old), known.state(key, new)
        kind: Kind | None = None
        if is_gone(then) != is_gone(now):
            kind = "gone" if is_gone(now) else "new"
            covered.add(path)
        elif then is not None and now is not None and _within(then, value) != _within(now, value):
            kind = "accepted" if _within(now, value) else "refused"
        if kind is not None:
            edge = since(known, key, max(old, new))
            node = file.document.get(path) if file.document is not None else None
            written = Location(file, path, "key" if isinstance(node, Tree) else "entry")
            yield KeyChange(file_span(written), library, dotted(path), kind, edge, value, value)


def _within(state: Mapping[str, Any], value: object) -> bool:
    """Whether a number lies within the bounds of a key; what is none is not judged here."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    low, above, high, below = (state.get(word) for word in _BOUNDS)
    return not (
        (low is not None and value < low)
        or (above is not None and value <= above)
        or (high is not None and value > high)
        or (below is not None and value >= below)
    )


def _arguments(run: Run, old: dict[str, Release], new: dict[str, Release]) -> Iterator[KeyChange]:
    if reader(run) is None:
        return
    for argument in arguments(run):
        gone = lacking(run, argument, new)
        if gone is not None and gone.library in old and lacking(run, argument, old) is None:
            edge = gone.since or ""
            yield KeyChange(
                file_span(argument.at()), gone.library, argument.name, "gone", edge, instead=gone.renamed_to or ""
            )
    for argument in arguments(run):
        if edge := _came(argument.name, old, new):
            yield KeyChange(file_span(argument.at()), "transformers", argument.name, "new", edge)
    if run.script is not None and run.arguments_whole is not True:
        return
    file = run.recipe or run.launch_file or (run.script.file if run.script is not None else None)
    for changed_argument in changed_arguments(run, old, new):
        if file is not None and not changed_argument.of:
            yield KeyChange(
                file_span(Location(file)),
                changed_argument.library,
                changed_argument.name,
                "default",
                changed_argument.since,
                changed_argument.then,
                changed_argument.now,
            )


def _came(name: str, old: Mapping[str, Release], new: Mapping[str, Release]) -> str:
    """The release of transformers that brought an argument which only the newer one has; empty where both have it, or
    neither."""
    known, library = histories("transformers"), "transformers"
    if name not in known.raw or not {library} <= old.keys() & new.keys():
        return ""
    if known.state(name, old[library]) is not None or known.state(name, new[library]) is None:
        return ""
    return next((edge for edge, state in known.raw[name] if state is not None and release(edge) > old[library]), "")
