"""How much of a model the device at hand holds, by the predictions that `zerocfg build` chooses plans with."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES
from zerocfg.hardware import linux
from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.memory.host import loading_terms, node_bytes, rounding_terms
from zerocfg.memory.options import Options
from zerocfg.memory.predict import Prediction, predict, terms_of
from zerocfg.memory.rollouts import Sampling
from zerocfg.memory.tensor_parallel import timeline_of_rank
from zerocfg.memory.zero.replay import zero_terms
from zerocfg.models.hardware import Accelerator
from zerocfg.models.model_facts import ModelFacts, from_config
from zerocfg.models.spec import RunSpec
from zerocfg.resolve.model.activations import base_of, of_rank
from zerocfg.resolve.model.setup import Setup, setup_of
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.smoke.model.size import ALL, CUT_SHARE, LEAST_SHARE, WHOLE_SHARE, Room, Size, Work
from zerocfg.smoke.prepare.memory_files import memory_room
from zerocfg.smoke.prepare.shrink import fewer_layers, layers_of, least_layers
from zerocfg.source import disk

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.device import Device
    from zerocfg.smoke.prepare.folder import RunFolder

SEQUENCE = 1024
"""Tokens of a sample where no source states it: TRL's default."""
TRL_CHECKPOINTS = True
"""Gradient checkpointing where a recipe of TRL says nothing (trl 1.16, trainer/sft_config.py)."""
SHARE = 0.9
"""Of the host's free memory and of free disk space; others want some, too."""


