"""What images keep for backward, counted by hand operator by operator; held against real tensors by test_images.py.

Two images of 168 by 168 pixels for each of three samples: 144 patches of 14 by 14 an image. The tower is 128 wide with
4 heads. One layer saves for each row, with ``e`` bytes an element: two norms, attention, feed-forward part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.memory.test_images import CONFIGS, SIDE, vision
from zerocfg.memory.activations.vision import ERROR, with_images
from zerocfg.memory.options import Attention, Images, Precision, Workload
from zerocfg.memory.terms import Segment, Timeline
from zerocfg.memory.time.flops import Kernels, work
from zerocfg.models.model_facts import from_config

H, HEADS, TEXT = 128, 4, 96
SAMPLES, IMAGES, PATCHES = 3, 2, 144
COUNT = SAMPLES * IMAGES
VALUES = 3 * 14 * 14  # of a patch in one frame; Qwen reads two frames


def load(name: str, attention: Attention = "sdpa", checkpointing: bool = False, images: int = IMAGES) -> Workload:
    seen = Images(vision(name), images, SIDE * SIDE)
    return Workload(SAMPLES, 320, checkpointing, attention, images=seen)


TOKENS = {"qwen2_vl": PATCHES // 4, "qwen2_5_vl": PATCHES // 4, "llava": PATCHES}
"""Of an image in the text."""
ROWS = {"qwen2_vl": PATCHES, "qwen2_5_vl": PATCHES, "llava": PATCHES + 1}
USED = {"qwen2_vl": 4, "qwen2_5_vl": 4, "llava": 4}
"""Layers; of LLaVA's five the last one's result is not used."""


def layer(name: str, e: int, attention: Attention) -> int:
    """Bytes that a layer saves for a row."""
    norms = {"qwen2_vl": 2 * 2 * e * H, "qwen2_5_vl": 2 * (4 + 2 * e) * H, "llava": 2 * 2 * e * H}[name]
    inner = {"qwen2_vl": 3 * e * 4 * H, "qwen2_5_vl": 4 * e * 340, "llava": 3 * e * 512}[name]
    copies = {"sdpa": 7, "eager": 6, "flash_attention_2": 6}[attention] if name != "llava" else 4
    kept = copies * e * H
    if attention != "eager":
        return norms + inner + kept + 4 * HEADS
    # Qwen2.5-VL: in two of four layers all patches of an image attend to each other, in two those of a window of 8 x 8.
    scores = {"qwen2_vl": 144, "qwen2_5_vl": (2 * 144 + 2 * 64) // 4, "llava": 145}[name]
    return norms + inner + kept + HEADS * scores * (4 + (2 if e == 2 else 0))


def ends(name: str, e: int) -> int:
    """Pixels as they come and cast, and what embedding and projector keep; of Qwen the rotation of half a head, too."""
    cast = 2 if e == 2 else 0
    if name == "llava":
        pixels = (4 + cast) * VALUES * PATCHES
        return COUNT * (pixels + e * (H * (145 + 144) + 2 * TEXT * TOKENS[name]))
    norm = {"qwen2_vl": 2 * e, "qwen2_5_vl": 4 + 2 * e}[name] * H
    return COUNT * PATCHES * ((4 + cast) * 2 * VALUES + 8 * H // HEADS + norm + 2 * e * H)


def backward(name: str, e: int) -> int:
    """The gradient of the stream, and those of the inner width: of a gate and what it multiplies two."""
    inner = {"qwen2_vl": 512, "qwen2_5_vl": 2 * 340, "llava": 512}[name]
    return e * (H + inner) * COUNT * ROWS[name]


TEXT_ONLY = Timeline(
    (
        Segment("forward", 1000),
        Segment("loss", 5000),
        Segment("head backward", 7000),
        Segment("backward", 3000, 60),
        Segment("backward", 20, 100),
    ),
    100,
    "text",
    0.01,
    logits=6000,
    assumed=True,
)


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flash_attention_2"])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_segment_counted_by_hand(name: str, precision: Precision, attention: Attention) -> None:
    e = {"bf16": 2, "fp32": 4}[precision]
    found = with_images(TEXT_ONLY, 140, load(name, attention), precision)
    kept, end = layer(name, e, attention) * COUNT * ROWS[name], ends(name, e)
    held = end + USED[name] * kept
    layers = {"llava": 5}.get(name, 4)
    assert found.segments == (
        Segment("forward", held + backward(name, e)),
        Segment("forward", held + 1000),
        Segment("loss", held + 5000),
        Segment("head backward", held + 7000),
        Segment("backward", held + 3000, 60),
        Segment("backward", held + 20, 100),
        # The rest of the gradients comes from the layers of the tower, evenly, and what is left in the end.
        *(
            Segment("backward", end + (4 - done) * kept + backward(name, e), 100 + done * (40 // layers))
            for done in range(4)
        ),
        Segment("backward", end, 140),
    )
    assert found.elements == 140 and found.error == ERROR and found.origin == "text; images in closed form"


@pytest.mark.parametrize("name", CONFIGS)
def test_with_checkpointing_a_layer_keeps_its_input_and_one_what_it_saves(name: str) -> None:
    kept, inside = 2 * H * COUNT * ROWS[name], layer(name, 2, "sdpa") * COUNT * ROWS[name]
    held = ends(name, 2) + USED[name] * kept
    found = with_images(TEXT_ONLY, 140, load(name, checkpointing=True), "bf16").segments
    assert found[0] == Segment("forward", held + max(inside, backward(name, 2)))
    assert [one.size for one in found[6:10]] == [
        ends(name, 2) + left * kept + inside + backward(name, 2) for left in (4, 3, 2, 1)
    ]


def test_logits_are_known_where_they_are_the_most() -> None:
    small, large = TEXT_ONLY, replace(TEXT_ONLY, segments=(Segment("loss", 10**9), *TEXT_ONLY.segments))
    assert with_images(large, 140, load("llava"), "bf16").logits == 6000
    assert with_images(small, 140, load("llava"), "bf16").logits == 0
    assert with_images(replace(large, error=0.3), 140, load("llava"), "bf16").error == 0.3


def test_without_images_the_text_is_as_it_is() -> None:
    for workload in (load("llava", images=0), Workload(1, 320)):
        assert with_images(TEXT_ONLY, 140, workload, "bf16") == replace(TEXT_ONLY, elements=140)


def test_images_of_a_sample_fill_it_at_most() -> None:
    """Two images of Qwen2-VL are 72 tokens."""
    enough = replace(load("qwen2_vl"), sequence_length=72)
    assert with_images(TEXT_ONLY, 140, enough, "bf16").segments
    with pytest.raises(ValueError, match="are 72 tokens, more than its 71"):
        with_images(TEXT_ONLY, 140, replace(enough, sequence_length=71), "bf16")
    with pytest.raises(ValueError, match="autocast"):
        with_images(TEXT_ONLY, 140, replace(enough, autocast=True), "bf16")


@pytest.mark.parametrize("kernels", ["eager", "fused", "compiled"])
@pytest.mark.parametrize("name", ["qwen2_vl", "llava"])
def test_the_time_of_a_tower(name: str, kernels: Kernels) -> None:
    """Forward: products, scores, and the bytes that everything else moves: for each row and layer 14 passes over the
    width and 4 over the inner width; kernel by kernel two norms in fp32 are 36 bytes each, and rotation and the rest 5
    passes more. A layer launches the 42 kernels of a decoder's."""
    facts, one = from_config(CONFIGS[name]), vision(name)
    flags: dict[str, Any] = {"kernels": kernels}
    text, seen = (work(facts, load(name, images=count), **flags) for count in (0, IMAGES))
    moved = 2 * (14 * H + 4 * 512) + (H * (2 * 36 + 5 * 2) if kernels == "eager" else 0)
    products, scores = (2 * COUNT * count for count in (one.products(SIDE * SIDE), one.scores(SIDE * SIDE)))
    layers = {"llava": 5}.get(name, 4)
    assert seen.forward.products - text.forward.products == products
    assert seen.forward.attention - text.forward.attention == pytest.approx(scores)
    assert seen.forward.bytes - text.forward.bytes == pytest.approx(COUNT * ROWS[name] * layers * moved)
    assert seen.forward.kernels - text.forward.kernels == layers * 42
    assert seen.backward.products - text.backward.products == pytest.approx(2 * products)
    assert seen.backward.attention - text.backward.attention == pytest.approx(2.5 * scores)
    assert seen.backward.bytes - text.backward.bytes == pytest.approx(2 * COUNT * ROWS[name] * layers * moved)
    assert seen.backward.kernels == text.backward.kernels
    assert seen.model_flops - text.model_flops == pytest.approx(3 * (products + scores))


def test_a_tower_goes_forward_again_where_it_is_recomputed_and_back_once_where_it_is_frozen() -> None:
    facts = from_config(CONFIGS["llava"])
    text, seen = (work(facts, load("llava", checkpointing=True, images=count)) for count in (0, IMAGES))
    for part in ("products", "attention", "bytes", "kernels"):
        again, once = (
            getattr(getattr(seen, which), part) - getattr(getattr(text, which), part)
            for which in ("recomputed", "forward")
        )
        assert again == pytest.approx(once) and again > 0, part
    eager = work(facts, load("llava", "eager"))
    plain = work(facts, load("llava", "eager", images=0))
    assert eager.backward.attention - plain.backward.attention == pytest.approx(
        2 * (eager.forward.attention - plain.forward.attention)
    )
    frozen = facts.model_copy(update={"trainable_parameters": 0})
    text, seen = (work(frozen, load("llava", images=count)) for count in (0, IMAGES))
    assert seen.backward.products - text.backward.products == seen.forward.products - text.forward.products
