"""The human format: message, source frame with a caret, related places, help."""

from __future__ import annotations

from zerocfg.rules.engine import Diagnostic, Result, Spot

_COLOURS = {"error": "31;1", "warning": "33;1", "note": "36;1", "blue": "34", "bold": "1", "green": "32"}
WIDEST = 160
"""Columns of a source line that are shown; longer lines are cut around the caret."""


class Paint:
    """Colours when wanted, plain text when not."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, style: str) -> str:
        return f"\033[{_COLOURS[style]}m{text}\033[0m" if self.colour else text


def render_full(result: Result, colour: bool = False) -> str:
    """All diagnostics with their frames, then the summary line."""
    paint = Paint(colour)
    blocks = [_diagnostic(diagnostic, paint) for diagnostic in result.diagnostics]
    return "\n\n".join([*blocks, summary(result, paint)]) + "\n"


def render_concise(result: Result, colour: bool = False) -> str:
    """One line a diagnostic."""
    paint = Paint(colour)
    lines = []
    for d in result.diagnostics:
        where = f"{d.spot.file.name}:{d.spot.start.line}:{d.spot.start.column}"
        lines.append(f"{where}: {paint(d.severity.value, d.severity.value)}[{d.code}] {d.message}")
    return "\n".join([*lines, summary(result, paint)]) + "\n"


def summary(result: Result, paint: Paint) -> str:
    """``Found 2 errors and 1 note in 3 files, 1 fixable with --fix. 4 suppressed by comments.``"""
    counts: dict[str, int] = {}
    for diagnostic in result.diagnostics:
        counts[diagnostic.severity.value] = counts.get(diagnostic.severity.value, 0) + 1
    if counts:
        parts = [
            f"{counts[name]} {name}{'s' * (counts[name] != 1)}"
            for name in ("error", "warning", "note")
            if name in counts
        ]
        text = f"Found {_join(parts)} in {_files(result.files)}{_fixable(result)}."
    else:
        text = paint("All checks passed", "green") + f" in {_files(result.files)}."
    return text + _suppressed(result)


def _fixable(result: Result) -> str:
    fixes = [diagnostic.fix for diagnostic in result.diagnostics if diagnostic.fix is not None]
    safe = sum(fix.safe for fix in fixes)
    unsafe = len(fixes) - safe
    if safe and unsafe:
        return f", {safe} fixable with --fix ({unsafe} more with --unsafe-fixes)"
    if safe:
        return f", {safe} fixable with --fix"
    return f", {unsafe} fixable with --fix --unsafe-fixes" if unsafe else ""


def _suppressed(result: Result) -> str:
    total = sum(result.suppressed.values())
    text = ""
    if total:
        by = [f"{count} by {what}" for what, count in sorted(result.suppressed.items())]
        text = f" {total} suppressed ({', '.join(by)})."
    if result.stale:
        entries = f"{result.stale} entr{'ies' if result.stale != 1 else 'y'}"
        text += f" {entries} of the baseline no longer occur{'s' * (result.stale == 1)}: write it anew."
    return text


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _diagnostic(d: Diagnostic, paint: Paint) -> str:
    level = d.severity.value
    lines = [f"{paint(f'{level}[{d.code}]', level)}{paint(f': {d.message}', 'bold')}"]
    spots = [d.spot, *d.related]
    width = len(str(max(spot.start.line for spot in spots)))
    for index, spot in enumerate(spots):
        arrow = "-->" if index == 0 else ":::"
        lines.append(f"{' ' * width}{paint(arrow, 'blue')} {spot.file.name}:{spot.start.line}:{spot.start.column}")
        lines += _frame(spot, width, paint, level if index == 0 else "blue", "^" if index == 0 else "-")
    if d.help:
        lines.append(f"{' ' * width} {paint('=', 'blue')} help: {d.help}")
    lines.append(f"{' ' * width} {paint('=', 'blue')} rule: {d.name} (zerocfg explain {d.code})")
    return "\n".join(lines)


def _frame(spot: Spot, width: int, paint: Paint, style: str, mark: str) -> list[str]:
    text = spot.file.source.line(spot.start.line)
    if not text.strip():
        return []
    start = spot.start.column - 1
    last = len(text) if spot.end.line > spot.start.line else spot.end.column - 1
    offset = 0
    if len(text) > WIDEST:
        offset = max(0, start - WIDEST // 2)
        text = text[offset : offset + WIDEST]
    start, last = start - offset, min(last - offset, len(text))
    pad = "".join("\t" if char == "\t" else " " for char in text[:start])
    bar = paint("|", "blue")
    number = paint(str(spot.start.line).rjust(width), "blue")
    caret = paint(mark * max(1, last - start) + (f" {spot.label}" if spot.label else ""), style)
    shown = "".join(char if char == "\t" or char.isprintable() else "�" for char in text)
    return [f"{' ' * width} {bar}", f"{number} {bar} {shown}", f"{' ' * width} {bar} {pad}{caret}"]
