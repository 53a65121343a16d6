"""`offload_optimizer.ratio`: which sub groups leave the device, asked of DeepSpeed itself, and the bytes of both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.memory.options import Options
from zerocfg.memory.tensors import model_of
from zerocfg.memory.terms import Estimate, Moment, Place
from zerocfg.memory.zero.allocation_ledger import Ledger
from zerocfg.memory.zero.replay import zero_terms
from zerocfg.memory.zero.stage_3 import Sharded
from zerocfg.models.model_facts import ModelFacts, Part

LAYERS = 6
FACTS = ModelFacts(
    parameters=LAYERS * 1000,
    largest_parameter=1000,
    layout=[Part(modules=[[1000]], times=LAYERS, block=True)],
)
"""Six parameters of 1000 elements; with that sub group size on one rank each is a group."""


def options(ratio: float, **more: Any) -> Options:
    more = {"optimizer": "adamw_fused", "sub_group_size": 1000, "reduce_bucket_size": 1000, **more}
    return Options(3, 1, offload_optimizer="cpu", offload_ratio=ratio, **more)


def held(ratio: float, moment: Moment, place: Place, name: str, **more: Any) -> int:
    terms = Estimate(zero_terms(FACTS, options(ratio, **more))).held(place, moment).parts
    return sum(size for term, size in terms if term.name == name)


@pytest.mark.libs
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.3, 0.5, 0.84, 0.9, 1.0])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_the_sub_groups_that_stay_are_those_of_deepspeed(
    ratio: float, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    stage3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    monkeypatch.setattr(stage3.get_accelerator(), "_name", "cpu:0")  # a device of another name than the host's
    monkeypatch.setattr(stage3, "print_rank_0", lambda *_, **__: None)  # asks for a process group
    stub = SimpleNamespace(
        offload_optimizer=True,
        partial_offload=ratio,
        fp16_partitioned_groups_flat=[torch.zeros(4, dtype=torch.bfloat16) for _ in range(groups)],
        fp16_partitioned_groups_flat_numel=[4] * groups,
        fp16_partitioned_groups_flat_id=[["0"]] * groups,
        fp32_partitioned_groups_flat=[],
        master_weights_and_grads_dtype=torch.float32,
        params_in_nvme_and_cpu=False,
        optimizer=SimpleNamespace(param_groups=[]),
        _swappable_optimizer_subgroup=lambda _: False,
        _create_momentum_buffer=lambda *_: None,
    )
    stage3.DeepSpeedZeroOptimizer_Stage3._create_fp32_partitions(stub)
    kept = [index for index, device in stub.subgroup_to_device.items() if device != "cpu"]
    rank = Sharded(model_of(FACTS), options(ratio, sub_group_size=LAYERS * 1000 // groups), Ledger())
    assert len(rank.groups) == groups
    assert list(range(rank.kept_groups)) == kept


@pytest.mark.parametrize(("ratio", "kept"), [(1.0, 0), (0.9, 0), (0.5, 3), (0.1, 5), (0.0, 6)])
def test_states_lie_where_their_sub_group_is_updated(ratio: float, kept: int) -> None:
    """Of each element 4 bytes of master weights, 4 of gradients and 8 of moments; none of it twice."""
    for name, bytes_ in (("master weights", 4), ("fp32 gradients", 4), ("optimizer moments", 8)):
        assert held(ratio, "step", "device", name) == bytes_ * 1000 * kept
        assert held(ratio, "step", "host", name) == bytes_ * 1000 * (LAYERS - kept)


def test_one_sub_group_goes_as_a_whole() -> None:
    """The share is of sub groups: what fits into one leaves the device whatever the ratio, unless it is 0."""
    every = zero_terms(FACTS, options(1.0, sub_group_size=10**9))
    assert zero_terms(FACTS, options(0.1, sub_group_size=10**9)) == every
    assert zero_terms(FACTS, options(0.0, sub_group_size=10**9)) != every


def test_the_backup_optimizer_takes_its_temporaries_on_the_device() -> None:
    """torch's AdamW by foreach: the root of the second moment of a sub group."""
    name = "temporaries of the optimizer"
    assert held(0.0, "step", "device", name, sub_group_size=10**9) == 4 * LAYERS * 1000
    assert held(1.0, "step", "device", name, sub_group_size=10**9) == 0


@pytest.mark.parametrize("ratio", [-0.1, 1.1])
def test_a_share_is_from_0_to_1(ratio: float) -> None:
    with pytest.raises(ValueError, match="cannot be offloaded"):
        options(ratio)
