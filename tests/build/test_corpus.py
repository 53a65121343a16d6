"""Builds from real config files of public repositories: none crashes zerocfg, and what is built means the same.

Each file becomes the one source of a run whose recipe agrees with it where it says numbers of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import Workplace, spec
from tests.build.test_parity import case_of, environment
from zerocfg.run.discover import Files

SUFFIXES = (".json", ".yaml", ".yml")
MODEL = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16}
AGREE = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
}


def sources(corpus: Path) -> list[tuple[Path, str, Any]]:
    """(path, kind, data) of every accelerate and DeepSpeed config."""
    files = Files()
    found = []
    for path in sorted(corpus.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            file = files.open(path)
            if file.kind in ("accelerate", "deepspeed") and isinstance(file.data(), dict):
                found.append((path, file.kind, file.data()))
    return found


def write(workplace: Workplace, path: Path, kind: str, data: dict[str, Any], consumer: str) -> Path:
    """A run in a folder of its own; returns the folder."""
    section = data.get("deepspeed_config") if kind == "accelerate" else data
    recipe = {"output_dir": "o", "bf16": True, "max_steps": 10, "per_device_train_batch_size": 2}
    for key, argument in AGREE.items():
        value = section.get(key) if isinstance(section, dict) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            recipe[argument] = value
    name = "source" + path.suffix
    folder = workplace.folder / "job"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path, folder / name)
    run: dict[str, Any] = {"deepspeed": None, "model": "config.json", kind: name, "consumer": consumer}
    if consumer != "transformers":
        run["recipe"] = None
    files = {"zerocfg.yaml": spec(**run), "train.py": "", "recipe.yaml": recipe, "config.json": MODEL}
    workplace.write({f"job/{file}": content for file, content in files.items()})
    return folder


@pytest.mark.parametrize("consumer", ["accelerate", "deepspeed"])
def test_no_real_file_is_too_much(workplace: Workplace, corpus: Path, consumer: str) -> None:
    ends: dict[int, int] = {}
    for path, kind, data in sources(corpus)[::3]:
        if (kind, consumer) != ("accelerate", "deepspeed"):
            result = workplace.build(write(workplace, path, kind, data, consumer), "--force")
            ends[result.exit_code] = ends.get(result.exit_code, 0) + 1
    assert set(ends) <= {0, 1} and ends[0] > 3


@pytest.mark.libs
def test_real_files_mean_the_same_after_the_build(
    workplace: Workplace, corpus: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Played on the real libraries: the parsed config of the engine, before and after."""
    cases, names, chosen = [], [], []
    every = int(os.environ.get("ZEROCFG_CORPUS_EVERY", "8"))
    for path, kind, data in sources(corpus)[::every]:
        folder = write(workplace, path, kind, data, "transformers")
        result = workplace.build(folder, "--force")
        assert result.exit_code in (0, 1), result.output
        out = workplace.folder / "out" / "a"
        lock = json.loads((out / "zerocfg.lock").read_text()) if result.exit_code == 0 else {}
        if not lock or lock["plan"]["engine"] != "deepspeed":
            continue
        source = next(folder.glob("source.*"))
        cases.append(
            case_of(source if kind == "accelerate" else None, source if kind == "deepspeed" else None, 8, lock)
        )
        cases.append(case_of(out / "accelerate.yaml", out / "ds_config.json", 8, lock))
        names.append(str(path.relative_to(corpus)))
        chosen.append({name for name, one in lock["settings"].items() if one["kind"] == "chosen"})
    (workplace.folder / "cases.json").write_text(json.dumps(cases))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("play.py")), "cases.json", "results.json"],
        env=environment(root, workplace.folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((workplace.folder / "results.json").read_text())
    wrong = []
    for index, name in enumerate(names):
        before, after = results[2 * index], results[2 * index + 1]
        if after["error"] is not None or before["error"] is not None:
            wrong.append(f"{name}: before {before['error']}, after {after['error']}")
            continue
        for key, value in after["parsed"].items():
            before_value = before["parsed"][key]
            spelled = {key, key.replace("zero_optimization.", "zero_optimization.stage3_")}
            if spelled & chosen[index] or nothing(value, before_value):
                continue
            if value != before_value:
                wrong.append(f"{name}: {key} was {before_value!r}, is {value!r}")
    with capsys.disabled():
        print(f"\n{len(names)} real configs compared before and after the build")
    assert names and not wrong, "\n".join(wrong)


def nothing(one: Any, other: Any) -> bool:
    """Whether both are an absent offload: no section, or the device none."""
    return all(value is None or (isinstance(value, dict) and value.get("device") == "none") for value in (one, other))
