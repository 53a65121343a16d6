"""`zerocfg lint --repos` on small repositories, as a process: reports, exit codes, and repositories that break."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.schemas import official
from tests.fleet.conftest import owner, run, write

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def report(cwd: Path, *words: str, code: int | None = None) -> dict[str, Any]:
    done = run(cwd, *words, "--output-format", "json")
    assert code is None or done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reports(document: dict[str, Any]) -> dict[str, Any]:
    """By repository what its lint alone would print, None where there was none."""
    found = {one["name"]: one["report"] for one in document["repositories"]}
    for one in found.values():
        for diagnostic in one["diagnostics"] if one else ():
            del diagnostic["fingerprint"]
    return found


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_each_is_linted_as_by_its_owner(repositories: Path, jobs: str) -> None:
    found = report(repositories, "--repos", str(repositories), "--jobs", jobs, code=2)
    assert reports(found) == {
        "clean": owner(repositories / "clean"),
        "misspelt": owner(repositories / "misspelt"),
        "silenced": owner(repositories / "silenced"),
        "unread": None,
    }
    assert found["totals"]["problems"] == 1 and found["totals"]["clean"] == 1
    assert "has no setting 'nonsense'" in found["repositories"][3]["problem"]


def test_settings_above_a_repository_are_not_its_own(repositories: Path) -> None:
    (repositories / "zerocfg.toml").write_text('ignore = ["ALL"]\n')
    found = reports(report(repositories, "--repos", "."))
    assert [one["code"] for one in found["misspelt"]["diagnostics"]] == ["ZC102"]
    (repositories / "everywhere.toml").write_text('ignore = ["ZC102"]\n')
    named = reports(report(repositories, "--repos", ".", "--config", "everywhere.toml"))
    assert not named["misspelt"]["diagnostics"] and [one["code"] for one in named["silenced"]["diagnostics"]] == [
        "ZC106",
        *(one["code"] for one in owner(repositories / "silenced")["diagnostics"] if one["code"] != "ZC102"),
    ]


def test_a_list_and_what_is_not_there(repositories: Path) -> None:
    """A line each for what is missing, no folder, or over time; the others are linted."""
    (repositories / "list").write_text("# ours\nclean\n\nmissing\nlist\nclean\nmisspelt\n")
    done = run(repositories, "--repos", "list", "--output-format", "concise")
    assert done.returncode == 2
    *findings, first, second, summary = done.stdout.splitlines()
    assert [line.split(": ")[:3] for line in findings] == [
        [
            "misspelt",
            "ds.json:3:2",
            "error[ZC102] DeepSpeed reads no key `zero_optimisation` at the top level; it is silently ignored",
        ]
    ]
    assert first == "missing: not linted: No such file or directory"
    assert second == "list: not linted: Not a directory"
    assert summary == "4 repositories: 1 error in 1, nothing in 1, 2 not linted."
    assert run(repositories, "--repos", "-", "-q", stdin="clean\n").returncode == 0


def test_over_time(repositories: Path) -> None:
    found = report(repositories, "--repos", ".", "--time-limit", "0.0001", code=2)
    assert {one["problem"] for one in found["repositories"]} == {"took longer than 0.0001 s"}


def test_a_bug_of_zerocfg_costs_one_repository(repositories: Path, tmp_path: Path) -> None:
    """A rule that raises is told and its repository is incomplete; the others are as before."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "if os.environ.get('BREAK'):\n"
        "    from zerocfg.workspace import job\n"
        "    whole = job.Job.lint\n"
        "    def lint(self, texts=None):\n"
        "        if os.getcwd().endswith('misspelt'): raise KeyError('no such thing')\n"
        "        if os.getcwd().endswith('silenced'): os.abort()\n"
        "        return whole(self, texts)\n"
        "    job.Job.lint = lint\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = run(repositories, "--repos", ".", "--output-format", "json", BREAK="1", PYTHONPATH=path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    problems = {one["name"]: one["problem"] for one in json.loads(done.stdout)["repositories"]}
    assert problems["clean"] is None
    assert problems["misspelt"] == "internal error of zerocfg: KeyError: 'no such thing'"
    assert problems["silenced"] == "its process was ended by SIGABRT"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 1),
        (("--fail-on", "error"), 1),
        (("--exit-zero",), 0),
        (("--select", "ZC101"), 0),
        (("--ignore", "ZC102"), 0),
    ],
)
def test_exit_codes(repositories: Path, words: tuple[str, ...], code: int) -> None:
    for name in ("unread", "silenced"):
        shutil.rmtree(repositories / name)
    assert run(repositories, "--repos", ".", *words).returncode == code


def test_a_repository_may_fail_on_less_than_another(tmp_path: Path) -> None:
    """By its own settings, which the command line goes before."""
    adam = {"type": "Adam", "params": {"lr": 1e-5, "weight_decay": 0.1}}
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": adam, "zero_optimization": {"stage": 2}}
    lenient = write(tmp_path / "all" / "lenient", config, zerocfg_toml='fail-on = "error"\n')
    grave = {one["severity"] for one in owner(lenient)["diagnostics"]}
    assert grave == {"warning"}
    assert run(tmp_path, "--repos", "all").returncode == 0
    assert run(tmp_path, "--repos", "all", "--fail-on", "warning").returncode == 1


