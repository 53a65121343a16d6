"""What a rank holds while it samples completions and scores them: bytes worked out by hand from TRL and transformers.

The model: 2 layers, 64 wide, 8 heads of 16 (so that queries are wider than the stream), 2 of keys and values, 96
inside, 100 words. What real ranks hold: test_grpo_real.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from zerocfg.memory.activations.completions import head_backward, head_forward, tile
from zerocfg.memory.activations.formula import by_formula, forward_alone, gated, head_width
from zerocfg.memory.activations.generation import cached, generated, scored
from zerocfg.memory.options import Options, Rollouts, TorchOptions, Workload
from zerocfg.memory.predict import predict, terms_of
from zerocfg.memory.rollouts import Sampling, sampling_terms
from zerocfg.memory.terms import ALWAYS, SAMPLING, Term
from zerocfg.models.hardware import Accelerator
from zerocfg.models.model_facts import ModelFacts, from_config

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
FACTS = from_config(CONFIG)
HIDDEN, INNER, QUERIES, KEYS, WORDS = 64, 96, 128, 32, 100
BLOCK = 2 * HIDDEN + 2 * HIDDEN * QUERIES + 2 * HIDDEN * KEYS + 3 * HIDDEN * INNER
EVERY = 2 * BLOCK + 2 * WORDS * HIDDEN + HIDDEN
LARGEST = HIDDEN * QUERIES  # of a query or an output projection; 6400 is a table, 6144 a matrix of the MLP
WORK = Workload(3, 20, True, "sdpa", True, completion=8)
CARD = Accelerator(name="card", vendor="nvidia", memory_gib=80, architecture="9.0")


def test_the_model_is_counted() -> None:
    assert FACTS.parameters == EVERY and FACTS.largest_parameter == LARGEST
    assert head_width(FACTS, CONFIG) == 16 and head_width(FACTS, {}) == 64 // 8


class TestHead:
    """TRL's kernels/chunked_logprob.py: copies of hidden states, a tile of logits, fp32 gradients to be cast."""

    def test_a_tile_is_as_wide_as_it_may_be_and_no_longer_than_there_are_tokens(self) -> None:
        assert tile(24, 2) == 2 * 24 * 32768
        assert tile(4095, 2) + 2 * 32768 == tile(4096, 2) == tile(5000, 2) == 2 * 4096 * 32768

    def test_forward_copies_the_hidden_states_and_sums_in_seven_numbers(self) -> None:
        assert head_forward(24, 64, 2) == 24 * 64 * 2 + 24 * 28 + tile(24, 2)

    @pytest.mark.parametrize(("size", "wide"), [(2, 4 + 2), (4, 4)])
    def test_backward_collects_in_fp32_and_casts_what_is_narrower(self, size: int, wide: int) -> None:
        states = 24 * 64 * (size + wide)
        assert head_backward(24, 64, 100, size, trained=False) == states + tile(24, size)
        assert head_backward(24, 64, 100, size, trained=True) == states + wide * 100 * 64 + tile(24, size)


