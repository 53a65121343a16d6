"""Annotations of GitHub Actions: workflow commands that it shows beside the lines of a change.

It shows ten of them for a step, so the summary is printed as well.
"""

from __future__ import annotations

from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.report.checkout import GITHUB, in_checkout
from zerocfg.report.full import Paint, summary, unread_lines

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render_github(result: Result) -> str:
    """One workflow command a finding, the gravest first, and the summary line."""
    gravest = sorted(result.diagnostics, key=lambda diagnostic: -diagnostic.severity.rank)
    return "\n".join([*map(_command, gravest), summary(result, Paint(colour=False)), *unread_lines(result)]) + "\n"


def _command(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    place = {"file": in_checkout(span.file.name, GITHUB), "line": str(span.start.line), "endLine": str(span.end.line)}
    if span.start.line == span.end.line:  # columns are taken for one line only
        place |= {"col": str(span.start.column), "endColumn": str(max(span.end.column, span.start.column + 1))}
    place["title"] = f"{diagnostic.code} {diagnostic.name}"
    said = [diagnostic.full_message, *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
    said += [f"see also {other.file.name}:{other.start.line} {other.label}".rstrip() for other in diagnostic.related]
    words = ",".join(f"{name}={_property(value)}" for name, value in place.items())
    return f"::{_COMMANDS[diagnostic.severity.value]} {words}::{_data(chr(10).join(said))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