def room_here(device: Device, ranks: int, limit: float, scratch: Path) -> Room:
    """The resources of each of ``ranks`` ranks on this machine."""
    _, available = linux.memory(Path("/"))
    granted = [size for size in (available, linux.memory_left(Path("/"))) if size is not None]
    each = -(-ranks // max(1, device.count))  # ranks that share a card
    return Room(
        device=None if device.room is None else device.room // each,
        host=int(min(granted) * SHARE) if granted else None,
        disk=int(shutil.disk_usage(scratch).free * SHARE),
        seconds=limit,
        unified_ranks=each if device.unified else 0,
        memory_files=memory_room(),
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """A run as predictions see it. ``value``: its effective settings by dotted name, None where there is none."""

    spec: RunSpec
    recipe: dict[str, object]
    value: Callable[[str], object]
    ranks: int
    accelerator: Accelerator
    work: Work = ALL

    def size(self, config: dict[str, object]) -> Size | None:
        """The prediction for this config.json; None where its tensors are not known."""
        found = self.prediction(config)
        if found is None:
            return None
        facts, setup, prediction = found
        elements = int(facts.parameters or 0)
        cast = 2 * elements if setup.workload and setup.workload.autocast else 0  # autocast keeps 16-bit copies
        work = replace(self.work, on_host="optimizer" in _offloaded(self.value))
        return Size(elements, prediction.device.high + cast, _host(facts, setup, elements, self.ranks), work)

    def prediction(self, config: dict[str, object]) -> tuple[ModelFacts, Setup, Prediction] | None:
        """The size of the run with this config.json; None where its tensors or its engine are not known."""
        facts = from_config(config)
        if facts.parameters is None or not facts.layout:
            return None
        dtype = config.get("dtype") or config.get("torch_dtype")
        try:
            setup = setup_of(self.value, self.recipe, self.spec, self.ranks, str(dtype) if dtype else None)
            if setup.workload is None:
                return None
            facts = of_rank(facts, config, setup)
            load = replace(setup.workload, autocast=False)
            timeline = timeline_of_rank(facts, load, setup.precision, config, setup.options)
            terms = terms_of(facts, setup.options, self.accelerator, base_of(config, setup))
            sampling = Sampling(setup.rollouts, setup.workload, config) if setup.rollouts else None
            return facts, setup, predict(facts, setup.options, timeline, self.accelerator, terms, sampling)
        except ValueError:
            return None


def _host(facts: ModelFacts, setup: Setup, elements: int, ranks: int) -> int:
    """Bytes of the host that all ranks take: offloaded states, or the model before it goes to the card, in fp32.

    Under ZeRO-3, too: the comparison with ZeRO-0 begins with a whole copy of the weights on every rank.
    """
    if isinstance(setup.options, Options):
        terms = (*zero_terms(facts, setup.options), *rounding_terms(facts, setup.options))
        return max(node_bytes((*terms, *loading_terms(facts, setup.options, width=4)), ranks), 4 * elements * ranks)
    return 4 * elements * ranks


def fit_of(run: RunFolder, plan: dict[str, object], ranks: int, device: Device, sequence: int, work: Work = ALL) -> Fit:
    """The run on ``ranks`` processes; ``plan`` says what was changed of its settings, ``sequence`` tokens of a sample.

    Predicted is what a smoke-run trains: every parameter, by the Trainer's loop where TRL's own is planned.
    """
    settings = run.lock.settings
    changed = {key: value for key, value in plan.items() if run.plan.get(key) != value}

    def value(name: str) -> object:
        if name in changed or name not in settings:
            return plan.get(name)
        found = settings[name].value
        if name.endswith("zero_hpz_partition_size") and isinstance(found, int):
            return min(found, ranks)
        return found

    spec, recipe = spec_of(run), run.lock.recipe
    if run.consumer == "trl":
        spec = spec.model_copy(update={"consumer": "transformers"})
        recipe = {"gradient_checkpointing": TRL_CHECKPOINTS} | recipe
    spec = spec.model_copy(update={"sequence_length": sequence})
    known = find_accelerator(device.name)
    accelerator = known[0] if known else Accelerator(name=device.name, vendor="nvidia")
    return Fit(spec, recipe, value, ranks, accelerator, work)


def spec_of(run: RunFolder) -> RunSpec:
    """The run of the spec that the folder was built from, while that file is as it was; else what the lock says."""
    source, folder = run.lock.inputs.get("spec"), run.lock.spec_folder
    if source is not None and folder is not None:
        path = run.path / folder / source.path
        try:
            fresh = hashlib.sha256(disk.whole(path, FILE_BYTES)).hexdigest() == source.sha256
            spec = read_spec(path).spec if fresh else None
        except (OSError, ValueError):
            spec = None
        if spec is not None and run.name in spec.runs:
            return spec.runs[run.name]
    return RunSpec.model_construct(consumer=run.consumer, script=run.lock.script or "")


def sequence_of(run: RunFolder) -> tuple[int | None, str]:
    """Tokens of a sample, and the source that states it; None where none does."""
    length = spec_of(run).sequence_length
    if length is not None:
        return length, "sequence_length of the spec"
    for decision in run.lock.settings.values():
        length = _count(decision.inputs.get("sequence_length"))
        if length:
            return length, "sequence_length of the spec"
    recipe = run.lock.recipe
    completion = _count(recipe.get("max_completion_length"))
    if completion:
        return completion + _count(recipe.get("max_prompt_length")), "the recipe's completion and prompt"
    for name in ("max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length", "cutoff_len"):
        length = _count(recipe.get(name))
        if length:
            return length, f"{name} of the recipe"
    if run.consumer == "trl":
        return 1024, "the default of TRL's max_length"
    return None, ""


def most_layers(fit: Fit, config: dict[str, object], room: Room) -> tuple[int, Size | None, str]:
    """The largest number of layers that fits, their size, and what one more would lack ("": all fit).

    0 layers: not even the fewest that hold one of each kind. Raises ValueError where the sizes are not known.
    """
    count = layers_of(config)
    if count is None:
        raise ValueError("the number of layers is not known")

    def lacks(layers: int) -> tuple[Size, str | None]:
        size = fit.size(config if layers == count else fewer_layers(config, layers))
        if size is None:
            raise ValueError("the sizes of the tensors are not known")
        share = LEAST_SHARE if layers <= least else WHOLE_SHARE if layers == count else CUT_SHARE
        return size, size.against(room, share)

    least = least_layers(config)
    size, lacking = lacks(count)
    if lacking is None:
        return count, size, ""
    low, high = least - 1, count  # low fits (or is none), high does not
    found: Size | None = None
    while high - low > 1:
        middle = (low + high) // 2
        size, why = lacks(middle)
        if why is None:
            low, found = middle, size
        else:
            high, lacking = middle, why
    return (low if found else 0), found, lacking


def _offloaded(value: Callable[[str], object]) -> list[str]:
    """What the engine keeps in the host's memory or on a drive."""
    kinds = {kind: value(f"zero_optimization.offload_{kind}.device") for kind in ("optimizer", "param")}
    return [kind for kind, device in kinds.items() if device in ("cpu", "nvme")]


def _count(value: object) -> int:
    """A number of tokens; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
