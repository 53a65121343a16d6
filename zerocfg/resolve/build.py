"""Builds the plans of a spec file; the command line only prints the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.hardware.between_nodes import with_network
from zerocfg.hardware.profile import load_hardware
from zerocfg.resolve.collect_inputs import collect_inputs
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.plan import Problem
from zerocfg.resolve.resolve import resolve
from zerocfg.resolve.spec.locate_problems import locate_problems
from zerocfg.run.discover import Files
from zerocfg.run.link import runs_from_spec
from zerocfg.run.model_source import open_model
from zerocfg.run.origins import place_of
from zerocfg.run.releases import with_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.spec import RunSpec
    from zerocfg.resolve.plan import Plan
    from zerocfg.resolve.spec.spec_file import SpecFile
    from zerocfg.run.model import Run, SourceFile
    from zerocfg.source.text import Where

THIS = "this"


@dataclass(slots=True)
class BuildResult:
    """The outcome for one run: a plan, or problems. ``inputs`` are as they were resolved, ``source`` is the run as its
    files start it."""

    name: str
    inputs: Inputs
    source: Run
    plan: Plan | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def run(self) -> Run:
        """The run as the build computed it."""
        return self.inputs.run

    @property
    def moved_from(self) -> set[Where]:
        """Where the settings stand that the build writes elsewhere, as diagnostics name places."""
        settings = self.run.effective.settings
        places = (place_of(settings[name].origin) for name in self.inputs.moved if name in settings)
        return {place for place in places if place is not None}


def build_plans(
    spec: SpecFile,
    only: str | None = None,
    hardware: str | None = None,
    progress: Callable[[str], None] | None = None,
    versions: Mapping[str, str] | None = None,
    network: str | None = None,
) -> list[BuildResult]:
    """Resolve the runs of a valid spec, all or those that ``only`` names, for the releases that their project admits.
    Raises ValueError with one line where the command line names a run or hardware that there is not; ``progress`` is
    called with each run before work on it begins. ``versions``: the releases that zerocfg's settings state;
    ``network``: that between nodes, as ``--network`` takes it."""
    assert spec.spec is not None
    wanted = set(spec.selected(only))
    files = Files()
    built = []
    runs = [run for run in runs_from_spec(spec.path, files) if run.name in wanted]
    for run in with_versions(runs, versions or {}):
        if progress is not None:
            progress(f"{run.name}: {_activity(spec.spec.runs[run.name])}")
        built.append(build_run(spec, run, files, hardware, network))
    return built


def build_run(
    spec: SpecFile, run: Run, files: Files, hardware: str | None = None, network: str | None = None
) -> BuildResult:
    """Resolve one run of a valid spec, with the releases that it states. Raises ValueError where ``hardware`` or
    ``network`` names none."""
    assert spec.spec is not None
    entry = spec.spec.runs[run.name]
    profile, problems = _hardware(hardware, entry, spec.folder, network)
    inputs = collect_inputs(run, entry, spec.folder, profile, model_file(entry, spec.folder, files))
    plan = None
    if not problems:
        inputs, plan = resolve(inputs)
        problems = list(inputs.problems)
    if plan is not None:
        plan.inputs.update(_base_files(spec, run.name))
    return BuildResult(run.name, inputs, run, plan, locate_problems(problems, spec, inputs.run))


def _base_files(spec: SpecFile, run: str) -> dict[str, Path]:
    """Other spec files that keys of a run come from, through ``extends``."""
    names = {written.document.name for written in spec.runs[run].places.values()} - {spec.document.name}
    return {f"base {number}": Path(name) for number, name in enumerate(sorted(names), 1)}


def _activity(entry: RunSpec) -> str:
    if entry.goals is None:
        return "resolving"
    return "comparing plans" + (" and tracing the best" if entry.goals.trace else "")


def model_file(entry: RunSpec, folder: Path, files: Files) -> SourceFile | None:
    """The config of a run's model, where the spec names one."""
    return open_model(entry.model, folder, files) if isinstance(entry.model, str) else None


def _hardware(
    override: str | None, entry: RunSpec, folder: Path, network: str | None = None
) -> tuple[HardwareProfile | None, list[Problem]]:
    """The profile of a run, and problems of the spec's `hardware:`. Raises ValueError for what is given beside it."""
    try:
        profile = _profile(override, entry, folder)
    except ValueError as error:
        if override is not None:
            raise
        message = str(error).replace(str(folder / (entry.hardware or "")), entry.hardware or "")
        help = "Name one of the catalogue (`8xA100-80GB`), or a profile that `zerocfg probe -o` wrote."
        return None, [Problem("hardware", message, help)]
    if profile is not None and network is not None:
        profile = with_network(profile, network)
    if profile is not None and entry.hosts and len(entry.hosts) != profile.nodes:
        message = f"{len(entry.hosts)} names for the {profile.nodes} nodes of {profile.name}"
        return profile, [Problem("hosts", message, "Name each node once, or leave `hosts` out.")]
    return profile, []


def _profile(override: str | None, entry: RunSpec, folder: Path) -> HardwareProfile | None:
    """The hardware of a run: the command line's, else the spec's (whose paths start at its folder)."""
    text = override or entry.hardware
    if text is None:
        return None
    if text == THIS:
        from zerocfg.hardware.probe import probe

        return probe()
    if override is None and text.lower().endswith(".json"):
        text = str(folder / text)
    return load_hardware(text)
