"""Rules of recipes: each word and number that is told, the nearest that is not, and the recipe after the fix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.rules.by_hand import TRAIN, after, effective, found, yaml_file
from zerocfg.rules.recipes.trainer_arguments import evaluates_by
from zerocfg.run.model import Origin, ResumedState, Run, Script

OUT = "output_dir: out\n"
BEST = "load_best_model_at_end: true\n"

TRAINER: list[tuple[str, str, str | None, str | None]] = [
    # code, recipe, what is told (None: silence), lines that the fix writes (None: there is no fix)
    ("ZC804", f"{BEST}eval_strategy: epoch\n", "evaluates by `epoch` and saves by `steps`", "eval_strategy: steps"),
    ("ZC804", f"{BEST}eval_strategy: epoch\nsave_strategy: 'no'\n", "saves by `no`", "load_best_model_at_end: false"),
    ("ZC804", f"{BEST}eval_strategy: epoch\nsave_strategy: epoch\n", None, None),
    ("ZC804", f"{BEST}eval_strategy: epoch\nsave_strategy: best\n", None, None),
    ("ZC804", f"{BEST}evaluation_strategy: epoch\n", "evaluates by `epoch`", "evaluation_strategy: steps"),
    ("ZC804", "load_best_model_at_end: false\neval_strategy: epoch\n", None, None),
    ("ZC805", f"{BEST}eval_strategy: steps\nsave_steps: 150\neval_steps: 100\n", "every 150 steps", "save_steps: 200"),
    ("ZC805", f"{BEST}eval_strategy: steps\nsave_steps: 200\neval_steps: 100\n", None, None),
    ("ZC805", f"{BEST}eval_strategy: steps\nsave_steps: 1\neval_steps: 2\n", "every 1 steps", "save_steps: 2"),
    ("ZC805", f"{BEST}eval_strategy: steps\nsave_steps: 0.5\neval_steps: 1\n", None, None),
    ("ZC805", f"{BEST}eval_strategy: steps\nsave_steps: 3\neval_steps: 0.5\n", None, None),
    ("ZC805", f"{BEST}eval_strategy: steps\nlogging_steps: 300\n", "(`logging_steps`)", "save_steps: 600"),
    (
        "ZC805",
        f"{BEST}eval_strategy: steps\neval_steps: 0\nlogging_steps: 300\n",
        "(`logging_steps`)",
        "save_steps: 600",
    ),
    ("ZC805", f"{BEST}eval_strategy: steps\neval_steps: x\nlogging_steps: 300\n", None, None),
    ("ZC805", f"{BEST}eval_strategy: steps\n", None, None),
    ("ZC805", f"{BEST}eval_strategy: epoch\nsave_steps: 150\neval_steps: 100\n", None, None),
    ("ZC806", "lr_scheduler_type: reduce_lr_on_plateau\n", "follows an evaluated metric", "eval_strategy: epoch"),
    ("ZC806", "lr_scheduler_type: greedy\n", "follows an evaluated metric", "eval_strategy: epoch"),
    ("ZC806", "lr_scheduler_type: greedy\neval_strategy: steps\n", None, None),
    ("ZC806", "lr_scheduler_type: linear\n", None, None),
    ("ZC807", "save_strategy: best\n", "needs `metric_for_best_model`", "metric_for_best_model: loss"),
    ("ZC807", "save_strategy: best\nmetric_for_best_model: loss\n", "no checkpoint is ever", "eval_strategy: epoch"),
    ("ZC807", "save_strategy: best\nload_best_model_at_end: true\n", "no checkpoint is ever", "eval_strategy: epoch"),
    ("ZC807", "save_strategy: best\nlr_scheduler_type: greedy\n", "no checkpoint is ever", "eval_strategy: epoch"),
    ("ZC807", "save_strategy: best\nmetric_for_best_model: loss\neval_strategy: epoch\n", None, None),
    ("ZC807", "save_strategy: epoch\n", None, None),
    ("ZC808", "logging_steps: 1.5\n", "`logging_steps: 1.5` is neither", "logging_steps: 1"),
    ("ZC808", "save_steps: 2.5\n", "`save_steps: 2.5` is neither", "save_steps: 2"),
    ("ZC808", "eval_steps: 2.5\n", None, None),
    ("ZC808", "eval_steps: 2.5\neval_strategy: steps\n", "`eval_steps: 2.5` is neither", "eval_steps: 2"),
    ("ZC808", "logging_steps: 0.5\n", None, None),
    ("ZC808", "logging_steps: 1\n", None, None),
    ("ZC808", "logging_steps: 0\n", "is refused", "logging_steps: 1"),
    ("ZC808", "save_steps: 0\n", None, None),
    ("ZC808", "logging_steps: 0\nlogging_strategy: epoch\n", None, None),
    ("ZC809", "eval_steps: 5\n", "has no effect", "eval_strategy: steps"),
    ("ZC809", "eval_steps: 0\n", None, None),
    ("ZC809", "eval_steps: 5\ndo_eval: false\n", None, None),
    ("ZC809", "eval_steps: 5\neval_strategy: 'no'\n", None, None),
    ("ZC809", "eval_steps: 5\nevaluation_strategy: 'no'\n", None, None),
    ("ZC810", "dataloader_prefetch_factor: 2\n", "needs `dataloader_num_workers`", ""),
    ("ZC810", "dataloader_persistent_workers: true\n", "needs `dataloader_num_workers`", ""),
    ("ZC810", "dataloader_persistent_workers: false\n", None, None),
    ("ZC810", "dataloader_prefetch_factor: 2\ndataloader_num_workers: 1\n", None, None),
    ("ZC812", "gradient_accumulation_steps: 0\n", "is below 1", "gradient_accumulation_steps: 1"),
    ("ZC812", "gradient_accumulation_steps: 1\n", None, None),
    ("ZC812", "learning_rate: -0.5\n", "is below 0", "learning_rate: 0.5"),
    ("ZC812", "learning_rate: 0\n", None, None),
    ("ZC812", "seed: -3\n", "is below 0", "seed: 0"),
    ("ZC812", "dataloader_num_workers: -1\n", "is below 0", "dataloader_num_workers: 0"),
    ("ZC812", "torch_empty_cache_steps: 0\n", "is below 1", "torch_empty_cache_steps: 1"),
    (
        *("ZC813", "accelerator_config: {split_batchs: true}\n", "has no `split_batchs`"),
        "accelerator_config: {split_batches: true}",
    ),
    ("ZC813", "accelerator_config: {xyzzy: 1}\n", "has no `xyzzy`", "accelerator_config: {}"),
    ("ZC813", "accelerator_config: {split_batches: true}\n", None, None),
    (
        "ZC814",
        "torch_compile: false\ntorch_compile_mode: x\n",
        "`torch_compile_mode` is written",
        "torch_compile: false",
    ),
    (
        *("ZC814", "torch_compile: false\ntorch_compile_mode: x\ntorch_compile_backend: y\n"),
        *("`torch_compile_backend` is written", "torch_compile: false"),
    ),
    ("ZC814", "torch_compile: true\ntorch_compile_mode: x\n", None, None),
    ("ZC814", "torch_compile: false\n", None, None),
    (
        *("ZC815", "gradient_checkpointing: true\nactivation_checkpointing: false\n", "it counts"),
        "activation_checkpointing: true",
    ),
    (
        *("ZC815", "gradient_checkpointing: false\nactivation_checkpointing: true\n", "it counts"),
        "activation_checkpointing: true",
    ),
    ("ZC815", "gradient_checkpointing: true\nactivation_checkpointing: true\n", None, None),
    ("ZC815", "gradient_checkpointing: true\n", None, None),
    (
        *("ZC816", "gradient_checkpointing_kwargs: {use_reentrant: true}\n", "has no effect"),
        "gradient_checkpointing_kwargs: {use_reentrant: true}\ngradient_checkpointing: true",
    ),
    ("ZC816", "gradient_checkpointing_kwargs: {use_reentrant: true}\ngradient_checkpointing: false\n", None, None),
    ("ZC816", "gradient_checkpointing_kwargs: {}\n", None, None),
    ("ZC817", "optim_args: {rank: 4, proj: x}\n", "is not a text", "optim_args: rank=4,proj=x"),
    ("ZC817", "optim_args: rank=4,proj=x\n", None, None),
    ("ZC817", "optim_args: 'rank = 4, proj=x'\n", None, None),
    ("ZC817", "optim_args: 'rank:4'\n", "is not a text", "optim_args: rank=4"),
    ("ZC817", "optim_args: 'rank=4,proj'\n", "is not a text", None),
    ("ZC817", "optim_args: {rank: [4]}\n", "is not a text", None),
    ("ZC817", "optim_args: {rank: 'a\\b'}\n", "is not a text", None),
    ("ZC817", "optim_args: 4\n", "is not a text", None),
    ("ZC817", "optim_args: ''\n", None, None),
    (
        *("ZC819", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr: 0.1}\n", "takes no `min_lr`"),
        "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0.1}",
    ),
    (
        *("ZC819", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycle: 2}\n", "takes no `num_cycle`"),
        "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 2}",
    ),
    (
        *("ZC819", "lr_scheduler_kwargs: {min_lr: 2}\n", "`lr_scheduler_type: linear` takes no `min_lr`"),
        "lr_scheduler_kwargs: {}",
    ),
    ("ZC819", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 2, last_epoch: 1}\n", None, None),
    ("ZC819", "lr_scheduler_type: other\nlr_scheduler_kwargs: {x: 2}\n", None, None),
    ("ZC820", "warmup_steps: 100\nmax_steps: 50\n", "ends after 50", "warmup_steps: 5\nmax_steps: 50"),
    ("ZC820", "warmup_steps: 10\nmax_steps: 9\n", "ends after 9", "warmup_steps: 1\nmax_steps: 9"),
    ("ZC820", "warmup_steps: 50\nmax_steps: 50\n", None, None),
    ("ZC820", "warmup_steps: 2\nmax_steps: 1\n", "ends after 1", "warmup_steps: 1\nmax_steps: 1"),
    ("ZC820", "warmup_steps: 1.5\nmax_steps: 1\n", None, None),
    ("ZC820", "warmup_steps: 100\nmax_steps: 0\n", None, None),
    ("ZC820", "warmup_steps: 100\nmax_steps: 50\nlr_scheduler_type: constant\n", None, None),
    (
        *("ZC821", "warmup_steps: 10\nlr_scheduler_type: constant\n", "starts at the full learning rate"),
        "warmup_steps: 10\nlr_scheduler_type: constant_with_warmup",
    ),
    ("ZC821", "warmup_steps: 0\nlr_scheduler_type: constant\n", None, None),
    ("ZC821", "warmup_steps: 10\nlr_scheduler_type: linear\n", None, None),
    ("ZC822", "max_steps: 5\nnum_train_epochs: 3\n", "`max_steps: 5` ends", "num_train_epochs: 3"),
    ("ZC822", "max_steps: 1\nnum_train_epochs: 0.5\n", "`max_steps: 1` ends", "num_train_epochs: 0.5"),
    ("ZC822", "max_steps: 0\nnum_train_epochs: 3\n", None, None),
    ("ZC822", "max_steps: -1\nnum_train_epochs: 3\n", None, None),
    ("ZC822", "max_steps: 5\nnum_train_epochs: 0\n", None, None),
    ("ZC822", "max_steps: 5\n", None, None),
    (
        *("ZC235", "lr_scheduler_type: cosine_with_min_lr\n", "needs `min_lr` or `min_lr_rate`"),
        None,
    ),
    ("ZC235", "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1}\n", None, None),
    ("ZC235", "lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {}\n", "needs `num_decay_steps`", None),
    ("ZC235", "lr_scheduler_type: linear\n", None, None),
]

TRL: list[tuple[str, str, str, str | None, str | None]] = [
    # code, config of the trainer, and as above
    (
        "ZC844",
        "DPO",
        "loss_type: exo_pair\n",
        "needs a `label_smoothing`",
        "loss_type: exo_pair\nlabel_smoothing: 0.001",
    ),
    ("ZC844", "DPO", "loss_type: exo_pair\nlabel_smoothing: 0.1\n", None, None),
    ("ZC844", "DPO", "loss_type: sigmoid\n", None, None),
    ("ZC844", "SFT", "loss_type: exo_pair\n", None, None),
    ("ZC844", "DPO", "loss_type: nca_pair\nf_divergence_type: js\n", "with the loss nca_pair", "loss_type: nca_pair"),
    ("ZC844", "DPO", "loss_type: nca_pair\nf_divergence_type: reverse_kl\n", None, None),
    ("ZC844", "DPO", "loss_type: sigmoid\nf_divergence_type: js\n", None, None),
    ("ZC844", "DPO", "loss_type: nothing\nf_divergence_type: js\n", None, None),
    (
        "ZC844",
        "DPO",
        "loss_type: [sft, nca_pair]\nf_divergence_type: js\n",
        "loss nca_pair",
        "loss_type: [sft, nca_pair]",
    ),
    ("ZC845", "DPO", "loss_type: [sft, ipo]\nloss_weights: [1]\n", "1 `loss_weights` for 2 losses", None),
    ("ZC845", "DPO", "loss_type: [sft, ipo]\nloss_weights: [1, 2]\n", None, None),
    ("ZC845", "DPO", "loss_type: sft\nloss_weights: [1, 2]\n", "2 `loss_weights` for 1 losses", None),
    ("ZC845", "DPO", "loss_weights: [1, 2]\n", "2 `loss_weights` for 1 losses", None),
    ("ZC845", "DPO", "loss_weights: [1]\n", None, None),
    ("ZC845", "DPO", "loss_weights: 1\n", None, None),
    ("ZC845", "SFT", "loss_weights: [1, 2]\n", None, None),
    (
        *("ZC846", "DPO", "precompute_ref_log_probs: true\nsync_ref_model: true\n", "moves it"),
        "precompute_ref_log_probs: false\nsync_ref_model: true",
    ),
    ("ZC846", "DPO", "precompute_ref_log_probs: true\nsync_ref_model: false\n", None, None),
    ("ZC846", "DPO", "sync_ref_model: true\n", None, None),
    (
        "ZC847",
        "SFT",
        "load_in_8bit: true\nload_in_4bit: true\n",
        "exclude each",
        "load_in_8bit: false\nload_in_4bit: true",
    ),
    ("ZC847", "SFT", "load_in_8bit: false\nload_in_4bit: true\n", None, None),
    (
        "ZC848",
        "SFT",
        "padding_free: true\n",
        "cuts nothing to `max_length` (1024)",
        "padding_free: true\npacking: true",
    ),
    ("ZC848", "SFT", "padding_free: true\nmax_length: null\n", None, None),
    ("ZC848", "SFT", "padding_free: true\npacking: true\n", None, None),
    ("ZC848", "SFT", "padding_free: false\n", None, None),
    ("ZC848", "DPO", "padding_free: true\n", None, None),
    ("ZC849", "SFT", "packing: true\nmax_length: null\n", "needs a `max_length`", "packing: true\nmax_length: 1024"),
    ("ZC849", "SFT", "packing: true\n", None, None),
    ("ZC849", "SFT", "packing: false\nmax_length: null\n", None, None),
    ("ZC850", "DPO", "padding_free: true\n", "is not used", "padding_free: false"),
    ("ZC850", "DPO", "padding_free: false\n", None, None),
    ("ZC850", "SFT", "padding_free: true\n", None, None),
    ("ZC851", "SFT", "lora_r: 8\n", "`lora_r` has no effect", "lora_r: 8\nuse_peft: true"),
    ("ZC851", "SFT", "lora_r: 8\nuse_peft: false\n", None, None),
    ("ZC851", "SFT", "use_dora: false\n", None, None),
    ("ZC851", "SFT", "lora_target_modules: null\n", None, None),
    ("ZC852", "SFT", "env: [A=1, B=x]\n", "must be a mapping", 'env: {A: "1", B: "x"}'),
    ("ZC852", "SFT", "env: {A: 1}\n", None, None),
    ("ZC852", "SFT", "env: []\n", "must be a mapping", None),
    ("ZC852", "SFT", "env: [A=1, B]\n", "must be a mapping", None),
    ("ZC852", "SFT", "env: A=1\n", "must be a mapping", None),
    ("ZC855", "GRPO", "per_device_train_batch_size: 3\n", "= 6 completions", "steps_per_generation: 4"),
    ("ZC855", "GRPO", "per_device_train_batch_size: 4\n", None, None),
    (
        "ZC855",
        "GRPO",
        "num_generations: 4\nper_device_train_batch_size: 1\n",
        "= 2 completions",
        "steps_per_generation: 2",
    ),
    ("ZC855", "GRPO", "per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\n", None, None),
    (
        *("ZC855", "GRPO", "per_device_train_batch_size: 1\nsteps_per_generation: 3\n", "* 3 steps = 6"),
        "steps_per_generation: 12",
    ),
    ("ZC855", "GRPO", "per_device_train_batch_size: 3\ngeneration_batch_size: 8\n", None, None),
    ("ZC855", "RLOO", "per_device_train_batch_size: 3\n", None, None),
    ("ZC855", "SFT", "per_device_train_batch_size: 3\n", None, None),
    (
        *("ZC856", "GRPO", "generation_batch_size: 8\nsteps_per_generation: 2\n", "in two ways"),
        "steps_per_generation: 2",
    ),
    ("ZC856", "GRPO", "generation_batch_size: 8\n", None, None),
    (
        *("ZC857", "GRPO", "per_device_train_batch_size: 2\ngeneration_batch_size: 12\n", "write 16"),
        "generation_batch_size: 16",
    ),
    ("ZC857", "GRPO", "per_device_train_batch_size: 2\ngeneration_batch_size: 16\n", None, None),
    (
        "ZC857",
        "GRPO",
        "per_device_train_batch_size: 3\ngeneration_batch_size: 8\n",
        "write 24",
        "generation_batch_size: 24",
    ),
    ("ZC857", "GRPO", "per_device_train_batch_size: 2\ngeneration_batch_size: 0\n", None, None),
    (
        "ZC857",
        "GRPO",
        "per_device_train_batch_size: 2\ngeneration_batch_size: 1\n",
        "write 8",
        "generation_batch_size: 8",
    ),
    (
        "ZC857",
        "GRPO",
        "per_device_train_batch_size: 2\ngeneration_batch_size: 12\nsteps_per_generation: 1\n",
        None,
        None,
    ),
    (
        *("ZC858", "GRPO", "per_device_eval_batch_size: 3\neval_strategy: steps\n", "whole groups of 8"),
        "per_device_eval_batch_size: 4",
    ),
    ("ZC858", "GRPO", "per_device_eval_batch_size: 3\n", None, None),
    ("ZC858", "GRPO", "per_device_eval_batch_size: 4\neval_strategy: steps\n", None, None),
    ("ZC858", "GRPO", "per_device_eval_batch_size: 3\neval_strategy: steps\nnum_generations_eval: 6\n", None, None),
    (
        *("ZC858", "GRPO", "per_device_eval_batch_size: 4\neval_strategy: steps\nnum_generations_eval: 6\n", "of 6"),
        "per_device_eval_batch_size: 6",
    ),
    ("ZC859", "GRPO", "num_generations: 1\n", "at least 2", "num_generations: 2"),
    ("ZC859", "GRPO", "num_generations: 2\n", None, None),
    ("ZC860", "GRPO", "auto_find_batch_size: true\n", "tear groups", "auto_find_batch_size: false"),
    ("ZC860", "SFT", "auto_find_batch_size: true\n", None, None),
    ("ZC861", "GRPO", "log_completions_hub_repo: a/b\n", "TRL stops without", "log_completions: true"),
    ("ZC861", "GRPO", "log_completions_hub_repo: a/b\nlog_completions: true\n", None, None),
    ("ZC861", "GRPO", "log_completions: false\n", None, None),
    ("ZC869", "GRPO", "use_vllm: true\nvllm_tensor_parallel_size: 3\n", "groups of 3", None),
    ("ZC869", "GRPO", "use_vllm: true\nvllm_tensor_parallel_size: 2\n", None, None),
    ("ZC869", "GRPO", "use_vllm: true\nvllm_tensor_parallel_size: 3\nvllm_mode: server\n", None, None),
    ("ZC869", "GRPO", "use_vllm: false\nvllm_tensor_parallel_size: 3\n", None, None),
]


def judge(code: str, run: Run, told: str | None, left: str | None) -> None:
    """What is said, and the recipe after the fix: ``left`` among its lines, all others as they were."""
    every = found(code, run)
    assert len(every) == (told is not None), [item.message for item in every]
    for item in every:
        assert told is not None and told in f"{item.message} {item.help}"
        assert (item.fix is None) is (left is None)
        if left is not None and run.recipe is not None:
            mended, was = yaml.safe_load(after(item.fix)), run.recipe.data()
            wanted = yaml.safe_load(left) or {}
            assert {key: mended.get(key) for key in wanted} == wanted
            assert all(key in was or key in wanted for key in mended)
            kept = {key: value for key, value in mended.items() if key not in wanted}
            assert kept == {key: was[key] for key in kept}


def ids(rows: list[Any]) -> list[Any]:
    return [pytest.param(*row, id=f"{row[0]}-{number}") for number, row in enumerate(rows)]


@pytest.mark.parametrize(("code", "text", "told", "left"), ids(TRAINER))
def test_a_recipe_of_the_trainer(code: str, text: str, told: str | None, left: str | None) -> None:
    judge(code, Run("a", "transformers", recipe=yaml_file("recipe", OUT + text)), told, left)
    nobody = Run("a", "accelerate", recipe=yaml_file("recipe", OUT + text))
    assert not found(code, nobody) or code in ("ZC235", "ZC815"), "whose arguments they are nobody knows"


@pytest.mark.parametrize(("code", "trainer", "text", "told", "left"), ids(TRL))
def test_a_recipe_of_trl(code: str, trainer: str, text: str, told: str | None, left: str | None) -> None:
    script = Script(TRAIN, parsed=frozenset({f"trl.{trainer}Config", "trl.ModelConfig"}))
    recipe = yaml_file("recipe", OUT + text)
    run = Run("a", "trl", recipe=recipe, recipe_reader="trl", script=script, versions={"trl": "==1.16.0"})
    judge(code, effective(run, num_processes=2), told, left)


@pytest.mark.parametrize(
    ("text", "declared", "strategy"),
    [
        ("eval_strategy: epoch\n", None, "epoch"),
        ("evaluation_strategy: epoch\n", None, "epoch"),
        ("", None, "no"),
        ("eval_strategy: epoch\nevaluation_strategy: steps\n", "==5.23.0", "epoch"),
        ("eval_strategy: epoch\nevaluation_strategy: steps\n", "==4.43.0", "steps"),
        ("eval_strategy: epoch\nevaluation_strategy: steps\n", ">=4.43", None),
        ("eval_strategy: epoch\nevaluation_strategy: steps\n", None, "epoch"),
    ],
)
def test_when_it_is_evaluated_by_either_name(text: str, declared: str | None, strategy: str | None) -> None:
    """transformers 4.41 to 4.45 have both names, and the former one wins."""
    versions = {"transformers": declared} if declared else {}
    assert evaluates_by(Run("a", "transformers", recipe=yaml_file("recipe", OUT + text), versions=versions)) == strategy


@pytest.mark.parametrize("code", ["ZC827"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("save_steps: 5\n", True),
        ("save_steps: 10\n", False),
        ("save_steps: 0.5\n", False),
        ("save_steps: 5\nsave_strategy: epoch\n", False),
        ("", False),
        ("eval_steps: 5\n", False),
    ],
)
def test_steps_of_the_checkpoint_that_win(code: str, text: str, told: bool) -> None:
    recipe = yaml_file("recipe", OUT + text)
    state = ResumedState("out/trainer_state.json", {"save_steps": 10, "eval_steps": 10}, Origin("file", file=recipe))
    run = Run("a", "transformers", recipe=recipe, resumed=state)
    assert bool(found(code, run)) is told
    assert not found(code, replace(run, resumed=None))


@pytest.mark.parametrize("code", ["ZC851"])
@pytest.mark.parametrize(
    ("parsed", "text", "told"),
    [
        (None, "dataset_name: x\n", True),
        (None, "", False),  # a script of one's own, perhaps
        ({"trl.ModelConfig"}, "", True),
        ({"trl.SFTConfig"}, "dataset_name: x\n", False),
    ],
)
def test_lora_that_a_model_config_takes(code: str, parsed: set[str] | None, text: str, told: bool) -> None:
    script = None if parsed is None else Script(TRAIN, parsed=frozenset(parsed))
    run = Run("a", "trl", recipe=yaml_file("recipe", f"{OUT}packing: true\nlora_r: 8\n{text}"), script=script)
    assert bool(found(code, run)) is told
    assert bool(found(code, replace(run, recipe_reader="trl"))) is (told or parsed is None)
