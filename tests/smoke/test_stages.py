"""A run that is ended in any of its stages leaves a certificate of what was proven up to there, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.launch import process
from zerocfg.smoke.smoke import Options, smoke

from . import standin
from .conftest import MODEL

if TYPE_CHECKING:
    from .conftest import MakeRun

pytestmark = [
    pytest.mark.libs,
    pytest.mark.several_ranks,
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="ranks are found by /proc"),
]
STAGES = (
    "model",
    "init",
    "step 1",
    "step 2 done",
    "save",
    "read back",
    "resume",
    "checkpoint: step 1",
    "reference: init",
)
"""Of a run of two ranks and three steps, in their order."""
STAGE = "ZEROCFG_TEST_STAGE"
SET_UP = "ZeRO-3 is set up in bf16 on 2 ranks of a processor"
TRAINED = "ZeRO-3 trains 3 optimizer steps in bf16 on 2 ranks of a processor, and the loss falls"
SAVED = "saved weights are complete and equal those of the live model"
RESUMED = "a checkpoint resumes with the same next loss"
HOLD = '''

_phase = Report.phase

def _held(self, name):
    """Wait in one stage, or find no memory there: for a test."""
    import time
    from pathlib import Path
    _phase(self, name)
    stage, fault = os.environ["ZEROCFG_TEST_STAGE"].split("/")
    if name == stage and fault == "memory" and self.rank == 1:
        import torch
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    while name == stage and fault == "wait" and self.path.with_name("hold").exists():
        time.sleep(0.02)

Report.phase = _held
'''


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder of scratch folders. Nothing may be left there, nor a process of a run."""
    folder = Path(tempfile.mkdtemp(prefix="zc-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(process, "PATIENCE", 5.0)
    real = process.program

    def program(scratch: Path) -> Path:
        made = real(scratch)
        report = made / process.PROGRAM / "report.py"
        report.write_text(report.read_text() + HOLD)
        (scratch / "reports").mkdir(exist_ok=True)
        (scratch / "reports" / "hold").touch()
        return made

    monkeypatch.setattr(process, "program", program)
    monkeypatch.setenv(STAGE, "")
    yield folder
    assert [path.name for path in folder.iterdir() if path.name != "mount"] == []
    assert standin.processes(str(folder)) == []
    assert standin.guards(str(folder)) == []


def play(folder: Path, at: str, fault: str, strike: Callable[[Path], None] = lambda scratch: None) -> dict[str, Any]:
    """The certificate of the run, in whose stage ``at`` the fault happens: ``strike`` is called when all ranks are
    there, with the scratch folder."""
    os.environ[STAGE] = f"{at}/{fault}"
    struck: list[str] = []

    def progress(phase: str) -> None:
        if struck or phase != at or fault != "wait":
            return
        scratch = next(path for path in Path(tempfile.gettempdir()).rglob("reports") if path.is_dir()).parent
        standin.until(lambda: all(standin.report(scratch, rank).get("phase") == at for rank in alike(at)))
        struck.append(at)
        strike(scratch)

    verdict = smoke(folder, Options(ranks=2, device="cpu", steps=3, limit=200), progress)
    assert fault != "wait" or struck, (verdict.outcome.failure, verdict.outcome.detail)
    found: dict[str, Any] = json.loads((folder / "smoke.json").read_text())
    return found


def alike(stage: str) -> tuple[int, ...]:
    """The ranks that come to a stage while rank 0 is in it: in the others they wait for it in a collective."""
    return (0,) if stage in ("read back", "checkpoint: step 1", "reference: init") else (0, 1)


def assert_proven(found: dict[str, Any], stage: str) -> None:
    """What every certificate holds, and the statements of what came before the stage."""
    assert {"torch", "deepspeed", "accelerate", "transformers", "python"} <= set(found["versions"])
    assert {"ds_config.json", "accelerate.yaml", "zerocfg.lock"} <= set(found["files"])
    assert found["device"]["kind"] == "cpu" and found["ranks"] == 2
    proven, at = found["proven"], STAGES.index(stage)
    assert (SET_UP in proven) == (stage == "step 1"), proven
    assert ("ZeRO-3 trains 2 optimizer steps in bf16 on 2 ranks of a processor" in proven) == (stage == "step 2 done")
    assert (TRAINED in proven) == (at >= STAGES.index("save")), proven
    assert any(words.startswith(SAVED) for words in proven) == (at > STAGES.index("read back")), proven
    assert (RESUMED in proven) == (stage == "reference: init"), proven
    if stage in ("model", "init"):
        assert proven == []


@pytest.mark.parametrize("stage", STAGES)
def test_asked_to_end(make_run: MakeRun, stage: str) -> None:
    """SIGTERM, as a scheduler sends it before it kills."""
    found = play(make_run(3), stage, "wait", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert (found["verdict"], found["failure"]["message"]) == ("failed", "interrupted")
    assert found["failure"]["stage"] == stage
    assert_proven(found, stage)


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_is_killed(make_run: MakeRun, stage: str) -> None:
    """Of what only compares, nothing that was proven before is taken away: the run has passed."""

    def kill(scratch: Path) -> None:
        os.kill(standin.report(scratch, 1)["pid"], signal.SIGKILL)

    found = play(make_run(3), stage, "wait", kill)
    assert_proven(found, stage)
    if STAGES.index(stage) <= STAGES.index("read back"):
        assert found["verdict"] == "failed"
        assert found["failure"]["message"].startswith("rank 1 was killed by signal 9 (SIGKILL) in '")
        assert found["failure"]["rank"] == 1
    else:
        assert found["verdict"] == "passed" and found["failure"] is None
        rows = {row["name"]: row for row in found["checks"]}
        name = "loss as under ZeRO-0" if stage == "reference: init" else "resumes from a checkpoint"
        assert rows[name]["ok"] is None and "signal 9 (SIGKILL)" in rows[name]["seen"], rows[name]


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in ("read back", "resume")])
def test_a_rank_finds_no_memory(make_run: MakeRun, stage: str) -> None:
    """In all stages in which rank 1 does something."""
    found = play(make_run(3), stage, "memory")
    if STAGES.index(stage) <= STAGES.index("save"):
        assert_proven(found, stage)
        assert found["verdict"] == "failed" and found["failure"]["stage"] == stage
        where = "out of the card's memory in"
        assert found["failure"]["message"] == (
            f"{where} '{stage}': OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        )
    else:
        assert found["verdict"] == "passed", found["failure"]
        rows = {row["name"]: row for row in found["checks"]}
        name = "loss as under ZeRO-0" if stage == "reference: init" else "resumes from a checkpoint"
        assert rows[name]["ok"] is None and "OutOfMemoryError: CUDA out of memory" in rows[name]["seen"]


@pytest.mark.parametrize("stage", ["init", "step 1", "save"])
def test_the_disk_is_full(make_run: MakeRun, stage: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From whatever stage on, the training itself needs no disk: the weights cannot be saved."""
    place = temporary / "mount"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system")
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def fill(scratch: Path) -> None:
        filler = os.open(place / "filler", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(filler, bytes(1 << 12)):
                pass
        os.close(filler)
        (scratch / "reports" / "hold").unlink()

    try:
        large = MODEL | {"vocab_size": 20_000}  # more than what is set aside for the last words of a rank
        run = make_run(3, model={"config": large, "facts": {"parameters": 2_600_000}})
        found = play(run, stage, "wait", fill)
        (place / "filler").unlink(missing_ok=True)
        assert [path.name for path in place.iterdir()] == []
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()
    assert found["verdict"] == "failed" and found["failure"]["stage"] == "save", found["failure"]
    assert {"torch", "deepspeed"} <= set(found["versions"]) and "zerocfg.lock" in found["files"]
    assert TRAINED in found["proven"], found["proven"]


def test_an_interrupted_run_takes_no_certificate_away(make_run: MakeRun) -> None:
    """One that passed, of the same build, stays; of another build it proves nothing and is replaced."""
    folder = make_run(3)
    assert play(folder, "nowhere", "none")["verdict"] == "passed"
    before = (folder / "smoke.json").read_bytes()
    play(folder, "init", "wait", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert (folder / "smoke.json").read_bytes() == before
    lock = json.loads((folder / "zerocfg.lock").read_text())
    (folder / "zerocfg.lock").write_text(json.dumps(lock | {"recipe": lock["recipe"] | {"learning_rate": 0.02}}))
    found = play(folder, "init", "wait", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert found["failure"]["message"] == "interrupted"
