"""What the calls that a script makes are given: which of them hold training arguments, and what a value becomes when
options of the script's own stand in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from zerocfg.run.model import UNKNOWN, Call, FromLine, Script, Setting

_ARGUMENTS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})


def is_arguments(name: str) -> bool:
    """Whether a class holds the arguments of a Trainer: TrainingArguments, or a config of one of TRL's trainers."""
    library, _, last = name.partition(".")
    return last in _ARGUMENTS if library == "transformers" else library == "trl" and last.endswith("Config")


def filled(setting: Setting, line: Mapping[str, Setting]) -> Setting:
    """A value of the code in which an option of the script's own stands: what the line says, else its default."""
    value = setting.value
    if not isinstance(value, FromLine):
        return setting
    given = line.get(value.option)
    if given is not None:
        return replace(given, overridden=()) if given.value is not None else Setting(UNKNOWN, given.origin)
    known = isinstance(value.default, (str, int, float, bool, type(None), list, dict))
    return Setting(value.default if known else UNKNOWN, setting.origin)


def call_of(script: Script | None, name: str) -> Call | None:
    """The one call of a library's function or class that a script makes; None where there are several."""
    found = [call for call in script.calls if call.name == name] if script is not None else []
    return found[0] if len(found) == 1 else None
