"""Near misses of the rules of memory and capacity.

What is predicted is put into the runs, so that thresholds are met exactly; the predictions have tests of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.rulebook.example import Example
from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary

from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nbf16: true\nmax_steps: 2\n"
ACCELERATOR = "from accelerate import Accelerator\n"


def node(accelerators: int = 8, **known: Any) -> HardwareSummary:
    """A machine whose accelerators have 80 GiB."""
    return HardwareSummary("node", 1, accelerators, **{"memory_gib": 80.0, "bf16": True, **known})


def model(parameters: int = 7_000_000_000, **known: Any) -> ModelSummary:
    return ModelSummary("model", parameters=parameters, **known)


NODE, MODEL = node(), model()

SUMS = 'ds.json: "grad_accum_dtype": "%s"'
AT_1, AT_2, AT_3 = ('ds.json: "stage": 1',), 'ds.json: "stage": 2', 'ds.json: "stage": 3'
OVERLAP = ('ds.json: "overlap_comm": true',)
BUCKET = 'ds.json: "reduce_bucket_size": %s'


def bucket(why: str, elements: int, *swaps: tuple[str, str], **facts: Any) -> Near:
    """ZC902 at stage 2 with overlap_comm: in 16 bit, 4 bytes an element."""
    return near("ZC902", why, ("1000000000", str(elements)), *swaps, **facts)


NO_OVERLAP = ('"overlap_comm": true', '"overlap_comm": false')
IN_FP32 = ('"bf16": {"enabled": true}', '"bf16": {"enabled": false}')
DEFAULT = (', "reduce_bucket_size": 1000000000', "")
THRESHOLD = 'ds.json: "stage3_param_persistence_threshold": %s'
PERSISTENT = '"stage3_param_persistence_threshold": 1000000000'
ONE = ("accelerate.yaml: num_processes: 1",)
BUFFERS = (
    near("ZC901", "another word for it", ('"fp32"', '"Float32"')).finds(
        "warning", SUMS % "Float32", 1, 4, 2, also=AT_1
    ),
    near("ZC901", "summed in bf16", ('"fp32"', '"bf16"')),
    near("ZC901", "no bf16", IN_FP32),
    near("ZC901", "stage 0", ('"stage": 1', '"stage": 0')),
    near("ZC901", "offloaded", ('"stage": 1', '"stage": 1, "offload_optimizer": {"device": "cpu"}')),
    near("ZC901", "of a model", model=model(1_000_000_000)).finds("warning", SUMS % "fp32", 1, 4, "3.7", 2, also=AT_1),
    bucket("3 GiB", 3 * GIB // 4).finds("note", BUCKET % 805306368, 805306368, 2, "3.0", 200000000, also=OVERLAP),
    bucket("one element less", 3 * GIB // 4 - 1),
    bucket("one copy of 3 GiB", 3 * GIB // 2, NO_OVERLAP).finds(
        "note", BUCKET % 1610612736, 1610612736, 2, "3.0", 200000000
    ),
    bucket("one copy of less", 3 * GIB // 2 - 1, NO_OVERLAP),
    bucket("in fp32", 3 * GIB // 8, IN_FP32).finds(
        "note", BUCKET % 402653184, 402653184, 4, "3.0", 200000000, also=OVERLAP
    ),
    bucket("in fp32, one element less", 3 * GIB // 8 - 1, IN_FP32),
    bucket("in a width that nobody knows", 3 * GIB // 8, ('"bf16": {"enabled": true}', '"bf16": {"enabled": "auto"}')),
    bucket("stage 3 has one copy", 3 * GIB // 2 - 1, ('"stage": 2', '"stage": 3')),
    bucket("stage 0", 1_000_000_000, ('"stage": 2', '"stage": 0')),
    bucket("stage 1", 1_000_000_000, ('"stage": 2', '"stage": 1')).finds(
        "note", BUCKET % 1000000000, 1000000000, 2, "3.7", 200000000, also=OVERLAP
    ),
    bucket("gradients sent as they are", 1_000_000_000, ('"stage": 2', '"stage": 2, "contiguous_gradients": false')),
    bucket("the model is smaller, which has a rule of its own", 1_000_000_001, model=model(1_000_000_000)),
    bucket("the model is as large", 1_000_000_000, model=model(1_000_000_000)).finds(
        "note", BUCKET % 1000000000, 1000000000, 2, "3.7", 200000000, also=OVERLAP
    ),
    bucket("a tenth of 10 GiB", GIB // 4, hardware=node(memory_gib=10.0)).finds(
        "warning", BUCKET % 268435456, 268435456, 2, "1.0", "10.0", 134217728, also=OVERLAP
    ),
    bucket("less than a tenth of 10 GiB", GIB // 4 - 1, hardware=node(memory_gib=10.0)),
    bucket("3 GiB of 80", 3 * GIB // 4, hardware=NODE).finds(
        "warning", BUCKET % 805306368, 805306368, 2, "3.0", "80.0", 200000000, also=OVERLAP
    ),
    bucket("half of a small bucket", 399_999_998, hardware=node(memory_gib=1.0))
    .finds("warning", BUCKET % 399999998, 399999998, 2, "1.5", "1.0", 199999999, also=OVERLAP)
    .becomes('"reduce_bucket_size": 199999999'),
    near("ZC902", "the default, on no known hardware", DEFAULT, IN_FP32, consumer="deepspeed"),
    near("ZC902", "the default", DEFAULT, IN_FP32, consumer="deepspeed", hardware=NODE)
    .finds("warning", *OVERLAP, 500000000, 4, "3.7", "80.0", 200000000)
    .becomes('"reduce_bucket_size": 200000000'),
    near("ZC903", "one element less", (PERSISTENT, PERSISTENT.replace("1000000000", "999999999"))),
    near(
        "ZC903",
        "the largest parameter",
        (PERSISTENT, PERSISTENT.replace("1000000000", "131072000")),
        model=model(largest_parameter=131_072_000),
    ).finds("warning", THRESHOLD % 131072000, 131072000, "131,072,000", 100000),
    near(
        "ZC903",
        "less than the largest parameter",
        (PERSISTENT, PERSISTENT.replace("1000000000", "131071999")),
        model=model(largest_parameter=131_072_000),
    ),
    near("ZC903", "their sum is bounded", (PERSISTENT, PERSISTENT + ', "stage3_model_persistence_threshold": 1000000')),
    near("ZC903", "stage 2", ('"stage": 3', '"stage": 2')),
    near("ZC903", "no number", (PERSISTENT, PERSISTENT.replace("1000000000", '"auto"'))),
    near("ZC903", "the name without stage3_", ("stage3_param_persistence", "param_persistence")).finds(
        "warning", 'ds.json: "param_persistence_threshold": 1000000000', 1000000000, 100000
    ),
    near("ZC904", "a key that only stage 3 reads", ("zero_stage: 3", "zero_stage: 3\n  zero3_init_flag: true"))
    .finds("note", "accelerate.yaml: zero_stage: 3", 3, 0, 0, also=ONE)
    .becomes("mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 0\n"),
    near("ZC904", "two processes", ("num_processes: 1", "num_processes: 2")),
    near("ZC904", "stage 2", ("zero_stage: 3", "zero_stage: 2")),
    near("ZC904", "the optimizer is offloaded", ("zero_stage: 3", "zero_stage: 3\n  offload_optimizer_device: cpu")),
    near("ZC904", "the parameters are offloaded", ("zero_stage: 3", "zero_stage: 3\n  offload_param_device: cpu")),
    near("ZC904", "another launcher", ("DEEPSPEED", "MULTI_GPU")),
    near(
        "ZC904",
        "one process, on the launch line",
        ("num_processes: 1", "num_processes: 2"),
        consumer=None,
        files={
            "train.sh": "accelerate launch --config_file accelerate.yaml --num_processes 1 train.py\n",
            "train.py": ACCELERATOR,
        },
    ).finds("note", "accelerate.yaml: zero_stage: 3", 3, 0, 0, also=("train.sh: --num_processes 1",)),
    near("ZC905", "fp16", ("'no'", "fp16")),
    near("ZC905", "stage 2", ("zero_stage: 3", "zero_stage: 2")),
    near("ZC905", "nothing is written", ("mixed_precision: 'no'\n", "")),
    near("ZC905", "another launcher", ("DEEPSPEED", "MULTI_GPU")),
    near(
        "ZC905",
        "the launch line decides",
        consumer=None,
        files={
            "train.sh": "accelerate launch --config_file accelerate.yaml --mixed_precision 'no' train.py\n",
            "train.py": ACCELERATOR,
        },
    ),
)


def gathered(why: str, steps: int = 8, *, hardware: Any = NODE, of: Any = MODEL, **memory: Any) -> Near:
    """ZC906 with this many accumulation steps, and memory of 80 GiB in which twice the micro batch fits."""
    told = {"states_gib": {2: 50.0}, "doubled_peak_gib": (30.0, 43.0), "micro_batch": 1, **memory}
    swap = ('"gradient_accumulation_steps": 8', f'"gradient_accumulation_steps": {steps}')
    return near("ZC906", why, swap, hardware=hardware, model=of, memory=MemorySummary(**told))


def logits(why: str, gib: float, *swaps: tuple[str, str], hardware: Any = NODE, of: Any = None) -> Near:
    """ZC907 of 8 x 2048 tokens over 128,256 words whose logits take this many GiB."""
    memory = MemorySummary(logits_gib=gib, micro_batch=8, sequence_length=2048)
    return near("ZC907", why, *swaps, hardware=hardware, model=of or model(vocab_size=128_256), memory=memory)


STEPS = 'ds.json: "gradient_accumulation_steps": %s'
MICRO = "recipe.yaml: per_device_train_batch_size: 8"
WORKLOAD = (
    # figures: steps, stage, gathers a step, twice the micro batch, least and most, room, micro batch, half the steps
    gathered("four steps", 4).finds("note", STEPS % 4, 4, 3, 8, 2, 30, 43, 80, 2, 2),
    gathered("three steps", 3),
    gathered("two steps", 2),
    gathered("five steps have no half", 5),
    gathered("one gather a micro batch", of=model(1_000_000_000)).finds(
        "note", STEPS % 8, 8, 3, 8, 2, 30, 43, 80, 2, 4
    ),
    gathered("the most fits exactly", doubled_peak_gib=(30.0, 80.0)).finds(
        "note", STEPS % 8, 8, 3, 16, 2, 30, 80, 80, 2, 4
    ),
    gathered("the most does not fit", doubled_peak_gib=(30.0, 80.01)),
    gathered("stage 2 does, which has a rule of its own", states_gib={2: 40.0}),
    gathered("stage 2 does not quite", states_gib={2: 40.01}).finds("note", STEPS % 8, 8, 3, 16, 2, 30, 43, 80, 2, 4),
    gathered("one accelerator", hardware=node(1)),
    gathered("two accelerators", hardware=node(2)).finds("note", STEPS % 8, 8, 3, 16, 2, 30, 43, 80, 2, 4),
    gathered("nothing is predicted", doubled_peak_gib=None),
    gathered("no hardware", hardware=None),
    gathered("memory that nobody knows", hardware=node(memory_gib=None)),
    near("ZC906", "stage 2", ('"stage": 3', '"stage": 2')),
    near("ZC906", "no memory", memory=None),
    logits("a fifth of 80 GiB", 16.0).finds("note", MICRO, 8, 2048, 128256, 16, 80),
    logits("less than a fifth", 15.99),
    logits("8 GiB of nobody knows what", 8.0, hardware=None).finds("note", MICRO, 8, 2048, 128256, 8),
    logits("less than 8 GiB", 7.99, hardware=None),
    logits("TRL computes the loss in pieces", 16.0, ("consumer: transformers", "consumer: trl")),
    near("ZC907", "no memory", memory=None),
    near("ZC907", "no model", model=None),
    near("ZC907", "nothing is predicted", memory=MemorySummary()),
)

PROCESSES, MACHINES = "accelerate.yaml: num_processes: %s", "accelerate.yaml: num_machines: %s"
PEFT = {"recipe.yaml": RECIPE + "use_peft: true\n"}
TRAINED_BY = (
    ("consumer: deepspeed", "consumer: transformers"),
    ("    deepspeed: ds.json\n", "    deepspeed: ds.json\n    recipe: recipe.yaml\n"),
)


def resting(why: str, *swaps: tuple[str, str], files: Any = None, of: Any = MODEL, **memory: Any) -> Near:
    """ZC922 at stage 0 of states that take 80.01 of 80 GiB."""
    told = MemorySummary(**{"resting_gib": 80.01, **memory})
    return near("ZC922", why, *swaps, files=files, hardware=NODE, model=of, memory=told)


def on_host(why: str, need: float, rounding: float = 0.0) -> Near:
    """ZC923 of a host with 128 GiB."""
    told = MemorySummary(host_states_gib=need, pinned_rounding_gib=rounding)
    return near("ZC923", why, hardware=node(host_gib=128.0), model=MODEL, memory=told)


LOCKED = 10 * 7_000_000_000 // 8
"""Bytes of a rank's share of seven billion parameters over eight."""


