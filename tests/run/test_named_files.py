"""Whichever file of a run is named, the run is found: also where code, a cell or a page starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerocfg import api
from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import files_of

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "gradient_clippin": 1}'
LINE = "deepspeed run/train.py --deepspeed_config conf/ds.json"
YAML = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: conf/ds.json\n"
SCRIPT = "import deepspeed\ndef main(args):\n    deepspeed.initialize(args=args, model=None)\n"

STARTED = {
    "by a page": {"README.md": f"```bash\n{LINE}\n```\n"},
    "by a cell": {"book.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": [f"!{LINE}"]}]})},
    "by code": {"go.py": f"import subprocess\nsubprocess.run({LINE.split()})\n"},
    "by code, through another config": {
        "go.py": f"import subprocess\nsubprocess.run({['accelerate', 'launch', '--config_file', 'acc.yaml', 'a.py']})",
        "acc.yaml": YAML,
    },
    "as a module": {"run.sh": "deepspeed --module run.train --deepspeed_config conf/ds.json\n"},
    "from where the script lies": {
        "run/go.sh": 'deepspeed "$(dirname "$0")/train.py" --deepspeed_config "$(dirname "$0")/../conf/ds.json"\n'
    },
    "by itself": {
        "alone.py": "from transformers import TrainingArguments\nTrainingArguments(deepspeed='conf/ds.json')\n"
    },
}


@pytest.mark.parametrize("case", STARTED)
def test_every_file_of_a_run_stands_for_it(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    for name, text in {"conf/ds.json": CONFIG, "run/train.py": SCRIPT, **STARTED[case]}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    runs, _ = find_runs([tmp_path], Files(), root=tmp_path, scripts=True)
    (run,) = (one for one in runs if one.deepspeed is not None and (one.launch or one.script))
    expected = {(one.code, one.span.path) for one in lint_runs([run]).diagnostics}
    assert ("ZC102", "gradient_clippin") in expected
    named = {file.path for file in files_of(run) if file.path is not None} | {run.entry_point}
    assert len(named) >= 2
    for path in sorted(filter(None, named)):
        alone, _ = find_runs([path], Files(), root=tmp_path, scripts=True)
        assert run.name in {one.name for one in alone}, path
        assert expected <= {(one.code, one.span.path) for one in lint_runs(alone).diagnostics}, path


@pytest.mark.parametrize("makes_one", ["", "mkdir -p ds\n"])
def test_a_folder_in_the_place_of_a_file(makes_one: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate opens it, which is an IsADirectoryError; a path to nothing is told in other words."""
    acc = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\n"
    for name, there in (("folder", "ds"), ("nothing", "gone")):
        folder = tmp_path / name
        (folder / ".git").mkdir(parents=True)
        (folder / "ds").mkdir()
        (folder / "acc.yaml").write_text(f"{acc}deepspeed_config:\n  deepspeed_config_file: {there}\n")
        (folder / "run.sh").write_text(f"{makes_one}accelerate launch --config_file acc.yaml train.py\n")
        (folder / "train.py").write_text("print(1)\n")
        monkeypatch.chdir(folder)
        (told,) = (item for item in api.lint(".").diagnostics if item.code == "ZC703")
        words = {"folder": "ds is a folder, and a file is read there", "nothing": "gone was not found"}
        assert told.severity.value == "warning" and told.message.startswith(words[name])
        assert (told.span.file.name, told.span.path) == ("acc.yaml", "deepspeed_config.deepspeed_config_file")
