"""``zerocfg diff --releases``: what changes for some files from one set of releases to another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome

Cli = Callable[..., Outcome]
DS = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}%s}\n'


def told(zerocfg: Cli, old: str, new: str, *paths: str) -> dict[str, Any]:
    outcome = zerocfg("diff", "--releases", old, new, *paths, "--output-format", "json")
    assert outcome.code in (0, 1), outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    breaks = bool(found["comes"] or found["settings"] or found["keys"])
    assert outcome.code == int(breaks)
    assert found["same"] is not (breaks or bool(found["goes"]))
    return found


def test_defaults_that_apply_and_keys_that_are_written(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DS % ',\n "elasticity": {"enabled": false}')
    found = told(zerocfg, "deepspeed==0.17.6", "deepspeed==0.19.8")
    keys = [(one["line"], one["key"], one["change"], one["since"], one.get("a"), one.get("b")) for one in found["keys"]]
    assert keys == [
        (1, "gradient_clipping", "default", "0.19.3", 0.0, 1.0),
        (1, "bf16.check_grad_overflow", "default", "0.19.3", False, True),
        (2, "elasticity", "gone", "0.19.8", None, None),
    ]
    assert [(one["code"], one["severity"], one["line"]) for one in found["comes"]] == [("ZC110", "error", 2)]


def test_what_the_files_say_themselves_changes_nothing(zerocfg: Cli, tmp_path: Path) -> None:
    text = DS.replace('"enabled": true', '"enabled": true, "check_grad_overflow": false') % ', "gradient_clipping": 1.0'
    (tmp_path / "ds.json").write_text(text)
    outcome = zerocfg("diff", "--releases", "deepspeed==0.17.6", "deepspeed==0.19.8")
    assert outcome.out == "- DeepSpeed 0.17.6\n+ DeepSpeed 0.19.8\n\nnothing changes for these files\n"
    assert (outcome.code, outcome.err) == (0, "")


def test_a_key_that_came_and_the_way_back(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        DS.replace('"stage": 2', '"stage": 2, "zenflow": {}') % ', "gradient_clipping": 1.0'
    )
    forth = told(zerocfg, "deepspeed==0.16.9", "deepspeed==0.17.6", "ds.json")
    assert ("zero_optimization.zenflow", "new") in [(one["key"], one["change"]) for one in forth["keys"]]
    back = told(zerocfg, "deepspeed==0.17.6", "deepspeed==0.16.9", "ds.json")
    assert ("zero_optimization.zenflow", "gone") in [(one["key"], one["change"]) for one in back["keys"]]


def test_a_library_that_one_side_leaves_out_is_that_of_the_project(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DS % "")
    assert told(zerocfg, "accelerate==1.0.1", "deepspeed==0.19.8,accelerate==1.0.1")["keys"] == []
    (tmp_path / "requirements.txt").write_text("deepspeed==0.19.2\n")
    keys = told(zerocfg, "accelerate==1.0.1", "deepspeed==0.19.8,accelerate==1.0.1")["keys"]
    assert "gradient_clipping" in [one["key"] for one in keys]


def test_without_the_old_releases_the_pins_of_each_run_count(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.19.2\n")
    (tmp_path / "ds.json").write_text(DS % "")
    outcome = zerocfg("diff", "--releases", "deepspeed==0.19.8", "--output-format", "json")
    found = json.loads(outcome.out)
    assert (found["a"], found["b"]) == ({"deepspeed": "0.19.2"}, {"deepspeed": "0.19.8"})
    assert found["keys"] == told(zerocfg, "deepspeed==0.19.2", "deepspeed==0.19.8")["keys"] != []
    other = tmp_path / "other"
    other.mkdir()
    (other / "requirements.txt").write_text("deepspeed==0.19.8\n")
    (other / "ds.json").write_text(DS % "")
    found = json.loads(zerocfg("diff", "--releases", "deepspeed==0.19.8", "--output-format", "json").out)
    assert found["a"] == {"deepspeed": "0.19.2, 0.19.8"}
    assert {one["file"] for one in found["keys"]} == {"ds.json"}


def test_arguments(zerocfg: Cli, tmp_path: Path) -> None:
    recipe = "output_dir: out\nmax_steps: 2\nper_device_train_batch_size: 1\n"
    recipe += "optim: adamw_torch\nreport_to: none\nwarmup_ratio: 0.1\n"
    (tmp_path / "recipe.yaml").write_text(recipe)
    found = told(zerocfg, "transformers==4.51.3", "transformers==5.23.0")
    keys = [(one["line"], one["key"], one["change"], one["since"], one.get("instead")) for one in found["keys"]]
    assert keys == [
        (1, "average_tokens_across_devices", "default", "4.54.0", None),
        (6, "warmup_ratio", "gone", "5.15.0", "warmup_steps"),
    ]


LOADS = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'model = AutoModelForCausalLM.from_pretrained("org/model"%s)\n'
    "Trainer(model=model, args=TrainingArguments(output_dir='out'), train_dataset=data).train()\n"
)


@pytest.mark.parametrize(
    ("more", "old", "new", "told_"),
    [
        ("", "4.46.3", "5.23.0", [("default", "5.0.0", "float32", "auto")]),
        (", trust_remote_code=True", "4.57.6", "5.0.0", [("default", "5.0.0", "float32", "auto")]),
        ("", "5.23.0", "4.46.3", [("default", "5.0.0", "auto", "float32")]),
        ("", "4.46.3", "4.57.6", []),
        ("", "5.0.0", "5.23.0", []),
        (", torch_dtype='auto'", "4.46.3", "5.23.0", []),
        (", dtype=torch.float32", "4.57.6", "5.23.0", []),
        (", config=config", "4.46.3", "5.23.0", []),
        (", quantization_config=bnb", "4.46.3", "5.23.0", []),
        (", **given", "4.46.3", "5.23.0", []),
        (").to('cuda'", "4.46.3", "5.23.0", [("default", "5.0.0", "float32", "auto")]),
        (").to(torch.float32", "4.46.3", "5.23.0", []),
        (").to('cuda', dtype=chosen", "4.46.3", "5.23.0", []),
        (").half(", "4.46.3", "5.23.0", []),
    ],
)
def test_the_dtype_of_a_model_that_a_script_loads(
    zerocfg: Cli, tmp_path: Path, more: str, old: str, new: str, told_: list[tuple[str, str, str, str]]
) -> None:
    (tmp_path / "train.py").write_text(LOADS % more)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    keys = told(zerocfg, f"transformers=={old}", f"transformers=={new}")["keys"]
    found = [one for one in keys if one["key"] == "AutoModelForCausalLM.from_pretrained(dtype=)"]
    assert [(one["change"], one["since"], one["a"], one["b"]) for one in found] == told_
    assert {(one["file"], one["line"]) for one in found} <= {("train.py", 2)}


def test_defaults_of_a_method_of_trl(zerocfg: Cli, tmp_path: Path) -> None:
    recipe = "output_dir: out\nmax_steps: 2\nper_device_train_batch_size: 1\nnum_generations: 4\nloss_type: grpo\n"
    line = "accelerate launch grpo.py --config recipe.yaml\n"
    (tmp_path / "run.sh").write_text(line)
    (tmp_path / "recipe.yaml").write_text(recipe)
    found = told(zerocfg, "trl==0.18.0", "trl==1.16.0")
    defaults = {one["key"]: (one["a"], one["b"]) for one in found["keys"] if one["change"] == "default"}
    assert defaults["beta"] == (0.04, 0.0) and defaults["max_completion_length"] == (256, 512)
    assert "loss_type" not in defaults


def test_a_recipe_for_several_methods_is_told_what_all_of_them_change(zerocfg: Cli, tmp_path: Path) -> None:
    """GRPO and RLOO both take `num_generations`, and had a server of vLLM as their default."""
    recipe = "output_dir: out\nmax_steps: 2\nper_device_train_batch_size: 4\nnum_generations: 4\nuse_vllm: true\n"
    (tmp_path / "recipe.yaml").write_text(recipe)
    found = told(zerocfg, "trl==0.23.0", "trl==1.16.0")
    defaults = {one["key"]: (one["a"], one["b"], one["since"]) for one in found["keys"] if one["change"] == "default"}
    assert defaults["vllm_mode"] == ("server", "colocate", "1.0.0")
    assert "beta" not in defaults  # 0.05 for RLOO all the time


def test_a_default_that_a_config_of_trl_takes_over_from_the_trainer(zerocfg: Cli, tmp_path: Path) -> None:
    """SFTConfig has the Trainer's 5e-5 and 500 up to TRL 0.11 and 0.18, as its release notes say."""
    (tmp_path / "run.sh").write_text("accelerate launch sft.py --config recipe.yaml\n")
    recipe = "output_dir: out\nmax_steps: 2\nper_device_train_batch_size: 4\npacking: true\n"
    (tmp_path / "recipe.yaml").write_text(recipe)
    old, new = "trl==0.11.4,transformers==4.45.2", "trl==0.19.1,transformers==4.51.3"
    keys = [one for one in told(zerocfg, old, new)["keys"] if one["change"] == "default"]
    found = {one["key"]: (one["library"], one["a"], one["b"], one["since"]) for one in keys}
    assert found["learning_rate"] == ("trl", 5e-05, 2e-05, "0.12.0")
    assert found["logging_steps"] == ("trl", 500, 10, "0.19.0")
    assert not [one for one in told(zerocfg, "trl==0.11.4", "trl==0.19.1")["keys"] if one["key"] == "learning_rate"]


