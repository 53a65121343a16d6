"""ZC7xx: environment variables that a launch line or its file sets, and what the launchers make of them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, anchor, under_deepspeed_launcher
from zerocfg.rules.launch.machines import option, place_of
from zerocfg.rules.line import (
    all_options_seen,
    as_count,
    at_line,
    before_script,
    exported,
    flag,
    line_fix,
    mentions,
    number_of,
    says,
    started_by,
)
from zerocfg.rules.proof import shows
from zerocfg.run.model import UNKNOWN, Run, Setting

_YAML = "distributed_type: DEEPSPEED\nnum_processes: %s\ndeepspeed_config:\n  zero_stage: 2\n"
_LINE = "accelerate launch --config_file accelerate.yaml %strain.py\n"
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
_SOURCE = "accelerate/utils/launch.py@1.15.0"
_TRUE = ("y", "yes", "t", "true", "on", "1")


def _accelerate(line: str, processes: int = 2, more: str = "") -> Example:
    return Example({"accelerate.yaml": _YAML % processes + more, "train.sh": line}, consumer="accelerate")


def _engine(line: str) -> Example:
    return Example({"ds.json": _DS, "train.sh": line + " train.py --deepspeed_config ds.json\n"}, consumer="deepspeed")


@rule(
    "ZC743",
    "visible-devices-too-few",
    Severity.ERROR,
    bad=(
        _accelerate("CUDA_VISIBLE_DEVICES=0,1 " + _LINE % "", 4).finds(
            "error", "train.sh: train.py", "0,1", 2, 4, also=("accelerate.yaml: num_processes: 4",)
        ),
        Example(
            _engine("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4").files,
            consumer="deepspeed",
            proof=shows(
                "launch",
                {"env.CUDA_VISIBLE_DEVICES": ("0,1", "0,1"), "launch.nproc_per_node": (4, "2")},
                extent="that the launcher starts four processes which see two devices. No cards were used.",
            ),
        ).finds("error", "train.sh: train.py", "0,1", 2, 4, also=("train.sh: --nproc_per_node 4",)),
    ),
    good=_accelerate("CUDA_VISIBLE_DEVICES=0,1 " + _LINE % ""),
    proof=shows(
        "launch",
        {"env.CUDA_VISIBLE_DEVICES": ("0,1", "0,1"), "launch.nproc_per_node": ("4", "2")},
        extent="that the launcher starts four processes which see two devices. No cards were used.",
    ),
    references=(_SOURCE,),
)
def visible_devices_too_few(run: Run) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES names fewer devices than the launcher starts processes.

    The number of processes usually comes from a config that was written for the whole machine, and the variable from
    somebody who wanted a part of it.

    What happens: no launcher compares the two. torchrun's and DeepSpeed's processes ask for a device that they cannot
    see (`CUDA error: invalid device ordinal`); accelerate's share devices, until NCCL stops at the duplicate or the
    memory runs out.

    When to ignore: the processes do not train on these devices.
    """
    devices = exported(run, "CUDA_VISIBLE_DEVICES")
    if devices is None or not devices.replace(",", "").isdecimal():
        return
    listed = [part for part in devices.split(",") if part]
    if started_by(run, "accelerate"):
        if option(run, "gpu_ids") not in (None, "all") or option(run, "num_machines") not in (None, 1):
            return
        processes, place = as_count(option(run, "num_processes")), "num_processes"
        if run.effective.value("engine") not in ("deepspeed", "fsdp", "ddp", "megatron"):
            return
    elif started_by(run, "torchrun"):
        processes, place = number_of(run, "nproc_per_node"), "nproc_per_node"
    else:
        return
    if processes is None or processes <= len(listed):
        return
    where = [place_of(run, place)[0]]
    yield Finding(
        at_line(run),
        f"CUDA_VISIBLE_DEVICES={devices} shows {len(listed)} device{'s' * (len(listed) > 1)} to {processes} processes",
        "name as many devices as there are processes, or start fewer",
        where,
    )


