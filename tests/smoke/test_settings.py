"""What was planned against what the engines answer: hand-made reports, torch's own engines, and real runs."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.emit import lock as lockfile
from zerocfg.resolve.plan import Decision
from zerocfg.smoke.judge import expected_settings
from zerocfg.smoke.judge.expected_settings import expected, optimizer_class
from zerocfg.smoke.judge.settings import check, same
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.reduction import Reduced
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import RunFolder
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.text import table
from zerocfg.smoke.worker.readback import deepspeed_engine, optimizers, torch_engines

if TYPE_CHECKING:
    from .conftest import MakeRun

ZERO = "zero_optimization"
CPU = Device("cpu", "cpu")


def make(
    settings: dict[str, Any] | None = None,
    deepspeed: dict[str, Any] | None = None,
    reduced_to: dict[str, Any] | None = None,
    arguments: dict[str, Any] | None = None,
    **lock: Any,
) -> tuple[RunFolder, Reduced]:
    """A run, and what is left of it: ``reduced_to`` takes the place of its DeepSpeed config."""
    plan = {
        "engine": "deepspeed" if deepspeed is not None else "ddp",
        "num_processes": 2,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
    }
    reasoned = {name: {"value": value, "reason": "", "kind": "file"} for name, value in (settings or {}).items()}
    content = {"plan": plan, "settings": reasoned, "consumer": "transformers"} | lock
    run = RunFolder(Path("run"), lockfile.of(content), None, deepspeed)
    now = copy.deepcopy(deepspeed if reduced_to is None else reduced_to)
    return run, Reduced(2, {}, None, now, arguments or {}, dict(plan))


def report(settings: dict[str, Any] | None = None, **seen: Any) -> dict[str, Any]:
    fixed = {"engine": "deepspeed", "world_size": 2, "micro_batch": 4, "gradient_accumulation_steps": 2, "stage": 3}
    return {"seen": fixed | {"dtype": "fp32", "device": "cpu", "settings": settings or {}} | seen}


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {one.name: one for one in checks}


BUCKET = f"{ZERO}.reduce_bucket_size"


def test_a_setting_that_differs_is_told_with_both_values() -> None:
    run, reduced = make({BUCKET: 5_000_000, f"{ZERO}.stage": 3}, {ZERO: {"stage": 3}})
    checks = by_name(check(run, reduced, [report({BUCKET: 5_000_000}), report({BUCKET: 500_000_000})]))
    assert checks[BUCKET] == Check(BUCKET, "5000000", "rank 0: 5000000, rank 1: 500000000", False, "acting")


def test_what_only_the_config_holds_is_told_apart() -> None:
    run, reduced = make({f"{ZERO}.round_robin_gradients": False, "a": 1, "b": 2}, {ZERO: {"stage": 3}})
    parsed = {f"{ZERO}.round_robin_gradients": False, "a": 2}
    checks = by_name(check(run, reduced, [report(parsed=parsed, settings={"a": 1})] * 2))
    assert checks[f"{ZERO}.round_robin_gradients"].further == "parsed"
    assert checks[f"{ZERO}.round_robin_gradients"].ok is True
    assert (checks["a"].ok, checks["a"].further) == (True, "acting"), "where it acts counts, not the config"
    assert checks["b"] == Check("b", "2", "-", None, "unseen"), "what cannot be seen is not ok"


def test_one_rank_that_does_not_tell_leaves_it_unseen() -> None:
    run, reduced = make({"a": 1}, {ZERO: {"stage": 3}})
    assert by_name(check(run, reduced, [report({"a": 1}), report()]))["a"].ok is None


def test_reduced_values_are_expected() -> None:
    """What the reduction changed, removed or added is compared with what it made of it; what it left with the lock."""
    before = {ZERO: {"stage": 3, "reduce_bucket_size": 5e8, "sub_group_size": 7}, "fp16": {"enabled": True}}
    after = {
        ZERO: {"stage": 3, "reduce_bucket_size": 10, "sub_group_size": 7, "stage3_param_persistence_threshold": 64}
    }
    lock = {BUCKET: 500_000_000, f"{ZERO}.sub_group_size": 8, f"{ZERO}.stage3_param_persistence_threshold": 100_000}
    lock |= {"fp16.enabled": True, "fp16.loss_scale": 0, "train_batch_size": 64}
    run, reduced = make(lock, before, after)
    reduced.plan["fp16.enabled"] = False
    planned = expected(run, reduced)
    assert planned[BUCKET] == 10
    assert planned[f"{ZERO}.stage3_param_persistence_threshold"] == 64
    assert planned[f"{ZERO}.sub_group_size"] == 8, "an edited file is no plan"
    assert "fp16.loss_scale" not in planned and planned["fp16.enabled"] is False
    assert planned["train_batch_size"] == 16, "4 samples * 2 steps * 2 ranks"


def test_a_real_reduction_is_no_difference(make_run: MakeRun, tmp_path: Path) -> None:
    from zerocfg.smoke.prepare.folder import read

    settings = {f"{ZERO}.reduce_bucket_size": {"value": 500_000_000}, f"{ZERO}.zero_hpz_partition_size": {"value": 8}}
    folder = make_run(3, settings=settings | {f"{ZERO}.offload_optimizer.nvme_path": {"value": "/none"}})
    config = json.loads((folder / "ds_config.json").read_text())
    config[ZERO] |= {"reduce_bucket_size": 500_000_000, "zero_hpz_partition_size": 8}
    config[ZERO]["offload_optimizer"] = {"device": "nvme", "nvme_path": "/none"}
    (folder / "ds_config.json").write_text(json.dumps(config))
    run = read(folder)
    run.plan[f"{ZERO}.offload_optimizer.device"] = "nvme"
    reduced = reduce(run, CPU, 2, tmp_path)
    assert reduced.deepspeed is not None
    section = reduced.deepspeed[ZERO]
    planned = expected(run, reduced)
    assert planned[BUCKET] == section["reduce_bucket_size"] < 500_000_000
    assert planned[f"{ZERO}.zero_hpz_partition_size"] == 2
    assert planned[f"{ZERO}.offload_optimizer.device"] == section["offload_optimizer"]["device"]
    assert planned.get(f"{ZERO}.offload_optimizer.nvme_path") == section["offload_optimizer"].get("nvme_path")


@pytest.mark.parametrize(
    ("arguments", "planned"),
    [
        (
            {"learning_rate": 0.1, "weight_decay": 0.2},
            {"optimizer.params.lr": 0.1, "optimizer.params.weight_decay": 0.2},
        ),
        ({"adam_beta2": 0.95}, {"optimizer.params.betas": [0.9, 0.95]}),
        ({"warmup_steps": 0.1, "max_steps": 25}, {"warmup_steps": 3, "max_steps": 25, "lr_scheduler_type": "linear"}),
        ({"warmup_steps": 7}, {"warmup_steps": 7}),
        ({"lr_scheduler_type": "constant", "warmup_steps": 7}, {"lr_scheduler_type": "constant"}),
        ({"ddp_bucket_cap_mb": 3}, {"ddp_bucket_cap_mb": 3}),
    ],
)
def test_what_the_trainer_makes_of_its_arguments(arguments: dict[str, Any], planned: dict[str, Any]) -> None:
    found = expected(*make(arguments=arguments))
    others = {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size", "lr_scheduler_type"}
    assert {name: value for name, value in found.items() if name in planned or name not in others} == planned


def test_the_deepspeed_config_wins_over_arguments() -> None:
    settings = {"optimizer.type": "AdamW", "optimizer.params.lr": 0.5, "scheduler.type": "WarmupLR"}
    section = {"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}
    arguments = {"learning_rate": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 5}
    planned = expected(*make(settings, section, arguments=arguments))
    assert planned["optimizer.params.lr"] == 0.5
    assert "lr_scheduler_type" not in planned and "warmup_steps" not in planned


@pytest.mark.parametrize(
    ("section", "offload", "arguments", "kind"),
    [
        ({"type": "AdamW"}, "none", {}, "FusedAdam"),
        ({"type": "adam"}, "cpu", {}, "DeepSpeedCPUAdam"),
        ({"type": "Adam", "params": {"torch_adam": True, "adam_w_mode": False}}, "cpu", {}, "Adam"),
        ({"type": "AdamW", "params": {"torch_adam": True}}, "none", {}, "AdamW"),
        ({"type": "Lamb"}, "none", {}, None),
        (None, "none", {}, "AdamW"),
        (None, "cpu", {}, "DeepSpeedCPUAdam"),
        (None, "none", {"optim": "adafactor"}, "Adafactor"),
        (None, "none", {"optim": "muon"}, None),
    ],
)
def test_class_of_the_optimizer(section: Any, offload: str, arguments: dict[str, Any], kind: str | None) -> None:
    config: dict[str, Any] = {ZERO: {"stage": 2}} | ({"optimizer": section} if section else {})
    run, reduced = make({f"{ZERO}.offload_optimizer.device": offload}, config, arguments=arguments)
    assert optimizer_class(expected(run, reduced), run, reduced) == kind


def test_one_rank_of_fsdp_has_nothing_to_shard() -> None:
    run, reduced = make({"fsdp_config.fsdp_sharding_strategy": "FULL_SHARD"})
    assert expected(run, reduced)["fsdp_config.fsdp_sharding_strategy"] == "FULL_SHARD"
    reduced.ranks = 1
    assert expected(run, reduced)["fsdp_config.fsdp_sharding_strategy"] == "NO_SHARD"


def test_offload_forces_contiguous_gradients() -> None:
    settings = {f"{ZERO}.stage": 2, f"{ZERO}.contiguous_gradients": False, f"{ZERO}.offload_optimizer.device": "cpu"}
    assert expected(*make(settings, {}))[f"{ZERO}.contiguous_gradients"] is True
    assert expected(*make(settings | {f"{ZERO}.stage": 3}, {}))[f"{ZERO}.contiguous_gradients"] is False


HELD = {"ranks": 2, "parameters": 100_000, "trainable": 100_000, "tensors": 4, "groups": 1, "experts": False}
HELD |= {"shard": 50_002, "shard_devices": ["cpu"]}
HELD |= {"master": {"elements": 50_002, "dtypes": ["fp32"], "devices": ["cpu"], "pinned": False}}


def test_what_is_not_really_split_fails() -> None:
    """Stage 3 that says 3 and keeps everything on every rank."""
    run, reduced = make({f"{ZERO}.stage": 3}, {ZERO: {"stage": 3}})
    states = {"elements": 50_002, "devices": ["cpu"], "dtypes": ["fp32"]}
    checks = by_name(check(run, reduced, [report(held=HELD, states=states)] * 2))
    assert checks["parameters of a rank"] == Check("parameters of a rank", "1/2", "50,002 of 100,000", True)
    assert checks["optimizer states of a rank"].ok is True and checks["master weights"].ok is True
    whole = HELD | {"shard": 100_000, "master": HELD["master"] | {"dtypes": ["bf16"]}}  # type: ignore[operator]
    checks = by_name(check(run, reduced, [report(held=whole, states=states | {"elements": 100_000})] * 2))
    assert checks["parameters of a rank"] == Check("parameters of a rank", "1/2", "100,000 of 100,000", False)
    assert checks["optimizer states of a rank"].ok is False
    assert (checks["master weights"].planned, checks["master weights"].seen) == ("fp32", "bf16")


def test_places_are_compared_on_a_card() -> None:
    settings = {f"{ZERO}.stage": 2, f"{ZERO}.offload_optimizer.device": "cpu"}
    settings |= {f"{ZERO}.offload_optimizer.pin_memory": True}
    run, reduced = make(settings, {ZERO: {"stage": 2}})
    states = {"elements": 50_002, "devices": ["cuda"], "dtypes": ["fp32"]}
    checks = by_name(check(run, reduced, [report(held=HELD, states=states, device="cuda:0")] * 2))
    assert checks["optimizer states on"] == Check("optimizer states on", "cpu", "cuda", False)
    assert checks["master weights pinned"].ok is False
    assert "optimizer states on" not in by_name(check(run, reduced, [report(held=HELD, states=states)] * 2))


def test_equal_in_meaning() -> None:
    assert same(5e8, 500_000_000) and same([0.9, 0.95], (0.9, 0.95)) and same(None, None) and same("inf", "inf")
    assert not same(True, 1) and not same(0, False) and not same("3", 3) and not same(None, 0)


def test_the_table_counts_what_is_as_planned() -> None:
    run, reduced = make({"a": 1, "b": 2, "c": 3, BUCKET: 4}, {ZERO: {"stage": 3}})
    reports = [report({"a": 1, "b": 2, BUCKET: 5}, parsed={"c": 3})] * 2
    run.lock.settings["d"] = Decision(1)
    checks = [*check(run, reduced, reports), Check("optimizer steps, loss finite", "3", "3", True)]
    lines = table(Verdict(run, CPU, reduced, Outcome([]), checks))
    rows = [line.split() for line in lines]
    # train_batch_size and lr_scheduler_type are planned too, and not in these reports
    assert ["2", "further", "settings", "as", "planned", "read", "where", "they", "act", "ok"] in rows
    assert ["1", "further", "setting", "as", "planned", "as", "parsed", "ok"] in rows
    assert ["3", "further", "settings", "as", "planned", "not", "observable"] in rows
    assert [BUCKET, "4", "5", "FAIL"] in rows
    assert rows[-1][0] == "optimizer" and not any(row[0] in ("a", "b", "c", "d") for row in rows)


def test_reads_a_loss_scale() -> None:
    """By the attributes of DeepSpeed's DynamicLossScaler and LossScaler; fp16 does not run on a processor."""

    class Half:
        def __str__(self) -> str:
            return "torch.float16"

    dynamic = SimpleNamespace(
        dynamic=True, cur_scale=2.0**12, scale_window=500, min_scale=2, delayed_shift=3, consecutive_hysteresis=False
    )
    assert deepspeed_engine.loss_scale(SimpleNamespace(loss_scaler=dynamic, dtype=Half())) == {
        "fp16.loss_scale": 0,
        "fp16.initial_scale_power": 12,
        "fp16.loss_scale_window": 500,
        "fp16.min_loss_scale": 2,
        "fp16.hysteresis": 3,
        "fp16.consecutive_hysteresis": False,
    }
    static = SimpleNamespace(dynamic=False, cur_scale=128)
    assert deepspeed_engine.loss_scale(SimpleNamespace(loss_scaler=static, dtype=Half())) == {"fp16.loss_scale": 128}
    assert deepspeed_engine.loss_scale(SimpleNamespace(loss_scaler=static, dtype="torch.bfloat16")) == {}
    assert deepspeed_engine.loss_scale(SimpleNamespace()) == {}


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("cosine", {}),
    ("cosine", {"num_cycles": 1.0}),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", {"power": 2.0, "lr_end": 1e-6}),
    ("constant", {}),
    ("constant_with_warmup", {}),
    ("inverse_sqrt", {}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1}),
    ("cosine_with_min_lr", {"min_lr": 1e-6}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.0}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2}),
    ("warmup_stable_decay", {"num_decay_steps": 5, "min_lr_ratio": 0.1}),
]


