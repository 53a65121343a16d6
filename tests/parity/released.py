"""zerocfg held against releases of a library: what each of them says of the same cases, and where zerocfg says
something else.

A release is installed in a folder of its own (tools/facts) and judges in a program of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from tools.facts.environment import CACHE, ROOT, Release, install
from tools.facts.environment import releases as known

Case = TypeVar("Case")
Said = Any
"""What a release says of a case: how it refuses it and None where it does not, or a mapping with that as "error"."""
Versions = dict[str, str]
"""As a run states them: by library its clauses."""


@dataclass(frozen=True)
class Comparison(Generic[Case]):
    """``program``: the module that judges inside a release; it reads a case a line. ``releases``: those that are asked
    where none is named.

    ``people``: the cases that they wrote, of the corpus alone or of the rules' examples, too. ``made``: others, as many
    of those that vary as asked for; ``examples`` where nothing is asked. ``fits``: whether a release has what a case is
    about. ``differs``: in which ways zerocfg, with these releases pinned, says something else. ``limits``: what is
    known to differ, in words, and what it looks like.
    """

    program: str
    releases: tuple[str, ...]
    people: Callable[[bool], list[Case]]
    made: Callable[[int], list[Case]]
    differs: Callable[[Versions, Case, Said], Iterator[str]]
    limits: Mapping[str, re.Pattern[str]]
    examples: int = 0
    fits: Callable[[str, Case], bool] = lambda _version, _case: True


@dataclass(frozen=True)
class Compared(Generic[Case]):
    """``made``: how many of the cases nobody wrote; ``wrong``: disagreements with their cases; ``limited``: how often
    each limit was met."""

    cases: int
    made: int
    refused: int
    wrong: list[tuple[str, Case]]
    limited: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """How many cases are judged otherwise."""
        return len({json.dumps(case) for _, case in self.wrong})


def of_library(library: str, wanted: Sequence[str]) -> list[Release]:
    """The releases of a library that are wanted, oldest first; ``all`` for every known one."""
    return [one for one in known() if one.library == library and ("all" in wanted or one.version in wanted)]


def compared(
    comparison: Comparison[Case], release: Release, people: Sequence[Case], made: Sequence[Case]
) -> Compared[Case]:
    given = [case for case in once([*people, *made]) if comparison.fits(release.version, case)]
    written = sum(comparison.fits(release.version, case) for case in once(people))
    versions, verdicts = judged(release, comparison.program, given)
    wrong: list[tuple[str, Case]] = []
    limited: Counter[str] = Counter()
    for case, said in zip(given, verdicts, strict=True):
        for problem in comparison.differs(versions, case, said):
            limit = next((name for name, look in comparison.limits.items() if look.search(problem)), None)
            if limit is None:
                wrong.append((problem, case))
            else:
                limited[limit] += 1
    refused = sum((said["error"] if isinstance(said, dict) else said) is not None for said in verdicts)
    return Compared(len(given), len(given) - written, refused, wrong, limited)


def judged(release: Release, program: str, cases: Sequence[object]) -> tuple[Versions, list[Said]]:
    """What a release says of each case; and the releases that said it: its own, and those that the program names."""
    done = subprocess.run(
        [sys.executable, "-m", program],
        input="".join(json.dumps(one) + "\n" for one in cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(_installed(release))},
    )
    said = [json.loads(line[8:]) for line in done.stdout.splitlines() if line.startswith("VERDICT ")]
    if len(said) != len(cases):
        raise RuntimeError(f"{release.name} judged {len(said)} of {len(cases)}: {done.stderr[-800:]}")
    beside = re.findall(r"^WITH (\w+) (\S+)$", done.stdout, re.MULTILINE)
    return {release.library: f"=={release.version}", **{name: f"=={version}" for name, version in beside}}, said


def _installed(release: Release) -> Path:
    folder = CACHE / "installed" / release.name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as new:
            install(release, Path(new, "whole"))
            Path(new, "whole").rename(folder)
    return folder


def drawn(strategy: SearchStrategy[Case], examples: int) -> list[Case]:
    """So many different cases of a strategy, the same ones in every run."""
    found: list[Case] = []
    every = list(HealthCheck)

    @settings(max_examples=2 * examples, deadline=None, derandomize=True, database=None, suppress_health_check=every)
    @given(case=strategy)
    def collect(case: Case) -> None:
        found.append(case)

    if examples:
        collect()
    return once(found)[:examples]


def once(cases: Sequence[Case]) -> list[Case]:
    """Each case once, in its order."""
    return list({json.dumps(case): case for case in cases}.values())
