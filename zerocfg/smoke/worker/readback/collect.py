"""What the live engine and the machine say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import plain
from . import deepspeed_engine, optimizers, torch_engines

if TYPE_CHECKING:
    import torch

    from ..report import Report
    from ..report_schema import Seen

DTYPES = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def see(
    report: Report,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: Seen,
    scheduler: object = None,
) -> None:
    """Read back from the live engine what it runs with; ``settings`` stand in for an engine that keeps none.

    ``scheduler``: the loop's own, where the engine has none.
    """
    import torch

    group = torch.distributed.is_available() and torch.distributed.is_initialized()
    ranks = torch.distributed.get_world_size() if group else 1
    report.see({"world_size": ranks})
    acting: dict[str, object] = {}
    parsed: dict[str, object] = {}
    parameters = list(model.parameters())
    if hasattr(model, "zero_optimization_stage"):
        acting = deepspeed_engine.acting(model)
        parsed = deepspeed_engine.parsed(model)
        scheduler = getattr(model, "lr_scheduler", None) or scheduler
        report.see(
            {
                "engine": "deepspeed",
                "stage": deepspeed_engine.stage(model),
                "micro_batch": model.train_micro_batch_size_per_gpu(),
                "gradient_accumulation_steps": model.gradient_accumulation_steps(),
                "gradient_clipping": acting["gradient_clipping"],
                "dtype": _dtype(model, parameters),
                "offload_optimizer": deepspeed_engine.offload_of_optimizer(model),
                "offload_param": deepspeed_engine.offload_of_parameters(model),
                "held": deepspeed_engine.facts(model),
            }
        )
    else:
        engine = torch_engines.kind(model)
        report.see({"engine": engine})
        report.see(settings)
        if engine == "ddp":
            acting = torch_engines.ddp(model)
        elif engine == "fsdp":
            from accelerate import PartialState
            from accelerate.state import AcceleratorState

            known = PartialState._shared_state and AcceleratorState._shared_state
            plugin = getattr(AcceleratorState(), "fsdp_plugin", None) if known else None
            acting, parsed = torch_engines.fsdp(model, plugin)
            own, whole, tensors = torch_engines.shard(model)
            report.see({"held": {"ranks": ranks, "parameters": whole, "shard": own, "tensors": tensors}})
        if "micro_batch" in settings and "gradient_accumulation_steps" in settings:
            acting["train_batch_size"] = settings["micro_batch"] * settings["gradient_accumulation_steps"] * ranks
    bare = model.module if hasattr(model, "module") else model
    if isinstance(getattr(bare, "is_gradient_checkpointing", None), bool):  # of transformers' models
        acting["gradient_checkpointing"] = bare.is_gradient_checkpointing
    acting.update(optimizers.optimizer(optimizer, scheduler))
    acting.update(optimizers.schedule(scheduler))
    empty = sum(1 for parameter in parameters if hasattr(parameter, "ds_id") and parameter.numel() == 0)
    report.see(
        {
            "optimizer": type(optimizers.innermost(optimizer)).__name__,
            "partitioned": empty,
            "device": str(parameters[0].device) if parameters else "",
            "settings": acting,
            "parsed": parsed,
        }
    )


def see_states(report: Report, optimizer: torch.optim.Optimizer | None) -> None:
    """Read back where the optimizer keeps its states, which exist from its first step on."""
    states = optimizers.states(optimizer)
    if states:
        report.see({"states": states})


def _dtype(engine: torch.nn.Module, parameters: list[torch.Tensor]) -> str:
    """The dtype of most elements of the model as the engine left it; under torch's autocast, that of the work."""
    if getattr(engine, "torch_autocast_enabled", bool)():
        return str(plain(engine.torch_autocast_dtype()))
    sizes: dict[str, int] = {}
    for parameter in parameters:
        if parameter.is_floating_point():
            name = str(plain(parameter.dtype))
            sizes[name] = sizes.get(name, 0) + int(getattr(parameter, "ds_numel", parameter.numel()))
    return max(sizes, key=lambda name: sizes[name]) if sizes else "-"


def see_machine(report: Report, device: str) -> None:
    """Releases and the name of the device."""
    import platform

    import accelerate
    import torch
    import transformers

    on_card = device == "cuda"
    report.see({"device_name": torch.cuda.get_device_name() if on_card else platform.processor()})
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions.update(accelerate=accelerate.__version__, transformers=transformers.__version__)
    if report.content["seen"]["engine"] == "deepspeed":
        import deepspeed

        versions["deepspeed"] = deepspeed.__version__
    report.content["versions"] = versions
