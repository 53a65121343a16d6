"""How many parameters ZeRO-3 really holds whole while LLaMA-7B trains with DeepSpeed's defaults, on two CPU ranks.

    python benchmarks/memory/live_parameters.py

A Llama of 32 layers with all widths small, and every setting that counts elements scaled down by the same factor; what
is printed is scaled back. Runs with DeepSpeed 0.14.2 too (with a ``numactl`` on the path, and its imports of what torch
and numpy have since removed taken out).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

ELEMENTS = 6.738e9  # LLaMA-7B
STEPS = 4


def train(checkpointing: bool, reentrant: bool) -> dict[str, float]:
    """Most elements gathered at one time in the last step, in elements of LLaMA-7B."""
    import deepspeed
    import torch
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator as Coordinator
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    shape = {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 32, "vocab_size": 500}
    config = LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64)
    config.use_cache = False
    model = LlamaForCausalLM(config).bfloat16().train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    factor = sum(one.numel() for one in model.parameters()) / ELEMENTS
    zero: dict[str, Any] = {"stage": 3, "stage3_param_persistence_threshold": 100}
    for key, size in (("max_live_parameters", 1e9), ("max_reuse_distance", 1e9), ("prefetch_bucket_size", 5e7)):
        zero[f"stage3_{key}"] = int(size * factor)
    zero["reduce_bucket_size"] = int(5e8 * factor)
    settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    settings["zero_allow_untested_optimizer"] = True
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=settings)
    parameters = list(model.parameters())
    seen: dict[str, list[int]] = {}
    phase = ""

    def gathered() -> int:
        whole = (one for one in parameters if one.ds_status != ZeroParamStatus.NOT_AVAILABLE and not one.ds_persist)
        return sum(one.ds_numel for one in whole)

    fetch = Coordinator.fetch_sub_module

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        result = fetch(self, *given, **named)
        seen.setdefault(phase, []).append(gathered())
        return result

    Coordinator.fetch_sub_module = watched
    ids = torch.zeros(1, 8, dtype=torch.long)
    for _ in range(STEPS):
        seen.clear()
        phase = "forward"
        loss = engine(input_ids=ids, labels=ids).loss
        turn = gathered()
        phase = "backward"
        engine.backward(loss)
        phase = "step"
        engine.step()
    found = {"between forward and backward": turn, "forward": max(seen["forward"]), "backward": max(seen["backward"])}
    return {name: round(size / factor / 1e9, 2) for name, size in found.items()}


def on_two_ranks(checkpointing: bool, reentrant: bool) -> str:
    """What rank 0 found, as JSON; empty when it failed (its log is in the temporary folder)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = Path(tempfile.gettempdir()) / "live_parameters.log"
    readable, writable = os.pipe()
    ranks = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            try:
                found = train(checkpointing, reentrant)
                if rank == 0:
                    os.write(writable, json.dumps(found).encode())
            finally:
                os._exit(0)
        ranks.append(child)
    os.close(writable)
    for child in ranks:
        os.waitpid(child, 0)
    with os.fdopen(readable) as answer:
        return answer.read()


if __name__ == "__main__":
    os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    import deepspeed

    print(f"DeepSpeed {deepspeed.__version__}, elements of LLaMA-7B (1e9) that are whole on a rank", file=sys.stderr)
    for checkpointing, reentrant in ((False, False), (True, True), (True, False)):
        words = ("reentrant" if reentrant else "not reentrant") if checkpointing else "none"
        print(f"checkpointing {words}: {on_two_ranks(checkpointing, reentrant)}", flush=True)
