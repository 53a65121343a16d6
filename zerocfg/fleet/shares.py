"""Who of some workers lints which repositories: about as much text for each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from zerocfg.source import disk

T = TypeVar("T")
READ = (".py", ".ipynb", ".md", ".sh", ".yaml", ".yml", ".json", ".toml", ".cfg", ".txt")
"""How names of files end that a lint reads most of its time."""
FILE = 4096
"""Bytes that stand for the opening of a file."""
MOST = 1 << 20
"""Of a file's bytes; longer ones are hardly read."""


def weight(folder: str) -> int:
    """How much there is to read in a folder, in bytes; at least 1, also where it cannot be seen from here."""
    total = 1
    for at, names in disk.tree(folder, lambda _, name: not name.startswith(".") and name != "node_modules"):
        for name in names:
            if name.endswith(READ):
                try:
                    total += FILE + min(os.lstat(f"{at}/{name}").st_size, MOST)
                except OSError:
                    continue
    return total


def shares(items: Sequence[T], weights: Sequence[int], workers: int) -> list[list[T]]:
    """As many shares as workers, or as items where these are fewer: the heaviest item goes first, each to the share
    that weighs least so far. Within a share the order is that of ``items``."""
    loads = [0] * min(workers, len(items))
    chosen: list[list[int]] = [[] for _ in loads]
    for at in sorted(range(len(items)), key=lambda at: -weights[at]):
        lightest = min(range(len(loads)), key=loads.__getitem__)
        loads[lightest] += weights[at]
        chosen[lightest].append(at)
    return [[items[at] for at in sorted(share)] for share in chosen]
