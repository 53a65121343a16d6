"""Runs that Dockerfiles start: their files, and the releases that the image installs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run
from zerocfg.run.releases import with_versions_and_settings

TRAIN = "from transformers import Trainer, TrainingArguments\n\nTrainer(None, TrainingArguments('out')).train()\n"
BASE = {"train.py": TRAIN, "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\n"}
CMD = 'CMD ["accelerate", "launch", "--config_file", "accelerate.yaml", "train.py"]\n'


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], list[Run]]:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def call(files: dict[str, str]) -> list[Run]:
        for name, text in (BASE | files).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        found, _ = find_runs([tmp_path], Files(), root=tmp_path, settle=with_versions_and_settings({}))
        return found

    return call


def test_what_the_image_installs_counts_for_its_run(runs: Callable[[dict[str, str]], list[Run]]) -> None:
    image = (
        f"FROM python:3.12\nARG V=4.56.0\nRUN pip install transformers==$V \\\n    accelerate==1.10.0\nCOPY . .\n{CMD}"
    )
    (run,) = runs({"docker/Dockerfile": image, "requirements.txt": "transformers==5.1.0\n"})
    assert (run.name, run.consumer) == ("docker/Dockerfile:6", "transformers")
    assert run.accelerate is not None and run.accelerate.name == "accelerate.yaml"
    assert run.script is not None and run.script.file.name == "train.py"
    assert run.versions == {"transformers": "==4.56.0", "accelerate": "==1.10.0"}
    (place,) = run.version_places["transformers"]
    assert place.file is not None and place.file.name == "docker/Dockerfile"
    assert run.effective.value("num_processes") == 8


def test_another_run_of_the_folder_keeps_its_own(runs: Callable[[dict[str, str]], list[Run]]) -> None:
    """Beside requirements, an image is one of several places in which the project may be installed."""
    line = "accelerate launch --config_file accelerate.yaml train.py\n"
    files = {"Dockerfile": f"RUN pip install transformers==4.56.0\n{CMD}", "requirements.txt": "transformers==5.1.0\n"}
    found = {run.name: run.versions for run in runs({**files, "train.sh": line})}
    assert found == {"Dockerfile:2": {"transformers": "==4.56.0"}, "train.sh:1": {"transformers": "==5.1.0"}}


def test_an_image_that_installs_what_files_state(runs: Callable[[dict[str, str]], list[Run]]) -> None:
    image = f"FROM python:3.12\nCOPY . .\nRUN pip install -r requirements.txt\n{CMD}"
    (run,) = runs({"Dockerfile": image, "requirements.txt": "transformers==5.1.0\n"})
    assert run.versions == {"transformers": "==5.1.0"}


def test_an_unknown_build_argument_leaves_the_release_open(runs: Callable[[dict[str, str]], list[Run]]) -> None:
    (run,) = runs({"Dockerfile": f"FROM python:3.12\nARG V\nRUN pip install transformers==$V\nCOPY . .\n{CMD}"})
    assert run.versions == {} and run.undetermined == {"transformers"}


def test_an_image_that_starts_nothing_is_no_run(runs: Callable[[dict[str, str]], list[Run]]) -> None:
    (run,) = runs({"Dockerfile": 'FROM python:3.12\nRUN pip install accelerate\nCMD ["bash"]\n'})
    assert run.name == "accelerate.yaml"
