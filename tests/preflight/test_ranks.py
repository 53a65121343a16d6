"""Real ranks over gloo: clean ones, and one that is slow, dies, hangs, never comes or is unlike the others."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zerocfg.preflight.judge import judge
from zerocfg.preflight.messages import Local, Message, read
from zerocfg.preflight.start import Start, fake_nodes
from zerocfg.preflight.verdict import Verdict

pytestmark = pytest.mark.libs

Process = subprocess.Popen[str]


class Job:
    """The processes of ranks, and their lines."""

    def __init__(self) -> None:
        self.processes: dict[int, Process] = {}
        self.lines: list[tuple[str, str]] = []
        self.readers: list[threading.Thread] = []
        self.on: Callable[[Message, Process], None] = lambda message, process: None

    def start(
        self, starts: list[Start], leave_out: tuple[int, ...] = (), more: dict[int, dict[str, str]] | None = None
    ) -> None:
        for rank, one in enumerate(starts):
            if rank in leave_out:
                continue
            process = subprocess.Popen(
                [sys.executable, "-m", "zerocfg.preflight.rank", *one.arguments],
                env={**one.environment, **(more or {}).get(rank, {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.processes[rank] = process
            reader = threading.Thread(target=self.read, args=(rank, process))
            reader.start()
            self.readers.append(reader)

    def read(self, rank: int, process: Process) -> None:
        for text in process.stdout or ():
            self.lines.append((f"rank {rank}", text))
            message = read(text)
            if message is not None:
                self.on(message, process)

    def verdict(self, ranks: int) -> Verdict:
        for reader in self.readers:
            reader.join()
        return judge(self.lines, ranks)

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.fixture
def job() -> Iterator[Job]:
    one = Job()
    yield one
    one.end()


Failure = tuple[str, str, str, tuple[str, ...], tuple[int, ...]]


def failures(verdict: Verdict) -> list[Failure]:
    return [(one.kind, one.what, one.figure, one.nodes, one.ranks) for one in verdict.findings if one.fails]


def found(verdict: Verdict) -> list[Failure]:
    """Without slow ranks: these share the processors with other tests, and one of them may be slow indeed.

    `test_judge.py` holds who is called slow, by measurements that are written down.
    """
    return [one for one in failures(verdict) if one[0] != "slow"]


def command(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zerocfg", "preflight", *words],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=300,
    )


RATES = ("matrix products, fp32", "memory copies")
"""What a rank measures of its node; on a machine with few cores other tests take from it."""


@pytest.mark.several_ranks
def test_two_clean_nodes(tmp_path: Path) -> None:
    files = ["--passing", "passing", "--exclude-file", "exclude", "--hostfile", "hostfile"]
    words = ["preflight", "--on", "local", "--nodes", "2", "--ranks", "1", *files, "--output-format", "json"]
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-m", "zerocfg", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        told: dict[str, Any] = json.loads(done.stdout)
        slow = [one for one in told["findings"] if one["what"] in RATES]
        if not slow or len(slow) < len(told["findings"]):
            break  # only a node that other tests made slow is measured again
    assert (done.returncode, told["failing"], told["passed"]) == (0, [], True)
    assert told["nodes"] == [{"name": "node0", "ranks": [0]}, {"name": "node1", "ranks": [1]}]
    assert {(one["node"], one["what"]) for one in told["figures"]} == {
        (name, what) for name in ("node0", "node1") for what in RATES
    }
    assert [one["what"] for one in told["together"]] == ["all-reduce", "all-gather", "ring"]
    assert (tmp_path / "passing").read_text() == "node0\nnode1\n" and (tmp_path / "exclude").read_text() == ""
    assert (tmp_path / "hostfile").read_text() == "node0 slots=1\nnode1 slots=1\n"


@pytest.mark.several_ranks
def test_four_clean_ranks(job: Job) -> None:
    job.start(fake_nodes(2, 2))
    verdict = job.verdict(4)
    assert found(verdict) == [] and len(verdict.nodes) == 2
    messages = [message for _, text in job.lines if (message := read(text)) is not None]
    pairs = {(one.rank, one.partner) for one in messages if one.kind == "pair"}
    assert pairs == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    clocks = [one for one in messages if one.kind == "clock"]
    assert [one.rank for one in clocks] == [2], "one clock serves both"
    assert abs(clocks[0].ahead_s) <= clocks[0].within_s + 1e-3
    assert {one.node for one in messages if one.kind == "collective"} == {"", "0", "1"}


@pytest.mark.several_ranks
def test_a_rank_that_is_killed(job: Job) -> None:
    def kill(message: Message, process: Process) -> None:
        if isinstance(message, Local) and message.rank == 3:
            process.kill()

    job.on = kill
    job.start(fake_nodes(2, 2))
    verdict = job.verdict(4)
    assert found(verdict) == [("stopped", "rank 3", "stopped", ("node1",), (3,))]
    assert "in the stage `alone`" in verdict.findings[0].message
    assert any(isinstance(read(text), Local) for _, text in job.lines), "what was measured so far is there"


@pytest.mark.several_ranks
def test_a_rank_that_hangs(job: Job) -> None:
    """The others wait for as long as a collective may take, and say where they were."""

    def stop(message: Message, process: Process) -> None:
        if isinstance(message, Local) and message.rank == 1:
            process.send_signal(signal.SIGSTOP)

    job.on = stop
    job.start(fake_nodes(2, 1, ["--limit", "5"]))
    job.readers[0].join()
    job.processes[1].kill()
    assert found(job.verdict(2)) == [("stopped", "rank 1", "stopped", ("node1",), (1,))]


@pytest.mark.several_ranks
def test_a_rank_that_never_comes(job: Job) -> None:
    job.start(fake_nodes(2, 2, ["--wait", "20"]), leave_out=(3,))
    verdict = job.verdict(4)
    assert found(verdict) == [("missing", "rank 3", "never answered", ("node1",), (3,))]
    assert {one.node for one in verdict.figures} == {"node0", "node1"}, "the others measure without it"
    assert verdict.together[0].ranks == 3


@pytest.mark.several_ranks
def test_another_release_of_deepspeed(job: Job, tmp_path: Path) -> None:
    other = tmp_path / "deepspeed-0.0.7.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.0.7\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    job.start(fake_nodes(3, 1), more={1: {"PYTHONPATH": path}})
    assert found(job.verdict(3)) == [("release", "deepspeed", "0.0.7", ("node1",), ())]


@pytest.mark.several_ranks
def test_a_full_disk(job: Job, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        (small / "weights.bin").write_bytes(bytes(1 << 21))
        job.start(fake_nodes(2, 1), more={1: {"TMPDIR": str(small)}})
        assert found(job.verdict(2)) == [("disk", "temporary folder", "0.0 MiB free", ("node1",), ())]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.several_ranks
def test_a_slow_rank(job: Job) -> None:
    """Stopped four fifths of the time, from outside, for as long as it measures."""
    ended, throttled = threading.Event(), threading.Event()
    job.on = lambda message, process: throttled.set() if message.rank == 2 and message.kind == "stage" else None

    def throttle() -> None:
        throttled.wait()
        process = job.processes[2]
        while not ended.is_set() and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.04)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    throttler = threading.Thread(target=throttle)
    job.start(fake_nodes(3, 1))
    throttler.start()
    verdict = job.verdict(3)
    ended.set()
    throttler.join()
    assert "node2" in verdict.failing
    assert ("slow", (2,)) in {(one[0], one[4]) for one in failures(verdict)}


def test_the_port_is_taken(job: Job) -> None:
    starts = fake_nodes(2, 1, ["--wait", "5"])
    with socket.create_server(("", int(starts[0].environment["MASTER_PORT"]))):
        job.start(starts)
        verdict = job.verdict(2)
    assert found(verdict) == [("port", "port", "taken", ("node0",), (0,))]


@pytest.mark.several_ranks
def test_under_torchrun(tmp_path: Path) -> None:
    """Every rank starts the command, and the first one tells."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "zerocfg", "preflight"]
    done = subprocess.run(
        [sys.executable, *words, "--output-format", "json"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["passed"] and told["nodes"][0]["ranks"] == [0, 1]


@pytest.mark.several_ranks
def test_called_once_on_each_node(tmp_path: Path) -> None:
    """As launch.sh is: each call starts the ranks of its node, and the first tells the verdict."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = ["--on", "node", "--nodes", "2", "--ranks", "2", "--device", "cpu", "--hosts", "n1,n2", "--wait", "40"]
    place = {"MAIN_PROCESS_IP": "127.0.0.1", "MAIN_PROCESS_PORT": port}
    calls = [
        subprocess.Popen(
            [sys.executable, "-m", "zerocfg", "preflight", *words, "--output-format", "json"],
            env={**os.environ, **place, "MACHINE_RANK": str(number), "SLURMD_NODENAME": f"n{number + 1}"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    said = [call.communicate(timeout=300)[0] for call in calls]
    told: dict[str, Any] = json.loads(said[0])
    # Four ranks on few processors: one of them may be slow indeed, and nothing else may be wrong.
    failing = {one["kind"] for one in told["findings"] if one["fails"]}
    assert failing <= {"slow"} and told["passed"] == (not failing), told["findings"]
    assert [call.returncode for call in calls] == [int(not told["passed"]), 0] and said[1] == ""
    assert told["nodes"] == [{"name": "n1", "ranks": [0, 1]}, {"name": "n2", "ranks": [2, 3]}]


def test_a_node_that_never_calls_is_named() -> None:
    words = ["--on", "node", "--nodes", "2", "--device", "cpu", "--hosts", "n1,n2", "--wait", "2"]
    done = command(
        *words, "--output-format", "json", MACHINE_RANK="0", MAIN_PROCESS_IP="127.0.0.1", SLURMD_NODENAME="n1"
    )
    told = json.loads(done.stdout)
    assert (done.returncode, told["failing"]) == (1, ["n2"])


class TestWrongUse:
    def test_no_rank_of_a_job(self) -> None:
        done = command()
        assert done.returncode == 2 and "this is no rank of a job: start it with torchrun" in done.stderr

    def test_nothing_to_expect(self, tmp_path: Path) -> None:
        (tmp_path / "hw.json").write_text("{}")
        done = command("--on", "local", "--expect", str(tmp_path / "hw.json"))
        assert done.returncode == 2 and "Field required" in done.stderr and "Traceback" not in done.stderr

    def test_no_address(self) -> None:
        done = command(RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
        assert done.returncode == 2 and "MASTER_ADDR is not set" in done.stderr

    @pytest.mark.parametrize(
        ("words", "place", "said"),
        [
            ([], {}, "MACHINE_RANK is not set: the number of this node, 0 to 1"),
            ([], {"MACHINE_RANK": "2"}, "MACHINE_RANK is '2': a number from 0 to 1 was expected"),
            ([], {"MACHINE_RANK": "one"}, "MACHINE_RANK is 'one': a number from 0 to 1 was expected"),
            ([], {"MACHINE_RANK": "1"}, "MAIN_PROCESS_IP is not set"),
            ([], {"MACHINE_RANK": "1", "MAIN_PROCESS_IP": "a", "MAIN_PROCESS_PORT": "b"}, "MAIN_PROCESS_PORT is 'b'"),
            (["--hosts", "a"], {"MACHINE_RANK": "1"}, "--hosts names 1, the job has 2 node(s)"),
        ],
    )
    def test_a_node_that_does_not_know_its_place(self, words: list[str], place: dict[str, str], said: str) -> None:
        done = command("--on", "node", "--nodes", "2", *words, **place)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr

    def test_hosts_are_for_nodes_that_call_themselves(self) -> None:
        done = command("--on", "local", "--hosts", "a,b")
        assert done.returncode == 2 and "--hosts is for --on node" in done.stderr
