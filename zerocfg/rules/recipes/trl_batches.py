"""ZC8xx: the batches of TRL's online trainers, GRPO and RLOO, which must hold whole groups of completions."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Finding, Fix, Severity, rule
from zerocfg.rules.arguments import drop_argument, given, methods, number, processes, set_argument, value, word, written
from zerocfg.rules.proof import cited, crashes
from zerocfg.rules.recipes.trainer_arguments import evaluates_by
from zerocfg.rules.recipes.trl_recipe import trl_example
from zerocfg.run.model import Run

_ONLINE = {"GRPOConfig", "RLOOConfig"}
_SOURCES = ("trl/trainer/grpo_config.py@1.16.0", "trl/trainer/rloo_config.py@1.16.0")


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


@rule(
    "ZC855",
    "generation-batch-not-whole",
    Severity.ERROR,
    bad=(
        trl_example("grpo", "gradient_accumulation_steps: 4\nnum_generations: 8\n").finds(
            "error",
            "recipe.yaml: num_generations: 8",
            1,
            1,
            4,
            4,
            8,
            8,
            also=(
                "recipe.yaml: per_device_train_batch_size: 1",
                "recipe.yaml: gradient_accumulation_steps: 4",
            ),
        ),
        trl_example("rloo", "num_generations: 4\nsteps_per_generation: 6\n").finds(
            "error",
            "recipe.yaml: num_generations: 4",
            1,
            1,
            6,
            6,
            4,
            12,
            also=(
                "recipe.yaml: per_device_train_batch_size: 1",
                "recipe.yaml: steps_per_generation: 6",
            ),
        ),
    ),
    good=trl_example("grpo", "gradient_accumulation_steps: 4\nnum_generations: 4\n"),
    proof=crashes("arguments", r"generation_batch_size \(\d\) must be divisible by num_generations \(\d\)"),
    fixable=True,
    references=_SOURCES,
    versions="trl>=0.18",
)
def generation_batch_not_whole(run: Run) -> Iterator[Finding]:
    """A generation batch that is no multiple of `num_generations`.

    GRPO and RLOO compare the completions of one prompt with each other, so a batch must hold whole groups. The batch is
    `per_device_train_batch_size * processes * gradient_accumulation_steps` (or `steps_per_generation`); a recipe that
    runs on 8 accelerators may stop on 4.

    What happens: `ValueError: generation_batch_size (4) must be divisible by num_generations (8).`

    Fix: raises `steps_per_generation` until the batch holds whole groups: completions are generated for more steps at
    once, and the training batch stays. A choice, so it is unsafe.
    """
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


@rule(
    "ZC856",
    "generation-batch-twice",
    Severity.ERROR,
    bad=trl_example("grpo", "num_generations: 2\ngeneration_batch_size: 4\nsteps_per_generation: 4\n").finds(
        "error", "recipe.yaml: generation_batch_size: 4", also=("recipe.yaml: steps_per_generation: 4",)
    ),
    good=trl_example("grpo", "num_generations: 2\nsteps_per_generation: 4\n"),
    proof=crashes("arguments", "'generation_batch_size' and 'steps_per_generation' can not be both configured"),
    fixable=True,
    references=_SOURCES,
    versions="trl>=0.18",
)
def generation_batch_twice(run: Run) -> Iterator[Finding]:
    """Both `generation_batch_size` and `steps_per_generation`.

    Each follows from the other and the training batch; TRL does not look whether they agree.

    What happens: `ValueError: 'generation_batch_size' and 'steps_per_generation' can not be both configured at the same
    time`.

    Fix: keeps `steps_per_generation`, which does not depend on the number of processes; unsafe, because the two may
    have differed.
    """
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


@rule(
    "ZC857",
    "generation-batch-not-of-steps",
    Severity.ERROR,
    bad=trl_example("grpo", "num_generations: 3\ngeneration_batch_size: 9\n", processes=2).finds(
        "error",
        "recipe.yaml: generation_batch_size: 9",
        9,
        1,
        2,
        3,
        12,
        also=(
            "recipe.yaml: per_device_train_batch_size: 1",
            "recipe.yaml: num_generations: 3",
        ),
    ),
    good=trl_example("grpo", "num_generations: 3\ngeneration_batch_size: 12\n", processes=2),
    proof=crashes(
        "arguments", r"generation_batch_size \(9\) must be divisible by the global batch size \(2\)", ranks=2
    ),
    fixable=True,
    references=_SOURCES,
    versions="trl>=0.19.1",
)
def generation_batch_not_of_steps(run: Run) -> Iterator[Finding]:
    """`generation_batch_size` is no multiple of the batch of all processes, or of the group of completions.

    A round of generation serves a whole number of micro batches on every process and holds whole groups. The number is
    absolute, so it fits one number of accelerators and not another.

    What happens: `ValueError: generation_batch_size (9) must be divisible by the global batch size (2).`

    Fix: raises it to the next number that both divide; more completions are generated at once, so it is unsafe.
    """
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


@rule(
    "ZC858",
    "evaluation-batch-not-whole",
    Severity.ERROR,
    bad=trl_example(
        "grpo",
        "gradient_accumulation_steps: 6\nnum_generations: 6\neval_strategy: steps\nper_device_eval_batch_size: 8\n",
    ).finds(
        "error",
        "recipe.yaml: per_device_eval_batch_size: 8",
        8,
        1,
        6,
        12,
        also=(
            "recipe.yaml: num_generations: 6",
            "recipe.yaml: eval_strategy: steps",
        ),
    ),
    good=trl_example(
        "grpo",
        "gradient_accumulation_steps: 6\nnum_generations: 6\neval_strategy: steps\nper_device_eval_batch_size: 12\n",
    ),
    proof=crashes("arguments", "must be divisible by the number of generations used for evaluation"),
    fixable=True,
    references=_SOURCES,
    versions="trl>=0.18",
)
def evaluation_batch_not_whole(run: Run) -> Iterator[Finding]:
    """An evaluation batch that does not hold whole groups of completions.

    The evaluation compares completions of one prompt as the training does. `per_device_eval_batch_size` is 8 where
    nobody writes it, which suits few group sizes.

    What happens: `ValueError: The global eval batch size (8 * 1) must be divisible by the number of generations used
    for evaluation (6).`

    Fix: writes the smallest evaluation batch from the written one on that holds whole groups; it needs more memory, so
    it is unsafe.
    """
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


@rule(
    "ZC859",
    "single-generation",
    Severity.ERROR,
    bad=trl_example("grpo", "gradient_accumulation_steps: 2\nnum_generations: 1\n").finds(
        "error", "recipe.yaml:5:18: 1", 1, 2, 2
    ),
    good=trl_example("grpo", "gradient_accumulation_steps: 2\nnum_generations: 2\n"),
    proof=crashes("arguments", "GRPO requires at least 2 generations per prompt"),
    fixable=True,
    references=_SOURCES,
    versions="trl>=0.18",
)
def single_generation(run: Run) -> Iterator[Finding]:
    """GRPO or RLOO with one completion of each prompt.

    The advantage of a completion is its distance to the others of its group; alone it has none.

    What happens: `ValueError: GRPO requires at least 2 generations per prompt to calculate the advantages.`

    Fix: writes 2, the least that works; generation takes longer, so it is unsafe.
    """
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


@rule(
    "ZC860",
    "batch-finder-with-groups",
    Severity.ERROR,
    bad=trl_example("grpo", "gradient_accumulation_steps: 2\nnum_generations: 2\nauto_find_batch_size: true\n").finds(
        "error", "recipe.yaml: auto_find_batch_size: true"
    ),
    good=trl_example("grpo", "gradient_accumulation_steps: 2\nnum_generations: 2\nauto_find_batch_size: false\n"),
    proof=crashes("arguments", "auto_find_batch_size is not supported by GRPO"),
    fixable=True,
    references=_SOURCES,
    versions="trl>=1.9",
)
def batch_finder_with_groups(run: Run) -> Iterator[Finding]:
    """`auto_find_batch_size` with GRPO or RLOO.

    Halving the batch after it did not fit would tear groups of completions apart, so TRL refuses it from the start.

    What happens: `ValueError: auto_find_batch_size is not supported by GRPO, because the generation batch must contain
    full prompt groups`.

    Fix: switches it off; the batch must then fit as it is written, so it is unsafe.
    """
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


@rule(
    "ZC861",
    "completions-not-logged",
    Severity.ERROR,
    bad=trl_example(
        "grpo", "gradient_accumulation_steps: 2\nnum_generations: 2\nlog_completions_hub_repo: me/completions\n"
    ).finds("error", "recipe.yaml: log_completions_hub_repo: me/completions"),
    good=trl_example(
        "grpo",
        "gradient_accumulation_steps: 2\nnum_generations: 2\nlog_completions: true\n"
        "log_completions_hub_repo: me/completions\n",
    ),
    proof=crashes("arguments", "log_completions_hub_repo is set, but log_completions is False"),
    fixable=True,
    references=("trl/trainer/grpo_config.py@1.16.0",),
    versions="trl>=0.28",
)
def completions_not_logged(run: Run) -> Iterator[Finding]:
    """A place to upload completions to, and completions are not logged.

    The repository alone does not switch the logging on, and GRPOConfig refuses the half of it.

    What happens: `ValueError: log_completions_hub_repo is set, but log_completions is False.`

    Fix: switches the logging on, which the repository asks for.
    """
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


@rule(
    "ZC869",
    "vllm-groups-not-whole",
    Severity.ERROR,
    bad=trl_example("grpo", "num_generations: 8\nuse_vllm: true\nvllm_tensor_parallel_size: 4\n", 6).finds(
        "error", "recipe.yaml: vllm_tensor_parallel_size: 4", 4, 6, 4
    ),
    good=trl_example("grpo", "num_generations: 8\nuse_vllm: true\nvllm_tensor_parallel_size: 4\n", 8),
    proof=cited("trl/generation/vllm_generation.py@1.16.0"),
    references=("trl/generation/vllm_generation.py@1.16.0",),
)
def vllm_groups_not_whole(run: Run) -> Iterator[Finding]:
    """Colocated vLLM whose tensor parallel size does not divide the number of processes.

    The processes that train also generate, in groups of `vllm_tensor_parallel_size`; no process may be left over.

    What happens: `ValueError: tensor_parallel_size (4) must divide world size (6) evenly.`, in every process, when the
    trainer is made and the model is loaded. A server (`vllm_mode: server`, which was the default before TRL 1.0) has
    processes of its own.

    When to ignore: never.
    """
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


RULES = (
    generation_batch_not_whole,
    generation_batch_twice,
    generation_batch_not_of_steps,
    evaluation_batch_not_whole,
    single_generation,
    batch_finder_with_groups,
    completions_not_logged,
    vllm_groups_not_whole,
)
