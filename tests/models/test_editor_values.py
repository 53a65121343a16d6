"""An editor underlines what the library refuses, and nothing else: schemas against the linter's judgement of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.models.editor_schemas import editor_schema_of, sections
from tests.models.test_schema_json import MINIMAL, OLD, OWN_LOOP, ZERO2, ZERO3
from zerocfg.catalog.check import refusal
from zerocfg.catalog.schema import Key, load_schema
from zerocfg.models.editor.values import accepted, any_case, one_of, types_of

VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 100000, 0.5, 1.5, 1.0, 1e9, -0.5, "", "auto", "x", "8", "-3", "1.5", "5e-5",
    "true", "yes", "NO", "none", "cpu", "FP16", "bf16", [], [1], ["a"], [0.9, 0.95], {}, {"a": 1}, "1_000",
]  # fmt: skip
SHOWN = ("deepspeed", "accelerate", "training-arguments", "trl")


def judged_keys(name: str) -> Iterator[tuple[str, Key, jsonschema.Draft7Validator]]:
    """(section, key, what an editor asks of its value) of each key that holds a value."""
    compiled, whole = load_schema(name), editor_schema_of(name)
    for where, raw, shown in sections(name):
        for key in compiled.section(raw).keys.values():
            if "removed" not in key.facts and key.section(compiled) is None:
                one = {**shown["properties"][key.name], "definitions": whole["definitions"]}
                yield where, key, jsonschema.Draft7Validator(one)


def known(key: Key, value: Any) -> bool:
    """Values that the library refuses for a reason that the linter finds elsewhere than in :func:`refusal`."""
    branches = [branch for branch in key.branches if branch.get("type") != "null"]
    if not branches:
        return True  # only null fits, and a file can hold nothing else
    if any("pattern" in branch for branch in branches):
        return True
    if value == "auto":
        return "auto" not in key.facts and key.facts.get("auto_raw") == "error"  # an auto that nobody fills
    if isinstance(value, list):
        return any("minItems" in branch for branch in branches)
    return value == 0 and any(False in branch.get("enum", ()) for branch in branches)


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_library_takes_is_not_underlined(name: str) -> None:
    wrong, judged = [], 0
    for where, key, validator in judged_keys(name):
        for value in VALUES:
            judged += 1
            if refusal(key, value) is None and not validator.is_valid(value) and not known(key, value):
                wrong.append((where, key.name, value))
    assert judged > 2000 and wrong == []


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_library_refuses_is_underlined(name: str) -> None:
    """A value of a wrong kind always; text is not judged by the range of the number in it."""
    missed, judged = [], 0
    for where, key, validator in judged_keys(name):
        for value in ("x", -0.5, [["a"]], {"a": 1}, 1.5):
            refused = refusal(key, value)
            if refused is None or (refused[0] == "range" and isinstance(value, str)):
                continue
            judged += 1
            if validator.is_valid(value):
                missed.append((where, key.name, value, refused))
    assert judged > 100 and missed == []


def taken(branches: list[dict[str, Any]], facts: dict[str, Any], yaml: bool = False) -> dict[str, Any]:
    return one_of(accepted(branches, facts, yaml=yaml))


@pytest.mark.parametrize(
    ("branches", "facts", "value", "fits"),
    [
        ([{"type": "integer"}], {}, 5.0, True),
        ([{"type": "integer"}], {}, 5.5, False),
        ([{"type": "integer"}], {}, "5", True),
        ([{"type": "integer"}], {}, True, True),
        ([{"type": "integer"}], {"no_bool": True}, True, False),
        ([{"type": "integer"}], {"no_text": True}, "5", False),
        ([{"type": "integer"}], {"reads": "raw"}, "5", False),
        ([{"type": "integer"}], {"reads": "int"}, "5", True),
        ([{"type": "integer"}], {"reads": "int"}, True, False),
        ([{"type": "integer", "minimum": 0}], {}, "-5", False),
        ([{"type": "integer", "minimum": 1}], {}, False, False),
        ([{"type": "boolean"}], {}, "off", True),
        ([{"type": "boolean"}], {}, 1, True),
        ([{"type": "boolean"}], {}, 2, False),
        ([{"type": "boolean"}], {"reads": "raw"}, "off", False),
        ([{"type": "string", "enum": ["no", "bf16"]}], {"ignore_case": True}, "BF16", True),
        ([{"type": "string", "enum": ["no", "bf16"]}], {}, "BF16", False),
        ([{"type": "integer", "minimum": 0, "maximum": 3}], {"reads": "int"}, "3", True),
        ([{"type": "integer", "minimum": 0, "maximum": 3}], {"reads": "int"}, 4, False),
        ([{"type": "boolean"}, {"type": "null"}], {}, None, True),
        ([{"type": "boolean"}], {}, None, False),
        ([{"type": "boolean"}], {"reads": "truth"}, "anything", True),
        ([{"type": "integer"}, {"const": "auto"}], {}, "auto", True),
        ([{"type": "integer"}], {"auto_raw": "default"}, "auto", True),
        ([{"type": "integer"}], {"auto_raw": "error"}, "auto", False),
    ],
)
def test_one_value(branches: list[dict[str, Any]], facts: dict[str, Any], value: Any, fits: bool) -> None:
    assert jsonschema.Draft7Validator(taken(branches, facts)).is_valid(value) is fits


def test_words_of_yaml_1_1_are_truth_values_there_alone() -> None:
    raw = {"reads": "raw"}
    assert jsonschema.Draft7Validator(taken([{"type": "boolean"}], raw, yaml=True)).is_valid("yes")
    assert not jsonschema.Draft7Validator(taken([{"type": "boolean"}], raw)).is_valid("yes")


def test_what_is_only_taken_is_not_offered() -> None:
    """Editors offer what stands under enum, const and type: neither true nor text for a number."""
    offered = [each for each in accepted([{"type": "integer"}], {}, yaml=False) if "type" in each]
    assert [each["type"] for each in offered] == ["number"]
    assert types_of(accepted([{"type": "integer"}], {}, yaml=False)) == ["number", "string", "boolean"]


def test_any_case() -> None:
    assert any_case("o1.") == r"[oO]1\."


@pytest.mark.parametrize("config", [ZERO3, ZERO2, OWN_LOOP, MINIMAL, OLD])
def test_whole_configs_are_taken(config: dict[str, Any]) -> None:
    validator = jsonschema.Draft7Validator(editor_schema_of("deepspeed"))
    assert [error.message for error in validator.iter_errors(config)] == []


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimisation": {"stage": 3}},
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"offload_param": {"device": "gpu"}}},
        {"zero_optimization": []},
        {"bf16": "auto"},  # refused: the section is read before anybody fills anything
        {"fp16": None},
        {"amp": {"enabled": False}},
        {"optimizer": {"type": "AdamW", "params": {"momentum": 0.9}}},
        {"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_steps": 5}}},
    ],
)
def test_whole_configs_are_refused(config: dict[str, Any]) -> None:
    assert not jsonschema.Draft7Validator(editor_schema_of("deepspeed")).is_valid(config)


def test_the_optimizer_decides_about_its_parameters() -> None:
    validator = jsonschema.Draft7Validator(editor_schema_of("deepspeed"))
    for kind, fits in (("adamw", False), ("AdamW", False), ("SGD", True)):
        assert validator.is_valid({"optimizer": {"type": kind, "params": {"momentum": 0.9}}}) is fits
