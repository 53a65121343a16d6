"""JSON-RPC where pygls falls short: it answers no message that makes no sense, and never forgets a notification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcParseError
from pygls.protocol import LanguageServerProtocol

_SAYS = ("method", "result", "error")
"""One of these is in every message."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that has no sense. ``id``: of the request that it would be; ``answered`` False: it would be none."""

    id: int | str | None
    answered: bool
    error: JsonRpcException


class Protocol(LanguageServerProtocol):
    """Answers every request, with an error where it makes no sense."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        if "jsonrpc" not in data:
            return data
        if not any(word in data for word in _SAYS):
            return _malformed(data, JsonRpcInvalidRequest())
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            return _malformed(data, error)

    def handle_message(self, message: Any) -> None:
        message = self._sensible(message)
        if isinstance(message, Malformed):
            if message.answered:
                self.refuse(message.id, message.error)
            self._server._report_server_error(message.error, JsonRpcException)
        else:
            super().handle_message(message)

    def _sensible(self, message: Any) -> Any:
        """The message, or why it is none: no version or another one, or a request after the last one."""
        if isinstance(message, Malformed):
            return message
        if not hasattr(message, "jsonrpc"):
            return _malformed(message if isinstance(message, dict) else {"id": None}, JsonRpcInvalidRequest())
        asks = hasattr(message, "method") and hasattr(message, "id")
        if asks and (message.jsonrpc != self.VERSION or self._shutdown):
            return Malformed(message.id, True, JsonRpcInvalidRequest())
        return message

    def _execute_handler(self, msg_id: int | str, *arguments: Any, **named: Any) -> None:
        """Forgets what was done for a notification: pygls keeps it, as if somebody could still cancel it."""
        super()._execute_handler(msg_id, *arguments, **named)
        future = self._request_futures.get(msg_id)

        def forget(_: object) -> None:
            if self._request_futures.get(msg_id) is future:
                del self._request_futures[msg_id]

        if future is not None:
            future.add_done_callback(forget)

    def refuse(self, number: int | str | None, error: JsonRpcException) -> None:
        """Answer a request with an error. ``number`` None: of a message whose id could not be read."""
        self._send_data(
            {"jsonrpc": self.VERSION, "id": number, "error": {"code": error.code, "message": error.message}}
        )

    def not_json(self) -> None:
        """Answer a message that is no JSON."""
        self.refuse(None, JsonRpcParseError())


def _malformed(data: dict[str, Any], error: JsonRpcException) -> Malformed:
    number = data.get("id")
    known = isinstance(number, (int, str)) and not isinstance(number, bool)
    return Malformed(number if known else None, "id" in data and not ("result" in data or "error" in data), error)
