"""The server in a thread of this process, joined to its client by a pair of sockets: what it runs can be watched."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lsprotocol import types as lsp
from pygls.io_ import run_async

from tests.lsp.editor import WAIT, Editor
from zerocfg.lsp.server import serve


@asynccontextmanager
async def editor(folder: Path, capabilities: lsp.ClientCapabilities | None = None) -> AsyncIterator[Editor]:
    """As `tests.lsp.editor.editor`; what the server changes of the process is put back."""
    one = Editor(folder)
    ours, theirs = socket.socketpair()
    ended: list[int] = []
    kept = Path.cwd(), list(logging.root.handlers), gc.get_threshold(), logging.getLogger("pygls").level

    def run() -> None:
        with theirs, theirs.makefile("rb") as stdin, theirs.makefile("wb", buffering=0) as stdout:
            ended.append(serve(stdin, stdout))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    reader, writer = await asyncio.open_connection(sock=ours)
    client = one.client
    client.protocol.set_writer(writer)
    stop = threading.Event()
    reading = asyncio.create_task(
        run_async(
            stop_event=stop,
            reader=reader,
            protocol=client.protocol,
            logger=logging.getLogger("tests"),
            error_handler=client.report_server_error,
        )
    )
    try:
        await one.greet(capabilities)
        yield one
        await client.shutdown_async(None)
        client.exit(None)
        await asyncio.wait_for(asyncio.to_thread(thread.join, WAIT), WAIT)
        assert ended == [0]
        assert not [line for line in one.log if "internal error" in line], one.log
    finally:
        stop.set()
        writer.close()
        await asyncio.wait([reading], timeout=WAIT)
        os.chdir(kept[0])
        logging.root.handlers[:] = kept[1]
        gc.set_threshold(*kept[2])
        logging.getLogger("pygls").setLevel(kept[3])
