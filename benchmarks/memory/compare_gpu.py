"""Compares what ``gpu.py`` measured with what ``predict_gpu.py`` had predicted.

    python benchmarks/memory/compare_gpu.py RESULTS [--write FOLDER]

RESULTS is the file of gpu.py (JSON lines) or the one that ``benchmarks/gpu/run.py memory`` keeps. Prints the tables;
with --write also puts gpu.json, gpu.md and the plots into FOLDER.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cases import EVERY  # noqa: E402
from benchmarks.memory.errors import error, gib, percent, spoken, summary, table  # noqa: E402

PREDICTIONS = Path(__file__).resolve().parent / "predictions.json"
PHASES = ("forward", "backward", "step")
FIRST = 1  # index of the first step that counts: the counter is reset after step 1
Line = dict[str, Any]


def load(path: Path) -> tuple[Line, dict[str, Line]]:
    """The machine's line and the lines of the cases; of a case that was run twice the last."""
    text = path.read_text()
    lines = json.loads(text)["lines"] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    machine: Line = next((line for line in lines if line["case"] == "machine"), {})
    return machine, {line["case"]: line for line in lines if line["case"] != "machine"}


def measured(line: Line) -> dict[str, int]:
    """Peaks of the steps that count, in bytes: of each phase, of all (``allocated``), and the allocator's reserve."""
    steps = line["steps"][FIRST:]
    found = {phase: max(step[phase]["peak"] for step in steps) for phase in PHASES}
    found["allocated"] = max(found.values())
    found["reserved"] = max(step[phase]["reserved"] for step in steps for phase in PHASES)
    return found


def compared(predictions: Line, lines: dict[str, Line]) -> list[Line]:
    """A row for each case, in the order of ``cases.py``; rows of cases that ran have ``error``."""
    capacity, rows = predictions["capacity"], []
    for case in EVERY:
        predicted, line = predictions["cases"].get(case.name), lines.get(case.name)
        if predicted is None or line is None:
            continue
        row: Line = {
            "row": case.name,
            "group": "run",
            "what": described(case),
            "status": line["status"],
            "predicted": predicted["allocated"],
            "moment": predicted["moment"],
            "word": predicted["word"],
            "near": predicted["allocated"] > 0.9 * capacity,
        }
        if line["status"] == "ok":
            seen = measured(line)
            row |= {
                "measured": seen["allocated"],
                "error": error(predicted["allocated"], seen["allocated"]),
                "phases": {phase: error(predicted["phases"][phase], seen[phase]) for phase in PHASES},
                "reserved": seen["reserved"],
                "reserve": seen["reserved"] / seen["allocated"],
                "in_reserved_band": inside(seen["reserved"], predicted["bands"]["reserved"]),
                "seconds": min(step["seconds"] for step in line["steps"][FIRST:]),
                "parameters_agree": line["parameters"] == predicted["parameters"],
            }
            if "device_used" in line:
                row["device"] = line["device_used"]
                row["outside"] = line["device_used"] - seen["reserved"]
                row["in_device_band"] = inside(line["device_used"], predicted["bands"]["device"])
        rows.append(row)
    return rows


def inside(size: int, band: list[int]) -> bool:
    return band[0] <= size <= band[2]


def described(case: Any) -> str:
    stage = getattr(case.options, "stage", None)
    work = case.workload
    kind = f"ZeRO-{stage}" if stage is not None else "torch"
    kept = ", checkpointing" if work.gradient_checkpointing else ""
    return f"{case.model}, {kind}, {work.micro_batch} x {work.sequence_length}{kept}"


def verdicts(rows: list[Line]) -> Line:
    """Cases that were said to fit and ran out of memory, and the other way round."""
    return {
        "said to fit, out of memory": [r["row"] for r in rows if r["status"] == "oom" and r["word"] == "fits"],
        "below 90% of the card, out of memory": [r["row"] for r in rows if r["status"] == "oom" and not r["near"]],
        "said not to fit, ran": [r["row"] for r in rows if r["status"] == "ok" and r["word"] == "does not fit"],
        "broke": [r["row"] for r in rows if r["status"] in ("failed", "timeout")],
        "not reached": [r["row"] for r in rows if r["status"] == "not reached"],
    }


def report(machine: Line, predictions: Line, rows: list[Line]) -> str:
    """Tables in Markdown."""
    ran = [row for row in rows if "error" in row]
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("torch", "transformers", "deepspeed") if name in machine
    )
    parts = [
        "# Predicted and measured: our runs\n",
        f"{machine.get('card', machine.get('device', 'unknown device'))}, {versions}. Predicted beforehand with "
        f"formulas `{predictions['formulas']}`. Sizes in GiB; an error is (predicted - measured) / measured.\n",
        f"Allocated peak, {spoken(summary(row['error'] for row in ran))}.\n",
    ]
    for phase in PHASES:
        parts.append(f"- {phase}: {spoken(summary(row['phases'][phase] for row in ran))}\n")
    if ran:
        shares = sorted(row["reserve"] for row in ran)
        parts.append(
            f"Reserved over allocated: {shares[0]:.2f} to {shares[-1]:.2f}, in the predicted band in "
            f"{sum(row['in_reserved_band'] for row in ran)} of {len(ran)} cases.\n"
        )
    outside = sorted(row["outside"] for row in ran if "outside" in row)
    if outside:
        parts.append(f"Device over reserved (context, NCCL): {gib(outside[0])} to {gib(outside[-1])}.\n")
    parts.append(
        table(
            ["case", "what", "status", "measured", "predicted", "error", *PHASES, "reserved", "s/step"],
            (
                [row["row"], row["what"], row["status"], gib(row.get("measured")), gib(row["predicted"])]
                + [percent(row.get("error"))]
                + [percent(row["phases"][phase]) if "phases" in row else "-" for phase in PHASES]
                + [gib(row.get("reserved")), f"{row['seconds']:.2f}" if "seconds" in row else "-"]
                for row in rows
            ),
        )
    )
    parts += [f"- {what}: {', '.join(names) or 'none'}\n" for what, names in verdicts(rows).items()]
    wrong = [row["row"] for row in ran if not row["parameters_agree"]]
    if wrong:
        parts.append(f"Other numbers of parameters than predicted: {', '.join(wrong)}\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare a run of gpu.py with the predictions.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--predictions", type=Path, default=PREDICTIONS)
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not arguments.predictions.is_file():
        print("no predictions: run predict_gpu.py first", file=sys.stderr)
        return 1
    predictions = json.loads(arguments.predictions.read_text())
    machine, lines = load(arguments.results)
    rows = compared(predictions, lines)
    text = report(machine, predictions, rows)
    print(text)
    if arguments.write:
        arguments.write.mkdir(parents=True, exist_ok=True)
        ran = [row for row in rows if "error" in row]
        content = {
            "formulas": predictions["formulas"],
            "machine": machine,
            "statistics": summary(row["error"] for row in ran),
            "verdicts": verdicts(rows),
            "rows": rows,
        }
        (arguments.write / "gpu.json").write_text(json.dumps(content, indent=1) + "\n")
        (arguments.write / "gpu.md").write_text(text)
        if ran:
            from benchmarks.memory.plots import phase_errors, scatter

            scatter(rows, arguments.write / "gpu-scatter.svg")
            phase_errors(rows, arguments.write / "gpu-phases.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
