"""Measures the cases of ``cases.py`` on one card and appends a JSON line for each.

    python benchmarks/memory/gpu.py --out FILE.jsonl [--budget-s 540] [--case-s 75] [--only NAME ...]
                                    [--device cpu --tiny] [--processes fork|exec]

Needs torch, transformers, accelerate and deepspeed; no compiler, no network. The libraries are imported once; every
case runs in a process forked from that, so that a broken one harms no other. Where CUDA cannot be used in a forked
process, each case gets a fresh one (slower). The first line describes the machine: versions, context, cuBLAS
workspaces, rates.

Line of a case: ``status`` (ok, oom, failed, timeout, killed, not reached), ``init`` and ``steps`` (a list; for each
step and each phase the allocator's peaks in bytes), ``rest``, ``device_used``, ``seconds``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cases import EVERY, TINY, Case, tiny  # noqa: E402
from zerocfg.memory.activations.tracing import Adapters  # noqa: E402
from zerocfg.memory.options import Options, TorchOptions  # noqa: E402

STEPS = 5
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
stop: list[int] = []
"""Signals that asked this program to end: the case that runs is then ended and written, and no other is started."""


class Meter:
    """What the allocator of the device counts, in bytes."""

    def __init__(self, device: str) -> None:
        self.device = device

    def reset(self) -> None:
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def read(self) -> Report:
        """Peaks since ``reset``, and what is allocated now. On a processor, which counts nothing: tensors alive."""
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()
            return {
                "peak": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
                "now": torch.cuda.memory_allocated(),
            }
        alive = tensors_alive()
        return {"peak": alive, "reserved": alive, "now": alive}


def tensors_alive() -> int:
    """Bytes of every distinct storage that a tensor of this process refers to."""
    import torch

    storages = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.device.type == "cpu":
            with contextlib.suppress(NotImplementedError, RuntimeError):  # tensors without a storage
                storage = thing.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def device_used() -> int:
    """Bytes in use on the whole card as the driver counts them (the machine is ours alone)."""
    import torch

    free, total = torch.cuda.mem_get_info()
    used: int = total - free
    return used


def nvml_used() -> int | None:
    """The same by NVML, which is what nvidia-smi shows; None without its Python binding."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    except Exception:  # no binding, no driver: the figure is simply missing
        return None


KEYS = {
    "overlap_comm": "overlap_comm",
    "contiguous_gradients": "contiguous_gradients",
    "sub_group_size": "sub_group_size",
    "reduce_bucket_size": "reduce_bucket_size",
    "max_live_parameters": "stage3_max_live_parameters",
    "max_reuse_distance": "stage3_max_reuse_distance",
    "prefetch_bucket_size": "stage3_prefetch_bucket_size",
}
"""Fields of ``Options`` and their keys in DeepSpeed's section zero_optimization."""


def ds_config(case: Case) -> dict[str, Any]:
    """The DeepSpeed config of a case: what differs from DeepSpeed's defaults."""
    options = case.options
    assert isinstance(options, Options)
    default = Options(options.stage, 1)
    zero: dict[str, Any] = {"stage": options.stage}
    for field, key in KEYS.items():
        if getattr(options, field) != getattr(default, field):
            zero[key] = getattr(options, field)
    for section, pinned in (("offload_optimizer", options.pin_optimizer), ("offload_param", options.pin_param)):
        if getattr(options, section) != "none":
            zero[section] = {"device": getattr(options, section), "pin_memory": pinned}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": case.workload.micro_batch,
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if options.precision != "fp32":
        config[options.precision] = {"enabled": True}
    if options.accumulation:
        config["data_types"] = {"grad_accum_dtype": options.accumulation}
    return config


def adamw(parameters: Any, name: str) -> Any:
    """torch's AdamW in the named implementation."""
    import torch

    kinds: dict[str, dict[str, bool]] = {
        "adamw_fused": {"fused": True},
        "adamw_foreach": {"foreach": True},
        "adamw_for_loop": {"foreach": False},
    }
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    return torch.optim.AdamW(parameters, lr=1e-5, **kinds[name])


