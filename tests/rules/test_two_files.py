"""A fix that touches two files: both change or neither, and the rest of their bytes stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.linter.engine import Result
from zerocfg.linter.fixed_texts import edited
from zerocfg.linter.fixing import fix_all
from zerocfg.linter.selection import Selection

from .examples import lint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ONLY = Selection(select=("ZC103",))
YAML = """# two GPUs
distributed_type: DEEPSPEED
num_processes: 2  # both of them
deepspeed_config:
  deepspeed_config_file: ds.json
  %s  # from the forum
main_training_function: main
"""
JSON = """{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps":   "auto",
  "zero_optimization": {
    "stage": 2%s
  }
}
"""


def write(folder: Path, key: str, inside: str = "") -> tuple[Path, Path]:
    files = folder / "accelerate.yaml", folder / "ds.json"
    files[0].write_text(YAML % key)
    files[1].write_text(JSON % inside)
    return files


def fixed(folder: Path, *, unsafe: bool = True) -> tuple[dict[str, str], Result]:
    def again(texts: Mapping[str, str]) -> Result:
        return lint(folder, "transformers", ONLY, texts)

    texts, after, _ = fix_all(again({}), again, unsafe=unsafe)
    return texts, after


def test_the_key_moves_and_nothing_else(tmp_path: Path) -> None:
    yaml, json = write(tmp_path, "overlap_comm: false")
    texts, after = fixed(tmp_path)
    assert texts[str(yaml)] == (YAML % "gone").replace("  gone  # from the forum\n", "")
    assert texts[str(json)] == JSON % ',\n    "overlap_comm": false'
    assert after.diagnostics == []


@pytest.mark.parametrize(
    ("written", "moved"),
    [
        ("reduce_bucket_size: 5e8", '"reduce_bucket_size": 500000000.0'),
        ("reduce_bucket_size: auto", '"reduce_bucket_size": "auto"'),
        ("offload_param: {device: cpu}", '"offload_param": {"device": "cpu"}'),
        ("'stage3_max_live_parameters': 1000", '"stage3_max_live_parameters": 1000'),
    ],
)
def test_the_value_is_written_as_json(tmp_path: Path, written: str, moved: str) -> None:
    _, json = write(tmp_path, written)
    texts, _ = fixed(tmp_path)
    assert texts[str(json)] == JSON % f",\n    {moved}"


def test_a_key_of_the_top_level_goes_there(tmp_path: Path) -> None:
    _, json = write(tmp_path, "prescale_gradients: true")
    texts, _ = fixed(tmp_path)
    assert texts[str(json)] == (JSON % "").replace("  }\n}", '  },\n  "prescale_gradients": true\n}')


def test_a_value_that_would_not_count_there_either_stays(tmp_path: Path) -> None:
    """accelerate silences DeepSpeed's log, whatever its config says."""
    write(tmp_path, "steps_per_print: 10")
    texts, _ = fixed(tmp_path)
    assert texts == {}


@pytest.mark.parametrize("value", ["[1, 2]", "'five'", "2000-01-01", "{a: 1}", ".nan"])
def test_what_deepspeed_refuses_stays(tmp_path: Path, value: str) -> None:
    write(tmp_path, f"reduce_bucket_size: {value}")
    texts, after = fixed(tmp_path)
    assert texts == {} and [found.code for found in after.diagnostics] == ["ZC103"]


def test_a_key_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "overlap_comm: false", ',\n    "overlap_comm": true')
    texts, _ = fixed(tmp_path)
    assert texts == {}


def test_it_is_no_safe_fix(tmp_path: Path) -> None:
    write(tmp_path, "overlap_comm: false")
    assert fixed(tmp_path, unsafe=False)[0] == {}


def test_both_files_or_neither(tmp_path: Path) -> None:
    """One edit that does not fit keeps the other from being applied."""
    write(tmp_path, "overlap_comm: false")
    found = lint(tmp_path, "transformers", ONLY).diagnostics[0]
    assert found.fix is not None
    assert {file.name for file, _ in found.fix.edits} == {"accelerate.yaml", "ds.json"}
    texts = edited(found)
    assert texts is not None and len(texts) == 2
    for file, _ in found.fix.edits:
        if file.name == "ds.json":
            file.path = None
    assert edited(found) is None


def test_a_json_that_cannot_be_edited_keeps_the_yaml(tmp_path: Path) -> None:
    yaml, json = write(tmp_path, "overlap_comm: false")
    json.write_text(json.read_text().replace('"zero_optimization": {\n    "stage": 2\n  }', '"zero_optimization": []'))
    texts, _ = fixed(tmp_path)
    assert texts == {} and yaml.read_text() == YAML % "overlap_comm: false"
