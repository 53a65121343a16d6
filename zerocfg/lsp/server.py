"""The messages of the protocol, each answered by one module; pygls carries them."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout, suppress
from functools import wraps
from typing import Any, BinaryIO, cast

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from zerocfg.lsp.actions import FIX_ALL, Writer, at, fix_all_of, quick_fixes, wanted
from zerocfg.lsp.answers import completions, definitions, hover_text, link_targets
from zerocfg.lsp.documents import real_path
from zerocfg.lsp.protocol import Protocol
from zerocfg.lsp.session import Session
from zerocfg.version import __version__

WATCHED = (
    "**/{*.json,*.hjson,*.yaml,*.yml,*.sh,*.bash,*.slurm,*.sbatch,*.mk,*.md,Makefile,*[Dd]ockerfile*,*.toml,*.txt}"
)
"""What may change a result when it changes on disk."""


class Server(LanguageServer):
    """One client, one session. ``asked_to_stop``: a shutdown request came, so that exit is a clean end."""

    def __init__(self) -> None:
        sync = lsp.TextDocumentSyncKind.Full
        # One thread reads. pygls would start others now and then, and each has memory of its own.
        super().__init__("zerocfg", __version__, text_document_sync_kind=sync, protocol_cls=Protocol, max_workers=1)
        self.session = Session(self._publish, self.tell)
        self.asked_to_stop = False

    def tell(self, message: str, kind: lsp.MessageType = lsp.MessageType.Warning) -> None:
        """A line in the editor's log of this server."""
        self.window_log_message(lsp.LogMessageParams(kind, f"zerocfg: {message}"))

    def report_server_error(self, error: Exception, source: object) -> None:
        """Instead of pygls' window in the middle of the screen."""
        if isinstance(error, (ValueError, RecursionError)) and source is JsonRpcException:
            cast(Protocol, self.protocol).not_json()
        self.tell(f"{type(error).__name__}: {error}", lsp.MessageType.Error)

    def _publish(self, uri: str, version: int | None, found: list[lsp.Diagnostic]) -> None:
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))

    def may(self, *path: str) -> Any:
        """A capability of the client by its path; None where it has not stated it."""
        found: object = self.client_capabilities
        for part in path:
            found = getattr(found, part, None)
        return found

    def writer(self, snapshot: Any) -> Writer:
        versioned = bool(self.may("workspace", "workspace_edit", "document_changes"))
        session = self.session
        return Writer(snapshot, session.documents.uri_of, session.encoding, versioned=versioned)


def guarded(handler: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[Any]]:
    """An answer of None instead of an error: nobody wants a window of an editor because a hover did not work."""

    @wraps(handler)
    async def call(server: Server, params: object) -> object:
        try:
            return await handler(server, params)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            where = traceback.format_exc() if os.environ.get("ZEROCFG_TRACEBACK") else ""
            server.tell(f"internal error: {type(error).__name__}: {error}\n{where}".strip(), lsp.MessageType.Error)
        return None

    return call


class Channel:
    """Standard output. When nobody listens any more the process ends at once: a thread may still wait for a word of
    theirs that never comes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        try:
            return self._stream.write(data)
        except (OSError, ValueError):
            os._exit(1)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            os._exit(1)

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()


def serve(stdin: BinaryIO | None = None, stdout: BinaryIO | None = None) -> int:
    """Serve until the client disconnects. The exit code: 0 after a shutdown request, else 1."""
    # A server lives long: with collections as rare as those of a command it grew by 19 MiB in 16,000 edits, now by 1.
    gc.set_threshold(10_000, 10, 10)
    channel = Channel(stdout or sys.stdout.buffer)
    with redirect_stdout(sys.stderr):  # what anything prints must not end up among the messages
        server = make_server()
        quieten(server)
        server.start_io(stdin, cast(BinaryIO, channel))
    return 0 if server.asked_to_stop else 1


def quieten(server: Server) -> None:
    """Warnings of libraries go to the editor's log, one line each, and never to the terminal with a traceback."""

    class ToClient(logging.Handler):
        busy = False

        def emit(self, record: logging.LogRecord) -> None:
            if self.busy:
                return  # what goes wrong while telling cannot be told
            self.busy = True
            try:
                server.tell(f"{record.name}: {record.getMessage()}".splitlines()[0])
            finally:
                self.busy = False

    root = logging.getLogger()
    root.handlers[:] = [ToClient(logging.WARNING)]
    # It warns of every request that was cancelled too late, which editors do all the time.
    logging.getLogger("pygls").setLevel(logging.ERROR)


