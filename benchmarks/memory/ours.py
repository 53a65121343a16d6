"""zerocfg's prediction of a reading or a case: the one place of the harness that calls the model."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.memory.old_release import DATA, LENGTH
from benchmarks.memory.readings import SHAPES
from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.memory.activations.tracing import Adapters, Traced, trace
from zerocfg.memory.band_tier import wide
from zerocfg.memory.lora import of_layer
from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.overhead import figures
from zerocfg.memory.predict import Prediction, predict
from zerocfg.memory.terms import BACKWARD, TRAINING, WORK, Segment, Term, Timeline
from zerocfg.memory.zero.parameter_gathering import GATHERED
from zerocfg.models.model_facts import ModelFacts, from_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.memory.readings import Reading
    from zerocfg.memory.options import TorchOptions, Workload
    from zerocfg.models.hardware import Accelerator


def card(name: str) -> Accelerator:
    """The accelerator of zerocfg's catalogue."""
    found = find_accelerator(name)
    if found is None:
        raise ValueError(f"no accelerator {name}")
    return found[0]


DURING_STEPS = TRAINING - {"save"}
"""The counter is read in optimizer steps: neither while the engine is made nor while a checkpoint is written."""


def of_reading(reading: Reading, shape: dict[str, Any]) -> tuple[ModelFacts, Prediction]:
    """Facts and prediction of a published row."""
    facts, prediction = _predicted(
        shape,
        reading.options,
        reading.workload,
        reading.card,
        reading.adapters,
        reading.release,
        adapters_apart=reading.adapters_apart,
    )
    terms = prediction.estimate.terms
    if reading.keeps_weights:
        # What is gathered at the turn to backward is part of what autograd keeps.
        terms = tuple(term for term in terms if term.name != GATHERED.name)
    estimate = replace(prediction.estimate, terms=(*terms, *_of_the_script(reading, facts)))
    # Not every setting of a published run is known, whatever card it ran on.
    prediction = replace(prediction, estimate=estimate, tier=wide("published"))
    return facts, _figures(prediction, reading.card, reading.options)


def _of_the_script(reading: Reading, facts: ModelFacts) -> Iterator[Term]:
    """What the measured program holds and the model class of transformers does not."""
    work = reading.workload
    tokens = work.micro_batch * work.sequence_length
    if reading.keeps_logits:
        yield Term("kept logits", 4 * tokens * (facts.vocab_size or 0), "device", TRAINING, "logits", "the script")
    if reading.keeps_weights:
        # torch's linear saves a view of its weight, which keeps what DeepSpeed has released; an embedding saves none.
        embedding = (facts.vocab_size or 0) * (facts.hidden_size or 0)
        size = BYTES[reading.options.precision] * ((facts.parameters or 0) - embedding)
        yield Term("weights that autograd keeps", size, "device", WORK, "parameters", "torch: MmBackward0")
    heads, groups = facts.num_attention_heads, facts.num_key_value_heads
    if reading.own_attention and heads and groups and facts.hidden_size:
        wide = SHAPES[reading.model].get("head_dim", facts.hidden_size // heads)
        # Saved for each layer, or for the one that is recomputed; what is repeated is not saved itself.
        layers = 1 if work.gradient_checkpointing else facts.num_hidden_layers or 0
        size = layers * 2 * tokens * (heads - groups) * wide * BYTES[reading.options.precision]
        moments = BACKWARD if work.gradient_checkpointing else WORK
        source = "litgpt/model.py: CausalSelfAttention.forward"
        yield Term("repeated keys and values", size, "device", moments, "activations", source)


def _figures(prediction: Prediction, accelerator: str, options: Options | TorchOptions) -> Prediction:
    """The figures of ``prediction`` for the optimizer steps alone, with its tier."""
    estimate = prediction.estimate
    worst = estimate.peak("device", DURING_STEPS)
    error = estimate.timeline.error if estimate.timeline else 0.0
    allocated, reserved, device = figures(worst, error, card(accelerator), options, prediction.tier)
    return replace(prediction, worst=worst, allocated=allocated, reserved=reserved, device=device)


def of_case(
    shape: dict[str, Any],
    options: Options | TorchOptions,
    workload: Workload,
    accelerator: str,
    adapters: Adapters | None = None,
) -> tuple[ModelFacts, Prediction]:
    """Facts and prediction of one of our own runs."""
    return _predicted(shape, options, workload, accelerator, adapters, "5")


def _predicted(
    shape: dict[str, Any],
    options: Options | TorchOptions,
    workload: Workload,
    accelerator: str,
    adapters: Adapters | None,
    release: str,
    *,
    adapters_apart: bool = False,
) -> tuple[ModelFacts, Prediction]:
    facts = from_config(shape)
    if release == "4.40":
        timeline = _old(workload)
        if isinstance(options, Options):
            options = replace(options, early_bucket=True)  # its rows ran DeepSpeed 0.14.2
    else:
        traced = trace(shape, workload, options.precision, lora=adapters)
        timeline = traced.timeline
        facts = _facts(facts, traced, adapters)
        if adapters is not None and adapters_apart:
            matrices = of_layer(shape, adapters.rank, list(adapters.targets))
            facts = facts.model_copy(update={"adapters": matrices})
    return facts, _figures(predict(facts, options, timeline, card(accelerator)), accelerator, options)


def _facts(facts: ModelFacts, traced: Traced, adapters: Adapters | None) -> ModelFacts:
    """``facts``, with the counts of the traced model where zerocfg does not know the type or adapters were added."""
    if facts.parameters is None:
        return ModelFacts(
            model_type=facts.model_type,
            parameters=traced.parameters,
            trainable_parameters=traced.trainable,
            largest_parameter=max(size for size, _ in traced.tensors),
            largest_module=traced.largest_module,
            largest_block=traced.largest_block or None,
            tensor_sizes=sorted(traced.tensors, reverse=True),
            hidden_size=traced.hidden,
            num_hidden_layers=traced.layers,
            vocab_size=traced.vocabulary,
        )
    if adapters is None and facts.parameters != traced.parameters:
        raise ValueError(f"{facts.parameters} parameters counted, {traced.parameters} in the built model")
    if adapters is not None:
        return facts.model_copy(update={"parameters": traced.parameters, "trainable_parameters": traced.trainable})
    return facts


@cache
def _old_rows() -> dict[tuple[int, bool], Timeline]:
    content = json.loads(DATA.read_text())
    origin = f"traced with transformers {content['transformers']}, torch {content['torch']}"
    return {
        (row["micro_batch"], row["gradient_checkpointing"]): Timeline(
            tuple(Segment(moment, size, produced) for moment, size, produced in row["segments"]),
            row["elements"],
            origin,
            0.03,
        )
        for row in content["rows"]
    }


def _old(workload: Workload) -> Timeline:
    """LLaMA-7B as transformers 4.40 computed it (``old_release.py``)."""
    if workload.sequence_length != LENGTH:
        raise ValueError(f"traced for {LENGTH} tokens only")
    return _old_rows()[workload.micro_batch, workload.gradient_checkpointing]
