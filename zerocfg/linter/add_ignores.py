"""``--add-ignore``: comments in files that have them, and patterns for the settings where a file has none."""

from __future__ import annotations

from collections.abc import Iterable

from zerocfg.frontends.registry import programs
from zerocfg.linter.engine import Diagnostic, real_name
from zerocfg.linter.ignores import OWN, command_lines, directives
from zerocfg.record import field, record
from zerocfg.rules.place import FileSpan
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.shell_check import only_comments
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

REASON = "TODO"


@record
class Added:
    """``texts``: by real path, with comments put in. ``patterns``: files that take no comment, as name (of the file),
    key path and code. ``count``: of the findings silenced either way."""

    texts: dict[str, str] = field(default_factory=dict)
    patterns: list[tuple[SourceFile, str, str]] = field(default_factory=list)
    count: int = 0


def ignores_for(diagnostics: Iterable[Diagnostic]) -> Added:
    """What silences these findings. Those about ignores themselves are left to be looked at."""
    by_file: dict[str, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        if diagnostic.code not in OWN:
            by_file.setdefault(real_name(diagnostic.span.file), []).append(diagnostic)
    added = Added()
    for path, found in by_file.items():
        file = found[0].span.file
        text = _commented(file, found)
        if text is not None:
            added.texts[path] = text
        else:
            added.patterns += [(file, diagnostic.span.path, diagnostic.code) for diagnostic in found]
        added.count += len(found)
    return added


def _commented(file: SourceFile, found: list[Diagnostic]) -> str | None:
    """The file with comments, or None where it takes none or would then read as something else."""
    launch = file.kind == "launch" and not file.name.lower().endswith((".md", ".markdown", ".mdx", ".rst"))
    yaml = file.document is not None and file.document.format == "yaml" and file.document.root is not None
    if file.reread_of is not None or not (launch or yaml):
        return None
    by_line: dict[int, list[Diagnostic]] = {}
    for diagnostic in found:
        by_line.setdefault(_line(file, diagnostic.span), []).append(diagnostic)
    edits = [edit for line, here in by_line.items() for edit in _edits(file, line, here)]
    text = apply_edits(file.source.text, edits)
    if launch and not only_comments(file.source, edits, programs()):
        return None
    if yaml and file.document is not None:
        again = load_as(SourceText(file.name, text), "yaml")
        if again.root is None or again.data() != file.document.data():
            return None
    return text


def _line(file: SourceFile, span: FileSpan) -> int:
    """The line that a comment goes above: the first of a shell command."""
    line = span.start.line
    return command_lines(file.source, line)[0] if file.kind == "launch" else line


def _edits(file: SourceFile, line: int, found: list[Diagnostic]) -> list[Edit]:
    source = file.source
    codes = list(dict.fromkeys(sorted(diagnostic.code for diagnostic in found)))
    for directive in directives(file):
        if directive.valid and directive.codes and directive.listed and line in directive.lines:
            end = directive.codes[-1].span.end
            return [Edit(Span(end, end), "".join(f", {code}" for code in codes))]
    text = source.line(line)
    # make passes an indented comment on to the shell; one at the start of the line is its own.
    indent = "" if text.startswith("\t") else text[: len(text) - len(text.lstrip())]
    start = source.line_span(line).start
    start += source.text.startswith("\ufeff", start)
    end_of_line = "\r\n" if "\r\n" in source.text else "\n"
    comment = f"{indent}# zerocfg: ignore[{', '.join(codes)}] {REASON}{end_of_line}"
    return [Edit(Span(start, start), comment)]
