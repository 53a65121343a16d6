"""Configs that a page shows, or that a cell of a notebook writes, and that a line beside them reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run

BODY = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}, "fp16": {"enabled": 1}}'
LINE = "```bash\ndeepspeed train.py --deepspeed_config ds_config.json\n```\n"
FENCE = f"```json\n{BODY}\n```\n"

SHOWN = {
    "in the line above": f"Create `ds_config.json`:\n\n{FENCE}\n{LINE}",
    "after the line": f"{LINE}\nwhere `ds_config.json` is\n{FENCE}",
    "as a heading": f"### ds_config.json\n{FENCE}\n{LINE}",
    "in the line that opens it": f'```json title="ds_config.json"\n{BODY}\n```\n{LINE}',
    "in a comment": f"```jsonc\n// ds_config.json\n{BODY}\n```\n{LINE}",
    "beside another name": f"First make the `config.json`, that is `ds_config.json`:\n{FENCE}\n{LINE}",
    "in a folder": f"Save this as `ds_config.json`\n{FENCE}\n{LINE.replace('ds_config', 'conf/ds_config')}",
    "in a list": f"1. `ds_config.json`:\n\n   ```json\n   {BODY}\n   ```\n{LINE}",
}
PASSED_OVER = {
    "no name": f"A config:\n{FENCE}\n{LINE}",
    "another name": f"Save it as `other.json`\n{FENCE}\n{LINE}",
    "further above": f"Create `ds_config.json`.\n\nIt may hold this:\n{FENCE}\n{LINE}",
    "a part": 'Edit `ds_config.json`:\n```json\n{"zero_optimisation": {"stage": 2}}\n```\n' + LINE,
    "cut short": f"`ds_config.json`:\n```json\n{BODY[:-1]}, ...}}\n```\n{LINE}",
    "an inner part": '`ds_config.json`:\n```json\n{"zero_optimisation": {"stage": 1}, "optimizer": {}}\n```\n' + LINE,
    "no JSON": f'`ds_config.json`:\n```json\n"zero": {BODY}\n```\n{LINE}',
    "quoted": f"> `ds_config.json`:\n> ```json\n> {BODY}\n> ```\n{LINE}",
    "twice": f"`ds_config.json`:\n{FENCE}\nor, `ds_config.json`:\n{FENCE.replace('4', '8')}\n{LINE}",
    "no line that reads it": f"`ds_config.json`:\n{FENCE}\n```bash\ndeepspeed train.py --deepspeed_config x.json\n```",
    "the end of another name": f"`my_ds_config.json`:\n{FENCE}\n{LINE}",
}


def runs_of(folder: Path, name: str, text: str) -> list[Run]:
    (folder / ".git").mkdir()
    (folder / name).write_text(text, encoding="utf-8")
    return find_runs([folder], Files(), root=folder, scripts=True)[0]


@pytest.mark.parametrize("case", SHOWN)
def test_a_config_that_a_page_shows_is_read(case: str, tmp_path: Path) -> None:
    text = SHOWN[case]
    (run,) = runs_of(tmp_path, "README.md", text)
    assert run.deepspeed is not None
    assert run.deepspeed.data() == json.loads(BODY)
    (found,) = (one for one in lint_runs([run]).diagnostics if one.code == "ZC102")
    assert found.span.path == "zero_optimisation"
    assert found.span.file.name.endswith("README.md")
    before = text[: text.index('"zero_optimisation"')]
    assert found.span.start == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert found.fix is None


@pytest.mark.parametrize("case", PASSED_OVER)
def test_what_may_be_something_else_is_passed_over(case: str, tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "README.md", PASSED_OVER[case])
    assert [run.deepspeed for run in runs if run.deepspeed is not None] == []
    assert [one for one in lint_runs(runs).diagnostics if one.code.startswith("ZC1")] == []


def test_a_file_that_is_there_counts_in_place_of_what_is_shown(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": 3}', encoding="utf-8")
    (run,) = runs_of(tmp_path, "README.md", SHOWN["in the line above"])
    assert run.deepspeed is not None
    assert run.deepspeed.data() == {"train_batch_size": 3}


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precison: bf16\n"


@pytest.mark.parametrize(
    ("cut", "read"),
    [
        pytest.param("", True, id="as accelerate writes it"),
        pytest.param("compute_environment: LOCAL_MACHINE\n", False, id="key fields"),
    ],
)
def test_an_accelerate_config(cut: str, read: bool, tmp_path: Path) -> None:
    body = ACCELERATE.replace(cut, "")
    page = f"Save `acc.yaml`:\n```yaml\n{body}```\n```bash\naccelerate launch --config_file acc.yaml train.py\n```\n"
    (run,) = runs_of(tmp_path, "README.md", page)
    assert (run.accelerate is not None) is read
    found = [one.code for one in lint_runs([run]).diagnostics if one.span.path == "mixed_precison"]
    assert found == (["ZC101"] if read else [])


def test_blocks_of_a_page_are_one_text(tmp_path: Path) -> None:
    page = f"```bash\ncat > ds_config.json << EOF\n{BODY}\nEOF\n```\nThen\n{LINE}"
    (run,) = runs_of(tmp_path, "README.md", page)
    assert run.deepspeed is not None
    assert run.deepspeed.data() == json.loads(BODY)


def test_blocks_of_a_page_may_be_alternatives(tmp_path: Path) -> None:
    one = f"```bash\ncat > ds_config.json << EOF\n{BODY}\nEOF\n```\n"
    runs = runs_of(tmp_path, "README.md", one + "or\n" + one.replace("4", "8") + LINE)
    assert {run.parts for run in runs if run.deepspeed is not None} == {True}


def notebook(*cells: str) -> str:
    said = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": said, "nbformat": 4}, indent=1)


WRITES = f"%%writefile ds_config.json\n{BODY}\n"
STARTS = "!deepspeed train.py --deepspeed_config ds_config.json"
CELLS = {
    "a command": (WRITES, STARTS),
    "a shell's cell": (WRITES, "%%bash\n" + STARTS[1:]),
    "an older name of the magic": (WRITES.replace("%%writefile", "%%file"), STARTS),
    "a cell that writes another": (WRITES, "%%writefile other.json\n{}", STARTS),
    "written twice": (WRITES.replace("4", "8"), WRITES, STARTS),
    "written by a shell": (f"%%bash\ncat > ds_config.json << EOF\n{BODY}\nEOF", STARTS),
    "an argument in Python": (
        WRITES,
        "from transformers import TrainingArguments\nTrainingArguments('out', deepspeed='ds_config.json')",
    ),
}
OPEN_CELLS = {
    "written afterwards": (STARTS, WRITES),
    "added to": (WRITES, "%%writefile -a ds_config.json\n{}", STARTS),
    "written again by code": (WRITES, "json.dump(config, open('ds_config.json', 'w'))", STARTS),
    "changed by a command": (WRITES, "!sed -i s/4/8/ ds_config.json", STARTS),
}


@pytest.mark.parametrize("case", CELLS)
def test_a_config_that_a_cell_writes_is_read(case: str, tmp_path: Path) -> None:
    text = notebook(*CELLS[case])
    (run,) = (one for one in runs_of(tmp_path, "book.ipynb", text) if one.deepspeed is not None)
    assert run.deepspeed is not None
    assert run.deepspeed.data() == json.loads(BODY)
    (found,) = (one for one in lint_runs([run]).diagnostics if one.code == "ZC102")
    before = text[: text.rindex("zero_optimisation") - 2]
    assert found.span.start == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert found.fix is None


@pytest.mark.parametrize("case", OPEN_CELLS)
def test_what_nobody_can_tell_is_left_open(case: str, tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "book.ipynb", notebook(*OPEN_CELLS[case]))
    assert [run.deepspeed for run in runs if run.deepspeed is not None] == []


SHARDED = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\n"
    "fsdp_config:\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
)
TRAINS = "accelerate launch --config_file acc.yaml train.py --output_dir out --save_strategy epoch --do_train True\n"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        pytest.param("README.md", f"`acc.yaml`:\n```yaml\n{SHARDED}```\n```sh\n{TRAINS}```\n", 0, id="a page"),
        pytest.param("run.sh", f"cat > acc.yaml << EOF\n{SHARDED}EOF\n{TRAINS}", 1, id="a script"),
    ],
)
def test_how_a_script_saves_is_open_where_a_page_speaks_of_it(name: str, text: str, told: int, tmp_path: Path) -> None:
    """The script may choose the kind of state dict before it saves, as PEFT's own example does."""
    (run,) = runs_of(tmp_path, name, text)
    assert run.accelerate is not None
    assert [one.code for one in lint_runs([run]).diagnostics if one.code == "ZC607"] == ["ZC607"] * told
