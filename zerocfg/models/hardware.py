"""A hardware profile: what a job runs on. Written by ``zerocfg probe``, or made from the built-in catalogue.

Units are in every name: ``_gib`` is 2^30 bytes, ``_gb_s`` is 1e9 bytes per second, ``_tflops`` is 1e12
operations per second without sparsity. None means "not known"; a count of zero is written as 0. What vendors print and
what was measured on a machine stand in different fields; predictions of time take the measured one where there is one.
"""

from __future__ import annotations

from typing import Literal

from zerocfg.models.base import Section, key

# Boards with error correction report as little as 0.919 of the printed size (A10G and L4: 22.06 of 24).
SMALLEST_USABLE_SHARE = 0.91
Precision = Literal["bf16", "fp16", "fp32", "fp8"]


class Accelerator(Section):
    """One device as the training process sees it (for an AMD MI250X: one of its two dies)."""

    name: str = key("Canonical name.")
    vendor: Literal["nvidia", "amd", "intel", "cpu"] = key("Who makes it; cpu for training without a device.")
    memory_gib: float | None = key("Memory as the vendor prints it.", default=None, unit="GiB", gt=0)
    usable_gib: float | None = key(
        "What the driver reports as total memory, before any context.", default=None, unit="GiB", gt=0
    )
    architecture: str | None = key("Compute capability (9.0) or the vendor's name (gfx942).", default=None)
    bf16: bool | None = key("Computes bfloat16 in hardware.", default=None)
    fp8: bool | None = key("Computes 8-bit floats in hardware.", default=None)
    bf16_tflops: float | None = key("Peak dense bf16 rate, fp32 accumulation.", default=None, unit="TFLOP/s", gt=0)
    fp16_tflops: float | None = key("Peak dense fp16 rate, fp32 accumulation.", default=None, unit="TFLOP/s", gt=0)
    fp32_tflops: float | None = key("Peak fp32 rate without TF32.", default=None, unit="TFLOP/s", gt=0)
    fp8_tflops: float | None = key("Peak dense 8-bit rate.", default=None, unit="TFLOP/s", gt=0)
    memory_gb_s: float | None = key("Memory bandwidth.", default=None, unit="GB/s", gt=0)
    pcie_generation: int | None = key("Highest PCIe generation of device and slot.", default=None, ge=1)
    pcie_width: int | None = key("Most PCIe lanes of device and slot.", default=None, unit="lanes", ge=1)
    host_gb_s: float | None = key(
        "Link to the host's memory (PCIe, C2C), both directions together.", default=None, unit="GB/s", gt=0
    )
    measured_tflops: dict[Precision, float] = key(
        "Rates of large matrix products, measured on this device.", default={}, unit="TFLOP/s"
    )
    measured_memory_gb_s: float | None = key(
        "Memory bandwidth, measured: bytes read and written by a large copy.", default=None, unit="GB/s", gt=0
    )
    origin: str = key("Where the figures come from.", default="")

    @property
    def planning_gib(self) -> float | None:
        """Memory to plan with: what the driver reports, else a careful share of the printed size."""
        if self.usable_gib is not None or self.memory_gib is None:
            return self.usable_gib
        return self.memory_gib * SMALLEST_USABLE_SHARE


class Link(Section):
    """A connection between devices. ``gb_s`` sums both directions of one device, as vendors print it; ``busbw_gb_s`` is
    one direction, as nccl-tests prints it."""

    kind: str = key("nvlink, pcie, infinity-fabric, ethernet, infiniband, host (ranks without a device), ...")
    gb_s: float | None = key("Bandwidth of one device, both directions together.", default=None, unit="GB/s", gt=0)
    busbw_gb_s: float | None = key(
        "Bus bandwidth of a large all-reduce, measured (nccl-tests: busbw).", default=None, unit="GB/s", gt=0
    )
    latency_us: float | None = key(
        "Time of the smallest collective, measured.", default=None, unit="microseconds", ge=0
    )
    assumed: str | None = key(
        "Why these figures are assumed, where nobody stated them; null: they are known.", default=None
    )


class Mount(Section):
    """A file system on an NVMe drive."""

    path: str = key("Where it is mounted.")
    free_gib: float = key("Free for this user.", unit="GiB", ge=0)
    read_gb_s: float | None = key("Reading large blocks, measured.", default=None, unit="GB/s", gt=0)
    write_gb_s: float | None = key("Writing large blocks, measured.", default=None, unit="GB/s", gt=0)


