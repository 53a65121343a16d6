"""GRPO and DPO, trained by TRL's own trainers: what is read back comes from them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from zerocfg.smoke.certify.evidence import evidence
from zerocfg.smoke.model.reduction import Kind
from zerocfg.smoke.prepare import trl_trainers
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.smoke import Options, smoke

from .conftest import MODEL, MakeRun

CPU = Device("cpu", "cpu")
SCRIPT = """\
from trl import {config}, {trainer}, ModelConfig, ScriptArguments, TrlParser

script, arguments, model = TrlParser((ScriptArguments, {config}, ModelConfig)).parse_args_and_config()
{trainer}(model.model_name_or_path, args=arguments).train()
"""
ARGUMENTS: dict[str, Any] = {
    "output_dir": "runs",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "max_grad_norm": 0.5,
    "learning_rate": 0.01,
    "bf16": True,
    "gradient_checkpointing": False,
}
GRPO = {
    "num_generations": 4,
    "max_completion_length": 200,
    "beta": 0.04,
    "loss_type": "dr_grpo",
    "scale_rewards": False,
    "reward_weights": [1.0, 0.1],
}
DPO: dict[str, Any] = {"beta": 0.3, "loss_type": "ipo", "max_length": 512}


def of_trl(folder: Path, trainer: str) -> RunFolder:
    """The run with a script that calls this trainer."""
    (folder / "train.py").write_text(SCRIPT.format(trainer=trainer, config=trainer.replace("Trainer", "Config")))
    (folder / "config.json").write_text("{}")
    return read(folder)


@pytest.fixture
def make_trl(make_run: MakeRun) -> Any:
    def make(trainer: str, stage: int | None, own: dict[str, Any], **lock: Any) -> RunFolder:
        recipe = ARGUMENTS | own
        more = {"consumer": "trl", "script": "train.py", "spec_folder": "."}
        return of_trl(make_run(stage=stage, recipe=recipe, **(more | lock)), trainer)

    return make


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    ("trainer", "stage", "own", "steps"),
    [("GRPOTrainer", 2, GRPO, 2), ("GRPOTrainer", None, GRPO | {"beta": 0.0, "use_vllm": True}, 2),
     ("DPOTrainer", 3, DPO, 3)],
)  # fmt: skip
def test_a_trainer_of_trl_trains(
    make_trl: Any, trainer: str, stage: int | None, own: dict[str, Any], steps: int
) -> None:
    run = make_trl(trainer, stage, own)
    verdict = smoke(run.path, Options(ranks=2, device="cpu", steps=steps, limit=300))
    failed = [(one.name, one.planned, one.seen) for one in verdict.checks if one.ok is False]
    assert verdict.passed and not failed, (verdict.outcome.failure, verdict.outcome.detail, failed)
    rows = {one.name: one for one in verdict.checks}
    assert (rows["trainer"].seen, rows["trainer"].ok) == (trainer, True)
    loaded = "loaded" if own["beta"] else "none"
    assert (rows["reference model"].seen, rows["reference model"].further) == (loaded, "acting")
    assert (rows["beta"].seen, rows["beta"].further) == (str(own["beta"]).removesuffix(".0"), "acting")
    assert rows["parameters change"].ok and rows["parameters alike on all ranks"].ok
    shown = evidence(verdict)
    if trainer == "DPOTrainer":
        assert rows["loss falls"].ok and rows["resumes from a checkpoint"].ok and rows["loss as under ZeRO-0"].ok
        assert (rows["loss_type"].seen, rows["max_length"].seen) == ("['ipo']", "32")
        assert not any("reward" in words for words in shown.not_proven)
    else:
        assert rows["loss falls"].ok is None
        assert (rows["num_generations"].seen, rows["max_completion_length"].seen) == ("4", "24")
        assert (rows["reward_weights"].seen, rows["reward_weights"].further) == ("[1.0, 0.1]", "parsed")
        assert (rows["scale_rewards"].seen, rows["loss_type"].seen) == ("none", "dr_grpo")
        assert "the reward functions: the mean token of a completion was the reward" in shown.not_proven
    told = "generation by vLLM, its memory and its weights: transformers generated"
    assert (told in shown.not_proven) is ("use_vllm" in own) is verdict.reduced.has(Kind.GENERATION)
    assert any(f"TRL's {trainer} trains {steps} optimizer steps" in words for words in shown.proven)
    assert not any("TRL's trainer" in words for words in shown.not_proven)


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_what_trl_refuses_stops_the_run(make_trl: Any) -> None:
    """Groups that the planned batch does not hold either: TRL's own words, not zerocfg's."""
    run = make_trl("GRPOTrainer", 2, GRPO | {"num_generations": 3})
    verdict = smoke(run.path, Options(ranks=2, device="cpu", steps=2, limit=300, parts=("train",)))
    assert not verdict.passed and "must be divisible by num_generations (3)" in str(verdict.outcome.failure)


def reduced(run: RunFolder, tmp_path: Path, ranks: int = 2) -> Any:
    return reduce(run, CPU, ranks, tmp_path)


@pytest.mark.parametrize(
    ("own", "ranks", "wanted"),
    [
        ({"num_generations": 16}, 4, {}),  # as planned: 2 * 4 * 2 completions
        ({"num_generations": 8}, 2, {}),  # 2 * 2 * 2 hold one group
        ({"num_generations": 16}, 2, {"steps_per_generation": 4}),
        ({"num_generations": 16}, 1, {"steps_per_generation": 8}),
        ({"num_generations": 8, "steps_per_generation": 1}, 2, {"steps_per_generation": 2}),
        ({"num_generations": 16, "generation_batch_size": 32}, 2, {"generation_batch_size": 16}),
        ({"num_generations": 32, "generation_batch_size": 32}, 2, {"generation_batch_size": 32}),
        ({"num_generations": 3}, 2, {}),  # 16 completions never held whole groups
    ],
)
def test_fewer_ranks_hold_whole_groups(
    make_trl: Any, tmp_path: Path, own: dict[str, int], ranks: int, wanted: dict[str, int]
) -> None:
    """The batch of a generation is micro batch * ranks * steps (trl 1.16, grpo_config.py)."""
    run = make_trl("GRPOTrainer", 2, own)
    found = reduced(run, tmp_path, ranks)
    names = ("steps_per_generation", "generation_batch_size")
    assert {name: found.arguments[name] for name in names if name in found.arguments} == (
        {name: own[name] for name in names if name in own} | wanted
    )
    kinds = {"steps_per_generation": Kind.GENERATION_STEPS, "generation_batch_size": Kind.GENERATION_BATCH}
    changed = [kinds[name] for name, value in wanted.items() if own.get(name) != value]
    assert [one.kind for one in found.changes if one.kind in kinds.values()] == changed


def test_only_what_the_trainer_trains_with_is_handed_on(make_trl: Any, tmp_path: Path) -> None:
    own = {"num_generations": 4, "use_vllm": True, "vllm_mode": "colocate", "log_completions": True, "packing": True}
    found = reduced(make_trl("GRPOTrainer", 2, own), tmp_path)
    assert found.own == ("num_generations",) and "vllm_mode" not in found.arguments
    assert [str(one) for one in found.changes if one.kind is Kind.GENERATION] == [
        "use_vllm: True to False: transformers generates in the training's own processes"
    ]


@pytest.mark.parametrize(("longest", "run"), [(None, 24), (200, 24), (24, 24), (23, 23)])
def test_a_completion_and_its_prompt_are_a_sample(make_trl: Any, tmp_path: Path, longest: int | None, run: int) -> None:
    found = reduced(make_trl("GRPOTrainer", 2, {"max_completion_length": longest} if longest else {}), tmp_path)
    assert found.arguments["max_completion_length"] == (min(run, max(1, found.sequence - trl_trainers.PROMPT)))


def test_who_trains_is_told_by_the_script_or_by_arguments_of_one_trainer(make_trl: Any, tmp_path: Path) -> None:
    run = make_trl("DPOTrainer", 2, {"beta": 0.1})
    assert trl_trainers.choose(run) == ("DPOTrainer", "")
    (run.path / "train.py").unlink()
    assert trl_trainers.choose(run) == (None, ""), "GRPO and KTO have a beta, too"
    run.lock.recipe["ld_alpha"] = 0.5
    assert trl_trainers.choose(run) == ("DPOTrainer", "")
    assert trl_trainers.choose(of_trl(run.path, "SFTTrainer")) == (None, "")


def test_why_the_trainer_of_transformers_runs_instead(
    make_trl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_trl("DPOTrainer", 2, DPO, model={"config": MODEL | {"vision_config": {"depth": 2}}, "facts": {}})
    assert trl_trainers.choose(run) == (None, "the model wants a processor for its images")
    run = of_trl(run.path, "DPOTrainer")
    monkeypatch.setattr(trl_trainers.metadata, "version", lambda name: "0.29.1")
    assert trl_trainers.choose(run) == (None, "TRL 0.29.1 is older than 1.0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert trl_trainers.choose(run) == (None, "TRL is not installed")
    assert reduced(run, tmp_path).no_trainer == "TRL is not installed"