@rule(
    "ZC744",
    "port-variable-not-read",
    Severity.WARNING,
    bad=(
        _accelerate("MASTER_PORT=29501 " + _LINE % "").finds("warning", "train.sh: train.py", 29501, 29500, 29501),
        Example(
            _engine("MASTER_PORT=29501 deepspeed --num_gpus 2").files,
            consumer="deepspeed",
            proof=shows("launch", {"launch.master_port": ("29500", "29501")}),
        ).finds("warning", "train.sh: train.py", 29501, 29500, 29501),
    ),
    good=_accelerate(_LINE % "--main_process_port 29501 "),
    proof=shows("launch", {"launch.master_port": ("29500", "29501")}),
    fixable=True,
    references=(_SOURCE, "deepspeed/launcher/runner.py@0.19.8"),
)
def port_variable_not_read(run: Run) -> Iterator[Finding]:
    """MASTER_PORT is set for a launcher that does not read it.

    It is set to keep two jobs on one machine apart, which then meet at port 29500 all the same.

    What happens: `accelerate launch`, torchrun and the `deepspeed` runner take the port from their own option and
    write MASTER_PORT for their processes anew. accelerate warns `Port 29500 is already in use`; DeepSpeed's second
    job stops with `EADDRINUSE`, `address already in use`.

    Fix: gives the port to the launcher.

    When to ignore: the training script, or something else on the line, reads the variable.
    """
    port = exported(run, "MASTER_PORT")
    launcher = run.launch.launcher if run.launch is not None else None
    name = {"accelerate": "main_process_port", "deepspeed": "master_port", "torchrun": "master_port"}.get(str(launcher))
    if port is None or not port.isdecimal() or name is None or port == "29500" or mentions(run, "MASTER_PORT"):
        return
    if launcher == "torchrun" and (flag(run, "rdzv_backend", "standalone") or not flag(run, "nnodes")):
        return  # torchrun on one machine looks for a free port by itself
    if flag(run, name, "rdzv_endpoint") is not None or not all_options_seen(run):
        return
    if launcher == "accelerate" and (option(run, name) is not None or run.effective.value("engine") == "single"):
        return
    yield Finding(
        at_line(run),
        f"{'accelerate launch' if launcher == 'accelerate' else launcher} does not read MASTER_PORT={port}: "
        "the port stays 29500",
        f"give --{name} {port}",
        fix=line_fix(run, f"give --{name}", before_script(run, f"--{name} {port}"), gives=says(name, port)),
    )


@rule(
    "ZC745",
    "variable-replaced-by-launcher",
    Severity.ERROR,
    bad=(
        _accelerate("ACCELERATE_MIXED_PRECISION=bf16 " + _LINE % "").finds(
            "error",
            "train.sh: ACCELERATE_MIXED_PRECISION=bf16 accelerate launch --config_file accelerate.yaml train.py",
        ),
        Example(
            _accelerate("CUDA_VISIBLE_DEVICES=2,3 " + _LINE % "", more="gpu_ids: 0,1\n").files,
            consumer="accelerate",
            proof=shows(
                "launch",
                {"env.CUDA_VISIBLE_DEVICES": ("0,1", "")},
                extent="what the variable holds when the processes start.",
            ),
        ).finds(
            "error",
            "train.sh: CUDA_VISIBLE_DEVICES=2,3 accelerate launch --config_file accelerate.yaml train.py",
            "2,3",
            "0,1",
            also=("accelerate.yaml: gpu_ids: 0,1",),
        ),
    ),
    good=_accelerate(_LINE % "--mixed_precision bf16 "),
    proof=shows(
        "launch",
        {"env.ACCELERATE_MIXED_PRECISION": ("no", "bf16")},
        extent="what the variable holds when the processes start.",
    ),
    references=(_SOURCE,),
)
def variable_replaced_by_launcher(run: Run) -> Iterator[Finding]:
    """A variable is set before `accelerate launch`, which writes its own value over it.

    ACCELERATE_MIXED_PRECISION, ACCELERATE_DEEPSPEED_ZERO_STAGE, FSDP_* and the like are how the launcher talks to
    the processes. What stands in them before is lost, also where the config says nothing and a default is written.

    What happens: nothing is printed. With `ACCELERATE_MIXED_PRECISION=bf16` before the line and no `mixed_precision`
    in the config the job trains in fp32; `gpu_ids` of the config replaces CUDA_VISIBLE_DEVICES.

    When to ignore: the variable is for another command of the same file.
    """
    if not started_by(run, "accelerate"):
        return
    for name, given in run.environment.items():
        used = run.effective.environment.get(name)
        ours = name == "CUDA_VISIBLE_DEVICES" or name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"))
        if used is None or not ours or used.value is UNKNOWN or not isinstance(given.value, str):
            continue
        words = {str(used.value).lower(), given.value.lower()}
        if len(words) == 1 or words <= set(_TRUE):
            continue
        location, related = anchor(run, [given.origin, used.origin])
        by = f"{used.value} {_said(used)}"
        yield Finding(
            location,
            f"`accelerate launch` replaces {name}={given.value} by {by}",
            "say it in the accelerate config or by an option of the launcher",
            related,
        )


def _said(used: Setting) -> str:
    if used.origin.kind == "file" and used.origin.path:
        return f"(`{used.origin.path[-1]}` of the config)"
    return f"(`{used.origin.note}`)" if used.origin.kind == "flag" else "(its default)"


