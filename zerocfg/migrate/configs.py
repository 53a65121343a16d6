"""DeepSpeed configs and accelerate configs: keys that the new releases do not have, and defaults that they changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zerocfg.catalog.history import Histories, State, histories, name_in
from zerocfg.catalog.versions import Release, release
from zerocfg.migrate.argument_history import changed_default, since
from zerocfg.migrate.plan import Plan
from zerocfg.migrate.program import program_of
from zerocfg.migrate.steps import Drop, Left, Operation, Put, Step, editable
from zerocfg.rules.api import Location
from zerocfg.rules.effects import changed_before, under_trainer
from zerocfg.run.model import Run, SourceFile, original
from zerocfg.source.node import dotted

Names = tuple[str, ...]
_NO_SIZE = -1
"""What sizes say that are not used, as `mics_shard_size`."""
_LEAST_WARMUP = 2
"""DeepSpeed's schedulers with a warmup take any smaller number of steps for this one: ``max(2, warmup_num_steps)``."""


def deepspeed(run: Run, plan: Plan) -> Iterator[Step | Left]:
    known, file = histories("deepspeed"), run.deepspeed
    new = plan.target.get("deepspeed")
    data = file.data() if file is not None else None
    if file is None or new is None or not isinstance(data, dict):
        return
    old = plan.source.get("deepspeed")
    for path, value in written_keys(data):
        step = _removed(known, file, path, value, plan, old, new) or _short_warmup(file, data, path, value, new)
        if step is not None:
            yield step
    if old is not None and not run.parts and not changed_before(run):
        for key, path, then, now in changed_deepspeed(known, data, old, new):
            yield _kept(run, known, file, key, path, then, now, new)


def written_keys(data: Mapping[str, Any], above: Names = ()) -> Iterator[tuple[Names, Any]]:
    """Every key of a config, those of its sections behind them."""
    for name, value in data.items():
        path = (*above, str(name))
        yield path, value
        if isinstance(value, dict):
            yield from written_keys(value, path)


def _removed(
    known: Histories, file: SourceFile, path: Names, value: Any, plan: Plan, old: Release | None, new: Release
) -> Step | Left | None:
    """A key that the new release has no more, or refuses where an older one passed over it."""
    key = ".".join(path)
    at = Location(file, path, "key")
    if key not in known.raw:
        section = f"{'.'.join(path[:-1])}.*" if path[:-1] else "*"
        then = known.state(section, old) if old is not None and section in known.raw else None
        now = known.state(section, new) if section in known.raw else None
        if then is None or now is None or then.get("unknown") != "ignored" or now.get("unknown") != "error":
            return None
        edge = since(known, section, new, "unknown")
        why = (
            f"`{dotted(path[:-1])}` has no `{path[-1]}`: DeepSpeed refuses it from {edge} on and passed over it before"
        )
        return _document_step(file, at, why, (Drop(path),))
    if not is_gone(known.state(key, new)):
        return None
    above = ".".join(path[:-1])
    if above in known.raw and is_gone(known.state(above, new)):
        return None  # the section as a whole goes
    was = next((state for _, state in reversed(known.raw[key]) if not is_gone(state)), None)
    if was is None or not _later(known, key, was, new):
        return None
    why = f"{plan.called('deepspeed')} has no `{dotted(path)}` (gone since {since(known, key, new)})"
    if _off(value) or value == was.get("default") == _NO_SIZE:
        return _document_step(file, at, f"{why}; it is switched off", (Drop(path),))
    return Left(at, why)


def is_gone(state: State) -> bool:
    """Whether a release does not have a key any more, or stops at it."""
    return state is None or "removed" in state


def _later(known: Histories, key: str, was: Mapping[str, Any], new: Release) -> bool:
    """Whether the release comes behind those that have a key in this state."""
    return any(state == was and release(edge) <= new for edge, state in known.raw[key])


def _off(value: Any) -> bool:
    """Whether a value asks for nothing: a section that is empty or not enabled, a switch that is off."""
    if isinstance(value, dict):
        return not value or value.get("enabled") is False
    return value is None or value is False


def _short_warmup(
    file: SourceFile, data: Mapping[str, Any], path: Names, value: Any, new: Release
) -> Step | Left | None:
    """A warmup of no steps, which releases before 0.19.3 made 2 of and later ones refuse."""
    kind = _scheduler(data)
    known = histories("deepspeed")
    key = f"scheduler.{kind}.warmup_num_steps"
    if path != ("scheduler", "params", "warmup_num_steps") or key not in known.raw:
        return None
    bound = (known.state(key, new) or {}).get("gt")
    if bound is None or isinstance(value, bool) or not isinstance(value, int) or value > bound:
        return None
    edge = since(known, key, new, "gt")
    why = f"`{dotted(path)}` has to be above {bound} from DeepSpeed {edge} on; {value} was taken for {_LEAST_WARMUP}"
    return _document_step(file, Location(file, path, "value"), why, (Put(path, _LEAST_WARMUP),))


def _scheduler(data: Mapping[str, Any]) -> str | None:
    chosen = data.get("scheduler")
    kind = chosen.get("type") if isinstance(chosen, dict) else None
    return kind if isinstance(kind, str) else None


