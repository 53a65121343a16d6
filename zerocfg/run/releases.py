"""Which releases of the training libraries a run may have, and where that is stated.

Of the folders from the training script up to the repository's root the nearest that says something about a library
counts (`declared`); the folders of the run's other files count where the script's say nothing. A package that
transformers needs may hold it back (`companions`). What the launch script itself installs comes before them. The
script's own `check_min_version` bounds what is left, and so does the framework that starts the training (`ceilings`).
Where nothing states a release, an import of the script may show that it is not the newest (`Run.outdated`); whether the
script starts with what a new install brings is `Run.new_install_stop`.
zerocfg's settings win over all of these, the run's spec over both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from zerocfg.catalog.lost_names import lost_since
from zerocfg.catalog.versions import OLDEST, Release, both, bounds, only_below, release
from zerocfg.frontends.registry import front_end
from zerocfg.record import record, replace
from zerocfg.run.config import VERSIONS
from zerocfg.run.linking.entry_point import starts_elsewhere
from zerocfg.run.model import ImportedName, LostImport, NewInstallStop, Origin, ReleaseClash, Run, SourceFile
from zerocfg.run.origins import ASSUMED
from zerocfg.run.requirements.clashes import release_clashes, stop_of_clash
from zerocfg.run.requirements.companions import limited_releases, unreachable_newest
from zerocfg.run.requirements.deciders import FORKS, HOLDS, HOLDS_WHERE_OLD
from zerocfg.run.requirements.declared import LIBRARIES, Declared, Projects, all_of, any_of, installs_of, is_bare
from zerocfg.run.requirements.new_install import lost_imports, new_install_stop
from zerocfg.run.resolve_settings import with_releases, with_settings
from zerocfg.source import disk
from zerocfg.source.paths import is_image

_ANY_LATER = "1000"
"""A release that no package has: what stays below it names an upper bound."""


def with_newest_releases(run: Run) -> Run:
    """The run with the newest known release of each library whose release is not stated and may be the newest: builds
    target it."""
    missing = VERSIONS.keys() - run.versions.keys() - run.outdated.keys()
    places = {**run.version_places, **dict.fromkeys(missing, ASSUMED)}
    return replace(run, versions={**{name: VERSIONS[name] for name in missing}, **run.versions}, version_places=places)


@record(frozen=True, slots=True)
class OutsideKnownReleases:
    """A project admits no release of a library that zerocfg knows. ``known``: the nearest one that it does know;
    ``older``: what is admitted lies before it."""

    library: str
    declared: str
    known: str
    older: bool


def outside_known_releases(run: Run) -> list[OutsideKnownReleases]:
    """The libraries that a run trains with of which nothing is known in the releases that its project admits."""
    found = []
    for library in training_libraries(run):
        declared = run.versions.get(library, "")
        limits = bounds(declared) if declared else None
        if limits is None:
            continue
        low, high, closed = limits
        oldest, newest = release(OLDEST[library]), release(VERSIONS[library])
        if high < oldest or (high == oldest and not closed):
            found.append(OutsideKnownReleases(library, declared, OLDEST[library], True))
        elif low > newest:
            found.append(OutsideKnownReleases(library, declared, VERSIONS[library], False))
    return found


def training_libraries(run: Run) -> list[str]:
    """The libraries whose releases make a difference to a run, in the order of the reports."""
    trainer = run.consumer in ("transformers", "trl") or front_end(run.consumer) is not None
    uses = {
        "accelerate": run.accelerate is not None or run.consumer not in (None, "deepspeed"),
        "transformers": trainer,
        "deepspeed": run.deepspeed is not None or run.effective.value("engine") == "deepspeed",
        "trl": run.consumer == "trl",
    }
    return [library for library in VERSIONS if uses[library]]


def with_versions(runs: Iterable[Run], given: Mapping[str, str]) -> list[Run]:
    """The runs with the versions that their projects state. ``given`` (zerocfg's settings) wins, the run's own wins
    over both."""
    projects = _Projects()
    found = []
    for run in runs:
        stated = _stated(run, given, projects)
        beside = stated.release_clashes or stated.new_install_stop is not None
        if stated.undetermined or stated.forked or stated.outdated or beside:
            run = stated.without_versions(run)
        found.append(with_releases(run, stated.versions, stated.places) if stated.versions else run)
    return found


def with_versions_and_settings(given: Mapping[str, str]) -> Callable[[Run], Run]:
    """What gives runs the versions that `with_versions` does and then, once, the settings at these releases."""
    projects = _Projects()

    def settle(run: Run) -> Run:
        stated = _stated(run, given, projects)
        run = replace(stated.without_versions(run), versions=stated.versions, version_places=stated.places)
        return with_settings(run)

    return settle


class _Stated(NamedTuple):
    """What is known of the releases of a run; the fields are those of `Run`, ``places`` its ``version_places``."""

    versions: Mapping[str, str]
    places: Mapping[str, tuple[Origin, ...]]
    undetermined: frozenset[str]
    forked: frozenset[str]
    outdated: Mapping[str, ImportedName]
    lost_imports: tuple[LostImport, ...]
    new_install_stop: NewInstallStop | None
    release_clashes: tuple[ReleaseClash, ...]

    def without_versions(self, run: Run) -> Run:
        """The run with what is known beside the releases themselves."""
        return replace(
            run,
            undetermined=self.undetermined,
            forked=self.forked,
            outdated=self.outdated,
            lost_imports=self.lost_imports,
            new_install_stop=self.new_install_stop,
            release_clashes=self.release_clashes,
        )


def _stated(run: Run, given: Mapping[str, str], projects: _Projects) -> _Stated:
    """The versions of a run, where its project states them, the libraries whose release cannot be determined, those of
    which a fork may be installed, and those whose newest release the script cannot run with."""
    stated = _of_run(run, projects)
    every = _as_imported(run, stated)
    asked = {name: item for name, item in every.items() if name in LIBRARIES}
    elsewhere = run.launch is not None and run.entry_point is None and starts_elsewhere(run.launch)
    if elsewhere:
        installed = _installed(_installing(run))
        asked = {name: installed.get(name, Declared(None)) for name in LIBRARIES}
    read = {name: item for name, item in asked.items() if item.clauses}
    own = {**given, **run.versions}
    versions = {**{name: item.clauses or "" for name, item in read.items()}, **own}
    undetermined = frozenset(name for name, item in asked.items() if item.clauses is None and name not in own)
    places = {name: item.places for name, item in read.items() if name not in own}
    lost = lost_imports(run, stated)
    stop = new_install_stop(run, stated, lost, held_by_trl=next(_held_back_by_trl(run, stated), None) is not None)
    clashes = () if elsewhere else _clashes(run, stated, own, projects)
    if stop is None:
        stop = next((found for one in clashes if (found := stop_of_clash(one)) is not None), None)
    known = _Stated(versions, places, undetermined, forked(every), _outdated(run, versions), lost, stop, clashes)
    if stop is not None or run.script is None or not run.script.loads:
        return known
    from zerocfg.run.requirements.refused_loads import stopping_load  # few scripts load what a release may refuse

    return known._replace(new_install_stop=stopping_load(replace(known.without_versions(run), versions=versions)))


def _clashes(
    run: Run, stated: Mapping[str, Declared], own: Mapping[str, str], projects: _Projects
) -> tuple[ReleaseClash, ...]:
    """The clashes of what is stated. ``own``: what zerocfg's settings and the spec say in its place."""
    places = _Places.of(run, _installing(run), projects)
    named = _of_project(places, projects).named
    chosen = {**stated, **{name: Declared(clauses) for name, clauses in own.items()}}
    return release_clashes(run, chosen, named, lambda base: _python(places, base, projects))


def _outdated(run: Run, versions: Mapping[str, str]) -> dict[str, ImportedName]:
    """By library without a stated release: of the names that the script imports and that the newest lacks the one that
    was lost first."""
    found: dict[str, tuple[Release, ImportedName]] = {}
    for item in run.script.imported if run.script is not None else ():
        if item.library not in VERSIONS or item.library in versions:
            continue
        since = lost_since(item.module, item.name)
        if since and (item.library not in found or release(since) < found[item.library][0]):
            found[item.library] = release(since), item
    return {library: item for library, (_, item) in found.items()}


def versions_for(folder: Path) -> dict[str, Declared]:
    """By library: the clauses that the nearest project states, and where; undeterminable ones are left out."""
    found = _Projects().nearest(folder)
    return {name: item for name, item in found.items() if name in LIBRARIES and item.clauses}


def release_files(run: Run, known: dict[object, frozenset[str]]) -> frozenset[str]:
    """The real paths of the files that are read for the releases of a run. ``known``: those of other runs, by what
    decides which files are read."""
    required = run.script.required if run.script is not None else ()
    projects, installing = _Projects(), _installing(run)
    key = (_Places.of(run, installing, projects), installing, bool(required))
    if key not in known:
        with disk.reading() as read:
            found = _of_run(run, projects)
            for declared in found.values():
                _python(key[0], declared, projects)
        known[key] = frozenset(map(disk.real, read))
    return known[key]


def requirement(run: Run, package: str) -> Declared | None:
    """What the run's project says about one of its packages, where it asks for it at all."""
    projects, installing = _Projects(), _installing(run)
    places = _Places.of(run, installing, projects)
    found = {**_of_folders(places, projects), **_installed(installing)}
    return found.get(package)


def _of_run(run: Run, projects: _Projects) -> dict[str, Declared]:
    installing = _installing(run)
    stated = _of_project(_Places.of(run, installing, projects), projects)
    own = _installed(installing)
    found = {**stated.found, **own}
    open_ = dict(stated.open)
    for package in HOLDS.keys() & found.keys():
        open_ |= dict.fromkeys(HOLDS[package], Declared(None, found[package].places))
    for package in HOLDS_WHERE_OLD.keys() & found.keys():
        if only_below(found[package].clauses, _ANY_LATER):
            open_ |= dict.fromkeys(HOLDS_WHERE_OLD[package], Declared(None, found[package].places))
    for library in forked(found):
        open_[library] = Declared(None)
    found = {**open_, **found}
    for name, declared in _required(run).items():
        found[name] = _bounded(found.get(name), declared, firm=True)
    for name, declared in _framework(run, found).items():
        found[name] = _bounded(found.get(name), declared, firm=False)
    return found


def _as_imported(run: Run, stated: Mapping[str, Declared]) -> dict[str, Declared]:
    """What is stated, within the bounds of what the script and its TRL import."""
    found = dict(stated)
    for name, declared in _importable(run):
        if name in found and found[name].clauses:
            found[name] = _bounded(found[name], declared, firm=False)
    for name, declared in _held_back_by_trl(run, found):
        found[name] = _bounded(found.get(name), declared, firm=False)
    return found


class _Places(NamedTuple):
    """Where the project of a run may state releases, and the Python that its launch script or page sets up by itself.
    Many runs of a repository have the same."""

    start: Path | None
    """The folder of the training script."""
    others: tuple[Path, ...]
    """The folders of the run's files."""
    python: Declared | None

    @classmethod
    def of(cls, run: Run, installing: SourceFile | None, projects: _Projects) -> _Places:
        script = run.script.file if run.script is not None else None
        start = projects.folder_of(script.path if script is not None else None) or projects.folder_of(run.entry_point)
        others = filter(None, (projects.folder_of(file.path) for file in run.files))
        return cls(start, tuple(dict.fromkeys(others)), _own_python(installing) if installing is not None else None)


def _own_python(file: SourceFile) -> Declared | None:
    from zerocfg.run.requirements.python import installed_python  # which a lint of two configs does not need

    return installed_python(file)


class _OfProject(NamedTuple):
    """What a project states about libraries: each with a release, those whose release cannot be determined, and those
    that it names and says nothing about."""

    found: Mapping[str, Declared]
    open: Mapping[str, Declared]
    named: Mapping[str, Declared]


class _Projects(Projects):
    """The folders of one repository, and what several of them state together."""

    def __init__(self) -> None:
        super().__init__()
        self.stated: dict[_Places, _OfProject] = {}


def _of_project(places: _Places, projects: _Projects) -> _OfProject:
    known = projects.stated.get(places)
    if known is None:
        found = _of_folders(places, projects)
        for name, declared in limited_releases(found, lambda base: _python(places, base, projects)):
            found[name] = _bounded(found[name], declared, firm=False)
        open_ = dict(unreachable_newest(found, lambda base: _python(places, base, projects)))
        named = {name: item for name, item in found.items() if is_bare(name, item)}
        found = {name: item for name, item in found.items() if name not in named}
        known = projects.stated[places] = _OfProject(found, open_, named)
    return known


def forked(stated: Collection[str]) -> frozenset[str]:
    """The libraries in whose place one of these packages installs a fork."""
    return frozenset(library for fork in FORKS.keys() & set(stated) for library in FORKS[fork])


def _of_folders(places: _Places, projects: _Projects) -> dict[str, Declared]:
    """The requirements of the script's project, then those of the other files, any of which may hold."""
    found = dict(projects.nearest(places.start)) if places.start is not None else {}
    read = [projects.nearest(folder) for folder in places.others if folder != places.start]
    for name in dict.fromkeys(name for item in read for name in item):
        if name not in found:
            stated = [item[name] for item in read if name in item]
            found[name] = any_of([item for item in stated if not is_bare(name, item)] or stated)
    return found


def _python(places: _Places, base: Declared, projects: _Projects) -> Declared | None:
    """The Python that the launch script or its page sets up, else the one that is set up for what states a library
    (``base``): in the folder of that statement, or nearer to the script."""
    from zerocfg.run.requirements.python import required_python

    if places.python is not None:
        return places.python
    stated = [Path(disk.real(place.file.path)) for place in base.places if place.file and place.file.path]
    folders = dict.fromkeys(filter(None, (places.start, *places.others)))
    return next(filter(None, (required_python(folder, stated, projects.pythons) for folder in folders)), None)


def _installed(file: SourceFile | None) -> Mapping[str, Declared]:
    """What the shell script, notebook, Markdown page or Dockerfile of the launch line installs by itself, or the
    notebook that trains in its own cells (``file``)."""
    return installs_of(file) if file is not None else {}


def _installing(run: Run) -> SourceFile | None:
    """The file that may set up what the run needs: that of the launch line, or a notebook that trains by itself."""
    line, script = run.launch_file, run.script.file if run.script is not None else None
    if line is None:
        return script if script is not None and script.name.endswith(".ipynb") else None
    installs = line.name.endswith((".sh", ".bash", ".slurm", ".sbatch", ".ipynb", ".md"))
    return line if installs or is_image(line.name.rpartition("/")[2]) else None


def _required(run: Run) -> dict[str, Declared]:
    """What the script refuses to run without: `check_min_version("4.40.0")`, `require_version("trl>=0.9")`."""
    required = run.script.required if run.script is not None else ()
    if not required:
        return {}
    from zerocfg.source.requirements.pip import parse_requirement

    stated: dict[str, list[Declared]] = {}
    for text, origin in required:
        requirement = parse_requirement(text, 0)
        if requirement is not None and requirement.versions:
            stated.setdefault(requirement.name, []).append(Declared(requirement.versions, (origin,)))
    return {name: all_of(every) for name, every in stated.items()}


def _importable(run: Run) -> Iterator[tuple[str, Declared]]:
    """What the script imports as soon as it is started, and newer releases lack."""
    for item in run.script.imported if run.script is not None else ():
        since = lost_since(item.module, item.name)
        if since is not None:
            yield item.library, Declared(f"<{since}", (_of_import(item),))


def _held_back_by_trl(run: Run, found: Mapping[str, Declared]) -> Iterator[tuple[str, Declared]]:
    """What the project's release of TRL imports itself, where the script imports TRL or no script is known."""
    trl = found.get("trl")
    imported = [item for item in run.script.imported if item.library == "trl"] if run.script is not None else []
    if trl is None or not trl.clauses or (run.script is not None and not imported):
        return
    from zerocfg.catalog.install_limits import limits_of_trl, names_of_trl

    for library, edges in limits_of_trl().items():
        newest = next((newest for below, newest in edges.items() if only_below(trl.clauses, below)), None)
        if newest is not None:
            yield library, Declared(f"<={newest}", trl.places)
    for since, names in names_of_trl().items():
        for item in imported:
            if item.name in names and only_below(trl.clauses, names[item.name]):
                yield "transformers", Declared(f"<{since}", (*trl.places, _of_import(item)))


def _of_import(item: ImportedName) -> Origin:
    return replace(item.origin, kind="computed", note=item.shown)


def _framework(run: Run, found: Mapping[str, Declared]) -> dict[str, Declared]:
    """What the framework that starts the training allows, at the release of it that the project states."""
    reader = front_end(run.consumer)
    facts = reader.facts if reader is not None else None
    if facts is None or not facts.requires:
        return {}
    from zerocfg.run.requirements.ceilings import allowed

    stated = found.get(facts.package)
    if stated is not None and stated.clauses is None:  # a copy of it, or a commit: nobody knows the release
        return {}
    allows = {name: allowed(facts, stated.clauses if stated is not None else None, name) for name in LIBRARIES}
    return {
        name: Declared(item[0], (Origin("computed", item[1]),)) for name, item in allows.items() if item is not None
    }


def _bounded(found: Declared | None, declared: Declared, *, firm: bool) -> Declared:
    """A statement within the bounds of another. Where they leave nothing, the other is right if it is ``firm``."""
    if found is None:
        return declared
    if found.clauses is None:
        return found
    clauses = both([found.clauses, declared.clauses or ""])
    if clauses is None:
        return declared if firm else found
    if bounds(clauses) == bounds(found.clauses):  # it says nothing new
        return found
    return Declared(_without_wider(clauses), tuple(dict.fromkeys((*found.places, *declared.places))))


def _without_wider(clauses: str) -> str:
    """Clauses without the upper bounds that another one leaves nothing to do."""
    parts = clauses.split(",")
    for part in clauses.split(","):
        rest = [item for item in parts if item != part]
        if part.startswith("<") and rest and bounds(",".join(rest)) == bounds(clauses):
            parts = rest
    return ",".join(parts)
