"""Where a card's run keeps shards, master weights and states: what a correct run shows, and what DeepSpeed does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.judge.expected_settings import optimizer_class
from zerocfg.smoke.judge.settings import check
from zerocfg.smoke.model.certificate import Check

from .test_settings import by_name, make, report

if TYPE_CHECKING:
    from pathlib import Path

ZERO = "zero_optimization"
HELD = {"parameters": 100, "trainable": 100, "tensors": 2, "groups": 4, "experts": True, "shard_devices": ["cuda"]}


def rows(stage: int, held: dict[str, Any], states: list[str] = ["cpu"], **offload: Any) -> dict[str, Check]:  # noqa: B006
    """The rows of a run on two cards."""
    planned = {f"{ZERO}.stage": stage, f"{ZERO}.offload_optimizer.device": "cpu"}
    planned |= {f"{ZERO}.{name.replace('__', '.')}": value for name, value in offload.items()}
    run, reduced = make(planned, {ZERO: {"stage": stage}})
    reduced.plan |= planned
    seen = report(held=HELD | held, states={"elements": 5, "devices": states, "dtypes": ["fp32"]}, device="cuda:0")
    return by_name(check(run, reduced, [seen, seen]))


def pinned(stage: int, seen: bool | None, planned: bool = True) -> Check:
    master = {"dtypes": ["fp32"], "devices": ["cpu"]} | ({} if seen is None else {"pinned": seen})
    return rows(stage, {"master": master}, offload_optimizer__pin_memory=planned)["master weights pinned"]


@pytest.mark.parametrize("stage", [1, 2])
def test_stages_that_pin_their_master_weights(stage: int) -> None:
    name = "master weights pinned"
    assert pinned(stage, True) == Check(name, "True", "True", True, "acting")
    assert pinned(stage, False) == Check(name, "True", "False", False, "acting")
    assert pinned(stage, False, planned=False).ok is True
    assert pinned(stage, None).ok is None


@pytest.mark.parametrize("seen", [True, False])
def test_stage_3_does_not_pin_them_whatever_is_planned(seen: bool) -> None:
    assert pinned(3, seen) == Check("master weights pinned", "-", str(seen), None, "acting")


@pytest.mark.parametrize(
    ("ratio", "groups", "seen", "planned", "ok"),
    [
        (1.0, 4, ["cpu"], "cpu", True),
        (1.0, 4, ["cuda"], "cpu", False),
        (0.5, 4, ["cpu", "cuda"], "cpu, cuda", True),
        (0.5, 4, ["cpu"], "cpu, cuda", False),
        (0.8, 4, ["cpu"], "cpu", True),  # int(0.2 * 4) groups stay on the card
        (0.0, 4, ["cuda"], "cuda", True),
    ],
)
def test_a_ratio_leaves_states_on_the_card(ratio: float, groups: int, seen: list[str], planned: str, ok: bool) -> None:
    found = rows(3, {"groups": groups}, seen, offload_optimizer__ratio=ratio)["optimizer states on"]
    assert found == Check("optimizer states on", planned, ", ".join(seen), ok)
    assert rows(2, {"groups": groups}, seen, offload_optimizer__ratio=ratio)["optimizer states on"].planned == "cpu"


def test_zenflow_has_its_own_optimizer_and_places() -> None:
    found = rows(2, {}, ["cpu", "cuda"], zenflow__topk_ratio=0.1)
    assert found["optimizer states on"].ok is None
    section = {"optimizer": {"type": "AdamW"}, ZERO: {"stage": 2}}
    settings = {f"{ZERO}.offload_optimizer.device": "cpu"}
    for more, kind in (({}, "DeepSpeedCPUAdam"), ({f"{ZERO}.zenflow.topk_ratio": 0.1}, None)):
        run, reduced = make(settings | more, section)
        planned = {name: one.value for name, one in run.lock.settings.items()}
        assert optimizer_class(planned, run, reduced) == kind


def test_states_of_three_ranks_under_stage_3() -> None:
    """Each tensor is padded by itself: 300 tensors that 3 ranks do not divide are 300 elements of a rank at most."""
    run, reduced = make({f"{ZERO}.stage": 3}, {ZERO: {"stage": 3}})
    reduced.ranks = 3
    held = {"parameters": 30_000, "trainable": 30_000, "tensors": 300, "groups": 1, "experts": False, "shard": 10_300}

    def states(elements: int) -> bool | None:
        one = report(held=held, states={"elements": elements, "devices": ["cpu"], "dtypes": ["fp32"]})
        return by_name(check(run, reduced, [one] * 3))["optimizer states of a rank"].ok

    assert states(10_364) is True and states(10_365) is False


ENGINE = """
import json, os, sys
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2])
import deepspeed, torch
from deepspeed.accelerator import get_accelerator
from zerocfg.smoke.worker.readback import deepspeed_engine

