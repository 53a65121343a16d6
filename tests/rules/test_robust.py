"""No rule raises, whatever stands in the files: any value in any place, keys moved, doubled, removed."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parity.generated import entries, json_text, mistaken, yaml_text
from zerocfg.linter.engine import lint_runs
from zerocfg.resolve.facts import with_facts
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.resolve_settings import with_settings

from .examples import inside, write

ODD = [
    float("inf"), float("nan"), -float("inf"), 10**400, -(10**400), 1e308, [], {}, [[]], [{}], {"a": {"b": []}}, None,
    True, "", " ", "auto", "nan", "1e999", "ü", "x" * 5000, "-", "${VAR}", "$(command)", 0, -1, 0.1,
]  # fmt: skip


@cache
def seeds() -> list[tuple[int, int, str]]:
    """(rule, bad example, file) of every config in the examples that a plain parser reads as a mapping."""
    found = []
    for number, rule in enumerate(ALL):
        for at, example in enumerate(page_of(rule).bad):
            for name, text in example.files.items():
                if name.endswith((".json", ".yaml")) and isinstance(_read(name, text), dict):
                    found.append((number, at, name))
    return found


def _read(name: str, text: str) -> Any:
    try:
        return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        return None


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_rule_raises(data: st.DataObject, tmp_path_factory: Any) -> None:
    number, at, name = data.draw(st.sampled_from(seeds()))
    example = page_of(ALL[number]).bad[at]
    tree = data.draw(mistaken([_read(name, example.files[name])], 2))
    places = list(entries(tree))
    for _ in range(data.draw(st.integers(1, 3))):
        if places:
            into, key = data.draw(st.sampled_from(places))
            into[key] = deepcopy(data.draw(st.sampled_from(ODD)))
    text = json_text(tree) if name.endswith(".json") else yaml_text(tree)
    folder = tmp_path_factory.mktemp("odd")
    write(type(example)({**example.files, name: text}), folder)
    _check(folder)


BIG = 10**400
ZENFLOW = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"topk_ratio": 0.1}}
ACCELERATE = """\
distributed_type: .inf
num_processes: auto
mixed_precision: []
deepspeed_config: {deepspeed_config_file: ds.json}
"""
RECIPE = """\
output_dir: out
max_steps: 4
deepspeed: ds.json
per_device_train_batch_size: 1
"""


@pytest.mark.parametrize(
    ("code", "name", "text"),
    [
        ("ZC906", "ds.json", json.dumps({"train_micro_batch_size_per_gpu": BIG, "gradient_accumulation_steps": BIG})),
        ("ZC906", "zerocfg.yaml", f"sequence_length: {BIG}"),
        ("ZC906", "ds.json", json.dumps({"gradient_accumulation_steps": BIG, "zero_optimization": ZENFLOW})),
        ("ZC906", "ds.json", json.dumps({"train_batch_size": BIG, "tensor_parallel": {"autotp_size": 2}})),
        ("ZC702", "accelerate.yaml", ACCELERATE),
        *(("ZC241", "recipe.yaml", f"{RECIPE}warmup_steps: {steps}\n") for steps in (".inf", "-.inf", ".nan")),
    ],
)
def test_found_before(code: str, name: str, text: str, tmp_path: Path) -> None:
    """What random values showed once."""
    rule = next(rule for rule in ALL if rule.code == code)
    example = [example for example in page_of(rule).bad if name in example.files][-1]
    if name == "zerocfg.yaml":
        text = example.files[name].replace("sequence_length: 512", text)
    write(type(example)({**example.files, name: text}), tmp_path)
    _check(tmp_path)


def _check(folder: Path) -> None:
    files = Files()
    with inside(folder):
        runs, asked = find_runs([folder], files, root=folder)
        for run in runs:
            for consumer in (run.consumer, "deepspeed", "accelerate", "transformers", "trl"):
                read = with_settings(replace(run, consumer=consumer))
                lint_runs(with_facts([read], files), None, asked)


@pytest.mark.parametrize("parameters", [10**15, 10**15 + 1, BIG])
def test_a_model_larger_than_any(parameters: int, tmp_path: Path) -> None:
    """Its bytes fit no float."""
    example = page_of(next(rule for rule in ALL if rule.code == "ZC405")).bad[0]
    (model,) = re.findall(r"model: \{.*\}", example.files["zerocfg.yaml"])
    text = example.files["zerocfg.yaml"].replace(model, f"model: {{parameters: {parameters}, hidden_size: 1024}}")
    write(type(example)({**example.files, "zerocfg.yaml": text}), tmp_path)
    _check(tmp_path)
