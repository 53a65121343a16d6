"""How runs end that go wrong: by a readable cause, within the time limit, with nothing left behind.

The launcher and the ranks are stand-ins, all else is real; test_runs.py has faults of the real libraries.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from zerocfg.cli.commands.smoke import command as cli
from zerocfg.smoke.launch import leftovers, operator_locks, out_of_memory, process, stacks
from zerocfg.smoke.launch.scratch import scratch, sweep
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.smoke import Options, smoke

from . import standin
from .standin import hang, play, until, waits

if TYPE_CHECKING:
    from .conftest import MakeRun

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="ranks are found by /proc")


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, short enough for sockets. Nothing may be left there, nor a process of a run."""
    folder = Path(tempfile.mkdtemp(prefix="zc-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(process, "PATIENCE", 1.0)
    yield folder
    assert [path.name for path in folder.iterdir()] == []
    assert standin.processes(str(folder)) == []
    assert standin.guards(str(folder)) == []
    folder.rmdir()


# What a rank does


def test_a_rank_that_raises_is_told_by_its_own_error() -> None:
    outcome = play("""
if rank == 1:
    def loss(batch):
        raise ValueError("labels have 33 tokens,\\n  inputs 32")
    loss(None)
other_ranks()
""")
    assert (outcome.rank, outcome.kind) == (1, "error")
    assert outcome.failure == "ValueError: labels have 33 tokens, inputs 32"
    assert any("train.py" in line and "in loss" in line for line in outcome.detail)
    assert not any("zerocfg_worker" in line or "launcher" in line for line in outcome.detail)


def test_the_first_error_counts() -> None:
    outcome = play("""
other = Path("reports/rank1.json")
while rank == 0 and not (other.exists() and '"error"' in other.read_text()):
    time.sleep(0.05)
raise RuntimeError("Connection closed by peer" if rank == 0 else "the cause")
""")
    assert (outcome.rank, outcome.failure) == (1, "RuntimeError: the cause")


def test_frames_of_libraries_come_behind_the_users_own() -> None:
    outcome = play(
        """
import json
json.loads("{")
""",
        ranks=1,
    )
    files = [Path(found[1]).name for line in outcome.detail if (found := re.search(r'File "([^"]+)"', line))]
    assert files[0] == "train.py" and files[-1] == "decoder.py"
    assert outcome.detail[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")


def test_a_stopped_rank_is_named() -> None:
    outcome = hang(
        "os.kill(os.getpid(), signal.SIGSTOP) if rank == 1 else other_ranks()",
        ready=lambda report: waits(report) if report["rank"] == 0 else stacks.stopped(report["pid"]),
    )
    assert outcome.kind == "time" and outcome.rank == 1
    assert outcome.failure is not None and outcome.failure.startswith(
        "not finished within 60 s: rank 0 in 'step 1', rank 1 in 'step 1' (stopped)"
    )


def test_a_deadlock_tells_where_each_rank_waits() -> None:
    """One rank skips a collective operation and waits in the next one; the ranks that wait say so themselves."""
    outcome = hang("""
def all_reduce():
    other_ranks()
def barrier():
    other_ranks()
all_reduce() if rank == 0 else barrier()
""")
    assert outcome.kind == "time"
    first, second = outcome.detail
    assert "rank 0 waits in " in first and "other_ranks < " in first and "in all_reduce" in first
    assert "rank 1 waits in " in second and "in barrier" in second


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nbytearray(1 << 34)",
            "memory",
            "out of host memory in 'step 1': MemoryError",
        ),
        (
            "raise RuntimeError(\"[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
            'memory: you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)")',
            "memory",
            "out of host memory in 'step 1': RuntimeError: [enforce fail",
        ),
        (
            'class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError("CUDA out of memory. Tried to '
            'allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB")',
            "memory",
            "out of the card's memory in 'step 1': OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB",
        ),
        ("sys.exit(3)", "error", "SystemExit: 3"),
        ("os._exit(3)", "killed", "rank 0 ended with exit code 3 in 'step 1'"),
        ("os.abort()", "killed", "rank 0 was killed by signal 6 (SIGABRT) in 'step 1'"),
    ],
)
def test_how_a_rank_ends(body: str, kind: str, said: str) -> None:
    outcome = play(body, ranks=1)
    assert outcome.kind == kind and said in (outcome.failure or "")


