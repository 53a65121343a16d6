"""ZC322 to ZC325: torch.autocast under DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import stage_of
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.precision.dtypes import dtype_of, precision_of
from zerocfg.rules.subjects import given_by
from zerocfg.run.model import Run

_MODULES = frozenset(("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "LayerNorm", "Bilinear"))


def _autocast(run: Run) -> Key | None:
    """The torch_autocast section where it is on."""
    key = deepspeed(run, "torch_autocast")
    return key if key.get("enabled") is True else None


AUTOCAST = given_by(_autocast, config="deepspeed")


@rule("ZC322", "autocast-of-16-bit-model", Severity.ERROR, AUTOCAST, versions="deepspeed>=0.17.2")
def autocast_of_16_bit_model(key: Key) -> Iterator[Finding]:
    mode = precision_of(key.run)
    if mode not in ("bf16", "fp16"):
        return
    cast = dtype_of(key["dtype"])
    if cast == mode and deepspeed(key.run, mode, f"{mode}_master_weights_and_grads").on:
        return
    stops = mode == "bf16" and cast == "fp16" and stage_of(key.run) == 0
    yield key.finding(
        f"`torch_autocast` is on, but the model's weights are {mode} already"
        + ("; the fp16 scaler finds nothing to scale and the first step stops" if stops else ""),
        f"use one of the two: `{mode}` or `torch_autocast`",
        severity=None if stops else Severity.WARNING,
        fix=key.delete(f"keep the {mode} section alone", safe=False),
    )


@rule("ZC323", "autocast-fp16-without-scale", Severity.WARNING, AUTOCAST, versions="deepspeed>=0.19.3")
def autocast_fp16_without_scale(cast: Key) -> Iterator[Finding]:
    stage = stage_of(cast.run)
    if dtype_of(cast["dtype"]) != "fp16" or stage not in (1, 2, 3):
        return
    if precision_of(cast.run) not in ("bf16", "fp16"):
        yield cast["dtype"].finding(
            f"autocast to fp16 at ZeRO stage {stage}: no loss scale is applied, and small gradients become 0",
            "write bf16, or use the `fp16` section instead",
            fix=cast["dtype"].replace('"bf16"', "autocast to bf16", safe=False),
        )


@rule("ZC324", "autocast-without-dtype", Severity.WARNING, AUTOCAST, versions="deepspeed>=0.17.2")
def autocast_without_dtype(cast: Key) -> Iterator[Finding]:
    if "dtype" not in cast:
        yield cast.finding(
            "`torch_autocast` is on without a dtype: torch takes fp16 on a card, without a loss scale",
            'write "dtype": "bf16"',
            fix=cast["dtype"].set('"bf16"', "say bf16", safe=False),
        )


@rule("ZC325", "autocast-module-without-package", Severity.ERROR, AUTOCAST, versions="deepspeed>=0.17.2")
def autocast_module_without_package(cast: Key) -> Iterator[Finding]:
    names = cast["lower_precision_safe_modules"]
    for key in names if isinstance(names.value, list) else ():
        if not isinstance(key.value, str) or "." in key.value:
            continue
        full = f"torch.nn.{key.value}" if key.value in _MODULES else ""
        yield key.finding(
            f"`{key.value}` is no dotted name of a class; DeepSpeed cannot import it and stops",
            f"write {full}" if full else "write the full name with its package, as in torch.nn.Linear",
            fix=key.replace(f'"{full}"', f"write {full}") if full else None,
        )
