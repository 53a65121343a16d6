"""Helpers for rules that read the effective settings of a run."""

from __future__ import annotations

from typing import Any

from zerocfg.catalog.values import whole_number
from zerocfg.catalog.versions import library_name
from zerocfg.frontends.registry import OWN_NAMES, front_end
from zerocfg.rules.api import Location, at
from zerocfg.run.model import NewInstallStop, Origin, Run, SourceFile
from zerocfg.run.origins import ASSUMED, origin_label
from zerocfg.run.remembered import remembered
from zerocfg.run.requirements.companions import limiting_import, limiting_package
from zerocfg.run.script.arguments import call_of
from zerocfg.run.templates import is_template, opened_by_script

TRAINERS = frozenset(("transformers", "trl", *OWN_NAMES))
"""Those under whom the Trainer reads the DeepSpeed config. A rule for them is asked about front ends of other packages,
too (`Rule.concerns`)."""
WITH_ACCELERATE = TRAINERS | {"accelerate"}
"""Those who give the DeepSpeed config to accelerate, which fills in what is "auto"."""


def under_trainer(run: Run) -> bool:
    """Whether the Trainer reads the DeepSpeed config."""
    return run.consumer in TRAINERS or front_end(run.consumer) is not None


def with_accelerate(run: Run) -> bool:
    """Whether accelerate gets the DeepSpeed config and fills in what is "auto"."""
    return run.consumer == "accelerate" or under_trainer(run)


def describe_origin(origin: Origin) -> str:
    """An origin as a message says it: ``in ds.json``, ``by --zero_stage in train.sh``, ``the default of ...``."""
    if origin.kind == "file" and origin.file is not None:
        return f"in {origin.file.name}"
    if origin.kind in ("flag", "environment"):
        where = f" in {origin.file.name}" if origin.file is not None else ""
        return f"by `{origin.note}`{where}" if origin.note else f"on the launch line{where}"
    if origin.kind == "default":
        return f"the {origin_label(origin)}" if origin.note[-1:].isdigit() else f"by default: {origin.note}"
    return origin_label(origin)


def effective_value(run: Run, name: str) -> Any:
    """The effective value of a dotted name: None where nothing says anything, UNKNOWN where nobody can know."""
    return run.effective.value(name)


def admitted(run: Run, library: str) -> str:
    """The versions of a library that the project admits, as a message says it: ``requirements.txt:3 admits >=0.17``.
    Where the settings or the spec say so there is no place; a build assumes the newest where nothing does."""
    text = run.declared(library) or ""
    stated = run.version_places.get(library, ())
    if not stated:
        return f"declared: {text}"
    if stated == ASSUMED:
        return f"no release is declared, so that a new install gets the newest; {text} is the newest known"
    places = [_stated_at(place, library) for place in stated]
    if len(places) > 2:
        places = [*places[:2], f"{len(places) - 2} more"]
    return f"{' and '.join(places)} admit{'s' * (len(places) == 1)} {text}"


def _stated_at(place: Origin, library: str) -> str:
    """Where it stands; with what else holds the library back: another package, Python, or an import."""
    where = written_at(place)
    if place.file is None or place.span is None:
        return where
    if limiting_import(place):
        return f"the import at {where}"
    package = limiting_package(place, library)
    return f"{package} ({where})" if package else where


def written_at(place: Origin) -> str:
    """The file and the line of a place."""
    if place.file is None or place.span is None:
        return origin_label(place)
    return f"{place.file.name}:{place.file.source.place(place.span.start).line}"


def stopped_by(stop: NewInstallStop) -> str:
    """Why a new install does not start the script, as a message says it."""
    where = written_at(stop.origin)
    if stop.clash:
        return f"a new install stops before: it brings releases of {stop.clash} that do not go together"
    if stop.refused:
        newest = f"the newest {library_name(stop.library)}"
        return f"a new install stops before: {where} gives from_pretrained() `{stop.refused}`, which {newest} refuses"
    if not stop.imported:
        return f"a new install stops before: the newest {library_name(stop.library)} does without the torch of {where}"
    return f"a new install stops before: {where} imports `{stop.imported}`, which it does not bring"


def admitting(run: Run, library: str) -> list[Location]:
    """The places that state those versions, as related places of a finding."""
    found = (at(place, "the versions that the project admits") for place in run.version_places.get(library, ()))
    return [location for location in found if location is not None]


def under_deepspeed_launcher(run: Run) -> bool:
    """Whether accelerate's launcher starts the job for DeepSpeed (the training arguments may still choose it)."""
    return "ACCELERATE_USE_DEEPSPEED" in run.effective.environment


