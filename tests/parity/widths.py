"""Where each config class of transformers keeps its hidden size, found by making one: `python -m tests.parity.widths`
writes zerocfg/run/widths.json."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any
from unittest import mock

from zerocfg.run.widths import TABLE

PROBE = 48
OTHER_NAMES = ("n_embed", "n_embd", "d_model", "dim", "emb_dim")
"""Names that classes accept for `hidden_size` in code of their own, not by their attribute_map."""


def table() -> dict[str, Any]:
    """Model type -> what `zerocfg.run.widths` says of it."""
    with mock.patch.dict(os.environ, HF_HUB_OFFLINE="1"):
        return _table()


def _table() -> dict[str, Any]:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    logging.disable(logging.CRITICAL)
    try:
        return {kind: entry for kind in sorted(CONFIG_MAPPING) if (entry := _entry(CONFIG_MAPPING[kind])) is not None}
    finally:
        logging.disable(logging.NOTSET)


def made(kind: Any, **values: Any) -> Any:
    """A config of this class, None where it refuses the values."""
    try:
        return kind(**values)
    except Exception:
        return None


def _entry(kind: Any) -> Any:
    plain = made(kind)
    if plain is None:
        return None
    key = kind.attribute_map.get("hidden_size", "hidden_size")
    if hasattr(plain, "hidden_size"):
        if key == "hidden_size":
            for name in OTHER_NAMES:
                if getattr(made(kind, **{name: PROBE}), "hidden_size", None) == PROBE != plain.hidden_size:
                    key = name
        set_by_file = getattr(made(kind, **{key: PROBE}), "hidden_size", PROBE) == PROBE
        if set_by_file or not hasattr(plain, "text_config"):
            return plain.hidden_size if key == "hidden_size" else [key, plain.hidden_size]
    found: dict[str, Any] = {"own": True} if hasattr(plain, "hidden_size") else {}
    if hasattr(plain, "hidden_sizes"):
        found["widest"] = max(plain.hidden_sizes)
    text = getattr(plain, "text_config", None)
    if hasattr(text, "model_type"):
        found["text"] = text.model_type
        found["width"] = getattr(text, "hidden_size", None)
    if "own" not in found:
        flat = made(kind, hidden_size=PROBE)
        in_text = getattr(getattr(flat, "text_config", None), "hidden_size", None) == PROBE
        if in_text and not hasattr(flat, "hidden_size"):
            found["flat"] = True
    return found


def write() -> None:
    rows = [f"{json.dumps(kind)}: {json.dumps(entry)}" for kind, entry in table().items()]
    Path(TABLE).write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
