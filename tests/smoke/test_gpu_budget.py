"""`make gpu` without a card: the order by value, the seconds of each check, and what is written when it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import budget, checks, contract, processes, record, run, smoke_runs  # noqa: E402
from benchmarks.gpu.budget import ENDING, Budget, Clock  # noqa: E402
from benchmarks.gpu.checks import Check  # noqa: E402
from benchmarks.gpu.place import Place, name_of_folder  # noqa: E402
from benchmarks.gpu.record import Record  # noqa: E402

CARD = {"name": "NVIDIA H200", "memory.total": "143771 MiB", "driver_version": "580.1"}


@dataclass
class Time:
    """A clock that only the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Played:
    """A check that takes ``seconds`` of a fake clock and then does what ``end`` says."""

    time: Time
    seconds: float = 0.0
    passes: bool = True
    end: Callable[[Record], None] = lambda record: None
    given: list[float] = field(default_factory=list)

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        self.given.append(clock.left)
        self.time.now += min(self.seconds, clock.left)
        self.end(record)
        return self.passes


def write_result(folder: Path, name: str, state: str) -> None:
    content = {"check": name, "date": "2026-11-27T10:00:00+00:00", "cards": [CARD], "state": state, "seconds": 1.0}
    (folder / f"{name}.json").write_text(json.dumps(content))


def read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return content


# -- seconds -----------------------------------------------------------------------------------------------------------


def test_a_check_gets_its_limit_or_what_is_left_and_is_not_started_with_less_than_its_least() -> None:
    now = Time()
    whole = Budget(100 + ENDING, now)
    clock = whole.allot(30, 100)
    assert clock is not None and (clock.seconds, clock.cut) == (100, False)
    now.now += 70
    assert (clock.left, clock.spent) == (30, 70)
    clock = whole.allot(30, 100)
    assert clock is not None and (clock.seconds, clock.cut) == (30, True)
    now.now += 0.1
    assert whole.allot(30, 100) is None
    unlimited = Budget(None, now).allot(30, 100)
    assert unlimited is not None and (unlimited.seconds, unlimited.cut) == (100, False)


def test_the_end_of_a_check_fits_into_the_seconds_kept_for_it() -> None:
    assert processes.GRACE < budget.ENDING


def test_a_whole_run_of_the_next_loan_reaches_the_plans() -> None:
    """Fifteen minutes less 90 s for the start, if each check takes all its time: the first seven groups start."""
    now = Time()
    whole, started, taken = Budget(810, now), [], set()
    for check in checks.IN_ORDER:
        clock = whole.allot(check.least, check.limit)
        if clock is None:
            break
        started.append(check.name)
        if not check.side_by_side or True not in taken:
            now.now += clock.seconds
            taken |= {True} if check.side_by_side else set()
    assert started[-1] == "plan"


def test_checks_share_the_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = Time()
    first, second, third = Played(now, seconds=60), Played(now, seconds=500), Played(now)
    listed = [Check("first", first, 20, 100), Check("second", second, 20, 100), Check("third", third, 20, 100)]
    place = Place(tmp_path, (CARD,))
    assert run.run_all(listed, place, Budget(100 + ENDING, now)) == 3
    assert (first.given, second.given, third.given) == ([100], [40], [])
    assert [read(tmp_path, name)["time_limit"] for name in ("first", "second")] == [100, 40]
    assert not (tmp_path / "third.json").exists()
    assert "third: not started: less than 20 s are left" in capsys.readouterr().out
    assert run.run_all(listed, place, Budget(None, now)) == 0
    assert (first.given, second.given, third.given) == ([100], [40], [100])


@pytest.mark.parametrize(("seconds", "state", "code"), [(31.0, "out of budget", 3), (29.0, "failed", 1)])
def test_what_fails_at_the_end_of_cut_time_has_not_failed_yet(
    tmp_path: Path, seconds: float, state: str, code: int
) -> None:
    """The smoke-run's own time limit, ten seconds before the end, was cut as well."""
    now = Time()
    listed = [Check("cut", Played(now, seconds, passes=False), 20, 100)]
    assert run.run_all(listed, Place(tmp_path, (CARD,)), Budget(40 + ENDING, now)) == code
    assert read(tmp_path, "cut")["state"] == state


def test_a_time_limit_that_is_the_checks_own_is_a_failure_and_one_that_was_cut_is_not(tmp_path: Path) -> None:
    now = Time()

    def end(record: Record) -> None:
        record.update(commands=["x"])
        raise processes.TimedOutError(30, "stage 1\n", "a warning\n")

    listed = [Check("late", Played(now, end=end), 20, 100)]
    for seconds, state, code in ((None, "timed out", 1), (40 + ENDING, "out of budget", 3)):
        assert run.run_all(listed, Place(tmp_path, (CARD,)), Budget(seconds, now)) == code
        found = read(tmp_path, "late")
        assert (found["state"], found["passed"], found["commands"]) == (state, False, ["x"])
        assert (found["error"], found["printed"]) == ("no end within 30 s", "stage 1\n\na warning")


