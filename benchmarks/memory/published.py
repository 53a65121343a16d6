"""Predictions for the published rows, beside what others predict, and their errors.

    python benchmarks/memory/published.py [--group clean] [--no-write]

Needs memory_points.csv ($ZEROCFG_MEMORY_POINTS), torch, transformers, deepspeed and accelerate; no card. Traces are
cached, so only the first run takes minutes. Writes results/published.json, published.md and the plots.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory import unprinted  # noqa: E402
from benchmarks.memory.errors import error, gib, percent, spoken, summary, table  # noqa: E402
from benchmarks.memory.estimators import NAMES, others  # noqa: E402
from benchmarks.memory.freeze import formula_hash, write_state  # noqa: E402
from benchmarks.memory.ours import card, of_reading  # noqa: E402
from benchmarks.memory.readings import LEFT_OUT, READINGS, SHAPES, Point, Reading, points, points_file  # noqa: E402
from zerocfg.memory.activations.tracer_process import TraceError  # noqa: E402
from zerocfg.memory.options import Options, TorchOptions  # noqa: E402
from zerocfg.memory.overhead import outside, traced  # noqa: E402
from zerocfg.memory.verdict import judge  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
GROUPS = ("clean", "open", "quarantined")
Row = dict[str, Any]


def described(reading: Reading) -> str:
    """Model and options in a few words."""
    options, work = reading.options, reading.workload
    kind = f"ZeRO-{options.stage}" if isinstance(options, Options) else options.kind
    words = [f"{reading.model}, {kind}, {options.world_size} ranks, {work.micro_batch} x {work.sequence_length}"]
    words += ["checkpointing"] if work.gradient_checkpointing else []
    if isinstance(options, Options):
        offloaded = [part for part in ("optimizer", "param") if getattr(options, f"offload_{part}") != "none"]
        words += [f"{' and '.join(offloaded)} on the host"] if offloaded else []
    words += [f"LoRA {reading.adapters.rank}"] if reading.adapters else []
    return ", ".join(words)


PUBLISHERS = {
    "gist.github.com/chenyaofo": "chenyaofo",
    "Lightning-AI/litgpt": "LitGPT",
    "QwenLM/Qwen": "Qwen",
    "InternLM/InternEvo": "InternEvo",
    "AnswerDotAI/fsdp_qlora": "fsdp_qlora",
    "huggingface/blog": "Hugging Face",
}


def engine(options: Options | TorchOptions) -> str:
    """What shards the run."""
    names = {"single": "one device", "ddp": "DDP", "fsdp1": "FSDP 1", "fsdp2": "FSDP 2"}
    return f"ZeRO-{options.stage}" if isinstance(options, Options) else names[options.kind]


def predicted(reading: Reading, point: Point) -> Row:
    """One row of the result. A row that cannot be predicted says why."""
    row: Row = {
        "row": reading.row,
        "what": described(reading),
        "group": reading.group,
        "source": point.source,
        "publisher": next(name for part, name in PUBLISHERS.items() if part in point.source),
        "engine": engine(reading.options),
        "kind": "adapters" if reading.adapters else "all weights",
        "counter": reading.counter,
        "measured": point.measured,
        "ran": point.ran,
        "why": reading.why,
    }
    try:
        facts, prediction = of_reading(reading, SHAPES[reading.model])
    except (ValueError, TraceError) as problem:
        return {**row, "not_predicted": str(problem)}
    accelerator = card(reading.card)
    usable = accelerator.planning_gib
    verdict = judge(prediction, int(usable * (1 << 30)) if usable else None)
    bands = {name: getattr(prediction, name) for name in ("allocated", "reserved", "device")}
    row |= {
        "predicted": bands[reading.counter].expected,
        "allocated": bands["allocated"].expected,
        "activations": traced(prediction.worst),
        "activations_error": prediction.estimate.timeline.error if prediction.estimate.timeline else 0.0,
        "beside": outside(accelerator, reading.options),
        "device": [bands["device"].low, bands["device"].expected, bands["device"].high],
        "moment": prediction.worst.moment,
        "parts": {term.name: size for term, size in prediction.worst.parts},
        "word": verdict.word,
        "chance": verdict.chance,
        "others": others(facts, reading.options, reading.workload),
    }
    if point.measured:
        row["error"] = error(row["predicted"], point.measured)
        row["errors_of_others"] = {
            name: None if size is None else error(size, point.measured) for name, size in row["others"].items()
        }
    if (reading.keeps_logits or reading.own_attention) and point.measured:
        as_read = replace(reading, keeps_logits=False, own_attention=False)
        _, first = of_reading(as_read, SHAPES[reading.model])
        row["as_first_read"] = error(first.allocated.expected, point.measured)
    if point.measured and unprinted.asks(reading):
        row |= unprinted.other_settings(reading, prediction, point.measured)
    return row


def compute(path: Path, wanted: Iterable[Reading] = READINGS) -> list[Row]:
    """All rows of the readings that ``path`` has."""
    found = points(path)
    rows = []
    for reading in wanted:
        if reading.row in found:
            rows.append(predicted(reading, found[reading.row]))
            print(reading.row, percent(rows[-1].get("error")), rows[-1].get("not_predicted", ""), file=sys.stderr)
    return rows


def wrong_verdicts(rows: Iterable[Row]) -> list[Row]:
    """It ran and we say that it does not fit, or it ran out of memory and we say that it fits."""
    return [row for row in rows if row.get("word") == ("does not fit" if row["ran"] else "fits")]


def statistics(rows: list[Row]) -> Row:
    """Per group: ours on all rows, and everybody's on the rows that each knows."""
    found: Row = {}
    for group in GROUPS:
        here = [row for row in rows if row["group"] == group and "error" in row]
        found[group] = {"zerocfg": summary(row["error"] for row in here)}
        for name in NAMES:
            theirs = [row for row in here if row["errors_of_others"][name] is not None]
            found[group][name] = summary(row["errors_of_others"][name] for row in theirs)
            found[group][f"zerocfg on the rows of {name}"] = summary(row["error"] for row in theirs)
    found["other readings of the clean rows"] = unprinted.statistics(rows)
    judged = [row for row in rows if row.get("word") not in (None, "unknown") and row["group"] != "quarantined"]
    found["verdicts"] = {
        "rows": len(judged),
        "wrong": [row["row"] for row in wrong_verdicts(judged)],
        "doubtful": [row["row"] for row in judged if row["word"] in ("likely", "unlikely")],
    }
    return found


