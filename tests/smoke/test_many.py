"""Several runs at once: which ones are meant, in which order, how it ends. What a run itself does is not the matter."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from zerocfg.cli.commands.smoke import command
from zerocfg.smoke import many
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch import warm
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.smoke import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import MakeRun

CPU = Device("cpu", "cpu")


@pytest.fixture
def out(make_run: MakeRun) -> Path:
    """An OUT with the runs a, b and c, and one further below."""
    folder = make_run(None)
    for name in ("c", "b", "a", "more/d", ".hidden/e", "node_modules/f"):
        copy = folder.parent / name
        shutil.copytree(folder, copy)
        lock = json.loads((copy / "zerocfg.lock").read_text())
        (copy / "zerocfg.lock").write_text(json.dumps(lock | {"run": copy.name}))
    shutil.rmtree(folder)
    return folder.parent


def names(runs: list[Path]) -> list[str]:
    return [run.name for run in runs]


def test_an_out_means_all_of_its_runs(out: Path) -> None:
    assert names(many.find([out])) == ["a", "b", "c", "d"]
    assert names(many.find([out.parent])) == ["a", "b", "c", "d"]
    assert names(many.find([out / "more"])) == ["d"]


def test_each_run_once_in_the_order_given(out: Path) -> None:
    assert names(many.find([out / "c", out, out / "a" / ".." / "b"])) == ["c", "a", "b", "d"]


def test_without_a_path_the_builds_below(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out)
    assert names(many.find([])) == ["a", "b", "c", "d"]
    monkeypatch.chdir(out / "more")
    assert many.find([]) == [Path("d")]
    (out / "empty").mkdir()
    monkeypatch.chdir(out / "empty")
    with pytest.raises(SmokeError, match=r"no build is below .*empty"):
        many.find([])
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 2 and "zerocfg build SPEC -o OUT" in result.output


def test_what_holds_no_build_is_left_to_the_reader(tmp_path: Path) -> None:
    assert many.find([tmp_path, tmp_path / "nothing"]) == [tmp_path, tmp_path / "nothing"]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """In place of a smoke-run: what is noted here under the run's name; and the options that each was run with."""
    noted: dict[str, Any] = {"options": []}

    def smoke(folder: Path, options: Options, progress: Callable[[str], None] | None = None) -> Verdict:
        run = read(folder)
        noted["options"].append(options)
        outcome = Outcome([{}, {}], seconds=3.2)
        names = ("engine", "world size", "optimizer steps, loss finite", "parameters change", "ZeRO stage",
                 "saved parameters", "loaded by from_pretrained")  # fmt: skip
        checks = [Check(name, "3", "3", True) for name in names]
        found = noted.get(run.name)
        if isinstance(found, SmokeError):
            raise found
        if found == "FAIL":
            checks = [Check("ZeRO stage", "3", "2", False)]
        elif found == "UNSAVED":
            checks = checks[:-2]
        elif found is not None:
            outcome.failure, outcome.interrupted = found, found == "interrupted"
        if progress is not None:
            progress("init")
        verdict = Verdict(run, CPU, reduce(run, CPU, 2, tmp_path), outcome, checks)
        verdict.expected = "nothing was predicted"
        return verdict

    monkeypatch.setattr(many, "smoke", smoke)
    return noted


def test_all_run_whatever_happens_to_one(out: Path, played: dict[str, Any]) -> None:
    played.update(a="FAIL", b=SmokeError("b cannot be tried"), c="rank 1 vanished in 'init'")
    ended: list[str] = []
    told: list[str] = []
    results = many.run_all(many.find([out]), Options(), lambda one: ended.append(one.path.name), told.append)
    assert ended == ["a", "b", "c", "d"] and [one.passed for one in results] == [False, False, False, True]
    assert told == ["1 of 4: a: init", "3 of 4: c: init", "4 of 4: d: init"]
    table = many.summary(results).splitlines()
    assert [line.split("  ")[0].strip() for line in table] == ["run", "a", str(out / "b"), "c", "d"]
    assert table[1].endswith("FAILED           3  ZeRO stage: planned 3, seen 2")
    assert table[2].endswith("not tried        -  b cannot be tried")
    assert table[3].endswith("rank 1 vanished in 'init'")
    assert table[4].split() == ["d", "passed", "3"]
    assert many.exit_code(results) == 2 and many.exit_code(results[2:]) == 1 and many.exit_code(results[3:]) == 0


def test_fail_fast(out: Path, played: dict[str, Any]) -> None:
    played.update(b="FAIL")
    results = many.run_all(many.find([out]), Options(), lambda _: None, fail_fast=True)
    assert names([one.path for one in results]) == ["a", "b"]


def test_an_interrupted_run_is_the_last_one(out: Path, played: dict[str, Any]) -> None:
    played.update(b="interrupted")
    results = many.run_all(many.find([out]), Options(), lambda _: None)
    assert names([one.path for one in results]) == ["a", "b"]
    result = CliRunner().invoke(command, [str(out)])
    assert result.exit_code == 1 and "Aborted!" in result.output  # `cli.main` makes 130 of it


def test_each_run_keeps_in_a_folder_of_its_own(out: Path, played: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(out / "a", tmp_path / "other" / "a")
    many.run_all([out / "a", out / "b", tmp_path / "other" / "a"], Options(keep=Path("kept")), lambda _: None)
    many.run_all([out / "a"], Options(keep=Path("kept")), lambda _: None)
    kept = [str(options.keep) for options in played["options"]]
    assert kept == ["kept/a", "kept/b", "kept/a-2", "kept"]


def test_json_of_several_and_of_one(out: Path, played: dict[str, Any]) -> None:
    played.update(a="FAIL", b=SmokeError("b cannot be tried"))
    result = CliRunner().invoke(command, [str(out), "--output-format", "json"])
    assert result.exit_code == 2 and "b cannot be tried" in result.stderr
    content = json.loads(result.stdout)
    assert content["version"] == 1
    assert [(one["run"], one["passed"]) for one in content["runs"]] == [
        ("a", False),
        (str(out / "b"), False),
        ("c", True),
        ("d", True),
    ]
    assert content["runs"][1]["problem"] == "b cannot be tried" and content["runs"][0]["path"] == str(out / "a")
    one = CliRunner().invoke(command, [str(out / "c"), "--output-format", "json"])
    assert one.exit_code == 0 and [run["run"] for run in json.loads(one.stdout)["runs"]] == ["c"]


def test_text_of_several(out: Path, played: dict[str, Any]) -> None:
    result = CliRunner().invoke(command, [str(out / "c"), str(out / "a")])
    assert result.exit_code == 0
    assert result.output.index("c: 2 ranks on CPU") < result.output.index("a: 2 ranks on CPU")
    assert result.output.splitlines()[-3].split() == ["run", "verdict", "seconds"]
    one = CliRunner().invoke(command, [str(out / "c")])
    assert "verdict" not in one.output


@pytest.mark.parametrize(("line", "shared"), [(None, True), ("python train.py", False)])
def test_a_single_run_shares_its_imports_too(
    line: str | None, shared: bool, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its launcher and its ranks; a command of the user's own starts its own processes."""
    active: list[bool] = []

    def smoke(*_: object) -> Verdict:
        active.append(bool(warm._active) or warm.is_warm(sys.executable))
        raise SmokeError("not tried")

    monkeypatch.setattr(many, "smoke", smoke)
    monkeypatch.setattr(sys, "executable", str(out / "python"))
    many.run_all([out / "a"], Options(command=line), lambda _: None)
    assert active == [shared] and not warm._active
