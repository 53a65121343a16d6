"""Rules whose word depends on the versions that a spec declares."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Severity
from zerocfg.rules.registry import ALL
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_newest_releases, with_versions

from .examples import lint, lint_example, write

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.rules.api import Rule

SPEC = """version: 1
runs:
  sft:
    recipe: recipe.yaml
    deepspeed: ds.json
    consumer: transformers
    versions: {%s}
"""
DS = """{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
 "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
"""
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nwarmup_ratio: 0.1\n"


def found(folder: Path, versions: str) -> dict[str, str]:
    files = {"zerocfg.yaml": SPEC % versions, "ds.json": DS, "recipe.yaml": RECIPE}
    return {d.code: d.severity.value for d in lint_example(Example(files), folder).diagnostics}


@pytest.mark.parametrize(
    ("versions", "severity"),
    [
        ("transformers: 5.23.0", "error"),
        ("transformers: '>=5.23'", "error"),
        ("transformers: '>=4.40'", "warning"),
        ("transformers: 4.50.3", None),
        ("deepspeed: 0.19.8", "warning"),
    ],
)
def test_removed_argument(tmp_path: Path, versions: str, severity: str | None) -> None:
    assert found(tmp_path, versions).get("ZC801") == severity


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ("deepspeed: 0.18.2", True),
        ("deepspeed: '>=0.19'", True),
        ("deepspeed: 0.19.8", False),
        ("transformers: 5.23.0", False),
    ],
)
def test_offload_without_pin_memory(tmp_path: Path, versions: str, told: bool) -> None:
    assert ("ZC501" in found(tmp_path, versions)) is told


@pytest.mark.parametrize(
    ("versions", "severity"),
    [
        ("deepspeed: 0.19.8", "error"),
        ("deepspeed: '<0.19'", None),
        ("deepspeed: '>=0.16'", "warning"),
        ("deepspeed: '>=0.19.8'", "error"),
        ("transformers: 5.23.0", "error"),
    ],
)
def test_removed_key(tmp_path: Path, versions: str, severity: str | None) -> None:
    spec = SPEC.replace("    recipe: recipe.yaml\n", "").replace("transformers\n", "deepspeed\n") % versions
    ds = '{"train_micro_batch_size_per_gpu": 1, "amp": {"enabled": false}, "zero_optimization": {"stage": 2}}\n'
    found = lint_example(Example({"zerocfg.yaml": spec, "ds.json": ds}), tmp_path).diagnostics
    assert {d.code: d.severity.value for d in found}.get("ZC110") == severity


@pytest.mark.parametrize("rule", ALL, ids=[rule.code for rule in ALL])
def test_lint_and_build_agree_where_no_release_is_declared(rule: Rule, tmp_path: Path) -> None:
    """A build plans for the newest releases where none is declared; that must not make a finding graver."""
    page = page_of(rule)
    for at, example in enumerate((*page.bad, *page.good)):
        folder = tmp_path / str(at)
        folder.mkdir()
        write(example, folder)
        linted, built = (
            [
                (found.code, found.severity, found.span.start)
                for found in lint(folder, example.consumer, changed=changed).diagnostics
                if found.severity is not Severity.NOTE
            ]
            for changed in (None, with_newest_releases)
        )
        assert built == linted


TRAINS = (
    "from transformers import Trainer, TrainingArguments\n"
    "args = TrainingArguments(output_dir='o', evaluation_strategy='no')\nTrainer(model=m, args=args).train()\n"
)


def of_project(folder: Path, files: dict[str, str]) -> list[str]:
    """The severities of ZC801 in a repository of these files."""
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    runs, _ = find_runs([folder], Files(), root=folder, scripts=True)
    return [d.severity.value for d in lint_runs(with_versions(runs, {})).diagnostics if d.code == "ZC801"]


INSTALLS = {
    "%pip install transformers==4.44.2\n": [],
    "!pip install -q git+https://example.com/transformers.git@850cf4af0ce281d2c3e7ebfc12e0bc24a9c40714\n": [],
    "%pip install transformers==5.23.0\n": ["error"],
    "%pip install transformers\n": ["warning"],
    "": ["warning"],
}


@pytest.mark.parametrize("line", INSTALLS)
def test_what_a_notebook_installs_before_it_trains(tmp_path: Path, line: str) -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in (line, TRAINS)]
    book = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    assert of_project(tmp_path, {"book.ipynb": book}) == INSTALLS[line]


@pytest.mark.parametrize(
    ("requirement", "severities"),
    [("transformers", ["warning"]), ("git+https://example.com/transformers.git@main", []), ("transformers<4.40", [])],
)
def test_a_commit_is_no_release(tmp_path: Path, requirement: str, severities: list[str]) -> None:
    assert of_project(tmp_path, {"requirements.txt": f"{requirement}\n", "train.py": TRAINS}) == severities
