"""Which runs a repository holds: what its specs, launch lines and configs start or point at.

Runs are found here; how paths are followed stands in `follow`, the run of a launch line in `launched`, those of a spec
in `specified`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import NEIGHBOURS
from zerocfg.internal_errors import Containment, contain
from zerocfg.record import record, replace
from zerocfg.run.consulted import Consulted, decides_releases, may_be_consulted, states_releases
from zerocfg.run.discover import Files, is_launch_file, launch_lines, walk
from zerocfg.run.linking.follow import Find, Paths, get, with_framework_recipe
from zerocfg.run.model import Run, SourceFile, files_of, original
from zerocfg.run.remembered import remembered
from zerocfg.run.resolve_settings import with_settings
from zerocfg.run.trainer_state import with_resumed
from zerocfg.run.uncollected import uncollected
from zerocfg.source import disk

if TYPE_CHECKING:
    from zerocfg.source.launch.line import LaunchLine


@uncollected()
def find_runs(
    paths: Sequence[Path],
    files: Files,
    *,
    root: Path | None = None,
    skip: Callable[[SourceFile], bool] | None = None,
    scripts: bool = False,
    contained: Containment | None = None,
    settle: Callable[[Run], Run] = with_settings,
    kept: Links | None = None,
) -> tuple[list[Run], set[int]]:
    """The runs that the given files and folders take part in, and the ids of the source files asked about.

    A folder asks about everything of ours below it. A single file pulls its partners in from the repository around it
    (``root``: the nearest folder upwards that holds ``.git``, else the current one); a script stands for the runs that
    start it, and a file that states releases for those whose releases are read from it. Files to
    ``skip`` are as if they were not there. ``scripts``: Python files that write out a config or the arguments of a
    Trainer make runs of their own where no line starts them. ``contained`` takes what fails inside zerocfg, and the run
    or file that it is about is left out; without it such an error is raised. ``settle`` gives a run its settings, and
    whatever they depend on and the files of the run do not say. ``kept``: what launch lines and configs by themselves
    were linked to before.
    """
    asked: dict[int, SourceFile] = {}
    single = False
    named_files = [path for path in paths if not disk.is_dir(path)]
    for path in paths:
        if disk.is_dir(path):
            below = walk(path, scripts=scripts, not_entered=files.not_entered)
            found: Iterable[SourceFile] = filter(None, map(files.peek, below))
        elif states_releases(path) and not is_launch_file(path):
            found, single = (), True
        else:
            found = [files.open(path)]
            single = True
        asked.update((id(file), file) for file in found)
    pool = dict(asked)
    if single:
        for top in _tops(paths, root):
            for count, path in enumerate(walk(top, scripts=scripts)):
                if count >= NEIGHBOURS:
                    break
                partner = files.peek(path)
                if partner is not None:
                    pool.setdefault(id(partner), partner)
    known = [file for file in pool.values() if skip is None or not skip(file)]
    if single and scripts and not any(map(decides_releases, named_files)):
        known = _near(known, asked)
    followed = Paths(files, root or Path.cwd())
    runs = _runs(followed, known, scripts, contained, kept or Links())
    if scripts and (any(file.kind == "script" for file in known) or any(run.script is not None for run in runs)):
        # few repositories need it
        from zerocfg.run.linking.standalone_scripts import standalone_runs, without_read_configs

        with contain(contained, "read the scripts that no launch line starts"):
            standalone = standalone_runs(followed, known, runs)
            runs = [*without_read_configs(runs, standalone), *standalone]
    code = [file for file in pool.values() if file.kind == "script" and (skip is None or not skip(file))]
    if code or any(run.script is not None for run in runs):
        from zerocfg.run.linking.project_scripts import with_what_is_elsewhere

        runs = with_what_is_elsewhere(runs, code)
    named = {files.real(file.path) for file in asked.values() if file.kind == "script" and file.path}
    kinds = {files.real(file.path): file.kind for file in asked.values() if file.path} if single else {}
    consulted = {real for path in named_files if may_be_consulted(path, kinds.get(real := files.real(path)))}
    memory = Consulted()
    resolved = []
    for run in runs:
        with contain(contained, f"compute the settings of the run `{run.name}`", run.main_file):
            wanted = any(id(original(file)) in asked for file in files_of(run)) or (
                named and run.entry_point is not None and files.real(run.entry_point) in named
            )
            if not wanted and not consulted:
                continue
            run = with_resumed(followed, run)
            if wanted or memory.any_of(consulted, run):
                resolved.append(settle(run))
    return resolved, set(asked)


def runs_from_spec(path: Path, files: Files | None = None) -> list[Run]:
    """The runs of one spec file, in its order. The paths in it are relative to its folder."""
    files = files or Files()
    from zerocfg.run.linking.spec_runs import from_spec

    return [with_settings(run) for run in from_spec(Paths(files, disk.resolved(path).parent), files.open(path))]


def run_of_file(path: Path, files: Files, written: Find | None = None) -> Run | None:
    """The run that one config file makes with what it points at; None where it is no config. ``written`` gives files
    that are yet to be written."""
    paths = Paths(files, Path.cwd())
    run = _alone(paths.after(written) if written else paths, files.open(path))
    return with_settings(run) if run is not None else None


def _near(known: list[SourceFile], asked: Mapping[int, SourceFile]) -> list[SourceFile]:
    """The files without scripts that can have no run with those asked about: they name neither these nor a config that
    names them."""
    names = {_called(file) for file in asked.values()}
    configs = [file for file in known if file.kind not in ("script", "launch")]
    names |= {_called(file) for file in configs if any(name in file.source.text for name in names)}
    return [
        file
        for file in known
        if file.kind != "script" or id(file) in asked or any(name in file.source.text for name in names)
    ]


@remembered
def _called(file: SourceFile) -> str:
    """What every text holds that names the file; a script is named as a module, too."""
    path = Path(file.name)
    return path.stem if file.kind == "script" else path.name


def _tops(paths: Sequence[Path], root: Path | None) -> list[Path]:
    if root is not None:
        return [root]
    tops: list[Path] = []
    for path in paths:
        if disk.is_dir(path):
            continue
        folder = disk.resolved(path).parent
        top = next((above for above in (folder, *folder.parents) if disk.exists(above / ".git")), None)
        if top is None:
            cwd = Path.cwd()
            top = cwd if folder.is_relative_to(cwd) and cwd != Path.home() else folder
        if top not in tops:
            tops.append(top)
    return tops


def _runs(
    paths: Paths, pool: list[SourceFile], scripts: bool, contained: Containment | None, links: Links
) -> list[Run]:
    runs: list[Run] = []
    for file in pool:
        if file.kind == "spec":
            from zerocfg.run.linking.spec_runs import from_spec

            with contain(contained, "find the runs of this spec", file.name):
                runs += from_spec(paths, file)
    specified = [run for run in runs if run.reader_evidence is not None]
    for file in pool:
        if file.kind == "launch" or (scripts and file.kind == "script"):
            with contain(contained, "read the launch lines of this file", file.name):
                runs += _of_launch_lines(paths, file, specified, links)
    used = {id(original(file)) for run in runs for file in run.files}
    for kind in ("accelerate", "recipe", "neighbour", "deepspeed", "other"):
        for file in pool:
            if id(file) in used or file.kind != kind:
                continue
            with contain(contained, "find what reads this file", file.name):
                run = links.linked(paths, file, None)
                if run is None:
                    continue
                runs.append(_like_its_siblings(paths, run, runs) if kind in ("recipe", "accelerate") and runs else run)
                used |= {id(original(item)) for item in run.files}
    return runs


def _of_launch_lines(paths: Paths, file: SourceFile, specified: Sequence[Run], links: Links) -> list[Run]:
    lines = [run for line in launch_lines(file) if (run := links.linked(paths, file, line)) is not None]
    if specified:
        from zerocfg.run.linking.spec_runs import with_specified_consumer

        lines = [with_specified_consumer(run, specified) for run in lines]
    for line in launch_lines(file):
        if line.written:
            from zerocfg.run.linking.heredocs import runs_by_branch

            lines += runs_by_branch(file, line)
    return lines


class Links:
    """What launch lines, and configs by themselves, are linked to. Of `begin` to `begin` a link is used again where the
    file is the same, and so is every file that was opened to follow it; what the disk was asked otherwise is the matter
    of whoever keeps this (see `zerocfg.linter.kept`)."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], _Link] = {}
        self._now: dict[tuple[int, int], _Link] = {}
        self._files: Files | None = None
        self._given: frozenset[str] = frozenset()

    def begin(self, files: Files) -> None:
        """Links are made anew. Where other files than before have a text in their place, none is used again unless
        these were read before, too: one of them may have been looked for."""
        given, before = frozenset(files.given), self._files
        other = given ^ self._given
        same = not other or (before is not None and before is not files and all(map(before.has_read, other)))
        self._before, self._now = self._now if same else {}, {}
        self._files, self._given = files, given

    def forget(self) -> None:
        self._before, self._now = {}, {}

    def linked(self, paths: Paths, file: SourceFile, line: LaunchLine | None) -> Run | None:
        """The run of a launch line, or without one that of the file by itself; None where it makes none."""
        key = id(file), id(line)
        link = self._before.get(key)
        if link is None or link.file is not file or link.line is not line or not paths.files.holds(link.opened):
            with paths.files.opened() as opened:
                link = _Link(file, line, _linked(paths, file, line), opened)
        self._now[key] = link
        return link.run


