"""A preflight as a job of a cluster: what all of its ranks printed, and what kept nodes from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.cluster import submission
from zerocfg.cluster.job import AwayError, ClusterError, Job, Task
from zerocfg.cluster.wait import Progress, follow
from zerocfg.preflight.node import Request
from zerocfg.preflight.start import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.cluster.job import Engine

PROGRAM = "zerocfg.preflight.node"


@dataclass(frozen=True)
class Gathered:
    """``lines`` with the name of the node that printed each; ``hosts`` in the order of their ranks, as far as they are
    known. ``problems``: what nodes said that could not start their ranks."""

    lines: list[tuple[str, str]]
    hosts: tuple[str, ...]
    problems: tuple[str, ...]


def play(
    engine: Engine,
    request: Request,
    cards: int,
    options: tuple[str, ...],
    look: Callable[[Progress, str], None],
) -> Gathered:
    """Run it and wait for its end; Ctrl-C cancels the job. ``cards`` of each node. Raises ClusterError.

    ``look`` is called at every look, with the words of a scheduler that does not answer.
    """
    task = Task("preflight", (PROGRAM, request.text()))
    job = Job("zerocfg-preflight", request.nodes, (task,), {}, int(LIMIT), cards, options)
    folder = submission.new_folder()
    seen = Progress()

    def looked(words: str) -> bool:
        look(seen, words)
        return True

    try:
        identity = engine.submit(job, folder)
        try:
            follow(engine, identity, [seen], folder, look=looked, ended=lambda _: None)
        except KeyboardInterrupt:
            engine.cancel(identity)
            raise
    except AwayError as error:
        raise ClusterError(f"the scheduler does not answer: {error}") from None
    finally:
        submission.discard(folder)
    if not seen.events and not seen.hosts:
        raise ClusterError(f"the preflight never started: {seen.reason or seen.state.state.value}")
    silent = seen.silent(request.nodes)
    if silent and not any(event["event"] == "line" for events in seen.events.values() for event in events):
        # One node that cannot be reached ends the launch on all of them.
        raise ClusterError(
            f"{', '.join(silent)} never started: {seen.reason or 'the launch says nothing about it'}; leave it out "
            f"(--on-option=--exclude={','.join(silent)}) to look at the others"
        )
    return _gathered(seen, request.nodes)


def _gathered(seen: Progress, nodes: int) -> Gathered:
    names = [*seen.hosts, *(f"node {number}" for number in range(len(seen.hosts), nodes))]
    lines, problems = [], []
    for number, events in sorted(seen.events.items()):
        name = names[number] if number < nodes else f"node {number}"
        for event in events:
            if event["event"] == "line":
                lines.append((name, str(event.get("text", ""))))
            elif event["event"] == "problem":
                problems.append(f"{name}: {event.get('text', '')}")
    return Gathered(lines, seen.hosts, tuple(problems))
