"""The training arguments that a script's code states, and how options of the launch line fill or override them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zerocfg.catalog.schema import load_schema
from zerocfg.record import record, replace
from zerocfg.run.model import UNKNOWN, Call, FromLine, Origin, Script, Setting

_ARGUMENTS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})
OF_SEQ2SEQ = frozenset(
    "sortish_sampler predict_with_generate generation_max_length generation_num_beams generation_config".split()
)
"""What Seq2SeqTrainingArguments adds to TrainingArguments, in every release that is known."""


def is_arguments(name: str) -> bool:
    """Whether a class holds the arguments of a Trainer: TrainingArguments, or a config of one of TRL's trainers."""
    library, _, last = name.partition(".")
    return last in _ARGUMENTS if library == "transformers" else library == "trl" and last.endswith("Config")


def resolve_option(setting: Setting, line: Mapping[str, Setting]) -> Setting:
    """A value of the code with its own options filled in: from the launch line, else the option's default."""
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


@record(frozen=True, slots=True)
class ScriptArguments:
    """``whole``: an argument that is not among these has its library's default. False: the code may set any."""

    arguments: Mapping[str, Setting]
    whole: bool


def shows_arguments(script: Script) -> bool:
    """Whether a script's code shows where the arguments of its Trainer come from."""
    return any(is_arguments(name) for name in (*script.parsed, *(call.name for call in script.calls)))


def script_arguments(
    script: Script, line: Mapping[str, Setting], recipe: Collection[object] = frozenset()
) -> ScriptArguments:
    """The arguments of the script's Trainer, from its code and from the options of a launch line.

    Arguments that the code gives a class itself leave nothing to the line, except where they are options of its own.
    ``recipe``: the keys of the run's recipe. Where the code shows no parser (H4ArgumentParser, which many copied from
    the alignment handbook) an option of the line is the Trainer's if the recipe has a key of that name, and wins.
    """
    made = [call for call in script.calls if is_arguments(call.name)]
    fields = _fields()
    own = {name: setting for name, setting in line.items() if name not in fields}
    if any(is_arguments(name) for name in script.parsed):
        below = {name: setting for name, setting in script.defaults.items() if name in fields}
        found = {**below, **line}
        whole = not made
    elif len(made) == 1:
        found = {**own, **{name: resolve_option(setting, line) for name, setting in made[0].arguments.items()}}
        whole = made[0].complete
    elif not made and _by_default(script):
        found, whole = own, True
    else:
        found, whole = (
            {name: item for name, item in line.items() if name in own or (name in recipe and not made)},
            False,
        )
    unknown = Setting(UNKNOWN, Origin("computed", "set in the script"))
    found |= {name: unknown for name in sorted(script.assigned & fields) if name in found or whole}
    return ScriptArguments(found, whole)


def _by_default(script: Script) -> bool:
    """Whether the script's trainer makes its arguments by itself, which are then the library's defaults."""
    trainers = [call for call in script.calls if call.name.endswith("Trainer")]
    return (
        len(trainers) == 1 and trainers[0].complete and not trainers[0].derived and "args" not in trainers[0].arguments
    )


def _fields() -> frozenset[str]:
    return frozenset(load_schema("training-arguments").root.names) | frozenset(load_schema("trl").root.names)
