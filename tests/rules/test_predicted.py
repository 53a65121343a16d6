"""Rules about what is predicted of a run, on predictions made by hand: from where on each speaks, and what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.rules.api import Severity
from zerocfg.rules.memory.capacity import host_memory_exceeded, offload_not_needed
from zerocfg.rules.memory.limits import nvme_drive_too_small, optimizer_step_does_not_fit, run_does_not_fit
from zerocfg.rules.memory.workload import all_logits_at_once, parameters_gathered_for_small_batches
from zerocfg.rules.zero.stages import more_sharding_than_needed
from zerocfg.run.discover import Files
from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zerocfg.rules.api import Finding, Rule

    Make = Callable[..., Run]

CARD = HardwareSummary("8xA100-80GB", 1, 8, 80.0, True, host_gib=500.0, nvme_free_gib={"/": 50.0, "/nvme": 900.0})
NVME = {"device": "nvme", "nvme_path": "/nvme/swap"}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(memory: MemorySummary, *, micro: int = 1, steps: int = 1, **zero: Any) -> Run:
        config = {
            "train_micro_batch_size_per_gpu": micro,
            "gradient_accumulation_steps": steps,
            "bf16": {"enabled": True},
            "zero_optimization": zero,
        }
        path = tmp_path / "ds.json"
        path.write_text(json.dumps(config))
        (run,), _ = find_runs([path], Files(), root=tmp_path)
        model = ModelSummary("model", parameters=16_000_000_000, largest_parameter=80_000_000, vocab_size=128_256)
        return replace(with_settings(replace(run, consumer="deepspeed")), model=model, hardware=CARD, memory=memory)

    return made


def found(rule: Rule, run: Run) -> list[Finding]:
    return list(rule.check(run))


# -- the optimizer step -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resting", "step", "told"), [(70.0, 81.0, True), (70.0, 80.0, False), (81.0, 90.0, False), (None, 81.0, False)]
)
def test_the_step_of_states_that_fit(make: Make, resting: float | None, step: float, told: bool) -> None:
    """States that do not fit even between steps are told by ZC922."""
    run = make(MemorySummary(resting_gib=resting, step_gib=step), stage=2)
    assert bool(found(optimizer_step_does_not_fit, run)) is told


def test_a_sub_group_that_leaves_a_tenth(make: Make) -> None:
    """A group of 1e9 takes 20 GiB for a moment and 10 are left below nine tenths of 80: half a group, less the 10
    million elements of one rank by which a group may grow."""
    run = make(MemorySummary(resting_gib=62.0, step_gib=82.2), stage=3, sub_group_size=1_000_000_000)
    (finding,) = found(optimizer_step_does_not_fit, run)
    assert "sub_group_size` 400000000" in finding.help
    assert finding.location.path == ("zero_optimization", "sub_group_size")
    assert finding.fix is not None and [edit.replacement for _, edit in finding.fix.edits] == ["400000000"]


def test_no_sub_group_is_small_enough(make: Make) -> None:
    run = make(MemorySummary(resting_gib=75.0, step_gib=82.0), stage=3)
    (finding,) = found(optimizer_step_does_not_fit, run)
    assert "sub_group_size" not in finding.help and finding.fix is None


def test_stage_3_instead_of_stage_2(make: Make) -> None:
    memory = MemorySummary({3: 60.0}, resting_gib=70.0, step_gib=82.0)
    (finding,) = found(optimizer_step_does_not_fit, make(memory, stage=2))
    assert finding.help == "stage 3 fits" and finding.fix is not None


@pytest.mark.parametrize(
    ("vllm", "states", "said"),
    [
        (0.0, 39.9, "take 39.9 of 80 GiB an accelerator on"),
        (0.0, 40.1, None),
        (30.0, 24.9, "take 24.9 of the 50 GiB that vLLM leaves of an accelerator on"),
        (30.0, 25.1, None),
        (72.0, 8.1, None),
    ],
)
def test_stage_2_instead_of_stage_3_beside_vllm(make: Make, vllm: float, states: float, said: str | None) -> None:
    """The states take less than half of what vLLM leaves."""
    findings = found(more_sharding_than_needed, make(MemorySummary({2: states, 3: 2.0}, vllm_gib=vllm), stage=3))
    assert [said in one.message for one in findings if said] == [True] * bool(said) and bool(findings) is bool(said)


# -- the whole run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high", "told"), [(81.0, 90.0, True), (79.0, 120.0, False), (80.0, 81.0, False)])
def test_only_the_least_counts(make: Make, low: float, high: float, told: bool) -> None:
    """What may or may not fit is no finding."""
    memory = MemorySummary(resting_gib=40.0, step_gib=50.0, peak_gib=(low, high), micro_batch=4, sequence_length=4096)
    findings = found(run_does_not_fit, make(memory, micro=4, stage=2))
    assert bool(findings) is told
    if told:
        assert "4 x 4096 tokens takes about 81 to 90 GiB" in findings[0].message


@pytest.mark.parametrize(("resting", "step"), [(81.0, 90.0), (70.0, 81.0)])
def test_what_does_not_fit_is_told_once(make: Make, resting: float, step: float) -> None:
    memory = MemorySummary(resting_gib=resting, step_gib=step, peak_gib=(95.0, 99.0))
    assert found(run_does_not_fit, make(memory, stage=2)) == []


def test_adapters_are_left_alone(make: Make) -> None:
    """Their parameters are not counted one by one unless the spec does."""
    run = make(MemorySummary(resting_gib=40.0, step_gib=50.0, peak_gib=(95.0, 99.0)), stage=2)
    assert found(run_does_not_fit, run) != []
    text = SourceText("recipe.json", '{"use_peft": true}')
    recipe = SourceFile("recipe.json", "recipe", text, load_as(text, "json"))
    assert found(run_does_not_fit, replace(run, recipe=recipe)) == []


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (MemorySummary(stage_peaks_gib={3: (60.0, 79.0)}), "stage 3 fits"),
        (MemorySummary(stage_peaks_gib={3: (60.0, 81.0)}), "zerocfg plan"),
        (MemorySummary(logits_gib=20.0), "logits and loss are 20 GiB"),
        (MemorySummary(logits_gib=18.0), "zerocfg plan"),
    ],
)
def test_what_would_help(make: Make, memory: MemorySummary, said: str) -> None:
    run = make(replace(memory, resting_gib=40.0, step_gib=50.0, peak_gib=(95.0, 99.0)), stage=2)
    (finding,) = found(run_does_not_fit, run)
    assert said in finding.help


# -- micro batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zero", "steps", "doubled", "states", "told"),
    [
        ({"stage": 3}, 8, (50.0, 79.0), {2: 50.0}, True),
        ({"stage": 3}, 8, (50.0, 81.0), {2: 50.0}, False),
        ({"stage": 3}, 8, None, {2: 50.0}, False),
        ({"stage": 3}, 2, (50.0, 79.0), {2: 50.0}, False),
        ({"stage": 3}, 5, (50.0, 79.0), {2: 50.0}, False),
        ({"stage": 2}, 8, (50.0, 79.0), {2: 50.0}, False),
        ({"stage": 3}, 8, (50.0, 79.0), {2: 30.0}, False),
    ],
)
def test_accumulation_at_stage_3(
    make: Make,
    zero: dict[str, Any],
    steps: int,
    doubled: tuple[float, float] | None,
    states: dict[int, float],
    told: bool,
) -> None:
    """Where stage 2 would do, ZC405 says so."""
    memory = MemorySummary(states, doubled_peak_gib=doubled, micro_batch=2)
    findings = found(parameters_gathered_for_small_batches, make(memory, micro=2, steps=steps, **zero))
    assert bool(findings) is told
    if told:
        assert "gather all parameters 16 times a step, and a micro batch of 4 takes" in findings[0].message
        assert "micro batch 4 with 4 accumulation steps" in findings[0].help


def test_a_model_that_stays_is_gathered_once(make: Make) -> None:
    memory = MemorySummary({2: 50.0}, doubled_peak_gib=(50.0, 79.0), micro_batch=1)
    run = make(memory, steps=8, stage=3, stage3_max_reuse_distance=20_000_000_000)
    (finding,) = found(parameters_gathered_for_small_batches, run)
    assert "gather all parameters 8 times" in finding.message


@pytest.mark.parametrize(
    ("logits", "hardware", "consumer", "told"),
    [
        (16.0, CARD, "deepspeed", True),
        (15.9, CARD, "deepspeed", False),
        (8.0, None, "deepspeed", True),
        (7.9, None, "deepspeed", False),
        (0.0, None, "deepspeed", False),
        (None, None, "deepspeed", False),
        (40.0, CARD, "trl", False),
    ],
)
def test_logits(make: Make, logits: float | None, hardware: HardwareSummary | None, consumer: Any, told: bool) -> None:
    run = make(MemorySummary(logits_gib=logits, micro_batch=4, sequence_length=4096), micro=4, stage=2)
    run = replace(run, hardware=hardware, consumer=consumer)
    assert bool(found(all_logits_at_once, run)) is told


# -- host and drive -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "rounding", "severity"),
    [(501.0, 0.0, "default"), (700.0, 199.0, "default"), (700.0, 200.0, "warning"), (500.0, 400.0, None)],
)
def test_rounding_of_pinned_blocks(make: Make, states: float, rounding: float, severity: str | None) -> None:
    """Where only the rounding exceeds the host's memory, there is another way to pin."""
    memory = MemorySummary(host_states_gib=states, pinned_rounding_gib=rounding)
    findings = found(host_memory_exceeded, make(memory, stage=2, offload_optimizer={"device": "cpu"}))
    assert [finding.severity for finding in findings] == (
        [] if severity is None else [Severity.WARNING if severity == "warning" else None]
    )
    if severity == "warning":
        assert "(200 of them because torch rounds" in findings[0].message and "native" in findings[0].help


