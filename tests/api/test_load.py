"""`zerocfg.load`: a file as its typed model, with places; what its library refuses, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import zerocfg
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.models.trl import Recipe

DS = """{
  "train_micro_batch_size_per_gpu": "auto", "steps_per_print": "5", "comment": "mine",
  "bfloat16": {"enabled": "yes"},
  "zero_optimization": {"stage": "3", "reduce_bucket_size": 5e8, "prefetch_bucket_size": "500_000",
    "sub_group_size": "auto", "stage3_max_live_parameters": "auto", "offload_param": null},
  "optimizer": {"type": "Lion", "params": {"lr": "auto"}}
}
"""


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_values_as_deepspeed_converts_them(tmp_path: Path) -> None:
    model = zerocfg.load(written(tmp_path, "ds.json", DS), "deepspeed").model
    zero = model.zero_optimization
    assert not isinstance(zero, bool)
    assert (zero.stage, zero.reduce_bucket_size, zero.stage3_prefetch_bucket_size) == (3, 500_000_000, 500_000)
    assert zero.sub_group_size == 1_000_000_000, "an auto that DeepSpeed drops"
    assert zero.offload_param is None
    assert model.bf16 is not None and model.bf16.enabled is True, "the section's other name"
    assert str(model.steps_per_print) == "5" and isinstance(model.steps_per_print, str), "nothing converts this one"
    assert model.train_micro_batch_size_per_gpu == "auto", "the Trainer fills it"
    assert type(model.optimizer.params).__name__ == "LionParams"
    assert model.model_extra == {"comment": "mine"}, "nobody reads it"


def test_places(tmp_path: Path) -> None:
    loaded = zerocfg.load(written(tmp_path, "ds.json", DS))
    lines = DS.splitlines()
    for key, text in (
        ("zero_optimization.stage", '"3"'),
        ("zero_optimization.stage3_prefetch_bucket_size", '"500_000"'),
        ("bf16.enabled", '"yes"'),
        ("optimizer.params.lr", '"auto"}}'),
    ):
        place = loaded.place(key)
        assert place is not None and lines[place.line - 1][place.column - 1 :].startswith(text), key
        assert str(place) == f"ds.json:{place.line}:{place.column}"
    assert loaded.place("gradient_clipping") is None and loaded.place("bf16.x.y") is None
    assert isinstance(loaded.model, DeepSpeedConfig) and loaded.model.model_fields_set >= {"bf16", "optimizer"}


REFUSED = {
    "ds.json": (
        """{"zero_optimization": {
  "stage": 4, "reduce_bucket_size": "5e8", "stagee": 3,
  "sub_group_size": 1e999,
  "offload_param": {"device": "CPU"}},
 "fp16": 3, "amp": {}, "optimizer": {"type": "AdamW", "params": {"weight_deacy": 3}}}
