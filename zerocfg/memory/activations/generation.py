"""What transformers holds while it generates completions: the cache of keys and values, and what is beside it.

Bytes of one rank, for a batch of prompts that are padded to one length (transformers 5.23, generation/utils.py:
_sample; cache_utils.py: DynamicLayer.update). Held against `generate` by ``tests/memory/test_grpo_real.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zerocfg.memory.activations.completions import head_forward
from zerocfg.memory.activations.formula import forward_alone, head_width, is_known
from zerocfg.memory.options import BYTES, Precision, Workload

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts

BETWEEN = 8
"""Bytes of a logit that are left of one step for the next: in fp32, and its probability."""


def cached(facts: ModelFacts, precision: Precision, config: Mapping[str, object]) -> int:
    """Bytes of the keys and values of one token. Raises ValueError where they are not known."""
    if not is_known(facts) or facts.num_hidden_layers is None:
        raise ValueError(f"what a model of type {facts.model_type} caches while it generates is not known")
    groups = facts.num_key_value_heads or facts.num_attention_heads or 0
    return 2 * facts.num_hidden_layers * groups * head_width(facts, config) * BYTES[precision]


def generated(
    facts: ModelFacts,
    workload: Workload,
    sequences: int,
    per_logit: int,
    precision: Precision,
    config: Mapping[str, object],
) -> int:
    """The most that generating the completions of ``sequences`` samples takes, the cache among it.

    Either the prompts at once, or the last token: then one layer's keys are there twice, or the logits of the sequences
    are sampled from, ``per_logit`` bytes each. Raises ValueError where something of it is not known.
    """
    assert workload.completion is not None
    prompt = workload.sequence_length - workload.completion
    token = cached(facts, precision, config)
    alone = Workload(sequences, prompt, True, workload.attention, True, completion=workload.completion and 1)
    rotation = 2 * BYTES[precision] * head_width(facts, config) * sequences * prompt
    first = token * sequences * prompt + forward_alone(facts, alone, precision, config) + rotation
    cache, logits = token * sequences * workload.sequence_length, sequences * (facts.vocab_size or 0)
    twice = cache // (2 * (facts.num_hidden_layers or 1))
    return max(first, cache + max(twice + BETWEEN * logits, per_logit * logits))


def scored(facts: ModelFacts, workload: Workload, precision: Precision, config: Mapping[str, object]) -> int:
    """The most that the log-probabilities of a micro batch take where no gradient is wanted."""
    assert workload.completion is not None
    size, hidden = BYTES[precision], facts.hidden_size or 0
    head = size * hidden * workload.micro_batch * workload.sequence_length
    head += head_forward(workload.micro_batch * workload.completion, hidden, size)
    return max(forward_alone(facts, workload, precision, config), head)
