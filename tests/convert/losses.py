"""Train a small model on processors under what accelerate's launcher exports. Usage: losses.py CASES RESULTS

CASES is a JSON list of {"environment", "files", "ranks"}: exported variables, texts by name that lie in the current
folder, the number of ranks. Every case starts from the same weights, which are saved once, with the same samples, in
float32. RESULTS gets a list of {"error", "engine", "copies", "losses"}: the engine that accelerate took, how many
times a mesh holds the model (None without one), and the mean loss of the ranks, one a step.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.resume.trainings import CONFIG, ENVIRONMENT, free_port, imports, wait

STEPS, BATCH, LIMIT = 6, 4, 120
"""Optimizer steps, samples of all ranks in each, seconds."""


def main() -> None:
    os.environ.update(ENVIRONMENT)
    imports()
    import torch
    import transformers

    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(7)
    config = transformers.LlamaConfig(**(CONFIG | {"num_hidden_layers": 2}))
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    gc.collect()
    gc.freeze()
    results = [played(case, folder) for case in json.loads(Path(sys.argv[1]).read_text())]
    Path(sys.argv[2]).write_text(json.dumps(results))


def played(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    here, port, children = Path(tempfile.mkdtemp(dir=folder)), free_port(), []
    for name, text in case["files"].items():
        (here / name).write_text(text)
    for rank in range(case["ranks"]):
        child = os.fork()
        if child == 0:
            os._exit(enter(case, rank, port, here, folder / "model"))
        children.append(child)
    wait(children, time.monotonic() + LIMIT)
    found = [json.loads(path.read_text()) for path in sorted(here.glob("rank*.json"))]
    errors = [one for one in found if one["error"]]
    if errors or len(found) < case["ranks"]:
        return errors[0] if errors else {"error": "a rank ended without a word"}
    return dict(found[0])


def enter(case: dict[str, Any], rank: int, port: int, here: Path, model: Path) -> int:
    ranks = case["ranks"]
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    os.environ.update(case["environment"])
    os.environ.update({name: str(value) for name, value in places.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1")
    os.chdir(here)
    report: dict[str, Any] = {"error": None}
    try:
        report |= train(model, ranks)
    except BaseException as error:
        traceback.print_exc()
        report["error"] = f"{type(error).__name__}: {error}"
    (here / f"rank{rank}.json").write_text(json.dumps(report))
    return 0


def train(folder: Path, ranks: int) -> dict[str, Any]:
    import accelerate
    import torch
    import transformers

    from zerocfg.smoke.worker import fsdp_on_cpu

    fsdp_on_cpu.allow()
    accelerate.PartialState(cpu=True)  # else a machine without a card is a world of one
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    accelerator = accelerate.Accelerator()
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(3)
    rows = torch.randint(CONFIG["vocab_size"], (STEPS * BATCH, 8))
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH // ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for batch in loader:
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    copies = getattr(accelerator.parallelism_config, "dp_replicate_size", None)
    return {"losses": losses, "engine": accelerator.distributed_type.value, "copies": copies}


if __name__ == "__main__":
    main()
