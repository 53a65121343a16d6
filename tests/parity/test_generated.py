"""zerocfg and the real libraries agree on configs that nobody wrote: built from the typed models, or made from real
ones by typos, moves, wrong types, quotes, "auto", null, duplicates and removals.

Compared on every config: is it refused when it is parsed or launched, is a value silently dropped, what is the
effective value. `make parity` plays many more of them, other ones each time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import hjson
import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.conftest import texts_of_corpus
from tests.parity import generated
from tests.parity.record import ACCELERATE_BASES, DEEPSPEED_BASE
from tests.parity.test_effective import SAYS, environment_differs
from tests.parity.verdicts import (
    BY_KEY,
    Real,
    accelerate_run,
    claims,
    deepspeed_run,
    dropped_differs,
    lint,
    phases,
    real_accelerate,
    real_deepspeed,
    values_differ,
)
from zerocfg.catalog.schema import load_schema
from zerocfg.linter.engine import Diagnostic
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Severity
from zerocfg.rules.registry import ALL, find
from zerocfg.run.model import Run

pytestmark = pytest.mark.libs

EXAMPLES = int(os.environ.get("ZEROCFG_PARITY", "500"))
"""Configs to compare in all: three of five DeepSpeed configs, two of five accelerate configs."""
MANY = settings(
    deadline=None,
    derandomize="ZEROCFG_PARITY" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)

LIMITS = {
    "an empty mapping in the place of a value: the effective value shown is the default": re.compile(
        r"effective value .*, really \{\}$"
    ),
    "leaf_module with one name as a text, which DeepSpeed makes a list of": re.compile(r"leaf_module\.\w+: effective"),
    "a text in the place of a switch of data_efficiency, which counts as on": re.compile("is enabled, .* must be spec"),
    "timers as a text or a list, in which DeepSpeed looks for a word": re.compile(r"`timers` is a (string|list)"),
    "torch_autocast.lower_precision_safe_modules without texts in a list": re.compile(
        "names for torch autocast|'(bool|int|NoneType)' object is not iterable"
    ),
}
"""What zerocfg does not tell as the libraries do: the limit in words, and what the disagreement looks like."""
BY_INITIALIZE = ("ZC243",)
"""Rules of what deepspeed.initialize stops at before it parses the config."""
BY_RUNNER = ("ZC728",)
"""Rules of what DeepSpeed's own runner stops at, which accelerate has started by then."""


@cache
def seeds(name: str) -> list[dict[str, Any]]:
    """The texts of people as far as they are mappings that JSON can hold."""
    read = hjson.loads if name == "ds.json" else yaml.safe_load
    found = []
    for text in texts_of_people(name):
        try:
            tree = read(text)
            json.dumps(tree)  # dates and the like are not for JSON
        except (ValueError, TypeError, OverflowError, yaml.YAMLError):
            continue
        if isinstance(tree, dict) and tree:
            found.append(json.loads(json.dumps(tree)))
    return found


def texts_of_people(name: str) -> list[str]:
    """The examples of all rules and, where there is a corpus, its files: ``name`` is "ds.json" or "accelerate.yaml".

    Those of ZC014 are left out: they are files of another kind than their names say.
    """
    rules = [rule for rule in ALL if rule.code != "ZC014"]
    texts = [
        example.files[name]
        for rule in rules
        for example in (*page_of(rule).bad, *page_of(rule).good)
        if name in example.files
    ]
    return [*texts, *texts_of_corpus("deepspeed" if name == "ds.json" else "accelerate")]


DEEPSPEED = st.one_of(
    generated.typed(load_schema("deepspeed"), DEEPSPEED_BASE),
    st.deferred(lambda: generated.mistaken(seeds("ds.json"))),
)
ACCELERATE = st.one_of(
    st.sampled_from(ACCELERATE_BASES).flatmap(lambda base: generated.typed(load_schema("accelerate"), base)),
    st.deferred(lambda: generated.mistaken(seeds("accelerate.yaml"))),
)


def agree(wrong: list[str], text: str) -> None:
    left = [problem for problem in wrong if not any(known.search(problem) for known in LIMITS.values())]
    assert not left, "\n".join([*left, text])


def errors(diagnostics: list[Diagnostic]) -> list[str]:
    return [f"{d.code} {d.message}" for d in diagnostics if d.severity is Severity.ERROR]


# --- DeepSpeed --------------------------------------------------------------------------------------------------------


