"""Messages that make no sense: what is answered, by the rules of JSON-RPC 2.0."""

from __future__ import annotations

from typing import Any

import pytest
from pygls.protocol import default_converter

from zerocfg.lsp.protocol import Protocol
from zerocfg.lsp.server import Server

INVALID = -32600


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that gives a message to the protocol and returns what is sent back, but for lines of the log."""
    server = Server()
    protocol = server.protocol
    assert isinstance(protocol, Protocol)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(protocol, "_send_data", lambda data: sent.append(data) if isinstance(data, dict) else None)
    monkeypatch.setattr(server, "tell", lambda *_: None)

    def give(message: Any, *, shut_down: bool = False) -> list[tuple[Any, int]]:
        sent.clear()
        monkeypatch.setattr(protocol, "_shutdown", shut_down)
        protocol.handle_message(protocol.structure_message(message))
        return [(one["id"], one["error"]["code"]) for one in sent]

    yield give
    server.session.stop()


@pytest.mark.parametrize(
    ("message", "answered"),
    [
        ({"jsonrpc": "2.0", "id": 7}, [(7, INVALID)]),
        ({"jsonrpc": "2.0", "id": "seven"}, [("seven", INVALID)]),
        ({"jsonrpc": "2.0", "id": True}, [(None, INVALID)]),
        ({"jsonrpc": "2.0", "id": [7]}, [(None, INVALID)]),
        ({"id": 7, "method": "shutdown"}, [(7, INVALID)]),  # no version
        ({"id": 7, "result": None}, []),  # an answer is not answered
        ({"id": 7, "error": {}}, []),
        ({"jsonrpc": "2.0"}, []),  # nobody waits for it
        ({"method": "exit"}, []),
        ([1, 2], [(None, INVALID)]),
        ({"jsonrpc": "1.0", "id": 3, "method": "shutdown", "params": None}, [(3, INVALID)]),
    ],
    ids=str,
)
def test_what_is_answered(message: Any, answered: list[tuple[Any, int]], answers: Any) -> None:
    assert answers(message) == answered


def test_nothing_is_done_after_the_last_request(answers: Any) -> None:
    hover = {"jsonrpc": "2.0", "id": 4, "method": "textDocument/hover"}
    hover["params"] = {"textDocument": {"uri": "file:///a"}, "position": {"line": 0, "character": 0}}
    assert answers(hover, shut_down=True) == [(4, INVALID)]


def test_what_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol(Server(), default_converter())
    sent: list[Any] = []
    monkeypatch.setattr(protocol, "_send_data", sent.append)
    protocol.not_json()
    assert [(one["id"], one["error"]["code"]) for one in sent] == [(None, -32700)]
