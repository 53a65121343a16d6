"""Near misses of `zerocfg.rules.files`: of texts that a reader refuses, or reads in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.examples import lint, told, without_fix, write
from zerocfg.linter.selection import Selection

from .files import of
from .table import Near, near, rows

if TYPE_CHECKING:
    from pathlib import Path

YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}%s}\n'


def yaml(code: str, why: str, text: str) -> Near:
    return of(code, why, {"accelerate.yaml": YAML + text}, "accelerate")


def json(code: str, why: str, text: str, consumer: str | None = "deepspeed") -> Near:
    return of(code, why, {"ds.json": text}, consumer)


def recipe(code: str, why: str, text: str, line: str = "torchrun --nproc_per_node 1 train.py recipe.yaml\n") -> Near:
    files = {"recipe.yaml": RECIPE + text}
    return of(code, why, {**files, "train.sh": line} if line else files, "transformers")


TRL = "torchrun --nproc_per_node 1 sft.py --config recipe.yaml\n"
LAST = '{\n  "train_micro_batch_size_per_gpu": 1,\n  %s\n}\n'
COMMENT = '{"train_micro_batch_size_per_gpu": 1, // per GPU\n "zero_optimization": {"stage": 2}}\n'

READING = (
    json("ZC002", "a trailing comma, which DeepSpeed takes", '{"train_micro_batch_size_per_gpu": 1,}\n'),
    yaml("ZC003", "in two sections", "  num_machines: 1\nnum_machines: 1\n"),
    yaml("ZC003", "twice the same", "num_processes: 2\n").finds(
        "note", "accelerate.yaml:5:1: num_processes", also=("accelerate.yaml: num_processes",)
    ),
    yaml("ZC003", "two values", "num_processes: 4\n").finds(
        "error", "accelerate.yaml:5:1: num_processes", also=("accelerate.yaml: num_processes",)
    ),
    json("ZC004", "DeepSpeed alone reads it", COMMENT),
    json("ZC004", "nobody knows who reads it", COMMENT, None).finds("warning", "ds.json: // per GPU"),
    json("ZC004", "two places", COMMENT.replace("2}}", "2,}}"), "accelerate").finds("error", "ds.json: // per GPU", 2),
    yaml("ZC004", "YAML has comments", "# for two\n"),
    *(
        yaml("ZC005", f"{text} is a number, or meant as text", f"main_training_function: {text}\n")
        for text in ("5.0e+8", "'5e8'", "e8", "8e")
    ),
    yaml("ZC005", "in a section that accelerate ignores", "  optimizer:\n    params:\n      eps: 1e-8\n"),
    *(
        yaml("ZC005", f"{text} is a text", f"main_training_function: {text}\n").finds(
            "warning", f"accelerate.yaml: {text}", figure, figure, "1.1", number
        )
        for text, figure, number in (
            ("1e-5", "1e-5", "1.0e-5"),
            ("5.0e8", "5.0e8", "5.0e+8"),
            ("2.e3", 2, "2.0e+3"),
            ("-1e5", "-1e5", "-1.0e+5"),
        )
    ),
    *(
        yaml("ZC005", "another rule says what comes of it", text)
        for text in (
            "main_process_port: 1e4\n",
            "  gradient_accumulation_steps: 1e1\n",
            "  zero3_init_flag: 1e1\n",
            "  offload_param_device: 1e1\n",
        )
    ),
    yaml("ZC005", "accelerate makes a number of it", "  gradient_clipping: 1e1\n").finds(
        "warning", "accelerate.yaml: 1e1", "1e1", "1e1", "1.1", "1.0e+1"
    ),
    recipe("ZC005", "HfArgumentParser keeps the text", "learning_rate: 1e-5\n").finds(
        "error", "recipe.yaml: 1e-5", "1e-5", "1e-5", "1.1", "1.0e-5"
    ),
    recipe("ZC005", "where a text is wanted", "run_name: 1e5\n").finds(
        "note", "recipe.yaml: 1e5", "1e5", "1e5", "1.1", "1.0e+5"
    ),
    recipe("ZC005", "inside of a section", "lr_scheduler_kwargs: {min_lr: 1e-5}\n").finds(
        "note", "recipe.yaml: 1e-5", "1e-5", "1e-5", "1.1", "1.0e-5"
    ),
    recipe("ZC005", "nobody knows the parser", "learning_rate: 1e-5\n", "").finds(
        "note", "recipe.yaml: 1e-5", "1e-5", "1e-5", "1.1", "1.0e-5"
    ),
    recipe("ZC005", "TrlParser converts", "packing: true\nlearning_rate: 1e-5\n", TRL),
    yaml("ZC006", "a switch", "debug: no\n"),
    yaml("ZC006", "a word that the key does not have", "mixed_precision: off\n"),
    of(
        "ZC006",
        "accelerate takes false for NO",
        {"accelerate.yaml": "distributed_type: NO\nnum_processes: 1\ngpu_ids: all\n"},
    ),
    near("ZC006", "a release that takes false for no", versions={"accelerate": "==0.33.0"}),
    near("ZC006", "a release that does not", versions={"accelerate": "==0.34.0"}).finds(
        "error", "accelerate.yaml: no", "1.1"
    ),
    near("ZC006", "a release that may not", versions={"accelerate": "<=0.34.0"}).finds(
        "warning", "accelerate.yaml: no", "1.1", "0.34.0", "0.34.0"
    ),
    of(
        "ZC006",
        "a word that no release takes false for",
        {"accelerate.yaml": "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_state_dict_type: no\n"},
    ),
    recipe("ZC006", "of the Trainer", "eval_strategy: no\n").finds("error", "recipe.yaml: no", "1.1"),
    recipe("ZC006", "false, which nobody takes for a word", "eval_strategy: false\n"),
    recipe("ZC811", "false in the place of a word", "eval_strategy: false\n").finds("error", "recipe.yaml: false"),
    recipe("ZC811", "the same by TrlParser", "packing: true\neval_strategy: false\n", TRL).finds(
        "error", "recipe.yaml: false"
    ),
    recipe("ZC811", "off, which is no word of it", "eval_strategy: off\n").finds("error", "recipe.yaml: off"),
    recipe("ZC811", "a number", "save_strategy: 500\n").finds("error", "recipe.yaml: 500", 500),
    recipe("ZC811", "no, of which ZC006 tells", "eval_strategy: no\n"),
    recipe("ZC811", "no in quotes", "eval_strategy: 'no'\n"),
    recipe("ZC811", "false, and nobody knows the parser", "eval_strategy: false\n", ""),
    *(
        yaml("ZC007", f"{text} is what it seems", f"main_process_port: {text}\n")
        for text in ("24500", "'024500'", "0", "00", "0.5", "0x10", "09", "true")
    ),
    yaml("ZC007", "two digits", "main_process_port: 010\n").finds("warning", "accelerate.yaml: 010", "010", 8),
    yaml("ZC007", "base sixty", "main_process_ip: 1:30\n").finds("warning", "accelerate.yaml: 1:30", 1, 30, 90),
    recipe("ZC007", "words with a colon", "run_name: 1:a\noutput_dir: a:1\nseed: yes\n"),
    recipe("ZC007", "of the Trainer", "seed: 010\n").finds("warning", "recipe.yaml: 010", "010", 8),
    near("ZC008", "nothing", files={"accelerate.yaml": ""}).finds(
        "error", "accelerate.yaml", also=("train.sh: accelerate launch --config_file accelerate.yaml train.py",)
    ),
)

MISREAD = (
    json("ZC009", "at the end of a line, where a truth is wanted", LAST % '"prescale_gradients": False').finds(
        "error", "ds.json: False"
    ),
    json("ZC009", "at the end of a line, where nobody looks", LAST % '"remark": None').finds("note", "ds.json: None"),
    json("ZC009", "in quotes", LAST % '"prescale_gradients": "False"'),
    json("ZC009", "a longer word", LAST % '"remark": Falsehood'),
    json("ZC012", "nobody knows who reads it", LAST % '"gradient_clipping": Infinity', None).finds(
        "warning", "ds.json: Infinity"
    ),
    json("ZC012", "read as Python reads it", LAST % '"gradient_clipping": Infinity', "transformers").finds(
        "note", "ds.json: Infinity"
    ),
    json("ZC012", "the largest that fits", LAST % '"gradient_clipping": 1e308'),
    near("ZC013", "no line to look at", files={"train.sh": None}).finds("warning", "accelerate.yaml: $MASTER_ADDR"),
    near("ZC013", "a template's words", ("$MASTER_ADDR", "'{{ address }}'")).finds(
        "error", "accelerate.yaml: '{{ address }}'"
    ),
    near("ZC013", "money", ("$MASTER_ADDR", "$5")),
    near("ZC013", "a home folder where no path is wanted", ("$MASTER_ADDR", "~/host")),
    json("ZC013", "a remark", DS % ', "_remark": "$HOME", "//": "$HOME"'),
    json("ZC013", "in a list", DS % ', "tags": ["$HOME"]'),
    json("ZC013", "DeepSpeed's config", DS % ', "dump_path": "${HOME}/x"').finds("warning", 'ds.json: "${HOME}/x"'),
)


@pytest.mark.parametrize("row", rows((*READING, *MISREAD)))
def test_near(row: Near, tmp_path: Path) -> None:
    write(row.example, tmp_path)
    found = lint(tmp_path, row.example.consumer, Selection(select=(row.code,)), facts=row.facts).diagnostics
    assert [without_fix(told(diagnostic, row.example.files)) for diagnostic in found] == list(row.example.expected)
