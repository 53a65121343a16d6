"""Terms of one process, DDP and FSDP: what must hold whatever the model and the number of ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.llamas import LLAMA_2_7B
from zerocfg.memory.lora import Base
from zerocfg.memory.options import OptimizerName, Options, TorchOptions
from zerocfg.memory.predict import terms_of
from zerocfg.memory.sharding import torch_terms
from zerocfg.memory.terms import MOMENTS, Term
from zerocfg.models.model_facts import ModelFacts, from_config

SEVEN = from_config(LLAMA_2_7B)
N = 6_738_415_616
BLOCK, TABLE = 202_383_360, 32000 * 4096


def options(kind: str, **settings: Any) -> TorchOptions:
    return TorchOptions(**{"kind": kind, "world_size": 8, "optimizer": "adamw_fused"} | settings)


def sizes(terms: tuple[Term, ...], moment: str = "backward", place: str = "device") -> dict[str, int]:
    return {term.name: term.size for term in terms if moment in term.moments and term.place == place}


def resting(terms: tuple[Term, ...]) -> int:
    return sum(term.size for term in terms if term.name in ("parameters", "optimizer moments", "gradient buckets"))


def test_seven_billion_in_one_process() -> None:
    assert sizes(torch_terms(SEVEN, options("single", world_size=1)), "step") == {
        "parameters": 4 * N,
        "optimizer moments": 8 * N,
        "gradients": 4 * N,
    }
    pure = torch_terms(SEVEN, options("single", world_size=1, master=False, optimizer="adamw"))
    assert sum(sizes(pure, "step").values()) == 2 * N + 4 * N + 2 * N + 2 * N  # the last: temporaries of foreach


def test_ddp_keeps_a_second_copy_of_the_gradients() -> None:
    copies = torch_terms(SEVEN, options("ddp"))
    views = torch_terms(SEVEN, options("ddp", gradient_as_bucket_view=True))
    assert sizes(copies, "step")["gradient buckets"] == sizes(views, "forward")["gradient buckets"] == 4 * N
    assert "gradients" in sizes(copies) and "gradients" not in sizes(views)


def test_seven_billion_with_fsdp_2() -> None:
    held = sizes(torch_terms(SEVEN, options("fsdp2")))
    assert held["parameters"] == held["gradients"] == 4 * N // 8
    assert held["optimizer moments"] == N
    # a block, the one that comes next, its gradients, and those of the one before, on their way
    assert [held[name] for name in ("gathered parameters", "gradients of a unit", "reduce-scatter input")] == [
        2 * BLOCK
    ] * 3


def test_fsdp_1_keeps_the_root_and_the_gradient_of_the_head() -> None:
    held = sizes(torch_terms(SEVEN, options("fsdp1")))
    root = 2 * TABLE + 4096
    assert held["gathered parameters"] == 2 * (root + 2 * BLOCK)
    assert held["gradients of a unit"] + held["flat gradient of a unit"] == 2 * (TABLE + 4096 + 2 * BLOCK)


def test_accumulating_under_fsdp_holds_whole_gradients() -> None:
    for kind in ("fsdp1", "fsdp2"):
        held = sizes(torch_terms(SEVEN, options(kind, gradient_accumulation_steps=4)), "forward")
        assert held["gradients not yet reduced"] == 2 * N


def test_offloading_leaves_no_state_on_the_card() -> None:
    for kind in ("fsdp1", "fsdp2"):
        terms = torch_terms(SEVEN, options(kind, cpu_offload=True))
        assert sizes(terms, "step") == {}
        assert sizes(terms, "step", "host")["optimizer moments"] == N


def test_adapters_alone_have_gradients() -> None:
    adapters = SEVEN.model_copy(update={"parameters": N + 10_000_000, "trainable_parameters": 10_000_000})
    held = sizes(torch_terms(adapters, options("ddp")), "step")
    assert held["parameters"] == 2 * N + 40_000_000
    assert held["gradients"] == held["gradient buckets"] == 40_000_000
    held = sizes(torch_terms(adapters, options("fsdp2")), "forward")
    assert held["gathered parameters"] == 2 * (BLOCK + 10_000_000 // 32)
    held = sizes(torch_terms(adapters, options("fsdp2")), "step")
    assert held["gradients"] == 5_000_000
    assert held["parameters"] == (2 * N + 40_000_000) // 8


def test_adapters_under_fsdp_1_are_units_of_their_own() -> None:
    """Rank 8 on all seven linear layers: 14 matrices a block, the widest 11008 x 8."""
    matrices = [8 * width for width in (4096,) * 8 + (4096, 11008) * 2 + (11008, 4096)]
    trained = 32 * sum(matrices)
    counts = {"parameters": N + trained, "trainable_parameters": trained, "adapters": matrices}
    adapters = SEVEN.model_copy(update=counts)
    root = 2 * TABLE + 4096
    terms = torch_terms(adapters, options("fsdp1"))
    step, backward = sizes(terms, "step"), sizes(terms)
    assert step == {
        "parameters": (2 * N + 4 * trained) // 8,
        "gradients": 4 * trained // 8,
        "optimizer moments": 8 * trained // 8,
    }
    assert backward["gathered parameters"] - 2 * (root + 2 * BLOCK) in {2 * size for size in matrices}
    assert sizes(terms, "forward")["gathered parameters"] == 2 * (root + BLOCK + 11008 * 8)
    flat = torch_terms(adapters.model_copy(update={"adapters": []}), options("fsdp1"))
    assert sizes(flat, "step")["parameters"] > 1.9 * step["parameters"]


@pytest.mark.parametrize("kind", ["single", "ddp"])
def test_adapters_on_a_quantised_base(kind: str) -> None:
    """What is trained counts as without; the base has bytes of its own, and one weight is unpacked in backward."""
    adapters = SEVEN.model_copy(update={"parameters": N + 10_000_000, "trainable_parameters": 10_000_000})
    of_kind = options(kind, master=False)
    plain, packed = torch_terms(adapters, of_kind), torch_terms(adapters, of_kind, Base(3_900_000_000, 90_177_536))
    for moment in MOMENTS:
        expected = sizes(plain, moment) | {"parameters": 3_900_000_000 + 20_000_000}
        if moment == "backward":
            expected["unpacked weight"] = 90_177_536
        assert sizes(packed, moment) == expected, moment


def test_a_quantised_base_of_another_engine_is_refused() -> None:
    for other in (options("fsdp1"), options("fsdp2"), Options(2, 8)):
        with pytest.raises(ValueError, match=r"a quantised base model (under FSDP|with DeepSpeed) is not modelled"):
            terms_of(SEVEN, other, None, Base(1, 1))


def test_unknown_models_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="not known"):
        torch_terms(ModelFacts(), options("ddp"))
    with pytest.raises(ValueError, match="blocks"):
        torch_terms(ModelFacts(parameters=10), options("fsdp2"))


def test_every_term_names_its_source() -> None:
    for kind in ("single", "ddp", "fsdp1", "fsdp2"):
        for term in torch_terms(SEVEN, options(kind, gradient_accumulation_steps=3)):
            assert term.source and term.holds_for and term.moments and term.size > 0


def model(hidden: int, layers: int, vocabulary: int, tied: bool) -> ModelFacts:
    return from_config(
        {
            "model_type": "llama",
            "hidden_size": 8 * hidden,
            "intermediate_size": 16 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": 1,
            "vocab_size": vocabulary,
            "tie_word_embeddings": tied,
        }
    )


MODELS = st.builds(model, st.integers(1, 64), st.integers(1, 12), st.integers(1, 5000), st.booleans())
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "precision": st.sampled_from(["fp32", "bf16", "fp16"]),
    "master": st.booleans(),
    "optimizer": st.sampled_from(OptimizerName.__args__),
    "gradient_accumulation_steps": st.integers(1, 4),
    "reshard_after_forward": st.booleans(),
    "backward_prefetch": st.sampled_from(["pre", "post", "none"]),
    "forward_prefetch": st.booleans(),
    "cpu_offload": st.booleans(),
}
DRAWN = st.fixed_dictionaries(SETTINGS)
KIND = st.sampled_from(["fsdp1", "fsdp2"])


@given(MODELS, KIND, DRAWN, st.integers(1, 6))
def test_more_ranks_never_need_more(facts: ModelFacts, kind: str, drawn: dict[str, Any], power: int) -> None:
    # 8-bit Adam keeps shards below 4096 elements in 32 bits, and more ranks have smaller shards.
    assume(drawn["optimizer"] != "adamw_8bit")
    few, many = (
        torch_terms(facts, TorchOptions(**{"kind": kind, "world_size": ranks} | drawn))
        for ranks in (2**power, 2 ** (power + 1))
    )
    for place in ("device", "host"):
        for moment in MOMENTS:
            assert sum(sizes(many, moment, place).values()) <= sum(sizes(few, moment, place).values())


@given(MODELS, KIND, DRAWN, st.integers(1, 4))
def test_resharding_never_needs_more(facts: ModelFacts, kind: str, drawn: dict[str, Any], power: int) -> None:
    kept, resharded = (
        torch_terms(
            facts, TorchOptions(**{"kind": kind, "world_size": 2**power} | drawn | {"reshard_after_forward": reshard})
        )
        for reshard in (False, True)
    )
    assert resting(resharded) == resting(kept)
    for moment in ("forward", "loss"):
        gathered, whole = (sizes(terms, moment).get("gathered parameters", 0) for terms in (resharded, kept))
        assert gathered <= whole


@given(MODELS, KIND, DRAWN, st.integers(1, 3), st.integers(1, 3))
def test_a_hybrid_rests_like_its_group(
    facts: ModelFacts, kind: str, drawn: dict[str, Any], power: int, groups: int
) -> None:
    group = torch_terms(facts, TorchOptions(**{"kind": kind, "world_size": 2**power} | drawn))
    hybrid = torch_terms(
        facts, TorchOptions(**{"kind": kind, "world_size": 2 ** (power + groups), "shard_ranks": 2**power} | drawn)
    )
    assert resting(hybrid) == resting(group)


@given(MODELS, st.sampled_from(["single", "ddp", "fsdp1", "fsdp2"]), DRAWN)
def test_nothing_is_left_over(facts: ModelFacts, kind: str, drawn: dict[str, Any]) -> None:
    """Sizes are positive, and at rest there is at least what the parameters take when shared out."""
    drawn |= {"cpu_offload": drawn["cpu_offload"] and kind.startswith("fsdp")}
    ranks = 1 if kind == "single" else 4
    terms = torch_terms(facts, TorchOptions(**{"kind": kind, "world_size": ranks} | drawn))
    assert all(term.size > 0 for term in terms)
    assert resting(terms) >= (facts.parameters or 0) * 2 // ranks
