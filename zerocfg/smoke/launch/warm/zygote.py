"""The process that a warm Python is forked from. ``python zygote.py FOLDER LISTENING IMPORTS same|any``.

It runs the file IMPORTS, which imports the libraries, and listens at the socket LISTENING, a file descriptor, until its
standard input ends. What the libraries print on import is in FOLDER/log.txt. Where they cannot be imported, or where
that has initialised CUDA (a forked process could not use it), FOLDER/refused says so, and every program is refused.
"same" refuses programs in whose environment the libraries may have been imported differently.

A connection is a program to be run, requested by `interpreter.py`: three open files, then the length of a request and
the request. The answers are two lines: the process id, and when the program has ended its exit code (as in subprocess:
of a signal, its negative number). A refused program gets the line "fresh". When the other side goes first, as it does
when it is killed, the program is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

REFUSED = "refused"
SILENCE = 5.0
"""Seconds that a connection may take for its request, while no other is served."""
AT_START = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "CUDA_", "PYTORCH_", "LD_", "MALLOC_", "DS_", "PYTHON", "NVIDIA_",
)  # fmt: skip
"""Prefixes of variables that shared libraries and Python itself read when they are loaded."""
MAY_DIFFER = {
    "PATH", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES", "TMPDIR", "TEMP", "TMP",
    "PYTHONUNBUFFERED",  # the request says it
    "PYTHONPATH",  # see `same_libraries`
    "PYTORCH_NVML_BASED_CUDA_CHECK",  # the zygote's own
    "ROOM", "ZEROCFG_SMOKE_RUN",
}  # fmt: skip
"""Variables that are read on import but change nothing of what was imported."""
DRIVER = "/dev/nvidia-uvm"
"""Opened by CUDA's driver when it is initialised, and not by NVML, which only counts cards."""


def main() -> None:
    folder, imports, any_environment = Path(sys.argv[1]), sys.argv[3], sys.argv[4] == "any"
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    own = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    below = [part for part in sys.path[1:] if part not in own]
    sys.path[:] = [*own, *below]
    with (folder / "log.txt").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    started_with = dict(os.environ)
    refusal = ""
    with recorded_reads() as read:
        try:
            runpy.run_path(imports)
        except BaseException as error:
            traceback.print_exc()
            refusal = f"the libraries cannot be imported: {type(error).__name__}: {error}"
    refusal = refusal or initialised_cuda()
    gc.collect()
    gc.freeze()
    if refusal:
        (folder / REFUSED).write_text(refusal)

    def refuses(asked: dict[str, Any]) -> bool:
        too_long = len(as_block(asked["environment"])) > environment_room()[1]
        return bool(refusal) or too_long or (not any_environment and differs(asked, started_with, read))

    with socket.socket(fileno=int(sys.argv[2])) as listening:
        request = serve(listening, refuses)
    if request is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        become(request, below)
        end(lambda: run(request["words"]))


@contextlib.contextmanager
def recorded_reads() -> Iterator[set[str]]:
    """The names of environment variables that Python code reads meanwhile."""
    names: set[str] = set()
    kind = type(os.environ)
    get, contains = kind.__getitem__, kind.__contains__

    def recorded_get(self: Any, name: Any) -> Any:
        names.add(name)
        return get(self, name)

    def recorded_contains(self: Any, name: object) -> bool:
        names.add(str(name))
        return contains(self, name)

    kind.__getitem__, kind.__contains__ = recorded_get, recorded_contains  # type: ignore[method-assign]
    try:
        yield names
    finally:
        kind.__getitem__, kind.__contains__ = get, contains  # type: ignore[method-assign]


def differs(request: dict[str, Any], started_with: dict[str, str], read: set[str]) -> bool:
    """Whether the libraries may have been imported differently in the environment of the request."""
    asked = request["environment"]
    names = {name for name in (*asked, *started_with) if name.startswith(AT_START)} | read
    different = [name for name in names - MAY_DIFFER if asked.get(name) != started_with.get(name)]
    if different:
        print("refused, other variables:", *sorted(different), flush=True)
    return bool(different) or not same_libraries(*(at.get("PYTHONPATH", "") for at in (asked, started_with)))


def same_libraries(asked: str, own: str) -> bool:
    """Whether modules that are imported already would be found in the same places with the PYTHONPATH ``asked``."""
    ours = [part for part in own.split(os.pathsep) if part]
    theirs = [part for part in asked.split(os.pathsep) if part]
    more = [part for part in theirs if part not in ours]
    if [part for part in theirs if part in ours] != ours:
        return False
    imported = {name.partition(".")[0] for name in sys.modules} - {"sitecustomize", "usercustomize", "__main__"}
    for part in more:
        with contextlib.suppress(OSError):
            if any(name.partition(".")[0] in imported and can_be_imported(name) for name in os.listdir(part)):  # noqa: PTH208
                print("refused, another copy of a library in", part, flush=True)
                return False
    return True


def can_be_imported(name: str) -> bool:
    """Whether Python may take a file or folder of this name for a module, as it does not take ``accelerate.yaml``."""
    return "." not in name or name.endswith((".py", ".pyc", ".so"))


