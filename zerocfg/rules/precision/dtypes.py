"""ZC309 to ZC314: dtypes of gradients, parameters and buffers, and of their exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import effective_value, section, stage_of
from zerocfg.rules.fixes import edited
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path

_NAMES = {
    "fp32": ("fp32", "float32", "float", "torch.float32"),
    "fp16": ("fp16", "float16", "half", "torch.float16"),
    "bf16": ("bf16", "bfloat16", "torch.bfloat16"),
    "int8": ("int8", "torch.int8"),
}
_ACCUMULATION = ("data_types", "grad_accum_dtype")


def precision_of(run: Run) -> str | None:
    """ "bf16", "fp16" or "fp32": what the engine computes in; None where that is not known."""
    bf16, fp16 = effective_value(run, "bf16.enabled"), effective_value(run, "fp16.enabled")
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


@rule("ZC309", "accumulation-dtype-at-stage-0", Severity.ERROR)
def accumulation_dtype_at_stage_0(run: Run) -> Iterator[Finding]:
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


@rule("ZC310", "integers-for-gradients", Severity.ERROR)
def integers_for_gradients(run: Run) -> Iterator[Finding]:
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


@rule("ZC311", "accumulation-narrower-than-model", Severity.WARNING)
def accumulation_narrower_than_model(run: Run) -> Iterator[Finding]:
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


@rule("ZC313", "parameter-dtype-of-another-mode", Severity.ERROR)
def parameter_dtype_of_another_mode(run: Run) -> Iterator[Finding]:
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


@rule("ZC314", "gradients-sent-in-fp16", Severity.WARNING)
def gradients_sent_in_fp16(run: Run) -> Iterator[Finding]:
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
