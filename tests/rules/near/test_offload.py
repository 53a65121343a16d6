"""Near misses of the rules of offloading."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from zerocfg.rulebook.example import Example
from zerocfg.run.facts import HardwareSummary

from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n"
STAGES = {stage: ('"stage": 2', f'"stage": {stage}') for stage in (0, 1, 3)}
FROM_3 = {stage: ('"stage": 3', f'"stage": {stage}') for stage in (0, 1, 2)}
CPU, TO_CPU = '"device": "cpu"', 'ds.json: "device": "cpu"'
NONE, NVME = (CPU, '"device": "none"'), (CPU, '"device": "nvme"')
TO_NVME = 'ds.json: "device": "nvme"'
ALONE = {"recipe.yaml": None}

UNPINNED = 'ds.json: "pin_memory": false'
SECTION = 'ds.json: "offload_optimizer": {"device": "cpu"}'
LIMITED = HardwareSummary("node", 1, 8, 80.0, memlock=2**30)


def in_yaml(code: str, why: str, stage: int, keys: str) -> Near:
    """A rule of an accelerate config with these keys of `deepspeed_config`."""
    text = f"distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: {stage}\n{keys}"
    return Near(code, why, Example({"accelerate.yaml": text}, consumer="accelerate"))


def declared(release: str) -> Near:
    """ZC501 of a section that does not mention `pin_memory`, with these releases of DeepSpeed."""
    return near("ZC501", f"declared {release}", (', "pin_memory": false', ""), versions={"deepspeed": release})


DEVICE = "  offload_optimizer_device: cpu\n"
RATIO = 'ds.json: "ratio": 0.5'
REPLACED = "recipe.yaml: optim: sgd"
DEVICES = (
    near("ZC501", "a word for false", ("false", '"False"')).finds("warning", 'ds.json: "pin_memory": "False"'),
    near("ZC501", "a word for true", ("false", '"true"')),
    near("ZC501", "the drive", NVME).finds("warning", UNPINNED),
    near("ZC501", "nothing is offloaded", NONE),
    near("ZC501", "stage 0 offloads nothing", STAGES[0]),
    near("ZC501", "the host limits what may be locked", hardware=LIMITED),
    near("ZC501", "the limit is not known", hardware=HardwareSummary("node", 1, 8, 80.0)).finds("warning", UNPINNED),
    near("ZC501", "true by default", (', "pin_memory": false', "")),
    declared("==0.19.4").finds("warning", SECTION, "0.19.5", "0.19.4").becomes('"pin_memory": true'),
    *(
        replace(in_yaml("ZC501", f"YAML, {release}", 2, DEVICE), facts={"versions": {"deepspeed": release}})
        for release in ("==0.19.5", ">=0.19.5")
    ),
    replace(in_yaml("ZC501", "YAML, stage 0", 0, DEVICE), facts={"versions": {"deepspeed": "==0.19.4"}}),
    replace(in_yaml("ZC501", "YAML, before", 2, DEVICE), facts={"versions": {"deepspeed": "==0.19.4"}}).finds(
        "warning", "accelerate.yaml: offload_optimizer_device: cpu", "0.19.5", "0.19.4"
    ),
    replace(in_yaml("ZC501", "YAML, before or after", 2, DEVICE), facts={"versions": {"deepspeed": ">=0.19"}}).finds(
        "note", "accelerate.yaml: offload_optimizer_device: cpu", "0.19.5", "0.19"
    ),
    declared("==0.19.5"),
    declared(">=0.19").finds("note", SECTION, "0.19.5", "0.19"),
    declared(">=0.19,<0.19.5").finds("warning", SECTION, "0.19.5", "0.19", "0.19.5"),
    near("ZC502", "stage 1", STAGES[1]).finds("error", TO_CPU, 1, 3, 3),
    near("ZC502", "stage 0", STAGES[0]).finds("error", TO_CPU, 0, 3, 3),
    near("ZC502", "stage 3", STAGES[3]),
    near("ZC502", "nothing is offloaded", NONE),
    near("ZC502", "the drive", NVME).finds("error", TO_NVME, 2, 3, 3),
    near("ZC503", "stage 1", ("zero_stage: 0", "zero_stage: 1")),
    near("ZC503", "the drive", ("_device: cpu", "_device: nvme")).finds(
        "error", "accelerate.yaml: offload_optimizer_device: nvme", 0, 1, 2, 3
    ),
    near("ZC509", "all of it", ('"ratio": 0.5', '"ratio": 1')),
    near("ZC509", "nearly all of it", ('"ratio": 0.5', '"ratio": 0.99')).finds(
        "error", 'ds.json: "ratio": 0.99', "0.99", 3, 2, 3
    ),
    near("ZC509", "none of it", ('"ratio": 0.5', '"ratio": 0')).finds("error", 'ds.json: "ratio": 0', 0, 3, 2, 3),
    near("ZC509", "stage 3", STAGES[3]),
    near("ZC509", "stage 1", STAGES[1]).finds("error", RATIO, "0.5", 3, 1, 3),
    near("ZC509", "stage 0", STAGES[0]).finds("error", RATIO, "0.5", 3, 0, 3),
    near("ZC509", "no number", ('"ratio": 0.5', '"ratio": "half"')),
    near("ZC510", "nothing is offloaded", NONE),
    near("ZC510", "the drive", NVME).finds("error", REPLACED, also=(TO_NVME,)),
    near("ZC510", "an AdamW", ("optim: sgd", "optim: adamw_torch")),
    near("ZC510", "the switch is written", ('"zero_opt', '"zero_force_ds_cpu_optimizer": true, "zero_opt'))
    .finds("error", REPLACED, also=(TO_CPU,))
    .becomes('"zero_force_ds_cpu_optimizer": false, "zero_opt'),
    near("ZC510", "the optimizer is kept", ('"zero_opt', '"zero_force_ds_cpu_optimizer": false, "zero_opt')),
    near(
        "ZC510",
        "DeepSpeed's own optimizer",
        ('"zero_opt', '"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_opt'),
    ),
    near("ZC511", "a loop of one's own", consumer="deepspeed", files=ALONE),
    near("ZC511", "an empty section", ("null", "{}")),
)

AUTO = 'ds.json: "device": "auto"'


def launched(options: str) -> dict[str, str | None]:
    """The files of ZC528's example with an accelerate line that has these options."""
    line = (
        f"accelerate launch --use_deepspeed --num_processes 1 {options} train.py --deepspeed ds.json --output_dir o\n"
    )
    return {"recipe.yaml": None, "train.sh": line}


