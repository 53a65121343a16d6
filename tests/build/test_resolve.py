"""Every kind of decision: filled, computed, chosen, overruled, refused; each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.build.conftest import Files, Workplace, job, spec
from zerocfg.emit.values import InvalidConfigError

GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
ZERO_3 = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}


def refused(workplace: Workplace, files: Files, *words: str) -> str:
    result = workplace.build(workplace.write(files), *words)
    assert result.exit_code == 1, result.output
    assert not (workplace.folder / "out").exists()
    return result.output


def test_autos_of_the_model(workplace: Workplace) -> None:
    sizes = {
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    }
    config, lock = workplace.built(job(deepspeed={"zero_optimization": {**ZERO_3, **sizes}}))
    zero = config["zero_optimization"]
    assert [zero[name] for name in sizes] == [4096 * 4096, int(0.9 * 4096 * 4096), 40960]
    reason = lock["settings"]["zero_optimization.reduce_bucket_size"]["reason"]
    assert reason == "auto in ds.json; hidden_size² = 4096² elements (transformers fills it so)"


def test_autos_of_the_recipe(workplace: Workplace) -> None:
    recipe = {"gradient_accumulation_steps": 4, "max_grad_norm": 0.5}
    config, lock = workplace.built(job(recipe, {"zero_optimization": {"stage": 2}}))
    assert (config["gradient_accumulation_steps"], config["gradient_clipping"]) == (4, 0.5)
    assert lock["plan"]["train_batch_size"] == 8 * 2 * 4
    assert lock["settings"]["gradient_clipping"]["reason"] == "auto in ds.json; recipe.yaml: max_grad_norm"
    assert lock["settings"]["train_batch_size"]["reason"] == "8 ranks * 2 samples * 4 accumulation steps"


@pytest.mark.parametrize("written", [{"stage": "auto"}, {}, None])
@pytest.mark.parametrize(("parameters", "stage"), [(1e9, 1), (12e9, 2), (24e9, 3)])
def test_an_open_stage_is_the_smallest_that_fits(
    workplace: Workplace, written: dict[str, Any] | None, parameters: float, stage: int
) -> None:
    """Bytes per parameter on 8 ranks in bf16: stage 1 2+2+12/8, stage 2 2+(2+12)/8, stage 3 16/8; 0.75*0.9*79 GiB."""
    model = {"parameters": parameters, "hidden_size": 4096}
    zero = {} if written is None else {"zero_optimization": written}
    config, lock = workplace.built(job(deepspeed=zero, model=model))
    assert config["zero_optimization"]["stage"] == stage
    setting = lock["settings"]["zero_optimization.stage"]
    assert setting["kind"] == "chosen" and setting["reason"].startswith("zerocfg's choice: the smallest stage")
    if stage == 3:
        assert config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True
        assert lock["settings"][GATHER]["kind"] == "chosen"


def test_an_engine_without_a_file(workplace: Workplace) -> None:
    config, lock = workplace.built(
        job(deepspeed=None, engine="deepspeed") | {"zerocfg.yaml": spec(deepspeed=None, engine="deepspeed")}
    )
    assert config["zero_optimization"]["stage"] == 1
    assert config["bf16"] == {"enabled": True}
    assert lock["plan"]["num_processes"] == 8


def test_no_stage_fits(workplace: Workplace) -> None:
    text = refused(
        workplace, job(deepspeed={"zero_optimization": {}}, model={"parameters": 4e11, "hidden_size": 16384})
    )
    assert "zero_optimization.stage" in text and "no plan fits" in text and "ZeRO 3" in text


def test_stage_stays_open_without_facts(workplace: Workplace) -> None:
    assert "Write `stage`" in refused(workplace, job(deepspeed={"zero_optimization": {}}, model=None))
    assert "Write `stage`" in refused(workplace, job(deepspeed={"zero_optimization": {}}, hardware="4xcpu"))


@pytest.mark.parametrize("written", [{"stage": 3}, {**ZERO_3, "stage3_gather_16bit_weights_on_model_save": "auto"}])
def test_open_gathering_saves_the_weights(workplace: Workplace, written: dict[str, Any]) -> None:
    config, lock = workplace.built(job(deepspeed={"zero_optimization": written}))
    assert config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True
    setting = lock["settings"][GATHER]
    assert setting["kind"] == "chosen" and "would hold no weights" in setting["reason"]


def test_bf16_on_hardware_without_it(workplace: Workplace) -> None:
    small = {"parameters": 1e9, "hidden_size": 2048}
    files = job(deepspeed={"zero_optimization": {"stage": 2}}, hardware="4xV100-32GB", model=small)
    text = refused(workplace, files)
    assert "bf16 on 4xV100-32GB" in text and "recipe.yaml:1" in text and "use fp16" in text
    assert "bf16" in refused(workplace, {**files, "zerocfg.yaml": spec(deepspeed=None, hardware="4xV100-32GB")})
    recipe = {"bf16": False, "fp16": True}
    config = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": False}, "fp16": {"enabled": "auto"}}
    built, _ = workplace.built(job(recipe, config, hardware="4xV100-32GB", model=small))
    assert built["fp16"] == {"enabled": True} and built["bf16"] == {"enabled": False}


SCHEDULE = {
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "total_num_steps": "auto",
            "warmup_num_steps": "auto",
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
        },
    },
    "zero_optimization": {"stage": 2},
}


def test_steps_from_the_samples(workplace: Workplace) -> None:
    recipe = {"max_steps": -1, "num_train_epochs": 3, "gradient_accumulation_steps": 4, "warmup_steps": 0.1}
    text = refused(workplace, job(recipe, SCHEDULE))
    assert "scheduler.params.total_num_steps" in text and "train_samples" in text and "max_steps" in text
    config, lock = workplace.built(job(recipe, SCHEDULE, train_samples=1000))
    # 1000 samples over 8 ranks of 2: 63 batches each; 4 of them a step: 16; 3 epochs.
    assert config["scheduler"]["params"]["total_num_steps"] == 48
    assert config["scheduler"]["params"]["warmup_num_steps"] == 5
    assert "train_samples 1000" in lock["settings"]["scheduler.params.total_num_steps"]["reason"]


def test_hardware_overrules_the_sources_and_says_so(workplace: Workplace) -> None:
    accelerate = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 4,
        "deepspeed_config": {"deepspeed_config_file": "ds.json"},
    }
    files = job(deepspeed={"zero_optimization": {"stage": 2}})
    files["zerocfg.yaml"] = spec(accelerate="accelerate.yaml", deepspeed=None)
    _, lock = workplace.built({**files, "accelerate.yaml": accelerate})
    assert lock["plan"]["num_processes"] == 8
    assert any("says 4, 8xA100-80GB has 8" in note for note in lock["notes"])
    _, lock = workplace.built({**files, "accelerate.yaml": accelerate}, "a", "--hardware", "2xH100")
    assert lock["plan"]["num_processes"] == 2


def test_several_nodes(workplace: Workplace) -> None:
    import os
    import subprocess

    import yaml

    workplace.built(job(deepspeed={"zero_optimization": {"stage": 2}}, hardware="2x8xH100"))
    out = workplace.folder / "out" / "a"
    config = yaml.safe_load((out / "accelerate.yaml").read_text())
    assert (config["num_machines"], config["num_processes"]) == (2, 16)
    assert config["deepspeed_config"]["deepspeed_multinode_launcher"] == "standard"
    program = workplace.folder / "bin" / "accelerate"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)

    def start(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", **variables}
        return subprocess.run([out / "launch.sh"], env=environment, capture_output=True, text=True, check=False)

    assert "set MACHINE_RANK" in start().stderr
    assert "set MAIN_PROCESS_IP" in start(MACHINE_RANK="0").stderr
    assert start(MACHINE_RANK="2", MAIN_PROCESS_IP="h").returncode == 2
    assert start(MACHINE_RANK="-1", MAIN_PROCESS_IP="h").returncode == 2
    done = start(MACHINE_RANK="1", MAIN_PROCESS_IP="host0")
    assert done.returncode == 0
    assert "--machine_rank 1 --main_process_ip host0 --main_process_port 29500 train.py" in done.stdout


def test_pinned_memory_is_stated(workplace: Workplace) -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    for release, pinned in (("0.19.8", True), ("0.19.4", False)):
        files = job(deepspeed={"zero_optimization": zero}, versions={"deepspeed": release})
        config, lock = workplace.built(files)
        assert config["zero_optimization"]["offload_optimizer"]["pin_memory"] is pinned
        assert release in lock["settings"]["zero_optimization.offload_optimizer.pin_memory"]["reason"]


def test_own_loop_of_deepspeed(workplace: Workplace) -> None:
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 3,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
    }
    built, lock = workplace.built(job(deepspeed=config, consumer="deepspeed", recipe=None))
    out = workplace.folder / "out" / "a"
    assert not (out / "accelerate.yaml").exists()
    assert built["gradient_accumulation_steps"] == 3 and lock["plan"]["train_batch_size"] == 48
    text = (out / "launch.sh").read_text()
    assert "torchrun --standalone --nproc_per_node 8" in text and "--deepspeed_config ../" not in text
    assert "--deepspeed_config out/a/ds_config.json" in text


@pytest.mark.libs
def test_a_section_without_keys_stays(workplace: Workplace) -> None:
    """DeepSpeed builds a schedule of `params`, which may be empty and not missing."""
    from deepspeed.runtime.config import get_scheduler_params

    written = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "optimizer": {"type": "AdamW", "params": {}},
        "scheduler": {"type": "WarmupLR", "params": {}},
        "zero_optimization": {"stage": 2, "offload_optimizer": {}},
        "fp16": {},
    }
    files = job(deepspeed=written, consumer="deepspeed", recipe=None)
    files["ds.json"] = written
    config, _ = workplace.built(files)
    assert get_scheduler_params(config) == get_scheduler_params(written) == {}
    assert config["optimizer"] == written["optimizer"]
    assert "offload_optimizer" not in config["zero_optimization"] and "fp16" not in config  # without effect


def test_recipe_with_a_config_of_its_own(workplace: Workplace) -> None:
    text = refused(workplace, job({"deepspeed": "ds.json"}, {"zero_optimization": {"stage": 2}}))
    assert "never be used" in text


def test_batch_of_an_own_loop_is_unknown(workplace: Workplace) -> None:
    text = refused(workplace, job(deepspeed={"zero_optimization": {"stage": 2}}, consumer="accelerate", recipe=None))
    assert "train_micro_batch_size_per_gpu" in text


def test_plain_data_parallelism(workplace: Workplace) -> None:
    import yaml

    workplace.built(job() | {"zerocfg.yaml": spec(deepspeed=None)})
    out = workplace.folder / "out" / "a"
    assert not (out / "ds_config.json").exists()
    config = yaml.safe_load((out / "accelerate.yaml").read_text())
    assert (config["distributed_type"], config["mixed_precision"]) == ("MULTI_GPU", "bf16")


def test_json_output(workplace: Workplace) -> None:
    import json

    files = job(deepspeed={"zero_optimization": {"stage": 2}})
    shown = json.loads(workplace.build(workplace.write(files), "--output-format", "json").output)
    assert shown["files"] == [
        f"out/a/{name}" for name in ("accelerate.yaml", "ds_config.json", "launch.sh", "zerocfg.lock")
    ]
    assert shown["runs"][0]["settings"]["zero_optimization.stage"]["value"] == 2
    failed = workplace.build(
        workplace.write(job(deepspeed={"zero_optimization": {}}, model=None)), "--output-format", "json"
    )
    assert json.loads(failed.output)["problems"][0]["key"] == "zero_optimization.stage"


DEEPSPEED_YAML = {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": {"zero_stage": 2}}


def test_engine_of_the_spec_leaves_out_the_other(workplace: Workplace) -> None:
    files = {**job(), "zerocfg.yaml": spec(deepspeed=None, accelerate="accelerate.yaml", engine="ddp")}
    _, lock = workplace.built({**files, "accelerate.yaml": {**DEEPSPEED_YAML, "mixed_precision": "bf16"}})
    assert lock["plan"]["engine"] == "ddp" and "zero_optimization.stage" not in lock["settings"]
    assert "leaves out the accelerate config" in lock["notes"][0]


def test_megatron_is_not_emitted(workplace: Workplace) -> None:
    files = {**job(), "zerocfg.yaml": spec(deepspeed=None, accelerate="accelerate.yaml")}
    config = {"distributed_type": "MEGATRON_LM", "num_processes": 8}
    assert "MEGATRON_LM cannot be emitted yet" in refused(workplace, {**files, "accelerate.yaml": config})


def test_processes_without_devices(workplace: Workplace) -> None:
    import yaml

    files = {**job(), "zerocfg.yaml": spec(deepspeed=None, hardware="2xcpu")}
    _, lock = workplace.built(files)
    config = yaml.safe_load((workplace.folder / "out" / "a" / "accelerate.yaml").read_text())
    assert (config["distributed_type"], lock["plan"]["num_processes"]) == ("MULTI_GPU", 2)
    workplace.built({**files, "zerocfg.yaml": spec(deepspeed=None, hardware="cpu")})
    config = yaml.safe_load((workplace.folder / "out" / "a" / "accelerate.yaml").read_text())
    assert (config["distributed_type"], config["use_cpu"]) == ("NO", True)


def test_own_loop_of_accelerate(workplace: Workplace) -> None:
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 3,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
    }
    built, lock = workplace.built(job(deepspeed=config, consumer="accelerate", recipe=None))
    assert built["gradient_clipping"] == 1.0 and built["bf16"] == {"enabled": True}
    assert (
        lock["settings"]["gradient_clipping"]["reason"]
        == "auto in ds.json; nobody sets it; default of accelerate 1.15.0"
    )
    assert built["zero_optimization"]["reduce_bucket_size"] == 4096 * 4096
    assert "(accelerate fills it so)" in lock["settings"]["zero_optimization.reduce_bucket_size"]["reason"]
    assert built["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True


def test_packing_hides_the_number_of_steps(workplace: Workplace) -> None:
    recipe = {"max_steps": -1, "packing": True, "learning_rate": 1e-5}
    text = refused(workplace, job(recipe, SCHEDULE, consumer="trl", train_samples=1000))
    assert "scheduler.params.total_num_steps" in text


def test_nothing_says_how_many_processes(workplace: Workplace) -> None:
    text = refused(workplace, job(deepspeed={"zero_optimization": {"stage": 2}}, hardware=None))
    assert "Add `hardware:`" in text


def test_this_machine(workplace: Workplace) -> None:
    _, lock = workplace.built({**job(), "zerocfg.yaml": spec(deepspeed=None, hardware="this")}, "a")
    assert lock["plan"]["num_processes"] >= 1


def test_a_profile_beside_the_spec(workplace: Workplace) -> None:
    profile = {
        "name": "box",
        "accelerators_per_node": 3,
        "accelerator": {"name": "X", "vendor": "nvidia", "bf16": True},
    }
    files = {**job(deepspeed={"zero_optimization": {"stage": 2}}, hardware="hw.json"), "hw.json": profile}
    _, lock = workplace.built(files)
    assert (lock["plan"]["num_processes"], lock["hardware"]["name"]) == (3, "box")


def test_launched_through_a_linked_folder(workplace: Workplace) -> None:
    import os
    import subprocess

    (workplace.folder / "deep" / "real").mkdir(parents=True)
    (workplace.folder / "out").symlink_to(workplace.folder / "deep" / "real")
    workplace.built(job(deepspeed={"zero_optimization": {"stage": 2}}))
    program = workplace.folder / "bin" / "accelerate"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    script = workplace.folder / "out" / "a" / "launch.sh"
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(workplace.folder.resolve())


def test_values_that_accelerate_replaces_are_left_out(workplace: Workplace) -> None:
    config, _ = workplace.built(job(deepspeed={"zero_optimization": {"stage": 2}, "steps_per_print": 10}))
    assert "steps_per_print" not in config
    own = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
        "steps_per_print": 10,
    }
    config, _ = workplace.built(job(deepspeed=own, consumer="deepspeed", recipe=None))
    assert config["steps_per_print"] == 10


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_at_all(workplace: Workplace, value: float) -> None:
    zero = {"zero_optimization": {"stage": 2}, "gradient_predivide_factor": value}
    assert "gradient_predivide_factor" in refused(workplace, job(deepspeed=zero))


def test_secrets_stay_in_the_recipe(workplace: Workplace) -> None:
    recipe = {"hub_token": "hf_secret", "env": {"WANDB_API_KEY": "w_secret", "A": "plain"}, "learning_rate": 1e-5}
    files = job(recipe, {"zero_optimization": {"stage": 2}}, consumer="trl")
    _, lock = workplace.built(files)
    assert lock["recipe"]["hub_token"] == lock["recipe"]["env"]["WANDB_API_KEY"] == "(not recorded)"
    assert lock["recipe"]["env"]["A"] == "plain"
    for path in (workplace.folder / "out" / "a").iterdir():
        assert "_secret" not in path.read_text()


def moe(model_type: str, **config: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}
    return {"model_type": model_type, "intermediate_size": 128, "moe_intermediate_size": 32, **sizes, **config}


@pytest.mark.parametrize(
    ("model_type", "stage", "classes"),
    [
        ("deepseek_v3", 3, ["DeepseekV3MoE"]),
        ("deepseek_v3", 2, None),
        ("mixtral", 3, None),  # one of those that DeepSpeed knows itself
        ("llama", 3, None),
    ],
)
def test_blocks_of_experts_become_leaves(
    workplace: Workplace, model_type: str, stage: int, classes: list[str] | None
) -> None:
    files = job(deepspeed={"zero_optimization": {"stage": stage}}, model="config.json") | {
        "config.json": moe(model_type)
    }
    config, lock = workplace.built(files)
    assert config["zero_optimization"].get("leaf_module", {}).get("classes") == classes
    if classes:
        assert lock["settings"]["zero_optimization.leaf_module.classes"]["kind"] == "chosen"


def test_what_goals_choose_stands_in_both_files(workplace: Workplace) -> None:
    """A DeepSpeed file without batch sizes means DeepSpeed's defaults, and the Trainer compares."""
    model = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16}
    goals = {"global_batch_size": 64}
    files = {
        "zerocfg.yaml": spec(model="config.json", goals=goals, sequence_length=2048),
        "config.json": model,
        "train.py": "",
        "recipe.yaml": {"output_dir": "out", "max_steps": 10},
        "ds.json": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
    }
    config, lock = workplace.built(files)
    micro, steps = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
    assert 8 * micro * steps == 64
    changes = {name: one["value"] for name, one in lock["changes"].items()}
    assert (changes["per_device_train_batch_size"], changes["gradient_accumulation_steps"]) == (micro, steps)
    assert changes["bf16"] is True


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        ("ignore = []", True),
        ('ignore = ["ZC219"]', False),
        ('ignore = ["ZC4"]', True),
        ('select = ["ZC4"]', False),
        ('per-file-ignores = {"ds.json" = ["ZC219"]}', False),
        ('per-file-ignores = {"other.json" = ["ZC219"]}', True),
    ],
)
def test_what_the_settings_ignore_stops_no_build(workplace: Workplace, settings: str, stops: bool) -> None:
    """The learning rate of the Trainer does not reach this optimizer (ZC219), neither in the sources nor as emitted."""
    files = job(deepspeed={"optimizer": {"type": "AdamW", "params": {}}, "zero_optimization": {"stage": 2}})
    spec_file = workplace.write({**files, "pyproject.toml": f"[tool.zerocfg]\n{settings}\n"})
    result = workplace.build(spec_file)
    assert (result.exit_code, "ZC219" in result.output) == (int(stops), stops), result.output
    if not stops:
        assert workplace.build(spec_file, "--check").exit_code == 0


