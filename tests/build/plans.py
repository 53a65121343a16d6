"""Plans made by hand, for tests of what is emitted from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zerocfg.emit.files import Emitted, emit
from zerocfg.emit.write import write
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.models.spec import Targets
from zerocfg.resolve.plan import Decision, Plan

SETTINGS = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "bf16.enabled": True,
    "zero_optimization.stage": 2,
    "zero_optimization.reduce_bucket_size": 16777216,
    "zero_optimization.offload_optimizer.device": "cpu",
}
RECIPE = "# Ours.\noutput_dir: out\nbf16: true\nlearning_rate: 2e-5  # text for PyYAML\nmax_steps: 10\n"


def decision(value: Any, reason: str = "so that it fits") -> Decision:
    return Decision(value, reason, "chosen")


def make(folder: Path, hardware: str = "8xH100-80GB", targets: dict[str, Any] | None = None, **changes: Any) -> Plan:
    """A DeepSpeed run of a Trainer with a recipe; ``changes`` replace attributes of the plan."""
    profile = parse_hardware(hardware)
    recipe = folder / "recipe.yaml"
    if not recipe.exists():
        recipe.write_text(RECIPE)
    values: dict[str, Any] = {
        "name": "a",
        "consumer": "transformers",
        "engine": "deepspeed",
        "folder": folder,
        "script": "train.py",
        "arguments": ["recipe.yaml"],
        "hardware": profile.name,
        "num_processes": profile.world_size,
        "num_machines": profile.nodes,
        "settings": {name: decision(value, f"why {value}") for name, value in SETTINGS.items()},
        "deepspeed": list(SETTINGS),
        "launcher": "torchrun",
        "targets": Targets.model_validate(targets or {}),
        "inputs": {"recipe": recipe},
        "profile": profile,
    }
    values.update(changes)
    if values["launcher"] == "accelerate":
        keys = {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": "MULTI_GPU",
            "num_machines": profile.nodes,
            "num_processes": profile.world_size,
            "machine_rank": 0,
        }
        values.setdefault("accelerate", {name: decision(value) for name, value in keys.items()})
    return Plan(**values)


def texts(plan: Plan) -> dict[str, str]:
    """What is emitted into ``out`` beside the spec, but for the lock."""
    return {name: data.decode() for name, data in emitted(plan).files.items() if name != "zerocfg.lock"}


def emitted(plan: Plan) -> Emitted:
    return emit(plan, plan.folder / "out")


def written(plan: Plan) -> Path:
    """The folder with the emitted files, on disk."""
    one = emitted(plan)
    write([one])
    return one.folder


def lock(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "zerocfg.lock").read_text())
    return data