@pytest.mark.libs
@pytest.mark.parametrize(("warmup", "steps"), [(3, 30), (0, 10)])
@pytest.mark.parametrize(("kind", "parameters"), SCHEDULES)
def test_a_schedule_is_known_by_its_values(kind: str, parameters: dict[str, Any], warmup: int, steps: int) -> None:
    """Made by transformers itself, and judged against the recipe that asks for it: no row differs."""
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=2e-5)
    made = get_scheduler(kind, optimizer, warmup, steps, dict(parameters))
    seen = optimizers.schedule(SimpleNamespace(scheduler=made))
    assert seen["lr_scheduler_type"] == kind
    planned: dict[str, object] = {}
    asked = {"lr_scheduler_type": kind, "max_steps": steps, "warmup_steps": warmup, "learning_rate": 2e-5}
    expected_settings._schedule(planned, {**asked, "lr_scheduler_kwargs": parameters})
    assert {name: one for name, one in planned.items() if name in seen and not same(one, seen[name])} == {}
    assert {name for name in planned if name.startswith("lr_scheduler_kwargs.")} <= seen.keys()
    if kind == "cosine_with_min_lr":  # another smallest rate is another schedule
        expected_settings._schedule(planned, {**asked, "lr_scheduler_kwargs": {"min_lr_rate": 0.3}})
        assert not same(planned["lr_scheduler_kwargs.min_lr_rate"], seen["lr_scheduler_kwargs.min_lr_rate"])


