"""What rules leave unsaid, or say with less weight, because of a script, a name or a line that tells more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.examples import lint, write
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.example import Example

from .files import of
from .table import Near, judge, rows

if TYPE_CHECKING:
    from pathlib import Path

SIZED = '{"train_micro_batch_size_per_gpu": %s, "zero_optimization": {"stage": %d}%s}\n'
NO_SIZE = '{"zero_optimization": {"stage": 1}}\n'
TO_FILL = '{"train_micro_batch_size_per_gpu": 1,\n "gradient_clipping": ${clip},\n "zero_optimization": {"stage": 2}}\n'
JINJA = '{"train_micro_batch_size_per_gpu": 1,\n "zero_optimization": {{ zero }}}\n'
NO_ZERO = '{"train_micro_batch_size_per_gpu": 1, "comms_logger": {"enabled": false}}\n'
OPENS = (
    "import json, deepspeed, argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--deepspeed')\n"
    "args = parser.parse_args()\n%sengine = deepspeed.initialize(model=None, config=config)[0]\nengine.step()\n"
)
OPENED = "config = json.load(open(args.deepspeed))\nconfig['train_micro_batch_size_per_gpu'] = 1\n"
HANDED_ON = "config = args.deepspeed\n"
LINE = "deepspeed --num_gpus 2 train.py --deepspeed ds.json\n"
TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "args = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()[0]\n%s"
)
TRAIN = "Trainer(model=None, args=args).train()\n"
PREDICT = "Trainer(model=None, args=args).predict([])\n"
SHARDED = (
    "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
)
LAUNCHED = "accelerate launch --config_file accelerate.yaml train.py --output_dir out\n"
STAGE_3 = 'ds.json: "stage": 3'


def opened(code: str, why: str, how: str, ds: str) -> Near:
    """A loop with deepspeed.initialize that gets the file's name in this way."""
    return of(code, why, {"ds.json": ds, "train.sh": LINE, "train.py": OPENS % how})


def trainer(code: str, why: str, code_of_script: str, ds: str, options: str = "") -> Near:
    line = f"torchrun --nproc_per_node 2 train.py --deepspeed ds.json --output_dir out {options}".rstrip() + "\n"
    return of(code, why, {"ds.json": ds, "train.sh": line, "train.py": TRAINER % code_of_script})


def sharded(why: str, code_of_script: str) -> Near:
    files = {"accelerate.yaml": SHARDED, "train.sh": LAUNCHED, "train.py": TRAINER % code_of_script}
    return of("ZC607", why, files)


def two_loops(why: str, how: str) -> Near:
    """A script of which nobody knows who reads the file, and whose option is called as the Trainer's."""
    code = "from accelerate import Accelerator\nAccelerator()\n" + OPENS % how
    return of("ZC452", why, {"ds.json": NO_ZERO, "train.sh": LINE, "train.py": code})


AUTO = 'ds.json: "train_micro_batch_size_per_gpu": "auto"'
COMPLETED = (
    opened("ZC205", "the script opens the file and adds the size", OPENED, NO_SIZE),
    opened("ZC205", "the engine gets the file's name", HANDED_ON, NO_SIZE).finds("error", "ds.json"),
    opened("ZC415", "the script opens the file and fills in the size", OPENED, SIZED % ('"auto"', 1, "")),
    opened("ZC415", "the engine gets the file's name", HANDED_ON, SIZED % ('"auto"', 1, "")).finds("error", AUTO),
    two_loops("nobody knows what becomes of what is read", OPENED),
    two_loops("only its name is handed on", HANDED_ON).finds("error", 'ds.json: "comms_logger"'),
    of("ZC205", "a template by its name", {"template_zero1.json": NO_SIZE}),
    of("ZC205", "the same by another name", {"zero1.json": NO_SIZE}).finds("warning", "zero1.json"),
    of("ZC401", "a template by its name", {"ds_TEMPLATE.json": SIZED % (1, 3, "")}),
    of("ZC002", "a template of Jinja", {"ds.json": JINJA}),
    of("ZC004", "words that sed fills in", {"ds.json": TO_FILL}),
    of("ZC013", "words that sed fills in", {"ds.json": TO_FILL}),
)
SAVED = (
    trainer("ZC401", "a script that only predicts", PREDICT, SIZED % (1, 3, "")),
    trainer(
        "ZC401",
        "a Trainer reads what the script opened",
        "print(open(args.deepspeed).read())\n" + TRAIN,
        SIZED % (1, 3, ""),
    ).finds("error", STAGE_3, 3),
    trainer("ZC401", "a script that trains", TRAIN, SIZED % (1, 3, "")).finds("error", STAGE_3, 3),
    of("ZC401", "for inference by its name", {"ds_inference.json": SIZED % (1, 3, "")}),
    of("ZC401", "by no name", {"ds.json": SIZED % (1, 3, "")}).finds("warning", STAGE_3, 3),
    sharded("the script saves as it is told", TRAIN).finds("warning", "accelerate.yaml: SHARDED_STATE_DICT"),
    sharded(
        "the script gathers when it saves",
        "trainer = Trainer(model=None, args=args)\ntrainer.train()\n"
        "trainer.accelerator.state.fsdp_plugin.set_state_dict_type('FULL_STATE_DICT')\ntrainer.save_model()\n",
    ),
)
PROCESSES = "distributed_type: MULTI_GPU\nnum_processes:%s\nmixed_precision: bf16\n"
ACCUMULATED = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "%s"}'


