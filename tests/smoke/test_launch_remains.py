"""What a launch makes and leaves: its folders and their locks, shared memory, processes, the locks of compilations, the
zygote, the trial of a shared card, the job of the ranks and of a user's command. No library runs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.recorded_calls import Log, logged
from zerocfg.smoke.launch import command, job_folder, leftovers, operator_locks, process, scratch, sharing, warm
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.launch.warm import zygote_process
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.worker.job import Job

if TYPE_CHECKING:
    from .conftest import MakeRun


CPU = Device("cpu", "cpu")
GIB = 1 << 30


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


class TestScratch:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Temporary folders, those in memory and guards of this test alone."""
        found: Any = SimpleNamespace(log=[], below=tmp_path / "t", memory=tmp_path / "shm")
        found.below.mkdir()
        found.memory.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(found.below))
        monkeypatch.setattr(scratch, "SHARED_MEMORY", found.memory)
        guard = SimpleNamespace(kill=logged(found.log, "kill"), communicate=logged(found.log, "communicate"))
        monkeypatch.setattr(scratch, "_guard", lambda folder: found.log.append(("guard", folder)) or guard)
        monkeypatch.setattr(scratch.leftovers, "kill", logged(found.log, "ended"))
        return found

    def test_nothing_of_it_is_left(self, place: Any) -> None:
        before = handles()
        with scratch.scratch() as folder:
            assert folder.parent == place.below and folder.name.startswith("zerocfg-smoke-")
            assert (folder / "alive").stat().st_mode & 0o777 == 0o600
            assert (folder / "alive").read_bytes() == b"locked\n"
            twin = scratch.make_twin(folder)
            assert twin == place.memory / folder.name == scratch.twin(folder) and twin.stat().st_mode & 0o777 == 0o700
            assert (twin / "owner").read_text() == str(folder) and (twin / "alive").read_bytes() == b"locked\n"
            assert scratch.make_twin(folder) is None, "it is there already"
            assert not scratch._dead(folder / "alive") and not scratch._dead(twin / "alive")
            assert handles() == before + 2
        assert handles() == before and scratch._twin_locks == {}
        assert list(place.below.iterdir()) == [] == list(place.memory.iterdir())
        assert place.log == [("guard", folder), ("kill",), ("communicate",)]

    def test_folders_that_went_meanwhile(self, place: Any) -> None:
        with scratch.scratch() as folder:
            twin = scratch.make_twin(folder)
            assert twin is not None
            for item in (folder, twin):
                (item / "alive").unlink()
                (item / "owner").unlink(missing_ok=True)
                item.rmdir()

    @pytest.mark.parametrize(
        ("error", "whose"),
        [
            (OSError(errno.ENOSPC, "No space left", "/else"), True),
            (OSError(errno.EDQUOT, "Quota exceeded"), True),
            (OSError(errno.EROFS, "Read-only"), True),
            (OSError(errno.ENOENT, "No such file", "/else"), False),
            (OSError(errno.ENOENT, "No such file"), False),
            (OSError(errno.EACCES, "Denied", "{folder}/x"), True),
        ],
    )
    def test_whose_error_it_is(self, error: OSError, whose: bool) -> None:
        with pytest.raises(SmokeError if whose else OSError) as raised, scratch.scratch() as folder:
            if error.filename:
                error.filename = error.filename.format(folder=folder)
            raise error
        if whose:
            words = "a smoke-run works in a temporary folder, and that cannot be written: "
            place = error.filename or folder
            room = "make room, or name another place by TMPDIR"
            assert str(raised.value) == f"{words}{error.strerror} ({place}); {room}"
        assert not folder.exists()

    def test_no_folder_at_all(self, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(place.below / "none"))
        words = r"cannot be written: No such file or directory \(.*none.*\); make room"
        with pytest.raises(SmokeError, match=words), scratch.scratch():
            pass
        assert place.log == []

    def dead(self, folder: Path, text: bytes = b"locked\n", owner: str | None = None) -> Path:
        folder.mkdir()
        (folder / "alive").write_bytes(text)
        if owner is not None:
            (folder / "owner").write_text(owner)
        return folder

    def test_what_dead_runs_left_is_swept(self, place: Any) -> None:
        first = self.dead(place.below / "zerocfg-smoke-a")
        second = self.dead(place.memory / "zerocfg-smoke-b", owner="/t/zerocfg-smoke-b")
        self.dead(place.below / "other")
        self.dead(place.below / "zerocfg-smoke-new", b"")
        (place.below / "zerocfg-smoke-bare").mkdir()
        held = self.dead(place.below / "zerocfg-smoke-held")
        before = handles()
        with (held / "alive").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert sorted(scratch.sweep()) == sorted([first, second])
            assert handles() == before + 1
        assert sorted(place.log) == [("ended", "/t/zerocfg-smoke-b"), ("ended", str(first))]
        left = ["other", "zerocfg-smoke-bare", "zerocfg-smoke-held", "zerocfg-smoke-new"]
        assert sorted(item.name for item in place.below.iterdir()) == left and list(place.memory.iterdir()) == []
        with scratch.scratch():
            assert not held.exists(), "each run sweeps before it begins"

    def test_those_of_others_stay(self, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = self.dead(place.below / "zerocfg-smoke-a")
        user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: user)
        assert scratch.sweep() == [] and folder.is_dir() and place.log == []

    def test_what_cannot_be_removed_stops_nobody(self, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = self.dead(place.below / "zerocfg-smoke-a")
        monkeypatch.setattr(scratch, "shutil", SimpleNamespace(rmtree=logged(place.log, "remove")))
        assert scratch.sweep() == [folder]
        assert place.log == [("ended", str(folder)), ("remove", folder, ("ignore_errors", True))]

    def test_without_locks(self, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Windows has none: nothing is taken for dead."""
        self.dead(place.below / "zerocfg-smoke-a")
        monkeypatch.setattr(scratch, "fcntl", None)
        before = handles()
        with scratch.scratch() as folder:
            assert not (folder / "alive").exists() and scratch.make_twin(folder) is not None
        assert handles() == before and scratch._twin_locks == {} and scratch.sweep() == []
        assert [item.name for item in place.below.iterdir()] == ["zerocfg-smoke-a"]

    def test_temporary_files_twice(self, tmp_path: Path) -> None:
        assert scratch.temporary(tmp_path) == scratch.temporary(tmp_path), "for a launch that is made again"


def test_the_guard_is_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = []
    kinds = SimpleNamespace(Popen=logged(log, "start", "guard"), PIPE=-1, DEVNULL=-3)
    monkeypatch.setattr(scratch, "subprocess", kinds)
    assert scratch._guard(Path("/t/zerocfg-smoke-a")) == "guard"
    words = [sys.executable, "-I", "-S", leftovers.__file__, "/t/zerocfg-smoke-a", "/dev/shm/zerocfg-smoke-a"]
    named = [("cwd", "/"), ("stdin", -1), ("stdout", -3), ("stderr", -3), ("start_new_session", True)]
    assert log == [("start", words, *named)]


class TestSegments:
    @pytest.fixture
    def shared(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "shm"
        folder.mkdir()
        monkeypatch.setattr(leftovers, "SHARED", folder)
        return folder

    def test_what_ranks_have_mapped_or_open_and_its_libraries_name(self, shared: Path) -> None:
        for name in ("psm_before", "dataset"):
            (shared / name).write_bytes(bytes(8))
        segments = leftovers.Segments()
        for name in ("psm_open", "nccl-mapped", "sem.unseen", "torch_77_1", "torch_78_1", "data"):
            (shared / name).write_bytes(bytes(8))
        (shared / "below").mkdir()
        (shared / "below" / "psm_deep").write_bytes(b"")
        with contextlib.ExitStack() as open_files:
            for name in ("psm_before", "psm_open", "data", "below/psm_deep"):
                open_files.enter_context((shared / name).open())
            with (shared / "nccl-mapped").open("r+b") as file:
                mapped = mmap.mmap(file.fileno(), 8)
            open_files.callback(mapped.close)
            segments.look({os.getpid(), 77})
            assert (
                segments.seen >= {"psm_before", "psm_open", "nccl-mapped", "data"} and "psm_deep" not in segments.seen
            )
        assert segments.remove() == ["nccl-mapped", "psm_open", "torch_77_1"]
        left = {"psm_before", "dataset", "sem.unseen", "torch_78_1", "data", "below"}
        assert {item.name for item in shared.iterdir()} == left

    def test_buffers_of_deepspeed_have_the_port_in_their_name(self, shared: Path) -> None:
        segments = leftovers.Segments()
        names = ["deepspeed_allreduce_buffer_0_h_295_0", "deepspeed_allreduce_buffer_0_h_2950_0", "psm_295_x"]
        for name in names:
            (shared / name).write_bytes(b"")
        assert segments.remove() == [] and segments.remove(296) == []
        assert segments.remove(295) == names[:1] and {item.name for item in shared.iterdir()} == set(names[1:])

    def test_those_of_others_stay(self, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        segments = leftovers.Segments()
        (shared / "torch_77_1").write_bytes(b"")
        segments.look([77])
        user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: user)
        assert segments.remove() == [] and (shared / "torch_77_1").exists()

    def test_a_system_without(self, shared: Path) -> None:
        shared.rmdir()
        assert leftovers.Segments().before == set() == set(leftovers.Segments().remove())


def test_a_killed_process_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = []
    left = iter([{11}, set()])
    monkeypatch.setattr(leftovers, "marked", lambda mark: next(left))
    monkeypatch.setattr(leftovers, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=logged(log, "sleep")))
    monkeypatch.setattr(leftovers, "os", SimpleNamespace(kill=logged(log, "kill", PermissionError())))
    assert leftovers.kill("x") == {11} and log == [("kill", 11, signal.SIGKILL), ("sleep", 0.02)]


@pytest.mark.parametrize("end", [b"", OSError(errno.EBADF, "closed")])
def test_the_guards_program(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the end of its input, whatever comes before, and looks twice."""
    log: Log = []
    said = iter([b"x", end])

    def heard(handle: int, size: int) -> bytes:
        log.append(("read", handle))
        answer = next(said)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(leftovers, "os", SimpleNamespace(read=heard))
    monkeypatch.setattr(leftovers, "sys", SimpleNamespace(argv=["leftovers.py", "/s", "/m", "/n"]))
    segments = SimpleNamespace(look=logged(log, "look"), remove=logged(log, "segments"))
    monkeypatch.setattr(leftovers, "Segments", lambda: log.append(("before",)) or segments)
    monkeypatch.setattr(leftovers, "marked", lambda mark: {mark})
    monkeypatch.setattr(leftovers, "kill", logged(log, "kill"))
    monkeypatch.setattr(leftovers, "time", SimpleNamespace(sleep=logged(log, "sleep")))
    monkeypatch.setattr(leftovers, "shutil", SimpleNamespace(rmtree=logged(log, "remove")))
    leftovers.main()
    look = [("look", {"/s"}), ("kill", "/s"), ("sleep", 0.3)]
    folders = [("remove", folder, ("ignore_errors", True)) for folder in ("/s", "/m", "/n")]
    assert log == [("before",), ("read", 0), ("read", 0), *look, *look, ("segments",), *folders]


class TestOperatorLocks:
    NOW = 1_000_000_000.0

    @pytest.fixture
    def lock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
        monkeypatch.setattr(operator_locks, "time", SimpleNamespace(time=lambda: self.NOW, sleep=lambda seconds: None))
        path = tmp_path / "cpu_adam" / "lock"
        path.parent.mkdir()
        path.touch()
        self.age(path, 10)
        return path

    def age(self, path: Path, seconds: float) -> None:
        os.utime(path, (self.NOW - seconds, self.NOW - seconds))

    @pytest.mark.parametrize(
        ("variables", "folder"),
        [
            ({"TORCH_EXTENSIONS_DIR": "/e", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/e"),
            ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/torch_extensions"),
            ({"HOME": "/h"}, "/h/.cache/torch_extensions"),
            ({"TORCH_EXTENSIONS_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/torch_extensions"),
        ],
    )
    def test_where_torch_compiles(self, variables: Any, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert operator_locks.folder() == Path(folder)

    def test_locks_lie_one_or_two_folders_below(self, lock: Path, tmp_path: Path) -> None:
        for name in ("py311/utils/lock", "a/b/c/lock", "lock", "cpu_adam/other"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        assert sorted(operator_locks.find()) == [lock, tmp_path / "py311/utils/lock"]
        (tmp_path / "py311/utils/lock").unlink()
        (tmp_path / "py311/utils/lock").symlink_to("gone")
        state = lock.stat()
        assert operator_locks.snapshot() == {(lock, state.st_ino, state.st_mtime_ns)}

    @pytest.mark.parametrize(("written", "quiet", "left"), [(180.0, 180.0, True), (179.0, 180.0, False), (0, 0, True)])
    def test_nothing_was_written_lately(self, written: float, quiet: float, left: bool, lock: Path) -> None:
        (lock.parent / "a.o").touch()
        self.age(lock.parent / "a.o", written)
        self.age(lock, 500)
        assert operator_locks.abandoned(lock, quiet) is left

    def test_one_that_is_open_is_held(self, lock: Path) -> None:
        other = lock.parent.parent / "utils" / "lock"
        other.parent.mkdir()
        other.touch()
        self.age(other, 10)
        with lock.open():
            assert not operator_locks.abandoned(lock) and operator_locks.abandoned(other)
        assert operator_locks.abandoned(lock)

    def test_what_cannot_be_seen_is_not_abandoned(self, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not operator_locks.abandoned(lock.parent.parent / "none" / "lock")
        assert not operator_locks.abandoned(lock.parent / "gone")
        monkeypatch.setattr(operator_locks, "PROC", lock.parent)
        assert not operator_locks.abandoned(lock)
        monkeypatch.setattr(operator_locks, "removable", lambda path: pytest.fail("who holds it is not seen"))
        assert operator_locks.clear() == []
        operator_locks.remove(operator_locks.snapshot())
        assert lock.exists(), "it was there before"
        operator_locks.remove(set())
        assert not lock.exists(), "a rank was killed, and nobody else is seen"

    def test_a_new_lock_that_is_held_stays(self, lock: Path) -> None:
        with lock.open():
            operator_locks.remove(set())
        assert lock.exists()
        operator_locks.remove(set())
        assert not lock.exists()

    def test_two_looks_a_moment_apart(self, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        monkeypatch.setattr(operator_locks, "time", SimpleNamespace(time=lambda: self.NOW, sleep=logged(log, "sleep")))
        monkeypatch.setattr(operator_locks, "abandoned", logged(log, "look", True))
        monkeypatch.setattr(operator_locks, "removable", lambda path: True)
        monkeypatch.setattr(operator_locks, "_sees_all_processes", lambda: False)
        assert len(operator_locks.clear()) == 1 and not lock.exists()
        assert log == [("look", lock, 180.0), ("sleep", 0.2), ("look", lock, 180.0)]
        monkeypatch.setattr(operator_locks, "_sees_all_processes", lambda: True)
        lock.touch()
        self.age(lock, 10)
        operator_locks.clear()
        assert log[3:] == [("look", lock, 0.0), ("sleep", 0.2), ("look", lock, 0.0)]
        log.clear()
        monkeypatch.setattr(operator_locks, "abandoned", logged(log, "look", False))
        assert not operator_locks._abandoned_twice(lock) and log == [("look", lock, 0.0)]

    def test_one_that_may_not_be_removed_is_not(self, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_locks, "removable", lambda path: False)
        assert operator_locks.clear() == [] and lock.exists()
        monkeypatch.setattr(operator_locks, "removable", lambda path: True)
        monkeypatch.setattr(operator_locks, "_abandoned_twice", lambda path, quiet: False)
        assert operator_locks.clear() == [] and lock.exists()

    @pytest.mark.parametrize(
        ("kind", "age", "booted", "removable"),
        [
            ("ext4", 0, None, True),
            ("overlay", 0, None, True),
            ("nfs4", 7200, None, False),
            ("nfs4", 3600, 100, False),
            ("nfs4", 3601, 100, True),
            ("nfs4", 7200, 7200, False),
            ("nfs4", 7200, 7199, True),
            (None, 7200, 7200.5, False),
        ],
    )
    def test_where_a_holder_would_be_seen(
        self, kind: Any, age: float, booted: Any, removable: bool, lock: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.age(lock, age)
        monkeypatch.setattr(operator_locks, "file_system", lambda path: kind)
        monkeypatch.setattr(operator_locks, "_boot", lambda: None if booted is None else self.NOW - booted)
        assert operator_locks.removable(lock) is removable
        user = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: user)
        assert not operator_locks.removable(lock)
        lock.unlink()
        assert not operator_locks.removable(lock)

    @pytest.mark.parametrize(
        ("age", "words"),
        [
            (0, "0 s"),
            (120, "120 s"),
            (1800, "30 minutes"),
            (172_800, "2880 minutes"),
            (172_801, "2 days"),
            (302_400, "4 days"),  # three and a half
        ],
    )
    def test_how_old_one_is(self, age: float, words: str, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.age(lock, age)
        left = f"left {words} ago by a process that compiled an operator of DeepSpeed and was killed"
        assert operator_locks._left(lock) == left
        monkeypatch.setattr(operator_locks, "removable", lambda path: True)
        waits = "torch waits for it forever, in your training too"
        assert operator_locks.describe(lock) == f"{lock} was {left}; {waits}. The next smoke-run removes it"

    def test_the_first_namespace_of_the_kernel(self) -> None:
        assert operator_locks.FIRST_NAMESPACE == 0xEFFFFFFC, "PROC_PID_INIT_INO of include/linux/proc_ns.h"


class TestImports:
    """The zygote of a command, by what it is started with and how it is ended."""

    @pytest.fixture
    def start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def started(obstacle: str = "", error: OSError | None = None, runs: bool = True) -> tuple[Any, Log]:
            log: Log = []

            @contextlib.contextmanager
            def folder() -> Any:
                log.append(("folder",))
                yield tmp_path
                log.append(("removed",))

            def begin(place: Path, environment: dict[str, str]) -> Any:
                log.append(("start", place, environment))
                if error is not None:
                    raise error
                (place / "python").write_text("")
                (place / "python").chmod(0o755 if runs else 0o600)
                return SimpleNamespace(
                    poll=lambda: None, kill=logged(log, "kill"), communicate=logged(log, "communicate")
                )

            monkeypatch.setattr(warm, "scratch", folder)
            monkeypatch.setattr(warm.os, "access", lambda path, mode: runs)
            monkeypatch.setattr(zygote_process, "obstacle", lambda place: obstacle)
            monkeypatch.setattr(zygote_process, "start", begin)
            return warm.Imports(), log

        return started

    def test_it_is_started_once(self, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        imports, log = start()
        monkeypatch.setenv("PYTHONPATH", "/mine")
        imports.start(
            {"A": "1", "TMPDIR": "/t", "TEMP": "/t", "TMP": "/t", "PYTHONPATH": "/x", "ZEROCFG_SMOKE_RUN": "m"}
        )
        environment = {"A": "1", "PYTHONPATH": "/mine", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        environment["ZEROCFG_SMOKE_RUN"] = str(tmp_path)
        assert log == [("folder",), ("start", tmp_path / "warm", environment)]
        assert imports.executable == tmp_path / "warm" / "python" and imports.problem() == ""
        imports.start({})
        assert len(log) == 2
        imports.end()
        assert log[2:] == [("communicate", ("timeout", 5.0)), ("kill",), ("communicate",), ("removed",)]

    def test_without_a_path_of_the_callers(self, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        imports, log = start()
        monkeypatch.delenv("PYTHONPATH", raising=False)
        imports.start({"PYTHONPATH": "/x"})
        assert set(log[1][2]) == {"PYTORCH_NVML_BASED_CUDA_CHECK", "ZEROCFG_SMOKE_RUN"}

    def test_what_is_in_the_way(self, start: Any) -> None:
        imports, log = start(obstacle="too long")
        imports.start({})
        imports.start({})
        assert imports.refusal == imports.problem() == "too long" and imports.zygote is None and log == [("folder",)]
        imports.end()
        assert log == [("folder",), ("removed",)]

    def test_what_goes_wrong(self, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        imports, _ = start(error=PermissionError(13, "Permission denied"))
        imports.start({})
        assert imports.refusal == "it cannot be started: Permission denied" and imports.zygote is None
        (tmp_path / "warm").rmdir()
        imports, _ = start(runs=False)
        imports.start({})
        assert imports.refusal == f"programs cannot be run in the temporary folder: {tmp_path / 'warm'}"

        def full() -> Any:
            raise SmokeError("no room")

        monkeypatch.setattr(warm, "scratch", full)
        imports = warm.Imports()
        imports.start({})
        assert imports.refusal == "no room" and imports.zygote is None

    def test_why_fresh_processes_are_started(self, tmp_path: Path) -> None:
        zygote: Any = SimpleNamespace(poll=lambda: None, returncode=3)
        imports = warm.Imports(tmp_path, zygote)
        said: list[str] = []
        imports.show(said.append)
        assert imports.problem() == "" and said == []
        (tmp_path / "refused").write_text("the libraries hang")
        imports.show(None)
        imports.show(said.append)
        imports.show(said.append)
        assert said == ["fresh processes for each launch: the libraries hang"]
        imports.refusal = "other"
        imports.show(said.append)
        assert said[1:] == ["fresh processes for each launch: other"]
        (tmp_path / "refused").unlink()
        imports = warm.Imports(tmp_path, zygote)
        zygote.poll = lambda: 3
        assert imports.problem() == "the process that imported the libraries ended with code 3"
        assert warm.Imports(tmp_path).problem() == "", "none was started"

    def test_one_for_all_launches_within(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ends: Log = []
        monkeypatch.setattr(warm, "_active", [])
        monkeypatch.setattr(warm.Imports, "end", lambda self: ends.append((self,)))
        with pytest.raises(KeyError), warm.shared_imports():
            (own,) = warm._active
            with warm.shared_imports():
                assert warm._active == [own]
            assert ends == []
            raise KeyError
        assert warm._active == [] and ends == [(own,)]
        monkeypatch.setattr(warm, "is_warm", lambda executable: executable == sys.executable)
        with warm.shared_imports():
            assert warm._active == [], "this is a program of a zygote"
        assert len(ends) == 1

    def test_a_python_beside_a_socket(self, tmp_path: Path) -> None:
        assert not warm.is_warm(str(tmp_path / "python"))
        (tmp_path / "socket").touch()
        assert warm.is_warm(str(tmp_path / "python"))


class TestZygoteProcess:
    @pytest.mark.parametrize(("any_environment", "word"), [(False, "same"), (True, "any")])
    def test_how_it_is_started(
        self, any_environment: bool, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: Log = []

        class Listening:
            bind, listen = staticmethod(logged(log, "bind")), staticmethod(logged(log, "listen"))
            fileno = staticmethod(lambda: 9)

            def __enter__(self) -> Listening:
                return self

            def __exit__(self, *_: object) -> None:
                log.append(("closed",))

        monkeypatch.setattr(zygote_process, "socket", SimpleNamespace(socket=lambda family: Listening(), AF_UNIX=1))
        kinds = SimpleNamespace(Popen=logged(log, "start", "zygote"), PIPE=-1, STDOUT=-2)
        monkeypatch.setattr(zygote_process, "subprocess", kinds)
        assert zygote_process.start(tmp_path, {"A": "1"}, Path("/i.py"), any_environment) == "zygote"
        here = Path(zygote_process.__file__).parent
        words = [sys.executable, str(here / "zygote.py"), str(tmp_path), "9", "/i.py", word]
        named = {"env": {"A": "1", "ROOM": "-" * 100_000}, "pass_fds": [9], "stdin": -1, "stdout": -1, "stderr": -2}
        assert log[0] == ("bind", str(tmp_path / "socket")) and log[1][0] == "listen" and log[3:] == [("closed",)]
        assert log[2] == ("start", words, *named.items(), ("start_new_session", True))
        assert {item.name: item.stat().st_mode & 0o777 for item in tmp_path.iterdir()} == dict.fromkeys(
            ("python", "accelerate", "torchrun", "deepspeed"), 0o755
        )
        text = (tmp_path / "python").read_text()
        assert text == f"#!{sys.executable} -IS\n{(here / 'interpreter.py').read_text()}"
        program = (tmp_path / "torchrun").read_text()
        assert program == f'#!/bin/sh\nexec {tmp_path}/python -m torch.distributed.run "$@"\n'

    @pytest.mark.parametrize(
        ("place", "value"),
        [
            ("os", SimpleNamespace()),
            ("socket", SimpleNamespace()),
            ("Path", lambda name: SimpleNamespace(is_file=lambda: False)),
        ],
    )
    def test_a_system_without_process_handles(
        self, place: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(zygote_process, place, value)
        words = "this system has no process handles (pidfd), which Linux has since 5.3"
        assert zygote_process.obstacle(tmp_path) == words


class TestSharing:
    @pytest.fixture(autouse=True)
    def nothing_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sharing, "_FOUND", {})

    @pytest.mark.parametrize(("room", "ranks", "each"), [(10, 2, 4), (4, 2, 1), (3, 2, 1), (6, 3, 1), (9, 3, 2)])
    def test_memory_of_a_rank(self, room: int, ranks: int, each: int) -> None:
        """Its share, but for a GiB of CUDA's own; one at least."""
        assert sharing.memory_of_a_rank(Device("cuda", "x", 1, room * GIB), ranks) == each * GIB

    def test_one_card_for_all(self) -> None:
        card = Device("cuda", "x", 4, 8, 7)
        assert sharing.one_card(card) == Device("cuda", "x", 1, 8, 7, shared=True)
        with pytest.raises(SmokeError, match="--share-gpu needs an NVIDIA card"):
            sharing.one_card(CPU)

    @pytest.mark.parametrize(("visible", "first"), [(None, "0"), ("3", "3"), (" 5 ,1", "5"), ("GPU-a,GPU-b", "GPU-a")])
    def test_the_card_that_is_left(self, visible: str | None, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert sharing.first_card() == {"CUDA_VISIBLE_DEVICES": first}

    def played(self, monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> list[Any]:
        left, seen = list(outcomes), list[Any]()

        def run(*words: Any) -> Outcome:
            seen.append(words)
            return left.pop(0)

        monkeypatch.setattr(process, "run", run)
        monkeypatch.setattr(process, "free_port", lambda: 7)
        monkeypatch.setenv("PYTHONPATH", "/mine")
        return seen

    def test_the_trial_of_each_mode(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = self.played(monkeypatch, Outcome([], "x" * 400), Outcome([]))
        said: list[str] = []
        found = sharing.find(3, tmp_path, "cpu", progress=said.append)
        assert found == sharing.Sharing("gloo", {"nccl": "x" * 300}) == sharing.cached(3, "cpu")
        assert sharing.cached(3) is None and sharing.cached(2, "cpu") is None
        assert said == [f"trying whether 3 ranks can share a card: {mode}" for mode in ("nccl", "gloo")]
        for number, (words, mode) in enumerate(zip(seen, ("nccl", "gloo"), strict=True)):
            folder = tmp_path / f"sharing-{number}"
            job = {"reports": str(folder / "reports"), "mode": mode, "device": "cpu"}
            assert json.loads((folder / "job.json").read_text()) == job
            python = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "3", "--master_port", "7"]
            line = [*python, "-m", "zerocfg_worker.sharing", str(folder / "job.json")]
            paths = {"PYTHONPATH": f"{folder / 'program'}:/mine"}
            assert words == (line, folder, 3, "cpu", 60.0, None, paths)
            assert (folder / "program" / "zerocfg_worker" / "sharing.py").is_file()

    def test_a_card_is_named_for_its_trial(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
        seen = self.played(monkeypatch, Outcome([]))
        monkeypatch.delenv("PYTHONPATH")
        assert sharing.find(2, tmp_path).mode == "nccl" and sharing.cached(2) == sharing.Sharing("nccl", {})
        program = str(tmp_path / "sharing-0" / "program")
        assert seen[0][-1] == {"PYTHONPATH": program, "CUDA_VISIBLE_DEVICES": "2"}

    def test_who_asks_to_end_gets_no_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = self.played(monkeypatch, Outcome([], "interrupted", interrupted=True), Outcome([]))
        assert sharing.find(2, tmp_path) == sharing.Sharing("nccl", {}) and len(seen) == 1
        assert sharing.cached(2) is None

    def test_in_words(self) -> None:
        found = sharing.Sharing("gloo", {}).reduction(2, "H200")
        assert (found.kind, found.run) == (Kind.SHARED_CARD, {"ranks": 2, "card": "H200", "collectives": "gloo"})


class TestCommand:
    def test_the_users_command_is_run_where_they_are(
        self, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: Log = []
        run, place = read(make_run(3)), tmp_path / "scratch"
        place.mkdir()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTHONPATH", "/mine")
        monkeypatch.setattr(command.shutil, "which", lambda name: f"/bin/{name}")
        monkeypatch.setattr(process, "run", logged(log, "run", Outcome([{"rank": 0}])))
        found = command.launch("python x", run, CPU, 5, 60.0, place, progress=None)
        configs = [run.path / "accelerate.yaml", run.path / "ds_config.json"]
        assert (found.outcome, found.configs, found.unwatched) == (Outcome([{"rank": 0}]), configs, None)
        variables = {
            "WANDB_MODE": "disabled",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{place / 'program'}:/mine",
            "ZEROCFG_SMOKE_JOB": str(place / "job.json"),
            "ZEROCFG_SMOKE_REPORTS": str(place / "reports"),
            "ZEROCFG_SMOKE_FILES": ":".join(map(str, configs)),
        }
        words = (["/bin/bash", "-c", "python x"], place, None, "cpu", 60.0, None, variables)
        assert log == [("run", *words, ("place", tmp_path))]
        job = Job.read(place / "job.json")
        saved = (str(place / "reports"), str(place / "written"))
        assert replace(job, parts=("train",), own=()) == Job(*saved, "command", False, "cpu", 5, {}, {}, 0, None)
        assert (place / "reports").is_dir() and (place / "written").is_dir()
        hook = (place / "program" / "sitecustomize.py").read_bytes()
        assert hook == (place / "program" / "zerocfg_worker" / "hooks" / "sitecustomize.py").read_bytes()

    def test_without_a_shell(self, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(command.shutil, "which", lambda name: None)
        with pytest.raises(SmokeError, match=r"^a command needs bash, which is not installed here$"):
            command.launch("x", read(make_run(3)), CPU, 5, 60.0, tmp_path)

    @pytest.fixture
    def watch(self, tmp_path: Path) -> command._Unwatched:
        return command._Unwatched("/s/job.json", tmp_path / "reports")

    @pytest.mark.parametrize(
        ("variables", "program", "lost"),
        [
            (["ZEROCFG_SMOKE_JOB=/s/job.json", "PYTHONPATH=/x"], "python3.11", True),
            (["ZEROCFG_SMOKE_JOB=/s/job.json"], "python", True),
            (["PYTHONPATH=/x:{here}/program", "ZEROCFG_SMOKE_JOB=/s/job.json"], "python3", False),
            (["PYTHONPATH=/x:{here}/programs", "ZEROCFG_SMOKE_JOB=/s/job.json"], "python3", True),
            (["ZEROCFG_SMOKE_JOB=/s/job.json", "PYTHONPATH=/x"], "bash", False),
            (["ZEROCFG_SMOKE_JOB=/other/job.json", "PYTHONPATH=/x"], "python3", False),
            (["OTHER={here}/program", "ZEROCFG_SMOKE_JOB=/s/job.json"], "python3", True),
        ],
    )
    def test_a_python_that_cannot_find_the_hook(
        self, variables: list[str], program: str, lost: bool, watch: Any, tmp_path: Path
    ) -> None:
        place = tmp_path / "77"
        place.mkdir()
        (place / "environ").write_bytes(b"\0".join(item.format(here=tmp_path).encode() for item in variables))
        assert not watch._lost(place), "it is gone, or another user's"
        (place / "exe").symlink_to(f"/bin/{program}")
        assert watch._lost(place) is lost

    def test_it_is_ended_and_told(self, watch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        for name in ("7", "8", "self"):
            (tmp_path / name).mkdir()
        waits = iter([False, True])
        watch._over = SimpleNamespace(wait=lambda seconds: log.append(("wait", seconds)) or next(waits))
        watch._lost = lambda place: place.name in ("8", "self")
        monkeypatch.setattr(command, "Path", lambda name: tmp_path)
        monkeypatch.setattr(command, "os", SimpleNamespace(kill=logged(log, "kill", ProcessLookupError())))
        watch._look()
        assert log == [("wait", 0.5), ("kill", 8, signal.SIGKILL), ("wait", 0.5)]
        assert watch.found == (
            "the command overwrites PYTHONPATH, so that zerocfg cannot watch its training; "
            "write PYTHONPATH=FOLDER:$PYTHONPATH"
        )

    def test_nobody_is_watched_any_more_behind_it(self, watch: Any) -> None:
        assert watch._thread.daemon
        with watch:
            assert watch._thread.is_alive()
        assert not watch._thread.is_alive() and watch.found is None


class TestJobFolder:
    def prepared(self, run: Any, folder: Path, **changes: Any) -> tuple[list[str], Job]:
        given: dict[str, Any] = {
            "ranks": 2,
            "model": {"model_type": "x"},
            "accelerate": run.accelerate,
            "deepspeed": run.deepspeed,
            "arguments": {"bf16": True},
            "plan": {},
            "sequence": 32,
        }
        folder.mkdir()
        more = {name: changes.pop(name) for name in list(changes) if name in ("copy", "own", "trainer")}
        reduced = Reduced(**given | changes)
        for name, value in more.items():
            setattr(reduced, name, value)
        words = job_folder.prepare(run, reduced, CPU, 3, folder)
        return words, Job.read(folder / "job.json")

    def by_hand(self, run: Any, **changes: Any) -> Any:
        own = SimpleNamespace(texts={}, by_accelerate=False, options=["--x"], variables={}, run=None)
        own.run = SimpleNamespace(deepspeed_route="trainer", deepspeed=None, flags={})
        for name, value in changes.items():
            setattr(own, name, value)
        return replace(run, handwritten=own)  # type: ignore[arg-type]

    def test_the_whole_job(self, make_run: MakeRun, tmp_path: Path) -> None:
        place = tmp_path / "s"
        words, job = self.prepared(
            read(make_run(3, consumer="trl")), place, trainer="DPOTrainer", own=("beta",), copy={"a": 1}
        )
        assert replace(job, own=tuple(job.own), parts=tuple(job.parts)) == Job(
            reports=str(place / "reports"),
            saved=str(place / "weights"),
            consumer="trl",
            by_accelerate=True,
            device="cpu",
            steps=3,
            model={"model_type": "x"},
            arguments={"bf16": True},
            sequence=32,
            deepspeed_config=str(place / "ds_config.json"),
            trainer="DPOTrainer",
            own=("beta",),
            narrow={"a": 1},
        )
        assert words[-3:] == ["-m", "zerocfg_worker", str(place / "job.json")]

    @pytest.mark.parametrize(("left_out", "why"), [(False, None), (True, "a checkpoint needs saved weights")])
    def test_without_saving_nothing_is_resumed(
        self, left_out: bool, why: str | None, make_run: MakeRun, tmp_path: Path
    ) -> None:
        left = [Reduction(Kind.SAVING, why="it takes too long")] if left_out else []
        _, job = self.prepared(read(make_run(3)), tmp_path / "s", changes=left)
        assert (job.saves, job.no_resume) == (not left_out, why)

    def test_files_by_hand_are_copied_where_nothing_was_changed(self, make_run: MakeRun, tmp_path: Path) -> None:
        texts = {"deepspeed": b"{ // as it is\n}", "accelerate": b"a: [\n"}
        run = self.by_hand(read(make_run(3)), texts=texts, by_accelerate=True)
        words, job = self.prepared(run, tmp_path / "a", accelerate=None)
        assert (tmp_path / "a/ds_config.json").read_bytes() == texts["deepspeed"]
        assert (tmp_path / "a/accelerate.yaml").read_bytes() == texts["accelerate"]
        assert job.by_accelerate and "--x" in words and "--config_file" in words
        assert job.arguments == {"bf16": True, "deepspeed": str(tmp_path / "a/ds_config.json")}
        _, job = self.prepared(run, tmp_path / "b", deepspeed={"changed": 1})
        assert json.loads((tmp_path / "b/ds_config.json").read_text()) == {"changed": 1}
        assert yaml.safe_load((tmp_path / "b/accelerate.yaml").read_text())["num_processes"] == 4

    def test_one_that_has_no_files(self, make_run: MakeRun, tmp_path: Path) -> None:
        run = self.by_hand(replace(read(make_run(3, consumer="deepspeed")), deepspeed=None))
        words, job = self.prepared(run, tmp_path / "a", accelerate=None)
        assert [item.name for item in (tmp_path / "a").iterdir()] == [
            "weights",
            "job.json",
        ] or job.deepspeed_config is None
        assert not (tmp_path / "a/ds_config.json").exists() and not (tmp_path / "a/accelerate.yaml").exists()
        assert not job.by_accelerate and "--x" not in words and job.arguments == {"bf16": True}
        _, job = self.prepared(run, tmp_path / "b", accelerate=None, deepspeed={"a": 1})
        assert "deepspeed" not in job.arguments, "a loop of its own is handed the file"
        assert job.deepspeed_config == str(tmp_path / "b/ds_config.json")

    @pytest.mark.parametrize("section", [{"zero_stage": 2}, None, "x"])
    def test_a_section_that_names_no_file(self, section: Any, make_run: MakeRun, tmp_path: Path) -> None:
        self.prepared(read(make_run(3)), tmp_path / "a", accelerate={"z": 1, "deepspeed_config": section, "a": 2})
        text = (tmp_path / "a/accelerate.yaml").read_text()
        assert yaml.safe_load(text) == {"z": 1, "deepspeed_config": section, "a": 2}
        assert text.startswith("z: 1\n"), "in the order of the file"

    def test_a_config_that_no_file_and_no_option_names(self, tmp_path: Path) -> None:
        own: Any = SimpleNamespace(options=[], run=SimpleNamespace(deepspeed=None, flags={"deepspeed_config_file": 1}))
        words = ["x", "accelerate.commands.launch", "--config_file", "accelerate.yaml", "--y", "-m", "p"]
        found = ["x", "accelerate.commands.launch", "--y", "--num_processes", "3", "--num_machines", "1", "-m", "p"]
        assert job_folder._as_written(words, own, 3, tmp_path) == found
        own.run.deepspeed, own.run.flags = object(), {}
        assert job_folder._as_written(words, own, 3, tmp_path) == found
