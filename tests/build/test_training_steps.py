"""The steps of a training follow from the batch and the ranks that the goals choose. Oracle: samples over batch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.build.conftest import Workplace
from tests.build.test_resolve import SCHEDULE
from tests.build.test_search import AUTO, SMALL, found, value, wanted
from zerocfg.resolve.build import BuildResult
from zerocfg.resolve.facts import with_facts
from zerocfg.rules.recipes.trainer_steps import warmup_longer_than_training
from zerocfg.run.discover import Files
from zerocfg.run.link import runs_from_spec
from zerocfg.run.model import UNKNOWN

TOTAL, WARMUP = "scheduler.params.total_num_steps", "scheduler.params.warmup_num_steps"
SAMPLES = 1024
RECIPE = {"max_steps": -1, "num_train_epochs": 1, "warmup_steps": 0.25, "learning_rate": 0.001}
CONFIG = {**AUTO, **SCHEDULE}


def one_epoch(goals: dict[str, Any], recipe: dict[str, Any] | None = None, **run: Any) -> dict[str, Any]:
    return wanted(SMALL, goals, {**RECIPE, **(recipe or {})}, CONFIG, train_samples=SAMPLES, **run)


def batch(built: BuildResult) -> int:
    names = ("num_processes", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    ranks, micro, steps = (value(built, name) for name in names)
    product: int = ranks * micro * steps
    return product


@pytest.mark.parametrize("consumer", ["transformers", "trl"])
@pytest.mark.parametrize("size", [64, 128, 1024])
def test_a_chosen_batch_decides_the_steps(consumer: str, size: int, workplace: Workplace) -> None:
    built = found(workplace, one_epoch({"global_batch_size": size}, consumer=consumer))
    assert batch(built) == size
    steps = SAMPLES // size
    assert (value(built, TOTAL), value(built, WARMUP)) == (steps, max(1, steps // 4))
    assert built.plan is not None
    decision = built.plan.settings[TOTAL]
    assert decision.reason.endswith(f"1 epochs of {steps} steps (train_samples 1024 over 8 ranks)")
    assert decision.inputs["per_device_train_batch_size"] == value(built, "train_micro_batch_size_per_gpu")
    assert built.run.arguments["max_steps"].value == steps, "what the rules judge"


def test_a_part_of_the_devices_decides_the_steps(workplace: Workplace) -> None:
    goals = {"prefer": "cost", "global_batch_size": 64}
    built = found(workplace, one_epoch(goals, hardware="2x8xA100-80GB"))
    ranks = value(built, "num_processes")
    assert ranks < 16 and batch(built) == 64
    assert value(built, TOTAL) == 16 and built.run.arguments["max_steps"].origin.note.endswith(f"over {ranks} ranks)")


def test_steps_that_the_recipe_gives_stay(workplace: Workplace) -> None:
    built = found(workplace, one_epoch({"global_batch_size": 128}, {"max_steps": 5}))
    assert value(built, TOTAL) == 5


@pytest.mark.parametrize(("warmup", "said"), [(8, 0), (9, 1), (16, 1)])
def test_the_rules_judge_the_chosen_steps(warmup: int, said: int, workplace: Workplace) -> None:
    """A batch of 128 gives 8 steps; the recipe's default batch would give 16."""
    recipe = {**RECIPE, "warmup_steps": warmup}
    built = found(workplace, wanted(SMALL, {"global_batch_size": 128}, recipe, AUTO, train_samples=SAMPLES))
    findings = list(warmup_longer_than_training.check(built.run))
    assert len(findings) == said
    assert all(f"warms up for {warmup} steps, but training ends after 8:" in one.message for one in findings)


@pytest.mark.parametrize(
    ("goals", "recipe", "known"),
    [
        ({"global_batch_size": 128}, {}, None),
        ({"prefer": "cost"}, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, None),
        ({"prefer": "memory"}, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 16),
    ],
)
def test_lint_counts_only_what_no_goal_will_change(
    goals: dict[str, Any], recipe: dict[str, Any], known: int | None, workplace: Workplace
) -> None:
    spec = workplace.write(one_epoch(goals, recipe))
    files = Files()
    (run,) = with_facts(runs_from_spec(spec, files), files)
    assert run.effective is not None
    assert run.effective.value(TOTAL, UNKNOWN) == (UNKNOWN if known is None else known)