def changed_deepspeed(
    known: Histories, data: Mapping[str, Any], old: Release, new: Release
) -> Iterator[tuple[str, Names, Any, Any]]:
    """Defaults that apply to a config, because it leaves their key out, and that differ between two releases: the name
    in the histories, the path in the config, both values. Of sections only those that the config has and uses."""
    for key in known.raw:
        both = changed_default(known, key, old, new)
        path = _path(key, data) if both is not None else None
        if both is None or path is None:
            continue
        holder: Any = data
        for part in path[:-1]:
            holder = holder.get(part) if isinstance(holder, dict) else None
        if not isinstance(holder, dict) or path[-1] in holder or holder.get("enabled") is False:
            continue
        if path[-1] == "pin_memory" and holder.get("device", "none") in (None, "none"):
            continue
        yield key, path, *both


def _path(key: str, data: Mapping[str, Any]) -> Names | None:
    """Where a config has the key of a history; None where it is for another scheduler, or no key of a config."""
    parts = tuple(key.split("."))
    if parts[0] in ("optimizer", "words") or parts[-1] == "*":
        return None
    if parts[0] == "scheduler" and len(parts) == 3:
        return ("scheduler", "params", parts[2]) if parts[1] == _scheduler(data) else None
    return parts


def _kept(
    run: Run, known: Histories, file: SourceFile, key: str, path: Names, then: Any, now: Any, new: Release
) -> Step | Left:
    """The old default, written out. The Trainer compares some keys with its arguments, and stops where they differ."""
    at = Location(file, path[:-1], "key") if path[:-1] else Location(file)
    edge = f"DeepSpeed {since(known, key, new, 'default')}"
    why = f"the default of `{dotted(path)}` is {_shown(now)} from {edge} on and was {_shown(then)}"
    if run.consumer not in ("deepspeed", "accelerate") and dotted(path) in _compared():
        who = "the Trainer" if under_trainer(run) else "a Trainer, if one reads it,"
        return Left(at, f"{why}; {who} refuses a value that differs from its argument, so that nothing is written")
    return _document_step(file, at, why, (Put(path, then),))


def _compared() -> frozenset[str]:
    """The keys that the Trainer fills from its arguments, or compares with them."""
    filled = (key for key in histories("transformers").raw if key.startswith("filled."))
    return frozenset(key.removeprefix("filled.") for key in filled)


def _shown(value: object) -> str:
    """As a config writes it."""
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _document_step(file: SourceFile, at: Location, why: str, operations: tuple[Operation, ...]) -> Step | Left:
    return Step(at, why, operations) if editable(file) or program_of(original(file)) is not None else Left(at, why)


def accelerate(run: Run, plan: Plan) -> Iterator[Step | Left]:
    known, file = histories("accelerate"), run.accelerate
    new, old = plan.target.get("accelerate"), plan.source.get("accelerate")
    data = file.data() if file is not None else None
    if file is None or new is None or not isinstance(data, dict):
        return
    if data.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return
    for path, value in written_keys(data):
        step = _dropped_option(known, file, path, value, plan, new) if len(path) <= 2 else None
        if step is not None:
            yield step
    if old is not None:
        for key, path, then, now in changed_accelerate(known, data, old, new):
            edge = f"accelerate {since(known, key, new, 'default')}"
            why = f"the default of `{dotted(path)}` is {_shown(now)} from {edge} on and was {_shown(then)}"
            yield _document_step(file, Location(file, path[:-1], "key"), why, (Put(path, then),))


def _dropped_option(
    known: Histories, file: SourceFile, path: Names, value: Any, plan: Plan, new: Release
) -> Step | Left | None:
    key = name_in("accelerate", path)
    entries = known.raw.get(key, ())
    if not entries or known.state(key, new) is not None:
        return None
    above = known.raw.get(name_in("accelerate", path[:-1])) if path[:-1] else None
    if above and known.state(name_in("accelerate", path[:-1]), new) is None:
        return None  # the section as a whole goes
    if not any(state is not None and release(edge) <= new for edge, state in entries):
        return None  # it came later
    at = Location(file, path, "key")
    why = f"{plan.called('accelerate')} has no `{dotted(path)}` (gone since {since(known, key, new)})"
    if _nothing(value):
        return _document_step(file, at, f"{why}; it asks for nothing", (Drop(path),))
    return Left(at, why)


def _nothing(value: Any) -> bool:
    return all(map(_nothing, value.values())) if isinstance(value, dict) else value in (None, False, "", "no", "false")


def changed_accelerate(
    known: Histories, data: Mapping[str, Any], old: Release, new: Release
) -> Iterator[tuple[str, Names, bool, bool]]:
    """Switches of the launcher whose default differs, in the FSDP section of a config that leaves them out."""
    section = data.get("fsdp_config")
    used = isinstance(section, dict) and data.get("distributed_type") == "FSDP"
    for key in known.raw if used else ():
        name = key.removeprefix("option.")
        both = changed_default(known, key, old, new) if name.startswith("fsdp_") else None
        if both is None or name in section or not {*both} <= {"true", "false"}:  # type: ignore[operator]
            continue
        yield key, ("fsdp_config", name), both[0] == "true", both[1] == "true"
