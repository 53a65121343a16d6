"""Names of hardware, and profiles on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from zerocfg.hardware.catalogue import _ALIASES, CATALOGUE, find_accelerator, parse_hardware
from zerocfg.hardware.profile import load_hardware, read_profile, write_text
from zerocfg.models.hardware import Host, Link, Mount

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "nodes", "per_node", "name"),
    [
        ("8xA100-80GB", 1, 8, "A100-SXM-80GB"),
        ("8xa100-40gb", 1, 8, "A100-SXM-40GB"),
        ("2x8xH100", 2, 8, "H100-SXM-80GB"),
        (" 4 x RTX4090 ", 1, 4, "RTX4090"),
        ("RTX 3090", 1, 1, "RTX3090"),
        ("4090", 1, 1, "RTX4090"),
        ("2×3090", 1, 2, "RTX3090"),
        ("cpu", 1, 1, "cpu"),
        ("2xcpu", 1, 2, "cpu"),
        ("NVIDIA A100-SXM4-80GB", 1, 1, "A100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", 1, 1, "H100-SXM-80GB"),
        ("NVIDIA RTX 6000 Ada Generation", 1, 1, "RTX6000Ada"),
        ("Tesla V100-SXM2-16GB", 1, 1, "V100-SXM2-16GB"),
        ("AMD Instinct MI300X", 1, 1, "MI300X"),
    ],
)
def test_names(text: str, nodes: int, per_node: int, name: str) -> None:
    profile = parse_hardware(text)
    assert (profile.nodes, profile.accelerators_per_node, profile.accelerator.name) == (nodes, per_node, name)
    assert profile.world_size == nodes * per_node


BAD_NAMES = ["", "8x", "x", "0xA100", "8x0xA100", "8x8x8xH100", "9999999xA100", "A1000GB", "\x00"]


@pytest.mark.parametrize("text", BAD_NAMES)
def test_bad_names_are_refused_with_one_line(text: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_hardware(text)
    assert "\n" not in str(refusal.value)


def test_a_slip_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean H100"):
        parse_hardware("8xH10O")


def test_an_assumed_variant_is_said() -> None:
    assert parse_hardware("8xA100").notes == ["A100 was taken as A100-SXM-80GB"]
    assert parse_hardware("8xA100-SXM-80GB").notes == []


def test_the_catalogue_is_complete_and_plausible() -> None:
    devices = [device for device, _ in CATALOGUE.values() if device.vendor != "cpu"]
    assert len(devices) >= 40
    assert set(_ALIASES.values()) <= set(CATALOGUE)
    for device in devices:
        assert find_accelerator(device.name.upper()) == CATALOGUE[device.name]
        assert device.memory_gib and device.memory_gb_s and device.architecture
        assert device.origin.startswith(("NVIDIA", "AMD", "Intel", "reports of")), "a source that can be looked up"
        assert device.host_gb_s in (32, 64, 128, 450, 900), "PCIe 3 to 5, or C2C"
        assert not device.measured_tflops and device.measured_memory_gb_s is None, "a catalogue measures nothing"
        assert device.planning_gib and 0.9 * device.memory_gib < device.planning_gib <= device.memory_gib
        assert (device.bf16_tflops is not None) == device.bf16
        if device.vendor == "nvidia":
            capability = tuple(map(int, device.architecture.split(".")))
            assert device.bf16 == (capability >= (8, 0)), device.name
            assert device.fp8 == (capability >= (8, 9)), device.name
        if device.bf16_tflops and device.fp8_tflops:
            # dense against dense: 8-bit runs at once or twice the 16-bit rate (figures are rounded)
            assert 0.99 <= device.fp8_tflops / device.bf16_tflops <= 2.03, device.name


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX2080Ti"),
    ],
)
def test_names_as_drivers_write_them(driver: str, name: str) -> None:
    found = find_accelerator(driver)
    assert found and found[0].name == name


def test_one_die_of_two() -> None:
    assert "an MI250 module counts as two" in parse_hardware("8xMI250").notes[0]


def test_a_profile_survives_the_disk(tmp_path: Path) -> None:
    profile = parse_hardware("2x8xH100")
    path = tmp_path / "hw.json"
    path.write_text(write_text(profile))
    assert read_profile(path) == profile


def test_measured_rates_survive_the_disk(tmp_path: Path) -> None:
    profile = parse_hardware("2x8xH100")
    measured = profile.model_copy(
        update={
            "accelerator": profile.accelerator.model_copy(
                update={"measured_tflops": {"bf16": 700.0}, "measured_memory_gb_s": 3000.0}
            ),
            "link_within_node": Link(kind="nvlink", gb_s=900, busbw_gb_s=360, latency_us=20),
            "link_between_nodes": Link(kind="infiniband", busbw_gb_s=45),
            "host": Host(
                memory_gb_s=300, pinned_gb_s=50, nvme=[Mount(path="/x", free_gib=1, read_gb_s=6, write_gb_s=3)]
            ),
        }
    )
    path = tmp_path / "hw.json"
    path.write_text(write_text(measured))
    assert load_hardware(str(path)) == measured
    with pytest.raises(ValueError, match="measured_tflops"):
        path.write_text(path.read_text().replace('"bf16": 700.0', '"int4": 700.0'))
        load_hardware(str(path))


BAD_PROFILES = ["", "{", "[]", '{"version": 2}', '{"name": "x", "nodes": "many"}', "\x00"]


@pytest.mark.parametrize("content", BAD_PROFILES)
def test_bad_profiles_are_refused_with_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "hw.json"
    path.write_text(content)
    with pytest.raises(ValueError) as refusal:
        load_hardware(str(path))
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_missing_profile_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(ValueError, match="cannot be read" if path.suffix else "unknown accelerator"):
            load_hardware(str(path))


def test_profiles_satisfy_their_schema() -> None:
    import jsonschema

    from zerocfg.models.schema import SCHEMAS

    for name in ("cpu", "2x8xH100", "4xMI300X"):
        jsonschema.validate(json.loads(write_text(parse_hardware(name))), SCHEMAS["hardware"]())
