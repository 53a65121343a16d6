"""ZC4xx: gradients that are copied, clipped and measured otherwise than the file says."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import effective_value, stage_of
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.memory.buffers import keeps_whole_gradients
from zerocfg.rules.offload.devices import device, on_host
from zerocfg.rules.subjects import in_zero
from zerocfg.run.model import Run


def _off(key: Key) -> bool:
    """Whether a switch is written and off."""
    return key.value is not None and key.value != "auto" and not key.on


@rule("ZC421", "contiguous-gradients-forced", Severity.NOTE, in_zero("contiguous_gradients"))
def contiguous_gradients_forced(key: Key) -> Iterator[Finding]:
    part = "offload_optimizer"
    if _off(key) and stage_of(key.run) in (1, 2) and on_host(key.run, part):
        yield key.finding(
            "`contiguous_gradients: false` is not kept: DeepSpeed switches it on because the optimizer is on "
            f"{device(key.run, part)}",
            "remove it, and make `reduce_bucket_size` smaller to save memory",
            fix=key.delete("remove the key"),
        )


@rule(
    "ZC423",
    "clipping-without-gradient-norm",
    Severity.ERROR,
    in_zero("compute_grad_norm"),
    versions="deepspeed>=0.19.7",
)
def clipping_without_gradient_norm(key: Key) -> Iterator[Finding]:
    clipping = effective_value(key.run, "gradient_clipping")
    if _off(key) and stage_of(key.run) in (1, 2) and isinstance(clipping, (int, float)) and clipping > 0:
        yield key.finding(
            f"`compute_grad_norm: false`, but gradients are clipped at {clipping}; DeepSpeed refuses the two together",
            'remove it, or write "gradient_clipping": 0',
            fix=key.delete("compute the norm", safe=False),
        )


def _norm_needed(run: Run) -> str:
    """Why the engine cannot leave the gradient norm out; "" where it can."""
    stage = stage_of(run)
    if stage in (0, 3):
        return f"at stage {stage} (it needs stage 1 or 2)"
    if isinstance(deepspeed(run, "zero_optimization", "zenflow").value, dict):
        return "with ZenFlow"
    if stage in (1, 2) and on_host(run, "offload_optimizer"):
        return "with optimizer offload"
    return "at stage 1 in bf16 with gradients summed in fp32" if keeps_whole_gradients(run) else ""


@rule(
    "ZC424",
    "gradient-norm-always-computed-here",
    Severity.ERROR,
    in_zero("compute_grad_norm"),
    versions="deepspeed>=0.19.7",
)
def gradient_norm_always_computed_here(key: Key) -> Iterator[Finding]:
    why = _norm_needed(key.run) if _off(key) else ""
    if why:
        yield key.finding(
            f"`compute_grad_norm: false` does not work {why}; DeepSpeed refuses it",
            "remove it",
            fix=key.delete("compute the norm", safe=False),
        )
