"""``zerocfg smoke run --on ENGINE``: the smoke-runs of some builds as a job of a cluster, and what comes back."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.cli.screens.live_table import LiveTable
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import Column, table

if TYPE_CHECKING:
    from zerocfg.cluster.job import Engine
    from zerocfg.cluster.submission import Submission
    from zerocfg.cluster.wait import Progress
    from zerocfg.smoke.remote.gather import RemoteResult
    from zerocfg.smoke.smoke import Options

CANCEL = 60
"""Seconds to wait for a job that was cancelled to end."""
_JSON = 1
"""Version of the JSON."""


def submit(
    engine_name: str,
    runs: list[Path],
    smoke_options: Options,
    *,
    before: list[Path],
    nodes: int | None,
    words: tuple[str, ...],
    detach: bool,
    as_json: bool,
) -> None:
    """Submit a job, wait for it unless ``detach``, show what came of it and exit with its code. ``before``: builds that
    are certified already, for the comparison."""
    from zerocfg.cluster.engines import engine
    from zerocfg.cluster.job import ClusterError
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.remote import submit as remote
    from zerocfg.smoke.remote.request import Wanted

    try:
        to = engine(engine_name)
        wanted = Wanted(nodes, words, None if as_json else columns(sys.stdout))
        made = remote.submit(to, engine_name, runs, smoke_options, wanted, before)
    except (ClusterError, SmokeError) as error:
        raise _NotTriedError(str(error)) from None
    if detach:
        click.echo(f"submitted as {made.name}; to wait for it: zerocfg smoke attach {made.name}")
        return
    _wait(to, made, as_json)


def compare(certified: list[Path], as_json: bool) -> None:
    """What a sweep shows of which nothing is left to run: the certificates say what each build did."""
    from zerocfg.smoke.remote import submit as remote

    _compare(remote.certificates(certified), [], as_json)


def attach(name: str, as_json: bool) -> None:
    """Go on with a job that was submitted before."""
    from zerocfg.cluster.engines import engine
    from zerocfg.cluster.job import ClusterError
    from zerocfg.cluster.submission import find

    try:
        made = find(name)
        to = engine(made.engine)
    except ClusterError as error:
        raise _NotTriedError(str(error)) from None
    _wait(to, made, as_json)


class _NotTriedError(click.ClickException):
    exit_code = 2


def _wait(to: Engine, made: Submission, as_json: bool) -> None:
    from zerocfg.cluster.job import ClusterError
    from zerocfg.smoke.model.certificate import exit_code_of
    from zerocfg.smoke.remote import submit as remote

    live = LiveTable()

    def look(tasks: list[Progress], away: str) -> bool:
        live.draw(_rows(made, tasks, away, columns(sys.stderr)))
        return True

    def ended(result: RemoteResult) -> None:
        live.clear()
        if not as_json:
            _show(result, len(made.tasks) > 1)

    try:
        results = remote.gather_all(to, made, look=look, ended=ended)
    except ClusterError as error:
        live.clear()
        raise _NotTriedError(f"{error}; to go on later: zerocfg smoke attach {made.name}") from None
    except KeyboardInterrupt:
        live.clear()
        _cancel(to, made)
        raise click.Abort from None
    live.clear()
    if results is None:
        return
    _compare(remote.earlier(made), results, as_json)
    code = exit_code_of(
        "problem" if remote_result.problem is not None else remote_result.state for remote_result in results
    )
    if code:
        raise click.exceptions.Exit(code)


def _compare(before: list[RemoteResult], results: list[RemoteResult], as_json: bool) -> None:
    """A table of all, where there are several; as JSON the new ones."""
    if as_json:
        click.echo(json.dumps(_data(results), indent=2))
    elif len(before) + len(results) > 1:
        lines = summary([*before, *results], columns(sys.stdout))
        click.echo("".join(f"{line}\n" for line in lines), nl=False)


def _cancel(to: Engine, made: Submission) -> None:
    """End the job of somebody who pressed Ctrl-C; a second time leaves it to end by itself."""
    from zerocfg.cluster.job import ClusterError
    from zerocfg.smoke.remote import submit as remote

    click.echo(f"cancelling {made.name} ...", err=True)
    until = time.monotonic() + CANCEL

    def patience() -> bool:
        time.sleep(min(1.0, to.poll))
        return time.monotonic() < until

    try:
        over = remote.cancel(to, made, patience)
    except (KeyboardInterrupt, ClusterError):
        over = False
    click.echo(
        "cancelled" if over else f"asked to end; zerocfg smoke attach {made.name} shows whether it did", err=True
    )


_LIVE = (Column("run", hangs=24), Column("state"), Column("nodes", least=8, spare=1), Column(least=24))


def _rows(made: Submission, tasks: list[Progress], away: str, width: int | None) -> list[str]:
    from zerocfg.smoke.model.certificate import WORDS
    from zerocfg.smoke.remote.gather import state_of

    rows = []
    for described, task in zip(made.tasks, tasks, strict=True):
        verdict, phase = task.last(0, "verdict"), task.last(0, "phase")
        state = task.state.state.value
        if verdict is not None:
            state, now = WORDS[state_of(verdict)], ""
        else:
            now = str(phase.get("text", "")) if phase is not None else task.state.reason
        rows.append((described["name"], state, task.state.hosts, now))
    lines = table(_LIVE, rows, width, "")
    return [*lines, f"the scheduler does not answer: {away}"] if away else lines


def _show(result: RemoteResult, several: bool) -> None:
    if result.problem is not None:
        click.echo(f"Error: {result.name}: {result.problem}", err=True)
        return
    notes = "".join(f"{line}\n" for line in result.notes)
    click.echo(result.text + notes + "\n" * several, nl=False)


def _data(results: list[RemoteResult]) -> dict[str, object]:
    return {
        "version": _JSON,
        "runs": [
            {"path": str(result.path), **result.data}
            if result.problem is None
            else {"path": str(result.path), "run": result.name, "passed": False, "problem": result.problem}
            for result in results
        ],
    }


_SUMMARY = (
    Column("run", hangs=24),
    Column("verdict"),
    Column("s/step", right=True),
    Column("tokens/s", right=True),
    Column("planned", right=True, spare=1),
    Column("peak GiB", right=True),
    Column(least=24),
)


def summary(results: list[RemoteResult], width: int | None = None) -> list[str]:
    """A table of all runs: verdict, the median step, tokens a second as measured and as planned, the largest peak of a
    rank, and what is wrong first. Among several that passed the fastest is marked, and the one that was to be it."""
    from zerocfg.smoke.model.certificate import WORDS

    passed = [result for result in results if result.passed]
    best = max(passed, key=_rate, default=None)
    planned = max((remote_result for remote_result in passed if _planned(remote_result)), key=_planned, default=None)
    rows = []
    for result in results:
        figures = _measured(result)
        word = "not tried" if result.problem is not None else WORDS[result.state]
        word = "certified" if result.earlier else word
        marks = [said for said, which in (("fastest", best), ("planned as the fastest", planned)) if which is result]
        rows.append(
            (
                result.name,
                word,
                _figure(figures.get("step_seconds_median"), 2),
                _figure(_rate(result) or None, 0),
                _figure(_planned(result) or None, 0),
                _figure(_peak(figures), 2),
                result.problem or _first(result) or (", ".join(marks) if len(passed) > 1 else ""),
            )
        )
    shown = [at for at, column in enumerate(_SUMMARY) if column.title != "planned" or planned is not None]
    return table([_SUMMARY[at] for at in shown], [[row[at] for at in shown] for row in rows], width, "")


def _measured(result: RemoteResult) -> dict[str, object]:
    measured = result.data.get("measured")
    return measured if isinstance(measured, dict) else {}


def _rate(result: RemoteResult) -> float:
    """Tokens a second of all ranks, 0 where they were not measured."""
    return _number(_measured(result).get("tokens_per_second"))


def _planned(result: RemoteResult) -> float:
    """The same as predicted for what ran, 0 where the rates of the device are not known."""
    predicted = _measured(result).get("predicted")
    return _number(predicted.get("tokens_per_second")) if isinstance(predicted, dict) else 0.0


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _peak(figures: dict[str, object]) -> float | None:
    """GiB of the rank that held most."""
    peaks = figures.get("peak_memory_bytes")
    sizes = [peak for peak in peaks if isinstance(peak, (int, float))] if isinstance(peaks, list) else []
    return max(sizes) / 2**30 if sizes else None


def _figure(value: object, digits: int) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, (int, float)) else "-"


def _first(result: RemoteResult) -> str:
    failure = result.data.get("failure")
    if isinstance(failure, dict):
        return str(failure.get("message", ""))[:160]
    checks = result.data.get("checks")
    failed = (
        [check for check in checks if isinstance(check, dict) and check.get("ok") is False]
        if isinstance(checks, list)
        else []
    )
    return f"{failed[0]['name']}: planned {failed[0]['planned']}, seen {failed[0]['seen']}"[:160] if failed else ""
