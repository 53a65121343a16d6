"""What is sharded as one, walked through by hand; what a rank of a split model has whole; predictions put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from zerocfg.memory.caching_allocator import MIB, CachingAllocator
from zerocfg.memory.fsdp.first import FirstWalk
from zerocfg.memory.fsdp.second import SecondWalk
from zerocfg.memory.fsdp.units import Units, units_of
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.predict import predict, terms_of
from zerocfg.memory.replicated import remainder_terms
from zerocfg.memory.rollouts import Sampling
from zerocfg.memory.sharding import torch_terms
from zerocfg.memory.tensor_parallel import config_of_rank, facts_of_rank, timeline_of_rank
from zerocfg.memory.terms import MOMENTS, Segment, Term, Timeline
from zerocfg.models.hardware import Accelerator
from zerocfg.models.model_facts import ModelFacts, Part, from_config

LAYER, TABLE, NORM = 1000, 4000, 8
FACTS = ModelFacts(
    parameters=2 * TABLE + 3 * LAYER + NORM,
    vocab_size=500,
    hidden_size=8,
    num_hidden_layers=3,
    largest_parameter=TABLE,
    layout=[
        Part(modules=[[TABLE]]),
        Part(modules=[[600], [400]], times=3, block=True),
        Part(modules=[[NORM]]),
        Part(modules=[[TABLE]]),
    ],
)
TIED = FACTS.model_copy(
    update={"parameters": TABLE + 3 * LAYER + NORM, "tied_embeddings": True, "layout": FACTS.layout[:3]}
)


class TestUnits:
    def test_the_first_keeps_all_that_is_outside_of_blocks_in_its_root(self) -> None:
        blocks = (LAYER,) * 3
        assert units_of(FACTS, fsdp1=True) == Units(0, blocks, 2 * TABLE + NORM, TABLE + NORM)
        assert units_of(TIED, fsdp1=True) == Units(0, blocks, TABLE + NORM, TABLE + NORM)

    def test_of_the_second_an_embedding_that_is_not_tied_is_one(self) -> None:
        blocks = (LAYER,) * 3
        assert units_of(FACTS, fsdp1=False) == Units(TABLE, blocks, TABLE + NORM, TABLE + NORM)
        assert units_of(TIED, fsdp1=False) == Units(0, blocks, TABLE + NORM, TABLE + NORM)

    def test_adapters_are_in_the_blocks_or_units_of_their_own(self) -> None:
        update = {"parameters": (FACTS.parameters or 0) + 3 * 90, "trainable_parameters": 3 * 90}
        inside = units_of(FACTS.model_copy(update=update), fsdp1=True)
        assert inside == Units(0, (LAYER + 90,) * 3, 2 * TABLE + NORM, TABLE + NORM)
        apart = units_of(FACTS.model_copy(update=update | {"adapters": [60, 30]}), fsdp1=True)
        assert apart == Units(0, (LAYER,) * 3, 2 * TABLE + NORM, TABLE + NORM)
        second = units_of(FACTS.model_copy(update=update | {"adapters": [60, 30]}), fsdp1=False)
        assert second.blocks == (LAYER + 90,) * 3

    def test_of_a_model_that_is_not_listed_the_largest_block_counts(self) -> None:
        bare = FACTS.model_copy(update={"layout": [], "largest_block": 900})
        assert units_of(bare, fsdp1=False) == Units(TABLE, (900,) * 3, 3 * 100 + TABLE + NORM, 3 * 100 + TABLE + NORM)
        small = bare.model_copy(update={"parameters": 2900})
        assert units_of(small, fsdp1=False) == Units(200, (900,) * 3, 0, 0), "no more than there is"
        for unknown in ({"largest_block": None}, {"num_hidden_layers": None}):
            with pytest.raises(ValueError, match="the size of this model's blocks is not known"):
                units_of(bare.model_copy(update=unknown), fsdp1=False)


def peaks(walk: FirstWalk | SecondWalk) -> tuple[int, int]:
    """The most beyond what rests, in forward and in backward."""
    return max(walk.peak["forward"], walk.peak["loss"]), max(walk.peak["head backward"], walk.peak["backward"])


class TestWalks:
    """Four ranks, bf16 over fp32: gathered units take 2 bytes an element, a rank's gradients 4 of a fourth."""

    ROOT = 2 * TABLE + NORM
    OWN = (2 * TABLE + 3 * LAYER + NORM) // 4

    def first(self, facts: ModelFacts = FACTS, **more: Any) -> tuple[int, int]:
        return peaks(FirstWalk(facts, TorchOptions("fsdp1", 4, **more)))

    def second(self, facts: ModelFacts = FACTS, **more: Any) -> tuple[int, int]:
        return peaks(SecondWalk(facts, TorchOptions("fsdp2", 4, **more)))

    def test_forward_of_the_first(self) -> None:
        """The root with two blocks, the next of which is gathered while the last computes: with prefetching, from the
        start. A shard in 16 bit is there while a unit is gathered."""
        root, layer = 2 * self.ROOT, 2 * LAYER
        assert self.first()[0] == max(root + layer + layer // 4, root + root // 4)
        assert self.first(forward_prefetch=True)[0] == max(root + 2 * layer + layer // 4, root + root // 4)
        assert self.first(reshard_after_forward=False)[0] == root + 3 * layer + layer // 4
        assert self.first(master=False)[0] == root + layer, "what is kept in 16 bit needs no copy"
        assert self.first(cpu_offload=True)[0] == self.first()[0], "one from the host is as large"

    def test_backward_of_the_first(self) -> None:
        """The root stays. The head's gradient waits for the root's; a block's gradients are joined into a flat one,
        which is reduced in 16 bit and added to the shards in fp32. The next block is there already."""
        root, layer, head = 2 * self.ROOT, 2 * LAYER, 2 * (TABLE + NORM)
        blocks = root + head + 2 * layer + layer + layer + LAYER
        # In the end only the root is left: its gradient, flat and not yet, beside the shards of all blocks.
        end = root + 2 * 2 * self.ROOT + 3 * LAYER
        assert self.first()[1] == max(blocks, end)
        assert self.first(backward_prefetch="none")[1] == end
        small = FACTS.model_copy(
            update={"parameters": 2 * 40 + 3 * LAYER + NORM, "vocab_size": 5, "largest_parameter": 600}
        )
        root, head = 2 * (2 * 40 + NORM), 2 * (40 + NORM)
        # Beside it shards in fp32 over four ranks: of the block before, or without the next block, of the two before.
        assert self.first(small)[1] == root + head + 2 * layer + 2 * layer + LAYER
        assert self.first(small, backward_prefetch="none")[1] == root + head + layer + 2 * layer + 2 * LAYER

    def test_forward_of_the_second(self) -> None:
        """An all-gather has an output of its own, which is dropped when that of the next unit has been copied out."""
        tail, table, layer = 2 * (TABLE + NORM), 2 * TABLE, 2 * LAYER
        # The tail comes last: its output and its parameters, beside the output of the last block.
        assert self.second()[0] == max(layer + 2 * tail, table + layer + 2 * layer)
        assert self.second(reshard_after_forward=False)[0] == table + 3 * layer + layer + 2 * tail
        # Tied, it comes first and stays.
        assert self.second(TIED)[0] == max(2 * tail, tail + layer + 2 * layer, tail + tail + 2 * layer)

    def test_what_waits_for_the_last_micro_batch(self) -> None:
        """Whole gradients in 16 bit of the micro batches before."""
        every = 2 * (2 * TABLE + 3 * LAYER + NORM)
        for kind in ("fsdp1", "fsdp2"):
            options = TorchOptions(kind, 4, gradient_accumulation_steps=3)
            terms = [term for term in torch_terms(FACTS, options) if term.name == "gradients not yet reduced"]
            assert {term.size for term in terms if "forward" in term.moments} == {every}, kind
            (held,) = [
                term
                for term in torch_terms(FACTS, options)
                if term.name == "gradients" and not term.grows and "step" in term.moments
            ]
            assert held.size == 4 * self.OWN
        plain = torch_terms(FACTS, TorchOptions("fsdp2", 4))
        assert not [term for term in plain if term.name == "gradients not yet reduced"]
        (growing,) = [term for term in plain if term.name == "gradients"]
        assert growing.grows and growing.size == 4 * self.OWN

    def test_alone_there_is_nothing_to_gather(self) -> None:
        """NO_SHARD of FSDP 1 casts units; FSDP 2 copies parameter by parameter. In one dtype neither does."""
        item = {"world_size": 1, "precision": "bf16"}
        assert peaks(FirstWalk(FACTS, TorchOptions("fsdp1", **item, master=False)))[0] == 0  # type: ignore[arg-type]
        mixed = peaks(FirstWalk(FACTS, TorchOptions("fsdp1", **item)))[0]  # type: ignore[arg-type]
        assert mixed == 2 * self.ROOT + 2 * LAYER

    def test_adapters_in_blocks_have_gradients_and_nothing_else(self) -> None:
        """FSDP 2 shards each parameter by itself: of a block what is trained is copied, reduced and kept in fp32."""
        update = {"parameters": (FACTS.parameters or 0) + 3 * 96, "trainable_parameters": 3 * 96}
        facts = FACTS.model_copy(update=update)
        terms = torch_terms(facts, TorchOptions("fsdp2", 4))
        sizes = {term.name: term.size for term in terms if "step" in term.moments}
        assert sizes == {
            "parameters": 2 * (FACTS.parameters or 0) // 4 + 4 * 3 * 96 // 4,
            "gradients": 4 * 3 * 96 // 4,
            "optimizer moments": 8 * 3 * 96 // 4,
            "temporaries of the optimizer": 4 * 3 * 96 // 4,
        }
        units = {term.size for term in terms if term.name == "gradients of a unit" and "backward" in term.moments}
        assert units == {2 * 96}


class TestSplit:
    """A tied or untied LLaMA on two ranks of transformers, its vocabulary an odd one."""

    CONFIG: ClassVar[dict[str, Any]] = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "vocab_size": 511,
        "tie_word_embeddings": False,
    }
    ALONE = TorchOptions("single", 2, tensor_parallel=2, master=False)

    def test_the_gradient_of_a_split_embedding_is_whole_unless_the_head_s_is_added(self) -> None:
        """A rank has 256 of 511 rows; the rest of the gradient is the others' 255."""
        for tied, rest in ((False, 2 * 255 * 64), (True, 0)):
            config = {**self.CONFIG, "tie_word_embeddings": tied}
            facts = facts_of_rank(from_config(config), config, self.ALONE)
            found = [term for term in torch_terms(facts, self.ALONE) if term.name == "rest of the embedding's gradient"]
            assert [term.size for term in found] == ([rest] if rest else [])
            assert all(term.moments == {"head backward", "backward", "step"} for term in found)
        single = torch_terms(from_config(self.CONFIG), TorchOptions("single", 1))
        assert not [term for term in single if "rest of" in term.name]

    def test_the_config_of_a_rank(self) -> None:
        found = config_of_rank(self.CONFIG, self.ALONE)
        assert found is not None
        shape = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 88}
        assert {key: found[key] for key in shape} == shape and found["vocab_size"] == 511
        wide = config_of_rank({**self.CONFIG, "head_dim": 16}, self.ALONE)
        assert wide is not None and wide["head_dim"] == 16

    def test_a_loss_in_pieces_has_no_part_of_a_head(self) -> None:
        facts = facts_of_rank(from_config(self.CONFIG), self.CONFIG, self.ALONE)
        assert timeline_of_rank(facts, Workload(1, 16), "bf16", self.CONFIG, self.ALONE).segments
        with pytest.raises(ValueError, match="the loss is computed in pieces"):
            timeline_of_rank(facts, Workload(1, 16, fused_loss=True), "bf16", self.CONFIG, self.ALONE)
        whole = TorchOptions("single", 1)
        cut = Workload(1, 16, fused_loss=True)
        assert timeline_of_rank(from_config(self.CONFIG), cut, "bf16", self.CONFIG, whole).segments

    def test_of_a_model_that_is_not_counted_the_reason_is_said(self) -> None:
        facts = from_config(self.CONFIG).model_copy(update={"parameters": None, "unknown_because": "odd shapes"})
        with pytest.raises(ValueError, match=r"^odd shapes$"):
            facts_of_rank(facts, self.CONFIG, self.ALONE)
        silent = facts.model_copy(update={"unknown_because": None})
        with pytest.raises(ValueError, match=r"^the number of parameters is not known$"):
            facts_of_rank(silent, self.CONFIG, self.ALONE)


