"""Configs that Hydra and OmegaConf read, for a program of their own: by their text, their keys, or their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zerocfg.patterns import pattern
from zerocfg.source import disk
from zerocfg.source.boundary import lies_inside
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.paths import names

_INTERPOLATION = pattern(r"\$\{(?:[\w.]*[.:])[^}]*\}")
"""`${now:%H-%M}`, `${model.name}`; `${NAME}` may be one of a shell's variables."""
_DEFAULTS = pattern(rb"^defaults:[ \t]*(?:#[^\n]*)?\r?\n((?:[ \t]*(?:-[^\n]*|#[^\n]*)?\r?\n)*(?:[ \t]*-[^\n]*)?)", 8)
"""The defaults list at the top level of a primary config; 8 is `re.MULTILINE`."""
_MOST_CONFIGS = 32
"""YAML files of a folder that are searched for a defaults list."""
_DEEPEST_GROUP = 2


def is_hydra_fragment(text: str) -> bool:
    """Whether a YAML file declares itself a part of a config that Hydra composes."""
    return text.startswith("# @package ")


def is_for_omegaconf(data: dict[Any, Any]) -> bool:
    """Whether OmegaConf fills in a value at the top level, or a key names what Hydra makes of the others."""
    if "_target_" in data:
        return True
    return any(isinstance(value, str) and "${" in value and _INTERPOLATION.search(value) for value in data.values())


def is_in_hydra_group(path: Path) -> bool:
    """Whether the folder of a file is a config group: a YAML file of a folder above has it in its defaults list."""
    folder = Path(disk.real(path)).parent
    group = ""
    for _ in range(_DEEPEST_GROUP):
        group = f"{folder.name}/{group}" if group else folder.name
        folder = folder.parent
        if not lies_inside(str(folder)):
            return False
        configs = [name for name in names(folder) if name.endswith((".yaml", ".yml"))]
        if any(_lists(folder / name, group) for name in configs[:_MOST_CONFIGS]):
            return True
    return False


def _lists(config: Path, group: str) -> bool:
    """Whether a config takes an option of a group: `- training: sft`, `- override /training: sft`, `- training/sft`."""
    data = read_bytes(disk.real(config))
    found = None if isinstance(data, Problem) else _DEFAULTS.search(data)
    if found is None:
        return False
    listed = found[1].decode("utf-8", "replace")
    entries = (entry.strip().removeprefix("-").strip() for entry in listed.splitlines())
    groups = (entry.removeprefix("optional ").removeprefix("override ").lstrip("/") for entry in entries)
    return any(name.startswith((f"{group}:", f"{group}@", f"{group}/")) for name in groups)
