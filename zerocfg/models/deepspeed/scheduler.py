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

    warmup_min_lr: float | list[float] | Auto = key(None, "Learning rate at the start.", auto=_MIN_LR)
    warmup_max_lr: float | list[float] | Auto = key(None, "Learning rate after the warm-up.", auto=_MAX_LR)
    warmup_num_steps: Positive | Auto = key(None, "Length of the warm-up.", unit="steps", auto=_WARMUP)
    total_num_steps: int | Auto = key(None, "Length of the schedule.", unit="steps", auto=_TOTAL)


class _Schedule(Loose):
    unknown = "error"
    source = "deepspeed/runtime/lr_schedules.py"

    last_batch_iteration: int = key(-1, "Step to resume from.", unit="steps")


class WarmupLRParams(_Schedule):
    """Warm-up, then constant."""

    warmup_min_lr: float | list[float] | Auto = key(0.0, "Learning rate at the start.", auto=_MIN_LR)
    warmup_max_lr: float | list[float] | Auto | None = key(
        None, "Learning rate after the warm-up; null: that of the optimizer.", auto=_MAX_LR
    )
    warmup_num_steps: Positive | Auto = key(
        1000, "Length of the warm-up.", unit="steps", auto=_WARMUP, auto_raw="error"
    )
    warmup_type: str = key("log", "log or linear; another word is warned about and means log.", examples=["linear"])


class WarmupDecayLRParams(_Schedule):
    """Warm-up, then linear decay to 0."""

    total_num_steps: int | Auto = key(doc="Length of the schedule.", unit="steps", auto=_TOTAL, auto_raw="error")
    warmup_min_lr: float | list[float] | Auto = key(0.0, "Learning rate at the start.", auto=_MIN_LR)
    warmup_max_lr: float | list[float] | Auto | None = key(
        0.001,
        "Learning rate after the warm-up. The default does not look at the optimizer; null does.",
        auto=_MAX_LR,
    )
    warmup_num_steps: Positive | Auto = key(
        1000, "Length of the warm-up.", unit="steps", auto=_WARMUP, auto_raw="error"
    )
    warmup_type: str = key("log", "log or linear; another word is warned about and means log.", examples=["linear"])


class WarmupCosineLRParams(_Schedule):
    """Warm-up, then cosine decay; the ratios multiply the learning rate of the optimizer."""

    total_num_steps: int | Auto = key(doc="Length of the schedule.", unit="steps", auto=_TOTAL, auto_raw="error")
    warmup_min_ratio: float = key(0.0, "Share of the learning rate at the start.", unit="share")
    warmup_num_steps: Positive | Auto = key(
        1000, "Length of the warm-up.", unit="steps", auto=_WARMUP, auto_raw="error"
    )
    cos_min_ratio: float = key(0.0001, "Share of the learning rate at the end.", unit="share")
    warmup_type: str = key("log", "log or linear; another word is warned about and means log.", examples=["linear"])


class OneCycleParams(_Schedule):
    """One cycle up and down, then decay."""

    cycle_min_lr: float | list[float] = key(doc="Learning rate at both ends of the cycle.")
    cycle_max_lr: float | list[float] = key(doc="Learning rate at the top of the cycle.")
    decay_lr_rate: float = key(0.0, "Decay of the learning rate after the cycle.")
    cycle_first_step_size: int = key(2000, "Length of the rise.", unit="steps")
    cycle_second_step_size: int | None = key(None, "Length of the fall; null: as the rise.", unit="steps")
    cycle_first_stair_count: int = key(0, "Stairs of the rise; 0 is a straight line.")
    cycle_second_stair_count: int | None = key(None, "Stairs of the fall; null: as the rise.")
    decay_step_size: int = key(0, "Interval of the decay; 0 is no decay.", unit="steps")
    cycle_momentum: bool = key(True, "Cycle the momentum too.")
    cycle_min_mom: float = key(0.8, "Smallest momentum.")
    cycle_max_mom: float = key(0.9, "Largest momentum.")
    decay_mom_rate: float = key(0.0, "Decay of the momentum after the cycle.")


class LRRangeTestParams(_Schedule):
    """A rising learning rate, to find the largest one that still trains."""

    lr_range_test_min_lr: float | list[float] = key(1e-3, "Learning rate at the start.")
    lr_range_test_step_size: int = key(2000, "Interval of the rise.", unit="steps")
    lr_range_test_step_rate: float = key(1.0, "Growth per interval.")
    lr_range_test_staircase: bool = key(False, "Rise in stairs.")


class Scheduler(Loose):
    """The learning-rate schedule that DeepSpeed builds when the program passes none."""

    source = "deepspeed/runtime/config.py"

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
        None,
        "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest, or the exact name of a class of "
        "torch.optim.lr_scheduler (which fails with ZeRO).",
        examples=["WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"],
    )
    params: SchedulerParams = key(None, "Arguments of the schedule's constructor; needed, even when empty.")
