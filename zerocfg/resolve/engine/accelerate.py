"""The keys of the emitted accelerate config: those that accelerate reads, and tolerates beside a DeepSpeed file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.models.accelerate.dynamo import DynamoConfig
from zerocfg.models.accelerate.fp8 import Fp8Config
from zerocfg.models.accelerate.fsdp import FsdpConfig
from zerocfg.models.accelerate.parallelism import ParallelismConfig
from zerocfg.resolve.engine.engine_selection import launched_source
from zerocfg.resolve.engine.fsdp import known_everywhere
from zerocfg.resolve.plan import Decision
from zerocfg.resolve.provenance import Provenance
from zerocfg.run.model import UNKNOWN

if TYPE_CHECKING:
    from zerocfg.models.base import Section
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.plan import Engine

STAGE = "zero_optimization.stage"

# Keys of a source config that reach the launched job and that the build does not decide.
KEPT_TOP = ("gpu_ids", "main_process_port", "debug", "main_training_function")
KEPT_DEEPSPEED = ("deepspeed_moe_layer_cls_names",)
SECTION = "deepspeed_config."
FSDP = "fsdp_config."


def accelerate_keys(
    inputs: Inputs, settings: dict[str, Decision], processes: int, machines: int
) -> dict[str, Decision]:
    """The keys by their dotted names, in the order in which they are written; none when accelerate does not launch."""
    if inputs.spec.launcher not in (None, "accelerate"):
        return {}
    engine, cpu = inputs.engine, on_cpu(inputs)
    keys = {
        "compute_environment": Decision("LOCAL_MACHINE", "", "chosen"),
        "distributed_type": _kind(inputs, settings, processes),
    }
    if engine != "deepspeed":
        precision = _precision(inputs, settings)
        if precision is not None:
            keys["mixed_precision"] = precision
        if cpu and processes == 1:
            hardware = inputs.profile.name if inputs.profile else "the machine"
            keys["use_cpu"] = Decision(True, f"{hardware} has no accelerator", "hardware")
    keys["num_machines"] = settings["num_machines"]
    keys["num_processes"] = settings["num_processes"]
    rank = "launch.sh passes the rank of its node" if machines > 1 else "the only machine"
    keys["machine_rank"] = Decision(0, rank, "computed")
    source = launched_source(inputs.run)
    keys.update(_kept(source, KEPT_TOP, ""))
    if engine == "deepspeed":
        keys.update(_deepspeed_section(_value(settings, STAGE), machines))
        section = source.get("deepspeed_config")
        keys.update(_kept(section if isinstance(section, dict) else {}, KEPT_DEEPSPEED, SECTION))
    if engine == "fsdp":
        keys.update(_fsdp_section(inputs, settings))
    keys.update(_sections(source, engine, _value(settings, "mixed_precision")))
    return keys


def _precision(inputs: Inputs, settings: dict[str, Decision]) -> Decision | None:
    """Where the script decides it by a value that nobody knows, what the sources hand it: it may keep that."""
    if _value(settings, "mixed_precision") is not None:
        return settings["mixed_precision"]
    handed = inputs.run.effective.environment.get("ACCELERATE_MIXED_PRECISION")
    if handed is None or not handed.known:
        return None
    kept = Provenance(inputs.run, inputs.folder).decision("mixed_precision", handed)
    return replace(kept, reason=f"{kept.reason}; the script may set another")


def _kind(inputs: Inputs, settings: dict[str, Decision], processes: int) -> Decision:
    """`distributed_type`, which chooses the engine."""
    if inputs.engine == "deepspeed":
        return Decision("DEEPSPEED", f"the engine is DeepSpeed ({_reason(settings, 'engine')})", "computed")
    if inputs.engine == "fsdp":
        return Decision("FSDP", f"the engine is FSDP ({_reason(settings, 'engine')})", "computed")
    if processes == 1:
        return Decision("NO", "one process", "computed")
    why = f"{processes} processes without sharding"
    if on_cpu(inputs):
        why += "; for MULTI_CPU accelerate starts one process unless mpirun is there"
    return Decision("MULTI_GPU", why, "computed")


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


def _fsdp_section(inputs: Inputs, settings: dict[str, Decision]) -> dict[str, Decision]:
    """What accelerate's plugin reads in this version; a key without a value is left to it, and so is a default that an
    admitted release has no key for."""
    known = [name for name in FsdpConfig.model_fields if _value(settings, FSDP + name) is not None]
    return {
        FSDP + name: settings[FSDP + name]
        for name in known
        if settings[FSDP + name].kind != "default" or known_everywhere(inputs.run, name)
    }


def _sections(source: dict[str, Any], engine: Engine, precision: Any) -> dict[str, Decision]:
    """Sections of the source that this engine's launcher hands to the job, as far as it knows their keys."""
    read: list[tuple[str, type[Section]]] = [("parallelism_config", ParallelismConfig)]
    if engine != "deepspeed":
        read.append(("dynamo_config", DynamoConfig))
    if precision == "fp8":
        read.append(("fp8_config", Fp8Config))
    keys: dict[str, Decision] = {}
    for name, model in read:
        section = source.get(name)
        for key, value in section.items() if isinstance(section, dict) else ():
            spelled = key if key in model.model_fields or not model.prefix_optional else model.prefix + key
            if spelled in model.model_fields and value is not None:
                keys[f"{name}.{spelled}"] = Decision(value, "as in the accelerate config", "file")
    return keys


def _value(settings: dict[str, Decision], name: str) -> Any:
    one = settings.get(name)
    return None if one is None or one.value is UNKNOWN else one.value


def _reason(settings: dict[str, Decision], name: str) -> str:
    one = settings.get(name)
    if one is not None and one.value is UNKNOWN:
        return "as its sources are launched; the script decides the rest"
    return one.reason if one else "nobody sets it"
