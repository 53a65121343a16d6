"""How a command ends: what is raised becomes a message and an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable

from zerocfg.terminal.streams import tell


def exit_code(work: Callable[[], object]) -> int:
    """0 clean, 1 findings or a failed check, 2 wrong use or zerocfg could not do its work."""
    try:
        code = work()
        if not sys.stdout.closed:  # the language server closes it when its client has gone
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    except BrokenPipeError:
        _drop_output()
        return 1
    except RecursionError:
        tell("zerocfg: error: the input is nested too deeply")
        return 2
    except OSError as error:
        if error.errno == errno.ENOMEM:
            return _out_of_memory()
        if error.filename is None:  # of a stream: what it did not take would be offered to it again at the end
            _drop_output()
        tell(f"zerocfg: error: {error.strerror or error}: {error.filename or ''}".rstrip(": "))
        return 2
    except Exception as error:
        return _out_of_memory() if _lacks_memory(error) else _of_click(error)


def _lacks_memory(error: Exception) -> bool:
    """Whether there was no memory for the work, or to load a library: C code has several ways to say so."""
    if isinstance(error, ImportError):
        return "failed to map segment" in str(error) or "annot allocate memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, SystemError) and "without exception set" in str(error))


def _out_of_memory() -> int:
    """Says it without the streams, which would need memory."""
    with contextlib.suppress(OSError):
        os.write(2, b"zerocfg: error: there is not enough memory (`ulimit -v`, or the limit of the container)\n")
    return 2


def _drop_output() -> None:
    """Send what is still to be written on standard output nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_click(error: Exception) -> int:
    import click

    from zerocfg.errors import UsageError

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, UsageError):  # of a line that was read without click, which knows no usage then
        error = click.UsageError(str(error))
    if isinstance(error, click.ClickException):
        error.show()
        return 2
    if isinstance(error, click.Abort):
        tell("interrupted")
        return 130
    if isinstance(error, ImportError) and not (error.name or "zerocfg").startswith("zerocfg"):
        tell(f"zerocfg: error: the library {error.name} cannot be loaded: {error}")
        return 2
    if isinstance(error, UnicodeEncodeError) and "\udc80" <= error.object[error.start] <= "\udcff":
        around = error.object[max(0, error.start - 40) : error.end + 20].splitlines()
        name = next((line for line in around if error.object[error.start] in line), "")
        tell(f"zerocfg: error: the name of a file is not UTF-8, and what names it has to be: {name.strip()!a}")
        return 2
    if os.environ.get("ZEROCFG_TRACEBACK"):
        raise error
    tell(
        f"zerocfg: internal error: {type(error).__name__}: {error}\n"
        "This is a bug in zerocfg, not in your files. Set ZEROCFG_TRACEBACK=1 to see where, and please report it."
    )
    return 2
