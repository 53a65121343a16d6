"""Numeric precision: ``fp16``, ``bf16``, ``torch_autocast``, ``data_types``."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from pydantic import Field

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Auto, Dtype, Loose, Strict, filled


class Fp16(Strict):
    """fp16 training with loss scaling."""

    source = "deepspeed/runtime/precision_config.py"
    known_as = "fp16"

    enabled: bool | Auto = key(
        "Train in fp16. Not together with bf16.",
        auto=filled(trainer="fp16 or fp16_full_eval", accelerate="mixed_precision == 'fp16'"),
    )
    auto_cast: bool = key("Cast the inputs of the model to fp16.")
    loss_scale: Annotated[float, Ge(0), Field(allow_inf_nan=False)] = key(
        "Static loss scale; 0 is dynamic scaling. A bool is refused.", facts={"no_bool": True}
    )
    initial_scale_power: int = key("The dynamic scale starts at 2 to this power.", unit="power of 2")
    loss_scale_window: int = key(
        "Steps without overflow before the scale grows; above 0 with dynamic scaling.",
        unit="steps",
        facts={"no_bool": True},
    )
    hysteresis: int = key("Overflows before the scale shrinks.", unit="steps")
    consecutive_hysteresis: bool = key("Refill the hysteresis at each step without overflow.")
    min_loss_scale: int = key("Smallest dynamic scale; above 0 with dynamic scaling.", facts={"no_bool": True})
    fp16_master_weights_and_grads: bool = key("Master weights and gradients in fp16; needs ZeRO and CPU Adam.")


class Bf16(Strict):
    """bf16 training."""

    null = "absent"
    source = "deepspeed/runtime/precision_config.py"
    known_as = "bf16"

    enabled: bool | Auto = key(
        "Train in bf16. Not together with fp16.",
        auto=filled(trainer="bf16 or bf16_full_eval", accelerate="mixed_precision == 'bf16'"),
    )
    immediate_grad_update: bool = key("Add gradients to the fp32 copy as they are made.")
    check_grad_overflow: bool = key("Skip a step whose gradients overflowed.", default_before={"0.19.3": False})
    bf16_master_weights_and_grads: bool = key(
        "Master weights and gradients in bf16; needs ZeRO and CPU Adam.", since="0.18.3"
    )
    bf16_optimizer_states: bool = key("Optimizer states in bf16; needs bf16_master_weights_and_grads.", since="0.18.3")


class TorchAutocast(Loose):
    """Mixed precision by ``torch.autocast``."""

    source = "deepspeed/runtime/config.py"
    known_as = "torch_autocast"

    enabled: bool = key("Run forward under torch.autocast.")
    dtype: Dtype = key("Lower precision of the autocast regions.", auto_raw="error")
    lower_precision_safe_modules: list[str] = key("Dotted names of the module classes that run in the lower precision.")


class DataTypes(Loose):
    """dtypes of gradients, parameters and buffers."""

    source = "deepspeed/runtime/config.py"
    known_as = "data_types"

    grad_accum_dtype: Dtype | None = key("dtype in which gradients accumulate; null: the dtype of the model.")
    param_dtype: Dtype | None = key("dtype of the parameters; must agree with fp16 / bf16.")
    buffer_dtype: Dtype | None = key("dtype of the buffers; null: as loaded.")
    keep_in_fp32_modules: list[str] | Auto = key(
        "Patterns of the names of modules that stay fp32; `auto` is DeepSpeed's own default.", reads="lax"
    )
