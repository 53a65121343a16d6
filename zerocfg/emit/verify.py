"""Verifies the emitted files by reading them back: they must have the plan's settings, and those of the sources where
the plan has no reason for others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerocfg.emit import recipe
from zerocfg.emit.files import ACCELERATE, DEEPSPEED, LAUNCH, Emitted
from zerocfg.resolve.collect_inputs import node_flags
from zerocfg.resolve.engine.engine_selection import launch_of_ranks
from zerocfg.resolve.plan import Problem
from zerocfg.resolve.resolve import BY_STAGE, STAGE
from zerocfg.run.model import UNKNOWN, Kind, Run, Setting, SourceFile
from zerocfg.run.origins import place_of
from zerocfg.run.resolve_settings import with_settings
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.engine import current_name
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

OWN, REPORT = "an error of zerocfg", "Nothing is written. Please report it, with the files of the run."

# Compared as well: it is the product of emitted values.
BATCH = ("train_batch_size",)


def emitted_run(emitted: Emitted, built: Run) -> Run:
    """The run that the emitted files make, computed as the launched job will see it.

    ``built`` is the run they were made from; what is known of model and hardware is the same, and so is a recipe that
    the plan does not change. The script gets the same words, so what they leave unknown there stays unknown here.
    """
    plan = emitted.plan
    run = replace(built, accelerate=None, deepspeed=None, spec=None, missing=())
    if plan.consumer in ("transformers", "trl") and not arguments_of(built).complete:
        run = replace(run, arguments_whole=False)  # a file that only the launch line names may hold any
    if plan.launcher == "accelerate":
        flags = node_flags() if plan.num_machines > 1 else {}
        run = replace(run, launch=None, flags=flags, accelerate=_file(emitted, ACCELERATE, "accelerate"))
    else:
        line, flags = launch_of_ranks(plan.launcher, plan.num_machines, plan.num_processes // plan.num_machines)
        route = "trainer" if plan.consumer in ("transformers", "trl") else run.deepspeed_route
        run = replace(run, launch=line, flags=flags, deepspeed_route=route)
    if emitted.recipe is not None:
        # The built run may hold chosen values in front of the recipe; now the recipe has to say them.
        arguments = {name: argument for name, argument in built.arguments.items() if name not in plan.changes}
        run = replace(run, recipe=_file(emitted, emitted.recipe, "recipe"), arguments=arguments)
    if DEEPSPEED in emitted.files:
        run = replace(run, deepspeed=_file(emitted, DEEPSPEED, "deepspeed"))
    return with_settings(run)


def _file(emitted: Emitted, name: str, kind: Kind) -> SourceFile:
    source = SourceText((emitted.folder / name).as_posix(), emitted.files[name].decode())
    return SourceFile(source.name, kind, source, load_as(source, "json" if name.endswith(".json") else "yaml"))


def differences(emitted: Emitted, run: Run) -> list[Problem]:
    """Where the emitted files give another value than the plan, or are refused: a bug of zerocfg, if any."""
    return [
        replace(difference, message=f"{OWN}: {difference.message}", help=REPORT)
        for difference in _differences(emitted, run)
    ]


def _differences(emitted: Emitted, run: Run) -> list[Problem]:
    found = [Problem(failure.kind, failure.message) for failure in run.effective.failures]
    found += _recipe_differences(emitted, run)
    fsdp = [name for name in emitted.plan.accelerate if name.startswith("fsdp_config.")]
    for name in (*emitted.plan.deepspeed, *fsdp):
        planned = emitted.plan.settings[name].value
        read = run.effective.get(name)
        if _is_another(planned, read):
            found.append(Problem(name, f"planned {planned!r}, but the emitted files {_gives(read)}"))
    for name, planned in (
        *[(name, emitted.plan.settings[name].value) for name in BATCH if name in emitted.plan.settings],
        ("num_processes", emitted.plan.num_processes),
        ("num_machines", emitted.plan.num_machines),
        ("engine", _engine(emitted)),
    ):
        read = run.effective.get(name)
        if _is_another(planned, read):
            found.append(Problem(name, f"planned {planned!r}, but the emitted files {_gives(read)}"))
    return found


def _is_another(planned: Any, read: Setting | None) -> bool:
    """Whether the emitted files certainly give another value than the planned one."""
    return not _is_open(read) and (read is None or not _same(planned, read.value))


def _is_open(read: Setting | None) -> bool:
    """Whether nobody can tell what the job gets, though the files may state it. A default that is not known differs:
    they do not state it."""
    return read is not None and not read.known and read.origin.kind != "default"


def _gives(read: Setting | None) -> str:
    return "do not give it" if read is None or not read.known else f"give {read.value!r}"


WRITTEN = ("file", "flag")
"""Origins of values that the author of the sources wrote."""
REASONED = ("chosen", "hardware", "computed")
"""Kinds of decisions that say in the lock why a value is another than the sources'."""
PRECISION = "mixed_precision"
EXPORTED = ("ACCELERATE_DYNAMO_", "PARALLELISM_CONFIG_")
"""Variables of accelerate's launcher that are no settings of a run, but reach it."""


def unexplained(emitted: Emitted, source: Run, run: Run) -> list[Problem]:
    """Where the emitted job gets another value than what the author of the sources wrote for theirs, without a reason
    in the lock: an error of zerocfg, if any.

    ``source``: the run as its files start it; ``run``: as the emitted ones do.
    """
    plan = emitted.plan
    engine = source.effective.value("engine", UNKNOWN)
    if engine is not UNKNOWN and engine != plan.engine and (engine, plan.engine) != ("single", "ddp"):
        return []  # the spec names another engine, whose notes say what it leaves out
    found = []
    for name, setting in source.effective.settings.items():
        read = run.effective.value(name, UNKNOWN)
        if not setting.known or setting.origin.kind not in WRITTEN or _same_value(setting.value, read):
            continue
        if _is_open(run.effective.get(name)):
            continue
        decision = plan.changes.get(name) or plan.settings.get(name)
        if current_name(name) != name:
            continue  # compared by its name of today
        if name == PRECISION and plan.engine == "deepspeed" and setting.value in ("no", "fp16", "bf16"):
            continue  # the launcher takes none beside a DeepSpeed file, whose two sections are compared
        if name in BY_STAGE[3] and source.effective.value(STAGE, UNKNOWN) in (0, 1, 2):
            continue  # of stage 3 alone
        if name in plan.dropped or (decision is not None and decision.kind in REASONED):
            continue
        if read is UNKNOWN and name not in plan.deepspeed and plan.engine == "deepspeed" and name not in plan.settings:
            continue  # what DeepSpeed itself reads no more, or the releases do not know
        found.append(_lost(name, setting, run.effective.get(name)))
    if plan.launcher != "accelerate" or source.effective.value("engine", UNKNOWN) == "deepspeed":
        return found
    for name, setting in source.effective.environment.items():
        read = run.effective.environment.get(name)
        decided = (
            name == "ACCELERATE_MIXED_PRECISION" and not source.effective.settings.get("mixed_precision", setting).known
        )
        if not setting.known or setting.origin.kind not in WRITTEN or not (decided or name.startswith(EXPORTED)):
            continue
        if not _is_open(read) and (read is None or str(read.value).lower() != str(setting.value).lower()):
            found.append(_lost(name, setting, read))
    return found


def _lost(name: str, setting: Setting, read: Setting | None) -> Problem:
    message = f"{OWN}: the sources give {setting.value!r}, the files that would be emitted {_gives(read)}"
    return Problem(name, message, REPORT, place_of(setting.origin))


def _same_value(first: object, second: object) -> bool:
    return bool(first == second)


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
