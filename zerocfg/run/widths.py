"""The hidden size of a model as Python code finds it in the config object that transformers makes of a `config.json`.

Many files do not hold the key `hidden_size`: their config class has another name for it (`n_embd`, `d_model`), a
default, or keeps it in its `text_config`. Which class does what stands in `widths.json`, made from transformers 5.23.0
by tests/parity/widths.py. An entry is the default of `hidden_size`; or [the name in the file, the default]; or, for a
class without a hidden size of its own, a mapping: "widest", the largest of its default `hidden_sizes`; "text", the
model type of its default `text_config`, and "width", the hidden size of that; "flat", true where the file may hold the
keys of the text part at its top; "own", true where the object shows the width of its text part as its own. In all other
classes a `hidden_size` that the file holds nevertheless becomes an attribute.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from zerocfg.record import record
from zerocfg.run.facts import ModelSummary

TABLE = Path(__file__).with_name("widths.json")


@record(frozen=True, slots=True)
class Widths:
    """Elements. ``own``: `config.hidden_size`; ``widest``: the largest of `config.hidden_sizes`; ``text``: the same of
    `config.text_config`, the first that it has. None: the object has no such attribute.

    ``known``: the class belongs to transformers; of another one only what the file says plainly is known.
    """

    own: int | None = None
    widest: int | None = None
    text: int | None = None
    known: bool = True


@cache
def table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def widths(config: dict[str, Any]) -> Widths:
    """The widths of the object made of a `config.json`. Never raises for what it holds."""
    kind = config.get("model_type")
    entry = table().get(kind) if isinstance(kind, str) else None
    if isinstance(entry, dict):
        return _without_own(config, entry)
    key, default = entry if isinstance(entry, list) else ("hidden_size", entry)
    written = (config.get(key), config.get("hidden_size"), default)
    own = _number(next((value for value in written if value is not None), None))
    if entry is not None:
        return Widths(own)
    return Widths(
        own, _largest(config.get("hidden_sizes")), _of_text(config.get("text_config"), None, None), known=False
    )


def _without_own(config: dict[str, Any], entry: dict[str, Any]) -> Widths:
    nested, stray = config.get("text_config"), _number(config.get("hidden_size"))
    if entry.get("flat") and stray is not None:
        stray = None
        if nested is None:
            nested = {name: value for name, value in config.items() if name != "model_type"}
    sizes = config.get("hidden_sizes")
    text = _of_text(nested, entry["text"], entry["width"]) if "text" in entry else None
    if entry.get("own"):
        return Widths(text)
    return Widths(stray, entry.get("widest") if sizes is None else _largest(sizes), text)


def _of_text(nested: Any, kind: str | None, default: int | None) -> int | None:
    """The width of a text part. ``kind``: its model type if it names none; ``default``: the width if it is absent."""
    if not isinstance(nested, dict):
        return default if nested is None else None
    found = widths({"model_type": kind, **nested})
    return found.own if found.own is not None else found.widest


def _largest(sizes: Any) -> int | None:
    numbers = [size for size in sizes if _number(size) is not None] if isinstance(sizes, list) else []
    return max(numbers, default=None)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def model_summary(name: str, config: Any, *, stated: bool = False) -> ModelSummary | None:
    """The sizes that autos need, from a Hugging Face ``config.json`` or, ``stated``, from facts written into a spec.

    Facts say less than a config: what is not stated is not known, and no default of a class is taken for it.
    """
    if not isinstance(config, dict):
        return None
    kind, text, parameters = config.get("model_type"), config.get("text_config"), config.get("parameters")
    found = widths({key: value for key, value in config.items() if not (stated and key == "model_type")})
    return ModelSummary(
        name,
        model_type=kind if isinstance(kind, str) else None,
        parameters=int(parameters) if isinstance(parameters, (int, float)) and abs(parameters) < 1e18 else None,
        hidden_size=found.own,
        text_hidden_size=found.text,
        max_hidden_sizes=found.widest,
        width_known=found.known,
        dtype=_dtype(config) or _dtype(text),
    )


def _dtype(config: Any) -> str | None:
    """The dtype that weights were saved in, under its name of today or the one before."""
    found = config.get("dtype") or config.get("torch_dtype") if isinstance(config, dict) else None
    return found if isinstance(found, str) else None