def locked(why: str, *swaps: tuple[str, str], limit: int | None = LOCKED - 1) -> Near:
    return near("ZC924", why, *swaps, hardware=node(memlock=limit), model=MODEL)


def needless(why: str, *swaps: tuple[str, str], states: float = 40.0, hardware: Any = NODE, of: Any = MODEL) -> Near:
    """ZC925 of states that would take half of 80 GiB at any stage."""
    told = MemorySummary(dict.fromkeys(range(4), states))
    return near("ZC925", why, *swaps, hardware=hardware, model=of, memory=told)


def vendor(name: str | None, *swaps: tuple[str, str], why: str = "") -> Near:
    return near("ZC926", why or str(name), *swaps, hardware=node(vendor=name))


STAGE_0 = 'ds.json: "stage": 0'
TO_HOST, DEVICE = '"offload_optimizer": {"device": "cpu"}', 'ds.json: "device": "cpu"'
TO_PARAM = (TO_HOST, '"offload_param": {"device": "cpu"}')
NOWHERE = ('"device": "cpu"', '"device": "none"')
PINNED = 'ds.json: "offload_optimizer"'
SUPER = 'ds.json: "super_offload": true'
CAPACITY = (
    near("ZC920", "one more", ("num_processes: 8", "num_processes: 5"))
    .finds("error", PROCESSES % 5, 5, 4, 4)
    .becomes("num_processes: 4"),
    near("ZC920", "one less", ("num_processes: 8", "num_processes: 3")).finds("note", PROCESSES % 3, 3, 4, 1, 4),
    near("ZC920", "one", ("num_processes: 8", "num_processes: 1")).finds("note", PROCESSES % 1, 1, 4, 3, 4),
    near("ZC920", "another rule tells none", ("num_processes: 8", "num_processes: 0")),
    near("ZC920", "another rule tells a switch", ("num_processes: 8", "num_processes: true")),
    near("ZC920", "one machine", ("num_processes: 8", "num_processes: 4\nnum_machines: 1")),
    near("ZC920", "two machines", ("num_processes: 8", "num_processes: 4\nnum_machines: 2")).finds(
        "error", MACHINES % 2, 2, 1, 1
    ),
    near("ZC920", "no hardware", hardware=None),
    near("ZC921", "fp16", ('"bf16"', '"fp16"')),
    near("ZC921", "switched off", ('"enabled": true', '"enabled": false')),
    near("ZC921", "no hardware", hardware=None),
    near("ZC921", "nobody knows", hardware=node(bf16=None)),
    near("ZC921", "hardware that does", hardware=node(bf16=True)),
    Near(
        "ZC921",
        "asked of accelerate",
        Example(
            {
                "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: accelerate\n    script: train.py\n"
                "    accelerate: accelerate.yaml\n    hardware: 8xV100-SXM2-32GB\n",
                "train.py": ACCELERATOR,
                "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n"
                "deepspeed_config:\n  zero_stage: 2\n",
            }
        ).finds("error", "accelerate.yaml: mixed_precision: bf16"),
    ),
    resting("exactly what there is", resting_gib=80.0),
    resting("more than there is").finds("error", STAGE_0, "80.0", 0, "80.0"),
    resting("stage 1 takes all", states_gib={1: 80.0}).finds("error", STAGE_0, "80.0", 0, "80.0"),
    resting("stage 1 takes less", states_gib={1: 79.99})
    .finds("error", STAGE_0, "80.0", 0, "80.0", 1)
    .becomes('"stage": 1'),
    resting("stage 2 takes less", states_gib={1: 80.0, 2: 79.0, 3: 40.0}).finds("error", STAGE_0, "80.0", 0, "80.0", 2),
    resting("the rest takes all", states_gib={3: 40.0}, stage_peaks_gib={3: (80.0, 90.0)}).finds(
        "error", STAGE_0, "80.0", 0, "80.0"
    ),
    resting("the rest takes less", states_gib={3: 40.0}, stage_peaks_gib={3: (79.99, 90.0)}).finds(
        "error", STAGE_0, "80.0", 0, "80.0", 3
    ),
    resting("nothing is predicted", resting_gib=None),
    near("ZC922", "no model", model=None),
    near("ZC922", "no hardware", hardware=None),
    near("ZC922", "memory that nobody knows", hardware=node(memory_gib=None)),
    near("ZC922", "no memory", memory=None),
    resting("the Trainer", *TRAINED_BY, files={"recipe.yaml": RECIPE}).finds("error", STAGE_0, "80.0", 0, "80.0"),
    resting("adapters", *TRAINED_BY, files=PEFT),
    resting("adapters, counted", *TRAINED_BY, files=PEFT, of=model(all_trained=False)).finds(
        "error", STAGE_0, "80.0", 0, "80.0"
    ),
    resting("ZenFlow keeps other states", ('"stage": 0', '"stage": 0, "zenflow": {}')),
    on_host("exactly what there is", 128.0),
    on_host("more than there is", 128.01).finds("error", DEVICE, 128, 128, 3),
    on_host("too much by rounding alone", 130.0, 2.0).finds("warning", DEVICE, 130, 2, 128),
    on_host("too much without rounding", 130.0, 1.99).finds("error", DEVICE, 130, 2, 128, 3),
    on_host("rounding of a GiB", 140.0, 1.0).finds("error", DEVICE, 140, 1, 128, 3),
    on_host("rounding of less", 140.0, 0.99).finds("error", DEVICE, 140, 128, 3),
    near("ZC923", "no hardware", hardware=None),
    near("ZC923", "no model", model=None),
    near("ZC923", "no memory", memory=None),
    near("ZC923", "a host that nobody knows", hardware=NODE),
    near("ZC923", "nothing is predicted", memory=MemorySummary()),
    locked("exactly what may be locked", limit=LOCKED),
    locked("a byte more").finds("note", PINNED, "8.1", "8.15"),
    locked("no limit", limit=None),
    locked("pinned as written", (TO_HOST, TO_HOST.replace('"cpu"', '"cpu", "pin_memory": true')))
    .finds("note", PINNED, "8.1", "8.15")
    .becomes('"pin_memory": false'),
    locked("not pinned", (TO_HOST, TO_HOST.replace('"cpu"', '"cpu", "pin_memory": false'))),
    locked("nowhere", NOWHERE),
    locked("stage 0", ('"stage": 2', '"stage": 0')),
    locked("stage 1", ('"stage": 2', '"stage": 1')).finds("note", PINNED, "8.1", "8.15"),
    locked("stage 3", ('"stage": 2', '"stage": 3')).finds("note", PINNED, "8.1", "8.15"),
    locked("ZenFlow keeps other states", ('"stage": 2', '"stage": 2, "zenflow": {}')),
    *(
        near(
            "ZC924",
            f"DeepSpeed {release}",
            hardware=node(memlock=LOCKED - 1),
            model=MODEL,
            versions={"deepspeed": release},
        )
        for release in ("==0.19.4", ">=0.19.4")
    ),
    near(
        "ZC924", "pins since", hardware=node(memlock=LOCKED - 1), model=MODEL, versions={"deepspeed": ">=0.19.5"}
    ).finds("note", PINNED, "8.1", "8.15"),
    near("ZC924", "no hardware", hardware=None),
    near("ZC924", "no model", model=None),
    near("ZC924", "no parameters", model=model(0), hardware=node(memlock=1)),
    needless("half of the memory").finds("note", DEVICE, 2, "40.0", 80),
    needless("more than half", states=40.01),
    needless("stage 0", ('"stage": 2', '"stage": 0')),
    needless("stage 1", ('"stage": 2', '"stage": 1')).finds("note", DEVICE, 1, "40.0", 80),
    needless("nothing is offloaded", NOWHERE),
    needless("parameters, which stage 2 does not offload", TO_PARAM),
    needless("parameters at stage 3", TO_PARAM, ('"stage": 2', '"stage": 3')).finds("note", DEVICE, 3, "40.0", 80),
    needless("memory that nobody knows", hardware=node(memory_gib=None)),
    near("ZC925", "no hardware", hardware=None),
    near("ZC925", "no model", model=None),
    near("ZC925", "no memory", memory=None),
    vendor("amd").finds("error", SUPER),
    vendor("nvidia"),
    vendor(None),
    vendor("amd", ('"super_offload": true', '"super_offload": false'), why="switched off"),
    vendor("amd", ('"stage": 3', '"stage": 2'), why="stage 2 has a rule of its own"),
    vendor("amd", NOWHERE, why="nothing is offloaded"),
    near("ZC926", "no hardware", hardware=None),
)

