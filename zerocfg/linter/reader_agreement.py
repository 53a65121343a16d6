"""Whether a fix is right whoever reads the files that it edits.

Where a file is read by a run whose reader nobody knows, a fix of it is offered only if each of the readers that there
may be would be offered the same edits, for what is as grave to each.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from zerocfg.budgets import FINDINGS
from zerocfg.linter.applicability import holds, within
from zerocfg.linter.ignores import OWN
from zerocfg.rules.api import Fix, Rule, Severity
from zerocfg.rules.effects import under_deepspeed_launcher
from zerocfg.run.model import Consumer, Run, SourceFile, original
from zerocfg.run.resolve_settings import with_consumer

if TYPE_CHECKING:
    from zerocfg.source.edit import Edit

_ANY: tuple[Consumer, ...] = ("deepspeed", "accelerate", "transformers", "trl")
"""Who may read a config of which nobody knows who does. Frameworks around the Trainer hand theirs on to it."""


def possible(run: Run) -> tuple[Consumer, ...]:
    """Who may read the configs of a run without a known reader. A loop around `deepspeed.initialize` sees nothing of
    what accelerate's launcher hands on about DeepSpeed."""
    handed_on = run.deepspeed_route == "accelerate" or under_deepspeed_launcher(run)
    return _ANY[1:] if handed_on else _ANY


Edits = frozenset[tuple[int, "Edit"]]
Offers = dict[Edits, set[Severity]]
"""The edits that a rule offers a run, each with how grave the findings are that it is offered for."""


class Readers:
    """The runs without a known reader, and what each possible reader of theirs would be offered.

    ``before``: those of an earlier lint, whose answers are taken over for the runs that are the same objects.
    """

    def __init__(self, runs: Iterable[Run], before: Readers | None = None) -> None:
        self._unknown = {id(run): run for run in runs if run.consumer is None}
        self._of_file: dict[int, list[Run]] = {}
        for run in self._unknown.values():
            for file in {id(original(file)) for file in run.files}:
                self._of_file.setdefault(file, []).append(run)
        self._read: dict[int, tuple[Run, ...]] = {}
        self._offered: dict[tuple[str, int], tuple[Offers, ...]] = {}
        if before is not None:
            same = before._unknown.keys() & self._unknown.keys()
            self._read = {key: read for key, read in before._read.items() if key in same}
            self._offered = {key: offered for key, offered in before._offered.items() if key[1] in same}

    def agree(self, rule: Rule, severity: Severity, fix: Fix) -> bool:
        """Whether every reader of the files that the fix edits would be offered these edits, for what is as grave to
        each of them, and no less than it is told."""
        if rule.code in OWN:
            return True  # comments to zerocfg, which nobody else reads
        edits = edits_of(fix)
        reading = {id(run): run for file, _ in fix.edits for run in self._of_file.get(id(original(file)), ())}
        for run in reading.values():
            if _concerns(run, fix):
                alike = set.intersection(*(offers.get(edits, set()) for offers in self._all(rule, run)))
                if not any(grave.rank >= severity.rank for grave in alike):
                    return False
        return True

    def _all(self, rule: Rule, run: Run) -> tuple[Offers, ...]:
        """What a rule offers to each possible reader of a run."""
        if id(run) not in self._read:
            self._read[id(run)] = tuple(with_consumer(run, item) for item in possible(run))
        key = (rule.code, id(run))
        if key not in self._offered:
            self._offered[key] = tuple(_offers(rule, item) for item in self._read[id(run)])
        return self._offered[key]


def _offers(rule: Rule, run: Run) -> Offers:
    offers: Offers = {}
    releases = holds(rule, run)
    if not rule.concerns(run.consumer) or releases is None:
        return offers
    for finding in islice(rule.check(run), FINDINGS):  # of the others nothing is told
        applied = within(run, rule, finding, releases)
        if applied is not None and applied.fix is not None:
            offers.setdefault(edits_of(applied.fix), set()).add(applied.severity or rule.severity)
    return offers


def edits_of(fix: Fix) -> Edits:
    """What a fix changes; fixes that agree in it are one."""
    return frozenset((id(original(file)), edit) for file, edit in fix.edits)


def _concerns(run: Run, fix: Fix) -> bool:
    """Whether a run reads what a fix edits. Of a file with launch lines it reads its own line."""
    files = {id(original(file)) for file in run.files}
    return any(id(original(file)) in files and _in_line(run, file, edit) for file, edit in fix.edits)


def _in_line(run: Run, file: SourceFile, edit: Edit) -> bool:
    if run.launch is None or run.launch_file is None or file is not run.launch_file:
        return True
    return run.launch.span.start <= edit.span.start <= run.launch.span.end
