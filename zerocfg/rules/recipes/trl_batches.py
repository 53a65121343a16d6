"""ZC8xx: the batches of TRL's online trainers, GRPO and RLOO, which must hold whole groups of completions."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

from zerocfg.catalog.versions import admits, only_below
from zerocfg.rules.api import Finding, Severity, Subject, rule
from zerocfg.rules.argument_reader import methods
from zerocfg.rules.arguments import ArgumentsOfRun, arguments_of, given, number, processes, set_argument, written
from zerocfg.rules.recipes.trainer_arguments import evaluates_by
from zerocfg.run.model import Run

_GENERATIONS = {"GRPOConfig": 8, "RLOOConfig": 2}
"""The online trainers' configs, each with its default of `num_generations`."""
_ACCUMULATES = "0.17"
"""From this release on a generation batch spans the accumulation steps; before, it is one micro batch of all ranks."""
_OF_STEPS = "0.18"
"""The first release with `steps_per_generation`, and with RLOO among the trainers that hold whole groups."""


def _online(run: Run) -> bool:
    trainers = {"GRPOConfig"} if admits(run.declared("trl"), below=_OF_STEPS) else _GENERATIONS.keys()
    own_checks = run.script is not None and run.script.own_checks
    return bool(methods(run)) and methods(run) <= trainers and not own_checks


ONLINE: Subject[ArgumentsOfRun] = Subject("arguments", lambda run: (ArgumentsOfRun(run),) if _online(run) else ())
"""Training arguments of the online trainers."""


def _generations(run: Run) -> int | None:
    """Completions of a prompt."""
    configs = methods(run)
    return _whole(run, "num_generations", _GENERATIONS[next(iter(configs))] if len(configs) == 1 else None)


def _whole(run: Run, name: str, default: int | None) -> int | None:
    """The value of an argument when it is a whole number from 1 on."""
    count = number(run, name, default)
    return int(count) if count is not None and count % 1 == 0 and count >= 1 else None


def _of_processes(run: Run, name: str) -> tuple[int, int] | None:
    """The batch of a process, 8 by default, and the number of processes; None where one of them is not known."""
    world, size = processes(run), _whole(run, name, 8)
    return (size, world) if world is not None and size is not None else None


