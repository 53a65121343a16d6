"""The texts of emitted files and of locks, from plans that are written here: byte for byte."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.emit import (
    accelerate_yaml,
    deepspeed_json,
    exclusive,
    jobset,
    launch_sh,
    lock,
    make_lock,
    recipe,
    slurm,
)
from zerocfg.emit import problems as emit_problems
from zerocfg.emit import write as writing
from zerocfg.emit.files import Emitted, relative
from zerocfg.emit.lock import Choice, Lock, LockError, Source, Weighed
from zerocfg.emit.values import json_value, one_line, yaml_value
from zerocfg.emit.verify import _same, differences, unexplained
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.models.spec import JobSet, Slurm
from zerocfg.resolve.plan import Considered, Decision, Plan, Problem
from zerocfg.rules.api import Location, Severity
from zerocfg.rules.place import file_span
from zerocfg.run.model import UNKNOWN, Effective, Origin, Run, Setting, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Where
from zerocfg.workspace import compile_runs


def plan(**facts: Any) -> Plan:
    base = {
        "name": "run",
        "consumer": "transformers",
        "engine": "deepspeed",
        "folder": Path("/specs"),
        "script": "train.py",
        "arguments": ["recipe.yaml"],
        "hardware": "1x8xH100-80GB",
        "num_processes": 8,
        "num_machines": 1,
    }
    return Plan(**(base | facts))


# -- locks -------------------------------------------------------------------------------------------------------------

FULL = Lock(
    run="sft",
    spec_folder="..",
    consumer="trl",
    script="train.py",
    arguments=("recipe.yaml", "--x"),
    launcher="accelerate",
    hosts=("a", "b"),
    hardware={"name": "2x8xH100-80GB", "nodes": 2},
    model_config={"hidden_size": 64},
    model_facts={"parameters": 1000},
    recipe={"bf16": True},
    plan={"engine": "deepspeed"},
    settings={"stage": Decision(2, "chosen for it", "chosen", Where("ds.json", 3, 4), {"a": 1})},
    accelerate={"num_processes": Decision(16, "of the hardware", "hardware")},
    changes={"max_steps": Decision(None, "", "file")},
    considered=Choice(
        3, Weighed({"stage": 2}, "fits", 1.5, 0.25), (Weighed({"stage": 3}, "likely", None, None, "slow"),)
    ),
    notes=("a note",),
    versions={"deepspeed": "0.19.8"},
    inputs={"recipe": Source("recipe.yaml", "ab")},
    files={"launch.sh": "cd"},
)


def test_a_lock_is_read_as_it_was_written() -> None:
    assert all(getattr(FULL, one.name) for one in fields(FULL) if one.name != "content"), "nothing here is empty"
    text = FULL.text()
    read = lock.parse(text.encode(), Path("/builds/other/zerocfg.lock"))
    assert read == FULL and read.content == json.loads(text)
    assert (FULL.hardware_name, FULL.parameters, FULL.source("recipe"), FULL.source("none")) == (
        "2x8xH100-80GB",
        1000,
        "recipe.yaml",
        "",
    )


def test_a_lock_that_says_little() -> None:
    read = lock.of(
        {"hardware": "1x8xH100-80GB", "settings": {"a": 3, "b": {"value": 1}}, "inputs": {"a": {}}}, "folder"
    )
    assert (read.run, read.version, read.zerocfg, read.hardware) == ("folder", 2, "", {"name": "1x8xH100-80GB"})
    assert read.settings == {"b": Decision(1)} and read.inputs == {} and read.considered == Choice()
    assert Lock("r").parameters is None and replace(FULL, model_facts={"parameters": "1"}).parameters is None
    assert lock.of(
        {"considered": {"compared": "x", "runners_up": [{"verdict": "fits"}, {"settings": {}}]}}
    ).considered == (Choice(0, None, (Weighed({}),)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "it has no `version`"),
        ('{"version": true, "files": {}}', "it has no `version`"),
        ('{"version": "2", "files": {}}', "it has no `version`"),
        ('{"version": 3, "zerocfg": "9.9", "files": {}}', "has version 3 (zerocfg 9.9); this zerocfg "),
        ('{"version": 3, "files": {}}', "has version 3; this zerocfg "),
        ('{"version": 2}', "`files` is missing; build the run again"),
        ('{"version": 2, "files": []}', "`files` is no mapping; build the run again"),
        ('{"version": 2, "files": {}, "settings": 1}', "`settings` is no mapping"),
        ("{", "is no zerocfg.lock: Expecting property name"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_what_is_no_lock_says_why(content: str, says: str) -> None:
    with pytest.raises(LockError) as error:
        lock.parse(content.encode(), Path("/b/zerocfg.lock"))
    assert says in str(error.value) and str(error.value).startswith("/b/zerocfg.lock: ")
    assert str(error.value).endswith("build the run again") is not says.startswith("has version 3")


def test_a_lock_as_large_as_no_lock_is(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'{"version": 2, "files": {}}'
    monkeypatch.setattr(lock, "FILE_BYTES", len(content))
    assert lock.parse(content, Path("/b/zerocfg.lock")).files == {}
    with pytest.raises(LockError, match=r"is larger than 0 MiB; no lock is\Z"):
        lock.parse(content + b" ", Path("/b/zerocfg.lock"))


def test_locks_of_the_versions_that_can_be_read() -> None:
    for version in (1, 2):
        assert lock.parse(b'{"version": %d, "files": {}}' % version, Path("/b/zerocfg.lock")).version == version


def test_the_layout_of_a_lock() -> None:
    """A key a line; a list on one line up to column 100, else an item a line, each of which may be broken again."""
    fits, long = "x" * 96, "x" * 97
    assert lock._text({"a": [fits]}, "") == '{\n  "a": [\n    "' + fits + '"\n  ]\n}'
    assert lock._text({"größe": ["ü"]}) == '{\n  "größe": ["ü"]\n}'
    assert lock._text([fits]) == f'["{fits}"]' and len(lock._text([fits])) == 100
    assert lock._text([long]) == f'[\n  "{long}"\n]'
    assert lock._text([{"a": 1}, {"b": long}]) == '[\n  {"a": 1},\n  {\n    "b": "' + long + '"\n  }\n]'
    assert (
        lock._text({"a": {}, "b": [], "c": {"d": [1, 2]}})
        == '{\n  "a": {},\n  "b": [],\n  "c": {\n    "d": [1, 2]\n  }\n}'
    )
    item = "x" * 92
    assert lock._text([[item], [long]]) == f'[\n  ["{item}"],\n  [\n    "{long}"\n  ]\n]'


def test_what_strict_json_does_not_have() -> None:
    made = lock._strict({1: math.inf, "a": (1, -math.inf, 2.5), "b": Path("x"), "c": None, "d": True, "e": math.nan})
    assert made == {"1": "inf", "a": [1, "-inf", 2.5], "b": "x", "c": None, "d": True, "e": "nan"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("hub_token", True),
        ("token", True),
        ("API_KEY", True),
        ("apikey", True),
        ("a.access_key", True),
        ("credentials", True),
        ("tokens", False),
        ("token_ids", False),
        ("eos_token_id", False),
        ("monkey", False),
        ("key", False),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    shown = "(not recorded)" if secret else "s"
    assert lock.without_secrets({name: "s"}) == {name: shown}
    assert lock.without_secrets({"env": [{name: "s"}], "x": {name: "s"}}) == {
        "env": [{name: shown}],
        "x": {name: shown},
    }
    assert lock.without_secrets({name: ""}) == {name: ""}, "nothing to hide"


def test_what_is_recorded_of_a_plan() -> None:
    considered = [
        Considered({"n": number}, "fits", 1.234, 0.00123456, "slower" * (number != 2)) for number in range(12)
    ]
    made = make_lock.lock_of(
        plan(
            arguments=["--hub_token", "hf_abcdefghijklmnopqrstuvwxyz0123456789", "r.yaml"],
            hosts=["a"],
            launcher="torchrun",
            settings={
                "zero_optimization.stage": Decision(2, "why", "chosen", None, {"b": 1, "a": 2}),
                "steps_per_print": Decision(10),
            },
            accelerate={"num_processes": Decision(8)},
            changes={"hub_token": Decision("hf_secret"), "bf16": Decision(True)},
            considered=considered,
            model_config={"hidden_size": 1},
            model_facts={"parameters": 2},
            recipe={"b": 1, "hub_token": "hf_secret", "a": 2},
            versions={"trl": "1.0", "accelerate": "1.15.0"},
            notes=["n"],
        ),
        {"b": b"b", "a": b""},
        {
            "model": Source("/cache/hub/models--org--name/snapshots/abc/config.json", "1"),
            "recipe": Source("r.yaml", "2"),
        },
        "..",
    )
    assert made.run == "run" and made.spec_folder == ".." and made.script == "train.py" and made.launcher == "torchrun"
    assert "hf_abcdefghijklmnopqrstuvwxyz0123456789" not in " ".join(made.arguments) and made.arguments[-1] == "r.yaml"
    assert (made.consumer, made.hosts, made.notes) == ("transformers", ("a",), ("n",))
    assert made.hardware == {"name": "1x8xH100-80GB"}
    assert (made.model_config, made.model_facts) == ({"hidden_size": 1}, {"parameters": 2})
    assert list(made.recipe.items()) == [("a", 2), ("b", 1), ("hub_token", "(not recorded)")]
    assert made.plan == {"engine": "deepspeed", "num_processes": 8, "num_machines": 1, "zero_optimization.stage": 2}
    assert list(made.settings) == ["steps_per_print", "zero_optimization.stage"]
    assert list(made.settings["zero_optimization.stage"].inputs) == ["a", "b"]
    assert made.accelerate == {"num_processes": Decision(8)}
    assert made.changes == {"bf16": Decision(True), "hub_token": Decision("(not recorded)")}
    assert list(made.versions.items()) == [("accelerate", "1.15.0"), ("trl", "1.0")]
    assert made.inputs == {"model": Source("hub:org/name", "1"), "recipe": Source("r.yaml", "2")}
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert made.files == {"a": empty, "b": hashlib.sha256(b"b").hexdigest()}
    assert made.considered.compared == 12 and made.considered.taken == Weighed({"n": 2}, "fits", 1.23, 0.00123)
    assert [one.settings["n"] for one in made.considered.runners_up] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert make_lock.lock_of(plan(), {}, {}, "").considered == Choice()


def test_facts_of_a_hardware() -> None:
    facts = make_lock.hardware_facts("2x8xH100-80GB", parse_hardware("2x8xH100-80GB"))
    assert (facts["nodes"], facts["accelerators_per_node"], facts["world_size"]) == (2, 8, 16)
    assert facts["vendor"] == "nvidia" and facts["bf16"] is True
    assert "link_between_nodes" not in facts, "what is assumed is no fact"
    assert make_lock.hardware_facts("unknown", None) == {"name": "unknown"}


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-05, "1.0e-05"),
        (1.5e-05, "1.5e-05"),
        (0.1, "0.1"),
        (True, "true"),
        (None, "null"),
        ("größe", '"größe"'),
        ("a\u2028b", '"a\\u2028b"'),
        ("a\nb", '"a\\nb"'),
        ({"a": [1, 1e20], 2: None}, '{"a": [1, 1.0e+20], "2": null}'),
        ((1, 2), "[1, 2]"),
    ],
)
def test_a_value_in_json(value: object, text: str) -> None:
    assert json_value(value) == text


def test_no_json_for_what_is_not_finite() -> None:
    for value in (math.inf, -math.inf, math.nan, [math.inf], {"a": math.nan}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            json_value(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-05, "1.0e-05"),
        ("no", "'no'"),
        ("größe", "größe"),
        ("a\x85b", '"a\\Nb"'),
        ([1, "b"], "[1, b]"),
        ({"b": 1, "a": 2}, "{b: 1, a: 2}"),
        ("x " * 100 + "x", "x " * 100 + "x"),
    ],
)
def test_a_value_in_yaml(value: object, text: str) -> None:
    assert yaml_value(value) == text


def test_a_text_of_a_comment_stays_on_its_line() -> None:
    assert one_line("a\n  b\tc\u2028d\x07e") == "a b c d?e"


def test_a_switch_is_no_number() -> None:
    assert _same(1, 1.0) and _same(True, True) and not _same(True, 1) and not _same(0, False) and not _same(1, 2)


# -- configs -----------------------------------------------------------------------------------------------------------


WRITTEN = [
    "aio.block_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.stage",
    "bf16.enabled",
    "train_batch_size",
]


def test_the_deepspeed_config() -> None:
    """Batch and precision first, then by name; empty sections stay; the twin has the reasons."""
    made = plan(
        settings={
            "zero_optimization.stage": Decision(2, "chosen:\nthe fastest"),
            "zero_optimization.allgather_bucket_size": Decision(10),
            "train_batch_size": Decision(16, "8 ranks"),
            "aio.block_size": Decision(1),
            "steps_per_print": Decision(5, "unused"),
            "bf16.enabled": Decision(True),
        },
        deepspeed=WRITTEN,
        empty=["flops_profiler"],
    )
    assert deepspeed_json.render(made) == (
        '{\n  "train_batch_size": 16,\n  "bf16": {\n    "enabled": true\n  },\n  "zero_optimization": {\n'
        '    "stage": 2,\n    "allgather_bucket_size": 10\n  },\n  "aio": {\n    "block_size": 1\n  },\n'
        '  "flops_profiler": {}\n}\n'
    )
    head, _, body = deepspeed_json.render_commented(made).partition("{\n")
    assert head.startswith("# DeepSpeed config of the run run, ") and head.count("\n") == 2
    assert body == (
        '  "train_batch_size": 16,  # 8 ranks\n  "bf16": {\n    "enabled": true\n  },\n  "zero_optimization": {\n'
        '    "stage": 2,  # chosen: the fastest\n    "allgather_bucket_size": 10\n  },\n'
        '  "aio": {\n    "block_size": 1\n  },\n  "flops_profiler": {}\n}\n'
    )


def test_keys_that_the_release_reads_otherwise() -> None:
    """DeepSpeed 0.16.9 has an elasticity, which today's refuses; it is written as it was planned."""
    made = plan(
        settings={"elasticity.enabled": Decision(False), "train_batch_size": Decision(8)},
        deepspeed=["elasticity.enabled", "train_batch_size"],
        versions={"deepspeed": "==0.16.9"},
    )
    assert deepspeed_json.ds_config(made) == {"train_batch_size": 8, "elasticity": {"enabled": False}}


