"""ZC4xx: DeepCompile and the automatic tensor parallelism of DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import argument, may_be_on
from zerocfg.rules.effects import TRAINERS, effective_value
from zerocfg.rules.key import Key
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, in_deepspeed
from zerocfg.run.model import Run
from zerocfg.run.stages.arguments import parsed
from zerocfg.run.stages.engine import number


def _compiles(run: Run) -> bool | None:
    """Whether the Trainer is told to compile; None where its arguments are not all known."""
    names = ("torch_compile", "torch_compile_backend", "torch_compile_mode")
    if run.recipe is None and not parsed(run):
        return None
    if any(name.startswith("ACCELERATE_DYNAMO") for name in run.effective.environment):
        return None
    return any(may_be_on(run, name) for name in names)


@rule("ZC440", "deepcompile-never-compiled", Severity.ERROR, in_deepspeed("compile", "deepcompile"), consumers=TRAINERS)
def deepcompile_never_compiled(key: Key) -> Iterator[Finding]:
    if key.on and _compiles(key.run) is False:
        yield key.finding(
            "`deepcompile` has no effect: the Trainer compiles only with `torch_compile: true`",
            "write `torch_compile: true` in the training arguments, or remove it",
            fix=key.delete("remove the key"),
        )


@rule("ZC441", "deepcompile-backend", Severity.ERROR, in_deepspeed("compile", "deepcompile"), consumers=TRAINERS)
def deepcompile_backend(key: Key) -> Iterator[Finding]:
    asked = argument(key.run, "torch_compile_backend")
    if not key.on or asked is None or not isinstance(asked.held, str) or asked.held in ("inductor", "eager"):
        return
    yield Finding(
        asked.at("entry"),
        f"DeepCompile knows the backends inductor and eager only; DeepSpeed stops at `{asked.held}`",
        "write inductor, or remove `deepcompile`",
        [key.at(label="DeepCompile is switched on")],
        key.delete("remove deepcompile", safe=False),
    )


@rule(
    "ZC443",
    "tensor-parallel-size-does-not-divide",
    Severity.ERROR,
    in_deepspeed("tensor_parallel", "autotp_size"),
    needs={"launch"},
)
def tensor_parallel_size_does_not_divide(key: Key) -> Iterator[Finding]:
    size, ranks = number(key.value), effective_value(key.run, "num_processes")
    if not isinstance(size, int) or size <= 1 or isinstance(ranks, bool):
        return
    if isinstance(ranks, int) and ranks > 0 and ranks % size != 0:
        fitting = max(divisor for divisor in range(1, size) if ranks % divisor == 0)
        yield key.finding(
            f"`autotp_size` {size} does not divide the {ranks} rank{'s' if ranks > 1 else ''} of the job; DeepSpeed "
            "stops when the engine is built",
            "use a size that divides the number of ranks",
            fix=key.replace(str(fitting), f"write {fitting}", safe=False),
        )


@rule("ZC444", "tensor-parallel-ranks-counted-in-batch", Severity.ERROR, DEEPSPEED_CONFIG, consumers={"deepspeed"})
def tensor_parallel_ranks_counted_in_batch(config: Key) -> Iterator[Finding]:
    parallel, key = config["tensor_parallel"]["autotp_size"], config["train_batch_size"]
    size, batch = number(parallel.value), key.value
    if not isinstance(size, int) or size <= 1:
        return
    if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0:
        divisor = gcd(batch, size)
        left = f"{batch // divisor}" if divisor == size else f"{batch // divisor}/{size // divisor}"
        yield key.finding(
            f"`train_batch_size` {batch} counts the ranks of a tensor-parallel group as if each had its own samples: "
            f"the batch is {left} with `autotp_size` {size}",
            "write micro batch and accumulation instead",
            [parallel.at(label="tensor parallelism")],
        )
