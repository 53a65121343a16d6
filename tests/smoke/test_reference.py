"""The comparison with ZeRO-0, on the real engine."""

from __future__ import annotations

import json

import pytest

from zerocfg.smoke.smoke import Options, smoke

from .conftest import MakeRun

HIGH = 1000.0
"""A norm that clips nothing: clipped gradients would be alike whatever they were divided by."""
RECIPE = {
    "output_dir": "runs",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "max_grad_norm": HIGH,
    "learning_rate": 0.001,
    "bf16": True,
    "average_tokens_across_devices": False,
}
"""The loss is then the engine's very output: the Trainer of transformers multiplies it by nothing."""


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_the_reference_accumulates_as_the_planned_stage_does(make_run: MakeRun) -> None:
    """DeepSpeed 0.19.8 divides such a loss by the accumulation twice at stage 0: its gradients would be half of those
    of stage 2."""
    folder = make_run(2, recipe=RECIPE)
    config = json.loads((folder / "ds_config.json").read_text())
    (folder / "ds_config.json").write_text(json.dumps(config | {"gradient_clipping": HIGH}))
    verdict = smoke(folder, Options(ranks=2, device="cpu", steps=2, parts=("train", "reference")))
    assert verdict.outcome.failure is None, verdict.outcome.detail
    rows = {one.name: one for one in verdict.checks}
    assert rows["gradients as under ZeRO-0"].ok and rows["loss as under ZeRO-0"].ok, rows["gradients as under ZeRO-0"]
    for report in verdict.outcome.reports:
        ours, others = report["momentum"], report["parts"]["reference"]["momentum"]
        assert ours and others == pytest.approx(ours, rel=0.02)
