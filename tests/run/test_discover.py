"""Which files a walk meets."""

from __future__ import annotations

from pathlib import Path

from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs

TRAINING = """
from helpers import step
from transformers import Trainer, TrainingArguments

step()
Trainer(args=TrainingArguments(output_dir="out"))
"""


def test_a_second_look_meets_the_files_of_the_first(tmp_path: Path) -> None:
    """A module states no config of its own; that a script imports it, and so opens it, changes nothing about that."""
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "helpers.py").write_text("def step():\n    return 1\n")
    (tmp_path / "run.sh").write_text("torchrun train.py\n")
    files = Files()
    runs, asked = find_runs([tmp_path], files, root=tmp_path, scripts=True)
    opened = {Path(file.name).name for file in files.all()}
    assert opened == {"train.py", "helpers.py", "run.sh"}
    assert files.peek(tmp_path / "helpers.py") is None
    again, asked_again = find_runs([tmp_path], files, root=tmp_path, scripts=True)
    assert asked_again == asked and len(asked) == 2
    assert [run.name for run in again] == [run.name for run in runs]


def test_a_module_that_is_named_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "helpers.py"
    path.write_text("def step():\n    return 1\n")
    files = Files()
    _, asked = find_runs([path], files, root=tmp_path, scripts=True)
    assert asked == {id(files.open(path))}
