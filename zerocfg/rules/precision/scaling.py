"""ZC315 to ZC319 and ZC331: the loss scale of fp16."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import section, stage_of
from zerocfg.rules.fixes import edited
from zerocfg.rules.precision.dtypes import about, precision_of, without
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value

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


@rule("ZC315", "loss-scale-fixed", Severity.WARNING)
def loss_scale_fixed(run: Run) -> Iterator[Finding]:
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


@rule("ZC316", "initial-loss-scale-too-high", Severity.ERROR)
def initial_loss_scale_too_high(run: Run) -> Iterator[Finding]:
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


@rule("ZC317", "loss-scaling-bound-not-positive", Severity.ERROR, versions="deepspeed>=0.19.3")
def loss_scaling_bound_not_positive(run: Run) -> Iterator[Finding]:
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


@rule("ZC318", "loss-scale-starts-at-minimum", Severity.WARNING)
def loss_scale_starts_at_minimum(run: Run) -> Iterator[Finding]:
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


@rule("ZC319", "fp16-setting-without-fp16", Severity.NOTE)
def fp16_setting_without_fp16(run: Run) -> Iterator[Finding]:
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


@rule("ZC331", "loss-scale-never-falls", Severity.ERROR)
def loss_scale_never_falls(run: Run) -> Iterator[Finding]:
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
