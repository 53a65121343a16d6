"""What was played: a row for each command, and the tables that are made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

SECONDS = 10.0
"""CPU of a command, above which its row is wrong."""
SLOWEST = 5
COUNTS = (
    "command",
    "repositories",
    "runs",
    "exit 0",
    "exit 1",
    "exit 2",
    "exit 3",
    "internal errors",
    f"over {SECONDS:g} s of CPU",
    "unintended changes",
    "broken files",
    "slowest, s",
)
KINDS = ("--print", "--all-releases", "--diff", "--fix", "--add-ignore", "--run", "--write", "--releases")
"""Options that make another command of one, for the table."""


@dataclass(frozen=True)
class Row:
    """One command in one checkout. ``seconds`` of CPU; ``error``: the line that shows one; ``changed``: files that it
    should have left alone; ``broken``: files that do not parse any more."""

    checkout: str
    command: str
    code: int
    seconds: float
    error: str = ""
    changed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def slow(self) -> bool:
        return self.seconds > SECONDS

    @property
    def wrong(self) -> bool:
        return bool(self.error or self.changed or self.broken) or self.slow

    @property
    def kind(self) -> str:
        """What the command does, for the table: a lint that fixes is no lint that reports."""
        name, *words = self.command.split()
        doing = [word for word in words if word in KINDS]
        return " ".join([name, *doing[:1]])

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def read_rows(text: str) -> list[Row]:
    """The rows of a file that has one a line."""
    rows = []
    for line in text.splitlines():
        data = json.loads(line)
        rows.append(Row(**{**data, **{key: tuple(data.get(key, ())) for key in ("changed", "broken")}}))
    return rows


def tables(rows: Sequence[Row]) -> str:
    """In Markdown: the counts of each command, the slowest rows, and what went wrong."""
    kinds = sorted({row.kind for row in rows})
    counts = [_counts(f"`{kind}`", [row for row in rows if row.kind == kind]) for kind in kinds]
    lines = _table(COUNTS, [*counts, _counts("all", rows)])
    slowest = sorted(rows, key=lambda row: -row.seconds)[:SLOWEST]
    lines += ["", *_table(("slowest", "in", "CPU, s"), [(f"`{r.command}`", r.checkout, r.seconds) for r in slowest])]
    if wrong := [row for row in rows if row.wrong]:
        header = ("wrong", "in", "exit code", "CPU, s", "error", "changed", "broken")
        lines += ["", *_table(header, [_wrong(row) for row in wrong])]
    return "\n".join(lines) + "\n"


def _counts(name: str, rows: Sequence[Row]) -> tuple[object, ...]:
    codes = [sum(row.code == code for row in rows) for code in (0, 1, 2, 3)]
    wrong = (
        sum(bool(row.error) for row in rows),
        sum(row.slow for row in rows),
        sum(bool(row.changed) for row in rows),
        sum(bool(row.broken) for row in rows),
    )
    return (name, len({row.checkout for row in rows}), len(rows), *codes, *wrong, max(row.seconds for row in rows))


def _wrong(row: Row) -> tuple[object, ...]:
    files = (", ".join(names[:5]) for names in (row.changed, row.broken))
    return (f"`{row.command}`", row.checkout, row.code, row.seconds, row.error, *files)


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines]
