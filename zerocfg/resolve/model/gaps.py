"""The keys of a run that predictions do not follow, and what that leaves of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.schema import load_schema
from zerocfg.memory.verdict import UNKNOWN, Verdict, Word
from zerocfg.resolve.model.register import REGISTER, Key, Sight, Standing, Touch

if TYPE_CHECKING:
    from zerocfg.resolve.model.setup import Setup
    from zerocfg.run.model import Run


@dataclass(frozen=True, slots=True)
class Gap:
    """Keys of one effect that is not in the figures. ``standing``: what these are without it."""

    keys: tuple[tuple[str, Any], ...]
    effect: str
    standing: Standing
    touches: tuple[Touch, ...]

    @property
    def written(self) -> str:
        """``torch_compile: true``"""
        return ", ".join(f"`{name}: {_shown(value)}`" for name, value in self.keys)

    def __str__(self) -> str:
        return f"{self.written} ({self.effect})"


def gaps_of(
    run: Run,
    setup: Setup,
    value: Callable[[str], Any],
    arguments: Mapping[str, Any],
    config: Mapping[str, Any] | None,
) -> tuple[Gap, ...]:
    """What is set and not followed, in the order of the register.

    ``value``: effective settings by dotted name, ``arguments``: the trainer's, ``config``: the model's config.json.
    """
    sight = Sight(setup, value, arguments, run.model, str(run.consumer))
    found: dict[tuple[str, Standing, tuple[Touch, ...]], list[tuple[str, Any]]] = {}
    for key in REGISTER:
        written = _value(key, run, sight, config)
        written = key.default if written is None else written
        if not key.is_quiet(written) and key.applies(sight):
            standing: Standing = "not modelled" if key.standing == "modelled" else key.standing
            found.setdefault((key.effect, standing, key.touches), []).append((_spelled(key), written))
    return tuple(Gap(tuple(keys), *about) for about, keys in found.items())


def verdict_with(verdict: Verdict, gaps: Iterable[Gap]) -> Verdict:
    """What is left of the verdict on figures that some keys are not in: nothing that they could turn.

    Where the figures are at most what the run takes, its chance is at least that of the verdict, and the other way
    round.
    """
    standings = {gap.standing for gap in gaps if "memory" in gap.touches}
    certain: dict[Word, set[Standing]] = {
        "fits": {"at most"},
        "likely": {"at most"},
        "unlikely": {"at least"},
        "does not fit": {"at least"},
    }
    return verdict if standings <= certain.get(verdict.word, set()) else UNKNOWN


def touching(gaps: Iterable[Gap], what: Touch) -> tuple[Gap, ...]:
    """Those that touch memory, time or batch."""
    return tuple(gap for gap in gaps if what in gap.touches)


def untimed(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Those that make a predicted time worthless; of the others it is a bound."""
    return tuple(gap for gap in touching(gaps, "time") if gap.standing == "not modelled")


def _value(key: Key, run: Run, sight: Sight, config: Mapping[str, Any] | None) -> Any:
    if key.exported:
        found = (run.effective.environment.get(name) for name in _variables(key.name))
        return next((setting.value for setting in found if setting is not None), None)
    if key.place == "arguments":
        return _within(sight.arguments, key.name)
    if key.place == "model":
        return (config or {}).get(key.name)
    return sight.setting(key.name)


def _spelled(key: Key) -> str:
    """The key as a file has it; those of parallelism_config repeat the name of their section."""
    return key.name.removeprefix("parallelism_config.")


@lru_cache
def _variables(name: str) -> tuple[str, ...]:
    """The variables that a key of a section of accelerate's config is exported as."""
    schema = load_schema("accelerate")
    section, _, last = name.partition(".")
    inner = schema.root.key(section)
    within = inner.section(schema) if inner is not None else None
    key = within.key(last) if within is not None else None
    return key.variables if key is not None else ()


def _within(arguments: Mapping[str, Any], name: str) -> Any:
    """The argument, or the key of an argument that is a mapping."""
    first, _, rest = name.partition(".")
    value = arguments.get(first)
    return value.get(rest) if rest and isinstance(value, dict) else None if rest else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{{{len(value)} keys}}" if isinstance(value, dict) else str(value)
