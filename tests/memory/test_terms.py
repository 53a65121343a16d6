"""The worst point of a moment, worked out by hand: states, what grows with backward, an engine's course, logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zerocfg.memory.options import Images, Options, TorchOptions, Workload
from zerocfg.memory.tensors import Module, Tensor, model_of
from zerocfg.memory.terms import (
    ALWAYS,
    BACKWARD,
    MOMENTS,
    TRAINING,
    BackwardCourse,
    Estimate,
    Handover,
    Moment,
    Segment,
    Term,
    Timeline,
)
from zerocfg.memory.zero.allocation_ledger import REDUCTION, Entry, Ledger
from zerocfg.models.model_facts import ModelFacts, Part
from zerocfg.models.vision import Vision

STATES = Term("states", 100, "device", ALWAYS, "parameters")
GROWING = Term("gradients", 40, "device", BACKWARD | {"step"}, "gradients", grows=True)
LINE = Timeline(
    (
        Segment("forward", 10),
        Segment("forward", 30),
        Segment("loss", 50),
        Segment("head backward", 60),
        Segment("backward", 45, 5),
        Segment("backward", 35, 15),
        Segment("backward", 5, 20),
    ),
    20,
    "by hand",
    0.0,
    logits=20,
)


def parts(estimate: Estimate, moment: Moment) -> dict[str, int]:
    held = estimate.held("device", moment)
    assert held.size == sum(size for _, size in held.parts)
    assert [size for _, size in held.parts] == sorted((size for _, size in held.parts), reverse=True)
    return {term.name: size for term, size in held.parts}


class TestHeld:
    ESTIMATE = Estimate((STATES, GROWING), LINE)

    def test_activations_are_the_most_of_their_moment(self) -> None:
        assert parts(self.ESTIMATE, "init") == {"states": 100}
        assert parts(self.ESTIMATE, "forward") == {"states": 100, "activations and temporaries": 30}

    def test_logits_are_a_part_of_the_loss_and_of_its_backward(self) -> None:
        for moment, size in (("loss", 50), ("head backward", 60)):
            held = {"states": 100, "activations and temporaries": size - 20, "logits and loss": 20}
            assert parts(self.ESTIMATE, moment) == held  # type: ignore[arg-type]
        few = Estimate((STATES,), replace(LINE, logits=70))
        assert parts(few, "loss") == {"states": 100, "logits and loss": 50}, "no more than there is"
        assert parts(Estimate((STATES,), replace(LINE, logits=None)), "loss")["activations and temporaries"] == 50

    def test_gradients_grow_with_what_has_been_produced(self) -> None:
        """45 + 40 x 5/20 = 55, 35 + 40 x 15/20 = 65, 5 + 40."""
        found = {"states": 100, "activations and temporaries": 35, "gradients": 30}
        assert parts(self.ESTIMATE, "backward") == found
        assert parts(self.ESTIMATE, "step") == {"states": 100, "gradients": 40}, "all of them"
        assert parts(Estimate((STATES, GROWING)), "backward") == {"states": 100, "gradients": 40}

    def test_without_elements_nothing_is_divided_by(self) -> None:
        frozen = replace(LINE, elements=0, segments=(Segment("backward", 7),))
        assert parts(Estimate((STATES,), frozen), "backward") == {"states": 100, "activations and temporaries": 7}

    def test_on_the_host_there_are_no_activations(self) -> None:
        away = Term("away", 9, "host", ALWAYS, "optimizer")
        found = Estimate((STATES, away), LINE).held("host", "forward")
        assert [(term.name, size) for term, size in found.parts] == [("away", 9)]

    def test_the_peak_and_the_worst_moment_of_each_phase(self) -> None:
        assert self.ESTIMATE.peak("device").moment == "backward" and self.ESTIMATE.peak("device").size == 165
        assert self.ESTIMATE.peak("device", ("loss", "step")).moment == "loss"
        phases = self.ESTIMATE.phases("device")
        assert {phase: (held.moment, held.size) for phase, held in phases.items()} == {
            "init": ("init", 100),
            "forward+backward": ("backward", 165),
            "step": ("step", 140),
            "save": ("save", 100),
        }

    def test_sampling_is_a_phase_where_something_is_held_in_it(self) -> None:
        more = Term("cache", 7, "device", frozenset({"scoring"}), "activations")
        phases = Estimate((STATES, more), LINE).phases("device")
        assert list(phases) == ["init", "generation", "forward+backward", "step", "save"]
        assert (phases["generation"].moment, phases["generation"].size) == ("scoring", 7)


class TestCourse:
    """Two gradients of 6 and 14 elements and bytes. The engine holds 3 before the first and 20 while it takes it; 9 and
    30 around the second, and 1 in the end."""

    TERM = Term("bucket", 0, "device", BACKWARD, "buffers")
    COURSE = BackwardCourse(
        (TERM,), (Handover(0, 6, (3,), (20,)), Handover(6, 14, (9,), (30,)), Handover(20, 0, (1,), (2,)))
    )

    def held(self, *segments: Segment, moment: Moment = "backward", elements: int = 20) -> dict[str, int]:
        line = Timeline(segments, elements, "by hand", 0.0)
        own = Term("bucket", 30, "device", BACKWARD, "buffers", course=self.COURSE)
        return parts(Estimate((STATES, own), line), moment)

    def test_while_a_gradient_is_computed(self) -> None:
        found = self.held(Segment("backward", 100), Segment("backward", 50, 6), Segment("backward", 0, 20))
        assert found == {"states": 100, "activations and temporaries": 100, "bucket": 3}
        found = self.held(Segment("backward", 10), Segment("backward", 90, 6), Segment("backward", 0, 20))
        assert found == {"states": 100, "activations and temporaries": 90, "bucket": 9}

    def test_while_the_engine_takes_it(self) -> None:
        """The segment without its gradient, or what the next one has: 90 - 14 + 30 against 90 + 9, then 70 + 30."""
        found = self.held(Segment("backward", 0), Segment("backward", 90, 6), Segment("backward", 80, 20))
        assert found == {"states": 100, "activations and temporaries": 76, "bucket": 30}
        found = self.held(Segment("backward", 0), Segment("backward", 90, 6), Segment("backward", 70, 20))
        assert found == {"states": 100, "activations and temporaries": 70, "bucket": 30}
        found = self.held(Segment("backward", 8), Segment("backward", 0, 6), Segment("backward", 0, 20))
        assert found == {"states": 100, "bucket": 30}, "activations that were the gradient itself"

    def test_in_the_end_nothing_comes_after(self) -> None:
        found = self.held(Segment("backward", 0), Segment("backward", 0, 6), Segment("backward", 50, 20))
        assert found == {"states": 100, "activations and temporaries": 50, "bucket": 2}

    def test_one_segment_may_have_several_gradients(self) -> None:
        found = self.held(Segment("head backward", 12), Segment("backward", 0, 20), moment="head backward")
        assert found == {"states": 100, "bucket": 30}
        found = self.held(Segment("head backward", 40), Segment("backward", 1, 20), moment="head backward")
        # Both are taken over in it; what the next one has counts for the last alone: 40 - 6 + 20, 40 + 9, 1 + 30.
        assert found == {"states": 100, "activations and temporaries": 34, "bucket": 20}

    def test_elements_are_those_of_the_engine(self) -> None:
        """A trace of a fifth of the elements: its segment at 1 of 4 begins at 5 of 20, before the first is complete,
        and has both: 90 + 3, 90 - 6 + 20, 90 + 9, and 70 + 30 while the second one is taken over."""
        found = self.held(Segment("backward", 0), Segment("backward", 90, 1), Segment("backward", 70, 4), elements=4)
        assert found == {"states": 100, "activations and temporaries": 84, "bucket": 20}


class TestLedger:
    A, B = Entry("a", "buffers", "here"), Entry("b", "optimizer", "there")

    def test_places_are_apart_unless_they_are_one(self) -> None:
        for cpu, peaks in ((False, (5, 7)), (True, (12, 0))):
            ledger = Ledger(cpu)
            ledger.hold(self.A, 5)
            ledger.hold(self.B, 7, "host")
            assert (ledger.peak("init"), ledger.peak("init", "host")) == peaks
            ledger.free(self.B, place="host")
            assert ledger.held["device"] == {self.A: 5} and ledger.held["host"] == {}

    def test_a_part_is_given_back_or_all(self) -> None:
        ledger = Ledger()
        ledger.hold(self.A, 10)
        ledger.free(self.A, 4)
        assert ledger.held["device"] == {self.A: 6}
        ledger.free(self.A, 6)
        assert ledger.held["device"] == {}
        ledger.free(self.A)
        ledger.hold(self.A, 0)
        ledger.hold(self.A, -3)
        ledger.brief(self.A, 0)
        assert ledger.held["device"] == {}
        ledger.hold(self.A, 3)
        ledger.brief(self.A, 0)
        assert ledger.held["device"] == {self.A: 3} and ledger.peak("init") == 10

    def test_a_warm_up_is_forgotten_but_for_how_it_began(self) -> None:
        ledger = Ledger()
        ledger.hold(self.A, 10)
        ledger.enter("forward")
        ledger.brief(self.B, 90)
        ledger.forget()
        ledger.enter("forward")
        assert (ledger.peak("init"), ledger.peak("forward"), ledger.peak("step")) == (10, 10, 0)

    def test_terms_say_in_which_moments_they_are_so_large(self) -> None:
        ledger = Ledger()
        ledger.hold(self.A, 10)
        ledger.enter("forward")
        ledger.hold(self.A, 5)
        ledger.hold(self.B, 1, "nvme")
        ledger.enter("step")
        ledger.free(self.A, 5)
        ledger.enter("save")
        found = {(term.name, term.size, term.place): term.moments for term in ledger.terms(">=1")}
        assert found == {
            ("a", 15, "device"): {"forward", "step"},
            ("a", 10, "device"): {"init", "save"},
            ("b", 1, "nvme"): {"forward", "step", "save"},
        }
        (term, *_) = ledger.terms(">=1")
        assert (term.kind, term.source, term.holds_for, term.course) == ("buffers", "here", ">=1", None)

    def test_the_course_has_the_worst_of_all_passes_and_ends_with_what_is_left(self) -> None:
        """A first micro batch that keeps nothing and a second that holds more while it is taken over."""
        ledger = Ledger()
        for extra in (0, 4):
            ledger.enter("head backward")
            ledger.arrives()
            ledger.hold(self.A, 8)
            ledger.brief(self.B, extra)
            ledger.taken(3, 8 - extra)
            ledger.enter("backward")
            ledger.enter(REDUCTION)
            ledger.brief(self.B, 2)
            ledger.enter("step")
            ledger.free(self.A)
        course = next(term.course for term in ledger.terms("") if term.course)
        assert [term.name for term in course.terms] == ["a", "b"]
        assert all(term.size == 0 and term.place == "device" and term.moments == BACKWARD for term in course.terms)
        assert [(item.produced, item.gradient, item.before, item.during) for item in course.handovers] == [
            (0, 4, (0, 0), (8, 4)),
            (3, 0, (8, 0), (8, 2)),
        ]


class TestModel:
    """Modules with tensors of these sizes: an embedding of 12, two layers of two modules, a norm and a tied head."""

    FACTS = ModelFacts(
        parameters=40,
        vocab_size=4,
        hidden_size=3,
        tied_embeddings=True,
        layout=[Part(modules=[[12]]), Part(modules=[[6, 2], [5]], times=2, block=True), Part(modules=[[2]])],
    )

    def test_modules_in_the_order_in_which_they_are_entered_and_left(self) -> None:
        """A layer is two modules without tensors around its own. Its own are left before the inner one around them."""
        model = model_of(self.FACTS)
        assert [tensor.size for tensor in model.tensors] == [12, 6, 2, 5, 6, 2, 5, 2]
        empty = Module(())
        layers = [empty, empty, Module((1, 2)), Module((3,)), empty, empty, Module((4, 5)), Module((6,))]
        after = [Module((7,), head=True), Module((0,), head=True)]
        assert model.modules == (Module((0,)), *layers, *after, empty, Module((), head=True))
        assert model.forward == (11, 12, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
        assert model.backward == (12, 11, 10, 9, 5, 6, 8, 7, 1, 2, 4, 3, 0)
        assert model.gradients == (7, 6, 5, 4, 3, 2, 1, 0)

    def test_without_a_head_of_its_own_a_model_is_not_tied_to_one(self) -> None:
        apart = self.FACTS.model_copy(update={"tied_embeddings": False})
        assert len(model_of(apart).modules) == len(model_of(self.FACTS).modules) - 1
        bare = self.FACTS.model_copy(update={"layout": self.FACTS.layout[:2], "parameters": 38})
        assert not any(module.head for module in model_of(bare).modules)

    def test_a_vision_part_comes_before_the_matrix_that_is_tied(self) -> None:
        seen = self.FACTS.model_copy(
            update={"layout": [Part(modules=[[7]], frozen=True), *self.FACTS.layout], "parameters": 47}
        )
        model = model_of(seen.model_copy(update={"trainable_parameters": 40}))
        assert model.modules[model.backward[2]].tensors == (1,), "the head is entered first in backward"
        assert (model.frozen, sum(model.trained)) == ((7,), 40) and 0 not in model.gradients

    def test_what_is_trained_of_each_tensor_where_nothing_says_which(self) -> None:
        half = model_of(self.FACTS.model_copy(update={"trainable_parameters": 20, "tied_embeddings": False}))
        assert half.tensors[:4] == (Tensor(6, False), Tensor(6, True), Tensor(3, False), Tensor(3, True))
        assert half.modules[0].tensors == (0, 1) and sum(half.trained) == 6 + 2 * (3 + 1 + 2) + 1

    @pytest.mark.parametrize(
        ("facts", "sizes"),
        [
            (ModelFacts(parameters=1001, largest_parameter=300), [300, 300, 300, 101]),
            (ModelFacts(parameters=900, largest_parameter=300), [300, 300, 300]),
            (ModelFacts(parameters=1000, vocab_size=20, hidden_size=20), [400, 400, 200]),
            (ModelFacts(parameters=1001, tensor_sizes=[(500, 2), (1, 1)]), [500, 500, 1]),
            (ModelFacts(parameters=100, tensor_sizes=[(30, 2)], largest_parameter=60), [60, 40]),
            (ModelFacts(parameters=6400), [100] * 64),
            (ModelFacts(parameters=6401), [101] * 63 + [38]),
            (ModelFacts(parameters=10, largest_parameter=50), [10]),
        ],
    )
    def test_tensors_are_made_up_where_they_are_not_listed(self, facts: ModelFacts, sizes: list[int]) -> None:
        model = model_of(facts)
        assert [tensor.size for tensor in model.tensors] == sizes
        assert all(tensor.trained for tensor in model.tensors) and not any(module.head for module in model.modules)


class TestOptions:
    @pytest.mark.parametrize(
        ("wrong", "right", "says"),
        [
            ({"stage": 4}, {"stage": 3}, "ZeRO stage 4 does not exist"),
            ({"stage": 0, "offload_optimizer": "cpu"}, {"stage": 1, "offload_optimizer": "cpu"}, "only with ZeRO 1"),
            ({"world_size": 0}, {"world_size": 1}, "at least one rank"),
            ({"offload_ratio": 1.01}, {"offload_ratio": 1.0}, "1.01 of the optimizer cannot"),
            ({"offload_ratio": -0.1}, {"offload_ratio": 0.0}, "-0.1 of the optimizer cannot"),
            ({"stage": 2, "offload_param": "cpu"}, {"stage": 3, "offload_param": "cpu"}, "only with ZeRO-3"),
            ({"stage": 2, "offload_optimizer": "nvme"}, {"stage": 3, "offload_optimizer": "nvme"}, "only with ZeRO-3"),
            ({"tensor_parallel": 3}, {"tensor_parallel": 4}, "8 ranks cannot be divided into groups of 3"),
        ],
    )
    def test_what_deepspeed_refuses(self, wrong: dict[str, Any], right: dict[str, Any], says: str) -> None:
        base: dict[str, Any] = {"stage": 2, "world_size": 8}
        Options(**base | right)
        with pytest.raises(ValueError, match=says):
            Options(**base | wrong)

    def test_what_torch_refuses(self) -> None:
        for wrong, says in (
            ({"world_size": 0}, "at least one rank"),
            ({"world_size": 8, "shard_ranks": 3}, "8 ranks cannot be divided into groups of 3"),
        ):
            with pytest.raises(ValueError, match=says):
                TorchOptions("fsdp2", **wrong)  # type: ignore[arg-type]
        assert TorchOptions("fsdp2", 8, shard_ranks=4).data_parallel == 8
        assert TorchOptions("single", 4, tensor_parallel=4).data_parallel == 1

    def test_defaults_that_depend_on_the_stage(self) -> None:
        assert [Options(stage, 8).overlaps for stage in range(4)] == [False, False, False, True]
        assert Options(2, 8, overlap_comm=True).overlaps and not Options(3, 8, overlap_comm=False).overlaps
        assert Options(2, 8, tensor_parallel=4).data_parallel == 2

    @pytest.mark.parametrize(
        ("wrong", "right"),
        [
            ({"micro_batch": 0}, {"micro_batch": 1}),
            ({"sequence_length": 0}, {"sequence_length": 1}),
            ({"completion": 8}, {"completion": 8, "fused_loss": True}),
            ({"completion": 0, "fused_loss": True}, {"completion": 1, "fused_loss": True}),
            ({"completion": 17, "fused_loss": True}, {"completion": 16, "fused_loss": True}),
        ],
    )
    def test_a_micro_batch_has_samples_of_tokens(self, wrong: dict[str, Any], right: dict[str, Any]) -> None:
        base: dict[str, Any] = {"micro_batch": 2, "sequence_length": 16}
        Workload(**base | right)
        with pytest.raises(ValueError, match=r"a micro batch has|a completion is"):
            Workload(**base | wrong)

    def test_images_become_tokens(self) -> None:
        seen = Vision("qwen2", 8, 16, 2, 1, 1, 8, 12, 14, 4)
        assert Images(seen, 3, 28 * 28).tokens == 3 and Images(seen, 0).tokens == 0
        Images(seen, 1, 1)
        for count, pixels in ((-1, 9), (1, 0)):
            with pytest.raises(ValueError, match="of at least one pixel"):
                Images(seen, count, pixels)


def test_the_moments_of_training() -> None:
    assert [moment for moment in MOMENTS if moment not in TRAINING] == ["init"]
