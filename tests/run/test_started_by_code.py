"""Launch lines that Python code starts: literal lists of words, literal texts for a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText

LINE = "accelerate launch --num_processes 2 train.py --lr 1"
CASES = {
    "a list": f"import subprocess\nsubprocess.run({LINE.split()!r})\n",
    "a tuple": f"import subprocess\nsubprocess.Popen({tuple(LINE.split())!r}, env=e)\n",
    "a text for a shell": f"import subprocess\nsubprocess.check_call('{LINE}', shell=True)\n",
    "os.system": f"import os\r\ndef go():\r\n    os.system('cd x && {LINE}')  # ä\r\n",
    "after other letters": f"import os\nprint('ä'); os.system('{LINE}')\n",
}


@pytest.mark.parametrize("case", CASES)
def test_lines(case: str) -> None:
    source = SourceText("go.py", CASES[case])
    (line,) = read_launch_lines(source).lines
    assert line.launcher == "accelerate"
    assert line.script is not None
    assert line.script.value == "train.py"
    assert source.text[line.script.span.start : line.script.span.end].strip("'") == "train.py"
    assert [one.name for one in line.options] == ["--num_processes"]
    assert [one.name for one in line.script_options] == ["--lr"]


NONE = {
    "a text that no shell reads": f"import subprocess\nsubprocess.run('{LINE}')\n",
    "another function": f"import subprocess\nlog({LINE.split()!r})\n",
    "put together": "import os\nos.system(f'accelerate launch {name}')\n",
    "nothing": "import subprocess\nsubprocess.run([])\nsubprocess.run()\n# torchrun\n",
    "no Python": "import subprocess\nsubprocess.run(['torchrun', 'a.py'\n",
}


@pytest.mark.parametrize("case", NONE)
def test_no_lines(case: str) -> None:
    assert read_launch_lines(SourceText("go.py", NONE[case])).lines == []


def runs_of(folder: Path, code: str) -> list[Run]:
    (folder / ".git").mkdir()
    (folder / "go.py").write_text(code)
    return find_runs([folder], Files(), root=folder, scripts=True)[0]


def test_what_the_code_puts_in_is_unknown(tmp_path: Path) -> None:
    code = "import subprocess\nsubprocess.run(['accelerate', 'launch', '--num_machines', str(n), 'train.py'])\n"
    (run,) = runs_of(tmp_path, code)
    assert run.flags["num_machines"].value is UNKNOWN


def test_the_run_is_linted_and_not_edited(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from accelerate import Accelerator\nAccelerator()\n")
    code = "import subprocess\nsubprocess.run(['accelerate', 'launch', '--mixed_precision', 'bfloat16', 'train.py'])\n"
    (one,) = lint_runs(runs_of(tmp_path, code)).diagnostics
    assert (one.code, one.severity.value, one.span.file.name.endswith("go.py")) == ("ZC711", "error", True)
    assert one.fix is None


def test_a_file_that_the_code_may_write_is_not_missing(tmp_path: Path) -> None:
    code = "import os\nos.system('accelerate launch --config_file acc.yaml train.py')\n"
    (run,) = runs_of(tmp_path, code)
    assert run.missing == ()
