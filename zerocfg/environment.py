"""This installation: what people paste into an issue. Nothing here imports a training library or raises."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.catalog.changes import known_libraries
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import release
from zerocfg.smoke.launch import operator_locks
from zerocfg.version import __version__

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile

LIBRARIES = ("torch", "deepspeed", "accelerate", "transformers", "trl", "peft")
PROGRAMS = ("c++", "ninja", "nvcc", "hipcc")
"""What DeepSpeed's operators are compiled with."""
PATIENCE = 10.0
"""Seconds that a program has to tell its version."""


@dataclass(frozen=True, slots=True)
class Library:
    """``installed``: in the Python that runs zerocfg. ``oldest``, ``newest``: of the releases that zerocfg knows; None
    where it knows none of this library."""

    name: str
    installed: str | None
    oldest: str | None = None
    newest: str | None = None
    releases: int = 0

    @property
    def unknown(self) -> str | None:
        """Why the installed release is judged by another one; None where it is known, or near enough to one."""
        if self.installed is None or self.oldest is None or self.newest is None:
            return None
        at = release(self.installed.partition("+")[0])
        if at > release(self.newest):
            return "newer"
        return "older" if at < release(self.oldest) else None


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    path: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class Lock:
    """``abandoned``: no process of this machine holds it, so that torch waits for it for ever."""

    path: Path
    abandoned: bool


@dataclass(frozen=True, slots=True)
class Operators:
    """Where torch compiles DeepSpeed's operators, and what lies there."""

    folder: Path
    compiled: tuple[str, ...]
    locks: tuple[Lock, ...]


@dataclass(frozen=True, slots=True)
class Environment:
    zerocfg: str
    folder: Path
    python: str
    executable: str
    system: str
    libraries: tuple[Library, ...]
    operators: Operators
    programs: tuple[Program, ...]
    hardware: HardwareProfile


def environment() -> Environment:
    from zerocfg.hardware.probe import probe

    return Environment(
        zerocfg=__version__,
        folder=Path(__file__).parent,
        python=platform.python_version(),
        executable=sys.executable,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        libraries=tuple(map(_library, LIBRARIES)),
        operators=operators(),
        programs=tuple(program(name, os.environ) for name in PROGRAMS),
        hardware=probe(),
    )


def _library(name: str) -> Library:
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        installed = None
    if name not in known_libraries():
        return Library(name, installed)
    names = histories(name).names
    return Library(name, installed, names[0], names[-1], len(names))


def operators() -> Operators:
    folder = operator_locks.folder()
    compiled = sorted({path.stem for pattern in ("*/*.so", "*/*/*.so") for path in folder.glob(pattern)})
    locks = tuple(Lock(path, operator_locks.abandoned(path)) for path in sorted(operator_locks.find()))
    return Operators(folder, tuple(compiled), locks)


def program(name: str, variables: Mapping[str, str]) -> Program:
    """A compiler as torch finds it: ``CXX`` and ``CUDA_HOME`` win over the search path."""
    asked = variables.get("CXX") if name == "c++" else None
    home = variables.get("CUDA_HOME") or variables.get("CUDA_PATH") if name == "nvcc" else None
    wanted = asked or (str(Path(home, "bin", name)) if home else name)
    path = shutil.which(wanted, path=variables.get("PATH"))
    if path is None and name == "ninja":  # an environment that is not activated has it beside its Python
        path = shutil.which(name, path=str(Path(sys.executable).parent))
    return Program(name, path, _version(path) if path else None)


def _version(path: str) -> str | None:
    """The line of what a program says about itself that holds its release."""
    try:
        done = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    output = [line.strip() for line in lines if line.strip()]
    return next((line for line in output if "release" in line), output[0] if output else None)
