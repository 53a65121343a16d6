"""``goals:`` without ``engine:``: DDP, ZeRO and FSDP 2 are compared, and the files are for the one that is chosen."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.build.conftest import Files, Workplace
from tests.build.test_search import SEVEN, SMALL, found, wanted
from zerocfg.resolve.build import BuildResult
from zerocfg.resolve.explain.alternatives import alternatives
from zerocfg.resolve.search import engine_search
from zerocfg.resolve.search.choice import ENGINE, STAGE
from zerocfg.resolve.search.engine_search import WITHOUT_MASTERS

BF16 = {"torch_dtype": "bfloat16"}


def unnamed(model: Any = SEVEN, recipe: dict[str, Any] | None = None, **run: Any) -> Files:
    """A job that names no engine."""
    files = wanted(model, recipe=recipe, **run)
    del files["ds.json"]
    files["zerocfg.yaml"]["runs"]["a"].pop("deepspeed")
    return files


def engines(built: BuildResult) -> set[str]:
    assert built.plan is not None
    return {str(one.settings.get(ENGINE)) for one in built.plan.considered}


def plan_of(built: BuildResult) -> tuple[str, Any]:
    assert built.plan is not None
    stage = built.plan.settings.get(STAGE)
    return built.plan.engine, stage.value if stage else None


def test_where_ddp_does_not_fit_a_stage_of_zero_is_taken(workplace: Workplace) -> None:
    """The example of the README without its `engine:`: 7e9 parameters on eight cards of 80 GB."""
    built = found(workplace, unnamed())
    assert plan_of(built)[0] == "deepspeed" and engines(built) == {"ddp", "deepspeed", "fsdp"}
    assert built.plan is not None
    ddp = [one for one in built.plan.considered if one.settings[ENGINE] == "ddp"]
    assert ddp and all(one.verdict == "does not fit" and "needs at least" in one.excluded for one in ddp)


def test_where_plans_are_as_fast_the_least_machinery_wins(workplace: Workplace) -> None:
    """Adapters leave nothing worth sharding."""
    files = unnamed({**SMALL, **BF16}, {"use_peft": True}, consumer="trl")
    _, lock = workplace.built(files)
    assert lock["settings"]["engine"]["value"] == "ddp"
    config = yaml.safe_load((workplace.folder / "out/a/accelerate.yaml").read_text())
    assert config["distributed_type"] == "MULTI_GPU"
    assert not (workplace.folder / "out/a/ds_config.json").exists()


def test_the_reason_names_the_runner_up(workplace: Workplace) -> None:
    _, lock = workplace.built(unnamed())
    settings, considered = lock["settings"], lock["considered"]
    reason = settings["engine"]["reason"]
    assert reason.startswith("zerocfg's choice, the fastest plan that fits: up to ")
    assert considered and settings["zero_optimization.stage"]["value"] == 2
    (told,) = re.findall(r"; next: (.*), \d x \d \(about as fast, with ", reason)
    assert told in ("ZeRO-3", "FSDP 2"), "both shard more and are as fast"
    assert [name for name, one in settings.items() if "; next: " in one["reason"]] == ["engine"]
    config = (workplace.folder / "out/a/accelerate.yaml").read_text()
    assert "distributed_type: DEEPSPEED" in config and f"; next: {told}" in config


@pytest.mark.parametrize(
    ("more", "engine"),
    [
        ({"engine": "ddp"}, "ddp"),
        ({"engine": "fsdp"}, "fsdp"),
        ({"engine": "deepspeed"}, "deepspeed"),
        ({"accelerate": {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16"}}, "ddp"),
        ({"accelerate": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}}}, "fsdp"),
        ({"accelerate": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}}}, "deepspeed"),
    ],
)
def test_an_engine_that_is_named_stays(workplace: Workplace, more: dict[str, Any], engine: str) -> None:
    config = more.pop("accelerate", None)
    files = unnamed(SMALL, accelerate="acc.yaml" if config else None, **more)
    if config:
        files["acc.yaml"] = config
    built = found(workplace, files)
    assert plan_of(built)[0] == engine and engines(built) == {"None"}


def test_one_card_is_started_without_an_engine(workplace: Workplace) -> None:
    files = unnamed({**SMALL, **BF16}, {"use_peft": True}, consumer="trl", hardware="1xA100-80GB")
    _, lock = workplace.built(files)
    assert lock["settings"]["engine"]["value"] == "single"
    config = yaml.safe_load((workplace.folder / "out/a/accelerate.yaml").read_text())
    assert config["distributed_type"] == "NO" and config["num_processes"] == 1


def test_a_launch_line_without_an_engine_leaves_it_open(workplace: Workplace) -> None:
    files = unnamed(launch="train.sh:1")
    files["train.sh"] = "accelerate launch --num_processes 8 --debug train.py recipe.yaml\n"
    _, lock = workplace.built(files)
    assert lock["settings"]["engine"]["value"] == "deepspeed"
    assert yaml.safe_load((workplace.folder / "out/a/accelerate.yaml").read_text())["debug"] is True


@pytest.mark.parametrize(
    ("run", "recipe", "compared"),
    [
        ({}, {}, {"ddp", "deepspeed", "fsdp"}),
        ({"hardware": "1xA100-80GB"}, {}, {"ddp", "deepspeed"}),
        ({"hardware": "8xV100-32GB"}, {}, {"ddp", "deepspeed"}),
        ({}, {"fp16": True}, {"ddp", "deepspeed"}),
        ({"launcher": "torchrun"}, {}, {"ddp", "deepspeed"}),
        ({"versions": {"accelerate": ">=1.5"}}, {}, {"ddp", "deepspeed"}),
        ({"versions": {"accelerate": ">=1.6"}}, {}, {"ddp", "deepspeed", "fsdp"}),
        ({"versions": {"transformers": "4.57.0"}}, {}, {"ddp", "deepspeed"}),
        ({"versions": {"torch": "2.5.1"}}, {}, {"ddp", "deepspeed"}),
        ({"hardware": "4xcpu"}, {}, {"None"}),
    ],
)
def test_what_can_run_the_job_is_compared(
    workplace: Workplace, run: dict[str, Any], recipe: dict[str, Any], compared: set[str]
) -> None:
    assert engines(found(workplace, unnamed(SMALL, recipe, **run))) == compared


def test_without_goals_nothing_is_chosen(workplace: Workplace) -> None:
    files = unnamed(SMALL, {"per_device_train_batch_size": 1, "bf16": True})
    files["zerocfg.yaml"]["runs"]["a"].pop("goals")
    built = found(workplace, files)
    assert plan_of(built)[0] == "ddp" and built.plan is not None and not built.plan.considered


def test_sixteen_bits_without_a_copy_win_only_where_nothing_else_fits(workplace: Workplace) -> None:
    """A config.json with a dtype is loaded in it: DDP would then update bf16 weights, another training than ZeRO's."""
    built = found(workplace, unnamed({**SMALL, **BF16}))
    assert plan_of(built)[0] in ("deepspeed", "fsdp") and built.plan is not None
    ddp = [one for one in built.plan.considered if one.settings[ENGINE] == "ddp"]
    assert ddp and {one.excluded for one in ddp} == {WITHOUT_MASTERS}


