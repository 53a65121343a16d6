"""The hidden sizes of config files are those of the objects that transformers makes of them, class by class."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.parity.widths import PROBE, made, table
from zerocfg.run import widths
from zerocfg.run.widths import Widths

pytestmark = pytest.mark.libs

FIXED = ("lightglue",)
"""Classes whose hidden size no file changes under one of the names tried here."""


def real(config: Any) -> int | None:
    """As the Trainer looks: transformers/integrations/deepspeed.py, `trainer_config_finalize`."""
    if hasattr(config, "hidden_size"):
        return config.hidden_size  # type: ignore[no-any-return]
    if hasattr(config, "hidden_sizes"):
        return max(config.hidden_sizes)
    text = getattr(config, "text_config", None)
    return getattr(text, "hidden_size", None) or max(getattr(text, "hidden_sizes", []), default=None)


def ours(found: Widths) -> int | None:
    return next((size for size in (found.own, found.widest, found.text) if size is not None), None)


def test_table_is_of_the_installed_release() -> None:
    assert widths.table() == table(), "python -m tests.parity.widths"


def test_every_class(count: Callable[[str, int], None]) -> None:
    """With its defaults, with a width under every name that such files use, and with one in the text part."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    wrong, compared = [], 0
    files: list[dict[str, Any]] = [{name: PROBE} for name in ("hidden_size", "n_embd", "n_embed", "d_model", "dim")]
    files += [{}, {"text_config": {"hidden_size": PROBE}}, {"hidden_sizes": [PROBE, 2 * PROBE]}]
    for kind in widths.table():
        for file in files:
            config = made(CONFIG_MAPPING[kind], **deepcopy(file))
            if config is None:  # refused, say because the width is no multiple of the heads
                continue
            compared += 1
            found = ours(widths.widths({"model_type": kind, **file}))
            if found != real(config) and kind not in FIXED:
                wrong.append(f"{kind} {file}: {found}, really {real(config)}")
    count("config files whose hidden size was compared with transformers", compared)
    assert compared > 5000
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong)
