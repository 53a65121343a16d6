"""The time of a step as zerocfg states it and compares plans by it: :func:`step_time`, with what published runs showed
of short micro batches and of offload.

One figure for both: a plan that ranks behind another one is shown with the time that puts it there.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from zerocfg.memory.options import Options, TorchOptions
from zerocfg.memory.time.measured_spread import MEASURED
from zerocfg.memory.time.rates import Band
from zerocfg.memory.time.step_time import StepTime, step_time

if TYPE_CHECKING:
    from zerocfg.memory.options import Workload
    from zerocfg.memory.time.flops import Kernels
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts

SLOWED = ((512, 2.64), (1024, 1.48), (2048, 1.11), (4096, 1.0))
"""Tokens of a micro batch, and how many times as long as :func:`step_time` says published steps took, those of 4096
being 1: medians of Qwen's rows (benchmarks/time). From 4096 to 32768 tokens the rows of 8 A800 show no further gain."""


def expected_step_time(
    facts: ModelFacts,
    options: Options | TorchOptions,
    workload: Workload,
    profile: HardwareProfile,
    *,
    kernels: Kernels = "eager",
) -> StepTime:
    """The time of one optimizer step. Raises ValueError when the model or the rates of the device are not known."""
    time = step_time(facts, options, workload, profile, kernels=kernels)
    return as_published(time, workload.micro_batch * workload.sequence_length, offload=offloads(options))


def as_published(time: StepTime, tokens: int, *, offload: bool) -> StepTime:
    """The step with the expected time of published runs that had so many tokens in a micro batch.

    Published runs with offload took 2.6 to 3 times as long as tuned code on the device, so that the high end of
    ordinary code is expected of them. The band only grows: it still holds what it held.
    """
    factor = slowed(tokens)
    if offload:
        factor *= MEASURED["ordinary"].high / MEASURED["ordinary"].expected
    if factor == 1.0:
        return time
    expected = time.scale.expected * factor
    return time.scaled(Band(min(time.scale.low, expected), expected, max(time.scale.high, expected)))


def offloads(options: Options | TorchOptions) -> bool:
    """Whether anything is kept on the host or on drives."""
    if isinstance(options, TorchOptions):
        return options.cpu_offload
    return options.offload_optimizer != "none" or options.offload_param != "none"


def slowed(tokens: int) -> float:
    """:data:`SLOWED` between its rows, on a logarithmic scale of tokens."""
    if tokens <= SLOWED[0][0]:
        return SLOWED[0][1]
    for (fewer, slow), (more, fast) in pairwise(SLOWED):
        if tokens < more:
            return slow + (fast - slow) * math.log2(tokens / fewer) / math.log2(more / fewer)
    return SLOWED[-1][1]
