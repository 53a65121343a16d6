"""Parts of what writes a build: folders that are held, keys of refused values, and what is read back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.build.conftest import Workplace, job
from zerocfg.emit import exclusive as folders
from zerocfg.emit import lenient_json
from zerocfg.emit.accelerate_yaml import render
from zerocfg.emit.files import Emitted, emit
from zerocfg.emit.lock import Lock
from zerocfg.emit.values import InvalidConfigError, typed
from zerocfg.emit.verify import differences, emitted_run
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.record import replace
from zerocfg.resolve.build import build_plans
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_folders_that_stay_empty_go_again(tmp_path: Path) -> None:
    a, b = tmp_path / "out" / "a", tmp_path / "out" / "b"
    before = descriptors()
    with folders.exclusive([a, b]):
        assert a.is_dir() and b.is_dir() and descriptors() == before + 2
    assert descriptors() == before and list(tmp_path.iterdir()) == []
    with folders.exclusive([a, b]):
        (a / "file").write_text("")
    assert a.is_dir() and not b.exists()
    (tmp_path / "mine").mkdir()
    with folders.exclusive([tmp_path / "mine"]):
        pass
    assert (tmp_path / "mine").is_dir()


def test_a_folder_that_is_held_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError("it has no patience")

    monkeypatch.setattr(folders, "PATIENCE", 0.0)
    monkeypatch.setattr(folders.time, "sleep", sleep)
    before = descriptors()
    with folders.exclusive([tmp_path]):
        busy = pytest.raises(folders.BusyError, match="another build of this folder is running")
        with busy, folders.exclusive([tmp_path]):
            raise AssertionError("it was held")
        assert descriptors() == before + 1
    with folders.exclusive([tmp_path]):
        pass
    assert descriptors() == before


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage"),
        ({"zero_optimization": {"stage": "x"}}, "zero_optimization.stage"),
        ({"zero_optimization": {"leaf_module": {"classes": ["a", 3]}}}, "zero_optimization.leaf_module.classes.1"),
        ({"data_types": {"grad_accum_dtype": 3}}, "data_types.grad_accum_dtype"),
    ],
)
def test_the_key_of_a_refused_value(data: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        typed(DeepSpeedConfig, data)
    assert str(caught.value).startswith(f"DeepSpeedConfig: {key}: ")


@pytest.mark.parametrize(("facts", "parameters"), [({"parameters": 7}, 7), ({"parameters": "7"}, None), ({}, None)])
def test_the_parameters_that_a_lock_knows(facts: dict[str, Any], parameters: int | None) -> None:
    assert Lock(run="a", model_facts=facts).parameters == parameters


def made(workplace: Workplace, **run: Any) -> tuple[Emitted, Any]:
    deepspeed = {"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000000}}
    path = workplace.write(job(deepspeed=deepspeed, **run))
    (built,) = build_plans(read_spec(path, "zerocfg.yaml"))
    assert built.plan is not None
    return emit(built.plan, workplace.folder / "out"), built.run


@pytest.mark.parametrize(
    ("name", "old", "new", "key"),
    [
        ("ds_config.json", '"stage": 2', '"stage": 1', "zero_optimization.stage"),
        ("ds_config.json", "1000000", "2000000", "zero_optimization.reduce_bucket_size"),
        ("accelerate.yaml", "num_processes: 8", "num_processes: 4", "num_processes"),
        ("accelerate.yaml", "distributed_type: DEEPSPEED", "distributed_type: MULTI_GPU", "engine"),
    ],
)
def test_a_file_that_says_something_else_would_be_noticed(
    name: str, old: str, new: str, key: str, workplace: Workplace
) -> None:
    one, run = made(workplace)
    read = emitted_run(one, run)
    assert differences(one, read) == [] and read.spec is None and run.spec is not None
    text = one.files[name].decode()
    assert old in text
    one.files[name] = text.replace(old, new, 1).encode()
    assert key in [found.key for found in differences(one, emitted_run(one, run))]


def test_several_nodes_read_back_as_they_are_started(workplace: Workplace) -> None:
    """Their rank and address come from the launch line, not from the file."""
    one, run = made(workplace, hardware="2x8xA100-80GB")
    assert differences(one, emitted_run(one, run)) == []
    assert emitted_run(one, run).effective.value("num_machines") == 2


FIXED = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5}


@pytest.mark.parametrize("config", ["ours.yaml", "conf/ours.json"])
def test_arguments_in_a_file_that_is_not_here_stay_unknown(workplace: Workplace, config: str) -> None:
    """The script opens it by itself, and it may hold any of them: no default of the Trainer differs from the file."""
    launch = f"accelerate launch --config_file acc.yaml train.py --output_dir out --config {config}\n"
    files = job(deepspeed=FIXED | {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}})
    del files["recipe.yaml"]
    files["acc.yaml"] = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 8,
        "deepspeed_config": {"deepspeed_config_file": "ds.json"},
    }
    files["train.sh"] = launch
    run: dict[str, Any] = {"consumer": "trl", "script": "train.py", "launch": "train.sh", "accelerate": "acc.yaml"}
    files["zerocfg.yaml"] = {"version": 1, "runs": {"a": {**run, "hardware": "8xA100-80GB"}}}
    built, _ = workplace.built(files)
    assert {name: built[name] for name in FIXED} == FIXED
    files["train.sh"] = launch.replace("--config ours.yaml", "").replace("--config conf/ours.json", "")
    result = workplace.build(workplace.write(files), "--force")
    assert result.exit_code == 1, "without such a file the defaults hold"
    assert "ds train_micro_batch_size_per_gpu=1 vs hf per_device_train_batch_size=8" in result.output
    assert "an error of zerocfg" not in result.output


def test_what_is_not_known_is_no_difference(workplace: Workplace) -> None:
    one, run = made(workplace)
    read = emitted_run(one, run)
    assert differences(one, read) == []
    name = "zero_optimization.reduce_bucket_size"

    def with_value(*setting: Setting) -> Run:
        settings = {key: value for key, value in read.effective.settings.items() if key != name}
        settings |= dict.fromkeys([name] * len(setting), *setting)
        return replace(read, effective=replace(read.effective, settings=settings))

    unknown = Setting(UNKNOWN, Origin("computed", "set in the script"))
    assert differences(one, with_value(unknown)) == []
    for setting in ((), (replace(unknown, origin=Origin("default", "the releases differ")),)):
        (found,) = differences(one, with_value(*setting))
        assert found.key == name
        assert found.message == "an error of zerocfg: planned 1000000, but the emitted files do not give it"
    (found,) = differences(one, with_value(Setting(True, Origin("file"))))
    assert found.message == "an error of zerocfg: planned 1000000, but the emitted files give True"


def test_comments_stand_beside_values(workplace: Workplace) -> None:
    one, _ = made(workplace)
    text = render(one.plan)
    data = yaml.safe_load(text)
    assert (data["distributed_type"], data["num_processes"]) == ("DEEPSPEED", 8)
    assert any(line.partition("# ")[0].strip() and "# " in line for line in text.splitlines())


@pytest.mark.parametrize(
    ("value", "number", "whole"),
    [
        (3, 3.0, 3),
        (3.7, 3.7, 3),
        (-2, -2.0, -2),
        (True, None, None),
        ("3", None, None),
        (None, None, None),
        (float("inf"), None, None),
        (float("nan"), None, None),
        (1e18, None, None),
        (-1e18, None, None),
        (9e17, 9e17, 900000000000000000),
    ],
)
def test_numbers_of_a_lock_that_somebody_edited(value: object, number: float | None, whole: int | None) -> None:
    assert (lenient_json.number(value), lenient_json.integer(value)) == (number, whole)
    assert lenient_json.numbers([value, "x", 1]) == ((1.0,) if number is None else (number, 1.0))


def test_other_values_of_a_lock_that_somebody_edited() -> None:
    assert lenient_json.mappings([{"a": 1}, 2, [], {}]) == [{"a": 1}, {}] and lenient_json.mappings({"a": 1}) == []
    assert lenient_json.mapping({"a": 1}) == {"a": 1} and lenient_json.mapping([1]) == {}
    assert lenient_json.items([1]) == [1] and lenient_json.items("ab") == [] and lenient_json.numbers(3) == ()
    assert lenient_json.text("a") == "a" and lenient_json.text(1) is None
    assert lenient_json.texts(["a", 1]) == ("a", "1") and lenient_json.texts("ab") == ()
