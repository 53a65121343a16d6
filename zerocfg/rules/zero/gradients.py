"""ZC4xx: gradients that are copied, clipped and measured otherwise than the file says."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import edited, effective, section, stage_of
from zerocfg.rules.memory.buffers import keeps_whole_gradients
from zerocfg.rules.offload.devices import device
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.engine import truth
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry
from zerocfg.source.node import Path

ZERO = "zero_optimization"
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {%s}}\n'


@rule(
    "ZC421",
    "contiguous-gradients-forced",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % '"stage": 2, "contiguous_gradients": false, "offload_optimizer": {"device": "cpu"}'},
        consumer="deepspeed",
    ).finds("note", 'ds.json: "contiguous_gradients": false'),
    good=Example({"ds.json": _DS % '"stage": 2, "contiguous_gradients": false'}, consumer="deepspeed"),
    proof=shows(
        "init",
        {
            "engine.zero_config.contiguous_gradients": (False, False),
            "optimizer.contiguous_gradients": (True, False),
        },
    ),
    fixable=True,
)
def contiguous_gradients_forced(run: Run) -> Iterator[Finding]:
    """`"contiguous_gradients": false` with optimizer offload at stage 1 or 2.

    It is written to save the bucket (two with `overlap_comm`) that gradients are copied into. The bucket is
    allocated all the same, so the memory has to be saved by a smaller `reduce_bucket_size`.

    What happens: DeepSpeed switches it back on, without a message, because the copies to the host need the bucket.

    Fix: the key is removed.

    When to ignore: the same file is used without offload.
    """
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


@rule(
    "ZC423",
    "clipping-without-gradient-norm",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % '"stage": 2, "compute_grad_norm": false'}, consumer="deepspeed").finds(
            "error", 'ds.json: "compute_grad_norm": false', "1.0", 0
        ),
        Example(
            {
                "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5, '
                '"zero_optimization": {"stage": 1, "compute_grad_norm": false}}\n'
            },
            consumer="deepspeed",
        ).finds("error", 'ds.json: "compute_grad_norm": false', "0.5", 0),
    ),
    good=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, '
            '"zero_optimization": {"stage": 2, "compute_grad_norm": false}}\n'
        },
        consumer="deepspeed",
    ),
    proof=crashes("init", "compute_grad_norm=false requires gradient_clipping=0"),
    fixable=True,
)
def clipping_without_gradient_norm(run: Run) -> Iterator[Finding]:
    """`"compute_grad_norm": false` while gradients are clipped, which is the default.

    Clipping needs the norm. Since DeepSpeed 0.19.3 an absent `gradient_clipping` is 1.0, so the key alone is refused,
    after the model was loaded.

    What happens: `ValueError: zero_optimization.compute_grad_norm=false requires gradient_clipping=0` when the engine
    is built.

    Fix: `compute_grad_norm` is removed, so that clipping stays as it is; the other way out is
    `"gradient_clipping": 0`.
    """
    clipping, stage = effective(run, "gradient_clipping"), stage_of(run)
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


@rule(
    "ZC424",
    "gradient-norm-always-computed-here",
    Severity.ERROR,
    bad=(
        Example(
            {
                "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "zero_optimization": '
                '{"stage": 2, "compute_grad_norm": false, "offload_optimizer": {"device": "cpu"}}}\n'
            },
            consumer="deepspeed",
        ).finds("error", 'ds.json: "compute_grad_norm": false'),
        Example(
            {"ds.json": _DS % '"stage": 3, "compute_grad_norm": false'},
            consumer="deepspeed",
            proof=crashes("parse", "compute_grad_norm=false is supported only with ZeRO Stage 1 or 2"),
        ).finds("error", 'ds.json: "compute_grad_norm": false', 3, 1, 2),
        Example(
            {
                "ds.json": '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "gradient_clipping": 0, '
                '"data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, '
                '"compute_grad_norm": false}}\n'
            },
            consumer="deepspeed",
            proof=crashes("init", "compute_grad_norm=false does not support ZeRO Stage 1 with BF16 parameters"),
        ).finds("error", 'ds.json: "compute_grad_norm": false', 1),
    ),
    good=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "zero_optimization": '
            '{"stage": 2, "compute_grad_norm": false}}\n'
        },
        consumer="deepspeed",
    ),
    proof=crashes("init", "compute_grad_norm=false does not support optimizer offload"),
    fixable=True,
)
def gradient_norm_always_computed_here(run: Run) -> Iterator[Finding]:
    """`"compute_grad_norm": false` at stage 0 or 3, with optimizer offload, ZenFlow or fp32 sums at stage 1.

    Leaving the norm out is possible only where the optimizer of stage 1 or 2 works on the accelerator, and not in the
    one that DeepSpeed takes at stage 1 for bf16 with gradients summed in fp32. Elsewhere the job does not start.

    What happens: `compute_grad_norm=false is supported only with ZeRO Stage 1 or 2` when the config is read, or
    `zero_optimization.compute_grad_norm=false does not support optimizer offload` when the engine is built.

    Fix: the key is removed.
    """
    if run.deepspeed is None or not _off(run):
        return
    for why in _norm_needed(run):
        yield Finding(
            Location(run.deepspeed, _NORM),
            f"`compute_grad_norm: false` does not work {why}; DeepSpeed refuses it",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, _NORM, why="compute the norm", safe=False),
        )


RULES = (contiguous_gradients_forced, clipping_without_gradient_norm, gradient_norm_always_computed_here)
