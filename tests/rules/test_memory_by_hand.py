"""Rules of memory and hardware on figures that are given: what is told just across each limit, and what is advised."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of
from tests.rules.by_hand import after, effective, found, shown
from zerocfg.rules.api import Severity
from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary
from zerocfg.run.model import Origin, Run, Setting

CARD = HardwareSummary("8xA", 1, 8, 80.0, host_gib=1000.0)


def known(
    memory: dict[str, Any],
    stage: int | None = 1,
    zero: dict[str, Any] | None = None,
    parameters: int = 8_000_000,
    card: HardwareSummary = CARD,
    **settings: Any,
) -> Run:
    config = {"zero_optimization": {"stage": stage, **(zero or {})}}
    run = replace(
        run_of("deepspeed", deepspeed=config),
        hardware=card,
        memory=MemorySummary(**memory),
        model=ModelSummary("m", parameters=parameters, largest_parameter=8),
    )
    place = Setting(stage, Origin("file", file=run.deepspeed, path=("zero_optimization", "stage")))
    held: dict[str, Any] = {f"zero_optimization.{key}": value for key, value in settings.items()}
    return effective(run, **{"zero_optimization.stage": place, **held})


def test_the_ranks_of_severities() -> None:
    assert [item.rank for item in (Severity.NOTE, Severity.WARNING, Severity.ERROR)] == [0, 1, 2]


@pytest.mark.parametrize("code", ["ZC922"])
@pytest.mark.parametrize(
    ("memory", "stage", "help"),
    [
        ({"resting_gib": 80.0}, 1, None),
        ({"resting_gib": 80.1}, 1, "use more accelerators, or offload"),
        ({"resting_gib": 90.0, "states_gib": {2: 79.9}}, 1, "the states fit at stage 2"),
        ({"resting_gib": 90.0, "states_gib": {2: 80.0, 3: 10.0}}, 1, "the states fit at stage 3"),
        ({"resting_gib": 90.0, "states_gib": {1: 10.0, 2: 10.0}}, 2, "use more accelerators, or offload"),
        ({"resting_gib": 90.0, "states_gib": {2: 70.0, 3: 60.0}, "vllm_gib": 15.0}, 1, "the states fit at stage 3"),
        (
            {"resting_gib": 90.0, "states_gib": {2: 70.0, 3: 60.0}, "stage_peaks_gib": {2: (80.0, 90.0)}},
            *(1, "the states fit at stage 3"),
        ),
        ({}, 1, None),
        ({"resting_gib": 90.0}, None, None),
    ],
)
def test_states_that_do_not_fit(code: str, memory: dict[str, Any], stage: int | None, help: str | None) -> None:
    run = known(memory, stage)
    every = found(code, run)
    assert [item.help for item in every] == ([] if help is None else [help])
    for item in every:
        assert shown(item) == f'"stage": {stage}' and (item.fix is None) is ("fit at" not in item.help)
        if item.fix is not None:
            assert (
                f"stage {json.loads(after(item.fix))['zero_optimization']['stage']}" in item.help and not item.fix.safe
            )
    for other in (replace(run, model=None), replace(run, hardware=None), replace(run, memory=None)):
        assert not found(code, other)


@pytest.mark.parametrize("code", ["ZC927"])
@pytest.mark.parametrize(
    ("memory", "stage", "size", "help"),
    [
        ({"resting_gib": 20.0, "step_gib": 80.0}, 1, None, None),
        ({"resting_gib": 20.0, "step_gib": 80.1}, 1, None, "use more accelerators"),
        ({"resting_gib": 20.0, "step_gib": 90.0, "states_gib": {2: 10.0}}, 1, None, "stage 2 fits"),
        ({"resting_gib": 80.1, "step_gib": 90.0}, 1, None, None),  # ZC922
        ({"step_gib": 90.0}, 1, None, None),
        # a rank's million elements take 104 GiB for the step, and 0.9 * 80 - 20 are left: half of them
        ({"resting_gib": 20.0, "step_gib": 124.0}, 3, 1_000_000_000, "write `sub_group_size` 400000"),
        ({"resting_gib": 20.0, "step_gib": 124.0}, 3, 0, "use more accelerators"),
        ({"resting_gib": 20.0, "step_gib": 124.0}, 2, 1_000_000_000, "use more accelerators"),
        ({"resting_gib": 20.0, "step_gib": 20020.0}, 3, 1_000_000_000, "use more accelerators"),
    ],
)
def test_a_step_that_does_not_fit(
    code: str, memory: dict[str, Any], stage: int, size: int | None, help: str | None
) -> None:
    every = found(code, known(memory, stage, sub_group_size=size))
    assert len(every) == (help is not None)
    for item in every:
        assert help is not None and item.help.startswith(help)
        if "sub_group_size" in item.help:
            assert json.loads(after(item.fix))["zero_optimization"]["sub_group_size"] == int(help.rpartition(" ")[2])


@pytest.mark.parametrize("code", ["ZC928"])
@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ({"peak_gib": (80.0, 90.0)}, False),
        ({"peak_gib": (80.1, 90.0)}, True),
        ({"peak_gib": (80.1, 90.0), "resting_gib": 80.1}, False),
        ({"peak_gib": (80.1, 90.0), "resting_gib": 80.0}, True),
        ({"peak_gib": (80.1, 90.0), "step_gib": 80.1}, False),
        ({"peak_gib": (80.1, 90.0), "step_gib": 80.0}, True),
        ({}, False),
    ],
)
def test_a_run_that_does_not_fit(code: str, memory: dict[str, Any], told: bool) -> None:
    every = found(code, known({**memory, "micro_batch": 2, "sequence_length": 64}))
    assert [("2 x 64 tokens" in item.message, "at stage 1" in item.message) for item in every] == [(True, True)] * told


@pytest.mark.parametrize("code", ["ZC923"])
@pytest.mark.parametrize(
    ("need", "rounding", "severity"),
    [
        (1000.0, 0.0, None),
        (1000.1, 0.0, "error"),
        (1000.1, 0.1, "warning"),
        (1200.0, 200.0, "warning"),
        (1300.0, 200.0, "error"),
    ],
)
def test_host_memory_that_is_exceeded(code: str, need: float, rounding: float, severity: str | None) -> None:
    run = known({"host_states_gib": need, "pinned_rounding_gib": rounding}, 2)
    every = found(code, run)
    assert [item.severity.value if item.severity else "error" for item in every] == ([severity] if severity else [])
    for item in every:
        assert (f"({rounding:.0f} of them because" in item.message) is (rounding >= 1)
        assert item.help.startswith("pin no memory" if severity == "warning" else "shard over more nodes")


@pytest.mark.parametrize("code", ["ZC924"])
@pytest.mark.parametrize(
    ("memlock", "stage", "zero", "pinned", "told"),
    [
        (9_999_999, 2, {"offload_optimizer": {"device": "cpu"}}, None, True),
        (10_000_000, 2, {"offload_optimizer": {"device": "cpu"}}, None, False),
        (9_999_999, 2, {"offload_optimizer": {"device": "cpu"}}, False, False),
        (9_999_999, 2, {"offload_optimizer": {"device": "cpu"}}, True, True),
        (9_999_999, 0, {"offload_optimizer": {"device": "cpu"}}, None, False),
        (9_999_999, 2, {}, None, False),
        (None, 2, {"offload_optimizer": {"device": "cpu"}}, None, False),
    ],
)
def test_locked_memory_that_is_exceeded(
    code: str, memlock: int | None, stage: int, zero: dict[str, Any], pinned: bool | None, told: bool
) -> None:
    """Ten bytes for each of a rank's million parameters."""
    run = known({}, stage, zero, card=replace(CARD, memlock=memlock))
    settings: dict[str, Any] = {
        "zero_optimization.stage": stage,
        "zero_optimization.offload_optimizer.device": "cpu",
        "zero_optimization.offload_optimizer.pin_memory": pinned,
    }
    every = found(code, effective(run, **settings))
    assert bool(every) is told
    for item in every:
        section = json.loads(after(item.fix))["zero_optimization"]["offload_optimizer"]
        assert section == {"device": "cpu", "pin_memory": False}