def test_the_accelerate_config() -> None:
    made = plan(
        accelerate={
            "compute_environment": Decision("LOCAL_MACHINE"),
            "distributed_type": Decision("FSDP"),
            "use_cpu": Decision(False),
            "debug": Decision(False),
            "mixed_precision": Decision("no", "of the recipe\nand more"),
            "num_processes": Decision(8, "x"),
            "fsdp_config.fsdp_version": Decision(2, "chosen"),
        }
    )
    assert accelerate_yaml.render(made) == (
        "compute_environment: LOCAL_MACHINE\n"
        "distributed_type: FSDP\n"
        "use_cpu: false\n"
        "debug: false\n"
        "mixed_precision: 'no'                   # of the recipe and more\n"
        "num_processes: 8                        # x\n"
        "fsdp_config:\n"
        "  fsdp_version: 2                       # chosen\n"
    )


# -- recipes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1 # why\nb: 2\n", "a: 3 # why\nb: 2\n# Set by zerocfg:\nc: x  # new\n"),
        ("a: 1\nb: 2", "a: 3  # better\nb: 2\n# Set by zerocfg:\nc: x  # new\n"),
        ("a: 1\r\nb: 2\r\n", "a: 3  # better\r\nb: 2\r\n# Set by zerocfg:\r\nc: x  # new\r\n"),
        ("b: 2\r\na: 1", "b: 2\r\na: 3  # better\r\n# Set by zerocfg:\r\nc: x  # new\r\n"),
        ("{a: 1, b: 2}\n", '{a: 3, b: 2, c: "x"}\n'),
        ("", "# Set by zerocfg:\na: 3  # better\nc: x  # new\n"),
        ("# nothing\n", "# nothing\n# Set by zerocfg:\na: 3  # better\nc: x  # new\n"),
    ],
)
def test_a_recipe_with_changes(before: str, after: str) -> None:
    changes = {"a": Decision(3, "better"), "c": Decision("x", "new")}
    assert recipe.patched(before.encode(), "recipe.yaml", changes).decode() == after
    assert recipe.patched(before.encode(), "recipe.yaml", {}) == before.encode()


