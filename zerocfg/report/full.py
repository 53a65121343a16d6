"""The human format: message, source frame with a caret, related places, help."""

from __future__ import annotations

from zerocfg.catalog.versions import library_name
from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.report.frame import frame
from zerocfg.rules.place import FileSpan
from zerocfg.run.config import VERSIONS
from zerocfg.run.origins import place_of
from zerocfg.source.foreign import COLOURS, one_line

MOST_UNREAD = 20
"""Files that were not checked and are listed; the rest is counted."""
NARROWEST = 32
"""Columns that are filled even where a terminal has fewer."""


class Paint:
    """Colours when wanted, plain text when not."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, style: str) -> str:
        return f"\033[{COLOURS[style]}m{text}\033[{COLOURS['']}m" if self.colour else text


def render_full(result: Result, colour: bool = False, width: int | None = None, quiet: bool = False) -> str:
    """All diagnostics with their frames, then, unless ``quiet``, the summary line.

    ``width``: columns of a terminal. Words are wrapped and source lines cut to them; places stay whole, to be clicked.
    """
    paint = Paint(colour)
    width = max(width, NARROWEST) if width is not None else None
    blocks = ["\n".join(_diagnostic(diagnostic, paint, width)) for diagnostic in result.diagnostics]
    if quiet:
        return "\n\n".join(blocks) + "\n" if blocks else ""
    end = "\n".join(wrap(summary(result, paint), width, "  "))
    left = [line for entry in unread_lines(result) for line in wrap(entry, width, "    ")]
    return "\n\n".join([*blocks, "\n".join([end, *left])]) + "\n"


def render_concise(result: Result, colour: bool = False, quiet: bool = False) -> str:
    """One line a diagnostic, then, unless ``quiet``, the summary line."""
    paint = Paint(colour)
    lines = []
    for d in result.diagnostics:
        where = f"{one_line(d.span.file.name)}:{d.span.start.line}:{d.span.start.column}"
        lines.append(f"{where}: {paint(d.severity.value, d.severity.value)}[{d.code}] {d.full_message}{_releases(d)}")
    if quiet:
        return "".join(f"{line}\n" for line in lines)
    return "\n".join([*lines, summary(result, paint), *unread_lines(result)]) + "\n"


def _releases(d: Diagnostic) -> str:
    return f" [{d.releases.words}]" if d.releases is not None else ""


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
    elif result.internal_errors:
        text = f"Nothing was found in {_files(result.files)}."
    elif result.files:
        text = paint("All checks passed", "green") + f" in {_files(result.files)}."
    else:
        text = "Nothing was checked."
    return (
        text
        + _failed(result)
        + _suppressed(result)
        + _notes(result)
        + _assumed(result)
        + _outdated(result)
        + _new_install(result)
        + _outside(result)
    )


def unread_lines(result: Result) -> list[str]:
    """A heading and a line for each file; files named on the command line are reported as usage errors instead."""
    found = [unchecked_file for unchecked_file in result.unread if not unchecked_file.named]
    if not found:
        return []
    count = len(found)
    lines = [f"{count} file{'s were' if count != 1 else ' was'} not checked:"]
    lines += [f"  {one_line(item.file)}: {one_line(item.reason)}" for item in found[:MOST_UNREAD]]
    return (
        [*lines, f"  and {count - MOST_UNREAD} more; --output-format json lists them"] if count > MOST_UNREAD else lines
    )


def _failed(result: Result) -> str:
    count = len(result.internal_errors)
    return f" {count} check{'s' * (count != 1)} failed inside zerocfg." if count else ""


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
    total = sum(result.suppressed_by.values())
    text = ""
    if total:
        by = [f"{count} by {what}" for what, count in sorted(result.suppressed_by.items())]
        text = f" {total} suppressed ({', '.join(by)})."
    if result.stale:
        entries = f"{result.stale} entr{'ies' if result.stale != 1 else 'y'}"
        text += f" {entries} of the baseline no longer occur{'s' * (result.stale == 1)}: write it anew."
    return text


def _notes(result: Result) -> str:
    return f" {result.notes} note{'s' * (result.notes != 1)}, shown with --notes." if result.notes else ""


def _assumed(result: Result) -> str:
    named = [f"{library} {version}" for library, version in result.assumed.items()]
    return f" No file tells the release: judged as for {_join(named)}, the newest known." if named else ""


def _outdated(result: Result) -> str:
    """Why nothing is said by the release of a library."""
    said = ""
    for library, imported in result.outdated.items():
        said += (
            f" No file tells the release of {library_name(library)}, and {place_of(imported.origin)} imports "
            f"`{imported.shown}`, which {VERSIONS[library]} does not have: what depends on the release was not checked."
        )
    return said


def _new_install(result: Result) -> str:
    """Why what only some releases refuse counts less."""
    said = ""
    for stop in result.new_install_stops:
        where, name = place_of(stop.origin), library_name(stop.library)
        if stop.clash:
            why = f"it brings releases of {stop.clash} that do not go together"
        elif stop.refused:
            why = f"{where} gives from_pretrained() `{stop.refused}`, which the newest {name} refuses"
        elif stop.imported:
            why = f"{where} imports `{stop.imported}`, which the newest {name} does not have"
        else:
            why = f"the torch of {where} is too old for the newest {name}"
        said += f" A new install does not train, because {why}: what only some releases refuse is a note at most."
    return said


def _outside(result: Result) -> str:
    """What is said where a project has a release of which nothing is known."""
    text = ""
    for item in result.outside:
        name = library_name(item.library)
        if item.older:
            text += f" {name} {item.declared} is older than zerocfg knows ({item.known} and later): less is checked."
        else:
            text += f" {name} {item.declared} is newer than zerocfg knows: judged as for {item.known}."
    return text


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _diagnostic(d: Diagnostic, paint: Paint, width: int | None) -> list[str]:
    level = d.severity.value
    head = f"{level}[{d.code}]"
    first, *more = wrap(f"{head}: {d.full_message}", width, "  ")
    lines = [paint(head, level) + paint(first.removeprefix(head), "bold"), *(paint(line, "bold") for line in more)]
    spans = [d.span, *d.related]
    digits = len(str(max(span.start.line for span in spans)))
    edge = " " * digits
    for index, span in enumerate(spans):
        arrow = "-->" if index == 0 else ":::"
        place = f"{one_line(span.file.name)}:{span.start.line}:{span.start.column}{_cell(span)}"
        lines.append(f"{edge}{paint(arrow, 'blue')} {place}")
        lines += _framed(span, digits, paint, level if index == 0 else "blue", "^" if index == 0 else "-", width)
    notes = [f"help: {d.help}"] if d.help else []
    if d.releases is not None:
        notes.append(f"releases: {d.releases.words}")
    for text in [*notes, f"rule: {d.name} (zerocfg explain {d.code})"]:
        first, *more = wrap(text, width and width - digits - 3, "")
        lines.append(f"{edge} {paint('=', 'blue')} {first}")
        lines += [f"{edge}   {line}" for line in more]
    return lines


def _cell(span: FileSpan) -> str:
    """The cell of a notebook, which is what its reader sees: the lines are those of the file."""
    if not span.file.name.endswith(".ipynb"):
        return ""
    from zerocfg.source.launch.notebook import cell_at  # few findings stand in notebooks

    source = span.file.source
    found = cell_at(source, source.offset(span.start.line - 1, span.start.column - 1))
    return f" (cell {found[0]}, line {found[1]})" if found is not None else ""


def wrap(text: str, width: int | None, indent: str) -> list[str]:
    """Lines of at most ``width`` columns, the later ones indented; a word that is longer stays whole."""
    if width is None or (len(text) <= width and "\n" not in text):
        return [text]
    from textwrap import wrap as filled

    lines = [
        line
        for part in text.split("\n")
        for line in filled(
            part, max(width, 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    ]
    return lines or [""]


def _framed(span: FileSpan, digits: int, paint: Paint, style: str, mark: str, width: int | None) -> list[str]:
    found = frame(span, mark, width and width - digits - 3)
    if found is None:
        return []
    edge, bar = " " * digits, paint("|", "blue")
    number = paint(str(span.start.line).rjust(digits), "blue")
    marks = [f"{edge} {bar} {' ' * indent}{paint(text, style)}" for indent, text in found.marks]
    return [f"{edge} {bar}", f"{number} {bar} {found.source}", *marks]
