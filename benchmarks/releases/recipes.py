"""``python -m benchmarks.releases.recipes FOLDER...``: public recipes migrated to today's releases.

A folder holds trees of repositories: those of the study, those of the corpus. Recipes are files, launch lines and calls
that state arguments of the Trainer or of one of TRL. Each is read by an older release of its library, the newest
one that has the most of its arguments, then migrated from there and read by today's. Writes
``recipes.md`` beside this file; exit code 1 where a name is refused afterwards without being left to a person, or a
setting means something else without being listed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.releases.recipe_finding import OF_THE_MACHINE, Recipe
from benchmarks.releases.recipe_migrating import TODAY, Judged, folder, judged
from tools.facts.environment import ROOT

RESULTS = Path(__file__).with_name("recipes.md")
_OF_THE_RELEASE = frozenset(("average_tokens_across_devices", "project", "trackio_space_id"))
"""Settings that some releases change for a run of one process, and names of trackers."""
_FOLLOWS = frozenset(("do_eval", "eval_steps"))
"""Settings that `eval_strategy` decides where nobody writes them."""
NEW_NAMES = {
    "evaluation_strategy": "eval_strategy",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_model_id": "hub_model_id",
    "max_seq_length": "max_length",
    "torch_dtype": "dtype",
    "include_tokens_per_second": "include_num_input_tokens_seen",
}
"""What has to say the same under the new name, as the release notes say."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a release says of a recipe, as ``recipe_reader`` writes it."""

    refused: frozenset[str]
    error: str | None
    settings: Mapping[str, Any] | None
    warmup: int | None


def said(library: str, version: str | None, asked: Sequence[Recipe]) -> list[Said]:
    """What a release says of recipes; without a version the one of this environment."""
    place = {"PYTHONPATH": str(folder(library, version))} if version is not None else {}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.releases.recipe_reader"],
        input="".join(json.dumps(one.asked()) + "\n" for one in asked),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **place},
    )
    lines = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("SAID ")]
    if len(lines) != len(asked):
        raise RuntimeError(f"{library} {version} judged {len(lines)} of {len(asked)}: {done.stderr[-800:]}")
    return [Said(frozenset(one["refused"]), one["error"], one["settings"], one["warmup"]) for one in lines]


def differing(one: Judged, then: Said, now: Said) -> dict[str, tuple[Any, Any]]:
    """Settings that mean something else, by the name that they have today. Those whose value no file tells, or whose
    name the old release does not have, are not compared."""
    if then.error is not None or now.error is not None or then.settings is None or now.settings is None:
        return {}
    old, new = dict(then.settings), dict(now.settings)
    for name, today in NEW_NAMES.items():
        if name in one.before.values and name in old and name not in new:
            old[today] = old[name]
    if old.get("group_by_length") is True and "group_by_length" not in new:
        old["train_sampling_strategy"] = "group_by_length"
    for both in (old, new):
        if both.get("include_num_input_tokens_seen") is True:
            both["include_num_input_tokens_seen"] = "all"
        both.pop("warmup_steps", None)
        both.pop("warmup_ratio", None)
    found = {
        name: (old[name], new[name]) for name in old.keys() & new.keys() if _meaning(old[name]) != _meaning(new[name])
    }
    untold = {NEW_NAMES.get(name, name) for name in {*one.before.names} - one.before.values.keys() | then.refused}
    untold |= _FOLLOWS if "eval_strategy" in untold else frozenset()
    found = {name: both for name, both in found.items() if name not in OF_THE_MACHINE | _OF_THE_RELEASE | untold}
    return found | ({"warmup": (then.warmup, now.warmup)} if then.warmup != now.warmup else {})


def _meaning(value: Any) -> Any:
    """What asks for nothing is one, and so is a list of one thing and the thing."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return None if value in (False, "", "no", "none") or value in ([], {}) else value


@dataclass(frozen=True, slots=True)
class Row:
    """What releases say of a recipe. ``then``: its old one; ``first`` and ``now``: today's, before and after."""

    judged: Judged
    then: Said
    first: Said
    now: Said | None

    @property
    def gone(self) -> frozenset[str]:
        """Names that today's release refuses and the old one takes."""
        return self.first.refused - self.then.refused

    @property
    def unnamed(self) -> frozenset[str]:
        """Names that the old release takes and that are still refused, without being left to a person."""
        now = self.now.refused if self.now is not None else frozenset(("the recipe, which is not found any more",))
        return now - self.then.refused - self.judged.left.keys()

    @property
    def now_refuses(self) -> bool:
        """Whether a name that the old release takes is still refused."""
        return bool(self.gone) and (self.now is None or bool(self.now.refused & self.gone))

    @property
    def both_read(self) -> bool:
        return self.now is not None and self.there and not (self.then.error or self.now.error)

    @property
    def there(self) -> bool:
        """Whether both releases have the config at all."""
        return self.then.settings is not None and self.first.settings is not None

    @property
    def worse(self) -> bool:
        """Whether values are refused that the old release takes."""
        return self.now is not None and self.now.error is not None and self.then.error is None

    @property
    def differs(self) -> dict[str, tuple[Any, Any]]:
        return differing(self.judged, self.then, self.now) if self.now is not None else {}

    @property
    def unlisted(self) -> dict[str, tuple[Any, Any]]:
        left = {NEW_NAMES.get(name, name) for name in self.judged.left}
        left |= {"warmup"} if "warmup_ratio" in left else set()
        left |= _FOLLOWS if "eval_strategy" in left else set()
        told = self.judged.listed | left
        return {name: both for name, both in self.differs.items() if name not in told}


