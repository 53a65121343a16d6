"""Keys under names of another time: what is emitted has the name of today, and only that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.build.conftest import Workplace, job

GATHER = "stage3_gather_16bit_weights_on_model_save"


@pytest.mark.parametrize(
    "written", [GATHER, "gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"]
)
def test_gathering_has_one_name(workplace: Workplace, written: str) -> None:
    """DeepSpeed refuses the name of old beside that of today."""
    config, lock = workplace.built(job(deepspeed={"zero_optimization": {"stage": 3, written: True}}))
    assert config["zero_optimization"][GATHER] is True
    assert [name for name in config["zero_optimization"] if "model_save" in name] == [GATHER]
    assert lock["settings"][f"zero_optimization.{GATHER}"]["kind"] == "file"


@pytest.mark.parametrize(
    ("zero", "offload"),
    [
        ({"stage": 2, "cpu_offload": False}, {}),
        ({"stage": 3, "cpu_offload_param": True}, {"offload_param": "cpu"}),
    ],
)
def test_switches_become_devices(workplace: Workplace, zero: dict[str, Any], offload: dict[str, str]) -> None:
    config, _ = workplace.built(job(deepspeed={"zero_optimization": zero}))
    emitted = config["zero_optimization"]
    assert {name: value["device"] for name, value in emitted.items() if name.startswith("offload_")} == offload
    assert not [name for name in emitted if name.startswith("cpu_offload")]
