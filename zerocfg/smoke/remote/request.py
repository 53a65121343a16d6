"""The job of some builds: which machines it asks for, and what travels with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from zerocfg.budgets import FILE_BYTES
from zerocfg.cluster.job import Job, Task
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import LOCK
from zerocfg.smoke.remote.node import Request
from zerocfg.source import disk
from zerocfg.source.disk import is_file

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.models.spec import Slurm
    from zerocfg.smoke.prepare.folder import RunFolder
    from zerocfg.smoke.smoke import Options

T = TypeVar("T")
PROGRAM = "zerocfg.smoke.remote.node"


@dataclass(frozen=True)
class Wanted:
    """``nodes`` None: as planned. ``extra``: words for the scheduler, after those of the specs. ``width``: columns."""

    nodes: int | None = None
    extra: tuple[str, ...] = ()
    width: int | None = None


def job_of(runs: list[RunFolder], options: Options, wanted: Wanted, scheduler: str) -> Job:
    """One task for each build. Raises SmokeError where they cannot share a job."""
    for run in runs:
        if run.handwritten is not None:
            raise SmokeError(f"{run.path}: --on takes builds; configs written by hand are run on this machine")
    nodes = wanted.nodes or _shared({run.name: _planned(run, "num_machines", 1) for run in runs}, "nodes", "--nodes")
    targets = {run.name: _target(run) if scheduler == "slurm" else None for run in runs}
    slurm = _shared({name: _words(target) for name, target in targets.items()}, "targets.slurm", "one call for each")
    setup = _shared(
        {name: tuple(target.setup) if target else () for name, target in targets.items()},
        "targets.slurm.setup",
        "one call for each",
    )
    folders = [f"runs/{number}/{run.path.resolve().name}" for number, run in enumerate(runs)]
    files = {}
    for folder, run in zip(folders, runs, strict=True):
        for name in (LOCK, *run.lock.files):
            files[f"{folder}/{name}"] = disk.whole(run.path / name, FILE_BYTES)
    return Job(
        name="zerocfg-smoke",
        nodes=nodes,
        tasks=tuple(
            Task(run.name, (PROGRAM, json.dumps(asdict(_request(folder, nodes, options, wanted)))))
            for folder, run in zip(folders, runs, strict=True)
        ),
        files=files,
        seconds=int(options.limit),
        cards=max(_cards(run, nodes, options) for run in runs),
        options=(*slurm, *wanted.extra),
        setup=setup,
    )


def _request(folder: str, nodes: int, options: Options, wanted: Wanted) -> Request:
    keep = str(options.keep.resolve()) if options.keep is not None else None
    return Request(
        folder,
        nodes,
        options.ranks,
        options.device,
        options.steps,
        options.limit,
        options.memory_limit,
        keep,
        wanted.width,
    )


def _planned(run: RunFolder, name: str, otherwise: int) -> int:
    value = run.plan.get(name)
    return value if isinstance(value, int) and value > 0 else otherwise


def _cards(run: RunFolder, nodes: int, options: Options) -> int:
    """Cards of each node: none for a build for processors."""
    if options.device == "cpu" or (options.device == "auto" and run.lock.hardware.get("vendor") == "cpu"):
        return 0
    return options.ranks or max(1, min(_planned(run, "num_processes", 1) // nodes, 2))


def _target(run: RunFolder) -> Slurm | None:
    """What the spec of a build says about Slurm; None where the spec is not there any more or says nothing."""
    folder, name = run.lock.spec_folder, run.lock.source("spec")
    path: Path | None = run.path / folder / name if folder is not None and name else None
    if path is None or not is_file(path):
        return None
    spec = read_spec(path).spec
    found = spec.runs.get(run.name) if spec is not None else None
    return found.targets.slurm if found is not None and found.targets is not None else None


def _words(slurm: Slurm | None) -> tuple[str, ...]:
    """Options of sbatch that say where a job runs; its time is the smoke-run's own."""
    if slurm is None:
        return ()
    named = {name: getattr(slurm, name) for name in ("partition", "account", "qos")}
    return (*(f"--{name}={value}" for name, value in named.items() if value is not None), *slurm.options)


def _shared(values: dict[str, T], what: str, way_out: str) -> T:
    """The value that all runs have. Raises SmokeError naming two that differ."""
    first, *_ = values
    for name, value in values.items():
        if value != values[first]:
            raise SmokeError(
                f"the runs cannot be one job: {what} of {first} is {values[first]!r}, of {name} {value!r} ({way_out})"
            )
    return values[first]
