"""Imports of a repository's own modules, against Python, which starts the script."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.rules.examples import lint
from zerocfg.rules.api import Severity

if TYPE_CHECKING:
    from pathlib import Path

LINE = "torchrun --nproc_per_node 2 train.py --evaluation_strategy no --output_dir out\n"
TRAINS = "\nfrom transformers import TrainingArguments\nTrainingArguments('out', evaluation_strategy='no')\n"
FINE = [
    ("from options import parser", {"options.py": "def parser(): ...\n"}),
    ("from options import parser", {"options.py": "parser = 3\n"}),
    ("from options import parser", {"options.py": "import json as parser\n"}),
    ("from options import parser", {"options.py": "for parser in (1, 2): ...\n"}),
    ("from options import parser", {"options.py": "if True:\n    parser: int = 1\n"}),
    ("from options import parser", {"options.py": "def make():\n    global parser\n    parser = 1\nmake()\n"}),
    ("from options import parser", {"options.py": "from more import *\n", "more.py": "parser = 1\n"}),
    ("from options import parser", {"options.py": "def __getattr__(name):\n    return 1\n"}),
    ("from options import parser", {"options.py": "globals()['par' + 'ser'] = 1\n"}),
    ("from options import parser", {"options/__init__.py": "", "options/parser.py": ""}),
    ("from options import parser", {"options/__init__.py": "", "options/parser/one.py": ""}),
    ("import options.parser", {"options/__init__.py": "", "options/parser.py": ""}),
    ("from options.parser import one", {"options/parser.py": "one = 1\n"}),
    ("try:\n    from options import parser\nexcept ImportError:\n    pass", {"options.py": ""}),
    ("def late():\n    from options import parser", {"options.py": ""}),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from options import parser", {"options.py": ""}),
    ("import json", {"json_files/__init__.py": ""}),
]
BROKEN = [
    ("from options import parser", {"options.py": "def parsers(): ...\n"}, "error", "options.py has no `parser`"),
    ("from options import parser", {"options.py": "'''Has a parser.'''\n"}, "error", "options.py has no `parser`"),
    ("from options import parser", {"options.py": "print('parser')\n"}, "error", "options.py has no `parser`"),
    (
        "from options import (\n    one,\n    parser,\n)",
        {"options.py": "one = 1\n"},
        "error",
        "options.py has no `parser`",
    ),
    (
        "from inner import one\none()",
        {"inner.py": "from options import parser\ndef one(): ...\n", "options.py": ""},
        "error",
        "options.py has no `parser`",
    ),
    (
        "from options import parser",
        {"options/__init__.py": "", "options/other.py": ""},
        "error",
        "options/__init__.py has no `parser`",
    ),
    (
        "from options.parser import one",
        {"options/__init__.py": "", "options/other.py": ""},
        "warning",
        "no module `options.parser`",
    ),
    ("import src.model", {"src/data.py": ""}, "warning", "no module `src.model`"),
]


def stops(folder: Path, files: dict[str, str], line: str) -> bool:
    """Whether Python stops at the import, of a script that is nothing else; then it trains as well."""
    for name, text in {**files, "train.py": line, "train.sh": LINE}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run([sys.executable, "-B", "train.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr, done.stderr
    (folder / "train.py").write_text(line + TRAINS)
    return done.returncode != 0


@pytest.mark.parametrize(("line", "files"), FINE)
def test_what_python_imports(tmp_path: Path, line: str, files: dict[str, str]) -> None:
    assert not stops(tmp_path, files, line)
    found = lint(tmp_path, None).diagnostics
    assert [one for one in found if one.code == "ZC880"] == []
    assert {one.severity for one in found if one.code == "ZC801"} == {Severity.WARNING}


@pytest.mark.parametrize(("line", "files", "severity", "said"), BROKEN)
def test_what_python_does_not_import(
    tmp_path: Path, line: str, files: dict[str, str], severity: str, said: str
) -> None:
    assert stops(tmp_path, files, line)
    found = lint(tmp_path, None).diagnostics
    (told,) = [one for one in found if one.code == "ZC880"]
    assert told.severity.value == severity
    assert said in told.message
    assert {one.severity for one in found if one.code == "ZC801"} == {Severity.NOTE}


def test_a_module_that_git_leaves_out(tmp_path: Path) -> None:
    files = {"options/__init__.py": "", ".gitignore": "# made\n/options/parser/\n"}
    assert stops(tmp_path, files, "from options.parser import one")
    assert "ZC880" not in {one.code for one in lint(tmp_path, None).diagnostics}


def test_another_run_that_gets_there_is_told(tmp_path: Path) -> None:
    """Two scripts read one config; what is wrong with it counts for the one that starts."""
    files = {"options.py": "", "ds.json": '{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}\n'}
    trains = "import deepspeed\nimport argparse\ndeepspeed.initialize(config='ds.json')\n"
    for name, text in {**files, "a.py": "from options import parser\n" + trains}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "a.sh").write_text("deepspeed a.py --deepspeed --deepspeed_config ds.json\n")
    (only,) = [one for one in lint(tmp_path, None).diagnostics if one.code == "ZC102"]
    assert only.severity is Severity.NOTE
    (tmp_path / "b.py").write_text(trains)
    (tmp_path / "b.sh").write_text("deepspeed b.py --deepspeed --deepspeed_config ds.json\n")
    (only,) = [one for one in lint(tmp_path, None).diagnostics if one.code == "ZC102"]
    assert only.severity is not Severity.NOTE
