"""Which config a model's name means: the one way for `zerocfg plan`, for specs and for `zerocfg init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.catalog.known_models import known_config, nearest_names
from zerocfg.run.hub import CONFIG, cache_folder, cached_folder, find_config, is_hub_name
from zerocfg.run.model import SourceFile
from zerocfg.source.load import load_bytes

if TYPE_CHECKING:
    from zerocfg.run.discover import Files


def open_model(text: str, folder: Path, files: Files) -> SourceFile | None:
    """The config that ``model: TEXT`` of a spec in ``folder`` means; None when there is none.

    A file wins, then a folder that holds a config.json, then the hub's cache, then the table of well-known models,
    whose configs have no path. Nothing is downloaded.
    """
    path = find_config(text, folder)
    if path is not None:
        return files.open(path)
    config = known_config(text) if is_hub_name(text) else None
    if config is None:
        return None
    document = load_bytes(f"published config of {text}", json.dumps(config).encode("utf-8"), "json")
    return SourceFile(document.source.name, "model", document.source, document)


def not_found(text: str) -> tuple[str, str]:
    """Why a model was not found, and the way out. For a text that ``open_model`` has no config for."""
    if not is_hub_name(text):
        return f"there is no file {text!r} beside the spec", "Name the model's config.json, or write its numbers out."
    wanted = cache_folder() / cached_folder(text) / "snapshots" / "COMMIT" / CONFIG
    return (
        f"there is no file {text!r} beside the spec, no such model in the hub's cache (looked for {wanted}), and it is "
        "not among the well-known models",
        f"{nearest(text)}Get it with `hf download {text} {CONFIG}`, or name the path of a config.json.",
    )


def nearest(text: str) -> str:
    """The known names closest to a name as the start of a hint; empty where none is similar."""
    names = nearest_names(text)
    return f"The nearest known: {', '.join(names)}. " if names else ""