def test_a_recipe_that_is_written_anew() -> None:
    """Of anchors and documents no single key can be replaced."""
    changes = {"a": Decision(3, "better")}
    made = recipe.patched(b"a: &x 1\nb: *x\n", "recipe.yaml", changes).decode()
    assert made == f"{recipe.REWRITTEN}\nb: 1\n# Set by zerocfg:\na: 3  # better\n"
    assert recipe.patched(b'{"a": 1, "b": 2}', "r.json", changes) == b'{"a": 3, "b": 2}'
    for broken in (b"[1]\n", b"a: [\n", b"\xff"):
        with pytest.raises(ValueError):
            recipe.patched(broken, "recipe.yaml", changes)


def test_what_differs_from_the_recipe() -> None:
    """Only accelerate hands a config to a Trainer."""
    changes = {"max_steps": Decision(5, "why", "chosen")}
    for launcher in ("torchrun", "deepspeed"):
        found = recipe.changes_of(plan(launcher=launcher, changes=changes), "out/ds_config.json")
        assert {name: (one.value, one.kind) for name, one in found.items()} == {
            "max_steps": (5, "chosen"),
            "deepspeed": ("out/ds_config.json", "chosen"),
        }
    for other in ({"launcher": "accelerate"}, {"engine": "ddp"}, {"consumer": "deepspeed"}):
        found = recipe.changes_of(plan(**({"launcher": "torchrun", "changes": changes} | other)), "x")
        assert found == changes