def stage_of(run: Run) -> int | None:
    """The ZeRO stage as the engine reads it, None when it is not known.

    An "auto" whose filler is unknown counts as unknown.
    """
    value = effective_value(run, "zero_optimization.stage")
    if isinstance(value, str):
        return whole_number(value)
    return int(value) if isinstance(value, (int, float)) and value in (0, 1, 2, 3) else None


def fits_at(run: Run, stage: int) -> bool:
    """Whether a stage with nothing offloaded leaves plenty of memory: its states and buffers take less than half of
    what there is for training, and where the activations of the run are known too, the most that is predicted is less
    than the accelerator has."""
    whole, memory = run.hardware.memory_gib if run.hardware else None, run.memory
    if whole is None or memory is None:
        return False
    room = whole - memory.vllm_gib
    if memory.states_gib.get(stage, room) > room / 2:
        return False
    peak = memory.stage_peaks_gib.get(stage)
    return peak is None or peak[1] <= whole


def training_memory(run: Run) -> str:
    """The memory of an accelerator for training, in words: ``79 GiB an accelerator on 8xA100``, and what vLLM keeps."""
    assert run.hardware is not None and run.hardware.memory_gib is not None and run.memory is not None
    of, vllm = run.hardware.memory_gib, run.memory.vllm_gib
    left = f"the {of - vllm:.0f} GiB that vLLM leaves of" if vllm else f"{of:.0f} GiB"
    return f"{left} an accelerator on {run.hardware.name}"


def gathers(run: Run) -> int:
    """How often ZeRO-3 gathers a parameter for a micro batch: once where it stays from forward to backward pass."""
    reach = effective_value(run, "zero_optimization.stage3_max_reuse_distance")
    reach = reach if isinstance(reach, int) else 1_000_000_000
    return 1 if run.model and run.model.parameters and run.model.parameters <= reach else 2


def section(run: Run, *path: str) -> dict[str, Any]:
    """A mapping of the DeepSpeed config as written; empty when it is absent or no mapping."""
    value: object = deepspeed_data(run)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def tuned(run: Run) -> bool:
    """Whether the config is what `deepspeed --autotuning` starts from: it adds what a training needs besides."""
    return section(run, "autotuning").get("enabled") is True and ("autotuning" in run.flags or run.consumer is None)


def changed_before(run: Run) -> bool:
    """Whether something completes the DeepSpeed config before a library reads it: whoever fills in a template that
    nobody starts a job with, or the script, which opens the file by itself."""
    if run.deepspeed is None:
        return False
    if run.launch is None and run.consumer is None and is_template(run.deepspeed):
        return True
    return opened_by_script(run)


@remembered
def _data(file: SourceFile) -> object:
    """Built once, although most rules ask for it. Nobody changes it."""
    return file.data()


def deepspeed_data(run: Run) -> dict[str, Any]:
    data = _data(run.deepspeed) if run.deepspeed else None
    return data if isinstance(data, dict) else {}


BUILT = {"optimizer": "optimizer", "scheduler": "lr_scheduler"}
"""Sections of which the engine builds something, and the argument of `deepspeed.initialize` that takes its place."""


def brings(run: Run, section: str) -> bool:
    """Whether the script hands DeepSpeed an optimizer or a scheduler, so that none is built of this section."""
    if run.consumer is None:
        return section in run.elsewhere.brought
    call = call_of(run.script, "deepspeed.initialize") if run.consumer == "deepspeed" else None
    given = call.arguments.get(BUILT[section]) if call is not None else None
    return given is not None and given.value is not None


def compute_environment(run: Run) -> object:
    """Where the accelerate config lets a job run; None without one that is a mapping."""
    data = _data(run.accelerate) if run.accelerate else None
    return data.get("compute_environment", "LOCAL_MACHINE") if isinstance(data, dict) else None


def accelerate_data(run: Run) -> dict[str, object]:
    """The accelerate config as written, when the launcher reads it as a config of a local machine."""
    data = _data(run.accelerate) if run.accelerate else None
    return (
        data if isinstance(data, dict) and data.get("compute_environment", "LOCAL_MACHINE") == "LOCAL_MACHINE" else {}
    )


def recipe_data(run: Run) -> dict[str, Any]:
    data = _data(run.recipe) if run.recipe else None
    return data if isinstance(data, dict) else {}


def accelerate_section(run: Run, name: str = "deepspeed_config") -> dict[str, object]:
    value = accelerate_data(run).get(name)
    return value if isinstance(value, dict) else {}
