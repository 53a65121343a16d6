"""What needs no library: reading run folders, reductions, the device, the command's refusals."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from zerocfg.cli.commands.smoke import command
from zerocfg.smoke.launch import process
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import read

if TYPE_CHECKING:
    from .conftest import MakeRun


def change(folder: Path, name: str, **values: Any) -> None:
    content = json.loads((folder / name).read_text())
    content.update(values)
    (folder / name).write_text(json.dumps(content))


def test_reads_what_build_wrote(make_run: MakeRun) -> None:
    run = read(make_run(3))
    assert (run.name, run.consumer, run.changed) == ("tiny", "transformers", {})
    assert run.deepspeed is not None and run.deepspeed["zero_optimization"]["stage"] == 3


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "zerocfg.lock").unlink(), "holds no zerocfg.lock"),
        (lambda folder: (folder / "zerocfg.lock").write_text("{"), "is no zerocfg.lock"),
        (lambda folder: (folder / "zerocfg.lock").write_text("[]"), "has no `version`"),
        (lambda folder: (folder / "zerocfg.lock").write_bytes(b"\xff\xfe"), "is no zerocfg.lock"),
        (lambda folder: change(folder, "zerocfg.lock", version=3), "version 3"),
        (lambda folder: change(folder, "zerocfg.lock", plan=[]), "no mapping 'plan'"),
        (lambda folder: (folder / "ds_config.json").unlink(), "ds_config.json is missing"),
        (lambda folder: (folder / "accelerate.yaml").write_text("a: ["), "accelerate.yaml cannot be read"),
    ],
)
def test_unusable_folders_are_refused(spoil: Any, said: str, make_run: MakeRun) -> None:
    folder = make_run(3)
    spoil(folder)
    with pytest.raises(SmokeError, match=said):
        read(folder)
    result = CliRunner().invoke(command, [str(folder)])
    assert result.exit_code in (1, 2) and said in result.output and "Traceback" not in result.output


def test_the_run_below_is_suggested(make_run: MakeRun) -> None:
    folder = make_run(3)
    with pytest.raises(SmokeError, match=r"did you mean .*tiny\?"):
        read(folder.parent)
    with pytest.raises(SmokeError, match="there is no folder"):
        read(folder / "nothing")


def test_missing_libraries_are_told(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "deepspeed" else real(name))
    result = CliRunner().invoke(command, [str(make_run(3))])
    assert "pip install 'zerocfg[smoke]'" in result.output and "deepspeed is not installed" in result.output


def test_locks_of_a_killed_compilation_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would wait for ever for such a lock, whether it was there before the run or is of a rank of it."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    old, new = tmp_path / "other" / "lock", tmp_path / "py" / "cpu_adam" / "lock"
    for lock in (old, new):
        lock.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (1, 1))
    outcome = process.run(["sh", "-c", f"touch {new}; kill -9 $$"], tmp_path, 1, "cpu", 20)
    assert (outcome.failure or "").startswith("the launcher was killed by signal 9 (SIGKILL)")
    assert not old.exists() and not new.exists()
    assert len(outcome.cleared) == 1 and outcome.cleared[0].startswith(f"removed {old}, left ")


def test_parent_imports_no_training_library() -> None:
    code = "import sys, zerocfg.smoke.smoke\nprint('torch' in sys.modules, 'accelerate' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
