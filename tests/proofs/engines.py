"""What is seen of a live engine, and how its making is watched.

``deepspeed.initialize`` and ``DeepSpeedConfig`` are wrapped, so that an error is laid to the phase in which
it was raised, whoever called them: up to the end of DeepSpeedConfig it is "parse", then "init".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import memory
import sharding
import uses

if TYPE_CHECKING:
    from pathlib import Path

    from progress import Progress

DTYPES = {"no": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8"}


def instrument(progress: Progress) -> None:
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime import config as runtime_config

    get_accelerator().is_fp16_supported = lambda: True  # asked of the processor; torch computes in it on any

    if "memory" in progress.measure:
        memory.begin(progress)
    see_autocast(progress)
    if "uses" in progress.measure:
        uses.count_optimizers(progress)
    initialize = deepspeed.initialize
    build = runtime_config.DeepSpeedConfig.__init__
    inside = False

    def watched_build(self: Any, *args: Any, **named: Any) -> None:
        before = progress.current
        if before == "load":  # the second engine of an example: what it is made of was seen at the first
            build(self, *args, **named)
            return
        progress.begin("parse")
        build(self, *args, **named)
        if not inside:  # zero.Init parses the config too, before the engine does
            progress.begin(before)
            return
        see_config(progress, self)
        counted = "uses" not in progress.measure or "uses.zero_config" in progress.values
        if not counted:  # stage 3 makes another one, to divide the parameters with
            uses.count(progress, self)
        progress.end("parse")
        progress.begin("init")

    def watched_initialize(*args: Any, **named: Any) -> Any:
        nonlocal inside
        if progress.current == "load":
            return initialize(*args, **named)
        inside = True
        progress.begin("parse")
        result = initialize(*args, **named)
        inside = False
        see_engine(progress, result[0])
        see_optimizer(progress, result[0].optimizer, result[3])
        if "memory" in progress.measure:
            memory.watch(progress, result[0])
        progress.end("init")
        progress.begin("step")
        return result

    runtime_config.DeepSpeedConfig.__init__ = watched_build
    deepspeed.initialize = watched_initialize


def see_config(progress: Progress, config: Any) -> None:
    """``config.*``: the dict that DeepSpeed was given; ``engine.*``: what it made of it."""
    for key, value in config._param_dict.items():
        progress.see(f"config.{key}", value)
    for name, value in vars(config).items():
        if name != "_param_dict":
            progress.see(f"engine.{name}", value)
    progress.see("engine.stage", int(config.zero_config.stage))
    progress.see("engine.micro_batch", config.train_micro_batch_size_per_gpu)
    progress.see("engine.dtype", dtype(config.bfloat16_config.enabled, config.float16_config.enabled))


def dtype(bf16: bool, fp16: bool) -> str:
    return "bfloat16" if bf16 else "float16" if fp16 else "float32"


def see_engine(progress: Progress, engine: Any) -> None:
    import deepspeed
    import torch

    progress.see("engine.kind", "deepspeed")
    progress.see("engine.stage", int(engine.zero_optimization_stage()))
    progress.see("engine.world_size", torch.distributed.get_world_size(engine.data_parallel_group))
    progress.see("engine.micro_batch", engine.train_micro_batch_size_per_gpu())
    progress.see("engine.gradient_accumulation_steps", engine.gradient_accumulation_steps())
    progress.see("engine.gradient_clipping", engine.gradient_clipping())
    progress.see("engine.dtype", dtype(engine.bfloat16_enabled(), engine.fp16_enabled()))
    progress.see("engine.wrapper", type(engine.optimizer).__name__)
    progress.see("engine.parameters", name_of(next(engine.module.parameters()).dtype))
    progress.see("engine.buffers", sorted({name_of(buffer.dtype) for buffer in engine.module.buffers()}))
    progress.see("engine.processes", torch.distributed.get_world_size())
    progress.see("engine.batch", engine.train_batch_size())
    progress.see("engine.own_data_loader", engine.training_dataloader is not None)
    progress.see("engine.activation_checkpointing", deepspeed.checkpointing.is_configured())
    count_waits(progress)
    count_gathers(progress)
    see_sent(progress)
    see_clipping(progress, engine)
    see_zero_optimizer(progress, engine.optimizer)


def name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def see_step(progress: Progress, engine: Any) -> None:
    """What the steps left behind; nothing for an engine that is not DeepSpeed's."""
    if hasattr(engine, "skipped_steps"):
        progress.see("step.skipped", engine.skipped_steps)
        progress.see("step.loss_scale", getattr(engine.optimizer, "loss_scale", None))


def see_zero_optimizer(progress: Progress, optimizer: Any) -> None:
    """``optimizer.*``: what DeepSpeed's wrapper around the optimizer works with; of a list the length."""
    import torch

    for name, value in vars(optimizer).items() if optimizer is not None else ():
        if "uses" in progress.measure:
            progress.values.setdefault(f"uses.optimizer.{name}", 0)
        if isinstance(value, (bool, int, float, str)):
            progress.see(f"optimizer.{name}", value)
        elif isinstance(value, torch.dtype):
            progress.see(f"optimizer.{name}", name_of(value))
        elif isinstance(value, list):
            progress.see(f"optimizer.{name}", len(value))


