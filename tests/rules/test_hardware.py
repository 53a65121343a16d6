"""Rules that need the memory of a machine, which the caller of the rules puts into the run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.rulebook.example import Example
from zerocfg.rules.zero.stages import more_sharding_than_needed
from zerocfg.run.discover import Files
from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary
from zerocfg.run.link import find_runs
from zerocfg.run.model import Origin, Run, Setting

from .examples import lint_example

if TYPE_CHECKING:
    from pathlib import Path


def stage_3(folder: Path, **zero: Any) -> Run:
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, **zero}}
    path = folder / "ds.json"
    path.write_text(json.dumps(config))
    (run,), _ = find_runs([path], Files(), root=folder)
    model, hardware = ModelSummary("tiny", parameters=350_000_000), HardwareSummary("8xA100-80GB", 1, 8, 80.0, True)
    return replace(run, model=model, hardware=hardware, memory=MemorySummary({2: 6.0, 3: 4.0}))


def codes(run: Run) -> list[str]:
    return [finding.message for finding in more_sharding_than_needed.check(run)]


def test_small_states_need_no_stage_3(tmp_path: Path) -> None:
    (message,) = codes(stage_3(tmp_path))
    assert "6.0 of 80 GiB" in message


@pytest.mark.parametrize("states", [{2: 41.0, 3: 10.0}, {}])
def test_large_or_unknown_states_are_left_alone(tmp_path: Path, states: dict[int, float]) -> None:
    assert codes(replace(stage_3(tmp_path), memory=MemorySummary(states))) == []


@pytest.mark.parametrize(("most", "told"), [(79.0, True), (81.0, False)])
def test_stage_3_that_the_activations_need_is_left_alone(tmp_path: Path, most: float, told: bool) -> None:
    memory = MemorySummary({2: 6.0, 3: 4.0}, stage_peaks_gib={2: (60.0, most)})
    assert bool(codes(replace(stage_3(tmp_path), memory=memory))) is told


@pytest.mark.parametrize(("block", "said"), [(7_000_000, True), (None, False)])
def test_stage_3_that_saves_nothing(tmp_path: Path, block: int | None, said: bool) -> None:
    """Without the sizes of the blocks, how much stage 3 gathers at a time is only bounded."""
    model = ModelSummary("tiny", parameters=124_000_000, largest_block=block)
    (message,) = codes(replace(stage_3(tmp_path), model=model, memory=MemorySummary({2: 2.0, 3: 2.1})))
    assert ("at stage 3 2.1" in message) is said


@pytest.mark.parametrize(
    ("parameters", "steps", "said"),
    [
        (350_000_000, 1, "as many bytes"),
        (350_000_000, 8, "44% fewer bytes"),
        (7_000_000_000, 1, "33% fewer bytes"),
        (7_000_000_000, 8, "62% fewer bytes"),
    ],
)
def test_accumulation_makes_stage_3_dearer(tmp_path: Path, parameters: int, steps: int, said: str) -> None:
    """Of a large model each micro batch gathers twice and reduces once: 24 of 8 steps, against 9 at stage 2."""
    run = stage_3(tmp_path)
    accumulation = {"gradient_accumulation_steps": Setting(steps, Origin("default"))}
    effective = replace(run.effective, settings={**run.effective.settings, **accumulation})
    run = replace(run, model=ModelSummary("model", parameters=parameters), effective=effective)
    (finding,) = more_sharding_than_needed.check(run)
    assert said in finding.help


def test_offloaded_parameters_are_left_alone(tmp_path: Path) -> None:
    assert codes(stage_3(tmp_path, offload_param={"device": "cpu"})) == []


def test_without_hardware_nothing_is_said(tmp_path: Path) -> None:
    assert codes(replace(stage_3(tmp_path), hardware=None)) == []


def planned(folder: Path, zero: dict[str, Any], hardware: str, model: str, node: str = "") -> list[str]:
    """Codes for a run of a spec."""
    files = {
        "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n"
        f"    deepspeed: ds.json\n    model: {model}\n    hardware: {hardware}\n",
        "train.py": "import deepspeed\n",
        "ds.json": json.dumps(
            {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
        ),
    }
    if node:
        files["node.json"] = node
    return [diagnostic.code for diagnostic in lint_example(Example(files), folder).diagnostics]


SEVEN = "{parameters: 7000000000, hidden_size: 4096}"


@pytest.mark.parametrize(
    ("zero", "hardware", "model", "found"),
    [
        ({"stage": 0}, "8xA100-80GB", SEVEN, True),
        ({"stage": 1}, "8xA100-80GB", SEVEN, False),
        ({"stage": 0}, "8xA100-80GB", SEVEN.replace("}", ", trainable_parameters: 7000000}"), False),
        ({"stage": 0}, "8xA100-80GB", "{hidden_size: 4096}", False),
        ({"stage": 3, "offload_optimizer": {"device": "cpu"}}, "1xA100-40GB", SEVEN, False),
        ({"stage": 3}, "1xA100-40GB", SEVEN, True),
        ({"stage": 3, "offload_optimizer": {"device": "tape"}}, "1xA100-40GB", SEVEN, False),
    ],
)
def test_states_and_memory(zero: dict[str, Any], hardware: str, model: str, found: bool, tmp_path: Path) -> None:
    assert ("ZC922" in planned(tmp_path, zero, hardware, model)) is found


@pytest.mark.parametrize(("ram", "found"), [(100, True), (200, False), (None, False)])
def test_host_memory(ram: int | None, found: bool, tmp_path: Path) -> None:
    """18 bytes for each of 7 billion parameters are 117 GiB."""
    host = {} if ram is None else {"host": {"ram_gib": ram}}
    card = {"name": "A100-80GB", "vendor": "nvidia", "memory_gib": 80}
    node = json.dumps({"name": "node", "accelerators_per_node": 2, "accelerator": card, **host})
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    assert ("ZC923" in planned(tmp_path, zero, "node.json", SEVEN, node)) is found
