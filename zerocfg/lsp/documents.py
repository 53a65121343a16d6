"""The documents that are open in the editor, and the folder that each belongs to.

The client sends whole texts: configs are short, and nothing can get out of step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pygls.uris import from_fs_path, to_fs_path

from zerocfg.budgets import UNASKED_BYTES
from zerocfg.run.discover import SPEC_NAMES, is_launch_file
from zerocfg.run.kinds import MARKERS
from zerocfg.source.load import decode, read_bytes
from zerocfg.source.node import Problem


@dataclass(frozen=True)
class Document:
    """One open document. ``path`` is its real path, None where it is no file (a new one without a name).

    ``undecodable``: the bytes on disk are not UTF-8. The editor shows a guess of their meaning; the file counts.
    """

    uri: str
    text: str
    version: int
    path: str | None = None
    undecodable: bool = False

    @property
    def name(self) -> str:
        return self.path or self.uri

    @cached_property
    def folder(self) -> str:
        return os.path.dirname(self.path or "")  # noqa: PTH120

    @cached_property
    def file(self) -> Path:
        """Its path, where it is a file."""
        assert self.path is not None
        return Path(self.path)

    @cached_property
    def linted(self) -> bool:
        """Whether a lint may start from this document: other files are only met as partners."""
        if self.path is None or len(self.text) > UNASKED_BYTES:
            return False
        path = self.file
        if path.name in SPEC_NAMES or is_launch_file(path) or self.undecodable:
            return True
        return not self.text.strip() or any(marker.decode() in self.text for marker in MARKERS)


@dataclass
class Documents:
    """What is open, by URI as the client writes it, and the folders of the workspace (real paths)."""

    open: dict[str, Document] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    _roots: dict[tuple[str, ...], str] = field(default_factory=dict)
    """By folder, and the folders of the workspace."""
    _uris: dict[str, str] = field(default_factory=dict)
    """Of the open documents, by real path; empty where it has to be made anew."""

    def put(self, uri: str, text: str, version: int) -> Document:
        """A document that was opened."""
        path = real_path(uri)
        self._uris = {}
        document = self.open[uri] = Document(uri, text, version, path, path is not None and not _is_utf8(path))
        return document

    def change(self, uri: str, text: str, version: int) -> Document:
        """A document whose text is another one now; nothing is known of the file on disk."""
        known = self.open.get(uri)
        if known is None:
            return self.put(uri, text, version)
        document = self.open[uri] = replace(known, text=text, version=version)
        return document

    def close(self, uri: str) -> None:
        self.open.pop(uri, None)
        self._uris = {}

    def uri_of(self, path: str) -> str:
        """As the client calls a file, where it is open; else a URI of our own."""
        uris = self._uris
        if not uris:  # of two names of one file the one that was opened first
            documents = reversed(list(self.open.values()))
            uris = self._uris = {document.path: document.uri for document in documents if document.path is not None}
        return uris.get(path) or file_uri(path)

    def forget_roots(self) -> None:
        """Something changed on disk: a folder may have become a repository."""
        self._roots.clear()

    def in_folder(self, root: str) -> list[Document]:
        """The open files whose nearest root is this one."""
        return [item for item in self.open.values() if item.path is not None and self._root_of(item.folder) == root]

    def root(self, path: str) -> str:
        """What the paths in a file's configs may be relative to, and below which its partners are looked for.

        The repository that it lies in, else the folder of the workspace, else the file's own folder. A home folder or
        the root of the file system is none of these, though it may be under version control.
        """
        return self._root_of(os.path.dirname(path))  # noqa: PTH120

    def _root_of(self, folder: str) -> str:
        key = (folder, *self.folders)
        if key not in self._roots:
            self._roots[key] = self._root(Path(folder))
        return self._roots[key]

    def _root(self, folder: Path) -> str:
        for above in (folder, *folder.parents):
            if (above / ".git").exists() and _is_project(above):
                return str(above)
        around = [item for item in self.folders if folder.is_relative_to(item) and _is_project(Path(item))]
        return max(around, key=len) if around else str(folder)


def real_path(uri: str) -> str | None:
    """The real path behind a URI, None where it names no file."""
    try:
        path = to_fs_path(uri)
        return os.path.realpath(path) if path else None
    except (OSError, ValueError):
        return None


def file_uri(path: str | os.PathLike[str]) -> str:
    return from_fs_path(os.fspath(path)) or ""


def texts(documents: Iterable[Document]) -> dict[str, str]:
    """What takes the place of the files on disk, by real path."""
    return {
        document.path: document.text
        for document in documents
        if document.path and not document.undecodable and len(document.text) <= UNASKED_BYTES
    }


def _is_utf8(path: str) -> bool:
    """False only where a file is there and cannot be read as UTF-8."""
    if not os.path.isfile(path):  # noqa: PTH113
        return True
    data = read_bytes(path)
    return isinstance(data, Problem) or not (
        isinstance(found := decode(path, data), Problem) and found.kind == "encoding"
    )


def _is_project(folder: Path) -> bool:
    try:
        return folder != folder.parent and folder != Path.home()
    except RuntimeError:  # nobody's home
        return folder != folder.parent
