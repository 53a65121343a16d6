"""Comments that suppress findings, ``# zerocfg: ignore[ZC401] reason``, and what is wrong with them.

A comment counts for its own line; one that has the line to itself also for the line below the comments that it stands
among. ``ignore-file`` counts for the whole file. In a shell command of several lines it counts for all of them.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

from zerocfg.catalog.suggest import closest
from zerocfg.record import record
from zerocfg.rules.api import Finding, Fix, Location, Rule
from zerocfg.rules.codes import REMOVED
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.source.edit import Edit
from zerocfg.source.node import Scalar, walk
from zerocfg.source.text import SourceText, Span

KINDS = ("ignore", "ignore-file")
OWN = frozenset(("ZC010", "ZC011"))
"""The rules about these comments. Only their names suppress them: a comment must not hide that it is useless."""

_DIRECTIVE = (
    r"(?:#|//)[ \t]*zerocfg:[ \t]*(?P<word>[A-Za-z][\w-]*)[ \t]*"
    r"(?:\[(?P<codes>[^\]\r\n]*)(?P<close>\])?)?"
    r"(?P<reason>(?:(?!\s(?:#|//))[^\r\n])*)"
)
_LEADING_CODES = r"\s*ZC\d{3}(?:\s*,\s*ZC\d{3})*\b"
_CLOSE = "put a ] behind the last code"
_CODE = r"[^\s,]+"


@record(frozen=True, slots=True)
class Code:
    """One entry of a list, as written."""

    text: str
    span: Span


@record(frozen=True, slots=True)
class Directive:
    """One comment. ``codes`` None: it names none and silences every rule. ``lines`` it counts for; empty: all."""

    word: str
    span: Span
    codes: tuple[Code, ...] | None
    listed: Span | None
    closed: bool
    reason: str
    lines: frozenset[int]

    @property
    def valid(self) -> bool:
        return self.word in KINDS and self.closed


@remembered
def directives(file: SourceFile) -> tuple[Directive, ...]:
    """The comments of a file that speak to zerocfg, wrong ones included."""
    if "zerocfg:" not in file.source.text:
        return ()
    return tuple(_read(file))


@remembered
def _by_line(file: SourceFile) -> dict[int | None, list[Directive]]:
    """The valid ones by each line that they count for; under None those of the whole file."""
    found: dict[int | None, list[Directive]] = {}
    for directive in directives(file):
        for line in (directive.lines or (None,)) if directive.valid else ():
            found.setdefault(line, []).append(directive)
    return found


def _read(file: SourceFile) -> Iterator[Directive]:
    text = file.source.text
    taken = _Spans(_not_comments(file))
    shell = _shell_blocks(file)
    blocks = None if shell is None else _Spans(shell)
    below: dict[int, int] = {}
    for match in re.finditer(_DIRECTIVE, text):
        start = match.start()
        if start and not text[start - 1].isspace() and text[start - 1] not in "\ufeff,{[":
            continue
        if match[0].startswith("//") and not _is_json(file):
            continue
        if start in taken or (blocks is not None and start not in blocks):
            continue
        listed = Span(*match.span("codes")) if match["codes"] is not None else None
        codes = None
        if listed is not None:
            found = re.finditer(_CODE, match["codes"])
            codes = tuple(Code(item[0], Span(listed.start + item.start(), listed.start + item.end())) for item in found)
        yield Directive(
            match["word"],
            Span(start, start + len(match[0].rstrip())),
            codes,
            listed,
            listed is None or match["close"] is not None,
            match["reason"].strip(),
            frozenset() if match["word"] == "ignore-file" else frozenset(_lines(file, start, below)),
        )


class _Spans:
    """Spans of which none lies in another: whether an offset is in one of them."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = sorted(spans)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.spans, (offset, sys.maxsize)) - 1
        return at >= 0 and offset < self.spans[at].end


def _not_comments(file: SourceFile) -> list[Span]:
    """Where a # is part of a key or a value."""
    if file.document is None or file.document.root is None:
        return []
    spans = []
    for _, node, entry in walk(file.document.root):
        if isinstance(node, Scalar):
            spans.append(node.span)
        if entry is not None:
            spans.append(entry.key_span)
    return spans


