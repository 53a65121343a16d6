"""ZC4xx: gradients that are copied, clipped and measured otherwise than the file says."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import effective_value, section, stage_of
from zerocfg.rules.fixes import edited
from zerocfg.rules.memory.buffers import keeps_whole_gradients
from zerocfg.rules.offload.devices import device
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import delete_entry
from zerocfg.source.node import Path

ZERO = "zero_optimization"


@rule("ZC421", "contiguous-gradients-forced", Severity.NOTE)
def contiguous_gradients_forced(run: Run) -> Iterator[Finding]:
    path = (ZERO, "contiguous_gradients")
    value = section(run, ZERO).get(path[-1])
    if run.deepspeed is None or value is None or value == "auto" or truth(value) or stage_of(run) not in (1, 2):
        return
    where = device(run, "offload_optimizer")
    if where in ("cpu", "nvme"):
        yield Finding(
            Location(run.deepspeed, path),
            f"`contiguous_gradients: false` is not kept: DeepSpeed switches it on because the optimizer is on {where}",
            "remove it, and make `reduce_bucket_size` smaller to save memory",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
        )


def _off(run: Run) -> bool:
    value = section(run, ZERO).get("compute_grad_norm")
    return value is not None and value != "auto" and not truth(value) and run.deepspeed is not None


_NORM: Path = (ZERO, "compute_grad_norm")


@rule("ZC423", "clipping-without-gradient-norm", Severity.ERROR)
def clipping_without_gradient_norm(run: Run) -> Iterator[Finding]:
    clipping, stage = effective_value(run, "gradient_clipping"), stage_of(run)
    if run.deepspeed is None or not _off(run) or stage not in (1, 2):
        return
    if isinstance(clipping, (int, float)) and clipping > 0:
        yield Finding(
            Location(run.deepspeed, _NORM),
            f"`compute_grad_norm: false`, but gradients are clipped at {clipping}; DeepSpeed refuses the two together",
            'remove it, or write "gradient_clipping": 0',
            fix=edited(delete_entry, run.deepspeed, _NORM, why="compute the norm", safe=False),
        )


def _norm_needed(run: Run) -> Iterator[str]:
    """Why the engine cannot leave the gradient norm out."""
    stage = stage_of(run)
    if stage in (0, 3):
        yield f"at stage {stage} (it needs stage 1 or 2)"
    elif "zenflow" in section(run, ZERO) and isinstance(section(run, ZERO)["zenflow"], dict):
        yield "with ZenFlow"
    elif stage in (1, 2) and device(run, "offload_optimizer") in ("cpu", "nvme"):
        yield "with optimizer offload"
    elif keeps_whole_gradients(run):
        yield "at stage 1 in bf16 with gradients summed in fp32"


@rule("ZC424", "gradient-norm-always-computed-here", Severity.ERROR)
def gradient_norm_always_computed_here(run: Run) -> Iterator[Finding]:
    if run.deepspeed is None or not _off(run):
        return
    for why in _norm_needed(run):
        yield Finding(
            Location(run.deepspeed, _NORM),
            f"`compute_grad_norm: false` does not work {why}; DeepSpeed refuses it",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, _NORM, why="compute the norm", safe=False),
        )
