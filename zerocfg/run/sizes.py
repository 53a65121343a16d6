"""The sizes of a model, from its ``config.json`` or from what a spec states."""

from __future__ import annotations

from typing import Any

from zerocfg.run.facts import ModelSummary
from zerocfg.run.widths import widths


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