def test_the_recipe_among_the_arguments(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("")
    (tmp_path / "link.yaml").symlink_to("r.yaml")
    words = ["r.yaml", "./r.yaml", "link.yaml", "--config=r.yaml", "config=r.yaml", "--config=other.yaml", "", "other"]
    made = plan(folder=tmp_path, arguments=words, inputs={"recipe": tmp_path / "r.yaml"})
    expected = ["NEW", "NEW", "NEW", "--config=NEW", "config=r.yaml", "--config=other.yaml", "", "other"]
    assert recipe.arguments_of(made, "NEW") == expected and recipe.is_named(made)
    assert not recipe.is_named(replace(made, arguments=["other", "config=r.yaml"]))
    assert recipe.name_of(Path("a/b.yml")) == "recipe.yml"


# -- scripts -----------------------------------------------------------------------------------------------------------


def command(**facts: Any) -> str:
    text = launch_sh.render(plan(**facts), "..", "out/run", facts.get("arguments", ["r.yaml"]))
    return " ".join(text.partition("\nexec ")[2].replace("\\\n", "").split())


PORTS = '"${MAIN_PROCESS_PORT:-29500}"'
NODE = '"$MACHINE_RANK"'
ADDRESS = '"$MAIN_PROCESS_IP"'


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "accelerate launch --config_file out/run/accelerate.yaml train.py r.yaml"),
        ({"module": "my.train"}, "accelerate launch --config_file out/run/accelerate.yaml --module my.train r.yaml"),
        (
            {"num_machines": 2},
            "accelerate launch --config_file out/run/accelerate.yaml --machine_rank "
            f"{NODE} --main_process_ip {ADDRESS} --main_process_port {PORTS} train.py r.yaml",
        ),
        (
            {"num_machines": 2, "accelerate": {"main_process_port": Decision(1234)}},
            "accelerate launch --config_file out/run/accelerate.yaml --machine_rank "
            f'{NODE} --main_process_ip {ADDRESS} --main_process_port "${{MAIN_PROCESS_PORT:-1234}}" train.py r.yaml',
        ),
        ({"launcher": "torchrun"}, "torchrun --standalone --nproc_per_node 8 train.py r.yaml"),
        (
            {"launcher": "torchrun", "num_machines": 4},
            f"torchrun --nnodes 4 --nproc_per_node 2 --node_rank {NODE} --master_addr {ADDRESS} --master_port {PORTS} "
            "train.py r.yaml",
        ),
        (
            {"launcher": "deepspeed"},
            f"deepspeed --num_nodes 1 --num_gpus 8 --master_port {PORTS} --no_local_rank train.py r.yaml",
        ),
        (
            {"launcher": "deepspeed", "num_machines": 2, "consumer": "deepspeed"},
            f'deepspeed --num_nodes 2 --num_gpus 4 "${{nodes[@]}}" --master_port {PORTS} train.py r.yaml '
            "--deepspeed --deepspeed_config out/run/ds_config.json",
        ),
        (
            {"launcher": "torchrun", "consumer": "deepspeed", "engine": "ddp"},
            "torchrun --standalone --nproc_per_node 8 train.py r.yaml",
        ),
    ],
)
def test_the_command_of_a_launcher(facts: dict[str, Any], expected: str) -> None:
    assert command(**facts) == f'{expected} "$@"'


def test_nodes_of_a_script() -> None:
    two = launch_sh.render(plan(num_machines=2, launcher="torchrun"), "..", "out/run", [])
    assert "MACHINE_RANK to the number of this node, 0 to 1}" in two and 'if [ "$MACHINE_RANK" -gt 1 ]; then' in two
    assert "this run has 2 nodes: 0 to 1" in two and '"$(dirname -- "${BASH_SOURCE[0]}")"/..' in two
    assert "MACHINE_RANK" not in launch_sh.render(plan(), "..", "out/run", [])
    own = launch_sh.render(plan(num_machines=2, launcher="deepspeed"), "..", "out/run", [])
    assert "'NAME slots=4' for each of the 2 nodes}" in own
    named = launch_sh.render(plan(num_machines=2, launcher="deepspeed", hosts=["a", "b"]), "..", "out/run", [])
    assert "HOSTFILE=${HOSTFILE:-out/run/hostfile}" in named
    assert launch_sh.render_hostfile(plan(num_machines=2, hosts=["a", "b"])).endswith("a slots=4\nb slots=4\n")