@pytest.mark.parametrize("struck", [False, True])
def test_a_killed_rank(struck: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel's own count of out-of-memory kills, which here is a file that the rank changes."""
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 4\n")
    monkeypatch.setattr(out_of_memory, "PROC", tmp_path)
    more = f'Path({str(tmp_path / "vmstat")!r}).write_text("oom_kill 5\\n")' if struck else "pass"
    outcome = play(f"if rank == 1:\n    {more}\n    os.kill(os.getpid(), signal.SIGKILL)\nother_ranks()")
    assert outcome.rank == 1 and outcome.kind == ("memory" if struck else "killed")
    assert "rank 1 was killed by signal 9 (SIGKILL) in 'step 1'; the kernel" in (outcome.failure or "")
    assert ("this run needs more host memory" in (outcome.failure or "")) is struck


def test_counts_of_both_kinds_of_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_memory, "PROC", tmp_path)
    monkeypatch.setattr(out_of_memory, "GROUPS", tmp_path / "groups")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:cpu,memory:/job\n0::/slice\n")
    for name, file in (("memory/job", "memory.oom_control"), ("slice", "memory.events")):
        (tmp_path / "groups" / name).mkdir(parents=True)
        (tmp_path / "groups" / name / file).write_text("under_oom 0\noom_kill 2\n")
    before = out_of_memory.kills()
    assert sorted(before.values()) == [2, 2] and not out_of_memory.struck(before)
    (tmp_path / "groups" / "slice" / "memory.events").write_text("oom_kill 3\n")
    assert out_of_memory.struck(before)


def test_ranks_that_do_their_work_but_never_end() -> None:
    outcome = hang("report.content['done'] = True\nreport.phase('done')\nother_ranks()", phase="done")
    assert outcome.failure == "not finished within 60 s: every rank finished its work, but the processes do not exit"
    assert all("other_ranks" in line for line in outcome.detail) and len(outcome.detail) == 2


# Shared memory, core files, processes of ranks


def test_shared_memory_of_killed_ranks_is_removed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the ranks made: a file that was there, and one that another process makes meanwhile, stay."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no shared memory here")
    key = os.getpid()
    before, during, data = (shared / f"{name}_{key}" for name in ("psm_before", "nccl-during", "dataset"))
    before.touch()
    try:
        monkeypatch.setattr(process, "LOOK", 0.0)
        outcome = play(
            f"""
import mmap
names = ["torch_%d_1_0" % os.getpid(), "psm_{key}_%d" % rank, "deepspeed_allreduce_buffer_0_127.0.0.1_{key}_%d" % rank]
kept = []
for name in [*names, "dataset_{key}"]:
    with open("/dev/shm/" + name, "ab+") as file:
        file.truncate(4096)
        kept.append(mmap.mmap(file.fileno(), 4096))
with open("/dev/shm/psm_before_{key}", "r+b") as seen:
    if rank == 0:
        open("/dev/shm/nccl-during_{key}", "w").close()
    if rank == 0:
        while not Path("mapped").exists():
            time.sleep(0.05)
        report.phase("save")
        other_ranks()
    Path("mapped").touch()
    while not Path("go").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
""",
            progress=lambda phase: [
                (folder / "go").touch() for folder in temporary.glob("zerocfg-smoke-*") if phase == "save"
            ],
        )

        assert outcome.rank == 1 and outcome.kind == "killed"
        assert before.exists() and during.exists() and data.exists()
        left = [path.name for path in shared.iterdir() if str(key) in path.name]
        assert sorted(left) == sorted([before.name, during.name, data.name])
    finally:
        for path in (before, during, data):
            path.unlink(missing_ok=True)


def test_processes_that_ranks_start_are_ended_too() -> None:
    """Also those in sessions of their own that nobody waits for, and that hear no request."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    outcome = play(f"""
