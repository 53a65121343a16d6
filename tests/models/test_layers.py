"""The class names of decoder layers are those of transformers."""

from __future__ import annotations

import pytest

from zerocfg.models.families import FAMILIES
from zerocfg.models.layers import LAYER_CLASSES, foreign_classes


@pytest.mark.libs
@pytest.mark.parametrize("model_type", LAYER_CLASSES)
def test_layer_class_is_the_one_that_transformers_does_not_split(model_type: str) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    names = CAUSAL[model_type]
    model = getattr(transformers, names if isinstance(names, str) else names[0])
    assert set(model._no_split_modules) == {LAYER_CLASSES[model_type]}


def test_every_architecture_with_a_causal_model_is_there() -> None:
    assert set(FAMILIES) - set(LAYER_CLASSES) == {"qwen2_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"}


def test_own_classes_are_not_foreign() -> None:
    foreign = foreign_classes("mixtral")
    assert "MixtralDecoderLayer" not in foreign and "MixtralSparseMoeBlock" not in foreign
    assert "LlamaDecoderLayer" in foreign and "Qwen3MoeSparseMoeBlock" in foreign