@pytest.mark.parametrize(
    ("options", "hardware", "asked"),
    [
        ([], "2x8xH100-80GB", ["--gpus-per-node=8"]),
        (["--gres=gpu:8"], "2x8xH100-80GB", ["--gres=gpu:8"]),
        (["-G 16"], "2x8xH100-80GB", ["-G 16"]),
        (["--exclusive"], "2x8xH100-80GB", ["--gpus-per-node=8", "--exclusive"]),
    ],
)
def test_options_of_slurm(options: list[str], hardware: str, asked: list[str]) -> None:
    made = plan(num_machines=2, num_processes=16, profile=parse_hardware(hardware))
    text = slurm.render(made, Slurm(options=options, time="24:00:00", partition="a b"), "out/run")
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    middle = [one for one in asked if one.startswith("--gpus-per")]
    rest = [one for one in asked if one not in middle]
    common = ["--job-name=run", "--nodes=2", "--ntasks-per-node=1"]
    assert lines == [*common, *middle, "--partition='a b'", "--time=24:00:00", *rest]
    assert 'export MACHINE_RANK="$SLURM_NODEID"' in text and "zerocfg preflight" not in text
    assert "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1" in text


def test_a_preflight_of_slurm() -> None:
    def words(number: int, hardware: str) -> str:
        made = plan(num_machines=number, num_processes=8, profile=parse_hardware(hardware))
        text = slurm.render(made, Slurm(preflight=True), "out/run")
        return next(line for line in text.splitlines() if "zerocfg preflight" in line).partition("preflight ")[2]

    expect = '--on node --expect "${script%/*}"'
    assert words(1, "1x8xH100-80GB") == f"{expect} || code=$?"
    assert words(2, "2x4xH100-80GB") == f"{expect} --hosts \"${{hosts//$'\\n'/,}}\" || code=$?"


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--exclusive", None),
        (" --mem=0", None),
        ("--nodelist=a", None),
        ("exclusive", "does not start with '-'"),
        ("--nodes=4", "--nodes follows from the plan"),
        ("-N4", "-N follows from the plan"),
        ("-J name", "-J follows from the plan"),
        ("--wrap=x", "--wrap follows from the plan"),
    ],
)
def test_options_that_slurm_does_not_get(option: str, problem: str | None) -> None:
    found = slurm.problems(Slurm(options=[option]))
    assert [(one.key, problem is not None and problem in one.message) for one in found] == (
        [] if problem is None else [("targets.slurm.options", True)]
    )


@pytest.mark.parametrize(
    ("name", "nodes", "expected"),
    [
        ("sft", 1, "sft"),
        ("a" * 48, 1, "a" * 48),  # 63 of a label, without -node-0-0 and -abcde
        ("a" * 49, 1, "a" * 41 + "-" + hashlib.sha256(b"a" * 49).hexdigest()[:6]),
        ("a" * 48, 11, "a" * 40 + "-" + hashlib.sha256(b"a" * 48).hexdigest()[:6]),
        ("SFT_1", 1, "sft-1-" + hashlib.sha256(b"SFT_1").hexdigest()[:6]),
        ("7b", 1, "run-7b-" + hashlib.sha256(b"7b").hexdigest()[:6]),
        ("___", 1, "run-" + hashlib.sha256(b"___").hexdigest()[:6]),
    ],
)
def test_the_name_of_a_jobset(name: str, nodes: int, expected: str) -> None:
    assert jobset.name_of(plan(name=name, num_machines=nodes)) == expected


def test_what_kubernetes_would_refuse() -> None:
    def keys(**target: Any) -> list[str]:
        known = plan(profile=parse_hardware("1x8xH100-80GB")) if target.pop("known", True) else plan()
        return [one.key.removeprefix("targets.jobset.") for one in jobset.problems(known, JobSet(image="i", **target))]

    assert keys() == keys(namespace="a" * 63) == keys(known=False, resource="x/y") == []
    assert keys(known=False) == ["resource"] and keys(folder="work") == ["folder"]
    for name in ("a" * 64, "A", "-a", "a-", ""):
        assert keys(namespace=name) == ["namespace"]


def test_names_of_nodes() -> None:
    def said(*hosts: str, nodes: int = 2) -> list[str]:
        found = emit_problems.problems(plan(hosts=list(hosts), num_machines=nodes))
        assert {one.key for one in found} <= {"hosts"}
        return [one.message for one in found]

    assert said() == said("a", "b-1.c") == said("10.0.0.1", "fe80:0") != [""]
    assert said("a b", "c") == ["'a b' is no host name"] and said("-a", "c") == ["'-a' is no host name"]
    assert said("a", "a") == ["a is named twice; deepspeed refuses such a hostfile"]
    assert said("a") == ["hosts names 1, but 1x8xH100-80GB has 2 node(s)"]


# -- writing -----------------------------------------------------------------------------------------------------------