@pytest.mark.parametrize("code", ["ZC920"])
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("num_processes", 8, None),
        ("num_processes", 9, "8 accelerators: some find no device"),
        ("num_processes", 7, "8 accelerators: 1 stay idle"),
        ("num_processes", 0, None),
        ("num_processes", True, None),
        ("num_machines", 2, "1 machines: some find no device"),
        ("num_machines", 1, None),
    ],
)
def test_processes_and_what_the_hardware_has(code: str, key: str, value: Any, said: str | None) -> None:
    run = replace(run_of("accelerate", accelerate={key: value}), hardware=CARD)
    every = found(code, run)
    assert len(every) == (said is not None) and not found(code, replace(run, hardware=None))
    for item in every:
        assert said is not None and said in item.message
        assert item.severity is (Severity.NOTE if "idle" in said else None)
        assert json.loads(after(item.fix)) == {key: {"num_processes": 8, "num_machines": 1}[key]}


@pytest.mark.parametrize("code", ["ZC921"])
@pytest.mark.parametrize(
    ("bf16", "settings", "told"),
    [
        (False, {"bf16.enabled": True}, True),
        (False, {"mixed_precision": "bf16"}, True),
        (False, {"mixed_precision": "fp16"}, False),
        (True, {"bf16.enabled": True}, False),
        (None, {"bf16.enabled": True}, False),
        (False, {"bf16.enabled": Setting(True, Origin("default", "x 1"))}, False),
    ],
)
def test_bf16_that_the_hardware_does_not_have(
    code: str, bf16: bool | None, settings: dict[str, Any], told: bool
) -> None:
    run = replace(run_of("deepspeed", deepspeed={"bf16": {"enabled": True}}), hardware=replace(CARD, bf16=bf16))
    assert len(found(code, effective(run, **settings))) == told


