"""What a checkpoint folder holds, by the names and headers of its files.

Names as DeepSpeed 0.19.8 (runtime/engine.py: `_get_rank_zero_ckpt_name`, `_get_ckpt_name`), accelerate 1.15.0
(utils/fsdp_utils.py) and transformers 5.23.0 (trainer.py) write them.
"""

from __future__ import annotations

import os
import pickletools
import re
from dataclasses import dataclass, field
from pathlib import Path

from zerocfg.resume.torch_file import LARGEST_PROGRAM, Fact, UnreadableError, check, facts
from zerocfg.resume.weights import Weights, read_json, read_weights

MOST_NAMES = 200_000
_STEP = re.compile(r"checkpoint-(\d+)$")
_OPTIMIZER = re.compile(r"(bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt$")
_SHARDED_MODEL = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt$")
_MODEL = re.compile(r"mp_rank_(\d+)_model_states\.pt$")
_EXPERT = re.compile(r"(layer_\d+_expert_|expp_rank_)\d+_")
_RANDOM = re.compile(r"rng_state(?:_(\d+))?\.pth$")
_SHARD = re.compile(r"__(\d+)_\d+\.distcp$")
_LOSS_SCALE = "dynamic_loss_scale"
"""What DeepSpeed's optimizer for half precision, and no other, writes into its state (fp16/unfused_optimizer.py)."""
LATEST, LATEST_UNIVERSAL = "latest", "latest_universal"
FSDP_MODEL, FSDP_OPTIMIZER = "pytorch_model_fsdp", "optimizer"
STATE = "trainer_state.json"
FULL, SHARDED = "FULL_STATE_DICT", "SHARDED_STATE_DICT"


class CheckpointError(ValueError):
    """Nothing that could be judged; the text says what was found instead."""


@dataclass(slots=True)
class DeepSpeed:
    """One tag of a DeepSpeed checkpoint.

    ``tags`` are the folders that look like tags, ``latest`` what the file of that name says. ``stage`` None: 1 or 2,
    the file did not tell. ``world_size`` counts data-parallel ranks. ``bf16`` is what the files' names say: a run in
    fp16 or fp32 leaves out the prefix. ``half``: under stage 0 the optimizer keeps fp32 copies of
    parameters in bf16 or fp16. ``universal_tag`` is what the file latest_universal says, and
    ``universal_stages`` are the ZeRO stages that can read it.
    """

    tag: str
    tags: list[str]
    latest: str | None
    stage: int | None = None
    world_size: int | None = None
    model_parallel: int = 1
    bf16: bool | None = None
    half: bool | None = None
    version: str | None = None
    steps: int | None = None
    optimizer_files: int = 0
    experts: bool = False
    universal: bool = False
    universal_tag: str | None = None
    universal_stages: tuple[int, ...] = ()
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fsdp:
    """``model`` and ``optimizer``: FULL_STATE_DICT, SHARDED_STATE_DICT, LOCAL_STATE_DICT, or None where absent."""

    model: str | None
    optimizer: str | None
    world_size: int | None = None
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Checkpoint:
    """``step`` and ``trainer`` are of trainer_state.json; ``random_ranks`` is None where no generator was saved."""

    path: Path
    notes: list[str] = field(default_factory=list)
    trainer: bool = False
    step: int | None = None
    deepspeed: DeepSpeed | None = None
    fsdp: Fsdp | None = None
    weights: Weights | None = None
    optimizer: bool = False
    scheduler: bool = False
    random_ranks: int | None = None
    converter: bool = False
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        if self.deepspeed:
            return "deepspeed"
        if self.fsdp:
            return "fsdp"
        return "trainer" if self.trainer else "weights"


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted. Raises CheckpointError where there are too many to be a checkpoint."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry.name)
                if len(found) > MOST_NAMES:
                    raise CheckpointError(f"'{folder}' has more than {MOST_NAMES} entries: no checkpoint")
    except OSError as error:
        raise CheckpointError(f"'{folder}' cannot be read: {error.strerror or error}") from None
    return sorted(found)


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
    if any(map(_is_shard, names)):
        found = _read(path.parent, names_in(path.parent), tag=path.name)
        found.notes.insert(0, f"'{path.name}' is one tag; what is resumed from is the folder that holds it")
        return found
    return _read(path, names)


def _is_shard(name: str) -> bool:
    return bool(_OPTIMIZER.match(name) or _SHARDED_MODEL.match(name) or _MODEL.match(name))


def _marks(path: Path, names: list[str]) -> bool:
    return STATE in names or LATEST in names or FSDP_MODEL + "_0" in names or bool(_tags(path, names))


