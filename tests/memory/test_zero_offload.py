"""ZeRO on a card with its host: every term of every moment, counted by hand from DeepSpeed's source (0.19.8).

On processors device and host are one memory, so that the recorded runs (``test_zero_recorded.py``) tell nothing of
where a term lies. The model of ``test_zero.py``: an embedding of 4000, two layers of 600 and 400, a head of 4000. Four
ranks own 2500 elements each. The rank of ZeRO 1 and 2 that touches most owns the elements 2500 to 5000: a part of the
embedding and the first layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.memory.test_zero import TINY, held
from zerocfg.memory.host import Block, loading_terms, node_band, node_bytes, pinned_blocks, rounding_terms
from zerocfg.memory.measured_spread import MEASURED
from zerocfg.memory.options import Options
from zerocfg.memory.overhead import around
from zerocfg.memory.terms import ALWAYS, MOMENTS, TRAINING, Moment, Place, Term
from zerocfg.memory.zero.replay import zero_terms

P, OWN, TABLE = 10_000, 2500, 4000
SMALL: dict[str, Any] = {"optimizer": "adamw_fused", "reduce_bucket_size": 500}
CPU: dict[str, Any] = {**SMALL, "offload_optimizer": "cpu"}
STEPS: tuple[Moment, ...] = ("forward", "loss", "head backward", "backward", "step", "save")
Sizes = dict[str, int]


def check(options: Options, place: Place, expected: dict[Moment, Sizes]) -> None:
    terms = zero_terms(TINY, options)
    for moment, sizes in expected.items():
        assert held(terms, moment, place) == sizes, moment


def test_zero_2_with_its_optimizer_on_the_host() -> None:
    """stage_1_and_2.py: __init__ pins a fp32 copy of the partition, one in 16 bit to stage parameters in, and one of
    the largest parameter, which is on the card, too. A gradient larger than the bucket is cloned; that of the embedding
    is normed in fp64, 1500 elements of it."""
    options = Options(2, 4, **CPU)
    rest = {"parameters": 2 * P, "largest parameter, copied": 2 * TABLE}
    large = {"gradient larger than the bucket": 2 * TABLE, "reduce bucket": 2 * 500}
    check(
        options,
        "device",
        {
            "init": rest,
            "forward": rest,
            "loss": rest,
            "head backward": {**rest, **large, "gradients": 2 * TABLE},
            "backward": {**rest, **large, "gradient in fp64 for its norm": 8 * 1500},
            "step": rest,
            "save": rest,
        },
    )
    states = {
        "master weights": 4 * OWN,
        "fp32 gradients": 4 * OWN,
        "16-bit staging of parameters": 2 * OWN,
        "largest parameter, copied": 2 * TABLE,
    }
    trained = {**states, "optimizer moments": 8 * OWN}
    unpinned = {"host memory before it is pinned": 4 * OWN}
    check(options, "host", {"init": {**states, **unpinned}, **dict.fromkeys(STEPS, trained)})
    check(replace(options, pin_optimizer=False), "host", {"init": states})


def test_accumulating_there_keeps_gradients_on_the_host_or_in_fp32_on_the_card() -> None:
    """async_accumulate_grad_in_cpu_via_gpu keeps whole gradients of what the partition touches, 5000 elements;
    _build_compact_grad_partition_buffer the partition alone, on the card until the step."""
    twice = Options(2, 4, gradient_accumulation_steps=2, **CPU)
    for moment in STEPS:
        assert held(zero_terms(TINY, twice), moment, "host")["accumulated gradients"] == 2 * 5000
    wide = replace(twice, accumulation="fp32")
    terms, name = zero_terms(TINY, wide), "fp32 gradients of the partition"
    found = [held(terms, moment).get(name, 0) for moment in MOMENTS]
    assert found == [0, 4 * OWN, 4 * OWN, 4 * OWN, 4 * OWN, 4 * OWN, 0]
    assert not [term for term in terms if term.name == "accumulated gradients"]
    once = zero_terms(TINY, replace(wide, gradient_accumulation_steps=1))
    assert [held(once, moment).get(name, 0) for moment in MOMENTS] == [0, 0, 0, 0, 4 * OWN, 4 * OWN, 0]


def test_zero_3_on_cards() -> None:
    """The layers' smaller matrices persist (400 elements). Of the gradients of a step the norm of the largest part is
    computed first; flattened and in fp32 they are held together."""
    options = Options(3, 4, param_persistence_threshold=400, gather_on_save=True, **SMALL)
    states = {"parameters": 2 * OWN, "master weights": 4 * OWN}
    bucket = {"gradients of the partition": 2 * OWN, "reduce bucket": 2 * 500}
    rest = {**states, **bucket, "optimizer moments": 8 * OWN}
    step = {"gradients of the step, flattened": 2 * OWN, "gradients of the step in fp32": 4 * OWN}
    persistent = {"persistent small parameters": 2 * 800}
    raw = {"gradients before they are reduced": 2 * TABLE}
    check(
        options,
        "device",
        {
            "init": {**states, **bucket, "parameter gathered to hook its gradient": 2 * TABLE},
            "head backward": {**rest, **persistent, **raw, "gathered parameters": 2 * (2 * TABLE + 2 * 600)},
            "step": {**rest, **step},
            "save": {**rest, **persistent, "parameters gathered to be saved": 2 * TABLE},
        },
    )
    check(options, "host", {"step": {}, "save": {"16-bit weights to be saved (rank 0)": 2 * P}})
    without = zero_terms(TINY, replace(options, gather_on_save=False))
    assert held(without, "save") == {**rest, **persistent} and not held(without, "save", "host")
    # has_overflow of fp16 compares the partition in 16 bit and holds a byte an element beside it, less than the step.
    wide = replace(options, precision="fp16", accumulation="fp32", sub_group_size=1)
    assert held(zero_terms(TINY, wide), "step")["search for infinite gradients"] == 4 * OWN + OWN
    narrow = replace(wide, precision="bf16")
    assert "search for infinite gradients" not in held(zero_terms(TINY, narrow), "step")


def test_zero_3_with_all_of_it_on_the_host() -> None:
    """Every parameter is small here and persists on the card, from the first step on. A partition of a gradient comes
    back from the host in 16 bit and is normed in fp64."""
    options = Options(3, 4, offload_param="cpu", **CPU)
    bucket, persistent = {"reduce bucket": 2 * 500}, {"persistent small parameters": 2 * P}
    back = {"partition of a gradient, back from the host": 2 * TABLE // 4, "gradient in fp64 for its norm": 2 * TABLE}
    rest = {**bucket, **persistent}
    check(
        options,
        "device",
        {
            "init": {**bucket, "parameter gathered to hook its gradient": 2 * TABLE},
            "forward": rest,
            "loss": rest,
            "head backward": {**rest, "gradients before they are reduced": 2 * TABLE},
            "backward": {**rest, **back, "gradients before they are reduced": 2 * (TABLE + 400)},
            "step": rest,
            "save": rest,
        },
    )
    states = {"parameters": 2 * OWN, "master weights": 4 * OWN, "fp32 gradients": 4 * OWN}
    setup = {"gradient to set up the optimizer": 4 * OWN, "host memory before it is pinned": 4 * OWN}
    trained = {**states, "gradients of the partition": 2 * OWN, "optimizer moments": 8 * OWN}
    check(options, "host", {"init": {**states, **setup}, **dict.fromkeys(STEPS, trained)})


def test_zero_3_on_the_host_in_steps_that_update_parameters_on_the_card() -> None:
    """With parameters on the card the updated ones are converted on the host first, a sub group at a time."""
    options = Options(3, 4, **CPU)
    terms = zero_terms(TINY, options)
    name = "updated parameters in 16 bit on the host"
    assert held(terms, "step", "host")[name] == 2 * OWN and name not in held(terms, "backward", "host")
    groups = zero_terms(TINY, replace(options, sub_group_size=1000))
    assert held(groups, "step", "host")[name] == 2 * 1500, "the embedding's part alone, then all others"
    for other in (replace(options, offload_param="cpu"), replace(options, precision="fp32")):
        assert name not in held(zero_terms(TINY, other), "step", "host")
    unpinned = held(zero_terms(TINY, replace(options, pin_optimizer=False)), "init", "host")
    assert "host memory before it is pinned" not in unpinned


def test_zero_3_with_drives() -> None:
    """Four fp32 buffers as large as the largest sub group for the optimizer, and for parameters five of a stated size;
    of these the host keeps as much as it may."""
    options = Options(
        3, 4, offload_param="nvme", offload_optimizer="nvme", nvme_param_buffer_size=7000, nvme_max_in_cpu=2400, **SMALL
    )
    swap = {"swap buffers of the optimizer": 4 * 4 * OWN, "swap buffers of parameters": 2 * 5 * 7000}
    rest = {**swap, "parameters kept on the host": 2 * 2400}
    setup = {"gradient to set up the optimizer": 4 * OWN}
    trained = {**rest, "gradients of the partition": 2 * OWN}
    check(
        options,
        "host",
        {"init": {**rest, **setup}, **dict.fromkeys(STEPS, trained)},
    )
    drive = {"parameters": 2 * OWN, "master weights": 4 * OWN}
    later = {**drive, "optimizer moments": 8 * OWN}
    check(options, "nvme", {"init": drive, **dict.fromkeys(STEPS, later)})
    fewer = zero_terms(TINY, replace(options, nvme_optimizer_buffers=3, nvme_param_buffers=2, sub_group_size=1000))
    found = held(fewer, "forward", "host")
    assert found["swap buffers of the optimizer"] == 4 * 3 * 1500
    assert found["swap buffers of parameters"] == 2 * 2 * 7000


def test_stage_0_on_cards() -> None:
    """unfused_optimizer.py: the wrapper of torch's optimizers makes fp32 copies, and sets the optimizer up with zero
    gradients in 16 bit and fp32. AdamW by foreach holds the root of the second moments in each step."""
    options = Options(0, 4, optimizer="adamw_foreach")
    states = {"parameters": 2 * P, "master weights": 4 * P, "optimizer moments": 8 * P}
    root = {"temporaries of the optimizer": 4 * P}
    check(
        options,
        "device",
        {
            "init": {**states, **root, "gradients to set up the optimizer": 6 * P},
            "forward": states,
            "head backward": {**states, "gradients": 2 * TABLE},
            "backward": {**states, "gradients": 2 * P, "reduce bucket": 2 * P},
            "step": {**states, **root, "gradients": 2 * P, "gradients of the step in fp32": 4 * P},
            "save": states,
        },
    )
    # DeepSpeed's own Adam is flattened: the clones go when the flat copy is there, and it takes no temporaries.
    check(
        replace(options, optimizer="fused_adam"),
        "device",
        {
            "init": {**states, "gradients to set up the optimizer": 4 * P},
            "step": {
                **states,
                "gradients": 2 * P,
                "gradients of the step in fp32": 4 * P,
                "gradients of the step, flattened": 4 * P,
            },
        },
    )
    single = {"parameters": 4 * P, "optimizer moments": 8 * P}
    check(
        replace(options, precision="fp32"),
        "device",
        {"init": {"parameters": 4 * P}, "forward": single, "step": {**single, **root, "gradients": 4 * P}},
    )


def test_bf16_accumulated_in_fp32_by_stage_1() -> None:
    """bf16_optimizer.py: fp32 gradients of all parameters, from the start; each arriving one is cast beside itself."""
    options = Options(1, 4, accumulation="fp32", optimizer="adamw_foreach")
    init = {"parameters": 2 * P, "master weights": 4 * OWN, "fp32 gradients": 4 * P}
    rest = {**init, "optimizer moments": 8 * OWN}
    check(
        options,
        "device",
        {
            "init": init,
            "forward": rest,
            "head backward": {**rest, "gradients": 2 * TABLE, "gradient in fp32": 4 * TABLE},
            "backward": {**rest, "gradients": 2 * P, "reduce bucket": 2 * P},
            "step": {**rest, "gradients": 2 * P, "temporaries of the optimizer": 4 * OWN},
            "save": rest,
        },
    )


def test_hpz_keeps_a_partition_among_the_ranks_of_a_node() -> None:
    """Two ranks of four share a secondary copy of what is trained, out of date from the end of a step on."""
    options = Options(3, 4, secondary_partition_size=2, param_persistence_threshold=0, **SMALL)
    terms = zero_terms(TINY, options)
    found = [held(terms, moment).get("secondary partitions (hpZ)", 0) for moment in MOMENTS]
    assert found[0] == 2 * P // 2 and found[-1] == 0
    assert held(terms, "step")["secondary partitions (hpZ)"] == 2 * P // 2
    alone = zero_terms(TINY, replace(options, secondary_partition_size=1))
    assert not [term for term in alone if "secondary" in term.name]


def test_of_a_frozen_model_nothing_but_parameters_is_held() -> None:
    """ZeRO-3 divides a parameter that is there whole at first, the largest one at the most."""
    frozen = TINY.model_copy(update={"trainable_parameters": 0})
    for options, name, more in (
        (Options(0, 4, optimizer="adamw_fused"), "frozen parameters", {}),
        (Options(1, 4, **SMALL), "frozen parameters", {}),
        (Options(2, 4, **SMALL), "frozen parameters", {}),
        (Options(3, 4, **SMALL), "parameters", {"parameters before they are partitioned": 2 * TABLE}),
    ):
        init = held(zero_terms(frozen, options), "init")
        assert init == {name: 2 * P // (4 if options.stage == 3 else 1), **more}, options.stage


def test_accumulating_without_a_contiguous_buffer_adds_to_what_is_there() -> None:
    """Gradients of a second micro batch go when they have been added to the first one's, which are kept as they are."""
    twice = Options(2, 4, contiguous_gradients=False, gradient_accumulation_steps=2, **SMALL)
    mine = 2 * 5000
    terms = zero_terms(TINY, twice)
    assert held(terms, "forward")["gradients"] == mine
    once = zero_terms(TINY, replace(twice, gradient_accumulation_steps=1))
    assert "gradients" not in held(once, "forward") and held(once, "step")["gradients"] == mine
    assert held(terms, "step")["gradients"] == mine


