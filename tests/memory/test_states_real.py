"""The resting terms against what real DeepSpeed holds on two CPU ranks after two optimizer steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zerocfg.memory.states import Options, model_states
from zerocfg.models.model_facts import ModelFacts

LINEAR = 512 * 512
N = 3 * (LINEAR + 512)
FACTS = ModelFacts(parameters=N, largest_parameter=LINEAR, largest_module=LINEAR + 512)
CASES = [
    Options(1, 2, accumulation="fp32"),
    Options(2, 2),
    Options(2, 2, precision="fp32"),
    Options(2, 2, offload_optimizer="cpu", gradient_accumulation_steps=2),
    Options(3, 2, accumulation="fp32"),
    Options(3, 2, precision="fp32"),
    Options(3, 2, offload_optimizer="cpu", offload_param="cpu"),
]


def config_of(options: Options) -> dict[str, Any]:
    """The DeepSpeed config that these options describe; the bucket holds the whole model."""
    zero: dict[str, Any] = {"stage": options.stage, "reduce_bucket_size": N}
    for section in ("offload_optimizer", "offload_param"):
        if getattr(options, section) != "none":
            zero[section] = {"device": getattr(options, section), "pin_memory": False}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if options.precision != "fp32":
        config[options.precision] = {"enabled": True}
    if options.accumulation:
        config["data_types"] = {"grad_accum_dtype": options.accumulation}
    return config


@pytest.mark.libs
def test_resting_bytes_of_two_real_ranks() -> None:
    pytest.importorskip("deepspeed")
    cases = [{"world_size": case.world_size, "config": config_of(case)} for case in CASES]
    worker = Path(__file__).with_name("measure_states.py")
    done = subprocess.run(
        [sys.executable, str(worker)], input=json.dumps(cases), capture_output=True, text=True, timeout=580
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(CASES), done.stderr[-2000:]
    for options, answer in zip(CASES, answers, strict=True):
        assert "error" not in answer, answer
        bucketed = Options(**{**vars(options), "reduce_bucket_size": N})
        states = model_states(FACTS, bucketed)
        predicted = sum(states.at(place, "always") for place in ("device", "host"))  # type: ignore[arg-type]
        # What is accumulated for whole parameters depends on where the partition ends: the term is a bound.
        slack = 2 * 2 * LINEAR / N if options.gradient_accumulation_steps > 1 else 0.0
        assert predicted / N - slack - 0.01 <= answer["bytes"] / N <= predicted / N + 0.01, options