def _tags(path: Path, names: list[str]) -> list[str]:
    """The folders that hold DeepSpeed's shards, or are called as if."""
    found = []
    for name in names:
        folder = path / name
        if name.startswith(".") or not folder.is_dir():
            continue
        if name.startswith("global_step") or any(map(_is_shard, _few(folder))):
            found.append(name)
    return found


def _few(folder: Path) -> list[str]:
    try:
        return names_in(folder)
    except CheckpointError:
        return []


def _read(path: Path, names: list[str], tag: str | None = None) -> Checkpoint:
    found = Checkpoint(path)
    found.weights = read_weights(path)
    found.trainer = STATE in names
    if found.trainer:
        try:
            step = read_json(path / STATE).get("global_step")
            found.step = step if isinstance(step, int) else None
        except UnreadableError as error:
            found.damaged[STATE] = str(error)
    found.optimizer = (path / "optimizer.pt").is_file() or (path / "optimizer.bin").is_file()
    found.scheduler = (path / "scheduler.pt").is_file()
    found.converter = (path / "zero_to_fp32.py").is_file()
    for name in ("optimizer.pt", "scheduler.pt"):
        if name in names:
            _checked(path / name, found.damaged)
    random = [match for name in names if (match := _RANDOM.match(name))]
    if random:
        found.random_ranks = len(random)
    found.deepspeed = _deepspeed(path, names, tag)
    found.fsdp = _fsdp(path, names)
    if not (found.deepspeed or found.fsdp or found.trainer or found.weights):
        shown = ", ".join(names[:6]) or "nothing"
        raise CheckpointError(
            f"'{path}' is no checkpoint of DeepSpeed, FSDP or the Trainer, and holds no weights; it holds {shown}"
        )
    return found


def _checked(path: Path, damaged: dict[str, str], name: str | None = None) -> None:
    try:
        check(path)
    except UnreadableError as error:
        damaged[name or path.name] = str(error)
    except OSError as error:
        damaged[name or path.name] = f"cannot be read: {error.strerror or error}"


# -- DeepSpeed -----------------------------------------------------------------------------------------------------


def _deepspeed(path: Path, names: list[str], tag: str | None) -> DeepSpeed | None:
    tags = _tags(path, names)
    universal = LATEST_UNIVERSAL in names
    latest = _line(path / (LATEST_UNIVERSAL if universal and LATEST not in names else LATEST))
    if not tags and latest is None:
        return None
    chosen = next((one for one in (tag, latest) if one is not None), tags[-1] if tags else "")
    found = DeepSpeed(chosen, tags, latest, universal_tag=_line(path / LATEST_UNIVERSAL))
    folder = path / chosen
    if chosen and is_folder(folder):
        found.universal = (folder / "zero").is_dir()
        _shards(found, folder, names_in(folder))
    if found.universal_tag:
        found.universal_stages = _universal_stages(path / found.universal_tag)
    return found


def _universal_stages(folder: Path) -> tuple[int, ...]:
    """DeepSpeed still reads the files of the model states, and those of stage 3 are called otherwise."""
    if not is_folder(folder / "zero"):
        return ()
    names = _few(folder)
    if any(map(_SHARDED_MODEL.match, names)):
        return (3,)
    return (1, 2) if any(map(_MODEL.match, names)) else ()


def is_folder(path: Path) -> bool:
    """False also where the name is none that a file system takes: it was read from a file."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _line(path: Path) -> str | None:
    """What a tag file says; None where there is none."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(4096).decode("utf-8", "replace").strip()
    except OSError:
        return None


def _shards(found: DeepSpeed, folder: Path, names: list[str]) -> None:
    optimizer = {(int(m[2]), int(m[3])): name for name in names if (m := _OPTIMIZER.match(name))}
    sharded = {(int(m[1]), int(m[2])): name for name in names if (m := _SHARDED_MODEL.match(name))}
    plain = {int(m[1]): name for name in names if (m := _MODEL.match(name))}
    found.optimizer_files = len(optimizer)
    found.experts = any(map(_EXPERT.match, names))
    for name in [*optimizer.values(), *sharded.values(), *plain.values()]:
        _checked(folder / name, found.damaged, f"{folder.name}/{name}")
    known = _known(folder, [*plain.values(), *sharded.values()], ("dp_world_size", "mp_world_size"))
    more = _known(folder, [*plain.values(), *sharded.values()], ("ds_version", "global_steps"))
    world = known.get("dp_world_size")
    ranks = {rank for rank, _ in (*optimizer, *sharded)}
    found.world_size = world if isinstance(world, int) and world > 0 else max(ranks, default=-1) + 1 or None
    parts = known.get("mp_world_size")
    named = max([part for _, part in (*optimizer, *sharded)] + list(plain), default=0) + 1
    found.model_parallel = parts if isinstance(parts, int) and 0 < parts < 1 << 16 else named
    version, steps = more.get("ds_version"), more.get("global_steps")
    found.version = version if isinstance(version, str) else None
    found.steps = steps if isinstance(steps, int) else None
    if optimizer:
        found.bf16 = any(name.startswith("bf16_") for name in optimizer.values())
    stage = _known(folder, list(optimizer.values()), ("zero_stage",)).get("zero_stage")
    if sharded:
        found.stage = 3
    elif isinstance(stage, int) and 0 <= stage <= 3:
        found.stage = stage
    elif plain and not optimizer:
        found.stage = 0
        found.half = isinstance(_known(folder, list(plain.values()), (_LOSS_SCALE,)).get(_LOSS_SCALE), bool)
    _missing(found, set(optimizer), set(sharded), set(plain), folder.name)


