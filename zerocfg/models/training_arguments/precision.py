"""TrainingArguments: precision, memory and kernels."""

from __future__ import annotations

from zerocfg.models.base import Section, key
from zerocfg.models.training_arguments.facts import integer, mapping, optional_switch, switch, text


class Precision(Section):
    """Precision, memory and kernels."""

    bf16: bool = switch(
        "bf16 training; wins over fp16 of the accelerate file, must equal what a DeepSpeed file says.",
        setting="bf16.enabled",
    )
    fp16: bool = switch("fp16 training; refused together with bf16.", setting="fp16.enabled")
    bf16_full_eval: bool = switch("Evaluate entirely in bf16.")
    fp16_full_eval: bool = switch("Evaluate entirely in fp16.")
    tf32: bool | None = optional_switch("TF32 matrix products; true is refused where the device has none.")
    activation_checkpointing: bool | None = switch(
        "Recompute activations in the backward pass. Refused together with that of FSDP."
    )
    activation_checkpointing_kwargs: dict[str, object] | str | None = mapping(
        "Arguments of checkpointing, such as use_reentrant."
    )
    gradient_checkpointing: bool | None = switch(
        "Read when activation_checkpointing is absent.",
        deprecated="goes away in transformers 6; write activation_checkpointing",
        renamed_to="activation_checkpointing",
    )
    gradient_checkpointing_kwargs: dict[str, object] | str | None = mapping(
        "Read when activation_checkpointing_kwargs is absent.",
        deprecated="goes away in transformers 6; write activation_checkpointing_kwargs",
        renamed_to="activation_checkpointing_kwargs",
    )
    torch_compile: bool = switch("Compile the model.")
    torch_compile_backend: str | None = text("Compiler; setting it switches torch_compile on.")
    torch_compile_mode: str | None = text("torch.compile's mode; setting it switches torch_compile on.")
    use_liger_kernel: bool = switch("Replace layers by Liger's fused kernels.")
    liger_kernel_config: dict[str, bool] | None = key(
        "Which of Liger's kernels to use; a mapping, never text.", cli={"type": "dict"}
    )
    torch_empty_cache_steps: int | None = integer("Empty the device's cache every so many steps.", unit="steps", gt=0)
    skip_memory_metrics: bool = switch("Do not measure memory.")
    use_cpu: bool = switch("Train on the CPU.")
