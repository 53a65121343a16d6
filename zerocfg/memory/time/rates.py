"""How much of a printed rate is reached: shares with their band, and where each comes from.

The shares of matrix products are calibrated in ``benchmarks/time`` on one half of published throughput rows and judged
on the other half; none is tuned by hand. Where the profile holds a measured rate, that is used instead of a share.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Band:
    """Low, expected and high value of one quantity."""

    low: float
    expected: float
    high: float

    def __mul__(self, factor: float) -> Band:
        return Band(self.low * factor, self.expected * factor, self.high * factor)

    def __add__(self, other: Band) -> Band:
        return Band(self.low + other.low, self.expected + other.expected, self.high + other.high)


def exactly(value: float) -> Band:
    """A quantity without a band, such as a measured one."""
    return Band(value, value, value)


ONCE = exactly(1.0)


def taken_by(amount: float, rate: Band) -> Band:
    """Time for ``amount`` at ``rate``: the lowest rate gives the highest time."""
    return Band(amount / rate.high, amount / rate.expected, amount / rate.low)


def longer(one: Band, other: Band) -> Band:
    """Of two times that pass beside each other the longer one."""
    return Band(max(one.low, other.low), max(one.expected, other.expected), max(one.high, other.high))


# Share of the peak that products with weights, and attention kernels, reach in a training step, by architecture: tenth,
# fiftieth and ninetieth percentile of the calibration rows (llm-foundry, FSDP, 8 to 512 devices). What such a table
# cannot tell apart (stalls of the host, waiting for the network) is in it. Attention is that of kernels of early 2023.
MATMUL = {"8.0": Band(0.596, 0.708, 0.763), "9.0": Band(0.485, 0.560, 0.603)}
ATTENTION = {"8.0": Band(0.309, 0.327, 0.372), "9.0": Band(0.177, 0.186, 0.193)}
ATTENTION_ELSEWHERE = Band(0.177, 0.25, 0.372)
# The same with FlashAttention-2, which torch's sdpa has, too: 50 to 73% forward and up to 63% backward on A100
# (arXiv 2307.08691), 35% on H100 (arXiv 2407.08608). The middle is assumed.
FLASH_2 = {"8.0": Band(0.45, 0.55, 0.65), "9.0": Band(0.25, 0.30, 0.35)}
FLASH_2_ELSEWHERE = Band(0.25, 0.40, 0.65)
# Bytes of memory traffic that one operation of a product waits for: what makes the share of the peak fall as a device's
# arithmetic outgrows its memory; share = 1 / (1 + BESIDE x operations per byte). Lowest, mean and highest of A100-40GB,
# A100-80GB and H100; the time of products on each follows from the two others to 7% (benchmarks/time).
BESIDE = Band(0.0021, 0.0024, 0.0027)
MATMUL_OF_MEASURED = Band(0.6, 0.75, 0.95)  # of a measured rate of large products: assumed, not validated

# Share of the printed memory bandwidth that element-wise kernels and optimizers reach: assumed.
MEMORY = Band(0.7, 0.8, 0.9)

# Share of one direction of the printed link that NCCL's ring reaches. NVLink: 370 of 450 GB/s is what NCCL's authors
# expect on H100 (NVIDIA/nccl-tests issue 212), 200 to 208 of 300 is what users see on A100 (149, 178). Networks: 85 to
# 96 of 100 GB/s (119). The others are assumed; PCIe depends on the topology.
LINK = {
    "nvlink": Band(0.65, 0.75, 0.82),
    "infinity-fabric": Band(0.5, 0.65, 0.8),
    "pcie": Band(0.25, 0.45, 0.7),
    "infiniband": Band(0.75, 0.85, 0.95),
    "ethernet": Band(0.6, 0.8, 0.92),
}
LINK_ELSEWHERE = Band(0.4, 0.6, 0.85)
LATENCY_WITHIN_US = Band(10, 20, 50)  # of one collective in a node and between nodes: assumed
LATENCY_BETWEEN_US = Band(20, 50, 150)

# The host. Where a profile says nothing: assumed.
PINNED = Band(0.6, 0.8, 0.9)  # share of one direction of the printed link to the host
HOST_LINK_GB_S = 32.0  # both directions, PCIe 3
HOST_MEMORY_GB_S = Band(80, 200, 400)  # of a node
HOST_THREADS = Band(1, 1, 8)  # of one rank; accelerate and torchrun set OMP_NUM_THREADS to 1 unless told otherwise
LAUNCH_US = Band(15, 27, 50)  # of Python and torch for one kernel: fitted on one host (host_cost); the band is assumed
NVME_READ_GB_S = Band(1.5, 3, 6)  # of a node
NVME_WRITE_GB_S = Band(0.7, 1.5, 4)