import subprocess
subprocess.Popen([sys.executable, "-c", {code!r}], start_new_session=True)
""")
    assert outcome.failure is None


def test_a_number_that_belongs_to_another_process_now_is_left_alone() -> None:
    """A report names a process that is none of the run, as after its number was given away again."""
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        outcome = hang(
            f"report.content['pid'] = {stranger.pid}\nreport.phase('save')\nother_ranks()", ranks=1, phase="save"
        )
        assert outcome.kind == "time" and stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# The launcher


def test_a_launcher_that_is_not_there() -> None:
    with scratch() as folder, pytest.raises(SmokeError, match=r"'/no/launcher' cannot be started: No such file"):
        process.run(["/no/launcher"], folder, 2, "cpu", 5)


def test_a_launcher_that_crashes_is_told_by_its_last_error() -> None:
    code = "import json\ndef main(): raise ImportError('libcudart.so.13: cannot open shared object file')\nmain()"
    with scratch() as folder:
        (folder / "launcher.py").write_text(code)
        outcome = process.run([sys.executable, str(folder / "launcher.py")], folder, 2, "cpu", 20)
    assert (outcome.kind, outcome.rank) == ("launcher", None)
    assert outcome.failure == (
        "the launcher ended with exit code 1: ImportError: libcudart.so.13: cannot open shared object file"
    )
    assert len(outcome.detail) <= 4


def test_a_launcher_that_ends_well_though_a_rank_did_not() -> None:
    with scratch() as folder:
        outcome = process.run([sys.executable, "-c", "print('hello')"], folder, 2, "cpu", 20)
    assert outcome.failure == "the launcher ended with exit code 0 although not every rank finished"
    assert outcome.detail == ["hello"]


def test_a_flood_of_output_keeps_nobody_from_the_verdict() -> None:
    outcome = play("print('x' * 5_000_000)\nraise ValueError('the cause')", ranks=1)
    assert outcome.failure == "ValueError: the cause"


def test_the_other_port() -> None:
    words = process.launcher(True, 2, 1)
    moved = process.elsewhere(words)
    assert [a for a, b in zip(words, moved, strict=True) if a != b] == ["1"]
    assert int(moved[words.index("1")]) > 1023


# No space, no permission


def test_no_space_is_told(temporary: Path) -> None:
    """A full file system: the rank's own error is still told, by the room that was kept for it."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(temporary)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        fill = 'with open("weights.bin", "wb") as file:\n    while True:\n        file.write(bytes(65536))'
        outcome = play(f"if rank == 0:\n    {fill.replace(chr(10), chr(10) + '    ')}\nother_ranks()")
        assert outcome.rank == 0 and outcome.failure == "OSError: [Errno 28] No space left on device"
        (temporary / "full").write_bytes(bytes(1))
        with pytest.raises(OSError), (temporary / "full").open("wb") as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(SmokeError, match=r"that cannot be written: No space left on device.*TMPDIR"):
            play("pass")
    finally:
        subprocess.run(["umount", "-l", str(temporary)], check=True)


def test_no_space_for_a_report_at_all() -> None:
    """Not even the room that was kept: the parent looks itself."""
    before = shutil.disk_usage
    try:
        shutil.disk_usage = lambda path: before(path)._replace(free=0)  # type: ignore[assignment]
        outcome = play("report.path = Path('/proc/none')\nos._exit(1)", ranks=1)
    finally:
        shutil.disk_usage = before
    assert outcome.kind == "space" and "no space left in" in (outcome.failure or "")


def test_no_temporary_folder(monkeypatch: pytest.MonkeyPatch, make_run: MakeRun) -> None:
    monkeypatch.setattr("zerocfg.smoke.smoke._require", lambda run: None)
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self/fdinfo")
    with pytest.raises(SmokeError, match="works in a temporary folder, and that cannot be written"):
        play("pass")
    result = CliRunner().invoke(cli, [str(make_run(3)), "--device", "cpu"])
    assert result.exit_code == 2 and "TMPDIR" in result.output and "Traceback" not in result.output