def count_waits(progress: Progress) -> None:
    """``engine.waits``: how often DeepSpeed has the host wait for the device from now on."""
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    wait, count = accelerator.synchronize, 0

    def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        progress.see("engine.waits", count)
        return wait(*args)

    progress.see("engine.waits", 0)
    accelerator.synchronize = counted


def count_gathers(progress: Progress) -> None:
    """``engine.gathered``: elements of all tensors that, from now on, are gathered from the parts of the ranks."""
    from deepspeed.comm import comm

    backend, count = comm.cdb, 0
    if backend is None:
        return
    gather = backend.all_gather_into_tensor

    def counted(output_tensor: Any, *args: Any, **named: Any) -> Any:
        nonlocal count
        count += output_tensor.numel()
        progress.see("engine.gathered", count)
        return gather(output_tensor, *args, **named)

    progress.see("engine.gathered", 0)
    backend.all_gather_into_tensor = counted


LARGE = 100  # elements; what is summed over the ranks in smaller tensors are norms and flags


def see_sent(progress: Progress) -> None:
    """``engine.sent``: sorted dtypes of the gradients that, from now on, are summed over the ranks."""
    from deepspeed.comm import comm

    backend, dtypes = comm.cdb, set()
    if backend is None:
        return
    reduce = backend.all_reduce

    def noted(tensor: Any, *args: Any, **named: Any) -> Any:
        if tensor.numel() > LARGE:
            dtypes.add(name_of(tensor.dtype))
            progress.see("engine.sent", sorted(dtypes))
        return reduce(tensor, *args, **named)

    progress.see("engine.sent", [])
    backend.all_reduce = noted


def see_clipping(progress: Progress, engine: Any) -> None:
    """``step.clipped``: the gradients that reached the inner optimizer were shorter than those that were computed.

    Of one rank alone, which has all of them.
    """
    import torch

    inner, squares = engine.optimizer, 0.0
    while hasattr(inner, "optimizer"):
        inner = inner.optimizer
    if not isinstance(inner, torch.optim.Optimizer) or torch.distributed.get_world_size() > 1:
        return

    def begin() -> None:
        nonlocal squares
        squares = 0.0

    def add(*_: Any) -> None:  # ZeRO lets the inner optimizer step for one parameter group after the other
        nonlocal squares
        parameters = [parameter for group in inner.param_groups for parameter in group["params"]]
        squares += sum(float(parameter.grad.norm()) ** 2 for parameter in parameters if parameter.grad is not None)

    def tell() -> None:
        computed = getattr(engine.optimizer, "_global_grad_norm", None)
        if computed is not None and squares > 0:
            progress.see("step.norm", float(computed))
            progress.see("step.clipped", math.sqrt(squares) < 0.99 * float(computed))

    memory.before(engine, "_take_model_step", begin)
    inner.register_step_pre_hook(add)
    memory.after(engine, "_take_model_step", tell)


def see_autocast(progress: Progress) -> None:
    """``engine.autocast``: the dtype in which torch would compute on a card with what DeepSpeed asks autocast for."""
    import torch

    enter = torch.autocast.__init__

    def noted(self: Any, device_type: str, dtype: Any = None, *args: Any, **named: Any) -> None:
        enter(self, device_type, dtype, *args, **named)
        if self._enabled:
            progress.see("engine.autocast", name_of(dtype or torch.get_autocast_dtype("cuda")))

    torch.autocast.__init__ = noted  # type: ignore[method-assign]


def see_checks(progress: Progress, accelerator: Any) -> None:
    """``accelerator.checks``: how often the ranks compare shapes when accelerate gathers one tensor of theirs."""
    import torch
    from accelerate.utils import operations

    compare, count = operations.gather_object, 0

    def counted(shapes: Any) -> Any:
        nonlocal count
        count += 1
        return compare(shapes)

    operations.gather_object = counted
    accelerator.gather(torch.ones(1, device=accelerator.device))
    operations.gather_object = compare
    progress.see("accelerator.checks", count)


def see_plain(progress: Progress, model: Any, trainer: Any) -> None:
    """An engine that is not DeepSpeed's. ``trainer`` None: an own loop, which has no arguments to read
    from."""
    import torch

    group = torch.distributed.is_available() and torch.distributed.is_initialized()
    kinds = {"DistributedDataParallel": "ddp", "FullyShardedDataParallel": "fsdp"}
    kind = kinds.get(type(model).__name__, "fsdp" if type(model).__name__.startswith("FSDP") else "single")
    progress.see("engine.kind", kind)
    progress.see("engine.stage", 0)
    progress.see("engine.world_size", torch.distributed.get_world_size() if group else 1)
    sharding.see_units(progress, model)
    if trainer is not None:
        args = trainer.args
        progress.see("engine.micro_batch", trainer._train_batch_size)
        progress.see("engine.gradient_accumulation_steps", args.gradient_accumulation_steps)
        progress.see("engine.gradient_clipping", args.max_grad_norm)
        progress.see("engine.dtype", DTYPES[trainer.accelerator.mixed_precision])


