"""Near misses of the rules of ZeRO, the other sections of the DeepSpeed config, and saving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary

from .files import of
from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

EIGHTY = HardwareSummary("8xA100-80GB", 1, 8, 80.0, True)
ACCELERATOR = "from accelerate import Accelerator\n"
TRAINER = "from transformers import Trainer\n"
LAUNCH = "accelerate launch --config_file accelerate.yaml%s train.py\n"
WITH_RECIPE = "accelerate launch%s train.py --config recipe.yaml%s\n"


def sharded(why: str, parameters: int = 350_000_000, **zero: float) -> Near:
    """ZC405 of a model of which stage 2 takes 6 GiB of 80, in files that ask for stage 3."""
    model = ModelSummary("tiny", parameters=parameters)
    steps = f'"gradient_accumulation_steps": {zero["steps"]}, ' if "steps" in zero else ""
    text = ('{"train_micro_batch_size_per_gpu": 1, ', '{"train_micro_batch_size_per_gpu": 1, ' + steps)
    return near("ZC405", why, text, model=model, hardware=EIGHTY, memory=MemorySummary({2: 6.0, 3: 4.0}))


def fitting(why: str, memory: MemorySummary, block: int | None = None) -> Near:
    """ZC405 with exactly this memory of an accelerator of 80 GiB."""
    model = ModelSummary("tiny", parameters=350_000_000, largest_block=block)
    return near("ZC405", why, model=model, hardware=EIGHTY, memory=memory)


STAGE_3 = 'ds.json: "stage": 3'
POINTING = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
BARE = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}\n'

STAGES = (
    near("ZC403", "no reader is known", consumer=None).finds("warning", 'ds.json: "auto"', 2, 0),
    near("ZC403", "accelerate takes 2", consumer="accelerate").finds("warning", 'ds.json: "auto"', 2),
    near(
        "ZC403",
        "the launch line names a stage",
        consumer=None,
        files={
            "train.sh": "accelerate launch --use_deepspeed --zero_stage 3 --deepspeed_config_file ds.json train.py\n",
            "train.py": ACCELERATOR,
        },
    ),
    near("ZC404", "stage 3", ("zero_stage: 2", "zero_stage: 3")),
    near("ZC404", "stage 1", ("zero_stage: 2", "zero_stage: 1")).finds(
        "note", "accelerate.yaml: zero3_init_flag: true", 1
    ),
    near("ZC404", "another launcher", ("DEEPSPEED", "MULTI_GPU")),
    near(
        "ZC404",
        "a stage that nobody can know",
        consumer=None,
        files={"train.sh": LAUNCH % " --zero_stage $STAGE", "train.py": ACCELERATOR},
    ),
    fitting("exactly half of the memory", MemorySummary({2: 40.0, 3: 20.0})).finds(
        "note", STAGE_3, 3, 2, "40.0", 80, 2
    ),
    fitting("more than half of the memory", MemorySummary({2: 40.01, 3: 20.0})),
    fitting("the most fits exactly", MemorySummary({2: 6.0}, stage_peaks_gib={2: (60.0, 80.0)})).finds(
        "note", STAGE_3, 3, 2, "6.0", 80, 2
    ),
    fitting("the most does not fit", MemorySummary({2: 6.0}, stage_peaks_gib={2: (60.0, 80.01)})),
    fitting("stage 3 holds as much", MemorySummary({2: 6.0, 3: 6.0}), block=1).finds(
        "note", STAGE_3, 3, 2, "6.0", 80, 3, "6.0", 2
    ),
    fitting("stage 3 holds less", MemorySummary({2: 6.0, 3: 5.99}), block=1).finds("note", STAGE_3, 3, 2, "6.0", 80, 2),
    fitting("the blocks are not known", MemorySummary({2: 6.0, 3: 7.0})).finds("note", STAGE_3, 3, 2, "6.0", 80, 2),
    near("ZC405", "no hardware", hardware=None),
    near("ZC405", "no memory", memory=None),
    near("ZC405", "no model", model=None),
    near("ZC405", "stage 2", ('"stage": 3', '"stage": 2'), memory=MemorySummary({2: 6.0}), hardware=EIGHTY),
    near(
        "ZC405",
        "parameters on the drive",
        ('"stage": 3', '"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/nvme"}'),
        memory=MemorySummary({2: 6.0}),
        hardware=EIGHTY,
    ),
    # Of a billion parameters all stay from forward to backward pass: one gather a micro batch, not two.
    sharded("a billion parameters", 1_000_000_000).finds("note", STAGE_3, 3, 2, "6.0", 80, 2),
    # Above, 1 - (1 + 1) / (1 * 3) of the bytes.
    sharded("more than a billion parameters", 1_000_000_001).finds("note", STAGE_3, 3, 2, "6.0", 80, 2, 33),
    # 1 - (2 + 1) / (2 * 2) of the bytes.
    sharded("two accumulation steps", steps=2).finds("note", STAGE_3, 3, 2, "6.0", 80, 2, 25, 2),
    near("ZC410", "stage 2", ('"stage": 1', '"stage": 2')).finds("error", 'ds.json: "legacy_stage1": true', "0.5.9"),
    near("ZC410", "stage 0", ('"stage": 1', '"stage": 0')),
    near("ZC410", "stage 3", ('"stage": 1', '"stage": 3')),
    near("ZC410", "false", ('"legacy_stage1": true', '"legacy_stage1": false')),
    of("ZC411", "at the config, not where it is named", {"accelerate.yaml": POINTING, "ds.json": BARE}, "accelerate")
    .finds("error", "ds.json", 0)
    .becomes('"zero_optimization": {"stage": 0}'),
    near("ZC411", "a loop of one's own", consumer="deepspeed", files={"recipe.yaml": None}),
    near("ZC412", "stage 2", ('"stage": 3', '"stage": 2')),
    near(
        "ZC412",
        "the model alone, and the best at the end",
        ("auto_find_batch_size: true", "save_only_model: true\nload_best_model_at_end: true"),
    ).finds("error", "recipe.yaml: save_only_model: true", also=("recipe.yaml: load_best_model_at_end: true",)),
    near("ZC412", "the model alone", ("auto_find_batch_size: true", "save_only_model: true")),
    near("ZC412", "the best at the end", ("auto_find_batch_size: true", "load_best_model_at_end: true")),
)

PLAIN = '"stage": 2'
AUTOS = (
    near("ZC406", "a loop of one's own", consumer="deepspeed", files={"recipe.yaml": None}),
    near("ZC415", "accelerate fills", consumer="accelerate"),
    near("ZC415", "the stage has a rule of its own", (PLAIN, '"stage": "auto"'), good=1),
    near("ZC415", "precision has one", (PLAIN + "}", PLAIN + '}, "bf16": {"enabled": "auto"}'), good=1),
    near(
        "ZC415",
        "gathering has one",
        (PLAIN, '"stage": 3, "stage3_gather_16bit_weights_on_model_save": "auto"'),
        good=1,
    ),
    near("ZC415", "the default is taken", (PLAIN, PLAIN + ', "reduce_bucket_size": "auto"'), good=1).finds(
        "warning", 'ds.json: "reduce_bucket_size": "auto"', 500000000
    ),
    near("ZC415", "the default of stage 2", (PLAIN, PLAIN + ', "overlap_comm": "auto"'), good=1).finds(
        "warning", 'ds.json: "overlap_comm": "auto"'
    ),
    near("ZC415", "the default of stage 3", (PLAIN, '"stage": 3, "overlap_comm": "auto"'), good=1).finds(
        "warning", 'ds.json: "overlap_comm": "auto"'
    ),
    near(
        "ZC415",
        "several defaults are taken",
        (PLAIN, PLAIN + ', "reduce_bucket_size": "auto", "overlap_comm": "auto"'),
        good=1,
    ).finds("warning", 'ds.json: "reduce_bucket_size": "auto"', 1, also=('ds.json: "overlap_comm": "auto"',)),
    near(
        "ZC415",
        "learning rate",
        (PLAIN + "}", PLAIN + '}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}'),
        good=1,
    ).finds("error", 'ds.json: "lr": "auto"'),
    near(
        "ZC415",
        "warmup",
        (PLAIN + "}", PLAIN + '}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}'),
        good=1,
    ).finds("error", 'ds.json: "warmup_num_steps": "auto"'),
    near("ZC415", "the engine divides by it", (PLAIN + "}", PLAIN + '}, "steps_per_print": "auto"'), good=1).finds(
        "error", 'ds.json: "steps_per_print": "auto"'
    ),
    near("ZC415", "ZenFlow knows the word", (PLAIN, PLAIN + ', "zenflow": {"select_strategy": "auto"}'), good=1),
)

SUB_GROUP, LIVE = '"sub_group_size": 100000000', '"stage3_max_live_parameters": 3e8'
ROBIN, GATHERED = '"round_robin_gradients": true', '"allgather_bucket_size": 200000000'
STAGE_KEYS = (
    near("ZC416", "the defaults", (SUB_GROUP, '"sub_group_size": 1000000000'), (LIVE, LIVE.replace("3e8", "1e9"))),
    near("ZC416", "one of two", (SUB_GROUP, '"sub_group_size": 1e9')).finds(
        "note", 'ds.json: "stage3_max_live_parameters"', 3, 2, 3
    ),
    near("ZC416", "stage 1", ('"stage": 2', '"stage": 1')).finds(
        "note", 'ds.json: "sub_group_size"', 3, 1, 3, also=('ds.json: "stage3_max_live_parameters"',)
    ),
    near("ZC416", "stage 0", ('"stage": 2', '"stage": 0')),
    near("ZC416", "nothing is meant", (SUB_GROUP, '"sub_group_size": null'), (LIVE, LIVE.replace("3e8", '"auto"'))),
    near("ZC416", "no number", (SUB_GROUP, '"sub_group_size": "many"'), (LIVE, LIVE.replace("3e8", "[1]"))),
    near(
        "ZC416",
        "a switch at its default",
        (SUB_GROUP, '"memory_efficient_linear": true'),
        (LIVE, '"overlap_comm": true'),
    ),
    near("ZC416", "a switch", (SUB_GROUP, '"memory_efficient_linear": false'), (LIVE, '"overlap_comm": true')).finds(
        "note", 'ds.json: "memory_efficient_linear"', 3, 2, 3
    ),
    near("ZC416", "three keys", (LIVE, LIVE + ', "stage3_prefetch_bucket_size": 1')).finds(
        "note",
        'ds.json: "sub_group_size"',
        3,
        2,
        3,
        also=('ds.json: "stage3_max_live_parameters"', 'ds.json: "stage3_prefetch_bucket_size"'),
    ),
    near(
        "ZC416",
        "four keys",
        (LIVE, LIVE + ', "stage3_prefetch_bucket_size": 1, "stage3_max_reuse_distance": 1'),
    ).finds(
        "note",
        'ds.json: "sub_group_size"',
        2,
        3,
        2,
        3,
        also=(
            'ds.json: "stage3_max_live_parameters"',
            'ds.json: "stage3_prefetch_bucket_size"',
            'ds.json: "stage3_max_reuse_distance"',
        ),
    ),
    near("ZC417", "the defaults", (ROBIN, ROBIN.replace("true", "false")), (GATHERED, GATHERED.replace("2", "5"))),
    near("ZC417", "stage 1", ('"stage": 3', '"stage": 1')),
    near("ZC417", "stage 0", ('"stage": 3', '"stage": 0')),
    near("ZC418", "stage 1", ('"stage": 0', '"stage": 1')),
    near("ZC418", "no stage", ('"stage": 0, ', "")),
    near("ZC418", "the defaults", ('"overlap_comm": true', '"overlap_comm": false'), ("200000000", "500000000")),
    near("ZC418", "keys of stages 1 and 3", ('"overlap_comm": true', ROBIN), ("reduce_bucket", "sub_group")).finds(
        "note", 'ds.json: "round_robin_gradients"', 0, 1, 3, also=('ds.json: "sub_group_size"',)
    ),
    near("ZC419", "an empty section", ('"overlap_comm": true, "reduce_bucket_size": 200000000', "")),
    near("ZC419", "no reader is known", consumer=None).finds("error", 'ds.json: "zero_optimization"', 0, 1, 2, 3),
    near("ZC420", "stage 1", ('"stage": 2', '"stage": 1')).finds(
        "error", "ds.json: 499999999", "499,999,999", 1, 500000000
    ),
    near("ZC420", "stage 0", ('"stage": 2', '"stage": 0')),
    near("ZC420", "stage 3", ('"stage": 2', '"stage": 3')),
    near("ZC420", "a small odd size", ("499999999", "3")).finds("error", "ds.json: 3", 3, 2, 4),
    near("ZC420", "the smallest", ("499999999", "1")).finds("error", "ds.json:1:98: 1", 1, 2, 2),
    near("ZC420", "zero", ("499999999", "0")),
    near("ZC420", "another rule tells a negative size", ("499999999", "-1")),
    near("ZC420", "no number", ("499999999", '"many"')),
    near("ZC422", "nothing is fetched ahead anyway", ("200000000", "1")),
    near("ZC422", "two elements", ("200000000", "2")).finds("note", 'ds.json: "stage3_prefetch_bucket_size": 2', 2, 1),
    near("ZC422", "stage 2", ('"stage": 3', '"stage": 2')),
    near("ZC422", "false", ("true", "false")),
    near("ZC422", "auto is false", ("true", '"auto"')),
    near("ZC422", "no number", ("200000000", '"many"')),
    near(
        "ZC422",
        "the names without stage3_",
        ("stage3_allgather", "allgather"),
        ("stage3_prefetch", "prefetch"),
    ).finds("note", 'ds.json: "prefetch_bucket_size": 200000000', "200,000,000", 1),
)

CONTIGUOUS, NORM = 'ds.json: "contiguous_gradients": false', 'ds.json: "compute_grad_norm": false'
OFFLOADED = '"offload_optimizer": {"device": "%s"}'
GRADIENTS = (
    near("ZC421", "stage 1", ('"stage": 2', '"stage": 1')).finds("note", CONTIGUOUS),
    near("ZC421", "stage 3", ('"stage": 2', '"stage": 3')),
    near("ZC421", "stage 0", ('"stage": 2', '"stage": 0')),
    near("ZC421", "true", ("false", "true")),
    near("ZC421", "auto is the default", ("false", '"auto"')),
    near("ZC421", "null is the default", ("false", "null")),
    near("ZC421", "nothing is offloaded", ("cpu", "none")),
    near("ZC421", "nvme, which stage 2 keeps on the host", ("cpu", "nvme")).finds("note", CONTIGUOUS),
    near("ZC423", "a release without the key", versions={"deepspeed": "0.19.6"}),
    near("ZC423", "a release that may have it", versions={"deepspeed": "<=0.19.7"}).finds(
        "warning", 'ds.json: "compute_grad_norm": false', "1.0", "0.19.7", "0.19.7", "0"
    ),
    near("ZC424", "a release without the key", versions={"deepspeed": "0.19.6"}),
    near("ZC424", "the first with it", versions={"deepspeed": "0.19.7"}).finds(
        "error", 'ds.json: "compute_grad_norm": false'
    ),
    near("ZC423", "true", ("false", "true")),
    near("ZC423", "auto is true", ("false", '"auto"')),
    near("ZC423", "null is true", ("false", "null")),
    near("ZC423", "stage 3 has a rule of its own", ('"stage": 2', '"stage": 3')),
    near("ZC423", "stage 0 has a rule of its own", ('"stage": 2', '"stage": 0')),
    near("ZC423", "the least clipping", ("0.5", "0.001"), bad=2).finds("error", NORM, "0.001", 0),
    near("ZC423", "no clipping at stage 1", ("0.5", "0.0"), bad=2),
    near("ZC424", "true", ("false", "true")),
    near("ZC424", "stage 0", ('"stage": 3', '"stage": 0'), bad=2).finds("error", NORM, 0, 1, 2),
    near("ZC424", "stage 2", ('"stage": 3', '"stage": 2'), bad=2),
    near("ZC424", "nothing is offloaded", ("cpu", "none")),
    near("ZC424", "to the drive, at stage 1", ("cpu", "nvme"), ('"stage": 2', '"stage": 1')).finds("error", NORM),
    near("ZC424", "ZenFlow", (OFFLOADED % "cpu", '"zenflow": {}')).finds("error", NORM),
    near("ZC424", "summed in bf16", ('"fp32"', '"bf16"'), bad=3),
    near("ZC424", "stage 2 sums in fp32", ('"stage": 1', '"stage": 2'), bad=3),
    near("ZC424", "null is no ZenFlow", (OFFLOADED % "cpu", '"zenflow": null')),
)

PRESCALED = 'ds.json: "prescale_gradients": true'
SUM = 'ds.json: "gradient_allreduce_op": "sum"'
BUCKET = 'ds.json: "reduce_bucket_size": 100000000'


def comment(why: str, text: str) -> Near:
    """ZC413 of a bucket with this number and comment."""
    return near("ZC413", why, ("1e8 // 100 MB", text))


def bucket(why: str, *swaps: tuple[str, str]) -> Near:
    """ZC414 of the model with 1,073,472 parameters and a bucket of 100 million elements."""
    return near("ZC414", why, *swaps)


COMMUNICATION = (
    near("ZC408", "stage 1", ('"stage": 2', '"stage": 1')),
    near("ZC408", "stage 3", ('"stage": 2', '"stage": 3')).finds("error", PRESCALED, 3),
    near("ZC408", "false", ('"prescale_gradients": true', '"prescale_gradients": false')),
    near("ZC408", "auto is the default", ('"stage": 2', '"stage": 2, "reduce_scatter": "auto"')).finds(
        "error", PRESCALED, 2
    ),
    near("ZC408", "a factor", ('"prescale_gradients": true', '"gradient_predivide_factor": 2')).finds(
        "error", 'ds.json: "gradient_predivide_factor": 2', 2
    ),
    near("ZC408", "a factor of one", ('"prescale_gradients": true', '"gradient_predivide_factor": 1')),
    near("ZC408", "no number", ('"prescale_gradients": true', '"gradient_predivide_factor": "2"')),
    near("ZC408", "both", ('"prescale_gradients": true', '"prescale_gradients": true, "gradient_predivide_factor": 2'))
    .finds("error", PRESCALED, 2)
    .finds("error", 'ds.json: "gradient_predivide_factor": 2', 2),
    near("ZC409", "the mean", ('"sum"', '"mean"')),
    near("ZC409", "in capitals", ('"sum"', '"SUM"')).finds("error", 'ds.json: "gradient_allreduce_op": "SUM"', 3),
    near("ZC409", "stage 1", ('"stage": 3', '"stage": 1')),
    near("ZC409", "no DeepCompile", ("true", "false"), bad=2),
    near("ZC409", "ZenFlow", ('"stage": 3', '"stage": 2, "zenflow": {}')).finds("error", SUM),
    near("ZC409", "no reader is known, at stage 3", consumer=None).finds("error", SUM, 3),
    near("ZC409", "no reader is known, with DeepCompile", bad=2, consumer=None).finds("error", SUM),
    # 5e7 elements are 100 MB in 16 bit; a tenth off either way is a rounded figure.
    comment("a tenth less", "5e7 // 90 MB").finds("note", "ds.json:  90 MB", "5e8", "0.93", 16),
    comment("less than a tenth less", "5e7 // 91 MB"),
    comment("a tenth more", "5e7 // 110 MB").finds("note", "ds.json:  110 MB", "5e8", "0.93", 16),
    comment("less than a tenth more", "5e7 // 109 MB"),
    comment("in 32 bit", "5e7 // 200 MB"),
    comment("twice in 32 bit", "5e7 // 400 MB"),
    comment("three bytes an element", "5e7 // 150 MB").finds("note", "ds.json:  150 MB", "5e8", "0.93", 16),
    comment("gigabytes", "5e8 // 1 GB"),
    comment("half the gigabytes", "5e8 // 0.5 GB").finds("note", "ds.json:  0.5 GB", "5e8", "0.93", 16),
    comment("no bytes", "5e7 // the default is ten times as much"),
    comment("no number to compare with", '"auto" // 100 MB').finds("note", "ds.json:  100 MB", "5e8", "0.93", 16),
    comment("no elements", "0 // 100 MB").finds("note", "ds.json:  100 MB", "5e8", "0.93", 16),
    # bytes: elements x 2 in 16 bit, x 4 in 32 bit, x 2 again with overlap_comm below stage 3
    bucket("as large as the model", ("100000000", "1073472")),
    bucket("one element more", ("100000000", "1073473")).finds(
        "note", 'ds.json: "reduce_bucket_size": 1073473', "1,073,473", "1,073,472", "0.00", 16
    ),
    bucket("beyond what torch allocates", ("100000000", "9223372036854775808")),
    bucket("the most that torch counts", ("100000000", "9223372036854775807")).finds(
        "note",
        'ds.json: "reduce_bucket_size": 9223372036854775807',
        "9,223,372,036,854,775,807",
        "1,073,472",
        "17179869184.00",
        16,
    ),
    bucket("two copies", ('"stage": 2', '"stage": 2, "overlap_comm": true')).finds(
        "note", BUCKET, "100,000,000", "1,073,472", "0.37", 16
    ),
    bucket("one copy at stage 3", ('"stage": 2', '"stage": 3, "overlap_comm": true')).finds(
        "note", BUCKET, "100,000,000", "1,073,472", "0.19", 16
    ),
    bucket("in 32 bit", ("true", "false")).finds("note", BUCKET, "100,000,000", "1,073,472", "0.37", 32),
    bucket("the default", ('"reduce_bucket_size": 100000000', '"round_robin_gradients": true')).finds(
        "note", "ds.json", "500,000,000", "1,073,472", "0.93", 16
    ),
    bucket("stage 0", ('"stage": 2', '"stage": 0')),
    bucket("stage 1", ('"stage": 2', '"stage": 1')).finds("note", BUCKET, "100,000,000", "1,073,472", "0.19", 16),
    bucket("gradients sent as they are", ('"stage": 2', '"stage": 2, "contiguous_gradients": false')),
    bucket(
        "offloading needs the bucket",
        ('"stage": 2', '"stage": 2, "contiguous_gradients": false, "offload_optimizer": {"device": "cpu"}'),
    ).finds("note", BUCKET, "100,000,000", "1,073,472", "0.19", 16),
    bucket(
        "offloading at stage 3 needs none",
        ('"stage": 2', '"stage": 3, "contiguous_gradients": false, "offload_optimizer": {"device": "cpu"}'),
    ),
    bucket(
        "an optimizer without buckets",
        ('"stage": 2', '"stage": 1'),
        ('"bf16"', '"data_types": {"grad_accum_dtype": "fp32"}, "bf16"'),
    ),
    near("ZC414", "no model", model=None),
)

DIVIDED = 'ds.json: "autotp_size": 2'
COMPILING = (
    near("ZC440", "false", ("true", "false")),
    near("ZC440", "compiled", ("max_steps: 2", "max_steps: 2\ntorch_compile: true")),
    near("ZC440", "not compiled", ("max_steps: 2", "max_steps: 2\ntorch_compile: false")).finds(
        "error", 'ds.json: "deepcompile": true'
    ),
    near("ZC440", "compiled by a backend", ("max_steps: 2", "max_steps: 2\ntorch_compile_backend: inductor")),
    near("ZC440", "compiled in a mode", ("max_steps: 2", "max_steps: 2\ntorch_compile_mode: max-autotune")),
    near("ZC440", "the arguments are not known", files={"recipe.yaml": None}),
    near(
        "ZC440",
        "compiled on the command line",
        files={"train.sh": WITH_RECIPE % ("", " --torch_compile true"), "train.py": TRAINER},
    ),
    near(
        "ZC440",
        "compiled by accelerate",
        files={"train.sh": WITH_RECIPE % (" --dynamo_backend inductor", ""), "train.py": TRAINER},
    ),
    near("ZC441", "inductor", ("aot_eager", "inductor")),
    near("ZC441", "eager", ("aot_eager", "eager")),
    near("ZC441", "no DeepCompile", ('"deepcompile": true', '"deepcompile": false')),
    near("ZC441", "no backend", ("torch_compile_backend: aot_eager\n", "")),
    near(
        "ZC441",
        "the command line names another",
        files={"train.sh": WITH_RECIPE % ("", " --torch_compile_backend inductor"), "train.py": TRAINER},
    ),
    near("ZC443", "two ranks", ("--num_gpus 1", "--num_gpus 2")),
    near("ZC443", "four ranks", ("--num_gpus 1", "--num_gpus 4")),
    near("ZC443", "ranks that nobody knows", consumer="deepspeed", files={"train.sh": None}),
    near("ZC443", "another size", ("2}, ", "4}, "), ("--num_gpus 1", "--num_gpus 6"))
    .finds("error", 'ds.json: "autotp_size": 4', 4, 6)
    .becomes('"autotp_size": 3'),
    near("ZC444", "a size of one", ('"autotp_size": 2', '"autotp_size": 1')),
    near("ZC444", "micro batches", ("train_batch_size", "train_micro_batch_size_per_gpu")),
    near("ZC444", "accelerate", consumer="accelerate"),
    near("ZC444", "an odd batch", ('"train_batch_size": 2', '"train_batch_size": 3')).finds(
        "error", 'ds.json: "train_batch_size": 3', 3, 3, 2, 2, also=(DIVIDED,)
    ),
    near("ZC444", "no batch", ('"train_batch_size": 2', '"train_batch_size": 0')),
)

DROPPED = 'ds.json: "dataloader_drop_last"'
CURRICULUM = (
    '"dataloader_drop_last": true',
    '"data_efficiency": {"enabled": %s, "data_sampling": {"enabled": %s}}, "dataloader_drop_last": %s',
)


def sampled(why: str, *switches: str) -> Near:
    """ZC446 with these switches of data_efficiency, of its sampling, and of the last batch."""
    return near("ZC446", why, (CURRICULUM[0], CURRICULUM[1] % switches))


FEATURES = (
    near("ZC445", "a release without dynamic batching", versions={"deepspeed": "0.16.4"}),
    near("ZC445", "the key is there", ('"enabled": true', '"enabled": true, "max_tokens": 512')),
    near("ZC446", "false", ("true", "false")),
    near("ZC446", "accelerate", consumer="accelerate", files={"recipe.yaml": None}).finds("warning", DROPPED),
    near("ZC446", "a loop of one's own", consumer="deepspeed", files={"recipe.yaml": None}),
    sampled("both", "true", "true", "true").finds("error", DROPPED, also=('ds.json: "data_sampling"',)),
    sampled("sampling alone", "true", "true", "false").finds("error", 'ds.json: "data_sampling"'),
    sampled("no sampling", "true", "false", "false"),
    sampled("off further out", "false", "true", "false"),
    near("ZC454", "an empty section", ('{"enabled": false}', "{}")).finds("error", 'ds.json: "datastates_ckpt": {}'),
    near("ZC454", "on", ("false", "true")),
    near("ZC454", "a plain true", ('{"enabled": false}', "true")),
    near("ZC454", "no key", ('"datastates_ckpt": {"enabled": false}, ', "")),
    near("ZC455", "zero", ("0.01", "0")).finds("error", 'ds.json: "load_balance_coeff": 0', 0),
    near("ZC455", "another rule tells a switch", ("0.01", "true")),
    near("ZC456", "everything off", ("true", "false")),
    near("ZC456", "a loop of one's own", consumer="deepspeed", files={"recipe.yaml": None}),
    near("ZC456", "the recipe is not known", files={"recipe.yaml": None}),
    near("ZC457", "false", ('"disable_allgather": true', '"disable_allgather": false')),
    near("ZC457", "null", ('"disable_allgather": true', '"disable_allgather": null')),
    near("ZC457", "true is the default", ("false", "true"), bad=2),
    near("ZC457", "null is the default", ("false", "null"), bad=2),
    near("ZC457", "stages of a pipeline", ('"disable_allgather": true', '"pipeline": {"stages": 2}')).finds(
        "warning", 'ds.json: "stages"'
    ),
    near(
        "ZC457",
        "another rule tells an old name",
        ('"disable_allgather": true, ', ""),
        ('"stage": 2', '"stage": 2, "cpu_offload_use_pin_memory": true'),
    ),
    near("ZC438", "a loop of one's own", consumer="deepspeed", files={"recipe.yaml": None}),
    near("ZC438", "accelerate", consumer="accelerate", files={"recipe.yaml": None}).finds(
        "error", 'ds.json: "managed_gradient_accumulation": false'
    ),
)

LOGGER = '"comms_logger": {"enabled": %s}'
SECTION = 'ds.json: "comms_logger"'
SILENT = '"prof_all": false'
PROFILED = '"profile_step": 5'
INSTRUMENTS = (
    near("ZC447", "false", ("true", "false")),
    near("ZC447", "both", ("true", 'true, "flops_profiler": {"enabled": true}')).finds(
        "note", 'ds.json: "wall_clock_breakdown": true', also=('ds.json: "enabled": true',)
    ),
    near("ZC449", "false has a rule of its own", ("true", "false")),
    near("ZC452", "true has a rule of its own", ("false", "true")),
    near("ZC452", "an empty section", ('{"enabled": false}', "{}")).finds("error", SECTION),
    near("ZC452", "auto has a rule of its own", ("false", '"auto"')),
    near("ZC452", "no section", ('{"enabled": false}', "true")),
    near("ZC450", "off", ('"enabled": true', '"enabled": false')),
    near("ZC450", "everything", (SILENT, '"prof_all": true')),
    near("ZC450", "everything is the default", (SILENT, '"debug": false')),
    near("ZC450", "null is no choice", (SILENT, '"prof_all": null')),
    near("ZC450", "auto is no choice", (SILENT, '"prof_all": "auto"')),
    near("ZC450", "one operation", (SILENT, SILENT + ', "prof_ops": ["all_reduce"]')),
    near("ZC450", "an empty list", (SILENT, SILENT + ', "prof_ops": []')).finds("warning", "ds.json: " + SILENT),
    near("ZC451", "as many as the run has", (PROFILED, '"profile_step": 2'))
    .finds("warning", 'ds.json: "profile_step": 2', 2, 2, 0, 2)
    .becomes('"profile_step": 1'),
    near("ZC451", "one more", ("max_steps: 2", "max_steps: 6")),
    near("ZC451", "off", ("true", "false")),
    near("ZC451", "epochs decide", ("max_steps: 2", "max_steps: -1")),
    near("ZC451", "a run of one step", ("max_steps: 2", "max_steps: 1"))
    .finds("warning", "ds.json: " + PROFILED, 5, 1, 0, 1)
    .becomes('"profile_step": 0'),
    near("ZC451", "the default in a run of one step", (f", {PROFILED}", ""), ("max_steps: 2", "max_steps: 1"))
    .finds("warning", 'ds.json: "flops_profiler"', 1, 1, 0, 1)
    .becomes('"profile_step": 0'),
    near("ZC451", "steps that are not known", ("max_steps: 2", "max_steps: '2'")),
    near("ZC451", "no step is written", (f", {PROFILED}", "")),
    near(
        "ZC451",
        "more on the command line",
        files={"train.sh": WITH_RECIPE % ("", " --max_steps 10"), "train.py": TRAINER},
    ),
    near("ZC453", "the default end", (', "start_profile_step": 1, "end_profile_step": 1', "")).finds(
        "error", 'ds.json: "enabled": true', 5
    ),
    near(
        "ZC453",
        "the autotuner itself",
        files={"train.sh": "deepspeed --autotuning run train.py --deepspeed_config ds.json\n"},
    ),
)

GATHER = "stage3_gather_16bit_weights_on_model_save"
AUTO = f'ds.json: "{GATHER}": "auto"'
SHARDED = ('ds.json: "stage": 3',)
MISPLACED = f"accelerate.yaml: {GATHER}: true"
ALONE = {"recipe.yaml": None, "train.sh": None}
SAVING = (
    near("ZC401", "stage 2", ('"stage": 3', '"stage": 2')),
    near("ZC401", "a stage in quotes has a rule of its own", ('"stage": 3', '"stage": "3"')),
    near("ZC401", "false", ('"auto"}}', "false}}")).finds("error", f'ds.json: "{GATHER}": false', 3, also=SHARDED),
    near("ZC401", "no key", (f', "{GATHER}": "auto"', "")).finds("error", 'ds.json: "stage": 3', 3),
    near("ZC401", "the name without stage3_", (f'"{GATHER}": "auto"', '"gather_16bit_weights_on_model_save": true')),
    near("ZC401", "the name of before", (f'"{GATHER}": "auto"', '"stage3_gather_fp16_weights_on_model_save": true')),
    *(
        near("ZC401", f"{name}, {consumer}", (f'"{GATHER}": "auto"', f'"{name}": true'), consumer=consumer, files=ALONE)
        for name in ("gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")
        for consumer in (None, "accelerate", "deepspeed")
    ),
    near("ZC401", "a loop of one's own", consumer="deepspeed", files=ALONE)
    .finds("note", AUTO, 3, also=SHARDED)
    .says('"auto"` becomes false: engine.save_16bit_model()'),
    near("ZC401", "accelerate", consumer="accelerate", files=ALONE)
    .finds("warning", AUTO, 3, also=SHARDED)
    .says("becomes false: accelerator.get_state_dict() and save_model() raise"),
    near("ZC401", "no reader is known", consumer=None, files=ALONE)
    .finds("warning", AUTO, 3, also=SHARDED)
    .says("becomes false: a Trainer writes no model weights"),
    near("ZC401", "a key that accelerate does not read", bad=2, consumer="accelerate", files=ALONE).finds(
        "error", MISPLACED, 3, also=("accelerate.yaml: zero_stage: 3",)
    ),
    near(
        "ZC401",
        "accelerate's as well",
        (f"{GATHER}: true", f"{GATHER}: true\n  zero3_save_16bit_model: true"),
        bad=2,
    ),
    near(
        "ZC401",
        "accelerate's key says no",
        (f"{GATHER}: true", f"{GATHER}: true\n  zero3_save_16bit_model: false"),
        bad=2,
    ).finds("error", "accelerate.yaml: zero3_save_16bit_model: false", 3, also=("accelerate.yaml: zero_stage: 3",)),
    near("ZC401", "neither of accelerate's keys", (f"  {GATHER}: true\n", ""), bad=2).finds(
        "error", "accelerate.yaml: zero_stage: 3", 3
    ),
    near("ZC402", "a loop of one's own", consumer="deepspeed", files={"recipe.yaml": None}),
    near("ZC402", "stage 2", ('"stage": "3"', '"stage": "2"')).finds("warning", 'ds.json: "2"', 2, 2),
    near("ZC402", "no reader is known", consumer=None, files={"recipe.yaml": None}).finds(
        "error", 'ds.json: "3"', 3, 3
    ),
    near("ZC402", "auto has a rule of its own", ('"stage": "3"', '"stage": "auto"')),
    near("ZC466", "false", ("true", "false")),
    near("ZC466", "stage 3", ("zero_stage: 2", "zero_stage: 3")),
    near("ZC466", "stage 1", ("zero_stage: 2", "zero_stage: 1")).finds(
        "note", "accelerate.yaml: zero3_save_16bit_model: true", 1
    ),
    near("ZC466", "stage 0", ("zero_stage: 2", "zero_stage: 0")).finds(
        "note", "accelerate.yaml: zero3_save_16bit_model: true", 0
    ),
    near("ZC466", "another launcher", ("DEEPSPEED", "MULTI_GPU")),
)

ELASTIC = 'ds.json: "elastic_checkpoint": true'
ADAMW = '"type": "AdamW", "params": {"lr": 1e-4}'
WRITER = 'ds.json: "writer": {"type": "PYTHON"}'
FAST = 'ds.json: "writer": {"type": "FAST"}'
SAVED_ALONE = "recipe.yaml: save_only_model: true"
LAUNCHED = {"train.sh": LAUNCH % "", "train.py": ACCELERATOR}


def elastic(why: str, optimizer: str) -> Near:
    """ZC461 at stage 2 with this optimizer section."""
    return near("ZC461", why, (ADAMW, optimizer), good=1)


def written_by(why: str, line: str) -> Near:
    """ZC463 of a job that this line starts."""
    return near("ZC463", why, bad=2, files={"train.sh": line + " train.py --deepspeed_config ds.json\n"})


CHECKPOINT = (
    near("ZC460", "false", ('"load_universal": true', '"load_universal": false')),
    elastic("torch's Adam", '"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}').finds("error", ELASTIC),
    elastic("Adam", '"type": "Adam", "params": {"lr": 1e-4}'),
    elastic("Adagrad", '"type": "Adagrad", "params": {"lr": 1e-4}').finds("error", ELASTIC),
    elastic("Muon", '"type": "Muon", "params": {"lr": 1e-4}').finds("error", ELASTIC),
    elastic("SGD", '"type": "SGD", "params": {"lr": 1e-4}').finds("error", ELASTIC),
    elastic("nobody tried Lion", '"type": "Lion", "params": {"lr": 1e-4}'),
    elastic("no type", '"params": {"lr": 1e-4}'),
    near("ZC461", "the Trainer's optimizer is named", ("max_steps: 2", "max_steps: 2\noptim: adafactor")).finds(
        "warning", ELASTIC
    ),
    near("ZC461", "false", ('"elastic_checkpoint": true', '"elastic_checkpoint": false')),
    near("ZC461", "stage 1", ('"stage": 2', '"stage": 1')).finds("error", ELASTIC),
    near("ZC461", "stage 3 has a rule of its own", ('"stage": 2', '"stage": 3')),
    near("ZC461", "stage 0", ('"stage": 2', '"stage": 0')),
    near("ZC462", "stage 2 has a rule of its own", ('"stage": 3', '"stage": 2')),
    near("ZC462", "false", ('"elastic_checkpoint": true', '"elastic_checkpoint": false')),
    written_by("DeepSpeed's launcher", "deepspeed"),
    written_by("torchrun", "torchrun --nproc_per_node 2").finds("error", WRITER),
    written_by("one process", "python").finds("error", WRITER),
    written_by("the variable is on the line", "CROSS_SIZE=1 CROSS_RANK=0 torchrun --nproc_per_node 2"),
    near("ZC463", "no writer", ('{"type": "PYTHON"}', "null"), bad=2),
    near("ZC463", "accelerate on one machine", consumer=None, files=LAUNCHED).finds("error", FAST),
    near(
        "ZC463",
        "accelerate on several machines",
        ("num_processes: 1", "num_processes: 2\nnum_machines: 2\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500"),
        consumer=None,
        files=LAUNCHED,
    ),
    near("ZC464", "false", ("save_only_model: true", "save_only_model: false")),
    near("ZC464", "no DeepSpeed", ("deepspeed: ds.json\n", ""), files={"ds.json": None}),
    near("ZC464", "nothing is saved", ("save_only_model: true", "save_only_model: true\nsave_strategy: 'no'")),
    near("ZC464", "no strategy", ("save_only_model: true", "save_only_model: true\nsave_strategy: false")),
    near("ZC464", "saved each epoch", ("save_only_model: true", "save_only_model: true\nsave_strategy: epoch")).finds(
        "note", SAVED_ALONE
    ),
    near("ZC465", "both say yes", ('"use_node_local_storage": false', '"use_node_local_storage": true')),
    near("ZC467", "fp16", ('"bf16"', '"fp16"')).finds("error", 'ds.json: "type": "Adagrad"', 1),
    near("ZC467", "fp32", ('"bf16": {"enabled": true}', '"bf16": {"enabled": false}')),
    near("ZC467", "AdamW", ("Adagrad", "AdamW")),
    near("ZC467", "stage 2", ('"stage": 0', '"stage": 2')),
    near("ZC467", "no reader is known", consumer=None),
)

ZENFLOW = 'ds.json: "zenflow"'
STEPS = '"zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}'
TO_HOST = '"offload_optimizer": {"device": "cpu"}, '
UPDATED = 'ds.json: "update_interval": 2'
ACCUMULATED = ('ds.json: "gradient_accumulation_steps": 4',)
ZENFLOW_RULES = (
    near("ZC431", "stage 1", ('"stage": 2', '"stage": 1')).finds("error", ZENFLOW),
    near("ZC431", "stage 3", ('"stage": 2', '"stage": 3')),
    near("ZC431", "stage 0", ('"stage": 2', '"stage": 0')),
    near("ZC431", "no ZenFlow", (STEPS, '"zenflow": null')),
    near("ZC431", "offloaded to nowhere", (STEPS, '"offload_optimizer": {"device": "none"}, ' + STEPS)).finds(
        "error", ZENFLOW
    ),
    near("ZC431", "offloaded to the drive", (STEPS, '"offload_optimizer": {"device": "nvme"}, ' + STEPS)),
    near("ZC432", "both automatic", ('{"select_interval": 4}', "{}")),
    near("ZC432", "every four epochs", ('"select_interval": 4', '"select_strategy": "epoch", "select_interval": 4')),
    near("ZC432", "epochs without a number", ('"step"', '"epoch"'), bad=2).finds(
        "error", 'ds.json: "select_strategy": "epoch"'
    ),
    near("ZC432", "the interval says auto", ('"update_interval": 2', '"select_interval": "auto"'), bad=2).finds(
        "error", 'ds.json: "select_strategy": "step"'
    ),
    near("ZC432", "another rule tells a switch", ('"select_interval": 4', '"select_interval": true')),
    near("ZC433", "as long", ('"select_interval": 2', '"select_interval": 4')),
    near("ZC433", "one shorter", ('"select_interval": 2', '"select_interval": 3')).finds(
        "error", 'ds.json: "select_interval": 3', 3, 4, 4, also=('ds.json: "update_interval": 4',)
    ),
    near("ZC433", "the shortest", ('"select_interval": 2', '"select_interval": 1')).finds(
        "error", 'ds.json: "select_interval": 1', 1, 4, 4, also=('ds.json: "update_interval": 4',)
    ),
    near("ZC433", "none", ('"select_interval": 2', '"select_interval": 0')),
    near("ZC433", "counted in epochs", ('"step"', '"epoch"')),
    near("ZC433", "no update interval", (', "update_interval": 4', "")),
    near("ZC434", "no accumulation", ('"gradient_accumulation_steps": 4', '"gradient_accumulation_steps": 1')),
    near("ZC434", "two steps", ('"gradient_accumulation_steps": 4', '"gradient_accumulation_steps": 2')),
    near("ZC434", "three steps", ('"gradient_accumulation_steps": 4', '"gradient_accumulation_steps": 3')).finds(
        "error", UPDATED, 3, 2, 3, also=('ds.json: "gradient_accumulation_steps": 3',)
    ),
    near("ZC434", "stage 0", ('"stage": 2', '"stage": 0')),
    near("ZC434", "auto is written", ('"update_interval": 2', '"update_interval": "auto"')).finds(
        "error", 'ds.json: "update_interval": "auto"', 4, 0, 4, also=ACCUMULATED
    ),
    near("ZC434", "another rule tells a fraction", ('"update_interval": 2', '"update_interval": 2.5')),
    near("ZC435", "nothing is offloaded", (TO_HOST, "")),
    near("ZC435", "offloaded to the drive", ('"device": "cpu"', '"device": "nvme"')).finds("error", ZENFLOW),
    near("ZC435", "stage 1", ('"stage": 2', '"stage": 1')).finds("error", ZENFLOW),
    near("ZC435", "stage 3", ('"stage": 2', '"stage": 3')),
    near("ZC435", "an optimizer without params", (', "params": {"lr": 0.001}', ""), good=1).finds("error", ZENFLOW),
    near("ZC435", "no ZenFlow", (STEPS, '"zenflow": null')),
    near("ZC436", "stage 1 has a rule of its own", ('"stage": 0', '"stage": 1')),
    near("ZC436", "no ZenFlow", (STEPS, '"zenflow": null')),
    near("ZC437", "false", ('"offload": true', '"offload": false')),
    near("ZC437", "stage 1", ('"stage": 2', '"stage": 1')).finds("error", 'ds.json: "offload": true'),
    near("ZC437", "stage 3", ('"stage": 2', '"stage": 3')),
    near("ZC437", "offloaded to the drive", ('"device": "cpu"', '"device": "nvme"')).finds(
        "error", 'ds.json: "offload": true'
    ),
    near("ZC437", "nothing is offloaded", (TO_HOST, "")),
)

SHARDS = 'ds.json: "zero_hpz_partition_size": %s'
HPZ = '"zero_hpz_partition_size": %s'
QUANTISED = '"zero_quantized_weights": true, "zero_quantized_gradients": true'
OFF = QUANTISED.replace("true", "false", 1).replace("true", '"auto"')
SCATTER = '"reduce_scatter": false'
ZEROPP = (
    near("ZC426", "one rank shares with nobody", (HPZ % 8, HPZ % 1)),
    near("ZC426", "two ranks", (HPZ % 8, HPZ % 2)).finds("error", SHARDS % 2, 3, 2, 3),
    near("ZC426", "stage 0", ('"stage": 2', '"stage": 0')).finds("error", SHARDS % 8, 3, 0, 3),
    near("ZC426", "stage 3", (QUANTISED, '"zero_quantized_weights": true'), ('"stage": 2', '"stage": 3'), bad=2),
    near("ZC426", "false and auto", (QUANTISED, OFF), bad=2),
    near("ZC426", "frozen weights", (QUANTISED, '"zero_quantized_nontrainable_weights": true'), bad=2).finds(
        "error", 'ds.json: "zero_quantized_nontrainable_weights": true', 3, 2, 3
    ),
    near("ZC426", "both kinds", (QUANTISED, f'"zero_quantized_weights": true, {HPZ % 8}'), bad=2).finds(
        "error", SHARDS % 8, 3, 2, 3, also=('ds.json: "zero_quantized_weights": true',)
    ),
    near("ZC427", "four ranks", ("--num_gpus 3", "--num_gpus 4")),
    near("ZC427", "six ranks", (HPZ % 2, HPZ % 4), ("--num_gpus 3", "--num_gpus 6"))
    .finds("error", SHARDS % 4, 4, 6)
    .becomes(HPZ % 3),
    near("ZC427", "fewer ranks have a rule of their own", ("--num_gpus 3", "--num_gpus 1")),
    near("ZC427", "stage 2 has a rule of its own", ('"stage": 3', '"stage": 2')),
    near("ZC427", "one rank shares with nobody", (HPZ % 2, HPZ % 1)),
    near("ZC427", "ranks that nobody knows", consumer="deepspeed", files={"train.sh": None}),
    near("ZC428", "larger than the job", (HPZ % 2, HPZ % 3)).finds("note", SHARDS % 3, 3, 2),
    near("ZC428", "one rank more", ("--num_gpus 2", "--num_gpus 3")),
    near("ZC428", "stage 2", ('"stage": 3', '"stage": 2'), (', "reduce_bucket_size": 1000', "")),
    near("ZC428", "a job of one", (HPZ % 2, HPZ % 1), ("--num_gpus 2", "--num_gpus 1")),
    near("ZC428", "two shares for one rank", ("--num_gpus 2", "--num_gpus 1")).finds("note", SHARDS % 2, 2, 1),
    near("ZC428", "ranks that nobody knows", consumer="deepspeed", files={"train.sh": None}),
    near("ZC429", "true", (SCATTER, '"reduce_scatter": true')),
    near("ZC429", "auto is true", (SCATTER, '"reduce_scatter": "auto"')),
    near("ZC429", "another rule tells null", (SCATTER, '"reduce_scatter": null')),
    near("ZC429", "not quantised", ("true", "false")),
    near("ZC429", "auto is not quantised", ("true", '"auto"')),
    near("ZC429", "stage 2", ('"stage": 3', '"stage": 2')),
    near("ZC430", "the release with the repair", (">=0.16,<0.18", ">=0.18.3")),
    near("ZC430", "the release before", (">=0.16,<0.18", ">=0.18.2")).finds(
        "warning", SHARDS % 8, "0.18.2", "0.18.3", "0.18.3"
    ),
    near("ZC430", "nothing is declared", ('    versions: {deepspeed: ">=0.16,<0.18"}\n', "")),
    near("ZC430", "stage 2", ('"stage": 3', '"stage": 2')),
    near("ZC430", "one rank shares with nobody", (HPZ % 8, HPZ % 1)),
)

TABLE = (
    *STAGES,
    *AUTOS,
    *STAGE_KEYS,
    *GRADIENTS,
    *COMMUNICATION,
    *COMPILING,
    *FEATURES,
    *INSTRUMENTS,
    *SAVING,
    *CHECKPOINT,
    *ZENFLOW_RULES,
    *ZEROPP,
)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
