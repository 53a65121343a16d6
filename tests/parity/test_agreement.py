"""Models, compiled schemas, a plain validator and the real libraries agree, on single keys and on 5,000 configs that
nobody wrote; a change in one of them is seen."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pydantic import create_model

from tests.parity import generated
from tests.parity.agreement import (
    MODELS,
    by_catalog,
    by_model,
    by_validator,
    differences,
    sections,
)
from tests.parity.test_generated import ACCELERATE_BASES, DEEPSPEED_BASE, seeds
from zerocfg.catalog.alternatives import own_keys
from zerocfg.catalog.schema import Schema, load_schema
from zerocfg.catalog.schema import Section as Keys
from zerocfg.models.base import Section, keys_of, stated
from zerocfg.models.schema import SCHEMAS

EMPTY = "an empty value that is no text: nothing checks the type, and linting says that it must not be empty"
TRUE = "true is 1 to linting; as the text of a variable it is True, and no number"
KNOWN = {
    ("DeepSpeedConfig", "datastates_ckpt"): "the text 0 is false to linting; every text turns it on",
    ("Autotuning", "results_dir"): EMPTY,
    ("Autotuning", "exps_dir"): EMPTY,
    ("Fp16", "loss_scale"): "infinity, which JSON Schema cannot refuse",
    ("ZeroOptimization", "mics_shard_size"): "DeepSpeed drops an auto before it looks at the key",
    ("ZeroOptimization", "mics_hierarchical_params_gather"): "the same",
    ("ZeroOptimization", "zeropp_loco_param"): "the same",
    ("ParallelismConfig", "parallelism_config_sp_attn_implementation"): "the pattern of the name is a rule's to judge",
    ("FsdpConfig", "fsdp_version"): TRUE,
    ("TrainerFsdpConfig", "version"): TRUE,
}
"""Where models and compiled schemas differ, and why."""

ALL = [
    pytest.param(name, model, part, whole, id=f"{name}-{model.__name__}")
    for name, root in MODELS.items()
    for whole in [SCHEMAS[name]()]
    for model, part in sections(root, whole)
]


@pytest.mark.parametrize(("name", "model", "part", "whole"), ALL)
def test_single_keys(name: str, model: type[Section], part: dict[str, Any], whole: dict[str, Any]) -> None:
    wrong = differences(model, part, whole)
    assert [one for one in wrong if (model.__name__, one.partition(":")[0]) not in KNOWN] == []


# --- mutations --------------------------------------------------------------------------------------------------------


def mutants(prop: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema of a key with one change each: a type, a bound, a choice, the default."""
    whole = copy.deepcopy(prop)
    for branch in [whole, *whole.get("anyOf", [])]:
        for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if word in branch:
                before = branch[word]
                branch[word] = before + 1
                yield f"{word} {before} -> {before + 1}", copy.deepcopy(whole)
                branch[word] = before
        if "enum" in branch:
            for at, choice in enumerate(branch["enum"]):
                branch["enum"].pop(at)
                # null and "auto" are for others to judge; the word no is false as well where a truth value fits.
                if branch["enum"] and choice not in (None, "auto", "no"):
                    yield f"without {choice!r}", copy.deepcopy(whole)
                branch["enum"].insert(at, choice)
        elif isinstance(branch.get("type"), str) and "$ref" not in branch:
            before = branch["type"]
            branch["type"] = "array" if before != "array" else "boolean"
            yield f"{before} -> {branch['type']}", copy.deepcopy(whole)
            branch["type"] = before
    if "default" in whole:
        yield "default", {**whole, "default": ["another"]}


def schema_mutants() -> list[Any]:
    found = []
    for _, model, part, whole in (one.values for one in ALL):
        for key, prop in own_keys(part["properties"]).items():
            facts = prop.get("x-zerocfg", {})
            # Of any key and any text "truth" makes something; nobody checks the type of an untyped key.
            unchecked = facts.get("reads") in ("raw", "str", "truth", "true", "bool") or "variants" in facts
            for what, mutant in mutants(prop):
                if unchecked and "->" in what and what.split()[0] not in ("minimum", "maximum", "exclusiveMinimum"):
                    continue
                if (model.__name__, key) not in KNOWN and not {"removed", "never", "variants"} & set(facts):
                    found.append(pytest.param(model, part, whole, key, mutant, id=f"{model.__name__}.{key}: {what}"))
    return random.Random(20).sample(found, 400)


