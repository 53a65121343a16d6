"""Everything between a spec file and its plans; the command line only prints what comes out of here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.hardware.profile import load_hardware
from zerocfg.resolve.inputs import Inputs, gather
from zerocfg.resolve.resolve import resolve
from zerocfg.run.discover import Files
from zerocfg.run.link import runs_from_spec

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.spec import RunSpec
    from zerocfg.resolve.plan import Plan, Problem
    from zerocfg.resolve.spec_file import SpecFile
    from zerocfg.run.model import Run

THIS = "this"


@dataclass(slots=True)
class Built:
    """The outcome for one run: a plan, or problems. ``run`` is the run as the build computed it."""

    name: str
    run: Run
    inputs: Inputs
    plan: Plan | None = None
    problems: list[Problem] = field(default_factory=list)


def build_plans(spec: SpecFile, only: str | None = None, hardware: str | None = None) -> list[Built]:
    """Resolve the runs of a valid spec, all or the one named ``only``. Raises ValueError for bad hardware."""
    assert spec.spec is not None
    files = Files()
    built = []
    for run in runs_from_spec(spec.path, files):
        if only is not None and run.name != only:
            continue
        entry = spec.spec.runs[run.name]
        profile = _profile(hardware, entry, spec.folder)
        model = files.open(spec.folder / entry.model) if isinstance(entry.model, str) else None
        inputs = gather(run, entry, spec.folder, profile, model)
        plan, problems = resolve(inputs)
        built.append(Built(run.name, inputs.run, inputs, plan, problems))
    return built


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
