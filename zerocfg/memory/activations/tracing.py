"""Activations of a micro batch, from a run of the real model class on tensors without content.

``python -m zerocfg.tracer`` does the run in a process of its own: no GPU, no weights, no data. A model of equal layers
is run at two small depths and continued to its own depth; every step of that is checked, and where a check fails all
layers are run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from zerocfg.memory.activations.extrapolation import NotUniformError, continued
from zerocfg.memory.activations.tracer_process import TraceError, ask
from zerocfg.memory.activations.tracer_result import Stretch, Trace
from zerocfg.memory.options import Precision, Workload
from zerocfg.memory.terms import Moment, Segment, Timeline

ERROR = 0.03
"""Against ``torch.cuda.max_memory_allocated``: a judgement, not a measurement, until there is a run on a card. It
covers what a trace on CPU tensors does not see: workspaces inside kernels other than flash attention's, and blocks
of the allocator that are up to 1 MiB larger than asked for. Bytes of the tensors themselves are exact."""
ERROR_ROUTED = 0.1
"""With experts, a judgement as well: the trace routes tokens evenly, real routers do not."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Low-rank adapters on a frozen model, as PEFT puts them on the linear layers whose last name is in ``targets``.

    ``all-linear`` among them stands for every linear layer but the output head. ``precision`` is that of their weights:
    PEFT makes them fp32 (``autocast_adapter_dtype``); DeepSpeed casts them to the dtype of the computation.
    """

    rank: int
    targets: tuple[str, ...] = ("all-linear",)
    dropout: float = 0.0
    precision: Precision = "bf16"


@dataclass(frozen=True, slots=True)
class Traced:
    """A timeline, and what the model turned out to be. Counts are elements; ``buffers`` is bytes."""

    timeline: Timeline
    parameters: int
    trainable: int
    tensors: tuple[tuple[int, int], ...]
    """(elements, how many in a row), in the order of ``model.parameters()``."""
    largest_module: int
    largest_block: int
    tied: bool
    buffers: int
    hidden: int | None
    layers: int | None
    vocabulary: int | None
    model_class: str
    versions: Mapping[str, str]


def trace(
    config: Mapping[str, object],
    workload: Workload,
    precision: Precision,
    *,
    lora: Adapters | None = None,
    python: str = sys.executable,
    use_reentrant: bool = False,
    keeps_outputs: bool = False,
    full: bool = False,
    cache: bool = True,
    timeout: float = 300.0,
) -> Traced:
    """Runs ``config`` (the content of a config.json) with ``workload`` in ``python``, an interpreter with torch.

    ``use_reentrant`` is that of ``gradient_checkpointing_kwargs``. ``keeps_outputs``: a loop of one's own that keeps
    the outputs, and so the logits, until after backward (the Trainer does not). ``full`` runs all layers in any case;
    ``timeout`` is in seconds. Raises TraceError.
    """
    (found,) = trace_all(
        config,
        [workload],
        precision,
        lora=lora,
        python=python,
        use_reentrant=use_reentrant,
        keeps_outputs=keeps_outputs,
        full=full,
        cache=cache,
        timeout=timeout,
    )
    if isinstance(found, TraceError):
        raise found
    return found


def trace_all(
    config: Mapping[str, object],
    workloads: Sequence[Workload],
    precision: Precision,
    *,
    lora: Adapters | None = None,
    python: str = sys.executable,
    use_reentrant: bool = False,
    keeps_outputs: bool = False,
    full: bool = False,
    cache: bool = True,
    timeout: float = 300.0,
) -> list[Traced | TraceError]:
    """``trace`` of several workloads, one result each, in one process: the import of torch takes seconds.

    ``timeout`` is for each of them. A process that fails is the error of all that it was asked for.
    """
    adapters = lora and {"targets": lora.targets, "rank": lora.rank, "dropout": lora.dropout, "dtype": lora.precision}
    requests = [
        {
            "config": dict(config),
            "dtype": "fp32" if workload.autocast else precision,
            "attention": workload.attention,
            "batch": {
                "micro_batch": workload.micro_batch,
                "sequence_length": workload.sequence_length,
                "gradient_checkpointing": workload.gradient_checkpointing,
                "use_reentrant": use_reentrant,
                "keeps_outputs": keeps_outputs,
                "fused_loss": workload.fused_loss,
                "autocast": precision if workload.autocast and precision != "fp32" else None,
                "completion": workload.completion,
            },
            "adapters": adapters,
            "full": full,
        }
        for workload in workloads
    ]
    answers = ask(requests, python, timeout, cache)
    uneven = [n for n, found in enumerate(answers) if not isinstance(found, TraceError) and not _is_uniform(found)]
    again = ask([{**requests[n], "full": True} for n in uneven], python, timeout, cache)
    for n, found in zip(uneven, again, strict=True):
        answers[n] = found
    return [
        found if isinstance(found, TraceError) else _traced(config, workload, found)
        for workload, found in zip(workloads, answers, strict=True)
    ]


def _traced(config: Mapping[str, object], workload: Workload, found: Trace) -> Traced:
    segments = _segments(continued(found))
    facts = found["facts"]
    experts = any("expert" in key for key in _keys(config))
    return Traced(
        timeline=Timeline(
            segments=segments,
            elements=facts["trainable"],
            origin=_origin(found, workload),
            error=ERROR_ROUTED if experts else ERROR,
            logits=_logits(segments, found["logits"]),
            assumed=workload.assumed,
        ),
        parameters=facts["parameters"],
        trainable=facts["trainable"],
        tensors=tuple((size, count) for size, count in facts["tensors"]),
        largest_module=facts["largest_module"],
        largest_block=facts["largest_block"],
        tied=facts["tied"],
        buffers=facts["buffers"],
        hidden=facts["hidden"],
        layers=facts["layers"],
        vocabulary=facts["vocabulary"],
        model_class=facts["class"],
        versions=found["versions"],
    )


def _origin(found: Trace, workload: Workload) -> str:
    versions, depths = found["versions"], found["depths"]
    how = f"traced at {depths[0]} and {depths[1]} of {found['layers']} layers" if len(depths) > 1 else "traced"
    attention = found["attention"]
    if attention != workload.attention:
        attention = f"{attention} (the class has no {workload.attention})"
    if attention == "flash_attention_2":
        attention = "flash_attention_2 by way of PyTorch's own, which saves the same tensors"
    return (
        f"{how}: {found['facts']['class']} of transformers {versions['transformers']}, torch {versions['torch']}, "
        f"attention {attention}"
    )


def _logits(segments: tuple[Segment, ...], size: int) -> int | None:
    worst = max(segments, key=lambda one: one.size, default=None)
    return size if worst and worst.moment in ("loss", "head backward") else 0


def _segments(run: Iterable[Stretch]) -> tuple[Segment, ...]:
    produced, segments = 0, []
    for moment, _, size, elements in run:
        segments.append(Segment(cast(Moment, moment), size, produced))
        produced += elements
    return tuple(segments)


def _is_uniform(found: Trace) -> bool:
    try:
        continued(found)
    except NotUniformError:
        return False
    return True


def _keys(config: object) -> Iterator[str]:
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield str(key)
            yield from _keys(value)