@pytest.mark.parametrize(("model", "part", "whole", "key", "mutant"), schema_mutants())
def test_a_change_of_a_schema_is_seen(
    model: type[Section], part: dict[str, Any], whole: dict[str, Any], key: str, mutant: dict[str, Any]
) -> None:
    changed = {**part, "properties": {**part["properties"], key: mutant}}
    assert differences(model, changed, whole, only=key)


def model_mutants() -> list[Any]:
    """Classes with one key of another type, bound or default, against the schema of the unchanged class."""
    found = []
    for _, model, part, whole in (one.values for one in ALL):
        for key, declared in keys_of(model).items():
            if declared.facts.get("reads") != "lax" or (model.__name__, key) in KNOWN or not declared.scalar:
                continue
            if "default" in part["properties"].get(key, {}) and "removed" not in declared.facts:
                found += [pytest.param(model, part, whole, key, what, id=f"{model.__name__}.{key}: {what}")
                          for what in ("type", "bound", "default")]  # fmt: skip
    return random.Random(20).sample(found, 150)


@pytest.mark.parametrize(("model", "part", "whole", "key", "what"), model_mutants())
def test_a_change_of_a_model_is_seen(
    model: type[Section], part: dict[str, Any], whole: dict[str, Any], key: str, what: str
) -> None:
    from annotated_types import Gt
    from pydantic import Field

    field = model.model_fields[key]
    facts = {"json_schema_extra": {"x-zerocfg": stated(field)}}
    default = field.get_default(call_default_factory=True)
    changes: dict[str, Any] = {
        "type": (int if "dict" in str(field.annotation) else dict[str, int], Field(default, **facts)),
        "bound": (Any, Field(default, **facts)) if default is not ... else None,
        "default": (field.annotation, Field("another", **facts)),
    }
    if what == "bound":
        import typing

        changes["bound"] = (typing.Annotated[float, Gt(10**8)], Field(default, **facts))
    mutant = create_model(model.__name__, __base__=model, **{key: changes[what]})
    assert differences(mutant, part, whole, only=key)


# --- 5,000 configs ----------------------------------------------------------------------------------------------------

SHARDS = 10
OF_EACH = 500


@cache
def configs(name: str) -> st.SearchStrategy[dict[str, Any]]:
    schema = load_schema(name)
    if name == "deepspeed":
        typed = generated.typed(schema, DEEPSPEED_BASE)
        return st.one_of(typed, st.deferred(lambda: generated.mistaken(seeds("ds.json"))))
    if name == "accelerate":
        bases = st.sampled_from(ACCELERATE_BASES)
        typed = bases.flatmap(lambda base: generated.typed(schema, base))
        return st.one_of(typed, st.deferred(lambda: generated.mistaken(seeds("accelerate.yaml"))))
    return generated.typed(schema, {"output_dir": "out", "learning_rate": 1e-4}, most=8)


def drawn(name: str, shard: int, many: int, compare: Callable[[dict[str, Any]], None]) -> None:
    """Other configs in each shard, the same in each run."""

    @hypothesis.seed(shard)
    @hypothesis.settings(
        max_examples=many, deadline=None, database=None, derandomize=False, suppress_health_check=list(HealthCheck)
    )
    @given(tree=configs(name))
    def each(tree: dict[str, Any]) -> None:
        compare(plain(tree))

    each()


def plain(tree: Any) -> Any:
    """As a reader of the file sees it: of equal keys the last."""
    if isinstance(tree, dict):
        return {str(key): plain(value) for key, value in tree.items()}
    return [plain(item) for item in tree] if isinstance(tree, list) else tree


