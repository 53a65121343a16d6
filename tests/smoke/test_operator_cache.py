"""The folder of compiled operators before a run: locks that killed compilations left, and no right to write there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.judge.known_errors import circumstance_of
from zerocfg.smoke.launch import operator_cache, operator_locks, process
from zerocfg.smoke.launch.operator_locks import clear, file_system

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="holders of locks are seen through /proc")
HOUR = 3600.0


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock that was left two hours ago; only its file system, the boot and what is seen are made up."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(operator_locks, "file_system", lambda _: "ext4")
    monkeypatch.setattr(operator_locks, "_sees_all_processes", lambda: False)
    monkeypatch.setattr(operator_locks, "_boot", lambda: time.time() - 24 * HOUR)
    path = tmp_path / "cpu_adam" / "lock"
    path.parent.mkdir()
    path.touch()
    age(path, 2 * HOUR)
    return path


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    for one in (path, *path.parent.iterdir()):
        os.utime(one, (then, then))


def test_a_lock_that_nobody_holds_is_removed(lock: Path) -> None:
    assert clear() == [
        f"removed {lock}, left 120 minutes ago by a process that compiled an operator of DeepSpeed and was killed; "
        "torch would have waited for it forever, in your training too"
    ]
    assert not lock.exists() and clear() == []


def test_one_that_a_process_holds_stays(lock: Path) -> None:
    code = f"import os, sys; os.open({str(lock)!r}, os.O_RDWR); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert clear() == [] and lock.exists()
    finally:
        holder.kill()
        holder.communicate()
    assert len(clear()) == 1


def test_one_of_another_user_stays(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose processes cannot be looked into."""
    monkeypatch.setattr(os, "getuid", lambda: lock.stat().st_uid + 1)
    assert clear() == [] and lock.exists()


@pytest.mark.parametrize(
    ("kind", "booted", "left", "removed"),
    [
        ("nfs4", 24 * HOUR, 2 * HOUR, False),  # another machine may hold it
        ("nfs4", 1 * HOUR, 2 * HOUR, True),  # no compilation lasts from before the start of this machine
        ("nfs4", 0.2 * HOUR, 0.9 * HOUR, False),  # unless it was started just now
        (None, 24 * HOUR, 2 * HOUR, False),
        ("lustre", 24 * HOUR, 30 * HOUR, True),
        ("xfs", 24 * HOUR, 0.1 * HOUR, True),
    ],
)
def test_another_machine_may_hold_it(
    kind: str | None, booted: float, left: float, removed: bool, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_locks, "file_system", lambda _: kind)
    monkeypatch.setattr(operator_locks, "_boot", lambda: time.time() - booted)
    age(lock, left)
    assert bool(clear()) is removed and lock.exists() is not removed


