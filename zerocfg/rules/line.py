"""What rules about launch lines share: handles of their options, whether all of these are seen, edits of the line."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from zerocfg.record import record
from zerocfg.rules.api import Fix, Intent, Location
from zerocfg.rules.key import NOWHERE, Key
from zerocfg.run.model import UNKNOWN, Origin, Run, SourceFile
from zerocfg.run.stages.options import OPTIONS
from zerocfg.source.launch import shell_edits
from zerocfg.source.launch.launchers import GRAMMARS, option_like
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.source.edit import Edit
    from zerocfg.source.launch.line import LaunchLine, Option


def is_page(file: SourceFile) -> bool:
    """Whether a file is a page of documentation, which may leave what it does not speak of to its reader."""
    return file.name.lower().endswith((".md", ".mdx", ".markdown", ".rst"))


def started_by(run: Run, *launchers: str) -> bool:
    return run.launch is not None and run.launch.launcher in launchers


@record(frozen=True, slots=True)
class LineOption(Key):
    """An option of the launch line as a key: ``name`` as it is written, ``value`` the text of its word, True where it
    has none, UNKNOWN where a variable hides it."""

    option: Option | None = None

    @property
    def name(self) -> str:
        return self.origin.note

    @property
    def plain(self) -> str:
        """The name as parsers store it; empty where no option is written."""
        return self.option.plain if self.option is not None else ""

    @property
    def text(self) -> str | None:
        return self.value if isinstance(self.value, str) else None

    @property
    def raw(self) -> str:
        """Its value as it stands on the line, with quotes and variables; empty where it has none."""
        return self.option.value.text if self.option is not None and self.option.value is not None else ""

    @property
    def count(self) -> int | None:
        text = self.text
        return int(text) if text is not None and text.isdecimal() and len(text) < 9 else None

    @property
    def words(self) -> str | None:
        """The whole option as it stands in the file; None where it came out of a variable."""
        if self.option is None or self.file is None:
            return None
        return shell_edits.written_option(self.file.source, self.option)

    def delete(self, why: str, *, safe: bool = True) -> Fix | None:
        return line_fix(self.run, why, self.removed(), safe=safe)

    # edits of the line: None where the option is not written there

    def removed(self) -> list[Edit] | None:
        return self._edited(shell_edits.removed)

    def reworded(self, text: str) -> list[Edit] | None:
        """Other words in the place of name and value."""
        return self._edited(shell_edits.replaced, text)

    def with_value(self, text: str) -> list[Edit] | None:
        return self._edited(shell_edits.with_value, text)

    def followed_by(self, words: str) -> list[Edit] | None:
        """Further words behind name and value."""
        return self._edited(shell_edits.behind, words)

    def _edited(self, edit: Callable[..., Edit | None], *words: str) -> list[Edit] | None:
        if self.option is None or self.file is None:
            return None
        return _listed(edit(self.file.source, self.option, *words))


def _listed(edit: Edit | None) -> list[Edit] | None:
    return [edit] if edit is not None else None


def line_option(run: Run, *names: str) -> LineOption:
    """The last option of the launcher under one of these names, which is the one that counts."""
    known = run.launch.last_options if run.launch is not None else {}
    given = (known[name] for name in names if name in known)
    return from_option(run, max(given, key=itemgetter(0), default=(0, None))[1])


def option_at(run: Run, origin: Origin) -> LineOption:
    """The option of the launcher or of the script that an origin speaks of."""
    line = run.launch if origin.file is run.launch_file else None
    return from_option(run, line.options_at.get(origin.span) if line is not None and origin.span else None)


def from_option(run: Run, option: Option | None) -> LineOption:
    if option is None:
        return LineOption(run, run.launch_file, (), None, False, NOWHERE)
    word = option.value
    value = True if word is None else UNKNOWN if word.value is None else word.value
    origin = Origin("flag", option.name, run.launch_file, (), option.span)
    return LineOption(run, run.launch_file, (), value, True, origin, option)


def options_without_value(run: Run) -> list[Option]:
    """The launcher's options that take a value and have none: its parser stops at them."""
    line = run.launch
    if line is None or run.launch_file is None:
        return []
    text = run.launch_file.source.text
    return [
        option for option in line.options if option.exact and _needs_value(line, option) and _is_without(option, text)
    ]


def _needs_value(line: LaunchLine, option: Option) -> bool:
    if line.launcher == "accelerate":
        known = OPTIONS.get(option.plain)
        return known is not None and known.kind != "flag"
    return line.launcher in ("torchrun", "deepspeed") and bool(GRAMMARS[line.launcher].takes_value(option.name))


def _is_without(option: Option, text: str) -> bool:
    """Whether an option is followed by nothing, or by the next option; ``text``: of the file that both are in."""
    value = option.value
    if value is None:
        return True
    glued = text.startswith("=", option.span.start + len(option.name))
    return not glued and value.exact and value.text.startswith("--") and option_like(value)


def all_options_seen(run: Run) -> bool:
    """False where a variable before the script may hold further options of the launcher."""
    line = run.launch
    if line is None or run.launch_file is None:
        return False
    spans = sorted(option.span for option in line.options)
    ends = list(accumulate((span.end for span in spans), max))
    end = line.script.span.start if line.script is not None else line.span.end
    text = run.launch_file.source.text
    for word in re.finditer(r"\S+", text[line.span.start : max(end, line.span.start)]):
        start = line.span.start + word.start()
        if word[0].lstrip("\"'")[:1] in ("$", "`"):
            before = bisect_right(spans, Span(start, len(text)))
            if not before or start >= ends[before - 1]:
                return False
    return True


def all_arguments_seen(run: Run) -> bool:
    """False where a word behind the script is a variable, or `$@`, that may hold further options of the script."""
    line = run.launch
    if line is None:
        return False
    values = {option.value.span for option in line.script_options if option.value is not None}
    return all(word.value is not None or word.span in values for word in line.arguments)


def at_line(run: Run) -> Location:
    """The launch line, shown at its training script."""
    assert run.launch is not None and run.launch_file is not None
    script = run.launch.script
    return Location(run.launch_file, span=script.span if script is not None else run.launch.span)


def before_script(run: Run, words: str) -> list[Edit] | None:
    """An edit that puts words before the training script; None where the script is not written in the line."""
    line = run.launch
    if line is None or line.script is None or run.launch_file is None or line.module:
        return None
    return _listed(shell_edits.before(line.script, words))


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
