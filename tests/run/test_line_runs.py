"""Launch lines as runs: which lines are runs, which files they read, what their options amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.examples import inside
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.run.model import Run

SHORT = "model_name_or_path: tiny\noutput_dir: out\nlearning_rate: 1.0e-5\nbf16: true\n"
DS = '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2}}\n'
TRAINER = "--output_dir out --save_strategy no --per_device_train_batch_size 2 --num_train_epochs 1"


def runs(folder: Path, line: str, **files: str) -> list[Run]:
    """The runs of a folder with a script that starts this line."""
    (folder / "run.sh").write_text(line, encoding="utf-8")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    with inside(folder):
        return find_runs([folder], Files(), root=folder)[0]


def test_a_line_with_trainer_options_alone_is_a_run(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, f"torchrun --nproc_per_node 2 train.py {TRAINER}\n")
    assert run.consumer == "transformers"
    assert run.effective.value("num_processes") == 2
    assert run.files == [run.launch_file]


def test_a_line_of_another_program_is_none(tmp_path: Path) -> None:
    assert runs(tmp_path, "torchrun --nproc_per_node 2 serve.py --port 80 --output_dir out\n") == []


def test_a_short_recipe_is_read_where_a_line_names_it(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "torchrun --nproc_per_node 2 train.py r.yaml\n", r_yaml=SHORT)
    assert run.recipe is not None
    assert run.recipe.kind == "recipe"
    assert run.recipe_reader == "hf"


@pytest.mark.parametrize(("more", "read"), [("", True), ("packing: true\n", True), ("camera: 1\n", False)])
def test_a_short_config_is_a_recipe_if_it_holds_nothing_else(tmp_path: Path, more: str, read: bool) -> None:
    found = runs(tmp_path, "torchrun --nproc_per_node 2 sft.py --config r.yaml\n", r_yaml=SHORT + more)
    assert [run.recipe_reader for run in found] == (["trl"] if read else [])


def test_another_mapping_is_no_recipe(tmp_path: Path) -> None:
    other = "output_dir: out\nseed: 1\ndata: {}\nmodel: {}\ncamera: {}\n"
    assert runs(tmp_path, "torchrun --nproc_per_node 2 train.py r.yaml\n", r_yaml=other) == []


def test_a_recipe_beside_options_is_joined(tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 2 train.py r.yaml --deepspeed ds.json\n"
    (run,) = runs(tmp_path, line, r_yaml=SHORT + "fp16: true\n", ds_json=DS)
    assert run.recipe is not None
    assert run.deepspeed is not None
    assert run.recipe_reader is None
    assert "fp16-and-bf16" in [failure.kind for failure in run.effective.failures]


def test_a_missing_recipe_is_noted(tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 2 train.py r.yaml\n"
    (run,) = runs(tmp_path, line)
    assert [origin.note for origin in run.missing] == ["r.yaml"]


def test_a_missing_file_that_may_be_written_is_not(tmp_path: Path) -> None:
    assert runs(tmp_path, "torchrun --nproc_per_node 2 evaluate.py results.json\n") == []


@pytest.mark.parametrize(
    ("option", "written"),
    [
        ("--output_file configs/acc.yaml", True),
        ("\\\n  --out='$HOME/acc.yaml' \\\n  --zero_stage 3", True),
        ("-o acc.yaml", True),
        ("--template acc.yaml", False),
        ("--output_file my_acc.yaml", False),
        ("--output_dir out acc.yaml", False),
    ],
)
def test_a_config_that_a_program_is_told_to_write_is_not_missing(option: str, written: bool, tmp_path: Path) -> None:
    line = f"python make.py {option}\naccelerate launch --config_file configs/acc.yaml train.py\n"
    (run,) = runs(tmp_path, line)
    assert [origin.note for origin in run.missing] == ([] if written else ["configs/acc.yaml"])


@pytest.mark.parametrize(
    ("option", "steps"),
    [
        ("--gradient_accumulation_steps 8", 8),
        ("--gradient-accumulation-steps 8", 8),
        ("--gradient_acumulation_steps 8", UNKNOWN),
        ("--gradient_accumulation_step 8", UNKNOWN),
        ("--gradient_accumulate 8", 1),
    ],
)
def test_what_a_slip_may_mean_is_unknown(tmp_path: Path, option: str, steps: object) -> None:
    line = f"torchrun --nproc_per_node 2 train.py {TRAINER} --deepspeed ds.json {option}\n"
    (run,) = runs(tmp_path, line, ds_json=DS)
    kinds = [failure.kind for failure in run.effective.failures]
    assert ("trainer-mismatch" in kinds) == (steps == 1)


def test_a_template_is_no_wrong_number(tmp_path: Path) -> None:
    line = "torchrun train.py --learning_rate '{rate}' --num_train_epochs x --save_strategy no --bf16 \\"
    (run,) = runs(tmp_path, line)
    assert [failure.message for failure in run.effective.failures] == ["num_train_epochs: 'x' is no float"]
    assert run.arguments["bf16"].value is True
