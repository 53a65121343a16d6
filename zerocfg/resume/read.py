"""Reading a checkpoint folder. Those of the Trainer are called as transformers 5.23.0 does (trainer.py)."""

from __future__ import annotations

import re
from pathlib import Path

from zerocfg.resume.checkpoint import Checkpoint, CheckpointError
from zerocfg.resume.deepspeed_files import LATEST, is_shard, read_deepspeed, tags_in
from zerocfg.resume.files import names_in
from zerocfg.resume.fsdp_files import FSDP_MODEL, read_fsdp
from zerocfg.resume.torch_file import UnreadableError, note_damage
from zerocfg.resume.weights import read_json, read_weights
from zerocfg.run.trainer_state import STATE_FILE as STATE
from zerocfg.run.trainer_state import steps_of

_STEP = re.compile(r"checkpoint-(\d+)$")
_RANDOM = re.compile(r"rng_state(?:_(\d+))?\.pth$")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint folder, or the last of a Trainer's output folder. Raises CheckpointError."""
    try:
        if not path.exists():
            raise CheckpointError(f"there is no folder '{path}'")
        if not path.is_dir():
            raise CheckpointError(f"'{path}' is a file; name the folder of the checkpoint")
    except OSError as error:
        raise CheckpointError(f"'{path}' cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise CheckpointError(f"the path cannot be read: {error}") from None
    names = names_in(path)
    steps = {int(match[1]): name for name in names if (match := _STEP.match(name)) and (path / name).is_dir()}
    if steps and not _marks(path, names):
        last = path / steps[max(steps)]
        found = _read(last, names_in(last))
        found.notes.insert(0, f"the last of {len(steps)} in '{path}', as resume_from_checkpoint=True takes it")
        return found
    if any(map(is_shard, names)):
        found = _read(path.parent, names_in(path.parent), tag=path.name)
        found.notes.insert(0, f"'{path.name}' is one tag; what is resumed from is the folder that holds it")
        return found
    return _read(path, names)


def _marks(path: Path, names: list[str]) -> bool:
    return STATE in names or LATEST in names or FSDP_MODEL + "_0" in names or bool(tags_in(path, names))


def _read(path: Path, names: list[str], tag: str | None = None) -> Checkpoint:
    found = Checkpoint(path)
    found.weights = read_weights(path)
    found.trainer = STATE in names
    if found.trainer:
        try:
            state = read_json(path / STATE)
            step = state.get("global_step")
            found.step = step if isinstance(step, int) else None
            found.steps = steps_of(state)
        except UnreadableError as error:
            found.damaged[STATE] = str(error)
    found.optimizer = (path / "optimizer.pt").is_file() or (path / "optimizer.bin").is_file()
    found.scheduler = (path / "scheduler.pt").is_file()
    found.converter = (path / "zero_to_fp32.py").is_file()
    random = [name for name in names if _RANDOM.match(name)]
    if random:
        found.random_ranks = len(random)
    for name in ("optimizer.pt", "scheduler.pt", *random):
        if name in names:
            note_damage(path / name, found.damaged)
    found.deepspeed = read_deepspeed(path, names, tag)
    found.fsdp = read_fsdp(path, names)
    if not (found.deepspeed or found.fsdp or found.trainer or found.weights):
        shown = ", ".join(names[:6]) or "nothing"
        raise CheckpointError(
            f"'{path}' is no checkpoint of DeepSpeed, FSDP or the Trainer, and holds no weights; it holds {shown}"
        )
    return found
