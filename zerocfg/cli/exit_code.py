"""How a command ends: what is raised becomes a message and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from zerocfg.cli.terminal import tell


def exit_code(work: Callable[[], object]) -> int:
    """0 clean, 1 findings or a failed check, 2 wrong use or zerocfg could not do its work."""
    try:
        code = work()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except RecursionError:
        tell("zerocfg: error: the input is nested too deeply")
        return 2
    except OSError as error:
        tell(f"zerocfg: error: {error.strerror or error}: {error.filename or ''}".rstrip(": "))
        return 2
    except Exception as error:
        return _of_click(error)


def _of_click(error: Exception) -> int:
    import click

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.ClickException):
        error.show()
        return 2
    if isinstance(error, click.Abort):
        tell("interrupted")
        return 130
    if os.environ.get("ZEROCFG_TRACEBACK"):
        raise error
    tell(
        f"zerocfg: internal error: {type(error).__name__}: {error}\n"
        "This is a bug in zerocfg, not in your files. Set ZEROCFG_TRACEBACK=1 to see where, and please report it."
    )
    return 2
