"""Every value of a run that a policy may ask for, by name: what the engine gets, what the emitted files say, and the
arguments of the training, each with the default that its library gives it where the run does not set it.

Of a name with several values the one counts that decides, in this order; so DeepSpeed's section `bf16` hides the
argument of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.admitted import admitted
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import release, text
from zerocfg.resolve.plan import Decision
from zerocfg.resolve.provenance import Provenance
from zerocfg.rules.argument_reader import methods
from zerocfg.rules.arguments import given
from zerocfg.rules.effects import recipe_data
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import UNKNOWN, Origin, Setting
from zerocfg.run.stages.arguments import arguments_of

if TYPE_CHECKING:
    from zerocfg.gate.model import Target
    from zerocfg.run.model import Run

_TRAINERS = ("transformers", "trl")
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def values_of(target: Target) -> dict[str, Decision]:
    """The values by dotted name; UNKNOWN ones are left out."""
    plan = target.emitted.plan
    found = dict(plan.settings)
    for more in (target.emitted.changes, _arguments(target), plan.accelerate):
        sections = {name.partition(".")[0] for name in found if "." in name}
        for name, decision in more.items():
            if name not in found and name not in sections:
                found[name] = decision
    return {name: decision for name, decision in found.items() if decision.value is not UNKNOWN}


def _arguments(target: Target) -> dict[str, Decision]:
    """The arguments of the training script, as what reads them converts them."""
    run, provenance = target.built.run, Provenance(target.built.run, target.spec.folder)
    read = arguments_of(run) if run.consumer in _TRAINERS else None
    settings = dict(_defaults(run)) if read is not None and read.complete else {}
    written = {str(name) for name in recipe_data(run)} | {_plain(name) for name in run.arguments}
    for name in written:
        setting = given(run, name)
        if setting is not None:
            settings[name] = Setting(_number(setting.value), setting.origin, setting.overridden)
    if read is not None:
        known = {name: setting for name, setting in read.values.items() if setting.known}
        settings.update({name: known[name] for name in known if name not in settings or name in written})
    return {
        name: Decision(setting.value, provenance.reason(name, setting), setting.origin.kind, place)
        for name, setting in settings.items()
        for place in [provenance.place(setting.origin)]
    }


def _defaults(run: Run) -> Iterator[tuple[str, Setting]]:
    """The defaults of the arguments that the class of the run has, at the releases that the build is for."""
    for name in histories("transformers").raw:
        setting = _default(run, "transformers", name) if "." not in name else None
        if setting is not None:
            yield name, setting
    if run.consumer == "trl":
        yield from _defaults_of_trl(run)


def _defaults_of_trl(run: Run) -> Iterator[tuple[str, Setting]]:
    """What the config of the run's trainer adds and replaces; UNKNOWN where several trainers are possible."""
    classes = methods(run)
    for key in histories("trl").raw:
        owner, _, name = key.rpartition(".")
        if owner not in classes:
            continue
        setting = _default(run, "trl", key)
        if len(classes) > 1:
            yield name, Setting(UNKNOWN, Origin("default", "each TRL trainer has its own"))
        elif setting is not None:
            yield name, setting


def _default(run: Run, library: str, key: str) -> Setting | None:
    """The default of an argument in the newest release that the project admits; None where it has none there."""
    among = admitted(library, run.versions.get(library))
    at = among.releases[-1] if among is not None and among.releases else release(VERSIONS[library])
    state = histories(library).state(key, at)
    if state is None or "default" not in state:
        return None
    return Setting(state["default"], Origin("default", f"{library} {text(at)}"))


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _number(value: Any) -> Any:
    """A word that no known reader converts, as the number that it spells."""
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value) and len(value) < 20:
        return int(value)
    return float(value) if _NUMBER.fullmatch(value) else value
