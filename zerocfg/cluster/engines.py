"""The engines by the names that ``--on`` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocfg.cluster.job import Engine

NAMES = ("slurm", "ray", "local")


def engine(name: str) -> Engine:
    """The engine of this name. Raises ClusterError where this machine cannot reach it."""
    if name == "slurm":
        from zerocfg.cluster.slurm import Slurm

        return Slurm()
    if name == "ray":
        from zerocfg.cluster.ray import Ray

        return Ray()
    from zerocfg.cluster.local import Local

    return Local()
