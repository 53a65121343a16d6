"""Near misses of ZC877: what is set in training arguments once they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.near.table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

SET = 'args.deepspeed = "ds.json"\n'
MADE = "per_device_train_batch_size=1)"
AT = "train.py: args.deepspeed"
MAIN = "train.py: training_args.deepspeed"
HERE = "train.py:9:9: training_args.deepspeed"
ASKED = "if training_args.deepspeed is None:"
LINE = "torchrun --nproc_per_node 2 train.py"
ON = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
SHARDED = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
OFF = "distributed_type: MULTI_GPU\nnum_processes: 2\n"


def code(why: str, *swaps: tuple[str, str], bad: int = 1) -> Near:
    """An example whose script differs."""
    return near("ZC877", why, *swaps, bad=bad)


def started(why: str, line: str, config: str | None = None, bad: int = 1) -> Near:
    """An example that another line starts."""
    files = {"train.sh": f"{line}\n"} | ({"accelerate.yaml": config} if config is not None else {})
    return near("ZC877", why, bad=bad, files=files)


VALUES = (
    code("nothing", ('"ds.json"', "None")),
    code("an empty text", ('"ds.json"', '""')),
    code("a dict", ('"ds.json"', '{"zero_optimization": {"stage": 2}}')).finds("error", AT, 2, 2),
    code("an empty dict", ('"ds.json"', "{}")),
    code("a name", (SET, 'name = "ds.json"\nargs.deepspeed = name\n')).finds("error", AT),
    code("a name for nothing", (SET, "name = None\nargs.deepspeed = name\n")),
    code("a text that is put together", ('"ds.json"', 'f"{home}/ds.json"')).finds("error", AT),
    code("a value that may be empty", ('"ds.json"', "choose()")).finds("warning", AT),
    code("what it was", ('"ds.json"', "resolved(args.deepspeed)")),
    code("what it was, kept before", (SET, "kept = args.deepspeed\nargs.deepspeed = kept\n")),
    code("by setattr", (SET, 'setattr(args, "deepspeed", "ds.json")\n')).finds(
        "error", 'train.py: setattr(args, "deepspeed", "ds.json")'
    ),
    code("another attribute", ("args.deepspeed", "args.deep")),
)
OBJECTS = (
    code("made with one", (MADE, 'per_device_train_batch_size=1, deepspeed="a.json")')),
    code("made without one", (MADE, "per_device_train_batch_size=1, deepspeed=None)")).finds("error", AT),
    code("sharded by FSDP", (MADE, 'per_device_train_batch_size=1, fsdp="full_shard")')),
    code("made of a mapping", (MADE, "**given)")),
    code("something else", ("args = TrainingArguments(", "args = Settings(")),
    code("made anew behind it", (SET, f'{SET}args = TrainingArguments(output_dir="b")\n')),
    code("made twice before it", (SET, f'if long:\n    args = TrainingArguments(output_dir="b")\n{SET}')).finds(
        "error", AT
    ),
    code("perhaps something else", (SET, f"if long:\n    args = given\n{SET}")),
    code("its checks again", (SET, f"{SET}args.__post_init__()\n")),
    code("a plugin as well", (SET, f"{SET}args.deepspeed_plugin = plugin\n")),
    code("other arguments", ("args=args", "args=given")),
    code("a copy of them", ("args=args", "args=replace(args)")),
    code("behind the Trainer", (SET, ""), (".train()\n", f".train()\n{SET}")),
    code(
        "TRL makes a config of them",
        ("import Trainer, TrainingArguments", "import TrainingArguments\nfrom trl import SFTTrainer as Trainer"),
    ),
    code(
        "TRL keeps its own",
        ("from transformers import Trainer, TrainingArguments", "from trl import SFTConfig, SFTTrainer as Trainer"),
        ("= TrainingArguments(", "= SFTConfig("),
    ).finds("error", AT),
    code("unsloth replaces the trainer", ("from transformers", "import unsloth\nfrom transformers")),
    code("in a condition", (SET, 'if long:\n    args.deepspeed = "ds.json"\n')).finds("warning", AT),
    code("the Trainer, too", (f"{SET}T", 'if long:\n    args.deepspeed = "ds.json"\n    T')).finds("error", AT),
    code("in either case", (SET, f"if long:\n    args.deepspeed = 'a.json'\nelse:\n    {SET}")).finds(
        "warning", AT, also=("train.py:7:5: args.deepspeed",)
    ),
    code("in a block of `with`", (SET, 'with quiet():\n    args.deepspeed = "ds.json"\n')).finds("error", AT),
    code("where there was one", (SET, 'if args.deepspeed:\n    args.deepspeed = "ds.json"\n')),
)
FUNCTIONS = (
    code("always", (f"    {ASKED}\n        training", "    training"), bad=2).finds("error", MAIN),
    code("where there is none", (ASKED, "if long and not training_args.deepspeed:"), bad=2).finds("warning", HERE),
    code("where there was one", (ASKED, "if training_args.deepspeed is not None:"), bad=2),
    code("other arguments of the parser", ("((DPOConfig,))", "((Own,))"), bad=2),
    code(
        "more from the parser",
        ("((DPOConfig,))", "((Own, DPOConfig))"),
        ("(training_args,)", "own, training_args"),
        bad=2,
    ).finds("warning", HERE),
    code(
        "another from the parser",
        ("((DPOConfig,))", "((DPOConfig, Own))"),
        ("(training_args,)", "own, training_args"),
        bad=2,
    ),
    code(
        "the Trainer elsewhere",
        ("    DPOTrainer(", "    return training_args\n\n\ndef train():\n    training_args = main()\n    DPOTrainer("),
        ("\n\nmain()", "\n\ntrain()"),
        bad=2,
    ).finds("warning", HERE),
    code(
        "two that are made",
        (
            "    DPOTrainer(",
            "    return training_args\n\n\ndef train():\n    training_args = DPOConfig(main().home)\n    DPOTrainer(",
        ),
        ("\n\nmain()", "\n\ntrain()"),
        bad=2,
    ),
)
STARTS = (
    started("one on the line for the parser", f"{LINE} --output_dir out --deepspeed a.json", bad=2),
    started("an option that is not the arguments'", f"{LINE} --deepspeed a.json").finds("error", AT),
    started("a word that is not known", f"{LINE} $MORE").finds("warning", AT),
    started("DeepSpeed's launcher", "deepspeed --num_gpus 2 train.py").finds("error", AT),
    started("accelerate with DeepSpeed", "accelerate launch --config_file accelerate.yaml train.py", ON),
    started("accelerate without it", "accelerate launch --config_file accelerate.yaml train.py", OFF).finds(
        "error", AT
    ),
    started("accelerate with the user's config", "accelerate launch train.py"),
    started("accelerate for several cards", "accelerate launch --multi_gpu --num_processes 2 train.py").finds(
        "error", AT
    ),
    started("accelerate with FSDP", "accelerate launch --config_file accelerate.yaml train.py", SHARDED),
    started("the variable of accelerate", f"ACCELERATE_USE_DEEPSPEED=true {LINE}"),
    near("ZC877", "nothing starts it", files={"train.sh": None}).finds("warning", AT),
    near("ZC877", "the last that stopped", versions={"transformers": "==4.29.2"}),
    near("ZC877", "the first that goes on", versions={"transformers": "==4.30.0"}).finds("error", AT),
)


@pytest.mark.parametrize("row", rows((*VALUES, *OBJECTS, *FUNCTIONS, *STARTS)))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
