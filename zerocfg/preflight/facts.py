"""What a rank knows of its node before it meets the others. Imports no training library; nothing here raises."""

from __future__ import annotations

import os
import platform
import re
import socket
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.hardware import linux, nvml
from zerocfg.hardware.probe import GIB, probe
from zerocfg.preflight.messages import Card, Facts, Folder, NodeFacts
from zerocfg.source.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.hardware.launcher import Place

LIBRARIES = ("torch", "deepspeed", "accelerate", "transformers", "trl", "peft", "zerocfg")
NCCL = re.compile(r"(nvidia-nccl-cu\d+|nvidia-cuda-runtime(-cu\d+)?)$")
"""Packages that bring the libraries which torch's wheels are linked with."""
VARIABLES = re.compile(
    r"(NCCL|TORCH|PYTORCH|CUDA|CUBLAS|CUDNN|OMP|MKL|KMP|DS|DEEPSPEED|ACCELERATE|FSDP|GLOO|UCX|FI|RCCL|HIP|HSA|ROCR|CCL)_"
    r"|(HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|TRITON_CACHE_DIR|LD_PRELOAD)$"
)
"""Of the libraries that take part in a training step, and where they keep their files."""


def gather(place: Place, name: str | None = None, environment: Mapping[str, str] = os.environ) -> Facts:
    """The first line of a rank; the facts of the node are told by the first of its ranks. ``name`` of the node, where
    its scheduler calls it otherwise than it does itself."""
    return Facts(
        rank=place.rank,
        local_rank=place.local_rank,
        world=place.world,
        node=place.node,
        host=name or environment.get("SLURMD_NODENAME") or socket.gethostname(),
        time=time.time(),
        facts=of_node(environment) if place.local_rank == 0 else None,
    )


def of_node(environment: Mapping[str, str]) -> NodeFacts:
    """Hardware, releases, limits, room."""
    return NodeFacts(
        profile=probe(),
        releases=releases(),
        environment=variables(environment),
        cards=[Card(free_gib=round(free, 2), usable_gib=round(size, 2)) for free, size in nvml.free_memory()],
        folders=folders(),
        open_files=_open_files(),
    )


def releases() -> dict[str, str]:
    """Of this Python and of the packages that a training uses, as they are installed."""
    found = {"python": platform.python_version()}
    bundled = [
        name
        for distribution in metadata.distributions()
        if (name := distribution.metadata["Name"]) and NCCL.match(name.lower())
    ]
    for name in (*LIBRARIES, *sorted({item.lower() for item in bundled})):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if version:  # None where somebody broke its metadata
            found[name] = version
    return found


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those that change a training, without secrets."""
    found = {}
    for name in sorted(environment):
        if VARIABLES.match(name):
            found[name] = masked(f"{name}={environment[name]}").partition("=")[2]
    return found


def folders() -> list[Folder]:
    """Where a job writes to: checkpoints, and files for a while."""
    places = {"working folder": Path(), "temporary folder": _temporary()}
    found = []
    for role, path in places.items():
        free = linux.free_bytes(path)
        found.append(Folder(role=role, path=_absolute(path), free_gib=None if free is None else free / GIB))
    return found


def _temporary() -> Path:
    """Where temporary files go. Python takes the next place where it cannot write a byte, as on a full disk."""
    asked = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next((Path(name) for name in asked if name and Path(name).is_dir()), Path(tempfile.gettempdir()))


def _absolute(path: Path) -> str:
    try:
        return str(path.absolute())
    except OSError:  # the folder was removed meanwhile
        return str(path)


def _open_files() -> int | None:
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, AttributeError, ValueError, OSError):
        return None
    return None if soft == resource.RLIM_INFINITY else soft
