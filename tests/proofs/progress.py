"""What a process that plays an example reports: how far it came, what it saw, what stopped it.

The report is rewritten at each change of phase, so that a process that hangs or dies still leaves its last
phase.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PHASES = ("read", "launch", "arguments", "parse", "init", "step", "save", "load")
DEEPEST = 8


class Reached(BaseException):
    """The phase asked for is done. Not an Exception: libraries that catch those must let it through."""


class NotObservableError(Exception):
    """On this machine the example would show something else than where it is meant to run."""


class Progress:
    """Phase, observed values and error of one process, kept in ``report`` (a JSON file).

    ``measure``: what is seen only where it is asked for: "memory", which takes time, and "uses", which is in the way of
    compilation.
    """

    def __init__(
        self, report: Path, until: str, disturb: dict[str, Any] | None = None, measure: Sequence[str] = ()
    ) -> None:
        self.report = report
        self.measure = measure
        self.disturb = disturb or {}
        self.until = until
        self.current = "read"
        self.reached: str | None = None
        self.values: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        self.write()

    def write(self) -> None:
        content = {name: getattr(self, name) for name in ("current", "reached", "values", "error")}
        temporary = self.report.with_suffix(".tmp")
        temporary.write_text(json.dumps(content))
        temporary.replace(self.report)

    def begin(self, phase: str) -> None:
        self.current = phase
        self.write()
        if self.disturb.get("phase") == phase:
            os.kill(os.getpid(), self.disturb["signal"])

    def end(self, phase: str) -> None:
        self.reached = phase
        self.write()
        if phase == self.until:
            raise Reached(phase)

    def see(self, prefix: str, value: Any) -> None:
        """Record ``value`` and everything below it under dotted names that start with ``prefix``."""
        self.values.update(flatten(prefix, value))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Turn whatever leaves the block into the report's error, except having reached the phase asked
        for."""
        try:
            yield
        except Reached:
            pass
        except BaseException as error:
            self.error = {
                "phase": self.current,
                "type": type(error).__name__,
                "text": str(error),
                "time": time.time(),
                "traceback": traceback.format_exc().splitlines()[-25:],
                "within": [frame.name for frame in traceback.extract_tb(error.__traceback__)],
            }
            if not isinstance(error, SystemExit):
                traceback.print_exc()
        self.write()


def leave(code: int = 0) -> None:
    """End a forked process without running what the parent registered for its own end."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    os._exit(code)


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON has it; enums by value, dtypes by name, what JSON cannot hold by its repr."""
    if isinstance(value, enum.Enum):
        return plain(value.value, depth)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > DEEPEST:
        return repr(value)
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    if hasattr(type(value), "model_fields"):
        # not by getattr: DeepSpeed takes the attribute of a deprecated field away
        return {name: plain(item, depth + 1) for name, item in vars(value).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: plain(getattr(value, name, None), depth + 1) for name in names}
    return repr(value).removeprefix("torch.")


def flatten(prefix: str, value: Any) -> dict[str, Any]:
    """Dotted name -> value for ``value`` itself and everything below it."""
    value = plain(value)
    found = {prefix: value}
    if isinstance(value, dict):
        for key, item in value.items():
            found.update(flatten(f"{prefix}.{key}", item))
    return found