def libraries() -> dict[str, str]:
    import accelerate
    import deepspeed
    import torch
    import transformers

    return {module.__name__: module.__version__ for module in (torch, transformers, deepspeed, accelerate)}


def report(content: Row) -> str:
    """results/published.md."""
    rows, found = content["rows"], content["statistics"]
    parts = [
        "# Predicted and measured: published runs\n",
        "Written by `python benchmarks/memory/published.py`; how rows are read and counted is in `../README.md`, why "
        f"in `../readings.py`. Formulas `{content['formulas']}`; whether they are today's says `state.json`. Sizes in "
        "GiB; an error is (predicted - measured) / measured.\n",
        "![predicted against measured](published-scatter.svg)\n",
        "![errors of the estimators](published-errors.svg)\n",
    ]
    titles = {"clean": "Clean rows", "open": "Open rows", "quarantined": "Quarantined rows (in no statistic above)"}
    for group in GROUPS:
        here = [row for row in rows if row["group"] == group]
        parts += [f"## {titles[group]}\n", f"zerocfg, {spoken(found[group]['zerocfg'])}.\n"]
        if group != "quarantined":
            for name in NAMES:
                mine = found[group][f"zerocfg on the rows of {name}"]
                if mine["rows"]:
                    parts.append(f"{name}, {spoken(found[group][name])} (zerocfg there: {spoken(mine)}).\n")
        head = ["row", "what", "counter", "measured", "zerocfg", "error", *NAMES]
        parts.append(table(head, map(_line, here)))
        if group == "clean":
            parts += _other_readings(content)
    changed = [row for row in rows if row["group"] == "clean" and "as_first_read" in row]
    as_read = ", ".join(f"{row['row']} {percent(row['as_first_read'])}" for row in changed)
    parts.append(f"Errors as the rows were first read (Changes in `../README.md`): {as_read}.\n")
    verdicts = [row for row in rows if row.get("word") not in (None, "unknown") and row["group"] != "quarantined"]
    judged = found["verdicts"]
    parts += [
        "## Does it fit?\n",
        f"{judged['rows']} rows ran or did not on a known card. Wrong: {', '.join(judged['wrong']) or 'none'}. "
        f"{len(judged['doubtful'])} are likely or unlikely to. Chances are by the scales of all groups together "
        "(`cross-validation.md`).\n",
        table(
            ["row", "what", "it", "zerocfg says", "chance", "low", "expected", "high"],
            (
                [row["row"], row["what"], "ran" if row["ran"] else "was out of memory", row["word"]]
                + [f"{row['chance']:.0%}"]
                + [gib(size) for size in row["device"]]
                for row in verdicts
                if row["group"] == "verdict" or row["word"] != "fits"
            ),
        ),
        "Rows with a figure that are rightly said to fit are left out of this table.\n",
        "## Left out\n",
        table(["row", "why"], content["left_out"].items()),
        "## Sources\n",
        *(f"- {rows}: {source}\n" for source, rows in sources(rows).items()),
    ]
    return "\n".join(parts)


