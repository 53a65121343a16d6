"""Trains three Linear layers with real DeepSpeed on CPU ranks and prints what they hold.

Run as a program: reads ``[{"world_size": 2, "config": {...}}, ...]`` from standard input, prints one JSON
line for each case: bytes of all tensors alive on rank 0 after two optimizer steps, or ``{"error": ...}``.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

WIDTH, LAYERS = 512, 3


def held_bytes() -> int:
    """Bytes of every distinct storage that a tensor of this process still refers to."""
    import torch

    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor) and thing.device.type == "cpu":
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def train(config: dict[str, Any]) -> int:
    import deepspeed
    import torch

    before = held_bytes()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    dtype = torch.bfloat16 if config.get("bf16") else torch.float16 if config.get("fp16") else torch.float32
    for _ in range(2 * config.get("gradient_accumulation_steps", 1)):
        loss = engine(torch.ones(1, WIDTH, dtype=dtype)).float().pow(2).mean()
        engine.backward(loss)
        engine.step()
    del loss
    return held_bytes() - before


def rank_main(rank: int, case: dict[str, Any], port: int, pipe: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case["world_size"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        result: dict[str, Any] = {"bytes": train(case["config"])}
    except Exception:
        result = {"error": traceback.format_exc(limit=-3)}
    if rank == 0:
        os.write(pipe, json.dumps(result).encode())
    os._exit(0)


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    readable, writable = os.pipe()
    children = []
    for rank in range(case["world_size"]):
        child = os.fork()
        if child == 0:
            rank_main(rank, case, port, writable)
        children.append(child)
    os.close(writable)
    for child in children:
        os.waitpid(child, 0)
    with os.fdopen(readable) as answer:
        text = answer.read()
    result: dict[str, Any] = json.loads(text) if text else {"error": "rank 0 died"}
    return result


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed's own messages
    os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    cases = json.load(sys.stdin)
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.proofs.zygote import load_operators, operators

    os.environ["TORCH_EXTENSIONS_DIR"] = operators()
    import torch

    load_operators()  # once, before the forks
    torch.set_num_threads(1)
    for case in cases:
        output.write(json.dumps(run_case(case)) + "\n")
        output.flush()
