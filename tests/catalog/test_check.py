"""Every way to fit a schema and to miss it, on a schema as small as each question."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from zerocfg.catalog.check import check, converted, refusal
from zerocfg.catalog.schema import Key, Schema
from zerocfg.source.json_reader import read_json
from zerocfg.source.text import SourceText

from .test_schema import schema

Told = list[tuple[str, str, str]]
"""Kind, path and reason of each issue."""


def told(one: Schema, text: str | dict[str, Any]) -> Told:
    text = text if isinstance(text, str) else json.dumps(text)
    found = check(read_json(SourceText("ds.json", text)).root, one)
    return [(issue.kind, ".".join(map(str, issue.path)), issue.reason) for issue in found]


def section(facts: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return {"properties": keys, "x-zerocfg": facts or {}}


INTEGER = {"type": "integer"}


class TestKeys:
    @pytest.mark.parametrize("text", ["[]", "3", "null", '"auto"'])
    def test_a_root_that_is_no_mapping_has_no_issues(self, text: str) -> None:
        assert told(schema(), text) == []

    def test_of_equal_keys_the_last_is_judged(self) -> None:
        assert told(schema(a=INTEGER), '{"a": "x", "a": 1}') == []
        assert told(schema(a=INTEGER), '{"a": 1, "a": []}') == [("type", "a", "is a list, not a whole number")]

    def test_the_last_key_comes_first(self) -> None:
        assert told(schema(), {"a": 1, "b": 2}) == [("unknown-crash", "b", ""), ("unknown-crash", "a", "")]

    @pytest.mark.parametrize(
        ("facts", "value", "kind"),
        [
            ({}, 1, "unknown-crash"),
            ({"unknown": "ignored"}, 1, "unknown-ignored"),
            ({}, "auto", "unknown-crash"),
            ({"library": "deepspeed"}, "auto", "unknown-ignored"),
            ({"library": "deepspeed"}, 1, "unknown-crash"),
            ({"library": "accelerate"}, "auto", "unknown-crash"),
        ],
    )
    def test_unknown_keys(self, facts: dict[str, Any], value: Any, kind: str) -> None:
        assert told(schema(facts=facts), {"typo": value}) == [(kind, "typo", "")]

    def test_any_key_where_they_are_passed_on(self) -> None:
        assert told(schema(a={"properties": {}, "additionalProperties": True}), {"a": {"typo": 1}}) == []

    def test_what_an_unknown_key_was_meant_to_be(self) -> None:
        gone = {name: {"x-zerocfg": {fact: "2.0"}} for name, fact in (("stagy", "removed"), ("stags", "deprecated"))}
        (issue,) = check(read_json(SourceText("a", '{"stag": 1}')).root, schema(stage=INTEGER, **gone))
        assert issue.suggestion == "stage", "nobody is sent to a key that is gone"
        (issue,) = check(read_json(SourceText("a", '{"stag": 1}')).root, schema(**gone))
        assert issue.suggestion is None

    def test_removed_deprecated_and_inert_keys(self) -> None:
        def one(**facts: str) -> Told:
            return told(schema(a=INTEGER | {"x-zerocfg": facts}), {"a": "x"})

        refused = ("type", "a", "is a string that is not a whole number")
        assert one(removed="0.4") == [("removed", "a", "0.4")], "nobody looks at its value"
        assert one(deprecated="0.4") == [("deprecated", "a", "0.4"), refused]
        assert one(inert="never read") == [("inert", "a", "never read"), refused]

    def test_a_new_name_is_suggested(self) -> None:
        one = schema(a=INTEGER | {"x-zerocfg": {"removed": "0.4", "renamed_to": "b"}})
        (issue,) = check(read_json(SourceText("a", '{"a": 1}')).root, one)
        assert issue.suggestion == "b" and issue.key is not None and issue.key.name == "a"

    @pytest.mark.parametrize(
        ("unknown", "config", "issues"),
        [
            ("ignored", {"new": 1, "old": "x"}, 0),
            ("ignored", {"new": None, "old": "x"}, 1),
            ("ignored", {"old": "x"}, 1),
            ("ignored", {"new": "x", "old": 1}, 1),
            ("error", {"new": 1, "old": "x"}, 1),
        ],
    )
    def test_a_second_name_is_read_where_the_first_is_not(
        self, unknown: str, config: dict[str, Any], issues: int
    ) -> None:
        key = {"anyOf": [INTEGER, {"type": "null"}], "x-zerocfg": {"aliases": ["old"]}}
        assert len(told(schema(facts={"unknown": unknown}, new=key), config)) == issues


class TestSections:
    ONE = section({"library": "deepspeed"}, device={"type": "string"})

    def test_the_keys_of_a_section(self) -> None:
        one = schema(offload=self.ONE)
        assert told(one, {"offload": {"device": 1, "typo": 2}}) == [
            ("unknown-crash", "offload.typo", ""),
            ("type", "offload.device", "is a number, not a string"),
        ]

    @pytest.mark.parametrize(
        ("facts", "key_facts", "value", "issue"),
        [
            ({}, {}, 3, "is a number, not a mapping"),
            ({}, {}, None, "is null, not a mapping"),
            ({"null": "absent"}, {}, None, None),
            ({"null": "absent"}, {}, False, "is false, not a mapping"),
            ({"null": "falsy"}, {}, None, None),
            ({"null": "falsy"}, {}, False, None),
            ({"null": "falsy"}, {}, [], None),
            ({"null": "falsy"}, {}, True, "is true, not a mapping"),
            ({}, {}, "auto", "is a string, not a mapping"),
            ({"library": "deepspeed"}, {}, "auto", None),
            ({"library": "deepspeed"}, {"auto_raw": "error"}, "auto", "is a string, not a mapping"),
            ({"library": "accelerate"}, {}, "auto", "is a string, not a mapping"),
        ],
    )
    def test_another_value_in_the_place_of_a_section(
        self, facts: dict[str, Any], key_facts: dict[str, Any], value: Any, issue: str | None
    ) -> None:
        one = schema(part={"anyOf": [section(facts)], "x-zerocfg": key_facts})
        assert told(one, {"part": value}) == ([("section-type", "part", issue)] if issue else [])

    def test_null_counts_as_absent_under_the_first_name_alone(self) -> None:
        key = {"anyOf": [section()], "x-zerocfg": {"aliases": ["old"]}}
        key["anyOf"] = [section({"null": "absent"})]
        assert told(schema(new=key), {"new": None}) == []
        assert told(schema(new=key), {"old": None}) == [("section-type", "old", "is null, not a mapping")]
        nullable = key | {"anyOf": [section(), {"type": "null"}]}
        assert told(schema(new=nullable), {"new": None}) == []
        assert told(schema(new=nullable), {"old": None}) == [("section-type", "old", "is null, not a mapping")]

    @pytest.mark.parametrize(("value", "issues"), [(True, 0), (1, 1), ("yes", 1), (None, 1)])
    def test_a_section_that_may_be_true(self, value: Any, issues: int) -> None:
        one = schema(part={"anyOf": [{"type": "boolean"}, section()]})
        assert len(told(one, {"part": value})) == issues

    @pytest.mark.parametrize(("value", "issues"), [(3, 0), ("3", 0), ("x", 1), (True, 0), ([], 1)])
    def test_a_section_that_may_be_a_number(self, value: Any, issues: int) -> None:
        assert len(told(schema(part={"anyOf": [INTEGER, section()]}), {"part": value})) == issues

    RUNS = schema(
        definitions={"Run": {"properties": {"script": {"type": "string"}}, "required": ["script"]}},
        runs={"additionalProperties": {"$ref": "#/$defs/Run"}},
    )

    def test_sections_under_free_names(self) -> None:
        assert told(self.RUNS, {"runs": {"a": {"script": "x"}}}) == []
        assert told(self.RUNS, {"runs": {"a": {"script": 1}, "b": {}, "c": 3}}) == [
            ("type", "runs.a.script", "is a number, not a string"),
            ("missing", "runs.b", "script"),
            ("section-type", "runs.c", "is a number, not a mapping"),
        ]

    def test_parameters_by_the_value_of_a_sibling(self) -> None:
        def one(**more: Any) -> Schema:
            cases = {"key": "type", "cases": {"adam": "#/$defs/Adam"}} | more
            params = {"type": "object", "x-zerocfg": {"variants": cases}}
            return schema(definitions={"Adam": section(lr={"type": "number"})}, type={"type": "string"}, params=params)

        wrong = [("type", "params.lr", "is a string that is not a number")]
        assert told(one(), {"type": "adam", "params": {"lr": "x"}}) == wrong
        assert told(one(), {"type": "adam", "params": {"lr": 1}}) == []
        assert told(one(), {"type": "Adam", "params": {"lr": "x"}}) == []
        assert told(one(any_case=True), {"type": "Adam", "params": {"lr": "x"}}) == wrong
        assert told(one(), {"type": "lamb", "params": {"lr": "x"}}) == []
        assert told(one(), {"params": {"lr": "x"}}) == []
        assert told(one(), {"type": ["adam"], "params": {"lr": "x"}}) == [("type", "type", "is a list, not a string")]


class TestValues:
    """Kind and reason of one value."""

    def one(self, key: dict[str, Any], value: Any, section: dict[str, Any] | None = None) -> tuple[str, str] | None:
        found = told(schema(facts=section, a=key), {"a": value})
        assert len(found) <= 1
        return (found[0][0], found[0][2]) if found else None

    @pytest.mark.parametrize(
        ("facts", "kind"),
        [
            ({}, "type"),
            ({"reads": "raw"}, "raw-type"),
            ({"reads": "raw", "auto_raw": "error"}, "type"),
            ({"reads": "lax"}, "type"),
        ],
    )
    def test_a_type_that_nobody_checks(self, facts: dict[str, Any], kind: str) -> None:
        assert self.one(INTEGER | {"x-zerocfg": facts}, []) == (
            kind,
            "is a list, not a whole number",
        )

    @pytest.mark.parametrize(
        ("type_", "value", "kind"), [("integer", "x", "type"), ("integer", True, "raw-type"), ("string", 3, "type")]
    )
    def test_what_breaks_where_it_is_calculated_with(self, type_: str, value: Any, kind: str) -> None:
        """A text, a list or a mapping breaks a calculation; a truth value does not, but where a text is needed."""
        found = self.one({"type": type_, "x-zerocfg": {"reads": "raw", "auto_raw": "error"}}, value)
        assert found is not None and found[0] == kind

    def test_a_range_is_told_as_one_however_it_is_read(self) -> None:
        key = INTEGER | {"minimum": 1, "x-zerocfg": {"reads": "raw"}}
        assert self.one(key, 0) == ("range", "is out of range: it must be at least 1")

    def test_texts_that_yaml_did_not_read_as_numbers(self) -> None:
        key = {"type": "number", "x-zerocfg": {"reads": "raw"}}
        assert self.one(key, "1e-5") == ("raw-type", "is a string, not a number")
        assert self.one(key, "1e-5", {"yaml_numbers": True}) is None
        assert self.one(key, "fast", {"yaml_numbers": True}) == ("raw-type", "is a string, not a number")


def why(raw: dict[str, Any], value: Any, **facts: Any) -> tuple[str, str] | None:
    return refusal(Key("a", raw | {"x-zerocfg": facts}, schema()), value)


class TestRefusal:
    def test_auto_where_somebody_may_fill_it(self) -> None:
        assert why(INTEGER, "auto") == ("type", "is a string that is not a whole number")
        assert why(INTEGER, "auto", auto="Trainer") is None
        assert why(INTEGER, "auto", auto_raw="error") is None
        assert why(INTEGER, "Auto", auto="Trainer") is not None

    def test_what_must_not_be_empty(self) -> None:
        key = {"type": "string", "minLength": 1}
        assert why(key, "") == ("range", "is out of range: it must not be empty")
        assert why(key, "a") is None
        assert why({"type": "string"}, "") is None

    def test_what_is_never_taken(self) -> None:
        assert why(INTEGER, 3, never="is not supported here") == ("type", "is not supported here")

    @pytest.mark.parametrize("reads", ["truth", "true"])
    def test_anything_has_a_truth_value(self, reads: str) -> None:
        assert why({"type": "boolean"}, [1], reads=reads) is None
        assert why({"type": "boolean"}, None, reads=reads) is None

    def test_null(self) -> None:
        refused = ("null", "is null, which is not allowed here")
        assert why(INTEGER, None) == refused
        assert why({"type": ["integer", "null"]}, None) is None
        assert why(INTEGER, None, reads="raw") is None
        assert why(INTEGER, None, reads="raw", auto_raw="error") == refused
        assert why({"type": ["integer", "null"]}, None, reads="raw", auto_raw="error") is None

    def test_a_number_that_may_be_no_truth_value_and_no_text(self) -> None:
        assert why(INTEGER, True) is None
        assert why(INTEGER, True, no_bool=True) == ("type", "is true or false, not a number")
        assert why(INTEGER, 1, no_bool=True) is None
        assert why(INTEGER, "1") is None
        assert why(INTEGER, "1", no_text=True) == ("type", "is a string, not a number")
        assert why(INTEGER, 1, no_text=True) is None

    def test_where_null_is_all_that_is_supported(self) -> None:
        null = {"type": "null"}
        said = ("choice", "is not null, which is all that is supported")
        assert why(null, 3, reads="raw", auto_raw="error") == said
        assert why(null, 3, reads="raw") is None and why(null, 3, auto_raw="error") is None
        assert why(INTEGER, 3, reads="raw", auto_raw="error") is None

    def test_of_several_types_one_must_fit(self) -> None:
        """A range or a choice says more than a type: of all that refuse, the first of these is told."""
        key = {"anyOf": [{"type": "string"}, INTEGER | {"maximum": 3}, {"enum": ["x"]}]}
        assert why(key, "text") is None and why(key, 3) is None
        assert why(key, 4) == ("range", "is out of range: it must be at most 3")
        assert why(key, []) == ("choice", "is none of x")
        assert why({"type": ["integer", "boolean"]}, "off") is None
        assert why({"type": ["null", "integer"]}, "x") == ("type", "is a string that is not a whole number")
        assert why({"type": ["integer", "boolean"]}, "x") == ("type", "is a string that is neither true nor false")

    @pytest.mark.parametrize(
        ("bound", "good", "bad", "words"),
        [
            ("minimum", 3, 2, "at least 3"),
            ("exclusiveMinimum", 3.5, 3, "greater than 3"),
            ("maximum", 3, 4, "at most 3"),
            ("exclusiveMaximum", 2.5, 3, "less than 3"),
        ],
    )
    def test_both_sides_of_a_bound(self, bound: str, good: float, bad: float, words: str) -> None:
        key = {"type": "number", bound: 3}
        assert why(key, good) is None
        assert why(key, bad) == ("range", f"is out of range: it must be {words}")
        assert why(key, math.nan) == ("range", "is not a number")
        assert why({"type": "number"}, math.nan) is None
        assert why({"type": "boolean", bound: 3}, True) is None, "true is no number"
        assert why({bound: 3}, bad) == ("range", f"is out of range: it must be {words}")

    def test_choices(self) -> None:
        key = {"enum": ["cpu", "nvme", None]}
        assert why(key, "cpu") is None and why(key, "CPU") == (
            "choice",
            "is none of cpu, nvme (did you mean cpu?)",
        )
        assert why(key, "CPU", ignore_case=True) is None
        assert why(key, "tape", ignore_case=True) == ("choice", "is none of cpu, nvme")
        assert why(key, 3, ignore_case=True) == ("choice", "is none of cpu, nvme")
        assert why({"const": "cpu"}, "gpu") == ("choice", "is none of cpu")

    def test_choices_among_numbers(self) -> None:
        key = {"enum": [0, 1, 2]}
        assert why(key, 2) is None and why(key, "2") is None and why(key, 2.0) is None and why(key, True) is None
        assert why(key, 3) == ("choice", "is none of 0, 1, 2")
        assert why(key, "3") == ("choice", "is none of 0, 1, 2")
        assert why(key, "two") == ("choice", "is none of 0, 1, 2")
        assert why({"enum": [0, 1, None]}, "1") is None
        assert why({"enum": [0, "cpu"]}, "0") == ("choice", "is none of 0, cpu")

    @pytest.mark.parametrize(("reads", "fits"), [("lax", False), ("raw", False), ("str", True), ("int", True)])
    def test_choices_by_their_text(self, reads: str, fits: bool) -> None:
        """Whoever reads a text takes 1.5 and "1.5" for the same; of what is neither text nor whole there is none."""
        assert (why({"enum": ["1", "a"]}, 1, reads=reads) is None) is fits
        assert why({"enum": ["1", "a"]}, 3, reads=reads) == ("choice", "is none of 1, a")
        assert why({"enum": ["1.5", "a"]}, 1.5, reads=reads) == ("choice", "is none of 1.5, a")

    def test_items_of_a_list(self) -> None:
        key = {"type": "array", "items": INTEGER}
        assert why(key, [1, "2"]) is None
        assert why(key, [1, "x"]) == ("type", 'holds "x", which is a string that is not a whole number')
        assert why({"type": "array", "items": {"enum": ["a"]}}, ["b"]) == ("choice", 'holds "b", which is none of a')
        assert why({"type": "array", "items": {}}, ["x"]) is None and why({"type": "array"}, ["x"]) is None
        assert why(key, ["x"], reads="raw") is None, "nobody looks into it"
        assert why(key, 3) == ("type", "is a number, not a list")

    @pytest.mark.parametrize(
        ("type_", "value", "lax", "raw"),
        [
            ("integer", "1", None, "is a string, not a whole number"),
            ("integer", True, None, "is true, not a whole number"),
            ("integer", 1.0, None, None),
            ("number", "1.5", None, "is a string, not a number"),
            ("number", False, None, "is false, not a number"),
            ("number", 1, None, None),
            ("boolean", "yes", None, "is a string, neither true nor false"),
            ("boolean", 1, None, None),
            ("boolean", 0.0, None, None),
            ("boolean", 2, "is a number, neither true nor false", "is a number, neither true nor false"),
            ("string", 1, "is a number, not a string", "is a number, not a string"),
            ("array", "a", "is a string, not a list", "is a string, not a list"),
            ("object", [], "is a list, not a mapping", "is a list, not a mapping"),
            ("object", {}, None, None),
        ],
    )
    def test_types(self, type_: str, value: Any, lax: str | None, raw: str | None) -> None:
        assert why({"type": type_}, value) == (("type", lax) if lax else None)
        assert why({"type": type_}, value, reads="raw") == (("type", raw) if raw else None)

    def test_what_a_library_turns_into_a_text(self) -> None:
        assert why({"type": "string"}, 1, reads="str") is None

    @pytest.mark.parametrize(
        ("type_", "reads", "value", "said"),
        [
            ("integer", "int", "3", None),
            ("integer", "int", 3, None),
            ("integer", "int", 3.0, "becomes the text '3.0', which is no whole number"),
            ("integer", "int", True, "becomes the text 'True', which is no whole number"),
            ("number", "float", "3.5", None),
            ("number", "float", "x" * 41, f"becomes the text '{'x' * 40}', which is no number"),
            ("boolean", "bool", True, None),
            ("boolean", "bool", "off", None),
            ("boolean", "bool", 2, "is neither true nor false"),
            ("string", "int", "x", None),
        ],
    )
    def test_the_text_of_an_environment_variable(self, type_: str, reads: str, value: Any, said: str | None) -> None:
        assert why({"type": type_}, value, reads=reads) == (("type", said) if said else None)


def kept(raw: dict[str, Any], value: Any) -> Any:
    return converted(Key("a", raw, schema()), value)


@pytest.mark.parametrize(
    ("raw", "value", "read"),
    [
        (INTEGER, "12", 12),
        (INTEGER, "x", "x"),
        ({"type": "number"}, "5e8", 5e8),
        ({"type": "boolean"}, "yes", True),
        ({"type": "string"}, "yes", "yes"),
        ({"type": ["integer", "null"]}, None, None),
        ({"anyOf": [INTEGER, {"type": "boolean"}]}, "off", False),
        ({"enum": [0, 1]}, "1", 1),
        ({"enum": ["0", "1"]}, "1", "1"),
        ({"enum": [0, "1"]}, "1", "1"),
        ({"type": "integer", "enum": [0, 1]}, "1", 1),
        ({"type": ["integer", "boolean"]}, "off", False),
        ({"enum": []}, "x", "x"),
        ({"const": "x"}, "x", "x"),
        ({"type": "object"}, {"a": 1}, {"a": 1}),
    ],
)
def test_a_value_as_the_library_keeps_it(raw: dict[str, Any], value: Any, read: Any) -> None:
    assert kept(raw, value) == read and type(kept(raw, value)) is type(read)