@rule(
    "ZC746",
    "engine-variables-without-switch",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE,
            "train.sh": "export ACCELERATE_DEEPSPEED_ZERO_STAGE=2\ntorchrun --nproc_per_node 1 train.py recipe.yaml\n",
        },
        consumer="transformers",
    ).finds("error", "train.sh: train.py"),
    good=Example(
        {
            "recipe.yaml": _RECIPE,
            "train.sh": "export ACCELERATE_USE_DEEPSPEED=true\nexport ACCELERATE_DEEPSPEED_ZERO_STAGE=2\n"
            "torchrun --nproc_per_node 1 train.py recipe.yaml\n",
        },
        consumer="transformers",
    ),
    proof=shows("init", {"engine.kind": ("ddp", "deepspeed")}),
    references=("accelerate/state.py@1.15.0", "transformers/training_args.py@5.23.0"),
)
def engine_variables_without_switch(run: Run) -> Iterator[Finding]:
    """Settings of DeepSpeed or FSDP in the environment without the variable that switches the engine on.

    `accelerate launch` sets both. Started in another way, the settings alone do nothing, and a model that needs to be
    sharded does not fit.

    What happens: accelerate looks at ACCELERATE_USE_DEEPSPEED (ACCELERATE_USE_FSDP) and at nothing else; the job
    trains under DistributedDataParallel, without a message.

    When to ignore: the script sets the variable, or passes a plugin to `Accelerator`.
    """
    if not started_by(run, "torchrun", "python", "deepspeed") or run.consumer is None or run.deepspeed is not None:
        return
    options = load_schema("accelerate-launcher").root.keys
    for prefix, engine in (("ACCELERATE_DEEPSPEED_", "deepspeed"), ("FSDP_", "fsdp")):
        (switch,) = options[f"use_{engine}"].variables
        names = [name for name in run.environment if name.startswith(prefix)]
        on = run.environment.get(switch)
        if not names or (on is not None and (on.value is UNKNOWN or str(on.value).lower() in _TRUE)):
            continue
        if prefix == "FSDP_" and ("fsdp" in run.arguments or "fsdp" in _recipe(run)):
            continue
        yield Finding(
            at_line(run),
            f"{names[0]} has no effect without {switch}=true: the job runs without the engine",
            f"export {switch}=true, or start with accelerate launch",
        )


def _recipe(run: Run) -> dict[str, object]:
    data = run.recipe.data() if run.recipe is not None else None
    return data if isinstance(data, dict) else {}


@rule(
    "ZC747",
    "cpu-variable-beside-deepspeed",
    Severity.ERROR,
    consumers=TRAINERS,
    bad=Example(
        {
            "accelerate.yaml": _YAML % 2,
            "recipe.yaml": _RECIPE,
            "train.sh": "export ACCELERATE_USE_CPU=true\n"
            + _LINE.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        consumer="transformers",
    ).finds("error", "train.sh: train.py", also=("accelerate.yaml: distributed_type: DEEPSPEED",)),
    good=Example(
        {
            "accelerate.yaml": _YAML % 2,
            "recipe.yaml": _RECIPE,
            "train.sh": _LINE.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        consumer="transformers",
    ),
    proof=shows("init", {"engine.kind": ("ddp", "deepspeed")}, ranks=2),
    references=("accelerate/state.py@1.15.0",),
)
def cpu_variable_beside_deepspeed(run: Run) -> Iterator[Finding]:
    """ACCELERATE_USE_CPU is set for a job that is configured for DeepSpeed.

    Left over from a test on a laptop, it makes a cluster train on its processors, without ZeRO.

    What happens: the Trainer trains under DistributedDataParallel on the CPU. The DeepSpeed plugin is still built, so
    that errors of its config still appear, but there is no engine and no message.

    When to ignore: the line is a test on the CPU.
    """
    found = run.environment.get("ACCELERATE_USE_CPU")
    if found is None or not isinstance(found.value, str) or found.value.lower() not in _TRUE:
        return
    if not started_by(run, "accelerate") or not under_deepspeed_launcher(run) or run.accelerate is None:
        return
    yield Finding(
        at_line(run),
        "ACCELERATE_USE_CPU is set: the job trains on the CPU under DDP, without DeepSpeed",
        "remove the variable, or choose another distributed_type",
        [Location(run.accelerate, ("distributed_type",))],
    )


RULES = (
    visible_devices_too_few,
    port_variable_not_read,
    variable_replaced_by_launcher,
    engine_variables_without_switch,
    cpu_variable_beside_deepspeed,
)