GROUP = '"reduce_bucket_size": 1000000'


def stepping(why: str, *swaps: tuple[str, str], of: Any = MODEL, stage: int = 2, **memory: Any) -> Near:
    """ZC927 of a step that takes 96 of 80 GiB where the states take 64."""
    told = MemorySummary(**{"step_gib": 96.0, "resting_gib": 64.0, **memory})
    at = ('"stage": 3', f'"stage": {stage}')
    return near("ZC927", why, *swaps, *([at] if stage != 3 else []), hardware=NODE, model=of, memory=told)


def peaking(why: str, *swaps: tuple[str, str], peak: Any = (80.01, 90.0), of: Any = MODEL, **memory: Any) -> Near:
    """ZC928 of 4 x 4096 tokens that take 80.01 to 90 of 80 GiB."""
    told = MemorySummary(peak_gib=peak, micro_batch=4, sequence_length=4096, **memory)
    return near("ZC928", why, *swaps, hardware=NODE, model=of, memory=told)


def written(why: str, gib: float | None, free: dict[str, float], *swaps: tuple[str, str]) -> Near:
    """ZC929 of a node that writes this many GiB below /local_nvme/swap."""
    told, drives = MemorySummary(nvme_gib=gib), node(nvme_free_gib=free)
    return near("ZC929", why, *swaps, hardware=drives, model=MODEL, memory=told)


