"""The TrainingArguments model against the installed transformers: keys, types, defaults, choices, readers."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.models.base import Section
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.models.training_arguments.distributed import AcceleratorSettings, TrainerFsdpConfig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.libs
transformers = pytest.importorskip("transformers")

FIELDS = {field.name: field for field in dataclasses.fields(transformers.TrainingArguments)}
HINTS = typing.get_type_hints(transformers.TrainingArguments)


def facts(model: type[Section], name: str) -> dict[str, Any]:
    extra = model.model_fields[name].json_schema_extra
    return extra["x-zerocfg"] if isinstance(extra, dict) else {}


def keys(*, removed: bool = False) -> set[str]:
    return {name for name in TrainingArguments.model_fields if ("removed" in facts(TrainingArguments, name)) == removed}


def kinds(annotation: Any) -> set[type]:
    """Kinds of value that a type admits; an enum is text and a section a mapping."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(kinds, arguments))
    if origin is typing.Literal:
        return {type(value) for value in arguments}
    if isinstance(origin, type):
        return {origin}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {str}
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return {dict}
    return {annotation if annotation is not None else type(None)}


def literals(annotation: Any) -> set[Any]:
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*map(literals, typing.get_args(annotation)))


def default_of(field: dataclasses.Field[Any]) -> Any:
    value = field.default_factory() if callable(field.default_factory) else field.default
    return value.value if isinstance(value, Enum) else value


def test_keys_are_the_fields() -> None:
    assert keys() == set(FIELDS)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_default_and_type_of(name: str) -> None:
    field = TrainingArguments.model_fields[name]
    assert field.get_default(call_default_factory=True) == default_of(FIELDS[name])
    # The first is read as a truth value and a list too, the second no file can hold.
    special = {"fsdp": {bool, str, list, type(None)}, "parallelism_config": {type(None)}}
    assert kinds(field.annotation) == special.get(name, kinds(HINTS[name]))


CONVERTERS = {"string_to_bool": "bool", "<lambda>": "str"}


def test_conversions_are_those_of_the_parser() -> None:
    actions: dict[str, Any] = {}
    for action in transformers.HfArgumentParser(transformers.TrainingArguments)._actions:
        if action.dest != "help":
            actions.setdefault(action.dest, action)
    assert set(actions) == keys()
    for name, action in actions.items():
        converter = getattr(action.type, "__name__", "str")
        cli = {"type": CONVERTERS.get(converter, converter)}
        assert facts(TrainingArguments, name)["cli"] == (cli | {"nargs": action.nargs} if action.nargs else cli), name
        if action.choices:
            assert literals(TrainingArguments.model_fields[name].annotation) - {None} == set(action.choices), name


def test_words_that_the_parser_does_not_list(tmp_path: Path) -> None:
    from transformers.debug_utils import DebugOption

    assert literals(TrainingArguments.model_fields["debug"].annotation) == {option.value for option in DebugOption}
    for word in literals(TrainingArguments.model_fields["include_num_input_tokens_seen"].annotation):
        made = transformers.TrainingArguments(str(tmp_path), use_cpu=True, include_num_input_tokens_seen=word)
        assert made.include_num_input_tokens_seen == word


@pytest.mark.parametrize("name", sorted(keys(removed=True)))
def test_removed_names_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        transformers.TrainingArguments(**{name: None})
    successor = facts(TrainingArguments, name).get("renamed_to", "output_dir")
    section, _, inner = successor.partition(".")
    assert section in FIELDS
    holders = {"fsdp_config": TrainerFsdpConfig, "accelerator_config": AcceleratorSettings}
    assert not inner or inner in holders[section].model_fields


@pytest.mark.parametrize("name", sorted(name for name in keys() if "deprecated" in facts(TrainingArguments, name)))
def test_deprecated_names_warn(name: str, tmp_path: Path) -> None:
    value = {"use_reentrant": False} if name.endswith("kwargs") else True
    with pytest.warns(FutureWarning, match=name):
        made = transformers.TrainingArguments(str(tmp_path), use_cpu=True, **{name: value})
    assert getattr(made, facts(TrainingArguments, name)["renamed_to"]) == value


def test_nothing_else_is_deprecated(recwarn: pytest.WarningsRecorder, tmp_path: Path) -> None:
    fresh = {name: default_of(FIELDS[name]) for name in keys() if "deprecated" not in facts(TrainingArguments, name)}
    transformers.TrainingArguments(**{**fresh, "output_dir": str(tmp_path), "use_cpu": True})
    assert not [warning for warning in recwarn if warning.category is FutureWarning]