def test_what_is_in_the_way(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "run"
    one = Emitted(plan(), folder, {"launch.sh": b"new", "a.yaml": b"a"})
    writing.check([one])
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_bytes(b"a")
    writing.check([one])  # it is as it would be
    (folder / "a.yaml").write_bytes(b"other")
    with pytest.raises(writing.RefusedError, match=r"a\.yaml: was not written by zerocfg; --force replaces it"):
        writing.check([one])
    writing.check([one], force=True)
    (folder / writing.JOURNAL).write_text(json.dumps({"a.yaml": hashlib.sha256(b"other").hexdigest()}))
    writing.check([one])  # a build that was killed wrote it
    (folder / writing.JOURNAL).unlink()
    (folder / lock.NAME).write_text(Lock("run", files={"a.yaml": hashlib.sha256(b"other").hexdigest()}).text())
    writing.check([one])
    (folder / "a.yaml").write_bytes(b"edited")
    with pytest.raises(writing.RefusedError, match=r"a\.yaml: was changed since zerocfg wrote it; --force"):
        writing.check([one])
    (folder / "a.yaml").unlink()
    (folder / "a.yaml").mkdir()
    for force in (False, True):
        with pytest.raises(writing.RefusedError, match=r"a\.yaml: is a folder"):
            writing.check([one], force=force)
    (tmp_path / "file").write_text("")
    with pytest.raises(writing.RefusedError, match="file: is not a folder"):
        writing.check([Emitted(plan(), tmp_path / "file" / "run", {})])


def test_what_is_written(tmp_path: Path) -> None:
    """The lock last; scripts can be started; what an earlier build wrote and this one does not goes."""
    folder = tmp_path / "run"
    old = {name: hashlib.sha256(b"old").hexdigest() for name in ("gone.yaml", "edited.yaml", "a.yaml", "sub/x", "dir")}
    (folder / "dir").mkdir(parents=True)
    for name in ("gone.yaml", "a.yaml"):
        (folder / name).write_bytes(b"old")
    (folder / "edited.yaml").write_bytes(b"mine")
    (folder / lock.NAME).write_text(Lock("run", files=old).text())
    files = {lock.NAME: b"lock", "launch.sh": b"1", "job.sbatch": b"2", "a.yaml": b"3", "zz": b"4"}
    written = writing.write([Emitted(plan(), folder, files)])
    assert [path.name for path in written] == ["a.yaml", "job.sbatch", "launch.sh", "zz", "zerocfg.lock"]
    there = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if path.is_file()}
    assert there == {"edited.yaml": there["edited.yaml"]} | {
        "a.yaml": 0o644,
        "job.sbatch": 0o755,
        "launch.sh": 0o755,
        "zerocfg.lock": 0o644,
        "zz": 0o644,
    }
    assert (folder / "a.yaml").read_bytes() == b"3" and (folder / "edited.yaml").read_bytes() == b"mine"


def test_one_folder_as_seen_from_another(tmp_path: Path) -> None:
    assert relative(tmp_path, tmp_path / "out" / "run") == "../.."
    assert relative(tmp_path / "out" / "run", tmp_path) == "out/run" and relative(tmp_path, tmp_path) == "."


# -- reading back ------------------------------------------------------------------------------------------------------


def ran(settings: dict[str, Any], environment: dict[str, Any] | None = None, kind: Any = "file") -> Run:
    """A run with these effective settings, all of them written by its author."""
    origin = Origin(kind)
    made = [{name: Setting(value, origin) for name, value in each.items()} for each in (settings, environment or {})]
    return Run("run", effective=Effective(settings=made[0], environment=made[1]))


STAGE = "zero_optimization.stage"
PREFETCH = "zero_optimization.stage3_prefetch_bucket_size"


@pytest.mark.parametrize(
    ("sources", "emitted", "facts", "lost"),
    [
        ({"a": 1}, {"a": 1}, {}, []),
        ({"a": 1}, {"a": 2}, {}, ["a"]),
        ({"a": 1}, {}, {"settings": {"a": Decision(1)}}, ["a"]),
        ({"a": 1}, {}, {"deepspeed": ["a"]}, ["a"]),
        ({"a": 1}, {}, {}, []),  # what DeepSpeed itself reads no more
        ({"a": 1}, {}, {"engine": "ddp"}, ["a"]),
        ({"a": 1}, {"a": 2}, {"dropped": ["a"]}, []),
        ({"a": 1}, {"a": 2}, {"settings": {"a": Decision(2, "", "chosen")}}, []),
        ({"a": 1}, {"a": 2}, {"settings": {"a": Decision(2, "", "file")}}, ["a"]),
        ({"a": 1}, {"a": 2}, {"changes": {"a": Decision(2, "", "hardware")}}, []),
        ({"a": UNKNOWN}, {"a": 2}, {}, []),
        ({"a": 1}, {"a": UNKNOWN}, {"engine": "ddp"}, []),  # nobody can tell
        ({"engine": "deepspeed", "a": 1}, {"a": 2}, {}, ["a"]),
        ({"engine": "fsdp", "a": 1}, {"a": 2}, {}, []),  # another engine than the sources'
        ({"engine": "single", "a": 1}, {"engine": "ddp", "a": 2}, {"engine": "ddp"}, ["engine", "a"]),
        ({"mixed_precision": "bf16"}, {"mixed_precision": "no"}, {}, []),
        ({"mixed_precision": "fp8"}, {"mixed_precision": "no"}, {}, ["mixed_precision"]),
        ({"mixed_precision": "bf16"}, {"mixed_precision": "no"}, {"engine": "ddp"}, ["mixed_precision"]),
        ({"a": "bf16"}, {"a": "no"}, {}, ["a"]),
        ({STAGE: 2, PREFETCH: 1}, {STAGE: 2, PREFETCH: 2}, {}, []),  # of stage 3 alone
        ({STAGE: 1, PREFETCH: 1}, {STAGE: 1, PREFETCH: 2}, {}, []),
        ({STAGE: 0, PREFETCH: 1}, {STAGE: 0, PREFETCH: 2}, {}, []),
        ({STAGE: 3, PREFETCH: 1}, {STAGE: 3, PREFETCH: 2}, {}, [PREFETCH]),
        ({STAGE: 2, "a": 1}, {STAGE: 2, "a": 2}, {}, ["a"]),
        (
            {"zero_optimization.prefetch_bucket_size": 1},
            {},
            {"deepspeed": ["zero_optimization.prefetch_bucket_size"]},
            [],
        ),
    ],
)
def test_what_the_sources_say_and_the_files_do_not(
    sources: dict[str, Any], emitted: dict[str, Any], facts: dict[str, Any], lost: list[str]
) -> None:
    one = Emitted(plan(**facts), Path("/out"), {})
    assert [found.key for found in unexplained(one, ran(sources), ran(emitted))] == lost
    assert unexplained(one, ran(sources, kind="default"), ran(emitted)) == [], "what nobody wrote is not lost"
    for found in unexplained(one, ran(sources), ran(emitted)):
        gives = f"give {emitted[found.key]!r}" if found.key in emitted else "do not give it"
        assert found.message.endswith(
            f"the sources give {sources[found.key]!r}, the files that would be emitted {gives}"
        )


