"""What the real loaders say to a config file: DeepSpeedConfig, and accelerate's launcher up to the environment."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

# What the Trainer puts for an `auto`: any value of the right type does, the question is only whether the file loads.
FILLS: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "reduce_bucket_size": 1024,
    "stage3_prefetch_bucket_size": 921,
    "stage3_param_persistence_threshold": 320,
    "lr": 1e-5,
    "betas": [0.9, 0.999],
    "eps": 1e-8,
    "weight_decay": 0.0,
    "warmup_min_lr": 0,
    "warmup_max_lr": 1e-5,
    "warmup_num_steps": 1,
    "total_num_steps": 10,
    "stage3_gather_16bit_weights_on_model_save": False,
}
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


class Ranks:
    """Stands in for the process group: the only thing DeepSpeedConfig asks of it is the world size."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_data_parallel_world_size(self) -> int:
        return self.count


def deepspeed_error(path: Path) -> str | None:
    """The error of the real DeepSpeedConfig on a file; None when it loads."""
    return deepspeed_config(path)[1]


def deepspeed_config(path: Path) -> tuple[Any, str | None]:
    """What the real DeepSpeedConfig makes of a file, its `auto` filled as the Trainer would, or its error.

    The world size is not known to a file, so a batch product counts as fine when some world size satisfies it.
    """
    from deepspeed.runtime.config import DeepSpeedConfig

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return None, str(error)
    try:
        data = _load_as_deepspeed(path)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    had_auto = '"auto"' in text
    if isinstance(data, dict) and had_auto:
        if data.get("train_batch_size") == "auto":
            data.pop("train_batch_size")
        fill(data)
        if "train_micro_batch_size_per_gpu" not in data and "train_batch_size" not in data:
            data["train_micro_batch_size_per_gpu"] = 1
    first: str | None = None
    for count in _world_sizes(data):
        try:
            return DeepSpeedConfig(copy.deepcopy(data), mpu=Ranks(count)), None
        except BaseException as error:
            first = first or f"{type(error).__name__}: {error}"
    return None, first


def _load_as_deepspeed(path: Path) -> Any:
    import hjson
    from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys

    with path.open(encoding="utf-8") as file:
        return hjson.load(file, object_pairs_hook=dict_raise_error_on_duplicate_keys)


def fill(node: Any) -> None:
    """Replace every `auto` that transformers or accelerate fill, in place."""
    if isinstance(node, dict):
        for name, value in list(node.items()):
            if value == "auto" and name in FILLS:
                node[name] = FILLS[name]
            elif value == "auto" and name == "train_batch_size":
                del node[name]
            else:
                fill(value)


def _world_sizes(data: Any) -> list[int]:
    if not isinstance(data, dict):
        return [1]
    total, micro, steps = (data.get(name) for name in _BATCH)
    sizes = {1, 2, 4, 8, 16}
    if isinstance(total, int) and isinstance(micro, int) and micro > 0:
        per = micro * (steps if isinstance(steps, int) and steps > 0 else 1)
        if per and total >= per:
            sizes.add(total // per)
    return sorted(sizes)


def accelerate_error(path: Path) -> str | None:
    """The error of the real `accelerate launch` on a config file, up to the environment; None when it launches."""
    return accelerate_environment(path)[1]


def accelerate_environment(path: Path) -> tuple[dict[str, str] | None, str | None]:
    """The variables that the real `accelerate launch` exports for a config file, or its error."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import launch as prepare

    parser = launch_command_parser()
    before = dict(os.environ)
    try:
        args = parser.parse_args(["--config_file", str(path), "train.py"])
        args, defaults, _ = _validate_launch_command(args)
        if args.use_deepspeed and not args.cpu:
            args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config) if defaults else ""
            _, exported = prepare.prepare_deepspeed_cmd_env(args)
        elif (args.use_fsdp or args.multi_gpu or args.use_megatron_lm) and not args.cpu:
            exported = prepare.prepare_multi_gpu_env(args)
        else:
            _, exported = prepare.prepare_simple_launcher_cmd_env(args)
        return {name: value for name, value in exported.items() if before.get(name) != value}, None
    except SystemExit as error:
        return None, f"SystemExit: {error}"
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    finally:
        os.environ.clear()
        os.environ.update(before)