class NumaNode(Section):
    """A part of the host: CPUs and the memory that is near to them."""

    index: int = key("Number that Linux gives it.", ge=0)
    cpus: str = key("Its logical CPUs, as Linux writes them: 0-31,64-95.", default="")
    memory_gib: float | None = key("Its memory.", default=None, unit="GiB", ge=0)
    accelerators: list[int] = key("Devices whose PCIe slot belongs to it, counted from 0.", default=[])


class Interface(Section):
    """A network interface."""

    name: str = key("eth0, ens3f0, bond0, ...")
    gbit_s: float | None = key("Speed that the link negotiated; null: not stated.", default=None, unit="Gbit/s", gt=0)
    state: str = key("up, down or unknown (operstate of Linux).", default="unknown")


class Port(Section):
    """A port of an RDMA adapter (InfiniBand or RoCE)."""

    name: str = key("Adapter and port: mlx5_0:1.")
    gbit_s: float | None = key("Rate of the port.", default=None, unit="Gbit/s", gt=0)
    state: str = key("active, init, armed, down, ...", default="unknown")
    layer: str = key("InfiniBand, or Ethernet for RoCE.", default="InfiniBand")


class Host(Section):
    """The CPU side of one node."""

    cpu_model: str | None = key("CPU as it names itself.", default=None)
    cpus: int | None = key("Logical CPUs that this process may use.", default=None, unit="CPUs", ge=1)
    cpu_limit: float | None = key("CPU time that the control group grants.", default=None, unit="CPUs", gt=0)
    numa: list[NumaNode] = key("NUMA nodes.", default=[])
    ram_gib: float | None = key("Installed memory.", default=None, unit="GiB", gt=0)
    ram_available_gib: float | None = key("Memory that is free or can be freed now.", default=None, unit="GiB", ge=0)
    ram_limit_gib: float | None = key("Limit of the control group; null: none.", default=None, unit="GiB", ge=0)
    memlock: int | Literal["unlimited"] | None = key(
        "Most memory that a process may lock (soft RLIMIT_MEMLOCK).", default=None, unit="bytes"
    )
    memory_gb_s: float | None = key(
        "Memory bandwidth of the node: bytes read and written.", default=None, unit="GB/s", gt=0
    )
    pinned_gb_s: float | None = key(
        "Copies between page-locked memory and one device, one direction, measured.", default=None, unit="GB/s", gt=0
    )
    launch_us: float | None = key(
        "What Python and torch take for one kernel in a layer of a model.", default=None, unit="microseconds", gt=0
    )
    nvme: list[Mount] = key("File systems on NVMe drives that this user can write to.", default=[])
    network: list[Interface] = key("Network interfaces of hardware, and bonds of them.", default=[])
    infiniband: list[Port] = key("Ports of RDMA adapters.", default=[])
    driver: str | None = key("Version of the devices' driver.", default=None)
    driver_cuda: str | None = key("Newest CUDA that the driver runs.", default=None)

    @property
    def planning_gib(self) -> float | None:
        """Memory to plan with: the installed amount or the control group's limit, whichever is less."""
        known = [value for value in (self.ram_gib, self.ram_limit_gib) if value is not None]
        return min(known) if known else None


class HardwareProfile(Section):
    """All nodes of a job; every node is like the others."""

    version: Literal[1] = key("Version of this format.", default=1)
    name: str = key("What to call it in reports.")
    nodes: int = key("Machines.", default=1, ge=1)
    accelerators_per_node: int = key(
        "Devices, and so ranks, on each node; without a device: ranks on each node.", unit="ranks", ge=1
    )
    accelerator: Accelerator = key("The device; vendor cpu when there is none.")
    link_within_node: Link | None = key("Between the devices of one node.", default=None)
    topology: list[str] = key(
        "Paths between the devices of one node, a row each, as `nvidia-smi topo -m` writes them: NV18 is 18 NVLinks, "
        "XGMI is Infinity Fabric; PIX, PXB, PHB, NODE, SYS are PCIe, ever farther; X is the device itself.",
        default=[],
    )
    link_between_nodes: Link | None = key("Between nodes, for each device; no catalogue knows it.", default=None)
    host: Host | None = key("CPU side of one node; null when not known.", default=None)
    origin: str = key("Who says so: probe or catalogue.", default="")
    date: str | None = key("When it was measured or published (ISO date).", default=None)
    notes: list[str] = key("What was assumed, and what could not be read.", default=[])

    @property
    def world_size(self) -> int:
        """Ranks of a job that uses everything."""
        return self.nodes * self.accelerators_per_node
