"""What is new, gone and the same since an earlier report.

A finding is the same where its repository, rule, file, key and value are; lines may have moved. Of a repository that
one of the two reports lacks, or could not lint, nothing is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zerocfg.fleet.model import Outcome
from zerocfg.record import record


@record(frozen=True)
class Change:
    """Of a rule (``what`` is its code, ``name`` its name) or of a repository: how many findings are new, gone, same."""

    what: str
    name: str
    new: int
    gone: int
    same: int


@record(frozen=True)
class Changes:
    """``new``, ``gone``: diagnostics by repository, of those that were compared. ``added``: repositories that the
    earlier report does not have, ``removed``: those that only it has; ``not_compared``: those that one of the two could
    not lint. ``version``: of the zerocfg that made the earlier report.
    """

    rules: tuple[Change, ...]
    repositories: tuple[Change, ...]
    new: Mapping[str, list[dict[str, Any]]]
    gone: Mapping[str, list[dict[str, Any]]]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    not_compared: tuple[str, ...]
    version: str

    def new_of(self, outcome: Outcome) -> list[dict[str, Any]]:
        return self.new.get(outcome.name, [])

    @property
    def total(self) -> Change:
        return Change(
            "",
            "",
            *(sum(getattr(repository, kind) for repository in self.repositories) for kind in ("new", "gone", "same")),
        )


def changes(outcomes: Sequence[Outcome], before: Sequence[Outcome], version: str) -> Changes:
    """``before``: the outcomes of the earlier report, made by zerocfg ``version``."""
    earlier, now = {outcome.name: outcome for outcome in before}, {outcome.name: outcome for outcome in outcomes}
    both = [name for name in now if name in earlier]
    compared = [name for name in both if not now[name].problem and not earlier[name].problem]
    new: dict[str, list[dict[str, Any]]] = {}
    gone: dict[str, list[dict[str, Any]]] = {}
    by_rule: dict[str, Counter[str]] = {}
    by_repository: dict[str, Counter[str]] = {}
    names: dict[str, str] = {}
    for name in compared:
        kinds = _sorted_out(earlier[name].diagnostics, now[name].diagnostics)
        new[name], gone[name] = kinds["new"], kinds["gone"]
        for kind, diagnostics in kinds.items():
            for diagnostic in diagnostics:
                names[diagnostic["code"]] = diagnostic["name"]
                by_rule.setdefault(diagnostic["code"], Counter())[kind] += 1
                by_repository.setdefault(name, Counter())[kind] += 1
    return Changes(
        _changes(sorted(by_rule), by_rule, names),
        _changes([name for name in compared if name in by_repository], by_repository, {}),
        new,
        gone,
        tuple(name for name in now if name not in earlier),
        tuple(name for name in earlier if name not in now),
        tuple(name for name in both if name not in compared),
        version,
    )


def _sorted_out(before: Iterable[dict[str, Any]], now: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    earlier = {item["fingerprint"]: item for item in before}
    found = {item["fingerprint"]: item for item in now}
    return {
        "new": [item for key, item in found.items() if key not in earlier],
        "gone": [item for key, item in earlier.items() if key not in found],
        "same": [item for key, item in found.items() if key in earlier],
    }


def _changes(order: Iterable[str], counts: Mapping[str, Counter[str]], names: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(
        Change(item, names.get(item, item), counts[item]["new"], counts[item]["gone"], counts[item]["same"])
        for item in order
    )
