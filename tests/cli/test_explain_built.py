"""``zerocfg explain`` for the values of builds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

Cli = Callable[..., Any]
BUCKET = "zero_optimization.reduce_bucket_size"


@pytest.fixture
def built(zerocfg: Cli, tmp_path: Path) -> Path:
    """The quickstart example in ``q``, built into ``out``."""
    ignored = shutil.ignore_patterns("runs", "__pycache__")
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "q", ignore=ignored)
    assert zerocfg("build", "q", "-o", "out").code == 0
    return tmp_path / "out" / "quickstart"


def change(built: Path, **values: Any) -> None:
    path = built / "zerocfg.lock"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_computed_value(zerocfg: Cli, built: Path) -> None:
    outcome = zerocfg("explain", BUCKET, "--run", "out/quickstart")
    assert (outcome.code, outcome.out) == (
        0,
        f"{BUCKET} = 4096\n"
        "  because  auto in ds_config.json; hidden_size² = 64² elements (transformers fills it so)\n"
        "  kind     computed\n"
        "  from     hidden_size = 64\n"
        "  build    out/quickstart, for 2xCPU\n",
    )


def test_a_written_value(zerocfg: Cli, built: Path) -> None:
    text = zerocfg("explain", "zero_optimization.stage", "--run", "out/quickstart/zerocfg.lock").out
    assert "zero_optimization.stage = 3" in text and "kind     written" in text
    assert "at       ds_config.json:10:5" in text
    assert (built.parent.parent / "q" / "ds_config.json").read_text().splitlines()[9][4:].startswith('"stage"')


def test_every_built_value_is_answered(zerocfg: Cli, built: Path) -> None:
    lock = json.loads((built / "zerocfg.lock").read_text())
    names = [*lock["settings"], *lock["accelerate"], *lock["recipe"], "script", "launcher", "hardware"]
    table = zerocfg("explain", "--run", "out/quickstart").out
    for name in names:
        assert f"  {name} " in table
    for name in ("distributed_type", "deepspeed_config.zero3_init_flag", "learning_rate", "script", "hardware"):
        outcome = zerocfg("explain", name, "--run", "out/quickstart")
        assert outcome.code == 0 and outcome.out.startswith(f"{name} = ")


def test_the_one_build_that_lies_here(zerocfg: Cli, built: Path) -> None:
    assert zerocfg("explain", BUCKET).out.startswith(f"{BUCKET} = 4096\n")
    assert zerocfg("explain", "reduce_bucket_size").out.startswith(f"{BUCKET} = 4096\n")
    assert zerocfg("explain", BUCKET, "--in", "out").out.startswith(f"{BUCKET} = 4096\n")
    assert zerocfg("explain", "ZC103").out.startswith("ZC103 ")
    assert "weights-not-saved" in zerocfg("explain", "weight-not-saved").err  # a rule, misspelt
    assert "no rule is called 'ZC999'" in zerocfg("explain", "ZC999").err


def test_several_builds_lie_here(zerocfg: Cli, built: Path) -> None:
    shutil.copytree(built, built.parent / "other")
    outcome = zerocfg("explain", BUCKET)
    assert outcome.code == 2
    assert "out/other, out/quickstart; name one: --run RUN" in outcome.err
    assert zerocfg("explain", BUCKET, "--run", "out/other").code == 0
    assert zerocfg("explain", "ZC103").code == 0


def test_no_build_lies_here(zerocfg: Cli) -> None:
    """A key is told by release; what is none asks for the build."""
    outcome = zerocfg("explain", BUCKET)
    assert outcome.code == 0 and outcome.out.startswith(f"{BUCKET}  (DeepSpeed 0.10.0 to ")
    outcome = zerocfg("explain", "zero_optimization.no_such_key")
    assert outcome.code == 2 and "--run RUN" in outcome.err


def test_a_section(zerocfg: Cli, built: Path) -> None:
    text = zerocfg("explain", "zero_optimization", "--run", "out/quickstart").out
    assert "zero_optimization.stage " in text and "train_batch_size" not in text


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("zero_optimizatoin.stage", "zero_optimization.stage"),
        ("redcue_bucket_size", BUCKET),
        ("learnign_rate", "learning_rate"),
    ],
)
def test_did_you_mean(zerocfg: Cli, built: Path, asked: str, meant: str) -> None:
    outcome = zerocfg("explain", asked, "--run", "out/quickstart")
    assert outcome.code == 2 and f"did you mean {meant}?" in outcome.err


def test_an_unknown_key(zerocfg: Cli, built: Path) -> None:
    outcome = zerocfg("explain", "xyz", "--run", "out/quickstart")
    assert outcome.code == 2 and "`zerocfg explain --run out/quickstart` prints all" in outcome.err


def test_sources_that_changed_since(zerocfg: Cli, built: Path) -> None:
    folder = built.parent.parent / "q"
    (folder / "recipe.yaml").write_text("output_dir: x\n")
    (folder / "ds_config.json").unlink()
    text = zerocfg("explain", BUCKET).out
    assert "changed since this build: ds_config.json (cannot be read: no such file or directory), recipe.yaml\n" in text


def test_what_was_not_chosen(zerocfg: Cli, built: Path) -> None:
    lock = json.loads((built / "zerocfg.lock").read_text())
    lock["settings"]["zero_optimization.stage"] |= {"kind": "chosen", "value": 2}
    plans = [
        {"settings": {"zero_optimization.stage": stage}, "verdict": "fits", "excluded": f"{stage}% slower"}
        for stage in (3, 2, 1)
    ]
    plans.append(plans[0] | {"excluded": "much slower"})
    change(built, settings=lock["settings"], considered={"compared": 3, "taken": None, "runners_up": plans})
    text = zerocfg("explain", "zero_optimization.stage").out
    assert "kind     chosen by zerocfg" in text and "not      3: 3% slower" in text and "2% slower" not in text
    assert "not      1: 1% slower" in text and "much slower" not in text


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is no zerocfg.lock"), ('{"version": 3, "files": {}}', "has version 3")]
)
def test_a_lock_that_cannot_be_read(zerocfg: Cli, built: Path, content: str, message: str) -> None:
    (built / "zerocfg.lock").write_text(content)
    for words in (("explain", BUCKET), ("explain", BUCKET, "--run", "out/quickstart"), ("diff", "out", "q")):
        outcome = zerocfg(*words)
        assert outcome.code == 2 and message in outcome.err and "zerocfg.lock" in outcome.err


def test_source_runs_are_explained_as_before(zerocfg: Cli, built: Path) -> None:
    text = zerocfg("explain", "zero_optimization.stage", "--run", "q/ds_config.json").out
    assert "q/ds_config.json:10:5" in text
    assert "q/zerocfg.yaml" in zerocfg("explain", "--in", "q").out
