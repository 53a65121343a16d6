"""What a build emits went through the typed models: it is what they hold, and what they refuse is never written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import zerocfg
from tests.conftest import ROOT
from zerocfg.emit.values import InvalidConfigError, typed
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.models.training_arguments import TrainingArguments

BUILT = sorted(ROOT.glob("examples/*/built/*/"))


def test_it_is_what_the_library_makes_of_it() -> None:
    made = typed(DeepSpeedConfig, {"zero_optimization": {"stage": "3", "prefetch_bucket_size": 5e8}, "mine": {"a": 1}})
    assert made == {"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 500_000_000}, "mine": {"a": 1}}
    assert typed(TrainingArguments, {"learning_rate": "5e-5"}) == {"learning_rate": 5e-5}


def test_parameters_keep_all_their_keys() -> None:
    optimizer = {"type": "lamb", "params": {"lr": 0.1, "max_coeff": 3.0}}
    assert typed(DeepSpeedConfig, {"optimizer": optimizer}) == {"optimizer": optimizer}


def test_a_config_that_is_refused_is_a_bug_of_ours() -> None:
    with pytest.raises(InvalidConfigError, match=r"DeepSpeedConfig: zero_optimization\.stage: "):
        typed(DeepSpeedConfig, {"zero_optimization": {"stage": 4}})


def test_there_are_builds() -> None:
    assert len(BUILT) > 5


@pytest.mark.parametrize("folder", BUILT, ids=lambda folder: f"{folder.parts[-3]}-{folder.name}")
def test_committed_builds_load(folder: Path) -> None:
    for name, read in (("ds_config.json", json.loads), ("accelerate.yaml", yaml.safe_load)):
        if (folder / name).is_file():
            loaded = zerocfg.load(folder / name)
            assert loaded.model.model_dump(exclude_unset=True, serialize_as_any=True) == read(
                (folder / name).read_text()
            ), "no value that its library would read as another one"
