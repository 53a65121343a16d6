"""Writes "auto" at every key of a DeepSpeed config, has a consumer prepare it, prints which it filled.

Run as a script with the name of the consumer, "transformers" or "accelerate", because it starts a process
group.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

import torch

from zerocfg.models.base import Section
from zerocfg.models.deepspeed import DeepSpeedConfig


def every_auto(model: type[Section] = DeepSpeedConfig) -> dict[str, Any]:
    """A config with "auto" at every key; optimizer and scheduler hold the keys of all their variants."""
    config: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        sections = [part for part in (field.annotation, *getattr(field.annotation, "__args__", ())) if is_section(part)]
        if name in model.variants:
            sections += model.variants[name].cases.values()
        config[name] = "auto"
        if sections:
            config[name] = {key: value for section in sections for key, value in every_auto(section).items()}
    return config


def is_section(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, Section)


def leaves(config: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= leaves(value, f"{path}{key}.") if isinstance(value, dict) else {path + key: value}
    return found


class Model(torch.nn.Linear):
    """Something with a hidden size."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.config = SimpleNamespace(hidden_size=4)


def transformers() -> set[str]:
    """The keys that the Trainer fills, before accelerate sees the config; stage 3."""
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    config = every_auto()
    config["zero_optimization"]["stage"] = 3
    ours = HfTrainerDeepSpeedConfig(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, use_cpu=True, report_to=[])
        ours.trainer_config_process(arguments)
        ours.trainer_config_finalize(arguments, Model(), 10)
    after = leaves(ours.config)
    return {key for key, value in leaves(every_auto()).items() if after[key] != "auto"} - {"zero_optimization.stage"}


class ReachedError(Exception):
    """Everything that was to be seen has been seen."""


def accelerate() -> set[str]:
    """The keys for which accelerate has a value, in an own loop with a dummy optimizer and scheduler."""
    from accelerate import Accelerator
    from accelerate.utils import DeepSpeedPlugin, DummyOptim, DummyScheduler

    filled: set[str] = set()
    fill = DeepSpeedPlugin.fill_match

    def recorded(self: Any, key: str, *rest: Any, must_match: bool = True, **values: Any) -> None:
        if key in values:
            filled.add(key)
            fill(self, key, *rest, must_match=must_match, **values)

    def recorded_last(self: Any, prefix: str = "", must_match: bool = True, **values: Any) -> None:
        filled.update(values.keys() & leaves(every_auto()).keys())
        raise ReachedError

    DeepSpeedPlugin.fill_match = recorded
    config = every_auto()
    config["tensor_parallel"]["autotp_size"] = 1  # compared with a number before anything is filled
    config["zero_optimization"]["stage"] = 2
    plugin = DeepSpeedPlugin(hf_ds_config=config)
    accelerator = Accelerator(deepspeed_plugin=plugin, mixed_precision="bf16")
    model = Model()
    optimizer = DummyOptim(model.parameters())
    loader = torch.utils.data.DataLoader(torch.zeros(8, 4), batch_size=2)
    scheduler = DummyScheduler(optimizer, total_num_steps=10, warmup_num_steps=1)
    DeepSpeedPlugin.deepspeed_config_process = recorded_last
    try:
        accelerator.prepare(model, optimizer, loader, scheduler)
    except ReachedError:
        return filled
    raise SystemExit("accelerate did not reach the place where it fills autos")


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    keys = {"transformers": transformers, "accelerate": accelerate}[sys.argv[1]]()
    print("FILLED " + json.dumps(sorted(keys)))


if __name__ == "__main__":
    main()
