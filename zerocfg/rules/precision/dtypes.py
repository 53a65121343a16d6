"""ZC309 to ZC314: dtypes of gradients, parameters and buffers, and of their exchange."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import effective_value, stage_of
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, in_deepspeed
from zerocfg.run.model import Run

_NAMES = {
    "fp32": ("fp32", "float32", "float", "torch.float32"),
    "fp16": ("fp16", "float16", "half", "torch.float16"),
    "bf16": ("bf16", "bfloat16", "torch.bfloat16"),
    "int8": ("int8", "torch.int8"),
}
_ACCUMULATION = ("data_types", "grad_accum_dtype")
ACCUMULATION = in_deepspeed(*_ACCUMULATION)
_OF_THE_MODEL = "accumulate in the dtype of the model"


def precision_of(run: Run) -> str | None:
    """ "bf16", "fp16" or "fp32": what the engine computes in; None where that is not known."""
    bf16, fp16 = effective_value(run, "bf16.enabled"), effective_value(run, "fp16.enabled")
    if bf16 is True and fp16 is not True:
        return "bf16"
    if fp16 is True and bf16 is not True:
        return "fp16"
    return "fp32" if bf16 is False and fp16 is False else None


def dtype_of(key: Key) -> str | None:
    """The short name of a dtype as DeepSpeed spells it in several ways; None for anything else."""
    return next((name for name, words in _NAMES.items() if isinstance(key.value, str) and key.value in words), None)


def accumulation(run: Run) -> Key:
    """The dtype that gradients are to be accumulated in."""
    return deepspeed(run, *_ACCUMULATION)


@rule("ZC309", "accumulation-dtype-at-stage-0", Severity.ERROR, ACCUMULATION)
def accumulation_dtype_at_stage_0(key: Key) -> Iterator[Finding]:
    mode, wanted = precision_of(key.run), dtype_of(key)
    if wanted is None or mode is None or wanted == mode or stage_of(key.run) != 0:
        return
    yield key.finding(
        f"gradients are to be accumulated in {wanted} but the model is {mode} and ZeRO is off; DeepSpeed stops at "
        "the difference",
        "use ZeRO stage 1 or 2, or leave the key out",
        fix=key.delete(_OF_THE_MODEL, safe=False),
        versions="deepspeed>=0.18.5" if (mode, wanted) == ("bf16", "fp32") else "",
    )


@rule("ZC310", "integers-for-gradients", Severity.ERROR, DEEPSPEED_CONFIG)
def integers_for_gradients(config: Key) -> Iterator[Finding]:
    types, stage = config["data_types"], stage_of(config.run)
    key = types["grad_accum_dtype"]
    if dtype_of(key) == "int8" and stage in (1, 3):
        stops = stage == 1 and not only_below(config.run.declared("deepspeed"), "0.19.8")
        end = "stops at the first step" if stops else "trains on gradients that are all 0"
        yield key.finding(
            f"gradients are to be accumulated in int8; DeepSpeed accepts that and {end}",
            "write fp32 or bf16, or leave the key out",
            fix=key.delete(_OF_THE_MODEL, safe=False),
        )
    key = types["buffer_dtype"]
    if dtype_of(key) == "int8":
        yield key.finding(
            "the model's buffers become int8, cut to whole numbers",
            "leave the key out: buffers keep the dtype that they were loaded in",
            fix=key.delete("leave the buffers as they are", safe=False),
        )
    cast = config["torch_autocast"]
    key = cast["dtype"]
    if cast.get("enabled") is True and dtype_of(key) == "int8":
        yield key.finding(
            "autocast to int8 does not exist in torch, but DeepSpeed sends the gradients as int8, in which they are 0",
            "write bf16",
            fix=key.replace('"bf16"', "autocast to bf16", safe=False),
        )


@rule("ZC311", "accumulation-narrower-than-model", Severity.WARNING, ACCUMULATION)
def accumulation_narrower_than_model(key: Key) -> Iterator[Finding]:
    mode, wanted = precision_of(key.run), dtype_of(key)
    narrower = {("bf16", "fp32"), ("fp16", "fp32"), ("bf16", "fp16"), ("fp16", "bf16")}
    if (wanted, mode) in narrower and stage_of(key.run) in (1, 3):
        yield key.finding(
            f"the model computes in {mode} but its gradients are kept in {wanted}, which holds less; they are rounded "
            "silently",
            f"write {'fp32' if mode == 'fp32' else f'{mode} or fp32'}, or leave the key out",
            fix=key.delete(_OF_THE_MODEL, safe=False),
        )


@rule("ZC313", "parameter-dtype-of-another-mode", Severity.ERROR, in_deepspeed("data_types", "param_dtype"))
def parameter_dtype_of_another_mode(key: Key) -> Iterator[Finding]:
    mode, wanted = precision_of(key.run), dtype_of(key)
    if wanted is None or mode is None or wanted == mode:
        return
    other = f"switch {wanted} on in its section, or " if wanted in ("bf16", "fp16") else ""
    yield key.finding(
        f"the parameters are to be {wanted}, but the sections bf16 and fp16 choose {mode}; DeepSpeed stops at the "
        "difference",
        f"{other}leave this key out",
        fix=key.delete("let the precision sections decide", safe=False),
    )


@rule("ZC314", "gradients-sent-in-fp16", Severity.WARNING, in_deepspeed("communication_data_type"))
def gradients_sent_in_fp16(key: Key) -> Iterator[Finding]:
    mode = precision_of(key.run)
    if mode in ("bf16", "fp32") and isinstance(key.value, str) and key.value.lower() == "fp16":
        yield key.finding(
            f"the model computes in {mode} but sends its gradients in fp16, without a loss scale: small ones become 0, "
            "large ones infinite",
            f'write "{mode}", or leave the key out',
            fix=key.replace(f'"{mode}"', f"send gradients in {mode}", safe=False),
        )
