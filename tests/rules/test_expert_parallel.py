"""ZC469 refuses the AutoEP sections that DeepSpeed refuses, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

TRAIN = 'import deepspeed\n\nengine, *_ = deepspeed.initialize(model=model, config="ds.json"{})\n'
PROCESSES = 8
OF_TYPES = ("ZC104", "ZC106", "ZC109", "ZC455")
"""Rules that say of a value by itself that it is not taken."""
VALUES: dict[str, tuple[Any, ...]] = {
    "autoep_size": (-1, 0, 1, 2, 3, 8, 16),
    "expert_tensor_parallel_size": (0, 1, 2),
    "validate_folding_routing": (True, 0, 1),
    "async_split_plan": (True, False, 1),
    "preset_model": ("mixtral", "mixtrall", "qwen3_moe", None),
    "score_apply": ("auto", "post", "late"),
    "combine_impl": ("auto", "weighted_sum", "fused_weighted_sum"),
    "row_weighting_impl": ("auto", "eager", "fused"),
    "gate_up_impl": ("separate", "fused"),
    "use_grouped_mm": (True, False),
    "comm_backend": ("comm", "deepep"),
    "comm_num_sm": (0, 1),
    "comm_qp_margin": (-1, 0),
    "comm_max_tokens_per_rank": (-1, 0, 1, 4096),
    "num_expert_groups": (None, 0, 1, 4),
    "num_limited_groups": (None, 0, 2, 4),
    "expert_w1": ("w1", "", "a.b"),
    "expert_w3": ("w3", None, ""),
    "router_pattern": ("gate", "mlp.gate"),
    "load_balance_coeff": (None, 0.01),
    "routed_scaling_factor": ("auto", 2.5),
}
SECTIONS = 150


def codes(config: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, call: str = "") -> set[str]:
    """The rules that find an error in a section, of a run of eight processes."""
    files = {"ds.json": json.dumps(config), "train.py": TRAIN.format(call)}
    files["run.sh"] = f"deepspeed --num_gpus {PROCESSES} train.py\n"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return {one.code for one in Job([folder], Settings(), Selection()).lint().diagnostics}


def config(section: dict[str, Any], degree: int | None = None) -> dict[str, Any]:
    parallel = {} if degree is None else {"tensor_parallel": {"autotp_size": degree}}
    zero = {"stage": 1}
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "expert_parallel": section, **parallel}


def refused(section: dict[str, Any], degree: int | None) -> str:
    """What the real library says of a section; empty where it takes it."""
    from deepspeed.module_inject.auto_ep_config import parse_autoep_config, validate_autoep_config

    try:
        validate_autoep_config(parse_autoep_config(section), PROCESSES, 1, degree or 0, 1)
    except ValueError as error:
        return str(error)
    return ""


def sections() -> list[tuple[dict[str, Any], int | None]]:
    """Each value by itself, then several at random."""
    found: list[tuple[dict[str, Any], int | None]] = [
        ({"enabled": enabled, name: value}, None)
        for name, values in VALUES.items()
        for value in values
        for enabled in (True, False)
    ]
    for number in range(SECTIONS):
        random = Random(f"experts/{number}")
        names = random.sample(list(VALUES), random.randint(2, 5))
        section = {"enabled": random.random() < 0.9, **{name: random.choice(VALUES[name]) for name in names}}
        found.append((section, random.choice((None, None, 1, 2))))
    return found


@pytest.mark.libs
def test_what_deepspeed_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {True: 0, False: 0}
    for section, degree in sections():
        said = refused(section, degree)
        found = codes(config(section, degree), tmp_path, monkeypatch)
        outcomes[bool(said)] += 1
        assert bool(said) or found.isdisjoint({"ZC469", "ZC104", "ZC106", "ZC455"}), (section, degree, said)
        assert not said or not found.isdisjoint({"ZC469", *OF_TYPES}), (section, degree, said)
    assert min(outcomes.values()) >= 50, outcomes


@pytest.mark.libs
def test_the_presets_of_today() -> None:
    from deepspeed.module_inject.auto_ep_config import PRESET_MODELS

    from zerocfg.rules.zero.experts import PRESETS

    assert tuple(PRESET_MODELS) == PRESETS


@pytest.mark.parametrize(
    ("section", "degree", "call", "found"),
    [
        ({"autoep_size": 3}, None, "", True),
        ({"autoep_size": 4}, None, "", False),
        ({"autoep_size": 3}, None, ", mpu=mpu", False),  # a pipeline may divide the processes
        ({"autoep_size": 1}, 2, "", True),
        ({"autoep_size": 2}, 2, "", False),
        ({"preset_model": "mixtral"}, 2, "", True),
        ({"expert_activation": "my_own"}, None, "", False),  # a script can register it
        ({"comm_backend": "deepep", "comm_max_tokens_per_rank": 1}, None, "", False),
    ],
)
def test_near_misses(
    section: dict[str, Any], degree: int | None, call: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = codes(config({"enabled": True, **section}, degree), tmp_path, monkeypatch, call)
    assert ("ZC469" in told) is found


@pytest.mark.parametrize(
    ("switch", "found"), [({"enabled": True}, True), ({"enabled": False}, False), ({}, False), ({"enabled": 1}, True)]
)
def test_a_wrong_word_in_a_section_that_is_off(
    switch: dict[str, Any], found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed validates none of the words of a section that is not enabled."""
    assert ("ZC106" in codes(config({**switch, "score_apply": "late"}), tmp_path, monkeypatch)) is found


@pytest.mark.parametrize(
    ("release", "section", "found"),
    [
        ("0.19.8", {"comm_num_sm": 0}, True),
        ("0.19.7", {"comm_num_sm": 0}, True),
        ("0.19.6", {"comm_num_sm": 0}, False),
        ("0.19.7", {"row_weighting_impl": "fused"}, False),
        ("0.19.2", {"autoep_size": 0}, True),
        ("0.19.1", {"autoep_size": 0}, False),
    ],
)
def test_releases_that_refuse(
    release: str, section: dict[str, Any], found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.txt").write_text(f"deepspeed=={release}\n")
    told = codes(config({"enabled": True, **section}), tmp_path, monkeypatch)
    assert ("ZC469" in told) is found