@pytest.mark.parametrize(
    ("left", "launches", "limit"), [(90.0, 1, 80), (150.0, 4, 35), (21.0, 1, 11), (16.0, 1, 8), (0.5, 1, 1)]
)
def test_what_is_left_is_handed_to_the_smoke_run(left: float, launches: int, limit: int) -> None:
    assert smoke_runs.time_limit(left, launches) == limit


@pytest.mark.parametrize(("verdict", "state"), [("incomplete", "incomplete"), ("failed", "failed")])
def test_an_incomplete_smoke_run_has_a_state_of_its_own_and_has_not_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verdict: str, state: str
) -> None:
    now = Time()
    played = Played(now, passes=False, end=lambda record: record.update(certificate={"verdict": verdict}))
    assert run.run_all([Check("x", played, 1, 9)], Place(tmp_path, (CARD,)), Budget(None, now)) == 1
    assert read(tmp_path, "x")["state"] == state and f"x: {state.upper()} after" in capsys.readouterr().out


# -- order and going on ------------------------------------------------------------------------------------------------


def test_the_order_is_by_value() -> None:
    names = [check.name for check in checks.IN_ORDER]
    by_value = ["contract", "tiny-zero2", "sft-zero2", "fsdp", "memory-second-round", "two-ranks-gloo", "host-cost"]
    by_value += ["plan", "memory", "probe", "preflight", "max-batch", "zero3-nvme", "compare"]
    assert sorted(by_value, key=names.index) == by_value and names[-2:] == by_value[-2:]
    together = [check.name for check in checks.IN_ORDER if check.side_by_side]
    assert together == ["tiny-zero2", "quickstart", "tiny-fsdp2", "tiny-cpu-offload", "tiny-ddp", "share-gpu"]
    assert names[1:7] == together
    assert all(0 < check.least < check.limit for check in checks.IN_ORDER)


def test_going_on_takes_what_was_cut_off_before_what_failed_and_leaves_out_what_passed(tmp_path: Path) -> None:
    states = {
        "contract": "failed",
        "passed": "passed",
        "failed": "failed",
        "late": "timed out",
        "new": "",
        "killed at once": "running",
        "killed": "killed",
        "cut": "out of budget",
        "sweep": "cases left",
    }
    now = Time()
    listed = [Check(name, Played(now), 1, 2) for name in states]
    for name, state in states.items():
        if state:
            write_result(tmp_path, name, state)
    batches = list(run.order_pending(listed, Place(tmp_path, (CARD,))))
    assert [[check.name for check in batch] for batch in batches] == [
        [name] for name in ("contract", "new", "killed at once", "killed", "cut", "sweep", "failed", "late")
    ]


def test_neighbours_that_run_side_by_side_are_one_batch(tmp_path: Path) -> None:
    now = Time()
    listed = [Check("a", Played(now), 1, 2)]
    listed += [Check(name, Played(now), 1, 2, side_by_side=True) for name in ("b", "c", "d", "e")]
    listed += [Check("f", Played(now), 1, 2)]
    write_result(tmp_path, "c", "passed")
    write_result(tmp_path, "d", "failed")
    batches = list(run.order_pending(listed, Place(tmp_path, (CARD,))))
    assert [[check.name for check in batch] for batch in batches] == [["a"], ["b", "e"], ["f"], ["d"]]


def test_the_contract_ends_everything_when_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = Time()
    other = Played(now)
    listed = [Check("contract", Played(now, passes=False), 1, 60), Check("other", other, 1, 2)]
    place = Place(tmp_path, (CARD,))
    assert run.run_all(listed, place, Budget(None, now)) == 1 and other.given == []
    assert "nothing else is run" in capsys.readouterr().out
    assert run.run_all(listed, place, Budget(None, now), on_anyway=True) == 1 and other.given == [2]


@pytest.mark.parametrize(
    ("not_measured", "working", "lines", "passes"),
    [
        ({}, ["loss", "a new one"], ["a new one: ok", "loss: ok"], True),
        ({"rate": "RuntimeError: x"}, ["loss"], ["loss: ok", "rate: RuntimeError: x"], False),
        ({}, ["a new one"], ["a new one: ok", "loss: never tried"], False),
    ],
)
def test_the_contract_lists_every_instrument(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    not_measured: dict[str, str],
    working: list[str],
    lines: list[str],
    passes: bool,
) -> None:
    def play(self: Any, place: Place, record: Record, clock: Clock) -> bool:
        record.update(certificate={"passed": True, "instruments": working, "not_measured": not_measured})
        return True

    monkeypatch.setattr(smoke_runs.SmokeRun, "play", play)
    monkeypatch.setattr(contract, "REQUIRED", ("loss",))
    record = Record(tmp_path / "contract.json", {})
    assert contract.Contract().play(Place(tmp_path, (CARD,)), record, Clock(60)) is passes
    assert capsys.readouterr().out.splitlines() == [f"  {line}" for line in lines]
    assert read(tmp_path, "contract")["missing"] == [line.split(":")[0] for line in lines if not line.endswith("ok")]