@pytest.mark.parametrize(
    ("name", "before", "after", "lost"),
    [
        ("ACCELERATE_DYNAMO_BACKEND", "inductor", "INDUCTOR", False),
        ("ACCELERATE_DYNAMO_BACKEND", "inductor", "eager", True),
        ("ACCELERATE_DYNAMO_BACKEND", "inductor", None, True),
        ("ACCELERATE_DYNAMO_BACKEND", UNKNOWN, None, False),
        ("ACCELERATE_DYNAMO_BACKEND", "inductor", UNKNOWN, False),
        ("PARALLELISM_CONFIG_TP_SIZE", "2", "1", True),
        ("SOMETHING_ELSE", "2", "1", False),
        ("ACCELERATE_MIXED_PRECISION", "bf16", "no", False),
    ],
)
def test_variables_that_the_files_lose(name: str, before: Any, after: Any, lost: bool) -> None:
    """Those of accelerate's launcher, where it starts the job without DeepSpeed."""
    source = ran({"engine": "ddp"}, {name: before})
    run = ran({"engine": "ddp"}, {} if after is None else {name: after})
    made = [Emitted(plan(engine="ddp", launcher=launcher), Path("/out"), {}) for launcher in ("accelerate", "torchrun")]
    assert [one.key for one in unexplained(made[0], source, run)] == [name] * lost
    assert unexplained(made[1], source, run) == []
    deepspeed = Emitted(plan(), Path("/out"), {})
    assert unexplained(deepspeed, ran({"engine": "deepspeed"}, {name: before}), run) == (
        unexplained(deepspeed, ran({"engine": "deepspeed"}), run)
    )


def test_what_the_files_give_otherwise_than_planned() -> None:
    given = {"num_processes": 8, "num_machines": 1, "engine": "deepspeed", STAGE: 2, "train_batch_size": 16}
    planned = {STAGE: Decision(2), "train_batch_size": Decision(16), "fsdp_config.x": Decision(True)}
    one = Emitted(plan(settings=planned, deepspeed=[STAGE]), Path("/out"), {})
    recipe = SourceFile("r.yaml", "recipe", SourceText("r.yaml", ""))

    def keys(one: Emitted = one, **changes: Any) -> list[str]:
        run = ran({name: value for name, value in (given | changes).items() if value is not None})
        return [found.key for found in differences(one, replace(run, recipe=recipe))]

    assert keys() == []
    assert keys(**{STAGE: 3}) == [STAGE] and keys(**{STAGE: None}) == [STAGE]
    assert keys(train_batch_size=8) == ["train_batch_size"] and keys(num_processes=4) == ["num_processes"]
    assert keys(num_machines=2) == ["num_machines"] and keys(engine="ddp") == ["engine"] == keys(engine=None)
    assert keys(engine=UNKNOWN) == [], "the script makes its own arguments, and may name a config there"
    fsdp = Emitted(plan(settings=planned, accelerate={"fsdp_config.x": Decision(True)}), Path("/out"), {})
    assert (
        keys(fsdp) == ["fsdp_config.x"] == keys(fsdp, **{"fsdp_config.x": 1})
        and keys(fsdp, **{"fsdp_config.x": True}) == []
    )
    alone = Emitted(plan(engine="ddp", num_processes=1), Path("/out"), {})
    assert keys(alone, engine="single", num_processes=1) == [] and keys(alone, engine="ddp", num_processes=1) == [
        "engine"
    ]


# -- errors of the sources that a build mends --------------------------------------------------------------------------

CONFIG = '{"train_batch_size": "auto", "zero_optimization": {"stage": 7, "x.y": "auto"}, "num_processes": 3}'


def found(
    path: tuple[str, ...], severity: Severity = Severity.ERROR, run: str = "a", also: tuple[str, ...] = ()
) -> Diagnostic:
    source = SourceText("ds.json", CONFIG)
    file = SourceFile("ds.json", "deepspeed", source, load_as(source, "json"))
    span = file_span(Location(file, path))
    return Diagnostic("ZC1", "", severity, "", "", span, run=run, met_in=frozenset(also))


def test_errors_that_a_build_mends() -> None:
    """An auto that it fills, processes that the hardware has, and keys that it writes elsewhere."""
    auto, processes = found(("train_batch_size",)), found(("num_processes",))
    dotted = found(("zero_optimization", "x.y"))
    stage, section, nowhere = found(("zero_optimization", "stage")), found(("zero_optimization",)), found(())
    warning = found(("zero_optimization", "stage"), Severity.WARNING)
    every = [auto, processes, dotted, stage, section, nowhere, warning]
    sources = compile_runs._errors(Result(every), moved=set())
    assert sources is not None and sources.diagnostics == [stage, section, nowhere]
    moved = {Where("ds.json", *stage.span.start)}
    rest = compile_runs._errors(Result([auto, stage, section]), moved=moved)
    assert rest is not None and rest.diagnostics == [section]
    emitted = compile_runs._errors(Result(every))
    assert emitted is not None and emitted.diagnostics == every[:-1], "what was written has no autos left"
    assert compile_runs._errors(Result([warning])) is None and compile_runs._errors(Result([auto]), moved=set()) is None
    bare = replace(auto, span=replace(auto.span, file=SourceFile("x.sh", "launch", SourceText("x.sh", "x"))))
    assert not compile_runs._is_replaced(bare)


