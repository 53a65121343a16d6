"""The zygote of ``tests/proofs`` inside an older release set: `python -m tools.facts.set_zygote SCRATCH`.

Only what those releases need in order to run beside the newest torch, on processors, is changed, and what the harness
looks for under a name that came later:
* of torch, names that DeepSpeed imports and that are gone;
* DeepSpeed up to 0.14 asks numactl for the processors where LOCAL_SIZE is not set;
* DeepSpeed's operator for shared memory is left out, which does not compile in all: gloo sums in its place;
* DeepSpeed up to 0.18 gathers into parts of a split tensor, which torch no longer lets anybody write to while it
  records: the same memory is handed over detached, and nothing is recorded;
* accelerate before 1.0 is for DeepSpeed only where the process group was DeepSpeed's from the beginning, as it is on a
  card;
* operators are compiled where COMPILE is set, once for all sets whose sources are the same. Without it those of another
  release stand in that offer the same functions, which compute the same steps of Adam; where there are none, an
  example that needs one fails with `NOT_COMPILED`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import sys
import tempfile
import types
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PROOFS = Path(__file__).resolve().parents[2] / "tests" / "proofs"
COMPILE = "ZEROCFG_COMPILE"
OPERATORS = "ZEROCFG_OPERATORS"
"""Variable: the folder in which compiled operators are kept."""
SHARED_MEMORY = "ShareMemCommBuilder"
ABSENT = "<absent>"
"""What an observation says of a value that is not there."""
OFFERING = ("adam/cpu_adam.cpp", "cpu/adam/fused_adam.cpp")
"""Sources that name the functions of an operator."""
FUNCTION = re.compile(r'm\.def\(\s*"(\w+)"')
NOT_COMPILED = "this operator of DeepSpeed is not compiled for this release set"


def main() -> None:
    sys.path.insert(0, str(PROOFS))
    zygote: Any = import_module("zygote")

    base, load = zygote.base_environment, zygote.load_operators

    def environment(scratch: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in (OPERATORS, COMPILE) if name in os.environ}
        return {**base(scratch), **kept, "LOCAL_SIZE": "2"}

    def loaded() -> None:
        older_deepspeed()
        older_accelerate()
        operators(load)

    zygote.base_environment, zygote.load_operators = environment, loaded
    zygote.OPERATORS = tuple(name for name in zygote.OPERATORS if name != SHARED_MEMORY)
    before_imports()
    zygote.main()


def before_imports() -> None:
    from torch.distributed.elastic.agent.server import api as elastic_agent

    for gone, instead in (("log", logging.getLogger(__name__)), ("_get_socket_with_port", None)):
        if not hasattr(elastic_agent, gone):
            setattr(elastic_agent, gone, instead)


def older_deepspeed() -> None:
    import torch
    from deepspeed.launcher import runner

    comm: Any = sys.modules["deepspeed.comm.torch"]
    comm.build_shm_op = lambda: None
    gather = comm.TorchBackend.all_gather_into_tensor

    def gathered(self: Any, output_tensor: Any, *more: Any, **named: Any) -> Any:
        with torch.no_grad():
            return gather(self, output_tensor.detach(), *more, **named)

    comm.TorchBackend.all_gather_into_tensor = gathered
    if not hasattr(runner, "LAUNCHER_CLASSES"):
        kinds = {name: kind for name, kind in vars(runner).items() if name.endswith("Runner")}
        runner.LAUNCHER_CLASSES = kinds
    engines: Any = import_module("engines")
    see = engines.see_config

    def seen(progress: Any, config: Any) -> None:
        """The sections of precision are attributes of their own in older releases."""
        for section, flag in (("bfloat16_config", "bfloat16_enabled"), ("float16_config", "fp16_enabled")):
            if not hasattr(config, section):
                setattr(config, section, types.SimpleNamespace(enabled=getattr(config, flag)))
        see(progress, config)

    engines.see_config = seen


def operators(compiled: Callable[[], None]) -> None:
    """Hand DeepSpeed its compiled operators."""
    from deepspeed.ops.op_builder.builder import OpBuilder
    from torch.utils import cpp_extension

    folder = Path(os.environ[OPERATORS], sources())
    if not folder.exists() and os.environ.get(COMPILE):
        compiled()
        made = Path(os.environ["TORCH_EXTENSIONS_DIR"])
        folder.parent.mkdir(parents=True, exist_ok=True)
        copied = Path(
            tempfile.mkdtemp(dir=folder.parent.parent)
        )  # what is interrupted leaves no folder that looks whole
        for file in made.glob("*/*.so"):
            shutil.copy(file, copied)
        copied.rename(folder)
    held = folder if folder.exists() else standing_in(folder.parent)
    for file in held.glob("*.so"):
        if file.stem not in OpBuilder._loaded_ops:
            OpBuilder._loaded_ops[file.stem] = cpp_extension._import_module_from_library(file.stem, str(held), True)
    load = OpBuilder.load

    def known(self: Any, verbose: bool = True) -> Any:
        if self.name not in OpBuilder._loaded_ops:
            raise RuntimeError(f"{NOT_COMPILED}: {self.name}")
        return load(self, verbose)

    OpBuilder.load = known


def standing_in(compiled: Path) -> Path:
    """The operators of a release that offer every function of this one; a folder that is empty where there are none."""
    offered = {name: FUNCTION.findall((written() / name).read_text()) for name in OFFERING}
    for folder in sorted(compiled.glob("*")):
        held = {name: (folder / f"{Path(name).stem}.so").read_bytes() for name in OFFERING}
        if all(f"\0{function}\0".encode() in held[name] for name in OFFERING for function in offered[name]):
            return folder
    return compiled


def written() -> Path:
    import deepspeed

    return Path(deepspeed.__file__).parent / "ops" / "csrc"


def sources() -> str:
    """A digest of what the operators are compiled from."""
    root = written()
    files = sorted(file for name in ("adam", "cpu/adam", "includes") for file in (root / name).rglob("*.[ch]*"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def older_accelerate() -> None:
    import accelerate
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, launch, other

    for module in (launch, other):
        if not hasattr(module, "get_free_port"):
            module.get_free_port = None  # no release that lacks it picks a port by itself
    for later, instead in (("reshard_after_forward", ABSENT), ("fsdp_version", 1)):
        if not hasattr(FullyShardedDataParallelPlugin, later):
            setattr(FullyShardedDataParallelPlugin, later, instead)
    worker: Any = import_module("worker")
    join = worker.join_deepspeed

    def joined(asked: Any) -> None:
        join(asked)
        chosen = asked or os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true"
        if chosen and "RANK" in os.environ:
            accelerate.PartialState._shared_state["distributed_type"] = DistributedType.DEEPSPEED

    if int(accelerate.__version__.partition(".")[0]) < 1:
        worker.join_deepspeed = joined


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
