"""`extends` and `matrix`: which runs they make, and where each key of them is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.build.conftest import Workplace, job
from zerocfg.budgets import MATRIX_RUNS
from zerocfg.resolve.spec.spec_file import SpecFile, read_spec
from zerocfg.run.discover import Files
from zerocfg.run.expand import expand
from zerocfg.run.link import runs_from_spec
from zerocfg.source.load import load

BASE = """\
version: 1
bases:
  common:
    consumer: trl
    script: train.py
    recipe: recipe.yaml
    goals: {prefer: memory, global_batch_size: 64}
    versions: {trl: "1.16"}
  large:
    extends: common
    model: large/config.json
    goals: {global_batch_size: 128}
runs:
"""


def read(folder: Path, text: str) -> SpecFile:
    path = folder / "zerocfg.yaml"
    path.write_text(text)
    return read_spec(path, "zerocfg.yaml")


def runs(folder: Path, text: str) -> dict[str, dict[str, Any]]:
    found = read(folder, text)
    assert found.problems == []
    return {name: run.data for name, run in found.runs.items()}


def test_a_run_wins_over_its_bases_and_mappings_are_merged(tmp_path: Path) -> None:
    text = (
        BASE
        + "  a:\n    extends: large\n    recipe: other.yaml\n    goals: {prefer: cost}\n    versions: {trl: null}\n"
    )
    assert runs(tmp_path, text)["a"] == {
        "consumer": "trl",
        "script": "train.py",
        "recipe": "other.yaml",
        "model": "large/config.json",
        "goals": {"prefer": "cost", "global_batch_size": 128},
        "versions": {},
    }


def test_later_bases_win_and_null_removes(tmp_path: Path) -> None:
    text = BASE + "  a: {extends: [large, common], model: null}\n  b: {extends: [common, large]}\n"
    found = runs(tmp_path, text)
    assert found["a"]["goals"]["global_batch_size"] == 64 and "model" not in found["a"]
    assert found["b"]["goals"]["global_batch_size"] == 128 and found["b"]["recipe"] == "recipe.yaml"


def test_null_is_as_if_nobody_had_written_it(workplace: Workplace) -> None:
    files = job(deepspeed={"zero_optimization": {"stage": 2}})
    run = files["zerocfg.yaml"]["runs"].pop("a")
    files["zerocfg.yaml"]["bases"] = {"b": {**run, "versions": {"trl": "1.0"}, "hosts": ["n0"], "train_samples": 5}}
    nothing = {"extends": "b", "versions": None, "hosts": None, "targets": None, "train_samples": None, "engine": None}
    files["zerocfg.yaml"]["runs"]["a"] = nothing
    spec = workplace.write(files)
    assert read_spec(spec).runs["a"].data == run
    assert workplace.zerocfg("lint", spec).exit_code == 0 and workplace.build(spec).exit_code == 0


def test_a_base_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "shared.yaml").write_text(
        "version: 1\nruns: {}\nbases:\n  x:\n    consumer: trl\n    script: run.py\n    model: org/name\n"
        "    recipe: ../recipe.yaml\n    hardware: node.json\n"
    )
    found = read(tmp_path, "version: 1\nruns:\n  a:\n    extends: team/shared.yaml#x\n")
    assert found.problems == []
    assert found.runs["a"].data == {
        "consumer": "trl",
        "script": "team/run.py",
        "model": "org/name",  # a name on the hub, not a path
        "recipe": "recipe.yaml",
        "hardware": "team/node.json",
    }
    assert str(found.place_of("a", "script")).endswith("team/shared.yaml:6:13")


def test_bases_of_bases_of_other_files(tmp_path: Path) -> None:
    for folder, extends in (("one", "../two/b.yaml#b"), ("two", "../zerocfg.yaml#root")):
        (tmp_path / folder).mkdir()
        name = {"one": "a", "two": "b"}[folder]
        entry = {"extends": extends, {"a": "recipe", "b": "deepspeed"}[name]: "x.json"}
        (tmp_path / folder / f"{name}.yaml").write_text(yaml.safe_dump({"bases": {name: entry}}))
    text = "version: 1\nbases: {root: {consumer: trl, script: s.py}}\nruns: {r: {extends: one/a.yaml#a}}\n"
    assert runs(tmp_path, text)["r"] == {
        "consumer": "trl",
        "script": "s.py",
        "recipe": "one/x.json",
        "deepspeed": "two/x.json",
    }


def test_a_matrix_is_every_combination(tmp_path: Path) -> None:
    text = BASE + (
        "  a:\n    extends: common\n    matrix:\n      model: [small/config.json, org/Big_7B, facts/own.json]\n"
        "      hardware: [8xA100-80GB, 2x8xH100]\n      goals: {fast: {prefer: throughput}}\n"
    )
    found = runs(tmp_path, text)
    assert list(found) == [
        f"a-{model}-{hardware}-fast" for model in ("small", "Big_7B", "own") for hardware in ("8xA100-80GB", "2x8xH100")
    ]
    assert found["a-Big_7B-2x8xH100-fast"]["model"] == "org/Big_7B"
    assert found["a-Big_7B-2x8xH100-fast"]["goals"] == {"prefer": "throughput", "global_batch_size": 64}


def test_labels_that_would_clash_take_more_of_the_path(tmp_path: Path) -> None:
    entry = "{consumer: trl, script: s.py, matrix: {model: [a/model/config.json, b/model/config.json]}}"
    assert list(runs(tmp_path, f"version: 1\nruns: {{r: {entry}}}\n")) == ["r-a-model", "r-b-model"]


def test_every_key_knows_its_line(tmp_path: Path) -> None:
    text = BASE + (
        "  a:\n    extends: large\n    goals: {prefer: cost}\n"
        "    matrix: {hardware: {x: 8xA100}, sequence_length: [512]}\n"
    )
    found = read(tmp_path, text)
    places = {"script": "5:13", "model": "11:12", "goals.prefer": "16:21", "goals.global_batch_size": "12:32"}
    places |= {"hardware": "17:28", "sequence_length": "17:55", "train_samples": "14:3", "": "14:3"}
    for key, place in places.items():
        assert str(found.place_of("a-x-512", key)) == f"zerocfg.yaml:{place}", key


def test_lint_and_build_see_the_same_runs(workplace: Workplace) -> None:
    files = job(deepspeed={"zero_optimization": {"stage": 2}})
    run = files["zerocfg.yaml"]["runs"]["a"]
    hardware, recipe = run.pop("hardware"), run.pop("recipe")
    files["zerocfg.yaml"]["bases"] = {"shared": run}
    matrix = {"hardware": [hardware, "2x4xH100-80GB"]}
    files["zerocfg.yaml"]["runs"] = {"a": {"extends": "shared", "recipe": recipe, "matrix": matrix}, "b": run}
    spec = workplace.write(files)
    linked = runs_from_spec(spec, Files())
    assert [one.name for one in linked] == list(read_spec(spec).runs) == ["a-8xA100-80GB", "a-2x4xH100-80GB", "b"]
    assert linked[0].recipe is not None and linked[0].deepspeed is not None
    found = read_spec(spec)
    assert found.selected("a") == ["a-8xA100-80GB", "a-2x4xH100-80GB"] and found.selected("b") == ["b"]
    with pytest.raises(ValueError, match=r"no run 'c'; it has a-8xA100-80GB, .*, b"):
        found.selected("c")
    result = workplace.build(spec, "--run", "a-2x4xH100-80GB")
    assert result.exit_code == 0, result.output
    lock = json.loads((workplace.folder / "out" / "a-2x4xH100-80GB" / "zerocfg.lock").read_text())
    assert "2x4xH100-80GB" in json.dumps(lock)
    assert workplace.zerocfg("lint", ".").exit_code == 0


def test_facts_are_the_numbers_that_they_look_like(workplace: Workplace) -> None:
    files = job(model=None)
    text = (
        yaml.safe_dump(files["zerocfg.yaml"], sort_keys=False) + "    model: {parameters: 7e9, hidden_size: 4.096e3}\n"
    )
    (run,) = runs_from_spec(workplace.write({**files, "zerocfg.yaml": text}), Files())
    assert run.model is not None and (run.model.parameters, run.model.hidden_size) == (7_000_000_000, 4096)


def test_a_missing_file_of_a_base_is_told_where_the_base_names_it(workplace: Workplace) -> None:
    files = job(deepspeed={"zero_optimization": {"stage": 2}})
    run = files["zerocfg.yaml"]["runs"]["a"]
    (workplace.folder / "team").mkdir()
    (workplace.folder / "team" / "base.yaml").write_text("bases:\n  gone:\n    recipe: nowhere.yaml\n")
    files["zerocfg.yaml"]["runs"]["a"] = {**run, "extends": "team/base.yaml#gone"}
    del files["zerocfg.yaml"]["runs"]["a"]["recipe"]
    result = workplace.build(workplace.write(files))
    assert result.exit_code == 1
    assert result.output.startswith("team/base.yaml:3:13: run a: recipe: there is no file 'team/nowhere.yaml'")


def test_lint_tells_what_makes_no_run(workplace: Workplace) -> None:
    """Also where the place is in another file."""
    (workplace.folder / "other.yaml").write_text("bases:\n  x: {extends: gone}\n")
    spec = workplace.write({"zerocfg.yaml": "version: 1\nruns:\n  a: {extends: other.yaml#x}\n"})
    result = workplace.zerocfg("lint", spec)
    assert result.exit_code == 1
    assert "ZC119" in result.output and "other.yaml:2:16" in result.output and "no base `gone`" in result.output


def test_a_model_of_the_hub_is_no_missing_file_for_lint(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(workplace.folder / "hub"))
    spec = workplace.write(job(deepspeed={"zero_optimization": {"stage": 2}}, model="org/name"))
    assert "passed" in workplace.zerocfg("lint", spec).output
    assert "hf download org/name" in workplace.build(spec).output


NAMES = st.sampled_from(["a", "b", "c", "x.yaml#a", "zerocfg.yaml#b", "a#b#c", "#a", ""])
VALUES: Any = st.recursive(
    st.none() | st.integers() | st.text(max_size=4) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | NAMES, inner, max_size=3),
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={"extends": NAMES | st.lists(NAMES, max_size=3) | VALUES, "matrix": VALUES, "goals": VALUES, "x": VALUES},
)
ENTRIES = st.dictionaries(st.sampled_from(["a", "b", "c"]), ENTRY | VALUES, max_size=3)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(bases=ENTRIES, entries=ENTRIES)
def test_nothing_that_is_written_is_too_much(tmp_path: Path, bases: Any, entries: Any) -> None:
    """Whatever is written: runs or troubles, each with a place that exists, and every written run is accounted for."""
    path = tmp_path / "zerocfg.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "bases": bases, "runs": entries}))
    document = load(path, "zerocfg.yaml", "yaml")
    found = expand(document, tmp_path, lambda _: None)
    for trouble in found.troubles:
        assert trouble.message and trouble.where.document is document
    mappings = {name for name, entry in entries.items() if isinstance(entry, dict)}
    assert {run.written for run in found.runs} <= mappings
    assert found.troubles or {run.written for run in found.runs} == mappings
    for run in found.runs:
        assert "matrix" not in run.data and "extends" not in run.data
        for key in run.data:
            assert document.get(run.where((key,)).path) is not None
    read_spec(path)


def test_diamonds_cost_nothing(tmp_path: Path) -> None:
    bases = {f"b{index}": {"extends": [f"b{index + 1}"] * 10} for index in range(40)}
    bases["b40"] = {"consumer": "trl", "script": "t.py"}
    text = yaml.safe_dump({"version": 1, "bases": bases, "runs": {"r": {"extends": "b0"}}})
    assert runs(tmp_path, text)["r"] == bases["b40"]


def test_the_largest_matrix(tmp_path: Path) -> None:
    axes = {"sequence_length": list(range(1, 17)), "train_samples": list(range(1, MATRIX_RUNS // 16 + 1))}
    entry = {"consumer": "trl", "script": "t.py", "matrix": axes}
    assert len(runs(tmp_path, yaml.safe_dump({"version": 1, "runs": {"r": entry}}))) == MATRIX_RUNS


def test_the_schema_offers_what_may_be_written(root: Path) -> None:
    import jsonschema

    schema = json.loads((root / "schemas" / "spec.json").read_text())
    check = jsonschema.Draft202012Validator(schema)
    good = {"version": 1, "bases": {"b": {"script": "t.py"}}}
    good["runs"] = {"r": {"extends": "b", "matrix": {"hardware": ["8xA100"], "goals": {"x": {"prefer": "cost"}}}}}
    assert check.is_valid(good)
    assert check.is_valid({"version": 1, "runs": {"r": {"consumer": "trl", "script": "t.py"}}})
    assert not check.is_valid({"version": 1, "runs": {"r": {"consumer": "trl"}}})
    assert not check.is_valid({"version": 1, "runs": {"r": {"extends": "b", "matrix": {"hardwre": ["8xA100"]}}}})
    run = set(schema["$defs"]["WrittenRun"]["properties"]) - {"extends", "matrix"}
    assert run == set(schema["$defs"]["Matrix"]["properties"])
