"""How GRPOTrainer of TRL samples the completions that it trains on, read off its arguments (trl 1.15 and 1.16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.catalog.admitted import admitted
from zerocfg.catalog.versions import release
from zerocfg.memory.activations import completions
from zerocfg.memory.options import Rollouts
from zerocfg.resolve.model.reader import is_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.resolve.model.reader import Reader

GENERATIONS, COMPLETION, SHARE = 8, 512, 0.3
"""Defaults of `num_generations`, `max_completion_length` and `vllm_gpu_memory_utilization` (grpo_config.py)."""
BATCH = ("steps_per_generation", "generation_batch_size")
"""Arguments that make another batch of completions than that of an optimizer step."""
_PLAIN, _WARPED, _SORTED = 18, 22, 40
"""Bytes of a logit while transformers samples from it: from all words alike; with a processor; sorted for `top_p`."""
_FACTORS, _CUTS = ("temperature", "repetition_penalty"), ("top_k", "min_p")
"""Arguments that process logits unless they are 1, and unless they are 0 or not given."""


def completion(read: Reader) -> int:
    """Tokens of the longest completion."""
    written = read.argument("max_completion_length")
    return written if is_size(written) else COMPLETION


def lacking(read: Reader, tokens: int, *, autocast: bool, sees: bool) -> str:
    """Why the activations are not known, in one line; empty where they are. ``tokens``: of a completion."""
    if not known_release(read):
        return (
            f"GRPOTrainer is modelled for TRL {completions.SINCE} and later, and older releases are admitted; say "
            f'`versions: {{trl: ">={completions.SINCE}"}}` in the run where that is so'
        )
    if sees:
        return "GRPOTrainer is modelled for text alone, and the model reads images"
    if read.argument("use_transformers_continuous_batching") or read.argument("use_transformers_paged"):
        return "what continuous batching takes for its cache is not modelled"
    if autocast and not read.flag("use_vllm", False):
        return "what generation takes under autocast is not modelled; load the model in 16 bit (`dtype: bfloat16`)"
    length = read.spec.sequence_length
    if length is None or length <= tokens:
        return (
            "nothing says how long prompt and completion are together; add `sequence_length:` to the run in the spec, "
            f"more than the {tokens} tokens of `max_completion_length`"
        )
    return ""


def rollouts(read: Reader, model_dtype: str | None, adapted: bool) -> Rollouts | None:
    """None where the releases that are admitted do otherwise. ``adapted``: adapters are trained, which are switched off
    where a reference is needed."""
    if not known_release(read):
        return None
    server = read.argument("vllm_mode") == "server"
    share, beta = read.argument("vllm_gpu_memory_utilization"), read.argument("beta")
    iterations = read.argument("num_iterations")
    read.assumed.append("rewards are counted as functions that take no memory of a card")
    return Rollouts(
        ("vLLM server" if server else "colocated vLLM") if read.flag("use_vllm", False) else "transformers",
        float(share) if isinstance(share, (int, float)) and 0 < share <= 1 else SHARE,
        read.flag("vllm_enable_sleep_mode", False),
        _steps(read),
        iterations if is_size(iterations) else 1,
        read.flag("ds3_gather_for_generation", True),
        _per_logit(read),
        isinstance(beta, (int, float)) and beta != 0 and not adapted,
        2 if model_dtype in ("bfloat16", "float16") else 4,
    )


def known_release(read: Reader) -> bool:
    """Whether every admitted TRL has the loss that is modelled."""
    among = admitted("trl", read.versions.get("trl"))
    since = release(completions.SINCE)
    return among is None or (bool(among.releases) and not among.below and all(item >= since for item in among.releases))


def _steps(read: Reader) -> int | None:
    """Micro batches of one generation; None: those of an optimizer step."""
    steps, batch = (read.argument(name) for name in BATCH)
    if is_size(steps):
        return steps
    micro, ranks = read.count("train_micro_batch_size_per_gpu", 1), read.count("num_processes", 1)
    return max(1, batch // (micro * ranks)) if is_size(batch) else None


def _per_logit(read: Reader) -> int:
    top = read.argument("top_p")
    if isinstance(top, (int, float)) and top < 1:
        return _SORTED
    factors, cuts = ([read.argument(name) for name in names] for names in (_FACTORS, _CUTS))
    plain = all(factor in (None, 1) for factor in factors) and not any(cuts)
    return _PLAIN if plain else _WARPED


def group(arguments: Mapping[str, Any]) -> int:
    """Completions of one prompt."""
    written = arguments.get("num_generations")
    return written if is_size(written) else GENERATIONS
