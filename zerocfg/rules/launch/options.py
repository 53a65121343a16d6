"""What `accelerate launch` takes for an option, from its line or its config, and what follows for several rules."""

from __future__ import annotations

from zerocfg.catalog.values import whole_number
from zerocfg.record import replace
from zerocfg.rules.api import Fix
from zerocfg.rules.effects import accelerate_data, effective_value, under_deepspeed_launcher
from zerocfg.rules.key import Key, accelerate, from_origin
from zerocfg.rules.line import line_fix, line_option, says
from zerocfg.run.model import UNKNOWN, Run

_RANKS = frozenset(("MULTI_GPU", "DEEPSPEED", "FSDP", "MEGATRON_LM"))
"""Kinds of job (``distributed_type``) that torchrun starts."""


def launcher_option(run: Run, name: str) -> Key:
    """An option where the launcher takes it from: its flag, whose digits are a number, a key of the section, or the
    top level of the config. No value where another launcher starts the job."""
    flag = run.flags.get(name)
    if flag is not None:
        number = whole_number(flag.value)
        return from_origin(run, flag.origin, flag.value if number is None else number)
    top, inner = accelerate(run, name), accelerate(run, "deepspeed_config", name)
    key = top if inner.value is None else inner
    return key if run.launch is None or run.launch.launcher == "accelerate" else replace(key, value=None)


def machines_of(run: Run) -> int:
    """The number of machines: 1 where nothing says it, 0 where that cannot be told."""
    key = launcher_option(run, "num_machines")
    return 1 if key.value is None else max(key.count or 0, 0)


def number_fix(run: Run, name: str, value: int) -> Fix | None:
    """Another number under a key of the accelerate config, or under its option of the launch line."""
    why, option, key = f"write {name} {value}", line_option(run, name), accelerate(run, name)
    if option:
        return line_fix(run, why, option.reworded(f"{option.name} {value}"), gives=says(name, str(value)))
    return key.replace(str(value), why, safe=False)


def listed(devices: str) -> list[str]:
    """The devices that a list like ``0,1`` names."""
    return [part for part in devices.split(",") if part.strip()]


def by_torchrun(run: Run) -> bool:
    """Whether accelerate starts the ranks with torchrun: known too where the Trainer's arguments, which decide about
    the engine, are not."""
    engine = effective_value(run, "engine")
    if engine is UNKNOWN:
        named = accelerate_data(run).get("distributed_type")
        return isinstance(named, str) and named in _RANKS
    return engine in ("deepspeed", "fsdp", "ddp", "megatron")


def under_runner(run: Run) -> bool:
    """Several machines under the `deepspeed` program (pdsh by default) instead of torchrun on each."""
    starter = launcher_option(run, "deepspeed_multinode_launcher")
    return under_deepspeed_launcher(run) and starter.value != "standard"
