"""Notebooks: their code is read as a script's, the commands among it as launch lines; places are lines of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.report.full import render_full
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.releases import with_versions
from zerocfg.source.launch.notebook import cell_at, environment_of, python_of, shell_of
from zerocfg.source.text import SourceText


def notebook(*cells: str, whole: bool = False) -> str:
    """A notebook with these code cells, a page of text before them. ``whole``: each cell as one string."""
    said: list[dict[str, object]] = [{"cell_type": "markdown", "source": ["!accelerate launch text.py"]}]
    said += [{"cell_type": "code", "source": cell if whole else cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": said, "nbformat": 4}, indent=1)


def source(*cells: str, whole: bool = False) -> SourceText:
    return SourceText("book.ipynb", notebook(*cells, whole=whole))


def runs_of(folder: Path, text: str) -> list[Run]:
    (folder / ".git").mkdir()
    (folder / "book.ipynb").write_text(text, encoding="utf-8")
    return find_runs([folder], Files(), root=folder, scripts=True)[0]


@pytest.mark.parametrize("whole", [False, True])
def test_every_character_knows_its_place(whole: bool) -> None:
    text = source(
        'name = "ä\\t\U0001f600" # "x"\nif 1:\n\tother = 1', "if True:\n    !pip install x\nlast = 2", whole=whole
    )
    code = python_of(text)
    assert len(code.text) == len(code.at)
    for word in ("name", "last", "2"):
        at = code.at[code.text.index(word)]
        assert text.text[at : at + len(word)] == word


def test_a_place_has_its_cell() -> None:
    book = source("a = 1\nb = 2\n", "", "c = 3\nd = '\\u00e4' + e\n")
    for word, expected in (("b = 2", (2, 2)), ("c = 3", (4, 1)), ("+ e", (4, 2)), ("text.py", None)):
        assert cell_at(book, book.text.index(word)) == expected


def test_the_report_names_the_cell(tmp_path: Path) -> None:
    code = "from transformers import TrainingArguments\nargs = TrainingArguments(\n    learning_rtae=1)\n"
    report = render_full(lint_runs(runs_of(tmp_path, notebook("x = 1", code))))
    assert "book.ipynb:" in report
    assert "(cell 3, line 3)\n" in report


def test_output_of_any_size_is_passed_over(tmp_path: Path) -> None:
    """Only what lies in code counts: the rest may hold anything, as long as it is JSON."""
    code = "from transformers import TrainingArguments\nargs = TrainingArguments(learning_rat=1)\n"
    book = json.loads(notebook(code))
    book["cells"][1]["outputs"] = [{"text": ['!accelerate launch no.py {"[\\"]}\n'] * 50_000, "data": {"a": [{}, []]}}]
    text = json.dumps(book)
    assert len(text) > 1 << 20
    assert python_of(SourceText("book.ipynb", text)).text == code
    (run,) = runs_of(tmp_path, text)
    assert run.script is not None
    assert [call.name for call in run.script.calls] == ["transformers.TrainingArguments"]


CELLS = {
    "commands": ("!pip install x\nimport a\n%matplotlib inline\nb = !ls\n", "pass\nimport a\npass\npass\n"),
    "a command over two lines": ("!torchrun \\\n  train.py\nx = 1", "pass\nx = 1\n"),
    "a shell's cell": ("%%bash\nls", ""),
    "a file that is written": ("%%writefile train.py\nimport a", ""),
    "a timed cell": ("%%time\nimport a", "pass\nimport a\n"),
    "no Python": ("lr = <your rate>", ""),
    "nothing": ("", "\n"),
}


@pytest.mark.parametrize("case", CELLS)
def test_code(case: str) -> None:
    cell, expected = CELLS[case]
    assert python_of(source(cell)).text == expected


def test_commands_of_a_shell() -> None:
    book = source(
        "!ls {folder}\n", "%%bash\ntorchrun a.py\n", "%%writefile a.sh\ndeepspeed b.py\n", "%cd x\nprint('!no')"
    )
    assert [one.text.replace("\0", "?") for one in shell_of(book)][1:] == ["torchrun a.py\n"]
    assert "{" not in next(iter(shell_of(book))).text


@pytest.mark.parametrize(
    ("cell", "is_shell"),
    [
        ("# set up\n\npip install transformers==4.40.0\n", True),
        ("CUDA_VISIBLE_DEVICES=0 python train.py --lr 1\n", True),
        ("export A=1\ntorchrun train.py\n", True),
        ("export = 1\nlr = <your rate>\n", False),
        ("python = 3\nprint 'Python 2'\n", False),
        ("pip = [1]\n", False),
        ("lr = 1\npip install transformers==4.40.0\n", False),
    ],
)
def test_a_cell_of_nothing_but_commands(cell: str, is_shell: bool) -> None:
    assert [one.text for one in shell_of(source(cell))] == ([cell] if is_shell else [])


TRAINS = (
    "from transformers import Trainer, TrainingArguments\n"
    "args = TrainingArguments('out', warmup_ratio=0.1)\nTrainer(model=None, args=args).train()\n"
)
REMOVED = ["warmup_ratio"]  # by transformers 5.15.0


@pytest.mark.parametrize(
    ("install", "removed"),
    [
        ("pip install git+https://example.com/transformers.git@bf3f0ae7\n", []),
        ("pip install 'transformers==5.14.0'\n", []),
        ("pip install transformers\n", REMOVED),
        ("pip install wandb\n", REMOVED),
    ],
    ids=["a commit", "the last with it", "any", "not named"],
)
def test_what_such_cells_install_counts_for_what_they_launch(install: str, removed: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    runs = with_versions(runs_of(tmp_path, notebook(install, "accelerate launch --num_processes 2 train.py\n")), {})
    shown = [one for one in lint_runs(runs).diagnostics if one.code == "ZC801"]
    assert [name for name in REMOVED if any(f"`{name}`" in one.message for one in shown)] == removed


def test_magics_that_start_a_program() -> None:
    book = source("%pip install x==1\n", "%matplotlib inline\n%cd x\n%pipe = 3\n")
    assert [one.text for one in shell_of(book)] == ["pip install x==1\n"]


def test_variables_that_cells_set() -> None:
    book = source("import os\nos.environ['RANK'] = '0'\n", "%env WORLD_SIZE=1\n", "print(os.environ['HOME'])")
    assert set(environment_of(book)) >= {"RANK", "WORLD_SIZE"}


def test_code_of_all_cells_is_one_script(tmp_path: Path) -> None:
    text = notebook(
        "from transformers import Trainer, TrainingArguments\n",
        "args = TrainingArguments(\n    'out',\n    logging_steps=\"often\",\n)\n",
        "Trainer(model=None, args=args).train()",
    )
    runs = runs_of(tmp_path, text)
    assert [(run.consumer, run.launch) for run in runs] == [("transformers", None)]
    (one,) = lint_runs(runs).diagnostics
    assert (one.code, one.severity.value, one.fix) == ("ZC802", "error", None)
    assert "logging_steps" in text.splitlines()[one.span.start.line - 1]


def test_a_command_is_a_launch_line(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n")
    runs = runs_of(tmp_path, notebook("!accelerate launch --config_file acc.yaml --num_machines {n} train.py --lr 1\n"))
    (run,) = runs
    assert run.accelerate is not None
    assert run.arguments["lr"].value == "1"
    assert run.flags["num_machines"].value is UNKNOWN


def test_a_quoted_word_ends_behind_its_quote(tmp_path: Path) -> None:
    """However a notebook escapes it."""
    (tmp_path / "acc.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    line = "!accelerate launch --config_file acc.yaml train.py"
    (run,) = runs_of(tmp_path, notebook(f"{line} --report_to 'a' --run_name \"b c\"\nfit()\n"))
    assert run.launch is not None and run.launch_file is not None
    text = run.launch_file.source.text
    words = [text[one.span.start : one.span.end] for one in run.launch.script_options]
    assert words == ["--report_to 'a'", '--run_name \\"b c\\"']


def test_a_file_that_another_cell_may_make_is_not_missing(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, notebook("!accelerate launch --config_file acc.yaml train.py\n"))
    assert run.missing == ()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cells": 1}', '{"cells": [1, {"cell_type": "code"}]}', "TrainingArguments("]
)
def test_what_is_no_notebook_says_nothing(text: str, tmp_path: Path) -> None:
    assert runs_of(tmp_path, text) == []
    assert python_of(SourceText("book.ipynb", text)).text.strip() == ""
