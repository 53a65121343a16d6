"""One rank of a smoke-run: a script, started by the real launcher with a job file; imports nothing of zerocfg.

The job: {"reports": folder, "saved": folder, "consumer", "device", "steps", "model": config.json content,
"arguments": TrainingArguments, "sequence": tokens, "deepspeed_config": path or null}. Each rank keeps
``reports/rank<N>.json`` up to date: phase, what it saw, losses, error.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

# The folder of this script holds modules of zerocfg, none of which a training process should find by their names.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]


class Report:
    """What this rank has seen so far, on disk after every change."""

    def __init__(self, folder: Path) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.path = folder / f"rank{self.rank}.json"
        self.content: dict[str, Any] = {"rank": self.rank, "pid": os.getpid(), "phase": "start", "done": False}
        self.content.update(seen={}, losses=[])
        self.write()

    def write(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.content))
        temporary.replace(self.path)

    def phase(self, name: str) -> None:
        self.content["phase"] = name
        self.write()

    def see(self, **values: Any) -> None:
        self.content["seen"].update(values)


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    report = Report(Path(job["reports"]))
    try:
        report.phase("import")
        LOOPS[job["consumer"]](job, report)
        report.content["done"] = True
        report.phase("done")
    except BaseException as error:
        report.content["error"] = {
            "type": type(error).__name__,
            "text": str(error),
            "time": time.time(),
            "traceback": traceback.format_exc().splitlines()[-12:],
        }
        report.write()
        raise


def trainer_loop(job: dict[str, Any], report: Report) -> None:
    """A Trainer run. It stops by a callback, so that ``max_steps`` and the schedule stay as planned."""
    import torch
    import transformers

    report.phase("arguments")
    folder = Path(job["saved"])
    arguments = {"max_steps": 1_000_000, **job["arguments"]}
    arguments.update(output_dir=str(folder / "trainer"), report_to=[], save_strategy="no", logging_strategy="no")
    if job["device"] == "cpu":
        arguments["use_cpu"] = True  # else accelerate starts no process group and each rank trains alone
    if job["deepspeed_config"] and not job["by_accelerate"]:
        arguments["deepspeed"] = job["deepspeed_config"]
    args = transformers.TrainingArguments(disable_tqdm=True, **arguments)
    join_deepspeed()
    report.phase("model")
    model = make_model(job)
    batch = args.per_device_train_batch_size
    row = tokens(job, report.rank)
    data: Any = [row] * (batch * args.gradient_accumulation_steps * max(1, args.world_size) * job["steps"])

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            see_engine(report, run.model_wrapped, run.optimizer)
            if report.content["seen"]["engine"] != "deepspeed":
                report.see(
                    micro_batch=run._train_batch_size,
                    gradient_accumulation_steps=args.gradient_accumulation_steps,
                    gradient_clipping=args.max_grad_norm,
                    dtype=DTYPES[run.accelerator.mixed_precision],
                )
            report.phase("step 1")
            self.start = time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            step_done(report, state.global_step, time.monotonic() - self.start)
            self.start = time.monotonic()
            control.should_training_stop = state.global_step >= job["steps"]

    class Run(transformers.Trainer):  # type: ignore[misc]
        def training_step(self, *args: Any, **named: Any) -> Any:
            loss = super().training_step(*args, **named)
            report.content["losses"].append(float(loss) * self.args.gradient_accumulation_steps)
            return loss

    run = Run(model=model, args=args, train_dataset=data, callbacks=[Watch()])
    report.phase("init")
    run.train()
    report.phase("save")
    run.save_model(str(folder))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    finish(job, report, run.accelerator.unwrap_model(run.model))


def accelerate_loop(job: dict[str, Any], report: Report) -> None:
    """The loop of a script that calls accelerate itself."""
    import torch
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DummyOptim, DummyScheduler

    report.phase("arguments")
    if job["device"] == "cpu":
        PartialState(cpu=True)
    arguments = job["arguments"]
    accumulation = int(arguments.get("gradient_accumulation_steps") or 1)
    join_deepspeed()
    accelerator = Accelerator(gradient_accumulation_steps=accumulation)
    plugin = accelerator.state.deepspeed_plugin
    config = plugin.deepspeed_config if plugin else {}
    report.phase("model")
    model = make_model(job)
    rate = float(arguments.get("learning_rate") or 1e-4)
    optimizer = (DummyOptim if "optimizer" in config else torch.optim.AdamW)(model.parameters(), lr=rate)
    batch = int(arguments.get("per_device_train_batch_size") or 1)
    micro_steps = job["steps"] * accumulation
    data: Any = [tokens(job, 0)] * (batch * micro_steps * accelerator.num_processes)
    loader = torch.utils.data.DataLoader(data, batch_size=batch)
    parts = [model, optimizer, loader]
    if "scheduler" in config:
        parts.append(DummyScheduler(optimizer, total_num_steps=1000, warmup_num_steps=10))
    report.phase("init")
    engine, optimizer, loader, *rest = accelerator.prepare(*parts)
    see_engine(report, engine, optimizer)
    if report.content["seen"]["engine"] != "deepspeed":
        report.see(
            micro_batch=batch,
            gradient_accumulation_steps=accelerator.gradient_accumulation_steps,
            gradient_clipping=arguments.get("max_grad_norm"),
            dtype=DTYPES[accelerator.mixed_precision],
        )
    report.phase("step 1")
    start, steps = time.monotonic(), 0
    for content in loader:
        with accelerator.accumulate(engine):
            loss = engine(**content).loss
            report.content["losses"].append(float(loss))
            accelerator.backward(loss)
            if accelerator.sync_gradients and arguments.get("max_grad_norm"):
                accelerator.clip_grad_norm_(engine.parameters(), arguments["max_grad_norm"])
            optimizer.step()
            for scheduler in rest:
                scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            steps += 1
            step_done(report, steps, time.monotonic() - start)
            start = time.monotonic()
    report.phase("save")
    bare = accelerator.unwrap_model(engine)
    state = accelerator.get_state_dict(engine)
    bare.save_pretrained(job["saved"], is_main_process=accelerator.is_main_process, state_dict=state)
    accelerator.wait_for_everyone()
    finish(job, report, bare)


def deepspeed_loop(job: dict[str, Any], report: Report) -> None:
    """The loop of a script that calls ``deepspeed.initialize`` itself."""
    import deepspeed
    import torch

    report.phase("model")
    model = make_model(job)
    config = json.loads(Path(job["deepspeed_config"]).read_text())
    offload = (config.get("zero_optimization") or {}).get("offload_optimizer") or {}
    optimizer = None
    if not config.get("optimizer"):
        on_host = offload.get("device") in ("cpu", "nvme")
        kind = deepspeed.ops.adam.DeepSpeedCPUAdam if on_host else torch.optim.AdamW
        optimizer = kind(model.parameters(), lr=float(job["arguments"].get("learning_rate") or 1e-4))
    report.phase("init")
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), optimizer=optimizer, config=job["deepspeed_config"]
    )
    see_engine(report, engine, engine.optimizer)
    report.phase("step 1")
    row = tokens(job, 0)
    content = {name: value.repeat(engine.train_micro_batch_size_per_gpu(), 1) for name, value in row.items()}
    content = {name: value.to(engine.device) for name, value in content.items()}
    for step in range(1, job["steps"] + 1):
        start = time.monotonic()
        for _ in range(engine.gradient_accumulation_steps()):
            loss = engine(**content).loss
            report.content["losses"].append(float(loss))
            engine.backward(loss)
            engine.step()
        step_done(report, step, time.monotonic() - start)
    report.phase("save")
    engine.save_16bit_model(job["saved"], "pytorch_model.bin")
    engine.module.config.save_pretrained(job["saved"])
    torch.distributed.barrier()
    finish(job, report, engine.module)


def join_deepspeed() -> None:
    """Tell DeepSpeed of the process group, which accelerate does on a card only.

    Otherwise the model is made (zero.Init) in a world of one, where an explicit train_batch_size does not fit.
    """
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        from deepspeed import comm

        if not comm.is_initialized():
            comm.init_distributed(auto_mpi_discovery=False)


LOOPS = {
    "transformers": trainer_loop,
    "trl": trainer_loop,
    "accelerate": accelerate_loop,
    "deepspeed": deepspeed_loop,
}
DTYPES = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def make_model(job: dict[str, Any]) -> Any:
    """The architecture with random weights; under ZeRO-3 it is made in shards, as `from_pretrained` would."""
    import transformers

    transformers.set_seed(0)
    content = {key: value for key, value in job["model"].items() if key not in ("transformers_version", "auto_map")}
    config = transformers.AutoConfig.for_model(**content)
    config.use_cache = False
    classes = [transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM]
    for kind in classes:
        if type(config) in kind._model_mapping:
            return kind.from_config(config)
    named = (content.get("architectures") or [None])[0]
    if named and hasattr(transformers, named):
        return getattr(transformers, named)._from_config(config)
    raise ValueError(f"transformers has no language model for the type {content.get('model_type')!r}")


def tokens(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """One sample that repeats; labels are the tokens themselves."""
    import torch

    text = job["model"].get("text_config") or job["model"]
    row = (torch.arange(job["sequence"]) * 7 + 3 + rank) % int(text.get("vocab_size") or 64)
    return {"input_ids": row, "labels": row.clone()}


def see_engine(report: Report, model: Any, optimizer: Any) -> None:
    """Read back from the live engine what it runs with."""
    import torch

    group = torch.distributed.is_available() and torch.distributed.is_initialized()
    report.see(world_size=torch.distributed.get_world_size() if group else 1)
    kind = type(model).__name__
    if hasattr(model, "zero_optimization_stage"):
        offload_optimizer, offload_param = model.zero_offload_optimizer(), model.zero_offload_param()
        report.see(
            engine="deepspeed",
            stage=int(model.zero_optimization_stage()),
            micro_batch=model.train_micro_batch_size_per_gpu(),
            gradient_accumulation_steps=model.gradient_accumulation_steps(),
            gradient_clipping=model.gradient_clipping(),
            dtype="bf16" if model.bfloat16_enabled() else "fp16" if model.fp16_enabled() else "fp32",
            offload_optimizer=_device(offload_optimizer),
            offload_param=_device(offload_param),
        )
    else:
        report.see(engine={"DistributedDataParallel": "ddp"}.get(kind, "fsdp" if "FSDP" in kind else "single"))
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    parameters = list(model.parameters())
    report.see(
        optimizer=type(optimizer).__name__,
        partitioned=sum(1 for parameter in parameters if hasattr(parameter, "ds_id") and parameter.numel() == 0),
        device=str(parameters[0].device) if parameters else "",
    )


def _device(section: Any) -> str:
    return str(getattr(section.device, "value", section.device)) if section is not None else "none"


def step_done(report: Report, step: int, seconds: float) -> None:
    report.content.setdefault("step_seconds", []).append(round(seconds, 4))
    report.phase(f"step {step} done")


def finish(job: dict[str, Any], report: Report, model: Any) -> None:
    """Read the saved weights back, on rank 0; note versions and memory on every rank."""
    import platform
    import resource

    import accelerate
    import torch
    import transformers

    report.phase("read back")
    on_card = job["device"] == "cuda"
    peak = torch.cuda.max_memory_allocated() if on_card else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    report.see(peak_memory_bytes=peak, device_name=torch.cuda.get_device_name() if on_card else platform.processor())
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions.update(accelerate=accelerate.__version__, transformers=transformers.__version__)
    if report.content["seen"]["engine"] == "deepspeed":
        import deepspeed

        versions["deepspeed"] = deepspeed.__version__
    report.content["versions"] = versions
    if report.rank == 0:
        report.content["weights"] = read_weights(Path(job["saved"]), model)


def read_weights(folder: Path, model: Any) -> dict[str, Any]:
    """Compare the files of weights with the model's parameters and load them as a user would.

    {"file", "expected", "saved": elements, "missing", "short": names, "loadable": null or the reason why not}
    """
    import transformers
    from safetensors import safe_open

    expected: dict[str, int] = {}
    known: set[int] = set()
    for name, parameter in model.named_parameters():
        if id(parameter) not in known:  # tied parameters are saved once
            known.add(id(parameter))
            expected[name] = math.prod(getattr(parameter, "ds_shape", parameter.shape))
    saved: dict[str, int] = {}
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with safe_open(file, framework="pt") as content:
            names = list(content.keys())
            saved.update((name, math.prod(content.get_slice(name).get_shape())) for name in names)
    if not files:
        import torch

        files = sorted(folder.glob("pytorch_model*.bin"))
        for file in files:
            state = torch.load(file, map_location="cpu", weights_only=True)
            saved.update((name, tensor.numel()) for name, tensor in state.items())
    result: dict[str, Any] = {
        "file": ", ".join(file.name for file in files),
        "expected": sum(expected.values()),
        "saved": sum(saved.get(name, 0) for name in expected),
        "missing": [name for name in expected if name not in saved],
        "short": [name for name, count in expected.items() if name in saved and saved[name] != count],
        "loadable": None,
    }
    if files:
        try:
            transformers.integrations.deepspeed.unset_hf_deepspeed_config()
            _, notes = type(model).from_pretrained(folder, output_loading_info=True)
            wrong = [str(name) for key in ("missing_keys", "mismatched_keys") for name in notes[key]]
            if wrong:
                result["loadable"] = f"from_pretrained finds no fitting weights for {', '.join(wrong[:3])}"
        except Exception as error:
            result["loadable"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return result


if __name__ == "__main__":
    main()