def make_server() -> Server:  # noqa: C901
    server = Server()
    session = server.session

    @server.feature(lsp.INITIALIZE)
    def initialize(_: Server, params: lsp.InitializeParams) -> None:
        encoding = server.workspace.position_encoding
        session.encoding = str(getattr(encoding, "value", encoding))
        uris = [workspace_folder.uri for workspace_folder in params.workspace_folders or []] or [params.root_uri or ""]
        folders = [path for path in map(real_path, uris) if path is not None and os.path.isdir(path)]  # noqa: PTH112
        session.documents.folders = folders
        if folders:
            # Messages name files relative to where zerocfg was started; an editor may start it anywhere.
            with suppress(OSError):
                os.chdir(folders[0])

    @server.feature(lsp.INITIALIZED)
    @guarded
    async def initialized(_: Server, params: lsp.InitializedParams) -> None:
        if server.may("workspace", "did_change_watched_files", "dynamic_registration"):
            watchers = [lsp.FileSystemWatcher(glob_pattern=WATCHED)]
            options = lsp.DidChangeWatchedFilesRegistrationOptions(watchers=watchers)
            registration = lsp.Registration("watch", lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            server.client_register_capability(lsp.RegistrationParams([registration]))

    @server.feature(lsp.SHUTDOWN)
    def shutdown(_: Server, params: object) -> None:
        server.asked_to_stop = True
        session.stop()

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    @guarded
    async def opened(_: Server, params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        session.put(document.uri, document.text, document.version)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    @guarded
    async def changed(_: Server, params: lsp.DidChangeTextDocumentParams) -> None:
        if params.content_changes:
            session.change(params.text_document.uri, params.content_changes[-1].text, params.text_document.version)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    @guarded
    async def closed(_: Server, params: lsp.DidCloseTextDocumentParams) -> None:
        session.close(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    @guarded
    async def saved(_: Server, params: lsp.DidSaveTextDocumentParams) -> None:
        session.saved(params.text_document.uri)
        session.touch_all()

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    @guarded
    async def watched(_: Server, params: lsp.DidChangeWatchedFilesParams) -> None:
        session.touch_all()

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    @guarded
    async def folders(_: Server, params: lsp.DidChangeWorkspaceFoldersParams) -> None:
        gone = {real_path(workspace_folder.uri) for workspace_folder in params.event.removed}
        come = [
            path for workspace_folder in params.event.added if (path := real_path(workspace_folder.uri)) is not None
        ]
        session.documents.folders = [folder for folder in session.documents.folders if folder not in gone] + come
        session.touch_all()

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    @guarded
    async def configured(_: Server, params: lsp.DidChangeConfigurationParams) -> None:
        """Settings are read from pyproject.toml and zerocfg.toml, as by `zerocfg lint`; the editor has none."""

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    @guarded
    async def hover(_: Server, params: lsp.HoverParams) -> lsp.Hover | None:
        return await hover_text(session, params.text_document.uri, params.position)

    options = lsp.CompletionOptions(trigger_characters=['"', ":", " "])

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)
    @guarded
    async def complete(_: Server, params: lsp.CompletionParams) -> lsp.CompletionList:
        trigger = params.context.trigger_character if params.context else None
        return await completions(session, params.text_document.uri, params.position, trigger)

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    @guarded
    async def definition(_: Server, params: lsp.DefinitionParams) -> list[lsp.Location]:
        return await definitions(session, params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_LINK)
    @guarded
    async def document_links(_: Server, params: lsp.DocumentLinkParams) -> list[lsp.DocumentLink]:
        return await link_targets(session, params.text_document.uri)

    kinds = lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix, FIX_ALL], resolve_provider=True)

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, kinds)
    @guarded
    async def actions(_: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri, only = params.text_document.uri, params.context.only
        snapshot = await session.snapshot(uri)
        document = session.documents.open.get(uri)
        if snapshot is None or document is None or document.path is None:
            return []
        path, write = document.path, server.writer(snapshot)
        root = session.documents.root(path)
        found: list[lsp.CodeAction] = []
        if wanted(only, lsp.CodeActionKind.QuickFix.value):
            here = at(snapshot, path, params.range, session.encoding)
            shown = params.context.diagnostics
            found += await session.on_worker(lambda: list(quick_fixes(snapshot, here, shown, write)), root)
        if wanted(only, FIX_ALL) and any(diagnostic.fix and diagnostic.fix.safe for diagnostic in snapshot.diagnostics):
            action = lsp.CodeAction("Apply all safe fixes of zerocfg", kind=FIX_ALL, data=uri)
            resolves = self_resolving(server)
            if only is not None and not resolves:
                action = await resolve(server, action)
            if resolves or action.edit is not None:
                found.append(action)
        return found

    @server.feature(lsp.CODE_ACTION_RESOLVE)
    @guarded
    async def resolve(_: Server, action: lsp.CodeAction) -> lsp.CodeAction:
        uri = str(action.data)
        snapshot = await session.snapshot(uri)
        document = session.documents.open.get(uri)
        if snapshot is not None and document is not None and document.path is not None:
            path, write = document.path, server.writer(snapshot)
            root = session.documents.root(path)
            action.edit = await session.on_worker(lambda: fix_all_of(snapshot, path, write), root)
        return action

    return server


def self_resolving(server: Server) -> bool:
    """Whether the client asks for an action's edit only when somebody chooses it."""
    support = server.may("text_document", "code_action", "resolve_support", "properties")
    return "edit" in (support or ())
