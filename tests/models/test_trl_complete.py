"""The TRL recipe against the installed TRL: keys, types, defaults and choices of every dataclass in it."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from zerocfg.models.trl import TRAINERS, Recipe
from zerocfg.models.trl.keys import KEYS
from zerocfg.models.trl.older_names import DEPRECATED, REMOVED
from zerocfg.models.trl.recipe import ALSO, CLASSES, declared

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.libs
trl = pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")


@functools.cache
def dataclass_named(name: str) -> Any:
    from trl.scripts.grpo import GRPOScriptArguments
    from trl.scripts.rloo import RLOOScriptArguments
    from trl.trainer.base_config import _BaseConfig

    elsewhere = {"GRPOScriptArguments": GRPOScriptArguments, "RLOOScriptArguments": RLOOScriptArguments}
    return {**elsewhere, "_BaseConfig": _BaseConfig}.get(name) or getattr(trl, name)


def type_text(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_text, arguments))
    if origin is list:
        return f"list[{type_text(arguments[0])}]"
    if isinstance(origin, type):
        return origin.__name__
    if dataclasses.is_dataclass(annotation):
        return "dict"
    return "None" if annotation is type(None) else annotation.__name__


def table(owner: Any) -> dict[str, tuple[Any, ...]]:
    """(default, choices) of each field."""
    found: dict[str, tuple[Any, ...]] = {}
    for field in dataclasses.fields(owner):
        default = field.default_factory() if callable(field.default_factory) else field.default
        found[field.name] = (
            default.value if isinstance(default, Enum) else default,
            tuple(field.metadata.get("choices", ())),
        )
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_defaults_and_choices_of(name: str) -> None:
    real, general = table(dataclass_named(name)), table(transformers.TrainingArguments) if name in TRAINERS else {}
    assert declared(name) == {key: entry for key, entry in real.items() if general.get(key) != entry}


def test_types() -> None:
    """A key's type is what its classes take together; TrainingArguments says it of a key that TRL leaves as it is."""
    found: dict[str, set[str]] = {}
    for owner in CLASSES:
        hints = typing.get_type_hints(dataclass_named(owner))
        for key in declared(owner):
            found.setdefault(key, set()).update(type_text(hints[key]).split(" | "))
    assert {key: set(entry.type.split(" | ")) for key, entry in KEYS.items()} == found


def test_every_stable_trainer_is_there() -> None:
    """All configurations that TRL exports at its top level, which are those of its own commands."""
    exported = {name for name in dir(trl) if name.endswith("Config")}
    assert exported - {"ModelConfig", "DatasetMixtureConfig"} == set(TRAINERS)


def parser_for(trainer: str) -> Any:
    script = {"GRPOConfig": "GRPOScriptArguments", "RLOOConfig": "RLOOScriptArguments"}.get(trainer, "ScriptArguments")
    parts = (script, trainer, "ModelConfig", "DatasetMixtureConfig")
    return trl.TrlParser([dataclass_named(part) for part in parts]), parts


def facts(name: str) -> dict[str, Any]:
    extra = Recipe.model_fields[name].json_schema_extra
    return extra["x-zerocfg"] if isinstance(extra, dict) else {}


def declared_for(parts: tuple[str, ...]) -> set[str]:
    """Keys of the recipe that one of these dataclasses reads."""
    alive = {name for name in Recipe.model_fields if name != "env" and "removed" not in facts(name)}
    return {name for name in alive if "in" not in facts(name) or {*parts} & {*facts(name)["in"]}}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_keys_and_defaults_of_the_command_of(trainer: str) -> None:
    parser, parts = parser_for(trainer)
    actions: dict[str, Any] = {}
    for action in parser._actions:
        if action.dest != "help":
            actions.setdefault(action.dest, action)
    declared = declared_for(parts)
    assert declared == set(actions)
    for name, action in actions.items():
        defaults = facts(name).get("defaults", {})
        expected = [defaults[part] for part in parts if part in defaults]
        default = action.default.value if isinstance(action.default, Enum) else action.default
        if name == "debug":  # the parser turns the field's empty text into None; neither asks for anything
            continue
        if defaults:
            assert expected == [default], name
        else:
            assert Recipe.model_fields[name].get_default(call_default_factory=True) == default, name


def test_removed_names_are_unknown_to_every_command(tmp_path: Path) -> None:
    known = {field.name for owner in CLASSES for field in dataclasses.fields(dataclass_named(owner))}
    assert not known & set(REMOVED)
    assert {successor for _, successor in REMOVED.values() if successor} <= known
    path = tmp_path / "recipe.yaml"
    path.write_text("max_seq_length: 512\n")
    with pytest.raises(ValueError, match="--max_seq_length"):
        parser_for("SFTConfig")[0].parse_args_and_config(["--config", str(path), "--use_cpu"])


def test_values_beyond_the_declared_type(tmp_path: Path) -> None:
    for written, meant in ((True, "group"), (False, "none")):
        made = trl.GRPOConfig(str(tmp_path), use_cpu=True, scale_rewards=written)
        assert made.scale_rewards == meant
    assert trl.ModelConfig(lora_target_modules="all-linear").lora_target_modules == "all-linear"
    assert set(ALSO) == {"scale_rewards", "lora_target_modules"}


@pytest.mark.parametrize("name", DEPRECATED)
def test_deprecated_names_warn(name: str, tmp_path: Path) -> None:
    owner, _, successor = DEPRECATED[name]
    value = {"pad_token": "x", "vllm_importance_sampling_cap": 2.0}.get(name, True)
    with pytest.warns(FutureWarning, match=f"`{name}`"):
        made = dataclass_named(owner)(str(tmp_path), use_cpu=True, **{name: value})
    assert successor is None or getattr(made, successor) == value


def test_bf16_is_on_by_default(tmp_path: Path) -> None:
    assert trl.SFTConfig(str(tmp_path), use_cpu=True).bf16 is True
    assert trl.SFTConfig(str(tmp_path), use_cpu=True, fp16=True).bf16 is False


@pytest.mark.parametrize("written", [True, False, None])
def test_checkpointing_is_on_unless_the_new_name_says_otherwise(written: bool | None, tmp_path: Path) -> None:
    made = trl.SFTConfig(str(tmp_path), use_cpu=True, activation_checkpointing=written)
    assert made.activation_checkpointing is (written is not False)


def test_environment_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("ZEROCFG_TEST_VARIABLE", "before")
    path = tmp_path / "recipe.yaml"
    path.write_text("env: {ZEROCFG_TEST_VARIABLE: 7}\nmax_length: 512\n")
    parser = trl.TrlParser([trl.SFTConfig])
    (made,) = parser.parse_args_and_config(["--config", str(path), "--use_cpu"])
    assert os.environ["ZEROCFG_TEST_VARIABLE"] == "7"
    assert made.max_length == 512


@pytest.mark.parametrize("trainer", ["SFTConfig", "DPOConfig", "GRPOConfig"])
def test_unknown_keys_of_real_files_are_those_that_the_parser_leaves(trainer: str, corpus: Path) -> None:
    parser, parts = parser_for(trainer)
    known = declared_for(parts)
    checked = 0
    for path in sorted(corpus.rglob("*.y*ml")):
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError:
            continue
        if not isinstance(content, dict) or "output_dir" not in content:
            continue
        content.pop("env", None)
        left = {word[2:] for word in parser.set_defaults_with_config(**content)[::2]}
        assert left == set(content) - known, path
        checked += 1
    assert checked > 50
