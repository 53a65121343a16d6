"""Run the checks that need an NVIDIA card, in the order by value; without a card say so and succeed.

    python benchmarks/gpu/run.py [NAME...] [--out FOLDER] [--budget-s N] [--again] [--on-anyway] [--tiny]

Each check writes NAME.json into FOLDER as things become known: when it ends, and also when it runs out of time or is
killed. A sweep writes NAME.jsonl too, a line for each case. Each check has a time limit of its own; with a budget for
all of them, a check starts only if enough is left, and its limit is cut to what is left. Run again, it goes on: what
passed is not repeated (``--again`` does), what was cut off comes before what failed, and a sweep measures the cases
that are left. When the contract, which comes first, fails, nothing else is run (``--on-anyway`` does). Nothing is
downloaded or installed. ``--tiny``: tiny models on a processor, to try the program itself.

Exit codes: 0 every check passed or there is no card, 1 a check failed, 2 an unknown name or a folder with results of
another card, 3 nothing failed, and a check or a case is left: run again.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.budget import ENDING, Budget, Clock
from benchmarks.gpu.checks import CONTRACT, IN_ORDER, ON_PROCESSOR, Check
from benchmarks.gpu.place import RESULTS, Place, find_cards, hash_source, name_of_folder
from benchmarks.gpu.processes import TimedOutError, run_side_by_side
from benchmarks.gpu.record import (
    CUT_OFF,
    FAILED,
    INCOMPLETE,
    KILLED,
    LEFT,
    OUT_OF_BUDGET,
    PASSED,
    TIMED_OUT,
    Record,
    Result,
    find_measured_cards,
    read_result,
    shorten,
)
from benchmarks.gpu.smoke_runs import OVERHEAD

FINAL = (FAILED, INCOMPLETE, TIMED_OUT)
"""States of checks that had all their time and did not pass."""
NOT_STARTED = "not started"
"""State of a check for which too little was left; no file is written."""


def run_check(check: Check, place: Place, clock: Clock) -> str:
    """Run one check, keep its result whatever ends it, and return its state."""
    heading: Result = {
        "check": check.name,
        "date": datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat(),
        "cards": list(place.cards),
        "python": platform.python_version(),
        "source": hash_source(),
        "time_limit": round(clock.seconds, 1),
    }
    record = Record(place.out / f"{check.name}.json", heading)
    try:
        passed = check.work.play(place, record, clock)
    except TimedOutError as late:
        printed = shorten(f"{late.output}\n{late.errors}")
        state = OUT_OF_BUDGET if clock.cut else TIMED_OUT
        record.close(state, error=str(late), **({"printed": printed} if printed else {}))
    except Exception:  # a fault of this check says nothing about the others
        record.close(FAILED, error=shorten(traceback.format_exc()))
    except BaseException:
        record.close(KILLED)
        raise
    else:
        if passed:
            record.close(LEFT if record.content.get("left") else PASSED)
        elif clock.cut and clock.left <= OVERHEAD:  # with all its time it may pass
            record.close(OUT_OF_BUDGET)
        else:
            record.close(INCOMPLETE if record.content.get("certificate", {}).get("verdict") == INCOMPLETE else FAILED)
    return str(record.content["state"])


def describe(check: Check, place: Place, state: str, clock: Clock | None) -> str:
    """A check's line on the screen."""
    if clock is None:
        return f"{check.name}: {state}: less than {check.least:.0f} s are left"
    result = read_result(place.out / f"{check.name}.json")
    left = f"; {len(result['left'])} cases are left, run again" if result.get("left") else ""
    shown = state.upper() if state in (FAILED, INCOMPLETE) else state
    return f"{check.name}: {shown} after {result['seconds']:.0f} s, {place.out / check.name}.json{left}"


def run_batch(batch: Sequence[Check], place: Place, budget: Budget) -> dict[str, str]:
    """The states of checks that run side by side, or of a single one."""
    factor = ON_PROCESSOR if place.tiny else 1
    clocks = {check.name: budget.allot(check.least, check.limit * factor) for check in batch}
    states = {check.name: NOT_STARTED for check in batch}
    started = [check for check in batch if clocks[check.name] is not None]
    if len(started) > 1:
        commands = [command_of(check, place, clocks[check.name]) for check in started]
        longest = max(clock.seconds for clock in clocks.values() if clock is not None)
        run_side_by_side(commands, longest + ENDING)
        states |= {check.name: read_result(place.out / f"{check.name}.json").get("state", KILLED) for check in started}
    for check in batch:
        clock = clocks[check.name]
        if [check] == started and clock is not None:
            states[check.name] = run_check(check, place, clock)
        if len(started) < 2 or clock is None:  # those that run side by side say so themselves
            print(describe(check, place, states[check.name], clock), flush=True)
    return states


