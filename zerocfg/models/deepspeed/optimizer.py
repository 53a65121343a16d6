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


def _learning_rate(default: float | None) -> Any:
    return key(
        default,
        "Learning rate.",
        auto=filled(trainer="learning_rate", accelerate="lr of DummyOptim"),
    )


def _weight_decay(default: float | None = 0.0) -> Any:
    return key(
        default,
        "Weight decay.",
        auto=filled(trainer="weight_decay", accelerate="weight_decay of DummyOptim"),
    )


class OptimizerParams(Loose):
    """Parameters of an optimizer that zerocfg has no variant for: any class of torch.optim, or one of mup."""

    unknown: ClassVar[Unknown] = "passed"
    source = "deepspeed/runtime/engine.py"

    lr: float | Auto = _learning_rate(None)
    betas: Betas | Auto = key(None, "Decay rates of the two moments.", auto=filled(trainer="[adam_beta1, adam_beta2]"))
    eps: float | Auto = key(None, "Added to the denominator.", auto=filled(trainer="adam_epsilon"))
    weight_decay: float | Auto = _weight_decay(None)
    max_grad_norm: Removed = key(None, removed=_NO_CLIPPING)


class SgdParams(OptimizerParams):
    """torch.optim.SGD."""

    lr: float | Auto = _learning_rate(1e-3)
    weight_decay: float | Auto = _weight_decay()


class AdamParams(OptimizerParams):
    """Adam and AdamW: FusedAdam, DeepSpeedCPUAdam with offload, torch.optim with torch_adam."""

    unknown = "error"

    lr: float | Auto = _learning_rate(1e-3)
    weight_decay: float | Auto = _weight_decay()
    betas: Betas | Auto = key(
        [0.9, 0.999], "Decay rates of the two moments.", auto=filled(trainer="[adam_beta1, adam_beta2]")
    )
    eps: float | Auto = key(1e-8, "Added to the denominator.", auto=filled(trainer="adam_epsilon"))
    bias_correction: bool = key(True, "Correct the bias of the first steps. Not with torch_adam.")
    amsgrad: bool = key(False, "AMSGrad; the fused and CPU versions refuse true.")
    adam_w_mode: bool = key(True, "Decoupled weight decay. Type AdamW ignores false, type Adam is AdamW unless false.")
    torch_adam: bool = key(False, "Use torch.optim; with optimizer offload this is slow.")
    fp32_optimizer_states: bool = key(True, "Moments in fp32 even for 16-bit parameters. CPU Adam only.")
    set_grad_none: bool = key(True, "Free gradients instead of zeroing them. FusedAdam only.")
    foreach: bool | None = key(None, "Multi-tensor version. Only with torch_adam.")
    maximize: bool = key(False, "Maximise instead of minimise. Only with torch_adam.")
    capturable: bool = key(False, "Safe for CUDA graphs. Only with torch_adam.")
    differentiable: bool = key(False, "Differentiate through the step. Only with torch_adam.")
    decoupled_weight_decay: bool = key(False, "Only with torch_adam and adam_w_mode false.")
    fused: bool | None = key(None, "Fused version. Only with torch_adam.")


class AdagradParams(Loose):
    """Adagrad: torch.optim.Adagrad, DeepSpeedCPUAdagrad with offload."""

    unknown = "error"
    source = "deepspeed/ops/adagrad/cpu_adagrad.py"

    lr: float | Auto = _learning_rate(1e-2)
    eps: float | Auto = key(1e-10, "Added to the denominator.", auto=filled(trainer="adam_epsilon"))
    weight_decay: float | Auto = _weight_decay()
    amsgrad: bool = key(False, "Accepted and unused. CPU version only.")
    fp32_optimizer_states: bool = key(True, "States in fp32. CPU version only.")
    lr_decay: float = key(0.0, "Decay of the learning rate. Not with offload.")
    initial_accumulator_value: float = key(0.0, "Start of the accumulator. Not with offload.")
    foreach: bool | None = key(None, "Multi-tensor version. Not with offload.")
    maximize: bool = key(False, "Maximise instead of minimise. Not with offload.")
    differentiable: bool = key(False, "Differentiate through the step. Not with offload.")
    fused: bool | None = key(None, "Fused version. Not with offload.")
    max_grad_norm: Removed = key(None, removed=_NO_CLIPPING)


