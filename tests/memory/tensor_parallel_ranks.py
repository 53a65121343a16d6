"""Measures what ranks hold of a model whose layers are split, on processors over gloo.

Run as a program: reads requests, one JSON object a line, from standard input: ``by`` ("transformers", prepared by
accelerate with ``tp_size``, or "deepspeed", with ``autotp_size``), ``ranks``, ``split`` (ranks that share each layer),
``config`` (of the model), ``dtype``, ``recomputes``, and for DeepSpeed ``stage``. Prints a JSON list a line, of each
rank: what the live engine says it is, bytes of parameters, gradients and states, of what autograd saved in a second
step, and what its layers ``sent`` then: [collective, phase, elements, bytes of one]; or ``{"error": ...}``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

MICRO, LENGTH = 2, 16


def local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Sent(TorchDispatchMode):
    """What DTensor and DeepSpeed send: [collective, phase, elements, bytes of one]."""

    def __init__(self) -> None:
        super().__init__()
        self.phase, self.found = "", []  # type: ignore[var-annotated]

    def note(self, name: str, tensor: torch.Tensor) -> None:
        if self.phase:
            self.found.append([name, self.phase, tensor.numel(), tensor.element_size()])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        space, _, name = func.name().partition("::")
        if space == "_c10d_functional" and name in ("all_reduce", "all_gather_into_tensor"):
            self.note(name, args[0])
        return func(*args, **(kwargs or {}))

    def watch_deepspeed(self) -> None:
        from deepspeed import comm

        def watched(name: str, place: int) -> None:
            before = getattr(comm, name)

            def call(*args: Any, **kwargs: Any) -> Any:
                self.note(name, args[place] if len(args) > place else kwargs["tensor"])
                return before(*args, **kwargs)

            setattr(comm, name, call)

        watched("all_reduce", 0)
        watched("inference_all_reduce", 0)
        watched("all_gather_into_tensor", 1)


class Saved:
    """Bytes of the storages that autograd saves; parameters and what is read are not among them."""

    def __init__(self, beside: set[int]) -> None:
        self.beside, self.sizes = beside, {}  # type: ignore[var-annotated]

    def keep(self, tensor: Any) -> Any:
        storage = local(tensor).untyped_storage()
        if storage.data_ptr() not in self.beside:
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return tensor


def step(call: Any, backward: Any, sent: Sent, parameters: Any) -> tuple[int, float]:
    """Forward and backward: bytes saved, and the loss."""
    saved = Saved({local(one).untyped_storage().data_ptr() for one in parameters})
    with sent:
        sent.phase = "forward"
        with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda one: one):
            loss = call()
        sent.phase = "backward"
        backward(loss)
        sent.phase = ""
    return sum(saved.sizes.values()), float(loss.detach())


def by_transformers(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    from accelerate import Accelerator, ParallelismConfig

    # accelerate wants cards for this; nothing that it does depends on them.
    Accelerator.multi_device = property(lambda self: True)  # type: ignore[method-assign, assignment]
    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=request["split"]))
    dtype = getattr(torch, request["dtype"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, tp_plan="auto", tp_size=request["split"])
    model.train()
    if request.get("recomputes"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = [{"input_ids": torch.full((LENGTH,), one), "labels": torch.full((LENGTH,), one)} for one in range(64)]
    loader = torch.utils.data.DataLoader(rows, batch_size=MICRO)  # type: ignore[arg-type, var-annotated]
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    sent, batch = Sent(), next(iter(loader))
    for _ in range(2):
        sent.found.clear()
        optimizer.zero_grad()
        saved, loss = step(lambda: model(**batch).loss, accelerator.backward, sent, model.parameters())
        optimizer.step()
    states = (value for state in optimizer.state.values() for name, value in state.items() if name != "step")
    return {
        "split": model.config.distributed_config.tp_size,
        "data_parallel": accelerator.num_processes // accelerator.torch_device_mesh["tp"].size(),
        "samples": batch["input_ids"][:, 0].tolist(),
        "steps": len(loader),
        "parameters": sum(local(one).nbytes for one in model.parameters()),
        "gradients": sum(local(one.grad).nbytes for one in model.parameters()),
        "states": sum(local(one).nbytes for one in states),
        "saved": saved,
        "loss": loss,
        "sent": sent.found,
    }


def by_deepspeed(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    import deepspeed

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, request["dtype"]))
    model.train()
    if request.get("recomputes"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    config = {
        "train_micro_batch_size_per_gpu": MICRO,
        "zero_optimization": {"stage": request["stage"], "reduce_bucket_size": 20_000},
        "zero_allow_untested_optimizer": True,
        "tensor_parallel": {"autotp_size": request["split"]},
        "bf16": {"enabled": request["dtype"] == "bfloat16"},
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=optimizer)
    tokens = torch.full((MICRO, LENGTH), 3 + torch.distributed.get_rank() // request["split"])
    sent = Sent()
    sent.watch_deepspeed()
    for _ in range(2):
        sent.found.clear()
        parameters = list(engine.module.parameters())
        saved, loss = step(lambda: engine(input_ids=tokens, labels=tokens).loss, engine.backward, sent, parameters)
        gradients = sum(one.grad.nbytes for one in parameters if one.grad is not None)
        engine.step()
    inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
    states = (value for state in inner.state.values() for value in state.values())
    masters = [one for group in inner.param_groups for one in group["params"]]
    return {
        "split": engine.autotp_size(),
        "stage": engine.zero_optimization_stage(),
        "data_parallel": engine.dp_world_size,
        "parameters": sum(one.nbytes for one in engine.module.parameters()),
        "gradients": gradients,
        "states": sum(one.nbytes for one in states if torch.is_tensor(one) and one.dim()),
        "master": sum(one.nbytes for one in masters if one.dtype == torch.float32),
        "saved": saved,
        "loss": loss,
        "sent": sent.found,
    }


def play(request: dict[str, Any], rank: int, port: int, folder: Path) -> None:
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": request["ranks"], "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in own.items()}, MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    try:
        found = (by_deepspeed if request["by"] == "deepspeed" else by_transformers)(request, folder)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    (folder / f"rank{rank}.json").write_text(json.dumps(found))


def measure(request: dict[str, Any]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        folder = Path(name)
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(AutoConfig.for_model(**request["config"])).save_pretrained(folder)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        children = []
        for rank in range(request["ranks"]):
            child = os.fork()
            if not child:
                os.dup2(2, 1)  # what the libraries print is no answer
                play(request, rank, port, folder)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        files = [folder / f"rank{rank}.json" for rank in range(request["ranks"])]
        return [json.loads(one.read_text()) if one.exists() else {"error": "the rank ended"} for one in files]


if __name__ == "__main__":
    lines = sys.stdin.read().splitlines()
    if any('"deepspeed"' in line for line in lines):
        import deepspeed  # noqa: F401
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in lines:
        print(json.dumps(measure(json.loads(line))), file=out, flush=True)
