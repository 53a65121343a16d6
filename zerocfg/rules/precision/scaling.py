"""ZC315 to ZC319 and ZC331: the loss scale of fp16."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Severity, rule
from zerocfg.rules.effects import edited, section, stage_of
from zerocfg.rules.precision.dtypes import about, precision_of, without
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}%s}\n'
_FP16 = ', "fp16": {"enabled": true%s}'
_DEFAULT_POWER = 16


def _number(value: object) -> float | None:
    """A finite number; None for anything else, too large for a float included."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return value if abs(value) < sys.float_info.max else None


def _dynamic(run: Run) -> dict[str, object]:
    """The fp16 section of a run in fp16 whose loss scale adapts; empty for others."""
    written = section(run, "fp16")
    return written if precision_of(run) == "fp16" and _number(written.get("loss_scale", 0)) == 0 else {}


@rule(
    "ZC315",
    "loss-scale-fixed",
    Severity.WARNING,
    bad=Example({"ds.json": _DS % (2, _FP16 % ', "loss_scale": 1048576')}, consumer="deepspeed").finds(
        "warning", 'ds.json: "loss_scale": 1048576', "1.04858e+06", 0
    ),
    good=Example({"ds.json": _DS % (2, _FP16 % ', "loss_scale": 0')}, consumer="deepspeed"),
    proof=shows("step", {"step.skipped": (2, 0), "step.loss_scale": (1048576.0, 65536)}),
    fixable=True,
    references=("deepspeed/runtime/fp16/loss_scaler.py@0.19.8",),
)
def loss_scale_fixed(run: Run) -> Iterator[Finding]:
    """fp16 training with a loss scale that never changes.

    A loss scale keeps gradients inside fp16's narrow range, and the right one changes while a model learns. 0 lets
    DeepSpeed look for it; any other number is kept to the end.

    What happens: when the number is too large, gradients overflow and the step is skipped, again and again:
    `OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.` When it is too small, small
    gradients become 0. `initial_scale_power`, `loss_scale_window`, `hysteresis` and `min_loss_scale` have no effect.

    Fix: writes 0, the dynamic scale.

    When to ignore: the number was found for this model and data.
    """
    scale = _number(section(run, "fp16").get("loss_scale"))
    if scale is None or scale <= 0 or precision_of(run) != "fp16":
        return
    path = ("fp16", "loss_scale")
    yield about(
        run,
        path,
        f"the loss scale stays at {scale:g} for the whole training: where gradients overflow, every step is skipped "
        "and nothing lowers it",
        "write 0: DeepSpeed then adapts it",
        fix=edited(replace_value, run.deepspeed, path, "0", why="let DeepSpeed adapt the loss scale", safe=False),
    )


@rule(
    "ZC316",
    "initial-loss-scale-too-high",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % (2, _FP16 % ', "initial_scale_power": 65536')}, consumer="deepspeed").finds(
            "error", 'ds.json: "initial_scale_power": 65536', 2, 65536, 16
        ),
        Example(
            {"ds.json": _DS % (2, _FP16 % ', "initial_scale_power": 32')},
            consumer="deepspeed",
            proof=shows("step", {"step.skipped": (2, 0), "step.loss_scale": (2.0**31, 65536)}),
        ).finds("note", 'ds.json: "initial_scale_power": 32', 2, 32, 16, 16),
    ),
    good=Example({"ds.json": _DS % (2, _FP16 % ', "initial_scale_power": 16')}, consumer="deepspeed"),
    proof=crashes("step", "OverflowError: int too big to convert"),
    fixable=True,
)
def initial_loss_scale_too_high(run: Run) -> Iterator[Finding]:
    """`initial_scale_power` is an exponent: the loss scale starts at 2 to the power of it.

    A scale that is too high is found by failing: each overflow throws a step away and halves it. 16, that is 65536, is
    the default. Who writes the scale itself (65536) asks for a number of twenty thousand digits.

    What happens: above 24 the first steps are skipped, about one for each power too many, with the learning rate
    schedule going on. From 64 on training stops in its first step with `OverflowError: int too big to convert` (stages
    1 to 3) or never finds a scale that works.

    Fix: writes 16.

    When to ignore: the power is below 64 and a few lost steps at the start do not matter.
    """
    power = _number(_dynamic(run).get("initial_scale_power"))
    if power is None or power <= 24:
        return
    path = ("fp16", "initial_scale_power")
    fatal = power >= 64
    cost = (
        "no number holds that, and training stops in its first step"
        if fatal and stage_of(run) in (1, 2, 3)
        else f"about {min(power, 1e6) - _DEFAULT_POWER:g} steps are skipped before it fits"
    )
    yield about(
        run,
        path,
        f"the loss scale starts at 2 to the power of {power:g}: {cost}",
        "write 16",
        severity=None if fatal else Severity.NOTE,
        fix=edited(replace_value, run.deepspeed, path, "16", why="start at 65536, the default", safe=False),
    )


