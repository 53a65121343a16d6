"""Memory of ZeRO 0 to 3: bytes worked out by hand from DeepSpeed's source, and what has to hold for every model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.memory.host import loading_terms, node_bytes, pinned_blocks, power_of_two, rounding_terms
from zerocfg.memory.options import Options
from zerocfg.memory.tensors import model_of
from zerocfg.memory.terms import Estimate, Moment, Place, Segment, Term, Timeline
from zerocfg.memory.zero.allocation_ledger import Entry, Ledger
from zerocfg.memory.zero.replay import zero_terms
from zerocfg.memory.zero.stage_0 import REMAINDERS
from zerocfg.models.model_facts import ModelFacts, Part, from_config

GIB = 1 << 30
# Two layers of 1000 elements between an embedding and a head of 4000 each.
TINY = ModelFacts(
    parameters=10_000,
    largest_parameter=4000,
    layout=[
        Part(modules=[[4000]]),
        Part(modules=[[600], [400]], times=2, block=True),
        Part(modules=[[4000]]),
    ],
)


def held(terms: tuple[Term, ...], moment: Moment, place: Place = "device") -> dict[str, int]:
    return asked_for(Estimate(terms), moment, place)


def asked_for(estimate: Estimate, moment: Moment, place: Place = "device") -> dict[str, int]:
    """What tensors ask for: without what the allocator adds (test_caching_allocator.py)."""
    parts = estimate.held(place, moment).parts
    return {term.name: size for term, size in parts if term.name != REMAINDERS.name}


def peak(facts: ModelFacts, options: Options, place: Place = "device") -> int:
    return Estimate(zero_terms(facts, options)).peak(place).size


def test_zero_2_holds_whole_parameters_its_partition_and_the_gradients_of_what_it_touches() -> None:
    options = Options(2, 4, optimizer="adamw_fused", reduce_bucket_size=500)
    terms = zero_terms(TINY, options)
    rest = held(terms, "forward")
    assert rest == {"parameters": 20_000, "master weights": 4 * 2500, "optimizer moments": 8 * 2500}
    backward = held(terms, "backward")
    assert backward["reduce bucket"] == 2 * 500
    # Elements 2500 to 5000 are a part of the embedding and the first layer: 4000 + 600 + 400 elements are touched.
    assert held(terms, "step")["gradients of the partition"] == 2 * 5000
    step = held(terms, "step")
    assert step["gradients of the step, flattened"] == 2 * 2500
    assert step["gradients of the step in fp32"] == 4 * 2500


def test_gradient_accumulation_keeps_a_second_set_of_zero_2_gradients_in_backward() -> None:
    once = zero_terms(TINY, Options(2, 1, reduce_bucket_size=500))
    twice = zero_terms(TINY, Options(2, 1, reduce_bucket_size=500, gradient_accumulation_steps=2))
    name = "gradients of the partition"
    assert held(twice, "backward")[name] == 2 * held(once, "backward")[name]
    assert name in held(twice, "forward")
    assert name not in held(once, "forward")


def test_the_norm_of_one_tensor_is_the_most_of_a_step() -> None:
    """get_grad_norm_direct: in fp64, of the largest part of a gradient, before anything is converted."""
    facts = ModelFacts(parameters=1000, layout=[Part(modules=[[1000]])])
    step = held(zero_terms(facts, Options(2, 1, optimizer="adamw_fused")), "step")
    assert step["gradient in fp64 for its norm"] == 8 * 1000
    assert sum(step.values()) == (2 + 4 + 8 + 2 + 8) * 1000


def test_stage_0_converts_all_gradients_twice_in_the_step_of_the_fused_wrapper() -> None:
    """fused_optimizer.py: step converts each gradient and flattens them all; unfused_optimizer.py: step converts them.
    engine.py: _configure_fp16_optimizer gives the fused wrapper to DeepSpeed's FusedAdam alone, so that torch's fused
    AdamW has the other one. Parameters, gradients, master weights and moments are 2 + 2 + 4 + 8 bytes an element."""
    step = held(zero_terms(TINY, Options(0, 2, optimizer="fused_adam")), "step")
    assert step["gradients of the step in fp32"] == step["gradients of the step, flattened"] == 4 * 10_000
    assert step["gradients"] == 2 * 10_000 and sum(step.values()) == 24 * 10_000
    assert sum(held(zero_terms(TINY, Options(0, 2, optimizer="adamw_fused")), "step").values()) == 20 * 10_000
    plain = zero_terms(TINY, Options(0, 2, "fp32", optimizer="adamw_fused"))
    assert sum(held(plain, "backward").values()) == (16 + 4) * 10_000, "one bucket holds a copy of all gradients"
    assert sum(held(plain, "step").values()) == 16 * 10_000


# Elements of TINY's gradients as they come: head, then 400 and 600 of each layer from the top, then the embedding.
ARRIVALS = (4000, 400, 600, 400, 600, 4000)


def timeline(*sizes: int, tail: int = 0) -> Timeline:
    """A backward in which each gradient of TINY ends a segment of so many bytes, the head's first."""
    starts = [sum(ARRIVALS[:at]) for at in range(len(ARRIVALS) + 1)]
    moments: list[Moment] = ["head backward", *["backward"] * 6]  # type: ignore[list-item]
    segments = [
        Segment(moment, size, start) for moment, size, start in zip(moments, (*sizes, tail), starts, strict=True)
    ]
    return Timeline(tuple(segments), sum(ARRIVALS), "by hand", 0.0)


