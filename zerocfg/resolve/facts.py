"""Model and hardware facts for the runs of a spec, so that linting them knows what the build will know.

Loaded only when there is a spec: it imports pydantic, which linting otherwise does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.hardware.profile import load_hardware
from zerocfg.internal_errors import Containment, contain
from zerocfg.models.layers import LAYER_CLASSES, foreign_classes
from zerocfg.resolve.build import THIS, model_file
from zerocfg.resolve.collect_inputs import collect_inputs, with_memory
from zerocfg.resolve.search.choose import with_open_values
from zerocfg.resolve.search.follow_ups import gather_weights
from zerocfg.resolve.search.search_space import leaves_batch_open
from zerocfg.resolve.spec.spec_file import check_spec
from zerocfg.resolve.training_steps import with_steps
from zerocfg.run.discover import Files
from zerocfg.run.model import Origin, Setting
from zerocfg.run.resolve_settings import resolve_settings
from zerocfg.run.stages.plugin import STAGE

if TYPE_CHECKING:
    from zerocfg.models.spec import RunSpec
    from zerocfg.resolve.spec.spec_file import SpecFile
    from zerocfg.run.model import Run


def with_facts(runs: list[Run], files: Files, contained: Containment | None = None) -> list[Run]:
    """The same runs; those of a spec as the build will start them, with model and hardware.

    A spec that does not hold together leaves its runs as they are: `zerocfg build` says what is wrong with it. So does
    what fails inside zerocfg, where ``contained`` takes it.
    """
    specs: dict[str, SpecFile] = {}
    found = []
    for run in runs:
        if run.spec is None or run.spec.path is None or run.spec.document is None:
            found.append(run)
            continue
        spec = specs.get(run.spec.name)
        if spec is None:  # the text that the run was made of, which may not be saved yet
            spec = specs[run.spec.name] = check_spec(run.spec.path, run.spec.document)
        entry = spec.spec.runs.get(run.name) if spec.spec else None
        if entry is not None:
            doing = f"resolve the run `{run.name}` as `zerocfg build` does"
            with contain(contained, doing, run.spec.name):
                run = _with_facts(run, spec, entry, files)
        found.append(_with_classes(run))
    return found


def _with_facts(run: Run, spec: SpecFile, entry: RunSpec, files: Files) -> Run:
    profile = None
    if entry.hardware is not None and entry.hardware != THIS:
        text = str(spec.folder / entry.hardware) if entry.hardware.endswith(".json") else entry.hardware
        try:
            profile = load_hardware(text)
        except ValueError:
            return run
    inputs = collect_inputs(run, entry, spec.folder, profile, model_file(entry, spec.folder, files))
    if inputs.problems:
        return run
    if entry.goals is None:
        inputs = with_open_values(inputs)  # a stage that is open is the one that the build will choose
    if entry.goals is None or not leaves_batch_open(inputs, resolve_settings(inputs.run)):
        inputs = with_steps(inputs)
    effective = resolve_settings(inputs.run)
    gathering = gather_weights(effective, effective.value(STAGE), entry.consumer)
    computed = {
        name: Setting(decision.value, Origin("computed", decision.reason)) for name, decision in gathering.items()
    }
    effective = replace(effective, settings={**effective.settings, **computed})
    inputs = replace(inputs, run=replace(inputs.run, effective=effective))
    if entry.goals is None:
        inputs = with_memory(inputs)  # else the build searches for what fits, which is not looked for here
    model = inputs.run.model
    if model is not None and inputs.facts.too_large:
        return replace(inputs.run, model=replace(model, too_large=True))
    return inputs.run


def _with_classes(run: Run) -> Run:
    """The run with the module classes of a known architecture."""
    if run.model is None or run.model.model_type not in LAYER_CLASSES:
        return run
    kind = run.model.model_type
    model = replace(run.model, layer_class=LAYER_CLASSES[kind], foreign_classes=foreign_classes(kind))
    return replace(run, model=model)
