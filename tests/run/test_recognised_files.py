"""What kind of config a mapping is, just on each side of where that changes, and who reads a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.run.test_effective import file
from tests.run.test_reader import CALL, TRAIN
from zerocfg.run.discover import Files
from zerocfg.run.kinds import guess_unread, named_recipe, sniff
from zerocfg.run.model import Run, Script, Setting
from zerocfg.run.reader import TRL_KEYS, reader_of

ZERO: dict[str, Any] = {"zero_optimization": {}}


def unread(number: int) -> dict[str, int]:
    """Keys that no library reads."""
    return {f"mine{at}": 1 for at in range(number)}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"distributed_type": "NO"}, "accelerate"),
        ({"num_processes": 2, "mixed_precision": "no"}, "other"),
        ({"num_processes": 2, "mixed_precision": "no", "machine_rank": 0}, "accelerate"),
        ({"fsdp_config": {}}, "other"),
        ({"fsdp_config": {}, "mixed_precision": "bf16"}, "accelerate"),
        ({"fsdp_config": {}, "mixed_precision": "bf16", "fsdp": "full_shard"}, "other"),
        ({"fsdp_config": {}, "distributed_type": "FSDP", "fsdp": "full_shard"}, "accelerate"),
        ({"save_steps": 1}, "other"),
        ({"save_steps": 1, "learning_rate": 1}, "recipe"),
        ({"save_steps": 1, "eval_strategy": "no"}, "recipe"),
        ({"output_dir": "o", "learning_rate": 1, "seed": 1, "optim": "adamw_torch"}, "other"),
        (ZERO, "deepspeed"),
        ({"fp16": {"enabled": True}}, "deepspeed"),
        ({"fp16": True}, "other"),
        ({"train_batch_size": 8}, "deepspeed"),
        ({"train_batch_size": 8, "mine": 1}, "deepspeed"),
        ({"train_batch_size": 8, "mine": 1, "other": 1}, "other"),
        ({"gradient_clipping": 1.0, "optimizer": {}}, "other"),
        # where several fit, the one that more keys speak for
        ({**ZERO, "distributed_type": "NO"}, "deepspeed"),
        ({**ZERO, "distributed_type": "NO", "num_processes": 2}, "accelerate"),
        ({**ZERO, "save_steps": 1, "logging_steps": 1}, "recipe"),
        ({**ZERO, "save_steps": 1, "seed": 1}, "deepspeed"),
        ({"distributed_type": "NO", "save_steps": 1, "seed": 1}, "accelerate"),
        ({"train_batch_size": 8, "gradient_accumulation_steps": 1, "save_steps": 1, "logging_steps": 1}, "recipe"),
        ({"train_batch_size": 8, "gradient_clipping": 1, "save_steps": 1, "seed": 1}, "deepspeed"),
        # DeepSpeed's sections among the keys of a program of its own
        ({**ZERO, **unread(7)}, "deepspeed"),
        ({**ZERO, **unread(8)}, "other"),
        ({**ZERO, "fp16": {}, "bf16": {}, "steps_per_print": 1, "optimizer": {}, "aio": {}, **unread(8)}, "other"),
        (
            {
                **ZERO,
                "fp16": {},
                "bf16": {},
                "steps_per_print": 1,
                "optimizer": {},
                "aio": {},
                "amp": {},
                "scheduler": {},
            }
            | unread(8),
            "deepspeed",
        ),
        # of other programs
        ({"defaults": ["a"], **ZERO}, "other"),
        ({"defaults": "a", **ZERO}, "deepspeed"),
        ({"hydra": {}, **ZERO}, "other"),
        ({"save_steps": 1, "seed": "${now:%S}"}, "other"),
        ({"save_steps": 1, "seed": "a/${data.seed}"}, "other"),
        ({"save_steps": 1, "seed": "${SEED}"}, "recipe"),
        ({"save_steps": 1, "seed": "$SEED.1"}, "recipe"),
        ({"save_steps": 1, "seed": 1, "_target_": "transformers.TrainingArguments"}, "other"),
        ({**ZERO, "save_steps": "${a.b}", "logging_steps": 1}, "deepspeed"),
        ({"deepspeed_config": "ds.json", "batch": 1}, "other"),
        ({"deepspeed_config": "ds.json", "mixed_precision": "no", "use_cpu": False}, "other"),
        ({"deepspeed_config": {}, "batch": 1}, "accelerate"),
        ({"deepspeed_config": "ds.json", "distributed_type": "DEEPSPEED"}, "accelerate"),
        ({"mp_size": 2, **ZERO}, "deepspeed"),
        ({"runs": {}, "version": 1}, "spec"),
        ({"runs": {}}, "other"),
        ({"runs": [], "version": 1}, "other"),
        ({"model_type": "llama", "hidden_size": 1}, "model"),
        ({"model_type": "llama", "architectures": []}, "model"),
        ({"model_type": "llama", "transformers_version": "5"}, "model"),
        ({"model_type": "llama"}, "other"),
        ({}, "other"),
        ([], "other"),
    ],
)
def test_the_kind_of_a_mapping(data: Any, kind: str) -> None:
    assert sniff(data) == kind


def test_a_spec_by_its_name() -> None:
    assert sniff({"runs": {}}, "jobs\\zerocfg.yaml") == sniff({"runs": {}}, "jobs/zerocfg.yaml") == "spec"
    assert sniff({"runs": {}}, "jobs/zerocfg.yml") == "other"


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ('{"zero_optimization": {', "x.json", "deepspeed"),
        ("zero_optimization: [", "x.yaml", "other"),
        ("train_micro_batch_size_per_gpu: [", "x.yaml", "deepspeed"),
        ("distributed_type: [", "x.yaml", "accelerate"),
        ("deepspeed_config: [", "x.yaml", "accelerate"),
        ("compute_environment: [", "x.yaml", "accelerate"),
        ("per_device_train_batch_size: [", "x.yaml", "recipe"),
        ("{", "conf/ds_config_2.json", "deepspeed"),
        ("{", "conf/zero3.hjson", "deepspeed"),
        ("{", "conf/zero3.yaml", "other"),
        ("{", "ds_config/x.json", "other"),
        ("{", "accelerate_2.yml", "accelerate"),
        ("{", "default_config.yaml", "accelerate"),
        ("{", "accelerate.json", "other"),
    ],
)
def test_the_kind_of_what_does_not_parse(text: str, name: str, kind: str) -> None:
    assert guess_unread(text, name) == kind


def test_a_mapping_in_the_place_of_a_recipe() -> None:
    three: dict[str, Any] = {"learning_rate": 1, "max_steps": 1, "beta": 0.1}
    assert named_recipe(three, TRL_KEYS, 1.0)
    assert not named_recipe(three, frozenset(), 0.1), "`beta` is TRL's"
    assert not named_recipe({"learning_rate": 1, "max_steps": 1}, TRL_KEYS, 0.1)
    assert named_recipe({**three, **unread(3)}, TRL_KEYS, 0.5)
    assert not named_recipe({**three, **unread(4)}, TRL_KEYS, 0.5)
    assert not named_recipe([*three], TRL_KEYS, 0.1)


GROUP = "per_device_train_batch_size: 1\nnum_train_epochs: 3\n"


@pytest.mark.parametrize(
    ("config", "text", "group", "kind"),
    [
        ("config.yaml", "defaults:\n  - data: a\n  - training: sft\n  - _self_\nseed: 1\n", "training", "other"),
        ("config.yaml", "seed: 1\ndefaults:\n- training: sft", "training", "other"),
        ("main.yml", "# @package x\ndefaults: # all\n\n  # which\n  - /training: sft\n", "training", "other"),
        ("config.yaml", "defaults:\n  - override training: sft\n", "training", "other"),
        ("config.yaml", "defaults:\n  - training/sft\n", "training", "other"),
        ("config.yaml", "defaults:\n  - training@train: sft\n", "training", "other"),
        ("config.yaml", "defaults:\n  - job/training: sft\n", "job/training", "other"),
        ("config.yaml", "defaults:\n  - data: training\n", "training", "recipe"),
        ("config.yaml", "defaults:\n  data: 1\nlist:\n  - training: sft\n", "training", "recipe"),
        ("config.yaml", "more:\n  defaults:\n    - training: sft\n", "training", "recipe"),
        ("config.json", "defaults:\n  - training: sft\n", "training", "recipe"),
    ],
)
def test_a_file_of_a_group_of_hydra(config: str, text: str, group: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf" / config).write_text(text, encoding="utf-8")
    file = tmp_path / "conf" / group / "sft.yaml"
    file.write_text(GROUP, encoding="utf-8")
    assert Files().open(file).kind == kind


def script(**more: Any) -> Script:
    return Script(TRAIN, **more)


RECIPE, OF_TRL = file("recipe", "learning_rate: 1\n"), file("recipe", "learning_rate: 1\nbeta: 0.1\n")
NO_PYTHON = script(understood=False)
OPTIONS = script(options=frozenset({"save_strategy"}))


@pytest.mark.parametrize(
    ("parts", "reader"),
    [
        ({}, None),
        ({"script": script(reader="accelerate"), "deepspeed_route": "engine"}, "accelerate"),
        ({"script": script(foreign="lightning"), "deepspeed_route": "engine"}, None),
        ({"deepspeed_route": "engine"}, "deepspeed"),
        ({"deepspeed_route": "accelerate"}, None),
        ({"deepspeed_route": "trainer"}, "transformers"),
        ({"recipe": OF_TRL, "recipe_reader": "trl"}, "trl"),
        ({"recipe": RECIPE, "recipe_reader": "trl"}, "transformers"),
        ({"recipe": OF_TRL, "recipe_reader": "hf"}, "transformers"),
        ({"recipe": RECIPE}, "transformers"),
        ({"recipe": RECIPE, "script": NO_PYTHON}, "transformers"),
        ({"recipe": RECIPE, "script": script()}, None),
        ({"recipe": RECIPE, "recipe_reader": "hf", "script": script()}, "transformers"),
        ({"script": NO_PYTHON}, None),
        ({"arguments": ["save_strategy"]}, "transformers"),
        ({"arguments": ["save_steps"]}, None),
        ({"arguments": ["per_device_train_batch_size"]}, None),
        ({"arguments": ["per_device_train_batch_size", "save_steps"]}, "transformers"),
        ({"arguments": ["save_strategy"], "script": OPTIONS}, None),
        (
            {"arguments": ["save_strategy"], "script": script(options=frozenset(), parsed=frozenset("x"))},
            "transformers",
        ),
        ({"arguments": ["save_strategy"], "script": script()}, "transformers"),
    ],
)
def test_who_reads_a_run(parts: dict[str, Any], reader: str | None) -> None:
    given = {name: Setting("1", CALL) for name in parts.pop("arguments", [])}
    assert reader_of(Run("a", arguments=given, **parts)) == reader
