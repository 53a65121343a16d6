"""What came of the faults, as a table.

python -m benchmarks.cluster.report results.jsonl
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path


def main() -> None:
    """A row for each fault; below it what was not named, or stayed."""
    rows: dict[str, list[dict[str, object]]] = defaultdict(list)
    for name in sys.argv[1:]:
        for text in Path(name).read_text().splitlines():
            row = json.loads(text)
            rows[row["fault"]].append(row)
    print("| fault | times | named | left something | seconds, median | most |")
    print("|---|---:|---:|---:|---:|---:|")
    for fault, each in rows.items():
        seconds = [float(str(row["seconds"])) for row in each]
        named, left = sum(bool(row["named"]) for row in each), sum(bool(row["left"]) for row in each)
        figures = f"{statistics.median(seconds):.0f} | {max(seconds):.0f}"
        print(f"| {fault} | {len(each)} | {named} | {left} | {figures} |")
    for fault, each in rows.items():
        for row in each:
            if not row["named"] or row["left"]:
                print(f"\n{fault} {row['number']} at {row['moment']} s, exit code {row['code']}, left {row['left']}:")
                print(str(row["told"])[-1500:])


if __name__ == "__main__":
    main()
