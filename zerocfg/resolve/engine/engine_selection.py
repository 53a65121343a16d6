"""Which engine and launcher apply to a run, and which of its files reach the job.

DeepSpeed runs of a Trainer are resolved as accelerate would launch them, whatever the launcher: the settings are the
same, and a job started by `torchrun` or `deepspeed` gets them as one DeepSpeed file without any `auto`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from zerocfg.catalog.values import whole_number
from zerocfg.models.accelerate.deepspeed import DeepSpeedConfig as DeepSpeedSection
from zerocfg.models.accelerate.dynamo import DynamoConfig
from zerocfg.models.accelerate.fp8 import Fp8Config
from zerocfg.models.accelerate.fsdp import FsdpConfig
from zerocfg.models.accelerate.parallelism import ParallelismConfig
from zerocfg.resolve.engine.fsdp import choose_fsdp
from zerocfg.resolve.plan import Engine, Problem
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.options import ALIASES
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.models.base import Section
    from zerocfg.models.spec import RunSpec
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.run.model import Route

NO_SPAN = Span(0, 0)
EVERY_DEVICE = "all"
"""What `gpu_ids` says where it chooses none."""
PLAIN = ("NO", "MULTI_GPU", False, None)
"""Values of `distributed_type` that ask for no engine."""
ELSEWHERE = {
    "gpu_ids": "Set CUDA_VISIBLE_DEVICES where the job is started",
    "dynamo_config": "Write `torch_compile: true` into the recipe",
    "parallelism_config": "Write `parallelism_config:` into the recipe",
    "megatron_lm_config": "Take it out",
}
"""Keys of an accelerate config that only `accelerate launch` passes to the job, and the remediation under another
launcher."""
MOE = "deepspeed_moe_layer_cls_names"
_KINDS = {"multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM"}
"""Options of accelerate's launcher that choose what `distributed_type` chooses."""
_SECTIONS: dict[str, type[Section]] = {
    "deepspeed_config": DeepSpeedSection,
    "fsdp_config": FsdpConfig,
    "dynamo_config": DynamoConfig,
    "parallelism_config": ParallelismConfig,
    "fp8_config": Fp8Config,
}
_DECIDED = frozenset({"config_file", "num_processes", "num_machines", "machine_rank", "main_process_ip", "cpu"})
"""Options whose place the hardware and the emitted files take."""
_TOP = ("mixed_precision", "gpu_ids", "main_process_port", "debug", "main_training_function")


def engine_of(run: Run, spec: RunSpec) -> Engine:
    """The engine that the spec names, else the one that a source asks for."""
    if spec.engine is not None:
        return spec.engine
    kind = launched_source(run).get("distributed_type")
    if kind == "DEEPSPEED" or run.consumer == "deepspeed":
        return "deepspeed"
    # A launch line may name a config and start without the engine.
    unused = spec.deepspeed is None and run.effective.value("engine") in ("ddp", "single", "fsdp")
    if run.deepspeed is not None and not unused:
        return "deepspeed"
    return "fsdp" if kind == "FSDP" else "ddp"


def select_engine(found: Inputs) -> Inputs:
    """The run with its launcher and the launcher's flags, without the files that do not reach it."""
    found = replace(found, run=_with_its_launcher(found.run, found.spec))
    kind = launched_source(found.run).get("distributed_type")
    found = replace(found, problems=(*found.problems, *_not_emitted(found, kind), *_wrong_launcher(found)))
    if found.engine != "deepspeed":
        found = _without_deepspeed(found, kind)
    if found.engine == "fsdp":
        found = choose_fsdp(found, launched_source(found.run))
    run = found.run
    if run.consumer == "deepspeed":
        launch = run.launch or _line("deepspeed" if found.spec.launcher == "deepspeed" else "torchrun")
        return replace(found, run=replace(run, launch=launch, deepspeed_route="engine" if run.deepspeed else None))
    flags = dict(run.flags)
    if found.engine == "deepspeed" and kind != "DEEPSPEED":
        flags["use_deepspeed"] = Setting(True, Origin("computed", "the engine of this run is deepspeed"))
    launch = run.launch or _line("accelerate")
    route: Route | None = "accelerate" if run.deepspeed else None
    return replace(found, run=replace(run, launch=launch, deepspeed_route=route, flags=flags))


