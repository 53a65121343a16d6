"""The run that is to resume: what of it decides whether a checkpoint fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.compare.sides import ARGUMENTS, SETTINGS, Side, Value, open_side
from zerocfg.run.trainer_state import STRATEGIES

if TYPE_CHECKING:
    from zerocfg.run.discover import Files


@dataclass(slots=True)
class Target:
    """None: not known. ``world_size`` counts processes; ``origins``: where a value comes from, by field.

    ``own_scheduler``: the DeepSpeed config has one, so its state is in DeepSpeed's own files and not in scheduler.pt.
    ``steps``: by argument, as they are written, where the run logs, evaluates or saves by steps. ``precision`` is bf16,
    fp16 or fp32; ``state_dict_type`` and ``fsdp_version`` are of FSDP alone.
    """

    name: str
    engine: str | None = None
    world_size: int | None = None
    stage: int | None = None
    precision: str | None = None
    universal: bool = False
    trainer: bool | None = None
    own_scheduler: bool = False
    fsdp_version: int | None = None
    state_dict_type: str | None = None
    steps: dict[str, int] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def provenance(self, name: str) -> str:
        """Where the value of a field comes from, in brackets; empty where that is not known."""
        origin = self.origins.get(name)
        return f" ({origin})" if origin else ""


_KEYS = {
    "engine": "engine",
    "world_size": "num_processes",
    "stage": "zero_optimization.stage",
    "universal": "checkpoint.load_universal",
    "fsdp_version": "fsdp_config.fsdp_version",
    "state_dict_type": "fsdp_config.fsdp_state_dict_type",
}
_TYPES: dict[str, type] = {"engine": str, "universal": bool, "state_dict_type": str}


def open_target(text: str, files: Files) -> Target:
    """A build, a run of a spec, a config or a launch line.

    Raises `zerocfg.compare.sides.SideError`, or `zerocfg.emit.lock.LockError`.
    """
    return from_side(open_side(text, files))


def from_side(side: Side) -> Target:
    """What decides about resuming, of the effective settings and arguments of a run."""
    found = Target(side.name)
    settings, arguments = side.groups.get(SETTINGS, {}), side.groups.get(ARGUMENTS, {})
    for name, key in _KEYS.items():
        value = settings.get(key)
        if value is not None and _fits(value.value, _TYPES.get(name, int)):
            setattr(found, name, value.value)
            found.origins[name] = value.origin
    if found.engine in ("deepspeed", None) and found.stage is None and _section(settings, "zero_optimization."):
        found.stage = 0
    if found.engine is None and found.stage is not None:
        found.engine = "deepspeed"
    found.precision = _precision(found, settings, arguments)
    found.trainer = True if "save_only_model" in arguments or "output_dir" in arguments else None
    found.steps = _steps(arguments)
    scheduler = settings.get("scheduler.type")
    found.own_scheduler = scheduler is not None and isinstance(scheduler.value, str)
    return found


def _steps(arguments: dict[str, Value]) -> dict[str, int]:
    found = {}
    for name, strategy in STRATEGIES.items():
        asked, by = arguments.get(name), arguments.get(strategy)
        if asked is not None and asked.said and _fits(asked.value, int) and by is not None and by.value == "steps":
            found[name] = asked.value
    return {name: value for name, value in found.items() if isinstance(value, int) and value > 0}


def _fits(value: object, wanted: type) -> bool:
    return isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))


def _section(settings: dict[str, Value], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in settings)


def _precision(found: Target, settings: dict[str, Value], arguments: dict[str, Value]) -> str | None:
    for name in ("bf16", "fp16"):
        enabled = settings.get(f"{name}.enabled") if found.engine == "deepspeed" else arguments.get(name)
        if enabled is not None and enabled.value is True:
            found.origins["precision"] = enabled.origin
            return name
    mixed = settings.get("mixed_precision")
    refused = [settings.get(f"{name}.enabled") for name in ("bf16", "fp16")]
    denied = all(item is not None and item.said and item.value is False for item in refused)
    if mixed is not None and mixed.value in ("bf16", "fp16") and not (found.engine == "deepspeed" and denied):
        found.origins["precision"] = mixed.origin
        return str(mixed.value)
    if found.engine == "deepspeed" and all(item is not None and item.value is False for item in refused):
        return "fp32"
    return "fp32" if mixed is not None and mixed.value == "no" else None