def compared(found: Sequence[Judged]) -> Iterator[Row]:
    by_old: dict[tuple[str, str], list[Judged]] = {}
    for one in found:
        by_old.setdefault((one.before.library, one.old), []).append(one)
    today = {library: _today(library, found) for library in {library for library, _ in by_old}}
    for (library, old), group in sorted(by_old.items()):
        for one, then in zip(group, said(library, old, [one.before for one in group]), strict=True):
            first, now = today[library][id(one)]
            yield Row(one, then, first, now)


def _today(library: str, found: Sequence[Judged]) -> dict[int, tuple[Said, Said | None]]:
    """What today's release says of each recipe, before and after."""
    own = [one for one in found if one.before.library == library]
    asked = [(id(one), one.before) for one in own]
    asked += [(id(one), one.after) for one in own if one.after is not None]
    answers = said(library, None, [recipe for _, recipe in asked])
    after = {key: answer for (key, _), answer in zip(asked[len(own) :], answers[len(own) :], strict=True)}
    return {id(one): (answer, after.get(id(one))) for one, answer in zip(own, answers[: len(own)], strict=True)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="trees whose name holds this word; no results are written")
    options = parser.parse_args()
    trees = sorted(tree for folder in options.folders for tree in folder.iterdir() if tree.is_dir())
    rows = list(compared([one for tree in trees if options.only in tree.name for one in judged(tree)]))
    wrong = [row for row in rows if row.unnamed or row.worse or row.unlisted or row.judged.again]
    for row in wrong:
        place = f"{row.judged.tree} {row.judged.before.place}, of {row.judged.before.library} {row.judged.old}"
        print(
            place,
            *sorted(row.unnamed),
            row.now.error if row.worse and row.now else "",
            row.unlisted or "",
            "AGAIN" * row.judged.again,
        )
    text = report(rows, len(trees))
    if options.only:
        print(text)
    else:
        RESULTS.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


def report(rows: Sequence[Row], trees: int) -> str:
    kinds = ("file", "line", "call")
    counts: list[tuple[str, Callable[[Row], object]]] = [
        ("recipes", lambda row: True),
        ("for a config that only one of the releases has", lambda row: not row.there),
        ("of which the old release takes every name", lambda row: not row.then.refused),
        ("of which today's release refuses a name that the old one takes", lambda row: row.gone),
        ("... none of them is refused after the migration", lambda row: row.gone and not row.now_refuses),
        ("... those that are refused are left to a person", lambda row: row.now_refuses and not row.unnamed),
        ("... one is refused that nothing is said of", lambda row: row.unnamed),
        ("values that are refused and were not before", lambda row: row.worse),
        ("in a file that a second migration changes again", lambda row: row.judged.again),
        ("settings compared at both releases", lambda row: row.both_read),
        ("... none means something else", lambda row: row.both_read and not row.differs),
        ("... what means something else is listed", lambda row: row.differs and not row.unlisted),
        ("... one means something else and is not listed", lambda row: row.unlisted),
    ]
    lines = [
        "# Public recipes, migrated",
        "",
        f"Written by `python -m benchmarks.releases.recipes` over {trees} trees of public repositories: files,",
        "launch lines and calls that state arguments of the Trainer or of one of TRL, migrated to",
        f"transformers {TODAY['transformers']} and TRL {TODAY['trl']} and read by the real parsers of both sides.",
        "",
        "| | files | launch lines | calls | all |",
        "|---|---|---|---|---|",
    ]
    for what, holds in counts:
        each = [sum(row.judged.before.kind == kind and bool(holds(row)) for row in rows) for kind in kinds]
        lines.append(f"| {what} | {' | '.join(map(str, each))} | {sum(each)} |")
    lines += ["", "## Names that are left to a person", "", "| name | recipes | reason |", "|---|---|---|"]
    left: dict[str, list[str]] = {}
    for row in rows:
        for name in row.judged.left.keys() & row.gone:
            left.setdefault(name, []).append(row.judged.left[name])
    for name, reasons in sorted(left.items(), key=lambda one: -len(one[1])):
        lines.append(f"| `{name}` | {len(reasons)} | {Counter(reasons).most_common(1)[0][0]} |")
    lines += ["", "## Settings that are listed", "", "| argument | recipes | for example |", "|---|---|---|"]
    listed: dict[str, list[str]] = {}
    for row in rows:
        for name, (then, now) in row.differs.items():
            if name not in row.unlisted:
                listed.setdefault(name, []).append(f"{then} -> {now}")
    for name, both in sorted(listed.items(), key=lambda one: -len(one[1])):
        lines.append(f"| `{name}` | {len(both)} | {Counter(both).most_common(1)[0][0]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
