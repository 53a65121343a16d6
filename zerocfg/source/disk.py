"""What linting asks the file system, in one place, so that it can be known what an outcome rests on.

Within `looking` every question gets the answer it got first, and the questions are kept with their answers: a later
process may ask them again (`repeats`) instead of linting. Elsewhere each question goes to the disk.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from zerocfg.source.boundary import is_drawn, lies_inside, why_outside

TYPE_CHECKING = (
    False  # importing `typing` and `pathlib` would take a quarter of the time in which a kept lint is printed
)
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from pathlib import Path
    from typing import BinaryIO

    Target = str | os.PathLike[str]

Notes = dict[str, dict[str, str]]
"""Answers by question and path, as text."""


class _Folder:
    """What lies in a folder: the names of folders that are no links, and of everything else, sorted; the kind of each
    name, which is empty for a link."""

    __slots__ = ("_folded", "inner", "kinds", "others")

    def __init__(self, kinds: dict[str, str]) -> None:
        self.kinds = kinds
        self.inner = sorted(name for name, kind in kinds.items() if kind == "folder")
        self.others = sorted(name for name, kind in kinds.items() if kind != "folder")
        self._folded: set[str] | None = None

    def lacks(self, name: str) -> bool:
        """Whether nothing can be reached by this name. Not known of names that file systems may take for another one:
        those that differ in case, short names (`PYPROJ~1.TOM`), and endings that Windows drops."""
        if self._folded is None:
            self._folded = {known.casefold() for known in self.kinds}
        plain = name.isascii() and "~" not in name and name[-1] not in ". "
        return plain and name.casefold() not in self._folded


class _Looked(Notes):
    """The notes of a look, and the folders that it listed."""

    __slots__ = ("listed",)

    def __init__(self) -> None:
        super().__init__()
        self.listed: dict[str, _Folder] = {}

    def kind(self, path: str) -> str | None:
        """What a path leads to, empty where it leads nowhere; None where the listing of its folder does not say."""
        parent, _, name = path.rpartition("/")
        folder = self.listed.get(parent)
        if folder is None or not name:
            return None
        return folder.kinds.get(name) or ("" if name not in folder.kinds and folder.lacks(name) else None)


_looking: ContextVar[_Looked | None] = ContextVar("_looking", default=None)
"""Of the thread that looks: a language server asks from others as well."""
_reading: ContextVar[set[str] | None] = ContextVar("_reading", default=None)
_UNREACHABLE = (OSError, ValueError)
"""ValueError: a NUL in the name."""


@contextmanager
def looking() -> Iterator[Notes]:
    """Note what is asked in this thread."""
    notes = _Looked()
    before = _looking.set(notes)
    try:
        yield notes
    finally:
        _looking.reset(before)


@contextmanager
def reading() -> Iterator[set[str]]:
    """Collect the paths of the files whose content is asked for in this thread; the notes of `looking` go on."""
    paths: set[str] = set()
    before = _reading.set(paths)
    try:
        yield paths
    finally:
        _reading.reset(before)


def repeats(notes: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether every question is answered as it was."""
    with looking() as now:
        return still(notes, now)


def still(notes: Mapping[str, Mapping[str, str]], now: Notes, trusted: Container[str] = ()) -> bool:
    """Whether every question is answered as it was; ``now`` are the notes of `looking`, which begins anew with these
    answers. What the ``trusted`` files hold is not asked: by another way it is known to be the same."""
    # Folders first: their listings answer most of the other questions.
    for question, answers in sorted(notes.items(), key=lambda item: item[0] != "names"):
        ask, repeated = _asking(question), now.setdefault(question, {})
        if ask is None:
            return False
        known = trusted if question.startswith("content") else ()
        for path, answer in answers.items():
            if path not in known and (not _answered(ask, path) or repeated.get(path) != answer):
                return False
    return True


def is_file(path: Target) -> bool:
    """Whether there is a regular file; no error is raised for what cannot be reached."""
    return _kind(os.fspath(path)) == "file"


