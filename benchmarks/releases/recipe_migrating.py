"""Recipes migrated to today's releases, each from the newest older release that has its arguments."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.releases.recipe_finding import Recipe, recipes, rewritten
from tools.facts.environment import CACHE, install
from tools.facts.environment import releases as known
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import release
from zerocfg.migrate.migration import Done, migrate
from zerocfg.rules.effects import recipe_data
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run

TODAY = {"transformers": "5.23.0", "trl": "1.16.0"}
OLD = {
    "transformers": ("4.36.2", "4.40.2", "4.44.2", "4.46.3", "4.51.3", "4.57.6", "5.0.0", "5.14.1"),
    "trl": ("0.13.0", "0.16.1", "0.19.1", "0.22.2", "0.29.1", "1.5.1"),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A recipe before and after. ``old``: the release that it is migrated from; ``left``: names that are left to a
    person, with the reason; ``listed``: arguments whose default the migration tells to be another one, or writes out
    elsewhere, and those that its run states in another place or as options of its own; ``again``: whether a second
    migration changes its file again."""

    tree: str
    before: Recipe
    after: Recipe | None
    old: str
    left: Mapping[str, str]
    listed: frozenset[str]
    again: bool


def old_of(recipe: Recipe) -> str:
    """The newest release that has the most of the names."""
    return max(
        OLD[recipe.library], key=lambda one: (sum(_has(name, recipe, one) for name in recipe.names), release(one))
    )


def _has(name: str, recipe: Recipe, version: str) -> bool:
    if recipe.library == "transformers":
        return _in("transformers", name, version)
    own = (f"{one}.{name}" for one in (recipe.config, "ScriptArguments", "ModelConfig"))
    return any(_in("trl", key, version) for key in own) or _in("transformers", name, beside(version))


def _in(library: str, key: str, version: str) -> bool:
    known = histories(library)
    return key in known.raw and known.state(key, release(version)) is not None


@cache
def beside(version: str) -> str:
    """The transformers that a release of TRL is installed with."""
    metadata = next(folder("trl", version).glob("transformers-*.dist-info"))
    return metadata.name.removeprefix("transformers-").removesuffix(".dist-info")


@cache
def folder(library: str, version: str) -> Path:
    """Where a release is installed; it is when it is not there yet."""
    one = next(one for one in known() if (one.library, one.version) == (library, version))
    place = CACHE / "installed" / one.name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as new:
            install(one, Path(new, "whole"))
            Path(new, "whole").rename(place)
    return place


def judged(tree: Path) -> list[Judged]:
    """The recipes of a tree, each with what it is after a migration from its old release."""
    tree, files = tree.resolve(), Files()
    runs, _ = find_runs([tree], files, root=tree, scripts=True)
    by_old: dict[tuple[tuple[str, str], ...], list[tuple[Recipe, Run]]] = {}
    for recipe, run in recipes(runs):
        by_old.setdefault(tuple(_source(recipe).items()), []).append((recipe, run))
    found: list[Judged] = []
    for source, group in by_old.items():
        own = list({id(run): run for _, run in group}.values())
        moved = migrate(own, TODAY, dict(source))
        again, _ = find_runs([tree], files.with_texts(moved.texts), root=tree, scripts=True)
        after = {one.place: one for one, _ in recipes(again)}
        changed = migrate(again, TODAY, dict(source)).texts.keys() & moved.texts.keys()
        reasons = {(one.span.file.name, one.span.start): one.why for one in moved.left}
        for one, run in group:
            path = one.place[0]
            told = migrate([run], TODAY, dict(source))
            told_of = {name for each in (*told.done, *told.left) if _of(each, one) for name in each.names}
            now = after.get(one.place) if path in moved.texts else one
            if path in moved.texts and one.kind == "file":
                now = rewritten(one, run, moved.texts[path])
            found.append(
                Judged(
                    tree.name,
                    one,
                    now,
                    dict(source)[one.library],
                    {name: reasons[place] for name, place in one.places.items() if place in reasons},
                    frozenset(told_of | (run.arguments.keys() | recipe_data(run).keys()) - set(one.names)),
                    path in changed,
                )
            )
    return found


def _of(each: Done, recipe: Recipe) -> bool:
    """Whether a step speaks of a recipe, among all that its run takes part in."""
    return recipe.at is None or recipe.at == (each.span.file.name, each.span.start)


def _source(recipe: Recipe) -> dict[str, str]:
    old = old_of(recipe)
    return {"trl": old, "transformers": beside(old)} if recipe.library == "trl" else {"transformers": old}