def test_reads_no_schedule_that_transformers_did_not_make() -> None:
    def _get_cosine_schedule_with_warmup_lr_lambda(step: int, *, num_warmup_steps: int, num_training_steps: int) -> int:
        return step

    function = functools.partial(_get_cosine_schedule_with_warmup_lr_lambda, num_warmup_steps=3, num_training_steps=9)
    wrapped = SimpleNamespace(scheduler=SimpleNamespace(lr_lambdas=[function, function]))
    assert optimizers.schedule(wrapped) == {"warmup_steps": 3, "max_steps": 9}
    assert optimizers.schedule(SimpleNamespace(lr_lambdas=[lambda step: 1])) == {}, "a script's own"
    assert optimizers.schedule(None) == {}


@pytest.fixture
def group() -> Any:
    """A process group of this process alone."""
    torch = pytest.importorskip("torch")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield distributed
    distributed.destroy_process_group()


@pytest.mark.libs
def test_reads_of_ddp(group: Any) -> None:
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(4, 4), bucket_cap_mb=3, find_unused_parameters=True, gradient_as_bucket_view=True
    )
    assert torch_engines.kind(model) == "ddp" and torch_engines.kind(torch.nn.Linear(1, 1)) == "single"
    assert torch_engines.ddp(model) == {
        "ddp_bucket_cap_mb": 3.0,
        "ddp_find_unused_parameters": True,
        "ddp_broadcast_buffers": True,
        "ddp_gradient_as_bucket_view": True,
        "ddp_static_graph": False,
        "ddp_comm_hook": "no",
    }
    model.register_comm_hook(None, fp16_compress_hook)
    assert torch_engines.ddp(model)["ddp_comm_hook"] == "fp16_compress_hook"