def test_a_comment_in_the_sources_counts_for_what_is_emitted(workplace: Workplace) -> None:
    """DeepSpeed reads Hjson; the emitted file is strict JSON, and holds no comment."""
    text = """{
      "train_micro_batch_size_per_gpu": 2,
      "zero_optimization": {"stage": 2},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
      "scheduler": {"type": "WarmupLR"}  # zerocfg: ignore[ZC226] the script replaces it
    }"""
    files = job(consumer="deepspeed", recipe=None)
    config, _ = workplace.built({**files, "ds.json": text})
    assert config["scheduler"] == {"type": "WarmupLR"}
    result = workplace.build(workplace.write({**files, "ds.json": text.replace("ZC226", "ZC225")}))
    assert result.exit_code == 1 and "ZC226" in result.output


IGNORED = {
    "zero_stage": 3,
    "overlap_comm": False,
    "stage3_prefetch_bucket_size": "3e8",
    "stage3_param_persistence_threshold": 1000000,
    "stage3_gather_16bit_weights_on_model_save": True,
    "wall_clock_breakdown": True,
}


def in_accelerate(section: dict[str, Any], **run: Any) -> Files:
    source = {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": section}
    return {
        **job(deepspeed=None),
        "zerocfg.yaml": spec(**{"deepspeed": None, "accelerate": "acc.yaml", **run}),
        "acc.yaml": source,
    }


@pytest.mark.libs
def test_what_accelerate_ignores_is_written_where_deepspeed_reads_it(workplace: Workplace) -> None:
    """As the tutorials have it: DeepSpeed's own keys in an accelerate config. Read by DeepSpeed's own model."""
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    config, lock = workplace.built(in_accelerate(IGNORED))
    read = DeepSpeedZeroConfig(**config["zero_optimization"])
    assert (read.stage, read.overlap_comm, read.prefetch_bucket_size) == (3, False, 300_000_000)
    assert (read.param_persistence_threshold, read.gather_16bit_weights_on_model_save) == (1_000_000, True)
    assert config["wall_clock_breakdown"] is True
    one = lock["settings"]["zero_optimization.stage3_prefetch_bucket_size"]
    reason = "acc.yaml: deepspeed_config.stage3_prefetch_bucket_size, where accelerate ignores it"
    assert (one["kind"], one["reason"]) == ("file", reason)
    assert "accelerate ignores overlap_comm, stage3_prefetch_bucket_size" in lock["notes"][0]


@pytest.mark.parametrize("section", [{"overlap_com": True}, {"bf16": {"enabled": True}}, {"reduce_bucket": 5}])
def test_what_nobody_reads_anywhere_still_stops_the_build(workplace: Workplace, section: dict[str, Any]) -> None:
    assert "ZC103" in refused(workplace, in_accelerate({"zero_stage": 2, "overlap_comm": True, **section}))


def test_a_deepspeed_file_wins_over_what_accelerate_ignores(workplace: Workplace) -> None:
    section = {"deepspeed_config_file": "ds.json", "reduce_bucket_size": 200_000_000, "overlap_comm": True}
    files = in_accelerate(section)
    files["ds.json"] = job(deepspeed={"zero_optimization": {"stage": 2, "reduce_bucket_size": 300_000_000}})["ds.json"]
    assert "ZC103" in refused(workplace, files)  # which of the two is meant, its author has to say
    del section["reduce_bucket_size"]
    config, _ = workplace.built(files)
    assert (config["zero_optimization"]["reduce_bucket_size"], config["zero_optimization"]["overlap_comm"]) == (
        300_000_000,
        True,
    )


def test_what_the_build_loses_is_its_own_error(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault put into the emitter: told with the place in the sources, as zerocfg's own, and nothing is written."""
    from zerocfg.resolve.engine import accelerate as keys

    files = in_accelerate({"zero_stage": 2})
    files["acc.yaml"] = {
        "distributed_type": "FSDP",
        "num_processes": 8,
        "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": False},
        "dynamo_config": {"dynamo_backend": "INDUCTOR"},
    }
    path = workplace.write(files)
    assert workplace.build(path).exit_code == 0
    original = keys._fsdp_section

    def forgetful(*given: Any) -> dict[str, Any]:
        return {name: one for name, one in original(*given).items() if not name.endswith("reshard_after_forward")}

    with monkeypatch.context() as patch:
        patch.setattr(keys, "_fsdp_section", forgetful)
        result = workplace.build(path, "--force")
        assert result.exit_code == 2, result.output
        assert (
            "acc.yaml:1:" in result.output
            and "fsdp_config.fsdp_reshard_after_forward: an error of zerocfg" in result.output
        )
        assert "the sources give False, the files that would be emitted give True" in result.output
    with monkeypatch.context() as patch:
        patch.setattr(keys, "_sections", lambda *given: {})
        result = workplace.build(path, "--force")
        assert result.exit_code == 2 and "ACCELERATE_DYNAMO_BACKEND: an error of zerocfg" in result.output

    def refuse(plan: object, out: object) -> None:
        raise InvalidConfigError("DeepSpeedConfig: zero_optimization.stage: no")

    monkeypatch.setattr("zerocfg.emit.emit_run.emit", refuse)
    result = workplace.build(path, "--force")
    assert result.exit_code == 2
    assert "an error of zerocfg: DeepSpeedConfig: zero_optimization.stage: no" in result.output