SUPER, CORES = '"super_offload": true', '"cpuadam_cores_perc": 0.5'
SWAPPED = (
    '"offload_param": {"device": "cpu"',
    '"buffer_count": 50, "buffer_size": 1, "max_in_cpu": 1',
    '"pipeline_read": true',
)
COUNT = 'ds.json: "buffer_count": 50'
SIZES = ('ds.json: "buffer_size": 1', 'ds.json: "max_in_cpu": 1')
READ = 'ds.json: "pipeline_read": true'
OLD = 'ds.json: "cpu_offload": %s'
NEW = 'ds.json: "offload_optimizer": {"device": "cpu"}'
KEYS = (
    near("ZC516", "stage 1", STAGES[1]).finds("error", f"ds.json: {SUPER}", 3, 1, 3),
    near("ZC516", "stage 3", STAGES[3]),
    near("ZC516", "stage 0", STAGES[0]),
    near("ZC516", "false", ("true", "false")),
    near("ZC517", "with it", (CORES, f"{CORES}, {SUPER}")),
    near("ZC517", "without it", (CORES, f"{CORES}, {SUPER.replace('true', 'false')}")).finds(
        "note", f"ds.json: {CORES}"
    ),
    near("ZC518", "the parameters go to the drive", (SWAPPED[0], SWAPPED[0].replace("cpu", "nvme"))).finds(
        "note", READ
    ),
    near("ZC518", "the parameters go nowhere", (SWAPPED[0], SWAPPED[0].replace("cpu", "none"))).finds("note", READ),
    near("ZC518", "of the optimizer, only its own", (SWAPPED[2], '"max_in_cpu": 2')).finds("note", COUNT, also=SIZES),
    near("ZC518", "of the parameters, only their own", (SWAPPED[1], '"pipeline_write": true')).finds("note", READ),
    near("ZC519", "null is the default", ("false", "null")),
    near("ZC519", "a word for false", ("false", '"No"')).finds("note", 'ds.json: "pin_memory": "No"'),
    near("ZC519", "a word for true", ("false", '"yes"')),
    near("ZC519", "the drive", NVME),
    near("ZC519", "stage 2 has a rule of its own", FROM_3[2]),
    near("ZC520", "off is written as well", ("true", "false"))
    .finds("error", OLD % "false", also=(NEW,))
    .becomes('"stage": 2, "offload_optimizer": {"device": "cpu"}'),
    near("ZC520", "both say the same").finds("error", OLD % "true", also=(NEW,)).becomes('"stage": 2, "off', safe=True),
    near("ZC520", "null is written as well", ("true", "null")).finds("error", OLD % "null", also=(NEW,)),
    near("ZC520", "the old one says auto, which counts as absent", ("true", '"auto"')),
    near("ZC520", "the new one says auto, which counts as absent", ('{"device": "cpu"}', '"auto"')),
    near("ZC520", "the new one says null", ('{"device": "cpu"}', "null")).finds(
        "error", OLD % "true", also=('ds.json: "offload_optimizer": null',)
    ),
    near("ZC520", "the old name alone", (', "offload_optimizer": {"device": "cpu"}', "")),
    near("ZC520", "of different parts", ("cpu_offload", "cpu_offload_param")),
    near(
        "ZC520", "of the parameters", ('"cpu_offload"', '"cpu_offload_param"'), ("offload_optimizer", "offload_param")
    ).finds("error", 'ds.json: "cpu_offload_param": true', also=('ds.json: "offload_param": {"device": "cpu"}',)),
    near("ZC528", "a device is written", ('"auto"}', '"none"}')),
    near("ZC528", "stage 0 offloads nothing", ('"stage": 2', '"stage": 0')),
    near("ZC528", "stage 1", ('"stage": 2', '"stage": 1')).finds("warning", AUTO),
    near("ZC528", "parameters below stage 3", ("offload_optimizer", "offload_param")),
    near("ZC528", "parameters at stage 3", ('"stage": 2', '"stage": 3'), ("offload_optimizer", "offload_param")).finds(
        "warning", AUTO
    ),
    near("ZC528", "deepspeed.initialize fills nothing, which ZC415 says", consumer="deepspeed", files=ALONE),
    near("ZC528", "the Trainer started DeepSpeed by itself", versions={"transformers": "<4.30"}),
    near("ZC528", "releases on both sides", versions={"transformers": ">=4.29"}).finds("warning", AUTO),
    near("ZC528", "the launcher gives the device", files=launched("--offload_optimizer_device cpu")),
    near("ZC528", "the launcher gives nothing", files=launched("")).finds("warning", AUTO),
    near("ZC528", "the launcher is told none", files=launched("--offload_optimizer_device none")),
    near("ZC521", "stage 0", STAGES[0]),
    near("ZC521", "stage 1", STAGES[1]).finds("error", 'ds.json: "offload_optimizer"'),
    near("ZC521", "stage 3", STAGES[3]).finds("error", 'ds.json: "offload_optimizer"'),
    near("ZC521", "nowhere is written", ('{"pin_memory": true}', '{"pin_memory": true, "device": "none"}')),
    near("ZC521", "a path at stage 3", ('"pin_memory": true', '"nvme_path": "/nvme"'), STAGES[3])
    .finds("error", 'ds.json: "offload_optimizer"')
    .becomes('"device": "nvme"'),
    near("ZC521", "a path at stage 2", ('"pin_memory": true', '"nvme_path": "/nvme"'))
    .finds("error", 'ds.json: "offload_optimizer"')
    .becomes('"device": "cpu"'),
    near("ZC521", "an empty section", ('{"pin_memory": true}', "{}")),
    near("ZC521", "parameters below stage 3", ("offload_optimizer", "offload_param")),
    near("ZC521", "parameters at stage 3", ("offload_optimizer", "offload_param"), STAGES[3]).finds(
        "error", 'ds.json: "offload_param"'
    ),
    near("ZC522", "stage 2 has a rule of its own", FROM_3[2]),
    near("ZC522", "the parameters go nowhere", NONE),
    near("ZC522", "to the drive", NVME).finds("note", TO_NVME, 2, 12),
    in_yaml("ZC522", "accelerate", 3, "  offload_param_device: cpu\n")
    .finds("note", "accelerate.yaml: offload_param_device: cpu", 2, 12)
    .becomes("  offload_optimizer_device: cpu\n"),
    near(
        "ZC522",
        "on the launch line alone",
        consumer=None,
        files={
            "ds.json": None,
            "train.sh": "accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu train.py\n",
            "train.py": "from accelerate import Accelerator\n",
        },
    )
    .finds("note", "train.sh: --offload_param_device cpu", 2, 12)
    .becomes(),
    in_yaml("ZC522", "accelerate, and none", 3, "  offload_optimizer_device: none\n  offload_param_device: cpu\n")
    .finds("note", "accelerate.yaml: offload_param_device: cpu", 2, 12)
    .becomes("  offload_optimizer_device: cpu\n"),
    near(
        "ZC522",
        "nowhere is written",
        ('{"device": "cpu"}', '{"device": "cpu"}, "offload_optimizer": {"device": "none"}'),
    ),
    near(
        "ZC522",
        "hardly any states",
        consumer="trl",
        files={"recipe.yaml": RECIPE + "use_peft: true\n"},
    ),
    near(
        "ZC522",
        "hardly any states, in another program's words",
        consumer="transformers",
        files={"recipe.yaml": RECIPE + "use_lora: true\n"},
    ),
)

