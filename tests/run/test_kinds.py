"""Files that hold familiar keys and are no config of a training, and configs that something still has to fill in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.run.kinds import sniff
from zerocfg.run.templates import placeholder
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATE = (
    '{\n  "train_batch_size": GBSIZE,\n  "train_micro_batch_size_per_gpu": MBSIZE,\n'
    '  "steps_per_print": LOG_INTERVAL,\n'
    '  "zero_optimization": {\n    "stage": ZERO_STAGE\n  },\n  "bf16": {\n    "enabled": BF16_ENABLED\n  }\n}\n'
)


def linted(folder: Path, **files: str) -> list[tuple[str, str, str]]:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    found = Job([folder], Settings(), Selection(), root=folder).lint().diagnostics
    return [(d.code, d.severity.value, d.span.path) for d in found]


@pytest.mark.parametrize(
    "data",
    [
        {"log_history": [], "global_step": 96, "logging_steps": 10, "save_steps": 500, "num_train_epochs": 3},
        {"_n_gpu": 1, "output_dir": "out", "per_device_train_batch_size": 1, "num_train_epochs": 3, "save_steps": 10},
        {"replace_with_kernel_inject": True, "tensor_parallel": {"tp_size": 2}, "dtype": "fp16", "fp16": {}},
        {"mp_size": 2, "bf16": {"enabled": True}, "dtype": "bf16"},
    ],
)
def test_no_config_of_a_training(data: dict[str, object]) -> None:
    assert sniff(data) == "other"


def test_a_training_that_injects_kernels_is_one() -> None:
    assert sniff({"replace_method": "auto", "zero_optimization": {"stage": 3}}) == "deepspeed"
    assert sniff({"train_batch_size": "auto", "zero": {"stage": 3}}, "configs/ds_inference.json") == "other"
    assert sniff({"train_batch_size": "auto", "zero_optimization": {"stage": 3}}, "inference/ds.json") == "deepspeed"
    assert sniff({"per_device_train_batch_size": 1, "num_train_epochs": 3}) == "recipe"


def test_a_template_that_nobody_names(tmp_path: Path) -> None:
    assert linted(tmp_path, ds_config_TEMPLATE__json=TEMPLATE) == []


def test_a_template_whose_other_keys_are_wrong(tmp_path: Path) -> None:
    text = TEMPLATE.replace('"bf16"', '"zero_force_ds_cpu_optimiser": false,\n  "bf16"')
    assert linted(tmp_path, ds_TEMPLATE__json=text) == [("ZC102", "error", "zero_force_ds_cpu_optimiser")]


def test_a_template_that_a_launch_line_names(tmp_path: Path) -> None:
    line = "deepspeed --num_gpus 2 train.py --deepspeed_config ds_TEMPLATE.json\n"
    found = linted(tmp_path, ds_TEMPLATE__json=TEMPLATE, train__sh=line)
    assert [one for one in found if one[0] != "ZC013"] == []
    assert ("ZC013", "error", "train_batch_size") in found
    assert len(found) == 5


def test_a_variable_in_a_template(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: ${GPUS}\nnum_machines: 1\n"
    assert linted(tmp_path, accelerate_template__yaml=text) == []
    assert ("ZC013", "warning", "num_processes") in linted(tmp_path, accelerate__yaml=text)


def test_what_the_autotuner_starts_from(tmp_path: Path) -> None:
    """It adds the ZeRO section and the batch sizes of each experiment."""
    text = '{"train_micro_batch_size_per_gpu": "auto", "autotuning": {"enabled": true}, "fp16": {"enabled": true}}\n'
    line = "deepspeed --autotuning run --num_gpus 2 train.py --deepspeed ds.json --output_dir out --fp16\n"
    assert [one for one in linted(tmp_path, ds__json=text) if one[1] == "error"] == []
    found = linted(tmp_path, ds__json=text, train__sh=line)
    assert [one for one in found if one[1] == "error"] == []
    again = line.replace("--autotuning run ", "")
    assert "ZC453" in {code for code, *_ in linted(tmp_path, ds__json=text, train__sh=again)}


def test_json_in_a_yaml_file_is_json(tmp_path: Path) -> None:
    """`1e5` is a number in JSON, and a text to YAML 1.1."""
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}\n'
    assert linted(tmp_path, zero2__yaml=text) == []


def test_placeholders() -> None:
    assert placeholder("$MASTER_ADDR:29500") == "$MASTER_ADDR"
    assert placeholder("{{ stage }}") == "{{ stage }}"
    assert placeholder("<FILL>") == "<FILL>"
    assert placeholder("{{ a }} of ${B}") == "{{ a }}"
    assert placeholder("$A of {{ b }}") == "$A"
    assert placeholder("${{ b }}") == "${{ b }", "as a shell reads it"
    assert placeholder("{{ open") is placeholder("${OPEN") is placeholder("}} {{") is None
    assert placeholder("GBSIZE") is None


YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 2\n"


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node 2 train.py --deepspeed acc.yaml --output_dir out --max_steps 2",
        "deepspeed train.py --deepspeed_config acc.yaml",
        "accelerate launch --use_deepspeed --num_processes 2 --deepspeed_config_file acc.yaml train.py",
    ],
)
def test_a_config_of_accelerate_in_place_of_deepspeeds(tmp_path: Path, line: str) -> None:
    """One error at the option, and nothing of the keys of the file. The right option beside it: nothing."""
    assert linted(tmp_path, acc__yaml=YAML, train__sh=line + "\n") == [("ZC014", "error", "")]
    assert linted(tmp_path, train__sh="accelerate launch --config_file acc.yaml train.py\n") == []


def test_another_word_than_local_machine(tmp_path: Path) -> None:
    text = f"compute_environment: SLURM\n{YAML}use_cpu: false\nmachine_rank: 0\n"
    assert linted(tmp_path, acc__yaml=text) == [("ZC716", "error", "compute_environment")]
    assert linted(tmp_path, acc__yaml=text.replace("SLURM", "LOCAL_MACHINE")) == []


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("", 1),
        ("sed s/A/1/ template.json > ds.json\n", 0),
        ("config=ds.json\nsed s/A/1/ template.json > ${config}\n", 0),
        ('cat <<EOF > ds.json\n{"train_batch_size": 2}\nEOF\n', 0),
        ("name=x\nout=ds_${name}.json\nsed s/A/1/ template.json \\\n  > ${out}\n", 0),
        ("cd /opt/job\n", 0),
        ("echo start > log.txt\n", 1),
        ("config=ds.json\necho $config\n", 1),
    ],
)
def test_a_file_that_the_script_makes(tmp_path: Path, before: str, told: int) -> None:
    line = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n"
    found = linted(tmp_path, run__sh=f"#!/bin/bash\n{before}{line}", train__py="")
    assert [code for code, *_ in found] == ["ZC703"] * told


def test_a_file_that_a_script_beside_it_makes(tmp_path: Path) -> None:
    line = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n"
    (tmp_path / "make.py").write_text('import json\njson.dump({}, open("ds.json", "w"))\n', encoding="utf-8")
    assert linted(tmp_path, run__sh=line) == []


def test_a_number_is_no_path(tmp_path: Path) -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: %s\n"
    where = "deepspeed_config.deepspeed_config_file"
    assert linted(tmp_path, acc__yaml=text % 1) == [("ZC703", "error", where)]
    assert linted(tmp_path, acc__yaml=text % "none") == []


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("fsdp_version:", ["fsdp_config.fsdp_version"]),
        ("fsdp_version: 1\n  fsdp_sharding_strategy:", ["fsdp_config.fsdp_sharding_strategy"]),
        ("fsdp_version: 2\n  fsdp_sharding_strategy:", []),
        ("fsdp_version: 2", []),
    ],
)
def test_null_that_reaches_the_plugin_as_a_text(tmp_path: Path, keys: str, told: list[str]) -> None:
    text = f"distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\nfsdp_config:\n  {keys}\n"
    found = linted(tmp_path, acc__yaml=text)
    assert [path for code, severity, path in found if (code, severity) == ("ZC107", "error")] == told


def test_a_batch_size_that_is_none(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": %s, "zero_optimization": {"stage": 2}}\n'
    micro = "train_micro_batch_size_per_gpu"
    assert linted(tmp_path, ds__json=text % "null") == [("ZC205", "warning", micro)]
    assert ("ZC204", "error", micro) in linted(tmp_path, ds__json=text % "false")
    assert linted(tmp_path, ds__json=text % '"auto"') == []


@pytest.mark.parametrize("key", ["deepspeed_config: ds.json", "use_cpu: falsed", "machine_rank: first"])
def test_a_key_that_the_launcher_gets_past(tmp_path: Path, key: str) -> None:
    """Each stops a launch that reads it; of this one nothing stops."""
    text = f"distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n{key}\n"
    assert {severity for _, severity, path in linted(tmp_path, acc__yaml=text) if path == key.split(":")[0]} == {
        "warning"
    }


def test_memory_that_is_never_pinned(tmp_path: Path) -> None:
    yaml = f"{YAML}  offload_optimizer_device: cpu\n"
    ds = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_optimizer": {%s}}}\n'
    where = "deepspeed_config.offload_optimizer_device"
    assert linted(tmp_path, acc__yaml=yaml) == []
    assert linted(tmp_path, requirements__txt="deepspeed==0.18.4\n") == [("ZC501", "warning", where)]
    assert linted(tmp_path, requirements__txt="deepspeed==0.19.8\n") == []
    (tmp_path / "acc.yaml").unlink()
    place = "zero_optimization.offload_optimizer.pin_memory"
    assert ("ZC501", "warning", place) in linted(tmp_path, ds__json=ds % '"device": "cpu", "pin_memory": 0')
    assert linted(tmp_path, ds__json=ds % '"device": "cpu", "pin_memory": 1') == []


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("version: 1\n  state_dict_type: LOCAL_STATE_DICT", "model.safetensors"),
        ("version: 1\n  state_dict_type: FULL_STATE_DICT", ""),
        ("version: 2\n  state_dict_type: FULL_STATE_DICT", ""),
    ],
)
def test_pieces_of_a_model_under_the_trainer(tmp_path: Path, keys: str, told: str) -> None:
    text = f"output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nfsdp: true\nfsdp_config:\n  {keys}\n"
    (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
    found = Job([tmp_path], Settings(), Selection(select=("ZC607",)), "transformers", root=tmp_path).lint().diagnostics
    assert len(found) == bool(told)
    assert all(told in one.message for one in found)


@pytest.mark.parametrize(
    ("keys", "ranks", "told"),
    [
        ("vllm_tensor_parallel_size: 4", 6, 1),
        ("vllm_tensor_parallel_size: 4", 8, 0),
        ("vllm_mode: server\nvllm_tensor_parallel_size: 4", 6, 0),
        ("vllm_mode: colocate\nvllm_tensor_parallel_size: 4", 2, 1),
        ("vllm_mode: colocate", 6, 0),
    ],
)
def test_groups_of_colocated_vllm(tmp_path: Path, keys: str, ranks: int, told: int) -> None:
    recipe = (
        f"output_dir: out\nper_device_train_batch_size: 4\nmax_steps: 2\nnum_generations: 2\nuse_vllm: true\n{keys}\n"
    )
    line = f"torchrun --nproc_per_node {ranks} grpo.py --config recipe.yaml\n"
    found = linted(tmp_path, recipe__yaml=recipe, train__sh=line)
    assert [code for code, *_ in found if code == "ZC869"] == ["ZC869"] * told


def test_the_mode_of_older_releases_was_a_server(tmp_path: Path) -> None:
    recipe = "output_dir: out\nper_device_train_batch_size: 4\nmax_steps: 2\nnum_generations: 2\nuse_vllm: true\n"
    line = "torchrun --nproc_per_node 6 grpo.py --config recipe.yaml\n"
    text = recipe + "vllm_tensor_parallel_size: 4\n"
    found = linted(tmp_path, recipe__yaml=text, train__sh=line, requirements__txt="trl==0.24.0\n")
    assert "ZC869" not in {code for code, *_ in found}
