"""What the build knows ahead of time: widths of models, steps of an epoch, how several nodes are started."""

from __future__ import annotations

from typing import Any

import pytest

from tests.build.conftest import Workplace, job

AUTOS = {"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}
SCHEDULE = {
    "type": "WarmupDecayLR",
    "params": {"total_num_steps": "auto", "warmup_num_steps": "auto", "warmup_max_lr": "auto"},
}
STEPS = "scheduler.params.total_num_steps"


@pytest.mark.parametrize(
    ("model", "width"),
    [
        ({"model_type": "t5", "d_model": 48}, 48),
        ({"model_type": "bloom", "n_embed": 48}, 48),
        ({"model_type": "gpt2"}, 768),
        ({"model_type": "resnet", "hidden_sizes": [16, 48, 32]}, 48),
        ({"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 48}}, 48),
        ({"model_type": "llava", "text_config": {"model_type": "llama"}}, 4096),
        ({"model_type": "of_this_repository", "hidden_size": 48}, 48),
    ],
)
def test_width_of_a_config_file(workplace: Workplace, model: dict[str, Any], width: int) -> None:
    files = job(deepspeed=AUTOS, model="config.json") | {"config.json": model}
    config, _ = workplace.built(files)
    assert config["zero_optimization"]["reduce_bucket_size"] == width * width


def test_no_width_is_a_refusal_of_the_library_only_for_its_own_classes(workplace: Workplace) -> None:
    """A class of a repository's own may keep it anywhere; facts in a spec are not a config file."""
    files = job(deepspeed=AUTOS, model="config.json")
    refused = workplace.build(workplace.write(files | {"config.json": {"model_type": "blt"}}))
    assert refused.exit_code == 1 and "no hidden size" in refused.output
    for model in ({"config.json": {"model_type": "of_this_repository"}}, {}):
        spec = files if model else job(deepspeed=AUTOS, model={"parameters": 7e9, "model_type": "llama"})
        unknown = workplace.build(workplace.write(spec | model))
        assert unknown.exit_code == 1 and "no hidden size" not in unknown.output
        assert "reduce_bucket_size" in unknown.output


def test_steps_of_an_epoch_without_hardware(workplace: Workplace) -> None:
    accelerate = {"distributed_type": "DEEPSPEED", "num_processes": 4, "num_machines": 1}
    accelerate |= {"deepspeed_config": {"deepspeed_config_file": "ds.json"}}
    files = job(
        {"max_steps": -1, "num_train_epochs": 2, "warmup_steps": 0.1},
        {"zero_optimization": {"stage": 2}, "scheduler": SCHEDULE},
        hardware=None,
        accelerate="acc.yaml",
        train_samples=1000,
    )
    _, lock = workplace.built(files | {"acc.yaml": accelerate})
    assert lock["settings"][STEPS]["value"] == 2 * 125
    assert lock["settings"]["scheduler.params.warmup_num_steps"]["value"] == 25


def test_an_epoch_without_a_step_is_refused(workplace: Workplace) -> None:
    recipe = {"max_steps": -1, "num_train_epochs": 2, "dataloader_drop_last": True}
    result = workplace.build(workplace.write(job(recipe, AUTOS, train_samples=7)))
    assert result.exit_code == 1
    assert "train_samples" in result.output and "dataloader_drop_last: false" in result.output


def test_several_nodes_need_no_launcher_in_the_sources(workplace: Workplace) -> None:
    """Each node runs launch.sh, so lint does not ask for the hostfile of pdsh, accelerate's default."""
    result = workplace.build(workplace.write(job(deepspeed=AUTOS, hardware="2x8xA100-80GB")))
    assert result.exit_code == 0, result.output
    emitted = (workplace.folder / "out" / "a" / "accelerate.yaml").read_text()
    assert "deepspeed_multinode_launcher: standard" in emitted
