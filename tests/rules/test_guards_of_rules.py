"""What rules ask before they say anything: each answer beside the nearest case with another one, worked out by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of, source
from zerocfg.catalog.admitted import admitted
from zerocfg.rules import registry
from zerocfg.rules.fsdp.plugin import fsdp_argument
from zerocfg.rules.issues import _names, issues
from zerocfg.rules.launch.shell import _alike
from zerocfg.rules.repairs import strict_json
from zerocfg.rules.taken import _of, life, named
from zerocfg.rules.zero.saving import _never_saves, _remedy
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import apply_edits
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
    script: Any = SimpleNamespace(foreign=False, whole=True, methods=frozenset(methods))
    recipe = {} if strategy is None else {"recipe": {"save_strategy": strategy}}
    assert _never_saves(run_of(consumer, script=script, **recipe)) is never
    part: Any = SimpleNamespace(foreign=False, whole=False, methods=frozenset(methods))
    assert not _never_saves(run_of(consumer, script=part, **recipe)), "not all of it is known"
    foreign: Any = SimpleNamespace(foreign=True, whole=False, methods=frozenset(methods))
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
