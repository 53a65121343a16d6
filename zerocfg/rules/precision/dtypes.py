"""ZC309 to ZC314: dtypes of gradients, parameters and buffers, and of their exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import edited, effective, section, stage_of
from zerocfg.rules.proof import at_least, at_most, crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}%s}\n'
_BF16 = ', "bf16": {"enabled": true}'
_NAMES = {
    "fp32": ("fp32", "float32", "float", "torch.float32"),
    "fp16": ("fp16", "float16", "half", "torch.float16"),
    "bf16": ("bf16", "bfloat16", "torch.bfloat16"),
    "int8": ("int8", "torch.int8"),
}
_ACCUMULATION = ("data_types", "grad_accum_dtype")


def precision_of(run: Run) -> str | None:
    """ "bf16", "fp16" or "fp32": what the engine computes in; None where that is not known."""
    bf16, fp16 = effective(run, "bf16.enabled"), effective(run, "fp16.enabled")
    if bf16 is True and fp16 is not True:
        return "bf16"
    if fp16 is True and bf16 is not True:
        return "fp16"
    return "fp32" if bf16 is False and fp16 is False else None


def dtype_of(value: object) -> str | None:
    """The short name of a dtype as DeepSpeed spells it in several ways; None for anything else."""
    return next((name for name, spellings in _NAMES.items() if isinstance(value, str) and value in spellings), None)


def accumulation(run: Run) -> str | None:
    return dtype_of(section(run, "data_types").get("grad_accum_dtype"))


def about(run: Run, path: Path, message: str, help_text: str, **more: Any) -> Finding:
    assert run.deepspeed is not None
    return Finding(Location(run.deepspeed, path), message, help_text, **more)


def without(run: Run, path: Path, why: str) -> object:
    return edited(delete_entry, run.deepspeed, path, why=why, safe=False)


@rule(
    "ZC309",
    "accumulation-dtype-at-stage-0",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % (0, _BF16 + ', "data_types": {"grad_accum_dtype": "fp32"}')},
        consumer="deepspeed",
    ).finds("error", 'ds.json: "grad_accum_dtype": "fp32"', 1, 2),
    good=Example(
        {"ds.json": _DS % (2, _BF16 + ', "data_types": {"grad_accum_dtype": "fp32"}')},
        consumer="deepspeed",
    ),
    proof=crashes("init", "unsupported mix of model_dtype"),
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8",),
)
def accumulation_dtype_at_stage_0(run: Run) -> Iterator[Finding]:
    """Gradients are to be accumulated in another dtype than the model's, but ZeRO is off.

    Without ZeRO the gradients are those that torch keeps beside the parameters, which have the parameters' dtype.
    `data_types.grad_accum_dtype` needs the buffers of ZeRO stage 1 and above.

    What happens: `deepspeed.initialize` stops with `NotImplementedError: unsupported mix of
    model_dtype=torch.bfloat16 and grad_accum_dtype=torch.float32`. DeepSpeed before 0.18.5 takes fp32 sums of a bf16
    model, and nothing is said of them there.

    Fix: removes the key; gradients are then accumulated in the model's dtype. The other way out is stage 1 or 2.
    """
    wanted, mode = accumulation(run), precision_of(run)
    if wanted is None or mode is None or wanted == mode or stage_of(run) != 0:
        return
    yield about(
        run,
        _ACCUMULATION,
        f"gradients are to be accumulated in {wanted} but the model is {mode} and ZeRO is off; DeepSpeed stops at "
        "the difference",
        "use ZeRO stage 1 or 2, or leave the key out",
        fix=without(run, _ACCUMULATION, "accumulate in the dtype of the model"),
        versions="deepspeed>=0.18.5" if (mode, wanted) == ("bf16", "fp32") else "",
    )


@rule(
    "ZC310",
    "integers-for-gradients",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": _DS % (1, _BF16 + ', "data_types": {"grad_accum_dtype": "int8"}')},
            consumer="deepspeed",
        ).finds("error", 'ds.json: "grad_accum_dtype": "int8"'),
        Example(
            {"ds.json": _DS % (3, _BF16 + ', "data_types": {"grad_accum_dtype": "int8"}')},
            consumer="deepspeed",
            note="Nothing is said, and the loss stays where it was.",
            proof=shows("step", {"engine.loss": (at_least(7.5), at_most(7.1))}),
        ).finds("error", 'ds.json: "grad_accum_dtype": "int8"', 0),
        Example(
            {"ds.json": _DS % (3, ', "torch_autocast": {"enabled": true, "dtype": "int8"}')},
            consumer="deepspeed",
        ).finds("error", 'ds.json: "dtype": "int8"', 0),
        Example(
            {"ds.json": _DS % (1, _BF16 + ', "data_types": {"buffer_dtype": "int8"}')},
            consumer="deepspeed",
            proof=shows("init", {"engine.buffers": (["int8"], ["float32"])}),
        ).finds("error", 'ds.json: "buffer_dtype": "int8"'),
    ),
    good=(
        Example(
            {"ds.json": _DS % (2, _BF16 + ', "data_types": {"grad_accum_dtype": "fp32"}')},
            consumer="deepspeed",
        ),
        Example(
            {"ds.json": _DS % (1, _BF16)},
            consumer="deepspeed",
            proof=shows("init", {"engine.buffers": (["int8"], ["float32"])}),
        ),
    ),
    proof=crashes("step", "can't be cast to the desired output type Char"),
    fixable=True,
    references=("deepspeed/runtime/constants.py@0.19.8",),
)
def integers_for_gradients(run: Run) -> Iterator[Finding]:
    """int8 as the dtype of gradients, buffers or autocast.

    DeepSpeed's list of dtypes has int8 for quantised weights, and accepts it for every key that takes a dtype.
    Gradients are far below 1: as integers all of them are 0.

    What happens: at stage 1 the first step stops with `RuntimeError: result type Float can't be cast to the desired
    output type Char`. At stage 3, and with DeepSpeed before 0.19.8, training goes on and the model learns nothing.
    Buffers (the frequencies of rotary embeddings among them) are cut to whole numbers.

    Fix: removes the key, or writes bf16 as the dtype of autocast.
    """
    wanted = section(run, "data_types")
    if dtype_of(wanted.get("grad_accum_dtype")) == "int8" and stage_of(run) in (1, 3):
        stops = stage_of(run) == 1 and not only_below(run.versions.get("deepspeed"), "0.19.8")
        end = "stops at the first step" if stops else "trains on gradients that are all 0"
        yield about(
            run,
            _ACCUMULATION,
            f"gradients are to be accumulated in int8; DeepSpeed accepts that and {end}",
            "write fp32 or bf16, or leave the key out",
            fix=without(run, _ACCUMULATION, "accumulate in the dtype of the model"),
        )
    if dtype_of(wanted.get("buffer_dtype")) == "int8":
        path = ("data_types", "buffer_dtype")
        yield about(
            run,
            path,
            "the model's buffers become int8, cut to whole numbers",
            "leave the key out: buffers keep the dtype that they were loaded in",
            fix=without(run, path, "leave the buffers as they are"),
        )
    cast = section(run, "torch_autocast")
    if cast.get("enabled") is True and dtype_of(cast.get("dtype")) == "int8":
        path = ("torch_autocast", "dtype")
        yield about(
            run,
            path,
            "autocast to int8 does not exist in torch, but DeepSpeed sends the gradients as int8, in which they are 0",
            "write bf16",
            fix=edited(replace_value, run.deepspeed, path, '"bf16"', why="autocast to bf16", safe=False),
        )


@rule(
    "ZC311",
    "accumulation-narrower-than-model",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % (1, ', "data_types": {"grad_accum_dtype": "bf16"}')},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "grad_accum_dtype": "bf16"'),
    good=Example(
        {"ds.json": _DS % (1, ', "data_types": {"grad_accum_dtype": "fp32"}')},
        consumer="deepspeed",
    ),
    proof=shows(
        "init",
        {"engine.dtype": ("float32",) * 2, "optimizer.gradient_accumulation_dtype": ("bfloat16", "float32")},
        extent="the dtype in which the optimizer that was built accumulates; what rounding does to a training "
        "was not measured.",
    ),
    fixable=True,
)
def accumulation_narrower_than_model(run: Run) -> Iterator[Finding]:
    """Gradients are kept in a dtype with less range or fewer digits than the one that the model computes in.

    Accumulation is where digits are lost first: many small gradients are added to a large sum. The key is meant for
    the opposite, a 16-bit model whose gradients are summed in fp32.

    What happens: DeepSpeed says nothing and rounds. Under an fp32 model most of the digits go; fp16 under a bf16 model
    turns small gradients into 0 and large ones into infinity.

    Fix: removes the key; gradients are then kept in the model's dtype.

    When to ignore: gradient memory is what is short, and you compared the loss.
    """
    wanted, mode = accumulation(run), precision_of(run)
    narrower = {("bf16", "fp32"), ("fp16", "fp32"), ("bf16", "fp16"), ("fp16", "bf16")}
    if (wanted, mode) not in narrower or stage_of(run) not in (1, 3):
        return
    yield about(
        run,
        _ACCUMULATION,
        f"the model computes in {mode} but its gradients are kept in {wanted}, which holds less; they are rounded "
        "silently",
        f"write {'fp32' if mode == 'fp32' else f'{mode} or fp32'}, or leave the key out",
        fix=without(run, _ACCUMULATION, "accumulate in the dtype of the model"),
    )


@rule(
    "ZC313",
    "parameter-dtype-of-another-mode",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % (1, _BF16 + ', "data_types": {"param_dtype": "fp16"}')}, consumer="deepspeed").finds(
        "error", 'ds.json: "param_dtype": "fp16"'
    ),
    good=Example({"ds.json": _DS % (1, _BF16 + ', "data_types": {"param_dtype": "bf16"}')}, consumer="deepspeed"),
    proof=crashes("init", "param_dtype='fp16' conflicts with the enabled precision mode"),
    fixable=True,
)
def parameter_dtype_of_another_mode(run: Run) -> Iterator[Finding]:
    """`data_types.param_dtype` is not the dtype that the bf16 and fp16 sections choose.

    The key chooses nothing: it is checked against the sections `bf16` and `fp16`, which decide.

    What happens: `deepspeed.initialize` stops with `AssertionError: data_types.param_dtype='fp16' conflicts with the
    enabled precision mode (model dtype torch.bfloat16).`

    Fix: removes the key; the sections go on deciding.
    """
    path = ("data_types", "param_dtype")
    wanted, mode = dtype_of(section(run, "data_types").get("param_dtype")), precision_of(run)
    if wanted is None or mode is None or wanted == mode:
        return
    yield about(
        run,
        path,
        f"the parameters are to be {wanted}, but the sections bf16 and fp16 choose {mode}; DeepSpeed stops at the "
        "difference",
        f"switch {wanted} on in its section, or leave this key out"
        if wanted in ("bf16", "fp16")
        else "leave this key out",
        fix=without(run, path, "let the precision sections decide"),
    )


@rule(
    "ZC314",
    "gradients-sent-in-fp16",
    Severity.WARNING,
    bad=Example({"ds.json": _DS % (2, _BF16 + ', "communication_data_type": "fp16"')}, consumer="deepspeed").finds(
        "warning", 'ds.json: "communication_data_type": "fp16"', 0
    ),
    good=Example({"ds.json": _DS % (2, _BF16 + ', "communication_data_type": "bf16"')}, consumer="deepspeed"),
    proof=shows("step", {"engine.dtype": ("bfloat16",) * 2, "engine.sent": (["float16"], ["bfloat16"])}, ranks=2),
    fixable=True,
)
def gradients_sent_in_fp16(run: Run) -> Iterator[Finding]:
    """A model that computes in bf16 or fp32 sends its gradients in fp16.

    fp16 ends at 65504 and has nothing below 6e-8. Only fp16 training scales the loss to stay within these bounds; in
    bf16 and fp32 training nothing does.

    What happens: at each exchange a gradient beyond the range becomes infinite, which skips the step or spoils the
    weights, and a small one becomes 0. Nothing is said.

    Fix: writes bf16 (for an fp32 model fp32).

    When to ignore: the devices have no bf16 and you watch the gradient norm.
    """
    mode = precision_of(run)
    written = section(run).get("communication_data_type")
    if mode not in ("bf16", "fp32") or not isinstance(written, str) or written.lower() != "fp16":
        return
    path = ("communication_data_type",)
    yield about(
        run,
        path,
        f"the model computes in {mode} but sends its gradients in fp16, without a loss scale: small ones become 0, "
        "large ones infinite",
        f'write "{mode}", or leave the key out',
        fix=edited(replace_value, run.deepspeed, path, f'"{mode}"', why=f"send gradients in {mode}", safe=False),
    )


RULES = (
    accumulation_dtype_at_stage_0,
    integers_for_gradients,
    accumulation_narrower_than_model,
    parameter_dtype_of_another_mode,
    gradients_sent_in_fp16,
)
