"""``python -m zerocfg`` and the ``zerocfg`` command.

``--version`` answers before anything is imported, and a lint whose outcome is kept before what lints is.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        code = _run()
    except KeyboardInterrupt:  # outside of the command, which says that it was interrupted
        code = 130
    except MemoryError:
        os.write(2, b"zerocfg: error: there is not enough memory\n")
        code = 2
    if code is not None:
        sys.exit(code)


def _run() -> int | None:
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    if sys.argv[1:] in (["--version"], ["-V"]):
        try:
            _print_version()
            return None
        except OSError:
            from zerocfg.cli.exit_code import exit_code

            return exit_code(_print_version)  # it fails again, in words
    import gc
    import signal

    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where the caller ignores interrupts
    if own:
        # There is nothing yet to tidy up, and callbacks of imports would lose an exception.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # What a command imports and reads stays until it ends. To look through it again and again costs a tenth of a short
    # run; once, after a repository was read, a tenth of a long one. What lives longer sets limits of its own.
    gc.set_threshold(5_000_000, 20, 20)
    if sys.argv[1:2] == ["lint"]:
        from zerocfg.cli.start_lint import run
    else:
        from zerocfg.cli.main import run
    if own:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run()
    gc.freeze()  # what was read is not looked through once more when the process ends
    return code


def _print_version() -> None:
    from zerocfg.version import __version__

    sys.stdout.write(f"zerocfg {__version__}\n")
    sys.stdout.flush()


def _open_closed_streams() -> None:
    """The null device in place of each standard stream that the caller closed (``>&-``).

    Else a file that a command writes would get the number of the closed one, and with it what a child process prints.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
