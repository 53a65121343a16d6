"""Facts in a file that ``torch.save`` wrote, read without unpickling it.

The file is an uncompressed zip archive; its ``data.pkl`` is a program for a stack machine. The program is decoded into
its instructions and never run: a plain number or text that stands right behind a wanted key is the value of that key.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
import zipfile
from typing import TYPE_CHECKING

from zerocfg.budgets import ARCHIVE_ENTRIES, PICKLE_BYTES
from zerocfg.source import disk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Fact = int | float | str | bool | None
_MEMO = frozenset("PUT BINPUT LONG_BINPUT MEMOIZE FRAME".split())
_TEXTS = frozenset("BINUNICODE SHORT_BINUNICODE BINUNICODE8 UNICODE".split())
_PLAIN = frozenset("BININT BININT1 BININT2 LONG1 INT NEWTRUE NEWFALSE NONE BINFLOAT".split()) | _TEXTS
_CONSTANT: dict[str, Fact] = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}
_PROTO, _STOP = b"\x80", b"."
"""How each pickle begins, before the number of its protocol, and ends."""
_BEFORE_ZIP = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How a file of torch before 1.6 begins: a pickle of torch's own magic number."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")
"""Of an entry of an archive: its mark, and the lengths of its name and of what else stands before the content."""
_ENUM = "ZeroStageEnum"
"""DeepSpeed writes its stage as this class applied to a number."""


class UnreadableError(ValueError):
    """A file that is damaged, or is not what its name says; the text says how."""


def facts(path: Path, names: Iterable[str]) -> dict[str, Fact]:
    """The first plain value behind each of ``names``. Raises UnreadableError, or OSError."""
    wanted = frozenset(names)
    found: dict[str, Fact] = {}
    key: str | None = None
    enum = False
    try:
        for name, value in _instructions(program(path)):
            if key is not None and name in ("GLOBAL", "STACK_GLOBAL") and (name != "GLOBAL" or _ENUM in str(value)):
                enum = name == "GLOBAL"
                key = key if enum else None
                continue
            if key is not None and name in _PLAIN and not (enum and not name.startswith("BININT")):
                found.setdefault(key, _CONSTANT.get(name, value))
                key, enum = None, False
                continue
            key, enum = None, False
            if name in _TEXTS and value in wanted:
                key = str(value)
            if len(found) == len(wanted):
                break
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise UnreadableError(f"its data.pkl is damaged ({error})") from None
    return found


def check(path: Path) -> None:
    """Raise UnreadableError where the file is cut off or was not written by torch.

    Looked at are the table of contents of the archive and both ends of its program; weights are not read.
    """
    _require_content(path)
    with path.open("rb") as file:
        if file.read(len(_BEFORE_ZIP)) == _BEFORE_ZIP:
            return  # of torch before 1.6, which torch still loads
        begin, size = _place(path)
        file.seek(begin)
        first = file.read(2)
        file.seek(begin + max(0, size - 1))
        last = file.read(1)
    if size < 3 or first[:1] != _PROTO or first[1] > pickle.HIGHEST_PROTOCOL or last != _STOP:
        raise UnreadableError("is damaged: its data.pkl is no pickle")


def note_damage(path: Path, damaged: dict[str, str], name: str | None = None) -> None:
    """Keep what is wrong with a file under its name, where anything is."""
    try:
        check(path)
    except UnreadableError as error:
        damaged[name or path.name] = str(error)
    except OSError as error:
        damaged[name or path.name] = f"cannot be read: {error.strerror or error}"


def program(path: Path) -> bytes:
    """The bytes of ``data.pkl``. Raises UnreadableError, or OSError."""
    begin, size = _place(path)
    if size > PICKLE_BYTES:
        raise UnreadableError(f"has a data.pkl of {size} bytes, too large to be decoded")
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(size)


def _require_content(path: Path) -> None:
    """Raise UnreadableError for an empty file; a pipe, for whose writer a reader would wait, has no size either."""
    if path.stat().st_size == 0:
        raise UnreadableError("is empty")


def _place(path: Path) -> tuple[int, int]:
    """Where ``data.pkl`` begins, and its size. Raises UnreadableError, or OSError.

    It is stored as it is. Checksums are left alone: torch can be told to write none.
    """
    _require_content(path)
    try:
        with disk.opened(path) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
        if len(entries) > ARCHIVE_ENTRIES:
            raise UnreadableError(f"has {len(entries)} entries, more than any checkpoint")
        entry = next((item for item in entries if item.filename.rpartition("/")[2] == "data.pkl"), None)
        if entry is None:
            raise UnreadableError("holds no data.pkl: torch.save did not write it")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise UnreadableError("is compressed or encrypted: torch.save did not write it")
        with path.open("rb") as file:
            file.seek(entry.header_offset)
            header = file.read(_LOCAL_HEADER.size)
        mark, name, extra = _LOCAL_HEADER.unpack(header)
        if mark != b"PK\x03\x04":
            raise UnreadableError("is a damaged archive (its table of contents leads nowhere)")
        return entry.header_offset + _LOCAL_HEADER.size + name + extra, entry.file_size
    except zipfile.BadZipFile:
        raise UnreadableError("is no whole zip archive (cut off while it was written or copied?)") from None
    except (NotImplementedError, RuntimeError, EOFError, ValueError, struct.error) as error:
        if isinstance(error, UnreadableError):
            raise
        raise UnreadableError(f"is a damaged archive ({error})") from None


def _instructions(data: bytes) -> Iterator[tuple[str, Fact]]:
    """Name and argument of each instruction, without those that only remember what is on the stack."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _MEMO:
            yield opcode.name, argument