@pytest.mark.parametrize(("resumes", "passes"), [(True, True), (None, False), (False, False)])
def test_a_run_has_to_show_what_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumes: bool | None, passes: bool
) -> None:
    """A row that was not measured, or is not there, is not enough."""
    rows = [{"name": "resumes from a checkpoint", "ok": resumes}, {"name": "device", "ok": None}]

    def run_within(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        if "build" in command:
            (Path(command[-1]) / "run").mkdir()
        else:
            certificate = {"passed": True, "checks": rows}
            (Path(command[command.index("smoke") + 1]) / "smoke.json").write_text(json.dumps(certificate))
        return subprocess.CompletedProcess(command, 0, "{}", "")

    monkeypatch.setattr(smoke_runs, "run_within", run_within)
    place, clock = Place(tmp_path, (CARD,)), Clock(60)
    smoke_run = smoke_runs.SmokeRun("spec", "run", shows=("resumes from a checkpoint",))
    record = Record(tmp_path / "x.json", {})
    assert smoke_run.play(place, record, clock) is passes
    assert record.content["missing"] == ([] if passes else ["resumes from a checkpoint"])
    absent = smoke_runs.SmokeRun("spec", "run", shows=("saved parameters",))
    assert not absent.play(place, Record(tmp_path / "y.json", {}), clock)


def test_a_folder_has_the_name_of_its_card() -> None:
    assert name_of_folder("NVIDIA H200", "2026-11-26") == "h200-2026-11-26"
    assert name_of_folder("NVIDIA H100 80GB HBM3", "2026-11-26") == "h100-80gb-hbm3-2026-11-26"


# -- killed ------------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from benchmarks.gpu import run
from benchmarks.gpu.checks import Check
from benchmarks.gpu.processes import run_within

class Hangs:
    def play(self, place, record, clock):
        record.update(commands=["first part"], proven=["it starts"])
        try:
            run_within([sys.executable, "-c", sys.argv[3], sys.argv[2]], clock.left)
        finally:
            record.update(left_behind=open(sys.argv[2] + "/left").read())
        return True

run.IN_ORDER = (Check("hangs", Hangs(), 1, 300),)
run.find_cards = lambda: [{"name": "NVIDIA H200"}]
import signal
signal.signal(signal.SIGTERM, run.end_on_signal)
sys.exit(run.main(["--out", sys.argv[2]]))
"""
CHILD = """
import os, signal, sys, time
def end(*_):
    open(sys.argv[1] + "/left", "w").write("certificate")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1] + "/started.new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + "/started.new", sys.argv[1] + "/started")
while True:
    time.sleep(0.05)
"""


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "state"), [(signal.SIGTERM, "killed"), (signal.SIGKILL, "running")])
def test_a_killed_check_leaves_what_was_known(tmp_path: Path, number: signal.Signals, state: str) -> None:
    """What runs is asked to end first, and what it leaves is in the result as well."""
    (tmp_path / "left").write_text("")
    command = [sys.executable, "-c", SCRIPT, str(ROOT), str(tmp_path), CHILD]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        assert wait_for((tmp_path / "started").exists)
        child = int((tmp_path / "started").read_text())
        process.send_signal(number)
        assert process.wait(60) == (143 if number == signal.SIGTERM else -signal.SIGKILL)
        found = read(tmp_path, "hangs")
        assert (found["state"], found["passed"]) == (state, False)
        assert (found["commands"], found["proven"]) == (["first part"], ["it starts"])
        if number == signal.SIGTERM:
            assert found["left_behind"] == "certificate" and wait_for(lambda: not is_running(child))
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        process.kill()
    assert record.read_result(tmp_path / "hangs.json")["state"] in record.CUT_OFF


def find_processes(text: str) -> list[int]:
    """The processes whose command line contains ``text``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes() and is_running(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


@pytest.mark.libs
def test_a_killed_smoke_run_leaves_its_certificate_and_nothing_else(tmp_path: Path) -> None:
    """SIGTERM to the program while the rank of a tiny run is at work."""
    pytest.importorskip("deepspeed")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "gpu" / "run.py"),
        "tiny-ddp",
        "--tiny",
        "--out",
        str(tmp_path),
    ]
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)}, start_new_session=True)
    try:
        worker = f"zerocfg_worker\0{scratch}"
        assert wait_for(lambda: bool(find_processes(worker)), 120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    finally:
        process.kill()
    found = read(tmp_path, "tiny-ddp")
    assert found["state"] == "killed" and found["certificate"]["failure"]["message"] == "interrupted"
    assert wait_for(lambda: not find_processes(str(scratch)), 10)
    assert list(scratch.iterdir()) == []


def test_a_program_that_does_not_end_by_itself_is_killed_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE", 0.5)
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "time.sleep(300)\n"
    )
    with pytest.raises(processes.TimedOutError, match="no end within 3 s"):
        processes.run_within([sys.executable, "-c", script, str(tmp_path / "child")], 3)
    child = int((tmp_path / "child").read_text())
    assert wait_for(lambda: not is_running(child), 10)


