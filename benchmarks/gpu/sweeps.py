"""Checks that measure many cases, each in a process of its own, and compare them with committed predictions."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.budget import Clock
from benchmarks.gpu.place import ROOT, Place
from benchmarks.gpu.processes import TimedOutError, run_within
from benchmarks.gpu.record import Record, Result, shorten, whole_lines

COMPARING = 20
"""Seconds of a sweep that are left for the comparison."""
ENDING_CASE = 3
"""Seconds that the program needs after its budget to end the case that runs."""
EXPECTED = ("unlikely", "does not fit")
"""Verdicts of cases that may run out of memory without anything being wrong."""
H100 = "H100"


@dataclass(frozen=True)
class Sweep:
    """``program`` measures the cases that predictions name, of its folder unless ``place_predictions`` writes some.

    ``case_s``: seconds of one case. ``compare``: a program of that folder. ``by_model``: seconds for the cases of each
    model, one model after the other; None: all cases at once. ``predictions``: the name of their file there, without
    its ending.
    """

    name: str
    program: Path
    case_s: float
    compare: str = ""
    by_model: float | None = None
    place_predictions: Callable[[Path], None] | None = None
    predictions: str = "predictions"
    reads_predictions: bool = False
    """The program takes its cases from the file of predictions, so it has to be handed the card's own."""

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        """Run the cases that are left, and compare all of them with their predictions.

        Passed: the program came to its end, and at least one case ran or ran out of memory as predicted. How good the
        predictions are is in the comparison.
        """
        out = place.out / f"{self.name}.jsonl"
        whole_lines(out, mend=True)
        given = self.find_predictions(place)
        predictions = json.loads(given.read_text())
        verdicts = find_verdicts(predictions)
        commands: list[str] = []
        record.update(commands=commands)
        error = ""
        try:
            for cases in self._turns(place, predictions, verdicts):
                budget = min(self.by_model or clock.left, clock.left - (COMPARING if self.compare else 0)) - ENDING_CASE
                if budget <= 0:
                    break
                error = error or self._measure(place, given, cases, budget, commands)
        finally:  # the lines of the cases that were measured are in the file, whatever ended the sweep
            whole_lines(out, mend=True)
            record.update(**self.summarize(place, verdicts), **({"error": error} if error else {}))
        passed = not error and bool(record.content["ran"] or record.content["out of memory"]["as predicted"])
        if passed and self.compare and not place.tiny:
            self._compare(place, given, clock)
        return passed

    def find_predictions(self, place: Place) -> Path:
        """The committed predictions, for an H100 its own where there are some."""
        if self.place_predictions is not None:
            path = place.out / f"{self.name}-cases.json"
            self.place_predictions(path)
            return path
        own = self.program.with_name(f"{self.predictions}-h100.json")
        return own if H100 in place.card and own.is_file() else self.program.with_name(f"{self.predictions}.json")

    def _lines(self, place: Place) -> list[Result]:
        """The lines of earlier folders and of this one, in this order."""
        folders = (*place.earlier, place.out)
        return [line for folder in folders for line in whole_lines(folder / f"{self.name}.jsonl")]

    def _turns(self, place: Place, predictions: Result, verdicts: dict[str, str]) -> list[list[str]]:
        """The cases that are left, divided into those that are measured at once."""
        done = find_ended(self._lines(place), self.case_s)
        left = [case for case in verdicts if case not in done]
        if self.by_model is None:
            turns = [left]
        else:
            models = predictions["models"].values()
            turns = [[case for case in left if case in model["measured"]] for model in models]
        return [turn for turn in turns if turn]

    def _measure(self, place: Place, given: Path, cases: list[str], budget: float, commands: list[str]) -> str:
        """Run the program for some cases; an error, or nothing."""
        seconds = budget if place.tiny else min(self.case_s, budget)
        out = place.out / f"{self.name}.jsonl"
        words = ["--budget-s", str(int(budget)), "--case-s", str(int(seconds)), "--out", str(out)]
        words += ["--device", place.device, *(["--tiny"] if place.tiny else [])]
        if self.reads_predictions:
            words += ["--predictions", str(given)]
        program = self.program.relative_to(ROOT).as_posix()
        commands.append(f"python {program} --budget-s {budget:.0f} --out {out.name} --only ({len(cases)} cases)")
        try:
            done = run_within([sys.executable, str(self.program), *words, "--only", *cases], budget + ENDING_CASE)
        except TimedOutError as late:
            return f"{late}\n{shorten(late.errors)}".strip()
        return shorten(done.stderr) or f"exit code {done.returncode}" if done.returncode != 0 else ""

    def summarize(self, place: Place, verdicts: dict[str, str]) -> Result:
        lines = self._lines(place)
        done = find_ended(lines, self.case_s)
        return {
            "ran": sum(line["status"] == "ok" for line in last_lines(lines).values()),
            "out of memory": group_out_of_memory(lines, verdicts),
            "left": [case for case in verdicts if case not in done],
            "lines": lines,
        }

    def _compare(self, place: Place, given: Path, clock: Clock) -> None:
        """Print the tables and write them beside the results; no comparison fails a check."""
        everything = place.out / f"{self.name}.json"
        words = [str(everything), "--predictions", str(given), "--write", str(place.out / self.name)]
        with contextlib.suppress(TimedOutError):
            program = self.program.with_name(self.compare)
            print(run_within([sys.executable, str(program), *words], clock.left).stdout, flush=True)


def find_verdicts(predictions: Result) -> dict[str, str]:
    """The cases that are to be measured, and the verdict of each: whether it was said to fit."""
    if "cases" in predictions:
        return {name: case["word"] for name, case in predictions["cases"].items()}
    return {
        plan["name"]: plan["verdict"]
        for model in predictions["models"].values()
        for plan in model["plans"]
        if plan["name"] in model["measured"]
    }


def last_lines(lines: list[Result]) -> dict[str, Result]:
    """The last line of each case; one that was not reached does not replace what was measured before."""
    found: dict[str, Result] = {}
    for line in lines:
        if line["case"] not in ("machine", "end") and (line["status"] != "not reached" or line["case"] not in found):
            found[line["case"]] = line
    return found


def find_ended(lines: list[Result], case_s: float) -> set[str]:
    """The cases that need no further run: of those that were cut off only what had all its time."""
    return {
        case
        for case, line in last_lines(lines).items()
        if line["status"] in ("ok", "oom", "failed") or (line["status"] == "timeout" and line["wall_s"] >= case_s)
    }


def group_out_of_memory(lines: list[Result], verdicts: dict[str, str]) -> dict[str, list[str]]:
    """The cases that ran out of memory, by whether that was to be expected.

    A likely one may, one time in two at most.
    """
    cases = [(case, verdicts.get(case, "")) for case, line in last_lines(lines).items() if line["status"] == "oom"]
    return {
        "as predicted": [case for case, verdict in cases if verdict in EXPECTED],
        "though likely to fit": [case for case, verdict in cases if verdict not in (*EXPECTED, "fits")],
        "though said to fit": [case for case, verdict in cases if verdict == "fits"],
    }
