"""``--statistics``: how often each rule found something."""

from __future__ import annotations

import json
from collections import Counter

from zerocfg.linter.engine import Result
from zerocfg.report.full import Paint, summary, unread_lines


def render_statistics(result: Result, colour: bool = False) -> str:
    """One line a rule and severity, the most frequent first; ``fix``: at least one of its findings has one."""
    paint = Paint(colour)
    rows = _rows(result)
    count_width = max((len(str(count)) for _, _, count, _, _ in rows), default=0)
    lines = []
    for code, name, count, severity, fixable in rows:
        fix = "fix" if fixable else "   "
        lines.append(f"{count:>{count_width}}  {code}  {paint(f'{severity:<7}', severity)}  {fix}  {name}")
    return "\n".join([*lines, summary(result, paint), *unread_lines(result)]) + "\n"


def render_statistics_json(result: Result) -> str:
    """The same as one JSON object."""
    rows = [
        {"code": code, "name": name, "count": count, "severity": severity, "fixable": fixable}
        for code, name, count, severity, fixable in _rows(result)
    ]
    return json.dumps({"version": 1, "files": result.files, "statistics": rows}, indent=2) + "\n"


def _rows(result: Result) -> list[tuple[str, str, int, str, bool]]:
    """A rule with findings of several severities has a row for each."""
    found = Counter((diagnostic.code, diagnostic.name, diagnostic.severity) for diagnostic in result.diagnostics)
    fixable = {
        (diagnostic.code, diagnostic.severity) for diagnostic in result.diagnostics if diagnostic.fix is not None
    }
    order = sorted(found.items(), key=lambda item: (-item[1], item[0][0], -item[0][2].rank))
    return [(code, name, count, severity.value, (code, severity) in fixable) for (code, name, severity), count in order]
