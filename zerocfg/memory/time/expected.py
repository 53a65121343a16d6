"""The time of a step as zerocfg states it and compares plans by it: :func:`step_time`, with what published runs showed
of offload.

One figure for both: a plan that ranks behind another one is shown with the time that puts it there.
"""

from __future__ import annotations

from dataclasses import replace
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
    return with_offload(time) if offloads(options) else time


def with_offload(time: StepTime) -> StepTime:
    """The step as published runs with offload took it: 2.6 to 3 times as long as tuned code on the device, so that the
    high end of ordinary code is expected of them. The band only grows: it still holds what it held."""
    expected = time.scale.expected * MEASURED["ordinary"].high / MEASURED["ordinary"].expected
    slower = time.scaled(Band(time.scale.low, expected, time.scale.high))
    # What waits for the host is not slower, so the scale's ends are of another sum now.
    low, high = (end * time.as_tuned / slower.as_tuned for end in (time.scale.low, time.scale.high))
    return replace(slower, scale=Band(min(low, expected), expected, max(high, expected)))


def offloads(options: Options | TorchOptions) -> bool:
    """Whether anything is kept on the host or on drives."""
    if isinstance(options, TorchOptions):
        return options.cpu_offload
    return options.offload_optimizer != "none" or options.offload_param != "none"