def unread(code: str, why: str, declared: str, line: str) -> Near:
    """A recipe that no line names, beside another whose script declares an option by itself."""
    recipe = "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\n"
    script = (
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n\n\n"
        f"@dataclass\nclass Own:\n    {declared}: int | None = None\n\n\n"
        "own, args = HfArgumentParser((Own, TrainingArguments)).parse_yaml_file('first.yaml')\n"
        "Trainer(model=None, args=args).train()\n"
    )
    files = {"train.py": script, "train.sh": "torchrun train.py first.yaml\n", "first.yaml": recipe}
    return of(code, why, {**files, "other/second.yaml": recipe + line})


ELSEWHERE = (
    unread(
        "ZC841", "a script of the project declares it", "gradient_acumulation_steps", "gradient_acumulation_steps: 2\n"
    ),
    unread("ZC841", "no script of the project declares it", "own_steps", "gradient_acumulation_steps: 2\n").finds(
        "warning", "other/second.yaml: gradient_acumulation_steps"
    ),
    unread("ZC801", "a script of the project declares it", "evaluation_strategy", "evaluation_strategy: steps\n"),
    unread("ZC801", "no script of the project declares it", "own", "evaluation_strategy: steps\n").finds(
        "note", "other/second.yaml: evaluation_strategy", "4.51.0", "5.23.0"
    ),
)
FROM_LINE = (
    of("ZC104", "left to a line that nobody knows", {"accelerate.yaml": PROCESSES % ""}).finds(
        "note", "accelerate.yaml:2:15:"
    ),
    of("ZC104", "a word is no number on any line", {"accelerate.yaml": PROCESSES % " eight"}).finds(
        "error", "accelerate.yaml: eight"
    ),
    of(
        "ZC104",
        "the line gives it",
        {
            "accelerate.yaml": PROCESSES % "",
            "train.sh": "accelerate launch --config_file accelerate.yaml --num_processes 8 train.py\n",
        },
    ),
    of("ZC104", "an auto that nobody fills, which ZC415 tells", {"ds.json": ACCUMULATED % "auto"}, "deepspeed"),
    of("ZC415", "of the batch sizes", {"ds.json": ACCUMULATED % "auto"}, "deepspeed").finds(
        "error", 'ds.json: "gradient_accumulation_steps": "auto"'
    ),
    of("ZC104", "another text", {"ds.json": ACCUMULATED % "four"}, "deepspeed").finds("error", 'ds.json: "four"'),
    of("ZC701", "left to a line that nobody knows", {"accelerate.yaml": "distributed_type: MULTI_GPU\n"}).finds(
        "note", "accelerate.yaml"
    ),
)
BF16 = "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 2\n"
OPTIONS = "--output_dir out --per_device_train_batch_size 1 --save_strategy no"


def guessed(why: str, more: dict[str, str]) -> Near:
    line = f"accelerate launch --config_file accelerate.yaml train.py {OPTIONS}\n"
    return of("ZC302", why, {"accelerate.yaml": BF16, "train.sh": line, **more})


ADAM = ', "optimizer": {"type": "Adam", "params": {"lr": 0.1, "max_grad_norm": 1.0}}%s'
GIVEN = "import deepspeed\nengine = deepspeed.initialize(model=None, config='ds.json'%s)[0]\nengine.step()\n"
NORM = 'ds.json: "max_grad_norm"'


