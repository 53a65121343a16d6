"""``zerocfg convert --to fsdp2``: tables and bytes, and accelerate's own converter and plugin as oracles."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from tests.proofs import zygote

Cli = Callable[..., Outcome]
HEAD = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 8\n"
FSDP = f"{HEAD}distributed_type: FSDP\n"
ZERO = f"{HEAD}distributed_type: DEEPSPEED\n"


def table(zerocfg: Cli, *words: str) -> dict[str, tuple[str, str]]:
    """By key as it is written, without its section, what becomes of it and how it maps."""
    data = json.loads(zerocfg("convert", "a.yaml", "--to", "fsdp2", "--output-format", "json", *words).out)
    assert not data["differs"]
    return {
        row["key"].removeprefix("fsdp_config.").removeprefix("deepspeed_config."): (
            row["becomes"].removeprefix("fsdp_config."),
            row["maps"],
        )
        for row in data["table"]
    }


def converted(zerocfg: Cli, folder: Path, text: str, *words: str) -> str:
    (folder / "a.yaml").write_bytes(text.encode())
    done = zerocfg("convert", "a.yaml", "--to", "fsdp2", "--write", *words)
    assert done.code == 0, done.out + done.err
    after = (folder / "a.yaml").read_bytes().decode()
    again = zerocfg("convert", "a.yaml", "--to", "fsdp2")
    assert (again.code, again.out) == (0, "Nothing to convert.\n")
    errors = json.loads(zerocfg("lint", "--output-format", "json", "--select", "ZC6,ZC1", "a.yaml").out)
    assert [one["code"] for one in errors["diagnostics"] if one["severity"] == "error"] == []
    return after


def test_bytes_and_comments_stay(zerocfg: Cli, tmp_path: Path) -> None:
    text = (
        f"{FSDP}fsdp_config:  # as it was\n"
        "  # how it shards\n"
        "  sharding_strategy: 2   # gathered once\n"
        "  fsdp_auto_wrap_policy: transformer_based_wrap\n"
        "  fsdp_backward_prefetch: BACKWARD_POST # saves memory\n"
        "  fsdp_state_dict_type: 'local_state_dict'\n"
        "same_network: true\n"
    )
    after = (
        f"{FSDP}fsdp_config:  # as it was\n"
        "  # how it shards\n"
        "  fsdp_reshard_after_forward: false   # gathered once\n"
        "  fsdp_auto_wrap_policy: transformer_based_wrap\n"
        "  # fsdp_backward_prefetch: saves memory\n"
        "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
        "  fsdp_version: 2\n"
        "same_network: true\n"
    )
    assert converted(zerocfg, tmp_path, text) == after
    assert converted(zerocfg, tmp_path, text.replace("\n", "\r\n")) == after.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("line", "becomes", "maps"),
    [
        ("fsdp_sharding_strategy: FULL_SHARD", "fsdp_reshard_after_forward: true", "exactly"),
        ("fsdp_sharding_strategy: 1", "fsdp_reshard_after_forward: true", "exactly"),
        ("sharding_strategy: shard_grad_op", "fsdp_reshard_after_forward: false", "exactly"),
        ("fsdp_sharding_strategy: 3", "fsdp_reshard_after_forward: false", "nearly"),
        ("fsdp_sharding_strategy: hybrid_shard", "fsdp_reshard_after_forward: true", "exactly"),
        ("fsdp_sharding_strategy: 5", "fsdp_reshard_after_forward: false", "exactly"),
        ("fsdp_backward_prefetch: BACKWARD_PRE", "(left out)", "exactly"),
        ("fsdp_backward_prefetch: NO_PREFETCH", "(left out)", "nearly"),
        ("fsdp_forward_prefetch: false", "(left out)", "exactly"),
        ("fsdp_forward_prefetch: true", "(left out)", "nearly"),
        ("fsdp_use_orig_params: true", "(left out)", "exactly"),
        ("fsdp_use_orig_params: false", "(left out)", "nearly"),
        ("fsdp_sync_module_states: true", "(left out)", "exactly"),
        ("fsdp_sync_module_states: false\n  fsdp_cpu_ram_efficient_loading: false", "(left out)", "exactly"),
        ("fsdp_state_dict_type: sharded_state_dict", "fsdp_state_dict_type: sharded_state_dict", "exactly"),
        ("fsdp_state_dict_type: LOCAL_STATE_DICT", "fsdp_state_dict_type: SHARDED_STATE_DICT", "nearly"),
        ("fsdp_offload_params: true", "fsdp_offload_params: true", "exactly"),
        ("fsdp_activation_checkpointing: true", "fsdp_activation_checkpointing: true", "exactly"),
        ("fsdp_reshard_after_forward: SHARD_GRAD_OP", "fsdp_reshard_after_forward: true", "exactly"),
    ],
)
def test_each_key_of_version_1(line: str, becomes: str, maps: str, zerocfg: Cli, tmp_path: Path) -> None:
    """What FSDP 1 made of it counts: it never read `fsdp_reshard_after_forward`, and shards fully by default."""
    (tmp_path / "a.yaml").write_text(f"{FSDP}fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  {line}\n")
    found = table(zerocfg)
    assert found[line.partition("\n")[0]] == (becomes, maps)
    assert found["(fsdp_version: 1)"] == ("fsdp_version: 2", "exactly")
    saved = ("fsdp_state_dict_type: FULL_STATE_DICT", "exactly")
    assert ("state_dict" in line) != (found.get("(fsdp_state_dict_type: FULL_STATE_DICT)") == saved)


def test_states_without_loading_on_one_rank(zerocfg: Cli, tmp_path: Path) -> None:
    lines = "  fsdp_sync_module_states: true\n  fsdp_cpu_ram_efficient_loading: false\n"
    (tmp_path / "a.yaml").write_text(f"{FSDP}fsdp_config:\n{lines}")
    assert table(zerocfg)["fsdp_sync_module_states: true"] == ("(left out)", "nearly")


def test_wrapping_by_size_becomes_wrapping_by_layer(zerocfg: Cli, tmp_path: Path) -> None:
    """FSDP 2 stops at the list of layers (ZC616)."""
    lines = "  fsdp_auto_wrap_policy: size_based_wrap\n  fsdp_min_num_params: 2000\n"
    (tmp_path / "a.yaml").write_text(f"{FSDP}fsdp_config:\n{lines}")
    found = table(zerocfg)
    key = "fsdp_auto_wrap_policy: "
    assert found[f"{key}size_based_wrap"] == (f"{key}TRANSFORMER_BASED_WRAP", "nearly")
    assert found["fsdp_min_num_params: 2000"] == ("(left out)", "nearly")


def test_hybrid_sharding_gets_its_mesh(zerocfg: Cli, tmp_path: Path) -> None:
    text = FSDP.replace("num_machines: 1", "num_machines: 2").replace("processes: 8", "processes: 16")
    strategy = "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
    after = yaml.safe_load(converted(zerocfg, tmp_path, f"{text}machine_rank: 0\nmain_process_ip: h\n{strategy}"))
    assert after["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 2,
        "parallelism_config_dp_shard_size": 8,
    }
    for wrong, says in (
        (text.replace("num_processes: 16\n", ""), "HYBRID_SHARD needs a mesh: say num_processes and num_machines"),
        (text.replace("num_processes: 16", "num_processes: 2"), "with one process a machine it shards nothing"),
    ):
        (tmp_path / "a.yaml").write_text(f"{wrong}{strategy}")
        done = zerocfg("convert", "a.yaml", "--to", "fsdp2")
        assert done.code == 2 and says in done.err and done.err.startswith("Error: a.yaml:"), done.err


# -- DeepSpeed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "reshards", "offloads", "saves", "maps"),
    [
        ("zero_stage: 3", True, None, "SHARDED_STATE_DICT", "exactly"),
        ("zero_stage: 3\n  zero3_save_16bit_model: true", True, None, "FULL_STATE_DICT", "exactly"),
        ("zero_stage: 2", False, None, "FULL_STATE_DICT", "nearly"),
        ("zero_stage: 1", False, None, "FULL_STATE_DICT", "nearly"),
        ("zero_stage: 2\n  offload_optimizer_device: cpu", False, True, "FULL_STATE_DICT", "nearly"),
        ("zero_stage: 3\n  offload_param_device: cpu", True, True, "SHARDED_STATE_DICT", "exactly"),
    ],
)
def test_stages(
    lines: str, reshards: bool, offloads: bool | None, saves: str, maps: str, zerocfg: Cli, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(f"{ZERO}deepspeed_config:\n  {lines}\n")
    stage = lines[: len("zero_stage: 3")]
    assert table(zerocfg)[stage] == (f"fsdp_reshard_after_forward: {'true' if reshards else 'false'}", maps)
    after = yaml.safe_load(converted(zerocfg, tmp_path, f"{ZERO}deepspeed_config:\n  {lines}\n"))
    section = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": reshards,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": offloads,
        "fsdp_state_dict_type": saves,
    }
    assert after["fsdp_config"] == {name: value for name, value in section.items() if value is not None}
    assert after["distributed_type"] == "FSDP" and "deepspeed_config" not in after


def test_a_json_is_told_key_by_key(zerocfg: Cli, tmp_path: Path) -> None:
    data = {
        "train_batch_size": "auto",
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "fp16": {"enabled": False, "loss_scale": 128},
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": True,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/d"},
            "zero_quantized_weights": True,
        },
        "optimizer": {"type": "AdamW"},
        "steps_per_print": 10,
    }
    (tmp_path / "ds.json").write_text(json.dumps(data))
    (tmp_path / "a.yaml").write_text(f"{ZERO}deepspeed_config:\n  deepspeed_config_file: ds.json\n")
    found = table(zerocfg)
    lost = {key for key, (_, maps) in found.items() if maps == "not at all"}
    assert lost == {
        "gradient_clipping: 1.0",
        "zero_optimization.offload_optimizer.device: nvme",
        "zero_optimization.offload_optimizer.nvme_path: /d",
        "zero_optimization.zero_quantized_weights: true",
        "optimizer.type: AdamW",
    }
    assert found["bf16.enabled: true"] == ("mixed_precision: bf16", "nearly")
    assert found["fp16.loss_scale: 128"] == ("(left out)", "exactly")
    assert found["zero_optimization.overlap_comm: true"] == ("(left out)", "nearly")
    assert table(zerocfg, "--consumer", "transformers")["gradient_clipping: 1.0"] == (
        "max_grad_norm (of the Trainer)",
        "exactly",
    )
    done = zerocfg("convert", "a.yaml", "--to", "fsdp2", "--write")
    assert done.code == 1 and "Nothing was written" in done.err and "DEEPSPEED" in (tmp_path / "a.yaml").read_text()
    assert zerocfg("convert", "a.yaml", "--to", "fsdp2", "--write", "--allow-loss").code == 1
    after = yaml.safe_load((tmp_path / "a.yaml").read_text())
    assert (after["distributed_type"], after["mixed_precision"]) == ("FSDP", "bf16")
    assert json.loads((tmp_path / "ds.json").read_text()) == data


LEFT, LOST = "(left out)", ""


@pytest.mark.parametrize(
    ("machines", "lines", "becomes", "maps"),
    [
        (1, "deepspeed_multinode_launcher: pdsh", LEFT, "exactly"),
        (1, "deepspeed_hostfile: hosts", LEFT, "exactly"),
        (2, "deepspeed_multinode_launcher: standard", LEFT, "exactly"),
        (2, "deepspeed_hostfile: hosts", LOST, "not at all"),
        (1, "deepspeed_moe_layer_cls_names: MixtralSparseMoeBlock", LOST, "not at all"),
        (1, "zero3_init_flag: true", "fsdp_cpu_ram_efficient_loading (default)", "nearly"),
        (1, "zero3_init_flag: false", LEFT, "exactly"),
        (1, "gradient_accumulation_steps: 1", LEFT, "exactly"),
        (1, "gradient_accumulation_steps: 4", LOST, "not at all"),
    ],
)
def test_keys_of_the_launcher(machines: int, lines: str, becomes: str, maps: str, zerocfg: Cli, tmp_path: Path) -> None:
    """torchrun starts both sides on one machine, and where DeepSpeed's launcher is told to leave it to torchrun."""
    head = ZERO.replace("num_machines: 1", f"num_machines: {machines}\nmachine_rank: 0\nmain_process_ip: h")
    (tmp_path / "a.yaml").write_text(f"{head}deepspeed_config:\n  zero_stage: 3\n  {lines}\n")
    assert table(zerocfg)[lines] == (becomes, maps)


