"""Builds the runs of public repositories, and compares what each job gets with what its own launch line gives it:

    python -m benchmarks.real_runs.run FOLDER [-o OUT] [--only WORD] [--jobs N] [--keep FOLDER]

FOLDER holds trees of repositories; nothing is written there. For each, `zerocfg init` drafts the runs, an owner's
answers fill what it asks (``owner.py``), `zerocfg build` builds them one by one, and the settings of each built run are
compared with those of the launch line that it comes from (``compare.py``). OUT gets results.md, results.json and
runs.tsv, a line a run; with --only, what they say of other repositories stays. Exit code 1 where there is a difference
without a reason, an error of zerocfg, a crash or a timeout.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.real_runs.compare import Difference
from benchmarks.real_runs.report import broken, listing, report
from benchmarks.real_runs.repository import Row, rows_of
from benchmarks.wild.repositories import commit_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--only", action="append", default=[], help="part of a repository's name")
    parser.add_argument("--jobs", type=int, default=2, help="processes; they are forked after everything is imported")
    parser.add_argument("--keep", type=Path, help="where what was built is kept")
    given = parser.parse_args()
    trees = sorted(one.resolve() for one in given.folder.iterdir() if one.is_dir())
    trees = [one for one in trees if not given.only or any(word in one.name for word in given.only)]
    began = time.monotonic()
    rows = _kept(given.out, {one.name for one in trees}) if given.out is not None and given.only else []
    before = len({one.repository for one in rows})
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("fork"), max_tasks_per_child=None) as pool:
        work = {pool.submit(partial(rows_of, tree, given.keep and given.keep.resolve())): tree for tree in trees}
        for number, done in enumerate(as_completed(work), 1):
            name = work[done].name
            error = done.exception()
            found = [Row(name, "", outcome="crash", reasons=[("crash", repr(error))])] if error else done.result()
            for row in found:
                row.commit = commit_of(work[done])
            rows += found
            told = ", ".join(f"{count} {word}" for word, count in Counter(one.outcome for one in found).most_common())
            lost = sum(len(one.unexplained) for one in found)
            told += f", {lost} differences without a reason" if lost else ""
            print(f"[{number}/{len(trees)}] {name}: {told or 'no run'}", file=sys.stderr, flush=True)
            if given.out is not None and (number % 20 == 0 or number == len(trees)):
                _write(given.out, rows, before + number, time.monotonic() - began)
    print(report(rows, before + len(trees), time.monotonic() - began))
    return int(broken(rows))


def _kept(out: Path, again: set[str]) -> list[Row]:
    """The rows of an earlier run about other repositories."""
    path = out / "results.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    found = [Row(**{**one, "differences": [Difference(**each) for each in one["differences"]]}) for one in rows]
    return [one for one in found if one.repository not in again]


def _write(out: Path, rows: list[Row], repositories: int, seconds: float) -> None:
    """What is known so far."""
    rows.sort(key=lambda one: (one.repository, one.run))
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.md").write_text(report(rows, repositories, seconds), encoding="utf-8")
    data = json.dumps([asdict(one) for one in rows], indent=1)
    (out / "results.json").write_text(data + "\n", encoding="utf-8")
    (out / "runs.tsv").write_text(listing(rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
