"""The files of one run: a folder that `zerocfg build` wrote, or handwritten configs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from zerocfg.budgets import FILE_BYTES
from zerocfg.emit import lock as lockfile
from zerocfg.emit.lock import Lock, LockError
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare import handwritten as by_hand
from zerocfg.source import disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.run.model import Run
    from zerocfg.smoke.model.reduction import Reduced

LOCK = lockfile.NAME
ACCELERATE = "accelerate.yaml"
DEEPSPEED = "ds_config.json"


@dataclass
class RunFolder:
    """``lock`` as written by the build; ``accelerate`` / ``deepspeed`` the parsed configs, None where absent.

    ``hashes``: sha256 of the files as they are now; ``changed``: those that differ from what the build wrote.
    ``handwritten``: how the files belong together where no build made them; ``lock`` then holds what they tell.
    ``line``: the run of a command's launch line, where no run is named beside it.
    ``pinned``: a reduction whose model and samples are taken, whatever would fit: launches that are compared need it.
    """

    path: Path
    lock: Lock
    accelerate: dict[str, object] | None
    deepspeed: dict[str, object] | None
    hashes: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    handwritten: by_hand.Handwritten | None = None
    pinned: Reduced | None = None
    line: Run | None = None

    @property
    def name(self) -> str:
        return self.lock.run or self.path.name

    @property
    def consumer(self) -> str:
        return self.lock.consumer or "transformers"

    @property
    def plan(self) -> dict[str, object]:
        return self.lock.plan


def read(path: Path, consumer: str | None = None, name: str | None = None) -> RunFolder:
    """Read a run folder, or configs that were written by hand.

    Of the latter ``consumer`` says who reads them where the files do not, and ``name`` which run is meant where there
    are several. Raises SmokeError with a sentence for the user.
    """
    if not path.exists():
        raise SmokeError(f"there is no folder or file '{path}'")
    if not (path / LOCK).is_file():
        inside = sorted(child.parent.name for child in path.glob(f"*/{LOCK}")) if path.is_dir() else []
        if inside:
            raise SmokeError(f"'{path}' holds no {LOCK}; did you mean {path / inside[0]}?")
        return _by_hand(path, consumer, name)
    try:
        lock = lockfile.load(path / LOCK)
    except LockError as error:
        raise SmokeError(str(error)) from None
    if not lock.plan:
        raise SmokeError(f"{path / LOCK}: no mapping 'plan'; build the run again")
    folder = RunFolder(path, lock, None, None)
    for name, expected in lock.files.items():
        file = path / name
        if not file.is_file():
            raise SmokeError(f"{file} is missing; build the run again")
        folder.hashes[name] = hashlib.sha256(_bytes(file)).hexdigest()
        if folder.hashes[name] != expected:
            folder.changed[name] = expected
    folder.hashes[LOCK] = hashlib.sha256(_bytes(path / LOCK)).hexdigest()
    if (path / ACCELERATE).is_file():
        folder.accelerate = _mapping(path / ACCELERATE, yaml.safe_load)
    if (path / DEEPSPEED).is_file():
        folder.deepspeed = _mapping(path / DEEPSPEED, json.loads)
    if folder.accelerate is None and folder.consumer != "deepspeed" and lock.launcher in (None, "accelerate"):
        raise SmokeError(f"'{path}' holds no {ACCELERATE}; build the run again")
    return folder


def _by_hand(path: Path, consumer: str | None, name: str | None) -> RunFolder:
    try:
        own = by_hand.handwritten(by_hand.find(path, consumer, name))
        hashes = by_hand.hashes(own.run)
    except (by_hand.NotFoundError, OSError) as error:
        built = f"'{path}' holds no {LOCK}, so that it is taken as written by hand: " if path.is_dir() else ""
        raise SmokeError(f"{built}{error}") from None
    return RunFolder(
        path=path if path.is_dir() else path.parent,
        lock=by_hand.lock_of(own),
        accelerate=by_hand.accelerate_of(own),
        deepspeed=by_hand.deepspeed_of(own),
        hashes=hashes,
        handwritten=own,
    )


def _bytes(path: Path) -> bytes:
    try:
        return disk.whole(path, FILE_BYTES)
    except OSError as error:
        raise SmokeError(f"{path} cannot be read: {error.strerror or error}") from None


def _mapping(path: Path, parse: Callable[[str], object]) -> dict[str, object]:
    try:
        content = parse(disk.whole(path, FILE_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise SmokeError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise SmokeError(f"{path} does not hold a mapping")
    return content
