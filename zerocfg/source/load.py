"""Reads a path or bytes as a document. Bad input gives a document with a fatal problem, never an exception."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Literal

from zerocfg.budgets import FILE_BYTES
from zerocfg.source.disk import NotAFileError, OutsideError, content, is_dir
from zerocfg.source.node import Document, Problem
from zerocfg.source.text import BOM, SourceText, Span

Format = Literal["yaml", "json"]

OUTSIDE = "outside"
"""The kind of the problem of a file that exists, but lies outside of the boundary of trust."""
_NOWHERE = Span(0, 0)
_OTHER_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def read_bytes(path: str | os.PathLike[str]) -> bytes | Problem:
    """The bytes of a regular file, or why they cannot be read. Never blocks: pipes and devices are not opened."""
    try:
        return content(path, FILE_BYTES, FILE_BYTES + 1)[1]
    except NotAFileError:
        return _unreadable("it is a folder, not a file" if is_dir(path) else "it is not a regular file")
    except OutsideError as error:
        return outside(error)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return _unreadable((getattr(error, "strerror", None) or str(error)).lower())


def outside(error: OutsideError) -> Problem:
    """The problem of a file that is not read, because it lies outside of the boundary of trust."""
    return Problem(OUTSIDE, f"not read: {error.strerror}", _NOWHERE, fatal=True, brief=error.strerror or "")


def decode(name: str, data: bytes) -> SourceText | Problem:
    """The text of a file in UTF-8, which every reader expects, with its byte-order mark and line endings."""
    if len(data) > FILE_BYTES:
        size = FILE_BYTES // (1024 * 1024)
        return Problem("too-large", f"the file is larger than {size} MiB; not read", _NOWHERE, fatal=True)
    for mark, encoding in _OTHER_ENCODINGS:
        if data.startswith(mark):
            brief = f"the file is {encoding}"
            message = f"{brief}; accelerate and transformers open it as UTF-8 and fail"
            return Problem("encoding", message, _NOWHERE, fatal=True, brief=brief)
    if b"\0" in data:
        return Problem("encoding", "the file is binary (it holds NUL bytes)", _NOWHERE, fatal=True)
    try:
        return SourceText(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"the file is not UTF-8: byte 0x{data[error.start]:02x} on line {line}"
        return Problem("encoding", message, _NOWHERE, fatal=True)


def load(
    path: str | os.PathLike[str],
    name: str | None = None,
    format: Format | None = None,
) -> Document:
    """The document of a file. ``name``: for messages; ``format``: instead of that of the extension."""
    shown = os.fspath(path) if name is None else name
    data = read_bytes(path)
    return _failed(shown, format, data) if isinstance(data, Problem) else load_bytes(shown, data, format)


def load_bytes(name: str, data: bytes, format: Format | None = None) -> Document:
    """The document of bytes that were read elsewhere: from standard input, or an editor."""
    source = decode(name, data)
    if isinstance(source, Problem):
        return _failed(name, format, source)
    return load_as(source, format or format_of(name, source.text))


def load_as(source: SourceText, format: Format) -> Document:
    """The document of a text in the given format. Two libraries may read the same text in different formats."""
    if format == "json":
        from zerocfg.source.json_reader import read_json

        return read_json(source)
    from zerocfg.source.yaml_reader import read_yaml

    return read_yaml(source)


def format_of(name: str, text: str = "") -> Format:
    """The format by the extension. With an unknown extension, a text that starts with a brace or bracket is JSON."""
    extension = Path(name).suffix.lower()
    if extension in (".json", ".hjson"):
        return "json"
    if extension in (".yaml", ".yml"):
        return "yaml"
    return "json" if text.removeprefix(BOM).lstrip()[:1] in ("{", "[") else "yaml"


def _failed(name: str, format: Format | None, problem: Problem) -> Document:
    return Document(SourceText(name, ""), format or format_of(name), None, [problem])


def _unreadable(reason: str) -> Problem:
    return Problem("unreadable", f"cannot be read: {reason}", _NOWHERE, fatal=True, why=reason)
