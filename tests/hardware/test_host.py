"""CPU limits, networks and drives."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from zerocfg.hardware import drives, linux, network
from zerocfg.hardware.probe_job import with_drives
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Interface, Mount, Port

MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


class TestCpu:
    def test_version_2(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/pod/main\n",
            "sys/fs/cgroup/pod/cpu.max": "350000 100000\n",
            "sys/fs/cgroup/pod/main/cpu.max": "max 100000\n",
        }
        assert linux.cpu_limit(write(tmp_path, files)) == 3.5

    def test_version_1(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "3:cpu,cpuacct:/a\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        }
        assert linux.cpu_limit(write(tmp_path, files)) == 2
        write(tmp_path, {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n"})
        assert linux.cpu_limit(tmp_path) is None

    def test_model(self, tmp_path: Path) -> None:
        write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\nflags\t: x\n"})
        assert linux.cpu_model(tmp_path) == "AMD EPYC 9654 96-Core Processor"
        assert linux.cpu_model(tmp_path / "no") is None


class TestNetwork:
    def test_hardware_and_bonds_but_not_what_containers_bring(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                "sys/class/net/lo/operstate": "unknown",
                "sys/class/net/ens3/operstate": "up\n",
                "sys/class/net/ens3/speed": "100000\n",
                "sys/class/net/ens3/device/vendor": "0x15b3",
                "sys/class/net/ens4/operstate": "down\n",
                "sys/class/net/ens4/speed": "-1\n",
                "sys/class/net/ens4/device/vendor": "0x15b3",
                "sys/class/net/bond0/operstate": "up\n",
                "sys/class/net/bond0/speed": "200000\n",
                "sys/class/net/bond0/bonding/mode": "802.3ad 4",
                "sys/class/net/docker0/operstate": "up\n",
                "sys/class/net/bonding_masters": "bond0",
            },
        )
        assert network.interfaces(tmp_path) == [
            Interface(name="bond0", gbit_s=200, state="up"),
            Interface(name="ens3", gbit_s=100, state="up"),
            Interface(name="ens4", gbit_s=None, state="down"),
        ]

    def test_inside_a_container(self, tmp_path: Path) -> None:
        write(tmp_path, {"sys/class/net/eth0/operstate": "up\n", "sys/class/net/eth1/operstate": "down\n"})
        assert network.interfaces(tmp_path) == [Interface(name="eth0", state="up")]

    def test_rdma_ports(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
                "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
                "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
                "sys/class/infiniband/mlx5_1/ports/1/rate": "2.5 Gb/sec (1X SDR)\n",
                "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
                "sys/class/infiniband/mlx5_1/ports/1/link_layer": "Ethernet\n",
            },
        )
        assert network.ports(tmp_path) == [
            Port(name="mlx5_0:1", gbit_s=400, state="active", layer="InfiniBand"),
            Port(name="mlx5_1:1", gbit_s=2.5, state="down", layer="Ethernet"),
        ]

    @pytest.mark.parametrize(
        ("ports", "gbit_s", "kind", "gb_s"),
        [
            ([400] * 8, None, "infiniband", 100),  # one for each device: 50 GB/s in each direction
            ([400] * 10, None, "infiniband", 100),  # two more are for storage
            ([400] * 4, None, "infiniband", 50),
            ([400, 100], None, "infiniband", 12.5),
            ([], 100, "ethernet", 3.125),  # shared by eight
        ],
    )
    def test_the_share_of_one_device(self, ports: list[float], gbit_s: float | None, kind: str, gb_s: float) -> None:
        host = Host(
            infiniband=[Port(name=f"mlx5_{n}:1", gbit_s=rate, state="active") for n, rate in enumerate(ports)],
            network=[
                Interface(name="eth0", gbit_s=gbit_s, state="up"),
                Interface(name="eth1", gbit_s=800, state="down"),
            ],
        )
        link = network.link_between_nodes(host, 8)
        assert link and (link.kind, link.gb_s) == (kind, gb_s)

    def test_roce_is_ethernet_and_nothing_known_is_nothing(self) -> None:
        roce = Host(infiniband=[Port(name="mlx5_0:1", gbit_s=200, state="active", layer="Ethernet")])
        link = network.link_between_nodes(roce, 1)
        assert link and (link.kind, link.gb_s) == ("ethernet", 50)
        down = Host(infiniband=[Port(name="mlx5_0:1", gbit_s=200, state="down")], network=[Interface(name="eth0")])
        assert network.link_between_nodes(down, 1) is None
        assert network.link_between_nodes(None, 1) is None


class TestDrives:
    def test_a_real_run_leaves_nothing(self, tmp_path: Path) -> None:
        speed = drives.measure(tmp_path, size=32 * MIB)
        if isinstance(speed, drives.Speed):
            assert speed.read_gb_s > 0 and speed.write_gb_s > 0
        else:
            assert speed == "its file system refuses O_DIRECT"
        assert list(tmp_path.iterdir()) == []

    def test_a_file_system_that_refuses(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.open

        def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if flags & getattr(os, "O_DIRECT", 0):
                raise OSError(errno.EINVAL, "Invalid argument")
            return real(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", refuse)
        assert drives.measure(tmp_path) == "its file system refuses O_DIRECT"
        assert list(tmp_path.iterdir()) == []

    def test_an_interruption_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*_: Any) -> int:
            raise KeyboardInterrupt

        before = len(list(Path("/proc/self/fd").iterdir()))
        monkeypatch.setattr(os, "pwritev", interrupt)
        with pytest.raises(KeyboardInterrupt):
            drives.measure(tmp_path, size=32 * MIB)
        assert list(tmp_path.iterdir()) == []
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_a_full_drive(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "pwritev", lambda *_: 4096)
        assert drives.measure(tmp_path, size=32 * MIB) == "No space left on device"

    def test_little_room_and_no_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert drives.measure(tmp_path / "no") == "No such file or directory"
        monkeypatch.setattr(drives, "SHARE", 0.0)
        assert drives.measure(tmp_path) == "too little free space for a test file"

    def test_no_more_than_a_share_of_what_is_free(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = []
        monkeypatch.setattr(drives, "_run", lambda file, size, *_, **__: sizes.append(size) or 1.0)
        room = os.statvfs(tmp_path)
        monkeypatch.setattr(drives, "SHARE", 32 * MIB / (room.f_bavail * room.f_frsize))
        assert drives.measure(tmp_path) == drives.Speed(1.0, 1.0)
        assert 0 < sizes[0] <= 40 * MIB

    def test_the_profile_says_what_was_not_measured(self, tmp_path: Path) -> None:
        cpu = Accelerator(name="cpu", vendor="cpu")
        mounts = [Mount(path=str(tmp_path / "no"), free_gib=1)]
        profile = HardwareProfile(name="cpu", accelerators_per_node=1, accelerator=cpu, host=Host(nvme=mounts))
        told: list[str] = []
        done = with_drives(profile, told.append)
        assert done.host and done.host.nvme == mounts
        assert done.notes == [f"the drive of {tmp_path / 'no'} was not measured: No such file or directory"]
        assert len(told) == 1
        empty = with_drives(profile.model_copy(update={"host": Host()}), told.append)
        assert "no drive was measured" in empty.notes[0]
