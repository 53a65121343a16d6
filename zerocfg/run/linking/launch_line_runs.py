"""The run of a launch line: the files that its options name, and the script that it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zerocfg.frontends.registry import front_end, recognise, started_by_line, started_module
from zerocfg.run.linking.entry_point import find_entry_point, find_handed_script
from zerocfg.run.linking.follow import Paths, with_framework_recipe, with_misplaced
from zerocfg.run.lowered import with_front_end
from zerocfg.run.model import UNKNOWN, Consumer, Origin, Run, Setting, SourceFile
from zerocfg.run.reader import reader_of
from zerocfg.run.script.arguments import is_arguments
from zerocfg.source.launch.line import LaunchLine, Option

_CONFIGS = (".yaml", ".yml", ".json")


def from_line(paths: Paths, file: SourceFile, line: LaunchLine) -> Run | None:
    number = file.source.place(line.span.start).line
    environment = {
        name: Setting(UNKNOWN if value is None else value, Origin("environment", name, file, (), line.span))
        for name, value in line.environment.items()
    }
    run = Run(
        f"{file.name}:{number}",
        launch=line,
        launch_file=file,
        flags=settings(file, line.options),
        arguments=settings(file, line.script_options),
        environment=environment,
    )
    if line.written:
        from zerocfg.run.linking.heredocs import (  # few scripts write their configs by themselves
            heredoc_finder,
            page_block_finder,
        )

        paths = paths.after(heredoc_finder(file, line.written, line.directory), page_block_finder(file, line.written))
    bases = paths.bases(file, line)
    found = find_entry_point(line, bases)
    if found is not None:
        script, here = found
        run = replace(run, entry_point=script)
        # The job is started where the script is: a file of that name further up is another one.
        real = paths.files.real
        above = frozenset[str]() if line.module else frozenset(map(str, Path(real(here)).parents))
        bases = [here, *(base for base in bases if base != here and real(base) not in above)]
    if line.launcher == "accelerate":
        run, accelerate = paths.followed(run, run.flags.get("config_file"), bases)
        if accelerate is not None and accelerate.kind in ("deepspeed", "recipe", "neighbour"):
            run = with_misplaced(run, accelerate, "accelerate", run.flags["config_file"].origin)
        elif accelerate is not None:
            run = paths.with_accelerate(run, accelerate, bases)
        run = paths.with_deepspeed(run, run.flags.get("deepspeed_config_file"), bases, "accelerate")
    run = _with_script(paths, run, line, bases)
    if (found is not None or not line.directory_known) and front_end(run.consumer) is not None:
        run = replace(run, own_framework=True)  # the script lies here, and so does the framework, or a fork of it may
    if line.launcher == "python" and not _is_known_training(run):
        return None
    files = (
        run.accelerate
        or run.deepspeed
        or run.recipe
        or run.framework_recipe
        or run.missing
        or run.folders
        or run.misplaced
    )
    return run if files or line.launcher == "accelerate" or run.consumer is not None else None


def _is_known_training(run: Run) -> bool:
    """Whether a script that plain Python starts is a front end's, is asked for DeepSpeed, or fills training arguments
    from its line."""
    if "deepspeed" in run.arguments or "deepspeed_config" in run.arguments:
        return True
    if run.launch is not None and started_module(run.launch) is not None:
        return True
    return run.script is not None and any(is_arguments(name) for name in run.script.parsed)


def _with_script(paths: Paths, run: Run, line: LaunchLine, bases: list[Path]) -> Run:
    """The run with the words after the launcher's options: the script and its arguments."""
    arguments = run.arguments
    own = started_by_line(line, {name: setting.value for name, setting in arguments.items()})
    named = _named_recipe(paths, run, line, own, bases)
    if named is not None:
        run = with_framework_recipe(run, own, named)
        bases = bases + paths.around(named)
    elif own is not None and not (line.arguments and (line.arguments[0].value or "").endswith(_CONFIGS)):
        run = with_front_end(run, own)
    if front_end(run.consumer) is not None:
        return paths.with_deepspeed(run, run.arguments.get("deepspeed"), bases, "trainer")
    run = _with_recipe(paths, run, line, bases)
    if run.entry_point is not None and run.entry_point.suffix == ".py":
        from zerocfg.run.linking.script_runs import with_code  # with it comes all that reads Python

        run = with_code(paths, run)
        if run.script is not None and run.script.fixed:
            given = {name: setting for name, setting in run.arguments.items() if setting.origin.kind != "flag"}
            run, arguments = replace(run, arguments=given), given
        script = run.script
        spawned = (
            find_handed_script(line, bases) if script is not None and not (script.reader or script.foreign) else None
        )
        if spawned is not None:
            other = with_code(paths, replace(run, entry_point=spawned))
            if other.script is not None and (other.script.reader or other.script.foreign):
                run = other
    if run.script is not None and run.script.reader is not None and front_end(run.script.reader) is not None:
        run = with_front_end(run, run.script.reader)
        return paths.with_deepspeed(run, run.arguments.get("deepspeed"), bases, "trainer")
    trainer = run.arguments.get("deepspeed")
    if trainer is not None and trainer.value is not True:
        engine = run.script is not None and run.script.reader == "deepspeed"
        run = paths.with_deepspeed(run, trainer, bases, "engine" if engine else "trainer")
    if run.deepspeed is None:
        run = paths.with_deepspeed(run, arguments.get("deepspeed_config"), bases, "engine")
    if run.deepspeed is None and run.script is not None:
        from zerocfg.run.linking.script_runs import with_config_of

        run = with_config_of(paths, run, run.script, arguments, bases)
    return replace(run, consumer=reader_of(run))


