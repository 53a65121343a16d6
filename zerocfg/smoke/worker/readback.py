"""What the live engine and the machine say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Report

DTYPES = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def see(report: Report, model: Any, optimizer: Any, settings: dict[str, Any]) -> None:
    """Read back from the live engine what it runs with; ``settings`` stand in for an engine that keeps none."""
    import torch

    group = torch.distributed.is_available() and torch.distributed.is_initialized()
    report.see(world_size=torch.distributed.get_world_size() if group else 1)
    kind = type(model).__name__
    if hasattr(model, "zero_optimization_stage"):
        offload_optimizer, offload_param = model.zero_offload_optimizer(), model.zero_offload_param()
        report.see(
            engine="deepspeed",
            stage=int(model.zero_optimization_stage()),
            micro_batch=model.train_micro_batch_size_per_gpu(),
            gradient_accumulation_steps=model.gradient_accumulation_steps(),
            gradient_clipping=model.gradient_clipping(),
            dtype="bf16" if model.bfloat16_enabled() else "fp16" if model.fp16_enabled() else "fp32",
            offload_optimizer=_device(offload_optimizer),
            offload_param=_device(offload_param),
        )
    else:
        report.see(engine={"DistributedDataParallel": "ddp"}.get(kind, "fsdp" if "FSDP" in kind else "single"))
        report.see(**settings)
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    parameters = list(model.parameters())
    report.see(
        optimizer=type(optimizer).__name__,
        partitioned=sum(1 for parameter in parameters if hasattr(parameter, "ds_id") and parameter.numel() == 0),
        device=str(parameters[0].device) if parameters else "",
    )


def _device(section: Any) -> str:
    return str(getattr(section.device, "value", section.device)) if section is not None else "none"


def see_machine(report: Report, device: str) -> None:
    """Releases, the name of the device, the most memory that this rank held (bytes)."""
    import platform
    import resource

    import accelerate
    import torch
    import transformers

    on_card = device == "cuda"
    peak = torch.cuda.max_memory_allocated() if on_card else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    report.see(peak_memory_bytes=peak, device_name=torch.cuda.get_device_name() if on_card else platform.processor())
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions.update(accelerate=accelerate.__version__, transformers=transformers.__version__)
    if report.content["seen"]["engine"] == "deepspeed":
        import deepspeed

        versions["deepspeed"] = deepspeed.__version__
    report.content["versions"] = versions
