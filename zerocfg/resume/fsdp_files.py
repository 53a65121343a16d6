"""An FSDP checkpoint by the names of its files, as accelerate 1.15.0 writes them (utils/fsdp_utils.py)."""

from __future__ import annotations

import pickletools
import re
from pathlib import Path

from zerocfg.budgets import PICKLE_BYTES
from zerocfg.resume.checkpoint import FULL, SHARDED, Fsdp
from zerocfg.resume.files import names_if_readable
from zerocfg.resume.torch_file import UnreadableError, note_damage
from zerocfg.source import disk

FSDP_MODEL, FSDP_OPTIMIZER = "pytorch_model_fsdp", "optimizer"
_SHARD = re.compile(r"__(\d+)_\d+\.distcp$")


def read_fsdp(path: Path, names: list[str]) -> Fsdp | None:
    found = Fsdp(_fsdp_type(path, FSDP_MODEL, names), _fsdp_type(path, FSDP_OPTIMIZER, names))
    if found.model is None and not (path / f"{FSDP_OPTIMIZER}_0").is_dir():
        return None
    for kind in (FSDP_MODEL, FSDP_OPTIMIZER):
        folder = path / f"{kind}_0"
        if folder.is_dir():
            _distributed(found, folder)
        elif f"{kind}.bin" in names:
            note_damage(path / f"{kind}.bin", found.damaged)
    return found


def _fsdp_type(path: Path, kind: str, names: list[str]) -> str | None:
    if (path / f"{kind}_0").is_dir():
        return SHARDED
    if f"{kind}.bin" in names:
        return FULL
    return "LOCAL_STATE_DICT" if any(name.startswith(f"{kind}_rank") for name in names) else None


def _distributed(found: Fsdp, folder: Path) -> None:
    """A folder of torch.distributed.checkpoint: ``.metadata`` names the files, each written by one rank."""
    here = names_if_readable(folder)
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
    if size == 0 or size > PICKLE_BYTES:
        raise UnreadableError("is empty" if size == 0 else f"has {size} bytes, too many to be decoded")
    try:
        texts = (
            argument
            for _, argument, _ in pickletools.genops(disk.whole(path, PICKLE_BYTES))
            if isinstance(argument, str)
        )
        return {text for text in texts if _SHARD.match(text)}
    except (ValueError, IndexError, OverflowError) as error:
        raise UnreadableError(f"is damaged ({error})") from None
