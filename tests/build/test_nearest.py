"""Where no plan fits: the nearest change that does is named with its plan and its figures."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.build.conftest import Files, Workplace
from tests.build.test_open_engines import unnamed
from tests.build.test_search import AUTO, SEVENTY, found, wanted, with_host

ZERO = "zero_optimization"
EIGHT = {"per_device_train_batch_size": 8, "gradient_checkpointing": False}


def help_of(workplace: Workplace, files: Files) -> str:
    result = workplace.build(workplace.write(files))
    assert result.exit_code == 1 and "no plan fits" in result.output
    return result.output.splitlines()[1].strip()


def figures(text: str) -> list[float]:
    """Low and high end, and what a card has."""
    match = re.search(r"([\d.]+) to ([\d.]+) GiB of ([\d.]*\d)", text)
    assert match is not None, text
    return [float(one) for one in match.groups()]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (unnamed(engine="ddp"), "DeepSpeed, with ZeRO-2, 1 x 8"),
        (
            unnamed(recipe=EIGHT, hardware="8xA100-40GB", engine="deepspeed"),
            "a smaller micro batch with more accumulation, with ZeRO-3, 1 x 8",
        ),
        (
            wanted(
                deepspeed={**AUTO, ZERO: {"stage": 1, "offload_optimizer": {"device": "none"}}}, hardware="4xA100-40GB"
            ),
            "offload, with ZeRO-2, optimizer on cpu, 1 x 16",
        ),
        (wanted(deepspeed={**AUTO, ZERO: {"stage": 0}}, hardware="8xA100-80GB"), "another ZeRO stage, with ZeRO-2"),
        (
            wanted(recipe={"gradient_checkpointing": False}, sequence_length=16384, hardware="8xA100-80GB"),
            "gradient checkpointing, with ZeRO-1, 1 x 8, recomputed",
        ),
    ],
)
def test_the_nearest_change_to_the_configs(workplace: Workplace, files: Files, said: str) -> None:
    text = help_of(workplace, files)
    assert text.startswith(f"What would fit: {said}"), text
    low, high, room = figures(text)
    assert low < high <= room


def test_making_the_change_makes_it_fit(workplace: Workplace) -> None:
    """What is told of another engine is what a build with it says."""
    _, high, _ = figures(help_of(workplace, unnamed(engine="ddp")))
    built = found(workplace, unnamed(engine="deepspeed"))
    assert built.plan is not None and built.plan.considered[0].verdict == "fits"
    assert built.plan.considered[0].device_gib == pytest.approx(high, abs=0.1)


def test_more_cards(workplace: Workplace) -> None:
    name = with_host(workplace.folder, "8xA100-80GB", 512)
    text = help_of(workplace, unnamed(SEVENTY, hardware=name))
    assert text.startswith("What would fit: 32 cards (4x8xA100-SXM-80GB), with ZeRO-3, 2 x 1, recomputed: ")
    built = found(workplace, unnamed(SEVENTY, hardware="4x8xA100-80GB"))
    assert built.plan is not None and built.plan.considered[0].device_gib == pytest.approx(figures(text)[1], abs=0.1)


def test_a_larger_card_where_more_of_them_do_not_help(workplace: Workplace) -> None:
    """Eight samples a rank, whose activations no sharding makes smaller."""
    files = unnamed(recipe=EIGHT, hardware="8xA100-40GB", engine="deepspeed")
    _, _, hardware = help_of(workplace, files).partition("; or ")
    assert hardware.startswith("8xH200-NVL-141GB, "), hardware


def test_where_nothing_helps_it_is_said_in_general(workplace: Workplace) -> None:
    files = unnamed(SEVENTY, hardware=with_host(workplace.folder, "1xRTX4090", 64), goals={"global_batch_size": 1})
    assert help_of(workplace, files) == "Use more devices, more memory or shorter sequences."


def test_without_goals_the_stage_alone_was_chosen(workplace: Workplace) -> None:
    files = wanted(
        hardware="2xA100-40GB",
        recipe={"per_device_train_batch_size": 2, "bf16": True},
        deepspeed={**AUTO, ZERO: {"stage": "auto"}},
    )
    run: dict[str, Any] = files["zerocfg.yaml"]["runs"]["a"]
    run.pop("goals")
    text = help_of(workplace, files)
    assert text.startswith("What would fit: ") and text.endswith("Or write `stage` into the source.")
