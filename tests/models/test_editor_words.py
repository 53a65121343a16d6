"""What a hover tells, and the form of the schemas that tell it."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.schemas import official
from tests.conftest import corpus_folder
from tests.models.editor_schemas import FOLDER, editor_schema_of, sections
from zerocfg.catalog.alternatives import own_keys
from zerocfg.models.editor.listing import EDITOR_SCHEMAS, LISTED
from zerocfg.models.editor.words import expected, hover, plain, show
from zerocfg.models.schema import describe

STORE = "https://raw.githubusercontent.com/SchemaStore/schemastore/master/src/api/json/catalog.json"


def text_of(facts: dict[str, Any], doc: str = "Text.", section: dict[str, Any] | None = None, **prop: Any) -> str:
    return hover({"description": doc, **prop, "x-zerocfg": facts}, section or {}, doc)


def test_unit_default_and_range() -> None:
    found = text_of({"unit": "elements"}, type="integer", default=500_000_000, exclusiveMinimum=0)
    assert found == "Text.\n\nUnit: **elements**, default **500,000,000**, more than 0."


def test_who_fills_auto_and_what_happens_else() -> None:
    auto = {"transformers": "learning_rate", "trl": "learning_rate", "accelerate": "lr of DummyOptim"}
    found = text_of({"auto": auto, "auto_raw": "error"})
    assert (
        '`"auto"`: transformers and TRL fill in `learning_rate`; accelerate fills in `lr` of DummyOptim. '
        "Left unfilled, it is an error." in found
    )


def test_releases_are_named_with_their_library() -> None:
    facts = {"since": "0.17.2", "until": "0.19.0", "default_before": {"0.18.1": False}}
    found = text_of(facts, section={"library": "deepspeed"})
    assert "Since DeepSpeed 0.17.2." in found
    assert "Not read any more since DeepSpeed 0.19.0." in found
    assert "Before DeepSpeed 0.18.1 the default was false." in found


def test_warnings_come_first() -> None:
    found = text_of({"deprecated": "write other_key", "inert": "read by nobody"})
    assert found.startswith("**Deprecated:** write `other_key`.\n\n**No effect:** read by nobody.\n\nText.")


def test_places() -> None:
    facts = {
        "in": ["GRPOConfig", "RLOOConfig"],
        "versions": [1],
        "backends": ["TE"],
        "conflicts": "deepspeed_config_file",
        "aliases": ["short"],
        "cli": {"flags": ["--some_key"]},
        "env": [{"name": "SOME_KEY"}, {"name": "SOME_KEY"}],
    }
    assert text_of(facts).endswith(
        "Read by `GRPOConfig` and `RLOOConfig`. Only with FSDP version 1. Only with the FP8 backend TE. Refused "
        "beside `deepspeed_config_file`. Also read as `short`. On the command line `--some_key`. Reaches the job "
        "as `SOME_KEY`."
    )


def test_defaults_of_several_classes() -> None:
    facts = {"defaults": {"SFTConfig": 2e-05, "DPOConfig": 1e-06, "KTOConfig": 1e-06}}
    assert "Default **2e-05** in SFTConfig; **1e-06** in DPOConfig and KTOConfig." in text_of(facts)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (500_000_000, "500,000,000"),
        (2**63 - 1, "no limit"),
        (True, "true"),
        (1e9, "1,000,000,000"),
        (0.5, "0.5"),
        ("x", '"x"'),
    ],
)
def test_values_as_a_reader_wants_them(value: Any, shown: str) -> None:
    assert show(value) == shown


def test_names_are_code_and_formulas_stay() -> None:
    found = text_of({"auto": {"accelerate": "int(0.9 * hidden_size**2)"}}, doc="Twice with overlap_comm; a * b.")
    assert "Twice with `overlap_comm`;" in found and "`int(0.9 * hidden_size**2)`" in found
    assert plain(found).startswith("Twice with overlap_comm; a * b. ") and "int(0.9 * hidden_size**2)" in plain(found)


def test_what_to_write_instead() -> None:
    prop = {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}, {"type": "null"}]}
    assert expected({**prop, "x-zerocfg": {"unit": "ranks"}}) == (
        'Expected a whole number of ranks (at least 1), "auto" or null.'
    )
    assert expected({"type": "integer", "minimum": 0, "maximum": 3}) == "Expected 0, 1, 2 or 3."
    assert expected({}) is None


@pytest.mark.parametrize("name", EDITOR_SCHEMAS)
def test_every_schema_is_valid_and_every_key_is_explained(name: str) -> None:
    schema = editor_schema_of(name)
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert "x-zerocfg" not in text and "$defs" not in text
    for where, raw, shown in sections(name):
        assert set(shown["properties"]) == set(own_keys(raw["properties"])), where
        for key, prop in shown["properties"].items():
            facts = raw["properties"][key].get("x-zerocfg", {})
            assert prop["description"] and prop["markdownDescription"], (where, key)
            left = {"removed", "deprecated"} & set(facts)  # says what to write instead
            assert left or raw["properties"][key]["description"] != describe("", facts), (where, key)
            if "unit" in facts and "removed" not in facts:
                assert f"**{facts['unit']}**" in prop["markdownDescription"], (where, key)
            for consumer in facts.get("auto", {}):
                assert {"transformers": "transformers", "trl": "TRL"}.get(consumer, consumer) in prop["description"]
            assert ("deprecated" in prop) <= bool({"deprecated", "removed"} & set(facts)), (where, key)
            if "removed" in facts:
                assert prop["doNotSuggest"] is True


def test_the_catalogue_is_one_of_schemastore() -> None:
    catalogue = json.loads((FOLDER / "catalog.json").read_text(encoding="utf-8"))
    jsonschema.validate(catalogue, official("https://json.schemastore.org/schema-catalog.json"))
    assert len(catalogue["schemas"]) == len(LISTED)
    for entry in catalogue["schemas"]:
        path = FOLDER / entry["url"].rpartition("/")[2]
        assert json.loads(path.read_text(encoding="utf-8"))["$id"] == entry["url"]


def _caught(patterns: tuple[str, ...], path: str) -> bool:
    """As editors match: a pattern without a slash is for names, any other one for paths."""
    return any(
        fnmatch.fnmatch("/" + path, pattern.replace("**/", "*/")) if "/" in pattern else
        fnmatch.fnmatch(path.rpartition("/")[2], pattern)
        for pattern in patterns
    )  # fmt: skip


def test_no_pattern_is_for_files_of_others() -> None:
    """Neither side of SchemaStore's catalogue catches the other's files."""
    ours = {
        "deepspeed": ["ds_config.json", "ds_config_zero3.json", "deepspeed_config.json", "ds_z3_offload_config.json"],
        "accelerate": [
            "accelerate.yaml",
            "accelerate_config.yaml",
            "h/.cache/huggingface/accelerate/default_config.yaml",
        ],
        "spec": ["zerocfg.yaml"],
    }
    for name, paths in ours.items():
        assert all(_caught(EDITOR_SCHEMAS[name].matches, path) for path in paths)
    for entry in official(STORE)["schemas"]:
        theirs = tuple(pattern for pattern in entry.get("fileMatch", ()) if not pattern.startswith("!"))
        for paths in ours.values():
            assert not any(_caught(theirs, path) for path in paths), entry["name"]
        for listed in LISTED:
            names = [pattern.replace("**/", "") for pattern in theirs if "*" not in pattern.replace("**/", "")]
            assert not any(_caught(listed.matches, name) for name in names), entry["name"]
    foreign = [
        "recipe.yaml",
        "default_config.yaml",
        "config.yaml",
        "package.json",
        "zero.json",
        "config/accelerate/app.yaml",
    ]
    assert not any(_caught(listed.matches, path) for listed in LISTED for path in foreign)


def test_patterns_on_real_repositories() -> None:
    folder = corpus_folder()
    if folder is None:
        pytest.skip("no corpus of real configs here")
    caught = {"deepspeed": 0, "accelerate": 0, "spec": 0}
    for line in (folder / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        path, kind = line.split("\t")[1], line.split("\t")[3]
        for listed in LISTED:
            if _caught(listed.matches, path):
                assert kind.startswith(listed.name), Path(path)
                caught[listed.name] += 1
    assert caught["deepspeed"] > 50 and caught["accelerate"] > 10
