"""Recipes whose paths launch lines put together: the script of the lines that may name them, or nothing of TRL's."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg import api
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run

RECIPE = (
    "model_name_or_path: m\noutput_dir: o\nper_device_train_batch_size: 1\nnum_train_epochs: 1\n"
    "label_smoothing: 0.0\nloss_type: ours\n"
)
OWN = """from transformers import HfArgumentParser, Trainer, TrainingArguments

class DPOConfig(TrainingArguments):
    pass

(arguments,) = HfArgumentParser(DPOConfig).parse_args_into_dataclasses()
Trainer(args=arguments)
"""
LIBRARY = """from trl import DPOConfig, DPOTrainer, TrlParser

(arguments,) = TrlParser(DPOConfig).parse_args_and_config()
DPOTrainer(args=arguments)
"""


def project(folder: Path, files: dict[str, str]) -> None:
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def recipe_runs(folder: Path) -> dict[str, Run]:
    """The runs that read a recipe, by the recipe's name."""
    runs, _ = find_runs([folder], Files(), root=folder, scripts=True)
    return {Path(run.recipe.name).name: run for run in runs if run.recipe is not None}


def told(folder: Path) -> list[str]:
    """The files in which a word of a recipe is said to be unknown to TRL."""
    result = api.lint(folder)
    return sorted(Path(item.span.file.name).name for item in result.diagnostics if item.code == "ZC843")


LOOPS = {
    "a pattern": "for f in recipes/*.yaml; do\n  torchrun train.py $f\ndone\n",
    "a pattern in a folder of a variable": "D=recipes; for f in ${D}/*.yaml; do torchrun train.py $f; done\n",
    "files by name": "for f in recipes/a.yaml recipes/b.yaml; do torchrun train.py $f; done\n",
    "parts of names": "for f in a b; do torchrun train.py recipes/$f.yaml; done\n",
    "a word of the caller": "torchrun train.py recipes/$1.yaml\n",
    "a folder that two branches choose": "if x; then D=.; else D=..; fi; torchrun train.py $D/recipes/$1.yaml\n",
    "a path from above": "cd scripts; torchrun ../train.py ../recipes/$1.yaml\n",
    "an option": "torchrun train.py --config recipes/$1.yaml\n",
}


@pytest.mark.parametrize("case", LOOPS)
def test_a_recipe_that_a_line_may_name_is_read_by_its_script(case: str, tmp_path: Path) -> None:
    project(
        tmp_path,
        {"train.py": OWN, "run.sh": LOOPS[case], "recipes/a.yaml": RECIPE, "recipes/b.yaml": RECIPE, "scripts/x": ""},
    )
    runs = recipe_runs(tmp_path)
    assert sorted(runs) == ["a.yaml", "b.yaml"]
    for run in runs.values():
        assert run.script is not None and (run.launch, run.consumer) == (None, "transformers")
        assert run.recipe_reader == ("trl" if case == "an option" else "hf")
    assert told(tmp_path) == []


def test_a_loop_over_one_file_names_it(tmp_path: Path) -> None:
    loop = 'L=("a")\nfor f in "${L[@]}"; do torchrun train.py recipes/$f.yaml; done\n'
    project(tmp_path, {"train.py": LIBRARY, "run.sh": loop, "recipes/a.yaml": RECIPE})
    run = recipe_runs(tmp_path)["a.yaml"]
    assert run.launch is not None and run.consumer == "trl"
    assert told(tmp_path) == ["a.yaml"]


@pytest.mark.parametrize(
    "lines",
    {
        "another folder": "for f in other/*.yaml; do torchrun train.py $f; done\n",
        "another name": "torchrun train.py recipes/b-$1.yaml\n",
        "anything": "torchrun train.py $1\n",
        "any YAML": "torchrun train.py ./$1.yaml\n",
        "two scripts": "torchrun train.py recipes/$1.yaml\ntorchrun other.py recipes/$1.yaml\n",
        "an option that is no config": "torchrun train.py --output recipes/$1.yaml\n",
    }.items(),
    ids=lambda item: item[0],
)
def test_a_recipe_that_no_line_certainly_takes_stays_by_itself(lines: tuple[str, str], tmp_path: Path) -> None:
    files = {"train.py": LIBRARY, "other.py": LIBRARY, "run.sh": lines[1], "recipes/a.yaml": RECIPE}
    project(tmp_path, files)
    assert recipe_runs(tmp_path)["a.yaml"].script is None
    assert told(tmp_path) == ["a.yaml"]


@pytest.mark.parametrize(
    ("code", "silent"),
    [
        ("class DPOTrainer(Trainer):\n    pass\n", True),
        ("class OurDPOTrainer(DPOTrainer):\n    pass\n", True),
        ("@dataclass\nclass DPOConfig(TrainingArguments):\n    pass\n", True),
        ("class SFTTrainer(Trainer):\n    pass\n", False),
        ("class OurTrainer(Trainer):\n    pass\n", False),
        ("class DPOTrainerTest:\n    pass\n", False),
        ("trainer = DPOTrainer()\n", False),
    ],
)
def test_a_project_with_a_trainer_of_its_own(code: str, silent: bool, tmp_path: Path) -> None:
    """No line names the recipe: whether the library's trainer or the project's reads it, nobody knows."""
    project(tmp_path, {"code/own.py": code, "recipes/a.yaml": RECIPE})
    assert told(tmp_path) == ([] if silent else ["a.yaml"])
    assert (
        recipe_runs(tmp_path)["a.yaml"].elsewhere.trainers == ({"DPOConfig"} if silent else frozenset()) or not silent
    )
