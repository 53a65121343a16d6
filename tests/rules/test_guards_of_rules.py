"""What rules ask before they say anything: each answer beside the nearest case with another one, worked out by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of, source
from zerocfg.catalog.admitted import admitted
from zerocfg.rules import registry
from zerocfg.rules.api import Intent
from zerocfg.rules.arguments import given, type_of
from zerocfg.rules.effects import compute_environment
from zerocfg.rules.fsdp.plugin import _other_word, fsdp_argument
from zerocfg.rules.intents import meant
from zerocfg.rules.issues import _names, issues
from zerocfg.rules.launch.config import _counted
from zerocfg.rules.launch.shell import _alike
from zerocfg.rules.launch.torchrun import _reads_deepspeed
from zerocfg.rules.memory.capacity import whole_model_trained
from zerocfg.rules.release_scope import _among
from zerocfg.rules.repairs import _as_text, as_section, strict_json
from zerocfg.rules.taken import Lack, _of, _sure, life, named
from zerocfg.rules.zero.saving import _never_saves, _remedy
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.source.edit import apply_edits, delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText


def read(kind: Any, text: str) -> SourceFile:
    written = SourceText("a.json", text)
    return SourceFile(written.name, kind, written, load_as(written, "json"))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("OUT_DIR", "OUTDIR", True),
        ("out", "OUT", True),
        ("OUT", "OUT", False),
        ("OUT", "CUT", False),
        ("NODES", "NODEZ", False),
        ("OUTPUT", "OUTPUR", True),
        ("OUTPUT", "OUTXUT", True),
        ("OUTPUT", "OUTPUTS", True),
        ("OUTPUTS", "OUTPUT", True),
        ("OUTPUT", "XOUTPUT", True),
        ("OUTPUT", "OUTPUT1", False),
        ("OUTPUT1", "OUTPUT2", False),
        ("OUTPUT", "OUTXXT", False),
        ("OUTPUT", "OUTPUTED", False),
    ],
)
def test_names_that_are_one_letter_apart(one: str, other: str, alike: bool) -> None:
    """Of six letters or more; digits number things."""
    assert _alike(one, other) is alike


@pytest.mark.parametrize(
    ("text", "strict", "safe"),
    [
        ("{a: 1}", '{"a": 1}', True),
        ("{'a': 'b'}", '{"a": "b"}', True),
        ('{"a": 1,}', '{"a": 1}', True),
        ("{'ä': 1, \"b\": 2,}", '{"ä": 1, "b": 2}', True),
        ('// x\n{"a": 1}', '{"a": 1}', False),
        ('{"a": 1 // x\n}', '{"a": 1\n}', False),
        ('{\n  # x\n  "a": 1}\n', '{\n  "a": 1}\n', False),
        ('{\r\n  # x\r\n  "a": 1}', '{\r\n  "a": 1}', False),
        ('{\n  /* x */ "a": 1}', '{\n "a": 1}', False),
        ('{"a": 1} // x', '{"a": 1}', False),
    ],
)
def test_a_file_in_strict_json(text: str, strict: str, safe: bool) -> None:
    """A comment takes its line along where it is alone there. Comments are lost, whatever else stays."""
    file = read("deepspeed", text)
    assert file.document is not None
    fix = strict_json(file, [one for one in file.document.problems if one.form])
    assert fix is not None and fix.safe is safe
    after = apply_edits(text, [edit for _, edit in fix.edits])
    assert after == strict and json.loads(after)


def test_a_text_in_single_quotes_with_a_backslash_is_left_alone() -> None:
    file = read("deepspeed", "{'a\\n': 1}")
    assert file.document is not None and strict_json(file, list(file.document.problems)) is None


@pytest.mark.parametrize(
    ("consumer", "methods", "strategy", "never"),
    [
        ("accelerate", {"eval"}, None, True),
        ("accelerate", {"backward"}, None, False),
        ("accelerate", {"backward", "save_state"}, None, True),
        ("accelerate", {"backward", "save_state", "save_model"}, None, False),
        ("transformers", {"train", "save_state"}, None, False),
        ("transformers", {"train"}, "steps", False),
        ("transformers", {"train"}, "no", True),
        ("transformers", {"train", "save_model"}, "no", False),
        ("transformers", {"train", "push_to_hub"}, "no", False),
        ("accelerate", {"backward"}, "no", False),
        ("deepspeed", {"train_batch", "save_checkpoint"}, None, False),
    ],
)
def test_scripts_that_keep_no_weights(consumer: str, methods: set[str], strategy: str | None, never: bool) -> None:
    script: Any = SimpleNamespace(foreign=False, whole=True, methods=frozenset(methods), parsed=frozenset())
    recipe = {} if strategy is None else {"recipe": {"save_strategy": strategy}}
    assert _never_saves(run_of(consumer, script=script, **recipe)) is never
    part: Any = SimpleNamespace(foreign=False, whole=False, methods=frozenset(methods), parsed=frozenset())
    assert not _never_saves(run_of(consumer, script=part, **recipe)), "not all of it is known"
    foreign: Any = SimpleNamespace(foreign=True, whole=False, methods=frozenset(methods), parsed=frozenset())
    assert _never_saves(run_of(consumer, script=foreign, **recipe))


def test_where_gathering_is_switched_on() -> None:
    in_yaml = "write `zero3_save_16bit_model: true` in `deepspeed_config`"
    assert _remedy(run_of(accelerate={"deepspeed_config": {"zero_stage": 3}})) == in_yaml
    in_json = 'write "stage3_gather_16bit_weights_on_model_save": true in zero_optimization'
    both = run_of(accelerate={"deepspeed_config": {}}, deepspeed={"zero_optimization": {"stage": 3}})
    assert _remedy(both) == in_json == _remedy(run_of(deepspeed={}))


@pytest.mark.parametrize(("consumer", "said"), [("transformers", True), ("trl", True), ("accelerate", None)])
def test_only_a_trainer_has_the_argument_fsdp(consumer: str, said: bool | None) -> None:
    assert fsdp_argument(run_of(consumer, recipe={"fsdp": True})) is said
    assert fsdp_argument(run_of(consumer, recipe={"seed": 1})) is None


def test_keys_of_a_schedule_are_those_of_its_type() -> None:
    params = {"warmup_num_steps": 10}
    names = _names(source("deepspeed", {"scheduler": {"type": "WarmupLR", "params": params}}), "deepspeed")
    assert {"scheduler.WarmupLR.warmup_num_steps", "scheduler.params.warmup_num_steps"} <= names
    assert not names & {"scheduler.WarmupLR.type", "scheduler.WarmupLR.scheduler", "scheduler.WarmupLR.params"}
    assert not [
        name for name in _names(source("deepspeed", {"scheduler": {"params": params}}), "deepspeed") if "W" in name
    ]


@pytest.mark.parametrize(
    ("files", "library"),
    [
        ({"accelerate": {"num_machines": "two"}}, "accelerate"),
        ({"accelerate": {"compute_environment": "AMAZON_SAGEMAKER", "num_machines": "two"}}, "accelerate"),
        ({"deepspeed": {"train_batch_size": "two"}}, "DeepSpeed"),
        ({"spec": {"version": 1, "runs": {"a": {"sequence_length": "two"}}}}, "zerocfg"),
    ],
)
def test_who_stops_at_a_key(files: dict[str, Any], library: str) -> None:
    run = Run("a", None, **{kind: read(kind, json.dumps(data)) for kind, data in files.items()})
    assert [one.library for one in issues(run, "type", "raw-type")] == [library]


def test_what_releases_lack_of_an_argument() -> None:
    """SFTConfig had `max_seq_length` from TRL 0.9.2 on, and until 0.19."""
    own = life("trl", ("SFTConfig.max_seq_length",))
    assert own is not None

    def lack(among: str, behind: bool) -> Any:
        found = _of(own, "trl", admitted("trl", among), behind)
        return None if found is None else (found.edge, found.releases)

    assert lack("==0.8.6", behind=True) is None and lack("==1.16.0", behind=False) is None
    assert lack("==0.19.1", behind=True) is None is lack("==0.19.1", behind=False)
    assert lack("==1.16.0", behind=True) == ("0.20.0", "")
    assert lack("==0.8.6", behind=False) == ("0.9.2", "")
    edge, releases = lack(">=0.8.6", behind=True)
    assert edge == "0.20.0" and "0.20.0" in releases and "0.8.6" not in releases
    edge, releases = lack(">=0.8.6", behind=False)
    assert edge == "0.9.2" and "0.20.0" not in releases


@pytest.mark.parametrize(
    ("consumer", "versions", "known"),
    [
        ("transformers", {"transformers": "5.23.0"}, True),
        ("transformers", {}, False),
        ("transformers", {"transformers": "<0.0.1"}, False),
        ("trl", {"transformers": "5.23.0", "trl": "1.16.0"}, True),
        ("trl", {"transformers": "5.23.0"}, False),
        ("trl", {"transformers": "5.23.0", "trl": "<0.0.1"}, False),
    ],
)
def test_arguments_of_the_admitted_releases(consumer: str, versions: dict[str, str], known: bool) -> None:
    found = named(run_of(consumer, recipe={"output_dir": "out", "max_steps": 1}, versions=versions))
    assert (found is not None) is known
    if found is not None:
        assert "learning_rate" in found and ("packing" in found) is (consumer == "trl")


def test_the_registry_has_one_name_that_is_made_late() -> None:
    assert registry.ALL[0].code == "ZC001"
    with pytest.raises(AttributeError, match="NONE"):
        _ = registry.NONE


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, '"0"'), ([0, 1], '"0,1"'), ([], None), ([True], None), (True, None), (["a"], None), (1.5, None), (None, None)],
)
def test_numbers_as_a_text(value: object, text: str | None) -> None:
    assert _as_text(value) == text


@pytest.mark.parametrize(
    ("path", "value", "keys", "fix"),
    [
        (("a",), None, None, ("delete", "remove the empty section")),
        (("deepspeed_config",), "ds.json", None, ("replace", "{deepspeed_config_file: ds.json}")),
        (("deepspeed_config",), "ds.yaml", None, None),
        (("deepspeed_config",), 3, None, None),
        (("other",), "ds.json", None, None),
        (("bf16",), True, {"enabled"}, ("replace", '{"enabled": true}')),
        (("bf16",), 1, {"enabled"}, None),
        (("bf16",), True, {"other"}, None),
        (("bf16",), True, None, None),
    ],
)
def test_a_section_in_the_place_of_a_value(path: Any, value: object, keys: set[str] | None, fix: Any) -> None:
    section = None if keys is None else SimpleNamespace(key=lambda name: name if name in keys else None)
    key: Any = SimpleNamespace(
        path=path,
        value=value,
        issue=SimpleNamespace(section=section),
        delete=lambda why, safe: ("delete", why, safe),
        replace=lambda text, why, safe: ("replace", text, safe),
    )
    assert as_section(key) == (None if fix is None else (*fix, False))


@pytest.mark.parametrize(
    ("recipe", "all_trained", "whole"),
    [
        ({}, True, True),
        ({"use_peft": True}, True, False),
        ({"use_peft": True}, False, True),  # the spec counts what is trained
        ({"use_peft": False}, True, True),
        ({"load_in_4bit": True}, None, False),
    ],
)
def test_whether_the_whole_model_is_trained(recipe: dict[str, Any], all_trained: bool | None, whole: bool) -> None:
    model: Any = None if all_trained is None else SimpleNamespace(all_trained=all_trained)
    assert whole_model_trained(run_of(recipe={"output_dir": "out", **recipe}, model=model)) is whole
    zenflow = {"zero_optimization": {"zenflow": {}}}
    assert whole_model_trained(run_of(recipe=recipe, model=model, deepspeed=zenflow)) is (all_trained is False)


def test_where_a_config_lets_a_job_run() -> None:
    assert compute_environment(run_of(accelerate={"num_processes": 2})) == "LOCAL_MACHINE"
    assert compute_environment(run_of(accelerate={"compute_environment": "AMAZON_SAGEMAKER"})) == "AMAZON_SAGEMAKER"
    assert compute_environment(run_of(accelerate=[1])) is None is compute_environment(run_of())


def test_what_is_given_for_an_argument() -> None:
    found = given(run_of(recipe={"seed": 3}), "seed")
    assert found is not None and found.value == 3
    assert given(run_of(recipe={"seed": 3}), "max_steps") is None, "the Trainer has a default"
    for consumer in ("swift", "axolotl"):
        unknown = given(run_of(consumer), "seed")
        assert unknown is not None and unknown.value is UNKNOWN, "the framework decides it"


@pytest.mark.parametrize(("name", "kind"), [("learning_rate", "float"), ("seed", "int"), ("no_such_argument", None)])
def test_the_type_of_a_word(name: str, kind: str | None) -> None:
    for versions in ({}, {"transformers": "5.23.0"}, {"transformers": ">=5.22"}):
        assert type_of(run_of(recipe={}, versions=versions), name) == kind


@pytest.mark.parametrize(("ids", "written"), [("0", "1"), ("0,1", "2"), ("0, 1, 2", "3"), ("all", None), ("", None)])
def test_processes_are_counted_by_the_devices(ids: str, written: str | None) -> None:
    fix = _counted(run_of(accelerate={"distributed_type": "MULTI_GPU", "gpu_ids": ids}))
    assert (fix.description if fix is not None else None) == (
        None if written is None else f"write num_processes: {written}"
    )


@pytest.mark.parametrize(
    ("value", "version", "word"),
    [
        (False, "1", "SHARD_GRAD_OP"),
        ("false", "1", "SHARD_GRAD_OP"),
        (True, "1", None),
        ("NO_SHARD", "1", "NO_SHARD"),
        ("FULL_SHARD", "1", None),
        ("SHARD_GRAD_OP", "2", "false"),
        (2, "2", "false"),
        (1, "2", None),
        (False, "2", None),
    ],
)
def test_a_strategy_in_the_words_of_the_other_version(value: object, version: str, word: str | None) -> None:
    assert _other_word(value, version) == word


@pytest.mark.parametrize(
    ("declared", "speaks"),
    [("==1.9.0", ""), ("==1.7.0", None), ("<1.8", None), ("junk", ""), (">=1.8", ""), (">=1.9", "")],
)
def test_a_rule_speaks_where_its_releases_are_admitted(declared: str, speaks: str | None) -> None:
    """None: of none of them; an empty text: of all, or nobody can tell."""
    assert _among("accelerate", "accelerate>=1.8", declared) == speaks
    assert "1.8" in (_among("accelerate", "accelerate>=1.8", ">=1.7") or "")


@pytest.mark.parametrize(
    ("files", "route", "reads"),
    [
        ({"deepspeed": {}, "recipe": {"seed": 1}}, "trainer", True),
        ({"deepspeed": {}}, "trainer", False),
        ({"deepspeed": {}}, "engine", True),
        ({"deepspeed": {}, "recipe": {"seed": 1}}, None, False),
        ({"recipe": {"seed": 1}}, "engine", False),
    ],
)
def test_scripts_that_certainly_read_a_deepspeed_config(files: dict[str, Any], route: Any, reads: bool) -> None:
    assert _reads_deepspeed(run_of(deepspeed_route=route, **files)) is reads


def test_a_lack_is_kept_where_no_script_is_named() -> None:
    lack = Lack("trl", "from TRL 0.20.0 on", "0.20.0")
    held: Any = SimpleNamespace(on_line=True)
    for script in (None, SimpleNamespace(value=None)):
        launch: Any = SimpleNamespace(script=script)
        assert _sure(run_of(launch=launch), held, lack) is lack
    assert _sure(run_of(), held, None) is None


def test_what_an_edit_means() -> None:
    file = read("accelerate", '{"num_processes": 2}')
    four = (Intent("num_processes", 4, "option"),)
    assert meant(replace_value, file, ("num_processes",), ("4",)) == four
    assert meant(insert_entry, file, (), ("num_processes", "4")) == four
    assert meant(delete_entry, file, ("num_processes",), ()) == () == meant(replace_value, file, ("num_processes",), ())
    assert meant(rename_key, file, ("num_processes",), ("num_machines",)) == (), "another name says the same"