CARD = Accelerator(name="card", vendor="nvidia", memory_gib=80, architecture="9.0")


class TestPrediction:
    LINE = Timeline((Segment("forward", 500), Segment("backward", 900)), 10, "by hand", 0.02)
    OPTIONS = TorchOptions("single", 1, master=False, optimizer="adamw_fused")

    def test_terms_are_those_of_the_engine_and_of_the_card(self) -> None:
        processor = CARD.model_copy(update={"vendor": "cpu"})
        bare, cpu, card = (
            {term.name for term in terms_of(FACTS, self.OPTIONS, where)} for where in (None, processor, CARD)
        )
        states = {"parameters", "gradients", "optimizer moments"}
        assert bare == cpu == states
        assert card == states | {"remainders of the allocator's blocks", "cuBLAS workspaces"}
        zero = {term.name for term in terms_of(FACTS, Options(2, 4, offload_optimizer="cpu"), CARD)}
        assert {"pinned blocks, rounded up", "cuBLAS workspaces", "master weights"} <= zero

    def test_what_is_given_is_not_computed_again(self) -> None:
        own = (Term("own", 10**9, "device", frozenset(MOMENTS), "parameters"),)
        found = predict(FACTS, self.OPTIONS, self.LINE, CARD, own)
        assert found.estimate.terms == own and found.worst.size == 10**9 + 900 and found.complete
        assert found.allocated.expected == 10**9 + 900
        assert found.reserved.expected == int((10**9 + 900) * found.tier.reserve)
        assert found.device.expected == found.reserved.expected + int(0.75 * 2**30)
        bare = predict(FACTS, self.OPTIONS, None, CARD, own)
        assert not bare.complete and bare.worst.size == 10**9

    def test_the_error_of_the_activations_widens_the_band(self) -> None:
        line = replace(self.LINE, segments=(Segment("forward", 10**6),))
        exact, rough = (predict(FACTS, self.OPTIONS, replace(line, error=error)) for error in (0.0, 0.5))
        assert rough.allocated.high > exact.allocated.high and rough.allocated.expected == exact.allocated.expected

    def test_sampling_is_never_narrow(self) -> None:
        from zerocfg.memory.options import Rollouts

        facts = FACTS.model_copy(update={"model_type": "llama"})
        sampled = predict(facts, self.OPTIONS, self.LINE, CARD, sampling=Sampling(Rollouts("vLLM server"), None, {}))
        assert sampled.tier.reason == "no sampling was measured" and not sampled.tier.narrow
        assert predict(facts, self.OPTIONS, self.LINE, CARD).tier.narrow


