"""A worker's share of a fleet, on a node of a cluster (a program of `zerocfg.cluster.on_node`)."""

from __future__ import annotations

import base64
import json
import signal
import sys
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.cli.fleet.one import How, lint_all
from zerocfg.fleet.model import Outcome, Repository
from zerocfg.record import record
from zerocfg.workspace.settings import SettingsOptions

if TYPE_CHECKING:
    from zerocfg.cluster.events import Channel, Event


@record(frozen=True)
class Share:
    """What a worker is asked for: ``jobs`` repositories at a time, each for at most ``limit`` seconds."""

    repositories: list[Repository]
    how: How
    jobs: int
    limit: float

    def text(self) -> str:
        return json.dumps(asdict(self))


def _share(text: str) -> Share:
    data = json.loads(text)
    given = data["how"]
    settings = SettingsOptions(**{name: _tuple(value) for name, value in given["settings"].items()})
    return Share(
        [Repository(**item) for item in data["repositories"]],
        How(**{**given, "settings": settings}),
        data["jobs"],
        data["limit"],
    )


def _tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def run(arguments: list[str], tell: Channel) -> None:
    """Lint the share in the file that is named. Events: "outcome" for each repository."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the lints that run end with this process
    share = _share(Path(arguments[0]).read_text(encoding="utf-8"))
    for outcome in lint_all(share.repositories, share.how, jobs=share.jobs, limit=share.limit):
        data = zlib.compress(json.dumps(outcome.as_data()).encode())
        tell("outcome", name=outcome.name, data=base64.b64encode(data).decode())


def outcome_of(event: Event) -> Outcome:
    """What an event tells. Raises ValueError for one that this program did not write."""
    try:
        return Outcome(**json.loads(zlib.decompress(base64.b64decode(str(event["data"])))))
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(str(error)) from None
