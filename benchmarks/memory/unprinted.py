"""Two more readings of the ZeRO-3 rows whose source does not print its JSON file. Neither replaces the literal one.

What ZeRO-3 keeps gathered depends on settings of that file. The literal reading takes DeepSpeed's defaults; here it is

- estimated from the other rows of the same source, never from the row itself (leave one out), or
- what the training config of DeepSpeed-Chat sets, which many programs have copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from benchmarks.memory.errors import error, summary
from benchmarks.memory.ours import of_reading
from benchmarks.memory.readings import SHAPES, Reading
from zerocfg.memory.options import Options
from zerocfg.memory.zero.parameter_gathering import GATHERED

if TYPE_CHECKING:
    from zerocfg.memory.predict import Prediction

LEAST = {"max_live_parameters": 1, "max_reuse_distance": 0}
"""Nothing is kept gathered but what the module at work needs."""

DEEPSPEED_CHAT = {
    "max_live_parameters": 30_000_000,
    "prefetch_bucket_size": 30_000_000,
    "param_persistence_threshold": 10_000,
}
"""get_train_ds_config of DeepSpeedExamples, applications/DeepSpeed-Chat/dschat/utils/ds_utils.py at 90c2a9f (until
September 2024; then overlap_comm true was added, which is the default of ZeRO-3 anyway). It also sets
memory_efficient_linear false: ``Reading.keeps_weights``."""

NAMES = {
    "literal": "literal (defaults)",
    "left_out": "estimated from the other ZeRO-3 rows",
    "deepspeed_chat": "DeepSpeed-Chat's config",
}


def asks(reading: Reading) -> bool:
    """Whether the row is ZeRO-3 of the source that prints no JSON file."""
    return reading.keeps_logits and isinstance(reading.options, Options) and reading.options.stage == 3


def _with(reading: Reading, settings: dict[str, int]) -> Reading:
    assert isinstance(reading.options, Options)
    return replace(reading, options=replace(reading.options, **settings))  # type: ignore[arg-type]


def _gathered(prediction: Prediction) -> int:
    return sum(size for term, size in prediction.worst.parts if term.name == GATHERED.name)


def other_settings(reading: Reading, literal: Prediction, measured: int) -> dict[str, Any]:
    """What the row's result says besides its literal error; sizes are bytes.

    ``gathered``: kept at the peak with small settings and with the defaults. ``without_gathered``: all the rest.
    """
    _, least = of_reading(_with(reading, LEAST), SHAPES[reading.model])
    if least.worst.moment != literal.worst.moment:
        raise ValueError(f"{reading.row}: the peak moves with what is kept gathered, so the rest is not one figure")
    # Without checkpointing and without memory_efficient_linear autograd holds every weight from forward to backward.
    keeps = not reading.workload.gradient_checkpointing
    chat = replace(_with(reading, DEEPSPEED_CHAT), keeps_weights=keeps)
    _, as_chat = of_reading(chat, SHAPES[reading.model])
    return {
        "gathered": [_gathered(least), _gathered(literal)],
        "without_gathered": literal.allocated.expected - _gathered(literal),
        "if_released": error(least.allocated.expected, measured),
        "as_deepspeed_chat": error(as_chat.allocated.expected, measured),
    }


def leave_one_out(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Clean ZeRO-3 row -> bytes kept gathered, from the other ones: measured minus predicted without, averaged.

    Bounded by what the settings can give, from the module at work to the default.
    """
    rows = [row for row in rows if row["group"] == "clean" and "without_gathered" in row]
    found = {}
    for row in rows:
        others = [one["measured"] - one["without_gathered"] for one in rows if one is not row]
        if others:
            least, default = row["gathered"]
            found[row["row"]] = int(min(max(mean(others), least), default))
    return found


def errors(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Reading (keys of ``NAMES``) -> clean row -> error. Rows other than ZeRO-3 have the same error in all."""
    kept = leave_one_out(rows)
    found: dict[str, dict[str, float]] = {name: {} for name in NAMES}
    for row in rows:
        if row["group"] != "clean" or "error" not in row:
            continue
        name = row["row"]
        found["literal"][name] = found["left_out"][name] = found["deepspeed_chat"][name] = row["error"]
        if "as_deepspeed_chat" in row:
            found["deepspeed_chat"][name] = row["as_deepspeed_chat"]
        if name in kept:
            found["left_out"][name] = error(row["without_gathered"] + kept[name], row["measured"])
    return found


def statistics(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Reading -> summary over the clean rows, and the estimates themselves (bytes)."""
    found: dict[str, Any] = {name: summary(here.values()) for name, here in errors(rows).items()}
    return {**found, "kept_gathered": leave_one_out(rows)}
