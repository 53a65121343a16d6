"""Every command in a copy of a checkout, judged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.every_command.commands import SHOW_RUNS, Allowed, commands, nothing
from tools.every_command.processes import Outcome, Play
from tools.every_command.rows import Row
from tools.every_command.syntax import broken
from tools.every_command.tree import Change, Copy

LARGE = 0.4
"""CPU seconds of a lint from which a checkout is large."""
EXPLAIN_RUN = ("explain", "--run")
SIGNS = ("internal error", "Traceback (most recent call last)", "failed inside zerocfg", "an error of zerocfg")


def play(checkout: Path, run: Play) -> Iterator[Row]:
    """A row for every command, in the order in which they ran."""
    with tempfile.TemporaryDirectory(prefix="zerocfg-") as scratch:
        copy = Copy(checkout, Path(scratch) / checkout.name)
        copy.make()
        first = run(SHOW_RUNS, copy.folder)
        yield _row(checkout.name, SHOW_RUNS, first, copy.changes(), nothing)
        for words, allowed in commands(first.stdout, first.seconds > LARGE):
            outcome = run(words, copy.folder)
            yield _row(checkout.name, words, outcome, copy.changes(), allowed)


def _row(checkout: str, words: Sequence[str], outcome: Outcome, changes: Sequence[Change], allowed: Allowed) -> Row:
    return Row(
        checkout,
        " ".join(words),
        outcome.code,
        round(outcome.seconds, 2),
        _error(words, outcome, changes),
        tuple(change.path for change in changes if not allowed(change.path, change.before is not None)),
        tuple(change.path for change in changes if broken(change)),
    )


def _error(words: Sequence[str], outcome: Outcome, changes: Sequence[Change]) -> str:
    """The line that shows an error of zerocfg's own, or how the exit code contradicts what the command did."""
    for line in (outcome.stdout + "\n" + outcome.stderr).splitlines():
        if any(sign in line for sign in SIGNS):
            return line.strip()[:300]
    if outcome.code not in (0, 1, 2, 3):
        return f"exit code {outcome.code}"
    if outcome.code and not (outcome.stdout.strip() or outcome.stderr.strip()):
        return f"exit code {outcome.code} without a word"
    if outcome.code and tuple(words[:2]) == EXPLAIN_RUN:
        return f"a run that lint shows is not explained: {outcome.stderr.strip().splitlines()[-1][:200]}"
    if outcome.code == 2 and changes:
        return f"exit code 2, and it wrote {changes[0].path}"
    return ""