def _shell_blocks(file: SourceFile) -> list[Span] | None:
    """The shell text of a Markdown page; None for a file that is shell, YAML or JSON as a whole."""
    if not file.name.lower().endswith((".md", ".markdown", ".mdx", ".rst")):
        return None
    from zerocfg.source.launch.markdown import shell_blocks

    return [Span(block.at[0], block.at[-1] + 1) for block in shell_blocks(file.source.text) if len(block.at)]


def _is_json(file: SourceFile) -> bool:
    return file.document is not None and file.document.format == "json"


def _lines(file: SourceFile, offset: int, below: dict[int, int]) -> Iterator[int]:
    """The lines that a comment at an offset counts for.

    ``below``: the first line after the comment lines that a line is one of, so that each is looked at once.
    """
    source = file.source
    own = source.place(offset).line
    yield own
    if not _only_comment(source.line(own)):
        if file.kind == "launch":
            yield from command_lines(source, own)
        return
    if own not in below:
        end = own + 1
        while end <= source.line_count and _only_comment(source.line(end)):
            end += 1
        below.update(dict.fromkeys(range(own, end), end))
    yield below[own]
    if file.kind == "launch":
        yield from command_lines(source, below[own])


def _only_comment(line: str) -> bool:
    return line.lstrip().startswith(("#", "//"))


def command_lines(source: SourceText, line: int) -> range:
    """The lines of the shell command that a line belongs to: those joined by a backslash at their end."""
    first = last = line
    while first > 1 and _goes_on(source.line(first - 1)):
        first -= 1
    while last < source.line_count and _goes_on(source.line(last)):
        last += 1
    return range(first, last + 1)


def _goes_on(line: str) -> bool:
    return line.endswith("\\") and not _only_comment(line)


class Ignores:
    """The comments met in a lint, and which of them silenced something."""

    def __init__(self) -> None:
        self._used: set[tuple[Directive, str]] = set()

    def cover(self, file: SourceFile, line: int, code: str, name: str) -> Directive | None:
        """The comment that silences a finding, None: nothing does. Every comment that would has been of use."""
        found = None
        by_line = _by_line(file.reread_of or file)
        for directive in (*by_line.get(None, ()), *by_line.get(line, ())):
            if directive.codes is None:
                if code not in OWN:
                    self._used.add((directive, ""))
                    found = found or directive
                continue
            for entry in directive.codes:
                if entry.text.upper() == code or entry.text == name:
                    self._used.add((directive, entry.text))
                    found = found or directive
        return found

    def unused(self, files: Iterable[SourceFile], ran: Collection[str], everything: bool) -> Iterator[Finding]:
        """What ZC010 finds: comments that silenced nothing although their rules ran.

        ``ran`` holds the codes and names of those rules. A comment without codes is judged when ``everything`` ran.
        """
        for file in files:
            for directive in directives(file):
                if not directive.valid:
                    continue
                if directive.codes is None:
                    if everything and (directive, "") not in self._used:
                        yield _unused(file, directive, [])
                    continue
                idle = [
                    entry
                    for entry in directive.codes
                    if (entry.text.upper() in ran or entry.text in ran)
                    and entry.text.upper() not in OWN
                    and (directive, entry.text) not in self._used
                ]
                if idle or not directive.codes:
                    yield _unused(file, directive, idle)


def _unused(file: SourceFile, directive: Directive, idle: list[Code]) -> Finding:
    where = "in this file" if directive.word == "ignore-file" else "on the line that it is for"
    if idle:
        names = _and([entry.text for entry in idle])
        message = f"unused `{directive.word}`: {names} find{'s' * (len(idle) == 1)} nothing {where}"
    elif directive.codes is None:
        message = f"unused `{directive.word}`: no rule finds anything {where}"
    else:
        message = f"`{directive.word}[]` names no rule and silences nothing"
    if len(idle) < len(directive.codes or ()):
        why = f"remove {_and([entry.text for entry in idle])} from the list"
        edits = [_without(directive, idle)]
    else:
        why = "remove the comment"
        edits = [removal(file.source, directive)]
    span = idle[0].span if len(idle) == 1 else directive.span
    return Finding(Location(file, span=span), message, why, fix=Fix(why, tuple((file, edit) for edit in edits)))


