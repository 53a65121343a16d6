"""The ``scheduler`` section and the parameters of DeepSpeed's own learning-rate schedules."""

from __future__ import annotations

from typing import ClassVar

from zerocfg.models.base import Variants, key
from zerocfg.models.deepspeed.section import Auto, Loose, Positive, filled

_MIN_LR = filled(trainer="0", accelerate="0 with DummyScheduler")
_MAX_LR = filled(trainer="learning_rate", accelerate="lr of the optimizer, with DummyScheduler")
_WARMUP = filled(
    trainer="max(1, warmup steps of the TrainingArguments)",
    accelerate="max(1, warmup_num_steps of DummyScheduler)",
)
_TOTAL = filled(
    trainer="number of optimizer steps",
    accelerate="total_num_steps of DummyScheduler / number of processes, when it is given",
)


class SchedulerParams(Loose):
    """Parameters of a schedule of torch.optim.lr_scheduler; auto is filled in these keys for any type."""

    unknown = "passed"
    source = "deepspeed/runtime/lr_schedules.py"

    warmup_min_lr: float | list[float] | Auto = key("Learning rate at the start.", default=None, auto=_MIN_LR)
    warmup_max_lr: float | list[float] | Auto = key("Learning rate after the warm-up.", default=None, auto=_MAX_LR)
    warmup_num_steps: Positive | Auto = key("Length of the warm-up.", default=None, unit="steps", auto=_WARMUP)
    total_num_steps: int | Auto = key("Length of the schedule.", default=None, unit="steps", auto=_TOTAL)


class _Schedule(Loose):
    unknown = "error"
    source = "deepspeed/runtime/lr_schedules.py"

    last_batch_iteration: int = key("Step to resume from.", unit="steps")


class WarmupLRParams(_Schedule):
    """Warm-up, then constant."""

    known_as = "scheduler.WarmupLR"

    warmup_min_lr: float | list[float] | Auto = key("Learning rate at the start.", auto=_MIN_LR)
    warmup_max_lr: float | list[float] | Auto | None = key(
        "Learning rate after the warm-up; null: that of the optimizer.", auto=_MAX_LR
    )
    warmup_num_steps: Positive | Auto = key("Length of the warm-up.", unit="steps", auto=_WARMUP, auto_raw="error")
    warmup_type: str = key("log or linear; another word is warned about and means log.", examples=["linear"])


class WarmupDecayLRParams(_Schedule):
    """Warm-up, then linear decay to 0."""

    known_as = "scheduler.WarmupDecayLR"

    total_num_steps: int | Auto = key("Length of the schedule.", unit="steps", auto=_TOTAL, auto_raw="error")
    warmup_min_lr: float | list[float] | Auto = key("Learning rate at the start.", auto=_MIN_LR)
    warmup_max_lr: float | list[float] | Auto | None = key(
        "Learning rate after the warm-up. The default does not look at the optimizer; null does.", auto=_MAX_LR
    )
    warmup_num_steps: Positive | Auto = key("Length of the warm-up.", unit="steps", auto=_WARMUP, auto_raw="error")
    warmup_type: str = key("log or linear; another word is warned about and means log.", examples=["linear"])


class WarmupCosineLRParams(_Schedule):
    """Warm-up, then cosine decay; the ratios multiply the learning rate of the optimizer."""

    known_as = "scheduler.WarmupCosineLR"

    total_num_steps: int | Auto = key("Length of the schedule.", unit="steps", auto=_TOTAL, auto_raw="error")
    warmup_min_ratio: float = key("Share of the learning rate at the start.", unit="share")
    warmup_num_steps: Positive | Auto = key("Length of the warm-up.", unit="steps", auto=_WARMUP, auto_raw="error")
    cos_min_ratio: float = key("Share of the learning rate at the end.", unit="share")
    warmup_type: str = key("log or linear; another word is warned about and means log.", examples=["linear"])


class OneCycleParams(_Schedule):
    """One cycle up and down, then decay."""

    known_as = "scheduler.OneCycle"

    cycle_min_lr: float | list[float] = key("Learning rate at both ends of the cycle.")
    cycle_max_lr: float | list[float] = key("Learning rate at the top of the cycle.")
    decay_lr_rate: float = key("Decay of the learning rate after the cycle.")
    cycle_first_step_size: int = key("Length of the rise.", unit="steps")
    cycle_second_step_size: int | None = key("Length of the fall; null: as the rise.", unit="steps")
    cycle_first_stair_count: int = key("Stairs of the rise; 0 is a straight line.")
    cycle_second_stair_count: int | None = key("Stairs of the fall; null: as the rise.")
    decay_step_size: int = key("Interval of the decay; 0 is no decay.", unit="steps")
    cycle_momentum: bool = key("Cycle the momentum too.")
    cycle_min_mom: float = key("Smallest momentum.")
    cycle_max_mom: float = key("Largest momentum.")
    decay_mom_rate: float = key("Decay of the momentum after the cycle.")


class LRRangeTestParams(_Schedule):
    """A rising learning rate, to find the largest one that still trains."""

    known_as = "scheduler.LRRangeTest"

    lr_range_test_min_lr: float | list[float] = key("Learning rate at the start.")
    lr_range_test_step_size: int = key("Interval of the rise.", unit="steps")
    lr_range_test_step_rate: float = key("Growth per interval.")
    lr_range_test_staircase: bool = key("Rise in stairs.")


class Scheduler(Loose):
    """The learning-rate schedule that DeepSpeed builds when the program passes none."""

    source = "deepspeed/runtime/config.py"
    known_as = "scheduler"

    variants: ClassVar[dict[str, Variants]] = {
        "params": Variants(
            "type",
            {
                "WarmupLR": WarmupLRParams,
                "WarmupDecayLR": WarmupDecayLRParams,
                "WarmupCosineLR": WarmupCosineLRParams,
                "OneCycle": OneCycleParams,
                "LRRangeTest": LRRangeTestParams,
            },
        )
    }

    type: str = key(
        "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest, or the exact name of a class of "
        "torch.optim.lr_scheduler (which fails with ZeRO).",
        examples=["WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"],
    )
    params: SchedulerParams = key("Arguments of the schedule's constructor; needed, even when empty.")
