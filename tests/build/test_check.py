"""``zerocfg build --check``: what it finds, what it says, and that it writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.build.conftest import EXAMPLES, Files, Workplace, job, spec
from tests.build.test_lock import as_version_1

ZERO_2 = {"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}
BUCKET, STAGE = "zero_optimization.reduce_bucket_size", "zero_optimization.stage"
MODEL = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000}
MODEL |= {"num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 32}


def files_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


class Checked:
    """A job that was built; ``after`` changes its sources and checks the build."""

    def __init__(self, workplace: Workplace, files: Files) -> None:
        self.workplace = workplace
        self.out = workplace.folder / "out" / "a"
        workplace.built(files)

    def check(self, *words: str, code: int = 1) -> str:
        before = files_in(self.workplace.folder)
        result = self.workplace.build(self.workplace.folder / "zerocfg.yaml", "--check", *words)
        assert result.exit_code == code, result.output
        assert files_in(self.workplace.folder) == before
        return result.output

    def after(self, files: Files, *words: str) -> str:
        self.workplace.write(files)
        return self.check(*words)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


@pytest.fixture
def checked(workplace: Workplace) -> Checked:
    return Checked(workplace, job({"gradient_accumulation_steps": 1}, ZERO_2))


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_build_is_what_its_sources_give(workplace: Workplace, example: str) -> None:
    folder = workplace.example(example)
    assert workplace.build(folder).exit_code == 0
    before = files_in(workplace.folder)
    result = workplace.build(folder, "--check")
    runs = len(EXAMPLES[example])
    assert (result.exit_code, result.output) == (0, f"up to date: {runs} run{'s' * (runs > 1)} in out\n")
    assert files_in(workplace.folder) == before


# -- a source changed --------------------------------------------------------------------------------------------


def test_says_which_input_a_value_follows_from(workplace: Workplace) -> None:
    """The sentence of the issue, from a config.json that was changed."""
    sources = job(deepspeed=ZERO_2, model="model/config.json")
    found = Checked(workplace, sources | {"model/config.json": MODEL})
    text = found.after(sources | {"model/config.json": MODEL | {"hidden_size": 5120}})
    assert f"{BUCKET} 16777216 -> 26214400 because hidden_size changed 4096 -> 5120" in lines(text)
    assert "changed since it was built: model/config.json" in lines(text)
    assert "To write them again: zerocfg build zerocfg.yaml -o out" in lines(text)


def test_an_example_whose_model_grew(workplace: Workplace) -> None:
    folder = workplace.example("quickstart")
    assert workplace.build(folder).exit_code == 0
    config = folder / "model" / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 64', '"hidden_size": 128'))
    result = workplace.build(folder, "--check")
    assert result.exit_code == 1
    assert [line for line in lines(result.output) if " because " in line] == [
        f"{BUCKET} 4096 -> 16384 because hidden_size changed 64 -> 128",
        "zero_optimization.stage3_prefetch_bucket_size 3686 -> 14745 because hidden_size changed 64 -> 128",
        "zero_optimization.stage3_param_persistence_threshold 640 -> 1280 because hidden_size changed 64 -> 128",
    ]


def test_a_value_of_a_file(checked: Checked) -> None:
    stage_1 = {"zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"}}
    text = checked.after(job({"gradient_accumulation_steps": 4}, stage_1))
    column = (checked.workplace.folder / "ds.json").read_text().index('"stage"') + 1
    assert f"{STAGE} 2 -> 1 because ds.json:1:{column} says 1 now" in lines(text)
    column = (checked.workplace.folder / "recipe.yaml").read_text().index('"gradient_accumulation_steps"') + 1
    assert f"gradient_accumulation_steps 1 -> 4 because recipe.yaml:1:{column} says 4 now" in lines(text)
    assert "train_batch_size 16 -> 64 because gradient_accumulation_steps changed 1 -> 4" in lines(text)


def test_the_important_first(checked: Checked) -> None:
    changed = {"zero_optimization": {"stage": 3, "reduce_bucket_size": 5}, "wall_clock_breakdown": True}
    text = checked.after(job({"per_device_train_batch_size": 8, "weight_decay": 0.1}, changed))
    keys = [line.split()[0] for line in lines(text) if " -> " in line]
    order = ["train_batch_size", "train_micro_batch_size_per_gpu", STAGE, BUCKET, "wall_clock_breakdown"]
    assert [key for key in keys if key in order] == order
    assert keys.index("weight_decay") > keys.index("wall_clock_breakdown")
    assert "per_device_train_batch_size" not in keys  # its setting says it


def test_what_nobody_sets_any_more(checked: Checked) -> None:
    text = checked.after(job(deepspeed={"zero_optimization": {"stage": 2}}))
    line = next(line for line in lines(text) if line.startswith(BUCKET))
    assert line.startswith(f"{BUCKET} 16777216 -> 500000000 because ")
    assert line.endswith("nobody sets it; default of deepspeed 0.19.8")


def test_a_default_that_follows_the_stage(checked: Checked) -> None:
    text = checked.after(job(deepspeed={"zero_optimization": {"stage": 3, "reduce_bucket_size": 5}}))
    assert f"zero_optimization.overlap_comm false -> true because {STAGE} changed 2 -> 3" in lines(text)


def test_another_hardware(checked: Checked) -> None:
    text = checked.check("--hardware", "4xA100-80GB")
    assert "num_processes 8 -> 4 because accelerators_per_node changed 8 -> 4" in lines(text)
    assert "train_batch_size 16 -> 8 because num_processes changed 8 -> 4" in lines(text)
    assert any("hardware changed 8xA100-80GB -> 4xA100-80GB" in line for line in lines(text))


def test_another_release(checked: Checked) -> None:
    lock = json.loads((checked.out / "zerocfg.lock").read_text())
    lock["versions"]["deepspeed"] = "0.18.0"
    lock["settings"]["zero_optimization.sub_group_size"]["value"] = 7
    (checked.out / "zerocfg.lock").write_text(json.dumps(lock))
    text = checked.check()
    change = "zero_optimization.sub_group_size 7 -> 1000000000 because deepspeed changed 0.18.0 -> 0.19.8"
    assert change in lines(text)


def test_only_releases_of_libraries_that_have_the_key_are_named(checked: Checked) -> None:
    lock = json.loads((checked.out / "zerocfg.lock").read_text())
    lock["versions"] |= {"deepspeed": "0.18.0", "accelerate": "1.0.0", "transformers": "5.0.0"}
    lock["settings"]["zero_optimization.sub_group_size"]["value"] = 7
    lock["settings"]["zero_optimization.offload_param.device"]["value"] = "disk"
    (checked.out / "zerocfg.lock").write_text(json.dumps(lock))
    found = [line for line in lines(checked.check()) if " because " in line]
    assert found == [
        'zero_optimization.offload_param.device "disk" -> "none" because accelerate changed 1.0.0 -> 1.15.0 and '
        "deepspeed changed 0.18.0 -> 0.19.8",
        "zero_optimization.sub_group_size 7 -> 1000000000 because deepspeed changed 0.18.0 -> 0.19.8",
    ]


def test_a_chosen_value(workplace: Workplace) -> None:
    found = Checked(workplace, job(model={"parameters": 1e9, "hidden_size": 4096}))
    text = found.after(job(model={"parameters": 12e9, "hidden_size": 4096}))
    assert f"{STAGE} 1 -> 2 because parameters changed 1000000000 -> 12000000000" in lines(text)


def test_another_script(checked: Checked) -> None:
    text = checked.after(job(deepspeed=ZERO_2, script="other.py") | {"other.py": ""})
    assert any(line.startswith('script "train.py" -> "other.py"') for line in lines(text))
    assert "out of date with that: launch.sh" in lines(text)


def test_a_base_in_another_file(workplace: Workplace) -> None:
    files = job(deepspeed=ZERO_2)
    run = files["zerocfg.yaml"]["runs"]["a"]
    base = {"version": 1, "bases": {"b": run}}
    files |= {"zerocfg.yaml": {"version": 1, "runs": {"a": {"extends": "base.yaml#b"}}}, "base.yaml": base}
    found = Checked(workplace, files)
    run["hardware"] = "4xA100-80GB"
    text = found.after(files)
    assert "num_processes 8 -> 4 because accelerators_per_node changed 8 -> 4" in lines(text)
    assert any(line.startswith("changed since it was built: base.yaml, hardware changed") for line in lines(text))


def test_a_comment_in_a_source(checked: Checked) -> None:
    recipe = checked.workplace.folder / "recipe.yaml"
    recipe.write_text(f"# for later\n{recipe.read_text()}")
    text = checked.check()
    assert "no value is another one" in text and "changed since it was built: recipe.yaml" in text


# -- a file changed ----------------------------------------------------------------------------------------------


def test_an_edited_config(checked: Checked) -> None:
    path = checked.out / "ds_config.json"
    config = json.loads(path.read_text())
    config["zero_optimization"]["stage"] = 3
    del config["gradient_clipping"]
    path.write_text(json.dumps(config | {"wall_clock_breakdown": True}))
    text = checked.check()
    assert lines(text)[:5] == [
        "a: out/a is not what the sources give",
        "ds_config.json was edited since it was built",
        "gradient_clipping is not there, the build gives 1.0",
        f"{STAGE} is 3 there, the build gives 2",
        "wall_clock_breakdown is true there, the build does not write it",
    ]
    assert "--force" in text
    assert checked.workplace.build(checked.workplace.folder / "zerocfg.yaml", "--force").exit_code == 0
    assert checked.check(code=0) == "up to date: 1 run in out\n"


def test_an_edit_and_a_changed_source(checked: Checked) -> None:
    """The edit is told from what only follows from the sources."""
    path = checked.out / "ds_config.json"
    text = path.read_text()
    path.write_text(text.replace('"stage": 2', '"stage": 3'))
    told = lines(checked.after(job({"gradient_accumulation_steps": 4}, ZERO_2)))
    assert "train_batch_size 16 -> 64 because gradient_accumulation_steps changed 1 -> 4" in told
    assert f"{STAGE} is 3 there, the build gives 2" in told
    assert not any(line.startswith("gradient_accumulation_steps is") for line in told)
    path.write_text(json.dumps(json.loads(text)))
    assert "the values of the build before, written otherwise (order, spaces or comments)" in lines(checked.check())


def test_an_edited_accelerate_config(checked: Checked) -> None:
    path = checked.out / "accelerate.yaml"
    text = path.read_text()
    path.write_text(yaml.safe_dump(yaml.safe_load(text) | {"num_processes": 2}))
    assert "num_processes is 2 there, the build gives 8" in lines(checked.check())
    path.write_text(f"# mine\n{text}")
    assert "the same values, written otherwise (order, spaces or comments)" in lines(checked.check())
    path.write_text("a: [")
    assert any(line.startswith("cannot be read: ") for line in lines(checked.check()))
    path.write_text("- 1")
    assert "holds no mapping" in checked.check()


def test_an_edited_script(checked: Checked) -> None:
    path = checked.out / "launch.sh"
    path.write_text(path.read_text().replace("set -euo pipefail", "set -x"))
    text = checked.check()
    assert "launch.sh was edited since it was built\n    -set -x\n    +set -euo pipefail\n" in text
    path.write_text("\n".join(map(str, range(100))))
    assert "more lines" in checked.check()


def test_a_missing_file(checked: Checked) -> None:
    (checked.out / "launch.sh").unlink()
    assert "launch.sh is missing" in checked.check()
    (checked.out / "launch.sh").mkdir()
    assert "launch.sh cannot be read\n    it is a folder" in checked.check()


def test_a_missing_lock(checked: Checked) -> None:
    (checked.out / "zerocfg.lock").unlink()
    text = checked.check()
    assert lines(text)[1] == "zerocfg.lock is missing"
    (checked.out / "launch.sh").write_text("mine")
    assert "launch.sh is not what the build gives (no lock tells how it was built)" in checked.check()


def test_a_stale_file(workplace: Workplace) -> None:
    found = Checked(workplace, job(deepspeed=ZERO_2))
    text = found.after(job(engine="ddp") | {"zerocfg.yaml": spec(engine="ddp", deepspeed=None)})
    assert "ds_config.json is no longer emitted" in lines(text)
    assert 'engine "deepspeed" -> "ddp"' in text


def test_a_lock_that_was_edited(checked: Checked) -> None:
    path = checked.out / "zerocfg.lock"
    lock = json.loads(path.read_text())
    lock["settings"][STAGE]["value"] = 1
    path.write_text(json.dumps(lock))
    text = checked.check()
    assert f"{STAGE} 1 -> 2 because of something that the lock does not name (was it edited?)" in lines(text)


def test_another_release_of_zerocfg_alone_is_no_difference(checked: Checked) -> None:
    path = checked.out / "zerocfg.lock"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"zerocfg": "0.0.1"}))
    assert checked.check(code=0) == "up to date: 1 run in out\n"


def test_a_lock_of_the_first_version(checked: Checked) -> None:
    path = checked.out / "zerocfg.lock"
    path.write_text(json.dumps(as_version_1(json.loads(path.read_text()))))
    text = checked.check()
    assert "no value is another one" in text
    text = checked.after(job({"per_device_train_batch_size": 8}, ZERO_2))
    assert "train_micro_batch_size_per_gpu 2 -> 8 because recipe.yaml" in text and "distributed_type" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is no zerocfg.lock"), ('{"version": 99, "zerocfg": "7", "files": {}}', "has version 99 (zerocfg 7)")],
)
def test_a_lock_that_cannot_be_read(checked: Checked, content: str, message: str) -> None:
    (checked.out / "zerocfg.lock").write_text(content)
    text = checked.check(code=2)
    assert message in text and "out/a/zerocfg.lock" in text


def test_names_in_a_lock_lead_nowhere_else(checked: Checked) -> None:
    path = checked.out / "zerocfg.lock"
    lock = json.loads(path.read_text())
    lock["files"] |= {"../../recipe.yaml": "0", "..": "0", "": "0"}
    path.write_text(json.dumps(lock))
    assert "no longer emitted" not in checked.check()


# -- runs --------------------------------------------------------------------------------------------------------


def two_runs() -> Files:
    files: dict[str, Any] = job(deepspeed=ZERO_2)
    runs = files["zerocfg.yaml"]["runs"]
    return {**files, "zerocfg.yaml": {"version": 1, "runs": {"a": runs["a"], "b": runs["a"]}}}


def test_a_run_that_is_new(checked: Checked) -> None:
    text = checked.after(two_runs())
    assert "b: out/b is not there yet" in lines(text)
    assert checked.check("--run", "b").splitlines()[0] == "b: out/b is not there yet"


def test_a_run_that_is_gone(workplace: Workplace) -> None:
    found = Checked(workplace, two_runs())
    text = found.after(job(deepspeed=ZERO_2))
    assert "b: out/b is a build of a run that the spec no longer has" in lines(text)
    assert "b:" not in found.check("--run", "a")


@pytest.mark.parametrize(
    "damage", [{"run": {}}, {"run": ["b"], "spec_folder": 3}, {"spec_folder": "\0"}, {"inputs": 3}]
)
def test_a_damaged_lock_beside_it(checked: Checked, damage: dict[str, Any]) -> None:
    lock = json.loads((checked.out / "zerocfg.lock").read_text())
    (checked.out.parent / "b").mkdir()
    (checked.out.parent / "b" / "zerocfg.lock").write_text(json.dumps(lock | damage))
    checked.check("--run", "a", code=0)
    assert "Traceback" not in checked.workplace.build(checked.workplace.folder / "zerocfg.yaml", "--check").output


def test_the_build_of_another_spec_beside_it(workplace: Workplace) -> None:
    folder = workplace.example("quickstart")
    assert workplace.build(folder).exit_code == 0
    found = Checked(workplace, job(deepspeed=ZERO_2))
    assert found.check(code=0) == "up to date: 1 run in out\n"


def test_a_spec_that_does_not_build(checked: Checked) -> None:
    text = checked.after(job(deepspeed=ZERO_2, script="nowhere.py"))
    assert "nowhere.py" in text and "up to date" not in text


# -- JSON --------------------------------------------------------------------------------------------------------


def test_as_data(checked: Checked) -> None:
    checked.workplace.write(job({"gradient_accumulation_steps": 4}, ZERO_2))
    (checked.out / "launch.sh").unlink()
    found = json.loads(checked.check("--output-format", "json"))
    assert found["version"] == 1
    (run,) = found["runs"]
    assert (run["run"], run["folder"], run["state"]) == ("a", "out/a", "differs")
    batch = next(change for change in run["changes"] if change["key"] == "train_batch_size")
    assert batch == {
        "key": "train_batch_size",
        "of": "setting",
        "old": 16,
        "new": 64,
        "because": "gradient_accumulation_steps changed 1 -> 4",
        "inputs": {"gradient_accumulation_steps": {"old": 1, "new": 4}},
    }
    assert {"name": "launch.sh", "state": "missing", "details": []} in run["files"]
    assert run["sources"] == ["recipe.yaml"]


def test_as_data_when_up_to_date(checked: Checked) -> None:
    found = json.loads(checked.check("--output-format", "json", code=0))
    assert [run["state"] for run in found["runs"]] == ["up to date"]


def test_defaults_that_come_with_an_engine_are_counted(workplace: Workplace) -> None:
    found = Checked(workplace, job() | {"zerocfg.yaml": spec(engine="ddp", deepspeed=None)})
    text = found.after(job(deepspeed=ZERO_2))
    assert any(line.startswith(f"{STAGE} (not set) -> 2 because ds.json:1:") for line in lines(text))
    assert "zero_optimization.round_robin_gradients" not in text
    assert any(
        line.startswith("and ") and line.endswith(" that nobody sets come or go with that") for line in lines(text)
    )
