"""The rules of recipes are asked wherever they may find something."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rules.examples import inside, write
from zerocfg.linter.concerned import rules_for
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.pages import page_of
from zerocfg.rules import recipes
from zerocfg.rules.registry import ALL, WITHOUT_RECIPES
from zerocfg.run.model import Run
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

OF_RECIPES = [rule for rule in ALL if rule.check.__module__.startswith(recipes.__name__)]
PAIR = {
    "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\n"
    "deepspeed_config: {deepspeed_config_file: ds.json}\n",
    "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n',
}


def _runs(folder: Path) -> list[Run]:
    """As a lint of the folder finds them."""
    with inside(folder):
        job = Job([Path()], Settings(), Selection())
        job.lint()
        return job.runs


def test_all_rules_are_those_and_the_others() -> None:
    assert len(OF_RECIPES) > 40
    assert sorted(rule.code for rule in (*WITHOUT_RECIPES, *OF_RECIPES)) == [rule.code for rule in ALL]


@pytest.mark.parametrize("code", [rule.code for rule in ALL])
def test_those_that_are_not_asked_find_nothing(code: str, tmp_path: Path, count: Callable[[str, int], None]) -> None:
    page = page_of(next(rule for rule in ALL if rule.code == code))
    for number, example in enumerate((*page.bad, *page.good)):
        write(example, tmp_path / str(number))
        for run in _runs(tmp_path / str(number)):
            if rules_for([run]) is WITHOUT_RECIPES:
                asked = [rule for rule in OF_RECIPES if not rule.consumers or run.consumer in rule.consumers]
                assert [finding.message for rule in asked for finding in rule.check(run)] == []
                count("runs without training arguments, of which no rule of recipes says anything", 1)


@pytest.mark.parametrize(
    ("more", "every"),
    [
        ({}, False),
        ({"notes.txt": "per_device_train_batch_size: 1\n"}, False),
        ({"requirements.txt": "deepspeed==0.18.3\n"}, True),
        ({"accelerate.yaml": PAIR["accelerate.yaml"] + "# zerocfg: ignore-file[ZC802] not ours\n"}, True),
        ({"run.sh": "accelerate launch --config_file accelerate.yaml train.py --bf16 True\n"}, True),
        ({"recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\n"}, True),
        ({"train.py": "from accelerate import Accelerator\nAccelerator(deepspeed_plugin='ds.json')\n"}, True),
    ],
    ids=["a pair", "what nobody reads", "releases", "a comment", "a launch line", "a recipe", "a script"],
)
def test_when_they_are_asked(more: dict[str, str], every: bool, tmp_path: Path) -> None:
    for name, text in {**PAIR, **more}.items():
        (tmp_path / name).write_text(text)
    runs = _runs(tmp_path)
    assert runs
    assert rules_for(runs) == (ALL if every else WITHOUT_RECIPES)


@pytest.mark.parametrize(
    ("name", "loaded"), [("ZC103", False), ("key-accelerate-ignores", False), ("argument-type", True)]
)
def test_a_rule_of_recipes_is_found_by_its_name(name: str, loaded: bool) -> None:
    code = (
        "import json, sys\nfrom zerocfg.rules.registry import find\nfound = find(sys.argv[1])\n"
        "print(json.dumps([found.name, 'zerocfg.rules.recipes' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["argument-type" if loaded else "key-accelerate-ignores", loaded]
