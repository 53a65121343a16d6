"""``zerocfg migrate`` in notebooks, and in config dicts of scripts and notebooks."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from tests.cli.test_migrate import left, migrated

Cli = Callable[..., Outcome]
IMPORTS = "from transformers import Trainer, TrainingArguments\n"
TRAIN = "Trainer(model, args).train()\n"


def notebook(*cells: str, whole: bool = False, **how: Any) -> str:
    """A notebook as Jupyter writes it: every line of a cell a string of its own, or all of it one."""
    made: list[dict[str, Any]] = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Größe \u20ac\n", "warmup_ratio=1"]}
    ]
    for cell in cells:
        source: Any = cell if whole else cell.splitlines(keepends=True)
        made.append({"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": source})
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, **how) + "\n"


def code_of(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


CALL = (
    "!pip install transformers\nargs = TrainingArguments(\n"
    '    "out", evaluation_strategy="steps",  # "größer"\n'
    "    group_by_length=True, warmup_ratio = 0.1,\n"
    "    overwrite_output_dir=True,\n"
    "    save_strategy='no', use_mps_device=False)\n"
)
AFTER = (
    "!pip install transformers\nargs = TrainingArguments(\n"
    '    "out", eval_strategy="steps",  # "größer"\n'
    '    train_sampling_strategy="group_by_length", warmup_steps = 0.1,\n'
    "    save_strategy='no')\n"
)


@pytest.mark.parametrize("how", [{"indent": 1}, {"indent": 1, "ensure_ascii": False}, {"separators": (",", ":")}, {}])
@pytest.mark.parametrize("whole", [False, True])
def test_calls_in_a_notebook(zerocfg: Cli, tmp_path: Path, whole: bool, how: dict[str, Any]) -> None:
    text = notebook(IMPORTS, CALL, TRAIN, whole=whole, **how)
    after = migrated(zerocfg, tmp_path, {"train.ipynb": text})["train.ipynb"]
    before = json.loads(text)
    assert code_of(after)[1:] == [IMPORTS, AFTER, TRAIN]
    now = json.loads(after)
    assert [one for at, one in enumerate(now["cells"]) if at != 2] == [
        one for at, one in enumerate(before["cells"]) if at != 2
    ]
    assert not [line for line in now["cells"][2]["source"] if not line]
    # all but the changed strings is as it was, byte for byte
    kept = [line for line in text.splitlines() if "=" not in line.replace("warmup_ratio=1", "")]
    assert [line for line in after.splitlines() if line in kept] == kept
    assert left(zerocfg) == []


def test_what_a_notebook_leaves_to_a_person(zerocfg: Cli, tmp_path: Path) -> None:
    text = notebook(IMPORTS, "args = TrainingArguments('o', logging_dir='logs')\n", TRAIN, indent=1)
    assert migrated(zerocfg, tmp_path, {"train.ipynb": text})["train.ipynb"] == text
    assert ["TENSORBOARD_LOGGING_DIR" in why for _, why in left(zerocfg)] == [True]


def config_of(text: str) -> Any:
    """The dict that a program assigns to `config`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "config":
            return ast.literal_eval(node.value)
    raise AssertionError(text)


LOOP = "import deepspeed\nconfig = {%s}\nengine, *_ = deepspeed.initialize(model=model, config=config)\n"
ONE_LINE = '"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}'
LINES = (
    "\n    'train_micro_batch_size_per_gpu': 1,  # größer\n    'bf16': {'enabled': True,},\n"
    "    'zero_optimization': {\n        'stage': 2,\n    },\n    'elasticity': {'enabled': False}\n"
)
MEANT = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True, "check_grad_overflow": False},
    "zero_optimization": {"stage": 2},
    "gradient_clipping": 0.0,
}
FROM = ("--from", "deepspeed==0.17.6")


@pytest.mark.parametrize(
    "inside", [ONE_LINE, ONE_LINE + ', "elasticity": {"enabled": False}', LINES, LINES[:-1] + ",\n"]
)
def test_a_config_dict(zerocfg: Cli, tmp_path: Path, inside: str) -> None:
    after = migrated(zerocfg, tmp_path, {"train.py": LOOP % inside}, *FROM)["train.py"]
    assert config_of(after) == MEANT
    assert "# größer" in after or "größer" not in inside
    assert left(zerocfg, *FROM) == []


def test_the_lines_of_a_config_dict_keep_their_form(zerocfg: Cli, tmp_path: Path) -> None:
    after = migrated(zerocfg, tmp_path, {"train.py": (LOOP % LINES).replace("\n", "\r\n")}, *FROM)["train.py"]
    wanted = LINES.replace("'enabled': True,}", "'enabled': True, \"check_grad_overflow\": False,}").replace(
        "    },\n    'elasticity': {'enabled': False}", '    },\n    "gradient_clipping": 0.0,'
    )
    assert after == (LOOP % wanted).replace("\n", "\r\n")


def test_a_config_dict_of_a_notebook(zerocfg: Cli, tmp_path: Path) -> None:
    text = notebook(LOOP % LINES, indent=1)
    after = migrated(zerocfg, tmp_path, {"train.ipynb": text}, *FROM)["train.ipynb"]
    assert config_of(code_of(after)[1]) == MEANT


def test_what_a_program_works_out_is_left(zerocfg: Cli, tmp_path: Path) -> None:
    script = LOOP.replace("config = ", "steps = 0\nconfig = ") % (
        ONE_LINE.replace("True}", "True, 'check_grad_overflow': False}")
        + ', "gradient_clipping": 1.0, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": steps}}'
    )
    after = migrated(zerocfg, tmp_path, {"train.py": script}, *FROM)["train.py"]
    assert after == script
    assert ["warmup_num_steps" in why for _, why in left(zerocfg, *FROM)] == [True]


def test_a_dict_that_the_program_changes_keeps_its_defaults_to_itself(zerocfg: Cli, tmp_path: Path) -> None:
    script = (LOOP % ONE_LINE).replace("engine", "config['gradient_clipping'] = clip\nengine", 1)
    assert migrated(zerocfg, tmp_path, {"train.py": script}, *FROM)["train.py"] == script
