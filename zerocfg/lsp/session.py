"""What the server knows between two messages: open documents, projects, the latest snapshots, what is being shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from lsprotocol.types import Diagnostic as Shown

from zerocfg.budgets import UNASKED_BYTES
from zerocfg.lsp.checking import Project, Snapshot
from zerocfg.lsp.diagnostics import Rendered, diagnostics
from zerocfg.lsp.documents import Document, Documents, real_path
from zerocfg.lsp.schedule import Schedule
from zerocfg.run.discover import SPEC_NAMES, is_launch_file
from zerocfg.run.kinds import guess_unread, sniff
from zerocfg.run.model import Run
from zerocfg.source import boundary
from zerocfg.source.load import format_of, load_as
from zerocfg.source.node import Document as Tree
from zerocfg.source.text import SourceText

Publish = Callable[[str, "int | None", "list[Shown]"], None]
"""Show these diagnostics for a URI, made for this version of it."""
Tell = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """A document as it reads now. ``tree`` is None where it does not parse; ``data`` is then what it held last."""

    kind: str
    form: Literal["json", "yaml"]
    tree: Tree | None
    data: object


class Session:
    def __init__(self, publish: Publish, tell: Tell) -> None:
        self.documents = Documents()
        self.encoding = "utf-16"
        self.schedule = Schedule(self._look)
        self._publish = publish
        self._tell = tell
        self._projects: dict[str, Project] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._stale: set[str] = set()
        self._shown: dict[str, dict[str, list[Shown]]] = {}
        self._rendered: dict[str, Rendered] = {}
        self._published: dict[str, int | None] = {}
        self._readable: dict[str, tuple[str | None, object]] = {}
        self._troubles: dict[str, tuple[str, ...]] = {}
        # All looks at files happen on one thread, one after the other.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lint")

    # -- what the client tells ----------------------------------------------------------------------------------

    def put(self, uri: str, text: str, version: int) -> None:
        document = self.documents.put(uri, text, version)
        if len(text) > UNASKED_BYTES:
            self._tell(
                f"{document.name} is longer than {UNASKED_BYTES} characters; it is not looked at while it is open"
            )
        self._touch(document.path)

    def change(self, uri: str, text: str, version: int) -> None:
        self._touch(self.documents.change(uri, text, version).path)

    def close(self, uri: str) -> None:
        self.documents.close(uri)
        self._readable.pop(uri, None)
        self._touch(real_path(uri))

    def touch_all(self) -> None:
        """Something changed on disk."""
        self.documents.forget_roots()
        for document in list(self.documents.open.values()):
            if document.path is not None:
                self._touch(document.path)

    def saved(self, uri: str) -> None:
        document = self.documents.open.get(uri)
        if document is not None:
            self.put(uri, document.text, document.version)

    def stop(self) -> None:
        self.schedule.stop()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _touch(self, path: str | None) -> None:
        if path is not None:
            self._stale.add(self.documents.root(path))
            self.schedule.changed()

    # -- looking ------------------------------------------------------------------------------------------------

    async def on_worker(self, work: Callable[[], T], root: str) -> T:
        """What looks at the files of a project, below this root."""

        def bounded() -> T:
            with boundary.reading([root]):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._worker, bounded)

    async def snapshot(self, uri: str) -> Snapshot | None:
        """The latest look at a document's project, after every change so far; None for what is no open file."""
        await self.schedule.settled()
        return self.latest(uri)

    def latest(self, uri: str) -> Snapshot | None:
        """The same without waiting."""
        document = self.documents.open.get(uri)
        return self._snapshots.get(self.documents.root(document.path)) if document and document.path else None

    async def _look(self) -> None:
        stale, self._stale = self._stale, set()
        for root in sorted(stale):
            documents = self.documents.in_folder(root)
            project = self._projects.setdefault(root, Project(root))
            try:
                snapshot = await self.on_worker(partial(project.check, documents), root)
                open_files = {document.path for document in documents if document.path is not None}
                rendered = self._rendered.setdefault(root, {})
                show = partial(diagnostics, snapshot, open_files, self.documents.uri_of, self.encoding, rendered)
                shown = await self.on_worker(show, root)
            except RecursionError:
                self._tell("a file is nested too deeply to be looked at")
                continue
            except Exception as error:
                # A bug of zerocfg: the next change is another chance, and the editor keeps what it shows.
                self._tell(f"internal error while looking at {root}: {type(error).__name__}: {error}")
                continue
            self._snapshots[root] = snapshot
            for trouble in snapshot.troubles:
                if trouble not in self._troubles.get(root, ()):
                    self._tell(trouble)
            self._troubles[root] = snapshot.troubles
            self._show(root, snapshot, shown)
            if not documents:
                self._forget(root)

    def _show(self, root: str, snapshot: Snapshot, shown: dict[str, list[Shown]]) -> None:
        """Publish what changed; not for a document that was changed since: the next look is on its way."""
        before = self._shown.get(root, {})
        after = dict(shown)
        versions = {document.path: document.version for document in self.documents.in_folder(root)}
        for path in sorted({*before, *shown, *snapshot.versions}):
            version = snapshot.versions.get(path)
            if versions.get(path, version) != version:
                after[path] = before.get(path, [])
                continue
            if version != self._published.get(path) or shown.get(path) != before.get(path):
                self._publish(self.documents.uri_of(path), version, shown.get(path, []))
            self._published[path] = version
        self._shown[root] = {path: found for path, found in after.items() if found}

    def _forget(self, root: str) -> None:
        for store in (self._projects, self._snapshots, self._shown, self._rendered):
            store.pop(root, None)

    # -- reading one document -----------------------------------------------------------------------------------

    def runs(self, snapshot: Snapshot | None, path: str | None) -> list[Run]:
        """The runs that a file takes part in."""
        return snapshot.runs_of.get(path, []) if snapshot is not None and path is not None else []

    def reading(self, document: Document, snapshot: Snapshot | None) -> Reading | None:
        """How a document reads; None for what is no config (a script, a text that is too long)."""
        name = document.name
        if len(document.text) > UNASKED_BYTES or (document.path and is_launch_file(Path(document.path))):
            return None
        role, seen = (snapshot.roles if snapshot is not None else {}).get(document.path or "", (None, None))
        form = seen.document.format if seen is not None and seen.document else format_of(name, document.text)
        tree = load_as(SourceText(name, document.text), form)
        known, document_read = self._readable.get(document.uri, (None, None))
        kind: str = role or known or _guess(document)
        if tree.root is None:
            return Reading(kind, form, None, document_read)
        data = tree.data()
        if role is None and (looks := sniff(data, name)) != "other":
            kind = looks
        self._readable[document.uri] = None if kind == "other" else kind, data
        return Reading(kind, form, tree, data)


def _guess(document: Document) -> str:
    """The kind of a text that does not parse, or holds too little to tell."""
    return "spec" if Path(document.name).name in SPEC_NAMES else guess_unread(document.text, document.name)
