"""ZC2xx: what an optimizer cannot be combined with: parameters, loss scale, ZeRO."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.batch.optimizer import DS, OPTIMIZER, TYPE, adam_params, optimizer_type, own, trained
from zerocfg.rules.effects import TRAINERS, deepspeed_data, edited, effective, present, section, stage_of
from zerocfg.rules.proof import crashes
from zerocfg.run.arguments import arguments_of
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_TORCH_ONLY = ("foreach", "fused", "maximize", "capturable", "differentiable")
_NOT_TORCH = ("bias_correction", "set_grad_none")


@rule(
    "ZC217",
    "adam-parameter-of-another-build",
    Severity.ERROR,
    bad=(
        own(OPTIMIZER % ("AdamW", ', "fused": true')).finds("error", 'ds.json: "fused": true'),
        Example(
            {"ds.json": DS % (OPTIMIZER % ("AdamW", ', "amsgrad": true'), "2")},
            consumer="deepspeed",
            proof=crashes("init", "does not support the AMSGrad variant"),
        ).finds("error", 'ds.json: "amsgrad": true'),
        own(OPTIMIZER % ("AdamW", ', "torch_adam": true, "bias_correction": true')).finds(
            "error", 'ds.json: "bias_correction": true'
        ),
    ),
    good=(
        own(OPTIMIZER % ("AdamW", ', "bias_correction": true')),
        own(OPTIMIZER % ("AdamW", ', "torch_adam": true, "amsgrad": true')),
    ),
    proof=crashes("init", "got an unexpected keyword argument"),
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8", "deepspeed/ops/adam/fused_adam.py@0.19.8"),
)
def adam_parameter_of_another_build(run: Run) -> Iterator[Finding]:
    """A parameter that another build of Adam takes than the one that DeepSpeed makes here.

    One type stands for three classes: DeepSpeed's FusedAdam, its CPU Adam with optimizer offload, and torch.optim with
    `torch_adam`. Each has its own arguments, and a wrong one costs a start with the whole model loaded.

    What happens: `TypeError: FusedAdam.__init__() got an unexpected keyword argument 'fused'`, even for false;
    `RuntimeError: FusedAdam does not support the AMSGrad variant.`; with torch_adam the same TypeError for
    `bias_correction` and `set_grad_none`.

    Fix: removes the parameter (unsafe where its value asks for something else than the build's default).
    """
    params = adam_params(run)
    if params is None or run.deepspeed is None:
        return
    in_torch = bool(params.get("torch_adam"))
    offloaded = effective(run, "zero_optimization.offload_optimizer.device") in ("cpu", "nvme")
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


@rule(
    "ZC221",
    "lamb-with-static-loss-scale",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true, "loss_scale": 128}, '
            '"zero_allow_untested_optimizer": true, "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}}\n'
        },
        consumer="deepspeed",
    ).finds("error", 'ds.json: "loss_scale": 128', 128, 0, also=('ds.json: "Lamb"',)),
    good=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true, "loss_scale": 0}, '
            '"zero_allow_untested_optimizer": true, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}\n'
        },
        consumer="deepspeed",
    ),
    proof=crashes("init", "optimizer requires dynamic loss scaling"),
    references=("deepspeed/runtime/engine.py@0.19.8",),
)
def lamb_with_static_loss_scale(run: Run) -> Iterator[Finding]:
    """The Lamb optimizer with a fixed fp16 loss scale.

    A loss scale that was carried over from another optimizer ends the job after the model was loaded. The check does
    not ask whether fp16 is switched on, so a left-over number counts as well under bf16.

    What happens: `AssertionError: DeepSpeed lamb optimizer requires dynamic loss scaling`.
    """
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


@rule(
    "ZC222",
    "muon-with-reduce-scatter",
    Severity.ERROR,
    bad=own(OPTIMIZER % ("Muon", ""), "3").finds(
        "error", 'ds.json: "Muon"', 3, 2, also=('ds.json: "zero_optimization"',)
    ),
    good=own(OPTIMIZER % ("Muon", ""), '3, "reduce_scatter": false'),
    proof=crashes("init", "Muon and reduce scatter cannot be used together"),
    fixable=True,
    references=("deepspeed/runtime/zero/stage3.py@0.19.8",),
)
def muon_with_reduce_scatter(run: Run) -> Iterator[Finding]:
    """The Muon optimizer at ZeRO stage 3 with `reduce_scatter`, which is on by default.

    Muon orthogonalises whole matrices, so every rank needs whole gradients; stage 3 scatters them unless told not to.
    Nobody wrote the key that stops the job.

    What happens: `ValueError: Muon and reduce scatter cannot be used together` when the engine is built.

    Fix: writes `"reduce_scatter": false` (unsafe: gradients are then all-reduced, which moves more bytes).
    """
    kind, file = optimizer_type(run), run.deepspeed
    if kind is None or kind.lower() != "muon" or file is None or stage_of(run) != 3:
        return
    if effective(run, "zero_optimization.reduce_scatter") is not True:
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


@rule(
    "ZC223",
    "adagrad-of-trainer-with-zero",
    Severity.ERROR,
    bad=trained("", "optim: adagrad\n").finds("error", "recipe.yaml: adagrad", 2),
    good=trained('"optimizer": {"type": "Adagrad", "params": {"lr": "auto"}}, '),
    proof=crashes("step", "IndexError: list index out of range"),
    consumers=TRAINERS,
    references=("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8",),
)
def adagrad_of_trainer_with_zero(run: Run) -> Iterator[Finding]:
    """`optim: adagrad` of the training arguments under ZeRO.

    The Trainer makes two groups of parameters, with and without weight decay. ZeRO builds torch's Adagrad anew from its
    shards, as one group, and then looks for the second.

    What happens: the first step stops with `IndexError: list index out of range`, after model and data were loaded.

    Instead: an Adagrad that the DeepSpeed config names has one group and trains.
    """
    asked = arguments_of(run).setting("optim")
    if asked.value != "adagrad" or not stage_of(run) or effective(run, "engine") != "deepspeed":
        return
    if "optimizer" in deepspeed_data(run) or asked.origin.file is None:
        return
    if effective(run, "zero_optimization.offload_optimizer.device") not in (None, "none"):
        return  # another Adagrad is used there
    yield Finding(
        Location(asked.origin.file, asked.origin.path, "value", asked.origin.span),
        f"`optim: adagrad` stops in the first step at ZeRO stage {stage_of(run)}: it comes with two groups of "
        "parameters, of which ZeRO keeps one",
        "name Adagrad in the `optimizer` section of the DeepSpeed config, or use another optimizer",
    )


RULES = (
    adam_parameter_of_another_build,
    lamb_with_static_loss_scale,
    muon_with_reduce_scatter,
    adagrad_of_trainer_with_zero,
)
