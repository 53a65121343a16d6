"""The warm Python's executable: has the zygote beside it run the program, and lives and ends as that does.

`warm.python` writes it behind a line that names the real interpreter. It takes ``[-u] -m MODULE ...`` and
``[-u] SCRIPT ...``; what else it is asked for, a fresh Python does in its place.
"""

import contextlib
import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    options = sys.argv[1:]
    unbuffered = options[:1] == ["-u"]
    words = options[unbuffered:]
    if not words or (words[0].startswith("-") and words[0] != "-m"):
        os.execv(sys.executable, [sys.executable, *options])
    executable = os.path.abspath(sys.argv[0])  # noqa: PTH100 - pathlib takes longer to import than this to run
    request = {
        "executable": executable,
        "words": words,
        "unbuffered": unbuffered,
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
    }
    body = json.dumps(request).encode()
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is somebody to pass them on to
    with socket.socket(socket.AF_UNIX) as zygote:
        zygote.connect(os.path.join(os.path.dirname(executable), "socket"))  # noqa: PTH118, PTH120
        socket.send_fds(zygote, [len(body).to_bytes(4, "big")], [0, 1, 2])
        zygote.sendall(body)
        answers = zygote.makefile("rb")
        process = int(answers.readline())

        def pass_on(sign: int, _: object) -> None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(process, sign)

        for sign in PASSED_ON:
            signal.signal(sign, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        code = int(answers.readline() or 1)
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