@rule("ZC855", "generation-batch-not-whole", Severity.ERROR, ONLINE, versions="trl>=0.15")
def generation_batch_not_whole(given: ArgumentsOfRun) -> Iterator[Finding]:
    batch = _of_processes(given.run, "per_device_train_batch_size")
    if batch is None or given.given("generation_batch_size") is not None:
        return
    if admits(given.run.declared("trl"), below=_OF_STEPS):
        yield from _batch_not_whole(given.run, *batch)
        return
    size, world = batch
    accumulated, group = _whole(given.run, "gradient_accumulation_steps", 1), _generations(given.run)
    steps = _whole(given.run, "steps_per_generation", 0) if given.given("steps_per_generation") else accumulated
    if group is None or steps is None or accumulated is None or (size * world * steps) % group == 0:
        return
    more = lcm(steps, group // gcd(group, size * world))
    yield given.written(
        "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"
    ).finding(
        f"a generation batch of {size} * {world} processes * {steps} steps = {size * world * steps} completions does "
        f"not hold whole groups of {group} (`num_generations`); TRL stops at it",
        f"write `steps_per_generation: {more}`, or change one of the factors",
        given.set("steps_per_generation", str(more), f"generate for {more} steps at once"),
    )


def _batch_not_whole(run: Run, size: int, world: int) -> Iterator[Finding]:
    """The same before `steps_per_generation`. Of several admitted releases all refuse what the newest refuses."""
    group, names = _generations(run), ["num_generations", "per_device_train_batch_size"]
    steps: int | None = 1
    if not only_below(run.declared("trl"), _ACCUMULATES):
        steps = _whole(run, "gradient_accumulation_steps", 1)
        names.append("gradient_accumulation_steps")
    if group is None or steps is None or (size * world * steps) % group == 0 or given(run, "steps_per_generation"):
        return
    multiple = group // gcd(group, world)
    more = -(-size // multiple) * multiple
    accumulated = f" * {steps} steps" if len(names) > 2 else ""
    yield written(run, *names).finding(
        f"a generation batch of {size} * {world} processes{accumulated} = {size * world * steps} completions does not "
        f"hold whole groups of {group} (`num_generations`); TRL stops at it",
        f"write `per_device_train_batch_size: {more}`, or change one of the factors",
        set_argument(run, "per_device_train_batch_size", str(more), f"generate {more} completions at once"),
    )


@rule("ZC856", "generation-batch-twice", Severity.ERROR, ONLINE, versions="trl>=0.18")
def generation_batch_twice(given: ArgumentsOfRun) -> Iterator[Finding]:
    names, advice = ("generation_batch_size", "steps_per_generation"), "keep steps_per_generation"
    if all(given.number(name) is not None for name in names):
        yield given.written(*names).finding(
            "`generation_batch_size` and `steps_per_generation` say the same thing in two ways; TRL takes one of them "
            "only",
            advice,
            given.drop("generation_batch_size", advice),
        )


@rule("ZC857", "generation-batch-not-of-steps", Severity.ERROR, ONLINE, versions="trl>=0.19.1")
def generation_batch_not_of_steps(given: ArgumentsOfRun) -> Iterator[Finding]:
    batch, total = _of_processes(given.run, "per_device_train_batch_size"), given.number("generation_batch_size")
    if batch is None or given.given("steps_per_generation") is not None:
        return
    (size, world), group = batch, _generations(given.run)
    if total is None or total < 1 or group is None or (total % (size * world) == 0 and total % group == 0):
        return
    step = lcm(size * world, group)
    more = int(-(-total // step) * step)
    yield given.written("generation_batch_size", "per_device_train_batch_size", "num_generations").finding(
        f"`generation_batch_size: {total:g}` must be a multiple of {size} * {world} processes and of {group} "
        "(`num_generations`); TRL stops at it",
        f"write {more}",
        given.set("generation_batch_size", str(more), f"write {more}"),
    )


@rule("ZC858", "evaluation-batch-not-whole", Severity.ERROR, ONLINE, versions="trl>=0.15")
def evaluation_batch_not_whole(given: ArgumentsOfRun) -> Iterator[Finding]:
    batch = _of_processes(given.run, "per_device_eval_batch_size")
    if batch is None or evaluates_by(given.run) in (None, "no"):
        return
    size, world = batch
    own = given.given("num_generations_eval") is not None
    group = _whole(given.run, "num_generations_eval", 0) if own else _generations(given.run)
    if group is None or (size * world) % group == 0:
        return
    step = group // gcd(group, world)
    more = -(-size // step) * step
    yield given.written("per_device_eval_batch_size", "num_generations", "eval_strategy").finding(
        f"an evaluation batch of {size} * {world} processes does not hold whole groups of {group} completions; TRL "
        "stops at it",
        f"write `per_device_eval_batch_size: {more}`",
        given.set("per_device_eval_batch_size", str(more), f"evaluate {more} completions at once"),
    )


@rule("ZC859", "single-generation", Severity.ERROR, ONLINE, versions="trl>=0.15")
def single_generation(given: ArgumentsOfRun) -> Iterator[Finding]:
    count = given.number("num_generations")
    if count is not None and count < 2:
        yield given.written("num_generations", where="value").finding(
            f"`num_generations: {count:g}`: a group needs at least 2 completions; TRL stops at it",
            "write 2 or more",
            given.set("num_generations", "2", "write the least that works"),
        )


@rule("ZC860", "batch-finder-with-groups", Severity.ERROR, ONLINE, versions="trl>=1.9")
def batch_finder_with_groups(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.value("auto_find_batch_size") is True:
        yield given.written("auto_find_batch_size").finding(
            "`auto_find_batch_size` would tear groups of completions apart; TRL stops at it",
            "write false, and a smaller per_device_train_batch_size",
            given.set("auto_find_batch_size", "false", "switch it off"),
        )


@rule("ZC861", "completions-not-logged", Severity.ERROR, arguments_of("GRPOConfig"), versions="trl>=0.28")
def completions_not_logged(given: ArgumentsOfRun) -> Iterator[Finding]:
    if not given.word("log_completions_hub_repo"):
        return
    if given.value("log_completions", False) is False:
        yield given.written("log_completions_hub_repo", "log_completions").finding(
            "`log_completions_hub_repo` needs `log_completions: true`; TRL stops without it",
            "write `log_completions: true`",
            given.set("log_completions", "true", "log the completions", safe=True),
        )


@rule("ZC869", "vllm-groups-not-whole", Severity.ERROR, ONLINE)
def vllm_groups_not_whole(given: ArgumentsOfRun) -> Iterator[Finding]:
    older = admits(given.run.declared("trl"), below="1.0")
    mode = given.word("vllm_mode", "server" if older else "colocate")
    if given.value("use_vllm") is not True or mode != "colocate":
        return
    size, ranks = _whole(given.run, "vllm_tensor_parallel_size", None), processes(given.run)
    if size is not None and ranks is not None and ranks % size:
        yield given.written("vllm_tensor_parallel_size").finding(
            f"vLLM runs in groups of {size} processes, and {ranks} processes make no whole groups: the trainer stops",
            f"take a number of processes that is a multiple of {size}, or a smaller size",
        )