def test_a_fault_of_a_check_leaves_the_others_alone(tmp_path: Path) -> None:
    now = Time()

    def end(record: Record) -> None:
        raise ValueError("a fault of the check")

    listed = [Check("broken", Played(now, end=end), 1, 2), Check("other", Played(now), 1, 2)]
    assert run.run_all(listed, Place(tmp_path, (CARD,)), Budget(None, now)) == 1
    assert "ValueError: a fault of the check" in read(tmp_path, "broken")["error"]
    assert read(tmp_path, "other")["state"] == "passed"


def test_half_a_file_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in the middle of writing leaves the file that was there."""
    path = tmp_path / "check.json"
    record.write_json(path, {"state": "running", "step": 1})

    def write_half(self: Path, text: str) -> None:
        with self.open("w") as file:
            file.write(text[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(KeyboardInterrupt):
        record.write_json(path, {"state": "running", "step": 2})
    assert json.loads(path.read_text())["step"] == 1


# -- side by side ------------------------------------------------------------------------------------------------------

MEETS = """
import pathlib, sys, time
folder, name, others = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
(folder / name).touch()
while not all((folder / other).exists() for other in others):
    time.sleep(0.02)
sys.exit(len(name))
"""


def test_programs_run_at_the_same_time(tmp_path: Path) -> None:
    """Each ends only when it has seen the others."""
    names = ["a", "bb", "ccc"]
    commands = [[sys.executable, "-c", MEETS, str(tmp_path), name, *names] for name in names]
    assert processes.run_side_by_side(commands, 60) == [1, 2, 3]


RUDE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.mkdir(sys.argv[1] + "/ignores")
time.sleep(300)
"""


def test_what_does_not_end_in_time_is_asked_to_end_and_then_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked once both have said what they do then: a starved child takes seconds to come so far."""
    monkeypatch.setattr(processes, "GRACE", 2.0)

    class Ready(list[list[str]]):
        def __iter__(self) -> Iterator[list[str]]:
            for command, sign in zip(super().__iter__(), ("started", "ignores"), strict=True):
                yield command
                assert wait_for((tmp_path / sign).exists)

    commands = Ready([sys.executable, "-c", program, str(tmp_path)] for program in (CHILD, RUDE))
    assert processes.run_side_by_side(commands, 0) == [0, -signal.SIGKILL]
    assert (tmp_path / "left").read_text() == "certificate"


def test_what_ends_in_its_time_is_not_asked_to(tmp_path: Path) -> None:
    late = "import sys, time; time.sleep(0.5); open(sys.argv[1] + '/left', 'w').write('end'); sys.exit(4)"
    assert processes.run_side_by_side([[sys.executable, "-c", late, str(tmp_path)]], 60) == [4]
    assert (tmp_path / "left").read_text() == "end"


def test_a_batch_starts_this_program_once_for_each_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the budget only where it cuts the limit; a check that says nothing counts as killed."""
    now, commands = Time(), []

    def start(given: list[list[str]], seconds: float) -> list[int]:
        commands.extend(given)
        assert seconds == 50 + ENDING
        write_result(tmp_path, "a", "passed")
        write_result(tmp_path, "b", "failed")
        return [0, 1, -9]

    monkeypatch.setattr(run, "run_side_by_side", start)
    listed = [Check("a", Played(now), 1, 20, True), Check("b", Played(now), 1, 50, True)]
    listed += [Check("c", Played(now), 1, 90, True), Check("d", Played(now), 60, 90, True)]
    states = run.run_batch(listed, Place(tmp_path, (CARD,)), Budget(50 + ENDING, now))
    assert states == {"a": "passed", "b": "failed", "c": "killed", "d": "not started"}
    words = [command[2:] for command in commands]
    assert words == [
        ["a", "--out", str(tmp_path)],
        ["b", "--out", str(tmp_path)],
        ["c", "--out", str(tmp_path), "--budget-s", str(50 + ENDING)],
    ]
