"""The device of a smoke-run, with a stand-in for nvidia-smi that answers queries as the real one does."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.hardware import linux
from zerocfg.smoke.launch import sharing
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.size import GIB, Room, Size
from zerocfg.smoke.prepare.device import Device, choose
from zerocfg.smoke.prepare.fit import room_here

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Install = Callable[..., None]

MIB = 1 << 20
STAND_IN = """#!{python}
import json, sys
cards, unknown, listing, code = json.loads({content!r})
if sys.argv[1] == "-L":
    print(listing)
    sys.exit()
(query, form) = sys.argv[1:]
assert form == "--format=csv,noheader,nounits"
fields = query.removeprefix("--query-gpu=").split(",")
for field in fields:
    if field in unknown:
        print(f'Field "{{field}}" is not a valid field to query.\\n')
        sys.exit(2)
for card in cards:
    print(card if isinstance(card, str) else ", ".join(card[field] for field in fields))
sys.exit(code)
"""
UUIDS = ("GPU-8f3c1a77-0000", "GPU-8f3d22aa-1111", "GPU-11aa33bb-2222")
LISTING = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-8f3c1a77-0000)
  MIG 3g.40gb     Device  0: (UUID: MIG-aa11)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-ab22)
  MIG 1c.2g.20gb  Device  2: (UUID: MIG-GPU-8f3c1a77-0000/5/0)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-8f3d22aa-1111)
"""


def card(
    index: int, name: str = "NVIDIA A100-SXM4-80GB", total: str = "81920", free: str = "80000", mig: str = "[N/A]"
):  # type: ignore[no-untyped-def]
    values = (str(index), UUIDS[index], name, total, free, mig)
    return dict(zip(("index", "uuid", "name", "memory.total", "memory.free", "mig.mode.current"), values, strict=True))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(
        *cards: Any, visible: str | None = None, unknown: tuple[str, ...] = (), listing: str = "", code: int = 0
    ):  # type: ignore[no-untyped-def]
        program = tmp_path / "nvidia-smi"
        content = json.dumps([list(cards), list(unknown), listing, code])
        program.write_text(STAND_IN.format(python=sys.executable, content=content))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return install


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_host(total: int | None, available: int | None, limit: int | None = None) -> None:
        monkeypatch.setattr(linux, "memory", lambda _: (total, available))
        monkeypatch.setattr(linux, "memory_limit", lambda _: limit)

    return set_host


def test_a_card_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert choose("auto").kind == "cpu" and "nvidia-smi" in choose("auto").note
    assert choose("cpu") == Device("cpu", "cpu")
    with pytest.raises(SmokeError, match=r"no NVIDIA card .*there is no nvidia-smi"):
        choose("cuda")


def test_what_nvidia_smi_says_in_place_of_cards_is_told(install: Install) -> None:
    install("No devices were found", code=6)
    with pytest.raises(SmokeError, match="nvidia-smi lists none: No devices were found"):
        choose("cuda")


def test_the_card_with_least_memory_counts(install: Install) -> None:
    install(card(0, "NVIDIA A, B", free="30000"), card(1, "NVIDIA C", "40960", "40000"))
    assert choose("auto") == Device("cuda", "NVIDIA A, B", 2, 40960 * MIB, 30000 * MIB)


@pytest.mark.parametrize("unknown", [(), ("mig.mode.current",)])
def test_a_field_that_an_old_driver_does_not_know(install: Install, unknown: tuple[str, ...]) -> None:
    install(card(0), unknown=unknown)
    assert choose("cuda") == Device("cuda", "NVIDIA A100-SXM4-80GB", 1, 81920 * MIB, 80000 * MIB)


def test_free_memory_that_is_not_known_is_all(install: Install) -> None:
    install(card(0, free="[N/A]"))
    assert choose("cuda").free == 81920 * MIB


