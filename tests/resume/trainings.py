"""Save and resume real checkpoints with the Trainer, on ranks forked from one process that imported the libraries.

Run as a script: one JSON request a line on standard input, one JSON answer a line on the descriptor that standard
output had at the start. A request: {"ranks", "out", "steps", "resume" (a checkpoint or absent), "deepspeed" (a config
or absent), "fsdp" (a dictionary or absent), "bf16", "save_only_model", "limit"}. The answer: {"error": the first
rank's own error or null, "steps": the optimizer steps done before the first new one, "moments": the sum of the
absolute first moments at that time, "losses": by step}.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 32,
    "max_position_embeddings": 16,
    "tie_word_embeddings": False,
}
ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GLOO_SOCKET_IFNAME": "lo",
}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT)
    imports()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def imports() -> None:
    """Once, before the forks. DeepSpeed's operator for shared memory, which would be compiled, is left out."""
    import deepspeed
    import torch
    import transformers

    torch.set_num_threads(1)
    _ = (transformers.Trainer, transformers.TrainingArguments, transformers.LlamaForCausalLM, deepspeed.zero.Init)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    import deepspeed.runtime.zero.muon.muon_optimizer  # seconds in every rank otherwise: it imports the compiler
    import torch.distributed.checkpoint
    import torch.distributed.fsdp


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as reports:
        port = free_port()
        children = []
        for rank in range(request["ranks"]):
            child = os.fork()
            if child == 0:
                os._exit(enter(request, rank, port, Path(reports)))
            children.append(child)
        wait(children, time.monotonic() + request.get("limit", 60))
        found = []
        for rank in range(request["ranks"]):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads((Path(reports) / f"{rank}.json").read_text()))
    errors = [one for one in found if one["error"]]
    errors.sort(key=lambda one: "Connection" in one["error"])  # the last are of those whose partner failed
    if errors:
        return dict(errors[0])
    return dict(found[0]) if len(found) == request["ranks"] else {"error": "a rank ended without a word"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(children: list[int], deadline: float) -> None:
    """Until all ended; those that still run at ``deadline``, or 3 s after another failed, are killed."""
    left = set(children)
    while left:
        for child in list(left):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                left.discard(child)
                if status != 0:
                    deadline = min(deadline, time.monotonic() + 3)
        if time.monotonic() > deadline:
            for child in left:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            return
        time.sleep(0.01)


def enter(request: dict[str, Any], rank: int, port: int, reports: Path) -> int:
    """One rank. Returns the exit code; what it saw is in ``reports``."""
    if request["ranks"] > 1 or "deepspeed" in request or "fsdp" in request:
        places = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": request["ranks"],
            "LOCAL_WORLD_SIZE": request["ranks"],
        }
        places |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in places.items()})
    report: dict[str, Any] = {"error": None}
    try:
        report |= train(request)
    except BaseException as error:
        traceback.print_exc()
        report["error"] = f"{type(error).__name__}: {error}"
    (reports / f"{rank}.json").write_text(json.dumps(report))
    if report["error"]:
        see_the_others_off(reports, request["ranks"])
    return 1 if report["error"] else 0


def see_the_others_off(reports: Path, ranks: int) -> None:
    """Let the others fail by themselves, in the same place, before their partner is gone; those that wait for it
    never do."""
    deadline = time.monotonic() + 1
    while len(list(reports.glob("*.json"))) < ranks and time.monotonic() < deadline:
        time.sleep(0.01)


def train(request: dict[str, Any]) -> dict[str, Any]:
    import torch
    import transformers

    seen: dict[str, Any] = {"losses": {}}

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if "steps" not in seen:
                seen["steps"] = state.global_step
                seen["moments"] = moments(more["optimizer"])
                seen["scheduled"] = scheduled(more["lr_scheduler"])

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if "loss" in (logs or {}):
                seen["losses"][state.global_step] = float(logs["loss"])

    out = Path(request["out"])
    arguments: dict[str, Any] = {
        "output_dir": str(out),
        "max_steps": request["steps"],
        "save_steps": request.get("save_steps", 2),
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 4 // request["ranks"],
        "report_to": "none",
        "use_cpu": True,
        "bf16": request.get("bf16", False),
        "save_only_model": request.get("save_only_model", False),
        "disable_tqdm": True,
        "seed": 1,
        "dataloader_num_workers": 0,
        "optim": "adamw_torch",
        **request.get("arguments", {}),
    }
    if "deepspeed" in request:
        arguments["deepspeed"] = request["deepspeed"]
    if "fsdp" in request:
        arguments |= {"fsdp": True, "fsdp_config": request["fsdp"]}
    args = transformers.TrainingArguments(**arguments)
    if "fsdp" in request:
        from accelerate import PartialState
        from accelerate.utils import DistributedType

        # accelerate makes plain DDP of FSDP on processors unless it is told of a card
        _ = args.device  # the arguments set the state up anew
        PartialState._shared_state.update(
            distributed_type=DistributedType.MULTI_GPU, backend="gloo", device=torch.device("cpu")
        )
        torch.cuda.current_device = lambda: torch.device("cpu")
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**CONFIG, **request.get("model", {})}))
    rows = [
        {"input_ids": [(i * 7 + j) % 32 for j in range(8)], "labels": [(i * 7 + j) % 32 for j in range(8)]}
        for i in range(32)
    ]
    trainer = transformers.Trainer(
        model=model,
        args=args,
        train_dataset=rows,
        data_collator=transformers.default_data_collator,
        callbacks=[Watch()],
    )
    trainer.train(resume_from_checkpoint=request.get("resume"))
    return seen


def scheduled(scheduler: Any) -> int:
    """How many steps the learning rate has taken; a scheduler of DeepSpeed counts under another name."""
    scheduler = getattr(scheduler, "scheduler", scheduler)
    return int(getattr(scheduler, "last_epoch", getattr(scheduler, "last_batch_iteration", 0)))


def moments(optimizer: Any) -> float:
    """The sum of the absolute first moments of Adam, whatever wraps it; 0 where it starts anew."""
    import torch

    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    total = 0.0
    for state in optimizer.state.values():
        moment = state.get("exp_avg")
        if isinstance(moment, torch.Tensor):
            local = moment.to_local() if hasattr(moment, "to_local") else moment
            total += float(local.abs().sum())
    return total


if __name__ == "__main__":
    main()
