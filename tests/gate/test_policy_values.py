"""A policy sees every value of a run, wherever it comes from, and names only what runs can have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gate.conftest import Repository

LOCK = "built/quickstart/zerocfg.lock"
DEFAULT = "zerocfg.yaml:8:3"
"""Where the run of the spec stands."""


def _policy(repository: Repository, policy: dict[str, Any]) -> tuple[int, list[str]]:
    (repository.folder / "policy.schema.json").write_text(json.dumps(policy, indent=2))
    return repository.gate("--only", "policy")


VIOLATED: dict[str, tuple[str, Any, Any, str, str]] = {
    # name: (a schema that the run does not meet, one that it meets, where, what is said)
    "learning_rate": (
        {"maximum": 0.0001},
        {"maximum": 0.001},
        "recipe.yaml:6:1",
        "is 0.001; at most 0.0001 is allowed",
    ),
    "report_to": ({"enum": ["wandb"]}, {"const": "none"}, "recipe.yaml:13:1", 'is "none"; allowed are "wandb"'),
    "output_dir": (
        *({"pattern": "^/checkpoints/"}, {"pattern": "^runs/"}, "recipe.yaml:2:1"),
        "is \"runs/quickstart\"; 'runs/quickstart' does not match '^/checkpoints/'",
    ),
    "num_train_epochs": ({"maximum": 2}, {"maximum": 3}, DEFAULT, "is 3.0; at most 2 is allowed"),
    "gradient_checkpointing": ({"const": True}, {"const": None}, DEFAULT, "is null; only true is allowed"),
    "optim": ({"const": "adamw_torch"}, {"const": "adamw_torch_fused"}, DEFAULT, 'only "adamw_torch" is allowed'),
    "zero_optimization.stage": ({"const": 2}, {"const": 3}, "ds_config.json:10:5", "is 3; only 2 is allowed"),
    "gradient_clipping": ({"maximum": 0.5}, {"maximum": 1}, "recipe.yaml:9:1", "is 1.0; at most 0.5 is allowed"),
    "engine": ({"const": "fsdp"}, {"const": "deepspeed"}, LOCK, 'is "deepspeed"; only "fsdp" is allowed'),
    "num_processes": ({"minimum": 8}, {"minimum": 2}, LOCK, "is 2; at least 8 is required"),
    "deepspeed_config.zero3_init_flag": ({"const": False}, {"const": True}, LOCK, "is true; only false is allowed"),
}


@pytest.mark.parametrize("name", VIOLATED)
def test_each_origin_of_a_value(name: str, repository: Repository) -> None:
    bad, good, where, said = VIOLATED[name]
    assert _policy(repository, {"properties": {name: good}}) == (0, [])
    code, reasons = _policy(repository, {"properties": {name: bad}})
    assert code == 1 and len(reasons) == 1, reasons
    assert reasons[0].startswith(f"{where}:"), reasons
    assert f": policy-violated: run quickstart: {name} " in reasons[0] and said in reasons[0], reasons


def test_an_argument_of_the_spec_wins_over_the_recipe(repository: Repository) -> None:
    """`arguments:` of a spec stand on the launch line, which the parser reads after the recipe."""
    spec = repository.folder / "zerocfg.yaml"
    line = next(text for text in spec.read_text().splitlines() if "sequence_length:" in text)
    options = '    arguments: ["recipe.yaml", "--report_to", "wandb", "--learning_rate", "2e-4", "--my_size", "7"]'
    spec.write_text(spec.read_text().replace(line, f"{line}\n{options}"))
    repository.build()
    code, reasons = _policy(
        repository,
        {"properties": {"report_to": {"const": "none"}, "my_size": {"maximum": 5}, "learning_rate": {"maximum": 3e-4}}},
    )
    assert code == 1 and len(reasons) == 2, reasons
    assert 'report_to is "wandb"; only "none" is allowed' in reasons[0] and reasons[0].startswith("zerocfg.yaml:")
    assert "my_size is 7; at most 5 is allowed" in reasons[1], reasons


def test_a_changed_argument_is_the_built_one(repository: Repository) -> None:
    """torchrun hands no config over: the build gives the Trainer one in a changed copy of the recipe."""
    spec = repository.folder / "zerocfg.yaml"
    spec.write_text(spec.read_text().replace("    recipe:", "    launcher: torchrun\n    recipe:"))
    repository.build()
    code, (reason,) = _policy(repository, {"properties": {"deepspeed": {"const": "elsewhere.json"}}})
    assert code == 1 and reason.startswith(f"{LOCK}:"), reason
    assert 'deepspeed is "built/quickstart/ds_config.json"; only "elsewhere.json" is allowed' in reason, reason


def test_a_section_of_deepspeed_hides_the_argument_of_its_name(repository: Repository) -> None:
    policy = {"properties": {"bf16": {"properties": {"enabled": {"const": True}}, "required": ["enabled"]}}}
    assert _policy(repository, policy) == (0, [])


def test_what_is_null_by_default_is_not_set(repository: Repository) -> None:
    assert _policy(repository, {"properties": {"run_name": False}}) == (0, [])
    repository.edit("recipe.yaml", "report_to: none", "report_to: none\nrun_name: mine")
    code, reasons = _policy(repository, {"properties": {"run_name": False}})
    assert code == 1 and "run quickstart: run_name is set and must not be" in reasons[0], reasons


UNKNOWN_NAMES: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt argument": (
        {"properties": {"learnin_rate": {"maximum": 1}}},
        "policy.schema.json:3:5: the policy asks for learnin_rate, which no run has; did you mean learning_rate?",
    ),
    "required": (
        {"required": ["output_dir", "gradient_cliping"]},
        "policy.schema.json:4:5: the policy asks for gradient_cliping, which no run has; did you mean gradient_clip",
    ),
    "in a section": (
        {"properties": {"zero_optimization": {"properties": {"stages": {"const": 3}}}}},
        "policy.schema.json:5:9: the policy asks for zero_optimization.stages, which no run has; ",
    ),
    "below a value": (
        {"properties": {"gradient_clipping.max": {"const": 3}}},
        "policy.schema.json:3:5: the policy asks for gradient_clipping.max, which no run has; ",
    ),
    "in a condition": (
        {"anyOf": [{"not": {"required": ["wandb_progect"]}}]},
        "policy.schema.json:6:11: the policy asks for wandb_progect, which no run has; ",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN_NAMES)
def test_a_name_that_no_run_has_is_an_error_of_the_policy(what: str, repository: Repository) -> None:
    policy, said = UNKNOWN_NAMES[what]
    code, (reason,) = _policy(repository, policy)
    assert code == 2 and reason.startswith(said), reason


def test_names_of_other_runs_are_names(repository: Repository) -> None:
    """Sections, keys and arguments that this run does not have, of other engines, trainers and releases."""
    names = ["beta", "max_prompt_length", "fsdp_config", "fsdp_config.fsdp_offload_params", "evaluation_strategy"]
    names += ["optimizer.params.lr", "scheduler", "zero_optimization.offload_param.device", "megatron_lm_config"]
    names += ["zero_optimization.zero_hpz_partition_size", "lr_scheduler_kwargs.num_cycles", "main_process_port"]
    assert _policy(repository, {"properties": dict.fromkeys(names, True)}) == (0, [])


def test_a_policy_that_is_no_json_is_called_so_once(repository: Repository) -> None:
    (repository.folder / "policy.schema.json").write_text('{"properties": }\n')
    code, (reason,) = repository.gate("--only", "policy")
    assert code == 2 and reason.startswith("policy.schema.json:1:16: the policy is not JSON: ")
    assert reason.count("JSON") == 1, reason