DRIVE = 'ds.json: "device": "nvme"'
YAML_PATH = "accelerate.yaml: offload_optimizer_nvme_path: /local_nvme"
PATH_LINE = "  offload_optimizer_nvme_path: /local_nvme\n"
UNUSED = 'ds.json: "nvme_path": "/proc/nvme"'
FAST = 'ds.json: "fast_init": true'
NVME_RULES = (
    in_yaml("ZC504", "accelerate", 2, "  offload_optimizer_device: nvme\n  offload_optimizer_nvme_path: /nvme\n")
    .finds("error", "accelerate.yaml: offload_optimizer_device: nvme", 2, 3)
    .becomes("zero_stage: 2\n  offload_optimizer_device: cpu\n"),
    near("ZC504", "stage 1", STAGES[1]).finds("error", DRIVE, 1, 3),
    near("ZC504", "stage 3", STAGES[3]),
    near("ZC504", "stage 0 has a rule of its own", STAGES[0]),
    near("ZC505", "a path", ('"nvme"', '"nvme", "nvme_path": "/local_nvme"')),
    near("ZC505", "null is no path", ('"nvme"', '"nvme", "nvme_path": null')).finds(
        "error", 'ds.json: "offload_optimizer": {"device": "nvme", "nvme_path": null}'
    ),
    near("ZC505", "host memory", ('"nvme"', '"cpu"')),
    near("ZC505", "stage 2 has a rule of its own", FROM_3[2]),
    near("ZC505", "the parameters", ("offload_optimizer", "offload_param")).finds(
        "error", 'ds.json: "offload_param": {"device": "nvme"}'
    ),
    near("ZC506", "host memory", ("device: nvme", "device: cpu"))
    .finds("note", YAML_PATH)
    .becomes("offload_optimizer_device: cpu\n", safe=True),
    near("ZC506", "the path that DeepSpeed gets", (PATH_LINE, PATH_LINE.replace("/local_nvme", "none"))).finds(
        "error", "accelerate.yaml: offload_optimizer_device: nvme"
    ),
    near("ZC506", "no path", (PATH_LINE, "")).finds("error", "accelerate.yaml: offload_optimizer_device: nvme"),
    near("ZC506", "no path at stage 2, which has a rule of its own", (PATH_LINE, ""), ("stage: 3", "stage: 2")),
    near("ZC506", "host memory without a path", (PATH_LINE, ""), ("device: nvme", "device: cpu")),
    near("ZC506", "another launcher", ("DEEPSPEED", "MULTI_GPU")),
    near("ZC506", "both parts", (PATH_LINE, PATH_LINE + "  offload_param_device: nvme\n"))
    .finds("error", YAML_PATH)
    .finds("error", "accelerate.yaml: offload_param_device: nvme"),
    near(
        "ZC506",
        "the parameters' path",
        ("offload_optimizer_device", "offload_param_device"),
        ("offload_optimizer_nvme_path", "offload_param_nvme_path"),
    ).finds("error", "accelerate.yaml: offload_param_nvme_path: /local_nvme"),
    near("ZC507", "the drive", NVME),
    near("ZC507", "nowhere", NONE).finds("note", UNUSED),
    near("ZC507", "the word none", ("/proc/nvme", "none")),
    near("ZC507", "an empty path", ("/proc/nvme", "")),
    near("ZC507", "auto", ("/proc/nvme", "auto")),
    near("ZC507", "null", ('"/proc/nvme"', "null")),
    near("ZC507", "the parameters", ("offload_optimizer", "offload_param")).finds("note", UNUSED),
    near("ZC508", "false", ("true", "false")),
    near("ZC508", "the optimizer alone is on the drive", NVME).finds("note", FAST),
    near(
        "ZC508",
        "the parameters alone are on the drive",
        ('"reduce_bucket_size": 1000000', '"offload_param": {"device": "nvme", "nvme_path": "/nvme"}'),
    ).finds("note", FAST),
    near(
        "ZC508",
        "both are on the drive",
        NVME,
        ('"reduce_bucket_size": 1000000', '"offload_param": {"device": "nvme", "nvme_path": "/nvme"}'),
    ),
)

