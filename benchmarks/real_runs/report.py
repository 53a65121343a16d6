"""What came of the runs, as Markdown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.real_runs.owner import ANSWERS
from zerocfg.rules.registry import find

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.real_runs.repository import Row

WRONG = ("internal", "crash", "timeout")


def broken(rows: Iterable[Row]) -> bool:
    return any(one.outcome in WRONG or one.unexplained for one in rows)


COLUMNS = (
    "repository",
    "commit",
    "launch",
    "run",
    "outcome",
    "kinds",
    "consumer",
    "engine",
    "older",
    "same",
    "explained",
)


def listing(rows: Sequence[Row]) -> str:
    """A line a run, with nothing of what the repositories' files hold: the kinds of its reasons where it was refused,
    and how many of its settings differ for a reason."""
    lines = ["\t".join(COLUMNS)]
    for one in rows:
        kinds = ",".join(dict.fromkeys(kind for kind, _ in one.reasons))
        same = "yes" if one.compared and not one.differences else "no" if one.compared else ""
        name = one.repository.replace("+", "/", 1)
        cells = (name, one.commit[:12], one.launch, one.run, one.outcome, kinds, one.consumer, one.engine)
        lines.append("\t".join((*cells, "yes" if one.older else "", same, str(len(one.explained) or ""))))
    return "\n".join(lines) + "\n"


def report(rows: Sequence[Row], repositories: int, seconds: float) -> str:
    runs = [one for one in rows if one.run]
    outcomes = Counter(one.outcome for one in rows)
    built = [one for one in runs if one.outcome == "built"]
    compared = [one for one in built if one.compared]
    same = [one for one in compared if not one.differences]
    lines = [
        f"# {outcomes['built']} real runs built\n",
        _table(
            ("", "count"),
            [
                ("repositories", repositories),
                ("repositories with a run", len({one.repository for one in runs})),
                ("runs that init drafts", len(runs)),
                ("**built**", f"**{len(built)}**"),
                ("repositories of these", len({one.repository for one in built})),
                (
                    "launch lines of these that are distinct, by their words",
                    len({one.line for one in built if one.launch}),
                ),
                ("of these at the owner's older releases", sum(one.older for one in built)),
                ("refused, with a reason", outcomes["refused"]),
                ("compared with their own launch line", len(compared)),
                ("of these equal in every setting, variable and argument", len(same)),
                ("differences that the lock gives the reason for", sum(len(one.explained) for one in built)),
                ("**differences without a reason**", f"**{sum(len(one.unexplained) for one in built)}**"),
                ("**internal errors**", f"**{outcomes['internal']}**"),
                ("crashes", outcomes["crash"]),
                ("timeouts", outcomes["timeout"]),
            ],
        ),
        f"\nIn {seconds:.0f} s. Answers of the owner, the same for every repository: {ANSWERS}.\n",
        "## Built\n",
        _table(
            ("consumer", "engine", "emitted for", "runs"),
            [
                (*key, count)
                for key, count in Counter((one.consumer, one.engine, one.launcher) for one in built).most_common()
            ],
        ),
        "\n## Refused\n",
        "A run counts once for each kind of reason.\n",
        _table(("kind", "runs", "for example"), list(_refusals(runs))),
        "\n## Explained by the lock\n",
        _table(("setting", "runs", "for example"), list(_explained(built))),
    ]
    wrong = [one for one in rows if one.outcome in WRONG or one.unexplained]
    if wrong:
        lines += ["\n## Wrong\n", *(f"- {line}" for one in wrong for line in _wrong(one))]
    return "\n".join(lines) + "\n"


def _refusals(runs: Sequence[Row]) -> Iterable[tuple[object, ...]]:
    kinds: Counter[str] = Counter()
    example: dict[str, str] = {}
    for one in runs:
        if one.outcome != "refused":
            continue
        for kind, message in dict(reversed(one.reasons)).items():
            kinds[kind] += 1
            example.setdefault(kind, message)
    for kind, count in kinds.most_common():
        rule = find(kind.removeprefix("lint ")) if kind.startswith("lint ") else None
        yield (f"{kind} {rule.name}" if rule is not None else kind), count, _cell(example[kind])


def _explained(built: Sequence[Row]) -> Iterable[tuple[object, ...]]:
    names = Counter(difference.name for one in built for difference in one.explained)
    example = {difference.name: difference for one in built for difference in one.explained}
    for name, count in names.most_common():
        one = example[name]
        yield f"`{name}`", count, _cell(f"{one.source} -> {one.emitted}: {one.why}")


def _wrong(one: Row) -> Iterable[str]:
    where = f"{one.repository} {one.launch or one.run}"
    for kind, message in one.reasons if one.outcome in WRONG else ():
        yield f"{where}: {one.outcome}: {kind}: {message}"
    for difference in one.unexplained:
        yield f"{where}: {difference.name}: {difference.source} -> {difference.emitted}"


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _cell(text: str) -> str:
    text = " ".join(text.replace("|", "\\|").split())
    return text if len(text) <= 160 else f"{text[:157]}..."
