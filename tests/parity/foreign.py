"""Keys that stand in a file of another program, and what each becomes: one table for the linter and the libraries.

The values that are expected were written by hand; :mod:`tests.parity.test_foreign` shows them on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["deepspeed", "accelerate", "training", "torchrun", "runner"]


@dataclass(frozen=True)
class Foreign:
    """``at`` and ``value``: the key as it stands in the file of ``here``. ``home`` and ``own``: whose key it is, and
    its place there where the name does not tell. ``becomes``: where the fix puts which value. ``setting``: what both
    readers then hold, by DeepSpeed's name, by accelerate's argument, or for FSDP by the plugin's attribute. ``fsdp``:
    the version of FSDP that reads it."""

    here: Literal["deepspeed", "accelerate", "training"]
    at: tuple[str, ...]
    value: Any
    home: Side
    becomes: tuple[tuple[str, ...], Any]
    setting: str
    holds: Any
    own: tuple[str, ...] = ()
    fsdp: int | None = None

    @property
    def id(self) -> str:
        return f"{self.here}: {'.'.join(self.at)} {self.value!r}"


_ZERO = "zero_optimization"
_GATHER = f"{_ZERO}.stage3_gather_16bit_weights_on_model_save"


def _json(name: str, value: Any, home: Side, path: str, holds: Any) -> Foreign:
    """A key at the top level of DeepSpeed's config."""
    return Foreign("deepspeed", (name,), value, home, (tuple(path.split(".")), holds), path, holds)


def _own(name: str, value: Any, path: str) -> Foreign:
    """A key of a section of DeepSpeed's, at the top level."""
    own = tuple(path.split("."))
    return Foreign("deepspeed", (name,), value, "deepspeed", (own, value), path, value, own)


def _section(
    name: str, value: Any, home: Side, key: str, setting: str, holds: Any, own: str = "", text: Any = None
) -> Foreign:
    """A key in `deepspeed_config` of accelerate's; ``text``: the value of its own key where it is not ``holds``."""
    path = ("deepspeed_config", key) if key != "mixed_precision" else (key,)
    own_path = tuple(own.split(".")) if own else ()
    after = holds if text is None else text
    return Foreign("accelerate", ("deepspeed_config", name), value, home, (path, after), setting, holds, own_path)


def _top(name: str, value: Any, home: Side, path: str, setting: str, holds: Any, text: Any = None) -> Foreign:
    """A key at the top level of accelerate's config."""
    after = holds if text is None else text
    return Foreign("accelerate", (name,), value, home, (tuple(path.split(".")), after), setting, holds)


def _recipe(name: str, value: Any, home: Side, key: str, setting: str, holds: Any, own: str = "") -> Foreign:
    """A key of a recipe."""
    after = True if key in ("bf16", "fp16") else holds
    own_path = tuple(own.split(".")) if own else ()
    return Foreign("training", (name,), value, home, ((key,), after), setting, holds, own_path)


def _fsdp(version: int, name: str, value: Any, key: str, holds: str, attribute: str = "") -> Foreign:
    """A key of `fsdp_config` in accelerate's config at the top level of a recipe. ``holds`` is a text."""
    own, becomes = ("fsdp_config", name), (("fsdp_config", key), value)
    return Foreign("training", (name,), value, "accelerate", becomes, attribute or key, holds, own, version)


