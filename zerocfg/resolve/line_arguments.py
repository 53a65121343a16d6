"""The words behind the script of a launch line, as an emitted job hands them on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zerocfg.run.model import Run, Setting
    from zerocfg.source.launch.line import Option, Word

CONFIG_OPTIONS = ("deepspeed", "deepspeed_config")
"""Options of scripts that name a DeepSpeed config."""


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
        if name.lstrip("-") in CONFIG_OPTIONS and (equals or valued):
            skip = not equals
        elif name == "--deepspeed" and consumer == "deepspeed":
            continue
        elif recipe is not None and _is_recipe(run, word.value):
            found.append(HandedOn(recipe, known=True))
        else:
            found.append(HandedOn(text, word.value is not None))
    return found


def without_config(run: Run) -> dict[str, Setting]:
    """The script's options by name without those that name the run's DeepSpeed config: the emitted job gets it by its
    launcher. One that names a file that nobody can tell stays: the job would use it."""
    if run.deepspeed is None:
        return dict(run.arguments)
    return {name: argument for name, argument in run.arguments.items() if name not in CONFIG_OPTIONS}


def lacking_configs(run: Run) -> list[tuple[str, Option]]:
    """Options of the run's launch line that name a config which the run does not have: by a variable, or in a folder
    that nobody can tell. Each with the key of a spec that would name it; those of missing files are told as such."""
    if run.launch is None:
        return []
    found = []
    if run.deepspeed is None:
        found += [
            ("deepspeed", script_option)
            for script_option in run.launch.script_options
            if script_option.plain in CONFIG_OPTIONS
        ]
    if run.accelerate is None and run.launch.launcher == "accelerate":
        found += [("accelerate", option) for option in run.launch.options if option.plain == "config_file"]
    reported = {origin.span for origin in run.missing} | {misplaced_file.named.span for misplaced_file in run.misplaced}
    return [(key, option) for key, option in found if _is_file(option.value) and option.span not in reported]


def _is_file(word: Word | None) -> bool:
    return word is not None and (word.value is None or word.value.endswith((".json", ".yaml", ".yml")))


def _is_recipe(run: Run, value: str | None) -> bool:
    return bool(value) and run.recipe is not None and Path(str(value)).name == Path(run.recipe.name).name