AIO = 'ds.json: "aio"'
DRIVE_AT = '"device": "nvme", "nvme_path": "/local_nvme"'
SIZED = 'ds.json: "buffer_size": %s'


def buffer(size: int) -> Near:
    """ZC527 of an embedding of 525,336,576 elements over four ranks, 131,334,144 each, with this buffer."""
    return near("ZC527", f"{size:,} elements", ('"buffer_size": 140000000', f'"buffer_size": {size}'), good=1)


NVME_SETTINGS = (
    near("ZC526", "the drive", NVME),
    near(
        "ZC526",
        "parameters on the drive",
        ('"offload_optimizer": {"device": "cpu"}', '"offload_param": {"device": "nvme"}'),
    ),
    near("ZC526", "checkpoints are written so", ('"aio"', '"checkpoint": {"writer": {"type": "FAST"}}, "aio"')),
    near("ZC526", "an empty section", ('{"block_size": 262144, "queue_depth": 32}', "{}")),
    near("ZC526", "no offloading at all", (', "offload_optimizer": {"device": "cpu"}', "")).finds("note", AIO),
    near("ZC526", "nothing is known of the stage", ('"stage": 2', '"stage": "auto"'), consumer=None),
    buffer(131_334_144),
    buffer(131_334_143)
    .finds("error", SIZED % "131334143", "131,334,143", "131,334,144", 132000000)
    .becomes('"buffer_size": 132000000'),
    near("ZC527", "one element over", ("140000000", "131334144"), ("525336576", "525336577"), good=1).finds(
        "error", SIZED % "131334144", "131,334,144", "131,334,145", 132000000
    ),
    near("ZC527", "more than 132 million", ("525336576", "528000004"))
    .finds("error", 'ds.json: "offload_param"', "100,000,000", "132,000,001", 133000000)
    .becomes('"buffer_size": 133000000'),
    near("ZC527", "over twice the ranks the default is enough", ("4xA100", "8xA100")),
    near("ZC527", "nobody knows the largest parameter", ("largest_parameter: 525336576, ", "")),
    near("ZC527", "stage 2", FROM_3[2]),
    near(
        "ZC527",
        "host memory",
        (f'"offload_param": {{{DRIVE_AT}}}', '"offload_param": {"device": "cpu"}'),
    ),
)