def _named_recipe(
    paths: Paths, run: Run, line: LaunchLine, own: Consumer | None, bases: list[Path]
) -> SourceFile | None:
    """The recipe of a framework that a line names: its first word, or any word or value of an option that is certainly
    a recipe of the framework that it starts."""
    for at, word in enumerate(line.arguments if own is not None else line.arguments[:1]):
        start, equals, value = (word.value or "").partition("=")
        name = value if equals and start.startswith("-") else word.value
        if name is None or not name.endswith(_CONFIGS):
            continue
        found = paths.find(Setting(name, Origin("flag", file=run.launch_file, span=word.span)), bases)
        data = found.data() if found is not None else None
        if found is not None and at == 0 and (own is not None or found.kind == "neighbour"):
            return found
        if own is not None and isinstance(data, dict) and recognise(data) == own:
            return found
    return None


def _with_recipe(paths: Paths, run: Run, line: LaunchLine, bases: list[Path]) -> Run:
    """The run with the recipe that `--config`, or the first word after the script, names."""
    config = paths.find(run.arguments.get("config"), bases)
    recipe = paths.as_recipe(config, whole=True) if config is not None else None
    if recipe is not None:
        return replace(paths.with_recipe(run, recipe, bases), recipe_reader="trl")
    if config is not None and config.document is not None and config.document.root is None:
        return replace(run, unreadable=(config,))
    if line.arguments and (first := line.arguments[0].value) and first.endswith(_CONFIGS):
        place = Origin("flag", file=run.launch_file, span=line.arguments[0].span)
        said, alone = Setting(first, place), len(line.arguments) == 1
        config = paths.find(said, bases)
        if config is not None and (recipe := paths.as_recipe(config)) is not None:
            # a script that takes options beside its file has a parser of its own, and nobody knows how it converts
            return replace(paths.with_recipe(run, recipe, bases), recipe_reader="hf" if alone else None)
        if config is None and alone and not first.endswith(".json"):
            return paths.lacking(run, said)
    return run


def settings(file: SourceFile, options: Sequence[Option]) -> dict[str, Setting]:
    """Options by name, dashes stripped and ``-`` read as ``_``; a bare flag is True; the last of a name wins."""
    found: dict[str, Setting] = {}
    for option in options:
        name = option.plain
        value: Any = True
        if option.value is not None:
            value = UNKNOWN if option.value.value is None else option.value.value
        found[name] = Setting(value, Origin("flag", option.name, file, (), option.span))
    return found
