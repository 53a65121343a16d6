"""Adapters under FSDP against what real ranks hold and send, with PEFT's own adapters and the Trainer's wrapping.

Where PEFT is not installed, what it made is read from ``adapters_measured.json``, which
``python -m tests.memory.test_adapters_real`` measures anew.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.memory.test_sharding_real import ACTIVATIONS, CONFIG, ROOT, peak, record, transient
from zerocfg.memory import sharding
from zerocfg.memory.fsdp.first import AdaptersWalk
from zerocfg.memory.fsdp.units import units_of
from zerocfg.memory.lora import adapters, of_layer
from zerocfg.memory.options import TorchOptions, Workload
from zerocfg.memory.time.wire import traffic
from zerocfg.models.hardware import HardwareProfile
from zerocfg.models.model_facts import ModelFacts, from_config

RECORD = Path(__file__).with_name("adapters_measured.json")
RANK = 8
CASES: dict[str, dict[str, Any]] = {
    "fsdp1": {"kind": "fsdp1"},
    "fsdp1, no prefetch": {"kind": "fsdp1", "backward_prefetch": "none"},
    "fsdp1, forward prefetch": {"kind": "fsdp1", "forward_prefetch": True},
    "fsdp1, two micro batches": {"kind": "fsdp1", "gradient_accumulation_steps": 2},
    "fsdp1, grad-op": {"kind": "fsdp1", "reshard_after_forward": False},
    "fsdp1, grad-op, two micro batches": {
        "kind": "fsdp1",
        "reshard_after_forward": False,
        "gradient_accumulation_steps": 2,
    },
    "fsdp1, tied": {"kind": "fsdp1", "tied": True},
    "fsdp2": {"kind": "fsdp2"},
}
COUNTERS = 400  # bytes: a step counter for each matrix (56), and the rotary embedding


def options(name: str) -> TorchOptions:
    case = {name: value for name, value in CASES[name].items() if name != "tied"}
    return TorchOptions(**{"world_size": 2, "precision": "bf16", "master": True, "optimizer": "adamw_foreach", **case})


def measure() -> dict[str, Any]:
    base = {"world_size": 2, "precision": "bf16", "master": True, "optimizer": "adamw_foreach", "adapters": RANK}
    requests = [base | case | {"model": "tied" if case.get("tied") else "llama"} for case in CASES.values()]
    done = subprocess.run(
        [warm.python(), str(ROOT / "benchmarks" / "memory" / "torch_ranks.py")],
        input="\n".join(map(json.dumps, requests)),
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(CASES), done.stderr[-2000:]
    return dict(zip(CASES, map(json.loads, lines), strict=True))


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    if importlib.util.find_spec("peft"):
        return measure()
    found: dict[str, Any] = json.loads(RECORD.read_text())["cases"]
    return found


def facts_of(name: str) -> ModelFacts:
    config = CONFIG | {"tie_word_embeddings": CASES[name].get("tied", False)}
    facts, (_, added) = from_config(config), adapters(config, RANK, ["all-linear"])
    assert facts.parameters is not None
    counts = {"parameters": facts.parameters + added, "trainable_parameters": added}
    return facts.model_copy(update={**counts, "adapters": of_layer(config, RANK, ["all-linear"])})


@pytest.mark.libs
@pytest.mark.parametrize("name", [name for name in CASES if name != "fsdp2"])
def test_each_matrix_of_an_adapter_is_a_flat_parameter(name: str, measured: dict[str, Any]) -> None:
    wraps(name, measured[name])


def wraps(name: str, seen: dict[str, Any]) -> None:
    """A flat parameter is a matrix of an adapter; around it the frozen layer, and around all layers what is left: 128
    wide, 352 inside, 768 tokens."""
    found, layers = seen["units"], 4
    layer = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 352 + 2 * 128
    root = (1 if CASES[name].get("tied") else 2) * 768 * 128 + 128
    assert [one["elements"] for one in found if not one["trained"]] == [root, *[layer] * layers]
    trained = [one["elements"] for one in found if one["trained"]]
    assert trained == facts_of(name).adapters * layers
    assert {one["dtype"] for one in found if one["trained"]} == {"torch.float32"}
    assert {one["dtype"] for one in found if not one["trained"]} == {"torch.bfloat16"}
    units = units_of(facts_of(name), fsdp1=True)
    assert (units.tail, units.blocks) == (root, (layer,) * layers)


@pytest.mark.libs
@pytest.mark.parametrize("name", CASES)
def test_ranks_hold_what_is_predicted(name: str, measured: dict[str, Any]) -> None:
    holds(name, measured[name])


def holds(name: str, found: dict[str, Any]) -> None:
    facts, chosen = facts_of(name), options(name)
    assert "error" not in found, found["error"]
    terms = sharding.torch_terms(facts, chosen)
    resting = sum(term.size for term in terms if term.name in ("parameters", "optimizer moments"))
    held = found["rest"]["rest"]
    if chosen.kind == "fsdp1":
        held -= sum(term.size for term in terms if term.name == "gradients" and "step" in term.moments)
    assert 0 <= held - resting <= COUNTERS
    step = sum(term.size for term in terms if "step" in term.moments)
    assert 0 <= found["step"]["peak"] - step <= COUNTERS
    if chosen.kind == "fsdp1":
        walk = AdaptersWalk(facts, chosen)
        forward = max(walk.peak["forward"], walk.peak["loss"])
        backward = max(walk.peak["head backward"], walk.peak["backward"])
    else:
        forward, backward = transient(terms, chosen, facts)
    assert 0 <= peak(found, "forward") - resting - forward <= ACTIVATIONS
    assert 0 <= peak(found, "backward") - resting - backward <= ACTIVATIONS


@pytest.mark.libs
@pytest.mark.parametrize("name", [name for name in CASES if name != "fsdp2"])
def test_ranks_send_what_is_predicted(name: str, measured: dict[str, Any]) -> None:
    sends(name, measured[name])


def sends(name: str, found: dict[str, Any]) -> None:
    device = {"name": "x", "vendor": "cpu", "memory_gib": 1}
    profile = HardwareProfile.model_validate({"name": "x", "accelerators_per_node": 2, "accelerator": device})
    predicted = {"all_gather": 0, "reduce_scatter": 0}
    for one in traffic(facts_of(name), options(name), Workload(1, 2), profile).collectives:
        predicted[one.operation] += one.elements * one.times
    sent = found["sent"]
    assert sent["allgather_"] == predicted["all_gather"]
    assert sent["_reduce_scatter_base_"] == predicted["reduce_scatter"]


if __name__ == "__main__":
    record(RECORD, ("torch", "accelerate", "transformers", "peft"), measure())
