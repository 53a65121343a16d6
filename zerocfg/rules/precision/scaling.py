"""ZC315 to ZC319, ZC331 and ZC333: the loss scale of fp16."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import stage_of, tuned
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.precision.dtypes import precision_of
from zerocfg.rules.subjects import given_by, in_deepspeed
from zerocfg.run.model import Run

_DEFAULT_POWER = 16
_FLOAT = 1024
"""The first power of 2 that no float holds: without ZeRO DeepSpeed divides by the scale as a float."""


def _dynamic(run: Run) -> Key | None:
    """The fp16 section of a run in fp16 whose loss scale adapts."""
    fp16 = deepspeed(run, "fp16")
    adapts = "loss_scale" not in fp16 or fp16["loss_scale"].is_number(0)
    return fp16 if adapts and fp16.section and precision_of(run) == "fp16" else None


DYNAMIC = given_by(_dynamic, config="deepspeed")


@rule("ZC315", "loss-scale-fixed", Severity.WARNING, in_deepspeed("fp16", "loss_scale"))
def loss_scale_fixed(key: Key) -> Iterator[Finding]:
    if key.number is not None and key.number > 0 and precision_of(key.run) == "fp16":
        yield key.finding(
            f"the loss scale stays at {key.number:g} for the whole training: where gradients overflow, every step is "
            "skipped and nothing lowers it",
            "write 0: DeepSpeed then adapts it",
            fix=key.replace("0", "let DeepSpeed adapt the loss scale", safe=False),
        )


@rule("ZC316", "initial-loss-scale-too-high", Severity.ERROR, DYNAMIC)
def initial_loss_scale_too_high(fp16: Key) -> Iterator[Finding]:
    power = fp16["initial_scale_power"].number
    if power is None or power <= 24:
        return
    fatal = power >= 64
    sharded = stage_of(fp16.run) in (1, 2, 3)
    if power >= (64 if sharded else _FLOAT):
        cost = "no number holds that, and training stops in its first step"
    elif sharded:
        cost = f"about {power - _DEFAULT_POWER:g} steps are skipped before it fits"
    else:  # DeepSpeed 0.19.8 divides the gradients by it without having multiplied the loss; others skip steps
        cost = "fp16 holds no more than 65504"
    yield fp16["initial_scale_power"].finding(
        f"the loss scale starts at 2 to the power of {power:g}: {cost}",
        "write 16",
        severity=None if fatal else Severity.NOTE,
        fix=fp16["initial_scale_power"].replace("16", "start at 65536, the default", safe=False),
    )


@rule("ZC317", "loss-scaling-bound-not-positive", Severity.ERROR, DYNAMIC, versions="deepspeed>=0.19.3")
def loss_scaling_bound_not_positive(fp16: Key) -> Iterator[Finding]:
    for key in (fp16["loss_scale_window"], fp16["min_loss_scale"]):
        if key.number is not None and key.number <= 0:
            yield key.finding(
                f"`{key.name}` is {key.number:g}, but a dynamic loss scale needs a number above 0; DeepSpeed refuses "
                "the config",
                "leave the key out",
                fix=key.delete("use the default", safe=False),
            )


@rule("ZC318", "loss-scale-starts-at-minimum", Severity.WARNING, DYNAMIC)
def loss_scale_starts_at_minimum(fp16: Key) -> Iterator[Finding]:
    power = fp16["initial_scale_power"].number if "initial_scale_power" in fp16 else _DEFAULT_POWER
    least = fp16["min_loss_scale"].number
    if power is not None and least is not None and 0 <= power < 64 and least >= 2.0**power:
        yield fp16["min_loss_scale"].finding(
            f"the loss scale starts at {2.0**power:g} and may not fall below {least:g}; when gradients overflow, "
            "training ends instead of trying a lower scale",
            "leave the key out",
            fix=fp16["min_loss_scale"].delete("use the default minimum of 1", safe=False),
        )


@rule("ZC319", "fp16-setting-without-fp16", Severity.NOTE, in_deepspeed("fp16"))
def fp16_setting_without_fp16(fp16: Key) -> Iterator[Finding]:
    mode = precision_of(fp16.run)
    if mode not in ("bf16", "fp32") or fp16.get("enabled") == "auto":
        return
    scale, cast = fp16["loss_scale"], fp16["auto_cast"]
    for key, idle in ((scale, scale.number is not None and scale.number > 0), (cast, cast.value is True)):
        if idle:
            yield key.finding(
                f"`fp16.{key.name}` has no effect: the job trains in {mode}",
                "leave it out",
                fix=key.delete("remove the setting without effect"),
            )


@rule("ZC331", "loss-scale-never-falls", Severity.ERROR, DYNAMIC)
def loss_scale_never_falls(fp16: Key) -> Iterator[Finding]:
    key = fp16["hysteresis"]
    if key.number is not None and key.number < 1:
        yield key.finding(
            f"with `hysteresis` {key.number:g} the loss scale never falls: after an overflow every further step is "
            "skipped",
            "write 1 or more",
            fix=key.delete("use the default of 2", safe=False),
        )


@rule("ZC333", "fp16-loss-unscaled", Severity.ERROR, in_deepspeed("fp16"), versions="deepspeed>=0.18.3")
def fp16_loss_unscaled(fp16: Key) -> Iterator[Finding]:
    """DeepSpeedEngine.scale asks only ZeRO's own optimizers to scale a loss; every optimizer of fp16 divides."""
    if stage_of(fp16.run) != 0 or precision_of(fp16.run) != "fp16" or not fp16.section or tuned(fp16.run):
        return
    scale = fp16["loss_scale"].number if "loss_scale" in fp16 else 0
    power = fp16["initial_scale_power"].number if "initial_scale_power" in fp16 else _DEFAULT_POWER
    if scale is None or scale == 1 or (scale == 0 and power is None):
        return
    divisor = f"{scale:g}" if scale else f"the loss scale, which starts at 2 to the power of {power:g}"
    yield fp16["enabled"].finding(
        f"at ZeRO stage 0 DeepSpeed divides the gradients by {divisor}, and has not multiplied the loss by it: the "
        "weights hardly move, and no error is shown",
        "use ZeRO stage 1 or higher",
    )
