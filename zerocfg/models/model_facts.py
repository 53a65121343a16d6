"""What zerocfg knows about a model: from its ``config.json``, or stated inline in a ``zerocfg.yaml``.

Counts are in elements, never in bytes. What cannot be known is None and ``unknown_because`` says why;
nothing is guessed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import PrivateAttr, ValidationError

from zerocfg.budgets import TENSORS
from zerocfg.models.architectures import Tensor, UnknownShapeError, complete, size_of, tensors_of
from zerocfg.models.base import Consumer, Section, key
from zerocfg.models.families import FAMILIES
from zerocfg.models.towers import tower_of
from zerocfg.models.vision import vision_of

# Multimodal types (transformers 5.23) whose language part is a known family: the type of a text_config
# that does not name its own. Their configuration classes have no `hidden_size` of their own, whatever the
# file says at its top.
COMPOSITES = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
_TOO_LARGE = f"it has more than {TENSORS:,} tensors, for which no memory is predicted"
_SAME_FAMILY = {"qwen2_5_vl_text": "qwen2_vl_text"}
# Files of these types may hold the text part at the top level instead (transformers/models/qwen2_vl).
_FLAT_COMPOSITES = {"qwen2_vl", "qwen2_5_vl"}
# These class defaults of a composite differ from "not tied".
_TIED_COMPOSITES = {"gemma3", "mistral3"}


class Part(Section):
    """Modules that follow each other in a model; the same decoder layer many times is one part."""

    modules: list[list[int]] = key("Sizes of the tensors that each module owns directly.", unit="elements")
    times: int = key("How often these modules follow each other.", default=1, ge=1)
    block: bool = key("They are a decoder layer.", default=False)
    frozen: bool = key("Their parameters get no gradients.", default=False)


class ModelFacts(Section):
    """Facts about one model; each may be stated inline: ``model: {parameters: 7e9, hidden_size: 4096}``."""

    yaml_numbers = True

    model_type: str | None = key("`model_type` of config.json.", default=None)
    parameters: int | None = key("Parameters, tied weights counted once.", default=None, unit="elements", ge=1)
    trainable_parameters: int | None = key(
        "Parameters that get gradients; all of them unless stated.", default=None, unit="elements", ge=0
    )
    largest_parameter: int | None = key("The largest single parameter tensor.", default=None, unit="elements", ge=1)
    largest_module: int | None = key(
        "Most elements that one module owns directly (the largest layer of DeepSpeed's estimators).",
        default=None,
        unit="elements",
        ge=1,
    )
    largest_block: int | None = key(
        "Elements of the largest decoder layer (all its modules together).", default=None, unit="elements", ge=1
    )
    tensor_sizes: list[tuple[int, int]] = key(
        "Sizes of all parameter tensors as (elements, how many tensors), largest first.", default=[], unit="elements"
    )
    layout: list[Part] = key("The modules of the model from its embedding to its head.", default=[])
    adapters: list[int] = key(
        "Sizes of the adapters' matrices in one decoder layer, in the order of forward.", default=[], unit="elements"
    )
    hidden_size: int | None = key("Width of the residual stream.", default=None, unit="elements", ge=1)
    num_hidden_layers: int | None = key("Decoder layers.", default=None, ge=1)
    num_attention_heads: int | None = key("Query heads.", default=None, ge=1)
    num_key_value_heads: int | None = key("Key and value heads.", default=None, ge=1)
    intermediate_size: int | None = key(
        "Inner width of a dense feed-forward part.", default=None, unit="elements", ge=1
    )
    vocab_size: int | None = key("Rows of the token embedding.", default=None, ge=1)
    max_position_embeddings: int | None = key("Longest sequence.", default=None, unit="tokens", ge=1)
    tied_embeddings: bool | None = key("The output head shares the weights of the token embedding.", default=None)
    num_experts: int | None = key("Experts in each sparse layer; 0 for a dense model.", default=None, ge=0)
    experts_per_token: int | None = key("Experts that each token visits.", default=None, ge=1)
    leaf_modules: list[str] = key("Class names of the modules that ZeRO-3 has to treat as one leaf.", default=[])
    vision_parameters: int | None = key(
        "Of the parameters those of the vision part of a multimodal model.", default=None, unit="elements", ge=1
    )
    text_part_only: bool = key("The counts leave out the vision or audio part of a multimodal model.", default=False)
    config_hidden_size: int | None = key(
        "`config.hidden_size` (else the largest of `hidden_sizes`) as Python code sees it.", default=None, ge=1
    )
    text_config_hidden_size: int | None = key("The same, of `config.text_config`.", default=None, ge=1)
    unknown_because: str | None = key("Why the parameters could not be counted; null when they were.", default=None)
    _too_large: bool = PrivateAttr(False)

    @property
    def too_large(self) -> bool:
        """Whether it has more tensors than the memory of a model is predicted with; they are not kept then."""
        return self._too_large

    def _tensors(self) -> int:
        """How many tensors, and modules without any, the memory of the model is predicted with, at most."""
        if self.layout:
            return sum(part.times * sum(max(1, len(module)) for module in part.modules) for part in self.layout)
        listed = sum(count for _, count in self.tensor_sizes)
        largest = self.largest_parameter or (self.vocab_size or 0) * (self.hidden_size or 0)
        return max(listed, self.parameters // largest if self.parameters and largest else 0)

    def hidden_size_for(self, consumer: Consumer) -> int | None:
        """The width that this consumer computes `auto` bucket sizes from; None: it finds none and stops
        with an error.

        transformers' Trainer looks into `text_config` too (transformers/integrations/deepspeed.py,
        trainer_config_finalize); accelerate does not (accelerate/accelerator.py, _prepare_deepspeed).
        DeepSpeed itself never looks. For a model type that zerocfg does not know, None may only mean that
        the file spells the width in its own way (``unknown_because`` is then set).
        """
        if consumer == "deepspeed":
            return None
        if self.config_hidden_size is not None or consumer == "accelerate":
            return self.config_hidden_size
        return self.text_config_hidden_size

    @property
    def trainable(self) -> int | None:
        """Elements that get gradients: as stated, else all."""
        return self.parameters if self.trainable_parameters is None else self.trainable_parameters

    def elements_up_to(self, threshold: int, cap: int | None = None) -> int | None:
        """Elements in tensors of at most ``threshold`` elements, which ZeRO-3 keeps on every rank; at
        most ``cap``.

        None when the sizes of the tensors are not known. Source: deepspeed/runtime/zero/parameter_offload.py.
        """
        if not self.tensor_sizes:
            return None
        small = sum(size * count for size, count in self.tensor_sizes if size <= threshold)
        return small if cap is None else min(small, cap)


def from_config(config: Mapping[str, Any]) -> ModelFacts:
    """Facts from the content of a Hugging Face ``config.json``; bad content gives ``unknown_because``."""
    if not isinstance(config, Mapping):
        return ModelFacts(unknown_because="config.json does not hold an object")
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return _unknown(config, None, "config.json names no model_type")
    if model_type in COMPOSITES:
        return _from_composite(model_type, config)
    if model_type not in FAMILIES:
        nested = " (only a multimodal wrapper whose parts are not known)" if "text_config" in config else ""
        return _unknown(config, model_type, f"model type {model_type!r} is not known to zerocfg{nested}")
    return _from_family(model_type, model_type, config)


def inline(facts: Mapping[str, Any]) -> ModelFacts:
    """Facts written by hand: ``{parameters: 7e9, hidden_size: 4096}``; YAML's ``7e9`` arrives as text and
    is taken.

    Raises ValueError with one line for each bad key.
    """
    prepared = {name: _whole(value) for name, value in facts.items()}
    width = prepared.get("hidden_size")
    if "config_hidden_size" not in prepared and width is not None:
        prepared["config_hidden_size"] = width
    try:
        found = ModelFacts.model_validate(prepared)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ValueError("; ".join(problems)) from None
    return _without_tensors(found) if found._tensors() > TENSORS else found


def _without_tensors(facts: ModelFacts) -> ModelFacts:
    """The facts of a model that has too many tensors to predict its memory: its widths alone."""
    counted = ("parameters", "trainable_parameters", "largest_parameter", "largest_module", "largest_block")
    gone: dict[str, object] = {**dict.fromkeys(counted), "tensor_sizes": [], "layout": []}
    found = facts.model_copy(update={**gone, "unknown_because": _TOO_LARGE})
    found._too_large = True
    return found


def _whole(value: object) -> object:
    """``"7e9"`` and ``7e9`` as 7000000000; anything else unchanged."""
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text part of the config of a multimodal model, with its ``model_type`` and ``tie_word_embeddings``; ``{}``
    where it is missing. Raises UnknownShapeError where its type is not known to zerocfg."""
    model_type = str(config.get("model_type"))
    nested = config.get("text_config")
    text: dict[str, Any] = dict(nested) if isinstance(nested, Mapping) else {}
    if nested is None and model_type in _FLAT_COMPOSITES:
        text = {name: value for name, value in config.items() if name not in ("model_type", "vision_config")}
    named = text.get("model_type") or COMPOSITES[model_type]
    family = _SAME_FAMILY.get(named, named) if isinstance(named, str) else None
    if family is None or family not in FAMILIES:
        raise UnknownShapeError(f"text part {named!r} is not known to zerocfg")
    if not text:
        return {}
    # The text part of Llama 4 has its own head, which what the top says does not reach.
    tied = model_type != "llama4" and config.get("tie_word_embeddings", model_type in _TIED_COMPOSITES)
    if not tied and "tie_word_embeddings" in text:
        tied = text["tie_word_embeddings"]
    return {**text, "model_type": family, "tie_word_embeddings": tied}


