"""An option of the launch line and a section of accelerate's config that differ. Who wins was seen by running the
launchers of 0.34.2, 1.3.0, 1.4.0 and 1.5.0: up to 1.4.0 the variables are the file's, from 1.5.0 on the line's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.linter.engine import Diagnostic, Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

ZERO = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"
FSDP = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  sharding_strategy: NO_SHARD\n"
FP8 = "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: fp8\nfp8_config:\n  fp8_format: E4M3\n"
WINS = "and before accelerate 1.5.0 the file wins"
STAGE = f"--zero_stage 2 has no effect: accelerate.yaml says 3, {WINS}"


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lint(folder: Path, yaml: str, option: str, pin: str | None) -> list[Diagnostic]:
    (folder / ".git").mkdir()
    (folder / "accelerate.yaml").write_text(yaml)
    (folder / "run.sh").write_text(f"accelerate launch --config_file accelerate.yaml {option} train.py\n")
    (folder / "train.py").write_text("from accelerate import Accelerator\nAccelerator()\n")
    if pin is not None:
        (folder / "requirements.txt").write_text(f"accelerate{pin}\n")
    return Job([folder], Settings(), Selection(select=("ZC713", "ZC720")), root=folder).lint().diagnostics


@pytest.mark.parametrize(
    ("yaml", "option", "pin", "said"),
    [
        (ZERO, "--zero_stage 2", "==0.34.2", STAGE),
        (ZERO, "--zero_stage 2", "==1.4.0", STAGE),
        (ZERO, "--zero_stage 2", "<1.5", STAGE),
        (FSDP, "--fsdp_sharding_strategy FULL_SHARD", "==1.3.0", f'says "NO_SHARD", {WINS}'),
        (FP8, "--fp8_format HYBRID", "==1.4.0", f'says "E4M3", {WINS}'),
    ],
)
def test_the_file_wins(yaml: str, option: str, pin: str, said: str, tmp_path: Path) -> None:
    [found] = lint(tmp_path, yaml, option, pin)
    assert (found.code, found.severity.value) == ("ZC720", "warning")
    assert found.message.startswith(option) and found.message.endswith(said)
    assert [place.file.name for place in (found.span, *found.related)] == ["run.sh", "accelerate.yaml"]
    assert found.fix is not None and not found.fix.safe


def test_it_wins_in_some_of_the_releases(tmp_path: Path) -> None:
    [found] = lint(tmp_path, ZERO, "--zero_stage 2", ">=1.3")
    assert (found.code, found.severity.value, found.fix) == ("ZC720", "warning", None)
    assert found.message == f"{STAGE} (before accelerate 1.5.0; requirements.txt:1 admits >=1.3)"


@pytest.mark.parametrize("pin", ["==1.5.0", ">=1.5", None])
def test_the_line_wins(pin: str | None, tmp_path: Path) -> None:
    assert [found.code for found in lint(tmp_path, ZERO, "--zero_stage 2", pin)] == ["ZC713"]


@pytest.mark.parametrize(
    ("yaml", "option", "pin"),
    [
        (ZERO, "--zero_stage 3", "==1.4.0"),  # both say the same
        (ZERO.replace("3", "'3'"), "--zero_stage 3", "==1.4.0"),
        (ZERO, "--zero_stage $STAGE", "==1.4.0"),
        (ZERO, "--num_processes 4", "==1.4.0"),  # of what stands in no section the line wins
        (ZERO, "--gradient_clipping 1.0", "==1.4.0"),
        (FP8, "--fp8_format HYBRID", "==1.3.0"),  # 1.4.0 is the first to take anything of this section
        (FP8, "--fp8_format HYBRID", ">=1.3,<1.5"),
        (ZERO.replace("DEEPSPEED", "FSDP"), "--zero_stage 2", "==1.4.0"),  # no DeepSpeed
    ],
)
def test_nothing_is_lost(yaml: str, option: str, pin: str, tmp_path: Path) -> None:
    assert lint(tmp_path, yaml, option, pin) == []
