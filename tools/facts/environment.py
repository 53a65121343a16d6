"""One release, installed in a folder of its own; torch and the Python come from the environment that calls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "facts"
_WITHOUT_TORCH = 'torch ; sys_platform == "never"\ntriton ; sys_platform == "never"\n'
"""Overrides for uv: the environment's torch serves every release."""


@dataclass(frozen=True)
class Release:
    """``beside``: requirements of what it is installed with."""

    library: str
    version: str
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.library}-{self.version}"


def releases() -> list[Release]:
    """Every release of ``releases.yaml``, oldest first within its library."""
    content = yaml.safe_load((HERE / "releases.yaml").read_text(encoding="utf-8"))
    found = []
    for library, told in content.items():
        for version in sorted(map(str, told["releases"]), key=Version):
            older = (one for one in told.get("with", ()) if Version(version) < Version(str(one["below"])))
            beside: list[str] = next(older, {"packages": []})["packages"]
            found.append(Release(library, version, tuple(beside)))
    return found


def install(release: Release, folder: Path) -> None:
    """Installs a release into a folder. RuntimeError with the installer's words when that fails."""
    beside = release.beside or (_oldest(release, folder) if release.library == "trl" else ())
    _uv(folder, [f"{release.library}=={release.version}", *beside])


def install_alone(release: Release, folder: Path) -> None:
    """Installs a release without what it needs."""
    _uv(folder, [f"{release.library}=={release.version}"], "--no-deps")


def _oldest(release: Release, folder: Path) -> tuple[str, ...]:
    """The oldest transformers that a release asks for, with an accelerate: those that it was surely written for."""
    install_alone(release, folder)
    metadata = next(folder.glob(f"{release.library}-*.dist-info/METADATA")).read_text(encoding="utf-8")
    found = []
    for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE):
        wanted = Requirement(line)
        lowest = [Version(one.version) for one in wanted.specifier if one.operator in (">=", "==")]
        if wanted.name in ("transformers", "accelerate") and lowest and wanted.marker is None:
            exact = wanted.name == "transformers"
            found.append(f"{wanted.name}{'==' if exact else '>='}{max(lowest)}")
    return tuple(found)


def _uv(folder: Path, packages: list[str], *options: str) -> None:
    overrides = CACHE / "without-torch.txt"
    overrides.parent.mkdir(parents=True, exist_ok=True)
    overrides.write_text(_WITHOUT_TORCH, encoding="utf-8")
    uv = Path(sys.executable).with_name("uv")
    words = [str(uv), "pip", "install", "-q", "--python", sys.executable, "--target", str(folder)]
    words += ["--override", str(overrides), *options, *packages]
    environment = {**os.environ, "UV_COMPILE_BYTECODE": "0", "DS_BUILD_OPS": "0"}
    # Some releases of DeepSpeed import torch while they are built, and do not say so.
    for build in ([], ["--no-build-isolation-package", "deepspeed"]):
        done = subprocess.run([*words, *build], capture_output=True, text=True, env=environment)
        if done.returncode == 0:
            return
    raise RuntimeError(done.stderr.strip()[-800:])
