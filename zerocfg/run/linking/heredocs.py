"""Configs that a launch script writes out by itself, as documents: every rule about a config file holds for them, and
findings stand at their lines in the script. A value that only the running shell knows has to be filled in.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.run.kinds import sniff
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.templates import CODE
from zerocfg.source.launch.shell_words import UNKNOWN, Chars
from zerocfg.source.load import Format, format_of, load_as
from zerocfg.source.node import Document, Entry, Mapping, Node, Scalar, Sequence
from zerocfg.source.text import SourceText, Span

if TYPE_CHECKING:
    from zerocfg.run.linking.follow import Find
    from zerocfg.source.launch.line import LaunchLine, Written


def heredoc_finder(file: SourceFile, written: Iterable[Written], directory: str | None) -> Find:
    """Finds what the script itself has written by then, and in one way. ``directory``: where the path is used."""
    files = [item for item in written if not item.shown]

    def find(path: str) -> SourceFile | None:
        found = _named(files, path, directory)
        return _file(file, found[0]) if len(found) == 1 else None

    return find


def page_block_finder(page: SourceFile, written: Iterable[Written]) -> Find:
    """Finds what a page shows of a file that is not there: once, and as a whole config."""
    files = [item for item in written if item.shown]

    def find(path: str) -> SourceFile | None:
        end = f"/{posixpath.normpath(path)}"
        found = [item for item in files if end.endswith(f"/{item.name}")]
        file = _file(page, found[0]) if len(found) == 1 else None
        return file if file is not None and _whole(file) else None

    return find


def _whole(file: SourceFile) -> bool:
    """Whether a block is a config and not a part of one: with the keys that no config of its kind does without."""
    data = file.data()
    if file.kind == "deepspeed":
        return any(key in data for key in ("train_batch_size", "train_micro_batch_size_per_gpu")) and len(data) > 1
    if file.kind == "accelerate":
        return "compute_environment" in data and "distributed_type" in data
    return file.kind == "recipe"


def runs_by_branch(file: SourceFile, line: LaunchLine) -> Iterator[Run]:
    """One run for each DeepSpeed config that branches of the script write to a path that the line names: which of them
    it reads shows at run time, so that only what the keys say by themselves holds."""
    name = f"{file.name}:{file.source.place(line.span.start).line}"
    for option in (*line.options, *line.script_options):
        value = option.value.value if option.value is not None else None
        files = [item for item in line.written if not item.shown]
        ways = _named(files, value, line.directory) if value is not None else []
        for written in ways if len(ways) > 1 else ():
            found = _file(file, written)
            if found is not None and found.kind == "deepspeed":
                yield Run(name, deepspeed=found, parts=True)


def _named(written: Iterable[Written], path: str, directory: str | None) -> list[Written]:
    names = (path, posixpath.normpath(posixpath.join(directory or "", path)))
    return [item for item in written if item.name in names]


@remembered
def _file(script: SourceFile, written: Written) -> SourceFile | None:
    """The file as a document; None where its content is unknown."""
    if written.text is None:
        return None
    form = format_of(written.name, written.text.text)
    filled = _filled(written.text, form)
    read = load_as(SourceText(script.name, filled.text), form)
    if read.root is None:
        return None
    problems = [replace(problem, span=_placed(problem.span, filled), related=None) for problem in read.problems]
    kind = sniff(read.data())
    if kind != "deepspeed" and CODE in filled.text:
        return None  # the rules know such values in DeepSpeed's configs alone, which scripts hold as dicts, too
    document = Document(script.source, form, _moved(read.root, filled), problems, read.readers, editable=False)
    return SourceFile(script.name, kind, script.source, document, script.path, script)


def _filled(chars: Chars, form: Format) -> Chars:
    """The text with a word in the place of what only the shell knows; in JSON it needs quotes."""
    text: list[str] = []
    at: list[int] = []
    inside = False
    for index, one in enumerate(chars.text):
        if one == '"' and chars.text[index - 1 : index] != "\\":
            inside = not inside
        if one == UNKNOWN:
            one = CODE if inside or form == "yaml" else f'"{CODE}"'
        text.append(one)
        at += [chars.at[index]] * len(one)
    return Chars("".join(text), at)


def _placed(span: Span, chars: Chars) -> Span:
    """Where something of the text stands in the script: at its first character, for what has several places."""
    if span.start >= len(chars.at):
        end = chars.at[-1] + 1 if chars.at else 0
        return Span(end, end)
    start = chars.at[span.start]
    end = chars.at[span.end - 1] + 1 if span.end > span.start else start
    return Span(start, end if end > start or span.end == span.start else start + 1)


def _moved(node: Node, chars: Chars) -> Node:
    span = _placed(node.span, chars)
    if isinstance(node, Mapping):
        entries = [
            Entry(entry.key, _placed(entry.key_span, chars), _moved(entry.value, chars)) for entry in node.entries
        ]
        return Mapping(span, entries)
    if isinstance(node, Sequence):
        return Sequence(span, [_moved(item, chars) for item in node.items])
    return Scalar(node.value, span, node.raw, node.quoted)
