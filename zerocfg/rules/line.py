"""What the rules about launch lines share: options by name, whether all of them can be seen, edits of the line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.rules.api import Fix, Intent, Location
from zerocfg.run.model import Origin, Run, Setting, SourceFile
from zerocfg.run.stages.options import OPTIONS
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from zerocfg.source.launch.line import Option

LOCAL = frozenset(("localhost", "127.0.0.1", "0.0.0.0", "::1", "[::1]"))
_REST_OF_LINE = re.compile(r"[ \t]*\\\r?\n")


def is_page(file: SourceFile) -> bool:
    """Whether a file is a page of documentation, which may leave what it does not speak of to its reader."""
    return file.name.lower().endswith((".md", ".mdx", ".markdown", ".rst"))


def started_by(run: Run, *launchers: str) -> bool:
    return run.launch is not None and run.launch.launcher in launchers


def flag(run: Run, *names: str) -> Setting | None:
    """The option of the launcher under the first of these names that is given."""
    return next((run.flags[name] for name in names if name in run.flags), None)


def text_of(run: Run, *names: str) -> str | None:
    """The value of an option as text; None where it is not given or not known."""
    found = flag(run, *names)
    return found.value if found is not None and isinstance(found.value, str) else None


def number_of(run: Run, *names: str) -> int | None:
    text = text_of(run, *names)
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else None


def all_options_seen(run: Run) -> bool:
    """False where a variable before the script may hold further options of the launcher."""
    line = run.launch
    if line is None or run.launch_file is None:
        return False
    spans = [option.span for option in line.options]
    end = line.script.span.start if line.script is not None else line.span.end
    text = run.launch_file.source.text
    for word in re.finditer(r"\S+", text[line.span.start : max(end, line.span.start)]):
        start = line.span.start + word.start()
        inside = any(span.start <= start < span.end for span in spans)
        if word[0].lstrip("\"'")[:1] in ("$", "`") and not inside:
            return False
    return True


def option_named(run: Run, *names: str) -> Option | None:
    """The last option of the line under one of these names, which is the one that counts."""
    options = run.launch.options if run.launch is not None else ()
    return next((option for option in reversed(options) if plain(option.name) in names), None)


def option_at(run: Run, origin: Origin) -> Option | None:
    """The option of the line that stands where a setting or a failure comes from."""
    options = run.launch.options if run.launch is not None and origin.file is run.launch_file else ()
    return next((option for option in options if option.span == origin.span), None)


def plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def at_option(run: Run, option: Option, label: str = "") -> Location:
    assert run.launch_file is not None
    return Location(run.launch_file, span=option.span, label=label)


def at_line(run: Run) -> Location:
    """The launch line, shown at its training script."""
    assert run.launch is not None and run.launch_file is not None
    script = run.launch.script
    return Location(run.launch_file, span=script.span if script is not None else run.launch.span)


def written(run: Run, option: Option) -> str | None:
    """The option as it stands in the file; None where it came out of a variable."""
    if run.launch_file is None:
        return None
    text = run.launch_file.source.text[option.span.start : option.span.end]
    whole = text.startswith(option.name) and (option.value is None or text.endswith(option.value.text))
    return text if whole and "\n" not in text else None


def without(run: Run, *options: Option) -> list[Edit] | None:
    """Edits that take options off the line; None where one of them is not written there."""
    if run.launch_file is None or not options or any(written(run, option) is None for option in options):
        return None
    return [_removal(run.launch_file.source.text, option.span) for option in options]


def _removal(text: str, span: Span) -> Edit:
    """The option with the blanks before it; with its line where that is all that the line holds."""
    start = span.start
    while start and text[start - 1] in " \t":
        start -= 1
    rest = _REST_OF_LINE.match(text, span.end)
    if text[:start].endswith(("\\\n", "\\\r\n")):
        if rest is not None:
            return Edit(Span(start, rest.end()), "")
        if text[span.end : span.end + 1] in ("", "\r", "\n"):
            return Edit(Span(text[:start].rindex("\\"), span.end), "")
    return Edit(Span(start, span.end), "")


def before_script(run: Run, words: str) -> list[Edit] | None:
    """An edit that puts words before the training script; None where the script is not written in the line."""
    line = run.launch
    if line is None or line.script is None or run.launch_file is None or line.module:
        return None
    span = line.script.span
    if run.launch_file.source.text[span.start : span.end] != line.script.text:
        return None
    return [Edit(Span(span.start, span.start), words + " ")]


def line_fix(
    run: Run, why: str, *parts: list[Edit] | None, safe: bool = False, gives: tuple[Intent, ...] = ()
) -> Fix | None:
    """One fix out of several edits of the launch file; None as soon as one of them is not possible."""
    if run.launch_file is None or any(part is None for part in parts):
        return None
    edits = tuple((run.launch_file, edit) for part in parts if part is not None for edit in part)
    return Fix(why, edits, safe, gives) if edits else None


def says(name: str, text: str | None = None) -> tuple[Intent, ...]:
    """What an option means to set that is written for accelerate's launcher; a switch has no text."""
    option = OPTIONS.get(name)
    if option is None or (text is None and option.kind != "flag"):
        return ()
    try:
        value = {"int": int, "float": float, "str": str}[option.kind](text) if text is not None else True
    except (KeyError, ValueError):
        return ()
    return (Intent(name, value, "option"),)


def exported(run: Run, name: str) -> str | None:
    """The known value of a variable that the line or the file exports before it."""
    found = run.environment.get(name)
    return found.value if found is not None and isinstance(found.value, str) else None


def mentions(run: Run, name: str) -> bool:
    """Whether the command uses a variable: `$NAME` or `${NAME`."""
    if run.launch is None or run.launch_file is None:
        return False
    text = run.launch_file.source.text[run.launch.span.start : run.launch.span.end]
    return re.search(rf"\$\{{?{re.escape(name)}\b", text) is not None


def as_count(value: object) -> int | None:
    """A whole number that is no bool; None for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
