"""What the training script that a run starts says of the run: arguments, and a DeepSpeed config that it names or
holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from zerocfg.run.linking.follow import Paths
from zerocfg.run.model import Route, Run, Script, Setting
from zerocfg.run.script.arguments import call_of, resolve_option, script_arguments
from zerocfg.run.script.reading import read_script

_NAMED_IN_CODE: tuple[tuple[str, str, Route], ...] = (
    ("transformers.TrainingArguments", "deepspeed", "trainer"),
    ("transformers.Seq2SeqTrainingArguments", "deepspeed", "trainer"),
    ("deepspeed.initialize", "config", "engine"),
    ("accelerate.DeepSpeedPlugin", "hf_ds_config", "accelerate"),
)
"""Calls that take a DeepSpeed config, their argument, and the way that it goes."""


def with_config_of(paths: Paths, run: Run, script: Script, line: Mapping[str, Setting], bases: list[Path]) -> Run:
    """The run with the DeepSpeed config that its code names, or holds as a dict."""
    for name, argument, route in (*_NAMED_IN_CODE, *_of_trl(script)):
        call = call_of(script, name)
        if call is None:
            continue
        if call.config is not None:
            return replace(run, deepspeed=call.config, deepspeed_route=route)
        setting = resolve_option(call.arguments[argument], line) if argument in call.arguments else None
        if setting is not None and isinstance(setting.value, str):
            around = paths.around(script.file)
            return paths.with_deepspeed(run, setting, [*bases, *around], route)
    return run


def _of_trl(script: Script) -> Iterator[tuple[str, str, Route]]:
    """The config of TRL that the script calls, which is training arguments with more; none where it calls several."""
    names = {call.name for call in script.calls if call.name.startswith("trl.") and "deepspeed" in call.arguments}
    if len(names) == 1:
        yield names.pop(), "deepspeed", "trainer"


def with_code(paths: Paths, run: Run) -> Run:
    """The run with its script as it is read, and the training arguments that the code states."""
    return with_script_arguments(replace(run, script=open_script(paths, run.entry_point)))


def with_script_arguments(run: Run) -> Run:
    """The run with the training arguments that its script states."""
    script = run.script
    if script is None or script.reader not in ("transformers", "trl"):
        return run
    recipe = run.recipe.data() if run.recipe is not None else None
    found = script_arguments(script, run.arguments, recipe if isinstance(recipe, dict) else ())
    return replace(run, arguments=found.arguments, arguments_whole=found.whole)


def open_script(paths: Paths, path: Path | None) -> Script | None:
    """A script as it is read; None where there is none."""
    if path is None:
        return None
    try:
        path, root = Path(paths.files.real(path)), Path(paths.files.real(paths.root))
        return read_script(path, paths.files, root if path.is_relative_to(root) else path.parent)
    except (OSError, ValueError):
        return None