def optimizer(why: str, code: str, more: str = "") -> Near:
    files = {"ds.json": SIZED % (1, 1, ADAM % more)}
    if code:
        files |= {"train.py": code, "train.sh": "deepspeed --num_gpus 2 train.py\n"}
    return of("ZC110", why, files)


READ_BY = (
    guessed("TRL's configs turn bf16 on, and nobody sees whose class it is", {}),
    guessed("transformers' own", {"train.py": TRAINER % TRAIN}).finds(
        "error", "accelerate.yaml: mixed_precision: bf16", "5.23.0"
    ),
    optimizer("the script brings an optimizer", GIVEN % ", optimizer=object()").finds("note", NORM),
    optimizer("DeepSpeed makes the optimizer", GIVEN % "").finds("error", NORM),
    optimizer("written for a script that brings one", "", ', "zero_allow_untested_optimizer": false').finds(
        "note", NORM
    ),
    optimizer("nobody knows who reads it", "").finds("error", NORM),
    of(
        "ZC242",
        "the compiler splits the sequences",
        {"ds.json": SIZED % (1, 0, ', "sequence_parallel_size": 2, "compile": {"passes": ["autosp"]}')},
        "deepspeed",
    ),
    of(
        "ZC322",
        "16-bit master weights, whose products autocast computes",
        {
            "ds.json": SIZED
            % (
                1,
                2,
                ', "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}'
                ', "torch_autocast": {"enabled": true, "dtype": "bf16"}',
            )
        },
        "deepspeed",
    ),
)
MISSING = "accelerate launch --config_file %s %s --output_dir out\n"
TWO_MACHINES = "deepspeed --num_nodes 2 train.py --deepspeed_config ds.json\n"
PAGE = "# Start\n\n```bash\n%s```\n"
LINES = (
    of("ZC703", "a line for a checkout of something else", {"train.sh": MISSING % ("conf/z2.yaml", "ex/dpo.py")}),
    of(
        "ZC703",
        "its script is here",
        {"train.sh": MISSING % ("conf/z2.yaml", "ex/dpo.py"), "ex/dpo.py": "print()\n"},
    ).finds("warning", "train.sh: --config_file conf/z2.yaml"),
    of(
        "ZC703",
        "its folder is here",
        {"train.sh": MISSING % ("conf/z2.yaml", "ex/dpo.py"), "conf/z3.yaml": BF16},
    ).finds("warning", "train.sh: --config_file conf/z2.yaml"),
    of("ZC735", "a page", {"README.md": PAGE % TWO_MACHINES, "ds.json": SIZED % (1, 1, "")}).finds(
        "note", "README.md: --num_nodes 2", 2
    ),
    of(
        "ZC735",
        "a script that knows of the list",
        {"train.sh": "ls /job/hostfile || exit 1\n" + TWO_MACHINES, "ds.json": SIZED % (1, 1, "")},
    ),
)
KEPT = "--lr_scheduler_type cosine_with_min_lr"
SCHEDULE = (
    trainer("ZC235", "the arguments as they are parsed", TRAIN, SIZED % (1, 2, ""), KEPT).finds(
        "error", f"train.sh: {KEPT}"
    ),
    trainer(
        "ZC235",
        "the script adds what is needed",
        "args.lr_scheduler_kwargs['min_lr'] = 0.1\n" + TRAIN,
        SIZED % (1, 2, ""),
        KEPT,
    ),
    trainer(
        "ZC235",
        "the script adds it in another way",
        "args.lr_scheduler_kwargs.update(min_lr=0.1)\n" + TRAIN,
        SIZED % (1, 2, ""),
        KEPT,
    ),
)


@pytest.mark.parametrize("row", rows((*COMPLETED, *SAVED, *ELSEWHERE, *FROM_LINE, *READ_BY, *LINES, *SCHEDULE)))
def test_evidence(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)


@pytest.mark.parametrize(("code", "text"), [("ZC002", JINJA), ("ZC013", TO_FILL)])
def test_a_template_that_a_line_names_is_no_template(code: str, text: str, tmp_path: Path) -> None:
    line = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n"
    write(Example({"ds.json": text, "train.sh": line}), tmp_path)
    found = lint(tmp_path, None, Selection(select=("ZC0",))).diagnostics
    assert [(one.code, one.severity.value) for one in found if one.severity.value == "error"] == [(code, "error")]
