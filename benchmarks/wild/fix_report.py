"""What the fixes did to the repositories, in words and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.wild.fixing import Fixed, Value

HOW = {False: "`--fix`", True: "`--fix --unsafe-fixes`"}


def fix_report(rows: Sequence[Fixed]) -> str:
    """The part of the results; empty where no fix was tried."""
    parts = []
    for unsafe, how in HOW.items():
        here = [row for row in rows if row.unsafe is unsafe]
        if here:
            parts += [_summary(how, here), *_refused(here), *_unspoken(here), *_come(here), ""]
    return "\n".join(parts)


def _summary(how: str, rows: Sequence[Fixed]) -> str:
    files = sum(len(row.files) for row in rows)
    refused = sum(len(row.refused) for row in rows)
    values = [value for row in rows for value in row.values]
    unspoken = sum(not value.codes for value in values)
    return (
        f"After {how}: {files} files of {sum(bool(row.files) for row in rows)} repositories are changed and "
        f"{sum(row.gone for row in rows)} findings gone. Accepted before and refused now: {refused}. "
        f"Values that are other ones now: {len(values)}; of which no finding spoke: {unspoken}.\n"
    )


def _refused(rows: Sequence[Fixed]) -> Iterator[str]:
    for row in rows:
        for one in row.refused:
            yield f"- {row.repository} {one.file}, refused by {one.by}: {one.why}"


def _unspoken(rows: Sequence[Fixed]) -> Iterator[str]:
    for row in rows:
        for one in row.unspoken:
            yield f"- {row.repository} {_shown(one)}"


def _come(rows: Sequence[Fixed]) -> Iterator[str]:
    for row in rows:
        if row.come:
            yield f"- {row.repository}: new findings of {', '.join(row.come)}"


def _shown(one: Value) -> str:
    return f"{one.file}, {one.key} as {one.by} reads it: {one.before} -> {one.after}"
