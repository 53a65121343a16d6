"""ZC2xx: what an optimizer cannot be combined with: parameters, loss scale, ZeRO."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.batch.optimizer import TYPE, adam_params, optimizer_type
from zerocfg.rules.effects import TRAINERS, deepspeed_data, effective_value, section, stage_of
from zerocfg.rules.fixes import edited, present
from zerocfg.run.model import Run
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_TORCH_ONLY = ("foreach", "fused", "maximize", "capturable", "differentiable")
_NOT_TORCH = ("bias_correction", "set_grad_none")


@rule("ZC217", "adam-parameter-of-another-build", Severity.ERROR)
def adam_parameter_of_another_build(run: Run) -> Iterator[Finding]:
    params = adam_params(run)
    if params is None or run.deepspeed is None:
        return
    in_torch = bool(params.get("torch_adam"))
    offloaded = effective_value(run, "zero_optimization.offload_optimizer.device") in ("cpu", "nvme")
    for name, value in params.items():
        if in_torch:
            wrong, build = name in _NOT_TORCH, "torch.optim, which `torch_adam` chooses,"
        else:
            wrong = (
                name in _TORCH_ONLY
                or (name == "amsgrad" and value is True)
                or (name, offloaded)
                == (
                    "set_grad_none",
                    True,
                )
            )
            build = "DeepSpeed's CPU Adam" if offloaded else "DeepSpeed's FusedAdam"
        if not wrong:
            continue
        path: Path = ("optimizer", "params", name)
        default = value is None or value is (name in _NOT_TORCH)
        yield Finding(
            Location(run.deepspeed, path),
            f"`{name}: {show(value)}` is refused by {build} when the engine is built",
            "remove it" if in_torch or name in _NOT_TORCH else 'remove it, or add `"torch_adam": true`',
            fix=edited(delete_entry, run.deepspeed, path, why="remove the parameter", safe=default),
        )


@rule("ZC221", "lamb-with-static-loss-scale", Severity.ERROR)
def lamb_with_static_loss_scale(run: Run) -> Iterator[Finding]:
    kind, scale = optimizer_type(run), section(run, "fp16").get("loss_scale")
    if kind is None or kind.lower() != "lamb" or run.deepspeed is None:
        return
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or scale == 0:
        return
    yield Finding(
        Location(run.deepspeed, ("fp16", "loss_scale")),
        f"a fixed loss scale of {show(scale)} with the optimizer {show(kind)}, which insists on a dynamic "
        "one, also where fp16 is off",
        'write `"loss_scale": 0` (dynamic), or leave it out',
        [Location(run.deepspeed, TYPE, "value", label="the optimizer")],
    )


@rule("ZC222", "muon-with-reduce-scatter", Severity.ERROR)
def muon_with_reduce_scatter(run: Run) -> Iterator[Finding]:
    kind, file = optimizer_type(run), run.deepspeed
    if kind is None or kind.lower() != "muon" or file is None or stage_of(run) != 3:
        return
    if effective_value(run, "zero_optimization.reduce_scatter") is not True:
        return
    path: Path = ("zero_optimization", "reduce_scatter")
    why = "switch reduce_scatter off"
    if present(file, path):
        fix = edited(replace_value, file, path, "false", why=why, safe=False)
    else:
        fix = edited(insert_entry, file, path[:1], "reduce_scatter", "false", why=why, safe=False)
    yield Finding(
        Location(file, TYPE, "value"),
        f"{show(kind)} at ZeRO stage 3 needs whole gradients, but `reduce_scatter` is on"
        + ("" if present(file, path) else ", by default")
        + "; DeepSpeed stops at it",
        'add `"reduce_scatter": false` to `zero_optimization`, or use stage 2',
        [Location(file, path, label="the switch")],
        fix,
    )


@rule("ZC223", "adagrad-of-trainer-with-zero", Severity.ERROR, consumers=TRAINERS)
def adagrad_of_trainer_with_zero(run: Run) -> Iterator[Finding]:
    asked = arguments_of(run).setting("optim")
    if asked.value != "adagrad" or not stage_of(run) or effective_value(run, "engine") != "deepspeed":
        return
    if "optimizer" in deepspeed_data(run) or asked.origin.file is None:
        return
    if effective_value(run, "zero_optimization.offload_optimizer.device") not in (None, "none"):
        return  # another Adagrad is used there
    yield Finding(
        Location(asked.origin.file, asked.origin.path, "value", asked.origin.span),
        f"`optim: adagrad` stops in the first step at ZeRO stage {stage_of(run)}: it comes with two groups of "
        "parameters, of which ZeRO keeps one",
        "name Adagrad in the `optimizer` section of the DeepSpeed config, or use another optimizer",
    )
