"""What the verdict of a preflight costs as nodes grow: made lines of N ranks, eight on a node, as cards would say them.

    python -m benchmarks.preflight.scale [RANKS...] [--write FILE]

For each N: CPU seconds for the rounds that a rank works out (once a sweep), lines and bytes that a rank prints, CPU
seconds and peak memory of the judge. The last column divides the judge's time by N log2 N: it must not grow.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from tests.preflight.fleet import node
from zerocfg.preflight.judge import judge
from zerocfg.preflight.messages import Collective, Done, Facts, Local, Message, Pair, line
from zerocfg.preflight.tournament import rounds

EACH, SWEEPS, ATTEMPTS = 8, 7, 2
LOCAL = ("matrix products, bf16", "copies to the card", "copies from the card")


def messages(ranks: int) -> Iterator[Message]:
    """Lines of a clean fleet, 1% of noise."""
    chance = random.Random(ranks)
    facts = node()
    for rank in range(ranks):
        number, local = divmod(rank, EACH)
        told = facts if local == 0 else None
        yield Facts(rank=rank, local_rank=local, world=ranks, node=str(number), host=f"n{number}", time=1e9, facts=told)
    met = rounds(ranks)
    for attempt in range(ATTEMPTS):
        for sweep in range(SWEEPS):
            for rank in range(ranks):
                for what in LOCAL:
                    rate = chance.gauss(100, 1)
                    yield Local(rank=rank, what=what, unit="GB/s", rate=rate, attempt=attempt, sweep=sweep)
            for one, other in (pair for pairs in met for pair in pairs):
                like = "in a node" if one // EACH == other // EACH else "between nodes"
                yield Pair(
                    rank=one,
                    partner=other,
                    megabytes=64,
                    seconds=chance.gauss(0.01, 0.0001),
                    like=like,
                    attempt=attempt,
                    sweep=sweep,
                )
            for number in range(ranks // EACH):
                yield Collective(
                    rank=number * EACH,
                    what="all-reduce",
                    ranks=EACH,
                    node=str(number),
                    busbw_gb_s=chance.gauss(200, 2),
                    attempt=attempt,
                    sweep=sweep,
                )
    for rank in range(ranks):
        yield Done(rank=rank, seconds=30.0)


def measure(ranks: int) -> tuple[float, int, int, float, float, int]:
    """In a process of its own: rounds, lines and bytes of all, seconds and MiB of the judge, findings."""
    start = time.process_time()
    rounds(ranks)
    met = time.process_time() - start
    lines = [(f"n{one.rank // EACH}", line(one)) for one in messages(ranks)]
    size = sum(len(text) + 1 for _, text in lines)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    verdict = judge(lines, ranks)
    seconds = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return met, len(lines), size, seconds, grown, len(verdict.findings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", type=int, nargs="*", default=[8, 64, 512, 1024, 2048, 4096])
    parser.add_argument("--write", type=Path, metavar="FILE", help="the figures, a line of JSON each")
    told = parser.parse_args()
    written = []
    print("| ranks | rounds, s | lines of a rank | KiB of a rank | judge, s | judge, MiB | findings | us / N log2 N |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for ranks in told.ranks:
        with get_context("spawn").Pool(1) as pool:
            met, lines, size, seconds, grown, findings = pool.apply(measure, (ranks,))
        each = seconds * 1e6 / (ranks * math.log2(ranks))
        figures = f"{lines / ranks:.0f} | {size / ranks / 1024:.1f} | {seconds:.2f} | {grown:.0f} | {findings}"
        print(f"| {ranks} | {met:.4f} | {figures} | {each:.1f} |", flush=True)
        written.append({"ranks": ranks, "kib": size / ranks / 1024, "judge_cpu": seconds, "judge_mib": grown})
    if told.write is not None:
        told.write.write_text("".join(f"{json.dumps(one)}\n" for one in written))


if __name__ == "__main__":
    main()
