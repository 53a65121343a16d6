"""What torch's own engines run with: DistributedDataParallel, FullyShardedDataParallel, fully_shard.

Settings of DDP have the names of TrainingArguments, those of FSDP the names of accelerate's ``fsdp_config``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import plain

if TYPE_CHECKING:
    import torch

FSDP = "fsdp_config.fsdp_"
OWN = "FullyShardedDataParallel"  # the class of FSDP 1; FSDP 2 makes a class FSDPx of the module's class x
WRAPPER = "CheckpointWrapper"  # torch's, around every unit whose activations are computed again


def kind(model: torch.nn.Module) -> str:
    """ "ddp", "fsdp" or "single"."""
    names = {base.__name__ for base in type(model).__mro__}
    if "DistributedDataParallel" in names:
        return "ddp"
    return "fsdp" if names & {OWN, "FSDPModule"} else "single"


def ddp(model: torch.nn.Module) -> dict[str, object]:
    """Of torch's wrapper itself; buckets in MiB."""
    hooks = [getattr(hook, "__name__", str(hook)) for hook, _ in getattr(model, "_comm_hooks", [])]
    return {
        "ddp_bucket_cap_mb": plain(model.bucket_bytes_cap / 2**20),
        "ddp_find_unused_parameters": plain(model.find_unused_parameters),
        "ddp_broadcast_buffers": plain(model.broadcast_buffers),
        "ddp_gradient_as_bucket_view": plain(model.gradient_as_bucket_view),
        "ddp_static_graph": plain(model.static_graph),
        "ddp_comm_hook": ", ".join(hooks) or "no",
    }


def fsdp(model: torch.nn.Module) -> dict[str, object]:
    """Of the units that FSDP made of the model."""
    names = {base.__name__ for base in type(model).__mro__}
    acting = _first(model) if OWN in names else _second(model)
    wrappers = sum(1 for module in model.modules() if WRAPPER in {base.__name__ for base in type(module).__mro__})
    acting[FSDP + "activation_checkpointing"] = wrappers > 0
    return acting


def fsdp_plugin() -> dict[str, object]:
    """Of accelerate's plugin, which knows what the units do not show; empty where accelerate is not in use."""
    from accelerate import PartialState
    from accelerate.state import AcceleratorState

    if not (PartialState._shared_state and AcceleratorState._shared_state):
        return {}
    plugin = getattr(AcceleratorState(), "fsdp_plugin", None)
    return _plugin(plugin) if plugin is not None else {}


def shard(model: torch.nn.Module) -> tuple[int, int, int]:
    """Elements of the parameters that this rank holds, those of the whole model, and the number of its tensors."""
    # A flat parameter of version 1 knows the size of what it was made of; it may show views of it in its place.
    handles = [handle for unit in model.modules() if (handle := getattr(unit, "_handle", None)) is not None]
    flats = [handle.flat_param for handle in handles if hasattr(handle, "flat_param")]
    if flats:
        whole = sum(flat._unpadded_unsharded_size.numel() for flat in flats)
        return sum(flat.numel() for flat in flats), whole, sum(len(flat._shapes) for flat in flats)
    parameters = list(model.parameters())
    local = sum(part.to_local().numel() if hasattr(part, "to_local") else part.numel() for part in parameters)
    return local, sum(part.numel() for part in parameters), len(parameters)


def _first(model: torch.nn.Module) -> dict[str, object]:
    units = [module for module in model.modules() if type(module).__name__ == OWN]
    # The root is wrapped whatever the policy says.
    classes = {type(_inner(unit)).__name__ for unit in units if unit is not model}
    unit = units[0]
    prefetch = getattr(unit, "backward_prefetch", None)
    found = {
        "version": 1,
        "sharding_strategy": unit.sharding_strategy.name,
        "offload_params": bool(unit.cpu_offload.offload_params),
        "backward_prefetch": prefetch.name if prefetch is not None else None,
        "forward_prefetch": plain(getattr(unit, "forward_prefetch", None)),
        "limit_all_gathers": plain(getattr(unit, "limit_all_gathers", None)),
        "use_orig_params": plain(getattr(unit, "_use_orig_params", None)),
        "transformer_layer_cls_to_wrap": ",".join(sorted(classes)),
        "state_dict_type": getattr(getattr(unit, "_state_dict_type", None), "name", None),
    }
    found.update(_precision(unit.mixed_precision))
    return {FSDP + key: value for key, value in found.items()}