ADAM, TORCH = '"type": "AdamW"', '"torch_adam": true'
SLOW = f"ds.json: {TORCH}"
KEPT = 'ds.json: "zero_force_ds_cpu_optimizer": false'
TYPED = ('ds.json: "type": "AdamW"',)
GROUPS = '"stage3_gather_16bit_weights_on_model_save": true'


SCRIPTED = {"train.py": "import deepspeed\n"}


def grouped(why: str, size: int, ratio: str = "0.5") -> Near:
    """ZC515 of 1,073,472 parameters on one rank, in groups of this size."""
    return near("ZC515", why, (GROUPS, f'"sub_group_size": {size}, {GROUPS}'), ('"ratio": 0.5', f'"ratio": {ratio}'))


STEPS = (
    near("ZC512", "Adam", ("AdamW", "Adam")).finds("warning", SLOW, also=(TO_CPU,)),
    near("ZC512", "Lamb", ("AdamW", "Lamb")),
    near("ZC512", "false", (TORCH, '"torch_adam": false')),
    near("ZC512", "nothing is offloaded", NONE),
    near("ZC512", "stage 0", STAGES[0]),
    near("ZC512", "stage 1", STAGES[1]).finds("warning", SLOW, also=(TO_CPU,)),
    near("ZC512", "stage 3", STAGES[3]).finds("warning", SLOW, also=(TO_CPU,)),
    near("ZC512", "the drive", NVME).finds("warning", SLOW, also=(TO_NVME,)),
    near("ZC513", "true", ("false", "true")),
    near("ZC513", "DeepSpeed's own optimizer", ('"zero_force', '"optimizer": {"type": "AdamW"}, "zero_force')),
    near("ZC513", "another optimizer", ("adamw_torch", "sgd")),
    near("ZC513", "nothing is offloaded", NONE),
    near("ZC513", "stage 0", STAGES[0]),
    near("ZC513", "stage 1", STAGES[1]).finds("warning", KEPT, also=("recipe.yaml: optim: adamw_torch",)),
    near("ZC513", "stage 3", STAGES[3]).finds("warning", KEPT, also=("recipe.yaml: optim: adamw_torch",)),
    near("ZC514", "all of it", ('"ratio": 0.5', '"ratio": 1')),
    near("ZC514", "none of it", ('"ratio": 0.5', '"ratio": 0')).finds("error", 'ds.json: "ratio": 0', 0, also=TYPED),
    near("ZC514", "less than none", ('"ratio": 0.5', '"ratio": -1')),
    near("ZC514", "DeepSpeedCPUAdam", (TORCH, '"torch_adam": false')),
    near("ZC514", "Adam", ("AdamW", "Adam"), (TORCH, '"torch_adam": false')),
    near("ZC514", "Lion", ("AdamW", "Lion"), (f", {TORCH}", "")).finds(
        "error", RATIO, "0.5", also=('ds.json: "type": "Lion"',)
    ),
    near("ZC514", "no optimizer that is known", ('"type": "AdamW", ', "")),
    near("ZC514", "stage 2 has a rule of its own", FROM_3[2]),
    near("ZC514", "nothing is offloaded", NONE),
    grouped("one element less than a group", 1_073_473)
    .finds("error", RATIO, "0.5", "1,073,472", "1,073,473")
    .becomes('"sub_group_size": 107347'),
    grouped("two groups, of which one stays", 1_073_472),
    grouped("all of it", 100_000_000, "1"),
    grouped("less than none", 100_000_000, "-0.5"),
    # int((1 - 0.9) x groups) of them stay: 0 of 5 and 1 of 11.
    grouped("a tenth of five groups", 250_000, "0.9").finds(
        "error", 'ds.json: "ratio": 0.9', "0.9", "1,073,472", 5, "250,000"
    ),
    grouped("a tenth of eleven groups", 100_000, "0.9"),
    grouped("no size", 0),
    near("ZC515", "stage 2 has a rule of its own", FROM_3[2]),
    near("ZC515", "nothing is offloaded", NONE),
    near("ZC515", "no model", ("    model: {parameters: 1073472, hidden_size: 64}\n", "")),
    # 10,000,000 / 4 in groups of 2,400,000: two, of which one stays; over eight ranks one.
    near(
        "ZC515",
        "four ranks",
        ("1073472, hidden_size: 64}\n", "10000000, hidden_size: 64}\n    hardware: 4xA100-80GB\n"),
        (GROUPS, f'"sub_group_size": 2400000, {GROUPS}'),
        files=SCRIPTED,
    ),
    near(
        "ZC515",
        "eight ranks",
        ("1073472, hidden_size: 64}\n", "10000000, hidden_size: 64}\n    hardware: 8xA100-80GB\n"),
        (GROUPS, f'"sub_group_size": 2400000, {GROUPS}'),
        files=SCRIPTED,
    ).finds("error", RATIO, "0.5", "1,250,000", "2,400,000"),
)

