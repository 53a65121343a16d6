"""The warm Python's executable: has the zygote run the program, and lives and ends as that program does.

`zygote_process.start` writes it behind a line that names the real interpreter. It takes ``[-u] -m MODULE ...`` and
``[-u] SCRIPT ...``. Everything else is run by a fresh Python in this process, and so is every program that the zygote
refuses or cannot start: because it is dead, does not answer, or has imported the libraries with other environment
variables.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PATIENCE = 90.0
"""Seconds for the zygote's first answer, which comes after it has imported the libraries."""
ANSWER = 5.0
"""Seconds between the end of the program and the zygote's answer about it."""
REFUSED = "refused"
"""File beside this one with the reason why no program is started by the zygote any more."""

LOST = "lost"
"""File beside this one that exists when the zygote ended, or hung, while it ran a program."""


def main() -> None:
    options = sys.argv[1:]
    unbuffered = options[:1] == ["-u"]
    words = options[unbuffered:]
    executable = os.path.abspath(sys.argv[0])  # noqa: PTH100 - pathlib takes longer to import than this to run
    folder = os.path.dirname(executable)  # noqa: PTH120
    refused = os.path.join(folder, REFUSED)  # noqa: PTH118
    if not words or (words[0].startswith("-") and words[0] != "-m") or os.path.exists(refused):  # noqa: PTH110
        run_fresh(options)
    request = {
        "executable": executable,
        "words": words,
        "unbuffered": unbuffered,
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
    }
    body = json.dumps(request).encode()
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is a process to pass them on to
    zygote = socket.socket(socket.AF_UNIX)
    process = None
    try:
        zygote.settimeout(PATIENCE)
        zygote.connect(os.path.join(folder, "socket"))  # noqa: PTH118
        socket.send_fds(zygote, [len(body).to_bytes(4, "big")], [0, 1, 2])
        zygote.sendall(body)
        process = int(read_line(zygote))
    except TimeoutError:
        refuse(refused, f"importing the libraries took more than {PATIENCE:.0f} s")
    except (OSError, ValueError):
        pass  # the zygote is dead, or refuses this program
    if process is None:
        zygote.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        run_fresh(options)
    else:
        follow(zygote, process, refused)


def run_fresh(options: list[str]) -> None:
    os.execv(sys.executable, [sys.executable, *options])


def follow(zygote: socket.socket, process: int, refused: str) -> None:
    """Pass signals on to the program, and end as it ends."""

    def pass_on(sign: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(process, sign)

    for sign in PASSED_ON:
        signal.signal(sign, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    ended: list[int] = []
    with contextlib.suppress(ProcessLookupError):  # the program has ended already
        ended = [os.pidfd_open(process)]
        select.select([zygote.fileno(), *ended], [], [])
    zygote.settimeout(ANSWER)
    try:
        code = int(read_line(zygote))
    except (OSError, ValueError):
        refuse(refused, "the process that imported the libraries ended, or hangs")
        refuse(os.path.join(os.path.dirname(refused), LOST), "")  # noqa: PTH118, PTH120
        select.select(ended, [], [])
        os._exit(1)  # how the program ended is not known
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def read_line(zygote: socket.socket) -> bytes:
    """One line of the zygote's answers; an empty one at their end."""
    line = b""
    while not line.endswith(b"\n"):
        part = zygote.recv(1)
        if not part:
            return b""
        line += part
    return line


def refuse(path: str, why: str) -> None:
    """Have all later programs start by a fresh Python."""
    with contextlib.suppress(OSError), open(path, "w") as file:  # noqa: PTH123
        file.write(why)


if __name__ == "__main__":
    main()