def _without(directive: Directive, gone: list[Code]) -> Edit:
    """The list without some of its codes."""
    assert directive.codes is not None and directive.listed is not None
    return Edit(directive.listed, ", ".join(entry.text for entry in directive.codes if entry not in gone))


def removal(source: SourceText, directive: Directive) -> Edit:
    """Takes a comment out: with its line where it has one to itself, else with the blanks before it."""
    text = source.text
    start, end = directive.span
    line = source.line_span(source.place(start).line)
    while end < line.end and text[end] in " \t":
        end += 1
    if text[end : line.end].strip():  # another comment follows
        return Edit(Span(start, end), "")
    begin = line.start + text.startswith("\ufeff", line.start)
    if text[begin:start].strip():
        return Edit(Span(begin + len(text[begin:start].rstrip()), end), "")
    if line.end == len(text) and not text.endswith("\n") and begin:
        begin -= 2 if text[begin - 2 : begin] == "\r\n" else 1
    return Edit(Span(begin, line.end), "")


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def not_understood(run: Run, known: Sequence[Rule]) -> Iterator[Finding]:
    """What ZC011 says of the comments in a run's files. ``known``: every rule there is."""
    for file in {id(file): file for file in (item.reread_of or item for item in run.files)}.values():
        for directive in directives(file):
            if not directive.valid:
                yield from _unreadable(file, directive)
                continue
            for entry in directive.codes or ():
                wrong = _unknown(file, directive, entry, known)
                if wrong is not None:
                    yield wrong


def _unreadable(file: SourceFile, directive: Directive) -> Iterator[Finding]:
    if directive.word in KINDS:
        message = f"the list of `{directive.word}[` is not closed, so the comment silences nothing"
        yield Finding(Location(file, span=directive.span), message, _CLOSE, fix=_closed(file, directive))
        return
    meant = closest(directive.word, KINDS)
    if meant is None:
        return  # a remark that happens to begin with our name
    at = file.source.text.index(directive.word, directive.span.start)
    span = Span(at, at + len(directive.word))
    fix = Fix(f"write `{meant}`", ((file, Edit(span, meant)),))
    message = f"zerocfg has no comment `{directive.word}`; did you mean `{meant}`?"
    yield Finding(Location(file, span=span), message, f"write `{meant}`", fix=fix)


def _closed(file: SourceFile, directive: Directive) -> Fix | None:
    """The missing bracket, where the codes can be told from the reason."""
    leading = re.compile(_LEADING_CODES, re.IGNORECASE)
    found = leading.match(file.source.text, directive.listed.start) if directive.listed else None
    return Fix(_CLOSE, ((file, Edit(Span(found.end(), found.end()), "]")),)) if found else None


def _unknown(file: SourceFile, directive: Directive, entry: Code, known: Sequence[Rule]) -> Finding | None:
    if any(entry.text == rule.name or entry.text.upper() == rule.code for rule in known):
        return None
    gone = REMOVED.get(entry.text.upper())
    meant = None if gone else closest(entry.text, [rule.name for rule in known])
    if gone is not None:
        message = f"{entry.text} ({gone.name}) was removed in {gone.since}: {gone.why}"
    elif any(rule.code.startswith(entry.text.upper()) for rule in known):
        message = f"'{entry.text}' is the beginning of several codes; a comment names whole codes"
        return Finding(Location(file, span=entry.span), message, "name the rules that are meant")
    else:
        message = f"no rule is called '{entry.text}'" + (f"; did you mean {meant}?" if meant else "")
    if meant is not None:
        edit, why = Edit(entry.span, meant), f"write {meant}"
    elif directive.codes is not None and len(directive.codes) > 1:
        edit, why = _without(directive, [entry]), f"remove {entry.text} from the list"
    else:
        edit, why = removal(file.source, directive), "remove the comment"
    return Finding(Location(file, span=entry.span), message, why, fix=Fix(why, ((file, edit),)))