def build_model(case: Case, device: str, dtype: Any, shape: dict[str, Any]) -> Any:
    """The Hugging Face class of the case with random weights, made on the device."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**shape)
    config.use_cache = False
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=case.workload.attention
        )
    if case.workload.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    return adapt(model, case.adapters) if case.adapters else model


def adapt(model: Any, adapters: Adapters) -> Any:
    """The model frozen, with PEFT's adapters on its linear layers."""
    import peft

    (targets,) = adapters.targets
    settings = peft.LoraConfig(r=adapters.rank, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM")
    cast = adapters.precision == "fp32"
    return peft.get_peft_model(model, settings, autocast_adapter_dtype=cast)


Step = tuple[Callable[[Any], Any], Callable[[Any], None], Callable[[], None]]


def with_deepspeed(case: Case, device: str, shape: dict[str, Any]) -> tuple[Any, Step]:
    """Model and (forward, backward, step) of a DeepSpeed engine, made as the Trainer makes them."""
    import deepspeed
    import torch
    from transformers.integrations import HfDeepSpeedConfig

    options = case.options
    assert isinstance(options, Options)
    config = ds_config(case)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[options.precision]
    # Alive while the model is made, it has transformers build the model under deepspeed.zero.Init.
    announced = HfDeepSpeedConfig(config) if options.stage == 3 and options.zero_init else None
    model = build_model(case, device, dtype, shape)
    optimizer = adamw(model.parameters(), options.optimizer)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    del announced

    def forward(ids: Any) -> Any:
        return engine(input_ids=ids, labels=ids).loss

    return engine, (forward, engine.backward, engine.step)


def with_torch(case: Case, device: str, shape: dict[str, Any]) -> tuple[Any, Step]:
    """The same without DeepSpeed, in one process, DDP or FSDP 2: parameters are fp32 where a master copy is kept."""
    import torch

    options = case.options
    assert isinstance(options, TorchOptions)
    model = build_model(case, device, torch.float32 if options.master else torch.bfloat16, shape)
    if options.kind != "single":
        torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        model = (ddp if options.kind == "ddp" else fsdp2)(model, options, device)
    optimizer = adamw(model.parameters(), options.optimizer)
    micro_batches = [0]

    def forward(ids: Any) -> Any:
        micro_batches[0] += 1
        if options.kind == "fsdp2":
            model.set_requires_gradient_sync(ends_step())
        elif options.kind == "ddp":
            model.require_backward_grad_sync = ends_step()
        with torch.autocast(device, torch.bfloat16, enabled=case.workload.autocast):
            return model(input_ids=ids, labels=ids).loss

    def ends_step() -> bool:
        return micro_batches[0] % options.gradient_accumulation_steps == 0

    def backward(loss: Any) -> None:
        loss.backward()

    def step() -> None:
        if ends_step():
            optimizer.step()
            optimizer.zero_grad()

    return model, (forward, backward, step)


def ddp(model: Any, options: TorchOptions, device: str) -> Any:
    """The model in torch's DDP, as accelerate makes it."""
    import torch

    return torch.nn.parallel.DistributedDataParallel(
        model,
        device_ids=[0] if device == "cuda" else None,
        bucket_cap_mb=options.ddp_bucket_mib,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
    )


def fsdp2(model: Any, options: TorchOptions, device: str) -> Any:
    """The model sharded by torch's FSDP 2, in the units that accelerate makes: layers, embedding, and what follows."""
    import torch
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    low = torch.bfloat16 if options.master else None
    policy = fsdp.MixedPrecisionPolicy(low, low, low)
    settings: dict[str, Any] = {"mesh": init_device_mesh(device, (1,)), "mp_policy": policy}
    reshard = options.reshard_after_forward
    for layer in model.model.layers:
        fsdp.fully_shard(layer, reshard_after_forward=reshard, **settings)
    tail = [model.model.norm, model.lm_head]
    if model.config.tie_word_embeddings:
        tail.insert(1, model.model.embed_tokens)
    else:
        fsdp.fully_shard(model.model.embed_tokens, reshard_after_forward=reshard, **settings)
    fsdp.fully_shard(tail, reshard_after_forward=False, **settings)
    return fsdp.fully_shard(model, **settings)


def measure(case: Case, device: str, shape: dict[str, Any], write: Callable[[Report], None]) -> None:
    """Train ``STEPS`` steps and hand over the report as it grows."""
    import torch

    meter = Meter(device)
    report: Report = {"status": "failed", "steps": []}
    try:
        start = time.monotonic()
        if device == "cuda":
            if case.allocator:
                torch.cuda.memory._set_allocator_settings(case.allocator)
            torch.cuda.init()
            torch.cuda.set_device(0)
            report["context"] = device_used()
        meter.reset()
        made = with_deepspeed if isinstance(case.options, Options) else with_torch
        engine, step = made(case, device, shape)
        report["init"] = meter.read() | {"seconds": time.monotonic() - start}
        report["parameters"] = sum(getattr(p, "ds_numel", p.numel()) for p in engine.parameters())
        ids = torch.randint(0, shape["vocab_size"], (case.workload.micro_batch, case.workload.sequence_length))
        ids = ids.to(device)
        write(report)
        for _ in range(STEPS):
            report["steps"].append(one_step(step, ids, case.options.gradient_accumulation_steps, meter))
            write(report)
        gc.collect()
        report["rest"] = meter.read()["now"]
        report["loss"] = report["steps"][-1].pop("loss")
        report["status"] = "ok"
    except Exception as error:
        report["status"] = "oom" if "out of memory" in str(error).lower() else "failed"
        report["error"] = describe_error()
        report["at"] = meter.read()
    if device == "cuda":
        report["device_used"], report["nvml_used"] = device_used(), nvml_used()
        report["fork_refused"] = bool(torch.cuda._is_in_bad_fork())
    report["host_peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    write(report)


def describe_error() -> str:
    """The traceback of the exception at hand, with paths relative to this checkout."""
    return traceback.format_exc()[-3000:].replace(f"{ROOT}/", "")


def one_step(step: Step, ids: Any, micro_batches: int, meter: Meter) -> Report:
    """One optimizer step; for each phase the largest reading of its micro batches."""
    forward, backward, update = step
    phases: dict[str, Report] = {}
    start = time.monotonic()

    def phase(name: str, work: Callable[[], Any]) -> Any:
        begun = time.monotonic()
        meter.reset()
        value = work()
        seen = meter.read() | {"seconds": time.monotonic() - begun}
        before = phases.get(name)
        phases[name] = {key: max(value, before[key]) for key, value in seen.items()} if before else seen
        return value

    for _ in range(micro_batches):
        loss = phase("forward", lambda: forward(ids))
        shown = float(loss.detach())
        phase("backward", partial(backward, loss))
        del loss
        phase("step", update)
    return {**phases, "seconds": time.monotonic() - start, "loss": shown}


def describe(device: str, write: Callable[[Report], None]) -> None:
    """The machine, its libraries, and what CUDA takes before any model: context, workspaces, rates."""
    import accelerate
    import deepspeed
    import torch
    import transformers

    report: Report = {
        "status": "ok",
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": accelerate.__version__,
        "deepspeed": deepspeed.__version__,
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", os.environ.get("PYTORCH_ALLOC_CONF", "")),
    }
    if device == "cuda":
        try:
            report |= describe_card()
        except Exception:
            report |= {"status": "failed", "error": describe_error()}
        report["fork_refused"] = bool(torch.cuda._is_in_bad_fork())
    write(report)


def describe_card() -> Report:
    import torch

    torch.cuda.init()
    properties = torch.cuda.get_device_properties(0)
    found: Report = {
        "card": properties.name,
        "capability": list(torch.cuda.get_device_capability(0)),
        "total": properties.total_memory,
        "context": device_used(),
        "nvml_context": nvml_used(),
    }
    # cuBLAS takes a workspace for each thread that multiplies: this one, and autograd's.
    a = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    before = torch.cuda.memory_allocated()
    product = a @ a
    torch.cuda.synchronize()
    found["workspace_forward"] = torch.cuda.memory_allocated() - before - product.nbytes
    loss, before = product.float().sum(), torch.cuda.memory_allocated()
    loss.backward()
    torch.cuda.synchronize()
    assert a.grad is not None
    found["workspace_backward"] = torch.cuda.memory_allocated() - before - a.grad.nbytes
    found["context_with_cublas"] = device_used() - torch.cuda.memory_reserved()

    def seconds(work: Callable[[], Any], times: int) -> float:
        work()
        torch.cuda.synchronize()
        start = time.monotonic()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        return (time.monotonic() - start) / times

    big = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    found["bf16_tflops"] = 2 * 8192**3 / seconds(lambda: big @ big, 10) / 1e12
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(block)
    found["copy_gb_per_s"] = 2 * block.nbytes / seconds(lambda: other.copy_(block), 10) / 1e9
    host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    part = block[: 1 << 28]
    found["host_to_device_gb_per_s"] = host.nbytes / seconds(lambda: part.copy_(host, non_blocking=True), 5) / 1e9
    found["device_to_host_gb_per_s"] = host.nbytes / seconds(lambda: host.copy_(part, non_blocking=True), 5) / 1e9
    return found


def child(name: str, device: str, small: bool, path: Path) -> None:
    """The work of one process; what it finds goes to ``path``, replaced as a whole each time."""

    def write(report: Report) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(report))
        fresh.replace(path)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
    if name == "machine":
        describe(device, write)
        return
    case = next(case for case in EVERY if case.name == name)
    measure(tiny(case) if small else case, device, TINY if small else case.config, write)


def launch(name: str, arguments: argparse.Namespace, path: Path, log: Path) -> int:
    """Start the process of one case and return its id, which is also that of its process group."""
    if arguments.processes == "exec":
        command = [sys.executable, __file__, "--child", name, "--out", str(path), "--device", arguments.device]
        with log.open("w") as output:
            return subprocess.Popen(
                [*command, *(["--tiny"] if arguments.tiny else [])],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).pid
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
        child(name, arguments.device, arguments.tiny, path)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def supervise(name: str, arguments: argparse.Namespace, scratch: Path, limit: float) -> Report:
    """Run one case for at most ``limit`` seconds; what it reported until then counts."""
    path, log = scratch / f"{name}.json", scratch / f"{name}.log"
    path.unlink(missing_ok=True)
    start = time.monotonic()
    pid = launch(name, arguments, path, log)
    ended = False
    while not ended and time.monotonic() - start < limit and not stop:
        ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        time.sleep(0 if ended else 0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        os.waitpid(pid, 0)
    report: Report = json.loads(path.read_text()) if path.is_file() else {"status": "failed", "error": ""}
    if not ended:
        report["status"] = "killed" if stop else "timeout"
    if report["status"] != "ok" and log.is_file():
        report["log"] = log.read_text(errors="replace")[-2000:]
    return {"case": name, **report, "wall_s": round(time.monotonic() - start, 2)}


def names_of(arguments: argparse.Namespace) -> Iterator[str]:
    yield from (case.name for case in EVERY if not arguments.only or case.name in arguments.only)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the memory of real training runs on one card.")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines are appended here")
    parser.add_argument("--budget-s", type=float, default=540, help="seconds for everything")
    parser.add_argument("--case-s", type=float, default=75, help="seconds for one case")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the program itself")
    parser.add_argument("--processes", choices=("fork", "exec"), default="fork")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    start = time.monotonic()
    os.environ.update(ENVIRONMENT | {"DS_ACCELERATOR": arguments.device})
    if arguments.child:
        child(arguments.child, arguments.device, arguments.tiny, arguments.out)
        return 0
    unknown = set(arguments.only or ()) - {case.name for case in EVERY}
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}")
    if arguments.processes == "fork":
        import_libraries()

    def left() -> float:
        return float(arguments.budget_s - (time.monotonic() - start))

    def keep(report: Report) -> None:
        with arguments.out.open("a") as lines:
            lines.write(json.dumps(report) + "\n")
        used = max((step[phase]["peak"] for step in report.get("steps", [])[1:] for phase in PHASES), default=0)
        print(
            f"{time.monotonic() - start:6.1f} s  {report['case']:20} {report['status']:12} {used / 2**30:8.2f} GiB",
            flush=True,
        )

    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    with tempfile.TemporaryDirectory(prefix="zerocfg-memory-") as folder:
        scratch = Path(folder)
        machine = supervise("machine", arguments, scratch, min(arguments.case_s, left()))
        if machine["status"] != "ok" and arguments.processes == "fork":  # CUDA was touched before the fork?
            arguments.processes = "exec"
            machine = supervise("machine", arguments, scratch, min(arguments.case_s, left()))
        keep(machine | {"processes": arguments.processes, "tiny": arguments.tiny, "device": arguments.device})
        for name in names_of(arguments):
            if stop:
                return 128 + stop[0]
            if left() < 5:
                keep({"case": name, "status": "not reached"})
                continue
            keep(supervise(name, arguments, scratch, min(arguments.case_s, left())))
    return 0


PHASES = ("forward", "backward", "step")


def import_libraries() -> None:
    """Everything that a case imports, before the first fork; CUDA stays uninitialised."""
    import accelerate  # noqa: F401
    import deepspeed  # noqa: F401
    import torch
    import torch.distributed.fsdp
    import transformers
    import transformers.integrations.deepspeed
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama
    import transformers.models.qwen2.modeling_qwen2
    import transformers.models.qwen3.modeling_qwen3

    _ = (transformers.AutoModelForCausalLM, transformers.AutoConfig)
    assert not torch.cuda.is_initialized()


if __name__ == "__main__":
    sys.exit(main())
