"""Where the ``config.json`` of a model lies: a path beside the spec, or the local cache of the Hugging Face hub.

Nothing is downloaded. The layout is huggingface_hub's (``constants.py`` and ``file_download.py``): below
``$HF_HUB_CACHE``, else ``$HF_HOME/hub``, else ``~/.cache/huggingface/hub``, the folder ``models--ORG--NAME`` holds
``refs/main`` with a commit, and ``snapshots/COMMIT/config.json``.
"""

from __future__ import annotations

import os
from pathlib import Path

from zerocfg.patterns import pattern
from zerocfg.source import boundary, disk
from zerocfg.source.paths import entries

CONFIG = "config.json"
_NAME = pattern(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*\Z")
_COMMIT = pattern(r"[0-9a-f]{4,64}\Z")


def find_config(text: str, folder: Path) -> Path | None:
    """The config.json that ``model: TEXT`` of a spec in ``folder`` means; None when it is nowhere.

    A file wins, then a folder that holds a config.json, then the hub's cache.
    """
    try:
        path = folder / text
        if path.is_file():
            return path
        if (path / CONFIG).is_file():
            return path / CONFIG
        return _cached(text) if is_hub_name(text) else None
    except (OSError, ValueError):
        return None


def is_hub_name(text: str) -> bool:
    """Whether a text may name a model of the hub (``org/name`` or ``name``) rather than a file."""
    return len(text) <= 200 and bool(_NAME.match(text)) and not text.endswith((".json", ".yaml", ".yml"))


def cache_folder() -> Path:
    """The folder of the hub's cache, whether it exists or not."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return _expanded(named)
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return _expanded(home) / "hub"


def _expanded(text: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(text)))  # noqa: PTH111 - Path's own raises for an unknown user


def cached_folder(name: str) -> str:
    """The name of a model's folder in the cache."""
    return "models--" + name.replace("/", "--")


def _cached(name: str) -> Path | None:
    """The config.json of the main branch; without one, of the only snapshot."""
    folder = cache_folder() / cached_folder(name)
    try:
        commit = _head(folder / "refs" / "main").decode("ascii", "replace").strip()
    except (OSError, ValueError):
        commit = ""
    snapshots = folder / "snapshots"
    if not _COMMIT.match(commit):
        found = entries(snapshots)[:2]
        if len(found) != 1:
            return None
        commit = found[0].name
    path = snapshots / commit / CONFIG
    if not path.is_file():
        return None
    boundary.lend(path)  # numbers of a model, of which nothing is quoted
    return path


def _head(path: Path) -> bytes:
    with boundary.lent(path):
        return disk.content(path, 100, 100)[1]
