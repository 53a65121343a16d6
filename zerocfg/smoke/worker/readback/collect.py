"""Reads back from the live engine what it runs with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import group
from ..values import plain
from . import deepspeed_engine, optimizers, torch_engines

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ..report import Report
    from ..report_schema import Seen

DTYPES = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


class _Reading:
    """The read-back of one engine: each group of settings by itself, so that one that breaks costs no other."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._acting: dict[str, object] = {}
        self._parsed: dict[str, object] = {}

    def see(self, group: str, read: Callable[..., Any], *arguments: Any) -> None:
        """Report what ``read`` returns, as fields of `Seen`; nothing where it breaks."""
        found: Seen | None = self._read(group, read, *arguments)
        if found:
            self._report.see(found)

    def acting(self, group: str, read: Callable[..., Any], *arguments: Any) -> None:
        """Report what ``read`` returns, as settings by the names of the lock, where they act."""
        self._acting.update(self._read(group, read, *arguments) or {})

    def parsed(self, group: str, read: Callable[..., Any], *arguments: Any) -> None:
        """Report what ``read`` returns, as settings that the engine only holds in its config."""
        self._parsed.update(self._read(group, read, *arguments) or {})

    def done(self) -> None:
        self._report.see({"settings": self._acting, "parsed": self._parsed})

    def _read(self, group: str, read: Callable[..., Any], *arguments: Any) -> Any:
        return self._report.fence.measure(f"read-back of {group}", read, *arguments)


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
    reading = _Reading(report)
    reading.see("the world size", lambda: {"world_size": group.size()})
    if hasattr(model, "zero_optimization_stage"):
        scheduler = getattr(model, "lr_scheduler", None) or scheduler
        report.see({"engine": "deepspeed"})
        reading.see("the precision", lambda: {"dtype": _dtype(model)})
        for name, fields in deepspeed_engine.SEEN.items():
            reading.see(name, fields, model)
        for name, settings_of in deepspeed_engine.ACTING.items():
            reading.acting(name, settings_of, model)
        reading.parsed("the parsed config", deepspeed_engine.parsed, model)
    else:
        reading.see("the engine", lambda: {"engine": torch_engines.kind(model)})
        report.see(settings)
        engine = report.content["seen"].get("engine")
        if engine == "ddp":
            reading.acting("DDP", torch_engines.ddp, model)
        elif engine == "fsdp":
            reading.acting("FSDP", torch_engines.fsdp, model)
            reading.parsed("FSDP's plugin", torch_engines.fsdp_plugin)
            reading.see("the shards", _fsdp_shard, model)
        reading.acting("the batch", _batch, settings)
    reading.acting("gradient checkpointing", _checkpointing, model)
    reading.see("the optimizer", lambda: {"optimizer": type(optimizers.innermost(optimizer)).__name__})
    reading.acting("the optimizer's settings", optimizers.optimizer, optimizer, scheduler)
    reading.acting("the schedule", optimizers.schedule, scheduler)
    reading.see("the parameters", _parameters, model)
    reading.done()


def _fsdp_shard(model: torch.nn.Module) -> Seen:
    own, whole, tensors = torch_engines.shard(model)
    return {"held": {"ranks": group.size(), "parameters": whole, "shard": own, "tensors": tensors}}


def _batch(settings: Seen) -> dict[str, object]:
    """Samples of a step on all ranks."""
    if "micro_batch" not in settings or "gradient_accumulation_steps" not in settings:
        return {}
    return {"train_batch_size": settings["micro_batch"] * settings["gradient_accumulation_steps"] * group.size()}


def _checkpointing(model: torch.nn.Module) -> dict[str, object]:
    bare = model.module if hasattr(model, "module") else model
    own = getattr(bare, "is_gradient_checkpointing", None)  # of transformers' models
    return {"gradient_checkpointing": own} if isinstance(own, bool) else {}


def _parameters(model: torch.nn.Module) -> Seen:
    """Where the parameters are, and how many of them are partitioned."""
    parameters = list(model.parameters())
    empty = sum(1 for parameter in parameters if hasattr(parameter, "ds_id") and parameter.numel() == 0)
    return {"partitioned": empty, "device": str(parameters[0].device) if parameters else ""}


def _dtype(engine: torch.nn.Module) -> str:
    """The dtype of most elements of the model as the engine left it; under torch's autocast, that of the work."""
    if getattr(engine, "torch_autocast_enabled", bool)():
        return str(plain(engine.torch_autocast_dtype()))
    sizes: dict[str, int] = {}
    for parameter in engine.parameters():
        if parameter.is_floating_point():
            name = str(plain(parameter.dtype))
            sizes[name] = sizes.get(name, 0) + int(getattr(parameter, "ds_numel", parameter.numel()))
    return max(sizes, key=lambda name: sizes[name]) if sizes else "-"
