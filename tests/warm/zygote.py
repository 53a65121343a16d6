"""The process that a warm Python is forked from. Run as a script: ``python zygote.py FOLDER LISTENING``.

It imports the libraries and listens at the socket LISTENING, a file descriptor, until its standard input ends; then
FOLDER goes with it. What the libraries say on import is in FOLDER/log.txt; where they cannot be imported, each program
ends with that error.

A connection is a program to be run, asked for by `interpreter.py`: three open files, then the length of a request and
the request. Answered are two lines: the process id, and when the program has ended its exit code (as in subprocess: of
a signal, its negative number). When the other side goes first, as it does when it is killed, the program is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

OPERATORS = ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder")  # what DeepSpeed compiles on a CPU


def imports() -> None:
    """What launchers and ranks would import, each for itself, and DeepSpeed's compiled operators."""
    import accelerate.commands.launch
    import deepspeed
    import deepspeed.checkpoint
    import deepspeed.runtime.zero.muon.muon_optimizer
    import numpy
    import torch
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.run  # noqa: F401 - before torch.distributed is all that is used
    import transformers
    import transformers.integrations.deepspeed
    import trl
    from deepspeed.accelerator import get_accelerator

    # transformers and trl import a name when it is first asked for.
    _ = (transformers.Trainer, transformers.TrainingArguments, transformers.HfArgumentParser)
    _ = (transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM, deepspeed.zero.Init, accelerate.Accelerator)
    _ = (trl.SFTConfig, trl.SFTTrainer, trl.TrlParser, trl.ModelConfig, trl.ScriptArguments, numpy.random)
    for builder in OPERATORS:
        get_accelerator().create_op_builder(builder).load(verbose=False)


def main() -> None:
    folder, below, error = Path(sys.argv[1]), sys.path[1:], None
    with (folder / "log.txt").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        imports()
    except Exception:
        error = traceback.format_exc()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[2])) as listening:
        request = serve(listening)
    if request is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        become(request, below)
        end(lambda: run(request["words"]) if error is None else sys.exit(error))


def serve(listening: socket.socket) -> dict[str, Any] | None:
    """Fork as asked for. Returns a request in the process that is to do it, None in the zygote at the end."""
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
                process = os.fork()
                if process == 0:
                    os.setsid()
                    for other in (*asking.values(), connection):
                        other.close()
                    for handle in [one.fd for one in selector.get_map().values() if one.data[0] == "ended"]:
                        os.close(handle)
                    selector.close()
                    return request
                for handle in request["files"]:
                    os.close(handle)
                asking[process] = connection
                tell(connection, process)
                selector.register(os.pidfd_open(process), selectors.EVENT_READ, ("ended", process))
                selector.register(connection, selectors.EVENT_READ, ("gone", process))
            elif what == "gone":  # it never says more than its request
                selector.unregister(key.fileobj)
                kill(process)
            elif process in asking:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                connection = asking.pop(process)
                with contextlib.suppress(KeyError):
                    selector.unregister(connection)
                tell(connection, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
                connection.close()


def receive(connection: socket.socket) -> dict[str, Any]:
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as body:
        request: dict[str, Any] = json.loads(body.read(int.from_bytes(size, "big")))
    return request | {"files": files}


def tell(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(b"%d\n" % number)


def kill(process: int) -> None:
    """The process and those of its group; it may not have come as far as to have one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def become(request: dict[str, Any], below: list[str]) -> None:
    """Be as if just started by the one who asked; ``below``: the folders that modules are found in at last."""
    for at, handle in enumerate(request["files"]):
        os.dup2(handle, at)
        os.close(handle)
    os.chdir(request["folder"])
    os.environ.clear()
    show(request["environment"])
    os.environ.update(request["environment"])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=request["unbuffered"])  # type: ignore[union-attr]
    sys.executable = request["executable"]
    first, *arguments = request["words"]
    script = first != "-m"
    sys.argv = [first, *arguments] if script else arguments
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [str(Path(first).parent.resolve()) if script else os.getcwd(), *filter(None, given), *below]  # noqa: PTH109
    tempfile.tempdir = None  # found out anew when asked for
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")  # as Python does at its start


def show(environment: dict[str, str]) -> None:
    """Write the environment where /proc/PID/environ shows it, in place of that which the zygote was started with.

    The room is that of a long variable, and nobody reads the old values any more: ``os.environ`` has been cleared.
    """
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    text = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    if len(text) > end - start:
        raise OSError(f"an environment of {len(text)} bytes; there is room for {end - start}")
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


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
