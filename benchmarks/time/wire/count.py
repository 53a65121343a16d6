"""Counts what real DeepSpeed, DDP and FSDP put on the wire: every collective of one optimizer step, on CPU ranks.

Run as a program: reads a JSON list of cases from standard input, prints one JSON line for each, in order. A case is

    {"kind": "deepspeed" | "ddp" | "fsdp1" | "fsdp2", "world_size": 2, "accumulation": 1, "checkpointing": false,
     "model": {...}, "config": {...}}

and the answer ``{"collectives": [[operator, dtype, elements, group size, times], ...]}`` of rank 0, or ``{"error":
...}``. ``elements`` are those of the whole buffer: what is reduced, the gathered output, the input that is scattered.

The operators are seen where torch dispatches them (``c10d::allreduce_`` and its siblings), below every library, so that
nothing can be missed and nothing of a library has to be replaced. Counted is the fourth optimizer step: ZeRO-3 has
recorded its trace by then, and moments exist.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

STEPS = 4  # the last one is counted
# Widths that no number of ranks divides, so that padding shows. Tied embeddings are a case of their own.
SHAPE = {
    "hidden_size": 57,
    "intermediate_size": 131,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 10,
    "vocab_size": 257,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}


def recorder() -> Any:
    """A mode that counts (operator, dtype, elements, group size) of every c10d operator."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: Counter[tuple[str, str, int, int]] = Counter()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace == "c10d":
                self.note(func.__name__.split(".")[0], args)
            return func(*args, **(kwargs or {}))

        def note(self, name: str, args: Any) -> None:
            # The larger side of a gather or a scatter is the whole; the other is this rank's share.
            sides = [list(tensors(one)) for one in args[:2]]
            sides = [side for side in sides if side]
            if not sides or name == "barrier":
                return
            whole = max(sides, key=lambda side: sum(tensor.numel() for tensor in side))
            elements = sum(tensor.numel() for tensor in whole)
            size = next((group_size(one) for one in args if not isinstance(one, (list, torch.Tensor))), 0)
            self.seen[name, str(whole[0].dtype).removeprefix("torch."), elements, size] += 1

    def tensors(thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, (list, tuple)):
            for one in thing:
                yield from tensors(one)

    def group_size(thing: Any) -> int:
        import torch.distributed as dist

        if isinstance(thing, torch.ScriptObject):
            with contextlib.suppress(Exception):
                return int(dist.ProcessGroup.unbox(thing).size())
        return 0

    return Recorder()


def build(case: dict[str, Any]) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**(SHAPE | case.get("model", {}))))
    if case.get("checkpointing"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if case.get("frozen"):
        # as adapters do: everything is frozen but what the case names
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(case["frozen"] in name)
        model.enable_input_require_grads()
    model.train()
    return model


def run(case: dict[str, Any]) -> Counter[tuple[str, str, int, int]]:
    import torch

    ids = torch.zeros(1, 8, dtype=torch.long)
    accumulation = case.get("accumulation", 1)
    micro_step = {"deepspeed": deepspeed_steps, "ddp": ddp_steps, "fsdp1": fsdp1_steps, "fsdp2": fsdp2_steps}[
        case["kind"]
    ](case)
    counter = recorder()
    for step in range(STEPS):
        with counter if step == STEPS - 1 else contextlib.nullcontext():
            for micro in range(accumulation):
                micro_step(ids, micro == accumulation - 1)
    seen: Counter[tuple[str, str, int, int]] = counter.seen
    return seen


def deepspeed_steps(case: dict[str, Any]) -> Any:
    import deepspeed
    import torch

    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": case.get("accumulation", 1),
        "bf16": {"enabled": True},
    } | case.get("config", {})
    model = build(case)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(trained, lr=1e-5, foreach=False), config=config
    )

    def micro_step(ids: Any, last: bool) -> None:
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()

    return micro_step


def ddp_steps(case: dict[str, Any]) -> Any:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(build(case), **case.get("config", {}))
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], foreach=False)

    def micro_step(ids: Any, last: bool) -> None:
        with contextlib.nullcontext() if last or case.get("sync_always") else model.no_sync():
            model(input_ids=ids, labels=ids).loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()

    return micro_step


def fsdp2_steps(case: dict[str, Any]) -> Any:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("gloo")
    model = build(case)
    world, shard = case["world_size"], case.get("shard_ranks") or case["world_size"]
    shape, names = ((world // shard, shard), ("replicate", "shard")) if shard < world else ((world,), ("shard",))
    policy = {
        "mesh": init_device_mesh("cpu", shape, mesh_dim_names=names),
        "reshard_after_forward": case.get("reshard", True),
        "mp_policy": MixedPrecisionPolicy(
            torch.bfloat16, torch.float32 if case.get("reduce_fp32", False) else torch.bfloat16
        ),
    }
    for layer in model.model.layers:
        fully_shard(layer, **policy)
    fully_shard(model, **policy)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def micro_step(ids: Any, last: bool) -> None:
        if case.get("no_sync"):
            model.set_requires_gradient_sync(last)
        model(input_ids=ids, labels=ids).loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()

    return micro_step


def fsdp1_steps(case: dict[str, Any]) -> Any:
    import functools

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    dist.init_process_group("gloo")
    half = torch.bfloat16
    model = FullyShardedDataParallel(
        build(case),
        sharding_strategy=ShardingStrategy[case.get("strategy", "FULL_SHARD")],
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}),
        mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def micro_step(ids: Any, last: bool) -> None:
        with contextlib.nullcontext() if last or not case.get("no_sync") else model.no_sync():
            model(input_ids=ids, labels=ids).loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()

    return micro_step


def rank_main(rank: int, case: dict[str, Any], port: int, pipe: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case["world_size"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(case["world_size"])}
    try:
        result: dict[str, Any] = {"collectives": [[*what, times] for what, times in sorted(run(case).items())]}
    except Exception:
        result = {"error": traceback.format_exc(limit=-4)}
    if rank == 0:
        os.write(pipe, json.dumps(result).encode())
    sys.stderr.flush()
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
    with os.fdopen(readable) as answer:
        text = answer.read()
    for child in children:
        os.waitpid(child, 0)
    result: dict[str, Any] = json.loads(text) if text else {"error": "rank 0 died"}
    return result


def main() -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the libraries' own messages
    os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo"}
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from tests.proofs.zygote import load_operators, operators

    os.environ["TORCH_EXTENSIONS_DIR"] = operators()
    import torch
    import transformers

    if "deepspeed" in (text := sys.stdin.read()):
        import deepspeed  # noqa: F401

        load_operators()  # once, before the forks
    torch.set_num_threads(1)
    _ = transformers.LlamaForCausalLM
    for case in json.loads(text):
        output.write(json.dumps(run_case(case)) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
