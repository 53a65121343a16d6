"""Is this process one of several ranks that a launcher started? Read from its environment."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT = "29500"  # torch.distributed's own default
VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What tells a rank its place, in torch's own names."""
_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH and Intel MPI, started by Hydra
)


@dataclass(frozen=True)
class Place:
    """The place of this process among the ranks of its job."""

    rank: int
    local_rank: int
    world: int
    node: str
    """A name that the ranks of one node share, and no other rank has."""
    environment: dict[str, str] = field(default_factory=dict)
    """What torch.distributed needs and the launcher did not set."""


def find(environment: Mapping[str, str]) -> Place | None:
    """The place that torchrun (or a launcher that sets the same variables), srun or mpirun gave; None: no other ranks.

    Raises ValueError with one line when the variables contradict each other or leave something out.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        node = environment.get("GROUP_RANK") or socket.gethostname()
    elif "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        # Without a step this is the batch script, for which Slurm sets SLURM_PROCID as well.
        size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
        names = ("SLURM_PROCID", size, "SLURM_LOCALID")
        node = environment.get("SLURM_NODEID") or socket.gethostname()
    elif (mpi := next((names for names in _MPI if all(name in environment for name in names)), None)) is not None:
        names, node = mpi, socket.gethostname()
    else:
        return None
    world = _count(environment, names[1])
    if world <= 1:
        return None
    rank, local = _count(environment, names[0]), _count(environment, names[2])
    if rank >= world:
        raise ValueError(f"{names[0]} is {rank} and {names[1]} is {world}: ranks count from 0")
    if "MASTER_ADDR" not in environment:
        raise ValueError(
            f"{names[1]} is {world}, but MASTER_ADDR is not set: export it as the name of the first node, so that the "
            "ranks find each other"
        )
    added = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local)}
    added["MASTER_PORT"] = environment.get("MASTER_PORT", PORT)
    return Place(rank, local, world, node, added)


def _count(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name)
    if value is None:
        raise ValueError(f"{name} is not set, though this is one of several ranks: start it with torchrun or srun")
    if not value.isdecimal():
        raise ValueError(f"{name} is {value!r}: a number was expected")
    return int(value)
