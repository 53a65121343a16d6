"""ZC2xx: what an optimizer cannot be combined with: parameters, loss scale, ZeRO."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import under_deepspeed
from zerocfg.rules.batch.optimizer import optimizer_of, optimizer_params
from zerocfg.rules.effects import TRAINERS, effective_value, stage_of
from zerocfg.rules.key import Key, deepspeed, trainer_argument
from zerocfg.run.model import Run

_TORCH_ONLY = ("foreach", "fused", "maximize", "capturable", "differentiable")
_NOT_TORCH = ("bias_correction", "set_grad_none")


@rule("ZC217", "adam-parameter-of-another-build", Severity.ERROR, optimizer_of("adam", "adamw"))
def adam_parameter_of_another_build(kind: Key) -> Iterator[Finding]:
    params = optimizer_params(kind.run)
    in_torch = bool(params.get("torch_adam"))
    offloaded = effective_value(kind.run, "zero_optimization.offload_optimizer.device") in ("cpu", "nvme")
    if in_torch:
        build = "torch.optim, which `torch_adam` chooses,"
    else:
        build = "DeepSpeed's CPU Adam" if offloaded else "DeepSpeed's FusedAdam"
    for key in params:
        if in_torch:
            refused = key.name in _NOT_TORCH
        else:
            unknown = (*_TORCH_ONLY, "set_grad_none") if offloaded else _TORCH_ONLY
            refused = key.name in unknown or (key.name == "amsgrad" and key.value is True)
        if refused:
            default = key.value is None or key.value is (key.name in _NOT_TORCH)
            yield key.finding(
                f"`{key.name}: {show(key.value)}` is refused by {build} when the engine is built",
                "remove it" if key.name in _NOT_TORCH else 'remove it, or add `"torch_adam": true`',
                fix=key.delete("remove the parameter", safe=default),
            )


@rule("ZC221", "lamb-with-static-loss-scale", Severity.ERROR, optimizer_of("lamb"))
def lamb_with_static_loss_scale(kind: Key) -> Iterator[Finding]:
    scale = deepspeed(kind.run, "fp16", "loss_scale")
    if scale.number:
        yield scale.finding(
            f"a fixed loss scale of {show(scale.value)} with the optimizer {show(kind.value)}, which insists on a "
            "dynamic one, also where fp16 is off",
            'write `"loss_scale": 0` (dynamic), or leave it out',
            [kind.at("value", "the optimizer")],
        )


@rule("ZC222", "muon-with-reduce-scatter", Severity.ERROR, optimizer_of("muon"))
def muon_with_reduce_scatter(kind: Key) -> Iterator[Finding]:
    key = deepspeed(kind.run, "zero_optimization", "reduce_scatter")
    if stage_of(kind.run) != 3 or effective_value(kind.run, "zero_optimization.reduce_scatter") is not True:
        return
    yield kind.finding(
        f"{show(kind.value)} at ZeRO stage 3 needs whole gradients, but `reduce_scatter` is on"
        + ("" if key else ", by default")
        + "; DeepSpeed stops at it",
        'add `"reduce_scatter": false` to `zero_optimization`, or use stage 2',
        [key.at(label="the switch")],
        key.set("false", "switch reduce_scatter off", safe=False),
        where="value",
    )


@rule("ZC223", "adagrad-of-trainer-with-zero", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def adagrad_of_trainer_with_zero(run: Run) -> Iterator[Finding]:
    asked, stage = trainer_argument(run, "optim"), stage_of(run)
    if asked.value != "adagrad" or not stage or not under_deepspeed(run):
        return
    if "optimizer" in deepspeed(run) or asked.file is None:
        return
    if effective_value(run, "zero_optimization.offload_optimizer.device") not in (None, "none"):
        return  # another Adagrad is used there
    yield asked.finding(
        f"`optim: adagrad` stops in the first step at ZeRO stage {stage}: it comes with two groups of "
        "parameters, of which ZeRO keeps one",
        "name Adagrad in the `optimizer` section of the DeepSpeed config, or use another optimizer",
        where="value",
    )
