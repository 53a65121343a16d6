"""The keys of the emitted accelerate config: those that accelerate reads, and tolerates beside a DeepSpeed file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.resolve.plan import Decision
from zerocfg.run.model import UNKNOWN

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs

STAGE = "zero_optimization.stage"

# Keys of a source config that reach the launched job and that the build does not decide.
KEPT_TOP = ("gpu_ids", "main_process_port", "debug", "main_training_function")
KEPT_DEEPSPEED = ("deepspeed_moe_layer_cls_names",)
SECTION = "deepspeed_config."


def accelerate_keys(
    inputs: Inputs, settings: dict[str, Decision], processes: int, machines: int
) -> dict[str, Decision]:
    """The keys by their dotted names, in the order in which they are written."""
    engine, cpu = inputs.engine, on_cpu(inputs)
    kind, why = "DEEPSPEED", f"the engine is DeepSpeed ({_reason(settings, 'engine')})"
    if engine == "ddp":
        kind = "NO" if processes == 1 else "MULTI_GPU"
        why = "one process" if processes == 1 else f"{processes} processes without sharding"
        if cpu and processes > 1:
            why += "; for MULTI_CPU accelerate starts one process unless mpirun is there"
    keys = {
        "compute_environment": Decision("LOCAL_MACHINE", "", "chosen"),
        "distributed_type": Decision(kind, why, "computed"),
    }
    if engine == "ddp":
        # Unknown: the script sets it, and what the script sets wins over this file.
        if _value(settings, "mixed_precision") is not None:
            keys["mixed_precision"] = settings["mixed_precision"]
        if cpu and processes == 1:
            hardware = inputs.profile.name if inputs.profile else "the machine"
            keys["use_cpu"] = Decision(True, f"{hardware} has no accelerator", "hardware")
    keys["num_machines"] = settings["num_machines"]
    keys["num_processes"] = settings["num_processes"]
    rank = "launch.sh passes the rank of its node" if machines > 1 else "the only machine"
    keys["machine_rank"] = Decision(0, rank, "computed")
    source = inputs.run.accelerate.data() if inputs.run.accelerate else None
    source = source if isinstance(source, dict) else {}
    keys.update(_kept(source, KEPT_TOP, ""))
    if engine == "deepspeed":
        keys.update(_deepspeed_section(_value(settings, STAGE), machines))
        section = source.get("deepspeed_config")
        keys.update(_kept(section if isinstance(section, dict) else {}, KEPT_DEEPSPEED, SECTION))
    return keys


def on_cpu(inputs: Inputs) -> bool:
    """Whether the ranks compute on the host."""
    profile = inputs.profile
    return profile is not None and profile.accelerator.vendor == "cpu"


def _kept(source: dict[str, Any], names: tuple[str, ...], prefix: str) -> dict[str, Decision]:
    return {
        prefix + key: Decision(source[key], "as in the accelerate config", "file")
        for key in names
        if source.get(key) not in (None, False, "all", "main", "")
    }


def _deepspeed_section(stage: Any, machines: int) -> dict[str, Decision]:
    sharded = stage == 3
    file = "holds every other DeepSpeed setting; relative to where launch.sh changes to"
    early = f"ZeRO stage {stage}" + (": the model is sharded while it is made" if sharded else "")
    keys = {
        SECTION + "deepspeed_config_file": Decision("ds_config.json", file, "chosen"),
        SECTION + "zero3_init_flag": Decision(sharded, early, "computed"),
    }
    if machines > 1:
        keys[SECTION + "deepspeed_multinode_launcher"] = Decision(
            "standard", "every node runs launch.sh itself; pdsh would need a hostfile", "chosen"
        )
    return keys


def _value(settings: dict[str, Decision], name: str) -> Any:
    one = settings.get(name)
    return None if one is None or one.value is UNKNOWN else one.value


def _reason(settings: dict[str, Decision], name: str) -> str:
    one = settings.get(name)
    return one.reason if one else "nobody sets it"
