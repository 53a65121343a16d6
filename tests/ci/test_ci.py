"""The GitHub Action and the GitLab job: valid by their official schemas, and their scripts run as the runner would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
import yaml

from tests.cli.schemas import official
from tests.conftest import ROOT
from zerocfg.report.formats import FORMATS

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


@pytest.fixture
def pitfalls(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "pitfalls", tmp_path / "job")
    (tmp_path / "job" / "train.sh").unlink()
    return tmp_path / "job"


def ran(script: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    return subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True)


def as_runner(folder: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], str, str]:
    """The action's own script with the runner's variables: what it did, its outputs, its summary."""
    temp = folder.parent / "runner"
    temp.mkdir(exist_ok=True)
    output, summary = temp / "output", temp / "summary"
    files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary), "RUNNER_TEMP": str(temp)}
    done = ran(["bash", str(ROOT / "ci" / "action.sh")], folder, **files, **inputs)
    return done, *(file.read_text() if file.exists() else "" for file in (output, summary))  # type: ignore[return-value]


def test_the_action_is_valid() -> None:
    schema = official("https://json.schemastore.org/github-action.json")
    jsonschema.validators.validator_for(schema)(schema).validate(ACTION)
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert scripts[-1] == 'bash "${{ github.action_path }}/ci/action.sh"'
    # An input that stands in a script is run as a part of it; they are handed over as variables.
    assert not any("inputs." in script for script in scripts)


def test_the_action_installs_itself_or_a_release() -> None:
    """The word that pip gets, as bash makes it."""
    install = next(step["run"] for step in ACTION["runs"]["steps"] if step.get("name") == "Install zerocfg")
    word = install.split()[-1]
    for version, wanted in (("", "/the/action"), ("0.1.0", "zerocfg==0.1.0")):
        done = ran(["bash", "-c", f"printf %s {word}"], ROOT, VERSION=version, ACTION="/the/action")
        assert done.stdout == wanted


def test_lint_annotates_summarises_and_writes_sarif(pitfalls: Path) -> None:
    done, output, summary = as_runner(pitfalls, COMMAND="lint", PATHS=".", ARGS="--select ZC1,ZC2")
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=") and "\nFound " in done.stdout
    sarif = json.loads(Path(output.strip().removeprefix("sarif-file=")).read_text())
    assert sarif["version"] == "2.1.0" and sarif["runs"][0]["results"]
    assert summary.startswith("### zerocfg lint\n\n``````text\nerror[ZC") and summary.endswith("``````\n")


def test_nothing_of_a_config_ends_the_block_of_the_summary(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "accelerate.yaml").write_text(
        f"distributed_type: MULTI_GPU\n'{'`' * 6}': 1\n'{'`' * 40}x': 2\n'`a`': 3\n"
    )
    _, _, summary = as_runner(tmp_path / "job", COMMAND="lint")
    first, *inside, last = summary.split("``````")
    assert (first, last) == ("### zerocfg lint\n\n", "\n") and len(inside) == 1
    assert "`````x" in summary and "`a`" in summary


def test_a_clean_repository_passes(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "accelerate.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    done, _, summary = as_runner(tmp_path / "job", COMMAND="lint")
    assert done.returncode == 0 and "All checks passed" in summary


def test_gate(pitfalls: Path) -> None:
    shutil.rmtree(pitfalls)
    shutil.copytree(ROOT / "examples" / "quickstart", pitfalls)
    done, _, summary = as_runner(pitfalls, COMMAND="gate", ARGS="--require none")
    assert done.returncode == 0 and "gate: passed" in done.stdout and "gate: passed" in summary
    done, _, summary = as_runner(pitfalls, COMMAND="gate")
    assert done.returncode == 1 and "certificate" in summary


def test_the_gate_says_nothing_that_the_runner_obeys(pitfalls: Path) -> None:
    shutil.rmtree(pitfalls)
    shutil.copytree(ROOT / "examples" / "quickstart", pitfalls)
    done, _, _ = as_runner(pitfalls, COMMAND="gate")
    first, *between, last = done.stdout.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert done.returncode == 1 and f"::{token}::" == between[-1] and last.startswith("::error title=zerocfg gate::")
    done, _, _ = as_runner(pitfalls, COMMAND="gate", ARGS="--require none")
    assert done.returncode == 0 and done.stdout.splitlines()[0] != first and "::error" not in done.stdout


def test_inputs_of_several_lines(pitfalls: Path) -> None:
    done, _, _ = as_runner(
        pitfalls, COMMAND="lint", PATHS="ds_config.json\nzero2.yaml\n", ARGS="--select ZC1\n--exit-zero\n"
    )
    assert done.returncode == 0 and done.stdout.startswith("::")
    done, _, _ = as_runner(pitfalls, COMMAND="lint", PATHS="ds_config.json\nno/such/folder\n")
    assert done.returncode == 2 and "no/such/folder" in done.stderr


def test_wrong_use(pitfalls: Path) -> None:
    done, _, _ = as_runner(pitfalls, COMMAND="fix")
    assert done.returncode == 2 and done.stdout.startswith("::error::zerocfg: the input command is lint or gate")
    done, _, _ = as_runner(pitfalls, COMMAND="lint", PATHS="no/such/folder")
    assert done.returncode == 2 and "no/such/folder" in done.stderr


def test_the_gitlab_job(pitfalls: Path) -> None:
    """Valid where it is used, and its command gives both reports."""
    template: dict[str, Any] = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())
    job = template[".zerocfg"]
    schema = official("https://gitlab.com/gitlab-org/gitlab/-/raw/master/app/assets/javascripts/editor/schema/ci.json")
    jsonschema.validators.validator_for(schema)(schema).validate({**template, "zerocfg": {"extends": ".zerocfg"}})
    _, lint = job["script"]
    done = ran(["bash", "-c", lint], pitfalls, **job["variables"])
    assert done.returncode == 1 and "error[ZC" in done.stdout, done.stderr
    gate = template[".zerocfg-gate"]
    done = ran(["bash", "-c", gate["script"][-1]], ROOT / "examples" / "quickstart", **gate["variables"])
    assert done.returncode == 1 and "certificate" in done.stdout, done.stderr
    reports = job["artifacts"]["reports"]
    entries = json.loads((pitfalls / reports["codequality"]).read_text())
    assert len(entries) > 10 and entries[0].keys() >= {"description", "check_name", "fingerprint", "severity"}
    assert sum(suite.failures for suite in junitparser.JUnitXml.fromfile(str(pitfalls / reports["junit"]))) > 10


def test_the_page_names_every_input_and_format() -> None:
    page = (ROOT / "docs" / "ci.md").read_text()
    assert all(f"| `{name}` |" in page for name in ACTION["inputs"])
    assert all(f"`{name}`" in page for name in FORMATS)
    lint = next(line for line in page.splitlines() if line.startswith("zerocfg lint"))
    assert "--output-format sarif=zerocfg.sarif" in lint


def test_the_recipe_for_anywhere_else(pitfalls: Path) -> None:
    page = (ROOT / "docs" / "ci.md").read_text()
    lint = next(line for line in page.splitlines() if line.startswith("zerocfg lint"))
    done = ran(["bash", "-c", lint], pitfalls)
    assert done.returncode == 1 and (pitfalls / "zerocfg.xml").is_file() and (pitfalls / "zerocfg.sarif").is_file()
