"""Rules of launch lines and of FSDP: what is told, the nearest that is not, and what the fix leaves."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.build.test_road_limits import run_of
from tests.rules.by_hand import after, found, shown, started
from zerocfg.run.model import Origin, Setting
from zerocfg.run.resolve_settings import with_settings

NONE = "none"
ANY = "any"

LINES: list[tuple[str, str, str | None, str, str]] = [
    # code, line, place that is told (None: silence), words, the line after the fix
    ("ZC715", "torchrun --nnodes 2 --node_rank 2 train.py", "--node_rank 2", "from 0 to 1", NONE),
    ("ZC715", "torchrun --nnodes 2 --node_rank 1 train.py", None, "", NONE),
    ("ZC715", "torchrun --nnodes 1 --node_rank 1 train.py", None, "", NONE),
    ("ZC715", "torchrun --node_rank 1 train.py", None, "", NONE),
    (
        "ZC726",
        "torchrun --nnodes 2 --rdzv_endpoint localhost:1 train.py",
        "--rdzv_endpoint localhost:1",
        "at localhost",
        NONE,
    ),
    ("ZC726", "torchrun --nnodes 2 --master_addr 127.0.0.1 train.py", "--master_addr 127.0.0.1", "2 machines", NONE),
    ("ZC726", "torchrun --nnodes 2 --master_addr 127.0.0.1 --node_rank 0 train.py", None, "", NONE),
    (
        "ZC726",
        "torchrun --nnodes 2 --master_addr 127.0.0.1 --node_rank 1 train.py",
        "--master_addr 127.0.0.1",
        "",
        NONE,
    ),
    ("ZC726", "torchrun --nnodes 1 --master_addr 127.0.0.1 train.py", None, "", NONE),
    ("ZC726", "torchrun --nnodes 2 --master_addr 10.0.0.1 train.py", None, "", NONE),
    ("ZC726", "torchrun --nnodes 2 $X --master_addr 127.0.0.1 train.py", None, "", NONE),
    ("ZC727", "torchrun --nnodes 2 --master_addr 10.0.0.1 train.py", "--nnodes 2", "no --node_rank", NONE),
    ("ZC727", "torchrun --nnodes 2 --rdzv_endpoint 10.0.0.1:1 train.py", "--nnodes 2", "no --node_rank", NONE),
    ("ZC727", "torchrun --nnodes 2 --master_addr 10.0.0.1 --node_rank 0 train.py", None, "", NONE),
    ("ZC727", "torchrun --nnodes 1 --master_addr 10.0.0.1 train.py", None, "", NONE),
    ("ZC727", "torchrun --nnodes 2 --master_addr localhost train.py", None, "", NONE),
    ("ZC727", "torchrun --nnodes 2 train.py", None, "", NONE),
    ("ZC727", "torchrun --nnodes 2 --master_addr 10.0.0.1 --rdzv_backend c10d train.py", None, "", NONE),
    ("ZC727", "torchrun --nnodes 2 --master_addr 10.0.0.1 --rdzv_backend static train.py", "--nnodes 2", "", NONE),
    ("ZC727", "torchrun --nnodes 2 --master_addr 10.0.0.1 --standalone train.py", None, "", NONE),
    ("ZC737", "torchrun --nnodes 2 train.py", "--nnodes 2", "give --master_addr HOST", NONE),
    ("ZC737", "torchrun --nnodes 2 --rdzv_backend c10d train.py", "--nnodes 2", "give --rdzv_endpoint", NONE),
    ("ZC737", "torchrun --nnodes 2 --rdzv_backend static train.py", "--nnodes 2", "give --master_addr", NONE),
    ("ZC737", "torchrun --nnodes 2 --rdzv_backend etcd train.py", None, "", NONE),
    ("ZC737", "torchrun --nnodes 1 train.py", None, "", NONE),
    ("ZC737", "torchrun --nnodes 2 --master_addr a train.py", None, "", NONE),
    ("ZC737", "torchrun --nnodes 2 --standalone train.py", None, "", NONE),
    ("ZC737", "torchrun --nnodes 2 $X train.py", None, "", NONE),
    ("ZC738", "torchrun --standalone --nnodes 2 train.py", "--standalone", "waits for 2 machines", NONE),
    ("ZC738", "torchrun --standalone --nnodes 1 train.py", None, "", NONE),
    ("ZC738", "torchrun --standalone --nnodes $N --node_rank 1 train.py", "--standalone", "with $N above 1", NONE),
    ("ZC738", "torchrun --standalone --nnodes $N --node_rank $R train.py", "--standalone", "with $N above 1", NONE),
    ("ZC738", "torchrun --standalone --nnodes $N --node_rank 0 train.py", None, "", NONE),
    ("ZC738", "torchrun --standalone --nnodes $N train.py", None, "", NONE),
    (
        *(
            "ZC739",
            "torchrun --nnodes 2 --rdzv_backend c10d --master_addr a --master_port 5 train.py",
            "--master_addr a",
        ),
        *("does not read --master_addr", "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint a:5 train.py"),
    ),
    (
        *("ZC739", "torchrun --nnodes 2 --rdzv_backend c10d --master_addr a train.py", "--master_addr a"),
        *("HOST:PORT", "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint a:29500 train.py"),
    ),
    ("ZC739", "torchrun --nnodes 2 --rdzv_backend static --master_addr a train.py", None, "", NONE),
    ("ZC739", "torchrun --nnodes 2 --master_addr a train.py", None, "", NONE),
    ("ZC739", "torchrun --nnodes 1 --rdzv_backend c10d --master_addr a train.py", None, "", NONE),
    ("ZC739", "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint b --master_addr a train.py", None, "", NONE),
    (
        *("ZC740", "python -m torch.distributed.launch --use_env --nproc_per_node 2 train.py"),
        *("python -m torch.distributed.launch", "is deprecated", "torchrun --nproc_per_node 2 train.py"),
    ),
    (
        *("ZC740", "python3.11 -m torch.distributed.launch train.py", "python3.11 -m torch.distributed.launch"),
        *("is deprecated", "torchrun train.py"),
    ),
    ("ZC740", "torchrun train.py", None, "", NONE),
    (
        "ZC728",
        "deepspeed --launcher ssh --hostfile h train.py",
        "--launcher ssh",
        "no launcher ssh",
        "deepspeed --hostfile h train.py",
    ),
    ("ZC728", "deepspeed --launcher PDSH --hostfile h train.py", None, "", NONE),
    ("ZC728", "deepspeed --launcher ssh train.py", None, "", NONE),
    ("ZC728", "deepspeed --launcher ssh --hostfile h --no_ssh train.py", None, "", NONE),
    ("ZC732", "torchrun --num_gpus 2 train.py", "--num_gpus 2", "torchrun has no option --num_gpus", NONE),
    (
        "ZC732",
        "deepspeed --nproc_per_node 2 train.py",
        "--nproc_per_node 2",
        "the deepspeed runner has no option",
        NONE,
    ),
    ("ZC732", "deepspeed --num_gpus 2 train.py", None, "", NONE),
    ("ZC732", "torchrun --nproc-per-node 2 train.py", None, "", NONE),
    ("ZC732", "accelerate launch --xyzzy 2 train.py", None, "", NONE),
    (
        *("ZC733", "deepspeed --include localhost:0 --num_gpus 2 train.py", "--include localhost:0"),
        *("remove --num_gpus", "deepspeed --include localhost:0 train.py"),
    ),
    (
        *("ZC733", "deepspeed --include localhost:0 --num_gpus 2 --num_nodes 1 train.py", "--include localhost:0"),
        *("remove --num_gpus, --num_nodes", "deepspeed --include localhost:0 train.py"),
    ),
    ("ZC733", "deepspeed --exclude localhost:0 --num_gpus 2 train.py", "--exclude localhost:0", "--num_gpus", NONE),
    (
        *("ZC733", "deepspeed --include localhost:0 --exclude localhost:1 train.py", "--include localhost:0"),
        *("remove --exclude", "deepspeed --include localhost:0 train.py"),
    ),
    ("ZC733", "deepspeed --include localhost:0 train.py", None, "", NONE),
    ("ZC733", "deepspeed --num_gpus 2 --num_nodes 1 train.py", None, "", NONE),
    (
        "ZC734",
        "deepspeed --include 0,1 train.py",
        "--include 0,1",
        'a host called "0,1"',
        "deepspeed --include localhost:0,1 train.py",
    ),
    (
        "ZC734",
        "deepspeed --exclude 1 train.py",
        "--exclude 1",
        'a host called "1"',
        "deepspeed --exclude localhost:1 train.py",
    ),
    ("ZC734", "deepspeed --include localhost:0 train.py", None, "", NONE),
    ("ZC734", "deepspeed --include 0,1 --hostfile h train.py", None, "", NONE),
    ("ZC734", 'deepspeed --include "0,1" train.py', '--include "0,1"', "a host called", NONE),
    ("ZC735", "deepspeed --num_nodes 2 train.py", "--num_nodes 2", "without --hostfile", NONE),
    ("ZC735", "deepspeed --num_nodes 1 train.py", None, "", NONE),
    ("ZC735", "deepspeed --num_nodes 2 --hostfile h train.py", None, "", NONE),
    ("ZC735", "deepspeed --num_nodes 2 $X train.py", None, "", NONE),
    ("ZC735", "torchrun --num_nodes 2 train.py", None, "", NONE),
    ("ZC736", "deepspeed --no_ssh train.py", "--no_ssh", "needs --node_rank", NONE),
    ("ZC736", "deepspeed --no_ssh --node_rank 0 train.py", None, "", NONE),
    ("ZC736", "deepspeed --no_ssh $X train.py", None, "", NONE),
    ("ZC736", "deepspeed --num_gpus 1 train.py", None, "", NONE),
    ("ZC723", "accelerate launch --debug train.py", "--debug", "a collective", "accelerate launch train.py"),
    ("ZC723", "accelerate launch train.py", None, "", NONE),
    ("ZC723", "torchrun --debug train.py", None, "", NONE),
]

DEVICES: list[tuple[str, str, str | None, str, str]] = [
    # CUDA_VISIBLE_DEVICES, and as above for ZC742
    ("1,2", "deepspeed --num_gpus 2 train.py", "--num_gpus 2", "takes the devices 0, 1", "deepspeed train.py"),
    ("0,1", "deepspeed --num_gpus 2 train.py", None, "", NONE),
    ("0,1", "deepspeed --num_gpus 1 train.py", "--num_gpus 1", "takes the devices 0", NONE),
    ("1", "deepspeed --num_gpus 0 train.py", None, "", NONE),
    ("1,2", "deepspeed --include localhost:1,2 train.py", None, "", NONE),
    ("1,2", "deepspeed --include localhost:1 train.py", "--include localhost:1", "leave --include out", NONE),
    ("1,2", "deepspeed --exclude localhost:1 train.py", "--exclude localhost:1", "ignores", NONE),
    ("1,2", "deepspeed --num_gpus 2 --num_nodes 1 train.py", "--num_gpus 2", "", NONE),
    ("1,2", "deepspeed train.py", None, "", NONE),
    ("1,2", "deepspeed --num_gpus 2 --hostfile h train.py", None, "", NONE),
    ("GPU-x", "deepspeed --num_gpus 2 train.py", None, "", NONE),
    ("1,2", "torchrun --nproc_per_node 2 train.py", None, "", NONE),
]


def line_judged(every: list[Any], place: str | None, words: str, line: str) -> None:
    assert [shown(item) for item in every] == ([] if place is None else [place])
    for item in every:
        assert words in f"{item.message} {item.help}"
        assert (item.fix is None) is (line == NONE)
        if line != NONE:
            assert after(item.fix).strip() == line


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}-{number}") for number, row in enumerate(LINES)])
def test_a_line(row: tuple[str, str, str | None, str, str]) -> None:
    code, line, *expected = row
    line_judged(found(code, started(line, consumer="transformers")), *expected)  # type: ignore[arg-type]
    variables: Any = {"PET_NNODES": Setting("2", Origin("environment"))}
    if code in ("ZC737", "ZC738", "ZC739") and "$N" not in line:
        assert not found(code, started(line, consumer="transformers", environment=variables))


@pytest.mark.parametrize("row", [pytest.param(row, id=f"ZC742-{number}") for number, row in enumerate(DEVICES)])
def test_devices_that_the_runner_drops(row: tuple[str, str, str | None, str, str]) -> None:
    devices, line, *expected = row
    variables: Any = {"CUDA_VISIBLE_DEVICES": Setting(devices, Origin("environment"))}
    line_judged(found("ZC742", started(line, environment=variables)), *expected)  # type: ignore[arg-type]
    assert not found("ZC742", started(line))


def fsdp(version: int | None = 2, processes: int = 2, **keys: Any) -> dict[str, Any]:
    section = {} if version is None else {"fsdp_version": version}
    return {
        "distributed_type": "FSDP",
        "num_processes": processes,
        "fsdp_config": section | {f"fsdp_{name}": value for name, value in keys.items()},
    }


def sized(processes: int = 8, version: int = 2, **sizes: int) -> dict[str, Any]:
    section = {f"parallelism_config_{name}_size": size for name, size in sizes.items()}
    return {**fsdp(version, processes), "parallelism_config": section}


WRAP = "TRANSFORMER_BASED_WRAP"
FSDP: list[tuple[str, dict[str, Any], str | None, str, Any]] = [
    # code, accelerate's config, place that is told (None: silence), words, keys of the section after the fix
    ("ZC603", fsdp(reshard_after_forward="FULL_SHARD"), '"FULL_SHARD"', "write true", {"reshard_after_forward": True}),
    (
        "ZC603",
        fsdp(reshard_after_forward="SHARD_GRAD_OP"),
        '"SHARD_GRAD_OP"',
        "write false",
        {"reshard_after_forward": False},
    ),
    ("ZC603", fsdp(reshard_after_forward="NO_SHARD"), '"NO_SHARD"', "write false", {"reshard_after_forward": False}),
    ("ZC603", fsdp(reshard_after_forward=True), None, "", NONE),
    ("ZC603", fsdp(reshard_after_forward="off"), None, "", NONE),
    ("ZC603", fsdp(1, reshard_after_forward="FULL_SHARD"), None, "", NONE),
    (
        "ZC605",
        fsdp(transformer_layer_cls_to_wrap=["A", "B"]),
        '"fsdp_transformer_layer_cls_to_wrap": ["A", "B"]',
        "join the names by commas",
        ANY,
    ),
    (
        "ZC605",
        fsdp(transformer_layer_cls_to_wrap="A, B"),
        '"fsdp_transformer_layer_cls_to_wrap": "A, B"',
        "join the names by commas",
        ANY,
    ),
    ("ZC605", fsdp(transformer_layer_cls_to_wrap="A,B"), None, "", NONE),
    ("ZC605", fsdp(transformer_layer_cls_to_wrap=["A-B"]), '"fsdp_transformer_layer_cls_to_wrap": ["A-B"]', "", NONE),
    (
        "ZC606",
        fsdp(state_dict_type="LOCAL_STATE_DICT"),
        '"LOCAL_STATE_DICT"',
        "or FULL",
        {"state_dict_type": "SHARDED_STATE_DICT"},
    ),
    ("ZC606", fsdp(1, state_dict_type="LOCAL_STATE_DICT"), None, "", NONE),
    ("ZC606", fsdp(state_dict_type="FULL_STATE_DICT"), None, "", NONE),
    (
        "ZC608",
        fsdp(None, state_dict_type="FULL_STATE_DICT"),
        '"fsdp_config"',
        "accelerate takes FSDP 1",
        {"version": 2},
    ),
    ("ZC608", fsdp(None, offload_params=True), '"fsdp_config"', "accelerate takes FSDP 1", NONE),
    ("ZC608", fsdp(None, state_dict_type="FULL_STATE_DICT", use_orig_params=True), '"fsdp_config"', "", NONE),
    ("ZC608", fsdp(1, state_dict_type="FULL_STATE_DICT"), None, "", NONE),
    (
        "ZC609",
        fsdp(forward_prefetch=True),
        '"fsdp_forward_prefetch": true',
        "is a setting of FSDP 1, FSDP 2 does not look at it",
        ANY,
    ),
    ("ZC609", fsdp(forward_prefetch=False), '"fsdp_forward_prefetch": false', "does so anyway", ANY),
    ("ZC609", fsdp(use_orig_params=False), '"fsdp_use_orig_params": false', "does not look at it", ANY),
    ("ZC609", fsdp(use_orig_params=True), '"fsdp_use_orig_params": true', "does so anyway", ANY),
    ("ZC609", fsdp(backward_prefetch="NO_PREFETCH"), '"fsdp_backward_prefetch": "NO_PREFETCH"', "does so anyway", ANY),
    ("ZC609", fsdp(backward_prefetch="BACKWARD_PRE"), '"fsdp_backward_prefetch": "BACKWARD_PRE"', "", ANY),
    ("ZC609", fsdp(1, forward_prefetch=True), None, "", NONE),
    (
        "ZC610",
        fsdp(1, sharding_strategy="NO_SHARD"),
        '"NO_SHARD"',
        "nothing is sharded",
        {"sharding_strategy": "FULL_SHARD"},
    ),
    ("ZC610", fsdp(1, sharding_strategy=3), "3", "nothing is sharded", {"sharding_strategy": "FULL_SHARD"}),
    ("ZC610", fsdp(1, sharding_strategy=2), None, "", NONE),
    ("ZC610", fsdp(2, sharding_strategy="NO_SHARD"), None, "", NONE),
    (
        "ZC611",
        fsdp(1, activation_checkpointing_offload=True),
        '"fsdp_activation_checkpointing_offload": true',
        "needs FSDP 2",
        ANY,
    ),
    (
        *("ZC611", fsdp(activation_checkpointing_offload=True), '"fsdp_activation_checkpointing_offload": true'),
        *("`fsdp_activation_checkpointing: true`", {"activation_checkpointing": True}),
    ),
    (
        *("ZC611", fsdp(activation_checkpointing_offload=True, activation_checkpointing=False)),
        *('"fsdp_activation_checkpointing_offload": true', "needs", {"activation_checkpointing": True}),
    ),
    ("ZC611", fsdp(activation_checkpointing_offload=True, activation_checkpointing=True), None, "", NONE),
    ("ZC611", fsdp(activation_checkpointing_offload=False), None, "", NONE),
    ("ZC612", fsdp(ignored_modules=["a", "b"]), '"fsdp_ignored_modules": ["a", "b"]', "write 'a|b'", ANY),
    ("ZC612", fsdp(ignored_modules=[]), None, "", NONE),
    ("ZC612", fsdp(ignored_modules="a"), None, "", NONE),
    (
        "ZC613",
        fsdp(ignored_modules="a"),
        '"fsdp_ignored_modules": "a"',
        "is lost",
        {"cpu_ram_efficient_loading": False},
    ),
    ("ZC613", fsdp(ignored_modules="a", cpu_ram_efficient_loading=False), None, "", NONE),
    ("ZC613", fsdp(ignored_modules=""), None, "", NONE),
    ("ZC613", fsdp(1, ignored_modules="a"), None, "", NONE),
    ("ZC614", fsdp(state_dict_type="FULL_STATE_DICT"), '"fsdp_config"', "one unit", {"auto_wrap_policy": WRAP}),
    ("ZC614", fsdp(auto_wrap_policy=WRAP), None, "", NONE),
    ("ZC614", fsdp(min_num_params=5), None, "", NONE),
    ("ZC614", fsdp(transformer_layer_cls_to_wrap="A"), None, "", NONE),
    (
        "ZC615",
        fsdp(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=0),
        '"fsdp_min_num_params": 0',
        "switches",
        {"auto_wrap_policy": WRAP},
    ),
    ("ZC615", fsdp(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=1), None, "", NONE),
    ("ZC615", fsdp(auto_wrap_policy=WRAP, min_num_params=0), None, "", NONE),
    (
        "ZC616",
        fsdp(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=1),
        '"SIZE_BASED_WRAP"',
        "refuses lists",
        {"auto_wrap_policy": WRAP},
    ),
    ("ZC616", fsdp(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=0), None, "", NONE),
    ("ZC616", fsdp(1, auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=1), None, "", NONE),
    ("ZC616", fsdp(auto_wrap_policy=WRAP, min_num_params=1), None, "", NONE),
    (
        "ZC617",
        fsdp(transformer_layer_cls_to_wrap="A"),
        '"fsdp_transformer_layer_cls_to_wrap": "A"',
        "no fsdp_auto_wrap_policy",
        {"auto_wrap_policy": WRAP},
    ),
    (
        *("ZC617", fsdp(transformer_layer_cls_to_wrap="A", auto_wrap_policy="NO_WRAP")),
        *('"fsdp_transformer_layer_cls_to_wrap": "A"', "the policy is NO_WRAP", NONE),
    ),
    (
        *("ZC617", fsdp(transformer_layer_cls_to_wrap="A", auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=1)),
        *('"fsdp_transformer_layer_cls_to_wrap": "A"', "SIZE_BASED_WRAP is chosen", ANY),
    ),
    ("ZC617", fsdp(transformer_layer_cls_to_wrap="A", auto_wrap_policy=WRAP), None, "", NONE),
    (
        "ZC617",
        fsdp(1, min_num_params=5),
        '"fsdp_min_num_params": 5',
        "write `fsdp_auto_wrap_policy: SIZE_BASED_WRAP`",
        NONE,
    ),
    ("ZC617", fsdp(2, min_num_params=5), '"fsdp_min_num_params": 5', f"write `fsdp_auto_wrap_policy: {WRAP}`", NONE),
    ("ZC644", fsdp(1, sharding_strategy=True), "true", "no strategy true", {"sharding_strategy": "FULL_SHARD"}),
    ("ZC644", fsdp(1, sharding_strategy=False), "false", "no strategy false", {"sharding_strategy": "SHARD_GRAD_OP"}),
    ("ZC644", fsdp(1, sharding_strategy="FULL_SHARD"), None, "", NONE),
    ("ZC644", fsdp(2, sharding_strategy=True), None, "", NONE),
    ("ZC645", fsdp(1, sharding_strategy=1), "1", "is FULL_SHARD", {"sharding_strategy": "FULL_SHARD"}),
    ("ZC645", fsdp(1, sharding_strategy=2), "2", "is SHARD_GRAD_OP", {"sharding_strategy": "SHARD_GRAD_OP"}),
    ("ZC645", fsdp(1, sharding_strategy=3), None, "", NONE),
    ("ZC645", fsdp(1, sharding_strategy=True), None, "", NONE),
    ("ZC645", fsdp(2, sharding_strategy=1), None, "", NONE),
    (
        "ZC632",
        sized(tp=2, dp_shard=2),
        '"parallelism_config_dp_shard_size": 2',
        "multiply to 4 (dp_shard 2 x tp 2)",
        NONE,
    ),
    ("ZC632", sized(dp_shard=4), '"parallelism_config_dp_shard_size": 4', "multiply to 4", ANY),
    ("ZC632", sized(dp_shard=8), None, "", NONE),
    ("ZC632", sized(1, dp_shard=2), '"parallelism_config_dp_shard_size": 2', "there are 1 processes", NONE),
    ("ZC632", sized(dp_shard=1), None, "", NONE),
    ("ZC633", sized(cp=2, sp=2), '"parallelism_config_cp_size": 2', "exclude each other", ANY),
    ("ZC633", sized(cp=2, sp=1), None, "", NONE),
    ("ZC633", sized(cp=1, sp=2), None, "", NONE),
    ("ZC634", sized(dp_replicate=4, tp=2), '"parallelism_config_dp_replicate_size": 4', "4 replicas", ANY),
    ("ZC634", sized(dp_replicate=4, tp=2, dp_shard=1), '"parallelism_config_dp_replicate_size": 4', "4 replicas", NONE),
    ("ZC634", sized(dp_replicate=2, tp=2, dp_shard=2), None, "", NONE),
    ("ZC634", sized(dp_replicate=1, tp=8), None, "", NONE),
    ("ZC634", sized(dp_replicate=8), None, "", NONE),
    ("ZC635", sized(dp_replicate=8), '"parallelism_config_dp_replicate_size": 8', "nothing to shard across", ANY),
    ("ZC635", sized(tp=8), '"parallelism_config_tp_size": 8', "nothing to shard across", NONE),
    ("ZC635", sized(tp=4, dp_shard=2), None, "", NONE),
    ("ZC635", sized(tp=4), None, "", NONE),
    ("ZC636", sized(version=1, dp_shard=8), '"parallelism_config_dp_shard_size": 8', "needs FSDP 2", {"version": 2}),
    ("ZC636", sized(version=1, dp_shard=1), None, "", NONE),
    ("ZC636", sized(version=2, dp_shard=8), None, "", NONE),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}-{number}") for number, row in enumerate(FSDP)])
def test_a_config_of_fsdp(row: tuple[str, dict[str, Any], str | None, str, Any]) -> None:
    code, config, place, words, left = row
    every = found(code, with_settings(run_of("accelerate", accelerate=config)))
    assert [shown(item) for item in every] == ([] if place is None else [place])
    for item in every:
        assert words in f"{item.message} {item.help}"
        assert (item.fix is None) is (left == NONE)
        if isinstance(left, dict):
            mended = yaml.safe_load(after(item.fix))
            wanted = {f"fsdp_{name}": value for name, value in left.items()}
            assert {key: mended["fsdp_config"].get(key) for key in wanted} == wanted
            assert {key: value for key, value in mended.items() if key != "fsdp_config"} == {
                key: value for key, value in config.items() if key != "fsdp_config"
            }


def machines(count: Any = 2, processes: Any = 8, kind: str = "MULTI_GPU", **keys: Any) -> dict[str, Any]:
    return {"distributed_type": kind, "num_machines": count, "num_processes": processes, **keys}


def deepspeed(count: int = 2, processes: int = 8, **keys: Any) -> dict[str, Any]:
    return machines(count, processes, "DEEPSPEED", deepspeed_config={"zero_stage": 2, **keys})


MET: dict[str, Any] = {"main_process_ip": "10.0.0.1", "main_process_port": 5}
CONFIGS: list[tuple[str, dict[str, Any], str | None, str, Any]] = [
    # code, accelerate's config, place that is told (None: silence), words, what the fix leaves
    ("ZC704", machines(2, 7, **MET), '"num_processes": 7', "each starts 3, 6 in all", {"num_processes": 8}),
    ("ZC704", machines(3, 2, **MET), '"num_processes": 2', "each starts 0, 0 in all", {"num_processes": 6}),
    ("ZC704", machines(2, 8, **MET), None, "", NONE),
    ("ZC704", machines(1, 7), None, "", NONE),
    ("ZC704", machines(2, 7, "NO"), None, "", NONE),
    ("ZC704", machines(2, 7, "MULTI_CPU"), None, "", NONE),
    ("ZC704", machines(2, 0), None, "", NONE),
    ("ZC705", machines(), '"num_machines": 2', "they never meet", NONE),
    ("ZC705", machines(main_process_ip=""), '"main_process_ip": ""', "an empty `main_process_ip`", NONE),
    ("ZC705", machines(**MET), None, "", NONE),
    ("ZC705", machines(1), None, "", NONE),
    ("ZC709", deepspeed(deepspeed_multinode_launcher="pdsh"), '"num_machines": 2', "under the pdsh launcher", ANY),
    ("ZC709", deepspeed(), '"num_machines": 2', "under the pdsh launcher", ANY),
    ("ZC709", deepspeed(deepspeed_multinode_launcher="standard"), None, "", NONE),
    ("ZC709", deepspeed(deepspeed_hostfile="h"), None, "", NONE),
    ("ZC709", deepspeed(1), None, "", NONE),
    ("ZC715", machines(machine_rank=2, **MET), '"machine_rank": 2', "the machines never meet", NONE),
    ("ZC715", machines(machine_rank=1, **MET), None, "", NONE),
    ("ZC715", machines(1, machine_rank=1), '"machine_rank": 1', "it has no effect", NONE),
    ("ZC715", machines(1, machine_rank=0), None, "", NONE),
    ("ZC722", machines(1, 4, "NO"), '"num_processes": 4', "choose MULTI_GPU", NONE),
    ("ZC722", machines(1, 4, "MULTI_CPU"), '"num_processes": 4', "choose an `mpirun_hostfile`", NONE),
    ("ZC722", machines(1, 1, "NO"), None, "", NONE),
    ("ZC722", machines(1, 4), None, "", NONE),
    ("ZC722", machines(1, 4, "MULTI_CPU", mpirun_config={"mpirun_hostfile": "h"}), None, "", NONE),
    ("ZC723", machines(1, debug=True), '"debug": true', "a collective", ANY),
    ("ZC723", machines(1, debug=False), None, "", NONE),
    (
        "ZC725",
        machines(main_process_ip="a", main_process_port=0),
        '"main_process_port": 0',
        "port 0 with 2 machines",
        {"main_process_port": 29500},
    ),
    ("ZC725", machines(**MET), None, "", NONE),
    ("ZC725", machines(1, main_process_port=0), None, "", NONE),
    (
        "ZC726",
        machines(main_process_ip="localhost"),
        '"main_process_ip": "localhost"',
        "2 machines meet at localhost",
        NONE,
    ),
    ("ZC726", machines(main_process_ip=" LocalHost "), '"main_process_ip": " LocalHost "', "meet at", NONE),
    ("ZC726", machines(main_process_ip="10.0.0.1"), None, "", NONE),
    ("ZC726", machines(1, main_process_ip="localhost"), None, "", NONE),
    (
        "ZC728",
        deepspeed(deepspeed_multinode_launcher="torchrun"),
        '"deepspeed_multinode_launcher": "torchrun"',
        "has no launcher",
        ANY,
    ),
    (
        "ZC728",
        deepspeed(deepspeed_multinode_launcher="ssh"),
        '"deepspeed_multinode_launcher": "ssh"',
        "has no launcher",
        NONE,
    ),
    ("ZC728", deepspeed(deepspeed_multinode_launcher="SLURM"), None, "", NONE),
    ("ZC728", deepspeed(deepspeed_multinode_launcher="nossh"), None, "", NONE),
    ("ZC728", deepspeed(1, deepspeed_multinode_launcher="ssh"), None, "", NONE),
    (
        *("ZC729", deepspeed(deepspeed_inclusion_filter="a:0", deepspeed_exclusion_filter="b")),
        *('"deepspeed_inclusion_filter": "a:0"', "is dropped", ANY),
    ),
    ("ZC729", deepspeed(deepspeed_inclusion_filter="a:0"), None, "", NONE),
    ("ZC729", deepspeed(1, deepspeed_inclusion_filter="a:0", deepspeed_exclusion_filter="b"), None, "", NONE),
    ("ZC730", deepspeed(1, deepspeed_hostfile="h"), '"deepspeed_hostfile": "h"', "write `num_machines`", ANY),
    ("ZC730", deepspeed(1, deepspeed_inclusion_filter="a"), '"deepspeed_inclusion_filter": "a"', "with `gpu_ids`", ANY),
    ("ZC730", deepspeed(1, deepspeed_hostfile=""), None, "", NONE),
    ("ZC730", deepspeed(2, deepspeed_hostfile="h"), None, "", NONE),
    ("ZC731", machines(1, 2, gpu_ids="0,1,2"), '"gpu_ids": "0,1,2"', "3 devices in", {"num_processes": 3}),
    (
        "ZC731",
        machines(2, 4, gpu_ids="0,1,2", **MET),
        '"gpu_ids": "0,1,2"',
        "for 2 processes on each",
        {"num_processes": 6},
    ),
    ("ZC731", machines(1, 2, gpu_ids="0,1"), None, "", NONE),
    ("ZC731", machines(1, 2, gpu_ids="all"), None, "", NONE),
    ("ZC731", machines(1, 2, "NO", gpu_ids="0,1,2"), None, "", NONE),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}-{number}") for number, row in enumerate(CONFIGS)])
def test_a_config_of_the_launcher(row: tuple[str, dict[str, Any], str | None, str, Any]) -> None:
    code, config, place, words, left = row
    every = found(code, with_settings(run_of("accelerate", accelerate=config)))
    assert [shown(item) for item in every] == ([] if place is None else [place])
    for item in every:
        assert words in f"{item.message} {item.help}"
        assert (item.fix is None) is (left == NONE)
        if isinstance(left, dict):
            assert yaml.safe_load(after(item.fix)) == {**config, **left}


@pytest.mark.parametrize(
    ("code", "line", "place", "left"),
    [
        ("ZC717", "torchrun train.py --nproc_per_node 2", "--nproc_per_node 2", "torchrun --nproc_per_node 2 train.py"),
        ("ZC717", "torchrun --nproc_per_node 4 train.py --nproc_per_node 2", None, ""),
        ("ZC717", "torchrun train.py -nnodes 2", None, ""),
        ("ZC717", "torchrun train.py --seed 2", None, ""),
        ("ZC717", "deepspeed train.py --num_gpus $N", "--num_gpus $N", "deepspeed --num_gpus $N train.py"),
        ("ZC718", "torchrun --nnodes 1 --nnodes 2 train.py", "--nnodes 1", "torchrun --nnodes 2 train.py"),
        ("ZC718", "torchrun --nnodes 2 --nnodes 2 train.py", None, ""),
        ("ZC718", "torchrun --nnodes $N --nnodes 2 train.py", None, ""),
        ("ZC718", "torchrun --standalone --standalone train.py", None, ""),
    ],
)
def test_options_in_the_wrong_place(code: str, line: str, place: str | None, left: str) -> None:
    every = found(code, started(line, consumer="transformers"))
    assert [(shown(item), after(item.fix).strip()) for item in every] == ([] if place is None else [(place, left)])