@pytest.mark.libs
@pytest.mark.parametrize("reshard", [True, False])
def test_reads_of_fsdp_2(reshard: bool, group: Any) -> None:
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    model = torch.nn.Sequential(torch.nn.TransformerEncoderLayer(8, 2, 8), torch.nn.Linear(8, 8))
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    offload = CPUOffloadPolicy(pin_memory=False) if reshard else OffloadPolicy()
    for module in (model[0], model):
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard, offload_policy=offload)
    assert torch_engines.kind(model) == "fsdp"
    acting = torch_engines.fsdp(model)
    assert acting == {
        "fsdp_config.fsdp_version": 2,
        "fsdp_config.fsdp_transformer_layer_cls_to_wrap": "TransformerEncoderLayer",
        "fsdp_config.fsdp_reshard_after_forward": reshard,
        "fsdp_config.fsdp_offload_params": reshard,
        "fsdp_config.fsdp_mixed_precision.param_dtype": "bf16",
        "fsdp_config.fsdp_mixed_precision.reduce_dtype": "fp32",
        "fsdp_config.fsdp_activation_checkpointing": False,
    }


@pytest.mark.libs
def test_reads_of_fsdp_1(group: Any) -> None:
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    layer = torch.nn.TransformerEncoderLayer
    model = FullyShardedDataParallel(
        torch.nn.Sequential(layer(8, 2, 8), torch.nn.Linear(8, 8)),
        device_id=torch.device("cpu"),
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer}),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        backward_prefetch=BackwardPrefetch.BACKWARD_POST,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
        use_orig_params=True,
    )
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, layer))
    assert torch_engines.kind(model) == "fsdp"
    acting = torch_engines.fsdp(model)
    planned = {
        "version": 1,
        "sharding_strategy": "NO_SHARD",  # torch makes that of every strategy on one rank
        "backward_prefetch": "BACKWARD_POST",
        "offload_params": False,
        "use_orig_params": True,
        "activation_checkpointing": True,
        "mixed_precision.param_dtype": "bf16",
        "transformer_layer_cls_to_wrap": "TransformerEncoderLayer",
        "state_dict_type": "FULL_STATE_DICT",
    }
    assert {name: acting.get(f"fsdp_config.fsdp_{name}") for name in planned} == planned


