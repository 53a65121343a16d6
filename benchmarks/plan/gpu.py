"""Measures the plans that ``predictions.json`` names on one card and appends a JSON line for each.

    python benchmarks/plan/gpu.py --out FILE.jsonl [--budget-s 460] [--case-s 60] [--only NAME ...]
                                  [--device cpu --tiny] [--processes fork|fresh] [--predictions FILE]

Needs torch, transformers and deepspeed, nothing of zerocfg; no compiler, no network. The libraries are imported once
and every plan runs in a process forked from that, so that one which breaks or fills the card harms no other. Where
CUDA cannot be used in a forked process, each plan gets a fresh one (slower: fewer plans are reached).

The first line describes the machine. Of each model the chosen plan comes first, then its rivals as zerocfg ranked
them, the models in turn; plans with offload, the slowest, come last.

Line of a plan: ``status`` (ok, oom, failed, timeout, killed, not reached), ``step_seconds`` of the timed steps,
``warm_up``, ``init_seconds``, ``engine`` (what it ran with), ``peak_bytes``, ``losses``, ``wall_s``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PREDICTIONS = Path(__file__).resolve().parent / "predictions.json"
MOST, LEAST, ENOUGH_S = 8, 3, 1.0  # timed steps: at least, at most, and until they have taken that many seconds
WARM_UP = 2
# With offload a step takes seconds, and differs little from the next.
WARM_UP_OFFLOAD, LEAST_OFFLOAD = 1, 2
LAST_S = 4.0  # no plan is started with less than that left
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 64,
}
TINY_SEQUENCE = 16
ENVIRONMENT = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Counting cards through NVML leaves CUDA untouched, so that it can be initialised after a fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
Report = dict[str, Any]
Case = dict[str, Any]
stop: list[int] = []
"""Signals that asked this program to end: the plan that runs is then ended and written, and no other is started."""


def cases_of(predictions: dict[str, Any], *, small: bool) -> list[Case]:
    """The plans to measure, in the order in which they run; ``small``: each with a tiny model."""
    found = []
    for number, (model, one) in enumerate(predictions["models"].items()):
        plans = {plan["name"]: plan for plan in one["plans"]}
        for place, name in enumerate(one["measured"]):
            plan = plans[name]
            zero = plan["deepspeed"]["zero_optimization"]
            offload = "offload_optimizer" in zero or "offload_param" in zero
            found.append(
                {
                    "case": name,
                    "model": model,
                    "order": (offload, place, number),
                    "offload": offload,
                    "checkpointing": plan["settings"]["gradient_checkpointing"],
                    "deepspeed": plan["deepspeed"],
                    "config": TINY if small else one["config"],
                    "sequence": TINY_SEQUENCE if small else predictions["sequence"],
                }
            )
    return sorted(found, key=lambda case: case["order"])


def engine_config(case: Case) -> dict[str, Any]:
    """The DeepSpeed config of the plan as zerocfg emits it, with torch's AdamW allowed for the host.

    Without that DeepSpeed compiles an optimizer of its own there, which needs a compiler.
    """
    return {**case["deepspeed"], "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


def make_engine(case: Case, device: str) -> Any:
    """Model with random weights in bf16 and DeepSpeed's engine around it, made as the Trainer makes them."""
    import deepspeed
    import torch
    import transformers
    from transformers.integrations import HfDeepSpeedConfig

    config = engine_config(case)
    # Alive while the model is made, it has transformers build the model under deepspeed.zero.Init.
    announced = HfDeepSpeedConfig(config) if config["zero_optimization"]["stage"] == 3 else None
    shape = transformers.AutoConfig.for_model(**case["config"])
    shape.use_cache = False
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16, attn_implementation="sdpa")
    if case["checkpointing"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    del announced
    return engine


def measure(case: Case, device: str, write: Callable[[Report], None]) -> None:
    """Run the plan and hand over the report as it grows."""
    import torch

    report: Report = {"status": "failed", "warm_up": [], "step_seconds": [], "losses": []}
    try:
        start = time.monotonic()
        if device == "cuda":
            torch.cuda.set_device(0)
        torch.manual_seed(0)
        engine = make_engine(case, device)
        synchronise(device)
        report["init_seconds"] = time.monotonic() - start
        report["engine"] = {
            "stage": int(engine.zero_optimization_stage()),
            "micro_batch": engine.train_micro_batch_size_per_gpu(),
            "steps": engine.gradient_accumulation_steps(),
            "checkpointing": bool(engine.module.is_gradient_checkpointing),
        }
        report["parameters"] = sum(getattr(one, "ds_numel", one.numel()) for one in engine.parameters())
        micro, steps = report["engine"]["micro_batch"], report["engine"]["steps"]
        report["tokens"] = micro * steps * case["sequence"]
        ids = torch.randint(0, case["config"]["vocab_size"], (micro, case["sequence"])).to(device)
        write(report)
        for _ in range(WARM_UP_OFFLOAD if case["offload"] else WARM_UP):
            report["warm_up"].append(one_step(engine, ids, steps, device, report))
            write(report)
        least, taken = LEAST_OFFLOAD if case["offload"] else LEAST, report["step_seconds"]
        gc.collect()
        while len(taken) < least or (len(taken) < MOST and sum(taken) < ENOUGH_S):
            taken.append(one_step(engine, ids, steps, device, report))
            write(report)
        report["status"] = "ok"
    except Exception as error:
        report["status"] = "oom" if "out of memory" in str(error).lower() else "failed"
        report["error"] = traceback.format_exc()[-3000:].replace(f"{ROOT}/", "")
    if device == "cuda":
        report["peak_bytes"] = torch.cuda.max_memory_allocated()
        report["fork_refused"] = bool(torch.cuda._is_in_bad_fork())
    write(report)


def synchronise(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def one_step(engine: Any, ids: Any, micro_batches: int, device: str, report: Report) -> float:
    """Seconds of one optimizer step with all its micro batches, from idle device to idle device."""
    synchronise(device)
    start = time.perf_counter()
    for _ in range(micro_batches):
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
    synchronise(device)
    seconds = time.perf_counter() - start
    report["losses"].append(float(loss.detach()))
    return seconds


def describe(device: str) -> Report:
    """The machine and its libraries."""
    import deepspeed
    import torch
    import transformers

    report: Report = {
        "status": "ok",
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "deepspeed": deepspeed.__version__,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if device == "cuda":
        report |= {"card": torch.cuda.get_device_name(0), "total": torch.cuda.get_device_properties(0).total_memory}
    return report


def child(case: Case, device: str, path: Path) -> None:
    """The work of one process; what it finds goes to ``path``, replaced as a whole each time."""

    def write(report: Report) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(report))
        fresh.replace(path)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
    if case["case"] == "machine":
        write(describe(device))
    else:
        measure(case, device, write)


def launch(case: Case, device: str, path: Path, log: Path, fresh: bool) -> int:
    """Fork the process of one plan, or start a fresh one; return its id, which is also that of its process group."""
    if fresh:
        asked = path.with_name("case.json")
        asked.write_text(json.dumps(case))
        command = [sys.executable, __file__, "--child", str(asked), "--out", str(path), "--device", device]
        with log.open("w") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True).pid
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        kept = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(kept, 1)
        os.dup2(kept, 2)
        child(case, device, path)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def supervise(case: Case, device: str, scratch: Path, limit: float, *, fresh: bool = False) -> Report:
    """Run one plan for at most ``limit`` seconds; what it reported until then is kept."""
    path, log = scratch / "report.json", scratch / "log"
    path.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    start = time.monotonic()
    pid = launch(case, device, path, log, fresh)
    ended = False
    while not ended and time.monotonic() - start < limit and not stop:
        ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        time.sleep(0 if ended else 0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # what it started itself
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        with contextlib.suppress(ProcessLookupError):  # its group may not be there yet
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    report: Report = json.loads(path.read_text()) if path.is_file() else {"status": "failed", "error": ""}
    if not ended:
        report["status"] = "killed" if stop else "timeout"
    if report["status"] != "ok" and log.is_file():
        report["log"] = log.read_text(errors="replace")[-2000:]
    return {"case": case["case"], **report, "wall_s": round(time.monotonic() - start, 2)}


def import_libraries(device: str) -> None:
    """Everything that a plan imports, before the first fork; CUDA stays uninitialised."""
    import deepspeed
    import torch
    import transformers
    import transformers.integrations.deepspeed
    import transformers.models.llama.modeling_llama
    import transformers.models.qwen2.modeling_qwen2

    _ = (transformers.AutoModelForCausalLM, transformers.AutoConfig)
    if device == "cpu":  # ranks that share memory; it would be compiled, and there is one rank
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    assert not torch.cuda.is_initialized()


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the step time of the plans in predictions.json on one card.")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines are appended here")
    parser.add_argument("--budget-s", type=float, default=460, help="seconds for everything")
    parser.add_argument("--case-s", type=float, default=60, help="seconds for one plan")
    parser.add_argument("--only", nargs="*", help="names of plans")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the program itself")
    parser.add_argument("--predictions", type=Path, default=PREDICTIONS)
    parser.add_argument("--processes", choices=("fork", "fresh"), default="fork")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    start, fresh = time.monotonic(), arguments.processes == "fresh"
    os.environ.update(ENVIRONMENT | {"DS_ACCELERATOR": arguments.device})
    if arguments.child:
        import_libraries(arguments.device)
        child(json.loads(arguments.child.read_text()), arguments.device, arguments.out)
        return 0
    predictions = json.loads(arguments.predictions.read_text())
    cases = cases_of(predictions, small=arguments.tiny)
    unknown = set(arguments.only or ()) - {case["case"] for case in cases}
    if unknown:
        parser.error(f"no plan {', '.join(sorted(unknown))} is to be measured")
    if not fresh:
        import_libraries(arguments.device)

    def elapsed() -> float:
        return time.monotonic() - start

    def keep(report: Report) -> None:
        with arguments.out.open("a") as lines:
            lines.write(json.dumps(report) + "\n")
        steps = ", ".join(f"{seconds:.3f}" for seconds in report.get("step_seconds", ()))
        print(f"{elapsed():6.1f} s  {report['case']:32} {report['status']:12} {steps}", flush=True)

    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    with tempfile.TemporaryDirectory(prefix="zerocfg-plan-") as folder:
        scratch, limit = Path(folder), arguments.case_s
        machine = supervise({"case": "machine"}, arguments.device, scratch, limit, fresh=fresh)
        if machine["status"] != "ok" and not fresh:  # CUDA was touched before the fork?
            fresh = True
            machine = supervise({"case": "machine"}, arguments.device, scratch, limit, fresh=True)
        keep(
            machine
            | {"formulas": predictions["formulas"], "tiny": arguments.tiny, "device": arguments.device, "fresh": fresh}
        )
        if machine["status"] != "ok":
            print(f"{arguments.device} cannot be used here: {machine.get('log', '')}", file=sys.stderr)
            return 1
        for case in cases:
            if stop:
                return 128 + stop[0]
            if arguments.only and case["case"] not in arguments.only:
                continue
            left = arguments.budget_s - elapsed()
            if left < LAST_S:
                keep({"case": case["case"], "status": "not reached"})
            else:
                keep(supervise(case, arguments.device, scratch, min(limit, left), fresh=fresh))
        keep({"case": "end", "status": "ok", "sweep_seconds": round(elapsed(), 1)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