SHARES = {"deepspeed": 0.5, "accelerate": 0.3, "training-arguments": 0.1, "trl": 0.1}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_generated_configs(shard: int, count: Callable[[str, int], None]) -> None:
    seen: list[bool] = []

    def compare(name: str, tree: dict[str, Any]) -> None:
        told = by_catalog(tree, load_schema(name))
        _, refused = by_model(tree, MODELS[name])
        if twice(load_schema(name).root, tree, load_schema(name)):
            return
        assert bool(told) is bool(refused) or known(name, tree) or kept_autos(tree, refused), (told, refused, tree)
        errors = by_validator(tree, name)
        silent = by_catalog(tree, load_schema(name), silent=True)
        assert errors or not silent or known(name, tree) or softer(silent, tree), (silent, tree)
        left = [error for error in errors if not (converted(error) or handed_on(error, name))]
        assert not left or silent or known(name, tree), ([error.message for error in left], tree)
        seen.append(bool(refused))

    for name, share in SHARES.items():
        drawn(name, shard, int(OF_EACH * share), lambda tree, name=name: compare(name, tree))  # type: ignore[misc]
    count("generated configs judged by models, schemas and a plain validator", len(seen))
    assert 0 < sum(seen) < len(seen)


@pytest.mark.parametrize(("name", "refused"), [("bf16", False), ("bfloat16", True)])
def test_a_section_that_is_null(name: str, refused: bool) -> None:
    """DeepSpeed 0.19.8 looks `bf16` up and unpacks `bfloat16`: `argument after ** must be a mapping, not NoneType`."""
    tree = {"train_micro_batch_size_per_gpu": 1, name: None}
    told = by_catalog(tree, load_schema("deepspeed"))
    assert [bool(told), bool(by_model(tree, MODELS["deepspeed"])[1]), bool(by_validator(tree, "deepspeed"))] == [
        refused
    ] * 3


def twice(section: Keys, tree: dict[str, Any], schema: Schema) -> bool:
    """Whether a key stands under two of its names: DeepSpeed's typed sections refuse that, and linting misses it."""
    keys = [section.key(name) for name in tree]
    if len(keys) != len({id(key) for key in keys if key is not None}) + keys.count(None):
        return True
    below = [(key.section(schema), value) for key, value in zip(keys, tree.values(), strict=True) if key is not None]
    return any(twice(inner, value, schema) for inner, value in below if inner is not None and isinstance(value, dict))


def known(name: str, tree: Any) -> bool:
    """Whether a config holds a key about which they are known to differ."""
    if isinstance(tree, dict):
        return any(key in _KNOWN_NAMES or known(name, value) for key, value in tree.items())
    return False


_KNOWN_NAMES = {key for _, key in KNOWN} | {"sp_attn_implementation", "version"}


def kept_autos(tree: dict[str, Any], refused: list[str]) -> bool:
    """Of a parameter that its optimizer or schedule does not know linting says that DeepSpeed drops its "auto"; only
    its typed sections do, and the constructor stops."""
    return all("'params'" in one and "Extra inputs" in one for one in refused) and '"auto"' in json.dumps(tree)


def softer(told: dict[Any, str], tree: dict[str, Any]) -> bool:
    """What a plain validator takes: a comment that nobody reads; what no value fits (`never`); parameters that the
    named optimizer or schedule does not have; 16.0, which JSON Schema does not tell from 16."""
    for path in told:
        value: Any = tree
        for part in path:
            value = value[part]
        comment = str(path[-1]).startswith(("_", "$"))
        number = isinstance(value, float) and (math.isinf(value) or value.is_integer())
        if not (comment or number or path == ("tensor_parallel", "dtype") or path[1:2] == ("params",)):
            return False
    return True


def converted(error: Any) -> bool:
    """Whether a plain validator refuses a value only because it knows no conversions: text, a truth value or a number
    of another type, which the library converts or never looks at; null and "auto" that count as absent; an argument of
    the launcher in any section, which the launcher takes."""
    if error.validator == "additionalProperties":
        return "also" in error.schema["x-zerocfg"]
    return not isinstance(error.instance, dict) or error.instance == {}


def handed_on(error: Any, name: str) -> bool:
    """Whether a plain validator refuses a mapping where the library checks no type: DeepSpeed hands the parameters of
    an optimizer on as they are, accelerate's launcher asks for the truth of a value alone or hands it on as text.
    Linting refuses nothing there (a warning, ZC109, is no refusal)."""
    reads = error.schema.get("x-zerocfg", {}).get("reads")
    unchecked = reads == "raw" or (name == "accelerate" and reads in ("truth", "true", "str"))
    return isinstance(error.instance, dict) and unchecked