class TestBackward:
    """What a rank holds beside activations: the first gradient hook sets up the bucket (stage_1_and_2.py:
    process_gradients calls setup_buckets), so that nothing of it exists while the logits' gradients do."""

    REST = 14 * 10_000
    """Parameters, master weights and moments of one rank, bf16."""

    def held(self, options: Options, activations: Timeline, moment: Moment) -> int:
        return sum(asked_for(Estimate(zero_terms(TINY, options), activations), moment).values())

    def test_the_bucket_of_zero_2_is_no_part_of_the_logits_peak(self) -> None:
        options = Options(2, 1, optimizer="adamw_fused", reduce_bucket_size=500_000)
        logits = timeline(3_000_000, 10, 10, 10, 10, 10)
        bucket = 2 * 500_000
        assert self.held(options, logits, "head backward") == self.REST + 3_000_000
        # In the first hook the gradient and the bucket are held, and what the next segment begins with at most.
        low = timeline(20_000, 10_000, 10, 10, 10, 10)
        assert self.held(options, low, "head backward") == self.REST + bucket + 10_000 + 8000
        # Later segments have all of the bucket beside them.
        assert self.held(options, timeline(0, 0, 5_000_000, 0, 0, 0), "backward") == self.REST + bucket + 5_000_000

    def test_a_gradient_is_taken_over_out_of_what_its_segment_had(self) -> None:
        """8000 bytes of 20,000 are the gradient, which the engine has; the next segment may have the rest. Stage 1
        keeps it until the end; in fp32 it becomes an accumulator of 16,000 bytes."""
        options = Options(2, 1, optimizer="adamw_fused", reduce_bucket_size=500_000)
        line, bucket = timeline(20_000, 19_000, 0, 0, 0, 0), 2 * 500_000
        assert self.held(options, line, "head backward") == self.REST + bucket + 12_000 + 8000
        wide = replace(options, stage=1, accumulation="fp32", precision="fp16")
        assert self.held(wide, line, "head backward") == self.REST + 2 * bucket + 12_000 + 8000 + 16_000
        # Without a contiguous buffer there is none.
        bare = replace(options, contiguous_gradients=False)
        assert self.held(bare, timeline(0, 0, 5_000_000, 0, 0, 0), "backward") == self.REST + 5_000_000 + 2 * 4400

    def test_before_release_0_18_3_it_is(self) -> None:
        options = Options(2, 1, optimizer="adamw_fused", reduce_bucket_size=500_000, early_bucket=True)
        logits = timeline(3_000_000, 10, 10, 10, 10, 10)
        assert self.held(options, logits, "head backward") == self.REST + 2 * 500_000 + 3_000_000

    def test_gradients_of_stage_0_are_held_from_their_hook_on(self) -> None:
        options = Options(0, 1, optimizer="adamw_fused")
        for place, before in enumerate((0, 4000, 4400, 5000, 5400, 6000)):
            sizes = [0] * 6
            sizes[place] = 10**6
            moment: Moment = "backward" if place else "head backward"
            assert self.held(options, timeline(*sizes), moment) == self.REST + 10**6 + 2 * before
        # Of a second micro batch each gradient is added to what lies there.
        twice = replace(options, gradient_accumulation_steps=2)
        assert self.held(twice, timeline(10**6, 0, 0, 0, 0, 0), "head backward") == self.REST + 10**6 + 2 * 10_000

    def test_the_gradient_of_a_hook_is_not_counted_twice(self) -> None:
        """A segment of 8000 bytes that is the head's gradient itself: in the hook it is the engine's."""
        options = Options(0, 1, optimizer="adamw_fused")
        assert self.held(options, timeline(8000, 9000, 0, 0, 0, 0), "head backward") == self.REST + 8000

    def test_the_last_reduction_is_a_part_of_backward(self) -> None:
        """engine.py: _backward_epilogue all-reduces inside `engine.backward`: one flat copy of all gradients."""
        options = Options(0, 1, "fp32", optimizer="adamw_fused")
        none = timeline(0, 0, 0, 0, 0, 0)
        assert self.held(options, none, "backward") == (12 + 4 + 4) * 10_000
        assert self.held(options, none, "step") == (12 + 4) * 10_000

    def test_the_parts_are_those_of_the_worst_point(self) -> None:
        options = Options(2, 1, optimizer="adamw_fused", reduce_bucket_size=500_000)
        parts = Estimate(zero_terms(TINY, options), timeline(3_000_000, 10, 10, 10, 10, 10)).held(
            "device", "head backward"
        )
        assert {term.name: size for term, size in parts.parts} == {
            "activations and temporaries": 3_000_000,
            "optimizer moments": 80_000,
            "master weights": 40_000,
            "parameters": 20_000,
        }


