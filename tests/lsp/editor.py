"""A client of the language server: pygls' own, with the words of somebody who edits files."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient
from pygls.workspace import PositionCodec

WAIT = 60.0
"""Seconds until a wait counts as failed: long, because a busy machine is no fault of the server."""


class Editor:
    """Open texts by file, what the server shows of each, and what it logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("tests", "1")
        self.texts: dict[Path, str] = {}
        self.shown: dict[Path, list[lsp.Diagnostic]] = {}
        self.versions: dict[Path, int] = {}
        self.published: list[tuple[Path, int | None]] = []
        self.log: list[str] = []
        self.windows: list[str] = []
        self.news = asyncio.Event()
        self.encoding: str = "utf-16"
        self._version = 0

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _(params: lsp.PublishDiagnosticsParams) -> None:
            path = Path(params.uri.removeprefix("file://").replace("%20", " "))
            self.shown[path] = list(params.diagnostics)
            self.published.append((path, params.version))
            self.news.set()

        @self.client.feature(lsp.WINDOW_LOG_MESSAGE)
        def _(params: lsp.LogMessageParams) -> None:
            self.log.append(params.message)
            self.news.set()

        @self.client.feature(lsp.WINDOW_SHOW_MESSAGE)
        def _(params: lsp.ShowMessageParams) -> None:
            self.windows.append(params.message)

        @self.client.feature(lsp.CLIENT_REGISTER_CAPABILITY)
        def _(params: lsp.RegistrationParams) -> None:
            self.registered = params

    async def start(self, capabilities: lsp.ClientCapabilities | None = None, *, folder: bool = True) -> Any:
        environment = {key: value for key, value in os.environ.items() if key != "ZEROCFG_TRACEBACK"}
        await self.client.start_io(sys.executable, "-m", "zerocfg", "lsp", "--stdio", env=environment)
        return await self.greet(capabilities, folder=folder)

    async def greet(self, capabilities: lsp.ClientCapabilities | None = None, *, folder: bool = True) -> Any:
        """What an editor says first to a server that runs."""
        answer = await self.client.initialize_async(
            lsp.InitializeParams(
                capabilities or lsp.ClientCapabilities(),
                process_id=os.getpid(),
                root_uri=self.folder.as_uri() if folder else None,
            )
        )
        self.client.initialized(lsp.InitializedParams())
        self.encoding = str(answer.capabilities.position_encoding)
        return answer.capabilities

    def path(self, name: str | Path) -> Path:
        return self.folder / name

    def id(self, name: str | Path) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(self.path(name).as_uri())

    def open(self, name: str, text: str | None = None) -> str:
        path = self.path(name)
        text = path.read_bytes().decode("utf-8") if text is None else text
        self.texts[path], self.versions[path] = text, 1
        item = lsp.TextDocumentItem(path.as_uri(), "plaintext", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return text

    def type(self, name: str, text: str) -> None:
        """The whole new text of an open file."""
        path = self.path(name)
        self.versions[path] += 1
        self.texts[path] = text
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.versions[path], path.as_uri()),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def replace(self, name: str, old: str, new: str) -> None:
        text = self.texts[self.path(name)]
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        self.type(name, text.replace(old, new))

    def save(self, name: str) -> None:
        self.path(name).write_text(self.texts[self.path(name)], encoding="utf-8")
        self.client.text_document_did_save(lsp.DidSaveTextDocumentParams(self.id(name)))

    def close(self, name: str) -> None:
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(self.id(name)))
        del self.texts[self.path(name)]

    def codes(self, name: str) -> list[str]:
        return [str(one.code) for one in self.shown.get(self.path(name), [])]

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that the server tells."""

        async def wait() -> None:
            while not true():
                self.news.clear()
                await self.news.wait()

        try:
            await asyncio.wait_for(wait(), WAIT)
        except asyncio.TimeoutError:
            shown = {path.name: [f"{one.code} {one.message}" for one in found] for path, found in self.shown.items()}
            raise AssertionError(f"the server never told it; shown: {shown}; log: {self.log}") from None

    async def settled(self) -> None:
        """Wait until the server has looked at everything: a hover is answered after that."""
        for path in list(self.texts):
            await self.client.text_document_hover_async(lsp.HoverParams(self.id(path), lsp.Position(0, 0)))

    # -- places -------------------------------------------------------------------------------------------------

    def position(self, name: str, before: str, after: str = "") -> lsp.Position:
        """The position between two pieces of text that stand beside each other once."""
        text = self.texts[self.path(name)]
        assert text.count(before + after) == 1, f"{before + after!r} stands {text.count(before + after)} times"
        offset = text.index(before + after) + len(before)
        line = text.count("\n", 0, offset)
        column = text[text.rfind("\n", 0, offset) + 1 : offset]
        return lsp.Position(line, PositionCodec(self.encoding).client_num_units(column))

    def text_at(self, name: str, where: lsp.Range) -> str:
        """What a range covers, counted by pygls."""
        lines = self.texts[self.path(name)].split("\n")
        codec = PositionCodec(self.encoding)

        def offset(at: lsp.Position) -> int:
            found = codec.position_from_client_units(lines, at)
            return sum(len(line) + 1 for line in lines[: found.line]) + found.character

        return self.texts[self.path(name)][offset(where.start) : offset(where.end)]

    # -- questions ----------------------------------------------------------------------------------------------

    async def hover(self, name: str, before: str, after: str = "") -> str:
        at = self.position(name, before, after)
        answer = await self.client.text_document_hover_async(lsp.HoverParams(self.id(name), at))
        return answer.contents.value if answer is not None else ""

    async def complete(self, name: str, before: str, after: str = "") -> dict[str, lsp.CompletionItem]:
        at = self.position(name, before, after)
        answer = await self.client.text_document_completion_async(lsp.CompletionParams(self.id(name), at))
        return {item.label: item for item in answer.items}

    async def definition(self, name: str, before: str, after: str = "") -> list[lsp.Location]:
        at = self.position(name, before, after)
        return list(await self.client.text_document_definition_async(lsp.DefinitionParams(self.id(name), at)) or [])

    async def actions(self, name: str, code: str | None = None, only: list[str] | None = None) -> list[lsp.CodeAction]:
        """For one finding as shown, or for the whole file."""
        shown = [one for one in self.shown.get(self.path(name), []) if code in (None, one.code)]
        where = shown[0].range if code else lsp.Range(lsp.Position(0, 0), lsp.Position(10**6, 0))
        context = lsp.CodeActionContext(diagnostics=shown, only=only)
        answer = await self.client.text_document_code_action_async(lsp.CodeActionParams(self.id(name), where, context))
        return list(answer or [])

    def applied(self, edit: lsp.WorkspaceEdit) -> dict[Path, str]:
        """The texts after an edit, as an editor would apply it."""
        changes: dict[Path, list[lsp.TextEdit]] = {}
        for uri, edits in (edit.changes or {}).items():
            changes[Path(uri.removeprefix("file://"))] = list(edits)
        for one in edit.document_changes or []:
            path = Path(one.text_document.uri.removeprefix("file://"))
            if path in self.versions:
                assert one.text_document.version == self.versions[path]
            changes[path] = list(one.edits)
        found = {}
        for path, edits in changes.items():
            text = self.texts.get(path)
            text = path.read_text(encoding="utf-8") if text is None else text
            found[path] = self._edited(text, edits)
        return found

    def _edited(self, text: str, edits: list[lsp.TextEdit]) -> str:
        lines = text.split("\n")
        codec = PositionCodec(self.encoding)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line) + 1)

        def offset(at: lsp.Position) -> int:
            if at.line >= len(lines):
                return len(text)
            found = codec.position_from_client_units(lines, at)
            return starts[found.line] + found.character

        for edit in sorted(edits, key=lambda one: offset(one.range.start), reverse=True):
            text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
        return text

    # -- the end ------------------------------------------------------------------------------------------------

    async def stop(self) -> int:
        """Shutdown and exit as the protocol wants; the exit code. Nothing may be on standard error."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        return await self.ended()

    async def ended(self) -> int:
        process = self.client._server
        assert process is not None and process.stderr is not None
        said = await asyncio.wait_for(process.stderr.read(), WAIT)
        code = await asyncio.wait_for(process.wait(), WAIT)
        assert said == b"", said.decode()
        return code


@asynccontextmanager
async def editor(folder: Path, capabilities: lsp.ClientCapabilities | None = None) -> AsyncIterator[Editor]:
    """An editor with a started server in a folder; at the end it says goodbye and the server ends well."""
    one = Editor(folder)
    await one.start(capabilities)
    try:
        yield one
        assert await one.stop() == 0
        assert one.windows == [], "no window in the middle of the screen"
        assert not [line for line in one.log if "internal error" in line], one.log
    finally:
        process = one.client._server
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        await one.client.stop()
