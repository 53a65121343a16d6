"""Configs that no launch line names: recipes take the reader of those in their tree that lines do name, accelerate
configs an address that lines give. What scripts may mean for them is in :mod:`project_scripts`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zerocfg.record import replace
from zerocfg.run.model import UNKNOWN, Origin, ReaderEvidence, Run, Script, SourceFile, original
from zerocfg.source import disk

FEWEST = 2
"""The least number of recipes in the tree that lines must name."""


def as_siblings(run: Run, known: Sequence[Run], root: Path) -> Run:
    """The run of a recipe by itself, with the reader that every recipe of its tree has whose line is ``known``.

    A repository's launcher often puts the recipe's path together of its own arguments, so that most lines that start
    it are never written down. The tree is the folder below the repository's root; one recipe in it that is read in
    another way, or by a script that nobody understands, and nothing is known.
    """
    top = _top(run.recipe, root)
    if top is None or run.consumer is not None or run.deepspeed is not None or _is_of_tests(run.recipe):
        return run
    lines = [item for item in known if item.launch is not None and item.recipe is not None]
    siblings = [line for line in lines if _top(line.recipe, root) == top]
    if len({id(original(item.recipe)) for item in siblings if item.recipe is not None}) < FEWEST:
        return run
    first = siblings[0]
    if any((item.consumer, item.recipe_reader) != (first.consumer, first.recipe_reader) for item in siblings):
        return run
    if first.consumer not in ("transformers", "trl") or any(item.script is None for item in siblings):
        return run
    evidence = ReaderEvidence("sibling", Origin("file", file=first.recipe))
    script = _script_of([item for item in siblings if _folder(item.recipe) == _folder(run.recipe)])
    return replace(
        run, consumer=first.consumer, recipe_reader=first.recipe_reader, reader_evidence=evidence, script=script
    )


def with_address_of_siblings(run: Run, known: Sequence[Run]) -> Run:
    """The run of an accelerate config by itself, with an address that is unknown where a line that starts a config of
    the same folder gives one: whoever starts this one gives its address in the same way."""
    if run.accelerate is None or run.accelerate.path is None:
        return run
    folder = disk.resolved(run.accelerate.path).parent
    for sibling in known:
        given = sibling.flags.get("main_process_ip")
        config = sibling.accelerate.path if sibling.accelerate is not None else None
        if given is not None and config is not None and disk.resolved(config).parent == folder:
            return replace(run, flags={**run.flags, "main_process_ip": replace(given, value=UNKNOWN)})
    return run


def _script_of(lines: Sequence[Run]) -> Script | None:
    """The script of these lines, where they all start one: a tree has a folder of this name for each kind of training
    (`model/sft`, `model/grpo`)."""
    scripts = {id(line.script): line.script for line in lines}
    return next(iter(scripts.values())) if len(scripts) == 1 else None


def _is_of_tests(recipe: SourceFile | None) -> bool:
    """Whether a recipe lies among tests, which read it with code of their own."""
    return recipe is not None and not {"test", "tests"}.isdisjoint(Path(recipe.name).parts)


def _folder(recipe: SourceFile | None) -> str | None:
    return recipe.path.parent.name if recipe is not None and recipe.path is not None else None


def _top(recipe: SourceFile | None, root: Path) -> str | None:
    """The folder below the root that holds a recipe; None where it lies in the root itself, or outside."""
    if recipe is None or recipe.path is None:
        return None
    path, root = disk.resolved(recipe.path), disk.resolved(root)
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    return parts[0] if len(parts) > 1 else None
