"""``--baseline`` and ``--write-baseline``: known findings that are not reported again."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from zerocfg.budgets import FILE_BYTES
from zerocfg.errors import UsageError
from zerocfg.linter.engine import Result
from zerocfg.source import disk
from zerocfg.workspace.job import Baseline
from zerocfg.workspace.settings import Settings, of_settings


def read_baseline_file(asked: Path | None, settings: Settings) -> Baseline | None:
    """The baseline named on the command line, else the one of the settings. Raises UsageError."""
    path = asked
    if path is None and settings.baseline is not None and settings.folder is not None:
        path = settings.folder / settings.baseline
    if path is None:
        return None
    from zerocfg.linter.baseline import read_baseline

    try:
        with of_settings(path, settings) if path is not asked else nullcontext():
            entries = read_baseline(disk.whole(path, FILE_BYTES).decode("utf-8"))
        return Baseline(entries, disk.resolved(path).parent)
    except FileNotFoundError:
        raise UsageError(f"there is no baseline '{path}'; write it with --write-baseline {path}") from None
    except (ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the baseline '{path}' cannot be read: {reason}") from None


def write_baseline_file(result: Result, path: Path) -> int:
    """Record all findings; returns how many. An existing baseline is replaced."""
    from zerocfg.linter.baseline import baseline_text
    from zerocfg.source.write import write_atomic

    # Of a name that is no UTF-8 the odd bytes become escapes, which JSON has as well.
    write_atomic(path, baseline_text(result, path.resolve().parent).encode("utf-8", "backslashreplace"))
    return len(result.diagnostics)