@pytest.mark.parametrize(
    ("data", "becomes", "maps"),
    [
        ({"gradient_accumulation_steps": 1}, LEFT, "exactly"),
        ({"gradient_accumulation_steps": 2}, LOST, "not at all"),
        ({"gradient_clipping": 0}, LEFT, "exactly"),
        ({"gradient_clipping": 0.5}, LOST, "not at all"),
        ({"fp16.enabled": True}, "mixed_precision: fp16", "nearly"),
        ({"fp16.loss_scale": 0, "fp16.enabled": True}, LEFT, "nearly"),
        ({"fp16.loss_scale": 128, "fp16.enabled": True}, LOST, "not at all"),
        ({"fp16.initial_scale_power": 12, "fp16.enabled": True}, LEFT, "nearly"),
        ({"fp16.auto_cast": True, "fp16.enabled": True}, LEFT, "nearly"),
        ({"fp16.initial_scale_power": 12, "fp16.enabled": False}, LEFT, "exactly"),
        ({"bf16.enabled": False}, LEFT, "exactly"),
        ({"bf16.immediate_grad_update": True, "bf16.enabled": True}, LEFT, "nearly"),
        ({"zero_optimization.offload_param.device": "none"}, LEFT, "exactly"),
        ({"tensorboard.enabled": True}, LEFT, "nearly"),
        ({"wall_clock_breakdown": True}, LEFT, "nearly"),
        ({"activation_checkpointing.cpu_checkpointing": True}, LEFT, "exactly"),
        ({"scheduler.type": "WarmupLR"}, LOST, "not at all"),
        ({"prescale_gradients": False}, LEFT, "exactly"),
        ({"prescale_gradients": True}, LOST, "not at all"),
        ({"train_micro_batch_size_per_gpu": 4}, LEFT, "exactly"),
    ],
    ids=str,
)
def test_keys_of_a_json(data: dict[str, Any], becomes: str, maps: str, zerocfg: Cli, tmp_path: Path) -> None:
    written: dict[str, Any] = {"zero_optimization": {"stage": 3}}
    for name, value in data.items():
        *above, leaf = name.split(".")
        section = written
        for part in above:
            section = section.setdefault(part, {})
        section[leaf] = value
    (tmp_path / "ds.json").write_text(json.dumps(written))
    (tmp_path / "a.yaml").write_text(f"{ZERO}deepspeed_config:\n  deepspeed_config_file: ds.json\n")
    name, value = next(iter(data.items()))
    found = table(zerocfg)
    assert found[f"{name}: {json.dumps(value) if not isinstance(value, str) else value}"] == (becomes, maps)
    # The engine clips at accelerate's default where nobody says otherwise; FSDP leaves it to the script.
    assert ("(gradient_clipping: 1.0)" in found) == ("gradient_clipping" not in data)


