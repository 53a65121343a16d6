"""The functions for Python programs: the same as the commands say, as values and errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zerocfg
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "zerocfg", *words], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLES / "quickstart", tmp_path / "job", ignore=shutil.ignore_patterns("built"))
    monkeypatch.chdir(tmp_path / "job")
    return tmp_path / "job"


@pytest.fixture
def pitfalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLES / "pitfalls", tmp_path / "pitfalls")
    monkeypatch.chdir(tmp_path / "pitfalls")
    return tmp_path / "pitfalls"


def test_lint_is_the_command(pitfalls: Path) -> None:
    result = zerocfg.lint()
    told = json.loads(command("lint", "--output-format", "json", folder=pitfalls).stdout)["diagnostics"]
    assert [(one.code, one.span.start.line, one.message) for one in result.diagnostics] == [
        (one["code"], one["start"]["line"], one["message"]) for one in told
    ]
    assert {one.code for one in zerocfg.lint(select=["ZC2"]).diagnostics} == {
        one["code"] for one in told if one["code"].startswith("ZC2")
    }
    assert zerocfg.lint(pitfalls / "recipe.yaml", ignore=["ZC"]).diagnostics == []


def test_settings_of_the_project_count(pitfalls: Path) -> None:
    before = zerocfg.lint()
    (pitfalls / "zerocfg.toml").write_text('ignore = ["ZC2"]\n')
    after = zerocfg.lint()
    assert any(one.code.startswith("ZC2") for one in before.diagnostics)
    assert not any(one.code.startswith("ZC2") for one in after.diagnostics)


def test_effective_settings_with_their_origins(quickstart: Path) -> None:
    settings = zerocfg.effective("zerocfg.yaml")
    assert settings["zero_optimization.stage"].value == 3
    origin = settings["zero_optimization.stage"].origin
    assert origin.kind == "file" and origin.file is not None and origin.file.name == "ds_config.json"
    assert settings["gradient_accumulation_steps"].value == 2
    (run,) = zerocfg.runs("zerocfg.yaml")
    assert run.consumer == "transformers"
    values = {name: one.value for name, one in settings.items()}
    assert {name: one.value for name, one in run.effective.settings.items()} == values


def test_several_runs_must_be_told_apart() -> None:
    spec = EXAMPLES / "stages" / "zerocfg.yaml"
    with pytest.raises(zerocfg.Error, match="stage-zero2, "):
        zerocfg.effective(spec)
    assert zerocfg.effective(spec, "stage-zero2")["zero_optimization.stage"].value == 2
    with pytest.raises(zerocfg.Error, match="no single run 'stage9'"):
        zerocfg.effective(spec, "stage9")


@pytest.mark.libs  # activations are traced where torch is
def test_plan(quickstart: Path) -> None:
    forecast = zerocfg.plan(quickstart, hardware="2xA100-80GB")["quickstart"]
    assert forecast.word == "fits" and forecast.prediction.estimate.peak("device").size > 0


def test_build(quickstart: Path, tmp_path: Path) -> None:
    written = zerocfg.build(quickstart, tmp_path / "out")
    assert {path.name for path in written} == {"accelerate.yaml", "ds_config.json", "launch.sh", "zerocfg.lock"}
    assert "up to date" in command("build", ".", "-o", str(tmp_path / "out"), "--check", folder=quickstart).stdout
    written[0].write_text("mine")
    with pytest.raises(zerocfg.Error, match="was changed since"):
        zerocfg.build(quickstart, tmp_path / "out")
    zerocfg.build(quickstart, tmp_path / "out", force=True)


def test_a_build_that_lint_forbids(quickstart: Path, tmp_path: Path) -> None:
    config = quickstart / "ds_config.json"
    config.write_text(config.read_text().replace('"stage": 3', '"stage": 3, "overlap_com": true'))
    with pytest.raises(zerocfg.ConfigError, match="overlap_com") as caught:
        zerocfg.build(quickstart, tmp_path / "out")
    assert caught.value.result.diagnostics and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: zerocfg.lint("no/such"), "there is no file or folder 'no/such'"),
        (lambda: zerocfg.runs("no/such"), "there is no file or folder"),
        (lambda: zerocfg.lint(select=["ZC9999"]), "no rule is called 'ZC9999'"),
        (lambda: zerocfg.lint(consumer="me"), "consumer is one of"),
        (lambda: zerocfg.plan("no/such"), "there is no file"),
        (lambda: zerocfg.plan(EXAMPLES / "quickstart", run="x"), "the spec has no run 'x'"),
        (lambda: zerocfg.plan(EXAMPLES / "quickstart", hardware="9xNOPE"), "NOPE"),
        (lambda: zerocfg.build(EXAMPLES / "quickstart" / "recipe.yaml", "out"), "recipe.yaml:"),
        (lambda: zerocfg.check_or_raise(EXAMPLES / "quickstart", fail_on="all"), "fail_on is one of"),
    ],
)
def test_wrong_use_is_an_error_of_ours(call: object, said: str) -> None:
    assert callable(call)
    with pytest.raises(zerocfg.Error, match=said):
        call()


def test_importing_loads_nothing() -> None:
    code = "import sys, zerocfg; print(sorted(m for m in sys.modules if m.startswith('zerocfg')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['zerocfg', 'zerocfg.version']"
    code = "import sys, zerocfg; zerocfg.lint; print('pydantic' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_every_name_is_there() -> None:
    assert all(getattr(zerocfg, name) is not None for name in zerocfg.__all__)
    assert set(zerocfg.__all__) <= set(dir(zerocfg))
    with pytest.raises(AttributeError, match="'lnit'"):
        _ = zerocfg.lnit  # type: ignore[attr-defined]
