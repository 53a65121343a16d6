"""One bug of zerocfg costs one diagnostic: what fails inside is kept as data, and the rest of the work goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from zerocfg.record import field, record

REPORT = (
    "This is a bug in zerocfg, not in your files; everything else was checked. Please report it with what "
    "`zerocfg info` prints; ZEROCFG_TRACEBACK=1 shows where it happens."
)
_PACKAGE = Path(__file__).parent


@record(frozen=True, slots=True)
class InternalError:
    """``doing``: what zerocfg could not do, after "could not"; ``file``: the name of the file that it was about, empty
    where it is about none; ``error``: the exception in one line; ``where``: module and line of zerocfg."""

    doing: str
    file: str
    error: str
    where: str

    @property
    def message(self) -> str:
        return f"zerocfg could not {self.doing}: {self.error} ({self.where})"

    def __str__(self) -> str:
        return f"{self.file}: {self.message}" if self.file else self.message


@record
class Containment:
    """Collects the internal errors of a piece of work, each once. With ``ZEROCFG_TRACEBACK`` set they are raised."""

    met: dict[InternalError, None] = field(default_factory=dict)

    @contextmanager
    def of(self, doing: str, file: str = "") -> Iterator[None]:
        """Nothing that is raised within gets out, except for what stops a program, and for a lack of memory."""
        try:
            yield
        except Exception as error:
            self.take(error, doing, file)

    def take(self, error: Exception, doing: str, file: str = "") -> None:
        """Keep an exception that was just caught; raises it again where tracebacks are asked for.

        A lack of memory is raised as well: it is no bug, and the rest of the work would fail of it.
        """
        if isinstance(error, MemoryError) or os.environ.get("ZEROCFG_TRACEBACK"):
            raise error
        self.met[InternalError(doing, file, in_a_line(error), _where(error))] = None


def contain(contained: Containment | None, doing: str, file: str = "") -> AbstractContextManager[None]:
    """`Containment.of` where there is one to take errors; without one they are raised."""
    return nullcontext() if contained is None else contained.of(doing, file)


def in_a_line(error: Exception) -> str:
    """What was raised, as a short line."""
    text = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _where(error: Exception) -> str:
    """The innermost place within zerocfg."""
    import traceback  # there is none to tell of, mostly

    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f"{path.relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
    return "outside zerocfg"
