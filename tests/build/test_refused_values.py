"""Values that the library stops at: a plan, a report, a gate and a build name them, and none of them breaks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.conftest import ROOT
from zerocfg.catalog.versions import bounds, release
from zerocfg.cli.main import cli
from zerocfg.resolve.plan import Problem
from zerocfg.run.model import Difference, Failure, Origin, Setting
from zerocfg.source.requirements.manifests import read_pyproject

Call = Callable[..., Result]
WRONG = [
    # key, value, and what the plan says; in the wild `min_loss_scale: 1e-10` ended a report
    ("zero_optimization.stage", 5, "none of 0, 1, 2, 3"),
    ("zero_optimization.reduce_bucket_size", 0, "out of range: it must be greater than 0"),
    ("zero_optimization.allgather_partitions", "fp9", "a string that is neither true nor false"),
    ("optimizer.type", 5, "a number, not a string"),
    ("communication_data_type", "fp9", "none of "),
    ("activation_checkpointing", True, "true, not a mapping"),
    ("fp16.min_loss_scale", 1e-10, "a fractional part"),
]


@pytest.fixture
def zerocfg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in a copy of an example: ``zerocfg("plan", "zero_optimization.stage", 5)`` changes a value first."""
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "a", ignore=shutil.ignore_patterns("built"))
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setenv("ZEROCFG_TRACEBACK", "1")

    def call(command: str, key: str, value: Any) -> Result:
        config = json.loads((ROOT / "examples" / "quickstart" / "ds_config.json").read_text())
        section = config
        *above, last = key.split(".")
        for name in above:
            section = section.setdefault(name, {})
        section[last] = value
        Path("ds_config.json").write_text(json.dumps(config, indent=1))
        return CliRunner().invoke(cli, command.split(), catch_exceptions=False)

    return call


def _line(key: str) -> int:
    name = json.dumps(key.rpartition(".")[2])
    return next(at for at, line in enumerate(Path("ds_config.json").read_text().splitlines(), 1) if name in line)


@pytest.mark.parametrize(("key", "value", "reason"), WRONG, ids=[key for key, _, _ in WRONG])
def test_a_plan_names_the_value_and_predicts_nothing(zerocfg: Call, key: str, value: Any, reason: str) -> None:
    done = zerocfg("plan . --no-trace", key, value)
    shown = json.dumps(value)
    said = f"nothing can be predicted: {key} is {shown} (ds_config.json:{_line(key)}), and DeepSpeed stops at it"
    assert said in done.output
    assert reason in done.output
    assert "GiB of a device" not in done.output


@pytest.mark.parametrize(("key", "value", "reason"), WRONG, ids=[key for key, _, _ in WRONG])
def test_a_report_is_written_and_says_so(zerocfg: Call, key: str, value: Any, reason: str) -> None:
    done = zerocfg("report . -o page.html --no-trace", key, value)
    assert done.exit_code == 0, done.output
    text = re.sub(r"\s+", " ", Path("page.html").read_text()).replace("&#34;", '"')
    assert f"{key} is {json.dumps(value)} (ds_config.json:{_line(key)}), and DeepSpeed stops at it" in text


def test_the_gate_and_a_build_that_ignores_the_finding(zerocfg: Call) -> None:
    Path("zerocfg.toml").write_text('ignore = ["ZC1"]\n')
    zerocfg("build . -o built", "gradient_clipping", "auto")
    done = zerocfg("gate --require none", "zero_optimization.stage", 5)
    said = "zero_optimization.stage: the value 5 is none of 0, 1, 2, 3; DeepSpeed stops at it"
    assert done.exit_code == 1
    assert f"ds_config.json:{_line('zero_optimization.stage')}:" in done.output
    assert f"run quickstart cannot be built: {said}" in done.output
    done = zerocfg("build . -o built --force", "zero_optimization.stage", 5)
    assert done.exit_code == 1  # the config's fault
    assert said in done.output and "an error of zerocfg" not in done.output


@pytest.mark.parametrize(
    ("key", "value"),
    [("zero_optimization.reduce_bucket_size", 1), ("optimizer.type", "AdamW"), ("zero_optimization.stage", 2)],
)
def test_values_that_are_taken_are_predicted(zerocfg: Call, key: str, value: Any) -> None:
    done = zerocfg("plan . --no-trace", key, value)
    assert "nothing can be predicted" not in done.output
    assert "GiB of a device" in done.output


@pytest.mark.parametrize("value", [[], {}, {"a": [1]}, [{"a": None}]])
def test_a_problem_about_a_mapping_is_told(zerocfg: Call, value: Any) -> None:
    done = zerocfg("plan . --no-trace", "train_batch_size", value)
    assert done.exit_code == 1
    assert done.output.startswith("ds_config.json:2:22: run quickstart: train_batch_size: ")


def test_problems_are_told_apart_by_what_they_say() -> None:
    held = Setting({"a": 1}, Origin("default"))
    failure = Failure("mismatch", "arguments", "m", differences=(Difference("a", held, "b", held),))
    assert {Problem("a", "m", failure=failure), Problem("a", "m")} == {Problem("a", "m")}
    assert Problem("a", "m") != Problem("a", "n")


def test_leaf_modules_that_are_no_list(zerocfg: Call) -> None:
    done = zerocfg("plan . --no-trace", "zero_optimization.leaf_module.classes", 0.5)
    assert "nothing can be predicted: zero_optimization.leaf_module.classes is 0.5" in done.output


def test_releases_of_thousands_of_digits() -> None:
    long = "9" * 5000
    assert release(long) > release("1" + "0" * 30) and release(f"1.{long}") > release("1.99999")
    assert bounds(f"=={long}") is None  # no release that there is
    assert bounds("==0.19.8") == ((0, 19, 8), (0, 19, 8), True)
    found = read_pyproject(f'[tool.poetry.dependencies]\ntrl = "^1.{long}"\ndeepspeed = "^0.16.9"\n')[0]
    assert [one.versions for one in found if one.name == "deepspeed"] == [">=0.16.9,<0.17"]
    assert len(found) == 2
