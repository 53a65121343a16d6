"""The names that the newest releases lack, against those releases: each sample is imported by a Python of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conftest import ROOT
from zerocfg.catalog.lost_names import LIBRARIES, lost_since
from zerocfg.run.config import VERSIONS

DATA: dict[str, Any] = json.loads((ROOT / "schemas/releases/lost-names.json").read_text())
TRAINING = ("accelerate", "transformers", "trl")
INSTALLED = [library for library in DATA if find_spec(library) is not None]
EACH = 60
"""One name in so many is tried."""
PROGRAM = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
for module, name in json.load(sys.stdin):
    try:
        exec(f"from {module} import {name}" if name else f"import {module}", {})
    except ImportError:
        print(json.dumps([module, name]))
    except Exception:
        pass
"""
THERE = """
import importlib, json, types, warnings
warnings.simplefilter("ignore")
found = []
for module in ("transformers", "transformers.trainer", "transformers.trainer_utils", "transformers.utils", "trl",
               "transformers.models.llama.modeling_llama", "transformers.integrations", "trl.trainer", "accelerate",
               "trl.trainer.utils", "accelerate.utils"):
    found += [[module, name] for name in dir(importlib.import_module(module))[::7]]
print(json.dumps(found))
"""


def run(program: str, given: str = "") -> str:
    done = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, text=True, check=True)
    return done.stdout


def test_they_are_those_of_the_newest_release() -> None:
    newest = {library: entry["newest"] for library, entry in DATA.items()}
    assert set(newest) == LIBRARIES
    assert {library: newest[library] for library in TRAINING} == {library: VERSIONS[library] for library in TRAINING}


@pytest.mark.parametrize(
    ("module", "name", "lost"),
    [
        ("transformers.trainer", "ALL_LAYERNORM_LAYERS", True),
        ("trl", "setup_chat_format", True),
        ("transformers.deepspeed", "HfDeepSpeedConfig", True),
        ("transformers.deepspeed", "", True),
        ("transformers.deepspeed_more", "HfDeepSpeedConfig", False),
        ("transformers.integrations.deepspeed", "HfDeepSpeedConfig", False),
        ("transformers.trainer", "", False),
        ("transformers.trainer", "Trainer", False),
        ("transformers.trainer", "never_had_it", False),
        ("transformers.no_such_module", "anything", False),
        ("trl", "SFTTrainer", False),
        ("datasets", "load_metric", True),
        ("datasets", "load_dataset", False),
        ("peft", "prepare_model_for_int8_training", True),
        ("peft", "prepare_model_for_kbit_training", False),
        ("huggingface_hub", "Repository", True),
        ("huggingface_hub", "cached_download", True),
        ("huggingface_hub", "snapshot_download", False),
        ("diffusers.pipeline_utils", "DiffusionPipeline", True),
        ("diffusers.optimization", "get_scheduler", False),
        ("transformers", "TFBertModel", False),
    ],
)
def test_names_that_projects_import(module: str, name: str, lost: bool) -> None:
    assert (lost_since(module, name) is not None) is lost


@pytest.mark.libs
def test_a_sample_cannot_be_imported() -> None:
    pytest.importorskip("trl")
    every = [
        [module, name]
        for entry in map(DATA.__getitem__, INSTALLED)
        for module, lost in (*entry["names"].items(), *((module, {"": ""}) for module in entry["modules"]))
        for names in lost.values()
        for name in (names.split() or [""])
    ]
    sample = every[::EACH]
    assert len(sample) > 20
    refused = [json.loads(line) for line in run(PROGRAM, json.dumps(sample)).splitlines() if line.startswith("[")]
    assert refused == sample


@pytest.mark.libs
def test_what_is_there_is_not_lost() -> None:
    pytest.importorskip("trl")
    there = json.loads(run(THERE).splitlines()[-1])
    assert len(there) > 500
    assert [pair for pair in there if lost_since(*pair)] == []
