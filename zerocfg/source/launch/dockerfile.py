"""A Dockerfile as the shell texts that it runs: one for each stage, in which every character keeps its place.

`ENV` becomes an export and `ARG` an assignment; each `RUN` is a shell of its own. What the container starts,
`ENTRYPOINT` with `CMD` behind it, comes at the end: it sees what the whole stage exports, and no `ARG`. The folders of
the image are those of the build context only where `COPY` or `ADD` says so; elsewhere the folder is unknown.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence

from zerocfg.record import field, record
from zerocfg.source.launch.image_heredocs import is_script, marks, size_of
from zerocfg.source.launch.shell_words import START, Chars

_ESCAPE = re.compile(r"#[ \t]*escape[ \t]*=[ \t]*`", re.IGNORECASE)
_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?=[ \t\\])[ \t]*")
_FLAG = re.compile(r"(?:\\\r?\n|[ \t])*--[a-z-]+(?:=\S+)?(?:\\\r?\n|[ \t])*")
_ARG = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OLD_ENV = re.compile(r"([A-Za-z_]\w*)[ \t]+(?!=)(.*)", re.ASCII | re.DOTALL)
_ITEM = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ABSOLUTE = re.compile(r"(?<![\w./$}~-])/[\w.-]+(?:/[\w.-]+)*/?")
_FILE = re.compile(r"[^/]*[^/.][^/]*\.\w+\Z")
_KNOWN = re.compile(r"[\w./@%+:,-]+\Z")


@record(frozen=True, slots=True)
class _Instruction:
    """``name`` in capitals; ``body``: what is behind it and its flags, without comment lines; ``place``: where it
    begins."""

    name: str
    flags: str
    body: Chars
    place: int


@record(slots=True)
class _Stage:
    """``folders``: by folder of the image, the one of the build context that was copied there."""

    pieces: list[Chars] = field(default_factory=list)
    arguments: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    folders: dict[str, str | None] = field(default_factory=dict)
    folder: str = "/"
    entry: _Instruction | None = None
    command: _Instruction | None = None


def stages(text: str) -> Iterator[Chars]:
    """The shell text of each stage that runs something; none of a file that continues lines with another character."""
    if _ESCAPE.match(text):
        return
    stage = _Stage()
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            yield from _finished(stage)
            stage = _Stage()
        else:
            _follow(stage, instruction)
    yield from _finished(stage)


def _finished(stage: _Stage) -> Iterator[Chars]:
    started = _started(stage)
    if started is not None:
        unset = sorted(stage.arguments - stage.exported)
        if unset:
            stage.pieces.append(_put(f"unset {' '.join(unset)}\n", started.at[0]))
        stage.pieces += [_put("(", started.at[0]), _inside(stage, started), _put("\n)\n", started.at[-1])]
    if stage.pieces:
        yield _together(stage.pieces)


def _started(stage: _Stage) -> Chars | None:
    """What the container starts; None where that is nothing, or not in this file."""
    entry, command = stage.entry, stage.command
    if entry is None:
        return None if command is None else _exec_form(command) or _shell_form(command)
    words = _exec_form(entry)
    if words is None:
        return _shell_form(entry)  # and CMD does not count
    more = _exec_form(command) if command is not None else None
    if command is not None and more is None:
        return None  # a shell with the text of CMD, as arguments of what the entry point is
    return words if more is None else _together([words, _put(" ", more.at[0]), more])


def _shell_form(instruction: _Instruction) -> Chars | None:
    return instruction.body if instruction.body.text.strip() else None


def _exec_form(instruction: _Instruction) -> Chars | None:
    """The words of a JSON list in the shell's quotes, so that none is expanded. They are no places for edits: a word
    that is left out would leave its quotes and its comma."""
    body = instruction.body
    if not body.text.lstrip().startswith("["):
        return None
    try:
        words = json.loads(body.text.replace("\\\r\n", "  \n").replace("\\\n", " \n"))
    except ValueError:
        return None
    places = list(_ITEM.finditer(body.text))
    if not isinstance(words, list) or len(words) != len(places) or not all(isinstance(word, str) for word in words):
        return None
    pieces = []
    for word, place in zip(words, places, strict=True):
        if "\0" in word or START in word:
            return None
        quoted = "'" + word.replace("'", "'\\''") + "' "
        first, last = body.at[place.start()], body.at[place.end() - 1]
        pieces.append(Chars(quoted, [first, *[last] * (len(quoted) - 1)]))
    return _together(pieces) if pieces else None


def _follow(stage: _Stage, instruction: _Instruction) -> None:
    """Take over what an instruction sets, copies or runs."""
    body, place = instruction.body, instruction.place
    if instruction.name == "ENV":
        stage.pieces += [_put("export ", place), _assignments(body), _put("\n", place)]
        stage.exported |= {word.partition("=")[0] for word in body.text.split() if "=" in word} or set(
            body.text.split()[:1]
        )
    elif instruction.name == "ARG":
        named = _ARG.match(body.text)
        if named is not None:
            stage.arguments.add(named[0])
        if named is not None and "=" in body.text:
            stage.pieces += [body, _put("\n", place)]
    elif instruction.name == "WORKDIR":
        _change_folder(stage, body.text.strip().strip("\"'"), place)
    elif instruction.name in ("COPY", "ADD"):
        _copy(stage, instruction)
    elif instruction.name == "RUN":
        words = _exec_form(instruction) or body
        stage.pieces += [_put("(", place), _inside(stage, words), _put("\n)\n", place)]
    elif instruction.name == "ENTRYPOINT":
        stage.entry = instruction
    elif instruction.name == "CMD":
        stage.command = instruction


def _assignments(body: Chars) -> Chars:
    """``NAME=value ...``, and ``NAME value`` of old, whose value is the rest of the line."""
    old = _OLD_ENV.match(body.text)
    if old is None:
        return body
    start, end = old.start(2), old.end(2)
    value = old[2].strip()
    quoted = value if value[:1] in ("'", '"') else f'"{value}"'
    at = [body.at[min(start + offset, end - 1)] if end > start else body.at[0] for offset in range(len(quoted) + 1)]
    return _together([body.part(0, old.end(1)), Chars(f"={quoted}", at)])


def _change_folder(stage: _Stage, path: str, place: int) -> None:
    stage.folder = posixpath.join(stage.folder, path) if _KNOWN.match(path) else ""
    stage.folder = posixpath.normpath(stage.folder) if stage.folder.startswith("/") else ""
    _enter(stage, place)


def _enter(stage: _Stage, place: int) -> None:
    """Change to the folder of the context that the current one is a copy of."""
    found = _context(stage, stage.folder) if stage.folder else None
    target = "-" if found is None else f"{START}/{found}".rstrip("/")
    stage.pieces.append(_put(f"cd {target}\n", place))


def _copy(stage: _Stage, instruction: _Instruction) -> None:
    """Note which folder of the image has which of the build context in it."""
    words = instruction.body.text.replace("\\\r\n", " ").replace("\\\n", " ").split()
    if len(words) < 2 or "--from" in instruction.flags or not all(map(_KNOWN.match, words)):
        return
    *sources, target = words
    if not stage.folder and not target.startswith("/"):
        return
    folder = posixpath.normpath(posixpath.join(stage.folder or "/", target))
    for source in sources:
        path = posixpath.normpath(source.lstrip("/") or ".")
        if "://" in source or path.startswith(".."):
            continue
        if _FILE.search(path):
            if not target.endswith(("/", ".")) and len(sources) == 1:
                continue  # under a name of its own
            path = posixpath.dirname(path)
        path = "" if path == "." else path
        before = stage.folders.get(folder, path)
        stage.folders[folder] = path if before == path else None
    _enter(stage, instruction.place)


def _context(stage: _Stage, folder: str) -> str | None:
    """The folder of the build context that a folder of the image is a copy of; None where that is not certain."""
    above, below = folder, ""
    while True:
        if above in stage.folders:
            known = stage.folders[above]
            return None if known is None else posixpath.join(known, below).rstrip("/")
        if above == "/":
            break
        above, name = posixpath.split(above)
        below = posixpath.join(name, below) if below else name
    # all that was copied lies below, where it lies in the context
    inner = {place: known for place, known in stage.folders.items() if posixpath.dirname(place).startswith(folder)}
    tops = set()
    for place, known in inner.items():
        rest = posixpath.relpath(place, folder)
        if known is None or not (known == rest or known.endswith(f"/{rest}")):
            return None
        tops.add(known[: -len(rest)].rstrip("/"))
    return tops.pop() if len(tops) == 1 else None


def _inside(stage: _Stage, chars: Chars) -> Chars:
    """The text with whole paths of the image as those of the build context, where it is known which these are."""
    pieces, start = [], 0
    for match in _ABSOLUTE.finditer(chars.text):
        folder = match[0].rstrip("/")
        found = next(
            (copied for copied in stage.folders if folder == copied or folder.startswith(f"{copied.rstrip('/')}/")),
            None,
        )
        context = stage.folders[found] if found is not None else None
        if found is None or context is None:
            continue
        cut = match.start() + len(found.rstrip("/"))
        pieces += [chars.part(start, match.start()), _put(f"{START}/{context}".rstrip("/"), chars.at[match.start()])]
        start = cut
    return _together([*pieces, chars.part(start, len(chars.text))]) if pieces else chars


def _instructions(text: str) -> Iterator[_Instruction]:
    """The instructions; comments and blank lines between the lines of one are no part of it."""
    every = list(_lines(text))
    lines = iter(every)
    for start, line in lines:
        match = _INSTRUCTION.match(line)
        if match is None or line.lstrip().startswith("#"):
            continue
        pieces = [Chars(line, range(start, start + len(line)))]
        while pieces[-1].text.rstrip(" \t\r\n").endswith("\\"):
            start, line = next(((at, more) for at, more in lines if not _between(more)), (0, ""))
            if not line:
                break
            pieces.append(Chars(line, range(start, start + len(line))))
        whole = _together(pieces)
        begin = match.end()
        name = match[1].upper()
        while name in ("RUN", "COPY", "ADD") and (flag := _FLAG.match(whole.text, begin)):
            begin = flag.end()
        end = len(whole.text.rstrip("\r\n"))
        body = whole.part(min(begin, end), end)
        waiting = marks(name, body.text)
        following = [more for at, more in every if at > start] if waiting else []
        size = size_of(waiting, following)
        if size:
            body = _with_documents(name, body, [next(lines) for _ in range(size)])
        if body.text:
            yield _Instruction(name, whole.text[match.end() : begin], body, whole.at[match.start(1)])


def _with_documents(name: str, body: Chars, document: list[tuple[int, str]]) -> Chars:
    """An instruction with its here-documents: the text of a script in the place of the command that would read it."""
    lines = [Chars(line, range(start, start + len(line))) for start, line in document]
    if name != "RUN":
        return body
    if is_script(body.text, document[0][1]):
        return _together(lines[:-1])
    return _together([body, _put("\n", body.at[-1]), *lines])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, line
        start += len(line)


def _between(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _put(text: str, place: int) -> Chars:
    return Chars(text, [place] * len(text))


def _together(pieces: Sequence[Chars]) -> Chars:
    return Chars("".join(piece.text for piece in pieces), [at for piece in pieces for at in piece.at])
