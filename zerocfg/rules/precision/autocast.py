"""ZC322 to ZC325: torch.autocast under DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import section, stage_of
from zerocfg.rules.fixes import edited
from zerocfg.rules.precision.dtypes import about, dtype_of, precision_of, without
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import insert_entry, replace_value

_MODULES = frozenset(("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "LayerNorm", "Bilinear"))


def _autocast(run: Run) -> dict[str, object]:
    """The torch_autocast section where it is on; any value that counts as true does that."""
    written = section(run, "torch_autocast")
    return written if written.get("enabled") is True else {}


@rule("ZC322", "autocast-of-16-bit-model", Severity.ERROR, versions="deepspeed>=0.17.2")
def autocast_of_16_bit_model(run: Run) -> Iterator[Finding]:
    mode, written = precision_of(run), _autocast(run)
    if not written or mode not in ("bf16", "fp16"):
        return
    cast = dtype_of(written.get("dtype"))
    if cast == mode and truth(section(run, mode).get(f"{mode}_master_weights_and_grads")):
        return
    stops = mode == "bf16" and cast == "fp16" and stage_of(run) == 0
    yield about(
        run,
        ("torch_autocast",),
        f"`torch_autocast` is on, but the model's weights are {mode} already"
        + ("; the fp16 scaler finds nothing to scale and the first step stops" if stops else ""),
        f"use one of the two: `{mode}` or `torch_autocast`",
        severity=None if stops else Severity.WARNING,
        fix=without(run, ("torch_autocast",), f"keep the {mode} section alone"),
    )


@rule("ZC323", "autocast-fp16-without-scale", Severity.WARNING, versions="deepspeed>=0.19.3")
def autocast_fp16_without_scale(run: Run) -> Iterator[Finding]:
    if dtype_of(_autocast(run).get("dtype")) != "fp16" or stage_of(run) not in (1, 2, 3):
        return
    if precision_of(run) in ("bf16", "fp16"):
        return
    path = ("torch_autocast", "dtype")
    yield about(
        run,
        path,
        f"autocast to fp16 at ZeRO stage {stage_of(run)}: no loss scale is applied, and small gradients become 0",
        "write bf16, or use the `fp16` section instead",
        fix=edited(replace_value, run.deepspeed, path, '"bf16"', why="autocast to bf16", safe=False),
    )


@rule("ZC324", "autocast-without-dtype", Severity.WARNING, versions="deepspeed>=0.17.2")
def autocast_without_dtype(run: Run) -> Iterator[Finding]:
    written = _autocast(run)
    if not written or "dtype" in written:
        return
    yield about(
        run,
        ("torch_autocast",),
        "`torch_autocast` is on without a dtype: torch takes fp16 on a card, without a loss scale",
        'write "dtype": "bf16"',
        fix=edited(insert_entry, run.deepspeed, ("torch_autocast",), "dtype", '"bf16"', why="say bf16", safe=False),
    )


@rule("ZC325", "autocast-module-without-package", Severity.ERROR, versions="deepspeed>=0.17.2")
def autocast_module_without_package(run: Run) -> Iterator[Finding]:
    names = _autocast(run).get("lower_precision_safe_modules")
    for index, name in enumerate(names if isinstance(names, list) else []):
        if not isinstance(name, str) or "." in name:
            continue
        path = ("torch_autocast", "lower_precision_safe_modules", index)
        full = f"torch.nn.{name}"
        yield about(
            run,
            path,
            f"`{name}` is no dotted name of a class; DeepSpeed cannot import it and stops",
            f"write {full}" if name in _MODULES else "write the full name with its package, as in torch.nn.Linear",
            fix=edited(replace_value, run.deepspeed, path, f'"{full}"', why=f"write {full}")
            if name in _MODULES
            else None,
        )
