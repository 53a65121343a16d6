"""Operations counted on a real model, and step times against the published figures where they are at hand."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from zerocfg.memory.options import Workload
from zerocfg.memory.time.flops import work
from zerocfg.models.model_facts import from_config

ROOT = Path(__file__).parents[2]
POINTS = ROOT.parent / "shared" / "data" / "memory_points.csv"
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "tie_word_embeddings": False,
}


@pytest.mark.libs
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_operations_of_a_real_llama(checkpointing: bool, attention: str) -> None:
    """torch's flop counter does not see the fused attention of a CPU: with sdpa products alone are compared."""
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    model: Any = transformers.AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(**SHAPE), attn_implementation=attention
    )
    if checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    ids = torch.zeros(2, 32, dtype=torch.long)
    forward: Any = FlopCounterMode(display=False)
    with forward:
        loss = model(input_ids=ids, labels=ids).loss
    backward: Any = FlopCounterMode(display=False)
    with backward:
        loss.backward()
    workload = Workload(2, 32, checkpointing, "eager" if attention == "eager" else "sdpa")
    done = work(from_config({"model_type": "llama", **SHAPE}), workload)
    seen: Any = (lambda one: one.flops) if attention == "eager" else (lambda one: one.products)
    assert seen(done.forward) == forward.get_total_flops()
    assert seen(done.backward) + seen(done.recomputed) == backward.get_total_flops()


@pytest.fixture(scope="module")
def validate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("time_validate", ROOT / "benchmarks" / "time" / "validate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["time_validate"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not POINTS.exists(), reason="no memory_points.csv here")
def test_held_out_rows(validate: ModuleType) -> None:
    rows = [row for row in validate.read(POINTS) if validate.is_bf16(row)]
    mfu = validate.constant_mfu(row for row in rows if row.odd)
    found = validate.judged([row for row in rows if not row.odd], mfu)
    ours = validate.summary([one["error"] for one in found])
    theirs = validate.summary([one["baseline error"] for one in found])
    assert ours["rows"] == 105
    assert ours["median"] < 0.035 and ours["mean"] < 0.05 < theirs["mean"]
    assert sum(one["inside"] for one in found) >= 90


def test_committed_results_hold_the_errors_that_the_readme_states() -> None:
    results = json.loads((ROOT / "benchmarks" / "time" / "results" / "time.json").read_text())
    errors = sorted(abs(one["error"]) for one in results["held out"])
    assert len(errors) == 105 and errors[len(errors) // 2] < 0.035