def is_dir(path: Target) -> bool:
    return _kind(os.fspath(path)) == "folder"


def exists(path: Target) -> bool:
    return bool(_kind(os.fspath(path)))


def real(path: Target) -> str:
    """The absolute path without links. Raises ValueError for a NUL in it."""
    name, notes = os.fspath(path), _looking.get()
    if notes is None:
        return os.path.realpath(name)
    answers = notes.setdefault("real", {})
    known = answers.get(name)
    return _followed(name, answers) if known is None else known


def _followed(name: str, answers: dict[str, str]) -> str:
    """The real path that was not asked for before; it and those of the folders above are noted."""
    # The folders above are followed once for all that lies in them; a loop, as there may be thousands of them.
    below: list[tuple[str, str]] = []
    while (found := answers.get(name)) is None:
        folder, _, last = name.rpartition("/")  # os.path.split and join would take a third of an editor's look
        if last in ("", ".", "..") or not folder or folder == name:
            found = answers[name] = os.path.realpath(name)
            break
        below.append((name, last))
        name = folder
    for name, last in reversed(below):
        found = f"{found}{last}" if found.endswith("/") else f"{found}/{last}"
        if is_link(found):
            found = os.path.realpath(found)
        answers[name] = found
    return found


def is_link(path: str) -> bool:
    """Whether a path is a symbolic link itself."""
    notes = _looking.get()
    if notes is not None and notes.kind(path) is not None:
        return False
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except _UNREACHABLE:
        return False


def resolved(path: Path) -> Path:
    """The same as a path."""
    return path.resolve() if _looking.get() is None else type(path)(real(path))


def names(folder: Target) -> tuple[list[str], list[str]]:
    """What lies in a folder, sorted: the names of folders that are no links, and of everything else. Raises OSError."""
    path, notes = os.fspath(folder), _looking.get()
    listed = notes.listed.get(path) if notes is not None else None
    if listed is None:
        try:
            with os.scandir(path) as entries:
                listed = _Folder({entry.name: _kind_of(entry) for entry in entries})
        except OSError as error:
            _note("names", path, _refused(error))
            raise
        if notes is not None:
            notes.listed[path] = listed
            text = "\0".join((*listed.inner, "", *listed.others))
            _note("names", path, digest(text.encode("utf-8", "surrogateescape")))
    return listed.inner, listed.others


def _kind_of(entry: os.DirEntry[str]) -> str:
    """The kind of what a folder lists, empty for a link; the listing says it, without a question for each name."""
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return "" if entry.is_symlink() else "other"


def tree(top: Target, entered: Callable[[str, str], bool]) -> Iterator[tuple[str, list[str]]]:
    """Each folder with the names of its files, before the folders in it, in a fixed order; links are not followed.

    ``entered`` decides by a folder and the name of one in it. What cannot be listed is left out. Unlike `os.walk`,
    which recurses before Python 3.12, it gets to the end of any depth.
    """
    ahead = [os.fspath(top)]
    while ahead:
        folder = ahead.pop()
        try:
            inner, others = names(folder)
        except OSError:
            continue
        yield folder, others
        wanted = [name for name in reversed(inner) if entered(folder, name)]
        ahead += [os.path.join(folder, name) for name in wanted]  # noqa: PTH118


def content(path: Target, most: int, head: int) -> tuple[int, bytes]:
    """The size of a regular file in bytes, and what it holds: all of it, or its first ``head`` bytes where the size is
    above ``most``. Raises OSError, ValueError, NotAFileError, and OutsideError for what lies outside of the boundary.
    """
    name, question = os.fspath(path), f"content {most} {head}"
    paths = _reading.get()
    if paths is not None:
        paths.add(name)
    try:
        about = os.stat(name)  # noqa: PTH116
        if not stat.S_ISREG(about.st_mode):
            raise NotAFileError(name)
        check_inside(name)
        with _open(name) as file:
            # room for 10 MiB takes longer to get than a config to read
            data = _read(file, head) if about.st_size > most else _read(file, about.st_size + 1)
            if about.st_size < len(data) <= most:
                data += _read(file, most + 1 - len(data))  # it has grown
    except OSError as error:
        _note(question, name, _refused(error))
        raise
    size = max(about.st_size, len(data))
    if _looking.get() is not None:
        _note(question, name, f"{size} {digest(data)}")
    return size, data