def launch_of_ranks(
    launcher: Literal["torchrun", "deepspeed"], nodes: int, each: int
) -> tuple[LaunchLine, dict[str, Setting]]:
    """The launch line of a job of ``nodes`` times ``each`` ranks, and its flags."""
    origin = Origin("computed", f"{nodes} node{'s' * (nodes > 1)} of {each} rank{'s' * (each > 1)}")
    names = {"torchrun": ("nnodes", "nproc_per_node"), "deepspeed": ("num_nodes", "num_gpus")}[launcher]
    flags = {name: Setting(str(count), origin) for name, count in zip(names, (nodes, each), strict=True)}
    return _line(launcher), flags


def launched_source(run: Run) -> dict[str, Any]:
    """What accelerate's launcher is told: its config file, and the options of the launch line in the form of one."""
    data = run.accelerate.data() if run.accelerate else None
    found = dict(data) if isinstance(data, dict) else {}
    given = {name: flag for name, flag in run.flags.items() if flag.known and _is_told(name, flag)}
    known = {ALIASES.get(name, name): _converted(ALIASES.get(name, name), flag.value) for name, flag in given.items()}
    for name, kind in _KINDS.items():
        if known.get(name) is True:
            found["distributed_type"] = kind
    for name, value in known.items():
        section = next((section for section, model in _SECTIONS.items() if name in model.model_fields), None)
        if section is not None:
            options = found.get(section)
            found[section] = {**(options if isinstance(options, dict) else {}), name: value}
        elif name in _TOP:
            found[name] = value
    return found


def _is_told(option: str, flag: Setting) -> bool:
    """Whether the sources say it, or the hardware has overruled what they say."""
    return flag.origin.kind == "flag" or (option == "gpu_ids" and flag.value == EVERY_DEVICE)


def _converted(name: str, value: Any) -> Any:
    """An option's value as its parser converts it, where a config file may not hold the text."""
    number = whole_number(value) if name == "main_process_port" else None
    return value if number is None else number


def reaches_the_job(option: str) -> bool:
    """Whether a build keeps what an option of accelerate's launcher says, or decides it itself."""
    name = ALIASES.get(option, option)
    sections = any(name in model.model_fields for model in _SECTIONS.values())
    return sections or name in _TOP or name in _KINDS or name in _DECIDED


def _with_its_launcher(run: Run, spec: RunSpec) -> Run:
    """The run without a launch line of another launcher than the one that launch.sh will use: its options say nothing
    to that one."""
    own = run.consumer == "deepspeed"
    wanted = ("torchrun" if own else "accelerate") if spec.launcher is None or not own else spec.launcher
    if run.launch is None or run.launch.launcher == wanted:
        return run
    return replace(run, launch=None, flags={})


def _line(launcher: Literal["accelerate", "torchrun", "deepspeed"]) -> LaunchLine:
    return LaunchLine(launcher, (), None, (), (), {}, NO_SPAN)


def _without_deepspeed(found: Inputs, kind: Any) -> Inputs:
    run, notes = found.run, list(found.notes)
    if run.deepspeed is not None:
        notes.append(f"engine: {found.engine} leaves out the DeepSpeed config")
    accelerate, flags = run.accelerate, dict(run.flags)
    fits = kind in PLAIN or (kind == "FSDP" and found.engine == "fsdp")
    if accelerate is not None and not fits:
        notes.append(f"engine: {found.engine} leaves out the accelerate config, which is for {kind}")
        precision = launched_source(run).get("mixed_precision")
        if isinstance(precision, str):
            flags["mixed_precision"] = Setting(precision, Origin("file", file=accelerate, path=("mixed_precision",)))
        accelerate = None
    run = replace(run, deepspeed=None, deepspeed_route=None, accelerate=accelerate, flags=flags)
    return replace(found, run=run, notes=tuple(notes))