@rule(
    "ZC317",
    "loss-scaling-bound-not-positive",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % (2, _FP16 % ', "min_loss_scale": 0')}, consumer="deepspeed").finds(
            "error", 'ds.json: "min_loss_scale": 0', 0, 0
        ),
        Example({"ds.json": _DS % (2, _FP16 % ', "loss_scale_window": 0')}, consumer="deepspeed").finds(
            "error", 'ds.json: "loss_scale_window": 0', 0, 0
        ),
    ),
    good=Example(
        {"ds.json": _DS % (2, _FP16 % ', "min_loss_scale": 1, "loss_scale_window": 500')}, consumer="deepspeed"
    ),
    proof=crashes("parse", "must be > 0 when dynamic loss scaling is enabled"),
    fixable=True,
    versions="deepspeed>=0.19.3",
)
def loss_scaling_bound_not_positive(run: Run) -> Iterator[Finding]:
    """`loss_scale_window` or `min_loss_scale` is 0 or negative while the loss scale is dynamic.

    The window is the number of good steps after which the scale doubles; the minimum is where halving ends. Neither
    makes sense at 0, and DeepSpeed refuses it for fp16 with a dynamic scale.

    What happens: the config is refused: `fp16.min_loss_scale must be > 0 when dynamic loss scaling is enabled
    (loss_scale=0)`.

    Fix: removes the key, so that the default applies (a window of 1000, a minimum of 1).
    """
    written = _dynamic(run)
    for key in ("loss_scale_window", "min_loss_scale"):
        value = _number(written.get(key))
        if value is not None and value <= 0:
            yield about(
                run,
                ("fp16", key),
                f"`{key}` is {value:g}, but a dynamic loss scale needs a number above 0; DeepSpeed refuses the config",
                "leave the key out",
                fix=without(run, ("fp16", key), "use the default"),
            )


@rule(
    "ZC318",
    "loss-scale-starts-at-minimum",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % (2, _FP16 % ', "initial_scale_power": 20, "min_loss_scale": 1048576, "hysteresis": 1')},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "min_loss_scale": 1048576', "1.04858e+06", "1.04858e+06"),
    good=Example(
        {"ds.json": _DS % (2, _FP16 % ', "initial_scale_power": 20, "min_loss_scale": 1, "hysteresis": 1')},
        consumer="deepspeed",
    ),
    proof=crashes("step", "Current loss scale already at minimum"),
    fixable=True,
)
def loss_scale_starts_at_minimum(run: Run) -> Iterator[Finding]:
    """`min_loss_scale` is not below the scale that training starts with.

    The scale must be able to fall when gradients overflow, which is normal at the start. With the minimum at or above
    the first scale it cannot.

    What happens: the first overflows (as many as `hysteresis`) end the training: `Exception: Current loss scale already
    at minimum - cannot decrease scale anymore. Exiting run.` A minimum above the start raises the scale first.

    Fix: removes `min_loss_scale`; the default is 1.

    When to ignore: gradients of this model are known not to overflow at that scale.
    """
    written = _dynamic(run)
    power, least = _number(written.get("initial_scale_power", _DEFAULT_POWER)), _number(written.get("min_loss_scale"))
    if power is None or least is None or not 0 <= power < 64 or least < 2.0**power:
        return
    path = ("fp16", "min_loss_scale")
    yield about(
        run,
        path,
        f"the loss scale starts at {2.0**power:g} and may not fall below {least:g}; when gradients overflow, training "
        "ends instead of trying a lower scale",
        "leave the key out",
        fix=without(run, path, "use the default minimum of 1"),
    )