# The processor's accelerator pins nothing: one that remembers what it was asked to pin.
pinned, accelerator = {}, get_accelerator()
def pin(tensor, *rest, **more):
    copy = tensor.clone()
    pinned[copy.data_ptr()] = copy
    return copy
accelerator.pin_memory = pin
accelerator.is_pinned = lambda tensor: tensor.data_ptr() in pinned
config = json.loads(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
if config.pop("frozen", False):
    model[0].requires_grad_(False)
trained = [one for one in model.parameters() if one.requires_grad]
engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=config)
found = [deepspeed_engine.facts(engine)]
if config["zero_optimization"]["stage"] == 3:
    for one in model[0].parameters():  # as a card that holds what was not offloaded
        one.ds_tensor = one.ds_tensor.to("meta")
        found.append([one.ds_persist, deepspeed_engine.facts(engine)["shard_devices"]])
print("found", json.dumps(found))
os._exit(0)
"""


def engine(tmp_path: Path, port: int, **config: Any) -> list[Any]:
    """What the read-back says of a live engine on the processor."""
    whole = {
        "train_batch_size": 1,
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
        "bf16": {"enabled": True},
    }
    whole |= {"zero_force_ds_cpu_optimizer": False} | config
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-c", ENGINE, json.dumps(whole), str(port)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    line = next((line for line in done.stdout.splitlines() if line.startswith("found ")), None)
    assert line is not None, done.stderr[-2000:]
    found: list[Any] = json.loads(line.removeprefix("found "))
    return found


@pytest.fixture
def port() -> int:
    from zerocfg.smoke.launch.process import free_port

    return free_port()


@pytest.mark.libs
@pytest.mark.parametrize(("stage", "planned", "expected"), [(2, True, True), (2, False, False), (3, True, False)])
def test_which_stage_of_deepspeed_pins(stage: int, planned: bool, expected: bool, tmp_path: Path, port: int) -> None:
    offload = {"device": "cpu", "pin_memory": planned}
    found = engine(tmp_path, port, **{ZERO: {"stage": stage, "offload_optimizer": offload}})
    assert found[0]["master"]["pinned"] is expected


@pytest.mark.libs
@pytest.mark.parametrize(
    ("threshold", "frozen", "seen"),
    [
        # The weight of 4,096 elements, then the bias of 64: shards of what is frozen and persisted are not counted.
        (1000, True, [[False, ["cpu", "meta"]], [True, ["cpu", "meta"]]]),
        (10_000, True, [[True, ["cpu"]], [True, ["cpu"]]]),
        (10_000, False, [[True, ["cpu", "meta"]], [True, ["cpu", "meta"]]]),
        (1, True, [[False, ["cpu", "meta"]], [False, ["cpu", "meta"]]]),
    ],
)
def test_which_shards_are_counted(threshold: int, frozen: bool, seen: Any, tmp_path: Path, port: int) -> None:
    zero = {"stage": 3, "offload_param": {"device": "cpu"}, "stage3_param_persistence_threshold": threshold}
    facts, *moved = engine(tmp_path, port, frozen=frozen, **{ZERO: zero})
    assert facts["shard_devices"] == ["cpu"] and facts["shard"] == 64 * 64 + 64 + 64 * 8 + 8
    assert moved == seen
