"""A session of an editor with the real language server: edits, questions, and messages that are none.

Every request is answered, the server lives until it is told to end, and its memory does not grow with the edits.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.campaign import BrokenError, put
from tests.fuzz.texts import HOSTILE_WORDS, damaged

WAIT = 120.0
"""Seconds until an answer counts as one that never comes: long, because a busy machine is no fault of the server."""
GROWTH_BYTES = 5_000_000
"""How much it may grow once it is warm, in however many edits."""
WARM = 1000
"""Edits after which everything is imported and the caches hold what they hold."""
EVERY = 10
"""Edits between two questions, each of which waits for a lint of the newest text."""
SIZE, NIGHTLY = 1000, 100_000
"""Edits of a session."""
FILES = {
    "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
    "  deepspeed_config_file: ds.json\n",
    "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "bf16": {"enabeld": true}}\n',
    "run.sh": "accelerate launch --config_file accelerate.yaml train.py\n",
}


@dataclass
class Session:
    """``edits`` and ``answers`` are counts; ``resident`` the bytes in memory after every `WARM` edits."""

    edits: int = 0
    answers: int = 0
    resident: list[int] = field(default_factory=list)

    @property
    def grown(self) -> int:
        """Bytes since it was warm."""
        return self.resident[-1] - self.resident[0] if self.resident else 0


class Server:
    """The process, and its answers as they come."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zerocfg", "lsp", "--stdio"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.come: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.number = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            size = int(line.split(b":")[1]) if line.lower().startswith(b"content-length") else 0
            while line.strip():
                line = stream.readline()
            self.come.put(json.loads(stream.read(size)))
        self.come.put(None)

    def send(self, content: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
            self.process.stdin.flush()
        except OSError:
            raise BrokenError("the server is gone") from None

    def tell(self, method: str, params: object) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def ask(self, method: str, params: object) -> dict[str, Any]:
        """The answer to a request."""
        self.number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}).encode())
        return self.answer(self.number)

    def answer(self, number: object) -> dict[str, Any]:
        """The message with this id; what the server tells by itself is passed over."""
        while True:
            try:
                message = self.come.get(timeout=WAIT)
            except queue.Empty:
                raise BrokenError(f"no answer to {number!r}") from None
            if message is None:
                raise BrokenError("the server ended")
            if "method" not in message and message.get("id") == number:
                return message

    def resident(self) -> int:
        """Bytes in memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


MALFORMED: tuple[tuple[bytes, object], ...] = (
    (b'{"jsonrpc": "2.0", "id": "a", "method": "textDocument/hover"}', "a"),
    (b'{"jsonrpc": "2.0", "id": "b", "method": "textDocument/hover", "params": []}', "b"),
    (b'{"jsonrpc": "2.0", "id": "c", "method": "textDocument/hover", "params": {"textDocument": 3}}', "c"),
    (b'{"jsonrpc": "2.0", "id": "d", "method": "no/such/method", "params": {}}', "d"),
    (b'{"jsonrpc": "2.0", "id": "e", "method": 5}', "e"),
    (b'{"jsonrpc": "2.0", "id": "f"}', "f"),
    (b'{"id": "g", "method": "textDocument/completion", "params": {"position": {"line": -1, "character": "x"}}}', "g"),
    (b'{"jsonrpc": "2.0", "id": "h", "method": "codeAction/resolve", "params": {"data": 7}}', "h"),
    (b'{"jsonrpc": "1.0", "id": "i", "method": "textDocument/hover", "params": {}}', "i"),
    (b'{"jsonrpc": "2.0", "id": [1], "method": "textDocument/hover", "params": {}}', None),
    (b"{", None),
    (b"[]", None),
    (b"\xff\xfe", None),
    (b'{"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {"textDocument": null}}', ...),
    (b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": 3}', ...),
    (b'{"jsonrpc": "2.0", "method": "no/such/notification"}', ...),
    (b'{"jsonrpc": "2.0", "id": 77777, "result": null}', ...),
)
"""Messages, and the id of the answer; ``...`` where none is due. JSON-RPC answers what it cannot read with id null."""


def malformed(server: Server) -> int:
    """How many malformed requests were answered with an error. Raises BrokenError for one that was not."""
    count = 0
    for content, number in MALFORMED:
        server.send(content)
        if number is not ...:
            answer = server.answer(number)
            if "error" not in answer:
                raise BrokenError(f"{content!r} is answered with {str(answer)[:200]}")
            count += 1
    return count


def _question(uri: str, position: dict[str, int], random: Random) -> tuple[str, dict[str, Any]]:
    kind = random.choice(("hover", "completion", "definition", "documentLink", "codeAction"))
    params: dict[str, Any] = {"textDocument": {"uri": uri}}
    if kind == "codeAction":
        params |= {"range": {"start": position, "end": position}, "context": {"diagnostics": []}}
    elif kind != "documentLink":
        params["position"] = position
    return f"textDocument/{kind}", params


def session(folder: Path, edits: int, random: Random) -> Iterator[Session]:
    """A session of so many edits, told after every `WARM` of them and at its end. Raises BrokenError."""
    put({name: text.encode() for name, text in FILES.items()}, folder)
    (folder / ".git").mkdir()
    server, found = Server(folder), Session()
    try:
        server.ask("initialize", {"processId": None, "rootUri": folder.as_uri(), "capabilities": {}})
        server.tell("initialized", {})
        for name, text in FILES.items():
            document = {"uri": (folder / name).as_uri(), "languageId": "x", "version": 0, "text": text}
            server.tell("textDocument/didOpen", {"textDocument": document})
        for at in range(1, edits + 1):
            name = random.choice(tuple(FILES))
            uri = (folder / name).as_uri()
            text = damaged(FILES[name], "json" if name.endswith(".json") else "yaml", random)
            text = (text + random.choice(HOSTILE_WORDS)).encode("utf-8", "replace").decode()
            change = {"textDocument": {"uri": uri, "version": at}, "contentChanges": [{"text": text}]}
            server.tell("textDocument/didChange", change)
            if at % EVERY == 0:
                position = {"line": random.randrange(4), "character": random.randrange(40)}
                answer = server.ask(*_question(uri, position, random))
                if "error" in answer:
                    raise BrokenError(f"a question is answered with {answer['error']}")
                found.answers += 1
            found.edits = at
            if at % WARM == 0:
                found.resident.append(server.resident())
                yield found
        found.answers += malformed(server)
        server.ask("shutdown", None)
        if "error" not in server.ask("textDocument/hover", {}):
            raise BrokenError("a question after the last one is answered")
        server.tell("exit", None)
        if server.process.wait(WAIT) != 0:
            raise BrokenError(f"the server ends with {server.process.returncode}")
    finally:
        server.process.kill()
        server.process.wait()
    if found.grown > GROWTH_BYTES:
        raise BrokenError(f"the server grew by {found.grown >> 10} KiB in {edits - WARM} edits")
    yield found
