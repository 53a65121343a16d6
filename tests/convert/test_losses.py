"""A converted config trains as its source does: the same losses on two processors, from the same weights."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.cli.conftest import Outcome
from tests.conftest import ROOT

Cli = Callable[..., Outcome]
TOLERANCE = 1e-5
"""Relative; float32 has 6e-8, and each engine sums gradients in an order of its own."""
HEAD = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 2\n"
ALIKE = "  fsdp_sync_module_states: false\n  fsdp_cpu_ram_efficient_loading: false\n"
"""FSDP 1 sends weights between cards only."""
SOURCES = {
    "ddp": f"{HEAD}distributed_type: MULTI_GPU\n",
    "zero1": f"{HEAD}distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 1\n",
    "zero2": f"{HEAD}distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  overlap_comm: true\n"
    "  reduce_bucket_size: 1e3\n",
    "zero3": f"{HEAD}distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
    "  zero3_save_16bit_model: true\n  stage3_param_persistence_threshold: 1e1\n",
    "fsdp1": f"{HEAD}distributed_type: FSDP\nfsdp_config:\n  sharding_strategy: 1\n"
    f"  fsdp_auto_wrap_policy: transformer_based_wrap\n{ALIKE}",
    "fsdp1 gathered": f"{HEAD}distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: shard_grad_op\n"
    f"  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n{ALIKE}",
}
SOURCES["fsdp1 whole"] = SOURCES["fsdp1"].replace("strategy: 1", "strategy: 3")
TARGETS = {
    "ddp": ("fsdp2", "zero2", "zero3"),
    "zero1": ("fsdp2",),
    "zero2": ("fsdp2", "deepspeed-json"),
    "zero3": ("fsdp2", "deepspeed-json"),
    "fsdp1": ("fsdp2",),
    "fsdp1 gathered": ("fsdp2",),
    "fsdp1 whole": ("fsdp2",),
}
ENGINES = {"fsdp2": "FSDP", "zero2": "DEEPSPEED", "zero3": "DEEPSPEED", "deepspeed-json": "DEEPSPEED"}


@pytest.mark.libs
def test_the_losses_are_the_same(zerocfg: Cli, tmp_path: Path) -> None:
    cases: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
    for name, text in SOURCES.items():
        cases[name, ""] = text, {}
        for target in TARGETS[name]:
            (tmp_path / "a.yaml").write_text(text)
            (tmp_path / "ds.json").unlink(missing_ok=True)
            name_of_json = ("--json", "ds.json") if target == "deepspeed-json" else ()
            done = zerocfg("convert", "a.yaml", "--to", target, "--write", *name_of_json)
            assert done.code == 0, done.out + done.err
            files = {"ds.json": (tmp_path / "ds.json").read_text()} if target == "deepspeed-json" else {}
            cases[name, target] = (tmp_path / "a.yaml").read_text(), files
    seen = dict(zip(cases, trained(tmp_path, list(cases.values())), strict=True))
    assert {case: one["error"] for case, one in seen.items() if one["error"]} == {}
    for (name, target), one in seen.items():
        assert len(one["losses"]) == 6 and one["losses"][0] != one["losses"][-1]
        assert one["losses"] == pytest.approx(seen[name, ""]["losses"], rel=TOLERANCE), (name, target)
        assert target == "" or one["engine"] == ENGINES[target]


@pytest.mark.libs
def test_hybrid_sharding_trains_as_plain_data_parallelism(zerocfg: Cli, tmp_path: Path) -> None:
    """Four ranks: two copies of two shards each. FSDP 1 asks for cards to form them."""
    plain = HEAD.replace("machines: 1", "machines: 2").replace("processes: 2", "processes: 4")
    plain += "machine_rank: 0\nmain_process_ip: 127.0.0.1\nmain_process_port: 29500\n"
    hybrid = SOURCES["fsdp1"].replace(HEAD, plain).replace("strategy: 1", "strategy: 4")
    (tmp_path / "a.yaml").write_text(hybrid)
    assert zerocfg("convert", "a.yaml", "--to", "fsdp2", "--write").code == 0
    cases = [(f"{plain}distributed_type: MULTI_GPU\n", {}), ((tmp_path / "a.yaml").read_text(), {})]
    one, other = trained(tmp_path, cases, ranks=4)
    assert (one["error"], other["error"], other["engine"], other["copies"]) == (None, None, "FSDP", 2)
    assert other["losses"] == pytest.approx(one["losses"], rel=TOLERANCE)


def trained(folder: Path, cases: list[tuple[str, dict[str, str]]], ranks: int = 2) -> list[dict[str, Any]]:
    """What accelerate's real launcher exports, then the training with it."""
    common = {"flags": ["--config_file", "acc.yaml"], "arguments": {}, "consumer": None, "route": None}
    launches = [{"yaml": text, "json": files.get("ds.json"), **common} for text, files in cases]
    (folder / "launches.json").write_text(json.dumps(launches))
    play(folder, "tests/parity/worker.py", "launches.json", "launched.json")
    launched = json.loads((folder / "launched.json").read_text())
    assert not [one["error"] for one in launched if one["error"]]
    given = [
        {"environment": one["environment"], "files": files, "ranks": ranks}
        for one, (_, files) in zip(launched, cases, strict=True)
    ]
    (folder / "cases.json").write_text(json.dumps(given))
    play(folder, "tests/convert/losses.py", "cases.json", "seen.json")
    found: list[dict[str, Any]] = json.loads((folder / "seen.json").read_text())
    return found


def play(folder: Path, worker: str, *files: str) -> None:
    words = [warm.python(), str(ROOT / worker), *(str(folder / name) for name in files)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