class TestAllocator:
    def test_segments(self) -> None:
        """Small blocks share 2 MiB; below 10 MiB they share 20, above they have their own, rounded up to 2 MiB."""
        for size, segment in ((1, 2), (2, 20), (9, 20)):
            blocks = CachingAllocator()
            block = blocks.allocate(size * MIB)
            assert block.after is not None and block.size + block.after.size == segment * MIB, size
        assert CachingAllocator().allocate(10 * MIB - 512).after is not None
        whole = CachingAllocator().allocate(10 * MIB)
        assert (whole.size, whole.after) == (10 * MIB, None)
        assert CachingAllocator().allocate(11 * MIB).size == 12 * MIB

    def test_nothing_is_allocated_for_nothing(self) -> None:
        blocks = CachingAllocator()
        assert blocks.lost([0, 0]) == 0 and blocks.allocated == 0
        assert blocks.lost([1]) == 511

    def test_blocks_between_two_free_ones_join_both(self) -> None:
        blocks = CachingAllocator()
        item, two, three, _ = (blocks.allocate(5 * MIB) for _ in range(4))
        blocks.release(item)
        blocks.release(three)
        blocks.release(two)
        assert blocks.allocated == 5 * MIB
        joined = blocks.allocate(15 * MIB)
        assert joined.size == 15 * MIB and blocks.allocated == 20 * MIB, "all of the segment"

    def test_remainders_of_master_copies_and_frozen_models(self) -> None:
        """Four of 11 MiB in 16 bit are 22 MiB in fp32, which is even: nothing is left over."""
        facts = ModelFacts(parameters=4 * 11 * MIB // 2, layout=[Part(modules=[[11 * MIB // 2]], times=4)])
        assert not [term.size for term in remainder_terms(facts, TorchOptions("single", 1)) if term.size]
        assert not list(remainder_terms(facts.model_copy(update={"layout": []}), TorchOptions("single", 1)))
        assert not list(remainder_terms(facts, TorchOptions("single", 2, tensor_parallel=2)))