class LambParams(Loose):
    """LAMB (FusedLamb)."""

    unknown = "error"
    source = "deepspeed/ops/lamb/fused_lamb.py"

    lr: float | Auto = _learning_rate(1e-3)
    bias_correction: bool = key(True, "Correct the bias of the first steps.")
    betas: Betas | Auto = key(
        [0.9, 0.999], "Decay rates of the two moments.", auto=filled(trainer="[adam_beta1, adam_beta2]")
    )
    eps: float | Auto = key(1e-8, "Added to the denominator.", auto=filled(trainer="adam_epsilon"))
    eps_inside_sqrt: bool = key(False, "Add eps under the root.")
    weight_decay: float | Auto = _weight_decay()
    max_grad_norm: Removed = key(None, removed=_NO_CLIPPING)
    max_coeff: float = key(10.0, "Upper bound of the trust ratio.")
    min_coeff: float = key(0.01, "Lower bound of the trust ratio.")
    amsgrad: bool = key(False, "Not supported; true is refused.")


class LionParams(Loose):
    """Lion: FusedLion, DeepSpeedCPULion with offload."""

    unknown = "error"
    source = "deepspeed/ops/lion/fused_lion.py"

    lr: float | Auto = _learning_rate(1e-3)
    betas: Betas | Auto = key(
        [0.9, 0.999], "Decay rates of the two averages.", auto=filled(trainer="[adam_beta1, adam_beta2]")
    )
    weight_decay: float | Auto = _weight_decay()
    set_grad_none: bool = key(True, "Free gradients instead of zeroing them. Not with offload.")
    fp32_optimizer_states: bool = key(True, "States in fp32. Only with offload.")
    max_grad_norm: Removed = key(None, removed=_NO_CLIPPING)


class MuonParams(Loose):
    """Muon for matrices and Adam for the rest. Keys that neither half knows are dropped without a word."""

    source = "deepspeed/runtime/engine.py"

    lr: float | Auto = _learning_rate(None)
    muon_lr: float = key(None, "Learning rate of the Muon half; absent: lr, else 0.02.")
    adam_lr: float = key(None, "Learning rate of the Adam half; absent: lr, else 3e-4.")
    momentum: float = key(0.95, "Momentum of the Muon half.")
    ns_method: Literal["standard", "gram"] = key("gram", "Newton-Schulz method of the Muon half.")
    betas: Betas | Auto = key(
        [0.9, 0.95], "Decay rates of the Adam half.", auto=filled(trainer="[adam_beta1, adam_beta2]")
    )
    eps: float | Auto = key(1e-10, "Added to the denominator, Adam half.", auto=filled(trainer="adam_epsilon"))
    weight_decay: float | Auto = _weight_decay()
    per_head_muon: bool = key(False, "Treat each attention head as a matrix of its own.")
    adam_w_mode: bool = key(True, "Decoupled weight decay in the Adam half.")
    torch_adam: bool = key(False, "Use torch.optim for the Adam half.")
    fp32_optimizer_states: bool = key(True, "Moments in fp32. CPU Adam only.")
    foreach: bool | None = key(None, "Multi-tensor version. Only with torch_adam.")
    max_grad_norm: Removed = key(None, removed=_NO_CLIPPING)


class Optimizer(Loose):
    """The optimizer that DeepSpeed builds when the program passes none."""

    source = "deepspeed/runtime/config.py"

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
        None,
        "adam, adamw, adagrad, lamb, lion, muon, muadam, muadamw, musgd in any case, or the exact name of a "
        "class of torch.optim. 1-bit optimizers were removed.",
        examples=["AdamW", "Adam"],
        reads="lax",
    )
    params: OptimizerParams | None = key(None, "Arguments of the optimizer's constructor.")
    legacy_fusion: bool = key(False, "Old step of the fp16 optimizer for FusedAdam.")
