"""No rule raises on a recipe, whatever stands in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.registry import ALL
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs

if TYPE_CHECKING:
    import pytest

LIKELY = (
    "load_best_model_at_end eval_strategy save_strategy eval_steps save_steps logging_steps lr_scheduler_type "
    "lr_scheduler_kwargs warmup_steps max_steps num_train_epochs accelerator_config optim_args report_to torch_compile "
    "gradient_checkpointing activation_checkpointing num_generations steps_per_generation generation_batch_size "
    "packing padding_free max_length loss_type loss_weights learning_rate seed warmup_ratio group_by_length env "
    "device_map lora_r gradient_accumulation_steps per_device_train_batch_size"
).split()
NAMES = st.sampled_from(LIKELY) | st.sampled_from(sorted(load_schema("trl").root.names))
WORDS = st.sampled_from(
    "no steps epoch best cosine constant cosine_with_min_lr exo_pair 5e-5 1.0e-5 false a=b {".split()
)
NUMBERS = st.sampled_from([0, 1, -1, 2, 8, 0.5, 1.5, 1e300, float("inf"), float("nan"), 10**400, -(10**400)])
PLAIN = st.none() | st.booleans() | NUMBERS | WORDS
VALUES = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.sampled_from(["num_steps", "min_lr", "x"]), PLAIN)
LINES = st.sampled_from(
    [
        "",
        "torchrun train.py recipe.yaml\n",
        *(f"torchrun --nproc_per_node {n} {name}.py --config recipe.yaml\n" for n in "02" for name in ("grpo", "dpo")),
        "accelerate launch --num_processes $N sft.py --config=recipe.yaml --eval_strategy $E --seed abc\n",
    ]
)


@given(st.dictionaries(NAMES, VALUES, max_size=12), LINES, st.sampled_from([None, "trl", "transformers", "accelerate"]))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_rule_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: dict[str, Any], line: str, consumer: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    content = {"output_dir": "out", "per_device_train_batch_size": 1, "max_grad_norm": 1.0, **recipe}
    Path("recipe.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    Path("train.sh").write_text(line, encoding="utf-8")
    for run in find_runs([Path()], Files())[0]:
        versions = {"transformers": ">=4.40", "trl": "1.16.0", "deepspeed": "==0.16,>0.17"}
        read = replace(run, consumer=run.consumer or consumer, versions=versions)
        for rule in ALL:
            for finding in rule.check(read):
                finding.location.concrete()