@pytest.mark.parametrize(("inside", "seconds", "removed"), [(True, 170, False), (True, 190, True), (False, 5, True)])
def test_from_inside_a_container_others_may_hold_it(
    inside: bool, seconds: float, removed: bool, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of processes that are not seen the files beside the lock tell."""
    monkeypatch.setattr(operator_locks, "_sees_all_processes", lambda: not inside)
    (lock.parent / "cpu_adam.o").touch()
    age(lock, seconds)
    assert bool(clear()) is removed


def test_one_that_is_just_being_released_is_left_to_its_process(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch closes the lock before it removes it: at the first look it seems abandoned."""
    looks: list[Path] = []

    def look(path: Path, quiet: float = 0.0) -> bool:
        looks.append(path)
        return len(looks) == 1

    monkeypatch.setattr(operator_locks, "abandoned", look)
    assert clear() == [] and lock.exists() and looks == [lock, lock]
    looks.clear()
    operator_locks.remove(set())
    assert lock.exists() and looks == [lock, lock]


def test_a_run_says_what_it_removed(lock: Path, tmp_path: Path) -> None:
    said: list[str] = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    outcome = process.run(["true"], scratch, 0, "cpu", 20, said.append)
    assert outcome.cleared == said[:1] and said[0].startswith(f"removed {lock}, ") and not lock.exists()


def test_what_cannot_be_removed_is_described(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operator_locks.describe(lock).endswith("The next smoke-run removes it")
    monkeypatch.setattr(operator_locks, "file_system", lambda _: "nfs")
    assert operator_locks.describe(lock).endswith("If no other machine compiles there, remove it")


def test_the_file_system_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text(
        "overlay / overlay rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/sda1 /home/me/my\\040disk ext4 rw 0 0\n"
        "/dev/sdb1 /homestead xfs rw 0 0\n"
    )
    monkeypatch.setattr(operator_locks, "PROC", tmp_path)
    places = {"/tmp/a": "overlay", "/home/me": "nfs4", "/home/me/my disk/a": "ext4", "/homestead/a": "xfs"}
    assert {place: file_system(Path(place)) for place in places} == places
    monkeypatch.setattr(operator_locks, "PROC", tmp_path / "none")
    assert file_system(Path("/tmp")) is None


def test_this_machine_is_read() -> None:
    started = operator_locks._boot()
    assert started is not None and 0 < started < time.time()
    assert file_system(Path("/proc/self")) == "proc"


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Folders below a path cannot be written; who runs the tests may be allowed to write anywhere."""

    def forbid(top: Path) -> None:
        real = os.access

        def access(path: Any, mode: int) -> bool:
            return real(path, mode) and not (mode & os.W_OK and Path(path).is_relative_to(top))

        monkeypatch.setattr(
            operator_cache, "os", SimpleNamespace(access=access, path=os.path, W_OK=os.W_OK, X_OK=os.X_OK)
        )

    return forbid


def test_where_operators_cannot_be_written_they_go_to_the_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: Callable[[Path], None]
) -> None:
    cache, scratch = tmp_path / "home" / "extensions", tmp_path / "scratch"
    cache.parent.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(cache))
    ask = ["sh", "-c", "echo $TORCH_EXTENSIONS_DIR > asked"]

    def used(place: Path | None = None) -> tuple[str, list[str]]:
        outcome = process.run(ask, scratch, 0, "cpu", 20, place=place)
        return ((place or scratch) / "asked").read_text().strip(), outcome.cleared

    assert used() == (str(cache), []), "it can be made"
    read_only(tmp_path / "home")
    where, said = used()
    assert where == str(scratch / "operators")
    assert len(said) == 1 and f"{cache} cannot be written" in said[0] and "TORCH_EXTENSIONS_DIR" in said[0]
    assert used(place=tmp_path) == (str(cache), []), "the user's own command shows what their training meets"
    (cache / "cpu_adam").mkdir(parents=True)
    assert used()[0] == str(scratch / "operators"), "an empty folder"
    (cache / "cpu_adam" / "cpu_adam.so").touch()
    assert used() == (str(cache), []), "what is compiled is not compiled again"


@pytest.mark.parametrize("file", ["a", "a/b/c"])
def test_a_file_is_no_folder_to_write_into(file: str, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert not operator_cache.writable(tmp_path / file)
    assert operator_cache.writable(tmp_path / "new" / "er")


def test_a_home_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user without an entry in the password file."""
    for name in ("HOME", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert operator_locks.folder() == Path("~/.cache/torch_extensions")


@pytest.mark.libs
@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")], ids=["mode", "mount"]
)
def test_torchs_error_is_explained(error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised by torch's own lock, reported as a rank reports it."""
    from torch.utils import file_baton

    from zerocfg.smoke.launch.failure_cause import Seen, find
    from zerocfg.smoke.worker.failure import describe

    def refuse(path: str, flags: int) -> int:
        raise type(error)(error.errno, error.strerror, path)

    monkeypatch.setattr(file_baton, "os", SimpleNamespace(open=refuse, O_CREAT=0, O_EXCL=0))
    with pytest.raises(OSError) as raised:
        file_baton.FileBaton(str(tmp_path / "cpu_adam" / "lock")).try_acquire()
    failure = describe(raised.value)
    cause = find(Seen([{"rank": 0, "phase": "init", "error": failure}], 1, "", None, tmp_path))
    assert cause is not None
    found = circumstance_of("\n".join([cause.text, *cause.detail]), cause.kind)
    assert found is not None and found.name == "operator-cache" and "TORCH_EXTENSIONS_DIR" in found.fix
    other = circumstance_of("PermissionError: [Errno 13] Permission denied: '/data/train.jsonl'")
    assert other is None
