"""What each schedule takes, against transformers' own functions."""

from __future__ import annotations

import inspect

import pytest

from zerocfg.rules.recipes.trainer_steps import SCHEDULE_ARGUMENTS

pytestmark = pytest.mark.libs

GIVEN = {"optimizer", "num_warmup_steps", "num_training_steps", "last_epoch"}
OTHERS = {"constant", "constant_with_warmup", "reduce_lr_on_plateau", "greedy"}
"""Schedules to which nothing is passed, or which pass everything on."""


@pytest.mark.parametrize("name", SCHEDULE_ARGUMENTS)
def test_arguments_of_a_schedule(name: str) -> None:
    from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION

    parameters = inspect.signature(TYPE_TO_SCHEDULER_FUNCTION[name]).parameters
    assert set(parameters) - GIVEN == set(SCHEDULE_ARGUMENTS[name])


def test_no_schedule_is_forgotten() -> None:
    from transformers.trainer_utils import SchedulerType

    assert {kind.value for kind in SchedulerType} == set(SCHEDULE_ARGUMENTS) | OTHERS
