"""``python -m zerocfg.cluster.on_node MODULE ARG...``: run one program on a node, in a folder of its own with the job's
files, which come through standard input.

The program is ``MODULE.run(arguments, tell)``; ``tell`` writes its events. It returns False where what it tried failed,
so that the other nodes need not wait for this one. Whatever goes wrong here is an event, too.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import io
import os
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.cluster.events import Channel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def packed(files: Mapping[str, bytes]) -> bytes:
    """Files as ASCII text, for the standard input of this program."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return base64.encodebytes(out.getvalue())


def host() -> str:
    """The name of this machine, as its scheduler calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def main(arguments: list[str]) -> int:
    """Run the program; 0 when it came to its end and nothing failed."""
    # Asked to end before the program heeds it by itself: the folder goes away all the same.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    tell = Channel()
    tell("began", host=host(), process=os.getpid())
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        with _unpacked(sys.stdin.buffer.read()):
            return int(importlib.import_module(arguments[0]).run(arguments[1:], tell) is False)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        tell("problem", text=f"{where}{error.strerror or error}")
        return 1
    except Exception as error:
        import traceback

        traceback.print_exc()
        tell("problem", text=f"{type(error).__name__}: {' '.join(str(error).split())[:500]}")
        return 1


def _end_with(parent: int) -> None:
    """Asks this process to end when what started it is gone, so that nobody's processes are left on a node."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _unpacked(text: bytes) -> Iterator[None]:
    """The job's files as the current folder, which goes away afterwards."""
    before, folder = Path.cwd(), tempfile.mkdtemp(prefix="zerocfg-job-")
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.decodebytes(text)), mode="r:gz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(folder, filter="data")
            else:  # Python before 3.10.12 has no filters; the archive is the client's own
                archive.extractall(folder)
        os.chdir(folder)
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
