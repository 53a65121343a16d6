"""ZC7xx: launch lines of which the shell makes something else than they look like."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.line import at_line, is_page, line_fix
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.launch.launchers import read_options
from zerocfg.source.text import Span

_LINE_END = re.compile(r"[ \t]*\r?\n[ \t]*")
_COMMENT = re.compile(r"^[ \t\"]*#", re.MULTILINE)
_ESCAPED_BLANK = re.compile(r"\\[ \t]+\Z")


@rule("ZC748", "launch-line-cut-off", Severity.ERROR)
def launch_line_cut_off(run: Run) -> Iterator[Finding]:
    line, file = run.launch, run.launch_file
    if line is None or file is None or not line.cut_off:
        return
    text, first = file.source.text, line.cut_off[0]
    if first.span.start < line.span.end or text[: line.span.end].endswith("^"):
        return  # out of a text of its own, or a line of the Windows command prompt
    between = text[line.span.end : first.span.start]
    written = text[line.span.start : line.cut_off[-1].span.end]
    if is_page(file) and "\\\n" not in written.replace("\r\n", "\n"):
        return  # a page that lists options below a command
    options = read_options(line.cut_off)
    others = len(options) - 1
    names = options[0].name + (f" and {others} more option{'s' * (others > 1)}" if others > 0 else "")
    script = line.script.text if line.script is not None else line.launcher
    comment = _COMMENT.search(between)
    why = "the comment ends the command" if comment else "no backslash continues the command to this line"
    yield Finding(
        Location(file, span=options[0].span),
        f"{why}: {names} never reach{'es' * (others < 1)} {script}",
        "move the comment out of the command" if comment else "end the line above with a backslash",
        [at_line(run)],
        _continued(run, between),
    )


def _continued(run: Run, between: str) -> Fix | None:
    """A backslash at the end of the line, where nothing but the end of the line follows the command."""
    line, file = run.launch, run.launch_file
    assert line is not None and file is not None
    if not _LINE_END.fullmatch(between):
        return None
    start, end = line.span
    blank = _ESCAPED_BLANK.search(file.source.text, start, end)
    edit = Edit(Span(blank.start(), end), "\\") if blank else Edit(Span(end, end), " \\")
    return line_fix(run, "end the line with a backslash", [edit])
