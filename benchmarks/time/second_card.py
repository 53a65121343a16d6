"""Seconds of steps on a second card and another host, against predictions: no constant was fitted to them.

    python benchmarks/time/second_card.py [--no-write]

The runs of 2026-11-27 on one H100 (benchmarks/gpu/results). ``memory-second-round.jsonl`` has forward, backward and
optimizer step of single micro batches, each waited for; their predictions were committed before, with the launch time
that is assumed of a host. ``host-cost.jsonl`` has whole steps. The committed prediction is compared with one that
takes the launch time that ``zerocfg probe --measure`` found there, which is what a user gets who probed the machine.
Writes results/second-card.json, .md and .svg.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cases import EVERY, MODELS, Case  # noqa: E402
from benchmarks.time.host import PHASES, WARM, of_phase  # noqa: E402
from zerocfg.hardware.catalogue import parse_hardware  # noqa: E402
from zerocfg.memory.options import Options, TorchOptions, Workload  # noqa: E402
from zerocfg.memory.time.step_time import step_time  # noqa: E402
from zerocfg.models.hardware import HardwareProfile, Host  # noqa: E402
from zerocfg.models.model_facts import from_config  # noqa: E402

RUNS = ROOT / "benchmarks" / "gpu" / "results" / "h100-80gb-hbm3-2026-11-27"
PREDICTIONS = ROOT / "benchmarks" / "memory" / "predictions-second-round-h100.json"
HARDWARE = "1xH100-SXM-80GB"
SMALL_MODEL = "qwen2.5-0.5b"
"""Of the whole steps (benchmarks/gpu/host_cost.py)."""
REASONS = {
    "z2-tiny-bucket": "probably its bucket of 2e6 elements: 770 reductions a step, whose launches are not counted",
    "ddp-view": "probably autocast: the casts of weights to bf16, which are not counted",
    "ddp-accumulation": "probably autocast, as in ddp-view",
}
"""What may explain rows that are far off. Read in the formulas after the comparison, not measured by itself."""
FAR = 0.20


@dataclass(frozen=True)
class Row:
    """Seconds: of the phases of one micro batch, or of a whole step. ``committed``: None where it was not predicted."""

    name: str
    measured: dict[str, float]
    committed: dict[str, float] | None
    probed: dict[str, float]


def probed_host() -> HardwareProfile:
    """The card as the catalogue has it, with the launch time that was measured on that kind of machine."""
    found = json.loads((RUNS / "probe.json").read_text())["output"]["host"]
    profile = parse_hardware(HARDWARE)
    return profile.model_copy(update={"host": Host(launch_us=found["launch_us"])})


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The lines of cases that ran."""
    for line in map(json.loads, (RUNS / name).read_text().splitlines()):
        if line.get("status") == "ok" and line["case"] not in ("machine", "end"):
            yield line


def phases(profile: HardwareProfile) -> Iterator[Row]:
    """The cases of the second round whose seconds are modelled: neither offload nor adapters."""
    measured = {line["case"]: line for line in lines("memory-second-round.jsonl")}
    committed = json.loads(PREDICTIONS.read_text())["cases"]
    for case in EVERY:
        predicted = committed.get(case.name, {}).get("seconds")
        if case.name not in measured or predicted is None:
            continue
        steps = measured[case.name]["steps"][WARM:]
        seen = {phase: statistics.median(step[phase]["seconds"] for step in steps) for phase in PHASES}
        yield Row(case.name, seen, predicted, expected(case, profile))


def expected(case: Case, profile: HardwareProfile) -> dict[str, float]:
    options: Options | TorchOptions = replace(case.options, gradient_accumulation_steps=1)
    return of_phase(step_time(from_config(case.config), options, case.workload, profile))


def whole_steps(profile: HardwareProfile) -> Iterator[Row]:
    """The steps with growing accumulation and micro batches."""
    facts = from_config(MODELS[SMALL_MODEL])
    for line in lines("host-cost.jsonl"):
        engine = line["engine"]
        options = Options(engine["stage"], 1, optimizer="adamw_fused", gradient_accumulation_steps=engine["steps"])
        work = Workload(engine["micro_batch"], 2048)
        assumed, probed = (
            sum(of_phase(step_time(facts, options, work, one)).values()) for one in (parse_hardware(HARDWARE), profile)
        )
        seconds = statistics.median(line["step_seconds"])
        yield Row(line["case"], {"step": seconds}, {"step": assumed}, {"step": probed})