def initialised_cuda() -> str:
    """Why a forked process could not use CUDA; empty when it can, as far as this process can know."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if torch.cuda.is_initialized():
        return "importing the libraries has initialised CUDA"
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(handle.readlink()).startswith(DRIVER):
                return f"importing the libraries has opened {DRIVER}"
    process = os.fork()  # torch marks forked processes whose parent has counted cards by the driver
    if process == 0:
        os._exit(1 if torch.cuda._is_in_bad_fork() else 0)
    if os.waitpid(process, 0)[1] != 0:
        return "importing the libraries has started CUDA's runtime"
    return ""


def serve(listening: socket.socket, refuses: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """Fork as requested. Returns a request in the process that is to run it, None in the zygote at the end."""
    selector = selectors.DefaultSelector()
    asking: dict[int, socket.socket] = {}  # by the process that was forked
    selector.register(0, selectors.EVENT_READ, ("end", 0))
    selector.register(listening, selectors.EVENT_READ, ("ask", 0))
    while True:
        for key, _ in selector.select():
            what, process = key.data
            if what == "end":
                for process in asking:
                    kill(process)
                return None
            if what == "ask":
                connection, _ = listening.accept()
                request = receive(connection)
                if request is None:
                    connection.close()
                    continue
                if refuses(request):
                    send_answer(connection, "fresh")
                    process = -1
                else:
                    process = fork()
                if process == 0:
                    os.setsid()
                    for other in (*asking.values(), connection):
                        other.close()
                    for handle in [item.fd for item in selector.get_map().values() if item.data[0] == "ended"]:
                        os.close(handle)
                    selector.close()
                    return request
                for handle in request["files"]:
                    os.close(handle)
                if process < 0:
                    connection.close()
                    continue
                asking[process] = connection
                send_answer(connection, process)
                selector.register(os.pidfd_open(process), selectors.EVENT_READ, ("ended", process))
                selector.register(connection, selectors.EVENT_READ, ("gone", process))
            elif what == "gone":  # it never sends more than its request
                selector.unregister(key.fileobj)
                kill(process)
            elif process in asking:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                connection = asking.pop(process)
                with contextlib.suppress(KeyError):
                    selector.unregister(connection)
                send_answer(connection, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
                connection.close()


def fork() -> int:
    """0 in the new process, its id in this one; -1 where the system allows no further process."""
    try:
        return os.fork()
    except OSError:
        return -1


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The request; None where none came whole."""
    connection.settimeout(SILENCE)
    files: list[int] = []
    request: object = None
    with contextlib.suppress(OSError, ValueError):
        size, files, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as body:
            request = json.loads(body.read(int.from_bytes(size, "big")))
        connection.settimeout(None)
    if len(files) == 3 and isinstance(request, dict):
        return request | {"files": files}
    for handle in files:
        os.close(handle)
    return None


def send_answer(connection: socket.socket, answer: object) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(f"{answer}\n".encode())


def kill(process: int) -> None:
    """The process and those of its group; it may not have come as far as to have one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def become(request: dict[str, Any], below: list[str]) -> None:
    """Be as if just started by the requesting process; ``below``: the folders that modules are searched in at last."""
    for at, handle in enumerate(request["files"]):
        os.dup2(handle, at)
        os.close(handle)
    os.chdir(request["folder"])
    room = environment_room()
    # Nothing is opened between these: an audit hook of the user's may read a variable.
    os.environ.clear()
    show(request["environment"], room)
    os.environ.update(request["environment"])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=request["unbuffered"])  # type: ignore[union-attr]
    sys.executable = request["executable"]
    first, *arguments = request["words"]
    script = first != "-m"
    sys.argv = [first, *arguments] if script else arguments
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [str(Path(first).parent.resolve()) if script else os.getcwd(), *filter(None, given), *below]  # noqa: PTH109
    importlib.invalidate_caches()
    tempfile.tempdir = None  # determined anew when it is needed
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")  # as Python does at its start


def show(environment: dict[str, str], room: tuple[int, int]) -> None:
    """Write the environment where /proc/PID/environ shows it, in place of that which the zygote was started with.

    The ``room`` (`environment_room`) is that of a long variable, and nobody reads the old values any more: they have
    been cleared in ``os.environ``.
    """
    start, size = room
    ctypes.memmove(start, as_block(environment).ljust(size, b"\0"), size)


def as_block(environment: dict[str, str]) -> bytes:
    """The environment as the kernel keeps it."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())


def environment_room() -> tuple[int, int]:
    """The address and the size of the memory that holds the environment of this process."""
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    return start, end - start


def end(program: Callable[[], None]) -> NoReturn:
    """Run it and end as Python does, but for the libraries' own teardown: that takes longer than many a program."""
    code: object = None
    try:
        program()
    except SystemExit as asked:
        code = asked.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit((code or 0) & 0xFF)


def run(words: list[str]) -> None:
    if words[0] != "-m":
        runpy.run_path(words[0], run_name="__main__")
        return
    sys.modules.pop(words[1], None)  # imported as a library; it is the main program now
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