PEAK = (4, 4096, 80, 90, 2, "80.0")
MICRO_BATCH = ('ds.json: "train_micro_batch_size_per_gpu": 4',)
SWAP = 'ds.json: "nvme_path": "/local_nvme/swap"'
BOTH = (
    '"offload_optimizer": {',
    '"offload_param": {"device": "nvme", "nvme_path": "%s"}, "offload_optimizer": {',
)
# A group leaves a tenth free: (0.9 x 80 - 64) / (96 - 64) = a quarter of the rank's share.
LIMITS = (
    stepping("exactly what there is", step_gib=80.0),
    stepping("more than there is", step_gib=80.5).finds("error", AT_2, "80.5", 2, "16.5", "80.0"),
    stepping("between the steps all is taken", resting_gib=80.0).finds("error", AT_2, "96.0", 2, "16.0", "80.0"),
    stepping("the states do not fit, which has a rule of its own", resting_gib=80.01),
    stepping("nothing is predicted", step_gib=None),
    stepping("nothing is predicted of the states", resting_gib=None),
    stepping("a GiB", step_gib=81.0, resting_gib=80.0).finds("error", AT_2, "81.0", 2, "1.0", "80.0"),
    stepping("half a GiB", step_gib=80.5, resting_gib=80.0).finds("error", AT_2, "80.5", 2, "0.5", "80.0"),
    stepping("stage 3 fits", states_gib={3: 79.99})
    .finds("error", AT_2, "96.0", 2, "32.0", "80.0", 3)
    .becomes('"stage": 3'),
    stepping("stage 3 does not fit", states_gib={3: 80.0}).finds("error", AT_2, "96.0", 2, "32.0", "80.0"),
    stepping("ZenFlow keeps other states", (GROUP, GROUP + ', "zenflow": {}')),
    stepping("a quarter of 40,000 elements", of=model(320_000), stage=3).finds(
        "error", AT_3, "96.0", 3, "32.0", "80.0", 10000
    ),
    stepping("a quarter of 39,999 elements", of=model(319_999), stage=3).finds(
        "error", AT_3, "96.0", 3, "32.0", "80.0"
    ),
    stepping("one digit", of=model(8 * 4 * 99_999), stage=3).finds("error", AT_3, "96.0", 3, "32.0", "80.0", 90000),
    stepping("the last parameter of a group", of=model(8 * 400_000, largest_parameter=320_001), stage=3).finds(
        "error", AT_3, "96.0", 3, "32.0", "80.0", 50000
    ),
    stepping("groups that are written", (GROUP, '"sub_group_size": 40000'), of=model(8 * 400_000), stage=3).finds(
        "error", 'ds.json: "sub_group_size": 40000', "96.0", 3, "32.0", "80.0", 10000, also=(AT_3,)
    ),
    stepping("on the host", (GROUP, '"offload_optimizer": {"device": "cpu"}'), stage=3).finds(
        "error", AT_3, "96.0", 3, "32.0", "80.0"
    ),
    stepping("trained in part", of=model(all_trained=False), stage=3).finds("error", AT_3, "96.0", 3, "32.0", "80.0"),
    near("ZC927", "no hardware", hardware=None),
    near("ZC927", "no model", model=None),
    near("ZC927", "no memory", memory=None),
    near("ZC927", "memory that nobody knows", hardware=node(memory_gib=None)),
    peaking("exactly what there is", peak=(80.0, 90.0)),
    peaking("more than there is").finds("error", AT_2, *PEAK, also=MICRO_BATCH),
    peaking("nothing is predicted", peak=None),
    peaking("the states do not fit, which has a rule of its own", resting_gib=80.01),
    peaking("the states take all", resting_gib=80.0).finds("error", AT_2, *PEAK, also=MICRO_BATCH),
    peaking("the step does not fit, which has a rule of its own", step_gib=80.01),
    peaking("the step takes all", step_gib=80.0).finds("error", AT_2, *PEAK, also=MICRO_BATCH),
    peaking("stage 3 fits", stage_peaks_gib={3: (40.0, 80.0)}).finds("error", AT_2, *PEAK, 3, also=MICRO_BATCH),
    peaking("stage 3 may not fit", stage_peaks_gib={3: (40.0, 80.01)}).finds("error", AT_2, *PEAK, also=MICRO_BATCH),
    peaking("without logits it fits", logits_gib=10.0).finds("error", AT_2, *PEAK, 10, also=MICRO_BATCH),
    peaking("without logits it may not fit", logits_gib=9.99).finds("error", AT_2, *PEAK, also=MICRO_BATCH),
    peaking("ZenFlow keeps other states", ('"stage": 2', '"stage": 2, "zenflow": {}')),
    peaking("stage 0", ('"stage": 2', '"stage": 0')).finds("error", STAGE_0, 4, 4096, 80, 90, "80.0", also=MICRO_BATCH),
    near("ZC928", "no hardware", hardware=None),
    near("ZC928", "no model", model=None),
    near("ZC928", "no memory", memory=None),
    near("ZC928", "memory that nobody knows", hardware=node(memory_gib=None)),
    written("exactly what is free", 500.0, {"/local_nvme": 500.0}),
    written("more than is free", 500.6, {"/local_nvme": 500.0}).finds("warning", SWAP, 501, 500),
    written("nothing is predicted", None, {"/local_nvme": 500.0}),
    written("of two drives the nearer", 700.0, {"/": 1000.0, "/local_nvme": 500.0}).finds("warning", SWAP, 700, 500),
    written("the drive around", 700.0, {"/": 600.0, "/other": 500.0}).finds("warning", SWAP, 700, 600),
    written("a drive that nobody probed", 700.0, {"/other": 500.0}),
    written("no path", 700.0, {"/local_nvme": 500.0}, (', "nvme_path": "/local_nvme/swap"', "")),
    written("two drives", 700.0, {"/local_nvme": 500.0, "/other": 500.0}, (BOTH[0], BOTH[1] % "/other")),
    written("twice the same drive", 700.0, {"/local_nvme": 500.0}, (BOTH[0], BOTH[1] % "/local_nvme/parameters")).finds(
        "warning", SWAP, 700, 500
    ),
    written("ZenFlow keeps other states", 700.0, {"/local_nvme": 500.0}, ('"stage": 3', '"stage": 3, "zenflow": {}')),
    near("ZC929", "no hardware", hardware=None),
    near("ZC929", "no model", model=None),
    near("ZC929", "no memory", memory=None),
)

TABLE = (*BUFFERS, *WORKLOAD, *CAPACITY, *LIMITS)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
