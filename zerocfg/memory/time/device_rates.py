"""The rates of a device in a training step: of matrix products, of attention and of its memory.

Shares of the peak were calibrated on A100 and H100. They hold for devices of the same architecture whose arithmetic
stands to their memory as there. Elsewhere both follow from what makes the share fall: a product waits for memory
traffic (:data:`.rates.BESIDE`), attention besides for its softmax, which runs at the rate of fp32. So an H20, with the
memory of an H100 and a seventh of its tensor cores, reaches nine tenths of its peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.time import rates
from zerocfg.memory.time.rates import Band, exactly

if TYPE_CHECKING:
    from zerocfg.memory.options import Precision
    from zerocfg.models.hardware import Accelerator

GB = 1e9
TERA = 1e12
NEAR = 1.5
"""Up to how many times more or fewer operations per byte a device may have and still count as alike."""


@dataclass(frozen=True, slots=True)
class Home:
    """The devices whose rows calibrated an architecture: peak and fp32 rate (TFLOP/s), operations per byte."""

    peak: float
    fp32: float
    balances: tuple[float, float]

    def near(self, balance: float) -> bool:
        return self.balances[0] / NEAR <= balance <= self.balances[1] * NEAR


HOMES = {"8.0": Home(312, 19.5, (153, 201)), "9.0": Home(989, 67, (295, 295))}


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """``peak`` in TFLOP/s as printed, ``products`` and ``attention`` in FLOP/s, ``memory`` in bytes per second.

    ``elsewhere``: no published step on a device like this one was compared.
    """

    peak: float
    products: Band
    attention: Band
    memory: Band
    elsewhere: bool


def device_rates(device: Accelerator, precision: Precision, *, newer: bool) -> DeviceRates:
    """``newer``: attention runs in kernels of FlashAttention-2. Raises ValueError where a rate is not known."""
    printed = {"bf16": device.bf16_tflops, "fp16": device.fp16_tflops, "fp32": device.fp32_tflops}[precision]
    measured = device.measured_tflops.get(precision)
    peak = printed or measured
    if peak is None:
        raise ValueError(f"the {precision} rate of {device.name} is not known")
    memory = _memory(device)
    balance = peak * TERA / ((device.memory_gb_s or memory.expected / GB) * GB)
    home = HOMES.get(device.architecture or "")
    alike = home is not None and home.near(balance)
    share = rates.MATMUL[device.architecture or ""] if alike else _share(balance)
    return DeviceRates(
        peak,
        rates.MATMUL_OF_MEASURED * (measured * TERA) if measured is not None else share * (peak * TERA),
        _attention(device, peak, share, alike=alike, newer=newer) * (peak * TERA),
        memory,
        device.vendor != "nvidia" or not any(one.near(balance) for one in HOMES.values()),
    )


def _memory(device: Accelerator) -> Band:
    if device.measured_memory_gb_s is not None:
        return exactly(device.measured_memory_gb_s * GB)
    if device.memory_gb_s is None:
        raise ValueError(f"the memory bandwidth of {device.name} is not known")
    return rates.MEMORY * (device.memory_gb_s * GB)


def _share(balance: float) -> Band:
    """Of the peak that products reach at so many operations per byte of the memory."""
    beside = rates.BESIDE
    return Band(*(1 / (1 + one * balance) for one in (beside.high, beside.expected, beside.low)))


def _attention(device: Accelerator, peak: float, share: Band, *, alike: bool, newer: bool) -> Band:
    """The share of the peak that attention reaches."""
    architecture = device.architecture or ""
    table, other = (rates.FLASH_2, rates.FLASH_2_ELSEWHERE) if newer else (rates.ATTENTION, rates.ATTENTION_ELSEWHERE)
    there, home = table.get(architecture), HOMES.get(architecture)
    if there is None or home is None or (not alike and not device.fp32_tflops):
        return other
    if alike:
        return there
    # Seconds of one operation: as long as in a product, and a softmax that is as much slower as fp32 is.
    products, fp32 = rates.MATMUL[architecture].expected, device.fp32_tflops or home.fp32
    softmax = (1 / there.expected - 1 / products) / home.peak * home.fp32 / fp32
    found = 1 / (1 / share.expected + softmax * peak)
    return there * (found / there.expected)
