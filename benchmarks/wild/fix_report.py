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
            parts += [_summary(how, here), *_refused(here), *_unspoken(here), *_come(here), *_others(here), ""]
    return "\n".join(parts)


def _summary(how: str, rows: Sequence[Fixed]) -> str:
    files = sum(len(row.files) for row in rows)
    refused = sum(len(row.refused) for row in rows)
    values = [value for row in rows for value in row.values]
    unspoken = sum(not value.codes for value in values)
    again = sum(len(row.again) for row in rows)
    return (
        f"After {how}: {files} files of {sum(bool(row.files) for row in rows)} repositories are changed and "
        f"{sum(row.gone for row in rows)} findings gone. Accepted before and refused now: {refused}. "
        f"Values that are other ones now: {len(values)}; of which no mended finding spoke: {unspoken}. "
        f"Files that a second call changes again: {again}.\n"
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


def _others(rows: Sequence[Fixed]) -> Iterator[str]:
    for row in rows:
        if row.again:
            yield f"- {row.repository}: changed again by a second call: {', '.join(row.again)}"
        if row.unread:
            yield f"- {row.repository}: changed, and read by no library in any run: {', '.join(row.unread)}"


def _shown(one: Value) -> str:
    return f"{one.file}, {one.key} as {one.by} reads it: {one.before} -> {one.after}"