""",
        [
            ("2:12", "zero_optimization.stage", "4", "is none of 0, 1, 2, 3"),
            ("2:37", "zero_optimization.reduce_bucket_size", '"5e8"', "is a string that is not a whole number"),
            ("2:54", "zero_optimization.stagee", "3", "remove it: `stage` is written too"),
            ("3:21", "zero_optimization.sub_group_size", "1e999", "`1e999` is read as inf"),
            ("4:31", "zero_optimization.offload_param.device", '"CPU"', "did you mean cpu?"),
            ("5:10", "fp16", "3", "is a number, not a mapping"),
            ("5:20", "amp", "", "refuses `amp` by its presence"),
            ("5:82", "optimizer.params.weight_deacy", "3", "did you mean `weight_decay`?"),
        ],
    ),
    "acc.yaml": (
        "distributed_type: DEEPSPEED\nmixed_precision: no\nnum_machinesx: 3\ndeepspeed_config:\n"
        "  zero_stage: 5\n  gradient_clipping: abc\ndynamo_config: x\n",
        [
            ("2:18", "mixed_precision", "no", "`mixed_precision: no` is read as false"),
            ("3:16", "num_machinesx", "3", "did you mean `num_machines`?"),
            ("5:15", "deepspeed_config.zero_stage", "5", "it must be at most 3"),
            ("6:22", "deepspeed_config.gradient_clipping", "abc", "becomes the text 'abc', which is no number"),
            ("7:16", "dynamo_config", "x", "is a string, not a mapping"),
        ],
    ),
    "recipe.yaml": (
        "output_dir: out\nlearning_rate: 5e-5\nper_device_train_batch_size: eight\neval_strategy: no\nmine: 3\n"
        'warmup_ratio: 0.1\nbf16: "on"\nlr_scheduler_type: cosin\n',
        [
            ("3:30", "per_device_train_batch_size", "eight", "is a string that is not a whole number"),
            ("4:16", "eval_strategy", "no", "is read as false"),
            ("7:7", "bf16", '"on"', "is a string that is neither true nor false"),
            ("8:20", "lr_scheduler_type", "cosin", "knows no `cosin`; the training stops at it (write cosine)"),
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_place_key_and_both_readings(name: str, tmp_path: Path) -> None:
    text, expected = REFUSED[name]
    with pytest.raises(zerocfg.ValidationError) as caught:
        zerocfg.load(written(tmp_path, name, text))
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, zerocfg.Error)
    assert str(caught.value).splitlines() == [str(one) for one in caught.value.refusals]
    found = [(str(one.place), one.key, one.written) for one in caught.value.refusals]
    assert found == [(f"{name}:{place}", key, written) for place, key, written, _ in expected]
    for one, (*_, words) in zip(caught.value.refusals, expected, strict=True):
        assert words in one.message, one.message


def test_a_recipe_of_trl_has_the_keys_of_trl(tmp_path: Path) -> None:
    text = 'max_length: "512"\nlearning_rate: 5e-5\noutput_dir: out\nper_device_train_batch_size: 2\n'
    loaded = zerocfg.load(written(tmp_path, "sft.yaml", text), "recipe")
    assert isinstance(loaded.model, Recipe)
    assert (loaded.model.learning_rate, getattr(loaded.model, "max_length")) == (5e-5, 512)  # noqa: B009
    plain = zerocfg.load(written(tmp_path, "plain.yaml", text.partition("\n")[2]), "recipe").model
    assert type(plain) is TrainingArguments


def test_a_deepspeed_config_is_read_as_json_whatever_its_name(tmp_path: Path) -> None:
    text = json.dumps({"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8}})
    assert zerocfg.load(written(tmp_path, "ds.yaml", text)).kind == "deepspeed"


@pytest.mark.parametrize(
    ("name", "text", "kind", "said"),
    [
        ("a.json", "[1]", "deepspeed", "a.json: the file holds a list where a mapping"),
        ("a.json", '{"a": ', "deepspeed", "a.json:1:"),
        ("a.json", '{"fp16": {}, "fp16": {}}', "deepspeed", "a.json:1:"),
        ("a.yaml", "a: [", "recipe", "a.yaml:1:"),
        ("a.yaml", "learning: 3", None, "are those of no deepspeed, accelerate, recipe config"),
        ("a.yaml", "version: 1\nruns: {}\n", None, "are those of no deepspeed"),
        ("a.yaml", "", "accelerate", "a.yaml"),
        ("a.yaml", "x: 1", "spec", "kind is one of deepspeed, accelerate, recipe"),
    ],
)
def test_what_cannot_be_loaded(name: str, text: str, kind: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(zerocfg.Error) as caught:
        zerocfg.load(written(tmp_path, name, text), kind)
    assert said in str(caught.value) and not isinstance(caught.value, zerocfg.ValidationError)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(zerocfg.Error, match="there is no file"):
        zerocfg.load("no/such.json")
    with pytest.raises(zerocfg.Error, match="it is a folder"):
        zerocfg.load(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\0\1")
    with pytest.raises(zerocfg.Error, match="binary"):
        zerocfg.load(tmp_path / "binary.json")