@rule(
    "ZC319",
    "fp16-setting-without-fp16",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % (2, ', "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 1024}')},
        consumer="deepspeed",
    ).finds("note", 'ds.json: "loss_scale": 1024'),
    good=Example(
        {"ds.json": _DS % (2, ', "bf16": {"enabled": true}, "fp16": {"enabled": false}')}, consumer="deepspeed"
    ),
    proof=shows(
        "step",
        {
            "engine.float16_config.loss_scale": (1024.0, 0),
            "step.loss_scale": (1.0, 1.0),
        },
        extent="the number that the loss was multiplied with, 1 whatever is written.",
    ),
    fixable=True,
)
def fp16_setting_without_fp16(run: Run) -> Iterator[Finding]:
    """A loss scale or `auto_cast` in the fp16 section of a run that is not in fp16.

    bf16 and fp32 have the range that fp16 lacks, and are trained without a loss scale. Who reads the file may believe
    that one is used.

    What happens: nothing; the values are parsed and not used.

    Fix: removes the key.

    When to ignore: the file is shared with runs in fp16. Values that are DeepSpeed's defaults are not reported.
    """
    mode, written = precision_of(run), section(run, "fp16")
    if mode not in ("bf16", "fp32") or written.get("enabled") == "auto":
        return
    scale = _number(written.get("loss_scale"))
    for key, idle in (("loss_scale", scale is not None and scale > 0), ("auto_cast", written.get("auto_cast") is True)):
        if idle:
            path = ("fp16", key)
            yield about(
                run,
                path,
                f"`fp16.{key}` has no effect: the job trains in {mode}",
                "leave it out",
                fix=edited(delete_entry, run.deepspeed, path, why="remove the setting without effect"),
            )


@rule(
    "ZC331",
    "loss-scale-never-falls",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % (2, _FP16 % ', "initial_scale_power": 20, "hysteresis": 0')}, consumer="deepspeed"
    ).finds("error", 'ds.json: "hysteresis": 0', 0, 1),
    good=Example({"ds.json": _DS % (2, _FP16 % ', "initial_scale_power": 20, "hysteresis": 1')}, consumer="deepspeed"),
    proof=shows("step", {"step.skipped": (2, 2), "step.loss_scale": (1048576, 262144.0)}),
    fixable=True,
)
def loss_scale_never_falls(run: Run) -> Iterator[Finding]:
    """`hysteresis` is 0 or negative, and the dynamic loss scale can no longer fall.

    Hysteresis counts how many overflows it takes to halve the scale. DeepSpeed counts it down and halves when 1 is
    reached; from 0 on it never is.

    What happens: the first overflow skips its step, as it should, but the scale stays, and so does the overflow: every
    further step is skipped, and the model no longer learns. The log says `but hysteresis is 0. Reducing hysteresis to
    -1`.

    Fix: removes the key; the default is 2.

    When to ignore: never; 1 is the number for halving at once.
    """
    path = ("fp16", "hysteresis")
    value = _number(_dynamic(run).get("hysteresis"))
    if value is not None and value < 1:
        yield about(
            run,
            path,
            f"with `hysteresis` {value:g} the loss scale never falls: after an overflow every further step is skipped",
            "write 1 or more",
            fix=without(run, path, "use the default of 2"),
        )


RULES = (
    loss_scale_fixed,
    initial_loss_scale_too_high,
    loss_scaling_bound_not_positive,
    loss_scale_starts_at_minimum,
    fp16_setting_without_fp16,
    loss_scale_never_falls,
)
