"""The other commands: explain, rules, schema, probe, and what wrong use looks like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from zerocfg.rules.api import Rule
from zerocfg.rules.registry import ALL, find

Cli = Callable[..., Outcome]

LAUNCH = "accelerate launch --config_file a.yaml --num_processes 4 train.py --per_device_train_batch_size 2 \\\n"
LAUNCH += "  --save_strategy no --gradient_accumulation_steps $STEPS --max_grad_norm 0.5\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "a.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n  zero_stage: 2\n"
    )
    (tmp_path / "train.sh").write_text(LAUNCH)
    return tmp_path


@pytest.mark.parametrize("rule", ALL, ids=[rule.code for rule in ALL])
def test_every_rule_is_explained(zerocfg: Cli, rule: Rule) -> None:
    explained = zerocfg("explain", rule.code.lower())
    assert explained.code == 0 and explained.out.startswith(f"{rule.code} {rule.name}")
    assert "Use instead" in explained.out and "Proof: " in explained.out


def test_a_rule_has_two_names(zerocfg: Cli) -> None:
    assert all(find(rule.name) is rule and find(rule.code) is rule for rule in ALL)
    assert zerocfg("explain", "weights-not-saved").out == zerocfg("explain", "zc401").out


def test_explain_a_setting(zerocfg: Cli, repository: Path) -> None:
    flag = zerocfg("explain", "--run", "train.sh:1", "num_processes")
    assert flag.out.startswith("num_processes = 4\n  from  train.sh:1:")
    assert "overrides 8 from a.yaml:2:1" in flag.out
    stage = zerocfg("explain", "--run", "train.sh:1", "zero_optimization.stage")
    assert stage.out.startswith("zero_optimization.stage = 2\n  from  a.yaml:5:3")
    assert "unknown" in zerocfg("explain", "--run", "train.sh:1", "gradient_accumulation_steps").out
    assert "gradient_clipping" in zerocfg("explain", "--run", "train.sh:1").out
    assert "train.sh:1" in zerocfg("explain").out


def test_explain_knows_the_runs_that_lint_shows(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        "Trainer(None, TrainingArguments('out', per_device_train_batch_size=3)).train()\n"
    )
    (tmp_path / "plot.py").write_text("print('no training')\n")
    shown = json.loads(zerocfg("lint", "--no-cache", "--show-runs", "--output-format", "json", ".").out)
    assert [run["name"] for run in shown["runs"]] == ["train.py"]
    assert zerocfg("explain", "--in", ".").out == "train.py  (train.py)\n"
    assert zerocfg("explain", "--run", "train.py", "train_micro_batch_size_per_gpu").out.startswith(
        "train_micro_batch_size_per_gpu = 3\n  from  train.py:2:"
    )
    assert zerocfg("explain", "--run", "plot.py").code == 2


def test_explain_says_what_there_is(zerocfg: Cli, repository: Path) -> None:
    assert (
        "did you mean zero_optimization.stage?"
        in zerocfg("explain", "--run", "train.sh:1", "zero_optimizatoin.stage").err
    )
    assert "train.sh:1" in zerocfg("explain", "--run", "nowhere.sh:1", "num_processes").err
    wrong = zerocfg("explain", "weight-not-saved")
    assert wrong.code == 2 and "weights-not-saved" in wrong.err


def test_rules_as_json(zerocfg: Cli) -> None:
    table = json.loads(zerocfg("rules", "--output-format", "json").out)["rules"]
    assert [entry["code"] for entry in table] == [rule.code for rule in ALL]
    gone = [entry for entry in table if not (ROOT / entry["url"]).is_file()]
    assert gone == []
    (saved,) = [entry for entry in table if entry["code"] == "ZC401"]
    assert saved["family"] == "ZeRO and saving" and saved["proof_phase"] == "save"
    assert saved["fixable"] is True and saved["fix_safety"] in ("safe", "both")
    assert all((entry["fix_safety"] != "none") is entry["fixable"] for entry in table)
    assert len(table) >= 30
    executed = [entry for entry in table if entry["proof"] == "executed"]
    assert len(executed) >= 0.8 * len(table)
    assert all(f"{rule.code}  " in zerocfg("rules").out for rule in ALL[:3])


def test_schema(zerocfg: Cli, tmp_path: Path) -> None:
    names = zerocfg("schema").out.split()
    assert "deepspeed" in names and "accelerate" in names
    assert json.loads(zerocfg("schema", "deepspeed").out)["$schema"].endswith("draft-07/schema#")
    assert zerocfg("schema", "--write", str(tmp_path / "s")).code == 0
    assert zerocfg("schema", "--check", str(tmp_path / "s")).code == 0
    (tmp_path / "s" / "deepspeed.json").write_text("{}")
    assert zerocfg("schema", "--check", str(tmp_path / "s")).code == 1
    assert zerocfg("schema", "nothing").code == 2


def test_probe(zerocfg: Cli, tmp_path: Path) -> None:
    shown = json.loads(zerocfg("probe").out)
    assert shown["accelerators_per_node"] >= 1 and shown["host"]["cpus"] >= 1
    assert zerocfg("probe", "-o", "hw.json").code == 0
    assert json.loads((tmp_path / "hw.json").read_text())["host"]["cpus"] == shown["host"]["cpus"]


def test_help_lists_every_command(zerocfg: Cli) -> None:
    text = zerocfg("--help").out
    assert all(f"  {name} " in text for name in ("lint", "build", "smoke", "explain", "rules", "probe", "schema"))
    for name in ("lint", "build", "smoke", "explain", "rules", "probe", "schema"):
        assert zerocfg(name, "--help").code == 0
