"""What is wrong with a spec is said with its place, and never with a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.build.conftest import Workplace, job
from zerocfg.models.schema import compile_schema, schema_text
from zerocfg.models.spec import RunSpec, Spec, WrittenSpec
from zerocfg.resolve.spec.spec_file import read_spec

GOOD = """\
version: 1
runs:
  a:
    consumer: trl
    script: train.py
"""

WRONG = [
    ("version: 2\nruns: {a: {consumer: trl, script: t}}\n", "1:10", "must be 1"),
    (GOOD.replace("consumer", "consumr"), "4:5", "did you mean `consumer`?"),
    (GOOD.replace("    consumer: trl\n", ""), "3:3", "`consumer` is missing in `runs.a`"),
    (GOOD.replace("trl", "megatron"), "4:15", "must be 'deepspeed', 'accelerate', 'transformers' or 'trl'"),
    (GOOD.replace("train.py", "[x]"), "5:13", "must be text"),
    (GOOD.replace("a:", "a b:"), "3:3", "cannot name a run"),
    (GOOD.replace("a:", "../a:"), "3:3", "cannot name a run"),
    (GOOD + "    versions: {deepspeed: 0.19}\n", "6:27", "must be quoted"),
    (GOOD + "    model: 7\n", "6:12", "config.json"),
    (GOOD + "    model: {parameters: many}\n", "6:25", "parameters"),
    (GOOD + "    train_samples: -1\n", "6:20", "greater than 0"),
    (GOOD + "    script: other.py\n", "6:5", "script"),
    ("runs: {}\n", "1:1", "`version` is missing"),
    ("version: 1\nruns: {}\n", "2:7", "at least one run"),
    ("- 1\n", "1:1", "a spec is a mapping"),
    ("version: [\n", "2:1", ""),
    ("", "1:1", ""),
    ("\x00", "1:1", ""),
    ("a: &x [*x]\n", "1:", ""),
]


@pytest.mark.parametrize(("text", "place", "message"), WRONG)
def test_problems_have_a_place(workplace: Workplace, text: str, place: str, message: str) -> None:
    result = workplace.build(workplace.write({"zerocfg.yaml": text}))
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert any(line.startswith(f"zerocfg.yaml:{place}") and message in line for line in lines), result.output


def test_numbers_that_yaml_reads_as_text() -> None:
    run = {"consumer": "trl", "script": "t", "train_samples": "1e5", "model": {"parameters": "7e9"}}
    read = Spec.model_validate({"version": 1, "runs": {"a": run}}).runs["a"]
    assert read.train_samples == 100_000
    assert not isinstance(read.model, str) and read.model is not None and read.model.parameters == 7_000_000_000


def test_lint_reads_numbers_as_the_build_does(workplace: Workplace) -> None:
    files = job(deepspeed={"zero_optimization": {"stage": 2}}, model=None)
    text = yaml.safe_dump(files["zerocfg.yaml"], sort_keys=False)
    for more in ("model: {parameters: 7e9, hidden_size: 4.096e3}", "train_samples: 1e5", "price_per_hour: 2e0"):
        files["zerocfg.yaml"] = f"{text}    {more}\n"
        assert workplace.zerocfg("lint", workplace.write(files)).exit_code == 0, more
        assert workplace.build(workplace.write(files), "--force").exit_code == 0, more
    files["zerocfg.yaml"] = f"{text}    model: {{parameters: many}}\n"
    assert "ZC104" in workplace.zerocfg("lint", workplace.write(files)).output


def test_wrong_use(workplace: Workplace) -> None:
    spec = workplace.write(job(deepspeed={"zero_optimization": {"stage": 2}}))
    assert "no run 'b'" in workplace.build(spec, "--run", "b").output
    assert "unknown accelerator" in workplace.build(spec, "--hardware", "8xZ9000").output
    assert "cannot be read" in workplace.build(spec, "--hardware", "missing.json").output
    assert "there is no file" in workplace.build(Path("missing.yaml")).output
    for words in (["--run", "b"], ["--hardware", "8xZ9000"], ["--hardware", "missing.json"]):
        assert workplace.build(spec, *words).exit_code == 2
    assert not (workplace.folder / "out").exists()


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "none", "8xA100"]),
)
KEYS = st.sampled_from(["a", *Spec.model_fields, *RunSpec.model_fields])
VALUES: Any = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4)
)
RUNS = st.fixed_dictionaries(
    {"consumer": st.sampled_from(["trl", "transformers", "accelerate", "deepspeed"]), "script": st.just("train.py")},
    optional={
        "model": st.sampled_from(["model.json", "nowhere.json", "."]) | VALUES,
        "recipe": st.sampled_from(["recipe.yaml", "ds.json", "nowhere.yaml"]) | VALUES,
        "accelerate": st.sampled_from(["accelerate.yaml", "recipe.yaml", "garbage"]),
        "deepspeed": st.sampled_from(["ds.json", "garbage", "accelerate.yaml"]),
        "engine": st.sampled_from(["deepspeed", "ddp"]),
        "hardware": st.sampled_from(["8xA100", "2x4xT4", "2xcpu"]),
        "train_samples": st.integers(1, 10**6),
        "arguments": st.lists(st.text(max_size=5) | st.integers(), max_size=2),
    },
)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=200) | VALUES.map(lambda value: yaml.safe_dump(value)))
def test_no_garbage_is_too_much_for_the_reader(tmp_path: Path, text: str) -> None:
    path = tmp_path / "zerocfg.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    read = read_spec(path)
    assert (read.spec is None) == bool(read.problems)
    for problem in read.problems:
        assert problem.message and problem.place.line >= 1 and problem.place.column >= 1


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(run=RUNS, config=VALUES, recipe=VALUES, section=VALUES)
def test_no_garbage_is_too_much_for_the_build(
    workplace: Workplace, run: dict[str, Any], config: Any, recipe: Any, section: Any
) -> None:
    """Whatever the files hold: a build, findings, or a message; and a build that claims success has written."""
    files = {
        "zerocfg.yaml": yaml.safe_dump({"version": 1, "runs": {"a": run}}),
        "train.py": "",
        "garbage": "{[",
        "model.json": json.dumps(config, default=str),
        "ds.json": json.dumps({"zero_optimization": config, "bf16": section}, default=str),
        "recipe.yaml": yaml.safe_dump({"per_device_train_batch_size": recipe, "output_dir": "x"}),
        "accelerate.yaml": yaml.safe_dump({"distributed_type": "DEEPSPEED", "deepspeed_config": section}),
    }
    result = workplace.build(workplace.write(files), "--force")
    assert result.exit_code in (0, 1, 2)
    assert result.output.strip()


def test_the_schema_is_compiled() -> None:
    """Editors get the same format that the build reads."""
    assert json.loads(schema_text("spec")) == compile_schema(WrittenSpec, "zerocfg spec (zerocfg.yaml)")
