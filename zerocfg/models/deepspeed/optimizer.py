"""The ``optimizer`` section and the parameters of each optimizer that DeepSpeed builds itself.

DeepSpeed hands ``params`` to a constructor; which one depends on the ``type``, on offload and on the device.
A variant holds every parameter that one of the constructors behind its type knows: a key outside it fails
with each of them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from zerocfg.models.base import Unknown, Variants, key
from zerocfg.models.deepspeed.section import Auto, Loose, Removed, filled

Betas = Annotated[list[float], Len(2, 2)]

_NO_CLIPPING = "an error at start-up; write gradient_clipping at the top level"


def _learning_rate(default: object = ...) -> Any:
    return key("Learning rate.", default=default, auto=filled(trainer="learning_rate", accelerate="lr of DummyOptim"))


def _weight_decay(default: object = ...) -> Any:
    filled_from = filled(trainer="weight_decay", accelerate="weight_decay of DummyOptim")
    return key("Weight decay.", default=default, auto=filled_from)


class OptimizerParams(Loose):
    """Parameters of an optimizer that zerocfg has no variant for: any class of torch.optim, or one of mup."""

    unknown: ClassVar[Unknown] = "passed"
    source = "deepspeed/runtime/engine.py"

    lr: float | Auto = _learning_rate(None)
    betas: Betas | Auto = key(
        "Decay rates of the two moments.", default=None, auto=filled(trainer="[adam_beta1, adam_beta2]")
    )
    eps: float | Auto = key("Added to the denominator.", default=None, auto=filled(trainer="adam_epsilon"))
    weight_decay: float | Auto = _weight_decay(None)
    max_grad_norm: Removed = key(removed=_NO_CLIPPING)


class SgdParams(OptimizerParams):
    """torch.optim.SGD."""

    lr: float | Auto = _learning_rate(1e-3)
    weight_decay: float | Auto = _weight_decay(0.0)


# Of the constructors behind a type, `known_as` names one that was walked; keys of the others have their defaults here.


class AdamParams(OptimizerParams):
    """Adam and AdamW: FusedAdam, DeepSpeedCPUAdam with offload, torch.optim with torch_adam."""

    known_as = "optimizer.FusedAdam"
    unknown = "error"

    lr: float | Auto = _learning_rate()
    weight_decay: float | Auto = _weight_decay()
    betas: Betas | Auto = key("Decay rates of the two moments.", auto=filled(trainer="[adam_beta1, adam_beta2]"))
    eps: float | Auto = key("Added to the denominator.", auto=filled(trainer="adam_epsilon"))
    bias_correction: bool = key("Correct the bias of the first steps. Not with torch_adam.")
    amsgrad: bool = key("AMSGrad; the fused and CPU versions refuse true.")
    adam_w_mode: bool = key("Decoupled weight decay. Type AdamW ignores false, type Adam is AdamW unless false.")
    torch_adam: bool = key("Use torch.optim; with optimizer offload this is slow.", default=False)
    fp32_optimizer_states: bool = key("Moments in fp32 even for 16-bit parameters. CPU Adam only.", default=True)
    set_grad_none: bool = key("Free gradients instead of zeroing them. FusedAdam only.")
    foreach: bool | None = key("Multi-tensor version. Only with torch_adam.", default=None)
    maximize: bool = key("Maximise instead of minimise. Only with torch_adam.", default=False)
    capturable: bool = key("Safe for CUDA graphs. Only with torch_adam.", default=False)
    differentiable: bool = key("Differentiate through the step. Only with torch_adam.", default=False)
    decoupled_weight_decay: bool = key("Only with torch_adam and adam_w_mode false.", default=False)
    fused: bool | None = key("Fused version. Only with torch_adam.", default=None)


class AdagradParams(Loose):
    """Adagrad: torch.optim.Adagrad, DeepSpeedCPUAdagrad with offload."""

    unknown = "error"
    source = "deepspeed/ops/adagrad/cpu_adagrad.py"
    known_as = "optimizer.DeepSpeedCPUAdagrad"

    lr: float | Auto = _learning_rate()
    eps: float | Auto = key("Added to the denominator.", auto=filled(trainer="adam_epsilon"))
    weight_decay: float | Auto = _weight_decay(0.0)
    amsgrad: bool = key("Accepted and unused. CPU version only.")
    fp32_optimizer_states: bool = key("States in fp32. CPU version only.")
    lr_decay: float = key("Decay of the learning rate. Not with offload.", default=0.0)
    initial_accumulator_value: float = key("Start of the accumulator. Not with offload.", default=0.0)
    foreach: bool | None = key("Multi-tensor version. Not with offload.", default=None)
    maximize: bool = key("Maximise instead of minimise. Not with offload.", default=False)
    differentiable: bool = key("Differentiate through the step. Not with offload.", default=False)
    fused: bool | None = key("Fused version. Not with offload.", default=None)
    max_grad_norm: Removed = key(removed=_NO_CLIPPING)


class LambParams(Loose):
    """LAMB (FusedLamb)."""

    unknown = "error"
    source = "deepspeed/ops/lamb/fused_lamb.py"
    known_as = "optimizer.FusedLamb"

    lr: float | Auto = _learning_rate()
    bias_correction: bool = key("Correct the bias of the first steps.")
    betas: Betas | Auto = key("Decay rates of the two moments.", auto=filled(trainer="[adam_beta1, adam_beta2]"))
    eps: float | Auto = key("Added to the denominator.", auto=filled(trainer="adam_epsilon"))
    eps_inside_sqrt: bool = key("Add eps under the root.")
    weight_decay: float | Auto = _weight_decay()
    max_grad_norm: Removed = key(removed=_NO_CLIPPING)
    max_coeff: float = key("Upper bound of the trust ratio.")
    min_coeff: float = key("Lower bound of the trust ratio.")
    amsgrad: bool = key("Not supported; true is refused.")


class LionParams(Loose):
    """Lion: FusedLion, DeepSpeedCPULion with offload."""

    unknown = "error"
    source = "deepspeed/ops/lion/fused_lion.py"
    known_as = "optimizer.FusedLion"

    lr: float | Auto = _learning_rate()
    betas: Betas | Auto = key("Decay rates of the two averages.", auto=filled(trainer="[adam_beta1, adam_beta2]"))
    weight_decay: float | Auto = _weight_decay()
    set_grad_none: bool = key("Free gradients instead of zeroing them. Not with offload.")
    fp32_optimizer_states: bool = key("States in fp32. Only with offload.", default=True)
    max_grad_norm: Removed = key(removed=_NO_CLIPPING)


class MuonParams(Loose):
    """Muon for matrices and Adam for the rest. Keys that neither half knows are dropped without a word."""

    source = "deepspeed/runtime/engine.py"

    lr: float | Auto = _learning_rate(None)
    muon_lr: float = key("Learning rate of the Muon half; absent: lr, else 0.02.", default=None)
    adam_lr: float = key("Learning rate of the Adam half; absent: lr, else 3e-4.", default=None)
    momentum: float = key("Momentum of the Muon half.", default=0.95)
    ns_method: Literal["standard", "gram"] = key("Newton-Schulz method of the Muon half.", default="gram")
    betas: Betas | Auto = key(
        "Decay rates of the Adam half.", default=[0.9, 0.95], auto=filled(trainer="[adam_beta1, adam_beta2]")
    )
    eps: float | Auto = key("Added to the denominator, Adam half.", default=1e-10, auto=filled(trainer="adam_epsilon"))
    weight_decay: float | Auto = _weight_decay(0.0)
    per_head_muon: bool = key("Treat each attention head as a matrix of its own.", default=False)
    adam_w_mode: bool = key("Decoupled weight decay in the Adam half.", default=True)
    torch_adam: bool = key("Use torch.optim for the Adam half.", default=False)
    fp32_optimizer_states: bool = key("Moments in fp32. CPU Adam only.", default=True)
    foreach: bool | None = key("Multi-tensor version. Only with torch_adam.", default=None)
    max_grad_norm: Removed = key(removed=_NO_CLIPPING)


class Optimizer(Loose):
    """The optimizer that DeepSpeed builds when the program passes none."""

    source = "deepspeed/runtime/config.py"
    known_as = "optimizer"

    variants: ClassVar[dict[str, Variants]] = {
        "params": Variants(
            "type",
            {
                "adam": AdamParams,
                "adamw": AdamParams,
                "adagrad": AdagradParams,
                "lamb": LambParams,
                "lion": LionParams,
                "muon": MuonParams,
                "sgd": SgdParams,
            },
            any_case=True,
        )
    }

    type: str | None = key(
        "adam, adamw, adagrad, lamb, lion, muon, muadam, muadamw, musgd in any case, or the exact name of a "
        "class of torch.optim. 1-bit optimizers were removed.",
        examples=["AdamW", "Adam"],
        reads="lax",
    )
    params: OptimizerParams | None = key("Arguments of the optimizer's constructor.")
    legacy_fusion: bool = key("Old step of the fp16 optimizer for FusedAdam.", default=False)
