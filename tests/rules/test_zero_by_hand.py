"""Rules of ZeRO, batches and instruments: what is told of a DeepSpeed config, the nearest that is not, and the cure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.build.test_road_limits import run_of
from tests.rules.by_hand import effective, found, shown
from tests.rules.test_numbers_by_hand import MICRO, NONE, ZERO, adam, judge, stage
from zerocfg.rules.batch.sizes import _batch_help
from zerocfg.run.resolve_settings import with_settings

ANY = NONE + "?"


def flow(
    number: int = 2, device: str | None = "cpu", zero: dict[str, Any] | None = None, **keys: Any
) -> dict[str, Any]:
    """A config with ZenFlow."""
    part = {} if device is None else {"offload_optimizer": {"device": device}}
    return {**stage(number, zenflow=keys, **part, **(zero or {})), "optimizer": {"type": "AdamW", "params": {}}}


def sizes(total: Any = None, micro: Any = None, steps: Any = None) -> dict[str, Any]:
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    given = {name: size for name, size in zip(names, (total, micro, steps), strict=True) if size is not None}
    return {**given, "zero_optimization": {"stage": 2}}


ROWS: list[tuple[str, Any, dict[str, Any], str | None, str, Any]] = [
    ("ZC203", "deepspeed", sizes(7, 2, 2), '"train_batch_size": 7', "leave out train_batch_size: it follows", ANY),
    ("ZC204", "deepspeed", sizes(1, 2), '"train_batch_size": 1', "leave out train_batch_size: it follows", ANY),
    ("ZC403", "deepspeed", stage("auto"), '"auto"', "silently takes 0", ("zero_optimization", {"stage": 2})),
    ("ZC403", "trl", stage("auto"), '"auto"', "takes its default, 2", ("zero_optimization", {"stage": 2})),
    ("ZC403", None, stage("auto"), '"auto"', "the Trainer take 2", ANY),
    ("ZC403", "deepspeed", stage(0), None, "", NONE),
    (
        "ZC410",
        "deepspeed",
        stage(1, legacy_stage1=True),
        '"legacy_stage1": true',
        "removed in DeepSpeed",
        ("zero_optimization", {"stage": 1}),
    ),
    ("ZC410", "deepspeed", stage(2, legacy_stage1=True), '"legacy_stage1": true', "removed", ANY),
    ("ZC410", "deepspeed", stage(3, legacy_stage1=True), None, "", NONE),
    ("ZC410", "deepspeed", stage(1, legacy_stage1=False), None, "", NONE),
    (
        *("ZC421", "deepspeed", stage(2, contiguous_gradients=False, offload_optimizer={"device": "cpu"})),
        *(
            '"contiguous_gradients": false',
            "is on cpu",
            ("zero_optimization", {"stage": 2, "offload_optimizer": {"device": "cpu"}}),
        ),
    ),
    ("ZC421", "deepspeed", stage(2, contiguous_gradients=False), None, "", NONE),
    ("ZC421", "deepspeed", stage(3, contiguous_gradients=False, offload_optimizer={"device": "cpu"}), None, "", NONE),
    ("ZC421", "deepspeed", stage(2, contiguous_gradients=True, offload_optimizer={"device": "cpu"}), None, "", NONE),
    ("ZC421", "deepspeed", stage(2, contiguous_gradients="auto", offload_optimizer={"device": "cpu"}), None, "", NONE),
    (
        "ZC423",
        "deepspeed",
        {**stage(2, compute_grad_norm=False), "gradient_clipping": 1.0},
        '"compute_grad_norm": false',
        "clipped at 1.0",
        ("zero_optimization", {"stage": 2}),
    ),
    ("ZC423", "deepspeed", {**stage(2, compute_grad_norm=False), "gradient_clipping": 0}, None, "", NONE),
    ("ZC423", "deepspeed", {**stage(2, compute_grad_norm=True), "gradient_clipping": 1.0}, None, "", NONE),
    ("ZC423", "deepspeed", {**stage(3, compute_grad_norm=False), "gradient_clipping": 1.0}, None, "", NONE),
    ("ZC424", "deepspeed", stage(3, compute_grad_norm=False), '"compute_grad_norm": false', "at stage 3", ANY),
    ("ZC424", "deepspeed", stage(0, compute_grad_norm=False), '"compute_grad_norm": false', "at stage 0", ANY),
    (
        "ZC424",
        "deepspeed",
        stage(2, compute_grad_norm=False, zenflow={}),
        '"compute_grad_norm": false',
        "with ZenFlow",
        ANY,
    ),
    (
        "ZC424",
        "deepspeed",
        stage(2, compute_grad_norm=False, offload_optimizer={"device": "cpu"}),
        '"compute_grad_norm": false',
        "with optimizer offload",
        ANY,
    ),
    (
        "ZC424",
        "deepspeed",
        {**stage(1, compute_grad_norm=False), "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
        '"compute_grad_norm": false',
        "at stage 1 in bf16",
        ANY,
    ),
    ("ZC424", "deepspeed", stage(2, compute_grad_norm=False), None, "", NONE),
    ("ZC424", "deepspeed", stage(3, compute_grad_norm=True), None, "", NONE),
    (
        "ZC426",
        "deepspeed",
        stage(2, zero_hpz_partition_size=2),
        '"zero_hpz_partition_size": 2',
        "at stage 2",
        ("zero_optimization", {"stage": 2}),
    ),
    ("ZC426", "deepspeed", stage(2, zero_hpz_partition_size=1), None, "", NONE),
    (
        "ZC426",
        "deepspeed",
        stage(2, zero_quantized_weights=True, zero_quantized_gradients=True),
        '"zero_quantized_weights": true',
        "`zero_quantized_weights` and `zero_quantized_gradients`",
        ("zero_optimization", {"stage": 2}),
    ),
    ("ZC426", "deepspeed", stage(2, zero_quantized_weights=False), None, "", NONE),
    ("ZC426", "deepspeed", stage(2, zero_quantized_weights="auto"), None, "", NONE),
    ("ZC426", "deepspeed", stage(3, zero_quantized_weights=True), None, "", NONE),
    (
        "ZC429",
        "deepspeed",
        stage(3, zero_quantized_gradients=True, reduce_scatter=False),
        '"zero_quantized_gradients": true',
        "needs `reduce_scatter`",
        ("zero_optimization", {"stage": 3, "zero_quantized_gradients": True, "reduce_scatter": True}),
    ),
    ("ZC429", "deepspeed", stage(3, zero_quantized_gradients=True), None, "", NONE),
    ("ZC429", "deepspeed", stage(3, zero_quantized_gradients=True, reduce_scatter="auto"), None, "", NONE),
    ("ZC429", "deepspeed", stage(2, zero_quantized_gradients=True, reduce_scatter=False), None, "", NONE),
    ("ZC429", "deepspeed", stage(3, zero_quantized_gradients=False, reduce_scatter=False), None, "", NONE),
    ("ZC431", "deepspeed", flow(device=None), '"zenflow"', "needs the optimizer on the CPU", ANY),
    (
        "ZC431",
        "deepspeed",
        flow(device="none"),
        '"zenflow"',
        "needs the optimizer on the CPU",
        ("zero_optimization", {"stage": 2, "zenflow": {}, "offload_optimizer": {"device": "cpu"}}),
    ),
    ("ZC431", "deepspeed", flow(), None, "", NONE),
    ("ZC431", "deepspeed", flow(3, device=None), None, "", NONE),
    ("ZC431", "deepspeed", stage(2, zenflow=None), None, "", NONE),
    ("ZC432", "deepspeed", flow(select_interval=5), '"select_interval": 5', "needs a `select_strategy`", ANY),
    ("ZC432", "deepspeed", flow(select_strategy="auto", select_interval=5), '"select_interval": 5', "needs a", ANY),
    (
        "ZC432",
        "deepspeed",
        flow(select_strategy="step", select_interval="auto"),
        '"select_strategy": "step"',
        "needs a number",
        ANY,
    ),
    ("ZC432", "deepspeed", flow(select_strategy="epoch"), '"select_strategy": "epoch"', "needs a number", ANY),
    ("ZC432", "deepspeed", flow(select_strategy="step", select_interval=5), None, "", NONE),
    ("ZC432", "deepspeed", flow(), None, "", NONE),
    ("ZC432", "deepspeed", flow(select_interval=True), None, "", NONE),
    (
        "ZC433",
        "deepspeed",
        flow(select_strategy="step", select_interval=3, update_interval=4),
        '"select_interval": 3',
        "at least 4",
        ANY,
    ),
    ("ZC433", "deepspeed", flow(select_strategy="step", select_interval=4, update_interval=4), None, "", NONE),
    ("ZC433", "deepspeed", flow(select_strategy="step", select_interval=0, update_interval=4), None, "", NONE),
    ("ZC433", "deepspeed", flow(select_strategy="epoch", select_interval=3, update_interval=4), None, "", NONE),
    ("ZC434", "deepspeed", {**flow(), "gradient_accumulation_steps": 4}, '"zenflow": {}', "0 (its default, auto)", ANY),
    (
        "ZC434",
        "deepspeed",
        {**flow(update_interval=2), "gradient_accumulation_steps": 4},
        '"update_interval": 2',
        "makes that 2",
        ANY,
    ),
    (
        "ZC434",
        "deepspeed",
        {**flow(update_interval="auto"), "gradient_accumulation_steps": 4},
        '"update_interval": "auto"',
        "makes that 0",
        ANY,
    ),
    ("ZC434", "deepspeed", {**flow(update_interval=4), "gradient_accumulation_steps": 4}, None, "", NONE),
    ("ZC434", "deepspeed", {**flow(), "gradient_accumulation_steps": 1}, None, "", NONE),
    ("ZC434", "deepspeed", {**flow(update_interval="x"), "gradient_accumulation_steps": 4}, None, "", NONE),
    ("ZC434", "deepspeed", {**flow(0), "gradient_accumulation_steps": 4}, None, "", NONE),
    ("ZC435", "deepspeed", {**flow(), "optimizer": {"type": "AdamW"}}, '"zenflow"', "is not there", NONE),
    (
        "ZC435",
        "deepspeed",
        stage(2, zenflow={}, offload_optimizer={"device": "cpu"}),
        '"zenflow"',
        "is not there",
        NONE,
    ),
    ("ZC435", "trl", stage(2, zenflow={}, offload_optimizer={"device": "cpu"}), '"zenflow"', "is not there", ANY),
    ("ZC435", "deepspeed", flow(), None, "", NONE),
    ("ZC435", "deepspeed", stage(2, zenflow={}), None, "", NONE),
    ("ZC435", "deepspeed", stage(3, zenflow={}, offload_optimizer={"device": "cpu"}), None, "", NONE),
    ("ZC436", "deepspeed", flow(0), '"zenflow"', "off at stage 0", NONE),
    ("ZC436", "deepspeed", flow(1), None, "", NONE),
    (
        "ZC437",
        "deepspeed",
        flow(zero={"overlap_comm": False}, offload=True),
        '"offload": true',
        "needs `overlap_comm`",
        ANY,
    ),
    ("ZC437", "deepspeed", flow(zero={"overlap_comm": True}, offload=True), None, "", NONE),
    ("ZC437", "deepspeed", flow(zero={"overlap_comm": False}, offload=False), None, "", NONE),
    ("ZC437", "deepspeed", flow(device=None, zero={"overlap_comm": False}, offload=True), None, "", NONE),
    (
        "ZC438",
        "trl",
        {**ZERO, "managed_gradient_accumulation": False},
        '"managed_gradient_accumulation": false',
        "loops of your own",
        ("managed_gradient_accumulation", None),
    ),
    ("ZC438", "trl", {**ZERO, "managed_gradient_accumulation": True}, None, "", NONE),
    (
        "ZC445",
        "deepspeed",
        {**ZERO, "data_efficiency": {"data_routing": {"random_ltd": {"enabled": True}}}},
        '"enabled": true',
        "without `total_layer_num`",
        ANY,
    ),
    (
        "ZC445",
        "deepspeed",
        {**ZERO, "data_efficiency": {"data_routing": {"random_ltd": {"enabled": True, "total_layer_num": 3}}}},
        None,
        "",
        NONE,
    ),
    (
        "ZC445",
        "deepspeed",
        {**ZERO, "data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": True}}}},
        '"enabled": true',
        "without `max_tokens`",
        ANY,
    ),
    (
        "ZC445",
        "deepspeed",
        {**ZERO, "data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": False}}}},
        None,
        "",
        NONE,
    ),
    (
        "ZC446",
        "trl",
        {**ZERO, "dataloader_drop_last": True},
        '"dataloader_drop_last"',
        "under the Trainer",
        ("dataloader_drop_last", None),
    ),
    ("ZC446", "accelerate", {**ZERO, "dataloader_drop_last": True}, '"dataloader_drop_last"', "under accelerate", ANY),
    ("ZC446", "trl", {**ZERO, "dataloader_drop_last": False}, None, "", NONE),
    (
        "ZC446",
        "trl",
        {**ZERO, "data_efficiency": {"enabled": True, "data_sampling": {"enabled": True}}},
        '"data_sampling"',
        "no effect",
        ANY,
    ),
    (
        "ZC446",
        "trl",
        {**ZERO, "data_efficiency": {"enabled": False, "data_sampling": {"enabled": True}}},
        None,
        "",
        NONE,
    ),
    (
        "ZC446",
        "trl",
        {**ZERO, "data_efficiency": {"enabled": True, "data_sampling": {"enabled": False}}},
        None,
        "",
        NONE,
    ),
    (
        "ZC447",
        "deepspeed",
        {**ZERO, "wall_clock_breakdown": True},
        '"wall_clock_breakdown": true',
        "host wait",
        ("wall_clock_breakdown", False),
    ),
    (
        "ZC447",
        "deepspeed",
        {**ZERO, "flops_profiler": {"enabled": True}},
        '"enabled": true',
        "`flops_profiler.enabled`",
        ("flops_profiler", {"enabled": False}),
    ),
    ("ZC447", "deepspeed", {**ZERO, "wall_clock_breakdown": False}, None, "", NONE),
    (
        "ZC448",
        "deepspeed",
        {**ZERO, "memory_breakdown": True},
        '"memory_breakdown": true',
        "six reports",
        ("memory_breakdown", False),
    ),
    ("ZC448", "deepspeed", {**ZERO, "memory_breakdown": False}, None, "", NONE),
    (
        "ZC449",
        "deepspeed",
        {**ZERO, "comms_logger": {"enabled": True}},
        '"enabled": true',
        "every collective wait",
        ("comms_logger", None),
    ),
    ("ZC449", "deepspeed", {**ZERO, "comms_logger": {"enabled": False}}, None, "", NONE),
    (
        "ZC450",
        "deepspeed",
        {**ZERO, "comms_logger": {"enabled": True, "prof_all": False}},
        '"prof_all": false',
        "logs none",
        ("comms_logger", {"enabled": True, "prof_all": True}),
    ),
    (
        "ZC450",
        "deepspeed",
        {**ZERO, "comms_logger": {"enabled": True, "prof_all": False, "prof_ops": ["x"]}},
        None,
        "",
        NONE,
    ),
    (
        "ZC450",
        "deepspeed",
        {**ZERO, "comms_logger": {"enabled": True, "prof_all": False, "prof_ops": []}},
        '"prof_all": false',
        "",
        ANY,
    ),
    ("ZC450", "deepspeed", {**ZERO, "comms_logger": {"enabled": True}}, None, "", NONE),
    ("ZC450", "deepspeed", {**ZERO, "comms_logger": {"enabled": False, "prof_all": False}}, None, "", NONE),
    ("ZC450", "deepspeed", {**ZERO, "comms_logger": {"enabled": True, "prof_all": "auto"}}, None, "", NONE),
    (
        "ZC452",
        "deepspeed",
        {**ZERO, "comms_logger": {"enabled": False}},
        '"comms_logger"',
        "only whether the section is there",
        ("comms_logger", None),
    ),
    ("ZC452", "deepspeed", {**ZERO, "comms_logger": {}}, '"comms_logger"', "", ("comms_logger", None)),
    ("ZC452", "deepspeed", {**ZERO, "comms_logger": {"enabled": True}}, None, "", NONE),
    ("ZC452", "deepspeed", {**ZERO, "comms_logger": {"enabled": "auto"}}, None, "", NONE),
    ("ZC452", "deepspeed", ZERO, None, "", NONE),
    (
        "ZC454",
        "deepspeed",
        {**ZERO, "datastates_ckpt": {}},
        '"datastates_ckpt": {}',
        "switched on by every value",
        ("datastates_ckpt", None),
    ),
    ("ZC454", "deepspeed", {**ZERO, "datastates_ckpt": None}, '"datastates_ckpt": null', "", ANY),
    (
        "ZC454",
        "deepspeed",
        {**ZERO, "datastates_ckpt": {"enabled": False}},
        '"datastates_ckpt": {"enabled": false}',
        "",
        ANY,
    ),
    ("ZC454", "deepspeed", {**ZERO, "datastates_ckpt": False}, None, "", NONE),
    ("ZC454", "deepspeed", {**ZERO, "datastates_ckpt": {"enabled": True}}, None, "", NONE),
    (
        "ZC455",
        "deepspeed",
        {**ZERO, "expert_parallel": {"load_balance_coeff": 0.1}},
        '"load_balance_coeff": 0.1',
        "not supported",
        ("expert_parallel", {}),
    ),
    ("ZC455", "deepspeed", {**ZERO, "expert_parallel": {"load_balance_coeff": None}}, None, "", NONE),
    ("ZC455", "deepspeed", {**ZERO, "expert_parallel": {"load_balance_coeff": True}}, None, "", NONE),
    (
        "ZC460",
        "deepspeed",
        {**ZERO, "checkpoint": {"load_universal": True}},
        '"load_universal": true',
        "resuming stops",
        ("checkpoint", {}),
    ),
    ("ZC460", "deepspeed", {**ZERO, "checkpoint": {"load_universal": False}}, None, "", NONE),
    (
        "ZC461",
        "deepspeed",
        {**stage(2, elastic_checkpoint=True), "optimizer": {"type": "SGD"}},
        '"elastic_checkpoint": true',
        "with SGD",
        ("zero_optimization", {"stage": 2}),
    ),
    ("ZC461", "deepspeed", {**stage(2, elastic_checkpoint=True), "optimizer": {"type": "Lion"}}, None, "", NONE),
    ("ZC461", "deepspeed", {**stage(2, elastic_checkpoint=True), "optimizer": {"type": "Adam"}}, None, "", NONE),
    (
        "ZC461",
        "deepspeed",
        {**stage(2, elastic_checkpoint=True), "optimizer": {"type": "Adam", "params": {"torch_adam": True}}},
        '"elastic_checkpoint": true',
        "torch's Adam",
        ANY,
    ),
    (
        "ZC461",
        "deepspeed",
        {**stage(2, elastic_checkpoint=True, offload_optimizer={"device": "cpu"}), "optimizer": {"type": "Adam"}},
        '"elastic_checkpoint": true',
        "on the processor",
        ANY,
    ),
    ("ZC461", "deepspeed", stage(2, elastic_checkpoint=True), '"elastic_checkpoint": true', "only with FusedAdam", ANY),
    ("ZC461", "trl", stage(1, elastic_checkpoint=True), '"elastic_checkpoint": true', "the Trainer's AdamW", ANY),
    ("ZC461", "deepspeed", stage(3, elastic_checkpoint=True), None, "", NONE),
    (
        "ZC462",
        "deepspeed",
        stage(3, elastic_checkpoint=True),
        '"elastic_checkpoint": true',
        "ZeRO 3 ignores",
        ("zero_optimization", {"stage": 3}),
    ),
    ("ZC462", "deepspeed", stage(2, elastic_checkpoint=True), None, "", NONE),
    (
        "ZC463",
        "deepspeed",
        {**ZERO, "checkpoint": {"writer": {}}},
        '"writer": {}',
        "started in another way",
        ("checkpoint", {}),
    ),
    ("ZC463", "deepspeed", {**ZERO, "checkpoint": {"writer": None}}, None, "", NONE),
    (
        "ZC467",
        "deepspeed",
        {**stage(0), "bf16": {"enabled": True}, "optimizer": {"type": "Adagrad"}},
        '"type": "Adagrad"',
        "in bf16",
        ("zero_optimization", {"stage": 1}),
    ),
    ("ZC467", "deepspeed", {**stage(0), "optimizer": {"type": "Adagrad"}}, None, "", NONE),
    ("ZC467", "deepspeed", {**stage(1), "bf16": {"enabled": True}, "optimizer": {"type": "Adagrad"}}, None, "", NONE),
    ("ZC467", "deepspeed", {**stage(0), "bf16": {"enabled": True}, "optimizer": {"type": "Adam"}}, None, "", NONE),
    ("ZC217", "deepspeed", adam(fused=True), '"fused": true', "DeepSpeed's FusedAdam", ("optimizer", "params", {})),
    ("ZC217", "deepspeed", adam(amsgrad=True), '"amsgrad": true', "DeepSpeed's FusedAdam", ANY),
    ("ZC217", "deepspeed", adam(amsgrad=False), None, "", NONE),
    ("ZC217", "deepspeed", adam(set_grad_none=True), None, "", NONE),
    (
        "ZC217",
        "deepspeed",
        {**adam(set_grad_none=True), **stage(2, offload_optimizer={"device": "cpu"})},
        '"set_grad_none": true',
        "CPU Adam",
        ANY,
    ),
    (
        "ZC217",
        "deepspeed",
        adam(torch_adam=True, bias_correction=True),
        '"bias_correction": true',
        "which `torch_adam` chooses",
        ANY,
    ),
    ("ZC217", "deepspeed", adam(torch_adam=True, fused=True), None, "", NONE),
    ("ZC217", "deepspeed", {**ZERO, "optimizer": {"type": "Lion", "params": {"fused": True}}}, None, "", NONE),
    (
        "ZC221",
        "deepspeed",
        {**ZERO, "optimizer": {"type": "Lamb"}, "fp16": {"loss_scale": 4}},
        '"loss_scale": 4',
        "insists on a",
        NONE,
    ),
    ("ZC221", "deepspeed", {**ZERO, "optimizer": {"type": "Lamb"}, "fp16": {"loss_scale": 0}}, None, "", NONE),
    ("ZC221", "deepspeed", {**ZERO, "optimizer": {"type": "Adam"}, "fp16": {"loss_scale": 4}}, None, "", NONE),
    (
        "ZC222",
        "deepspeed",
        {**stage(3), "optimizer": {"type": "Muon"}},
        '"Muon"',
        "by default",
        ("zero_optimization", {"stage": 3, "reduce_scatter": False}),
    ),
    ("ZC222", "deepspeed", {**stage(3, reduce_scatter=True), "optimizer": {"type": "Muon"}}, '"Muon"', "is on;", ANY),
    ("ZC222", "deepspeed", {**stage(3, reduce_scatter=False), "optimizer": {"type": "Muon"}}, None, "", NONE),
    ("ZC222", "deepspeed", {**stage(2), "optimizer": {"type": "Muon"}}, None, "", NONE),
    (
        "ZC203",
        "deepspeed",
        sizes(7, 2, 2),
        '"train_batch_size": 7',
        "is no multiple of train_micro",
        ("train_batch_size", None),
    ),
    ("ZC203", "deepspeed", sizes(8, 2, 2), None, "", NONE),
    (
        "ZC203",
        "deepspeed",
        sizes(7, 2),
        '"train_batch_size": 7',
        "is no multiple of train_micro_batch_size_per_gpu, 2",
        NONE,
    ),
    ("ZC203", "deepspeed", sizes(7, None, 2), '"train_batch_size": 7', "is no multiple of gradient_acc", NONE),
    ("ZC203", "deepspeed", sizes(1, None, 2), '"train_batch_size": 1', "is no multiple of gradient_acc", NONE),
    ("ZC203", "deepspeed", sizes(7), None, "", NONE),
    ("ZC203", "deepspeed", sizes(7, 0, 2), None, "", NONE),
    ("ZC203", "deepspeed", {**sizes(7, 2, 2), "sequence_parallel_size": 2}, None, "", NONE),
    (
        "ZC204",
        "deepspeed",
        sizes(1, 2),
        '"train_batch_size": 1',
        "less than one micro batch of 2",
        ("train_batch_size", None),
    ),
    ("ZC204", "deepspeed", sizes(2, 2), None, "", NONE),
    ("ZC205", None, {"zero_optimization": {"stage": 2}}, "", "neither", NONE),
    (
        "ZC205",
        None,
        {"train_batch_size": None, "x": 1},
        '"train_batch_size": null',
        "is null and counts as absent",
        NONE,
    ),
    ("ZC205", None, MICRO, None, "", NONE),
    ("ZC246", None, sizes(16, 2, 2), '"train_batch_size": 16', "runs on 4 processes only", ("train_batch_size", None)),
    ("ZC246", None, sizes(4, 2, 2), '"train_batch_size": 4', "runs on 1 process only", ANY),
    ("ZC246", None, sizes(17, 2, 2), None, "", NONE),
    ("ZC246", None, sizes(16, 2), None, "", NONE),
    ("ZC246", "trl", sizes(16, 2, 2), None, "", NONE),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}-{number}") for number, row in enumerate(ROWS)])
def test_a_config_of_zero(row: tuple[str, Any, dict[str, Any], str | None, str, Any]) -> None:
    judge(*row)


@pytest.mark.parametrize(
    ("ranks", "size", "code", "fitting"),
    [
        (8, 3, "ZC427", 2),
        (8, 5, "ZC427", 4),
        (7, 2, "ZC427", 1),
        (8, 4, None, None),
        (8, 1, None, None),
        (8, 8, "ZC428", None),
        (8, 9, "ZC428", None),
    ],
)
def test_shares_of_a_second_copy(ranks: int, size: int, code: str | None, fitting: int | None) -> None:
    run = run_of("deepspeed", deepspeed=stage(3, zero_hpz_partition_size=size))
    known = effective(run, num_processes=ranks, **{"zero_optimization.stage": 3})  # type: ignore[arg-type]
    for item in ("ZC427", "ZC428"):
        every = found(item, known)
        assert [shown(finding) for finding in every] == ([f'"zero_hpz_partition_size": {size}'] if item == code else [])
        for finding in every:
            words = f"write {fitting}" if fitting else "remove the key"
            assert finding.fix is not None and finding.fix.description == words


@pytest.mark.parametrize("code", ["ZC415"])
@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({**ZERO, "gradient_clipping": "auto"}, ("`gradient_clipping` is", 0, None)),
        (
            {**ZERO, "gradient_clipping": "auto", "steps_per_print": "auto"},
            ("`gradient_clipping` and 1 more are", 1, None),
        ),
        ({**ZERO, "optimizer": {"type": "Adam", "params": {"lr": "auto"}}}, ("`optimizer.params.lr` is", 0, None)),
        (stage(2, overlap_comm="auto"), ("`zero_optimization.overlap_comm` is", 0, "warning")),
        (stage("auto"), None),
        ({**ZERO, "bf16": {"enabled": "auto"}}, None),
        (stage(3, stage3_gather_16bit_weights_on_model_save="auto"), None),
        (stage(2, zenflow={"select_interval": "auto"}), None),
        (ZERO, None),
    ],
)
def test_autos_that_nobody_fills(code: str, config: dict[str, Any], told: tuple[str, int, str | None] | None) -> None:
    every = found(code, with_settings(run_of("deepspeed", deepspeed=config, deepspeed_route="engine")))
    assert len(every) == (told is not None)
    for item in every:
        assert told is not None and item.message.startswith(told[0]) and len(item.related) == told[1]
        assert (item.severity.value if item.severity else None) == told[2]


def test_where_the_sizes_of_a_batch_are_said() -> None:
    assert _batch_help(run_of("trl")).startswith('write "auto" for all three and set per_device_train_batch_size')
    assert all(
        _batch_help(run_of(item)).startswith("leave out train_batch_size") for item in ("deepspeed", "accelerate")
    )
