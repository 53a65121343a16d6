"""What the present thresholds make of results that `benchmarks.preflight.repeat` wrote.

python -m benchmarks.preflight.judge results.jsonl
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from pathlib import Path

from zerocfg.preflight import slow
from zerocfg.preflight.messages import read


def main() -> None:
    """Each file by itself."""
    for name in sys.argv[1:]:
        found: Counter[str] = Counter()
        accused, seconds, sizes = 0, [], []
        for text in Path(name).read_text().splitlines():
            one = json.loads(text)
            messages = [message for line in one["lines"] if (message := read(line)) is not None]
            suspects = slow.accused(messages)
            accused += bool(suspects)
            found.update({f"{suspect.kind} {suspect.ranks or suspect.node}" for suspect in suspects})
            seconds.append(one["seconds"])
            ranks = len({message.rank for message in messages})
            sizes.append(sum(len(line) + 1 for line in one["lines"]) / ranks)
        told = ", ".join(f"{who}: {count}" for who, count in found.most_common())
        print(f"{name}: {accused} of {len(seconds)} accused ({told or 'nobody'})")
        print(f"  {statistics.median(seconds):.1f} s as a rule, {max(seconds):.1f} s at most")
        print(f"  {statistics.median(sizes) / 1024:.0f} KiB of lines from each rank")


if __name__ == "__main__":
    main()