def whole(path: Target, most: int) -> bytes:
    """All that a regular file holds. Raises OSError, also for more than ``most`` bytes, and ValueError."""
    size, data = content(path, most, 0)
    if size > most:
        raise OSError(errno.EFBIG, f"it is larger than {_size(most)}", os.fspath(path))
    return data


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >> 20 else f"{count >> 10} KiB"


def opened(path: Target) -> BinaryIO:
    """A regular file, to be read in parts: those of a checkpoint, which are larger than any limit. Raises OSError, as
    `content` does, and ValueError."""
    name = os.fspath(path)
    if not stat.S_ISREG(os.stat(name).st_mode):  # noqa: PTH116
        raise NotAFileError(name)
    check_inside(name)
    return io.BufferedReader(_open(name))


def _open(name: str) -> io.FileIO:
    # O_NONBLOCK: were the file replaced by a pipe just now, opening it would wait for a writer.
    descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    return io.FileIO(descriptor)


def check_inside(path: Target) -> None:
    """Raises OutsideError for what lies outside of the boundary of trust."""
    if is_drawn() and not lies_inside(found := real(path)):
        raise OutsideError(errno.EPERM, why_outside(found), os.fspath(path))


class NotAFileError(OSError):
    """A folder, a pipe or a device: nothing that is read."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", name)


class OutsideError(OSError):
    """A file outside of the boundary of trust: neither read nor changed."""


def _read(file: io.FileIO, most: int) -> bytes:
    """What a file holds from here on, up to a number of bytes."""
    data = file.read(most)
    while data and len(data) < most and (more := file.read(most - len(data))):
        data += more
    return data


def _kind(path: str) -> str:
    """What a path leads to; empty where it leads nowhere."""
    notes = _looking.get()
    known = notes.get("kind", {}).get(path) if notes is not None else None
    if known is not None:
        return known
    found = notes.kind(path) if notes is not None else None
    if found is None:
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116
        except _UNREACHABLE:
            found = ""
        else:
            found = "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
    _note("kind", path, found)
    return found


def _note(question: str, path: str, answer: str) -> None:
    """Keep an answer. What the disk has answered in two ways is kept as neither, and never repeats."""
    notes = _looking.get()
    if notes is not None and notes.setdefault(question, {}).setdefault(path, answer) != answer:
        notes[question][path] = ""


def digest(data: bytes) -> str:
    """By which contents are told apart; nobody makes two that share one."""
    try:
        from _blake2 import blake2b  # hashlib itself also loads OpenSSL: 2 ms of a lint that takes 90
    except ImportError:
        from hashlib import blake2b

    return blake2b(data, digest_size=20).hexdigest()


def _refused(error: OSError) -> str:
    return f"errno {error.errno}"


def _asking(question: str) -> Callable[[str], object] | None:
    """What asks a question anew, for its answer to be noted. None where there is no such question."""
    words = question.split()
    if words == ["kind"]:
        return _kind
    if words == ["real"]:
        return real
    if words == ["names"]:
        return names
    if len(words) == 3 and words[0] == "content" and all(word.isdecimal() and len(word) < 20 for word in words[1:]):
        most, head = int(words[1]), int(words[2])
        return lambda path: content(path, most, head)
    return None


def _answered(ask: Callable[[str], object], path: str) -> bool:
    """Ask a question. False where no path can be asked about."""
    try:
        ask(path)
    except OSError:
        pass  # an answer, too
    except ValueError:
        return False
    return True