def _second(model: torch.nn.Module) -> dict[str, object]:
    units = [module for module in model.modules() if _is_unit(module)]
    below = [unit for unit in units if unit is not model] or units
    groups = [group for unit in below if (group := getattr(unit._get_fsdp_state(), "_fsdp_param_group", None))]
    found: dict[str, object] = {
        "version": 2,
        "transformer_layer_cls_to_wrap": ",".join(sorted({_class(unit) for unit in below})),
    }
    if groups:
        # No mesh to share the parameters on after forward: they stay whole until backward has used them.
        found["reshard_after_forward"] = groups[0].post_forward_mesh_info is not None
        found["offload_params"] = type(groups[0].offload_policy).__name__ == "CPUOffloadPolicy"
        found.update(_precision(groups[0].mp_policy))
    return {FSDP + key: value for key, value in found.items()}


def _inner(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself, below the wrappers of FSDP 1 and of activation checkpointing."""
    for name in ("_fsdp_wrapped_module", "_checkpoint_wrapped_module"):
        module = getattr(module, name, module)
    return module


def _class(unit: torch.nn.Module) -> str:
    """Of a module of FSDP 2, whose class derives from FSDPModule and from its own."""
    inner = _inner(unit)  # below a wrapper it may be a unit, too
    return str(type(inner).__mro__[2].__name__) if _is_unit(inner) else type(inner).__name__


def _is_unit(module: torch.nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def _precision(policy: object) -> dict[str, object]:
    names = ("param_dtype", "reduce_dtype", "buffer_dtype", "output_dtype")
    found = {f"mixed_precision.{name}": plain(getattr(policy, name, None)) for name in names}
    return {key: value for key, value in found.items() if value is not None}


def _plugin(plugin: object) -> dict[str, object]:
    """accelerate.utils.FullyShardedDataParallelPlugin as it was filled."""
    state_dict = getattr(plugin, "state_dict_type", None)
    strategy = getattr(plugin, "sharding_strategy", None)
    prefetch = getattr(plugin, "backward_prefetch", None)
    policy = getattr(plugin, "auto_wrap_policy", None)
    policy = getattr(policy, "func", policy)  # a functools.partial
    policies = {
        "transformer_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "size_based_auto_wrap_policy": "SIZE_BASED_WRAP",
    }
    classes = getattr(plugin, "transformer_cls_names_to_wrap", None)
    found = {
        "version": getattr(plugin, "fsdp_version", None),
        "state_dict_type": getattr(state_dict, "name", state_dict),
        "sharding_strategy": getattr(strategy, "name", strategy),
        "backward_prefetch": getattr(prefetch, "name", prefetch),
        "auto_wrap_policy": policies.get(getattr(policy, "__name__", ""), "NO_WRAP" if policy is None else None),
        "transformer_layer_cls_to_wrap": ",".join(sorted(classes)) if classes else None,
        "min_num_params": plain(getattr(plugin, "min_num_params", None)),
    }
    for name in ("cpu_ram_efficient_loading", "activation_checkpointing", "activation_checkpointing_offload",
                 "reshard_after_forward", "use_orig_params", "sync_module_states", "forward_prefetch",
                 "ignored_modules"):  # fmt: skip
        if hasattr(plugin, name):
            found[name] = plain(getattr(plugin, name))
    offload = getattr(plugin, "cpu_offload", None)
    if offload is not None:
        # A bool, FSDP 1's CPUOffload(offload_params) or FSDP 2's CPUOffloadPolicy.
        offloads = getattr(offload, "offload_params", type(offload).__name__ == "CPUOffloadPolicy")
        found["offload_params"] = offload if isinstance(offload, bool) else bool(offloads)
    return {FSDP + key: value for key, value in found.items() if value is not None or key == "ignored_modules"}
