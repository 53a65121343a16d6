"""Release sets: a release of DeepSpeed with the accelerate, transformers and TRL of its time, installed together."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.facts.environment import CACHE, Release, install, install_alone

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl")


@dataclass(frozen=True)
class ReleaseSet:
    """``beside``: what DeepSpeed is installed with. TRL is the newest that the others allow."""

    deepspeed: str
    beside: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Named as dill wants it, which takes what lies elsewhere for parts of a script and pickles all of it."""
        return CACHE / "sets" / self.deepspeed / "site-packages"


def _set(deepspeed: str, accelerate: str, transformers: str, *more: str) -> ReleaseSet:
    return ReleaseSet(
        deepspeed,
        (f"accelerate=={accelerate}", f"transformers=={transformers}", "trl", "datasets", "pyarrow<22", *more),
    )


SETS = (
    _set("0.14.5", "0.34.2", "4.46.3", "numpy<2"),
    _set("0.15.4", "1.0.1", "4.46.3"),
    _set("0.16.9", "1.6.0", "4.51.3"),
    _set("0.17.6", "1.10.1", "4.55.4"),
    _set("0.18.9", "1.12.0", "4.57.6"),
    _set("0.19.5", "1.13.0", "5.0.0"),
)
"""The newest patch of each minor release of DeepSpeed that projects pin, oldest first. Today's releases are no set of
these: they are what the tests run on."""


def installed(wanted: ReleaseSet) -> Path:
    """The folder of a set; installs it where that was not done. RuntimeError with the installer's words."""
    return _made(wanted.folder, lambda new: install(Release("deepspeed", wanted.deepspeed, wanted.beside), new))


def alone(library: str, version: str) -> Path:
    """The folder of one release without what it needs, which replaces that of a set where it stands before it."""
    release = Release(library, version)
    return _made(CACHE / "only" / release.name / "site-packages", lambda new: install_alone(release, new))


def _made(folder: Path, fill: Callable[[Path], None]) -> Path:
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as new:
            fill(Path(new, "whole"))
            Path(new, "whole").rename(folder)
    return folder


def versions(folder: Path) -> dict[str, str]:
    """The releases of the training libraries in a folder."""
    found = {}
    for path in folder.glob("*.dist-info"):
        match = re.fullmatch(r"(\w+)-([\d.]+)(?:\+\w+)?\.dist-info", path.name)
        if match and match[1] in LIBRARIES:
            found[match[1]] = match[2]
    return {name: found[name] for name in LIBRARIES if name in found}
