"""What a compiled schema says of its sections and keys, on a schema as small as each question."""

from __future__ import annotations

from typing import Any

import pytest

from zerocfg.catalog.schema import Key, Schema, Section, load_schema


def schema(*, definitions: dict[str, Any] | None = None, facts: dict[str, Any] | None = None, **keys: Any) -> Schema:
    return Schema({"properties": keys, "x-zerocfg": facts or {}, "$defs": definitions or {}})


def key(raw: dict[str, Any]) -> Key:
    found = schema(one=raw).root.key("one")
    assert found is not None
    return found


INNER = {"properties": {"device": {"type": "string", "default": "cpu", "description": "Where."}}}


def test_a_sibling_chooses_the_section() -> None:
    facts = {"variants": {"key": "type", "any_case": True, "cases": {"adam": "#/$defs/A"}}}
    whole = schema(definitions={"A": INNER}, params={"type": "object", "x-zerocfg": facts})
    params = whole.root.keys["params"]
    chosen = params.variant("Adam", whole)
    assert params.chooser == "type" and chosen is not None and chosen.keys["device"].default == "cpu"
    assert params.variant("SGD", whole) is params.variant(3, whole) is key({}).variant("adam", whole) is None


def test_references_are_followed_to_their_end() -> None:
    one = schema(
        definitions={"A": {"$ref": "#/$defs/B"}, "B": INNER},
        plain={"$ref": "#/$defs/A"},
        branch={"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
    )
    for path in (("branch", "device"), ("branch",)):
        assert one.find(path) is not None
    assert one.default("branch.device") == "cpu" and one.default("branch.gone") is None
    found = one.find(("branch", "device"))
    assert found is not None and found.description == "Where."
    assert Schema({"$ref": "#/$defs/Root", "$defs": {"Root": INNER}}).default("device") == "cpu"


@pytest.mark.parametrize("path", [("gone",), ("value", "device"), ("branch", "gone"), ("value", "device", "more")])
def test_paths_that_lead_nowhere(path: tuple[str, ...]) -> None:
    assert schema(branch=INNER, value={"type": "integer"}).find(path) is None


def test_the_root_is_no_key() -> None:
    assert schema(branch=INNER).find(()) is None


def test_a_key_that_opens_a_section_or_none() -> None:
    one = schema(branch={"anyOf": [{"type": "boolean"}, INNER]}, value={"type": "integer", "default": 3})
    branch, value = one.root.keys["branch"], one.root.keys["value"]
    section = branch.section(one)
    assert section is not None and list(section.keys) == ["device"]
    assert branch.section(one) is section, "made once"
    assert value.section(one) is None and value.default == 3 and value.description == ""


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ({"additionalProperties": {"$ref": "#/$defs/Run"}}, ["device"]),
        ({"anyOf": [{"type": "null"}, {"additionalProperties": {"$ref": "#/$defs/Run"}}]}, ["device"]),
        ({"properties": {}, "additionalProperties": {"$ref": "#/$defs/Run"}}, None),
        ({"additionalProperties": {"type": "string"}}, None),
        ({"additionalProperties": True}, None),
        ({"type": "string"}, None),
    ],
)
def test_sections_under_free_names(raw: dict[str, Any], names: list[str] | None) -> None:
    one = schema(definitions={"Run": INNER}, runs=raw)
    each = one.root.keys["runs"].entries(one)
    assert (None if each is None else list(each.keys)) == names


@pytest.mark.parametrize(
    ("raw", "nullable"),
    [
        ({"type": "integer"}, False),
        ({"type": "null"}, True),
        ({"type": ["integer", "null"]}, True),
        ({"type": ["integer", "string"]}, False),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, True),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, False),
        ({"const": None}, True),
        ({"const": 0}, False),
        ({"const": "auto"}, False),
        ({"enum": ["a"]}, False),
        ({"properties": {}}, False),
        ({"not": {}}, False),
        ({}, True),
        ({"description": "anything"}, True),
    ],
)
def test_what_may_be_null(raw: dict[str, Any], nullable: bool) -> None:
    assert key(raw).nullable is nullable


def test_scalars_are_what_describes_a_value() -> None:
    raw = {"anyOf": [{"type": "integer"}, {"type": "null"}, {"const": "auto"}, {"const": "cpu"}, INNER]}
    assert key(raw).scalars == [{"type": "integer"}, {"const": "cpu"}, INNER]


class TestNames:
    def test_aliases_never_hide_a_key(self) -> None:
        root = schema(
            bf16={"x-zerocfg": {"aliases": ["bfloat16", "fp16"]}},
            fp16={"x-zerocfg": {"aliases": ["bfloat16"]}},
        ).root
        found = {name: root.key(name) for name in ("bf16", "bfloat16", "fp16", "half")}
        assert {name: one and one.name for name, one in found.items()} == {
            "bf16": "bf16",
            "bfloat16": "bf16",
            "fp16": "fp16",
            "half": None,
        }

    def test_a_prefix_that_may_be_left_out(self) -> None:
        keys = {"fsdp_min": {}, "fsdp_max": {}, "max": {}}
        root = schema(facts={"prefix": "fsdp_", "prefix_optional": True}, **keys).root
        names = {name: root.key(name) for name in ("fsdp_min", "min", "max", "fsdp_max")}
        assert {name: one and one.name for name, one in names.items()} == {
            "fsdp_min": "fsdp_min",
            "min": "fsdp_min",
            "max": "max",
            "fsdp_max": "fsdp_max",
        }
        for facts in ({"prefix": "fsdp_"}, {"prefix_optional": True}):
            assert schema(facts=facts, fsdp_min={}).root.key("min") is None

    def test_a_key_that_is_taken_from_another_place(self) -> None:
        also = schema(facts={"also": "accelerate"}, own={}).root
        taken = also.key("num_processes")
        assert taken is not None and taken is load_schema("accelerate").root.keys["num_processes"]
        assert also.key("own") is also.keys["own"] and also.key("gone") is None
        assert schema(own={}).root.key("num_processes") is None


@pytest.mark.parametrize(
    ("raw", "names", "missing"),
    [
        ({"required": ["a", "b"]}, {"b", "c"}, ["a"]),
        ({"required": ["a"]}, {"a"}, []),
        ({}, set(), []),
        ({"anyOf": [{"required": ["a", "b"]}, {"required": ["c"]}]}, {"a"}, ["b"]),
        ({"anyOf": [{"required": ["a", "b"]}, {"required": ["c"]}]}, {"c"}, []),
    ],
)
def test_what_is_missing(raw: dict[str, Any], names: set[str], missing: list[str]) -> None:
    """Of several ways the first one is told, and only when none is complete."""
    assert Section(raw, schema()).missing(names) == missing


@pytest.mark.parametrize(
    ("raw", "is_open"),
    [({}, False), ({"additionalProperties": False}, False), ({"additionalProperties": True}, True),
     ({"additionalProperties": {"type": "string"}}, True)],
)  # fmt: skip
def test_sections_that_take_any_key(raw: dict[str, Any], is_open: bool) -> None:
    assert Section(raw, schema()).open is is_open


def test_an_unknown_key_is_an_error_unless_the_section_says_otherwise() -> None:
    assert Section({}, schema()).unknown == "error"
    assert Section({"x-zerocfg": {"unknown": "ignored"}}, schema()).unknown == "ignored"


def test_a_schema_is_read_once() -> None:
    assert load_schema("deepspeed") is load_schema("deepspeed")
    assert load_schema("deepspeed").default("zero_optimization.stage") == 0