SIZES = ("10240", "20480", "40960")


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,3,1", [0]),  # the list ends at the first invalid entry
        ("3", []),
        ("1,-1,0", [1]),
        ("-1", []),
        ("", []),
        ("1,1", []),  # CUDA and torch give none for an entry that is repeated
        ("GPU-8f3d22aa-1111", [1]),
        ("GPU-11,GPU-8f3c", [2, 0]),
        ("GPU-8f3", []),  # the prefix of two
        ("GPU-8f3d,GPU-8f3", [1]),
        ("GPU-11,0", [2]),  # what comes first decides how all are named
        ("0,GPU-11", [0]),
        ("GPU-ff", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices(install: Install, visible: str | None, chosen: list[int]) -> None:
    install(*(card(index, f"card {index}", SIZES[index], SIZES[index]) for index in range(3)), visible=visible)
    found = choose("auto")
    least = min((int(SIZES[index]) for index in chosen), default=0) * MIB
    if not chosen:
        assert (found.kind, found.count) == ("cpu", 0) and "names no card" in found.note
        return
    assert (found.name, found.count, found.memory) == (f"card {chosen[0]}", len(chosen), least)


@pytest.mark.libs
@pytest.mark.parametrize(
    "visible", ["0,3,1", "1,1", "-1", "", "GPU-11,GPU-8f3c", "GPU-8f3", "GPU-8f3d,GPU-8f3", "GPU-11,0", "0,GPU-11"]
)
def test_as_many_as_torch_counts(install: Install, visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    install(*(card(index) for index in range(3)), visible=visible)
    monkeypatch.setattr(torch.cuda, "_raw_device_count_nvml", lambda: 3)
    monkeypatch.setattr(torch.cuda, "_raw_device_uuid_nvml", lambda: list(UUIDS))
    assert choose("auto").count == torch.cuda._device_count_nvml()


class TestMemoryThatIsNotTold:
    def test_a_card_without_memory_of_its_own_has_the_hosts(self, install: Install, host: Any) -> None:
        install(card(0, "NVIDIA GB10", "[N/A]", "[N/A]"))
        host(119 * GIB, 100 * GIB)
        assert choose("cuda") == Device("cuda", "NVIDIA GB10", 1, 119 * GIB, 100 * GIB, unified=True)
        host(119 * GIB, 100 * GIB, limit=64 * GIB)
        assert (choose("cuda").memory, choose("cuda").free) == (64 * GIB, 64 * GIB)

    @pytest.mark.parametrize("word", ["[Unknown Error]", "[Insufficient Permissions]", "ERR!"])
    def test_a_card_whose_memory_cannot_be_read(self, install: Install, host: Any, word: str) -> None:
        install(card(0, total=word, free=word))
        host(119 * GIB, 100 * GIB)
        found = choose("cuda")
        assert (found.count, found.memory, found.free, found.unified, found.room) == (1, 0, 0, False, None)

    def test_host_and_card_may_both_be_unknown(self, install: Install, host: Any) -> None:
        install(card(0, "NVIDIA GB10", "[N/A]", "[N/A]"))
        host(None, None)
        assert choose("cuda").room is None

    def test_unknown_memory_is_no_limit(self, tmp_path: Path) -> None:
        unknown = Device("cuda", "NVIDIA A100-SXM4-80GB", 1)
        room = room_here(unknown, 1, 300, tmp_path)
        assert room.device is None
        assert Size(1, 500 * GIB, 0).against(Room(None, None, 10**15, 300)) is None
        assert sharing.memory_of_a_rank(unknown, 2) is None

    def test_card_and_host_share_one_memory(self, host: Any, tmp_path: Path) -> None:
        host(119 * GIB, 100 * GIB)
        spark = Device("cuda", "NVIDIA GB10", 1, 119 * GIB, 100 * GIB, unified=True)
        room = room_here(spark, 2, 300, tmp_path)
        assert (room.device, room.host, room.unified_ranks) == (50 * GIB, 90 * GIB, 2)
        assert Size(1, 30 * GIB, 30 * GIB).against(Room(50 * GIB, 90 * GIB, 10**15, 300, unified_ranks=2)) is None
        lacking = Size(1, 30 * GIB, 30 * GIB + 1).against(Room(50 * GIB, 90 * GIB, 10**15, 300, unified_ranks=2))
        assert lacking == "90.0 of 90.0 GiB of the memory that card and host share"
        assert Size(1, 30 * GIB, 80 * GIB).against(Room(50 * GIB, 90 * GIB, 10**15, 300)) is None
        assert room_here(Device("cuda", "H200", 1, 140 * GIB), 1, 300, tmp_path).unified_ranks == 0


class TestMig:
    def test_a_slice_has_its_own_memory(self, install: Install) -> None:
        """Not that of its card, whatever nvidia-smi says of that."""
        for total in ("81920", "[N/A]"):
            install(card(0, total=total, mig="Enabled"), listing=LISTING, visible="MIG-ab22")
            name = "NVIDIA A100-SXM4-80GB MIG 1g.10gb+me"
            assert choose("cuda") == Device("cuda", name, 1, 10 * 10**9, 10 * 10**9)

    @pytest.mark.parametrize(
        ("visible", "profile"),
        [
            (None, "3g.40gb"),
            ("0", "3g.40gb"),
            ("MIG-aa11", "3g.40gb"),
            ("MIG-ab", "1g.10gb+me"),
            ("MIG-GPU-8f3c1a77-0000/5/0", "1c.2g.20gb"),
            ("MIG-ab22,MIG-aa11", "1g.10gb+me"),  # a process sees one slice
            ("1,0", "3g.40gb"),  # and no whole card beside it
            ("GPU-8f3c", "3g.40gb"),
        ],
    )
    def test_one_slice_is_seen(self, install: Install, visible: str | None, profile: str) -> None:
        install(card(0, mig="Enabled"), card(1, mig="Disabled"), listing=LISTING, visible=visible)
        found = choose("cuda")
        assert (found.name, found.count) == (f"NVIDIA A100-SXM4-80GB MIG {profile}", 1)

    @pytest.mark.parametrize("visible", ["MIG-a", "MIG-ff"])
    def test_a_slice_that_is_not_there(self, install: Install, visible: str) -> None:
        install(card(0, mig="Enabled"), listing=LISTING, visible=visible)
        with pytest.raises(SmokeError, match="names no card of this machine"):
            choose("cuda")

    def test_whole_cards_stay_visible_beside_a_card_without_slices(self, install: Install) -> None:
        install(card(0), card(1, mig="Enabled"), listing=LISTING)
        assert choose("cuda") == Device("cuda", "NVIDIA A100-SXM4-80GB", 1, 81920 * MIB, 80000 * MIB)

    @pytest.mark.parametrize("visible", [None, "0", UUIDS[1]])
    def test_mig_mode_without_slices_leaves_cuda_no_device(self, install: Install, visible: str | None) -> None:
        install(card(1, mig="Enabled"), listing=LISTING, visible=visible)
        with pytest.raises(SmokeError, match=r"MIG mode is enabled on card 1 .*no MIG device of it is visible"):
            choose("cuda")
        assert "MIG mode" in choose("auto").note
