"""The probe, on made-up machines: trees of /proc and /sys, and stand-ins for NVML."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from zerocfg.hardware import linux
from zerocfg.hardware.nvml import Devices, read_devices
from zerocfg.hardware.probe import probe, probe_host
from zerocfg.models.hardware import HardwareProfile

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class TestLinux:
    def test_nothing_there(self, tmp_path: Path) -> None:
        assert linux.memory(tmp_path) == (None, None)
        assert linux.memory_limit(tmp_path) is None
        assert linux.nvme_mounts(tmp_path) == []

    def test_memory(self, tmp_path: Path) -> None:
        write(tmp_path, {"proc/meminfo": "MemTotal:  1048576 kB\nMemFree: 5 kB\nMemAvailable:  524288 kB\n"})
        assert linux.memory(tmp_path) == (GIB, GIB // 2)

    def test_version_2_takes_the_least_limit_on_the_way_up(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
                "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
                "sys/fs/cgroup/slurm/job_7/memory.max": f"{64 * GIB}\n",
                "sys/fs/cgroup/slurm/memory.max": f"{256 * GIB}\n",
            },
        )
        assert linux.memory_limit(tmp_path) == 64 * GIB

    def test_version_2_inside_a_container(self, tmp_path: Path) -> None:
        write(tmp_path, {"proc/self/cgroup": "0::/../outside\n", "sys/fs/cgroup/memory.max": f"{8 * GIB}\n"})
        assert linux.memory_limit(tmp_path) == 8 * GIB

    def test_version_1(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "12:cpuset:/a\n4:memory,hugetlb:/docker/abc\nnonsense\n",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
        assert linux.memory_limit(write(tmp_path, files)) == 4 * GIB
        write(tmp_path, {"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "9223372036854771712\n"})
        assert linux.memory_limit(tmp_path) is None

    def test_nvme_mounts(self, tmp_path: Path) -> None:
        mounts = [
            "proc /proc proc rw 0 0",
            "/dev/nvme0n1p2 / ext4 rw,relatime 0 0",
            "/dev/nvme0n1p2 /var/lib/containers ext4 rw 0 0",
            "/dev/nvme0n1p1 /boot/efi vfat rw 0 0",
            "/dev/sda1 /slow ext4 rw 0 0",
            "/dev/nvme1n1 /my\\040scratch xfs rw 0 0",
            "/dev/nvme2n1 /readonly xfs ro,noatime 0 0",
            "/dev/nvme3n1 /full xfs rw 0 0",
            "/dev/md0 /raid xfs rw 0 0",
            "/dev/md1 /mixed xfs rw 0 0",
            "/dev/mapper/vg-data /data xfs rw 0 0",
            "/dev/nvme4n1 /gone xfs rw 0 0",
            "short line",
        ]
        write(tmp_path, {"proc/mounts": "\n".join(mounts)})
        for point in ("var/lib/containers", "boot/efi", "slow", "my scratch", "readonly", "full"):
            (tmp_path / point).mkdir(parents=True)
        for point in ("raid", "mixed", "data"):
            (tmp_path / point).mkdir()
        for slave in ("md0/slaves/nvme5n1", "md0/slaves/nvme6n1", "md1/slaves/nvme5n1", "md1/slaves/sdb"):
            (tmp_path / "sys/class/block" / slave).mkdir(parents=True)
        (tmp_path / "sys/class/block/dm-0/slaves/md0").mkdir(parents=True)
        (tmp_path / "dev/mapper").mkdir(parents=True)
        (tmp_path / "dev/mapper/vg-data").symlink_to("../dm-0")
        room = {tmp_path: 5, tmp_path / "my scratch": 9, tmp_path / "raid": 7, tmp_path / "data": 6}
        room |= {tmp_path / name: 1 for name in ("slow", "mixed", "gone", "readonly", "var/lib/containers")}
        found = linux.nvme_mounts(tmp_path, room.get)
        assert found == [("/my scratch", 9), ("/raid", 7), ("/data", 6), ("/", 5)]

    def test_a_loop_of_block_devices_ends(self, tmp_path: Path) -> None:
        write(tmp_path, {"proc/mounts": "/dev/dm-0 / ext4 rw 0 0"})
        (tmp_path / "sys/class/block/dm-0/slaves/dm-0").mkdir(parents=True)
        assert linux.nvme_mounts(tmp_path) == []

    def test_free_space_of_a_real_folder(self, tmp_path: Path) -> None:
        assert (linux.free_bytes(tmp_path) or 0) > 0
        assert linux.free_bytes(tmp_path / "no") is None


class LostError(Exception):
    pass


def nvml(names: list[Any], memory: int = 80 * GIB, links: bool = True, **more: Any) -> SimpleNamespace:
    """A stand-in for pynvml. An exception in ``names`` is raised when that device is asked for."""

    def handle(index: int) -> Any:
        if isinstance(names[index], Exception):
            raise names[index]
        return names[index]

    def unsupported(*_: Any) -> Any:
        raise LostError("Not Supported")

    functions: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetName": lambda device: device,
        "nvmlDeviceGetMemoryInfo": lambda device, version=None: SimpleNamespace(total=memory, reserved=GIB),
        "nvmlDeviceGetCudaComputeCapability": lambda device: (8, 0),
        "nvmlDeviceGetMigMode": unsupported,
        "nvmlDeviceGetNvLinkState": lambda device, link: links,
        "nvmlMemory_v2": 2,
    }
    return SimpleNamespace(**(functions | more))


class TestNvml:
    def test_known_devices_get_their_rates(self) -> None:
        found = read_devices(lambda: nvml([b"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"]))
        assert [device.usable_gib for device in found.accelerators] == [79.0, 79.0]
        assert found.accelerators[0].bf16_tflops == 312
        assert found.link and (found.link.kind, found.link.gb_s) == ("nvlink", 600)
        assert found.notes == []

    def test_the_smaller_memory_figure_is_taken(self) -> None:
        found = read_devices(lambda: nvml(["NVIDIA A100-SXM4-80GB"], memory=81 * GIB))
        assert found.accelerators[0].usable_gib == 79.15
        assert found.link is None, "one device has nobody to talk to"

    def test_unknown_devices_are_described_by_what_was_read(self) -> None:
        found = read_devices(lambda: nvml(["NVIDIA Z9000"] * 2, memory=24 * GIB, links=False))
        device = found.accelerators[0]
        assert (device.name, device.usable_gib, device.architecture) == ("NVIDIA Z9000", 23.0, "8.0")
        assert (device.bf16, device.fp8, device.bf16_tflops) == (True, False, None)
        assert found.link and (found.link.kind, found.link.gb_s) == ("pcie", None)

    def test_linked_devices_without_links_use_pcie(self) -> None:
        found = read_devices(lambda: nvml(["NVIDIA A100-SXM4-80GB"] * 2, links=False))
        assert found.link and (found.link.kind, found.link.gb_s) == ("pcie", None)

    def test_a_dead_device_is_left_out_and_said(self) -> None:
        names = ["NVIDIA L4", LostError("GPU is lost"), "NVIDIA L4"]
        found = read_devices(lambda: nvml(names, memory=23 * GIB))
        assert len(found.accelerators) == 2
        assert found.notes == ["GPU 1 could not be read and is not counted: GPU is lost"]

    def test_old_drivers_lack_questions(self) -> None:
        def old(device: Any, version: Any = None) -> Any:
            if version is not None:
                raise LostError("Function Not Found")
            return SimpleNamespace(total=16 * GIB)

        def missing(*_: Any) -> Any:
            raise LostError("Function Not Found")

        module = nvml(["Tesla T4"], nvmlDeviceGetMemoryInfo=old, nvmlDeviceGetCudaComputeCapability=missing)
        found = read_devices(lambda: module)
        assert found.accelerators[0].usable_gib == 14.56
        assert found.accelerators[0].architecture == "7.5"

    def test_a_divided_device_is_said(self) -> None:
        found = read_devices(lambda: nvml(["NVIDIA A100-SXM4-80GB"], nvmlDeviceGetMigMode=lambda _: (1, 1)))
        assert "MIG" in found.notes[0]

    @pytest.mark.parametrize("message", ["Driver Not Loaded", "Driver/library version mismatch", ""])
    def test_a_broken_driver(self, message: str) -> None:
        def fail() -> None:
            raise LostError(message)

        found = read_devices(lambda: nvml([], nvmlInit=fail))
        assert found.accelerators == []
        assert found.notes == [f"NVIDIA devices could not be read: {message or 'LostError'}"]

    def test_counting_fails(self) -> None:
        def fail() -> int:
            raise LostError("Unknown Error")

        assert "could not be counted" in read_devices(lambda: nvml([], nvmlDeviceGetCount=fail)).notes[0]

    def test_no_library(self) -> None:
        def fail() -> Any:
            raise ImportError("No module named 'pynvml'")

        assert "zerocfg[gpu]" in read_devices(fail).notes[0]


class TestProfile:
    def test_an_empty_machine_still_has_a_profile(self, tmp_path: Path) -> None:
        profile = probe(tmp_path, Devices([], None, []))
        assert (profile.name, profile.world_size) == ("cpu", 1)
        assert profile.host and profile.host.nvme == []
        assert HardwareProfile.model_validate_json(profile.model_dump_json()) == profile

    def test_devices_that_differ(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        big = read_devices(lambda: nvml(["NVIDIA A100-SXM4-80GB"])).accelerators[0]
        small = read_devices(lambda: nvml(["NVIDIA L4"], memory=23 * GIB)).accelerators[0]
        profile = probe(tmp_path, Devices([big, small], None, []))
        assert (profile.accelerators_per_node, profile.accelerator.name) == (2, "NVIDIA L4")
        assert any("differ" in note for note in profile.notes)
        assert any("CUDA_VISIBLE_DEVICES=0" in note for note in profile.notes)

    def test_the_control_group_bounds_the_memory(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                "proc/meminfo": f"MemTotal: {64 * 1024 * 1024} kB\n",
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": f"{16 * GIB}",
            },
        )
        host = probe_host(tmp_path, [])
        assert (host.ram_gib, host.ram_limit_gib, host.planning_gib) == (64, 16, 16)

    def test_without_proc_sched_and_resource(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on Windows: no /proc, no affinity, no sysconf, no resource module."""
        import os
        import sys

        for name in ("sched_getaffinity", "sysconf", "statvfs"):
            monkeypatch.delattr(os, name, raising=False)
        monkeypatch.setitem(sys.modules, "resource", None)
        notes: list[str] = []
        host = probe_host(tmp_path, notes)
        assert host.cpus == os.cpu_count()
        assert (host.ram_gib, host.memlock) == (None, None)
        assert len(notes) == 2


class TestCommand:
    def test_to_the_terminal_and_to_a_file(self, tmp_path: Path) -> None:
        from zerocfg.cli.commands.probe import command

        shown = CliRunner().invoke(command, [])
        assert shown.exit_code == 0
        profile = HardwareProfile.model_validate(json.loads(shown.stdout))
        assert profile.host and profile.host.cpus
        path = tmp_path / "hw.json"
        assert CliRunner().invoke(command, ["-o", str(path)]).exit_code == 0
        assert HardwareProfile.model_validate_json(path.read_bytes()).host is not None
        assert list(tmp_path.iterdir()) == [path], "no temporary file is left"

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        from zerocfg.cli.commands.probe import command

        refused = CliRunner().invoke(command, ["-o", str(tmp_path / "no" / "hw.json")])
        assert refused.exit_code != 0
        assert "cannot be written" in refused.output and "Traceback" not in refused.output
        assert list(tmp_path.iterdir()) == []
