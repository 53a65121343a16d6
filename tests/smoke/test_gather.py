"""One result of what all nodes of a job said: which of them tells it, and what is made of a certificate."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from zerocfg.cluster.job import State, TaskState
from zerocfg.cluster.wait import Progress
from zerocfg.emit import lock as lockfile
from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.model.certificate import NAME, Measured, SmokeResult
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.remote.gather import gather

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    shutil.copytree(EXAMPLES / "two-nodes-cpu", tmp_path / "spec")
    shutil.copytree(EXAMPLES / "quickstart", tmp_path / "quickstart")  # its script
    return read(tmp_path / "spec/built/nodes")


def said(node: int | str, **event: object) -> bytes:
    return f"{node}: {json.dumps(event)}\x1e\n".encode()


HOSTS = said("*", event="hosts", names="n1 n2")
BEGAN = said(0, event="began") + said(1, event="began")


def verdict(
    node: int,
    passed: bool = True,
    rank: int | None = None,
    certificate: str | None = None,
    interrupted: bool = False,
    cause: str = "",
    failed_at: float | None = None,
) -> bytes:
    failure = None if passed else {"message": f"told by {node}", "rank": rank}
    data = {"run": "nodes", "passed": passed, "failure": failure}
    more = {"certificate": certificate, "interrupted": interrupted, "cause": cause, "failed_at": failed_at}
    return said(node, event="verdict", passed=passed, text=f"node {node}\n", data=data, **more)


def step(code: int = 0, log: str = "") -> bytes:
    return said("*", event="step", code=code, log=base64.b64encode(log.encode()).decode())


ENDED = TaskState(State.ENDED)


def progress(*events: bytes, state: TaskState = ENDED) -> Progress:
    found = Progress(state)
    found.feed(b"".join(events))
    return found


def test_all_nodes_passed(run: RunFolder) -> None:
    found = gather(run, progress(HOSTS, BEGAN, verdict(0), verdict(1), step()), 2)
    assert (found.passed, found.problem, found.text, found.notes) == (True, None, "node 0\n", ())


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (verdict(0), verdict(1, False, 1), "told by 1"),
        (verdict(0, False), verdict(1, False, 1), "told by 1"),  # node 0 waited for a rank of node 1
        (verdict(0, False, 0), verdict(1, False, None), "told by 0"),
        (verdict(0, False), verdict(1, False), "told by 0"),
        # What a rank of node 0 raised is that its partner on node 1 was gone.
        (verdict(0, False, 0, cause="error", failed_at=1.0), verdict(1, False, 1, cause="killed"), "told by 1"),
        (verdict(0, False, 0, cause="killed"), verdict(1, False, 1, cause="error", failed_at=1.0), "told by 0"),
        (verdict(0, False, 0, cause="error", failed_at=2.5), verdict(1, False, 1, cause="memory"), "told by 1"),
        (
            verdict(0, False, 0, cause="error", failed_at=2.5),
            verdict(1, False, 1, cause="error", failed_at=2),
            "told by 1",
        ),
        (
            verdict(0, False, 0, cause="error", failed_at=2),
            verdict(1, False, 1, cause="error", failed_at=2.5),
            "told by 0",
        ),
        (verdict(0, False, 0, cause="error", failed_at=2.0), verdict(1, False, cause="launcher"), "told by 0"),
        # Node 0 was asked to end after node 1 had: the disk of node 1 was full.
        (verdict(0, False, interrupted=True), verdict(1, False), "told by 1"),
    ],
)
def test_the_node_where_it_began_tells_the_failure(run: RunFolder, first: bytes, second: bytes, told: str) -> None:
    found = gather(run, progress(HOSTS, BEGAN, first, second, step()), 2)
    assert not found.passed and found.problem is None
    assert found.notes == (f"this is what n{int(told[-1]) + 1} says",)
    failure = found.data["failure"]
    assert isinstance(failure, dict) and failure["message"] == told


@pytest.mark.parametrize(
    ("events", "state", "problem"),
    [
        ([], TaskState(State.CANCELLED), "the job was cancelled"),
        ([], TaskState(State.FAILED, "a node failed"), "the smoke-run never started: a node failed"),
        ([], TaskState(State.GONE), "the smoke-run never started"),
        (
            [
                HOSTS,
                said(0, event="began"),
                step(1, "srun: x\nsrun: error: Task launch failed on node n2: no\nsrun: error: b"),
            ],
            TaskState(State.FAILED),
            "n2 never started the smoke-run: Task launch failed on node n2: no",
        ),
        (
            [HOSTS, BEGAN, said(1, event="problem", text="/tmp: No space left\non device"), verdict(0), step(1)],
            TaskState(State.FAILED, "failed"),
            "n2: /tmp: No space left\\non device",
        ),
        (
            [HOSTS, BEGAN, said(1, event="phase", text="step 2 of 3"), verdict(0)],
            TaskState(State.FAILED, "a node failed"),
            "n2 ended without a verdict (last: step 2 of 3): a node failed",
        ),
        ([HOSTS, BEGAN, verdict(1)], TaskState(State.ENDED), "n1 ended without a verdict"),
        ([said(0, event="began"), verdict(0)], TaskState(State.ENDED), "number 1 never started the smoke-run"),
    ],
)
def test_why_there_is_no_verdict(run: RunFolder, events: list[bytes], state: TaskState, problem: str) -> None:
    found = gather(run, progress(*events, state=state), 2)
    assert found.problem == problem and not found.passed and not (run.path / NAME).exists()


def made(run: RunFolder, folder: Path, files: dict[str, str]) -> str:
    """A certificate as the first node writes it: there is no script there, so that it binds no code."""
    result = SmokeResult("nodes", True, "cpu", "cpu", 2, (), (), (), (), None, (), None, Measured())
    path = certificate_file.write(
        folder, result, steps=3, versions={"torch": "2.13.0"}, files=files, lock=run.lock, code={}
    )
    return path.read_text()


def test_the_certificate_is_bound_to_the_code_that_is_here(run: RunFolder, tmp_path: Path) -> None:
    text = made(run, tmp_path, run.hashes)
    found = gather(run, progress(HOSTS, BEGAN, verdict(0, certificate=text), verdict(1), step()), 2)
    path = run.path / NAME
    assert found.notes == (f"certificate: {path}",)
    written = certificate_file.read(path)
    assert written.files == run.hashes and written.steps == 3 and written.versions["torch"] == "2.13.0"
    assert written.code == code_hashes(run.path, run.lock) and list(written.code) == ["../quickstart/train.py"]
    assert written.values == certificate_file.values_hash(lockfile.load(run.path / lockfile.NAME))


def test_a_certificate_of_other_files_is_not_taken(run: RunFolder, tmp_path: Path) -> None:
    text = made(run, tmp_path, run.hashes | {"ds_config.json": "0" * 64})
    found = gather(run, progress(HOSTS, BEGAN, verdict(0, certificate=text), verdict(1), step()), 2)
    assert found.passed and found.notes == ("certificate: not written, ds_config.json is not the file that ran",)
    assert not (run.path / NAME).exists()


def test_what_is_no_certificate(run: RunFolder) -> None:
    found = gather(run, progress(HOSTS, BEGAN, verdict(0, certificate="{}"), verdict(1), step()), 2)
    assert found.notes == (
        "certificate: not written, what the node made is no certificate: `version` is missing or no number",
    )


def test_a_folder_that_cannot_be_written(run: RunFolder, tmp_path: Path) -> None:
    (run.path / NAME).mkdir()
    found = gather(
        run, progress(HOSTS, BEGAN, verdict(0, certificate=made(run, tmp_path, run.hashes)), verdict(1), step()), 2
    )
    assert found.passed and found.notes[0].startswith(f"certificate: not written, {run.path}: ")