def _from_composite(model_type: str, config: Mapping[str, Any]) -> ModelFacts:
    try:
        text, vision = text_config(config), vision_of(config) or tower_of(config)
    except UnknownShapeError as error:
        return _unknown(config, model_type, str(error))
    if not text:
        return _unknown(config, model_type, f"{model_type}: the text_config is missing")
    tower = list(islice(vision.tensors(), TENSORS + 1)) if vision else []
    facts = _from_family(model_type, text["model_type"], text, tower)
    counted = {"config_hidden_size": None, "text_config_hidden_size": facts.config_hidden_size}
    if facts.parameters is not None:
        counted |= {"text_part_only": not tower, "vision_parameters": sum(tensor.size for tensor in tower) or None}
    return facts.model_copy(update=counted)


def _from_family(
    model_type: str, family_name: str, config: Mapping[str, Any], before: Sequence[Tensor] = ()
) -> ModelFacts:
    """``before``: tensors of the model that come before those of the family."""
    family = FAMILIES[family_name]
    try:
        filled = complete(family, config)
        tensors = [*before, *islice(tensors_of(family, filled), TENSORS + 1)]
        if len(tensors) > TENSORS:
            return _without_tensors(_unknown(config, model_type, _TOO_LARGE))
        counted = _summary(tensors)
        experts = family.experts
        # Without a sparse layer its tensors did not ask for the number.
        number = size_of(filled, experts.count, least=0) if experts else 0
    except UnknownShapeError as error:
        return _unknown(config, model_type, f"{model_type}: {error}")
    return ModelFacts(
        model_type=model_type,
        **counted,
        hidden_size=filled["hidden_size"],
        num_hidden_layers=filled["num_hidden_layers"],
        num_attention_heads=filled["num_attention_heads"],
        num_key_value_heads=_positive(filled["num_key_value_heads"]),
        intermediate_size=_positive(filled.get("intermediate_size")),
        vocab_size=filled["vocab_size"],
        max_position_embeddings=_positive(filled.get("max_position_embeddings")),
        tied_embeddings=bool(filled["tie_word_embeddings"]),
        num_experts=number,
        experts_per_token=_positive(filled.get("num_experts_per_tok")) if experts else None,
        leaf_modules=[experts.block] if experts else [],
        config_hidden_size=filled["hidden_size"],
    )


