"""Near misses of rules about training arguments, where the arguments stand on a launch line or in the script."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from zerocfg.rules.api import Severity
from zerocfg.rules.recipes.removed import argument_removed
from zerocfg.run.model import Origin, Run, Script, Setting, SourceFile
from zerocfg.source.text import SourceText, Span

from .files import of
from .table import Near, judge, rows

if TYPE_CHECKING:
    from pathlib import Path

CODE = SourceFile("train.py", "script", SourceText("train.py", "args = TrainingArguments(warmup_ratio=0.1)\n"))
OPTIONS = frozenset(
    ("output_dir", "learning_rate", "num_train_epochs", "per_device_train_batch_size", "logging_steps", "use_cpu")
)
PARSER = Script(CODE, "transformers", options=OPTIONS, parsed=frozenset(("transformers.TrainingArguments",)))
OWN_PARSER = Script(CODE, "transformers", options=OPTIONS)
PLAIN = "--output_dir out --per_device_train_batch_size 1 --save_strategy steps --num_train_epochs 1"
DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 2%s}}\n'
)
UNFORCED = '}, "zero_force_ds_cpu_optimizer": false, "comms_logger": {"enabled": false'
CPU = ', "offload_optimizer": {"device": "cpu"}'


def line(code: str, why: str, options: str, script: Script | None = PARSER, pinned: str = "", ds: str = "") -> Near:
    """A script of the Trainer that torchrun starts with these options."""
    files = {"train.sh": f"torchrun --nproc_per_node 2 train.py {PLAIN} {options}\n"}
    files |= {"ds.json": DS % ds} if "ds.json" in options else {}
    return replace(
        of(code, why, files, "transformers"),
        facts={"script": script, "versions": {"transformers": pinned} if pinned else {}},
    )


def spec(code: str, why: str, arguments: str) -> Near:
    """A run of a spec with these arguments."""
    text = f"version: 1\nruns:\n  sft:\n    script: train.py\n    consumer: transformers\n    arguments: {arguments}\n"
    return of(code, why, {"zerocfg.yaml": text})


NAMES = (
    line("ZC801", "an option", "--warmup_ratio 0.1", pinned="5.23.0")
    .finds("error", "train.sh: --warmup_ratio 0.1", "5.15.0", "5.23.0", 1)
    .becomes("--warmup_steps 0.1", safe=True),
    line("ZC801", "today's name", "--warmup_steps 0.1", pinned="5.23.0"),
    line("ZC801", "a release that has it", "--warmup_ratio 0.1", pinned="4.57.1"),
    line("ZC801", "a script that nobody can read", "--evaluation_strategy no", None)
    .finds("note", "train.sh: --evaluation_strategy no", "4.51.0", "5.23.0")
    .becomes("--eval_strategy no"),
    line("ZC801", "a flag", "--overwrite_output_dir")
    .finds("warning", "train.sh: --overwrite_output_dir", "5.0.0", "5.23.0")
    .becomes("--num_train_epochs 1\n"),
    line("ZC801", "a parser of the script's own", "--warmup_ratio 0.1", OWN_PARSER),
    line(
        "ZC801",
        "an option of the script's own",
        "--warmup_ratio 0.1",
        replace(PARSER, options=OPTIONS | {"warmup_ratio"}, own=frozenset(("warmup_ratio",))),
    ),
    line("ZC801", "a parser that goes on", "--warmup_ratio 0.1", replace(PARSER, lenient=True), "5.23.0"),
    line("ZC801", "another program's line", "--warmup_ratio 0.1 --max_train_steps 4", None),
    spec("ZC801", "in a spec", "[--warmup_ratio, '0.1']")
    .finds("warning", "zerocfg.yaml: --warmup_ratio, '0.1'", "5.15.0", "5.23.0", 1)
    .becomes(),
    line("ZC841", "a slip", "--learning_rtae 1e-5")
    .finds("warning", "train.sh: --learning_rtae 1e-5")
    .says("`learning_rate` is one, and the parser stops at the other")
    .becomes("--learning_rate 1e-5", safe=True),
    line("ZC841", "a script that nobody can read", "--learning_rtae 1e-5", None),
    line("ZC841", "options that nobody can tell", "--learning_rtae 1e-5", replace(PARSER, options=None)),
    line("ZC841", "an abbreviation", "--gradient_accumulation_step 4"),
    line(
        "ZC841",
        "an option of the script's own",
        "--learning_rats 4",
        replace(PARSER, options=OPTIONS | {"learning_rats"}, own=frozenset(("learning_rats",))),
    ),
    line("ZC868", "an option", "--gradient_checkpointing", pinned="5.23.0")
    .finds("note", "train.sh: --gradient_checkpointing", 6, "5.23.0")
    .becomes("--activation_checkpointing", safe=True),
    line("ZC865", "an option", "--eval_strategy no", pinned="4.40.2").finds(
        "error", "train.sh: --eval_strategy no", "4.41.0", "4.40.2", "4.41.0"
    ),
    line("ZC865", "the Trainer's alone", "--use_cache", pinned="4.40.2").finds(
        "error", "train.sh: --use_cache", "5.0.0", "4.40.2", "5.0.0"
    ),
    line("ZC865", "the script's own", "--use_cache", replace(PARSER, own=frozenset(("use_cache",))), "4.40.2"),
)

VALUES = (
    line("ZC802", "words in a number's place", "--logging_steps '5 steps'").finds(
        "error", "train.sh: --logging_steps '5 steps'", 5
    ),
    line("ZC802", "a fraction", "--logging_steps 0.1"),
    line("ZC802", "a parser of the script's own", "--logging_steps '5 steps'", OWN_PARSER),
    line("ZC802", "a template", "--logging_steps '<steps>'"),
    line("ZC802", "a switch", "--use_cpu maybe").finds("error", "train.sh: --use_cpu maybe"),
    line("ZC813", "JSON", "--accelerator_config '{\"split_batch\": true}'")
    .finds("error", "train.sh: --accelerator_config '{\"split_batch\": true}'")
    .becomes(),
    line("ZC813", "JSON that is right", "--accelerator_config '{\"split_batches\": false}'"),
    line("ZC813", "a file", "--accelerator_config own.json"),
    line("ZC824", "JSON", "--accelerator_config '{\"split_batches\": true}'").finds(
        "error",
        "train.sh: --accelerator_config '{\"split_batches\": true}'",
        1,
        2,
    ),
    line(
        "ZC823",
        "JSON",
        '--gradient_accumulation_steps 2 --accelerator_config \'{"gradient_accumulation_kwargs": {"num_steps": 4}}\'',
    ).finds("error", 'train.sh: --accelerator_config \'{"gradient_accumulation_kwargs": {"num_steps": 4}}\'', 4, 2),
    line("ZC819", "JSON", "--lr_scheduler_type cosine --lr_scheduler_kwargs '{\"min_lr\": 1e-6}'").finds(
        "error", "train.sh: --lr_scheduler_kwargs '{\"min_lr\": 1e-6}'"
    ),
    line("ZC812", "below the least", "--warmup_steps -1")
    .finds("error", "train.sh: --warmup_steps -1", -1, 0, 0)
    .becomes("--warmup_steps 0\n"),
    line("ZC811", "no such word", "--lr_scheduler_type cosin")
    .finds("error", "train.sh: --lr_scheduler_type cosin")
    .becomes("--lr_scheduler_type cosine\n", safe=True),
)

ENGINES = (
    line("ZC620", "both", "--fsdp full_shard --deepspeed ds.json")
    .finds("error", "train.sh: --fsdp full_shard", also=("train.sh: --deepspeed ds.json",))
    .becomes(),
    line("ZC620", "an empty word", "--fsdp '' --deepspeed ds.json"),
    line("ZC622", "JSON", "--fsdp full_shard --fsdp_config '{\"offload_params\": true}'").finds(
        "error", "train.sh: --fsdp_config '{\"offload_params\": true}'"
    ),
    line("ZC622", "a file", "--fsdp full_shard --fsdp_config fsdp.json"),
    line("ZC631", "a flag", "--fsdp full_shard --gradient_checkpointing")
    .finds("warning", "train.sh: --gradient_checkpointing")
    .becomes(),
    line("ZC631", "a file may say it", "--fsdp full_shard --fsdp_config fsdp.json --gradient_checkpointing"),
    line("ZC631", "off", "--fsdp full_shard --gradient_checkpointing False"),
    line("ZC510", "an option", "--deepspeed ds.json --optim sgd", ds=CPU).finds(
        "error", "train.sh: --optim sgd", also=('ds.json: "device": "cpu"',)
    ),
    line("ZC510", "an AdamW", "--deepspeed ds.json --optim adamw_torch", ds=CPU),
    line("ZC522", "adapters", "--deepspeed ds.json --use_peft", ds=', "offload_param": {"device": "cpu"}'),
)

FSDP2 = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: %d\n  fsdp_state_dict_type: %s\n"


def launched(code: str, why: str, options: str, version: int, states: str) -> Near:
    """A script of the Trainer that accelerate starts under FSDP."""
    line = f"accelerate launch --config_file accelerate.yaml train.py {PLAIN} {options}\n"
    files = {"accelerate.yaml": FSDP2 % (version, states), "train.sh": line}
    return replace(of(code, why, files, "transformers"), facts={"script": PARSER})


LAUNCHED = (
    launched("ZC627", "a flag", "--save_only_model", 2, "SHARDED_STATE_DICT").finds(
        "error", "accelerate.yaml: fsdp_state_dict_type: SHARDED_STATE_DICT", also=("train.sh: --save_only_model",)
    ),
    launched("ZC627", "a word", "--save_only_model true", 2, "SHARDED_STATE_DICT").finds(
        "error", "accelerate.yaml: fsdp_state_dict_type: SHARDED_STATE_DICT", also=("train.sh: --save_only_model true",)
    ),
    launched("ZC627", "off", "--save_only_model false", 2, "SHARDED_STATE_DICT"),
    launched("ZC627", "whole states", "--save_only_model", 2, "FULL_STATE_DICT"),
    launched("ZC629", "an option", "--fsdp full_shard", 1, "FULL_STATE_DICT")
    .finds("error", "accelerate.yaml: fsdp_version: 1", 1, 2, also=("train.sh: --fsdp full_shard",))
    .becomes("--num_train_epochs 1\n"),
    launched("ZC629", "a file may say the same", "--fsdp full_shard --fsdp_config f.json", 1, "FULL_STATE_DICT"),
    launched("ZC642", "an option", "--optim adafactor", 2, "FULL_STATE_DICT")
    .finds("error", "train.sh: --optim adafactor", 2)
    .becomes("--optim adamw_torch\n"),
    launched("ZC642", "version 1", "--optim adafactor", 1, "FULL_STATE_DICT"),
    line("ZC513", "an option", "--deepspeed ds.json --optim adamw_torch", ds=CPU + UNFORCED).finds(
        "warning", 'ds.json: "zero_force_ds_cpu_optimizer": false', also=("train.sh: --optim adamw_torch",)
    ),
    line("ZC513", "not said on the line", "--deepspeed ds.json", ds=CPU + UNFORCED),
    replace(
        of(
            "ZC840",
            "an option",
            {"train.sh": f"torchrun --nproc_per_node 2 sft.py {PLAIN} --max_seq_length 512\n"},
        ),
        facts={"consumer": "trl", "script": replace(PARSER, parsed=frozenset(("trl.SFTConfig",)))},
    )
    .finds("warning", "train.sh: --max_seq_length 512", "0.20.0", "1.16.0")
    .becomes("--max_length 512\n"),
    replace(
        of(
            "ZC840",
            "what TrlParser takes for itself",
            {
                "train.sh": f"torchrun --nproc_per_node 2 sft.py {PLAIN} --config recipe.yaml\n",
                "recipe.yaml": "packing: true\nenv: {A: b}\n",
            },
        ),
        facts={
            "consumer": "trl",
            "script": replace(PARSER, parsed=frozenset(("trl.SFTConfig", "trl.ScriptArguments"))),
            "versions": {"trl": "==0.19.1"},
        },
    ),
)

TABLE = (*LAUNCHED, *NAMES, *VALUES, *ENGINES)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)


def test_a_literal_of_the_script() -> None:
    """An argument in the code is refused by the class, not by a parser, and nothing is edited there."""
    given = Setting(0.1, Origin("file", file=CODE, span=Span(25, 41)))
    pinned = {"transformers": "5.23.0"}
    run = Run("sft", "transformers", script=PARSER, arguments={"warmup_ratio": given}, versions=pinned)
    (found,) = argument_removed.check(run)
    assert found.location.file.source.text[slice(*found.location.concrete())] == "warmup_ratio=0.1"
    assert found.severity is Severity.ERROR
    assert found.fix is None
    assert "the class refuses it" in found.message