def _other_readings(content: Row) -> list[str]:
    """The clean rows once more, with what ZeRO-3 keeps gathered read in three ways; the literal one stays first."""
    rows, found = content["rows"], content["statistics"]["other readings of the clean rows"]
    by_reading = unprinted.errors(rows)
    lines = [
        [row["row"], row["what"], gib(row["measured"]), *(percent(by_reading[name][row["row"]]) for name in by_reading)]
        for row in rows
        if row["row"] in by_reading["literal"]
    ]
    for word in ("mean", "worst"):
        lines.append(["", f"{word} of the absolute errors", "", *(f"{found[name][word]:.1%}" for name in by_reading)])
    asked = [row for row in rows if "if_released" in row and row["group"] == "clean"]
    ends = ", ".join(f"{row['row']} {percent(row['if_released'])} to {percent(row['error'])}" for row in asked)
    kept = ", ".join(f"{row} {gib(size)}" for row, size in found["kept_gathered"].items())
    held = [
        f"{row['row']} {percent(row['error'])} as read and {percent(row['as_deepspeed_chat'])} so"
        for row in rows
        if row["group"] == "open" and "as_deepspeed_chat" in row
    ]
    return [
        "## The clean rows with what is not printed read otherwise\n",
        "What ZeRO-3 keeps gathered depends on `stage3_max_live_parameters` and `stage3_max_reuse_distance`, which the "
        "source of the G rows does not print. The literal reading (DeepSpeed's defaults of 1e9, up to 1.9 GiB) is the "
        "one that counts everywhere else. Two readings were added after the comparison and stand beside it:\n",
        table(["row", "what", "measured", *unprinted.NAMES.values()], lines),
        "- **Estimated from the other ZeRO-3 rows** (leave one out): the GiB kept gathered at the peak are the mean of "
        "measured minus predicted without them over the other two ZeRO-3 rows, within what the settings can give: "
        f"{kept}. This is one free number for one source: it comes from measured rows of the same model and program, "
        "and takes up whatever else is wrong with all three alike.\n"
        "- **DeepSpeed-Chat's config**: `stage3_max_live_parameters` and `stage3_prefetch_bucket_size` 3e7, "
        "`stage3_param_persistence_threshold` 1e4, `memory_efficient_linear` false. We do not know that the source "
        "used it. Without checkpointing such a config lets autograd hold all weights until backward: "
        f"{', '.join(held) or 'no such row'}. DeepSpeed 0.14.2 does the same with any config when the model is not "
        "made under `zero.Init`, so this points at the config and does not prove it.\n",
        f"From hardly anything kept gathered to the defaults the errors go from one end to the other: {ends}.\n",
    ]


def _line(row: Row) -> list[str]:
    if "not_predicted" in row:
        return [
            row["row"],
            row["what"],
            row["counter"],
            gib(row["measured"]),
            "-",
            row["not_predicted"],
            *("-" for _ in NAMES),
        ]
    theirs = [
        "-" if size is None else f"{gib(size)} ({percent(row['errors_of_others'][name])})"
        for name, size in row["others"].items()
    ]
    return [
        row["row"],
        row["what"],
        row["counter"],
        gib(row["measured"]),
        gib(row["predicted"]),
        percent(row["error"]),
        *theirs,
    ]


def sources(rows: list[Row]) -> dict[str, str]:
    """Source -> its rows."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["source"], []).append(row["row"])
    return {source: f"{names[0]} to {names[-1]}" if len(names) > 1 else names[0] for source, names in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Predict the published rows and compare.")
    parser.add_argument("--group", choices=(*GROUPS, "verdict"), help="only these rows")
    parser.add_argument("--no-write", action="store_true", help="print the statistics only")
    arguments = parser.parse_args()
    path = points_file()
    if path is None:
        print("memory_points.csv is not here; set ZEROCFG_MEMORY_POINTS", file=sys.stderr)
        return 1
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    formulas = formula_hash()  # now: they may be edited while this runs
    rows = compute(path, [one for one in READINGS if arguments.group in (None, one.group)])
    found = statistics(rows)
    for group in GROUPS:
        print(f"{group}: {spoken(found[group]['zerocfg'])}")
    if arguments.no_write or arguments.group:
        return 0
    content = {
        "formulas": formulas,
        "libraries": libraries(),
        "statistics": found,
        "rows": rows,
        "left_out": LEFT_OUT,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "published.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "published.md").write_text(report(content))
    from benchmarks.memory.plots import error_bars, scatter

    scatter(rows, RESULTS / "published-scatter.svg")
    error_bars(rows, RESULTS / "published-errors.svg")
    write_state()
    return 0


if __name__ == "__main__":
    sys.exit(main())