class TestHost:
    def test_what_a_rank_of_zero_2_pins(self) -> None:
        options = Options(2, 4, **CPU)
        blocks = {block.name: (block.size, block.times, block.moments) for block in pinned_blocks(TINY, options)}
        assert blocks == {
            "master weights": (4 * OWN, 1, ALWAYS),
            "16-bit staging of parameters": (2 * OWN, 1, ALWAYS),
            "largest parameter, copied": (2 * TABLE, 1, ALWAYS),
            "fp32 gradients": (4 * OWN, 1, ALWAYS),
        }
        twice = replace(options, gradient_accumulation_steps=2)
        more = [block for block in pinned_blocks(TINY, twice) if block.name == "accumulated gradients"]
        assert [(block.size, block.times, block.moments) for block in more] == [
            (2 * size, 1, TRAINING) for size in (4000, 600, 400)
        ]
        assert pinned_blocks(TINY, replace(twice, accumulation="fp32")) == pinned_blocks(TINY, options)
        for none in (replace(options, pin_optimizer=False), Options(2, 4), Options(3, 4)):
            assert pinned_blocks(TINY, none) == ()

    def test_what_a_rank_of_zero_3_pins(self) -> None:
        def sizes(**more: Any) -> list[tuple[str, int]]:
            return [(block.name, block.size) for block in pinned_blocks(TINY, Options(3, 4, **SMALL, **more))]

        gradients = ("gradients of the partition", 2 * OWN)
        assert sizes(offload_optimizer="cpu") == [gradients, ("fp32 gradients", 4 * OWN)]
        assert sizes(offload_optimizer="cpu", accumulation="fp32")[0] == ("gradients of the partition", 4 * OWN)
        parts = [1000, 150 + 100 + 150 + 100 + 1000]
        groups = sizes(offload_optimizer="cpu", sub_group_size=1000)
        assert groups == [gradients, *(("fp32 gradients", 4 * part) for part in parts)]
        kept = sizes(offload_optimizer="cpu", sub_group_size=1000, offload_ratio=0.5)
        assert kept == [gradients, ("fp32 gradients", 4 * parts[1])], "the first group stays on the card"
        assert sizes(offload_optimizer="nvme") == [gradients]
        assert sizes(offload_param="cpu") == [("parameters", 2 * OWN)]
        assert sizes(offload_param="nvme", nvme_max_in_cpu=100) == [("parameters kept on the host", 2 * 100)]
        assert sizes(offload_param="nvme") == [("parameters kept on the host", 2 * OWN)]
        assert sizes(offload_param="cpu", offload_optimizer="cpu", pin_optimizer=False) == [("parameters", 2 * OWN)]

    def test_rounding_of_what_is_there_while_gradients_are(self) -> None:
        assert Block("a", 5, 3).lost == 3 * (8 - 5) and Block("a", 8, 3).lost == 0
        twice = Options(2, 4, gradient_accumulation_steps=2, **CPU)
        found = {term.moments: term.size for term in rounding_terms(TINY, twice)}
        assert found == {
            ALWAYS: 2 * (2**14 - 10_000) + (2**13 - 5000) + (2**13 - 8000),
            TRAINING: (2**13 - 8000) + (2**11 - 1200) + (2**10 - 800),
        }
        assert all(term.place == "host" and term.kind == "outside" for term in rounding_terms(TINY, twice))

    def test_a_checkpoint_is_as_wide_as_it_is_stored(self) -> None:
        (each,) = loading_terms(TINY, Options(2, 8))
        assert (each.name, each.size, each.place, each.moments) == ("model loaded on the host", 2 * P, "host", {"init"})
        (alone,) = loading_terms(TINY, Options(3, 8), width=4)
        assert (alone.name, alone.size) == ("checkpoint read on rank 0", 4 * P)
        for options in (Options(3, 8, zero_init=False), Options(2, 8, zero_init=True)):
            assert loading_terms(TINY, options)[0].name == "model loaded on the host"

    @pytest.mark.parametrize(
        ("loaded", "read", "expected"), [(0, 0, 3 * 12 + 5), (14, 0, 42), (13, 0, 41), (0, 42, 42)]
    )
    def test_a_node_holds_loading_or_training_whichever_is_more(self, loaded: int, read: int, expected: int) -> None:
        """Three ranks with 10 bytes each and 2 more in the step, where rank 0 alone holds 5; a term of the card."""
        terms = (
            Term("states", 10, "host", ALWAYS, "optimizer"),
            Term("swap", 2, "host", frozenset({"step"}), "buffers"),
            Term("16-bit weights to be saved (rank 0)", 5, "host", frozenset({"step"}), "parameters"),
            Term("card", 1000, "device", ALWAYS, "parameters"),
            Term("model loaded on the host", loaded, "host", frozenset({"init"}), "parameters"),
            Term("checkpoint read on rank 0", read, "host", frozenset({"init"}), "parameters"),
        )
        assert node_bytes(terms, 3) == expected

    def test_the_band_of_a_node_is_that_of_states(self) -> None:
        assert node_band(10**9) == around(10**9, MEASURED.states * 10**9)
        assert node_band(10**9).high > 1.05 * 10**9
