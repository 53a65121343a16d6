"""Launchers other than accelerate: what reaches the job without it, and what is refused because it would be lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.build.conftest import Files, Workplace, job, spec

ZERO_2 = {"zero_optimization": {"stage": 2}}


def fields(launcher: str, section: dict[str, Any], recipe: dict[str, Any] | None = None, **top: Any) -> Files:
    """A job whose DeepSpeed settings stand in an accelerate config."""
    config = {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": section, **top}
    entry = spec(deepspeed=None, accelerate="accelerate.yaml", launcher=launcher)
    return {**job(recipe), "accelerate.yaml": config, "zerocfg.yaml": entry}


def refused(workplace: Workplace, files: Files) -> str:
    result = workplace.build(workplace.write(files))
    assert result.exit_code == 1, result.output
    assert not (workplace.folder / "out").exists()
    return result.output


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_a_recipe_names_the_deepspeed_file(workplace: Workplace, launcher: str) -> None:
    config, lock = workplace.built(job(deepspeed=ZERO_2, launcher=launcher))
    out = workplace.folder / "out" / "a"
    assert config["zero_optimization"]["stage"] == 2
    assert yaml.safe_load((out / "recipe.yaml").read_text())["deepspeed"] == "out/a/ds_config.json"
    assert not (out / "accelerate.yaml").exists()
    assert f"exec {launcher} " in (out / "launch.sh").read_text()
    assert (lock["launcher"], lock["plan"]["num_processes"]) == (launcher, 8)


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_settings_of_an_accelerate_config_are_carried_over(workplace: Workplace, launcher: str) -> None:
    section = {"zero_stage": 3, "zero3_save_16bit_model": True, "gradient_clipping": 0.5}
    section |= {"offload_optimizer_device": "cpu", "gradient_accumulation_steps": 4}
    recipe = {"max_grad_norm": 0.5, "gradient_accumulation_steps": 4}
    config, _ = workplace.built(fields(launcher, section, recipe, mixed_precision="bf16"))
    zero = config["zero_optimization"]
    assert (config["gradient_clipping"], config["gradient_accumulation_steps"]) == (0.5, 4)
    assert (zero["stage"], zero["stage3_gather_16bit_weights_on_model_save"]) == (3, True)
    assert zero["offload_optimizer"]["device"] == "cpu"
    assert config["bf16"] == {"enabled": True}


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_plain_data_parallelism(workplace: Workplace, launcher: str) -> None:
    workplace.built({**job(), "zerocfg.yaml": spec(deepspeed=None, engine="ddp", launcher=launcher)})
    assert sorted(path.name for path in (workplace.folder / "out" / "a").iterdir()) == ["launch.sh", "zerocfg.lock"]


@pytest.mark.parametrize(
    ("section", "top", "key"),
    [
        ({"zero_stage": 2}, {"gpu_ids": "0,1,2,3,4,5,6,7"}, "gpu_ids"),
        ({"zero_stage": 3, "zero3_save_16bit_model": True, "deepspeed_moe_layer_cls_names": "X"}, {}, "moe_layer_cls"),
    ],
)
def test_what_only_accelerate_hands_over_is_refused(
    workplace: Workplace, section: dict[str, Any], top: dict[str, Any], key: str
) -> None:
    text = refused(workplace, fields("torchrun", section, **top))
    assert key in text and "only accelerate launch hands to the job" in text


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("mixed_precision", "bf16", "`bf16: true` into the recipe"),
        ("dynamo_config", {"dynamo_backend": "INDUCTOR"}, "`torch_compile: true` into the recipe"),
    ],
)
def test_what_the_recipe_has_to_say_itself(workplace: Workplace, key: str, value: Any, said: str) -> None:
    files = fields("torchrun", {}, {"bf16": False})
    files["accelerate.yaml"] = {"distributed_type": "MULTI_GPU", "num_processes": 8, key: value}
    text = refused(workplace, files)
    assert key in text and said in text


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
@pytest.mark.parametrize(
    ("option", "key"), [("--mixed_precision fp16", "mixed_precision: fp16"), ("--gpu_ids 0,1", "gpu_ids")]
)
def test_what_the_launch_line_says_to_accelerate_alone(
    workplace: Workplace, launcher: str, option: str, key: str
) -> None:
    """The option counts with an accelerate config that does not say it, and without any."""
    files = job({"bf16": False}, {**ZERO_2, "bf16": {"enabled": False}}, launch="train.sh", launcher=launcher)
    files["train.sh"] = f"accelerate launch {option} train.py recipe.yaml\n"
    said = f"train.sh sets {key}, which only accelerate launch hands to the job, not {launcher}"
    assert said in refused(workplace, files)
    files["zerocfg.yaml"]["runs"]["a"]["accelerate"] = "accelerate.yaml"
    files["accelerate.yaml"] = {"distributed_type": "MULTI_GPU", "num_processes": 8}
    assert said in refused(workplace, files)


@pytest.mark.parametrize(
    ("consumer", "launcher", "said"),
    [
        ("accelerate", "torchrun", "would train plain data parallel"),
        ("accelerate", "deepspeed", "would train plain data parallel"),
        ("deepspeed", "accelerate", "accelerate launch would add nothing"),
    ],
)
def test_launchers_that_do_not_fit_the_loop(workplace: Workplace, consumer: str, launcher: str, said: str) -> None:
    zero = {**ZERO_2, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0}
    zero["bf16"] = {"enabled": True}
    assert said in refused(workplace, job(deepspeed=zero, consumer=consumer, launcher=launcher, recipe=None))


@pytest.mark.parametrize("launcher", [None, "torchrun", "deepspeed"])
def test_a_loop_of_its_own_takes_either(workplace: Workplace, launcher: str | None) -> None:
    zero = {**ZERO_2, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0}
    zero["bf16"] = {"enabled": True}
    _, lock = workplace.built(job(deepspeed=zero, consumer="deepspeed", launcher=launcher, recipe=None))
    assert lock["launcher"] == (launcher or "torchrun")
    text = (workplace.folder / "out" / "a" / "launch.sh").read_text()
    assert f"exec {launcher or 'torchrun'} " in text and "--deepspeed_config out/a/ds_config.json" in text


def test_several_nodes_by_torchrun(workplace: Workplace) -> None:
    _, lock = workplace.built(job(deepspeed=ZERO_2, launcher="torchrun", hardware="2x8xA100-80GB"))
    assert (lock["plan"]["num_processes"], lock["plan"]["num_machines"]) == (16, 2)
    assert json.dumps(lock["settings"]["train_batch_size"]["value"]) == "32"
