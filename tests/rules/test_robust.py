"""No rule raises, whatever stands in the files: any value in any place, keys moved, doubled, removed."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parity.generated import entries, json_text, mistaken, yaml_text
from zerocfg.resolve.facts import with_facts
from zerocfg.rules.engine import lint_runs
from zerocfg.rules.registry import ALL
from zerocfg.run.discover import Files
from zerocfg.run.effective import compute
from zerocfg.run.link import find_runs

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
        for at, example in enumerate(rule.bad):
            for name, text in example.files.items():
                if name.endswith((".json", ".yaml")) and isinstance(_read(name, text), dict):
                    found.append((number, at, name))
    return found


def _read(name: str, text: str) -> Any:
    try:
        return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        return None


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_rule_raises(data: st.DataObject, tmp_path_factory: Any) -> None:
    number, at, name = data.draw(st.sampled_from(seeds()))
    example = ALL[number].bad[at]
    tree = data.draw(mistaken([_read(name, example.files[name])], 2))
    places = list(entries(tree))
    for _ in range(data.draw(st.integers(1, 3))):
        if places:
            into, key = data.draw(st.sampled_from(places))
            into[key] = deepcopy(data.draw(st.sampled_from(ODD)))
    text = json_text(tree) if name.endswith(".json") else yaml_text(tree)
    folder = tmp_path_factory.mktemp("odd")
    write(type(example)({**example.files, name: text}), folder)
    files = Files()
    with inside(folder):
        runs, asked = find_runs([folder], files, root=folder)
        for run in runs:
            for consumer in (run.consumer, "deepspeed", "accelerate", "transformers", "trl"):
                run.consumer = consumer
                run.effective = compute(run)
                lint_runs(with_facts([run], files), None, asked)
