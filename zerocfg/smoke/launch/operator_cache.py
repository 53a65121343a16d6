"""The folder of DeepSpeed's compiled operators: torch writes a lock there even to load one that is compiled."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.smoke.launch import operator_locks

if TYPE_CHECKING:
    from pathlib import Path

NAME = "operators"


@dataclass(frozen=True)
class Cache:
    """``variables`` of the ranks; ``message``: what stands in for which folder, and what to do; None: nothing."""

    variables: dict[str, str]
    message: str | None


def find(scratch: Path) -> Cache:
    """The folder that the ranks use: one in ``scratch`` where theirs cannot be written and nothing is compiled there.

    Where something is compiled, the ranks are left to it: compiling it again would hide what the user's training meets.
    """
    root = operator_locks.folder()
    if writable(root) or any(root.rglob("*.so")):
        return Cache({}, None)
    message = (
        f"operators of DeepSpeed are compiled for this run alone: {root} cannot be written, so your training will fail "
        "where it needs one; name a folder that can be written with TORCH_EXTENSIONS_DIR"
    )
    return Cache({"TORCH_EXTENSIONS_DIR": str(scratch / NAME)}, message)


def writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or the folder itself where it does not exist yet."""
    # os.path answers where Path raises: below a folder that may not be looked into.
    while not os.path.exists(folder) and folder != folder.parent:  # noqa: PTH110
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)  # noqa: PTH112
