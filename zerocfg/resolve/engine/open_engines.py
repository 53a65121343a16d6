"""Whether the engine of a run is open, and which ones it could then use."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.versions import admits
from zerocfg.resolve.engine.engine_selection import launched_source
from zerocfg.run.stages.arguments import arguments_of

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.plan import Engine

TRAINERS = ("transformers", "trl")
"""Consumers whose loop trains with each engine; the loop of a script's own is written for one."""
_NAMES_ONE = ("distributed_type", "deepspeed_config", "fsdp_config", "parallelism_config", "megatron_lm_config")
"""Keys of an accelerate config, or options of its launcher, that are for one engine."""
_SWITCHES = ("use_deepspeed", "use_fsdp", "use_megatron_lm")
"""Options of accelerate's launcher that turn on one engine."""
_FSDP_2 = {"accelerate": "1.6", "torch": "2.6", "transformers": "5.0"}
"""The releases from which on a Trainer shards with FSDP 2: accelerate's and torch's have it, and of older Trainers
nothing was seen."""


def is_open(found: Inputs) -> bool:
    """Whether goals are to be met and nothing names an engine."""
    run, spec, profile = found.run, found.spec, found.profile
    if spec.goals is None or spec.engine is not None or run.consumer not in TRAINERS:
        return False
    if profile is None or profile.accelerator.vendor == "cpu" or run.deepspeed is not None:
        return False
    source = launched_source(run)
    named = any(source.get(key) for key in _NAMES_ONE) or any(name in run.environment for name in _exported())
    return not named and source.get("mixed_precision") != "fp8"


@cache
def _exported() -> frozenset[str]:
    """The variables by which the launcher's switches reach the job."""
    options = load_schema("accelerate-launcher").root.keys
    return frozenset(variable for switch in _SWITCHES for variable in options[switch].variables)


def engines_for(found: Inputs) -> tuple[Engine, ...]:
    """The engines that can run a job whose engine is open, from the one with least machinery on."""
    engines: list[Engine] = ["ddp"]
    if not launched_source(found.run).get("dynamo_config"):  # accelerate hands it to no DeepSpeed job
        engines.append("deepspeed")
    if _has_fsdp_2(found):
        engines.append("fsdp")
    return tuple(engines)


def _has_fsdp_2(found: Inputs) -> bool:
    """Whether FSDP 2 shards the run: several devices, started by accelerate, not in fp16 (nothing was seen of its loss
    scaling there), in releases that have it."""
    profile, arguments = found.profile, arguments_of(found.run)
    several = profile is not None and profile.world_size > 1
    half = arguments.get("fp16") or launched_source(found.run).get("mixed_precision") == "fp16"
    bf16 = profile is not None and profile.accelerator.bf16 is not False
    older = any(admits(found.run.versions.get(library), below=since) for library, since in _FSDP_2.items())
    return several and bf16 and not half and not older and found.spec.launcher in (None, "accelerate")
