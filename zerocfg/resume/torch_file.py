"""Facts in a file that ``torch.save`` wrote, read without unpickling it.

The file is an uncompressed zip archive; its ``data.pkl`` is a program for a stack machine. The program is decoded into
its instructions and never run: a plain number or text that stands right behind a wanted key is the value of that key.
"""

from __future__ import annotations

import pickletools
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
    """Raise UnreadableError where the file is cut off or no archive, as far as its table of contents tells."""
    program(path, read=False)


def program(path: Path, read: bool = True) -> bytes:
    """The bytes of ``data.pkl``; empty where they are not to be read. Raises UnreadableError, or OSError."""
    if path.stat().st_size == 0:
        raise UnreadableError("is empty")
    try:
        with disk.opened(path) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > ARCHIVE_ENTRIES:
                raise UnreadableError(f"has {len(entries)} entries, more than any checkpoint")
            entry = next((one for one in entries if one.filename.rpartition("/")[2] == "data.pkl"), None)
            if entry is None:
                raise UnreadableError("holds no data.pkl: torch.save did not write it")
            if not read:
                return b""
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise UnreadableError("is compressed or encrypted: torch.save did not write it")
            if entry.file_size > PICKLE_BYTES:
                raise UnreadableError(f"has a data.pkl of {entry.file_size} bytes, too large to be decoded")
            return archive.read(entry)
    except zipfile.BadZipFile:
        raise UnreadableError("is no whole zip archive (cut off while it was written or copied?)") from None
    except (NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        if isinstance(error, UnreadableError):
            raise
        raise UnreadableError(f"is a damaged archive ({error})") from None


def _instructions(data: bytes) -> Iterator[tuple[str, Fact]]:
    """Name and argument of each instruction, without those that only remember what is on the stack."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _MEMO:
            yield opcode.name, argument