def test_text(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DS % "")
    outcome = zerocfg("diff", "--releases", "deepspeed==0.19.2", "deepspeed==0.19.8", "ds.json")
    assert outcome.code == 1
    assert "ds.json:1:1: the default of `gradient_clipping` is 1.0, was 0.0 (since DeepSpeed 0.19.3)" in outcome.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--releases", "deepspeed==0.16.99", "deepspeed==0.19.8"), "did you mean 0.16.9 or 0.17.0?"),
        (("--releases", "deepspeed==0.16.9", "deepspeed==0.19.8", "nowhere"), "no file or folder"),
        (("--releases", "deepspeed==0.16.9", "deepspeed==0.19.8"), "no config"),
        (("--releases", "deepspeed==0.16.9", "deepspeed==0.19.8", "deepspeed==0.19.7"), "third set"),
        (("--releases", "nowhere"), "names no release"),
        (("one",), "A and B"),
        (("one", "two", "three"), "A and B"),
    ],
)
def test_wrong_use(zerocfg: Cli, words: tuple[str, ...], said: str) -> None:
    outcome = zerocfg("diff", *words)
    assert outcome.code == 2 and said in outcome.err, outcome.err


@pytest.mark.parametrize("pin", ["", "deepspeed>=0.14\n"])
def test_without_a_pin_the_old_releases_have_to_be_named(zerocfg: Cli, tmp_path: Path, pin: str) -> None:
    (tmp_path / "ds.json").write_text(DS % "")
    (tmp_path / "requirements.txt").write_text(pin)
    outcome = zerocfg("diff", "--releases", "deepspeed==0.19.8")
    assert outcome.code == 2 and "the project pins no release of DeepSpeed" in outcome.err