def see_optimizer(progress: Progress, optimizer: Any, scheduler: Any) -> None:
    """``engine.optimizer`` and ``engine.scheduler``: the innermost class names, with their plain values."""
    if optimizer is not None:
        while hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        progress.see("engine.optimizer", type(optimizer).__name__)
        see_attributes(progress, "inner", {**vars(optimizer), **_first_group(optimizer)})
    if scheduler is not None:
        while hasattr(scheduler, "scheduler"):
            scheduler = scheduler.scheduler
        progress.see("engine.scheduler", type(scheduler).__name__)
        see_attributes(progress, "schedule", vars(scheduler))


def _first_group(optimizer: Any) -> dict[str, Any]:
    """Without an optimizer DeepSpeed's stage 3 has a stand-in without groups."""
    group: dict[str, Any] = (getattr(optimizer, "param_groups", None) or [{}])[0]
    return group


def see_attributes(progress: Progress, prefix: str, values: dict[str, Any]) -> None:
    """Numbers, words and lists of numbers."""
    for name, value in values.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        if all(isinstance(item, (bool, int, float, str)) for item in items):
            progress.see(f"{prefix}.{name}", value)


def see_weights(progress: Progress, folder: Path, model: Any) -> None:
    """``weights``: "complete", "empty", "partial" or "missing"; ``weights.elements`` and
    ``weights.expected`` counts.

    ``folder`` is read back and compared with the parameters of ``model``; a parameter saved under the name
    of the one that it is tied to counts as saved.
    """
    expected: dict[str, int] = {}
    seen: set[int] = set()
    for name, parameter in model.named_parameters():
        if id(parameter) not in seen:
            seen.add(id(parameter))
            expected[name] = math.prod(getattr(parameter, "ds_shape", parameter.shape))
    saved = read_weights(folder)
    progress.see("weights.expected", sum(expected.values()))
    if saved is None:
        progress.see("weights.elements", 0)
        progress.values["weights"] = "missing"
        return
    progress.see("weights.elements", sum(saved.get(name, 0) for name in expected))
    if all(saved.get(name) == count for name, count in expected.items()):
        progress.values["weights"] = "complete"
    elif any(count == 0 for name, count in saved.items() if expected.get(name)):
        progress.values["weights"] = "empty"
    else:
        progress.values["weights"] = "partial"


def read_weights(folder: Path) -> dict[str, int] | None:
    """Number of elements by tensor name of the saved weights, None when there is no file of weights."""
    import torch
    from safetensors import safe_open

    found: dict[str, int] = {}
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with safe_open(file, framework="pt") as content:
            names = list(content.keys())
            found.update((name, math.prod(content.get_slice(name).get_shape())) for name in names)
    for file in sorted(folder.glob("pytorch_model*.bin")):
        state = torch.load(file, map_location="cpu", weights_only=True)
        found.update((name, tensor.numel()) for name, tensor in state.items())
        files.append(file)
    return found if files else None


def see_checkpoint(progress: Progress, folder: Path) -> None:
    """``checkpoint.files``: what lies in a checkpoint; ``.weights`` and ``.optimizer``: whether such are there."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names = [name.rpartition("/")[2] for name in files]
    progress.see("checkpoint.files", files)
    progress.see(
        "checkpoint.weights",
        any(name.endswith(".safetensors") or name.startswith("pytorch_model") for name in names),
    )
    progress.see("checkpoint.optimizer", any("optim_states" in name or "optimizer" in name for name in names))


def whole_parameters(model: Any) -> dict[str, Any]:
    """A copy of every parameter by name, gathered where it is partitioned. All ranks call it together."""
    import deepspeed

    found: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_id"):
            with deepspeed.zero.GatheredParameters([parameter]):
                found[name] = parameter.data.clone()
        else:
            found[name] = parameter.data.clone()
    return found


def blank(model: Any) -> Any:
    """All parameters zero, so that what a checkpoint brings back is told from what was there."""
    for parameter in model.parameters():
        (parameter.ds_tensor if hasattr(parameter, "ds_tensor") else parameter.data).zero_()
    return model


def see_loaded(progress: Progress, model: Any, before: dict[str, Any], step: int | None) -> None:
    """``load.matches``: the parameters are those of the engine that wrote; ``load.global_step``: where it goes on."""
    after = whole_parameters(model)
    same = after.keys() == before.keys() and all(bool((after[name] == before[name]).all()) for name in before)
    progress.see("load.matches", same)
    if step is not None:
        progress.see("load.global_step", step)
