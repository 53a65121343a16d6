"""A foreign key and what it becomes are the same setting: shown by the libraries that read the one and the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from tests.parity.foreign import FOREIGN, Foreign
from tests.parity.verdicts import deepspeed_values, flatten
from tests.rules.test_foreign_keys import document, fixed

pytestmark = pytest.mark.libs

AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": dict.fromkeys(("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"), "auto"),
    },
    "zero_optimization": {"stage": 2},
}
"""A DeepSpeed config that leaves to the Trainer what the Trainer can fill."""


def of_deepspeed(data: dict[str, Any]) -> dict[str, Any]:
    from deepspeed.runtime.config import DeepSpeedConfig

    parsed = DeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, **data})
    found = deepspeed_values(parsed)
    flatten("optimizer.params", parsed.optimizer_params, found)
    flatten("scheduler.params", parsed.scheduler_params, found)
    return {name.replace(".gather_16bit", ".stage3_gather_16bit"): value for name, value in found.items()}


def of_accelerate(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The launcher's arguments, and the config that the plugin makes in the job."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import DeepSpeedPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    file = folder / "accelerate.yaml"
    file.write_text(yaml.safe_dump(data))
    arguments = launch_command_parser().parse_args(["--config_file", str(file), "train.py"])
    with mock.patch.dict(os.environ):
        arguments, _, _ = _validate_launch_command(arguments)
        # launch_command does this, and starts the job
        arguments.deepspeed_fields_from_accelerate_config = ",".join(data["deepspeed_config"])
        _, exported = prepare_deepspeed_cmd_env(arguments)
    with mock.patch.dict(os.environ, {name: str(value) for name, value in exported.items()}, clear=True):
        plugin = DeepSpeedPlugin()
        precision = os.environ["ACCELERATE_MIXED_PRECISION"]
    found: dict[str, Any] = dict(vars(arguments))
    for name, value in plugin.deepspeed_config.items():
        flatten(name, value, found)
    return found | {"bf16.enabled": precision == "bf16", "fp16.enabled": precision == "fp16"}


def of_trainer(recipe: dict[str, Any]) -> dict[str, Any]:
    """The config that the Trainer hands to DeepSpeed."""
    from transformers import HfArgumentParser, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    (arguments,) = HfArgumentParser(TrainingArguments).parse_dict({"output_dir": "out", "use_cpu": True, **recipe})
    config = HfTrainerDeepSpeedConfig(AUTO)
    config.trainer_config_process(arguments)
    config.trainer_config_finalize(arguments, None, arguments.max_steps)
    found: dict[str, Any] = {}
    for name, value in config.config.items():
        flatten(name, value, found)
    return found


def of_fsdp(plugin: Any) -> dict[str, str]:
    """The attributes of accelerate's plugin, each as text."""
    found = {name: str(getattr(value, "name", value)) for name, value in vars(plugin).items()}
    policy = getattr(plugin.auto_wrap_policy, "__name__", "")
    return found | {"auto_wrap_policy": policy, "backward_prefetch": str(plugin.backward_prefetch)}


@pytest.fixture(autouse=True)
def card() -> Iterator[None]:
    """FSDP 1 looks for a device when its plugin is made."""
    with (
        mock.patch("accelerate.utils.dataclasses.is_cuda_available", return_value=True),
        mock.patch("torch.cuda.current_device", return_value=0),
        mock.patch.dict(os.environ),  # and leaves a variable behind
    ):
        yield


def of_fsdp_launcher(section: dict[str, Any], folder: Path) -> dict[str, str]:
    """The plugin that the job makes of what `accelerate launch` exports."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    file = folder / "accelerate.yaml"
    file.write_text(yaml.safe_dump({"distributed_type": "FSDP", "num_processes": 2, "fsdp_config": section}))
    arguments = launch_command_parser().parse_args(["--config_file", str(file), "train.py"])
    with mock.patch.dict(os.environ):
        arguments, _, _ = _validate_launch_command(arguments)
        exported = prepare_multi_gpu_env(arguments)
    with mock.patch.dict(os.environ, {name: str(value) for name, value in exported.items()}, clear=True):
        return of_fsdp(FullyShardedDataParallelPlugin())


def of_fsdp_trainer(recipe: dict[str, Any]) -> dict[str, str]:
    """The plugin that the Trainer makes of its arguments."""
    from accelerate.utils import FullyShardedDataParallelPlugin
    from transformers import HfArgumentParser, TrainingArguments

    (arguments,) = HfArgumentParser(TrainingArguments).parse_dict({"output_dir": "out", "use_cpu": True, **recipe})
    return of_fsdp(FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args))


def of_launcher(row: Foreign) -> Any:
    """What the launcher that knows the option holds."""
    words = [f"--{row.at[-1]}", str(row.value), "train.py"]
    if row.home == "runner":
        from deepspeed.launcher.runner import parse_args

        return getattr(parse_args(words), row.at[-1])
    from torch.distributed.run import get_args_parser

    return getattr(get_args_parser().parse_args(words), row.at[-1])


def at_home(row: Foreign, folder: Path) -> Any:
    if row.home in ("torchrun", "runner"):
        return of_launcher(row)
    if row.fsdp is not None:
        section = {"fsdp_version": row.fsdp, "fsdp_cpu_ram_efficient_loading": False, row.at[-1]: row.value}
        return of_fsdp_launcher(section, folder)[row.setting]
    data: dict[str, Any] = {}
    path = row.own or ((*("deepspeed_config",), row.at[-1]) if row.home == "accelerate" else row.at[-1:])
    if path[-1] == "mixed_precision":
        path = path[-1:]
    into = data
    for part in path[:-1]:
        into = into.setdefault(part, {})
    into[path[-1]] = row.value
    if row.home == "deepspeed":
        data.setdefault("optimizer", {}).setdefault("type", "AdamW")
        data.setdefault("scheduler", {}).setdefault("type", "WarmupDecayLR")
        return of_deepspeed(data)[row.setting]
    if row.home == "accelerate":
        whole = {"distributed_type": "DEEPSPEED", "num_processes": 2, **data}
        whole.setdefault("deepspeed_config", {"zero_stage": 2})
        return of_accelerate(whole, folder)[row.setting]
    if isinstance(row.value, str):
        data[path[-1]] = float(row.value)  # HfArgumentParser converts no text out of a file
    return of_trainer(data)[row.setting]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in FOREIGN])
def test_both_readers_hold_the_same(row: Foreign, tmp_path: Path) -> None:
    held = at_home(row, tmp_path)
    assert type(row.holds)(held) == row.holds, "where the key is at home"
    _, after = fixed(row, tmp_path)
    for data, holds in ((after, True), (document(row), False)):
        try:
            if row.here == "deepspeed":
                found = of_deepspeed(data).get(row.setting)
            elif row.here == "accelerate":
                data["deepspeed_config"].pop("offload_optimizer_nvme_path", None)
                found = of_accelerate(data, tmp_path).get(row.setting)
            elif row.fsdp is not None:
                found = of_fsdp_trainer(data).get(row.setting)
            else:
                found = of_trainer(data).get(row.setting)
        except (Exception, SystemExit) as error:
            assert not holds, error
            continue
        assert (found == row.holds) is holds, (data, found)
