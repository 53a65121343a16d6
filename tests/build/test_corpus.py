"""Builds from real config files of public repositories: none crashes zerocfg, and what is built means the same.

Each file becomes the one source of a run whose recipe agrees with it where it says numbers of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.build.conftest import Workplace, spec
from tests.build.test_parity import case_of, environment
from zerocfg.run.discover import Files

SUFFIXES = (".json", ".yaml", ".yml")
MODEL = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16}
RANKS = 8
AGREE = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.weight_decay": "weight_decay",
    "optimizer.params.eps": "adam_epsilon",
    "scheduler.params.warmup_max_lr": "learning_rate",
    "scheduler.params.warmup_num_steps": "warmup_steps",
    "scheduler.params.total_num_steps": "max_steps",
}
"""Key of a DeepSpeed config -> the argument that the Trainer compares it with."""


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


def leaves(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def recipe_of(data: dict[str, Any]) -> dict[str, Any]:
    """TrainingArguments that agree with every number and switch that a DeepSpeed config holds."""
    said = dict(leaves(data))
    found: dict[str, Any] = {"output_dir": "o", "max_steps": 10, "per_device_train_batch_size": 2}
    for key, argument in AGREE.items():
        if number(said.get(key)):
            found[argument] = said[key]
    betas = said.get("optimizer.params.betas")
    if isinstance(betas, list) and len(betas) == 2:
        found |= {"adam_beta1": betas[0], "adam_beta2": betas[1]}
    batch, steps = said.get("train_batch_size"), found.get("gradient_accumulation_steps", 1)
    if number(batch) and not number(said.get("train_micro_batch_size_per_gpu")):
        found["per_device_train_batch_size"] = max(1, int(batch // (RANKS * steps)))
    precision = {name: said.get(f"{name}.enabled") for name in ("bf16", "fp16")}
    wanted = next((name for value in (True, "auto") for name, is_set in precision.items() if is_set == value), "bf16")
    return {**found, wanted: True}


def write(workplace: Workplace, path: Path, kind: str, data: dict[str, Any], consumer: str) -> Path:
    """A run in a folder of its own; returns the folder."""
    section = data.get("deepspeed_config") if kind == "accelerate" else data
    recipe = recipe_of(section if isinstance(section, dict) else {})
    name = "source" + path.suffix
    folder = workplace.folder / "job"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path, folder / name)
    run: dict[str, Any] = {"deepspeed": None, "model": "config.json", kind: name, "consumer": consumer}
    if consumer != "transformers":
        run["recipe"] = None
    text = yaml.safe_dump(recipe)  # as JSON writes it, YAML would read 1e-05 as a text
    files = {"zerocfg.yaml": spec(**run), "train.py": "", "recipe.yaml": text, "config.json": MODEL}
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
    results = played(cases, workplace.folder, root)
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


def played(cases: list[dict[str, Any]], folder: Path, root: Path) -> list[dict[str, Any]]:
    (folder / "cases.json").write_text(json.dumps(cases))
    done = subprocess.run(
        [warm.python(), str(Path(__file__).with_name("play.py")), "cases.json", "results.json"],
        cwd=folder,
        env=environment(root, folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


@pytest.mark.libs
def test_files_with_autos(workplace: Workplace, corpus: Path, root: Path, count: Callable[[str, int], None]) -> None:
    """Each is built, and no auto is left in what the real library loads; or the build says which key needs what."""
    cases, names, wrong, refused = [], [], [], 0
    for path, kind, data in sources(corpus):
        section = data.get("deepspeed_config") if kind == "accelerate" else data
        if not isinstance(section, dict) or "auto" not in dict(leaves(section)).values():
            continue
        name = str(path.relative_to(corpus))
        result = workplace.build(write(workplace, path, kind, data, "transformers"), "--force")
        if result.exit_code == 0:
            out = workplace.folder / "out" / "a"
            lock = json.loads((out / "zerocfg.lock").read_text())
            names.append(name)
            cases.append(case_of(out / "accelerate.yaml", out / "ds_config.json", RANKS, lock))
        elif result.exit_code == 1 and explained(result.output):
            refused += 1
        else:
            wrong.append(f"{name}: {result.output}")
    for name, case, seen in zip(names, cases, played(cases, workplace.folder, root), strict=True):
        if seen["error"] is not None or seen["phase"] != "done":
            wrong.append(f"{name}: {seen['phase']} {seen['error']}")
        autos = [key for key, value in leaves(json.loads(case["json"])) if value == "auto"]
        autos += [key for key, value in leaves(seen.get("config", {})) if value == "auto"]
        if autos:
            wrong.append(f"{name}: left open: {autos}")
    count("real configs with autos built and loaded by the real library", len(names))
    count("real configs with autos refused, with key, place and way out", refused)
    assert not wrong, "\n".join(wrong)
    assert len(names) > 10 * refused > 0


REASONS = {
    "ZC101": r"DeepSpeed knows no key `\w+` in `bf16` and stops at it",
    "ZC401": r"`stage3_gather_16bit_weights_on_model_save: false`: the Trainer writes .* no model weights",
    "ZC502": r"parameters are not offloaded at stage 2: DeepSpeed silently ignores `offload_param`",
}
"""Why real files with autos do not build: code -> what is said. None of it is about an auto."""


def explained(output: str) -> bool:
    """Whether every error names its key, its line in the file, and what to write instead, for a reason known here."""
    errors = re.split(r"^error\[", output, flags=re.MULTILINE)[1:]
    return bool(errors) and all(
        re.search(REASONS.get(error[:5], "$^"), error)
        and re.search(r"--> job/source\.\w+:\d+:\d+", error)
        and "= help: " in error
        for error in errors
    )


def nothing(one: Any, other: Any) -> bool:
    """Whether both are an absent offload: no section, or the device none."""
    return all(value is None or (isinstance(value, dict) and value.get("device") == "none") for value in (one, other))
