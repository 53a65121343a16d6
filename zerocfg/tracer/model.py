"""Builds the model class of transformers that a config.json names, and describes its parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from itertools import groupby

import torch
import transformers
from torch import nn

from . import cuda

MOST_LAYERS = 2000
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_CLASSES = (
    ("ForCausalLM", "AutoModelForCausalLM"),
    ("LMHeadModel", "AutoModelForCausalLM"),
    ("ForMaskedLM", "AutoModelForMaskedLM"),
    ("ForSequenceClassification", "AutoModelForSequenceClassification"),
    ("ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
    ("ForConditionalGeneration", "AutoModelForImageTextToText"),
)


def read_config(raw: Mapping[str, object]) -> transformers.PretrainedConfig:
    """The configuration object; ValueError when its class is not part of transformers."""
    name = raw.get("model_type")
    known = transformers.CONFIG_MAPPING
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"transformers {transformers.__version__} has no model type {name!r}")
    ignored = ("auto_map", "quantization_config", "torch_dtype", "dtype", "transformers_version")
    config = known[name].from_dict({key: value for key, value in raw.items() if key not in ignored})
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0
    layers = depth_of(config)
    if layers is not None and layers > MOST_LAYERS:
        raise ValueError(f"{layers} layers are more than the {MOST_LAYERS} that are traced")
    return config


def text_of(config: transformers.PretrainedConfig) -> transformers.PretrainedConfig:
    """The part of a configuration that describes the text model."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def depth_of(config: transformers.PretrainedConfig) -> int | None:
    depth = getattr(text_of(config), "num_hidden_layers", None)
    return depth if isinstance(depth, int) else None


def with_depth(config: transformers.PretrainedConfig, depth: int) -> transformers.PretrainedConfig:
    """The same model with only its first ``depth`` layers."""
    whole = config.to_dict()
    text = text_of(config)
    own = (
        whole
        if text is config
        else next(
            part for name, part in whole.items() if isinstance(part, dict) and getattr(config, name, None) is text
        )
    )
    full = text.num_hidden_layers
    for name, value in list(own.items()):
        if isinstance(value, (list, tuple)) and len(value) == full:
            own[name] = list(value)[:depth]
    own[text.attribute_map.get("num_hidden_layers", "num_hidden_layers")] = depth
    return type(config).from_dict(whole)


def build(
    config: transformers.PretrainedConfig, architectures: Iterable[str], attention: str, dtype: torch.dtype
) -> transformers.PreTrainedModel:
    """The model with empty weights, in training mode. To be called under FakeTensorMode for anything large."""
    # A stand-in for the package, which works on CUDA only.
    implementation = cuda.FLASH if attention == "flash_attention_2" else attention
    with ExitStack() as stack:
        stack.enter_context(_without_initialisation())
        stack.enter_context(torch.device("cpu"))
        auto = _class_of(config, architectures)
        model = auto.from_config(config, attn_implementation=implementation, dtype=dtype)
    # Building without initialisation leaves tied weights apart.
    model.tie_weights()
    model.train()
    return model


def attention_of(config: transformers.PretrainedConfig, architectures: Iterable[str], wished: str) -> str:
    """The attention that the class runs: the one wished for, or eager, as when none is named and it has no sdpa."""
    own = _class_of(config, architectures)._model_mapping[type(config)]
    has = {
        "sdpa": getattr(own, "_supports_sdpa", False),
        "flash_attention_2": getattr(own, "_supports_flash_attn", getattr(own, "_supports_flash_attn_2", False)),
    }
    if wished == "flash_attention_2" and not has[wished]:
        raise ValueError(f"{own.__name__} does not run with flash_attention_2")
    return wished if has.get(wished, True) else "eager"


def _class_of(config: transformers.PretrainedConfig, architectures: Iterable[str]) -> type[transformers.AutoModel]:
    names = [auto for name in architectures for end, auto in _CLASSES if name.endswith(end)]
    others = ["AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModelForImageTextToText"]
    for name in [*names, *others]:
        auto: type[transformers.AutoModel] | None = getattr(transformers, name, None)
        if auto is not None and type(config) in auto._model_mapping:
            return auto
    raise ValueError(f"transformers has no language model for model type {config.model_type!r}")


def _without_initialisation() -> AbstractContextManager[object]:
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # transformers 4
        from transformers.modeling_utils import no_init_weights
    manager: AbstractContextManager[object] = no_init_weights()
    return manager


def blocks_of(model: transformers.PreTrainedModel) -> list[nn.Module]:
    """The decoder layers: the largest list of as many modules as the config has layers; empty when there is none."""
    depth = depth_of(model.config)
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == depth]
    if not lists:
        return []
    return list(max(lists, key=_elements))


def kinds_of(model: transformers.PreTrainedModel) -> list[int]:
    """One number for each block; blocks of one number are built alike and run alike."""
    types = getattr(text_of(model.config), "layer_types", None) or ()
    seen: dict[object, int] = {}
    kinds = []
    for index, block in enumerate(blocks_of(model)):
        kind = (_signature(block), types[index] if index < len(types) else None)
        kinds.append(seen.setdefault(kind, len(seen)))
    return kinds


def period_of(kinds: list[int]) -> tuple[int, int]:
    """(prefix, period): after the first ``prefix`` blocks the kinds repeat every ``period``; the shortest of both."""
    count = len(kinds)
    for length in range(1, count + 1):
        for period in range(1, length + 1):
            prefix = length - period
            if all(kinds[i] == kinds[i + period] for i in range(prefix, count - period)):
                return prefix, period
    return 0, max(1, count)


def _signature(block: nn.Module) -> tuple[object, ...]:
    parts = []
    for name, module in block.named_modules():
        plain = {
            key: value
            for key, value in vars(module).items()
            if isinstance(value, (bool, int, float, str, type(None))) and key != "layer_idx"
        }
        shapes = [(key, tuple(parameter.shape)) for key, parameter in module.named_parameters(recurse=False)]
        parts.append((name, type(module).__name__, tuple(sorted(plain.items(), key=str)), tuple(shapes)))
    return tuple(parts)


def facts_of(model: transformers.PreTrainedModel) -> dict[str, object]:
    """Counts of the model as built, in elements; parameters in order as runs of (elements, how many)."""
    parameters = list(model.parameters())
    text = text_of(model.config)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and getattr(head, "weight", 0) is getattr(embedding, "weight", 1)
    sizes = (parameter.numel() for parameter in parameters)
    return {
        "class": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "tensors": [(size, len(list(run))) for size, run in groupby(sizes)],
        "largest_module": max(
            sum(parameter.numel() for parameter in module.parameters(recurse=False)) for module in model.modules()
        ),
        "largest_block": max(map(_elements, blocks_of(model)), default=0),
        "tied": tied,
        "buffers": sum(buffer.numel() * buffer.element_size() for buffer in model.buffers()),
        "hidden": getattr(text, "hidden_size", None),
        "layers": getattr(text, "num_hidden_layers", None),
        "vocabulary": getattr(text, "vocab_size", None),
    }


def _elements(module: nn.Module) -> int:
    return sum(math.prod(parameter.shape) for parameter in module.parameters())