class TestGenerating:
    def test_a_token_caches_keys_and_values_of_each_layer(self) -> None:
        assert cached(FACTS, "bf16", CONFIG) == 2 * 2 * KEYS * 2
        assert cached(FACTS, "fp32", CONFIG) == 2 * 2 * KEYS * 4
        plain = FACTS.model_copy(update={"num_key_value_heads": None})
        assert cached(plain, "bf16", CONFIG) == 2 * 2 * QUERIES * 2, "without groups each head has its own"

    @pytest.mark.parametrize("changed", [{"model_type": "mamba"}, {"num_experts": 8}, {"num_hidden_layers": None}])
    def test_of_other_models_it_is_not_known(self, changed: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="caches while it generates is not known"):
            cached(FACTS.model_copy(update=changed), "bf16", CONFIG)

    def test_the_last_token_holds_the_whole_cache_and_what_is_sampled_from(self) -> None:
        """Six sequences of 20 tokens: their cache, and logits at 18 bytes, or one layer of the cache anew beside what
        is left of the logits of the step before."""
        words = FACTS.model_copy(update={"vocab_size": 100_000})
        cache = 2 * 2 * KEYS * 2 * 6 * 20
        found = generated(words, WORK, 6, 18, "bf16", CONFIG)
        assert found == cache + 18 * 6 * 100_000
        assert generated(words, WORK, 6, 5, "bf16", CONFIG) == cache + cache // 4 + 8 * 6 * 100_000

    def test_or_the_prompts_at_once_are_the_most(self) -> None:
        """12 tokens of a prompt; a forward of one layer beside their cache and the rotation of each head."""
        long = Workload(3, 1200, True, "sdpa", True, completion=1)
        prompt, sequences = 1199, 6
        alone = forward_alone(FACTS, Workload(6, prompt, True, "sdpa", True, completion=1), "bf16", CONFIG)
        cache = 2 * 2 * KEYS * 2 * sequences * prompt
        assert generated(FACTS, long, 6, 18, "bf16", CONFIG) == cache + alone + 2 * 2 * 16 * sequences * prompt

    def test_a_forward_that_saves_nothing(self) -> None:
        """For each token the stream twice, a row of the mask and 16 bytes, and of a layer the gate, its activation,
        their product and the stream twice, or three times the queries and the stream, whichever is more."""
        tokens = 3 * 20
        wide = 3 * 2 * INNER + 2 * 2 * HIDDEN
        assert wide < 3 * 2 * QUERIES + 2 * HIDDEN
        attention = 3 * 2 * QUERIES + 2 * HIDDEN
        assert forward_alone(FACTS, WORK, "bf16", CONFIG) == (16 + 20 + 2 * 2 * HIDDEN + attention) * tokens
        flash = Workload(3, 20, True, "flash_attention_2", True, completion=8)
        assert forward_alone(FACTS, flash, "bf16", CONFIG) == (16 + 2 * 2 * HIDDEN + attention) * tokens
        eager = Workload(3, 20, True, "eager", True, completion=8)
        scores = 10 * 8 * 20 + attention
        weights = 20 + 2 * (1 + 8) * 20  # of each pair of tokens the mask as numbers, and the weights of each head
        assert forward_alone(FACTS, eager, "bf16", CONFIG) == (16 + weights + 2 * 2 * HIDDEN + scores) * tokens

    def test_scoring_is_a_forward_or_its_head(self) -> None:
        """24 tokens are scored, behind the hidden states of all 60."""
        assert scored(FACTS, WORK, "bf16", CONFIG) == 2 * 64 * 60 + head_forward(24, 64, 2)
        huge = {**CONFIG, "intermediate_size": 10**6}
        facts = from_config(huge)
        assert scored(facts, WORK, "bf16", huge) == forward_alone(facts, WORK, "bf16", huge)
        assert forward_alone(facts, WORK, "bf16", huge) == (16 + 20 + 256 + 3 * 2 * 10**6 + 256) * 60

    def test_a_feed_forward_part_has_a_gate_or_none(self) -> None:
        assert gated(FACTS) and gated(ModelFacts(model_type="unheard of"))
        assert not gated(ModelFacts(model_type="gpt_neox"))


def held(options: Options | TorchOptions, rollouts: Rollouts, work: Workload | None = WORK, **more: Any) -> list[Term]:
    facts = more.pop("facts", FACTS)
    terms = more.pop("terms", None)
    training = terms_of(facts, options) if terms is None else terms
    return list(sampling_terms(facts, options, training, more.get("card"), Sampling(rollouts, work, CONFIG)))


def sizes(found: list[Term], moment: str = "generation", place: str = "device") -> dict[str, int]:
    return {term.name: term.size for term in found if moment in term.moments and term.place == place}


