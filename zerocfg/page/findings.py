"""The findings of lint with the lines that they are about, and the rules behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.page.formatting import cut
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import find
from zerocfg.run.model import may_be_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocfg.linter.engine import Diagnostic, Result
    from zerocfg.rules.api import Rule
    from zerocfg.rules.place import FileSpan

WIDEST = 160
"""Columns of a source line that are shown; longer ones are cut around what is marked."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a source file in three pieces, the middle one marked; empty where the line is."""

    place: str
    line: int
    before: str
    marked: str
    after: str
    label: str


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    name: str
    severity: str
    message: str
    help: str
    frames: tuple[Frame, ...]
    fix: str = ""
    fix_safe: bool = True


@dataclass(frozen=True, slots=True)
class RulePage:
    """A rule's documentation in short; ``zerocfg explain CODE`` prints all of it."""

    code: str
    name: str
    summary: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]


def findings(result: Result) -> list[Finding]:
    """The gravest first, else in the order of files and lines."""
    order = sorted(result.diagnostics, key=lambda diagnostic: -diagnostic.severity.rank)
    return [_finding(diagnostic) for diagnostic in order]


def rule_pages(codes: Iterable[str]) -> list[RulePage]:
    """The rules with these codes, each once."""
    rules = [find(code) for code in sorted(set(codes))]
    return [_rule(rule) for rule in rules if rule is not None]


def _finding(diagnostic: Diagnostic) -> Finding:
    frames = tuple(_frame(span) for span in (diagnostic.span, *diagnostic.related))
    fix, safe = (diagnostic.fix.description, diagnostic.fix.safe) if diagnostic.fix is not None else ("", True)
    return Finding(
        diagnostic.code,
        diagnostic.name,
        diagnostic.severity.value,
        diagnostic.message,
        diagnostic.help,
        frames,
        fix,
        safe,
    )


def _frame(span: FileSpan) -> Frame:
    text = span.file.source.line(span.start.line) if may_be_quoted(span.file) else ""
    start = span.start.column - 1
    last = len(text) if span.end.line > span.start.line else max(span.end.column - 1, start + 1)
    offset = max(0, start - WIDEST // 2) if len(text) > WIDEST else 0
    text = text[offset : offset + WIDEST]
    start, last = start - offset, min(last - offset, len(text))
    where = f"{span.file.name}:{span.start.line}:{span.start.column}"
    return Frame(where, span.start.line, text[:start], text[start:last], text[last:], cut(span.label, WIDEST))


def _rule(rule: Rule) -> RulePage:
    page = page_of(rule)
    texts = {
        "Why it is bad": page.why,
        "What happens": page.happens,
        "Use instead": page.instead,
        "Fix": page.fix,
        "When to ignore": page.ignore,
    }
    sections = ((title, tuple(text.split("\n\n"))) for title, text in texts.items() if text)
    return RulePage(rule.code, rule.name, page.summary, tuple(sections))