VALUES: dict[str, Any] = {
    "reduce_bucket_size": 70_000,
    "contiguous_gradients": False,
    "reduce_scatter": False,
    "overlap_comm": False,
    "sub_group_size": 40_000,
    "stage3_prefetch_bucket_size": 3_000,
    "stage3_param_persistence_threshold": 70,
    "stage3_model_persistence_threshold": 300,
    "stage3_max_live_parameters": 90_000,
    "stage3_max_reuse_distance": 80_000,
    "stage3_gather_16bit_weights_on_model_save": True,
}
"""None of them DeepSpeed's default."""
ADAM = {"lr": 0.003, "betas": [0.8, 0.95], "eps": 1e-7, "weight_decay": 0.02}
WARMUP = {"total_num_steps": 40, "warmup_num_steps": 5, "warmup_min_lr": 0.001, "warmup_max_lr": 0.003}


def edit(folder: Path, settings: dict[str, Any], config: dict[str, Any] | None = None, **recipe: Any) -> None:
    """Plan ``settings``; write ``config`` over the DeepSpeed config and ``recipe`` over the Trainer's arguments."""
    lock = json.loads((folder / "zerocfg.lock").read_text())
    lock["settings"] = {name: {"value": value, "reason": "", "kind": "file"} for name, value in settings.items()}
    lock["recipe"] |= recipe
    if config is not None:
        old = json.loads((folder / "ds_config.json").read_text())
        config = old | config | {ZERO: old[ZERO] | config.get(ZERO, {})}
        text = json.dumps(config)
        (folder / "ds_config.json").write_text(text)
        lock["files"]["ds_config.json"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "zerocfg.lock").write_text(json.dumps(lock))


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_a_run_of_zero3_is_seen_value_by_value(make_run: MakeRun) -> None:
    """Values that are no defaults, each read where it acts; one that the config has otherwise is told with both."""
    folder = make_run(3)
    settings = {f"{ZERO}.{name}": value for name, value in VALUES.items()} | {"optimizer.type": "AdamW"}
    settings |= {f"optimizer.params.{name}": value for name, value in ADAM.items()}
    settings |= {f"scheduler.params.{name}": value for name, value in WARMUP.items()}
    settings |= {"scheduler.type": "WarmupDecayLR", "optimizer.params.torch_adam": True, f"{ZERO}.stage": 3}
    config = {
        ZERO: VALUES | {"stage3_max_live_parameters": 60_000},
        "optimizer": {"type": "AdamW", "params": ADAM | {"torch_adam": True}},
        "scheduler": {"type": "WarmupDecayLR", "params": WARMUP},
    }
    arguments = {"learning_rate": 0.003, "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-7}
    edit(folder, settings, config, **arguments, weight_decay=0.02, warmup_steps=5, max_steps=40)
    verdict = smoke(folder, Options(ranks=2, device="cpu", steps=1))
    assert verdict.outcome.failure is None, verdict.outcome
    checks = by_name(verdict.checks)
    live = f"{ZERO}.stage3_max_live_parameters"
    assert [one for one in verdict.checks if one.ok is False] == [Check(live, "90000", "60000", False, "acting")]
    acting = {name for name, one in checks.items() if one.ok and one.further == "acting"}
    by_class = {"optimizer.type", "optimizer.params.torch_adam", f"{ZERO}.stage", live}
    on_a_card = {f"{ZERO}.overlap_comm"}
    assert settings.keys() - by_class - on_a_card <= acting
    assert checks[f"{ZERO}.overlap_comm"].further == "parsed", "a processor has no streams"
    assert checks["optimizer"] == Check("optimizer", "AdamW", "AdamW", True)
    assert checks["parameters of a rank"].ok and checks["optimizer states of a rank"].ok
    assert checks["master weights"].seen == "fp32"
    shown = "\n".join(table(verdict))
    assert f"{live}" in shown and "FAIL" in shown and "optimizer.params.betas" not in shown


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_a_run_of_ddp_is_seen_value_by_value(make_run: MakeRun) -> None:
    folder = make_run(None)
    arguments = {"ddp_bucket_cap_mb": 3, "ddp_find_unused_parameters": True, "ddp_broadcast_buffers": False}
    arguments |= {"gradient_checkpointing": True, "lr_scheduler_type": "cosine", "warmup_steps": 2, "max_steps": 20}
    planned = {"optimizer.params.lr": 0.01, "optimizer.params.weight_decay": 0.25, "train_batch_size": 8, **arguments}
    edit(folder, {}, **arguments, weight_decay=0.25)
    verdict = smoke(folder, Options(ranks=2, device="cpu", steps=1))
    assert verdict.passed, verdict.outcome
    checks = by_name(verdict.checks)
    assert all(checks[name].ok and checks[name].further == "acting" for name in planned)


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_a_run_of_zero2_with_offload_and_another_optimizer_than_planned(make_run: MakeRun) -> None:
    """torch's AdamW on the host, where the plan has DeepSpeed's own: the class that steps is named."""
    folder = make_run(2)
    offload = {"device": "cpu", "pin_memory": True}
    settings = {f"{ZERO}.offload_optimizer.{name}": value for name, value in offload.items()}
    settings |= {f"{ZERO}.round_robin_gradients": True, f"{ZERO}.allgather_bucket_size": 60_000}
    config = {ZERO: {"offload_optimizer": offload, "round_robin_gradients": True, "allgather_bucket_size": 60_000},
              "zero_force_ds_cpu_optimizer": False}  # fmt: skip
    edit(folder, settings, config)
    verdict = smoke(folder, Options(ranks=2, device="cpu", steps=1))
    checks = by_name(verdict.checks)
    assert checks["optimizer"] == Check("optimizer", "DeepSpeedCPUAdam", "AdamW", False)
    assert [one.name for one in verdict.checks if one.ok is False] == ["optimizer"]
    assert checks["offload optimizer"] == Check("offload optimizer", "cpu", "cpu", True)
    assert all(checks[name].further == "acting" and checks[name].ok for name in settings if "device" not in name)
    assert checks["optimizer states of a rank"].ok
