"""ZC322 to ZC325: torch.autocast under DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Severity, rule
from zerocfg.rules.effects import edited, section, stage_of
from zerocfg.rules.precision.dtypes import about, dtype_of, precision_of, without
from zerocfg.rules.proof import at_least, at_most, crashes, shows
from zerocfg.run.engine import truth
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry, replace_value

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}%s}\n'
_CAST = ', "torch_autocast": {"enabled": true%s}'
_MODULES = frozenset(("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "LayerNorm", "Bilinear"))


def _autocast(run: Run) -> dict[str, object]:
    """The torch_autocast section where it is on; any value that counts as true does that."""
    written = section(run, "torch_autocast")
    return written if written.get("enabled") is True else {}


@rule(
    "ZC322",
    "autocast-of-16-bit-model",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": _DS % (2, ', "bf16": {"enabled": true}' + _CAST % ', "dtype": "bf16"')}, consumer="deepspeed"
        ).finds("warning", 'ds.json: "torch_autocast": {"enabled": true, "dtype": "bf16"}'),
        Example(
            {"ds.json": _DS % (0, ', "bf16": {"enabled": true}' + _CAST % ', "dtype": "fp16"')},
            consumer="deepspeed",
            proof=crashes("step", "No inf checks were recorded for this optimizer"),
        ).finds("error", 'ds.json: "torch_autocast": {"enabled": true, "dtype": "fp16"}'),
    ),
    good=Example({"ds.json": _DS % (2, _CAST % ', "dtype": "bf16"')}, consumer="deepspeed"),
    proof=shows(
        "init",
        {"engine.parameters": ("bfloat16", "float32"), "engine.torch_autocast_enabled": (True, True)},
        extent="the dtype of the weights in the engine, 16-bit beside an autocast that is on.",
    ),
    fixable=True,
    references=("deepspeed/runtime/torch_autocast.py@0.19.8",),
    versions="deepspeed>=0.17.2",
)
def autocast_of_16_bit_model(run: Run) -> Iterator[Finding]:
    """`torch_autocast` beside a bf16 or fp16 section: two ways of mixed precision at once.

    torch_autocast keeps the weights in fp32 and computes the large products in 16 bits. The sections bf16 and fp16
    turn the weights themselves into 16 bits. With both, autocast has nothing left to keep, and its list of operations
    that need fp32 works on weights that were already rounded.

    What happens: no message, and 16-bit weights. Autocast to fp16 of a bf16 model without ZeRO stops at the first step:
    `AssertionError: No inf checks were recorded for this optimizer.` Under ZeRO its gradients are fp16 without a scale.

    Nothing is said where the master weights are 16-bit too and both name the same dtype: there autocast computes in
    fp32 what would lose most.

    Fix: removes `torch_autocast`.

    When to ignore: both name the same dtype, and the operations that autocast runs in fp32 are what you want it for.
    """
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


@rule(
    "ZC323",
    "autocast-fp16-without-scale",
    Severity.WARNING,
    bad=Example({"ds.json": _DS % (2, _CAST % ', "dtype": "fp16"')}, consumer="deepspeed").finds(
        "warning", 'ds.json: "dtype": "fp16"', 2, 0
    ),
    good=Example({"ds.json": _DS % (2, _CAST % ', "dtype": "bf16"')}, consumer="deepspeed"),
    proof=shows("step", {"engine.loss": (at_least(7.08), at_most(7.03))}),
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8",),
    versions="deepspeed>=0.19.3",
)
def autocast_fp16_without_scale(run: Run) -> Iterator[Finding]:
    """Autocast to fp16 under ZeRO, where nobody scales the loss.

    Gradients below 6e-8 are 0 in fp16, which is why fp16 training scales its loss. DeepSpeed makes the scaler for
    autocast without ZeRO only.

    What happens: no message. Gradients are computed and sent in fp16 at a scale of 1, small ones are lost, and the
    model learns more slowly than in bf16.

    Fix: writes bf16.

    When to ignore: the devices have no bf16; use the `fp16` section then, which scales.
    """
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


@rule(
    "ZC324",
    "autocast-without-dtype",
    Severity.WARNING,
    bad=Example({"ds.json": _DS % (2, _CAST % "")}, consumer="deepspeed").finds(
        "warning", 'ds.json: "torch_autocast": {"enabled": true}'
    ),
    good=Example({"ds.json": _DS % (2, _CAST % ', "dtype": "bf16"')}, consumer="deepspeed"),
    proof=shows("step", {"engine.autocast": ("float16", "bfloat16"), "step.loss_scale": (1.0, 1.0)}),
    fixable=True,
    versions="deepspeed>=0.17.2",
)
def autocast_without_dtype(run: Run) -> Iterator[Finding]:
    """`torch_autocast` does not say which dtype to cast to.

    torch then takes its default for the device: fp16 on NVIDIA and AMD cards, bf16 on a processor. What was tried on
    one machine is not what runs on the other.

    What happens: no message. On a card the forward pass runs in fp16, and DeepSpeed makes no loss scaler, since it does
    not know of the fp16.

    Fix: writes `"dtype": "bf16"`.

    When to ignore: the run is for one kind of device and its default is the one that you want.
    """
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


@rule(
    "ZC325",
    "autocast-module-without-package",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % (2, _CAST % ', "dtype": "bf16", "lower_precision_safe_modules": ["Linear"]')},
        consumer="deepspeed",
    ).finds("error", 'ds.json: "Linear"'),
    good=Example(
        {"ds.json": _DS % (2, _CAST % ', "dtype": "bf16", "lower_precision_safe_modules": ["torch.nn.Linear"]')},
        consumer="deepspeed",
    ),
    proof=crashes("init", "Failed to import lower precision safe module"),
    fixable=True,
    versions="deepspeed>=0.17.2",
)
def autocast_module_without_package(run: Run) -> Iterator[Finding]:
    """A class in `lower_precision_safe_modules` without the package that holds it.

    DeepSpeed imports each of them by its full dotted name, `torch.nn.Linear`.

    What happens: the engine is not built: `ValueError: Failed to import lower precision safe module Linear: not enough
    values to unpack (expected 2, got 1)`.

    Fix: puts `torch.nn.` before the usual classes of torch.
    """
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


RULES = (
    autocast_of_16_bit_model,
    autocast_fp16_without_scale,
    autocast_without_dtype,
    autocast_module_without_package,
)