OLD_NAME = 'ds.json: "cpu_offload": true'
THREADS = "train.sh: --num_cpu_threads_per_process 8"
SCRIPT, HOST = "train.sh: train.py", ("accelerate.yaml: offload_optimizer_device: cpu",)
BARE = "accelerate launch --config_file accelerate.yaml train.py"
ENGINE = (
    '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}\n'
)


def started(why: str, line: str) -> Near:
    """ZC525 of a script with a DeepSpeed loop of its own, started by this line."""
    files = {
        "train.sh": line + " train.py --deepspeed_config ds.json\n",
        "train.py": "import deepspeed\n",
        "ds.json": ENGINE,
        "accelerate.yaml": None,
    }
    return near("ZC525", why, files=files)


TWO_MACHINES = "num_processes: 4\nnum_machines: 2\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500"
LAUNCH = (
    near("ZC523", "false", ("true", "false")),
    near("ZC523", "the new name has a rule of its own", ("true", 'true, "offload_optimizer": {"device": "cpu"}')),
    near("ZC523", "DeepSpeed's own optimizer", ('"zero_opt', '"optimizer": {"type": "AdamW"}, "zero_opt')),
    near("ZC523", "the optimizer is kept", ('"zero_opt', '"zero_force_ds_cpu_optimizer": false, "zero_opt')),
    near("ZC523", "stage 0", STAGES[0]),
    near("ZC523", "stage 1", STAGES[1])
    .finds("error", OLD_NAME)
    .becomes('"offload_optimizer": {"device": "cpu"}', safe=True),
    near("ZC523", "stage 3", STAGES[3]).finds("error", OLD_NAME),
    near("ZC523", "a loop of one's own", consumer="deepspeed", files=ALONE),
    near("ZC524", "another number", ("process 8", "process 4"))
    .finds("warning", "train.sh: --num_cpu_threads_per_process 4", 4)
    .becomes(f"OMP_NUM_THREADS=4 {BARE}\n", safe=True),
    near("ZC524", "another launcher of accelerate", ("DEEPSPEED", "MULTI_GPU")),
    near("ZC524", "the variable as well", ("accelerate launch", "OMP_NUM_THREADS=8 accelerate launch")),
    near("ZC524", "a number that nobody knows", ("process 8", "process $N")).finds(
        "warning", "train.sh: --num_cpu_threads_per_process $N", 8
    ),
    near("ZC525", "one process", ("num_processes: 2", "num_processes: 1")),
    near("ZC525", "three processes", ("num_processes: 2", "num_processes: 3"))
    .finds("note", SCRIPT, also=HOST)
    .becomes(f"OMP_NUM_THREADS=8 {BARE}\n"),
    near("ZC525", "nothing is offloaded", ("_device: cpu", "_device: none")),
    near("ZC525", "the drive, which stage 2 keeps on the host", ("_device: cpu", "_device: nvme")).finds(
        "note", SCRIPT, also=("accelerate.yaml: offload_optimizer_device: nvme",)
    ),
    near("ZC525", "stage 1", ("zero_stage: 2", "zero_stage: 1")).finds("note", SCRIPT, also=HOST),
    near("ZC525", "stage 3", ("zero_stage: 2", "zero_stage: 3")).finds("note", SCRIPT, also=HOST),
    near("ZC525", "a launcher behind another program", (BARE, "nohup " + BARE))
    .finds("note", SCRIPT, also=HOST)
    .becomes(),
    near("ZC525", "stage 0", ("zero_stage: 2", "zero_stage: 0")),
    near(
        "ZC525",
        "the option has a rule of its own",
        (BARE, BARE.replace(" train", " --num_cpu_threads_per_process 8 train")),
    ),
    near("ZC525", "options that nobody can see", (BARE, BARE.replace(" train", " $EXTRA train"))),
    near("ZC525", "the script is told of it", (BARE, BARE + " --threads ${OMP_NUM_THREADS}")),
    near("ZC525", "several machines, where another runner may start it", ("num_processes: 2", TWO_MACHINES)),
    near(
        "ZC525",
        "DeepSpeed's launcher",
        (BARE, "deepspeed train.py"),
        files={"accelerate.yaml": None, "ds.json": ENGINE},
    ),
    started("two processes of torchrun", "torchrun --nproc_per_node 2").finds("note", SCRIPT, also=(TO_CPU,)),
    started("one process of torchrun", "torchrun --nproc_per_node 1"),
    started("one process on each of two machines", "torchrun --nnodes 2 --nproc_per_node 1"),
    started("two processes on each of two machines", "torchrun --nnodes 2 --nproc_per_node 2").finds(
        "note", SCRIPT, also=(TO_CPU,)
    ),
    started("another launcher", "deepspeed --num_gpus 2"),
)

TABLE = (*DEVICES, *KEYS, *NVME_RULES, *NVME_SETTINGS, *STEPS, *LAUNCH)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