def off(row: Row, which: str, phase: str | None = None) -> float:
    """Predicted over measured less one, of a phase or of all of them."""
    predicted = getattr(row, which)
    names = [phase] if phase else list(row.measured)
    return float(sum(predicted[name] for name in names) / sum(row.measured[name] for name in names) - 1)


def summary(errors: Sequence[float]) -> dict[str, float]:
    sizes = [abs(error) for error in errors]
    return {
        "n": len(sizes),
        "median": round(statistics.median(sizes), 4),
        "mean": round(statistics.mean(sizes), 4),
        "worst": round(max(sizes), 4),
        "signed": round(statistics.mean(errors), 4),
    }


def result() -> dict[str, Any]:
    profile = probed_host()
    cases, steps = list(phases(profile)), list(whole_steps(profile))
    found: dict[str, Any] = {"launch_us": profile.host.launch_us if profile.host else None}
    for name, rows in (("micro batches", cases), ("whole steps", steps)):
        found[name] = {which: summary([off(row, which) for row in rows]) for which in ("committed", "probed")}
        found[name]["rows"] = [
            {
                "case": row.name,
                "measured": rounded(row.measured),
                "committed": rounded(row.committed or {}),
                "probed": rounded(row.probed),
                "error, committed": round(off(row, "committed"), 4),
                "error, probed": round(off(row, "probed"), 4),
            }
            for row in rows
        ]
    found["phases"] = {
        phase: {which: summary([off(row, which, phase) for row in cases]) for which in ("committed", "probed")}
        for phase in PHASES
    }
    return found


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(one, 4) for name, one in seconds.items()}


def as_markdown(found: dict[str, Any]) -> str:
    text = [
        "# Steps on a second card\n",
        "Written by `second_card.py`: one H100 and its host, on which no constant was fitted. Seconds of one micro "
        "batch, all phases together; an error is (predicted - measured) / measured. The committed prediction assumes "
        f"what a launch takes; the other takes the {found['launch_us']:.1f} us that `zerocfg probe --measure` found.\n",
        "| rows | n | predicted | median | mean | worst | signed |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for name, which, one in sums(found):
        shown = " | ".join(f"{one[key]:.1%}" for key in ("median", "mean", "worst"))
        text.append(f"| {name} | {one['n']} | {which} | {shown} | {one['signed']:+.1%} |")
    for name in ("micro batches", "whole steps"):
        text += [
            "",
            f"| {name} | measured | committed | error | probed | error | reason |",
            "|---|---:|---:|---:|---:|---:|---|",
        ]
        for row in found[name]["rows"]:
            totals = [f"{sum(row[key].values()):.3f} s" for key in ("measured", "committed", "probed")]
            errors = [f"{row[f'error, {which}']:+.0%}" for which in ("committed", "probed")]
            cells = [totals[0], totals[1], errors[0], totals[2], errors[1], reason(row)]
            text.append(f"| {row['case']} | {' | '.join(cells)} |")
    return "\n".join([*text, ""])


def sums(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, float]]]:
    for name in ("micro batches", "whole steps"):
        yield from ((name, which, found[name][which]) for which in ("committed", "probed"))
    for phase, both in found["phases"].items():
        yield from ((f"micro batches, {phase}", which, both[which]) for which in ("committed", "probed"))


def reason(row: dict[str, Any]) -> str:
    if abs(row["error, probed"]) <= FAR:
        return ""
    return REASONS.get(row["case"], "not known")


def draw(found: dict[str, Any], path: Path) -> None:
    """Predicted over measured seconds of each micro batch, with the assumed and with the probed launch time."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "zerocfg"
    rows = [*found["micro batches"]["rows"], *found["whole steps"]["rows"]]
    figure, axis = plt.subplots(figsize=(8, 6.5))
    at = range(len(rows))
    axis.axvspan(0.85, 1.15, color="0.93", label="within 15 %")
    axis.axvline(1, color="0.6", linewidth=1)
    axis.plot([1 + row["error, committed"] for row in rows], at, "o", mfc="none", label="launch time assumed")
    axis.plot([1 + row["error, probed"] for row in rows], at, "o", label="launch time probed")
    axis.set_yticks(list(at), [row["case"] for row in rows])
    axis.invert_yaxis()
    axis.set_xlabel("predicted / measured seconds")
    axis.set_title("One H100 and its host: micro batches, then whole steps")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    found = result()
    text = as_markdown(found)
    print(text)
    if "--no-write" not in sys.argv[1:]:
        out = HERE / "results"
        (out / "second-card.json").write_text(json.dumps(found, indent=1) + "\n")
        (out / "second-card.md").write_text(text)
        draw(found, out / "second-card.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
