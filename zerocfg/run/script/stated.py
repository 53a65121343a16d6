"""The training arguments of a run whose script was read: what the code says, under and over the launch line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zerocfg.catalog.schema import load_schema
from zerocfg.run.model import UNKNOWN, Origin, Script, Setting
from zerocfg.run.script.arguments import filled, is_arguments


@dataclass(frozen=True, slots=True)
class ScriptArguments:
    """``whole``: an argument that is not among these has its library's default. False: the code may set any."""

    arguments: Mapping[str, Setting]
    whole: bool


def script_arguments(script: Script, line: Mapping[str, Setting]) -> ScriptArguments:
    """The arguments of the script's Trainer, from its code and from the options of a launch line.

    Arguments that the code gives a class itself leave nothing to the line, except where they are options of its own.
    """
    made = [call for call in script.calls if is_arguments(call.name)]
    fields = _fields()
    own = {name: setting for name, setting in line.items() if name not in fields}
    if any(is_arguments(name) for name in script.parsed):
        below = {name: setting for name, setting in script.defaults.items() if name in fields}
        found = {**below, **line}
        whole = not made
    elif len(made) == 1:
        found = {**own, **{name: filled(setting, line) for name, setting in made[0].arguments.items()}}
        whole = made[0].complete
    else:
        found, whole = own, False
    unknown = Setting(UNKNOWN, Origin("computed", "set in the script"))
    found |= {name: unknown for name in sorted(script.assigned & fields) if name in found or whole}
    return ScriptArguments(found, whole)


def _fields() -> frozenset[str]:
    return frozenset(load_schema("training-arguments").root.names) | frozenset(load_schema("trl").root.names)
