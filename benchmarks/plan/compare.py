"""Compares what ``gpu.py`` measured with what ``predict.py`` had predicted: regret, rank correlation, time to choose.

    python benchmarks/plan/compare.py [RESULTS] [--write FOLDER] [--predictions FILE]

RESULTS is the file of gpu.py (JSON lines) or the one that ``benchmarks/gpu/run.py plan`` keeps; without it the tables
say "not run yet". Prints the tables; with --write also puts plan.json, plan.md and plan.svg into FOLDER.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.errors import error, percent, table  # noqa: E402

PREDICTIONS = Path(__file__).resolve().parent / "predictions.json"
WITHIN = 0.05  # the claim: the chosen plan is at most that much slower than the best
TICKS = [digit * 10.0**power for power in range(-4, 4) for digit in (1, 2, 5)]  # seconds
COLOURS = ("#0072B2", "#D55E00", "#009E73")
Line = dict[str, Any]


def load(path: Path) -> dict[str, Line]:
    """The lines of a run by name; of a plan that was run twice the last."""
    text = path.read_text()
    lines = json.loads(text)["lines"] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    return {line["case"]: line for line in lines}


def ranks(values: Sequence[float]) -> list[float]:
    """Places from 1 on, the smallest first; equal values share the mean of their places."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation, ties included (Pearson's of the ranks); None where it is not defined."""
    if len(first) < 3:
        return None
    x, y = ranks(first), ranks(second)
    middle_x, middle_y = mean(x), mean(y)
    spread = sqrt(sum((one - middle_x) ** 2 for one in x) * sum((one - middle_y) ** 2 for one in y))
    if not spread:
        return None
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread


def row_of(plan: Line, line: Line | None, tokens: int) -> Line:
    """One plan: predicted and, where it ran, measured. Times are seconds of an optimizer step."""
    row: Line = {
        "name": plan["name"],
        "chosen": plan["own"],
        "verdict": plan["verdict"],
        "status": line["status"] if line else "not run",
        "predicted": plan["step_seconds"],
        "compared": plan["compared_seconds"],
    }
    if line and line["status"] == "ok":
        seconds = median(line["step_seconds"])
        row |= {
            "measured": seconds,
            "steps": len(line["step_seconds"]),
            "spread": max(line["step_seconds"]) / min(line["step_seconds"]) - 1,
            "tokens_per_second": tokens / seconds,
            "error": error(plan["step_seconds"], seconds),
        }
    return row


def of_model(name: str, one: Line, lines: dict[str, Line], tokens: int) -> Line:
    """Rows, regret and correlation of one model."""
    plans = {plan["name"]: plan for plan in one["plans"]}
    rows = [row_of(plans[plan], lines.get(plan), tokens) for plan in one["measured"]]
    ran = sorted((row for row in rows if "measured" in row), key=lambda row: row["measured"])
    for place, row in enumerate(ran, 1):
        row["rank"] = place
    chosen = next(row for row in rows if row["chosen"])
    found: Line = {
        "model": name,
        "chosen": one["chosen"],
        "seconds_to_choose": one["seconds_to_choose"],
        "compared": len(one["plans"]),
        "to_measure": len(rows),
        "ran": len(ran),
        "best": ran[0]["name"] if ran else None,
        "regret": None,
        "spearman": None,
        "spearman_compared": None,
        "sweep_seconds": sum(lines[row["name"]].get("wall_s", 0.0) for row in rows if row["name"] in lines),
        "rows": rows,
    }
    if "measured" in chosen:
        found["regret"] = 1 - chosen["tokens_per_second"] / ran[0]["tokens_per_second"]
    for key, what in (("spearman", "predicted"), ("spearman_compared", "compared")):
        found[key] = spearman([row[what] for row in ran], [row["measured"] for row in ran])
    return found


def compared(predictions: Line, lines: dict[str, Line]) -> Line:
    """Everything of a run, as it is kept in plan.json. ``kept``: the claim holds; None: it cannot be said."""
    tokens = predictions["sequence"] * predictions["global_batch"]
    models = [of_model(name, one, lines, tokens) for name, one in predictions["models"].items()]
    regrets = [one["regret"] for one in models]
    missing = any(row["status"] in ("not run", "not reached", "timeout") for one in models for row in one["rows"])
    kept: bool | None = None
    if any(regret is not None and regret > WITHIN for regret in regrets):
        kept = False
    elif all(regret is not None for regret in regrets) and not missing:
        kept = True
    machine = lines.get("machine", {})
    return {
        "formulas": predictions["formulas"],
        "machine": machine,
        "same_formulas": machine.get("formulas", predictions["formulas"]) == predictions["formulas"],
        "tiny": bool(machine.get("tiny")),
        "kept": kept,
        "sweep_seconds": lines.get("end", {}).get("sweep_seconds"),
        "models": models,
    }


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def claim(found: Line) -> str:
    """What the run says about the claim, in one sentence."""
    if not any(one["ran"] for one in found["models"]):
        return "**Not run yet.** The figures below are predictions; nothing has been measured on a card."
    if found["tiny"]:
        return "A trial of the program with tiny models: its figures say nothing about the plans."
    worst = max((one["regret"] for one in found["models"] if one["regret"] is not None), default=None)
    if found["kept"] is None:
        return "Whether each chosen plan is within 5% of the best cannot be said: not every plan has been measured."
    verb = "holds" if found["kept"] else "does not hold"
    return f"**The claim {verb}:** the largest regret of a chosen plan is {_share(worst)}, and 5% were allowed."