ZERO_2 = Options(2, 4, optimizer="adamw_fused", gradient_accumulation_steps=2, reduce_bucket_size=500)
ZERO_3 = Options(3, 4, optimizer="adamw_fused", param_persistence_threshold=64, reduce_bucket_size=500)
PADDED = -(-EVERY // 8) * 8


class TestResting:
    def test_between_steps_gradients_that_wait_stay(self) -> None:
        """Two micro batches make a step. Generated for one of them, sampling comes between the two."""
        both = sizes(held(ZERO_2, Rollouts("vLLM server")))
        assert both == {"parameters": 2 * PADDED, "master weights": PADDED, "optimizer moments": 2 * PADDED}
        item = sizes(held(ZERO_2, Rollouts("vLLM server", steps=1)))
        assert item.keys() - both.keys() == {"gradients of the partition"}
        terms = [term for term in terms_of(FACTS, ZERO_2) if term.name == "gradients of the partition"]
        (waiting,) = [term.size for term in terms if "forward" in term.moments]
        assert item["gradients of the partition"] == waiting
        # Trained on twice, a generation of one micro batch is a whole step.
        assert sizes(held(ZERO_2, Rollouts("vLLM server", steps=1, iterations=2))) == both

    def test_what_leaves_in_one_moment_does_not_rest(self) -> None:
        now: tuple[Any, ...] = (
            Term("a", 5, "device", ALWAYS, "buffers"),
            Term("b", 7, "device", ALWAYS - {"step"}, "buffers"),
            Term("c", 3, "device", ALWAYS - {"init"}, "buffers"),
            Term("d", 4, "host", ALWAYS, "buffers"),
            Term("a", 2, "device", ALWAYS - {"loss"}, "buffers"),
        )
        found = held(ZERO_2, Rollouts("vLLM server"), terms=now)
        assert sizes(found) == sizes(found, "scoring") == {"a": 5, "c": 3}
        assert sizes(found, "generation", "host") == {"d": 4}
        assert all(term.moments == frozenset(SAMPLING) for term in found)


class TestReference:
    HOW = Rollouts("vLLM server", reference=True)

    def test_whole_beside_what_every_rank_has_whole(self) -> None:
        found = held(ZERO_2, self.HOW)
        (reference,) = [term for term in found if term.name == "reference model"]
        assert (reference.size, reference.place) == (2 * EVERY, "device")
        assert reference.moments == ALWAYS | set(SAMPLING)
        assert sizes(found, "scoring")["activations of the reference"] == scored(FACTS, WORK, "bf16", CONFIG)
        assert "activations of the reference" not in sizes(found)

    def test_zero_3_divides_it_but_for_its_small_parameters(self) -> None:
        """Five norms of 64: two of each layer and the last."""
        options = Options(3, 4, offload_optimizer="cpu", param_persistence_threshold=64, reduce_bucket_size=500)
        found = sizes(held(options, self.HOW))
        assert found["reference model"] == 2 * -(-EVERY // 4)
        assert found["reference model, small parameters"] == found["persistent small parameters"] == 2 * 5 * 64
        without = Options(3, 4, offload_optimizer="cpu", param_persistence_threshold=63, reduce_bucket_size=500)
        assert "reference model, small parameters" not in sizes(held(without, self.HOW))

    def test_offloaded_parameters_take_the_reference_along(self) -> None:
        away = Options(3, 4, optimizer="adamw_fused", offload_param="cpu", offload_optimizer="cpu")
        found = held(away, self.HOW)
        assert sizes(found, "scoring", "host")["reference model"] == 2 * -(-EVERY // 4)
        assert "reference model" not in sizes(found, "scoring")
        optimizer_alone = held(Options(3, 4, offload_optimizer="cpu"), self.HOW)
        assert "reference model" in sizes(optimizer_alone)

    @pytest.mark.parametrize("width", [2, 4])
    def test_without_deepspeed_it_is_as_wide_as_it_is_loaded(self, width: int) -> None:
        how = Rollouts("vLLM server", reference=True, reference_width=width)
        alone = held(TorchOptions("ddp", 4), how)
        assert sizes(alone)["reference model"] == width * EVERY
        assert "reference model, gathered" not in sizes(alone, "scoring")
        sharded = held(TorchOptions("fsdp2", 8, shard_ranks=4), how)
        assert sizes(sharded)["reference model"] == width * -(-EVERY // 4)
        assert sizes(sharded, "scoring")["reference model, gathered"] == 2 * 2 * EVERY, "a buffer, and out of it"
        first = held(TorchOptions("fsdp1", 4), how)
        assert "reference model, gathered" not in sizes(first, "scoring")
        host = held(TorchOptions("fsdp2", 4, cpu_offload=True), how)
        assert sizes(host, "scoring", "host")["reference model"] == width * -(-EVERY // 4)


class TestGathered:
    """trl/models/utils.py: unwrap_model_for_generation."""

    def test_zero_3_gathers_everything_unless_told_otherwise(self) -> None:
        assert sizes(held(ZERO_3, Rollouts()))["model gathered to generate"] == 2 * EVERY
        apart = sizes(held(ZERO_3, Rollouts(gathers=False)))
        assert "model gathered to generate" not in apart
        came = [term for term in terms_of(FACTS, ZERO_3) if "forward" in term.moments]
        assert apart["parameters gathered to generate"] == sum(
            term.size for term in came if term.name.startswith(("gathered parameters", "persistent small"))
        )

    def test_alone_nothing_is_gathered_but_from_the_host(self) -> None:
        for stage in (2, 3):
            found = sizes(held(Options(stage, 1), Rollouts()))
            assert not [name for name in found if "gathered to" in name], stage
        offloaded = Options(3, 1, offload_param="cpu", offload_optimizer="cpu")
        assert sizes(held(offloaded, Rollouts()))["model gathered to generate"] == 2 * EVERY

    def test_fsdp_gathers_as_in_training_and_the_first_its_root_besides(self) -> None:
        """In fp32, as it is kept: two tables and the last norm."""
        root = 2 * WORDS * HIDDEN + HIDDEN
        found = sizes(held(TorchOptions("fsdp1", 4), Rollouts()))
        assert found["root of FSDP, gathered to generate"] == 4 * root
        pure = sizes(held(TorchOptions("fsdp1", 4, master=False), Rollouts()))
        assert pure["root of FSDP, gathered to generate"] == 2 * root
        assert "root of FSDP, gathered to generate" not in sizes(held(TorchOptions("fsdp2", 4), Rollouts()))
        assert "root of FSDP, gathered to generate" not in sizes(held(TorchOptions("fsdp1", 1), Rollouts()))

    def test_only_parameters_that_come_and_go_are(self) -> None:
        now: tuple[Any, ...] = (
            Term("stays", 1, "device", ALWAYS, "parameters"),
            Term("comes", 2, "device", frozenset({"forward"}), "parameters"),
            Term("bucket", 4, "device", frozenset({"forward", "loss"}), "buffers"),
            Term("gradient", 8, "device", frozenset({"forward"}), "gradients"),
            Term("later", 16, "device", frozenset({"backward"}), "parameters"),
            Term("host", 32, "host", frozenset({"forward"}), "parameters"),
        )
        found = sizes(held(TorchOptions("fsdp2", 4), Rollouts(), None, terms=now))
        assert found == {"stays": 1, "parameters gathered to generate": 6}


class TestServed:
    def test_vllm_takes_its_share_of_the_card(self) -> None:
        how = Rollouts("colocated vLLM", share=0.3)
        (share,) = [term for term in held(ZERO_2, how, card=CARD) if term.kind == "share"]
        assert share.size == int((CARD.planning_gib or 0) * 2**30 * 0.3) > 20 * 2**30
        assert share.moments == ALWAYS | set(SAMPLING)
        sleeps = Rollouts("colocated vLLM", share=0.3, sleeps=True)
        (share,) = [term for term in held(ZERO_2, sleeps, card=CARD) if term.kind == "share"]
        assert share.moments == {"generation"}
        assert not [term for term in held(ZERO_2, how) if term.kind == "share"], "of a card that is not known"
        served = held(ZERO_2, Rollouts("vLLM server", share=0.3), card=CARD)
        assert not [term for term in served if term.kind == "share"]

    def test_of_a_peak_with_a_share_the_bands_are_those_of_the_rest(self) -> None:
        """Nothing doubts the share: every end of every figure is as much higher."""
        facts, load = FACTS, Workload(1, 16, completion=8, fused_loss=True)
        line = by_formula(facts, load, "bf16", CONFIG)
        found = {
            share: predict(
                facts, ZERO_2, line, CARD, sampling=Sampling(Rollouts("colocated vLLM", share=share), load, CONFIG)
            )
            for share in (0.0, 0.5)
        }
        size = int((CARD.planning_gib or 0) * 2**30 * 0.5)
        for figure in ("allocated", "reserved", "device"):
            for end in ("low", "expected", "high"):
                less, more = (getattr(getattr(found[share], figure), end) for share in (0.0, 0.5))
                assert more - less == size, (figure, end)

    @pytest.mark.parametrize(
        ("options", "size"),
        [
            (ZERO_2, 0),
            (ZERO_3, 2 * LARGEST),
            (TorchOptions("fsdp2", 4), 2 * 4 * LARGEST),
            (TorchOptions("fsdp2", 4, master=False), 2 * 2 * LARGEST),
            (TorchOptions("fsdp1", 4), 4 * BLOCK),
            (TorchOptions("fsdp1", 1), 0),
            (TorchOptions("ddp", 4), 0),
        ],
    )
    def test_it_is_given_one_parameter_or_unit_after_the_other(self, options: Any, size: int) -> None:
        found = sizes(held(options, Rollouts("vLLM server")))
        assert found.get("parameters gathered for vLLM", 0) == size

    def test_of_a_small_model_the_root_is_the_largest_unit(self) -> None:
        facts = from_config({**CONFIG, "vocab_size": 1000})
        found = sizes(held(TorchOptions("fsdp1", 4), Rollouts("vLLM server"), facts=facts))
        assert found["parameters gathered for vLLM"] == 4 * (2 * 1000 * 64 + 64)

    def test_adapters_under_zero_3_come_all_at_once(self) -> None:
        update = {"parameters": EVERY + 1000, "trainable_parameters": 1000, "adapters": [500]}
        found = sizes(held(ZERO_3, Rollouts("vLLM server"), facts=FACTS.model_copy(update=update)))
        assert found["parameters gathered for vLLM"] == 2 * (EVERY + 1000)

    def test_completions_of_all_micro_batches_of_a_step_are_sampled_at_once(self) -> None:
        name = "cache and logits of completions"
        for how, sequences in ((Rollouts(), 6), (Rollouts(steps=5), 15)):
            assert sizes(held(ZERO_2, how))[name] == generated(FACTS, WORK, sequences, 18, "bf16", CONFIG)
        assert name not in sizes(held(ZERO_2, Rollouts(), None))
        assert name not in sizes(held(ZERO_2, Rollouts("vLLM server")))