def _summary(tensors: Iterable[Tensor]) -> dict[str, Any]:
    sizes: Counter[int] = Counter()
    owned: defaultdict[int | None, dict[str, list[int]]] = defaultdict(dict)
    parts: list[tuple[int | None, list[list[int]]]] = []
    for tensor in tensors:
        sizes[tensor.size] += 1
        block = owned[tensor.block]
        if tensor.module not in block:
            block[tensor.module] = []
            if not parts or parts[-1][0] != tensor.block:
                parts.append((tensor.block, []))
            parts[-1][1].append(block[tensor.module])
        block[tensor.module].append(tensor.size)
    layout: list[Part] = []
    for index, modules in parts:
        part = Part(modules=modules, block=index is not None)
        if layout and part.block and layout[-1].block and layout[-1].modules == modules:
            layout[-1].times += 1
        else:
            layout.append(part)
    return {
        "parameters": sum(size * count for size, count in sizes.items()),
        "largest_parameter": max(sizes),
        "largest_module": max(sum(module) for part in layout for module in part.modules),
        "largest_block": max(sum(map(sum, part.modules)) for part in layout if part.block),
        "tensor_sizes": sorted(sizes.items(), reverse=True),
        "layout": layout,
    }


def _unknown(config: Mapping[str, object], model_type: str | None, reason: str) -> ModelFacts:
    """Facts without counts; widths are still taken where the file states them plainly."""
    nested = config.get("text_config")
    composite = model_type in COMPOSITES
    top = None if composite else _width(config)
    text = _width(nested) if isinstance(nested, Mapping) else (_width(config) if composite else None)
    return ModelFacts(
        model_type=model_type,
        hidden_size=top or text,
        config_hidden_size=top,
        text_config_hidden_size=text,
        unknown_because=reason,
    )


def _width(config: Mapping[str, object]) -> int | None:
    width = _positive(config.get("hidden_size"))
    widths = config.get("hidden_sizes")
    if width is None and isinstance(widths, list):
        width = max(filter(None, map(_positive, widths)), default=None)
    return width


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