def command_of(check: Check, place: Place, clock: Clock | None) -> list[str]:
    """The command that runs one check with this program."""
    command = [sys.executable, __file__, check.name, "--out", str(place.out.absolute())]
    if clock is not None and clock.cut:
        command += ["--budget-s", str(clock.seconds + ENDING)]
    return command + (["--tiny"] if place.tiny else [])


def order_pending(checks: Sequence[Check], place: Place) -> Iterator[list[Check]]:
    """The checks that have not passed, in batches: those without a final result first, then those that failed.

    The contract stays first. Checks that run side by side are one batch.
    """
    states = {check.name: read_result(place.out / f"{check.name}.json").get("state") for check in checks}

    def turn(check: Check) -> bool:
        return check.name != CONTRACT and states[check.name] not in (None, *CUT_OFF)

    pending = sorted((check for check in checks if states[check.name] != PASSED), key=turn)
    for together, batch in groupby(pending, key=lambda check: (turn(check), check.side_by_side)):
        if together[1]:
            yield list(batch)
        else:
            yield from ([check] for check in batch)


def run_all(checks: Sequence[Check], place: Place, budget: Budget, *, on_anyway: bool = False) -> int:
    """Run the checks that have not passed; the exit code."""
    states: dict[str, str] = {}
    for check in checks:
        earlier = read_result(place.out / f"{check.name}.json")
        if earlier.get("state") == PASSED:
            print(f"{check.name}: passed on {earlier['date']}")
    for batch in order_pending(checks, place):
        states |= run_batch(batch, place, budget)
        if batch[0].name == CONTRACT and states[CONTRACT] != PASSED and not on_anyway:
            print("the contract did not pass: nothing else is run (--on-anyway does)", flush=True)
            return 1 if states[CONTRACT] in FINAL else 3
    if any(state in FINAL for state in states.values()):
        return 1
    return 3 if any(state != PASSED for state in states.values()) else 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    names = ", ".join(check.name for check in IN_ORDER)
    parser = argparse.ArgumentParser(description="Run the checks that need an NVIDIA card.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {names}; all unless given")
    parser.add_argument("--out", type=Path, help="the folder for results; results/CARD-DATE beside this program")
    parser.add_argument("--budget-s", type=float, metavar="N", help="seconds for everything")
    parser.add_argument("--again", action="store_true", help="repeat what passed")
    parser.add_argument("--on-anyway", action="store_true", help="go on when the contract fails")
    parser.add_argument(
        "--earlier",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="leave out the cases of sweeps that were measured there, on the same card",
    )
    parser.add_argument("--tiny", action="store_true", help="tiny models on a processor, to try the program itself")
    given = parser.parse_args(words)
    if given.tiny and given.out is None:
        parser.error("--tiny needs --out FOLDER: a trial leaves no results among those of cards")
    return given


def main(words: Sequence[str]) -> int:
    given = parse(words)
    unknown = [name for name in given.names if name not in {check.name for check in IN_ORDER}]
    if unknown:
        known = ", ".join(check.name for check in IN_ORDER)
        print(f"no check {', '.join(unknown)}; there are {known}", file=sys.stderr)
        return 2
    checks = [check for check in IN_ORDER if not given.names or check.name in given.names]
    budget = Budget(given.budget_s)
    cards = [] if given.tiny else find_cards()
    if not cards and not given.tiny:
        for check in checks:
            print(f"{check.name}: not run: no NVIDIA card here")
        return 0
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    out = given.out or RESULTS / name_of_folder(cards[0]["name"], today)
    place = Place(out, tuple(cards), given.tiny, tuple(given.earlier))
    for check in checks:
        for folder in (*place.earlier, place.out):
            other = find_measured_cards(folder, check.name) - {place.card}
            if other:
                print(
                    f"{folder / check.name}: results of {', '.join(sorted(other))}; name another folder",
                    file=sys.stderr,
                )
                return 2
    place.out.mkdir(parents=True, exist_ok=True)
    if given.again:
        for check in checks:
            for ending in ("json", "jsonl"):
                (place.out / f"{check.name}.{ending}").unlink(missing_ok=True)
    return run_all(checks, place, budget, on_anyway=given.on_anyway)


def end_on_signal(*_: object) -> None:
    """End as at Ctrl-C, so that what was started ends and results are written; a second signal changes nothing."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(143)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_on_signal)
    sys.exit(main(sys.argv[1:]))
