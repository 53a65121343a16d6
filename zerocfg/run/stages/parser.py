"""DeepSpeed's parser in the releases that a run admits: what they have for a key that nobody writes, and how they read
one that somebody writes.

Where the releases differ, nobody knows (UNKNOWN), and the origin of the value says what each has.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.check import converted
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.catalog.versions import Release, text
from zerocfg.record import record
from zerocfg.run.config import AUTO
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.stages.admitted import AdmittedKeys, admitted_of

if TYPE_CHECKING:
    from zerocfg.catalog.history import State
    from zerocfg.catalog.schema import Key

_LIBRARY = "deepspeed"


@record(frozen=True, slots=True)
class Parser:
    """DeepSpeed's parser in these releases."""

    releases: AdmittedKeys

    def removed(self, key: str) -> bool:
        """Whether the admitted releases refuse a key that today's release refuses because it was removed."""
        return all(state is not None and bool(state.get("removed")) for _, state in self.releases.states(key))

    def typed(self, section: str) -> bool:
        """Whether all admitted releases check the types of a section that today's release checks."""
        return all(_way(state) != "raw" for _, state in self.releases.states(f"{section}.*"))

    def untyped(self, section: str) -> bool:
        """Whether none of the admitted releases checks the types of a section that today's release checks."""
        states = self.releases.states(f"{section}.*")
        return bool(states) and all(_way(state) == "raw" for _, state in states)

    def unset(self, key: str) -> Setting | None:
        """The default of a key; None where an admitted release has no such key."""
        if any(state is None for _, state in self.releases.states(key)):
            return None
        (_, first), *others = self.defaults(key)
        if not others:
            return Setting(UNKNOWN if isinstance(first, dict) else first, self.releases.origin)
        later = "".join(f", from {text(since)} on {show(value)}" for since, value in others)
        return Setting(UNKNOWN, Origin("default", f"{self.releases.origin.note}: {show(first)}{later}"))

    def newest(self, key: str) -> Setting:
        """The default of the newest of the known releases that are admitted, or of the release known nearest to them:
        what holds for who has to decide for one."""
        values = self.defaults(key)
        origin, known = self.releases.origin, len(values) == 1
        if not known and self.releases.low is not None:
            origin = Origin("default", f"{_LIBRARY} {text(self.releases.high)}, the newest of {self.releases.declared}")
        return Setting(values[0 if self.releases.low is None else -1][1], origin)

    def defaults(self, key: str) -> list[tuple[Release, Any]]:
        """The defaults that a key has in the admitted releases, oldest first, each with the release that brought it."""
        found: list[tuple[Release, Any]] = []
        for since, state in self.releases.states(key) or [(self.releases.high, {})]:
            value = (state or {}).get("default", _today(key))
            if not found or found[-1][1] != value:
                found.append((since, value))
        return found

    def read(self, name: str, key: Key, setting: Setting) -> Setting:
        """A written value as a typed section reads it; refused values and those of untyped sections stay."""
        if setting.value is UNKNOWN or key.facts.get("reads") != "lax":
            return setting
        section = name.rpartition(".")[0] or name
        ways = {_way(state) for _, state in self.releases.states(f"{section}.*")} or {"lax"}
        found = [self._read(name, key, setting, way) for way in sorted(ways)]
        if all(type(item.value) is type(found[0].value) and item.value == found[0].value for item in found):
            return found[0]
        return Setting(UNKNOWN, setting.origin, (setting, *setting.overridden))

    def _read(self, name: str, key: Key, setting: Setting, way: str) -> Setting:
        value = setting.value
        if way == "raw":
            return setting
        if isinstance(value, str) and value == AUTO:
            default = self.unset(name)
            history = (setting, *setting.overridden)
            return setting if default is None else Setting(default.value, default.origin, history)
        read = converted(key, value, way)
        if read is value or (type(read) is type(value) and read == value):
            return setting
        return Setting(read, setting.origin, (setting, *setting.overridden))


def _way(section: State) -> str:
    """How the values of a section are read, in the terms of a key's ``reads``."""
    if section is None or "model" not in section:
        return "raw"
    return "lax 1" if section["model"] == 1 else "lax"


@cache
def _today(key: str) -> Any:
    return load_schema(_LIBRARY).default(key)


TODAY = Parser(AdmittedKeys(_LIBRARY))


def parser_of(run: Run) -> Parser:
    """The parser of the releases that a run admits."""
    return Parser(admitted_of(run, _LIBRARY))