def report(found: Line, predictions: Line) -> str:
    """Tables in Markdown."""
    machine = found["machine"]
    where = [machine.get("card") or machine.get("device") or f"predicted for {predictions['hardware']}"]
    where += [f"{name} {machine[name]}" for name in ("torch", "transformers", "deepspeed") if name in machine]
    parts = [
        "# Plan quality\n",
        f"{', '.join(where)}. {predictions['global_batch']} samples of {predictions['sequence']} tokens a step. "
        f"Predicted beforehand with formulas `{found['formulas']}`.\n",
        claim(found) + "\n",
    ]
    if not found["same_formulas"]:
        parts.append(f"The run used predictions of other formulas (`{machine['formulas']}`).\n")
    head = ["model", "chosen", "best measured", "regret", "Spearman", "by compared", "to choose, s", "sweep, s", "ran"]
    parts.append(
        table(
            head,
            (
                [
                    one["model"],
                    one["chosen"],
                    one["best"] or "-",
                    _share(one["regret"]),
                    _number(one["spearman"], 2),
                    _number(one["spearman_compared"], 2),
                    f"{one['seconds_to_choose']:.1f}",
                    f"{one['sweep_seconds']:.0f}" if one["ran"] else "-",
                    f"{one['ran']} of {one['to_measure']}",
                ]
                for one in found["models"]
            ),
        )
    )
    parts.append(
        "Regret: 1 - tokens/s of the chosen plan / tokens/s of the best that was measured. Spearman: rank correlation "
        "of predicted and measured step time; by compared: of the figure that plans are compared by. To choose: wall "
        f"time of `zerocfg build` on {predictions['cores']} cores; sweep: wall time of all runs of the model.\n"
    )
    if found["sweep_seconds"]:
        parts.append(f"The whole sweep took {found['sweep_seconds']:.0f} s.\n")
    for one in found["models"]:
        parts.append(f"## {one['model']}\n")
        head = ["plan", "status", "predicted step, s", "measured step, s", "error", "tokens/s", "rank", "spread"]
        parts.append(
            table(
                head,
                (
                    [
                        f"**{row['name']}**, chosen" if row["chosen"] else row["name"],
                        row["status"],
                        _number(row["predicted"]),
                        _number(row.get("measured")),
                        percent(row.get("error")),
                        f"{row['tokens_per_second']:,.0f}" if "measured" in row else "-",
                        str(row.get("rank", "-")),
                        _share(row.get("spread")),
                    ]
                    for row in one["rows"]
                ),
            )
        )
    return "\n".join(parts)


def picture(found: Line, path: Path) -> None:
    """Predicted over measured step time, both in seconds on logarithmic axes; chosen plans are ringed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # Text stays text, and ids do not change from one run to the next.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "zerocfg", "font.size": 9})
    figure, axes = plt.subplots(figsize=(5.6, 5.2), layout="constrained")
    values: list[float] = []
    for one, colour in zip(found["models"], COLOURS * len(found["models"]), strict=False):
        ran = [row for row in one["rows"] if "measured" in row]
        if not ran:
            continue
        x, y = [row["measured"] for row in ran], [row["predicted"] for row in ran]
        values += x + y
        words = f"{one['model']}: regret {_share(one['regret'])}, Spearman {_number(one['spearman'], 2)}"
        axes.scatter(x, y, s=18, color=colour, label=words, zorder=3)
        ringed = [index for index, row in enumerate(ran) if row["chosen"]]
        axes.scatter(
            [x[index] for index in ringed], [y[index] for index in ringed], s=90, facecolors="none", edgecolors=colour
        )
    ends = (min(values) * 0.8, max(values) * 1.25)
    axes.plot(ends, ends, color="0.4", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ticks = [tick for tick in TICKS if ends[0] <= tick <= ends[1]]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("measured step, s")
    axes.set_ylabel("predicted step, s (chosen plans ringed)")
    axes.legend(frameon=False, loc="upper left", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, linewidth=0.4, alpha=0.5)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare a run of gpu.py with the predictions.")
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--predictions", type=Path, default=PREDICTIONS)
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not arguments.predictions.is_file():
        print("no predictions: run predict.py first", file=sys.stderr)
        return 1
    predictions = json.loads(arguments.predictions.read_text())
    found = compared(predictions, load(arguments.results) if arguments.results else {})
    text = report(found, predictions)
    print(text)
    if arguments.write:
        arguments.write.mkdir(parents=True, exist_ok=True)
        (arguments.write / "plan.json").write_text(json.dumps(found, indent=1) + "\n")
        (arguments.write / "plan.md").write_text(text)
        if any(one["ran"] for one in found["models"]):
            picture(found, arguments.write / "plan.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
