"""What Slurm's programs print, as 22.05 printed it here, and the script that is submitted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.cluster.job import AwayError, ClusterError, Job, State, Task, TaskState
from zerocfg.cluster.slurm import Slurm, _facts, _numbers, _state, render

LINE = (
    "JobId=3 ArrayJobId=2 ArrayTaskId=0 JobName=t.sh UserId=root(0) Priority=4294901758 Nice=0 Account=(null) "
    "JobState={state} Reason={reason} Dependency=(null) ExitCode={code} RunTime=00:00:01 NodeList=n[1-2] BatchHost=n1 "
    "NtasksPerN:B:S:C=1:0:*:* Command=/tmp/t.sh"
)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", [0]), ("0-2,5", [0, 1, 2, 5]), ("1-3%2", [1, 2, 3]), ("4-99", [4, 5]), ("", []), ("7", []), ("a-b", [])],
)
def test_numbers_of_tasks(text: str, numbers: list[int]) -> None:
    assert _numbers(text, 6) == numbers


@pytest.mark.parametrize(
    ("state", "reason", "code", "found"),
    [
        ("PENDING", "Resources", "0:0", TaskState(State.QUEUED, "Resources", "n[1-2]")),
        ("PENDING", "None", "0:0", TaskState(State.QUEUED, "", "n[1-2]")),
        ("CONFIGURING", "None", "0:0", TaskState(State.STARTING, "", "n[1-2]")),
        ("RUNNING", "None", "0:0", TaskState(State.RUNNING, "", "n[1-2]")),
        ("COMPLETED", "None", "0:0", TaskState(State.ENDED, "", "n[1-2]")),
        ("CANCELLED", "None", "0:15", TaskState(State.CANCELLED, "", "n[1-2]")),
        ("FAILED", "NonZeroExitCode", "3:0", TaskState(State.FAILED, "failed, exit code 3:0", "n[1-2]")),
        ("NODE_FAIL", "None", "0:0", TaskState(State.FAILED, "a node failed", "n[1-2]")),
        ("TIMEOUT", "TimeLimit", "0:15", TaskState(State.FAILED, "the time limit of the job is over", "n[1-2]")),
        ("LAUNCH_FAILED", "None", "0:0", TaskState(State.FAILED, "launch_failed", "n[1-2]")),
    ],
)
def test_states(state: str, reason: str, code: str, found: TaskState) -> None:
    assert _state(_facts(LINE.format(state=state, reason=reason, code=code))) == found


JOB = Job(
    "zerocfg-smoke",
    2,
    (Task("a", ("module", '{"x": "it\'s"}')), Task("b", ("module", "two"))),
    {"runs/a/file": b"\0\xff"},
    90,
    cards=4,
    options=("--partition=gpu", "--time=1"),
    setup=("source ~/venv/bin/activate",),
)


def test_the_script(tmp_path: Path) -> None:
    text = render(JOB, tmp_path, "abc", "/usr/bin/python3")
    options = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
    assert options == [
        "--job-name=zerocfg-smoke",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--array=0-1",
        "--time=7",  # 90 s and 5 minutes for the start, in whole minutes
        "--output=/dev/null",
        "--no-requeue",
        "--gpus-per-node=4",
        "--partition=gpu",
        "--time=1",
    ]
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    assert shellcheck is not None
    # SC1091: the setup's own file is not here; SC2317: the function runs on the nodes, by its text.
    words = [shellcheck, "--shell=bash", "--exclude=SC1091,SC1090,SC2317", "-"]
    done = subprocess.run(words, input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for Slurm's programs, each of which a test replaces as it needs it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "scontrol", "srun", "scancel"):
        stand_in(folder, name, "exit 0")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="sbatch is not on the PATH"):
        Slurm()


def test_a_job_that_slurm_refuses(programs: Path, tmp_path: Path) -> None:
    stand_in(programs, "sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    with pytest.raises(ClusterError, match=r"^Slurm takes no such job: invalid partition specified: gpu$"):
        Slurm().submit(JOB, tmp_path)


def test_the_identity_without_the_name_of_a_cluster(programs: Path, tmp_path: Path) -> None:
    stand_in(programs, "sbatch", "echo '4711;cluster2'")
    assert Slurm().submit(JOB, tmp_path) == "4711"


def test_variables_for_sbatch_do_not_count(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    stand_in(programs, "sbatch", "echo ${SBATCH_PARTITION:-none}")
    assert Slurm().submit(JOB, tmp_path) == "none"


def test_a_controller_that_does_not_answer(programs: Path) -> None:
    stand_in(programs, "scontrol", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(AwayError, match="Unable to contact slurm controller"):
        Slurm().states("7", 1)


def test_a_job_that_slurm_has_forgotten(programs: Path) -> None:
    """What ended before stays as it was; nothing is made up about the other."""
    ended = LINE.format(state="COMPLETED", reason="None", code="0:0")
    running = ended.replace("TaskId=0", "TaskId=1").replace("COMPLETED", "RUNNING")
    stand_in(programs, "scontrol", f"echo '{ended}'; echo '{running}'")
    engine = Slurm()
    assert [one.state for one in engine.states("2", 2)] == [State.ENDED, State.RUNNING]
    stand_in(programs, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert [one.state for one in engine.states("2", 2)] == [State.ENDED, State.GONE]
    assert [one.state for one in Slurm().states("2", 2)] == [State.GONE, State.GONE]


def test_tasks_that_wait_are_one_line(programs: Path) -> None:
    line = LINE.format(state="PENDING", reason="Priority", code="0:0").replace("TaskId=0", "TaskId=1-2%4")
    stand_in(programs, "scontrol", f"echo '{line}'")
    assert [one.state for one in Slurm().states("2", 3)] == [State.GONE, State.QUEUED, State.QUEUED]


def test_tasks_that_were_cancelled_before_they_began(programs: Path) -> None:
    """As Slurm 22.05 prints them: 2^32 - 2 for the number of the task."""
    line = LINE.format(state="CANCELLED", reason="None", code="0:0").replace("TaskId=0", "TaskId=4294967294")
    began = LINE.format(state="COMPLETED", reason="None", code="0:0")
    stand_in(programs, "scontrol", f"echo '{line}'; echo '{began}'")
    assert [one.state for one in Slurm().states("2", 2)] == [State.ENDED, State.CANCELLED]
