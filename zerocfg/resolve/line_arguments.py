"""The words behind the script of a launch line, as an emitted job hands them on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zerocfg.run.model import Run


class HandedOn(NamedTuple):
    """A word for the script. ``known`` False: it holds a variable that only the running shell knows."""

    text: str
    known: bool


def line_arguments(run: Run, consumer: str | None, recipe: str | None) -> list[HandedOn]:
    """The words of the run's launch line without those that the emitted job passes by itself: the DeepSpeed config.

    ``recipe``: the path of the run's recipe as the emitted job sees it, which takes the place of the line's.
    """
    words = run.launch.arguments if run.launch is not None else ()
    found: list[HandedOn] = []
    skip = False
    for index, word in enumerate(words):
        text = word.text if word.value is None else word.value
        after = words[index + 1] if index + 1 < len(words) else None
        if skip:
            skip = False
            continue
        name, equals, _ = text.partition("=")
        valued = after is not None and not (after.value or after.text).startswith("-")
        if name in ("--deepspeed", "--deepspeed_config") and (equals or valued):
            skip = not equals
        elif name == "--deepspeed" and consumer == "deepspeed":
            continue
        elif recipe is not None and _is_recipe(run, word.value):
            found.append(HandedOn(recipe, known=True))
        else:
            found.append(HandedOn(text, word.value is not None))
    return found


def _is_recipe(run: Run, value: str | None) -> bool:
    return bool(value) and run.recipe is not None and Path(str(value)).name == Path(run.recipe.name).name