@record(frozen=True, slots=True)
class _Link:
    file: SourceFile
    line: LaunchLine | None
    run: Run | None
    opened: Mapping[str, SourceFile]


def _linked(paths: Paths, file: SourceFile, line: LaunchLine | None) -> Run | None:
    if line is None:
        return _alone(paths, file)
    from zerocfg.run.linking.launch_line_runs import from_line

    return from_line(paths, file, line)


def _like_its_siblings(paths: Paths, run: Run, known: Sequence[Run]) -> Run:
    from zerocfg.run.linking.sibling_recipes import as_siblings, with_address_of_siblings

    if run.recipe is None:
        return with_address_of_siblings(run, known)
    from zerocfg.run.linking.possible_lines import with_script_of_lines

    found = with_script_of_lines(run, known)
    if found.script is None:
        found = as_siblings(run, known, paths.root)
    if found.script is None:
        return found
    from zerocfg.run.linking.script_runs import with_script_arguments

    return with_script_arguments(found)


def _alone(paths: Paths, file: SourceFile) -> Run | None:
    """The run of one file by itself, with what it points at."""
    if file.kind == "accelerate":
        return paths.with_accelerate(Run(file.name), file, [])
    if file.kind == "recipe":
        run = paths.with_recipe(Run(file.name), file, [])
        read = run.deepspeed is not None or isinstance(get(file, "deepspeed"), dict)
        return replace(run, consumer="transformers") if read else run
    if file.kind == "neighbour":
        run = with_framework_recipe(Run(file.name), None, file)
        return paths.with_deepspeed(run, run.arguments.get("deepspeed"), paths.around(file), "trainer")
    if file.kind != "deepspeed":
        return None
    written_as_json = file.source.text.lstrip().startswith("{")
    return Run(file.name, deepspeed=paths.as_json(file) if written_as_json else file)
