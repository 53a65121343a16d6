"""Rules of optimizers, schedules and stages: the number that is told, the nearest that is not, and the cure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.build.test_road_limits import run_of
from tests.rules.by_hand import after, found, shown
from zerocfg.run.resolve_settings import with_settings

MICRO = {"train_micro_batch_size_per_gpu": 1}
ZERO = {**MICRO, "zero_optimization": {"stage": 2}}
NONE = "none"


def adam(**params: Any) -> dict[str, Any]:
    return {**ZERO, "optimizer": {"type": "AdamW", "params": params}}


def schedule(kind: str | None, params: Any = None, **more: Any) -> dict[str, Any]:
    section: dict[str, Any] = {} if kind is None else {"type": kind}
    return {**ZERO, **more, "scheduler": section | ({} if params is None else {"params": params})}


def stage(number: Any, **keys: Any) -> dict[str, Any]:
    return {**MICRO, "zero_optimization": {"stage": number, **keys}}


ROWS: list[tuple[str, Any, dict[str, Any], str | None, str, Any]] = [
    # code, reader, DeepSpeed's config, place that is told (None: silence), words, what stands there after the fix
    ("ZC218", "deepspeed", adam(lr=-1), '"lr": -1', "climbed", NONE),
    ("ZC218", "deepspeed", adam(lr=0), None, "", NONE),
    ("ZC218", "deepspeed", adam(eps=-1e-8), '"eps": -1e-08', "divide by zero", NONE),
    ("ZC218", "deepspeed", adam(weight_decay=-0.1), '"weight_decay": -0.1', "grow", NONE),
    ("ZC218", "deepspeed", adam(other=-1), None, "", NONE),
    ("ZC218", "deepspeed", adam(betas=[0.9]), '"betas": [0.9]', "has 1 entries", NONE),
    ("ZC218", "deepspeed", adam(betas=[0.9, 1]), '"betas": [0.9, 1]', "outside of 0 to 1", NONE),
    ("ZC218", "deepspeed", adam(betas=[-0.1, 0.9]), '"betas": [-0.1, 0.9]', "outside of 0 to 1", NONE),
    ("ZC218", "deepspeed", adam(betas=[0, 0.999]), None, "", NONE),
    ("ZC218", "deepspeed", adam(betas="x"), None, "", NONE),
    ("ZC218", "deepspeed", {**ZERO, "optimizer": {"params": {"lr": -1}}}, None, "", NONE),
    ("ZC220", "deepspeed", adam(), '"optimizer"', "0.001", NONE),
    (
        "ZC220",
        "accelerate",
        adam(eps=1),
        '"optimizer"',
        "DummyOptim",
        ("optimizer", "params", {"eps": 1, "lr": "auto"}),
    ),
    ("ZC220", "deepspeed", adam(lr=1), None, "", NONE),
    ("ZC220", "trl", adam(), None, "", NONE),
    ("ZC220", "deepspeed", adam(torch_adam=True), None, "", NONE),
    (
        "ZC212",
        "deepspeed",
        {**ZERO, "optimizer": {"type": "sgd"}},
        '"sgd"',
        "case-sensitive",
        ("optimizer", "type", "SGD"),
    ),
    ("ZC212", "deepspeed", {**ZERO, "optimizer": {"type": "ADAMW"}}, None, "", NONE),
    ("ZC212", "deepspeed", {**ZERO, "optimizer": {"type": "SGD"}}, None, "", NONE),
    ("ZC212", "deepspeed", {**ZERO, "optimizer": {"type": "Sophia"}}, '"Sophia"', "the exact name of a class", NONE),
    (
        *(
            "ZC212",
            "deepspeed",
            {**ZERO, "optimizer": {"type": "OneBitAdam"}},
            '"OneBitAdam"',
            "removed from DeepSpeed",
        ),
        ("optimizer", "type", "AdamW"),
    ),
    ("ZC212", "deepspeed", {**ZERO, "optimizer": {"type": "OneBitLamb"}}, '"OneBitLamb"', "removed", NONE),
    (
        *("ZC213", "deepspeed", {**ZERO, "optimizer": {"type": "SGD"}}, '"SGD"', "ZeRO stage 2 takes"),
        ("zero_allow_untested_optimizer", True),
    ),
    ("ZC213", "deepspeed", {**ZERO, "optimizer": {"type": "Lamb"}}, '"Lamb"', "ZeRO stage 2", NONE + "?"),
    ("ZC213", "deepspeed", {**ZERO, "optimizer": {"type": "Adam"}}, None, "", NONE),
    ("ZC213", "deepspeed", {**stage(0), "optimizer": {"type": "SGD"}}, None, "", NONE),
    (
        *("ZC213", "deepspeed", {**ZERO, "optimizer": {"type": "SGD"}, "zero_allow_untested_optimizer": True}),
        *(None, "", NONE),
    ),
    (
        "ZC214",
        "deepspeed",
        {**ZERO, "optimizer": {"params": {}}},
        '"optimizer"',
        "stops unless the program",
        ("optimizer", "type", "AdamW"),
    ),
    ("ZC214", "trl", {**ZERO, "optimizer": {}}, '"optimizer"', "which makes none and stops", ("optimizer", None)),
    ("ZC214", "deepspeed", {**ZERO, "optimizer": {"type": None}}, '"optimizer"', "stops unless", NONE),
    ("ZC214", "deepspeed", {**ZERO, "optimizer": {"type": "Adam"}}, None, "", NONE),
    (
        "ZC215",
        "deepspeed",
        adam(adam_w_mode=False),
        '"adam_w_mode": false',
        "silently ignored",
        ("optimizer", "type", "Adam"),
    ),
    ("ZC215", "deepspeed", adam(adam_w_mode=0), '"adam_w_mode": 0', "silently ignored", ("optimizer", "type", "Adam")),
    ("ZC215", "deepspeed", adam(adam_w_mode=True), None, "", NONE),
    ("ZC215", "deepspeed", adam(adam_w_mode=1), None, "", NONE),
    (
        *("ZC216", "deepspeed", {**ZERO, "optimizer": {"type": "Adam", "params": {"weight_decay": 0.1}}}, '"Adam"'),
        *("decouples", ("optimizer", "type", "AdamW")),
    ),
    ("ZC216", "deepspeed", {**ZERO, "optimizer": {"type": "Adam", "params": {"weight_decay": 0}}}, None, "", NONE),
    ("ZC216", "deepspeed", adam(weight_decay=0.1), None, "", NONE),
    (
        *("ZC216", "deepspeed"),
        {**ZERO, "optimizer": {"type": "Adam", "params": {"weight_decay": 0.1, "adam_w_mode": True}}},
        *(None, "", NONE),
    ),
    ("ZC224", "deepspeed", schedule("warmuplr", {}), '"warmuplr"', "", ("scheduler", "type", "WarmupLR")),
    ("ZC224", "deepspeed", schedule("WarmupX", {}), '"WarmupX"', "write one of", NONE),
    ("ZC224", "trl", schedule("WarmupX", {}), '"WarmupX"', "set lr_scheduler_type", NONE),
    ("ZC224", "deepspeed", schedule("StepLR", {}), None, "", NONE),
    ("ZC224", "deepspeed", schedule("LRScheduler", {}), None, "", NONE),
    ("ZC224", "deepspeed", schedule("OneCycle", {}), None, "", NONE),
    ("ZC225", "deepspeed", schedule("StepLR", {}), '"StepLR"', "at ZeRO stage 2", NONE),
    ("ZC225", "trl", schedule("StepLR", {}), '"StepLR"', "set lr_scheduler_type", ("scheduler", None)),
    ("ZC225", "deepspeed", schedule("StepLR", {}, **stage(0)), None, "", NONE),
    ("ZC225", "deepspeed", schedule("StepLR", {}, **stage(0), bf16={"enabled": True}), '"StepLR"', "in 16 bits", NONE),
    ("ZC225", "deepspeed", schedule("WarmupLR", {}), None, "", NONE),
    ("ZC226", "deepspeed", schedule("WarmupLR"), '"scheduler"', "has no `params`", ("scheduler", "params", {})),
    ("ZC226", "deepspeed", schedule("WarmupDecayLR"), '"scheduler"', "has no `params`", NONE),
    (
        *("ZC226", "trl", schedule("WarmupLR"), '"scheduler"', "has no `params`"),
        ("scheduler", "params", {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}),
    ),
    ("ZC226", "deepspeed", schedule("WarmupLR", {}), None, "", NONE),
    ("ZC227", "deepspeed", schedule("WarmupDecayLR", {}), '"params"', "the number of optimizer steps", NONE),
    (
        *("ZC227", "trl", schedule("WarmupDecayLR", {}), '"params"', "`total_num_steps`"),
        ("scheduler", "params", {"total_num_steps": "auto"}),
    ),
    ("ZC227", "trl", schedule("WarmupLR", {}), None, "", NONE),
    ("ZC227", "deepspeed", schedule("OneCycle", {}), '"params"', "cycle_min_lr", NONE),
    ("ZC228", "trl", schedule(None), '"scheduler"', "fails at the first step", ("scheduler", None)),
    (
        "ZC228",
        "trl",
        schedule(None, {"x": 1}),
        '"scheduler"',
        "fails at the first step",
        ("scheduler", "type", "WarmupLR"),
    ),
    (
        *("ZC228", "accelerate", schedule(None, {"total_num_steps": 1}), '"scheduler"', "fails at the first step"),
        ("scheduler", "type", "WarmupDecayLR"),
    ),
    ("ZC228", "deepspeed", schedule("WarmupLR", {}), None, "", NONE),
    (
        *("ZC229", "deepspeed", schedule("WarmupDecayLR", {"total_num_steps": 10, "warmup_num_steps": 11})),
        *('"warmup_num_steps": 11', "ends after 10", NONE),
    ),
    ("ZC229", "deepspeed", schedule("WarmupDecayLR", {"total_num_steps": 10, "warmup_num_steps": 10}), None, "", NONE),
    ("ZC229", "deepspeed", schedule("WarmupDecayLR", {"total_num_steps": 999}), '"params"', "by default", NONE),
    ("ZC229", "deepspeed", schedule("WarmupDecayLR", {"total_num_steps": 1000}), None, "", NONE),
    ("ZC229", "deepspeed", schedule("WarmupLR", {"total_num_steps": 10, "warmup_num_steps": 11}), None, "", NONE),
    ("ZC229", "deepspeed", schedule("WarmupDecayLR", {"total_num_steps": 0, "warmup_num_steps": 11}), None, "", NONE),
    (
        *("ZC231", "deepspeed", schedule("WarmupLR", {"warmup_max_lr": 0.1}, **adam(lr=0.2)), '"warmup_max_lr": 0.1'),
        *("climbs to 0.1", ("scheduler", "params", {"warmup_max_lr": 0.2})),
    ),
    ("ZC231", "deepspeed", schedule("WarmupLR", {"warmup_max_lr": 0.2}, **adam(lr=0.2)), None, "", NONE),
    ("ZC231", "trl", schedule("WarmupLR", {"warmup_max_lr": 0.1}, **adam(lr=0.2)), None, "", NONE),
    ("ZC231", "deepspeed", schedule("WarmupLR", {"warmup_max_lr": 0.1}, **adam()), None, "", NONE),
    (
        *("ZC232", "deepspeed", schedule("WarmupLR", {"warmup_type": "LOG"}), '"LOG"', "warms up logarithmically"),
        ("scheduler", "params", {"warmup_type": "log"}),
    ),
    (
        *("ZC232", "deepspeed", schedule("WarmupLR", {"warmup_type": "cosine"}), '"cosine"', ""),
        ("scheduler", "params", {"warmup_type": "linear"}),
    ),
    ("ZC232", "deepspeed", schedule("WarmupLR", {"warmup_type": "linear"}), None, "", NONE),
    ("ZC232", "deepspeed", schedule("OneCycle", {"warmup_type": "x"}), None, "", NONE),
    (
        *("ZC236", "deepspeed", schedule("OneCycle", {"decay_lr_rate": 0.1, "decay_step_size": 0})),
        *('"decay_lr_rate": 0.1', "has no effect", NONE),
    ),
    ("ZC236", "deepspeed", schedule("OneCycle", {"decay_lr_rate": 0.1}), '"decay_lr_rate": 0.1', "no effect", NONE),
    ("ZC236", "deepspeed", schedule("OneCycle", {"decay_lr_rate": 0.1, "decay_step_size": 1}), None, "", NONE),
    ("ZC236", "deepspeed", schedule("OneCycle", {"decay_lr_rate": 0}), None, "", NONE),
    (
        "ZC416",
        "deepspeed",
        stage(2, sub_group_size=7),
        '"sub_group_size"',
        "at stage 2",
        ("zero_optimization", {"stage": 2}),
    ),
    ("ZC416", "deepspeed", stage(2, sub_group_size=1_000_000_000), None, "", NONE),
    ("ZC416", "deepspeed", stage(2, sub_group_size="auto"), None, "", NONE),
    ("ZC416", "deepspeed", stage(3, sub_group_size=7), None, "", NONE),
    ("ZC416", "deepspeed", stage(0, sub_group_size=7), None, "", NONE),
    (
        *("ZC416", "deepspeed", stage(1, sub_group_size=7, stage3_max_live_parameters=5), '"sub_group_size"'),
        *("`sub_group_size` and `stage3_max_live_parameters`", ("zero_optimization", {"stage": 1})),
    ),
    (
        *("ZC416", "deepspeed"),
        stage(1, sub_group_size=7, stage3_max_live_parameters=5, max_reuse_distance=6, prefetch_bucket_size=8),
        *('"sub_group_size"', "`sub_group_size`, `stage3_max_live_parameters` and 2 more", NONE + "?"),
    ),
    (
        "ZC417",
        "deepspeed",
        stage(3, round_robin_gradients=True),
        '"round_robin_gradients"',
        "at stage 3",
        ("zero_optimization", {"stage": 3}),
    ),
    ("ZC417", "deepspeed", stage(3, round_robin_gradients=False), None, "", NONE),
    ("ZC417", "deepspeed", stage(2, round_robin_gradients=True), None, "", NONE),
    (
        "ZC418",
        "deepspeed",
        stage(0, reduce_bucket_size=7),
        '"reduce_bucket_size"',
        "ZeRO is off",
        ("zero_optimization", {"stage": 0}),
    ),
    ("ZC418", "deepspeed", stage(1, reduce_bucket_size=7), None, "", NONE),
    ("ZC418", "deepspeed", {**MICRO, "zero_optimization": {"reduce_bucket_size": 7}}, None, "", NONE),
    (
        *("ZC419", "deepspeed", {**MICRO, "zero_optimization": {"overlap_comm": True}}, '"zero_optimization"'),
        *("no ZeRO at all", ("zero_optimization", {"overlap_comm": True, "stage": 2})),
    ),
    (
        "ZC419",
        "trl",
        {**MICRO, "zero_optimization": {"overlap_comm": True}},
        '"zero_optimization"',
        "KeyError",
        NONE + "?",
    ),
    ("ZC419", "deepspeed", {**MICRO, "zero_optimization": {}}, None, "", NONE),
    (
        "ZC420",
        "deepspeed",
        stage(2, allgather_bucket_size=7),
        "7",
        "write 8",
        ("zero_optimization", {"stage": 2, "allgather_bucket_size": 8}),
    ),
    ("ZC420", "deepspeed", stage(1, allgather_bucket_size=1), "1", "write 2", NONE + "?"),
    ("ZC420", "deepspeed", stage(2, allgather_bucket_size=8), None, "", NONE),
    ("ZC420", "deepspeed", stage(2, allgather_bucket_size=-7), None, "", NONE),
    ("ZC420", "deepspeed", stage(2, allgather_bucket_size=0), None, "", NONE),
    ("ZC420", "deepspeed", stage(3, allgather_bucket_size=7), None, "", NONE),
    (
        *("ZC422", "deepspeed", stage(3, stage3_allgather_sequential=True, stage3_prefetch_bucket_size=2)),
        *(
            '"stage3_prefetch_bucket_size": 2',
            "becomes 1",
            ("zero_optimization", {"stage": 3, "stage3_allgather_sequential": True}),
        ),
    ),
    ("ZC422", "deepspeed", stage(3, stage3_allgather_sequential=True, stage3_prefetch_bucket_size=1), None, "", NONE),
    ("ZC422", "deepspeed", stage(3, stage3_allgather_sequential=False, stage3_prefetch_bucket_size=2), None, "", NONE),
    ("ZC422", "deepspeed", stage(2, stage3_allgather_sequential=True, stage3_prefetch_bucket_size=2), None, "", NONE),
    ("ZC422", "deepspeed", stage(3, stage3_allgather_sequential="auto", stage3_prefetch_bucket_size=2), None, "", NONE),
    (
        "ZC240",
        "trl",
        {**ZERO, "gradient_accumulation_steps": None},
        '"gradient_accumulation_steps": null',
        "multiplies",
        ("gradient_accumulation_steps", "auto"),
    ),
    ("ZC240", "trl", {**ZERO, "gradient_accumulation_steps": 1}, None, "", NONE),
    ("ZC240", "trl", ZERO, None, "", NONE),
    (
        "ZC248",
        "deepspeed",
        {**ZERO, "steps_per_print": 0},
        '"steps_per_print": 0',
        "is a divisor",
        ("steps_per_print", None),
    ),
    ("ZC248", "deepspeed", {**ZERO, "steps_per_print": 1}, None, "", NONE),
    ("ZC248", "deepspeed", {**ZERO, "steps_per_print": None}, None, "", NONE),
    (
        *("ZC245", "deepspeed", {**stage(1, overlap_comm=True), "managed_gradient_accumulation": False}),
        *('"overlap_comm": true', "stage 1", ("zero_optimization", {"stage": 1, "overlap_comm": False})),
    ),
    ("ZC245", "deepspeed", {**stage(2, overlap_comm=True), "managed_gradient_accumulation": False}, None, "", NONE),
    ("ZC245", "deepspeed", {**stage(1, overlap_comm=False), "managed_gradient_accumulation": False}, None, "", NONE),
    ("ZC245", "deepspeed", {**stage(1, overlap_comm=True), "managed_gradient_accumulation": True}, None, "", NONE),
    ("ZC245", "deepspeed", stage(1, overlap_comm=True), None, "", NONE),
]


def judge(code: str, consumer: Any, config: dict[str, Any], place: str | None, words: str, left: Any) -> None:
    """``left``: where the fix changes something, and what stands there afterwards; "none": there is no fix."""
    route: Any = {"deepspeed": "engine", "accelerate": "accelerate"}.get(consumer, "trainer")
    recipe = {"recipe": {"output_dir": "out"}} if consumer == "trl" else {}
    every = found(code, with_settings(run_of(consumer, deepspeed=config, deepspeed_route=route, **recipe)))
    assert [shown(item) for item in every] == ([] if place is None else [place])
    for item in every:
        assert words in f"{item.message} {item.help}"
        if left == NONE:
            assert item.fix is None
        elif left != NONE + "?":
            *path, value = left
            mended = json.loads(after(item.fix))
            assert {key: mended.get(key) for key in config if key != path[0]} == {
                key: config[key] for key in config if key != path[0]
            }
            for name in path:
                mended = mended.get(name)
            assert mended == value and type(mended) is type(value)


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}-{number}") for number, row in enumerate(ROWS)])
def test_a_config_of_deepspeed(row: tuple[str, Any, dict[str, Any], str | None, str, Any]) -> None:
    judge(*row)