def test_the_runs_that_errors_are_met_in() -> None:
    errors = Result([found((), run="a", also=("b", "c")), found((), run="d")])
    assert compile_runs._runs_of(errors) == {"a", "b", "c", "d"} and compile_runs._runs_of(None) == set()


def test_what_a_compiled_build_says_of_itself() -> None:
    problem = Problem("engine", "m")

    class Built:
        def __init__(self, name: str, problems: list[Problem]) -> None:
            self.name, self.problems = name, problems

    good, bad = Built("run", []), Built("other", [problem])
    one = compile_runs.CompiledBuild([good, bad], [Emitted(plan(), Path("/out"), {})])  # type: ignore[list-item]
    assert one.has_problems and one.failed == ["other"]
    assert not compile_runs.CompiledBuild([good]).has_problems  # type: ignore[list-item]
    assert compile_runs.CompiledBuild([good]).failed == ["run"]  # type: ignore[list-item]


def test_a_folder_that_was_made_anew_is_another(tmp_path: Path) -> None:
    """Its lock is held on the one that is gone."""
    folder = tmp_path / "run"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        assert exclusive._is_at(folder, descriptor)
        (tmp_path / "other").mkdir()
        folder.rename(tmp_path / "gone")
        assert not exclusive._is_at(folder, descriptor), "nothing is there"
        (tmp_path / "other").rename(folder)
        assert not exclusive._is_at(folder, descriptor)
    finally:
        os.close(descriptor)


def test_letters_of_other_alphabets_stay_as_they_are() -> None:
    made = plan(
        settings={"tensorboard.job_name": Decision("größe", "für Größe"), "optimizer.params.größe": Decision(1)},
        deepspeed=["tensorboard.job_name", "optimizer.params.größe"],
    )
    for text in (deepspeed_json.render(made), deepspeed_json.render_commented(made)):
        assert '"job_name": "größe"' in text and '"größe": 1' in text
    assert '"job_name": "größe"  # für Größe\n' in deepspeed_json.render_commented(made)


class Built:
    """A run that was resolved, as far as its files need it."""

    def __init__(self, name: str, problems: tuple[Problem, ...] = (), moved: tuple[Where, ...] = ()) -> None:
        self.name, self.problems, self.moved_from = name, list(problems), set(moved)
        self.plan, self.run, self.source = plan(name=name), Run(name), Run(name)


def test_which_runs_get_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run but one has something against it, at another stage; that costs no other its files."""
    problem = Problem("hosts", "m")
    stage, shared = found(("zero_optimization", "stage"), run="wrong"), found(("zero_optimization",), run="moved")
    ignored, back = found((), run="good"), found(("zero_optimization", "stage"), run="back")
    warning = found((), Severity.WARNING, run="good")
    suppressed = SimpleNamespace(diagnostic=ignored)
    results = [Result([stage, shared, warning], [suppressed]), Result([ignored, back])]  # type: ignore[list-item]
    linted: list[list[str]] = []

    def lint_runs(runs: list[Run], selection: object) -> Result:
        linted.append([run.name for run in runs])
        return results[len(linted) - 1]

    def unlike(emitted: Emitted, run: Run, source: Run) -> list[Problem]:
        assert emitted.plan.name == run.name == source.name
        return [problem] * (run.name == "unlike")

    def emit_run(one: Built, out: Path) -> Emitted | None:
        if one.name != "invalid":
            return Emitted(one.plan, out / one.name, {})
        one.problems.append(problem)
        return None

    stubs = {
        "lint_runs": lint_runs,
        "unlike": unlike,
        "emit_problems": lambda one: [problem] * (one.name == "planned"),
        "locate_problems": lambda problems, read, run: problems,
        "with_newest_releases": lambda run: run,
        "refused_value": lambda one: SimpleNamespace(problem=problem) if one.name == "refused" else None,
        "emit_run": emit_run,
        "emitted_run": lambda emitted, run: replace(run),
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(compile_runs, name, stub)
    names = ["good", "planned", "wrong", "moved", "refused", "invalid", "unlike", "back"]
    built = [Built(name) for name in names] + [Built("goals", (Problem("goals", "m"),))]
    built[3].moved_from = {Where("ds.json", *shared.span.start)}
    compiled = compile_runs.compile_runs(None, built, Path("/out"))  # type: ignore[arg-type]
    assert linted == [names, ["good", "moved", "back"]]
    assert [one.plan.name for one in compiled.emitted] == ["good", "moved"]
    assert compiled.failed == ["planned", "wrong", "refused", "invalid", "unlike", "back", "goals"]
    assert compiled.errors is not None and compiled.errors.diagnostics == [stage]
    assert compiled.warnings == 1 and compiled.broken and compiled.has_problems
    assert {one.name for one in built if one.problems} == {"planned", "refused", "invalid", "unlike", "goals"}


def test_a_folder_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build that holds it ends while another one waits."""
    first = exclusive.exclusive([tmp_path])
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            first.__exit__(None, None, None)

    monkeypatch.setattr(exclusive, "PATIENCE", 1000.0)
    monkeypatch.setattr(exclusive.time, "sleep", sleep)
    first.__enter__()
    with exclusive.exclusive([tmp_path]):
        assert len(waited) == 3