@pytest.mark.parametrize("code", ["ZC925"])
@pytest.mark.parametrize(
    ("stage", "devices", "states", "told"),
    [
        (2, {"offload_optimizer": "cpu"}, {2: 40.0}, True),
        (2, {"offload_optimizer": "cpu"}, {2: 40.1}, False),
        (2, {"offload_param": "cpu"}, {2: 10.0}, False),
        (3, {"offload_param": "cpu"}, {3: 10.0}, True),
        (0, {"offload_optimizer": "cpu"}, {0: 10.0}, False),
        (2, {}, {2: 10.0}, False),
    ],
)
def test_offloading_that_is_not_needed(
    code: str, stage: int, devices: dict[str, str], states: dict[int, float], told: bool
) -> None:
    zero = {part: {"device": device} for part, device in devices.items()}
    settings: dict[str, Any] = {"zero_optimization.stage": stage}
    settings |= {f"zero_optimization.{part}.device": device for part, device in devices.items()}
    every = found(code, effective(known({"states_gib": states}, stage, zero), **settings))
    assert bool(every) is told
    for item in every:
        assert json.loads(after(item.fix))["zero_optimization"] == {"stage": stage}


@pytest.mark.parametrize("code", ["ZC926"])
@pytest.mark.parametrize(
    ("vendor", "stage", "on", "told"),
    [
        ("amd", 3, True, True),
        ("nvidia", 3, True, False),
        (None, 3, True, False),
        ("amd", 2, True, False),
        ("amd", 3, False, False),
    ],
)
def test_super_offload_elsewhere(code: str, vendor: str | None, stage: int, on: bool, told: bool) -> None:
    zero = {"offload_optimizer": {"device": "cpu", "super_offload": on, "cpuadam_cores_perc": 0.5}}
    settings: dict[str, Any] = {"zero_optimization.stage": stage, "zero_optimization.offload_optimizer.device": "cpu"}
    every = found(code, effective(known({}, stage, zero, card=replace(CARD, vendor=vendor)), **settings))
    assert bool(every) is told
    for item in every:
        assert json.loads(after(item.fix))["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
