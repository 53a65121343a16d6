"""Runs deepspeed.initialize on one CPU rank and prints, as JSON, the config keys that it looks at.

The parse of the config does not read every key: some are read by deepspeed.initialize before it, the pipeline
section by the pipeline engine after it. Run as a script, because it starts a process group.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from deepspeed.runtime import config as deepspeed_config
from recording import RecordingDict

BASE = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def initialize(model: torch.nn.Module, config: dict[str, Any]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    deepspeed.initialize(model=model, optimizer=optimizer, config=config)


def top_level() -> RecordingDict:
    """A config with a device mesh, as deepspeed.initialize reads it."""
    config = RecordingDict({**BASE, "sequence_parallel_size": 1, "data_parallel_size": 1, "tensor_parallel": {}})
    initialize(torch.nn.Linear(4, 4), config)
    return config


def pipeline() -> RecordingDict:
    """The merged pipeline section, as the pipeline engine reads it."""
    merge = deepspeed_config.get_pipeline_config
    sections: list[RecordingDict] = []

    def recorded(param_dict: dict[str, Any]) -> RecordingDict:
        sections.append(RecordingDict(merge(param_dict)))
        return sections[-1]

    deepspeed_config.get_pipeline_config = recorded
    module = PipelineModule([torch.nn.Linear(4, 4)], num_stages=1, loss_fn=torch.nn.MSELoss())
    initialize(module, dict(BASE))
    union = RecordingDict({})
    for section in sections:
        union.seen[()] |= section.seen[()]
    return union


def main() -> None:
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
    os.environ["MASTER_PORT"] = str(free_port())
    deepspeed.init_distributed("gloo")
    answer = {"top": sorted(top_level().seen[()]), "pipeline": sorted(pipeline().seen[()])}
    print("READS " + json.dumps(answer))


if __name__ == "__main__":
    main()
