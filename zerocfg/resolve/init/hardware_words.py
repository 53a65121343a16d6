"""The accelerators that a launch line, its variables and the Slurm lines of its file ask for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from zerocfg.hardware.profile import load_hardware
from zerocfg.resolve.engine.engine_selection import launched_source

if TYPE_CHECKING:
    from zerocfg.resolve.init.draft import How
    from zerocfg.run.model import Run

_SBATCH = re.compile(r"^#SBATCH\s+(\S.*)$", re.M)
_GPUS = re.compile(r"--(?:gres=gpu|gpus-per-node=?)\s*[:=]?\s*(?:(?P<kind>[A-Za-z][\w-]*):)?(?P<count>\d{1,4})\b")
_NODES = re.compile(r"(?:--nodes[= ]|-N\s*)(\d{1,5})\b")
_LISTED = re.compile(r"\d+(,\d+)*")
_INCLUDED = re.compile(r"localhost:(\d+(?:,\d+)*)")
_UNNAMED = "A100-80GB"


class AskedHardware(NamedTuple):
    """``name`` None: of which kind the accelerators are, nothing tells; ``example`` has their number."""

    name: str | None
    how: How
    note: str
    example: str


def asked_hardware(run: Run) -> AskedHardware | None:
    """None where no word asks for accelerators."""
    if run.launch is None or run.launch_file is None:
        return None
    nodes, each, kind, by = _slurm(run.launch_file.source.text)
    if each is None:
        each, by = _on_this_node(run)
    if each is None:
        return None
    machines = _number(run, "num_machines", "nnodes", "num_nodes") or nodes or 1
    example = _named(machines, each, _UNNAMED)
    if kind is not None:
        try:
            load_hardware(_named(machines, each, kind))
        except ValueError:
            return AskedHardware(
                None, "open", f"{by} asks for {each} of {kind}: name them as the catalogue does", example
            )
        return AskedHardware(_named(machines, each, kind), "found", by, example)
    return AskedHardware(
        None, "open", f"which accelerators? {by} asks for {each} on each of {machines} node(s)", example
    )


def _slurm(text: str) -> tuple[int | None, int | None, str | None, str]:
    """Nodes, accelerators of each, their kind, and the line that says so."""
    nodes, each, kind, by = None, None, None, ""
    for line in _SBATCH.finditer(text):
        found = _GPUS.search(line[1])
        if found is not None:
            each, kind, by = int(found["count"]), found["kind"], line[0].strip()
        several = _NODES.search(line[1])
        if several is not None:
            nodes = int(several[1])
    return nodes, each or None, kind, by


def _on_this_node(run: Run) -> tuple[int | None, str]:
    if run.launch is not None and run.launch.launcher == "deepspeed":
        count = _number(run, "num_gpus")
        if count is not None:
            return count, "--num_gpus"
        included = run.flags.get("include")
        named = _INCLUDED.fullmatch(str(included.value)) if included is not None and included.known else None
        if named is not None:
            return len(named[1].split(",")), "--include"
    if run.launch is not None and run.launch.launcher == "accelerate":
        ids = launched_source(run).get("gpu_ids")
        if isinstance(ids, str) and _LISTED.fullmatch(ids):
            return len(ids.split(",")), "gpu_ids"
    visible = run.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.known and _LISTED.fullmatch(str(visible.value)):
        return len(str(visible.value).split(",")), "CUDA_VISIBLE_DEVICES"
    return None, ""


def _number(run: Run, *names: str) -> int | None:
    for name in names:
        flag = run.flags.get(name)
        if flag is not None and re.fullmatch(r"[1-9]\d{0,5}", str(flag.value)):
            return int(str(flag.value))
    return None


def _named(nodes: int, each: int, kind: str) -> str:
    return f"{nodes}x{each}x{kind}" if nodes > 1 else f"{each}x{kind}"
