"""LLaMA-Factory, axolotl and ms-swift: who reads their files, and what of them reaches the Trainer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from zerocfg.frontends.registry import names, recognise, ships_config
from zerocfg.linter.selection import Selection
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.run.model import Run

LLAMAFACTORY = (
    "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "template: llama3\ndataset: alpaca\noutput_dir: out\nper_device_train_batch_size: 1\n"
    "gradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\nbf16: true\n"
)
AXOLOTL = (
    "base_model: NousResearch/Llama-3.2-1B\ndatasets:\n  - path: data\n    type: alpaca\nadapter: lora\n"
    "micro_batch_size: 2\ngradient_accumulation_steps: 8\nlearning_rate: 2e-4\nbf16: auto\n"
)
DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": %s, "bf16": {"enabled": %s}, '
    '"zero_optimization": {"stage": 2}}\n'
)


def linted(folder: Path, consumer: str | None = None) -> list[tuple[str, str, str]]:
    found = Job([folder], Settings(), Selection(), consumer, root=folder).lint().diagnostics
    return [(d.code, d.severity.value, d.span.path) for d in found if d.severity.value != "note"]


def the_run(folder: Path, files: dict[str, str]) -> Run:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (run,) = find_runs([folder], Files(), root=folder)[0]
    return run


@pytest.mark.parametrize(
    ("line", "recipe", "reader"),
    [
        ("FORCE_TORCHRUN=1 llamafactory-cli train recipe.yaml", LLAMAFACTORY, "llamafactory"),
        ("accelerate launch --config_file fsdp.yaml src/train.py recipe.yaml", LLAMAFACTORY, "llamafactory"),
        ("axolotl train recipe.yaml", AXOLOTL, "axolotl"),
        ("accelerate launch -m axolotl.cli.train recipe.yaml", AXOLOTL, "axolotl"),
        ("swift sft recipe.yaml", "model: Qwen/Qwen2.5-7B\ntuner_type: lora\ndeepspeed: ds.json\n", "swift"),
    ],
)
def test_a_launch_line_tells_the_reader(tmp_path: Path, line: str, recipe: str, reader: str) -> None:
    recipe = recipe if "deepspeed:" in recipe else recipe + "deepspeed: ds.json\n"
    files = {"ds.json": DS % ('"auto"', '"auto"'), "recipe.yaml": recipe, "train.sh": line + "\n"}
    run = the_run(tmp_path, files)
    assert run.launch is not None
    assert (run.consumer, run.deepspeed_route) == (reader, "trainer")
    assert run.deepspeed is not None
    assert run.framework_recipe is not None
    assert run.recipe is None


SWIFT_LINE = "torchrun --nproc_per_node 8 train.py --model m --deepspeed {}\n"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("zero2", []),
        ("default-zero3", []),
        ("zero3-offload", []),
        ("zero4", [("ZC703", "warning", "")]),
    ],
)
@pytest.mark.parametrize("main", ["sft_main", "pt_main", "rlhf_main"])
def test_a_script_that_calls_ms_swift_has_its_presets(
    tmp_path: Path, main: str, name: str, found: list[tuple[str, str, str]]
) -> None:
    (tmp_path / "train.py").write_text(f"from swift.llm import {main}\n{main}()\n", encoding="utf-8")
    (tmp_path / "run.sh").write_text(SWIFT_LINE.format(name), encoding="utf-8")
    assert linted(tmp_path) == found


def test_a_script_that_calls_no_training_of_ms_swift_has_no_presets(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from swift.llm import infer_main\ninfer_main()\n", encoding="utf-8")
    (tmp_path / "run.sh").write_text(SWIFT_LINE.format("zero2"), encoding="utf-8")
    assert linted(tmp_path) == [("ZC703", "warning", "")]


def test_a_script_that_calls_ms_swift_beside_a_trainer_tells_no_reader(tmp_path: Path) -> None:
    text = "from swift.llm import sft_main\nfrom transformers import Trainer\nsft_main()\nTrainer().train()\n"
    run = the_run(tmp_path, {"train.py": text, "ds.json": DS % (4, "true"), "run.sh": SWIFT_LINE.format("ds.json")})
    assert run.script is not None and run.script.reader is None
    (tmp_path / "train.py").write_text(text.replace("Trainer().train()\n", ""), encoding="utf-8")
    (run,) = find_runs([tmp_path], Files(), root=tmp_path)[0]
    assert (run.consumer, run.deepspeed_route) == ("swift", "trainer")
    assert run.deepspeed is not None


def test_options_alone_tell_llamafactory(tmp_path: Path) -> None:
    line = "deepspeed src/train.py --deepspeed ds.json --stage sft --finetuning_type lora --output_dir out\n"
    run = the_run(tmp_path, {"ds.json": DS % (4, "true"), "train.sh": line})
    assert run.consumer == "llamafactory"


def test_an_accumulation_of_their_own_against_the_json(tmp_path: Path) -> None:
    """LLaMA-Factory and axolotl hand `gradient_accumulation_steps` on as it is: train() refuses the difference."""
    for name, text in (("llamafactory", LLAMAFACTORY), ("axolotl", AXOLOTL)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "recipe.yaml").write_text(text + "deepspeed: ds.json\n", encoding="utf-8")
        (folder / "ds.json").write_text(DS % (4, '"auto"'), encoding="utf-8")
        assert linted(folder) == [("ZC201", "error", "gradient_accumulation_steps")]
        (folder / "ds.json").write_text(DS % (8, '"auto"'), encoding="utf-8")
        assert linted(folder) == []


def test_axolotl_resolves_bf16_itself(tmp_path: Path) -> None:
    files = {"ds.json": DS % (8, "true"), "axolotl.yaml": AXOLOTL + "deepspeed: ds.json\n"}
    run = the_run(tmp_path, files)
    assert linted(tmp_path) == []
    assert run.effective.value("gradient_accumulation_steps") == 8
    (tmp_path / "ds.json").write_text(DS % (8, "false"), encoding="utf-8")
    assert linted(tmp_path) == []
    text = AXOLOTL.replace("bf16: auto", "bf16: true") + "deepspeed: ds.json\n"
    (tmp_path / "axolotl.yaml").write_text(text, encoding="utf-8")
    assert [code for code, *_ in linted(tmp_path)] == ["ZC302"]


def test_their_keys_are_theirs(tmp_path: Path) -> None:
    """Nothing is said of keys that TrainingArguments does not know, or has removed, nor of `2e-4`."""
    own = "warmup_ratio: 0.1\nevaluation_strategy: 'no'\nnum_epochs: 3\nlr_scheduler: cosine\nbf_16: yes\n"
    (tmp_path / "a.yaml").write_text(AXOLOTL + own, encoding="utf-8")
    (tmp_path / "b.yaml").write_text(LLAMAFACTORY + "warmup_ratio: 0.1\ncutoff_len: 2048\nval_size: 0.1\n", "utf-8")
    result = Job([tmp_path], Settings(), Selection(), root=tmp_path).lint()
    assert [d.code for d in result.diagnostics] == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (AXOLOTL + "deepspeed: deepspeed_configs/zero2.json\n", 0),
        (AXOLOTL + "deepspeed: my_configs/zero2.json\n", 1),
        (LLAMAFACTORY + "deepspeed: examples/deepspeed/ds_z3_config.json\n", 0),
        ("model: Qwen/Qwen2.5-7B\ntuner_type: full\ndeepspeed: zero3\nbf16: true\n", 0),
    ],
)
def test_presets_are_no_missing_files(tmp_path: Path, text: str, missing: int) -> None:
    run = the_run(tmp_path, {"recipe.yaml": text})
    assert len(run.missing) == missing
    assert run.effective.value("engine") == "deepspeed"


def test_words_of_the_line_beat_the_recipe(tmp_path: Path) -> None:
    files = {
        "ds.json": DS % (4, "true"),
        "recipe.yaml": LLAMAFACTORY + "deepspeed: ds.json\n",
        "train.sh": "llamafactory-cli train recipe.yaml gradient_accumulation_steps=4\n",
    }
    the_run(tmp_path, files)
    assert linted(tmp_path) == []


def test_the_consumer_option_makes_a_plain_recipe_theirs(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "output_dir: out\nper_device_train_batch_size: 1\nlogging_steps: 1\neval_steps: 5\nlr_schedule: cosine\n",
        encoding="utf-8",
    )
    assert linted(tmp_path, "transformers") != []
    assert linted(tmp_path, "axolotl") == []


def test_what_is_recognised() -> None:
    assert recognise({"model_name_or_path": "m", "per_device_train_batch_size": 1, "stage": 2}) is None
    assert recognise({"base_model": "m", "output_dir": "out"}) is None
    assert recognise({"model": "m", "dataset": "d"}) is None
    assert names() == ("llamafactory", "axolotl", "swift")
    assert ships_config("swift", "zero3_offload")
    assert not ships_config("swift", "ds.json")
    assert not ships_config("transformers", "zero3")


ODD = (None, True, 0, -1, 1.5, "", "auto", "1e-4", "${x}", [], [1], {}, {"a": 1})


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize(
    "key", ["deepspeed", "gradient_accumulation_steps", "learning_rate", "bf16", "stage", "optim", "micro_batch_size"]
)
def test_nothing_odd_stops_the_reading(tmp_path: Path, key: str, value: object) -> None:
    for name, base in (
        ("a", {"model_name_or_path": "m", "finetuning_type": "lora", "stage": "sft"}),
        ("b", {"base_model": "m", "datasets": [], "micro_batch_size": 1}),
        ("c", {"model": "m", "tuner_type": "lora"}),
    ):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**base, "bf16": True, key: value}), encoding="utf-8")
    linted(tmp_path)