@pytest.mark.parametrize(("most", "told"), [(79.0, True), (81.0, False)])
def test_offload_that_the_activations_need(make: Make, most: float, told: bool) -> None:
    memory = MemorySummary({2: 20.0}, stage_peaks_gib={2: (60.0, most)})
    run = make(memory, stage=2, offload_optimizer={"device": "cpu"})
    assert bool(found(offload_not_needed, run)) is told


@pytest.mark.parametrize(
    ("path", "size", "told"),
    [
        ("/nvme/swap", 901.0, True),
        ("/nvme", 901.0, True),
        ("/nvme/swap", 899.0, False),
        ("/nvmeother", 51.0, True),
        ("/nvmeother", 49.0, False),
        ("relative", 901.0, False),
        ("/nvme/swap", 0.0, False),
    ],
)
def test_the_drive_that_the_path_lies_on(make: Make, path: str, size: float, told: bool) -> None:
    run = make(MemorySummary(nvme_gib=size), stage=3, offload_optimizer={**NVME, "nvme_path": path})
    assert bool(found(nvme_drive_too_small, run)) is told


def test_two_drives_are_left_alone(make: Make) -> None:
    """What goes to which is not added up."""
    other = {"device": "nvme", "nvme_path": "/scratch"}
    run = make(MemorySummary(nvme_gib=5000.0), stage=3, offload_optimizer=NVME, offload_param=other)
    assert found(nvme_drive_too_small, run) == []


@pytest.mark.parametrize(
    "rule",
    [
        all_logits_at_once,
        host_memory_exceeded,
        nvme_drive_too_small,
        offload_not_needed,
        optimizer_step_does_not_fit,
        parameters_gathered_for_small_batches,
        run_does_not_fit,
    ],
    ids=lambda rule: rule.code,
)
def test_what_is_not_known_is_not_told(make: Make, rule: Rule) -> None:
    run = make(MemorySummary(), steps=8, stage=3, offload_optimizer=NVME)
    assert found(rule, run) == []
    run = replace(run, memory=None)
    assert found(rule, run) == []
    assert found(rule, replace(run, hardware=None)) == []
