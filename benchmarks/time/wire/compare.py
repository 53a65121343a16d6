"""Runs the cases on the real libraries, compares with the prediction, writes ``results/wire.json`` and ``wire.md``.

    python benchmarks/time/wire/compare.py [words that a label must contain ...]

With words nothing is written. The wire of a case is the sum over its collectives of elements x bytes per element, by
kind of operation; scalars (norms, flags) and the buffers that DDP broadcasts are left out on both sides.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
sys.path.insert(0, str(HERE))

from cases import Case, cases  # noqa: E402

from zerocfg.hardware.catalogue import parse_hardware  # noqa: E402
from zerocfg.memory.time.wire import traffic  # noqa: E402

WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "uint8": 1, "int64": 8}
OPERATIONS = {
    "allreduce_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_": "reduce",
}
SCALARS = 16  # elements; no parameter of the cases is as small
LIBRARIES = ("deepspeed", "torch", "transformers", "accelerate")


def count(chosen: list[Case]) -> list[dict[str, Any]]:
    """What ``count.py`` reports, one answer for each case. Raises RuntimeError when it died."""
    process = subprocess.run(
        [sys.executable, str(HERE / "count.py")],
        input=json.dumps([case.run for case in chosen]),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"DS_ACCELERATOR": "cpu"},
    )
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    if len(answers) != len(chosen):
        raise RuntimeError(f"{len(answers)} of {len(chosen)} cases answered: {process.stderr[-2000:]}")
    return answers


def counted(answer: dict[str, Any]) -> dict[str, int]:
    """Bytes of payload by operation."""
    found: dict[str, int] = defaultdict(int)
    for operator, dtype, elements, _, times in answer["collectives"]:
        if elements > SCALARS:
            found[OPERATIONS[operator]] += elements * WIDTHS[dtype] * times
    return dict(found)


def predicted(case: Case) -> dict[str, int]:
    """The same, by zerocfg."""
    profile = parse_hardware(f"{case.run['world_size']}xcpu")
    found: dict[str, float] = defaultdict(float)
    for one in traffic(case.facts, case.options, case.workload, profile, case.wire).collectives:
        found[one.operation] += one.payload
    return {operation: round(size) for operation, size in found.items()}


def compare(case: Case, answer: dict[str, Any]) -> dict[str, Any]:
    """One row of the results."""
    row: dict[str, Any] = {"label": case.label, "exact": case.exact, "predicted": predicted(case)}
    if "error" in answer:
        return row | {"error": answer["error"]}
    row["counted"] = counted(answer)
    row["collectives"] = answer["collectives"]
    here, there = sum(row["predicted"].values()), sum(row["counted"].values())
    return row | {"difference": here - there, "share": (here - there) / there}


def table(rows: list[dict[str, Any]], versions: dict[str, str], date: str) -> str:
    lines = [
        "# Bytes on the wire: predicted and counted",
        "",
        f"{date}; {', '.join(f'{name} {version}' for name, version in versions.items())}; CPU ranks over gloo.",
        "Payload of one optimizer step on one rank, in bytes. Written by `compare.py`; what it means: `README.md`.",
        "",
        "| case | counted | predicted | difference |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['label']} | failed | | {row['error'].strip().splitlines()[-1][:80]} |")
            continue
        what = "0" if row["difference"] == 0 else f"{row['difference']:+d} ({row['share']:+.1%})"
        here, there = (
            " + ".join(f"{size} {operation}" for operation, size in sorted(row[side].items()))
            for side in ("predicted", "counted")
        )
        lines.append(
            f"| {row['label']} | {there} | {'same' if row['predicted'] == row['counted'] else here} | {what} |"
        )
    right = sum(row.get("predicted") == row.get("counted") for row in rows)
    inexact = [abs(row["share"]) for row in rows if row.get("difference")]
    worst = f", the worst of the others by {max(inexact):.1%}" if inexact else ""
    return "\n".join([*lines, "", f"{right} of {len(rows)} to the byte{worst}.", ""])


def main() -> None:
    words = sys.argv[1:]
    chosen = [case for case in cases() if all(word in case.label for word in words)]
    rows = [compare(case, answer) for case, answer in zip(chosen, count(chosen), strict=True)]
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    text = table(rows, versions, date)
    print(text)
    if not words:
        (HERE / "results").mkdir(exist_ok=True)
        result = {"date": date, "versions": versions, "rows": rows}
        (HERE / "results" / "wire.json").write_text(json.dumps(result, indent=1) + "\n")
        (HERE / "results" / "wire.md").write_text(text)
    if any(row["exact"] and row.get("difference") != 0 for row in rows):
        raise SystemExit("a case that should agree to the byte does not")


if __name__ == "__main__":
    main()
