"""What is said where nothing tells the releases of a project, and what `explain` says of a key by release."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import OLDEST

Cli = Callable[..., Outcome]

STRICT = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true, "loss_scale": 0}}'
"""DeepSpeed stops at it from 0.17.1 on."""
TYPO = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": "two"}}'
"""No release takes it, and all of them read `stage` alike."""
BROKEN = '{"train_micro_batch_size_per_gpu": 1,, "zero_optimization": {"stage": 2}}'
LINE = " No file tells the release: judged as for deepspeed 0.19.8, the newest known."


def lint(zerocfg: Cli, folder: Path, config: str, **files: str) -> tuple[str, dict[str, str]]:
    """The last line, and what is assumed."""
    (folder / "ds.json").write_text(config)
    for name, text in files.items():
        (folder / name.replace("_txt", ".txt")).write_text(text)
    told = zerocfg("lint", "--consumer", "deepspeed", "ds.json").out.rstrip("\n").rpartition("\n")[2]
    data = json.loads(zerocfg("lint", "--consumer", "deepspeed", "--output-format", "json", "ds.json").out)
    return told, data["assumed"]


def test_it_is_said_once(zerocfg: Cli, tmp_path: Path) -> None:
    two = STRICT.replace('"loss_scale": 0', '"loss_scale": 0, "hysteresis": 2')
    told, assumed = lint(zerocfg, tmp_path, two)
    assert told.endswith(LINE) and told.startswith("Found 2 errors") and assumed == {"deepspeed": "0.19.8"}
    assert zerocfg("lint", "--consumer", "deepspeed", "ds.json").out.count("No file tells") == 1
    assert zerocfg("lint", "--consumer", "deepspeed", "--output-format", "concise", "ds.json").out.count(LINE) == 1


@pytest.mark.parametrize("pin", ["deepspeed==0.18.0\n", "deepspeed>=0.17.1\n", "deepspeed>=0.14\n"])
def test_not_where_a_file_tells_it(pin: str, zerocfg: Cli, tmp_path: Path) -> None:
    told, assumed = lint(zerocfg, tmp_path, STRICT, requirements_txt=pin)
    assert told.startswith("Found") and "No file" not in told and assumed == {}


@pytest.mark.parametrize("config", [TYPO, BROKEN])
def test_not_where_all_releases_agree(config: str, zerocfg: Cli, tmp_path: Path) -> None:
    told, assumed = lint(zerocfg, tmp_path, config)
    assert "Found 1 error" in told and LINE not in told and assumed == {}


def test_not_where_nothing_is_found(zerocfg: Cli, tmp_path: Path) -> None:
    assert lint(zerocfg, tmp_path, STRICT.replace(', "loss_scale": 0', "")) == ("All checks passed in 1 file.", {})


def test_a_commit_tells_no_release(zerocfg: Cli, tmp_path: Path) -> None:
    pin = "deepspeed @ git+https://example.com/DeepSpeed.git@1c39974a4c40\n"
    assert lint(zerocfg, tmp_path, STRICT, requirements_txt=pin)[1] == {"deepspeed": "0.19.8"}


def test_a_release_that_a_rule_names(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("output_dir: o\nper_device_train_batch_size: 1\nevaluation_strategy: 'no'\n")
    words = ("lint", "--select", "ZC801", "--consumer", "transformers", "--output-format", "json", "recipe.yaml")
    assert json.loads(zerocfg(*words).out)["assumed"] == {"transformers": "5.23.0"}
    (tmp_path / "requirements.txt").write_text("transformers>=5\n")
    data = json.loads(zerocfg(*words).out)
    assert data["assumed"] == {} and data["diagnostics"]


def test_runs_tell_their_releases(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(STRICT)
    (tmp_path / "train.sh").write_text("deepspeed train.py --deepspeed_config ds.json\n")
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(install_requires=['deepspeed<0.18'])\n")
    (tmp_path / "requirements.txt").write_text("deepspeed>=0.14\n")
    told = "deepspeed >=0.14,<0.18, says requirements.txt:1:1 and setup.py:2:26"
    assert f"\n  release    {told}\n" in zerocfg("lint", "--show-runs").out
    assert f"\n  release: {told}\n" in zerocfg("explain", "--run", "train.sh:1").out
    (run,) = json.loads(zerocfg("lint", "--show-runs", "--output-format", "json").out)["runs"]
    (held,) = run["releases"]
    assert (held["library"], held["declared"], held["assumed"]) == ("deepspeed", ">=0.14,<0.18", None)
    assert [(one["file"], one["line"]) for one in held["places"]] == [("requirements.txt", 1), ("setup.py", 2)]


def test_a_key_by_release(zerocfg: Cli, tmp_path: Path) -> None:
    names = json.loads((ROOT / "schemas" / "releases" / "deepspeed.json").read_text())["releases"]
    told = zerocfg("explain", "zero_optimization.offload_optimizer.pin_memory")
    assert told.code == 0
    assert told.out == (
        f"zero_optimization.offload_optimizer.pin_memory  (DeepSpeed {names[0]} to {names[-1]})\n"
        "  from 0.10.0    true or false; default false\n"
        "  from 0.19.5    true or false; default true\n"
    )
    several = zerocfg("explain", "gradient_clipping").out
    assert "gradient_clipping  (DeepSpeed" in several and "--gradient_clipping  (accelerate" in several
    assert "  from 1.6.0     one of" in zerocfg("explain", "fsdp_version").out


@pytest.mark.parametrize("name", ["zero_optimization.no_such_key", "", "option.", "*", "bf16.*.x"])
def test_what_is_no_key(name: str, zerocfg: Cli, tmp_path: Path) -> None:
    assert zerocfg("explain", name).code == 2


@pytest.mark.parametrize(
    ("pin", "said", "found"),
    [
        (
            "deepspeed==0.9.5\n",
            " DeepSpeed ==0.9.5 is older than zerocfg knows (0.10.0 and later): less is checked.",
            [("deepspeed", "==0.9.5", "0.10.0", True)],
        ),
        (
            "deepspeed==0.99\n",
            " DeepSpeed ==0.99 is newer than zerocfg knows: judged as for 0.19.8.",
            [("deepspeed", "==0.99", "0.19.8", False)],
        ),
        ("deepspeed==0.10.0\n", "", []),
        (
            "deepspeed<0.10\ntransformers==4.30\n",
            "(0.10.0 and later): less is checked.",
            [("deepspeed", "<0.10", "0.10.0", True)],
        ),
        ("deepspeed>=0.9\n", "", []),
        ("deepspeed==0.19.8\ntrl==0.1\n", "", []),
    ],
)
def test_releases_of_which_nothing_is_known(
    pin: str, said: str, found: list[tuple[str, str, str, bool]], zerocfg: Cli, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text(pin)
    (tmp_path / "ds.json").write_text(STRICT.replace('"loss_scale": 0', '"loss_scal": 0'))
    words = ("lint", "--consumer", "deepspeed", "ds.json")
    told = zerocfg(*words).out.rstrip("\n").rpartition("\n")[2]
    assert told.endswith(said) and told.count("zerocfg knows") == len(found)
    data = json.loads(zerocfg(*words, "--output-format", "json").out)
    assert [tuple(one.values()) for one in data["outside"]] == found
    # Nobody knows whether 0.9.5 stops at a misspelt key, passes over it or reads it.
    assert bool(data["diagnostics"]) is not any(older for *_, older in found)


def test_the_oldest_releases_are_those_of_the_histories() -> None:
    assert {name: histories(name).names[0] for name in OLDEST} == OLDEST


SCHEDULE = "--lr_scheduler_type polynomial"
"""Stops under ZeRO from transformers 5.2 on (ZC234)."""


@pytest.mark.parametrize(
    ("more", "pin", "found"),
    [
        ("--eval_strategy no", "", True),
        ("--evaluation_strategy no", "", False),  # 4.46 was the last to take it: no release has both
        ("--evaluation_strategy no", "transformers==5.2.0\n", True),  # what is installed is known
        ("--no_such_argument 1", "", True),
    ],
)
def test_releases_that_the_line_itself_rules_out(
    more: str, pin: str, found: bool, zerocfg: Cli, tmp_path: Path
) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}')
    (tmp_path / "run.sh").write_text(f"deepspeed train.py --deepspeed ds.json --output_dir out {more} {SCHEDULE}\n")
    (tmp_path / "train.py").write_text(
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "Trainer(model=None, args=arguments).train()\n"
    )
    if pin:
        (tmp_path / "requirements.txt").write_text(pin)
    assert ("ZC234" in zerocfg("lint", "--output-format", "concise", ".").out) is found