def test_a_place_to_keep_that_cannot_be_made(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerocfg.smoke.smoke._require", lambda run: None)
    folder = make_run(3)
    with pytest.raises(SmokeError, match="cannot create the folder of --keep"):
        smoke(folder, Options(device="cpu", keep=folder / "ds_config.json" / "kept"))


def test_an_error_of_somebody_else_is_not_taken_for_the_scratch_folders() -> None:
    with pytest.raises(FileNotFoundError), scratch():
        Path("/no/such/file").read_text()


def test_temporary_files_of_ranks_go_with_the_run(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also below a folder with a long name; ranks that are killed, as torchrun, remove none."""
    long = temporary / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    outcome = play("import tempfile\ntempfile.mkdtemp(prefix='torchelastic_')\nos._exit(3)", ranks=1)
    assert outcome.kind == "killed" and list(long.iterdir()) == []
    long.rmdir()


# Somebody who wants it to end


PHASES = {
    "launch": "import time; time.sleep(600)",
    "import": "report.phase('import')\nother_ranks()",
    "init": "report.phase('init')\nother_ranks()",
    "step 1": "other_ranks()",
    "save": "report.phase('save')\nPath('weights').mkdir(exist_ok=True)\nother_ranks()",
}


@pytest.fixture
def heard() -> Iterator[None]:
    """A shell starts background jobs, such as a whole test run, with Ctrl-C ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_end_in_any_phase(phase: str, sign: signal.Signals, heard: None) -> None:
    def progress(seen: str) -> None:
        if seen == phase:
            os.kill(os.getpid(), sign)

    before = signal.getsignal(sign)
    with scratch() as folder:
        if phase == "launch":
            words = [sys.executable, "-c", PHASES[phase]]
        else:
            words = standin.command(folder, PHASES[phase])
        outcome = process.run(words, folder, 2, "cpu", 60, progress, standin.variables(folder))
        assert standin.processes(str(folder.parent)) == []
    assert outcome.interrupted and outcome.failure == "interrupted"
    assert signal.getsignal(sign) is before


def test_asked_twice_ends_sooner(heard: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C comes while a launcher that does not end when asked is being ended; the clean-up is whole."""
    monkeypatch.setattr(process, "GRACE", 600.0)
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getppid(), signal.SIGINT))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
        "print('nobody ended me', flush=True)\n"
    )

    def progress(_: str) -> None:
        until(lambda: "up" in (folder / "log.txt").read_text())
        os.kill(os.getpid(), signal.SIGINT)

    with scratch() as folder:
        outcome = process.run([sys.executable, "-c", code], folder, 1, "cpu", 60, progress)
        assert (folder / "log.txt").read_text() == "up\n", "killed, not waited for"
    assert outcome.interrupted


def test_asked_before_the_launch(heard: None) -> None:
    from zerocfg.smoke.launch.interrupts import interrupts

    with interrupts(), scratch() as folder:
        os.kill(os.getpid(), signal.SIGINT)
        outcome = process.run(["/no/launcher"], folder, 2, "cpu", 60)
    assert outcome.interrupted and outcome.reports == [{}, {}]


def started(folder: Path, body: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A zerocfg of its own whose ranks run, and their processes."""
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "tests.smoke.standin", str(folder), body]
    zerocfg = subprocess.Popen(
        words,
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A signal that was ignored stays ignored: a test run may itself have been started by nohup.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    until(lambda: len(list(folder.glob("zerocfg-smoke-*/reports/rank?.json"))) == 2)
    return zerocfg, standin.processes(str(folder))


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_zerocfg_is_asked_to_end(sign: signal.Signals, temporary: Path) -> None:
    zerocfg, ranks = started(temporary, "other_ranks()")
    assert len(ranks) == 3  # the launcher and two ranks
    zerocfg.send_signal(sign)
    said, _ = zerocfg.communicate(timeout=30)
    assert (said.strip(), zerocfg.returncode) == ("interrupted", 0)


@pytest.mark.parametrize("body", ["other_ranks()", "os.kill(os.getpid(), signal.SIGSTOP)"])
def test_zerocfg_is_killed(body: str, temporary: Path) -> None:
    """Its guard ends the ranks, also stopped ones, and removes its folder."""
    zerocfg, ranks = started(temporary, body)
    zerocfg.kill()
    zerocfg.communicate()
    assert len(ranks) == 3
    until(lambda: not standin.processes(str(temporary)) and not list(temporary.iterdir()))
    until(lambda: not standin.guards(str(temporary)))


def test_zerocfg_and_its_guard_are_killed(temporary: Path) -> None:
    """As by a power cut: the next run removes what is left, and nothing of a run that still lives."""
    (temporary / "zerocfg-smoke-notes").mkdir()  # somebody's own
    zerocfg, _ = started(temporary, "other_ranks()")
    with scratch() as living:
        assert sweep() == [] and living.is_dir()
        (guard,) = [one for one in standin.guards(str(temporary)) if str(living) not in cmdline(one)]
        os.kill(guard, signal.SIGKILL)
        zerocfg.kill()
        zerocfg.communicate()
        assert len(standin.processes(str(temporary))) == 3
        assert [one.name for one in sweep()] != [] and living.is_dir()
    assert standin.processes(str(temporary)) == []
    (temporary / "zerocfg-smoke-notes").rmdir()


def cmdline(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().decode()


# Locks of compilations


WAIT = """
import importlib.util
found = importlib.util.find_spec("torch").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("file_baton", found + "/utils/file_baton.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
baton = module.FileBaton(os.environ["TORCH_EXTENSIONS_DIR"] + "/cpu_adam/lock")
"""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not any((Path(one) / "torch" / "utils" / "file_baton.py").exists() for one in sys.path):
        pytest.skip("torch is not installed")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = tmp_path / "cpu_adam"
    folder.mkdir()
    return folder / "lock"


def test_a_lock_that_nobody_holds_is_named(lock: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the time limit when it is old, else at its end. On a shared file system it may be held elsewhere."""
    monkeypatch.setattr(process, "LOCKED", 0.5)
    monkeypatch.setattr(operator_locks, "file_system", lambda _: "nfs4")
    monkeypatch.setattr(operator_locks, "_boot", lambda: 0.0)

    def in_wait(report: dict[str, Any]) -> bool:
        (folder,) = temporary.glob("zerocfg-smoke-*")
        frames = stacks.ask(folder / "reports", [report], {report["pid"]})
        return any("file_baton.py" in one for one in frames.get(0, []))

    lock.touch()
    os.utime(lock, (1e9, 1e9))
    outcome = play(f"{WAIT}\nsignal.alarm(50)\nbaton.wait()", ranks=1, limit=600)
    assert outcome.kind == "lock"
    assert str(lock) in outcome.detail[0] and "remove it" in outcome.detail[0]
    lock.touch()
    outcome = hang(f"{WAIT}\nreport.phase('save')\nbaton.wait()", ranks=1, phase="save", ready=in_wait)
    assert outcome.kind == "lock" and outcome.seconds >= 60, "by the clock that `hang` puts forward"
    assert lock.exists() and outcome.cleared == []


def test_the_lock_of_a_rank_that_was_killed_is_removed(lock: Path) -> None:
    outcome = play(f"{WAIT}\nassert baton.try_acquire()\nos.kill(os.getpid(), signal.SIGKILL)", ranks=1)
    assert outcome.kind == "killed" and not lock.exists()


def test_the_lock_of_another_run_stays(lock: Path) -> None:
    """One that somebody still holds, though it was made while the killed run ran."""
    with scratch() as folder:
        words = standin.command(folder, f"{WAIT}\nbaton.try_acquire()\nother_ranks()", ranks=1)
        (folder / "reports").mkdir()
        mark = {leftovers.MARK: str(folder)}
        holder = subprocess.Popen(words, cwd=folder, env={**os.environ, **standin.variables(folder), **mark})
        try:
            with scratch() as other:
                words = standin.command(other, "until = Path(sys.argv[0]).with_name('go')\n" + GO, ranks=1)
                outcome = process.run(
                    words, other, 1, "cpu", 60, lambda phase: go(phase, other, lock), standin.variables(other)
                )
            assert outcome.kind == "killed" and lock.exists()
        finally:
            leftovers.kill(str(folder))
            holder.wait()


GO = """
while not until.exists():
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


def go(phase: str, folder: Path, lock: Path) -> None:
    """Have the rank killed once another run has made its lock."""
    if phase == "step 1":
        until(lock.exists)
        os.utime(lock)  # by now at the latest it is not one that was there before
        (folder / "go").touch()
