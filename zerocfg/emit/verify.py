"""Reading the emitted files back: they must say what the plan says, and lint clean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerocfg.emit.files import ACCELERATE, DEEPSPEED, Emitted
from zerocfg.resolve.inputs import node_flags
from zerocfg.resolve.plan import Problem
from zerocfg.run.effective import compute
from zerocfg.run.model import UNKNOWN, Kind, Run, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

# Compared as well: it is the product of emitted values.
BATCH = ("train_batch_size",)


def emitted_run(emitted: Emitted, built: Run) -> Run:
    """The run that the emitted files make, computed as the launched job will see it.

    ``built`` is the run they were made from; the recipe and what is known of model and hardware are the same.
    """
    run = replace(built, flags={}, accelerate=None, deepspeed=None, spec=None, missing=[])
    if emitted.plan.consumer == "deepspeed":
        run.flags = dict(built.flags)
    else:
        run.launch = None
        run.flags = node_flags() if emitted.plan.num_machines > 1 else {}
        run.accelerate = _file(emitted, ACCELERATE, "accelerate")
    if DEEPSPEED in emitted.files:
        run.deepspeed = _file(emitted, DEEPSPEED, "deepspeed")
    run.effective = compute(run)
    return run


def _file(emitted: Emitted, name: str, kind: Kind) -> SourceFile:
    source = SourceText((emitted.folder / name).as_posix(), emitted.files[name].decode())
    return SourceFile(source.name, kind, source, load_as(source, "json" if name.endswith(".json") else "yaml"))


def differences(emitted: Emitted, run: Run) -> list[Problem]:
    """Where the emitted files give another value than the plan, or are refused: a bug of zerocfg, if any."""
    found = [Problem(failure.kind, failure.message) for failure in run.effective.failures]
    for name in emitted.plan.deepspeed:
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


def _engine(emitted: Emitted) -> str:
    if emitted.plan.engine == "ddp" and emitted.plan.num_processes == 1:
        return "single"
    return emitted.plan.engine


def _same(planned: Any, read: Any) -> bool:
    return bool(planned == read) and isinstance(planned, bool) == isinstance(read, bool)
