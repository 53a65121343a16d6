"""Play launches on the real libraries up to the parsed DeepSpeed config and tell what was seen.

Run as a script: ``worker.py CASES RESULTS``. CASES is a JSON list of {"yaml", "json", "flags", "arguments", "consumer",
"route"}. Each case is played in a forked process: accelerate's own `launch_command` with its launchers replaced by
recorders, then, with exactly the exported variables, TrainingArguments, Trainer and train() (or Accelerator and
prepare()) until `deepspeed.initialize`, where the config is recorded and handed to the real DeepSpeedConfig. A world
of more than one rank is torch's fake process group: nothing is sent, but every library sees the world size.
"""

from __future__ import annotations

import copy
import gc
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

EXPORTED = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "CUDA_VISIBLE_DEVICES", "MASTER_")
PARSED = (
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping steps_per_print "
    "prescale_gradients gradient_predivide_factor gradient_allreduce_op zero_allow_untested_optimizer "
    "zero_force_ds_cpu_optimizer"
)


class CapturedError(Exception):
    """Raised in place of building the engine."""


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text())
    for name in list(os.environ):
        if name.startswith(EXPORTED):
            del os.environ[name]
    libraries = prepare()
    gc.freeze()  # the libraries collect garbage in every fork, and would look at, and copy, all that was imported
    results: list[Any] = [None] * len(cases)
    running: dict[int, tuple[int, Path]] = {}
    folder = Path(tempfile.mkdtemp())
    waiting = list(enumerate(cases))
    while waiting or running:
        while waiting and len(running) < 2:
            index, case = waiting.pop(0)
            answer = folder / f"{index}.json"
            process = os.fork()
            if process == 0:
                play_and_exit(case, answer, folder, libraries)
            running[process] = (index, answer)
        process, _ = os.wait()
        index, answer = running.pop(process)
        results[index] = json.loads(answer.read_text()) if answer.exists() else {"phase": "died"}
    Path(sys.argv[2]).write_text(json.dumps(results))


def prepare() -> dict[str, Any]:
    import accelerate.accelerator
    import accelerate.commands.launch as launch
    import deepspeed
    import torch
    import transformers
    from deepspeed.runtime.config import DeepSpeedConfig
    from torch.distributed.run import determine_local_world_size
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
        )
    )
    # The replacement for the optimizer with CPU offload is compiled code; which one it is does not matter here.
    accelerate.accelerator.map_pytorch_optim_to_deepspeed = lambda optimizer: optimizer
    # Nor are the shared-memory collectives compiled, for which a fake process group has no use: a compilation that is
    # killed leaves a lock behind for which everybody waits.
    # (Not by attribute: the package deepspeed.comm has the name torch for torch itself.)
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]
    _ = (transformers.Trainer, transformers.TrainingArguments)
    import transformers.integrations.deepspeed

    return {
        "accelerate": accelerate,
        "launch": launch,
        "deepspeed": deepspeed,
        "torch": torch,
        "transformers": transformers,
        "DeepSpeedConfig": DeepSpeedConfig,
        "local_size": determine_local_world_size,
        "FakeStore": FakeStore,
        "model": model,
    }


def play_and_exit(case: dict[str, Any], answer: Path, folder: Path, libraries: dict[str, Any]) -> None:
    seen: dict[str, Any] = {"phase": "launch", "error": None}
    try:
        here = folder / answer.stem
        here.mkdir()
        os.chdir(here)
        silence(here)
        play(case, seen, libraries)
    except CapturedError:
        pass
    except BaseException as error:
        seen["error"] = f"{type(error).__name__}: {error}"
        seen["trace"] = traceback.format_exc()[-3000:]
    finally:
        answer.write_text(json.dumps(seen, default=repr))
        os._exit(0)


def silence(here: Path) -> None:
    log = os.open(here / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)


def play(case: dict[str, Any], seen: dict[str, Any], libraries: dict[str, Any]) -> None:
    Path("acc.yaml").write_text(case["yaml"] or "")
    if case["json"] is not None:
        Path("ds.json").write_text(case["json"])
    world = 1
    if case["yaml"] is not None:
        environment, world = launched(case["flags"], libraries)
        seen["environment"] = {name: value for name, value in environment.items() if name.startswith(EXPORTED)}
        os.environ.update(environment)
    seen["world"] = world
    if case["consumer"] is None:
        return
    seen["phase"] = "arguments"
    join_world(world, libraries)
    record_engine(seen, libraries)
    if case["consumer"] == "transformers":
        train(case, seen, libraries)
    else:
        raw(case, seen, libraries)


