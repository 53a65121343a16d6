"""FSDP on processors: what is forced so that accelerate really shards over gloo, and what is seen of it.

torch shards tensors of processors as those of cards; accelerate makes plain DDP of it there. So, in ranks that
train with FSDP, and nothing else of their settings is touched:
* accelerate's state is told MULTI_GPU after its process group of processors was made, with the device "cpu".
* FSDP 1: the plugin, which asks for the current card when it synchronises module states, is given "cpu", and torch's
  check that the modules stand on a card is left out. Its state dict cannot be observed: torch 2.13 crashes in it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

from progress import NotObservableError

if TYPE_CHECKING:
    from progress import Progress


def wanted(asked: Any) -> bool:
    return bool(asked) or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def prepare(asked: Any) -> None:
    """Let accelerate take this rank for one with a card, when it trains with FSDP. After PartialState(cpu=True)."""
    if not wanted(asked) or "RANK" not in os.environ:
        return
    import torch
    from accelerate import PartialState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, dataclasses

    if not torch.distributed.is_initialized():  # one rank alone: on a card it has a process group too
        torch.distributed.init_process_group("gloo")
    PartialState._shared_state.update(
        distributed_type=DistributedType.MULTI_GPU,
        backend="gloo",
        device=torch.device("cpu"),
        num_processes=torch.distributed.get_world_size(),
        process_index=torch.distributed.get_rank(),
        local_process_index=int(os.environ["LOCAL_RANK"]),
    )
    from torch.distributed.fsdp import _init_utils

    _init_utils._check_module_states_for_sync_module_states = lambda *_: None  # type: ignore[assignment]
    build = FullyShardedDataParallelPlugin.__post_init__

    def built(self: Any) -> None:
        with (
            mock.patch.object(dataclasses, "is_cuda_available", lambda: True),
            mock.patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")),
        ):
            build(self)

    FullyShardedDataParallelPlugin.__post_init__ = built


def see_plugin(progress: Progress, accelerator: Any) -> None:
    """``plugin.*``: the plugin of the live Accelerator, strategies and policies by name; absent without FSDP."""
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None:
        return
    progress.see("plugin", plugin)
    for name in ("sharding_strategy", "reshard_after_forward", "backward_prefetch", "state_dict_type"):
        value = getattr(plugin, name)
        progress.see(f"plugin.{name}", getattr(value, "name", value))
    policy = plugin.auto_wrap_policy
    progress.see("plugin.auto_wrap_policy", getattr(policy, "__name__", policy))
    offload = plugin.cpu_offload
    progress.see("plugin.cpu_offload", bool(getattr(offload, "offload_params", "CPU" in type(offload).__name__)))


def see_units(progress: Progress, model: Any) -> None:
    """``engine.units``: class names of the modules that are sharded as one; ``engine.share``: the part of the
    model's elements that this rank holds between steps."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    units = [part for part in model.modules() if isinstance(part, (FSDPModule, FullyShardedDataParallel))]
    if not units:
        return
    names = [type(getattr(unit, "_fsdp_wrapped_module", unit)).__name__.removeprefix("FSDP") for unit in units]
    progress.see("engine.units", sorted(names))
    if isinstance(units[0], FSDPModule):
        whole = sum(parameter.numel() for parameter in model.parameters())
        held = sum(getattr(p, "to_local", lambda p=p: p)().numel() for p in model.parameters())
    else:
        handles = [unit._handle for unit in units if unit._handle is not None]
        whole = sum(handle.flat_param._unpadded_unsharded_size.numel() for handle in handles)
        held = sum(handle.flat_param._sharded_size.numel() for handle in handles)
    progress.see("engine.share", round(held / whole, 2) if whole else None)
    progress.see("engine.param_dtype", sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()}))
    progress.see("engine.frozen", sum(not p.requires_grad for p in model.parameters()))


def unsavable(accelerator: Any) -> bool:
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    return plugin is not None and plugin.fsdp_version == 1


def refuse_saving(accelerator: Any) -> None:
    if unsavable(accelerator):
        raise NotObservableError("torch crashes in the state dict of FSDP 1 on processors; observe it up to 'step'")