def _known(folder: Path, names: list[str], wanted: tuple[str, ...]) -> dict[str, Fact]:
    """The facts of the first file that can be read."""
    for name in names[:4]:
        try:
            return facts(folder / name, wanted)
        except (UnreadableError, OSError):
            continue
    return {}


def _missing(
    found: DeepSpeed, optimizer: set[tuple[int, int]], sharded: set[tuple[int, int]], plain: set[int], tag: str
) -> None:
    world = found.world_size or 0
    if world * found.model_parallel > MOST_NAMES:
        return
    wanted = [(rank, part) for rank in range(world) for part in range(found.model_parallel)]
    prefix = "bf16_" if found.bf16 else ""
    if optimizer or sharded:
        for rank, part in wanted:
            if (rank, part) not in optimizer:
                found.missing.append(f"{tag}/{prefix}zero_pp_rank_{rank}_mp_rank_{part:02d}_optim_states.pt")
    if sharded:
        for rank, part in wanted:
            if (rank, part) not in sharded:
                found.missing.append(f"{tag}/zero_pp_rank_{rank}_mp_rank_{part:02d}_model_states.pt")
    elif not found.experts:
        for part in range(found.model_parallel):
            if part not in plain:
                found.missing.append(f"{tag}/mp_rank_{part:02d}_model_states.pt")


# -- FSDP ----------------------------------------------------------------------------------------------------------


def _fsdp(path: Path, names: list[str]) -> Fsdp | None:
    found = Fsdp(_fsdp_type(path, FSDP_MODEL, names), _fsdp_type(path, FSDP_OPTIMIZER, names))
    if found.model is None and not (path / f"{FSDP_OPTIMIZER}_0").is_dir():
        return None
    for kind in (FSDP_MODEL, FSDP_OPTIMIZER):
        folder = path / f"{kind}_0"
        if folder.is_dir():
            _distributed(found, folder)
        elif f"{kind}.bin" in names:
            _checked(path / f"{kind}.bin", found.damaged)
    return found


def _fsdp_type(path: Path, kind: str, names: list[str]) -> str | None:
    if (path / f"{kind}_0").is_dir():
        return SHARDED
    if f"{kind}.bin" in names:
        return FULL
    return "LOCAL_STATE_DICT" if any(name.startswith(f"{kind}_rank") for name in names) else None


def _distributed(found: Fsdp, folder: Path) -> None:
    """A folder of torch.distributed.checkpoint: ``.metadata`` names the files, each written by one rank."""
    here = _few(folder)
    listing = f"{folder.name}/.metadata"
    named: set[str] = set()
    if ".metadata" not in here:
        found.missing.append(listing)
    else:
        try:
            named = _named_shards(folder / ".metadata")
        except UnreadableError as error:
            found.damaged[listing] = str(error)
        except OSError as error:
            found.damaged[listing] = f"cannot be read: {error.strerror or error}"
    found.missing += [f"{folder.name}/{name}" for name in sorted(named - set(here))]
    ranks = {int(match[1]) for name in named | set(here) if (match := _SHARD.match(name))}
    if ranks:
        found.world_size = max(found.world_size or 0, max(ranks) + 1)


def _named_shards(path: Path) -> set[str]:
    """The shards that a pickled ``.metadata`` mentions; it is decoded, never run."""
    size = path.stat().st_size
    if size == 0 or size > LARGEST_PROGRAM:
        raise UnreadableError("is empty" if size == 0 else f"has {size} bytes, too many to be decoded")
    try:
        texts = (argument for _, argument, _ in pickletools.genops(path.read_bytes()) if isinstance(argument, str))
        return {text for text in texts if _SHARD.match(text)}
    except (ValueError, IndexError, OverflowError) as error:
        raise UnreadableError(f"is damaged ({error})") from None