def launched(flags: list[str], libraries: dict[str, Any]) -> tuple[dict[str, str], int]:
    """What `accelerate launch` exports, and the number of processes of the whole job."""
    launch = libraries["launch"]
    result: dict[str, Any] = {}

    def torchrun(environment: dict[str, str], args: Any) -> None:
        result["environment"] = environment
        result["world"] = libraries["local_size"](args.nproc_per_node) * int(getattr(args, "nnodes", None) or 1)

    def deepspeed(args: Any) -> None:
        command, environment = launch.prepare_deepspeed_cmd_env(args)
        if command is not None:
            args.nproc_per_node = str(args.num_processes // args.num_machines)
            args.nnodes = args.num_machines
        torchrun(environment, args)

    def simple(args: Any) -> None:
        _, result["environment"] = launch.prepare_simple_launcher_cmd_env(args)
        result["world"] = 1

    launch.deepspeed_launcher = deepspeed
    launch.multi_gpu_launcher = lambda args: torchrun(launch.prepare_multi_gpu_env(args), args)
    launch.simple_launcher = simple
    sys.argv = ["accelerate-launch", *flags, "train.py"]
    launch.launch_command(launch.launch_command_parser().parse_args([*flags, "train.py"]))
    return result["environment"], result["world"]


def join_world(world: int, libraries: dict[str, Any]) -> None:
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    store = libraries["FakeStore"]()
    libraries["torch"].distributed.init_process_group("fake", rank=0, world_size=world, store=store)


def record_engine(seen: dict[str, Any], libraries: dict[str, Any]) -> None:
    def initialize(**named: Any) -> None:
        config = named.get("config_params") or named.get("config")
        seen["config"] = copy.deepcopy(config)
        seen["phase"] = "parse"
        libraries["deepspeed"].init_distributed()
        parsed = libraries["DeepSpeedConfig"](config)
        seen["parsed"] = {name: getattr(parsed, name) for name in PARSED.split()}
        zero = parsed.zero_config.model_dump(mode="json", by_alias=False)
        seen["parsed"] |= {f"zero_optimization.{name}": value for name, value in zero.items()}
        seen["parsed"] |= {
            "bf16.enabled": parsed.bfloat16_config.enabled,
            "fp16.enabled": parsed.float16_config.enabled,
        }
        seen["phase"] = "done"
        raise CapturedError

    libraries["deepspeed"].initialize = initialize


def train(case: dict[str, Any], seen: dict[str, Any], libraries: dict[str, Any]) -> None:
    transformers = libraries["transformers"]
    named = dict(case["arguments"])
    if case["route"] == "trainer":
        named["deepspeed"] = "ds.json"
    arguments = transformers.TrainingArguments(
        output_dir="out", use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no", **named
    )
    row = {"input_ids": [1, 2, 3], "labels": [1, 2, 3]}
    trainer = transformers.Trainer(libraries["model"], arguments, train_dataset=[row] * 64)
    seen["phase"] = "init"
    trainer.train()
    seen["phase"] = "no engine"


def raw(case: dict[str, Any], seen: dict[str, Any], libraries: dict[str, Any]) -> None:
    torch, model = libraries["torch"], libraries["model"]
    libraries["accelerate"].PartialState(cpu=True)  # otherwise a machine without a GPU is a world of one
    accelerator = libraries["accelerate"].Accelerator()
    seen["phase"] = "init"
    loader = torch.utils.data.DataLoader(list(range(64)), batch_size=3)
    config = accelerator.state.deepspeed_plugin.deepspeed_config if accelerator.state.deepspeed_plugin else {}
    if "optimizer" in config:
        optimizer = libraries["accelerate"].utils.DummyOptim(model.parameters(), lr=0.25)
    else:
        optimizer = torch.optim.AdamW(model.parameters())
    parts = [model, optimizer, loader]
    if "scheduler" in config:
        parts.append(libraries["accelerate"].utils.DummyScheduler(optimizer, total_num_steps=8))
    accelerator.prepare(*parts)
    seen["phase"] = "no engine"


if __name__ == "__main__":
    main()
