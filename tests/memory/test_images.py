"""Activations of images against real vision-language models of transformers: every storage followed on real tensors."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace
from typing import Any

import pytest

from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.activations.vision import ERROR, with_images
from zerocfg.memory.options import Attention, Images, Precision, Workload
from zerocfg.memory.tensors import model_of
from zerocfg.memory.terms import Segment, Timeline
from zerocfg.memory.time.flops import work
from zerocfg.models.model_facts import from_config
from zerocfg.models.vision import Vision, vision_of

TEXT: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 600,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 5, 5]},
}
IMAGE = 150  # the token
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_vl": {
        "model_type": "qwen2_vl",
        "text_config": TEXT,
        "image_token_id": IMAGE,
        "vision_config": {"depth": 4, "embed_dim": 128, "hidden_size": 96, "num_heads": 4},
    },
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl",
        "text_config": TEXT,
        "image_token_id": IMAGE,
        "vision_config": {
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 340,
            "num_heads": 4,
            "out_hidden_size": 96,
            "fullatt_block_indexes": [1, 3],
        },
    },
    "llava": {
        "model_type": "llava",
        "text_config": {**TEXT, "model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "image_token_index": IMAGE,
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": 128,
            "intermediate_size": 512,
            "num_hidden_layers": 5,
            "num_attention_heads": 4,
            "image_size": 168,
            "patch_size": 14,
        },
    },
}
SIDE, EACH, TOKENS = 168, 2, 320  # pixels of a side, images of a sample, tokens of a sample
CLOSE = 0.03
WAYS: dict[str, tuple[Precision, Attention, bool]] = {
    "bf16": ("bf16", "sdpa", False),
    "fp32": ("fp32", "sdpa", False),
    "recomputed": ("bf16", "sdpa", True),
    "eager": ("bf16", "eager", False),
}


def vision(name: str) -> Vision:
    found = vision_of(CONFIGS[name])
    assert found is not None
    return found


def load(name: str, way: str, images: int = EACH) -> Workload:
    _, attention, checkpointing = WAYS[way]
    return Workload(1, TOKENS, checkpointing, attention, images=Images(vision(name), images, SIDE * SIDE))


def real(name: str, way: str, *, images: int = EACH) -> tuple[int, int]:
    """Bytes that live when the loss is there, and the most of the step without gradients that were handed over."""
    import torch
    import transformers

    from zerocfg.tracer.storages import Storages

    precision, attention, checkpointing = WAYS[way]
    kind = transformers.CONFIG_MAPPING[CONFIGS[name]["model_type"]]
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(
        kind(**copy.deepcopy(CONFIGS[name])),
        attn_implementation=attention,
        dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[precision],
    )
    model.train()
    model.config.use_cache = False
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    one = vision(name)
    with Storages([*model.parameters(), *model.buffers()]) as storages:

        def handed(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            storages.forget(parameter.grad)
            parameter.grad = None

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(handed)
        ids = torch.zeros((1, TOKENS), dtype=torch.long)
        inputs: dict[str, torch.Tensor] = {}
        if images:
            length = one.tokens(SIDE * SIDE)
            for index in range(images):
                ids[:, index * (length + 1) : index * (length + 1) + length] = IMAGE
            if one.kind == "clip":
                inputs["pixel_values"] = torch.randn(images, 3, SIDE, SIDE)
            else:
                inputs["pixel_values"] = torch.randn(images * one.patches(SIDE * SIDE), one.values)
                inputs["image_grid_thw"] = torch.tensor([[1, SIDE // 14, SIDE // 14]] * images)
                inputs["mm_token_type_ids"] = (ids == IMAGE).int()
        loss = model(input_ids=ids, labels=ids.clone(), **inputs).loss
        gc.collect()
        live = storages.live
        loss.backward()
        return live, storages.peak


@pytest.mark.libs
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CONFIGS)
def test_what_images_keep_is_what_is_predicted(name: str, way: str) -> None:
    measured = real(name, way)[0] - real(name, way, images=0)[0]
    empty = Timeline((Segment("loss", 0),), 0, "", 0.0)
    found = with_images(empty, 10, load(name, way), WAYS[way][0])
    (held,) = [one.size for one in found.segments if one.moment == "loss"]
    assert held == pytest.approx(measured, rel=CLOSE)


@pytest.mark.libs
@pytest.mark.parametrize("way", ["bf16", "recomputed"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_peak_of_a_step_is_within_the_stated_error(name: str, way: str) -> None:
    facts = from_config(CONFIGS[name])
    found = by_formula(facts, load(name, way), "bf16", CONFIGS[name])
    assert found.peak == pytest.approx(real(name, way)[1], rel=found.error)
    assert found.error == ERROR and found.elements == facts.parameters == found.segments[-1].produced
    assert [one.produced for one in found.segments] == sorted(one.produced for one in found.segments)


@pytest.mark.libs
@pytest.mark.parametrize("name", CONFIGS)
def test_operations_of_the_tower(name: str) -> None:
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    one, config = vision(name), CONFIGS[name]
    made = transformers.CONFIG_MAPPING[config["model_type"]](**copy.deepcopy(config))
    model = transformers.AutoModelForImageTextToText.from_config(made, attn_implementation="eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if one.kind == "clip":
            model.model.get_image_features(torch.randn(EACH, 3, SIDE, SIDE))
        else:
            grid = torch.tensor([[1, SIDE // 14, SIDE // 14]] * EACH)
            model.model.get_image_features(torch.randn(EACH * one.patches(SIDE * SIDE), one.values), grid)
    seen, predicted = counter.get_total_flops(), 2 * EACH * (one.products(SIDE * SIDE) + one.scores(SIDE * SIDE))
    # Windows at the edge of an image are smaller.
    assert seen == predicted if one.window is None else seen <= predicted <= (1 + CLOSE) * seen


@pytest.mark.parametrize("name", CONFIGS)
def test_images_take_time_of_their_own(name: str) -> None:
    facts, one = from_config(CONFIGS[name]), vision(name)
    text, seen = (work(facts, load(name, "bf16", count)) for count in (0, EACH))
    more = 2 * EACH * one.products(SIDE * SIDE)
    assert seen.forward.products - text.forward.products == more
    assert seen.backward.products - text.backward.products == 2 * more
    assert text.model_flops < seen.model_flops and text.recomputed.flops == seen.recomputed.flops == 0
    apart = facts.model_copy(
        update={"parameters": (facts.parameters or 0) - (facts.vision_parameters or 0), "vision_parameters": None}
    )
    assert text.forward.products == pytest.approx(work(apart, load(name, "bf16", 0)).forward.products, rel=0.02)


def test_what_is_not_said_is_not_predicted() -> None:
    facts, config = from_config(CONFIGS["qwen2_vl"]), CONFIGS["qwen2_vl"]
    images = load("qwen2_vl", "bf16")
    for other, says in (
        (replace(images, images=Images(vision("qwen2_vl"), 1)), "`pixels:`"),
        (replace(images, sequence_length=71), "are 72 tokens, more than its 71"),
        (replace(images, autocast=True), "autocast"),
    ):
        with pytest.raises(ValueError, match=says):
            by_formula(facts, other, "bf16", config)
    enough = by_formula(facts, replace(images, sequence_length=72), "bf16", config)
    none = by_formula(facts, replace(images, sequence_length=72, images=Images(vision("qwen2_vl"), 0)), "bf16", config)
    assert none == by_formula(facts, replace(images, sequence_length=72, images=None), "bf16", config)
    assert enough.peak > 2 * none.peak and none.elements == facts.parameters


def test_a_tied_head_works_with_the_embedding_and_not_with_the_patches() -> None:
    facts = from_config(CONFIGS["qwen2_vl"] | {"tie_word_embeddings": True})
    model = model_of(facts)
    (head,) = [one for one in model.modules if one.head and one.tensors and len(one.tensors) == 1][-1:]
    assert model.tensors[head.tensors[0]].size == 600 * 96


def test_images_need_a_number_and_a_size_that_exist() -> None:
    for count, pixels in ((-1, 10), (1, 0)):
        with pytest.raises(ValueError, match="images"):
            Images(vision("llava"), count, pixels)
