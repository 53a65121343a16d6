"""Config sets as people write them by hand: broken ones, with what has to be said of each, and good ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .conftest import MODEL


@dataclass(frozen=True)
class Set:
    """``files`` by name. Of a broken set: ``code`` of the rule, ``check`` that fails (None: an error ends the run, and
    ``says`` is in it), ``says``: what the failing check shows as planned or the error tells."""

    files: dict[str, str]
    consumer: str | None = None
    ranks: int = 1
    code: str = ""
    check: str | None = None
    says: str = ""

    def write(self, folder: Path) -> Path:
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder


def written(config: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in config.items() if value is not None}, indent=2) + "\n"


def zero(stage: Any, **more: Any) -> str:
    """A DeepSpeed config whose numbers the Trainer fills; a value None takes a key away."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True},
    }
    return written(config | more)


def plain(**more: Any) -> str:
    """A DeepSpeed config for a loop that hands it to deepspeed.initialize."""
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}
    return written(config | more)


RECIPE = """\
output_dir: out
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
max_steps: 4
max_grad_norm: 0.5
learning_rate: 1.0e-4
bf16: true
deepspeed: ds.json
"""
TORCHRUN = "torchrun --nproc_per_node 4 train.py recipe.yaml\n"
DEEPSPEED = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n"
ACCELERATE = "accelerate launch --config_file accelerate.yaml train.py\n"
WITHOUT_DEEPSPEED = RECIPE.replace("deepspeed: ds.json\n", "")


def trainer(config: str, recipe: str = RECIPE) -> dict[str, str]:
    return {"ds.json": config, "recipe.yaml": recipe, "train.sh": TORCHRUN}


def engine(config: str) -> dict[str, str]:
    return {"ds.json": config, "train.sh": DEEPSPEED}


def launched(engine: str, section: str = "") -> dict[str, str]:
    """An accelerate config for eight ranks; ``section`` is YAML behind its three settings."""
    config = f"distributed_type: {engine}\nnum_processes: 8\nmixed_precision: bf16\n{section}"
    return {"accelerate.yaml": config, "train.sh": ACCELERATE}


BROKEN = {
    # The stage is dropped without a word.
    "stage-in-misspelt-section": Set(
        engine(plain(zero_optimization=None, zero_optimisation={"stage": 2})),
        code="ZC102",
        check="ZeRO stage",
        says="zero_optimisation.stage: 2",
    ),
    "stage-in-section-of-accelerate": Set(
        launched("DEEPSPEED", "deepspeed_config:\n  zero_optimization:\n    stage: 3\n"),
        consumer="accelerate",
        code="ZC103",
        check="ZeRO stage",
        says="deepspeed_config.zero_optimization.stage: 3",
    ),
    # The engine is another one.
    "engine-options-without-engine": Set(
        {"train.sh": "accelerate launch --num_processes 1 --mixed_precision bf16 --zero_stage 2 train.py\n"},
        consumer="accelerate",
        code="ZC719",
        check="ZeRO stage",
        says="--zero_stage 2",
    ),
    "engine-of-another-launcher": Set(
        {"ds.json": plain(zero_optimization={"stage": 3})}
        | launched("MULTI_GPU", "deepspeed_config:\n  deepspeed_config_file: ds.json\n"),
        consumer="accelerate",
        code="ZC604",
        check="engine",
        says="deepspeed_config: {...}",
    ),
    "engine-switched-off-by-variable": Set(
        launched("DEEPSPEED", "deepspeed_config:\n  zero_stage: 2\n")
        | {
            "recipe.yaml": WITHOUT_DEEPSPEED,
            "train.sh": "export ACCELERATE_USE_CPU=true\n"
            "accelerate launch --config_file accelerate.yaml train.py recipe.yaml\n",
        },
        ranks=2,
        code="ZC747",
        check="engine",
        says="distributed_type: DEEPSPEED",
    ),
    # Weights that nobody can load.
    "weights-not-gathered": Set(
        trainer(zero(3, zero_optimization={"stage": 3})),
        code="ZC401",
        check="saved parameters",
    ),
    "stage-in-quotes": Set(trainer(zero("3")), code="ZC402", check="saved parameters"),
    # Two places, two values.
    "clipping-mismatch": Set(
        trainer(zero(2, gradient_clipping=1.0)), code="ZC202", says="ds gradient_clipping=1.0 vs hf max_grad_norm=0.5"
    ),
    "clipping-not-passed-on": Set(
        trainer(zero(2, gradient_clipping=None)), code="ZC209", check="gradient clipping", says="max_grad_norm: 0.5"
    ),
    "accumulation-mismatch": Set(
        trainer(zero(2, gradient_accumulation_steps=8)), code="ZC201", says="gradient_accumulation_steps=8"
    ),
    "batch-sizes-of-another-machine": Set(
        engine(plain(train_batch_size=16, train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=2)),
        code="ZC203",
        says="Check batch related parameters",
    ),
    "argument-of-an-old-release": Set(
        trainer(zero(2), RECIPE + "evaluation_strategy: steps\n"),
        code="ZC801",
        says="unexpected keyword argument 'evaluation_strategy'",
    ),
    "learning-rate-mismatch": Set(
        trainer(zero(2, optimizer={"type": "AdamW", "params": {"lr": 3e-5}})), code="ZC202", says="learning_rate"
    ),
    # Silently something else.
    "precision-in-old-section": Set(
        engine(plain(bf16={"enabled": False}, bfloat16={"enabled": True})),
        code="ZC321",
        check="precision",
        says="bfloat16.enabled: True",
    ),
    "scheduler-overridden": Set(
        trainer(
            zero(2, scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}),
            RECIPE + "lr_scheduler_type: cosine\n",
        ),
        code="ZC211",
        check="scheduler",
        says="lr_scheduler_type: cosine",
    ),
    "parameters-offloaded-at-stage-2": Set(
        engine(plain(zero_optimization={"stage": 2, "offload_param": {"device": "cpu"}})),
        code="ZC502",
        check="offload parameters",
        says="offload_param.device: cpu",
    ),
}

GOOD = {
    "trainer": Set(
        trainer(zero(3), RECIPE + "model_name_or_path: model\n") | {"model/config.json": json.dumps(MODEL)}, ranks=2
    ),
    "trl-script": Set(
        launched("DEEPSPEED", "deepspeed_config:\n  zero_stage: 2\n")
        | {
            "sft.yaml": "output_dir: out\ndataset_name: trl-lib/Capybara\nper_device_train_batch_size: 1\n"
            "max_steps: 4\nlearning_rate: 2.0e-5\nbf16: true\n",
            "train.sh": "accelerate launch --config_file accelerate.yaml sft.py --config sft.yaml\n",
        },
    ),
    "accelerate-loop": Set(
        launched(
            "DEEPSPEED",
            "deepspeed_config:\n  zero_stage: 2\n  gradient_clipping: 0.5\n  gradient_accumulation_steps: 2\n",
        ),
        consumer="accelerate",
    ),
    "deepspeed-loop": Set(
        engine(plain(train_batch_size=32, train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=2)), ranks=2
    ),
    "torchrun-without-deepspeed": Set(
        {"recipe.yaml": WITHOUT_DEEPSPEED, "train.sh": TORCHRUN},
    ),
    "ddp": Set(
        launched("MULTI_GPU"),
        consumer="accelerate",
        ranks=2,
    ),
}
