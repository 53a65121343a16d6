"""A rank's part of a split model, counted by hand; what real ranks hold: test_tensor_parallel_real.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.tensor_parallel import config_of_rank, facts_of_rank, head_ranks
from zerocfg.memory.time.step_time import step_time
from zerocfg.memory.time.wire import traffic
from zerocfg.models.model_facts import from_config
from zerocfg.resolve.explain.plan_summary import describe_engine

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
TIED = {**LLAMA, "tie_word_embeddings": True}
ALONE = TorchOptions("single", 2, tensor_parallel=2)
AUTOTP = Options(2, 8, tensor_parallel=2)
# Of a layer on one of two ranks: q, k, v, o, gate, up, down, and the two norms, which are whole.
LAYER = 64 * (32 + 16 + 16 + 32) + 3 * 64 * 88 + 2 * 64
NORM, TABLE = 64, 512 * 64


@pytest.mark.parametrize(
    ("config", "options", "tables", "vocabulary", "head"),
    [
        (LLAMA, ALONE, TABLE // 2 + TABLE // 2, 512, 2),
        (TIED, ALONE, TABLE // 2, 512, 2),
        (LLAMA, AUTOTP, TABLE + TABLE // 2, 512, 2),
        (TIED, AUTOTP, TABLE // 2, 256, 1),
    ],
)
def test_parameters_of_a_rank(
    config: dict[str, Any], options: Options | TorchOptions, tables: int, vocabulary: int, head: int
) -> None:
    facts = facts_of_rank(from_config(config), config, options)
    assert facts.parameters == facts.trainable == 2 * LAYER + NORM + tables
    assert sum(size * count for size, count in facts.tensor_sizes) == facts.parameters
    assert sum(sum(map(sum, part.modules)) * part.times for part in facts.layout) == facts.parameters
    assert facts.vocab_size == vocabulary and head_ranks(facts, options) == head
    narrow = config_of_rank(config, options)
    assert narrow is not None and narrow["vocab_size"] == vocabulary


def test_a_model_that_nobody_splits_is_as_it_was() -> None:
    facts, options = from_config(LLAMA), Options(2, 8)
    assert facts_of_rank(facts, LLAMA, options) is facts
    assert config_of_rank(LLAMA, options) == LLAMA and head_ranks(facts, options) == 1
    assert config_of_rank(None, AUTOTP) is None


def test_deepspeed_gives_whole_groups_of_heads_to_ranks() -> None:
    """Three key-value heads on two ranks: two groups of two query heads on the first."""
    config = {**LLAMA, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 177}
    facts = facts_of_rank(from_config(config), config, AUTOTP)
    layer = 48 * (32 + 16 + 16 + 32) + 3 * 48 * 89 + 2 * 48
    assert facts.parameters == 2 * layer + 48 + 512 * 48 + 256 * 48
    with pytest.raises(ValueError, match="tp_size 2 does not divide the 6 attention heads and 3 key-value heads"):
        facts_of_rank(from_config(config), config, ALONE)


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (None, AUTOTP, "without its config.json"),
        ({**LLAMA, "model_type": "olmo2"}, ALONE, "for models of type olmo2"),
        ({**LLAMA, "model_type": "phi3"}, AUTOTP, "for models of type phi3"),
        ({**LLAMA, "model_type": "gemma2"}, AUTOTP, "for models of type gemma2"),
        ({**LLAMA, "model_type": "mixtral", "num_local_experts": 4}, AUTOTP, "for a mixture of experts"),
        (
            {"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "clip_vision_model"}},
            AUTOTP,
            "for a model with a vision or audio part",
        ),
    ],
)
def test_what_is_not_known_has_a_reason(config: dict[str, Any] | None, options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"what each of 2 ranks holds of a split model is not modelled {said}"):
        facts_of_rank(from_config(config or LLAMA), config, options)


def test_a_model_that_is_trained_in_part_is_not_known() -> None:
    facts = from_config(LLAMA)
    for changed in ({"trainable_parameters": 100}, {"parameters": 10**6}):
        with pytest.raises(ValueError, match="or is trained in part"):
            facts_of_rank(facts.model_copy(update=changed), LLAMA, AUTOTP)


def test_gemma2_is_split_by_transformers() -> None:
    """Four norms a layer, tied."""
    config = {**TIED, "model_type": "gemma2"}
    assert facts_of_rank(from_config(config), config, ALONE).parameters == 2 * (LAYER + 2 * 64) + NORM + TABLE // 2


def test_the_output_head_is_a_part_of_the_gradient_and_its_logits_are_whole() -> None:
    """Few tokens: the gradient of the logits, of what enters the head, and of half of the head, at 2 bytes."""
    facts, load = facts_of_rank(from_config(LLAMA), LLAMA, ALONE), Workload(1, 4)
    narrow = config_of_rank(LLAMA, ALONE)
    part = by_formula(facts, load, "bf16", narrow, head_ranks(facts, ALONE))
    whole = by_formula(from_config(narrow or {}), load, "bf16", narrow)
    size = {kind: [one.size for one in line.segments] for kind, line in (("part", part), ("whole", whole))}
    assert [one.moment for one in part.segments] == [one.moment for one in whole.segments]
    lost = [many - few for many, few in zip(size["whole"], size["part"], strict=True)]
    # forward, loss, head backward, two layers, and what comes before them with the embedding's gradient
    assert lost == [0, 0, TABLE, 0, 0, TABLE]


@pytest.mark.parametrize(("ranks", "group"), [(8, 3), (4, 8), (4, 0)])
def test_groups_divide_the_ranks(ranks: int, group: int) -> None:
    with pytest.raises(ValueError, match=f"{ranks} ranks cannot be divided into groups of {group}"):
        Options(2, ranks, tensor_parallel=group)


def test_without_deepspeed_all_ranks_share_or_none() -> None:
    refused: tuple[tuple[Any, int], ...] = (("ddp", 2), ("fsdp2", 2), ("single", 4))
    for kind, ranks in refused:
        with pytest.raises(ValueError, match="split among all ranks or among none"):
            TorchOptions(kind, ranks, tensor_parallel=2)


def test_gradients_go_to_the_ranks_that_read_other_samples() -> None:
    """Two nodes of four, groups of two: each node has two of the four that reduce."""
    options = Options(2, 8, tensor_parallel=2)
    facts, profile = facts_of_rank(from_config(LLAMA), LLAMA, options), parse_hardware("2x4xA100")
    found = {one.name: one for one in traffic(facts, options, Workload(1, 16), profile).collectives}
    assert (found["gradients"].ranks, found["gradients"].per_node) == (4, 2)
    assert found["gradients"].elements == facts.trainable
    assert (found["logits"].ranks, found["logits"].per_node, found["logits"].elements) == (2, 2, 16 * 512)
    wide = replace(options, tensor_parallel=8)
    sent = traffic(facts, wide, Workload(1, 16), profile).collectives
    assert {one.name for one in sent} == {"residual stream", "logits"} and {one.per_node for one in sent} == {4}


def test_the_engine_is_named_with_its_groups() -> None:
    assert describe_engine(ALONE) == "layers shared by 2 ranks"
    assert describe_engine(AUTOTP) == "ZeRO-2, layers shared by 2 ranks"
    assert describe_engine(Options(2, 8)) == "ZeRO-2"


def test_how_long_a_step_takes_is_not_said() -> None:
    facts, profile = facts_of_rank(from_config(LLAMA), LLAMA, AUTOTP), parse_hardware("8xA100")
    with pytest.raises(ValueError, match="how long a step takes is not modelled where ranks share each layer"):
        step_time(facts, AUTOTP, Workload(1, 16), profile)
