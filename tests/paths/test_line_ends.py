"""Files of Windows: lines that end with CR LF, and a mark at the beginning. A change keeps what it does not mean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.api import lint

YAML = b"distributed_type: DEEPSPEED\r\nnum_processes: 8\r\nmixed_precision: bf16\r\n"
YAML += b"deepspeed_config:\r\n  zero_stage: 3\r\n  stage3_gather_16bit_weights_on_model_save: true  # whole\r\n"
JSON = b'{\r\n  "train_batch_size": 8,\r\n  "gradient_cliping": 1.0,\r\n  "zero_optimization": {"stage": "2"}\r\n}\r\n'
RECIPE = b"output_dir: out\r\nper_device_train_batch_size: 4\r\nlearning_rate: 2e-5\r\nbf16: true\r\n"
FIXED = {
    "accelerate.yaml": (YAML, YAML.replace(b"stage3_gather_16bit_weights_on_model_save", b"zero3_save_16bit_model")),
    "ds.json": (JSON, JSON.replace(b"cliping", b"clipping").replace(b'"2"', b"2")),
    "recipe.yaml": (RECIPE, RECIPE.replace(b"2e-5", b"2.0e-5")),
}


def _zerocfg(*words: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "zerocfg", *words], cwd=cwd, capture_output=True, timeout=60)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "mark"])
def test_fixes_keep_the_ends_of_lines(mark: bytes, tmp_path: Path) -> None:
    for name, (before, _) in FIXED.items():
        # A mark before JSON is an error of its own: the json module refuses it.
        (tmp_path / name).write_bytes(before if name == "ds.json" else mark + before)
    (tmp_path / "train.sh").write_bytes(b"torchrun --nproc_per_node 2 train.py recipe.yaml\n")
    done = _zerocfg("lint", "--consumer", "transformers", "--fix", "--exit-zero", cwd=tmp_path)
    assert b"Applied" in done.stderr, done.stdout + done.stderr
    for name, (_, after) in FIXED.items():
        assert (tmp_path / name).read_bytes() == (after if name == "ds.json" else mark + after), name


def test_places_are_those_of_the_same_file_with_other_ends(tmp_path: Path) -> None:
    seen = []
    for ends in (b"\r\n", b"\n"):
        (tmp_path / "ds.json").write_bytes(JSON.replace(b"\r\n", ends))
        found = lint(tmp_path / "ds.json").diagnostics
        seen.append([(one.code, one.span.start, one.span.end, one.message) for one in found])
    assert seen[0] == seen[1] and len(seen[0]) >= 2


def test_ignores_are_added_with_the_ends_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_bytes(RECIPE)
    done = _zerocfg("lint", "--notes", "--add-ignore", "recipe.yaml", cwd=tmp_path)
    text = (tmp_path / "recipe.yaml").read_bytes()
    assert done.returncode == 0 and b"zerocfg: ignore[ZC005]" in text
    assert text.count(b"\n") == text.count(b"\r\n") and text.replace(b"\r\n", b"").count(b"\r") == 0
    assert b"learning_rate: 2e-5" in text


def test_a_script_with_such_ends_is_read(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_bytes(YAML)
    (tmp_path / "train.sh").write_bytes(b"accelerate launch --config_file accelerate.yaml train.py\r\n")
    found = lint(tmp_path).diagnostics
    assert "ZC401" in {one.code for one in found}
