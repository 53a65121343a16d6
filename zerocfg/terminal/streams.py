"""What the terminal can show: colour, columns, characters."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import stat
import sys

from zerocfg.source.foreign import harmless

TYPE_CHECKING = False  # see `zerocfg.source.disk`
if TYPE_CHECKING:
    from typing import TextIO

COUNTERPARTS = {
    "…": "...",
    "×": "x",
    "²": "^2",
    "³": "^3",
    "→": "->",
    "←": "<-",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "·": "*",
    "•": "*",
    "▸": ">",
    "–": "-",
    "—": "-",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "│": "|",
    "─": "-",
    "µ": "u",
    "\N{NO-BREAK SPACE}": " ",
}
"""What stands for a character that an encoding lacks."""


def colour(choice: str, stream: TextIO) -> bool:
    """Whether a stream is coloured. ``choice``: always, never or auto.

    With auto NO_COLOR forbids, then FORCE_COLOR demands, then it is a terminal that can (https://no-color.org,
    https://force-color.org).
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def columns(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream is; None where it is a file or a pipe, which have no edge."""
    if not stream.isatty():
        return None
    asked = os.environ.get("COLUMNS", "").strip()[:9]
    if asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def write_exactly(text: str) -> None:
    """For standard output that a program or a file takes: UTF-8 and unchanged line ends, whatever the terminal."""
    sys.stdout.flush()
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    else:
        sys.stdout.write(text)
    sys.stdout.flush()


def write_diff(text: str) -> None:
    """A diff of the user's files for who applies it: exact, but where a CI service would obey a line of it.

    A pipe to ``git apply`` cannot be told from the log of a job, and both services obey an indented command. What is
    shown with escapes does not apply, as it is no line of the file, and it is said.
    """
    shown = _of_a_log(text) if _in_a_log() else text
    write_exactly(shown)
    if shown != text:
        tell("The diff has lines that would steer this job's log; they are shown with escapes. In a file it is exact.")


def _in_a_log() -> bool:
    if not (os.environ.get("GITHUB_ACTIONS") or os.environ.get("TF_BUILD")):
        return False
    try:
        return not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return True


def _of_a_log(diff: str) -> str:
    """The carriage return at the end of a line is the line's end; any other begins a line of the log."""
    return "\n".join(f"{harmless(line[:-1])}\r" if line.endswith("\r") else harmless(line) for line in diff.split("\n"))


def draw_anew(text: str, stream: TextIO) -> None:
    """A line of progress in the place of the last one."""
    write_own(f"\r\x1b[K{harmless(text)}", stream)


def clear(stream: TextIO) -> None:
    """Take everything off a terminal."""
    if stream.isatty():
        write_own("\x1b[2J\x1b[1;1H", stream)


def write_own(text: str, stream: TextIO) -> None:
    """Write what zerocfg itself made, and what has been made harmless."""
    if isinstance(stream, _Harmless):
        stream.write_own(text)
    else:
        stream.write(text)
    stream.flush()


def tell(message: str) -> None:
    """A line on standard error. Where that takes nothing there is nobody to tell, and the exit code says it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def prepare() -> None:
    """No text stops a command or steers who reads it: what standard output and error cannot encode is written by its
    counterpart, what a terminal or a CI log would obey as its escape."""
    codecs.register_error("zerocfg", _counterpart)
    sys.stdout, sys.stderr = _able(sys.stdout), _able(sys.stderr)


class _Harmless(io.TextIOWrapper):
    """What is written to it is made harmless, and holds no secrets."""

    def write(self, text: str) -> int:
        from zerocfg.source.secrets import masked  # a kept report has been through it

        self.write_own(harmless(masked(text)))
        return len(text)

    def write_own(self, text: str) -> None:
        super().write(self._made(text))

    def _made(self, text: str) -> str:
        return text


class _Ascii(_Harmless):
    """A stream of ASCII that claims another encoding: click would write UTF-8 into one that admits it."""

    def _made(self, text: str) -> str:
        return text.encode("ascii", "zerocfg").decode("ascii")


def _able(stream: TextIO) -> TextIO:
    if type(stream) is not io.TextIOWrapper:
        return stream  # none at all, one of these already, or what somebody put in its place and still needs
    encoding, buffered = stream.encoding, stream.line_buffering
    if codecs.lookup(encoding).name == "ascii":
        return _Ascii(stream.detach(), encoding="latin-1", errors="strict", line_buffering=buffered)
    return _Harmless(stream.detach(), encoding=encoding, errors="zerocfg", line_buffering=buffered)


def _counterpart(error: UnicodeError) -> tuple[str | bytes, int]:
    """An error handler for encoding."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    if codecs.lookup(error.encoding).name == "utf-8":
        # Only halves of pairs cannot be written, such as stand for the odd bytes of a file's name.
        return text.encode("utf-8", "surrogateescape" if _bytes(text) else "replace"), error.end
    return "".join(map(_plain, text)), error.end


def _bytes(text: str) -> bool:
    return all("\udc80" <= char <= "\udcff" for char in text)


def _plain(char: str) -> str:
    if char in COUNTERPARTS:
        return COUNTERPARTS[char]
    from unicodedata import normalize

    letters = normalize("NFKD", char).encode("ascii", "ignore").decode()  # e for é
    return letters or "?"
