"""``zerocfg lint --all-releases``: in which releases of its library each finding holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.linter.reader_agreement import Readers
from zerocfg.linter.release_range import ReleaseRange
from zerocfg.linter.selection import Selection

Cli = Callable[..., Outcome]
KNOWN = ("0.1", "0.2", "0.3", "0.4")

CONFIG = """\
{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimisation": {"stage": 2},
  "bf16": {"enabled": true, "loss_scale": 0}
}
"""


@pytest.fixture
def config(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(CONFIG)


def released(outcome: Outcome) -> dict[str, object]:
    return {one["code"]: one.get("releases") for one in json.loads(outcome.out)["diagnostics"]}


@pytest.mark.usefixtures("config")
def test_each_finding_says_where_it_holds(zerocfg: Cli) -> None:
    outcome = zerocfg("lint", "--all-releases", "--consumer", "deepspeed", "ds.json")
    told = [line.strip() for line in outcome.out.splitlines() if "releases:" in line or line.startswith("error")]
    assert told == [
        "error[ZC102]: DeepSpeed reads no key `zero_optimisation` at the top level; it is silently ignored",
        "= releases: all known releases of DeepSpeed, 0.10.0 to 0.19.8",
        "error[ZC101]: DeepSpeed knows no key `loss_scale` in `bf16` and stops at it",
        "= releases: DeepSpeed 0.17.1 and later",
    ]
    assert outcome.code == 1


@pytest.mark.usefixtures("config")
def test_nobody_asks_in_each_release_for_whom_a_fix_is_right(zerocfg: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    agree = Readers.agree
    monkeypatch.setattr(Readers, "agree", lambda self, rule, *rest: asked.append(rule.code) or agree(self, rule, *rest))
    found = released(zerocfg("lint", "--all-releases", "ds.json", "--output-format", "json"))
    assert found["ZC102"] is not None
    # Once for each fix, and once more where a renamed key is tried; not for each of dozens of releases.
    assert len(asked) <= 2 * len(set(asked))


@pytest.mark.usefixtures("config")
def test_rules_are_selected_once_for_all_releases(zerocfg: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    wants = Selection.wants
    monkeypatch.setattr(Selection, "wants", lambda self, rule: asked.append(rule.code) or wants(self, rule))
    assert released(zerocfg("lint", "--all-releases", "ds.json", "--output-format", "json"))["ZC102"] is not None
    assert asked.count("ZC102") == 1, "for the one run, not for each of dozens of releases"


@pytest.mark.usefixtures("config")
def test_in_one_line_and_as_data(zerocfg: Cli) -> None:
    words = ("lint", "--all-releases", "--consumer", "deepspeed", "ds.json", "--output-format")
    assert "stops at it [DeepSpeed 0.17.1 and later]\n" in zerocfg(*words, "concise").out
    found = released(zerocfg(*words, "json"))
    assert found["ZC101"] == {
        "library": "deepspeed",
        "holds": [{"from": "0.17.1", "to": "0.19.8"}],
        "known_from": "0.10.0",
        "newest": "0.19.8",
    }


@pytest.mark.usefixtures("config")
def test_nothing_is_said_of_releases_unasked(zerocfg: Cli) -> None:
    assert set(released(zerocfg("lint", "ds.json", "--output-format", "json")).values()) == {None}


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("option", ["--fix", "--diff", "--statistics", "--show-runs", "--watch"])
def test_it_is_told_with_findings_alone(zerocfg: Cli, option: str) -> None:
    outcome = zerocfg("lint", "--all-releases", option, "ds.json")
    assert outcome.code == 2 and "--all-releases only works when findings are reported" in outcome.err


def test_a_rule_that_names_its_releases(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": "auto"}}\n')
    outcome = zerocfg("lint", "--all-releases", "--consumer", "deepspeed", "--select", "ZC304", "ds.json")
    assert "= releases: DeepSpeed 0.17.1 and later\n" in outcome.out


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        (
            "ds.json",
            '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-5}}}\n',
            "ZC212",
            "DeepSpeed 0.19.7 and later",
        ),
        (
            "accelerate.yaml",
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: FULL_SHARD\n",
            "ZC603",
            "accelerate 1.6.0 and later",
        ),
        (
            "recipe.yaml",
            "output_dir: out\nper_device_train_batch_size: 1\nfsdp: true\n"
            "fsdp_config:\n  reshard_after_forward: full_shard\n",
            "ZC603",
            "transformers 5.10.1 and later",
        ),
        (
            "recipe.yaml",
            "output_dir: out\nper_device_train_batch_size: 1\nfsdp: 'true'\n",
            "ZC623",
            "transformers 4.46.3 and later; not known before",
        ),
    ],
)
def test_a_rule_of_which_some_findings_came_later(
    zerocfg: Cli, tmp_path: Path, name: str, text: str, code: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    consumer = {"ds.json": "deepspeed", "accelerate.yaml": "accelerate"}.get(name, "transformers")
    outcome = zerocfg("lint", "--all-releases", "--consumer", consumer, "--select", code, name)
    assert f"= releases: {said}\n" in outcome.out


@pytest.mark.parametrize(
    ("parts", "known_from", "said"),
    [
        ([("0.1", "0.4")], "0.1", "all known releases of DeepSpeed, 0.1 to 0.4"),
        ([("0.2", "0.4")], "0.1", "DeepSpeed 0.2 and later"),
        ([("0.2", "0.4")], "0.2", "DeepSpeed 0.2 and later; not known before"),
        ([("0.4", "0.4")], "0.4", "DeepSpeed 0.4; not known before"),
        ([("0.1", "0.2")], "0.1", "DeepSpeed before 0.3"),
        ([("0.1", "0.2"), ("0.4", "0.4")], "0.1", "DeepSpeed before 0.3 and 0.4"),
        ([("0.2", "0.3")], "0.1", "DeepSpeed 0.2 to 0.3"),
        ([], "0.1", "no known release of DeepSpeed by itself"),
    ],
)
def test_releases_in_words(parts: list[tuple[str, str]], known_from: str, said: str) -> None:
    assert ReleaseRange("deepspeed", tuple(parts), known_from, KNOWN).words == said


def test_an_argument_of_transformers(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "output_dir: out\nper_device_train_batch_size: 1\nevaluation_strategy: 'no'\n"
    )
    outcome = zerocfg(
        "lint", "--all-releases", "--notes", "--consumer", "transformers", "--select", "ZC801", "recipe.yaml"
    )
    assert "= releases: transformers 4.51.0 and later\n" in outcome.out
