"""ZC4xx: DeepCompile and the automatic tensor parallelism of DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import argument, may_be_on
from zerocfg.rules.effects import TRAINERS, deepspeed_data, effective_value, section
from zerocfg.rules.fixes import edited
from zerocfg.run.model import Run
from zerocfg.run.stages.arguments import parsed
from zerocfg.run.stages.engine import number, truth
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path

_DEEPCOMPILE: Path = ("compile", "deepcompile")


def _compiles(run: Run) -> bool | None:
    """Whether the Trainer is told to compile; None where its arguments are not all known."""
    names = ("torch_compile", "torch_compile_backend", "torch_compile_mode")
    if run.recipe is None and not parsed(run):
        return None
    if any(name.startswith("ACCELERATE_DYNAMO") for name in run.effective.environment):
        return None
    return any(may_be_on(run, name) for name in names)


@rule("ZC440", "deepcompile-never-compiled", Severity.ERROR, consumers=TRAINERS)
def deepcompile_never_compiled(run: Run) -> Iterator[Finding]:
    value = section(run, "compile").get("deepcompile")
    if run.deepspeed is not None and truth(value) and _compiles(run) is False:
        yield Finding(
            Location(run.deepspeed, _DEEPCOMPILE),
            "`deepcompile` has no effect: the Trainer compiles only with `torch_compile: true`",
            "write `torch_compile: true` in the training arguments, or remove it",
            fix=edited(delete_entry, run.deepspeed, _DEEPCOMPILE, why="remove the key"),
        )


@rule("ZC441", "deepcompile-backend", Severity.ERROR, consumers=TRAINERS)
def deepcompile_backend(run: Run) -> Iterator[Finding]:
    asked = argument(run, "torch_compile_backend")
    if run.deepspeed is None or asked is None or not truth(section(run, "compile").get("deepcompile")):
        return
    if not isinstance(asked.held, str) or asked.held in ("inductor", "eager"):
        return
    yield Finding(
        asked.at("entry"),
        f"DeepCompile knows the backends inductor and eager only; DeepSpeed stops at `{asked.held}`",
        "write inductor, or remove `deepcompile`",
        [Location(run.deepspeed, _DEEPCOMPILE, label="DeepCompile is switched on")],
        edited(delete_entry, run.deepspeed, _DEEPCOMPILE, why="remove deepcompile", safe=False),
    )


@rule("ZC443", "tensor-parallel-size-does-not-divide", Severity.ERROR, needs={"launch"})
def tensor_parallel_size_does_not_divide(run: Run) -> Iterator[Finding]:
    path = ("tensor_parallel", "autotp_size")
    size, ranks = number(section(run, path[0]).get(path[1])), effective_value(run, "num_processes")
    if run.deepspeed is None or not isinstance(size, int) or size <= 1 or isinstance(ranks, bool):
        return
    if isinstance(ranks, int) and ranks > 0 and ranks % size != 0:
        fitting = max(one for one in range(1, size) if ranks % one == 0)
        yield Finding(
            Location(run.deepspeed, path),
            f"`autotp_size` {size} does not divide the {ranks} rank{'s' if ranks > 1 else ''} of the job; DeepSpeed "
            "stops when the engine is built",
            "use a size that divides the number of ranks",
            fix=edited(replace_value, run.deepspeed, path, str(fitting), why=f"write {fitting}", safe=False),
        )


@rule("ZC444", "tensor-parallel-ranks-counted-in-batch", Severity.ERROR, consumers={"deepspeed"})
def tensor_parallel_ranks_counted_in_batch(run: Run) -> Iterator[Finding]:
    size, batch = (
        number(section(run, "tensor_parallel").get("autotp_size")),
        deepspeed_data(run).get("train_batch_size"),
    )
    if run.deepspeed is None or not isinstance(size, int) or size <= 1:
        return
    if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0:
        divisor = gcd(batch, size)
        left = f"{batch // divisor}" if divisor == size else f"{batch // divisor}/{size // divisor}"
        yield Finding(
            Location(run.deepspeed, ("train_batch_size",)),
            f"`train_batch_size` {batch} counts the ranks of a tensor-parallel group as if each had its own samples: "
            f"the batch is {left} with `autotp_size` {size}",
            "write micro batch and accumulation instead",
            [Location(run.deepspeed, ("tensor_parallel", "autotp_size"), label="tensor parallelism")],
        )
