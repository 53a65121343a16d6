"""What newcomers type first: help, its examples, and names that are not quite right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from tests.docs.prepare import checkpoint
from tests.docs.runner import Session
from zerocfg.cli.main import COMMANDS, EXAMPLES, OTHER_NAMES

Cli = Callable[..., Outcome]
TRACED = {"plan", "report", "smoke"}
"""Whose example needs the training libraries, or takes the time of an import of torch where they are there."""
FINDS = {"diff", "check-resume"}
"""Whose example finds something: a config and its build differ, a run cannot go on from another."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart with its run called `sft`, as in the examples: built, with a launch script and a checkpoint."""
    folder = tmp_path_factory.mktemp("examples") / "project"
    shutil.copytree(ROOT / "examples" / "quickstart", folder, ignore=shutil.ignore_patterns("built", "runs"))
    spec = folder / "zerocfg.yaml"
    spec.write_text(spec.read_text().replace("  quickstart:", "  sft:"))
    (folder / "train.sh").write_text("accelerate launch --config_file accelerate.yaml train.py recipe.yaml\n")
    checkpoint(folder)
    assert Session(folder).run(EXAMPLES["build"]).code == 0
    spec.rename(folder / "spec")  # `init` and what comes after it
    return folder


def test_every_command_has_an_example() -> None:
    assert list(EXAMPLES) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example(name: str, zerocfg: Cli) -> None:
    seen = zerocfg(name, "--help")
    assert seen.code == 0 and seen.out.endswith(f"\n\n  Example:\n\n    {EXAMPLES[name]}\n")
    assert all(len(line) <= 80 for line in seen.out.splitlines())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.libs] * (name in TRACED)) for name in COMMANDS if name != "lsp"],
)
def test_the_example_runs(name: str, project: Path, tmp_path: Path) -> None:
    """But for `lsp`, which talks to an editor."""
    folder = tmp_path / "here"
    shutil.copytree(project, folder)
    if name != "init":
        (folder / "spec").rename(folder / "zerocfg.yaml")
    done = Session(folder).run(EXAMPLES[name])
    assert done.code == int(name in FINDS) and done.text.strip(), done.text


def test_the_current_folder_is_meant(project: Path, tmp_path: Path) -> None:
    """Where a command takes a path of something to read and gets none."""
    folder = tmp_path / "here"
    shutil.copytree(project, folder)
    (folder / "spec").rename(folder / "zerocfg.yaml")
    session = Session(folder)
    assert session.run("zerocfg plan --no-trace").code == 3, "nobody says how much memory its processors have"
    for short, full in (
        ("zerocfg build -o out", "zerocfg build . -o out --check"),
        ("zerocfg plan --no-trace --hardware 2xL4", "zerocfg plan . --no-trace --hardware 2xL4"),
        ("zerocfg lint", "zerocfg lint ."),
        ("zerocfg gate --require none", "zerocfg gate . --require none"),
        ("zerocfg migrate --to deepspeed==0.19.8", "zerocfg migrate --to deepspeed==0.19.8 ."),
        ("zerocfg init --print", "zerocfg init . --print"),
    ):
        first, second = session.run(short), session.run(full)
        assert first.code == second.code == 0, first.text + second.text
        assert first.text == second.text or "build" in short
    report = session.run("zerocfg report -o page.html --no-trace")
    assert report.code == 0 and (folder / "page.html").is_file(), report.text


def test_a_folder_without_a_spec(zerocfg: Cli) -> None:
    for words in (("build", "-o", "out"), ("plan",)):
        seen = zerocfg(*words)
        assert seen.code == 2
        assert seen.err.endswith("Error: there is no file 'zerocfg.yaml'; `zerocfg init` writes a first one\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lnit", "`zerocfg lint` or `zerocfg init`"),
        ("plna", "`zerocfg plan`"),
        ("rule", "`zerocfg rules`"),
        ("check_resume", "`zerocfg check-resume`"),
        ("Lint", "`zerocfg lint`"),
        ("check", "`zerocfg lint`"),
        ("doctor", "`zerocfg info`"),
        ("configs", "`zerocfg lint configs`"),
    ],
)
def test_did_you_mean(typed: str, meant: str, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    seen = zerocfg(typed)
    assert seen.code == 2 and seen.err.endswith(f"Error: No such command '{typed}'. Did you mean {meant}?\n")


def test_nothing_is_meant(zerocfg: Cli) -> None:
    assert zerocfg("zzz").err.endswith("Error: No such command 'zzz'.\n")


def test_other_names_lead_to_what_there_is() -> None:
    for typed, command in OTHER_NAMES.items():
        assert typed not in COMMANDS
        word = command.split()[1]
        assert word in COMMANDS or word in ("--help", "--version"), command


def test_every_command_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"zerocfg {name}" not in page] == []


def test_help_of_a_misspelt_command_is_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zerocfg", "biuld", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "Did you mean `zerocfg build`?" in done.stderr
