"""ZC8xx: the batches of TRL's online trainers, GRPO and RLOO, which must hold whole groups of completions."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Finding, Fix, Severity, rule
from zerocfg.rules.arguments import drop_argument, given, methods, number, processes, set_argument, value, word, written
from zerocfg.rules.recipes.trainer_arguments import evaluates_by
from zerocfg.run.model import Run

_ONLINE = {"GRPOConfig", "RLOOConfig"}


def _online(run: Run) -> bool:
    return bool(methods(run)) and methods(run) <= _ONLINE


def _generations(run: Run) -> int | None:
    """Completions of a prompt; the default differs between GRPO and RLOO."""
    default = {"GRPOConfig": 8, "RLOOConfig": 2}[next(iter(methods(run)))] if len(methods(run)) == 1 else None
    found = number(run, "num_generations", default)
    return int(found) if found is not None and found % 1 == 0 and found >= 1 else None


def _whole(run: Run, name: str, default: int) -> int | None:
    found = number(run, name, default)
    return int(found) if found is not None and found % 1 == 0 and found >= 1 else None


@rule("ZC855", "generation-batch-not-whole", Severity.ERROR, versions="trl>=0.18")
def generation_batch_not_whole(run: Run) -> Iterator[Finding]:
    world, size = processes(run), _whole(run, "per_device_train_batch_size", 8)
    if not _online(run) or world is None or size is None or given(run, "generation_batch_size") is not None:
        return
    accumulated = _whole(run, "gradient_accumulation_steps", 1)
    steps = _whole(run, "steps_per_generation", 0) if given(run, "steps_per_generation") else accumulated
    group = _generations(run)
    if group is None or steps is None or accumulated is None or (size * world * steps) % group == 0:
        return
    more = lcm(steps, group // gcd(group, size * world))
    location, related = written(
        run, "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"
    )
    yield Finding(
        location,
        f"a generation batch of {size} * {world} processes * {steps} steps = {size * world * steps} completions does "
        f"not hold whole groups of {group} (`num_generations`); TRL stops at it",
        f"write `steps_per_generation: {more}`, or change one of the factors",
        related,
        set_argument(run, "steps_per_generation", str(more), f"generate for {more} steps at once"),
    )


@rule("ZC856", "generation-batch-twice", Severity.ERROR, versions="trl>=0.18")
def generation_batch_twice(run: Run) -> Iterator[Finding]:
    names = ("generation_batch_size", "steps_per_generation")
    if not _online(run) or any(number(run, name) is None for name in names):
        return
    location, related = written(run, *names)
    yield Finding(
        location,
        "`generation_batch_size` and `steps_per_generation` say the same thing in two ways; TRL takes one of them only",
        "keep steps_per_generation",
        related,
        drop_argument(run, "generation_batch_size", "keep steps_per_generation"),
    )


@rule("ZC857", "generation-batch-not-of-steps", Severity.ERROR, versions="trl>=0.19.1")
def generation_batch_not_of_steps(run: Run) -> Iterator[Finding]:
    world, size = processes(run), _whole(run, "per_device_train_batch_size", 8)
    total = number(run, "generation_batch_size")
    if not _online(run) or world is None or size is None or given(run, "steps_per_generation") is not None:
        return
    group = _generations(run)
    if total is None or total < 1 or group is None or (total % (size * world) == 0 and total % group == 0):
        return
    step = lcm(size * world, group)
    more = int(-(-total // step) * step)
    location, related = written(run, "generation_batch_size", "per_device_train_batch_size", "num_generations")
    yield Finding(
        location,
        f"`generation_batch_size: {total:g}` must be a multiple of {size} * {world} processes and of {group} "
        "(`num_generations`); TRL stops at it",
        f"write {more}",
        related,
        set_argument(run, "generation_batch_size", str(more), f"write {more}"),
    )


@rule("ZC858", "evaluation-batch-not-whole", Severity.ERROR, versions="trl>=0.18")
def evaluation_batch_not_whole(run: Run) -> Iterator[Finding]:
    world, size = processes(run), _whole(run, "per_device_eval_batch_size", 8)
    if not _online(run) or world is None or size is None or evaluates_by(run) in (None, "no"):
        return
    group = _generations(run)
    if given(run, "num_generations_eval") is not None:
        group = _whole(run, "num_generations_eval", 0)
    if group is None or (size * world) % group == 0:
        return
    step = group // gcd(group, world)
    more = -(-size // step) * step
    location, related = written(run, "per_device_eval_batch_size", "num_generations", "eval_strategy")
    yield Finding(
        location,
        f"an evaluation batch of {size} * {world} processes does not hold whole groups of {group} completions; TRL "
        "stops at it",
        f"write `per_device_eval_batch_size: {more}`",
        related,
        set_argument(run, "per_device_eval_batch_size", str(more), f"evaluate {more} completions at once"),
    )


@rule("ZC859", "single-generation", Severity.ERROR, versions="trl>=0.18")
def single_generation(run: Run) -> Iterator[Finding]:
    count = number(run, "num_generations")
    if not _online(run) or count is None or count >= 2:
        return
    location, related = written(run, "num_generations", where="value")
    yield Finding(
        location,
        f"`num_generations: {count:g}`: a group needs at least 2 completions; TRL stops at it",
        "write 2 or more",
        related,
        set_argument(run, "num_generations", "2", "write the least that works"),
    )


@rule("ZC860", "batch-finder-with-groups", Severity.ERROR, versions="trl>=1.9")
def batch_finder_with_groups(run: Run) -> Iterator[Finding]:
    if not _online(run) or value(run, "auto_find_batch_size") is not True:
        return
    location, related = written(run, "auto_find_batch_size")
    yield Finding(
        location,
        "`auto_find_batch_size` would tear groups of completions apart; TRL stops at it",
        "write false, and a smaller per_device_train_batch_size",
        related,
        set_argument(run, "auto_find_batch_size", "false", "switch it off"),
    )


@rule("ZC861", "completions-not-logged", Severity.ERROR, versions="trl>=0.28")
def completions_not_logged(run: Run) -> Iterator[Finding]:
    if methods(run) != {"GRPOConfig"} or not word(run, "log_completions_hub_repo"):
        return
    if value(run, "log_completions", False) is not False:
        return
    location, related = written(run, "log_completions_hub_repo", "log_completions")
    fix: Fix | None = set_argument(run, "log_completions", "true", "log the completions", safe=True)
    yield Finding(
        location,
        "`log_completions_hub_repo` needs `log_completions: true`; TRL stops without it",
        "write `log_completions: true`",
        related,
        fix,
    )


@rule("ZC869", "vllm-groups-not-whole", Severity.ERROR)
def vllm_groups_not_whole(run: Run) -> Iterator[Finding]:
    if not _online(run) or value(run, "use_vllm") is not True:
        return
    older = admits(run.versions.get("trl"), below="1.0")
    if word(run, "vllm_mode", "server" if older else "colocate") != "colocate":
        return
    size, ranks = _whole(run, "vllm_tensor_parallel_size", 1), processes(run)
    if size is None or ranks is None or ranks % size == 0 or given(run, "vllm_tensor_parallel_size") is None:
        return
    location, related = written(run, "vllm_tensor_parallel_size")
    yield Finding(
        location,
        f"vLLM runs in groups of {size} processes, and {ranks} processes make no whole groups: the trainer stops",
        f"take a number of processes that is a multiple of {size}, or a smaller size",
        related,
    )