def test_one_rank_of_zero_3_gathers_nothing() -> None:
    one = held(zero_terms(TINY, Options(3, 1, reduce_bucket_size=5000)), "backward")
    assert "gathered parameters" not in one and "persistent small parameters" not in one
    two = held(zero_terms(TINY, Options(3, 2, reduce_bucket_size=5000, param_persistence_threshold=500)), "backward")
    assert two["persistent small parameters"] == 2 * 800
    assert "gathered parameters" in two


def test_small_reuse_distance_lets_go_of_parameters_between_forward_and_backward() -> None:
    def gathered(**more: Any) -> int:
        options = Options(3, 2, param_persistence_threshold=0, prefetch_bucket_size=0, **more)
        return held(zero_terms(TINY, options), "forward").get("gathered parameters", 0)

    assert gathered() == 2 * 6000  # nothing is let go: the embedding and both layers
    assert gathered(max_reuse_distance=0) == 2 * 4000


def test_frozen_parameters_have_no_gradients_and_no_optimizer() -> None:
    frozen = TINY.model_copy(update={"trainable_parameters": 0})
    for stage in (0, 1, 2, 3):
        names = {term.name for term in zero_terms(frozen, Options(stage, 4))}
        assert names & {"parameters", "frozen parameters"}
        assert not names & {"gradients", "master weights", "optimizer moments"}
    half = TINY.model_copy(deep=True)
    half.layout[0].frozen = half.layout[2].frozen = True
    half.trainable_parameters = 2000
    terms = zero_terms(half, Options(2, 1, reduce_bucket_size=5000))
    rest = held(terms, "forward")
    assert rest["frozen parameters"] == 16_000
    assert rest["optimizer moments"] == 8 * 2000


