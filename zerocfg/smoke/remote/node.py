"""The smoke-run of one build on one node of a job (a program of `zerocfg.cluster.on_node`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke.certify.result import data
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.text import render

if TYPE_CHECKING:
    from zerocfg.cluster.events import Channel


@dataclass(frozen=True)
class Request:
    """A build to try, ``folder`` among the job's files; the others as in `Options`. ``width``: columns of who asks."""

    folder: str
    nodes: int
    ranks: int | None
    device: str
    steps: int
    limit: float
    memory_limit: int | None
    keep: str | None
    width: int | None

    def options(self) -> Options:
        return Options(
            ranks=self.ranks,
            device=self.device,
            steps=self.steps,
            limit=self.limit,
            memory_limit=self.memory_limit,
            keep=Path(self.keep) if self.keep is not None else None,
            nodes=self.nodes,
        )


def run(arguments: list[str], tell: Channel) -> bool:
    """Try it, and whether it passed. Events: "phase" with its ``text``, then "verdict", or "problem" where it could not
    be tried."""
    request = Request(**json.loads(arguments[0]))
    try:
        verdict = smoke(Path(request.folder), request.options(), lambda text: tell("phase", text=text))
    except SmokeError as error:
        tell("problem", text=str(error))
        return False
    written, verdict.certificate = verdict.certificate, None
    tell(
        "verdict",
        passed=verdict.passed,
        interrupted=verdict.outcome.interrupted,
        cause=verdict.outcome.kind,
        failed_at=min(
            (report["error"]["time"] for report in verdict.outcome.reports if "error" in report), default=None
        ),
        text=render(verdict, request.width),
        data=data(verdict),
        certificate=written.read_text(encoding="utf-8") if written is not None else None,
    )
    return verdict.passed
