"""A DeepSpeed checkpoint by the names and headers of its files.

Names as DeepSpeed 0.19.8 writes them (runtime/engine.py: `_get_rank_zero_ckpt_name`, `_get_ckpt_name`).
"""

from __future__ import annotations

import re
from pathlib import Path

from zerocfg.budgets import FOLDER_NAMES
from zerocfg.resume.checkpoint import DeepSpeed
from zerocfg.resume.files import names_if_readable, names_in
from zerocfg.resume.torch_file import Fact, UnreadableError, facts, note_damage
from zerocfg.source import disk

LATEST, LATEST_UNIVERSAL = "latest", "latest_universal"
_OPTIMIZER = re.compile(r"(bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt$")
_SHARDED_MODEL = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt$")
_MODEL = re.compile(r"mp_rank_(\d+)_model_states\.pt$")
_EXPERT = re.compile(r"(layer_\d+_expert_|expp_rank_)\d+_")
_LOSS_SCALE = "dynamic_loss_scale"
"""What DeepSpeed's optimizer for half precision, and no other, writes into its state (fp16/unfused_optimizer.py)."""


def tags_in(path: Path, names: list[str]) -> list[str]:
    """The folders that hold DeepSpeed's shards, or are called as if."""
    found = []
    for name in names:
        folder = path / name
        if name.startswith(".") or not folder.is_dir():
            continue
        if name.startswith("global_step") or any(map(is_shard, names_if_readable(folder))):
            found.append(name)
    return found


def is_shard(name: str) -> bool:
    return bool(_OPTIMIZER.match(name) or _SHARDED_MODEL.match(name) or _MODEL.match(name))


def read_deepspeed(path: Path, names: list[str], tag: str | None) -> DeepSpeed | None:
    tags = tags_in(path, names)
    universal = LATEST_UNIVERSAL in names
    latest = _line(path / (LATEST_UNIVERSAL if universal and LATEST not in names else LATEST))
    if not tags and latest is None:
        return None
    chosen = next((item for item in (tag, latest) if item is not None), tags[-1] if tags else "")
    found = DeepSpeed(chosen, tags, latest, universal_tag=_line(path / LATEST_UNIVERSAL))
    folder = path / chosen
    if chosen and _is_folder(folder):
        found.universal = (folder / "zero").is_dir()
        _shards(found, folder, names_in(folder))
    if found.universal_tag:
        found.universal_stages = _universal_stages(path / found.universal_tag)
    return found


def _universal_stages(folder: Path) -> tuple[int, ...]:
    """DeepSpeed still reads the files of the model states, and those of stage 3 are called otherwise."""
    if not _is_folder(folder / "zero"):
        return ()
    names = names_if_readable(folder)
    if any(map(_SHARDED_MODEL.match, names)):
        return (3,)
    return (1, 2) if any(map(_MODEL.match, names)) else ()


def _is_folder(path: Path) -> bool:
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
        return disk.content(path, 4096, 4096)[1].decode("utf-8", "replace").strip()
    except OSError:
        return None


def _shards(found: DeepSpeed, folder: Path, names: list[str]) -> None:
    optimizer = {(int(m[2]), int(m[3])): name for name in names if (m := _OPTIMIZER.match(name))}
    sharded = {(int(m[1]), int(m[2])): name for name in names if (m := _SHARDED_MODEL.match(name))}
    plain = {int(m[1]): name for name in names if (m := _MODEL.match(name))}
    found.optimizer_files = len(optimizer)
    experts = [name for name in names if _EXPERT.match(name)]
    for name in [*optimizer.values(), *sharded.values(), *plain.values(), *experts]:
        note_damage(folder / name, found.damaged, f"{folder.name}/{name}")
    found.experts = bool(experts)
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
    if world * found.model_parallel > FOLDER_NAMES:
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
