"""Verifies the emitted files by reading them back: they must have the plan's settings and lint clean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerocfg.emit import recipe
from zerocfg.emit.files import ACCELERATE, DEEPSPEED, LAUNCH, Emitted
from zerocfg.resolve.collect_inputs import node_flags
from zerocfg.resolve.engine.engine_selection import launch_of_ranks
from zerocfg.resolve.plan import Problem
from zerocfg.run.model import UNKNOWN, Kind, Run, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

# Compared as well: it is the product of emitted values.
BATCH = ("train_batch_size",)


def emitted_run(emitted: Emitted, built: Run) -> Run:
    """The run that the emitted files make, computed as the launched job will see it.

    ``built`` is the run they were made from; what is known of model and hardware is the same, and so is a recipe that
    the plan does not change.
    """
    plan = emitted.plan
    run = replace(built, accelerate=None, deepspeed=None, spec=None, missing=())
    if plan.launcher == "accelerate":
        flags = node_flags() if plan.num_machines > 1 else {}
        run = replace(run, launch=None, flags=flags, accelerate=_file(emitted, ACCELERATE, "accelerate"))
    else:
        line, flags = launch_of_ranks(plan.launcher, plan.num_machines, plan.num_processes // plan.num_machines)
        route = "trainer" if plan.consumer in ("transformers", "trl") else run.deepspeed_route
        run = replace(run, launch=line, flags=flags, deepspeed_route=route)
    if emitted.recipe is not None:
        # The built run may hold chosen values in front of the recipe; now the recipe has to say them.
        arguments = {name: one for name, one in built.arguments.items() if name not in plan.changes}
        run = replace(run, recipe=_file(emitted, emitted.recipe, "recipe"), arguments=arguments)
    if DEEPSPEED in emitted.files:
        run = replace(run, deepspeed=_file(emitted, DEEPSPEED, "deepspeed"))
    return with_settings(run)


def _file(emitted: Emitted, name: str, kind: Kind) -> SourceFile:
    source = SourceText((emitted.folder / name).as_posix(), emitted.files[name].decode())
    return SourceFile(source.name, kind, source, load_as(source, "json" if name.endswith(".json") else "yaml"))


def differences(emitted: Emitted, run: Run) -> list[Problem]:
    """Where the emitted files give another value than the plan, or are refused: a bug of zerocfg, if any."""
    found = [Problem(failure.kind, failure.message) for failure in run.effective.failures]
    found += _recipe_differences(emitted, run)
    fsdp = [name for name in emitted.plan.accelerate if name.startswith("fsdp_config.")]
    for name in (*emitted.plan.deepspeed, *fsdp):
        planned = emitted.plan.settings[name].value
        read = run.effective.value(name, UNKNOWN)
        if not _same(planned, read):
            found.append(Problem(name, f"planned {planned!r}, but the emitted file gives {read!r}"))
    for name, planned in (
        *[(name, emitted.plan.settings[name].value) for name in BATCH if name in emitted.plan.settings],
        ("num_processes", emitted.plan.num_processes),
        ("num_machines", emitted.plan.num_machines),
        ("engine", _engine(emitted)),
    ):
        read = run.effective.value(name, UNKNOWN)
        if read is UNKNOWN and name == "engine" and run.recipe is None:
            continue  # the script makes its own arguments, and may name a config there
        if read != planned:
            found.append(Problem(name, f"planned {planned!r}, but the emitted files give {read!r}"))
    return found


def _recipe_differences(emitted: Emitted, run: Run) -> list[Problem]:
    """The changed recipe holds what was planned, and launch.sh hands over that one."""
    if emitted.recipe is None:
        return []
    data = run.recipe.data() if run.recipe else None
    data = data if isinstance(data, dict) else {}
    found = []
    for name, decision in emitted.changes.items():
        if not _same(decision.value, data.get(name, UNKNOWN)):
            message = f"planned {decision.value!r}, but the emitted recipe gives {data.get(name, UNKNOWN)!r}"
            found.append(Problem(name, message))
    if not recipe.is_named(emitted.plan):
        found.append(Problem("arguments", f"{LAUNCH} does not hand over the emitted recipe"))
    return found


def _engine(emitted: Emitted) -> str:
    if emitted.plan.engine == "ddp" and emitted.plan.num_processes == 1:
        return "single"
    return emitted.plan.engine


def _same(planned: Any, read: Any) -> bool:
    return bool(planned == read) and isinstance(planned, bool) == isinstance(read, bool)