def test_fsdp_2_is_emitted_whole(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_search, "engines_for", lambda _: ("ddp", "fsdp"))
    _, lock = workplace.built(unnamed())
    assert lock["settings"]["engine"]["value"] == "fsdp"
    config = yaml.safe_load((workplace.folder / "out/a/accelerate.yaml").read_text())
    assert config["distributed_type"] == "FSDP" and config["mixed_precision"] == "bf16"
    assert config["fsdp_config"]["fsdp_version"] == 2
    assert config["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "LlamaDecoderLayer"
    recipe = yaml.safe_load((workplace.folder / "out/a/recipe.yaml").read_text())
    assert recipe["per_device_train_batch_size"] * recipe["gradient_accumulation_steps"] * 8 == 64


def test_a_build_without_an_engine_is_fresh(workplace: Workplace) -> None:
    spec = workplace.write(unnamed())
    assert workplace.build(spec).exit_code == 0
    assert workplace.build(spec, "--check").exit_code == 0


def test_the_table_compares_the_engines_and_marks_the_one_taken(workplace: Workplace) -> None:
    rows = alternatives(found(workplace, unnamed()))
    assert {row.candidate.choice.engine for row in rows} == {"ddp", "deepspeed", "fsdp"}
    (own,) = [row for row in rows if row.own]
    assert own is rows[0] and own.excluded == ""
    shown = workplace.zerocfg("plan", workplace.folder / "zerocfg.yaml", "--no-trace").output
    assert "FSDP 2, 1 x 8" in shown and "DDP, 1 x 8" in shown and "ZeRO-2, 1 x 8" in shown
