"""The network between nodes: stated, known or assumed; and no plan for which it is free."""

from __future__ import annotations

import re

import pytest

from zerocfg.hardware.between_nodes import describe_network, with_network
from zerocfg.hardware.catalogue import CATALOGUE, parse_hardware
from zerocfg.hardware.profile import load_hardware
from zerocfg.models.hardware import Link


@pytest.mark.parametrize(
    ("hardware", "gbit_s"),
    [
        ("2x8xA100-80GB", 50),  # Amazon EC2 P4d: 400 Gbit/s
        ("2x8xA800", 50),
        ("2x8xH100", 100),  # Google Cloud A3 High: 4 x 200 Gbit/s
        ("2x8xH20", 100),
        ("2x8xH200", 400),  # Google Cloud A3 Ultra: 8 x 400 Gbit/s
        ("2x8xH200-NVL", 12.5),
        ("2x8xB200", 400),
        ("2x8xMI300X", 400),  # Azure ND MI300X v5
        ("2x8xMI100", 12.5),
        ("2x8xGaudi3", 600),
        ("2x8xV100", 12.5),  # Amazon EC2 P3dn: 100 Gbit/s
        ("2x8xA10G", 12.5),  # Amazon EC2 G5: 100 Gbit/s
        ("2x8xA100-PCIe", 12.5),
        ("2x8xRTXPRO6000", 50),
        ("2x8xRTX6000Ada", 12.5),
        ("2x2xRTX4090", 5),  # 10 Gbit/s of a node, shared
        ("2x1xRTX4090", 10),
    ],
)
def test_what_is_assumed_of_a_class(hardware: str, gbit_s: float) -> None:
    profile = load_hardware(hardware)
    link = profile.link_between_nodes
    assert link is not None and link.gb_s == pytest.approx(gbit_s / 8 * 2) and link.assumed
    assert f"of {gbit_s:g} Gbit/s for each device, assumed (" in describe_network(profile)


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_network_is_unlimited(name: str) -> None:
    link = load_hardware(f"2x8x{name}").link_between_nodes
    assert link is not None and link.gb_s is not None and 0 < link.gb_s <= 150


def test_one_node_needs_none() -> None:
    assert load_hardware("8xA100").link_between_nodes is None and describe_network(load_hardware("8xA100")) == ""


def test_what_is_known_stays() -> None:
    own = Link(kind="infiniband", gb_s=6.25)
    profile = parse_hardware("2x8xA100").model_copy(update={"link_between_nodes": own})
    assert with_network(profile) == profile
    assert describe_network(profile) == "infiniband of 25 Gbit/s for each device"
    measured = profile.model_copy(update={"link_between_nodes": Link(kind="ethernet", busbw_gb_s=11.0)})
    assert with_network(measured) == measured and "11 GB/s for each device, measured" in describe_network(measured)


def test_a_link_without_a_rate_is_not_known() -> None:
    profile = parse_hardware("2x8xA100").model_copy(update={"link_between_nodes": Link(kind="ethernet")})
    link = with_network(profile).link_between_nodes
    assert link is not None and link.gb_s == 12.5


def test_an_assumption_follows_the_devices_of_a_node() -> None:
    half = load_hardware("2x2xRTX4090").model_copy(update={"accelerators_per_node": 1})
    link = with_network(half).link_between_nodes
    assert link is not None and link.gb_s == 2.5


@pytest.mark.parametrize(
    ("stated", "kind", "gb_s"),
    [
        ("8x200", "ethernet", 50.0),
        ("8 x 200 Gbit/s", "ethernet", 50.0),
        ("8x200-infiniband", "infiniband", 50.0),
        ("100", "ethernet", 3.125),
        ("100Gbps", "ethernet", 3.125),
        ("100 Gb/s IB", "infiniband", 3.125),
        ("2.5", "ethernet", 0.078125),
        ("4x100 roce", "ethernet", 12.5),
    ],
)
def test_what_is_stated(stated: str, kind: str, gb_s: float) -> None:
    """Of one device of eight, both directions together."""
    link = load_hardware("2x8xA100", stated).link_between_nodes
    assert link == Link(kind=kind, gb_s=gb_s)
    assert "assumed" not in describe_network(load_hardware("2x8xA100", stated))


@pytest.mark.parametrize(
    "stated", ["", "fast", "0", "0x200", "8x", "-8x200", "8x8x200", "1e3", "100GB/s", "1000000", "8x200 token"]
)
def test_what_is_no_network(stated: str) -> None:
    with pytest.raises(ValueError, match=f"^--network {re.escape(stated)}: .*8x200") as caught:
        load_hardware("2x8xA100", stated)
    assert "\n" not in str(caught.value)
    assert ("Gbit/s, 8 times as many" in str(caught.value)) == (stated == "100GB/s")