def test_deepspeed_configs(count: Callable[[str, int], None]) -> None:
    @settings(MANY, max_examples=EXAMPLES * 3 // 5)
    @given(tree=DEEPSPEED, world=st.sampled_from([1, 2, 8]))
    def compare(tree: dict[str, Any], world: int) -> None:
        text = generated.json_text(tree)
        real = real_deepspeed(text, world)
        assume(not real.here)
        run = deepspeed_run(text, world)
        agree(deepspeed_differs(run, tree, real), text)
        seen.append(real.error is not None)

    seen: list[bool] = []
    compare()
    count("generated DeepSpeed configs compared with DeepSpeedConfig", len(seen))
    count("of them refused by it", sum(seen))
    assert 0 < sum(seen) < len(seen)


def deepspeed_differs(run: Run, tree: dict[str, Any], real: Real) -> list[str]:
    diagnostics = lint(run)
    sure, maybe = claims(diagnostics, "read", "parse")
    if real.error is not None:
        return [] if sure or maybe else [f"refused, and no error says so: {real.error[:300]}; {errors(diagnostics)}"]
    sure = [diagnostic for diagnostic in sure if diagnostic.code not in BY_INITIALIZE]
    if sure:
        return [f"accepted, but {d.code}: {d.message}" for d in sure]
    return [*values_differ(run, real), *dropped_differs(tree, diagnostics, real)]


# --- accelerate launch ------------------------------------------------------------------------------------------------


def test_accelerate_configs(count: Callable[[str, int], None]) -> None:
    @settings(MANY, max_examples=EXAMPLES * 2 // 5)
    @given(tree=ACCELERATE)
    def compare(tree: dict[str, Any]) -> None:
        text = generated.yaml_text(tree)
        real = real_accelerate(text)
        assume(not real.here)
        agree(accelerate_differs(accelerate_run(text), text, real), text)
        seen.append(real.error is not None)

    seen: list[bool] = []
    compare()
    count("generated accelerate configs compared with accelerate launch", len(seen))
    count("of them refused by it", sum(seen))
    assert 0 < sum(seen) < len(seen)


def accelerate_differs(run: Run, text: str, real: Real) -> list[str]:
    diagnostics = lint(run)
    wrong = launch_differs(run, diagnostics, real)
    if real.error is not None or any(failure.phase == "launch" for failure in run.effective.failures):
        return wrong
    return [*wrong, *dead_differs(diagnostics, text, real)]


def launch_differs(run: Run, diagnostics: list[Diagnostic], real: Real) -> list[str]:
    """The launch is refused as it is predicted, or exports what is predicted, and no finding says otherwise."""
    failures = [failure for failure in run.effective.failures if failure.phase == "launch"]
    if real.error is not None:
        if not failures:
            return [f"refused, and not predicted: {real.error[:300]}"]
        if not re.search(SAYS[failures[0].kind], real.error):
            return [f"predicted {failures[0].kind}, really: {real.error[:300]}"]
        return [] if errors(diagnostics) else [f"{failures[0].kind} is predicted, but no rule tells it"]
    if failures:
        return [f"launched, but predicted {failures[0].kind}: {failures[0].message}"]
    exported = {name: value for name, value in real.values.items() if name != "world"}
    differs = environment_differs(run.effective, {"environment": exported, "world": real.values["world"]})
    wrong = [problem for problem in differs if "UNKNOWN" not in problem]
    for diagnostic in diagnostics:
        rule = find(diagnostic.code)
        early = phases(rule) if rule is not None and diagnostic.severity is Severity.ERROR else set()
        if early and early <= {"read", "launch"} and diagnostic.code not in (*BY_KEY, *BY_RUNNER):
            wrong.append(f"launched, but {diagnostic.code}: {diagnostic.message}")
    return wrong


def dead_differs(diagnostics: list[Diagnostic], text: str, real: Real) -> list[str]:
    """A key that is said to be dead can be taken away, and the same job is launched."""
    wrong = []
    for diagnostic in diagnostics:
        if diagnostic.code not in ("ZC103", "ZC708"):
            continue
        tree = yaml.safe_load(text)
        *parents, last = diagnostic.span.path.split(".")
        node = tree
        for part in parents:
            node = node.get(part, {}) if isinstance(node, dict) else {}
        if not isinstance(node, dict) or last not in node:
            continue
        value = node.pop(last)
        if parents:  # another key that nobody reads: an empty section means something else than one with any key
            node["unread"] = value
        without = real_accelerate(yaml.safe_dump(tree, sort_keys=False))
        changed = {
            name
            for name in set(real.values) | set(without.values)
            if real.values.get(name) != without.values.get(name) and name != "ACCELERATE_CONFIG_DS_FIELDS"
        }
        if without.error is not None or changed:
            wrong.append(f"{diagnostic.span.path} is said to be dead, but without it: {without.error or changed}")
    return wrong