@pytest.mark.parametrize(
    ("consumer", "devices", "why"),
    [
        ("accelerate", ("cpu", "cpu"), "the optimizer is torch's own, in place of DeepSpeedCPUAdam"),
        ("accelerate", ("cpu", "none"), "moves parameters, gradients and optimizer together; the optimizer is torch's"),
    ],
)
def test_what_an_offload_moves(consumer: str, devices: tuple[str, str], why: str, zerocfg: Cli, tmp_path: Path) -> None:
    """FSDP moves all three at once, as ZeRO-3 does with both of its offloads."""
    lines = f"  zero_stage: 3\n  offload_optimizer_device: {devices[0]}\n  offload_param_device: {devices[1]}\n"
    (tmp_path / "a.yaml").write_text(f"{ZERO}deepspeed_config:\n{lines}")
    words = ("convert", "a.yaml", "--to", "fsdp2", "--output-format", "json", "--consumer", consumer)
    (row,) = [row for row in json.loads(zerocfg(*words).out)["table"] if "offload_optimizer" in row["key"]]
    assert (row["maps"], row["becomes"]) == ("nearly", "fsdp_config.fsdp_offload_params: true")
    assert row["because"].startswith(why)


# -- DDP ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "section"),
    [
        (
            "fsdp2",
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_state_dict_type: FULL_STATE_DICT\n",
        ),
        ("zero2", "deepspeed_config:\n  zero_stage: 2\n"),
        ("zero3", "deepspeed_config:\n  zero_stage: 3\n  zero3_save_16bit_model: true\n"),
    ],
)
def test_ddp(target: str, section: str, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{HEAD}distributed_type: MULTI_GPU  # plain")
    assert zerocfg("convert", "a.yaml", "--to", target, "-o", "b.yaml").code == 0
    kind = "FSDP" if target == "fsdp2" else "DEEPSPEED"
    assert (tmp_path / "b.yaml").read_text() == f"{HEAD}distributed_type: {kind}  # plain\n{section}"
    assert zerocfg("lint", "--quiet", "--consumer", "transformers", "b.yaml").code == 0


def test_torch_compile_is_lost_under_deepspeed(zerocfg: Cli, tmp_path: Path) -> None:
    """Its launcher exports no ACCELERATE_DYNAMO variables."""
    text = f"{HEAD}distributed_type: MULTI_GPU\ndynamo_config:\n  dynamo_backend: INDUCTOR\n"
    (tmp_path / "a.yaml").write_text(text)
    assert zerocfg("convert", "a.yaml", "--to", "zero2").code == 1
    assert zerocfg("convert", "a.yaml", "--to", "fsdp2").code == 0


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        (
            f"{FSDP}fsdp_config: {{}}\n",
            "zero3",
            "a.yaml:4:1: `distributed_type: FSDP` is not converted so; DDP becomes",
        ),
        (f"{HEAD}distributed_type: MEGATRON_LM\n", "fsdp2", "a.yaml:4:1: `distributed_type: MEGATRON_LM` is not"),
        (f"{HEAD}distributed_type: Fsdp\n", "fsdp2", "a.yaml: the job does not start as it is: "),
        (f"{FSDP}fsdp_config:\n  fsdp_sharding_strategy: ALL\n", "fsdp2", "a.yaml:6:3: accelerate does not take"),
        (f"{ZERO}deepspeed_config: {{zero_stage: 2}}\nfsdp_config: {{a: 1}}\n", "fsdp2", "a `fsdp_config` already"),
        (f"{HEAD}distributed_type: MULTI_GPU\ndeepspeed_config: {{zero_stage: 2}}\n", "zero3", "is there already"),
        ("{distributed_type: MULTI_GPU, num_processes: 2}\n", "fsdp2", "not written as a block of YAML"),
        ("distributed_type: 'NO'\nnum_processes: 1\n", "fsdp2", "a.yaml:1:1: `distributed_type: NO` is not converted"),
    ],
)
def test_wrong_use(text: str, target: str, says: str, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    done = zerocfg("convert", "a.yaml", "--to", target, "--write")
    assert done.code == 2 and says in done.err, done.err
    assert (tmp_path / "a.yaml").read_text() == text


@pytest.mark.parametrize(("stated", "code"), [("accelerate==1.5.2", 2), ("accelerate==1.6.0", 0), ("accelerate", 0)])
def test_an_accelerate_without_fsdp2(stated: str, code: int, zerocfg: Cli, tmp_path: Path) -> None:
    """1.6.0 brought it; where the project does not say, it is taken to be there."""
    (tmp_path / "requirements.txt").write_text(f"{stated}\n")
    (tmp_path / "a.yaml").write_text(f"{HEAD}distributed_type: MULTI_GPU\n")
    done = zerocfg("convert", "a.yaml", "--to", "fsdp2")
    assert done.code == code
    assert (code == 0) != ("requirements.txt:1 admits ==1.5.2; FSDP 2 comes with 1.6.0" in done.err)


def test_the_settings_say_who_reads(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{ZERO}deepspeed_config:\n  zero_stage: 2\n  gradient_clipping: 0.5\n")
    key = "gradient_clipping: 0.5"
    assert table(zerocfg)[key] == ("", "not at all")
    (tmp_path / "pyproject.toml").write_text('[tool.zerocfg]\nconsumer = "trl"\n')
    assert table(zerocfg)[key] == ("max_grad_norm (of the Trainer)", "exactly")
    assert table(zerocfg, "--isolated")[key] == ("", "not at all")


# -- accelerate's own converter and plugin -----------------------------------------------------------------------------

CONVERTER = """
import json, sys
from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2
print(json.dumps([convert_config_to_fsdp2(one) for one in json.load(sys.stdin)]))
"""


def by_accelerate(texts: Sequence[str]) -> list[dict[str, Any]]:
    """What `accelerate to-fsdp2` makes of the configs."""
    given = json.dumps([yaml.safe_load(text) for text in texts])
    done = subprocess.run([warm.python(), "-c", CONVERTER], input=given, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def read(folder: Path, texts: Sequence[str]) -> list[dict[str, Any]]:
    """What accelerate's launcher exports of configs, and what its plugin makes of that."""
    common = {"json": None, "flags": ["--config_file", "acc.yaml"], "arguments": {}, "consumer": None, "route": None}
    (folder / "cases.json").write_text(json.dumps([{"yaml": text, **common} for text in texts]))
    play(folder, "parity/worker.py", "cases.json", "launched.json")
    launched = json.loads((folder / "launched.json").read_text())
    assert not [one["error"] for one in launched if one["error"]]
    environments = [one["environment"] for one in launched]
    of_plugin = [{name: text for name, text in one.items() if name.startswith("FSDP_")} for one in environments]
    (folder / "in.json").write_text(json.dumps(of_plugin))
    play(folder, "build/plugin_worker.py", "in.json", "out.json")
    plugins = json.loads((folder / "out.json").read_text())
    return [{**plugin, "environment": one} for plugin, one in zip(plugins, environments, strict=True)]


def play(folder: Path, worker: str, *files: str) -> None:
    words = [warm.python(), str(ROOT / "tests" / worker), *(str(folder / name) for name in files)]
    subprocess.run(words, check=True, cwd=folder)


@pytest.mark.libs
def test_as_accelerate_where_it_is_right(zerocfg: Cli, tmp_path: Path) -> None:
    """Names in capitals with their prefix, whole strategies, and a state dict that is written out."""
    texts = []
    for strategy, state, offload, policy in itertools.product(
        ("FULL_SHARD", "SHARD_GRAD_OP"), ("FULL_STATE_DICT", "SHARDED_STATE_DICT"), (True, False), (True, False)
    ):
        section: dict[str, Any] = {
            "fsdp_sharding_strategy": strategy,
            "fsdp_state_dict_type": state,
            "fsdp_offload_params": offload,
            "fsdp_backward_prefetch": "BACKWARD_PRE",
            "fsdp_use_orig_params": True,
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_sync_module_states": True,
            "fsdp_activation_checkpointing": not offload,
        }
        if policy:
            section["fsdp_auto_wrap_policy"] = "TRANSFORMER_BASED_WRAP"
            section["fsdp_transformer_layer_cls_to_wrap"] = "LlamaDecoderLayer"
        texts.append(FSDP + yaml.safe_dump({"fsdp_config": section}))
    for text, real in zip(texts, by_accelerate(texts), strict=True):
        assert yaml.safe_load(converted(zerocfg, tmp_path, text)) == real


@pytest.mark.libs
def test_right_where_accelerate_is_not(zerocfg: Cli, tmp_path: Path) -> None:
    """What the real plugin makes of the config before, of accelerate's conversion and of this one."""
    policy = "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"
    lines: dict[str, tuple[str, Any, object, str]] = {
        "number": ("fsdp_sharding_strategy: 2", "reshard_after_forward", False, "invalid truth value 2"),
        "lower case": ("fsdp_sharding_strategy: shard_grad_op", "reshard_after_forward", False, "invalid truth value"),
        "no prefix": ("sharding_strategy: SHARD_GRAD_OP", "reshard_after_forward", False, ""),
        "local": ("fsdp_state_dict_type: LOCAL_STATE_DICT", "state_dict_type", "SHARDED_STATE_DICT", "LOCAL_STATE"),
        "default": ("fsdp_offload_params: false", "state_dict_type", "FULL_STATE_DICT", ""),
    }
    sources = [f"{FSDP}fsdp_config:\n  {policy}\n  {line}\n" for line, *_ in lines.values()]
    ours = read(tmp_path, [converted(zerocfg, tmp_path, text) for text in sources])
    theirs = read(tmp_path, [yaml.safe_dump(one) for one in by_accelerate(sources)])
    for (_, name, value, error), one, other in zip(lines.values(), ours, theirs, strict=True):
        assert "error" not in one and one["fsdp_version"] == 2 and one[name] == value
        assert error in other["error"] if error else other[name] != value
    hybrid = FSDP.replace("machines: 1", "machines: 2") + (
        f"machine_rank: 0\nmain_process_ip: h\nmain_process_port: {zygote.free_port()}\nfsdp_config:\n  {policy}\n"
        "  fsdp_sharding_strategy: HYBRID_SHARD\n"
    )
    (one,) = read(tmp_path, [converted(zerocfg, tmp_path, hybrid)])
    (other,) = read(tmp_path, [yaml.safe_dump(config) for config in by_accelerate([hybrid])])
    sizes = [one["environment"][f"PARALLELISM_CONFIG_{name}_SIZE"] for name in ("DP_REPLICATE", "DP_SHARD")]
    assert sizes == ["2", "4"] and one["reshard_after_forward"] is True
    assert not [name for name in other["environment"] if name.startswith("PARALLELISM_CONFIG")]
