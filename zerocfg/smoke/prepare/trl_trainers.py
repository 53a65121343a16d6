"""A run that is trained by one of TRL's own trainers here: which, with which of its arguments, and how much smaller.

GRPO generates by transformers: a vLLM server, or one beside the training, is no part of a smoke-run.
"""

from __future__ import annotations

import importlib.util
from importlib import metadata
from math import gcd, lcm
from typing import TYPE_CHECKING

from zerocfg.catalog.schema import load_schema
from zerocfg.resolve.model.trl_trainer import trainer_of, trainer_of_arguments
from zerocfg.smoke.model.reduction import Kind, Reduction
from zerocfg.smoke.prepare.linked_run import linked_run

if TYPE_CHECKING:
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.folder import RunFolder

TRAINERS = ("GRPOTrainer", "DPOTrainer")
SINCE = 1
"""The first major release whose trainers are made as the ranks make them."""
PROMPT = 8
"""Tokens of a prompt; as many as the ranks' program writes."""
GENERATIONS, COMPLETION, LENGTH = 8, 512, 1024
"""Defaults of `num_generations`, `max_completion_length` and DPO's `max_length` (trl 1.16)."""
_NOT_RUN = frozenset(
    "use_vllm model_init_kwargs trust_remote_code num_generations_eval num_completions_to_print eos_token pad_token "
    "chat_template_path chat_template_kwargs max_tool_calling_iterations use_transformers_paged "
    "use_transformers_continuous_batching transformers_continuous_batching_config".split()
)
_NOT_RUN_OF = ("vllm_", "log_", "dataset_")
"""Arguments that speak of a server, a screen, a data set or a tokenizer, which are others here."""


def choose(run: RunFolder) -> tuple[str | None, str]:
    """The class of TRL that trains this run here; None where the Trainer of transformers does, and why if not it was
    meant."""
    if run.consumer != "trl":
        return None, ""
    linked = linked_run(run)
    wanted = trainer_of(linked, run.lock.recipe) if linked is not None else trainer_of_arguments(run.lock.recipe)
    if wanted not in TRAINERS:
        return None, ""
    if importlib.util.find_spec("trl") is None:
        return None, "TRL is not installed"
    release = metadata.version("trl")
    if int(release.partition(".")[0]) < SINCE:
        return None, f"TRL {release} is older than {SINCE}.0"
    if isinstance((run.lock.model_config or {}).get("vision_config"), dict):
        return None, "the model wants a processor for its images"
    return wanted, ""


def own_arguments(trainer: str, recipe: dict[str, object]) -> dict[str, object]:
    """Those of the recipe that this trainer has beyond every Trainer's."""
    config, names = trainer.replace("Trainer", "Config"), load_schema("trl").root.names
    every = load_schema("training-arguments").root
    return {
        name: value
        for name, value in recipe.items()
        if (key := names.get(name)) is not None
        and config in key.facts.get("in", ())
        and every.key(name) is None
        and name not in _NOT_RUN
        and not name.startswith(_NOT_RUN_OF)
    }


def fit(reduced: Reduced, planned_ranks: object, recipe: dict[str, object]) -> None:
    """Make the arguments of the trainer fit the ranks and the samples that run here."""
    if reduced.trainer == "GRPOTrainer":
        _completions(reduced)
        _groups(reduced, planned_ranks)
        if recipe.get("use_vllm"):
            reduced.changes.append(Reduction(Kind.GENERATION, True, False, ("use_vllm",)))
    else:
        longest = reduced.arguments.get("max_length", LENGTH)
        reduced.arguments["max_length"] = min(_count(longest, reduced.sequence), reduced.sequence)


def _completions(reduced: Reduced) -> None:
    """Prompt and completion together are a sample."""
    longest = _count(reduced.arguments.get("max_completion_length"), COMPLETION)
    reduced.arguments["max_completion_length"] = min(longest, max(1, reduced.sequence - PROMPT))


def _groups(reduced: Reduced, planned_ranks: object) -> None:
    """Whole groups of completions on fewer ranks, as `steps_per_generation` makes them; a batch that held none before
    is left to TRL."""
    arguments = reduced.arguments
    if not isinstance(planned_ranks, int) or planned_ranks == reduced.ranks:
        return
    micro = _count(arguments.get("per_device_train_batch_size"), 8)
    group = _count(arguments.get("num_generations"), GENERATIONS)
    batch = arguments.get("generation_batch_size")
    if isinstance(batch, int):
        before, steps = batch, max(1, batch // (micro * planned_ranks))
    else:
        accumulated = _count(arguments.get("gradient_accumulation_steps"), 1)
        steps = _count(arguments.get("steps_per_generation"), accumulated)
        before = micro * planned_ranks * steps
    if before % group:
        return
    here = micro * reduced.ranks
    more = steps if (here * steps) % group == 0 else lcm(steps, group // gcd(group, here))
    if isinstance(batch, int) and batch != here * more:
        arguments["generation_batch_size"] = here * more
        reduced.changes.append(Reduction(Kind.GENERATION_BATCH, batch, here * more, ("generation_batch_size",)))
    elif not isinstance(batch, int) and more != steps:
        arguments["steps_per_generation"] = more
        reduced.changes.append(Reduction(Kind.GENERATION_STEPS, steps, more, ("steps_per_generation",)))


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise
