"""How devices are joined, as NVML tells it: stand-ins for real machines, since none of them is here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.hardware.nvml import read_devices
from zerocfg.hardware.probe import probe

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
SWITCH = "switch"
LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}


class UnsupportedError(Exception):
    pass


class Machine:
    """pynvml on a machine. ``links[i]`` lists the far ends of device i's NVLinks: device numbers, or SWITCH."""

    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(
        self,
        name: str,
        count: int,
        links: dict[int, list[Any]] | None = None,
        paths: dict[tuple[int, int], str] | None = None,
        pcie: tuple[int, int, int] = (4, 16, 16),
        version: int = 4,
        capability: tuple[int, int] = (8, 0),
    ) -> None:
        self.name, self.count, self.links, self.paths = name, count, links or {}, paths or {}
        self.pcie, self.version, self.capability = pcie, version, capability

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlShutdown(self) -> None: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, device: int) -> bytes:  # noqa: N802
        return self.name.encode()

    def nvmlDeviceGetMemoryInfo(self, device: int, version: int = 1) -> Any:  # noqa: N802
        return SimpleNamespace(total=80 * GIB, reserved=0)

    def nvmlDeviceGetCudaComputeCapability(self, device: int) -> tuple[int, int]:  # noqa: N802
        return self.capability

    def nvmlDeviceGetMaxPcieLinkGeneration(self, device: int) -> int:  # noqa: N802
        return self.pcie[0]

    def nvmlDeviceGetMaxPcieLinkWidth(self, device: int) -> int:  # noqa: N802
        return self.pcie[1]

    def nvmlDeviceGetCurrPcieLinkWidth(self, device: int) -> int:  # noqa: N802
        return self.pcie[2]

    def nvmlDeviceGetPciInfo(self, device: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"00000000:{0x1A + device:02X}:00.0".encode())

    def _end(self, device: int, link: int) -> Any:
        ends = self.links.get(device, [])
        if link >= len(ends):
            raise UnsupportedError("Invalid Argument")
        return ends[link]

    def nvmlDeviceGetNvLinkState(self, device: int, link: int) -> int:  # noqa: N802
        return 0 if self._end(device, link) is None else 1

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: int, link: int) -> Any:  # noqa: N802
        end = self._end(device, link)
        return self.nvmlDeviceGetPciInfo(end if isinstance(end, int) else 200)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device: int, link: int) -> int:  # noqa: N802
        end = self._end(device, link)
        return 2 if end == SWITCH else 1 if end == "cpu" else 0

    def nvmlDeviceGetNvLinkVersion(self, device: int, link: int) -> int:  # noqa: N802
        return self.version

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:  # noqa: N802
        return LEVELS[self.paths.get((min(one, other), max(one, other)), "SYS")]

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "550.90.07"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 12040


def test_a_switch_joins_all() -> None:
    machine = Machine("NVIDIA H100 80GB HBM3", 4, {n: [SWITCH] * 18 for n in range(4)}, capability=(9, 0))
    found = read_devices(lambda: machine)
    assert found.topology[0] == "X NV18 NV18 NV18"
    assert found.topology[3] == "NV18 NV18 NV18 X"
    assert found.link and (found.link.kind, found.link.gb_s) == ("nvlink", 900)
    assert (found.driver, found.driver_cuda) == ("550.90.07", "12.4")
    assert found.notes == []


def test_links_from_device_to_device_are_counted_for_each_pair() -> None:
    """A DGX-1: some pairs have two links, some one."""
    links = {0: [1, 1, 2], 1: [0, 0, 2], 2: [0, 1]}
    found = read_devices(lambda: Machine("Tesla V100-SXM2-32GB", 3, links, capability=(7, 0)))
    assert found.topology == ["X NV2 NV1", "NV2 X NV1", "NV1 NV1 X"]
    assert found.link and found.link.kind == "nvlink"
    assert "different numbers of active NVLinks (2 to 3)" in found.notes[0]


def test_bridges_between_pairs_leave_a_ring_on_pcie() -> None:
    links = {0: [1] * 4, 1: [0] * 4, 2: [3] * 4, 3: [2] * 4}
    paths = {(0, 2): "NODE", (0, 3): "NODE", (1, 2): "NODE", (1, 3): "NODE"}
    found = read_devices(lambda: Machine("NVIDIA RTX A6000", 4, links, paths))
    assert found.topology == ["X NV4 NODE NODE", "NV4 X NODE NODE", "NODE NODE X NV4", "NODE NODE NV4 X"]
    assert found.link and (found.link.kind, found.link.gb_s) == ("pcie", 64)
    assert found.notes == ["NVLink joins only some pairs of devices: a ring over all of them goes over PCIe"]


@pytest.mark.parametrize("path", LEVELS)
def test_pcie_paths_have_the_names_of_nvidia_smi(path: str) -> None:
    found = read_devices(lambda: Machine("NVIDIA L40S", 2, paths={(0, 1): path}))
    assert found.topology == [f"X {path}", f"{path} X"]


def test_links_to_a_cpu_join_no_devices() -> None:
    found = read_devices(lambda: Machine("Tesla V100-SXM2-16GB", 2, {0: ["cpu"] * 3, 1: ["cpu"] * 3}))
    assert found.topology == ["X SYS", "SYS X"]


def test_inactive_links_do_not_count() -> None:
    found = read_devices(lambda: Machine("NVIDIA A100-SXM4-80GB", 2, {n: [None, SWITCH, None] for n in (0, 1)}))
    assert found.topology == ["X NV1", "NV1 X"]


@pytest.mark.parametrize(("version", "links", "gb_s"), [(4, 12, 600), (6, 18, 900), (7, 18, 1800), (99, 18, None)])
def test_a_device_that_the_catalogue_lacks(version: int, links: int, gb_s: float | None) -> None:
    found = read_devices(lambda: Machine("NVIDIA Z9000", 2, dict.fromkeys((0, 1), [SWITCH] * links), version=version))
    assert found.link and (found.link.kind, found.link.gb_s) == ("nvlink", gb_s)


def test_the_slot_bounds_the_link_to_the_host() -> None:
    (device,) = read_devices(lambda: Machine("NVIDIA L40S", 1, pcie=(3, 8, 8))).accelerators
    assert (device.pcie_generation, device.pcie_width, device.host_gb_s) == (3, 8, 16)


def test_a_superchip_keeps_its_own_link_to_the_host() -> None:
    (device,) = read_devices(lambda: Machine("NVIDIA GH200 480GB", 1, pcie=(5, 16, 16))).accelerators
    assert device.host_gb_s == 900


def test_a_card_with_too_few_lanes_is_said() -> None:
    (note,) = read_devices(lambda: Machine("NVIDIA L4", 1, pcie=(4, 16, 4))).notes
    assert "GPU 0 uses 4 of 16 PCIe lanes" in note


def test_each_device_stands_beside_its_numa_node(tmp_path: Path) -> None:
    for bus, node in (("1a", 0), ("1b", 1), ("1c", 1), ("1d", -1)):
        folder = tmp_path / f"sys/bus/pci/devices/0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
    for node, cpus in ((0, "0-31"), (1, "32-63")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal:       {256 * 1024 * 1024} kB\n")
    profile = probe(tmp_path, read_devices(lambda: Machine("NVIDIA L4", 4)))
    assert profile.host
    assert [(node.index, node.cpus, node.memory_gib, node.accelerators) for node in profile.host.numa] == [
        (0, "0-31", 256, [0]),
        (1, "32-63", 256, [1, 2]),
    ]
    assert profile.host.driver == "550.90.07"
    assert profile.topology[0] == "X SYS SYS SYS"
