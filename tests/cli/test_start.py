"""How the command starts: fast answers, nothing heavy on the lint road."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from zerocfg import __version__

HEAVY = ("pydantic", "jsonschema", "ruamel", "torch", "deepspeed", "accelerate", "transformers", "rich")


def _python(code: str, *args: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_version_imports_nothing() -> None:
    code = "import sys, runpy; sys.argv = ['zerocfg', '--version']\nfrom zerocfg.__main__ import main\nmain()\n"
    code += "own = [name for name in sys.modules if name.startswith(('click', 'zerocfg.'))]\n"
    code += "print([name for name in own if name not in ('zerocfg.__main__', 'zerocfg.version')])"
    version, modules = _python(code).splitlines()
    assert version == f"zerocfg {__version__}"
    assert modules == "[]"


def test_lint_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}')
    code = (
        "import sys, json\nsys.argv = ['zerocfg', 'lint', '--output-format', 'json', sys.argv[1]]\n"
        "from zerocfg.cli.main import run\ncode = run()\n"
        f"heavy = [name for name in sys.modules if name.split('.')[0] in {HEAVY!r}]\n"
        "heavy += [name for name in sys.modules if name.startswith('zerocfg.models')]\n"
        "print('---'); print(json.dumps([code, heavy]))"
    )
    report, _, tail = _python(code, str(tmp_path)).partition("---\n")
    code_and_heavy = json.loads(tail)
    assert code_and_heavy == [1, []]
    assert any(d["code"] == "ZC101" for d in json.loads(report)["diagnostics"])


def test_lint_defines_no_dataclass(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text("distributed_type: DEEPSPEED\nnum_processes: 2\n")
    (tmp_path / "requirements.txt").write_text("accelerate==0.34.2\n")
    (tmp_path / "run.sh").write_text("accelerate launch --config_file accelerate.yaml train.py --bf16 True\n")
    (tmp_path / "train.py").write_text("from accelerate import Accelerator\nAccelerator()\n")
    code = (
        "import dataclasses, sys\nmade = []\nmake = dataclasses._process_class\n"
        "def seen(cls, *rest):\n"
        "    made.append(cls.__name__) if cls.__module__.startswith('zerocfg') else None\n"
        "    return make(cls, *rest)\n"
        "dataclasses._process_class = seen\nsys.argv = ['zerocfg', 'lint', '-q', sys.argv[1]]\n"
        "from zerocfg.cli.main import run\nrun()\nprint('---', *sorted(made))"
    )
    assert _python(code, str(tmp_path)).partition("---")[2].split() == []


def test_a_lint_of_a_pair_imports_neither_dataclasses_nor_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 2}}')
    code = (
        "import sys\nsys.argv = ['zerocfg', 'lint', sys.argv[1]]\nfrom zerocfg.cli.start_lint import run\nrun()\n"
        "print('---', *sorted({'dataclasses', 'inspect', 'copy', 'ast', 'click', 'yaml'} & sys.modules.keys()))"
    )
    assert _python(code, str(tmp_path)).partition("---")[2].split() == ["yaml"]