class Recorded(dict[str, Any]):
    """A mapping that notes every key that is asked for."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def process_fsdp(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any] | None, set[str]]:
    recorded = Recorded(config)
    arguments = types.SimpleNamespace(fsdp=True, fsdp_config=recorded, activation_checkpointing=False)
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")  # the reader sets it; put back afterwards
    return transformers.TrainingArguments._process_fsdp_args(arguments), recorded.asked


def test_fsdp_keys_are_those_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, set[str]] = {}
    for case, config in {
        "1": {"version": 1},
        "2": {"version": 2},
        "wrap": {"auto_wrap_policy": "SIZE_BASED_WRAP"},
        "xla": {"xla": True, "xla_fsdp_grad_ckpt": True},
    }.items():
        asked[case] = process_fsdp(config, monkeypatch)[1]
    # Filled in for torch_xla, and looked up by the Trainer alone.
    assert set().union(*asked.values()) | {"xla_fsdp_v2"} == set(TrainerFsdpConfig.model_fields)
    only_first = {
        name for name in TrainerFsdpConfig.model_fields if facts(TrainerFsdpConfig, name).get("versions") == [1]
    }
    assert asked["1"] - asked["2"] == only_first


def test_fsdp_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = {"version": "fsdp_version", "cpu_offload": "cpu_offload"}
    made = process_fsdp({}, monkeypatch)[0] or {}
    old = process_fsdp({"version": 1}, monkeypatch)[0] or {}
    for name, field in TrainerFsdpConfig.model_fields.items():
        argument = plugin.get(name, name)
        if argument in made:
            assert made[argument] == field.default, name
        elif argument in old and facts(TrainerFsdpConfig, name).get("versions") == [1]:
            assert old[argument] == field.default, name


def test_fsdp_prefix_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    made = process_fsdp({"fsdp_state_dict_type": "SHARDED_STATE_DICT"}, monkeypatch)[0] or {}
    assert made["state_dict_type"] == "SHARDED_STATE_DICT"
    for name in TrainerFsdpConfig.model_fields:
        assert facts(TrainerFsdpConfig, name).get("aliases") == [f"fsdp_{name}"], name


def test_accelerator_settings_are_the_fields() -> None:
    from transformers.trainer_pt_utils import AcceleratorConfig

    fields = {field.name: field for field in dataclasses.fields(AcceleratorConfig)}
    assert set(AcceleratorSettings.model_fields) == set(fields)
    for name, field in fields.items():
        assert AcceleratorSettings.model_fields[name].default == field.default


def recipe(tmp_path: Path, text: str) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"output_dir: {tmp_path}\nuse_cpu: true\n{text}")
    return str(path)


def test_what_the_yaml_reader_does_with_text(tmp_path: Path) -> None:
    assert TrainingArguments.readers["HfArgumentParser.parse_yaml_file"] == "kept"
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (made,) = parser.parse_yaml_file(recipe(tmp_path, "learning_rate: 1e-5\nbf16: 'no'\n"))
    assert made.learning_rate == "1e-5"
    assert made.bf16 == "no"
    with pytest.raises(ValueError, match="not used by the HfArgumentParser"):
        parser.parse_yaml_file(recipe(tmp_path, "learning_rat: 1.0\n"))


def test_what_trl_does_with_text(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    assert TrainingArguments.readers["TrlParser"] == "converted"
    text = "learning_rate: 1e-5\nbf16: 'no'\ngradient_accumulation_steps: 4.0\n"
    parser = trl.TrlParser(transformers.TrainingArguments)
    (made,) = parser.parse_args_and_config(["--config", recipe(tmp_path, text)])
    assert made.learning_rate == 1e-5
    assert made.bf16 is False
    assert isinstance(made.gradient_accumulation_steps, float)
    with pytest.raises(ValueError, match="Unknown arguments"):
        parser.parse_args_and_config(["--config", recipe(tmp_path, "learning_rat: 1.0\n")])


@pytest.mark.parametrize("written", ["full_shard auto_wrap", ["shard_grad_op", "offload"]])
def test_older_words_of_fsdp_still_work(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")  # the reader sets it; put back afterwards
    arguments = types.SimpleNamespace(
        fsdp=written,
        fsdp_config=None,
        activation_checkpointing=False,
        _apply_legacy_fsdp_to_config=transformers.TrainingArguments._apply_legacy_fsdp_to_config,
    )
    made = transformers.TrainingArguments._process_fsdp_args(arguments)
    assert made["reshard_after_forward"] is ("full_shard" in written)
    assert made.get("cpu_offload", False) is ("offload" in written)