def test_llama_7b_on_eight_ranks_rests_on_eleven_gib_less_with_its_optimizer_on_the_host() -> None:
    """Resting ZeRO-3 minus ZeRO-3 with offloaded optimizer was 11.0 GiB on 8 A800 (14 bytes for each parameter)."""
    facts = from_config({"model_type": "llama"})
    difference = 0
    for options, sign in ((Options(3, 8), 1), (Options(3, 8, offload_optimizer="cpu"), -1)):
        rest = held(zero_terms(facts, options), "save")
        difference += sign * sum(rest.values())
    assert difference / GIB == pytest.approx(11.0, abs=0.05)


def test_unknown_parameters_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="mamba"):
        zero_terms(from_config({"model_type": "mamba"}), Options(2, 8))


def test_every_term_says_where_it_comes_from() -> None:
    for stage in range(4):
        for term in zero_terms(TINY, Options(stage, 2)):
            assert term.source and term.holds_for and term.moments and term.size > 0


class TestFacts:
    def test_tensors_that_are_not_told_are_made_up_to_the_right_sum(self) -> None:
        for facts in (
            ModelFacts(parameters=1001, largest_parameter=300),
            ModelFacts(parameters=1001),
            ModelFacts(parameters=1001, tensor_sizes=[(500, 2), (1, 1)]),
        ):
            assert sum(tensor.size for tensor in model_of(facts).tensors) == 1001

    def test_a_tied_head_works_with_the_embedding(self) -> None:
        model = model_of(from_config({"model_type": "gemma2"}))
        assert sum(0 in module.tensors for module in model.modules) == 2
        assert sorted(model.forward) == sorted(model.backward) == list(range(len(model.modules)))

    def test_some_trainable_parameters_are_taken_out_of_all(self) -> None:
        model = model_of(TINY.model_copy(update={"trainable_parameters": 1000}))
        assert sum(model.trained) == 1000
        assert sum(model.frozen) == 9000


class TestLedger:
    A, B = Entry("a", "buffers", "here"), Entry("b", "buffers", "here")

    def test_the_worst_point_of_each_moment_is_kept(self) -> None:
        ledger = Ledger()
        ledger.hold(self.A, 10)
        ledger.brief(self.B, 5)
        ledger.enter("step")
        terms = {(term.name, term.size): term.moments for term in ledger.terms("")}
        assert terms["a", 10] == {"init", "step"}
        assert ledger.peak("init") == 15 and ledger.peak("step") == 10

    def test_a_part_of_a_moment_counts_where_it_is_worse(self) -> None:
        ledger = Ledger()
        ledger.enter("step: reduction")
        ledger.brief(self.A, 10)
        ledger.enter("step")
        ledger.brief(self.A, 3)
        assert [term.size for term in ledger.terms("")] == [10]

    def test_more_than_is_held_cannot_be_freed(self) -> None:
        ledger = Ledger()
        ledger.hold(self.A, 10)
        with pytest.raises(AssertionError):
            ledger.free(self.A, 11)

    def test_what_is_held_around_each_gradient_is_kept(self) -> None:
        ledger = Ledger()
        ledger.hold(self.A, 7)
        for kept in (0, 10):  # two micro batches, the second beside what the first left
            ledger.enter("head backward")
            ledger.brief(self.A, 20)
            ledger.arrives()
            ledger.hold(self.B, 6)
            ledger.free(self.B, 6)
            ledger.taken(3, 6)
            ledger.enter("backward: reduction")
            ledger.brief(self.B, 1)
            ledger.enter("step")
            ledger.hold(self.A, 10 - kept)
        course = next(term.course for term in ledger.terms("") if term.course)
        assert [term.name for term in course.terms] == ["a", "b"]
        assert [(one.produced, one.gradient, one.before, one.during) for one in course.handovers] == [
            (0, 6, (37, 0), (17, 6)),
            (3, 0, (17, 0), (17, 1)),
        ]