FOREIGN = (
    _json("zero_stage", 3, "accelerate", f"{_ZERO}.stage", 3),
    _json("offload_optimizer_device", "cpu", "accelerate", f"{_ZERO}.offload_optimizer.device", "cpu"),
    _json("offload_param_device", "cpu", "accelerate", f"{_ZERO}.offload_param.device", "cpu"),
    _json("zero3_save_16bit_model", True, "accelerate", _GATHER, True),
    _json("mixed_precision", "bf16", "accelerate", "bf16.enabled", True),
    _json("mixed_precision", "fp16", "accelerate", "fp16.enabled", True),
    _json("mixed_precision", "BF16", "accelerate", "bf16.enabled", True),
    _json("per_device_train_batch_size", 4, "training", "train_micro_batch_size_per_gpu", 4),
    _json("max_grad_norm", 0.5, "training", "gradient_clipping", 0.5),
    _json("learning_rate", 1e-5, "training", "optimizer.params.lr", 1e-5),
    _json("weight_decay", 0.1, "training", "optimizer.params.weight_decay", 0.1),
    _json("adam_epsilon", 1e-6, "training", "optimizer.params.eps", 1e-6),
    _json("warmup_steps", 10, "training", "scheduler.params.warmup_num_steps", 10),
    _json("max_grad_norm", "0.5", "training", "gradient_clipping", 0.5),
    _json("max_steps", 100, "training", "scheduler.params.total_num_steps", 100),
    _own("betas", [0.9, 0.95], "optimizer.params.betas"),
    _own("total_num_steps", 40, "scheduler.params.total_num_steps"),
    _own("lr", 1e-4, "optimizer.params.lr"),
    _own("eps", 1e-6, "optimizer.params.eps"),
    _own("warmup_num_steps", 5, "scheduler.params.warmup_num_steps"),
    _section("max_grad_norm", 0.5, "training", "gradient_clipping", "gradient_clipping", 0.5),
    _section("stage", 3, "deepspeed", "zero_stage", f"{_ZERO}.stage", 3, f"{_ZERO}.stage"),
    _section(_ZERO, {"stage": 3}, "deepspeed", "zero_stage", f"{_ZERO}.stage", 3),
    _section(
        "offload_optimizer",
        {"device": "cpu"},
        "deepspeed",
        "offload_optimizer_device",
        f"{_ZERO}.offload_optimizer.device",
        "cpu",
        f"{_ZERO}.offload_optimizer",
    ),
    _section(
        "offload_param",
        {"device": "cpu"},
        "deepspeed",
        "offload_param_device",
        f"{_ZERO}.offload_param.device",
        "cpu",
        f"{_ZERO}.offload_param",
    ),
    _section(_GATHER.rpartition(".")[2], True, "deepspeed", "zero3_save_16bit_model", _GATHER, True, _GATHER),
    _section(
        "gather_16bit_weights_on_model_save",
        True,
        "deepspeed",
        "zero3_save_16bit_model",
        _GATHER,
        True,
        f"{_ZERO}.gather_16bit_weights_on_model_save",
    ),
    _section("bf16", {"enabled": True}, "deepspeed", "mixed_precision", "bf16.enabled", True, text="bf16"),
    _section("fp16", {"enabled": True}, "deepspeed", "mixed_precision", "fp16.enabled", True, text="fp16"),
    _section("bf16", True, "training", "mixed_precision", "bf16.enabled", True, text="bf16"),
    _top("gradient_clipping", 0.5, "deepspeed", "deepspeed_config.gradient_clipping", "gradient_clipping", 0.5),
    _top("max_grad_norm", 0.5, "training", "deepspeed_config.gradient_clipping", "gradient_clipping", 0.5),
    _top(
        "gradient_accumulation_steps",
        4,
        "deepspeed",
        "deepspeed_config.gradient_accumulation_steps",
        "gradient_accumulation_steps",
        4,
    ),
    _top("bf16", True, "training", "mixed_precision", "bf16.enabled", True, text="bf16"),
    _top("nnodes", 2, "torchrun", "num_machines", "num_machines", 2),
    _top("node_rank", 1, "torchrun", "machine_rank", "machine_rank", 1),
    _top("master_addr", "10.0.0.1", "torchrun", "main_process_ip", "main_process_ip", "10.0.0.1"),
    _top("master_port", 29501, "torchrun", "main_process_port", "main_process_port", 29501),
    _top("nproc_per_node", 4, "torchrun", "num_processes", "num_processes", 4),
    _top("num_gpus", 4, "runner", "num_processes", "num_processes", 4),
    _top("num_nodes", 2, "runner", "num_machines", "num_machines", 2),
    _top("hostfile", "hosts", "runner", "deepspeed_config.deepspeed_hostfile", "deepspeed_hostfile", "hosts"),
    _recipe("gradient_clipping", 0.5, "deepspeed", "max_grad_norm", "gradient_clipping", 0.5),
    _recipe(
        "train_micro_batch_size_per_gpu",
        3,
        "deepspeed",
        "per_device_train_batch_size",
        "train_micro_batch_size_per_gpu",
        3,
    ),
    _recipe("mixed_precision", "bf16", "accelerate", "bf16", "bf16.enabled", True),
    _recipe("mixed_precision", "fp16", "accelerate", "fp16", "fp16.enabled", True),
    _recipe("mixed_precision", "BF16", "accelerate", "bf16", "bf16.enabled", True),
    _recipe("lr", 1e-4, "deepspeed", "learning_rate", "optimizer.params.lr", 1e-4, "optimizer.params.lr"),
    _recipe("eps", 1e-6, "deepspeed", "adam_epsilon", "optimizer.params.eps", 1e-6, "optimizer.params.eps"),
    _recipe(
        "warmup_num_steps",
        5,
        "deepspeed",
        "warmup_steps",
        "scheduler.params.warmup_num_steps",
        5,
        "scheduler.params.warmup_num_steps",
    ),
    _recipe(
        "total_num_steps",
        40,
        "deepspeed",
        "max_steps",
        "scheduler.params.total_num_steps",
        40,
        "scheduler.params.total_num_steps",
    ),
    _fsdp(2, "fsdp_version", 1, "version", "1", "fsdp_version"),
    _fsdp(2, "fsdp_offload_params", True, "cpu_offload", "CPUOffloadPolicy(pin_memory=True)"),
    _fsdp(2, "fsdp_state_dict_type", "SHARDED_STATE_DICT", "state_dict_type", "SHARDED_STATE_DICT"),
    _fsdp(2, "fsdp_cpu_ram_efficient_loading", True, "cpu_ram_efficient_loading", "True"),
    _fsdp(2, "fsdp_activation_checkpointing", True, "activation_checkpointing", "True"),
    _fsdp(2, "fsdp_reshard_after_forward", False, "reshard_after_forward", "False"),
    _fsdp(2, "fsdp_auto_wrap_policy", "SIZE_BASED_WRAP", "auto_wrap_policy", "size_based_auto_wrap_policy"),
    _fsdp(1, "fsdp_forward_prefetch", True, "forward_prefetch", "True"),
    _fsdp(1, "fsdp_backward_prefetch", "BACKWARD_PRE", "backward_prefetch", "BackwardPrefetch.BACKWARD_PRE"),
    _fsdp(1, "fsdp_use_orig_params", False, "use_orig_params", "False"),
    _fsdp(1, "fsdp_sync_module_states", False, "sync_module_states", "False"),
)
