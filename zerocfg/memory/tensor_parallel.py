"""What one rank holds of a model whose layers are shared by several ranks (tensor parallelism).

transformers' plans cut queries, keys, values, gate and up by their output, and what follows them by its input; the
residual stream and its norms stay whole. A rank's decoder layer is therefore that of a model with fewer heads and a
narrower feed-forward part, in its parameters and, to the byte, in what it saves for backward. Outside of the layers it
depends on who splits the model (transformers 5.23, distributed/mixin.py: init_parallel_plans; DeepSpeed 0.19.8,
runtime/engine.py: _apply_autotp_partitioning):

===========  =============================  ===========================================================
by           embedding and output head      logits
===========  =============================  ===========================================================
transformers cut along the vocabulary       gathered: every rank holds all of them
DeepSpeed    the head alone, where it is    gathered
             not tied
DeepSpeed    both, where they are tied      each rank computes the loss of its part of the vocabulary
===========  =============================  ===========================================================

The rank that holds most is described: the first one, where sizes do not divide evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.options import Options
from zerocfg.models.architectures import complete
from zerocfg.models.families import FAMILIES
from zerocfg.models.model_facts import from_config

if TYPE_CHECKING:
    from zerocfg.memory.options import Precision, TorchOptions, Workload
    from zerocfg.memory.terms import Timeline
    from zerocfg.models.model_facts import ModelFacts, Part

SPLIT = frozenset(("llama", "mistral", "qwen2", "qwen3", "granite", "smollm3", "starcoder2"))
"""Types whose plan cuts each layer as said above and nothing else (transformers 5.23)."""
SPLIT_BY_TRANSFORMERS = SPLIT | {"gemma", "gemma2", "gemma3_text"}
"""DeepSpeed takes the embeddings of the others, which scale what they look up, for none that it can split."""


def facts_of_rank(facts: ModelFacts, config: Mapping[str, Any] | None, options: Options | TorchOptions) -> ModelFacts:
    """The facts of what one rank holds; ``config`` is the content of config.json. The vocabulary is that of the logits.

    Raises ValueError where that is not known.
    """
    ranks = options.tensor_parallel
    if ranks == 1:
        return facts
    known = _splittable(facts, config, options)
    vocabulary = facts.vocab_size or 0
    part = -(-vocabulary // ranks)
    own = from_config({**_narrowed(known, ranks), "vocab_size": part})
    if not isinstance(options, Options):
        return own.model_copy(update={"vocab_size": vocabulary})
    if facts.tied_embeddings:
        return own
    whole = from_config({**_narrowed(known, ranks), "vocab_size": vocabulary})
    return _counted(own, [whole.layout[0], *own.layout[1:]]).model_copy(update={"vocab_size": vocabulary})


def config_of_rank(config: Mapping[str, Any] | None, options: Options | TorchOptions) -> dict[str, Any] | None:
    """The config.json of a model that saves for backward what a rank does. Its output head may be whole where the
    rank's is not."""
    if config is None or options.tensor_parallel == 1:
        return dict(config) if config is not None else None
    found = _narrowed(config, options.tensor_parallel)
    if isinstance(options, Options) and from_config(config).tied_embeddings:
        found["vocab_size"] = -(-found["vocab_size"] // options.tensor_parallel)
    return found


def head_ranks(facts: ModelFacts, options: Options | TorchOptions) -> int:
    """Ranks that share an output head whose logits each of them holds."""
    return 1 if isinstance(options, Options) and facts.tied_embeddings else options.tensor_parallel


def timeline_of_rank(
    facts: ModelFacts,
    workload: Workload,
    precision: Precision,
    config: Mapping[str, Any] | None,
    options: Options | TorchOptions,
) -> Timeline:
    """The closed formula for one rank, whose facts these are; ``config`` is that of the whole model. Raises ValueError
    where it does not hold."""
    if options.tensor_parallel > 1 and workload.fused_loss:
        raise ValueError("the loss is computed in pieces, with an output head of which a rank has a part")
    return by_formula(facts, workload, precision, config_of_rank(config, options), head_ranks(facts, options))


def _narrowed(config: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """The config with the heads and the inner width of one rank."""
    filled = complete(FAMILIES[str(config.get("model_type"))], config)
    heads, groups = filled["num_attention_heads"], filled["num_key_value_heads"]
    kept = -(-groups // ranks)  # DeepSpeed gives whole groups of heads to ranks, transformers as many to each
    return {
        **filled,
        "head_dim": filled.get("head_dim") or filled["hidden_size"] // heads,
        "num_attention_heads": kept * (heads // groups),
        "num_key_value_heads": kept,
        "intermediate_size": -(-filled["intermediate_size"] // ranks),
    }


def _counted(facts: ModelFacts, layout: list[Part]) -> ModelFacts:
    """The facts with the tensors of ``layout``."""
    sizes: Counter[int] = Counter()
    for part in layout:
        for size in (size for module in part.modules for size in module):
            sizes[size] += part.times
    counted = {
        "layout": layout,
        "tensor_sizes": sorted(sizes.items(), reverse=True),
        "parameters": sum(size * count for size, count in sizes.items()),
        "largest_parameter": max(sizes),
        "largest_module": max(sum(module) for part in layout for module in part.modules),
    }
    return facts.model_copy(update=counted)


def _splittable(
    facts: ModelFacts, config: Mapping[str, Any] | None, options: Options | TorchOptions
) -> Mapping[str, Any]:
    """The config of a model of which a rank's part is known. Raises ValueError with one line for any other."""
    ranks = options.tensor_parallel
    said = f"what each of {ranks} ranks holds of a split model is not modelled"
    if config is None:
        raise ValueError(f"{said} without its config.json")
    kind = config.get("model_type")
    if facts.vision_parameters is not None or facts.text_part_only:
        raise ValueError(f"{said} for a model with a vision or audio part")
    if facts.num_experts:
        raise ValueError(f"{said} for a mixture of experts")
    if kind not in (SPLIT if isinstance(options, Options) else SPLIT_BY_TRANSFORMERS):
        raise ValueError(f"{said} for models of type {kind}")
    if facts.parameters is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    if facts.parameters != from_config(config).parameters or facts.trainable != facts.parameters:
        raise ValueError(f"{said} where it has other parameters than its config.json says, or is trained in part")
    heads, groups = facts.num_attention_heads or 1, facts.num_key_value_heads or 1
    if not isinstance(options, Options) and (heads % ranks or groups % ranks):
        raise ValueError(
            f"tp_size {ranks} does not divide the {heads} attention heads and {groups} key-value heads of the model: "
            "transformers cuts through a head, and the first forward stops with `RuntimeError: shape ... is invalid`"
        )
    return config
