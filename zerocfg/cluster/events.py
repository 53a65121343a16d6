"""What the programs on the nodes say, as events in the output of their job.

An event is a JSON object that ends with `END`. The scheduler puts the number of its node in front of every line, and
may break a long one at any place; what is written is ASCII without line ends, so the pieces of a node give its events
again. Events of the job itself, not of one of its nodes, have "*" for the number.

Only the standard library is needed: this runs on the nodes too.
"""

from __future__ import annotations

import json
import os
import re
import threading

END = "\x1e"
JOB = -1
"""The number of events that the job's own script writes."""
_LINE = re.compile(rb" *(\d{1,6}|\*): (.*)", re.DOTALL)
_MOST = 16 * 2**20
"""Bytes of an event that has no end; more of it is thrown away."""

Event = dict[str, object]


class Channel:
    """Where a program writes its events: its standard output, which everything else it prints is kept out of."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def __call__(self, kind: str, **data: object) -> None:
        """Write an event. One that cannot be written is lost: whoever started this is gone."""
        text = json.dumps({"event": kind, **data}, ensure_ascii=True) + END + "\n"
        with self._lock:
            try:
                rest = text.encode("ascii")
                while rest:
                    rest = rest[os.write(self._out, rest) :]
            except OSError:
                pass


class Reader:
    """Makes events of the output of a job, in whatever pieces it comes."""

    def __init__(self) -> None:
        self._rest = b""
        self._open: dict[int, bytes] = {}

    def feed(self, data: bytes) -> list[tuple[int, Event]]:
        """(number of the node or `JOB`, event) of each event that ends in ``data``. What is none is passed over."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        found: list[tuple[int, Event]] = []
        for line in lines:
            matched = _LINE.fullmatch(line)
            if matched is None:
                continue
            node = JOB if matched[1] == b"*" else int(matched[1])
            *ended, rest = (self._open.get(node, b"") + matched[2]).split(END.encode())
            self._open[node] = rest[-_MOST:]
            found += [(node, event) for text in ended if (event := _event(text)) is not None]
        return found


def _event(text: bytes) -> Event | None:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