class TestHost:
    def test_pinned_blocks_are_powers_of_two(self) -> None:
        assert [power_of_two(size) for size in (0, 1, 2, 3, 1025)] == [0, 1, 2, 4, 2048]
        assert power_of_two(int(2.25 * GIB)) == 4 * GIB

    def test_only_what_is_pinned_is_rounded(self) -> None:
        options = Options(2, 2, offload_optimizer="cpu")
        assert {block.name for block in pinned_blocks(TINY, options)} >= {"master weights", "fp32 gradients"}
        assert rounding_terms(TINY, replace(options, pin_optimizer=False)) == ()
        lost = sum(term.size for term in rounding_terms(TINY, options))
        assert lost == 2 * (2**15 - 20_000) + (2**14 - 10_000) + (2**13 - 8000)

    def test_every_rank_loads_the_model_but_under_zero_init_only_one(self) -> None:
        each = loading_terms(TINY, Options(2, 8))
        alone = loading_terms(TINY, Options(3, 8))
        assert node_bytes(each, 8) == 8 * 20_000
        assert node_bytes(alone, 8) == 20_000

    def test_a_node_holds_what_its_ranks_hold(self) -> None:
        terms = zero_terms(TINY, Options(3, 2, offload_optimizer="cpu", gather_on_save=True))
        training = sum(term.size for term in terms if term.place == "host" and "forward" in term.moments)
        assert node_bytes(terms, 2) >= 2 * training


models = st.sampled_from([from_config({"model_type": name}) for name in ("llama", "gpt2", "mixtral", "gemma2")])
precisions = st.sampled_from(["fp32", "bf16", "fp16"])


@settings(deadline=None, max_examples=25)
@given(models, st.integers(0, 3), st.integers(1, 9), precisions)
def test_more_ranks_never_need_more_to_rest(facts: ModelFacts, stage: int, power: int, precision: Any) -> None:
    """Resting memory: from one rank to two, what is gathered and flattened comes to it."""

    def rest(ranks: int) -> int:
        terms = zero_terms(facts, Options(stage, ranks, precision, param_persistence_threshold=0))
        return sum(held(terms, "save").values())

    padding = 64 * 2**power
    assert rest(2**power) <= rest(2 ** (power - 1)) + padding * (1000 if stage == 3 else 1)


@settings(deadline=None, max_examples=25)
@given(models, st.integers(2, 512), precisions)
def test_a_higher_stage_rests_on_less(facts: ModelFacts, ranks: int, precision: Any) -> None:
    def rest(stage: int) -> int:
        options = Options(stage, ranks, precision, param_persistence_threshold=0, contiguous_gradients=False)
        kept = held(zero_terms(facts, options), "save")
        return sum(size for name, size in kept.items() if name != "gradients of the partition")

    assert rest(1) + 64 * ranks >= rest(2)
    assert rest(2) + 4000 * ranks >= rest(3)


@settings(deadline=None, max_examples=25)
@given(models, st.integers(1, 64), st.sampled_from(["cpu", "nvme"]))
def test_offload_moves_bytes_off_the_device(facts: ModelFacts, ranks: int, device: Any) -> None:
    plain = Options(3, ranks)
    offloaded = Options(3, ranks, offload_optimizer=device, offload_param=device)
    assert peak(facts, offloaded) < peak(facts, plain)
    assert peak(facts, offloaded, "host") + peak(facts, offloaded, "nvme") > 0
    assert (peak(facts, offloaded, "nvme") > 0) == (device == "nvme")


@settings(deadline=None, max_examples=25)
@given(
    models,
    st.integers(0, 3),
    st.integers(1, 16),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    precisions,
    st.sampled_from([None, "fp32"]),
    st.booleans(),
)
def test_every_setting_can_be_played(
    facts: ModelFacts,
    stage: int,
    ranks: int,
    overlap: bool,
    contiguous: bool,
    accumulation: int,
    precision: Any,
    wide: Any,
    offload: bool,
) -> None:
    options = Options(
        stage,
        ranks,
        precision,
        accumulation=wide,
        offload_optimizer="cpu" if offload and stage else "none",
        overlap_comm=overlap,
        contiguous_gradients=contiguous,
        gradient_accumulation_steps=accumulation,
        reduce_bucket_size=10_000_000,
    )
    assert zero_terms(facts, options)
