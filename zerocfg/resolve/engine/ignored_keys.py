"""DeepSpeed's own keys in the `deepspeed_config` of an accelerate config, where nobody reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import yaml_number
from zerocfg.resolve.plan import Decision
from zerocfg.resolve.provenance import Provenance
from zerocfg.run.model import Setting

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs

SECTION, ZERO = "deepspeed_config", "zero_optimization"


def with_ignored_keys(inputs: Inputs) -> Inputs:
    """The inputs of a computed run with what accelerate ignores and DeepSpeed has a key for, written where DeepSpeed
    reads it: the emitted job has a DeepSpeed file, and what the author wants is plain. A value of the author's
    DeepSpeed file wins.
    """
    if inputs.engine != "deepspeed" or inputs.run.consumer == "deepspeed":
        return inputs
    found: dict[str, Decision] = {}
    settings = dict(inputs.run.effective.settings)
    written = inputs.run.deepspeed.data() if inputs.run.deepspeed is not None else None
    for item in inputs.run.effective.ignored:
        path, file = item.place.path, item.place.file
        if item.kind != "dead-sub-key" or file is None or len(path) != 2 or path[0] != SECTION:
            continue
        name, value = _target(str(path[1])), _value(file.data(), path)
        if name is None or isinstance(value, (dict, list)) or value is None or _has(written, name):
            continue
        beaten = settings.get(name)
        settings[name] = Setting(value, item.place, () if beaten is None else (beaten,))
        kept = Provenance(inputs.run, inputs.folder).decision(name, Setting(value, item.place))
        found[name] = replace(kept, reason=f"{kept.reason}, where accelerate ignores it")
    if not found:
        return inputs
    keys = ", ".join(name.rpartition(".")[2] for name in found)
    note = f"accelerate ignores {keys} of `{SECTION}`; ds_config.json, which DeepSpeed reads, has what is written there"
    run = replace(inputs.run, effective=replace(inputs.run.effective, settings=settings))
    return replace(inputs, run=run, moved=found, notes=(*inputs.notes, note))


def _target(key: str) -> str | None:
    """The dotted name of a plain value in DeepSpeed's config; None where it has no such key."""
    schema = load_schema("deepspeed")
    for path in ((ZERO, key), (key,)):
        found = schema.find(path)
        if found is not None and found.section(schema) is None:
            return ".".join(path)
    return None


def _value(data: Any, path: tuple[Any, ...]) -> Any:
    """What is meant: YAML 1.1 reads ``5e8`` as text."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    number = yaml_number(data) if isinstance(data, str) else data
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _has(written: Any, name: str) -> bool:
    for part in name.split("."):
        if not isinstance(written, dict) or part not in written:
            return False
        written = written[part]
    return True