# -- launchers ---------------------------------------------------------------------------------------------------------


def _not_emitted(found: Inputs, kind: Any) -> Iterator[Problem]:
    if kind in ("MEGATRON_LM", "XLA") and found.spec.engine is None and found.run.deepspeed is None:
        help_ = "Set `engine: deepspeed`, `engine: fsdp` or `engine: ddp` in the spec."
        yield Problem("distributed_type", f"{kind} cannot be emitted yet", help_)
    precision = found.run.effective.get("mixed_precision")
    if found.engine == "deepspeed" and precision is not None and precision.value == "fp8" and _by_launcher(precision):
        why = "fp8 cannot be emitted: accelerate launch takes no `mixed_precision` beside a DeepSpeed file"
        yield Problem("mixed_precision", why, 'Write `mixed_precision="fp8"` into the Accelerator() of the script.')


def _by_launcher(setting: Setting) -> bool:
    """Whether a setting is an option of the launcher or a key of its config, and not of the script."""
    path = setting.origin.path
    return setting.origin.kind == "flag" or (setting.origin.kind == "file" and path == ("mixed_precision",))


def _wrong_launcher(found: Inputs) -> Iterator[Problem]:
    launcher, consumer = found.spec.launcher, found.run.consumer
    if launcher == "accelerate" and consumer == "deepspeed":
        why = "a training loop of its own gets its config as --deepspeed_config; accelerate launch would add nothing"
        yield Problem("launcher", why, "Set `launcher: torchrun` or `launcher: deepspeed`.")
    if launcher in ("torchrun", "deepspeed") and consumer == "accelerate":
        why = "Accelerator() finds its engine and precision in variables that accelerate launch exports; under "
        why += f"{launcher} it would train plain data parallel"
        yield Problem("launcher", why, "Leave `launcher:` out, or set `launcher: accelerate`.")
    if launcher in ("torchrun", "deepspeed") and consumer in ("transformers", "trl"):
        yield from _lost(found.run, launcher)


def _lost(run: Run, launcher: str) -> Iterator[Problem]:
    """Settings of the accelerate config, and of the launch line, that no other launcher passes on. Their DeepSpeed
    settings do reach the job."""
    source = launched_source(run)
    for key, instead in ELSEWHERE.items():
        if source.get(key) not in (None, {}, EVERY_DEVICE):
            yield _lost_key(run, launcher, key, key, instead)
    section = source.get("deepspeed_config")
    if isinstance(section, dict) and section.get(MOE):
        instead = "Write `zero_optimization.leaf_module.classes` into the DeepSpeed config"
        yield _lost_key(run, launcher, f"deepspeed_config.{MOE}", MOE, instead)
    precision = source.get("mixed_precision")
    if precision in ("fp16", "bf16", "fp8"):
        arguments = arguments_of(run)
        if not any(arguments.get(name) or arguments.get(name) is UNKNOWN for name in ("fp16", "bf16")):
            instead = f"Write `{precision}: true` into the recipe" if precision != "fp8" else "Take it out"
            yield _lost_key(run, launcher, "mixed_precision", f"mixed_precision: {precision}", instead)


def _lost_key(run: Run, launcher: str, key: str, what: str, instead: str) -> Problem:
    data = run.accelerate.data() if run.accelerate is not None else None
    in_file = isinstance(data, dict) and key.partition(".")[0] in data
    file = run.accelerate if in_file else run.launch_file
    name = file.name if file is not None else "the launch line"
    why = f"{name} sets {what}, which only accelerate launch hands to the job, not {launcher}"
    return Problem(key, why, f"{instead}, or leave `launcher:` out.")