def test_sarif_of_all(repositories: Path) -> None:
    done = run(repositories, "--repos", ".", "--output-format", "sarif")
    log = json.loads(done.stdout)
    schema = official(SARIF)
    jsonschema.validators.validator_for(schema)(schema).validate(log)
    assert [one["automationDetails"]["id"] for one in log["runs"]] == [
        f"zerocfg/{name}" for name in ("clean", "misspelt", "silenced", "unread")
    ]
    (result,) = log["runs"][1]["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    base = log["runs"][1]["originalUriBaseIds"][artifact["uriBaseId"]]["uri"]
    assert base + artifact["uri"] == (repositories / "misspelt" / "ds.json").as_uri()
    (invocation,) = log["runs"][3]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "nonsense" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_since_an_earlier_report(repositories: Path, tmp_path: Path) -> None:
    """New, gone and the same by rule and repository; a finding that moved to another line is the same."""
    before = str(tmp_path / "before.json")
    shutil.rmtree(repositories / "unread")
    run(repositories, "--repos", ".", "--output-format", f"json={before}")
    assert run(repositories, "--repos", ".", "--since", before, "--fail-on-new").returncode == 0
    size = {"train_micro_batch_size_per_gpu": 1}
    for name, config in (
        ("clean", {**size, "zero_optimization": {"stage": 9}}),
        ("misspelt", {"steps_per_print": 10, **size, "zero_optimisation": {"stage": 3}}),
        ("silenced", size),
    ):
        (repositories / name / "ds.json").write_text(json.dumps(config, indent=1))
    write(repositories / "added", {**size, "zero_optimisation": {"stage": 3}})
    found = report(repositories, "--repos", ".", "--since", before, "--fail-on-new", code=1)["since"]
    gone = [one["code"] for one in owner_before(before, "silenced")]
    assert [(one["what"], one["new"], one["gone"], one["same"]) for one in found["repositories"]] == [
        ("clean", 1, 0, 0),
        ("misspelt", 0, 0, 1),
        ("silenced", 0, len(gone), 0),
    ]
    by_rule = {one["what"]: (one["new"], one["gone"], one["same"]) for one in found["rules"]}
    assert by_rule["ZC106"] == (1, 0, 0) and by_rule["ZC102"] == (0, gone.count("ZC102"), 1)
    assert (found["added"], found["removed"], found["not_compared"]) == (["added"], [], [])
    said = run(repositories, "--repos", ".", "--since", before).stdout
    assert "Not in the earlier report, so not compared: added\n" in said
    assert said.endswith(f"Since the earlier report 1 new, {len(gone)} gone, 1 the same.\n")
    (repositories / "clean" / "ds.json").write_text(json.dumps(size))
    assert run(repositories, "--repos", ".", "--since", before, "--fail-on-new").returncode == 0
    assert run(repositories, "--repos", ".", "--since", before).returncode == 1


def owner_before(report: str, name: str) -> list[dict[str, Any]]:
    known = {one["name"]: one for one in json.loads(Path(report).read_text())["repositories"]}
    found: list[dict[str, Any]] = known[name]["report"]["diagnostics"]
    assert found
    return found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--jobs", "2"], "--jobs is for --repos"),
        (["--since", "list"], "--since is for --repos"),
        (["--output-format", "html"], "--output-format html is for --repos"),
        (["--repos", "list", "clean"], "'clean' is one path more"),
        (["--repos", "list", "--fix"], "--repos and --fix cannot be used together"),
        (["--repos", "list", "--watch"], "--repos and --watch cannot be used together"),
        (["--repos", "list", "--fail-on-new"], "--fail-on-new needs --since REPORT"),
        (["--repos", "list", "--workers", "2"], "--workers is for --on slurm or ray"),
        (["--repos", "list", "--on", "local", "--on-option=x"], "--on-option is for --on slurm or ray"),
        (["--repos", "list", "--output-format", "gitlab"], "not as gitlab"),
        (["--repos", "list", "--select", "ZC9999"], "no rule is called 'ZC9999'"),
        (["--repos", "nowhere"], "'nowhere' cannot be read: No such file or directory"),
        (["--repos", "empty"], "the list names no repository"),
        (["--repos", "list", "--since", "list"], "--since 'list' cannot be compared with: it is no JSON"),
        (["--repos", "list", "--since", "other.json"], "it has version 9; this zerocfg reads version 1"),
        (["--repos", "list", "--since", "lint.json"], "it is no report of `zerocfg lint --repos"),
    ],
)
def test_wrong_use(repositories: Path, words: list[str], told: str) -> None:
    (repositories / "list").write_text("clean\n")
    (repositories / "empty").write_text("# nothing\n")
    (repositories / "other.json").write_text('{"version": 9, "repositories": []}')
    (repositories / "lint.json").write_text(json.dumps(owner(repositories / "clean")))
    done = run(repositories, *words)
    assert done.returncode == 2 and told in " ".join(done.stderr.split()), done.stderr


def test_what_a_repository_is_called_steers_no_terminal(repositories: Path) -> None:
    (repositories / "list").write_text("clean\n\x1b[31mred\n")
    done = run(repositories, "--repos", "list")
    assert "\x1b" not in done.stdout and "\\u001b[31mred: not linted" in done.stdout
