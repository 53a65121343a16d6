"""Near misses of the rules of batch sizes, accumulation, clipping, optimizer and schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import page_of

from .table import RULES, Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

ALONE = {"recipe.yaml": None}
STAGES = {stage: ('"stage": 2', f'"stage": {stage}') for stage in (0, 1, 3)}
TWO_RANKS = {"train.sh": "torchrun --nproc_per_node 2 train.py --deepspeed_config ds.json\n"}

TOTAL, SIZE = 'ds.json: "train_batch_size": %s', 'ds.json: "train_micro_batch_size_per_gpu": %s'
ACCUMULATED = 'ds.json: "gradient_accumulation_steps": %s'
IN_YAML, IN_RECIPE = (f"{name}: gradient_accumulation_steps: %s" for name in ("accelerate.yaml", "recipe.yaml"))


def sized(why: str, *sizes: tuple[str, int], code: str = "ZC203") -> Near:
    """ZC203 or ZC204 of these sizes alone, on a number of processes that nobody knows."""
    text = ", ".join(f'"{name}": {size}' for name, size in sizes)
    return near(code, why, consumer="deepspeed", files={"ds.json": f"{{{text}}}\n", "train.sh": None})


T, M, S = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
SIZES = (
    near("ZC201", "the same", ("gradient_accumulation_steps: 4", "gradient_accumulation_steps: 2")),
    near("ZC201", "auto", ("gradient_accumulation_steps: 4", "gradient_accumulation_steps: auto")),
    near("ZC201", "one more", ("gradient_accumulation_steps: 4", "gradient_accumulation_steps: 3")).finds(
        "error", IN_YAML % 3, 3, 2, also=(IN_RECIPE % 2,)
    ),
    near(
        "ZC201",
        "a file without the key counts as one step",
        ("zero_stage: 2\n  gradient_accumulation_steps: 4", "deepspeed_config_file: ds.json"),
        files={"ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'},
    )
    .finds("error", "ds.json", 1, 2, also=(IN_RECIPE % 2,))
    .becomes('"gradient_accumulation_steps": "auto"', safe=True),
    near(
        "ZC201",
        "beside a text that looks like a number, each with its own place",
        files={
            "accelerate.yaml": None,
            "train.sh": None,
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\n"
            "max_steps: 2\ndeepspeed: ds.json\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": "1\\n", "gradient_accumulation_steps": 4}\n',
        },
    ).finds("error", 'ds.json: "gradient_accumulation_steps": 4', 4, 2, also=(IN_RECIPE % 2,)),
    near("ZC202", "the default of the argument", ('"gradient_clipping": 0.5', '"gradient_clipping": 1.0')),
    near(
        "ZC202",
        "accumulation has a rule of its own",
        ('"auto", "gradient_clipping": 0.5', '2, "gradient_clipping": "auto"'),
    ),
    Near("ZC203", "no accumulation has a rule of its own", replace(page_of(RULES["ZC206"]).bad[0], expected=())),
    near("ZC203", "the product", ('"train_batch_size": 9', '"train_batch_size": 8')),
    near("ZC203", "one less", ('"train_batch_size": 9', '"train_batch_size": 7')).finds(
        "error", TOTAL % 7, 7, 4, 1, 2, also=(SIZE % 4, ACCUMULATED % 1)
    ),
    sized("a multiple", (T, 16), (M, 4), (S, 2)),
    sized("no multiple", (T, 17), (M, 4), (S, 2)).finds(
        "error", TOTAL % 17, 17, 4, 2, also=(SIZE % 4, ACCUMULATED % 2)
    ),
    sized("less than the product", (T, 4), (M, 4), (S, 2)).finds(
        "error", TOTAL % 4, 4, 4, 2, also=(SIZE % 4, ACCUMULATED % 2)
    ),
    sized("no multiple of the micro batch", (T, 9), (M, 4)).finds("error", TOTAL % 9, 9, 4, also=(SIZE % 4,)),
    sized("less than a micro batch has a rule of its own", (T, 3), (M, 4)),
    sized("less than the accumulation", (T, 3), (S, 4)).finds("error", TOTAL % 3, 3, 4, also=(ACCUMULATED % 4,)),
    sized("the total alone", (T, 9)),
    sized("without a total", (M, 4), (S, 2)),
    sized("ranks that share samples", (T, 9), (M, 4), ("sequence_parallel_size", 2)),
    sized("a micro batch of none has a rule of its own", (T, 9), (M, 0)),
    near("ZC204", "as large as a micro batch", ('"train_batch_size": 2', '"train_batch_size": 4')),
    near("ZC204", "one less", ('"train_batch_size": 2', '"train_batch_size": 3')).finds(
        "error", TOTAL % 3, 3, 4, 0, also=(SIZE % 4,)
    ),
    near("ZC204", "none", ('"train_batch_size": 2', '"train_batch_size": 0'), consumer=None).finds(
        "error", TOTAL % 0, 0, 4, 0, also=(SIZE % 4,)
    ),
    near("ZC204", "the accumulation is written", ('": 4', '": 4, "gradient_accumulation_steps": 1')),
    near("ZC204", "no reader is known", consumer=None).finds("error", TOTAL % 2, 2, 4, 0, also=(SIZE % 4,)),
    near("ZC205", "the total alone", ('{"grad', '{"train_batch_size": "auto", "grad')),
    near(
        "ZC205", "null counts as absent, and is replaced", ('{"grad', '{"train_micro_batch_size_per_gpu": null, "grad')
    )
    .finds("error", "ds.json")
    .becomes('{"train_micro_batch_size_per_gpu": "auto", "grad', safe=True),
    near("ZC205", "no reader is known", consumer=None, files=ALONE).finds("warning", "ds.json"),
    near("ZC205", "no reader, and a total", ('{"grad', '{"train_batch_size": 8, "grad'), consumer=None, files=ALONE),
    near("ZC205", "no reader, and an empty file", consumer=None, files={"recipe.yaml": None, "ds.json": "{}\n"}),
)

RECIPE_STEPS = "gradient_accumulation_steps: 4"
PLAIN_STEPS = ("gradient_accumulation_steps: 2.0", "gradient_accumulation_steps: 2")
UNMANAGED, OVERLAP = '"managed_gradient_accumulation": false', 'ds.json: "overlap_comm": true'
OTHER = (f"ds.json: {UNMANAGED}",)
ACCUMULATION = (
    near("ZC206", "one step", (RECIPE_STEPS, "gradient_accumulation_steps: 1")),
    near("ZC206", "two steps", (RECIPE_STEPS, "gradient_accumulation_steps: 2")).finds(
        "error", "ds.json", 1, 2, also=(IN_RECIPE % 2,)
    ),
    near("ZC206", "the default of the argument", (RECIPE_STEPS + "\n", "")),
    near("ZC206", "the product fits", ('"train_batch_size": "auto", ', "")),
    near("ZC240", "auto", ("null", '"auto"')),
    near("ZC240", "absent", ('"gradient_accumulation_steps": null, ', "")),
    near("ZC240", "a loop of one's own", consumer="deepspeed", files=ALONE),
    near("ZC241", "whole", PLAIN_STEPS),
    near("ZC241", "a loop of one's own", consumer="deepspeed", files=ALONE),
    near("ZC241", "a fraction", ("steps: 2.0", "steps: 2.5")).finds("error", "recipe.yaml: 2.5", "2.5"),
    near("ZC241", "warmup", ('"warmup_num_steps": 10.0', '"warmup_num_steps": 10'), bad=3),
    near("ZC241", "another rule tells a fraction", ('"warmup_num_steps": 10.0', '"warmup_num_steps": 10.5'), bad=3),
    near("ZC241", "a release that reads the dot", bad=3, versions={"deepspeed": "<0.19.3"}),
    near("ZC241", "a release that may not", bad=3, versions={"deepspeed": "<=0.19.3"}).finds(
        "error", "ds.json: 10.0", "10.0"
    ),
    near("ZC245", "stage 0", ('"stage": 1', '"stage": 0')).finds("error", OVERLAP, 0, 2, also=OTHER),
    near("ZC245", "stage 3", ('"stage": 1', '"stage": 3')),
    near("ZC245", "no overlap", ('"overlap_comm": true', '"overlap_comm": false')),
    near("ZC245", "managed", (UNMANAGED, '"managed_gradient_accumulation": true')),
    near("ZC245", "managed by default", (UNMANAGED + ", ", "")),
    near("ZC245", "null is not managed", (UNMANAGED, '"managed_gradient_accumulation": null')).finds(
        "error", OVERLAP, 1, 2, also=('ds.json: "managed_gradient_accumulation": null',)
    ),
    near("ZC245", "a release that does not read it", versions={"deepspeed": "<0.19.4"}),
    near("ZC245", "a release that may", versions={"deepspeed": "<=0.19.4"}).finds(
        "warning", OVERLAP, 1, "0.19.4", "0.19.4", 2, also=OTHER
    ),
    near("ZC248", "one", ('"steps_per_print": 0', '"steps_per_print": 1')),
    near("ZC248", "a switch", ('"steps_per_print": 0', '"steps_per_print": false')),
    near("ZC248", "accelerate writes its own", consumer="accelerate"),
)

SHARED = 'ds.json: "sequence_parallel_size": %s'
PARALLEL = '"sequence_parallel_size": 2, "data_parallel_size": 2'
GROUPS = 'ds.json: "data_parallel_size": %s'
PROCESSES = (
    near("ZC242", "one", ('_size": 2', '_size": 1')),
    near("ZC242", "three, which do not divide the ranks", ('_size": 2', '_size": 3'))
    .finds("error", SHARED % 3, 3, 3)
    .becomes(),
    near("ZC242", "both", ('_size": 2', '_size": 2, "data_parallel_size": 1')),
    near("ZC242", "another rule tells none", ('_size": 2', '_size": 0')),
    near("ZC242", "another rule tells a switch", ('_size": 2', '_size": true')),
    near("ZC242", "four of eight ranks", ('_size": 2', '_size": 4'), ("node 2", "node 8"))
    .finds("error", SHARED % 4, 4, 4)
    .becomes('"data_parallel_size": 2'),
    near("ZC243", "the product", (PARALLEL, PARALLEL[:-1] + "1")),
    near("ZC243", "four ranks", ("node 2", "node 4")),
    near("ZC243", "six ranks", ("node 2", "node 6"))
    .finds("error", GROUPS % 2, 2, 2, 4, 6, also=(SHARED % 2,))
    .becomes('"data_parallel_size": 3'),
    near(
        "ZC243",
        "one rank alone",
        (PARALLEL, '"sequence_parallel_size": 1, "data_parallel_size": 1'),
        ("node 2", "node 1"),
    ),
    near("ZC243", "one share of many", (PARALLEL, '"sequence_parallel_size": 1, "data_parallel_size": 1')).finds(
        "error", GROUPS % 1, 1, 1, 1, 2, also=(SHARED % 1,)
    ),
    near("ZC243", "another rule tells none", (PARALLEL, PARALLEL[:-1] + "0")),
    near("ZC243", "ranks that nobody knows", files={"train.sh": None}),
    near("ZC243", "a release that looks for the keys in the path", versions={"deepspeed": "0.18.5"}),
    near("ZC246", "one process", ('"train_batch_size": 8', '"train_batch_size": 4')).finds(
        "note", TOTAL % 4, 4, 4, 1, 1, also=(SIZE % 4, ACCUMULATED % 1)
    ),
    near("ZC246", "another rule tells no multiple", ('"train_batch_size": 8', '"train_batch_size": 9')),
    near("ZC246", "auto", ('"gradient_accumulation_steps": 1', '"gradient_accumulation_steps": "auto"')),
    near("ZC246", "none", ('"train_batch_size": 8', '"train_batch_size": 0')),
    near("ZC246", "the number is known", files=TWO_RANKS),
    near("ZC246", "accelerate", consumer="accelerate"),
    near("ZC246", "ranks that share samples", ('{"train_batch', '{"sequence_parallel_size": 2, "train_batch')),
)

YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
CLIPPED = 'ds.json: "gradient_clipping": %s'
OPTION = "train.sh: --max_grad_norm 0.5"
CLIPPING = (
    near("ZC237", "none", ("null", "0")),
    near("ZC237", "absent", ('"gradient_clipping": null, ', "")),
    near("ZC237", "accelerate", consumer="accelerate").finds("error", CLIPPED % "null", 0),
    near("ZC238", "none", ("-1", "0")),
    near("ZC238", "hardly negative", ("-1", "-0.001")).finds("note", CLIPPED % "-0.001", "-0.001", 0),
    Near(
        "ZC238",
        "accelerate takes 0 for not set",
        Example({"accelerate.yaml": YAML + "  gradient_clipping: -1\n"}, consumer="accelerate"),
    ),
    near("ZC239", "the default", ("0.5", "1.0")),
    near(
        "ZC239",
        "another number in a DeepSpeed file",
        ("zero_stage: 2\n  gradient_accumulation_steps: 1", "deepspeed_config_file: ds.json"),
        files={"ds.json": '{"train_batch_size": 1, "gradient_clipping": 0.7, "zero_optimization": {"stage": 2}}\n'},
    )
    .finds("warning", OPTION, "0.5", "0.7", also=(CLIPPED % "0.7",))
    .becomes('"gradient_clipping": 0.5'),
    near("ZC239", "no option", (" --max_grad_norm 0.5", "")),
    near("ZC239", "no number", ("0.5", "none")),
    near("ZC239", "no number in the config", ("0.5", "0.3"))
    .finds("warning", "train.sh: --max_grad_norm 0.3", "0.3", "1.0", "1.15.0")
    .becomes("gradient_clipping: 0.3"),
    near("ZC239", "none", ("0.5", "0")).finds("warning", "train.sh: --max_grad_norm 0", 0, "1.0", "1.15.0").becomes(),
    near("ZC239", "another launcher", ("DEEPSPEED", "MULTI_GPU")),
    near("ZC239", "another number", ("zero_stage: 2", "zero_stage: 2\n  gradient_clipping: 0.7"))
    .finds("warning", OPTION, "0.5", "0.7", also=("accelerate.yaml: gradient_clipping: 0.7",))
    .becomes("gradient_clipping: 0.5"),
)

TYPE, BETAS = 'ds.json: "%s"', '"betas": [0.9, 0.999, 0.999]'
USUAL = ("0.9", "0.999", "1e-8", 0)


def numbered(why: str, text: str) -> Near:
    """ZC218 of an AdamW with this parameter."""
    return near("ZC218", why, (BETAS, text))


def missing(why: str, optimizer: str, code: str = "ZC220") -> Near:
    """ZC220 of this optimizer under accelerate."""
    return near(code, why, ('"type": "AdamW", "params": {"betas": [0.9, 0.95]}', optimizer))


RATE = "recipe.yaml: learning_rate: 0.00002"
PARAMS = 'ds.json: "params": {"lr": "auto"}'
DECAY = "weight_decay: 0.1"
HYPERPARAMETERS = (
    numbered("two betas", '"betas": [0.9, 0.999]'),
    numbered("one beta", '"betas": [0.9]').finds("error", 'ds.json: "betas": [0.9]', 1, *USUAL),
    numbered("a beta of one", '"betas": [0.9, 1.0]').finds(
        "error", 'ds.json: "betas": [0.9, 1.0]', "0.9", "1.0", 0, 1, 1, *USUAL
    ),
    numbered("a beta of nearly one", '"betas": [0.9, 0.9999]'),
    numbered("a beta of none", '"betas": [0, 0.999]'),
    numbered("a negative beta", '"betas": [-0.1, 0.999]').finds(
        "error", 'ds.json: "betas": [-0.1, 0.999]', "-0.1", "0.999", 0, 1, 1, *USUAL
    ),
    numbered("auto", '"betas": "auto"'),
    numbered("no epsilon", '"eps": 0'),
    numbered("a negative epsilon", '"eps": -1e-8').finds("error", 'ds.json: "eps": -1e-8', "-1e-08", 0, *USUAL),
    numbered("no decay", '"weight_decay": 0'),
    numbered("a negative decay", '"weight_decay": -0.1').finds(
        "error", 'ds.json: "weight_decay": -0.1', "-0.1", 0, *USUAL
    ),
    near("ZC218", "no learning", ("-1e-2", "0"), bad=2),
    near("ZC218", "another engine", ('"type": "AdamW"', '"type": "auto"'), bad=2),
    near("ZC219", "the default of the optimizer", ("0.00002", "0.001")),
    near("ZC219", "passed on", ('"type": "AdamW"', '"type": "AdamW", "params": {"lr": "auto"}')),
    near("ZC219", "no decay, which is the default", (DECAY, "weight_decay: 0.0"), bad=2),
    near("ZC219", "nobody asks", (DECAY + "\n", ""), bad=2),
    near("ZC219", "the defaults of torch's Adam", ('{"lr": "auto"}', '{"lr": "auto", "torch_adam": true}'), bad=2),
    near("ZC219", "an optimizer whose defaults nobody knows", ('"AdamW"', '"Muon"')),
    near("ZC219", "SGD has no betas", ('"AdamW"', '"SGD"'), (DECAY, "adam_beta2: 0.95"), bad=2),
    near("ZC219", "betas", (DECAY, "adam_beta2: 0.95"), bad=2).finds(
        "error", "recipe.yaml: adam_beta2: 0.95", "0.95", "0.9", "0.999", also=(PARAMS,)
    ),
    near("ZC219", "the first beta", (DECAY, "adam_beta1: 0.8"), bad=2).finds(
        "error", "recipe.yaml: adam_beta1: 0.8", "0.8", "0.9", "0.999", also=(PARAMS,)
    ),
    near("ZC219", "epsilon", (DECAY, "adam_epsilon: 0.001"), bad=2).finds(
        "error", "recipe.yaml: adam_epsilon: 0.001", "0.001", "1e-08", also=(PARAMS,)
    ),
    near(
        "ZC219",
        "a schedule that sets the rate",
        ('"optimizer": {', '"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-5}}, "optimizer": {'),
    ),
    near(
        "ZC219",
        "a schedule that takes the rate",
        ('"optimizer": {', '"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": null}}, "optimizer": {'),
    ).finds("error", RATE, "2e-05", "0.001", also=('ds.json: "optimizer"',)),
    near(
        "ZC219",
        "a schedule that falls back on its own rate",
        ('"optimizer": {', '"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}, "optimizer": {'),
    ),
    near(
        "ZC219",
        "a schedule told to take the rate",
        ('"zero_opt', '"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": null}}, "zero_opt'),
    ).finds("error", RATE, "2e-05", "0.001", also=('ds.json: "optimizer"',)),
    missing("a rate", '"type": "AdamW", "params": {"lr": 1e-5}'),
    missing("SGD", '"type": "SGD", "params": {"momentum": 0.9}').finds("warning", 'ds.json: "optimizer"', "0.001"),
    missing("Adagrad", '"type": "Adagrad", "params": {}').finds("warning", 'ds.json: "optimizer"', "0.01"),
    missing("an optimizer whose defaults nobody knows", '"type": "Muon", "params": {}'),
    missing("no params", '"type": "Lion"')
    .finds("warning", 'ds.json: "optimizer"', "0.001")
    .becomes('"params": {"lr": "auto"}', safe=True),
    missing("other params", '"type": "Lion", "params": {"betas": [0.9, 0.95]}')
    .finds("warning", 'ds.json: "optimizer"', "0.001")
    .becomes('"lr": "auto"', safe=True),
    missing(
        "a schedule that sets the rate",
        '"type": "AdamW", "params": {}}, "scheduler": {"type": "LRRangeTest", "params": {}',
    ),
    near("ZC220", "a loop of one's own", consumer="deepspeed", files={"accelerate.yaml": None}).finds(
        "warning", 'ds.json: "optimizer"', "0.001"
    ),
    near("ZC220", "the Trainer", consumer="transformers", files={"accelerate.yaml": None}),
)

ALLOWED = '"zero_allow_untested_optimizer": %s, "optimizer"'
OPTIMIZER = (
    near("ZC212", "SGD", ('"sgd"', '"SGD"')),
    near("ZC212", "DeepSpeed's own in any case", ('"sgd"', '"ADAMW"')),
    near("ZC212", "another name", ('"sgd"', '"Sophia"')).finds("error", TYPE % "Sophia"),
    near("ZC212", "auto", ('"sgd"', '"auto"')),
    near("ZC212", "a release that still had it", bad=2, versions={"deepspeed": "<0.19.7"}),
    near("ZC212", "a release that may have it", bad=2, versions={"deepspeed": "<=0.19.7"}).finds(
        "warning", TYPE % "OneBitAdam", "0.19.7", "0.19.7", 1
    ),
    near("ZC212", "a release that has not", bad=2, versions={"deepspeed": ">=0.19.7"}).finds(
        "error", TYPE % "OneBitAdam", 1
    ),
    near("ZC212", "a name that no release knew", versions={"deepspeed": "<0.19.7"}).finds("error", TYPE % "sgd"),
    near("ZC213", "allowed", ('"optimizer"', ALLOWED % "true")),
    near("ZC213", "not allowed", ('"optimizer"', ALLOWED % "false")).finds("error", TYPE % "SGD", 2),
    near("ZC213", "stage 0", STAGES[0]),
    near("ZC213", "stage 1", STAGES[1]).finds("error", TYPE % "SGD", 1),
    near("ZC213", "Lamb", ('"SGD"', '"Lamb"')).finds("error", TYPE % "Lamb", 2),
    near("ZC213", "Lion", ('"SGD"', '"Lion"')),
    near("ZC213", "Adagrad", ('"SGD"', '"Adagrad"')),
    near("ZC213", "another rule tells a name that nobody knows", ('"SGD"', '"Sophia"')),
    near("ZC214", "a type", ('{"params"', '{"type": "AdamW", "params"')),
    near("ZC214", "null is no type", ('{"params"', '{"type": null, "params"')).finds("error", 'ds.json: "optimizer"'),
    near("ZC214", "params", consumer="accelerate", files=ALONE)
    .finds("error", 'ds.json: "optimizer"')
    .becomes('"type": "AdamW"'),
    near("ZC214", "a loop of one's own", consumer="deepspeed", files=ALONE).finds("warning", 'ds.json: "optimizer"'),
    near(
        "ZC214",
        "a loop of one's own with an empty section",
        bad=2,
        consumer="deepspeed",
        files={"accelerate.yaml": None},
    ),
    near("ZC215", "true", ("false", "true")),
    near("ZC215", "zero", ("false", "0")).finds("error", 'ds.json: "adam_w_mode": 0', 0, also=(TYPE % "AdamW",)),
    near("ZC215", "null", ("false", "null")),
    near("ZC215", "Adam", ('"AdamW"', '"Adam"')),
    near("ZC215", "Lion", ('"AdamW"', '"Lion"')),
    near("ZC216", "no decay", ('"weight_decay": 0.1', '"weight_decay": 0')),
    near("ZC216", "the default decay", (', "weight_decay": 0.1', "")),
    near("ZC216", "a switch", ('"weight_decay": 0.1', '"weight_decay": true')),
    near("ZC216", "said", ('"weight_decay": 0.1', '"weight_decay": 0.1, "adam_w_mode": true')),
)

HOST = '"stage": 2, "offload_optimizer": {"device": "cpu"}'
LOSS_SCALE = '"loss_scale": 128'
SCATTERED = (TYPE % "zero_optimization",)
OPTIMIZER_FIT = (
    near("ZC217", "false is refused too", ("true", "false")).finds("error", 'ds.json: "fused": false'),
    near("ZC217", "torch takes it", ('"fused": true', '"fused": true, "torch_adam": true')),
    near("ZC217", "no amsgrad", ("true", "false"), bad=2),
    near("ZC217", "set_grad_none", ('"fused": true', '"set_grad_none": true')),
    near("ZC217", "set_grad_none on the host", ('"fused": true', '"set_grad_none": true'), ('"stage": 2', HOST)).finds(
        "error", 'ds.json: "set_grad_none": true'
    ),
    near("ZC217", "bias_correction on the host", ('"fused": true', '"bias_correction": true'), ('"stage": 2', HOST)),
    near("ZC217", "Lion", ('"AdamW"', '"Lion"')),
    near("ZC221", "dynamic", (LOSS_SCALE, '"loss_scale": 0')),
    near("ZC221", "the least", (LOSS_SCALE, '"loss_scale": 1')).finds(
        "error", 'ds.json: "loss_scale": 1', 1, 0, also=(TYPE % "Lamb",)
    ),
    near("ZC221", "AdamW", ('"Lamb"', '"AdamW"')),
    near("ZC221", "also where fp16 is off", ("true, " + LOSS_SCALE, "false, " + LOSS_SCALE)).finds(
        "error", "ds.json: " + LOSS_SCALE, 128, 0, also=(TYPE % "Lamb",)
    ),
    near("ZC222", "stage 2", ('"stage": 3', '"stage": 2')),
    near("ZC222", "AdamW", ('"Muon"', '"AdamW"')),
    near("ZC222", "written", ('"stage": 3', '"stage": 3, "reduce_scatter": true')).finds(
        "error", TYPE % "Muon", 3, 2, also=('ds.json: "reduce_scatter": true',)
    ),
    near("ZC223", "stage 0", STAGES[0]),
    near("ZC223", "stage 1", STAGES[1]).finds("error", "recipe.yaml: adagrad", 1),
    near("ZC223", "AdamW", ("adagrad", "adamw_torch")),
    near("ZC223", "DeepSpeed's own takes its place", ('"zero_opt', '"optimizer": {"type": "Adagrad"}, "zero_opt')),
    near("ZC223", "another Adagrad on the host", ('"stage": 2', HOST)),
    near("ZC223", "offloaded to nowhere", ('"stage": 2', HOST.replace("cpu", "none"))).finds(
        "error", "recipe.yaml: adagrad", 2
    ),
)

LINE = ("train.sh: --gradient_accumulation_steps 2",)
NORM = "recipe.yaml: max_grad_norm: 0.3"
CHOSEN = "recipe.yaml: optim: adafactor"
BROUGHT = ('ds.json: "type": "SGD"',)
OVERRIDDEN = (
    near("ZC207", "a number", ("auto", "4")),
    near("ZC207", "another rule tells a fraction", ("auto", "2.5")),
    near("ZC207", "a word", ("auto", "two")).finds("error", IN_YAML % "two").becomes(),
    near("ZC207", "the Trainer", consumer="transformers"),
    near("ZC208", "the same", ("steps: 4", "steps: 2")),
    near("ZC208", "one more", ("steps: 4", "steps: 3")).finds("warning", IN_YAML % 3, 3, 2, also=LINE),
    near(
        "ZC208", "a number that nobody knows", ("--gradient_accumulation_steps 2", "--gradient_accumulation_steps $N")
    ),
    near("ZC208", "no option", (" --gradient_accumulation_steps 2\n", "\n")),
    near("ZC208", "the file's one step", ("accumulation_steps 2", "accumulation_steps 1"), bad=2),
    near("ZC208", "the file's number", ('{"train', '{"gradient_accumulation_steps": 3, "train'), bad=2).finds(
        "warning", ACCUMULATED % 3, 3, 2, also=LINE
    ),
    near(
        "ZC208",
        "an accelerate that takes the script's number",
        ('{"train', '{"gradient_accumulation_steps": 3, "train'),
        bad=2,
        versions={"accelerate": "<0.23"},
    ),
    near("ZC208", "the same number", ('{"train', '{"gradient_accumulation_steps": 2, "train'), bad=2),
    near("ZC209", "passed on", ('"zero_opt', '"gradient_clipping": "auto", "zero_opt')),
    near("ZC209", "the default", ("0.3", "1.0")),
    near("ZC209", "none", ("0.3", "0.0")).finds(
        "error", "recipe.yaml: max_grad_norm: 0.0", "0.0", "1.0", also=("ds.json",)
    ),
    near("ZC209", "nobody asks", ("max_grad_norm: 0.3\n", "")),
    near("ZC209", "none, which was the default", ("0.3", "0.0"), versions={"deepspeed": "<0.19.3"}),
    near("ZC209", "before there was a default", versions={"deepspeed": "<0.19.3"})
    .finds("error", NORM, "0.3", "0.0", "0.19.3", also=("ds.json",))
    .says("so the engine silently clips nothing, as its default is 0.0 (declared: <0.19.3)"),
    near("ZC209", "perhaps with a default", versions={"deepspeed": "<=0.19.3"})
    .finds("error", NORM, "0.3", "0.0", "0.19.3", "1.0", "0.19.3", also=("ds.json",))
    .says("clips nothing, as its default is 0.0, and from DeepSpeed 0.19.3 on clips at its default, 1.0 (declared: "),
    near("ZC210", "hardly any", ("0.0", "0.001")),
    near("ZC210", "before there was a default", versions={"deepspeed": "<0.19.3"}),
    near("ZC210", "perhaps with a default", versions={"deepspeed": "<=0.19.3"}).finds(
        "warning", "accelerate.yaml: gradient_clipping: 0.0", "0.0", "1.0", "0.19.3", "0.19.3", -1, 0
    ),
    near("ZC210", "another launcher", ("DEEPSPEED", "MULTI_GPU")),
    near("ZC211", "no optimizer of DeepSpeed", ('"type": "SGD", "params": {"lr": "auto"}', "")),
    near("ZC211", "nobody asks", ("optim: adafactor\n", "")),
    near("ZC211", "the same", ("adafactor", "sgd")),
    near("ZC211", "builds of AdamW", ("adafactor", "adamw_torch_fused"), ('"SGD"', '"AdamW"')),
    near("ZC211", "Adam is AdamW", ("adafactor", "adamw_torch"), ('"SGD"', '"Adam"')),
    near(
        "ZC211",
        "another schedule",
        ("optim: adafactor", "lr_scheduler_type: cosine"),
        ('"zero_opt', '"scheduler": {"type": "WarmupLR", "params": {}}, "zero_opt'),
    ).finds("error", "recipe.yaml: lr_scheduler_type: cosine", also=('ds.json: "type": "WarmupLR"',)),
    near(
        "ZC211",
        "a schedule of the same shape",
        ("optim: adafactor", "lr_scheduler_type: linear"),
        ('"zero_opt', '"scheduler": {"type": "WarmupDecayLR", "params": {}}, "zero_opt'),
    ),
    near(
        "ZC211",
        "a constant rate",
        ("optim: adafactor", "lr_scheduler_type: constant_with_warmup"),
        ('"zero_opt', '"scheduler": {"type": "WarmupLR", "params": {}}, "zero_opt'),
    ),
)

SCHEDULE = 'ds.json: "scheduler"'
DECAYING = '"type": "WarmupDecayLR"'
SCHEDULER = (
    near("ZC224", "the name", ('"warmuplr"', '"WarmupLR"')),
    near("ZC224", "a class of torch", ('"warmuplr"', '"StepLR"')),
    near("ZC224", "the base class", ('"warmuplr"', '"LRScheduler"')),
    near("ZC224", "a name of the Trainer", ('"warmuplr"', '"cosine"')).finds("error", TYPE % "cosine"),
    near("ZC225", "DeepSpeed's own", ('"CosineAnnealingLR"', '"WarmupLR"')),
    near("ZC225", "stage 0 in fp32", ('"stage": 2', '"stage": 0')),
    near(
        "ZC225", "stage 0 in bf16", ('"stage": 2', '"stage": 0'), ('"zero_opt', '"bf16": {"enabled": true}, "zero_opt')
    ).finds("error", TYPE % "CosineAnnealingLR", 16),
    near("ZC225", "stage 1", ('"stage": 2', '"stage": 1')).finds("error", TYPE % "CosineAnnealingLR", 1),
    near("ZC226", "without defaults", ('"WarmupLR"', '"WarmupDecayLR"')).finds("error", SCHEDULE),
    near("ZC226", "the Trainer", ("WarmupDecayLR", "WarmupCosineLR"), bad=2)
    .finds("error", SCHEDULE)
    .becomes('"params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}'),
    near("ZC226", "the Trainer, whose numbers do not fit", ("WarmupDecayLR", "OneCycle"), bad=2).finds(
        "error", SCHEDULE
    ),
    near("ZC226", "empty params", ('"WarmupLR"', '"WarmupLR", "params": {}')),
    near("ZC226", "no type has a rule of its own", ('"type": "WarmupLR"', "")),
    near("ZC227", "nothing is missing", ('"warmup_num_steps": "auto"', '"total_num_steps": "auto"')),
    near("ZC227", "nothing is needed", (DECAYING, '"type": "WarmupLR"')),
    near("ZC227", "a class of torch", (DECAYING, '"type": "StepLR"')),
    near("ZC227", "two are missing", (DECAYING, '"type": "OneCycle"'))
    .finds("error", 'ds.json:1:204: "params"')
    .says("no `cycle_min_lr` and no `cycle_max_lr`"),
    near("ZC227", "one of two is missing", (DECAYING, '"type": "OneCycle"'), ('"warmup_num_steps"', '"cycle_max_lr"'))
    .finds("error", 'ds.json:1:204: "params"')
    .says("OneCycle has no `cycle_min_lr`, for which"),
    near("ZC228", "a type", ('"scheduler": {}', '"scheduler": {"type": "WarmupLR"}')),
    near("ZC228", "a loop of one's own with an empty section", consumer="deepspeed", files=ALONE),
    near("ZC228", "an end", ('"warmup_num_steps": 100', '"total_num_steps": 100'), bad=2)
    .finds("error", SCHEDULE)
    .becomes('"type": "WarmupDecayLR"'),
    near("ZC228", "no end", ('"warmup_num_steps": 100', '"warmup_num_steps": 10'), bad=2)
    .finds("error", SCHEDULE)
    .becomes('"type": "WarmupLR"'),
    near("ZC228", "null is no type", ('"scheduler": {}', '"scheduler": {"type": null}')).finds("error", SCHEDULE),
)

PEAK = 'ds.json: "warmup_max_lr": %s'
END = '"total_num_steps": 500'
ONCE = '"decay_lr_rate": 0.1'
WARMUP = (
    near("ZC229", "as long", (END, END + ', "warmup_num_steps": 500')),
    near("ZC229", "one step longer", (END, END + ', "warmup_num_steps": 501')).finds(
        "warning", 'ds.json: "warmup_num_steps": 501', 501, 500, also=("ds.json: " + END,)
    ),
    near("ZC229", "as long as the default", (END, '"total_num_steps": 1000')),
    near("ZC229", "shorter than the default", (END, '"total_num_steps": 999')).finds(
        "warning", 'ds.json:1:135: "params"', 1000, 999, also=('ds.json: "total_num_steps": 999',)
    ),
    near("ZC229", "no end", (END, '"total_num_steps": 0')),
    near("ZC229", "the least end", (END, '"total_num_steps": 1')).finds(
        "warning", 'ds.json:1:135: "params"', 1000, 1, also=('ds.json: "total_num_steps": 1',)
    ),
    near("ZC229", "a schedule without an end", ("WarmupCosineLR", "WarmupLR")),
    near("ZC230", "the optimizer has that rate", ('"lr": 1e-5', '"lr": 1e-3')),
    near("ZC230", "another rate", ('"lr": 1e-5', '"lr": 2e-3'))
    .finds("error", 'ds.json:1:134: "params"', "0.001", "0.002")
    .becomes('"warmup_max_lr": null', safe=True),
    near("ZC230", "accelerate", consumer="accelerate")
    .finds("error", 'ds.json:1:134: "params"', "0.001", "1e-05")
    .becomes('"warmup_max_lr": "auto"', safe=True),
    near("ZC230", "a rate that nobody knows", ('"lr": 1e-5', '"lr": "auto"')).finds(
        "warning", 'ds.json:1:136: "params"', "0.001"
    ),
    # DeepSpeed before 0.17.2 stops at a peak of null
    near("ZC230", "a release that stops at null", versions={"deepspeed": "0.17.1"})
    .finds("error", 'ds.json:1:134: "params"', "0.001", "1e-05", "1e-05")
    .becomes('"warmup_max_lr": 1e-05', safe=True),
    near("ZC230", "a release that takes null", versions={"deepspeed": ">=0.17.2"})
    .finds("error", 'ds.json:1:134: "params"', "0.001", "1e-05")
    .becomes('"warmup_max_lr": null', safe=True),
    near("ZC230", "neither null nor a number", ('"lr": 1e-5', '"lr": "auto"'), versions={"deepspeed": ">=0.16"})
    .finds("warning", 'ds.json:1:136: "params"', "0.001")
    .becomes(),
    near("ZC230", "the Trainer fills it in any release", bad=2, versions={"deepspeed": "0.16.9"})
    .finds("error", 'ds.json:1:209: "params"', "0.001", "1e-05")
    .becomes('"warmup_max_lr": "auto"', safe=True),
    near("ZC230", "the rate of the recipe", ("0.00001", "0.001"), bad=2),
    near("ZC230", "WarmupLR takes the optimizer's", ("WarmupDecayLR", "WarmupLR")),
    near("ZC231", "the same", ("1e-3", "1e-5")),
    near("ZC231", "null is the optimizer's", ("1e-3", "null")),
    near("ZC231", "no rate", ('"lr": 1e-5', '"eps": 1e-8')),
    near("ZC231", "WarmupDecayLR", ("WarmupLR", "WarmupDecayLR")).finds(
        "warning", PEAK % "1e-3", "0.001", "1e-05", also=('ds.json: "lr": 1e-5',)
    ),
    near("ZC231", "WarmupCosineLR has no peak of its own", ("WarmupLR", "WarmupCosineLR")),
    near("ZC232", "log", ('"Linear"', '"log"')),
    near("ZC232", "auto", ('"Linear"', '"auto"')),
    near("ZC232", "logarithmic", ('"Linear"', '"Logarithmic"'))
    .finds("error", 'ds.json: "Logarithmic"')
    .becomes('"warmup_type": "log"'),
    near("ZC232", "a schedule without warm-up", ("WarmupLR", "LRRangeTest")),
    near("ZC233", "the default", ("warmup_steps: 100", "warmup_steps: 1000")),
    near("ZC233", "one step less", ("warmup_steps: 100", "warmup_steps: 999")).finds(
        "error", "recipe.yaml: warmup_steps: 999", 999, 1000, also=('ds.json: "params": {"warmup_max_lr": "auto"}',)
    ),
    near("ZC233", "nobody asks", ("warmup_steps: 100\n", "")),
    near("ZC233", "a schedule without warm-up", ("WarmupLR", "OneCycle")),
    near("ZC236", "no rate", (ONCE, '"decay_lr_rate": 0')),
    near("ZC236", "each step", (ONCE, ONCE + ', "decay_step_size": 1')),
    near("ZC236", "never", (ONCE, ONCE + ', "decay_step_size": 0')).finds("error", "ds.json: " + ONCE, "0.1", 0),
    near("ZC236", "another schedule", ("OneCycle", "WarmupLR")),
)

TABLE = (
    *SIZES,
    *ACCUMULATION,
    *PROCESSES,
    *CLIPPING,
    *HYPERPARAMETERS,
    *OPTIMIZER,
    *OPTIMIZER_FIT,
    *OVERRIDDEN,
    *SCHEDULER,
    *WARMUP,
)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
