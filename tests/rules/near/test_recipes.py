"""Near misses of `zerocfg.rules.recipes`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest

from zerocfg.rules.recipes.trl_recipe import DPO_LOSSES

from .files import of
from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", '
    '"zero_optimization": {"stage": 2}}\n'
)
OWN_SCHEDULE = DS[:-2] + ', "scheduler": {"type": "WarmupLR", "params": {}}}\n'


def trains(code: str, why: str, text: str, options: str = "", *, recipe: str = RECIPE, processes: int = 1) -> Near:
    """A recipe of the Trainer. HfArgumentParser reads it when it stands alone, TrlParser beside options."""
    read = f"--config recipe.yaml {options}" if options else "recipe.yaml"
    line = f"torchrun --nproc_per_node {processes} train.py {read}\n"
    return of(code, why, {"recipe.yaml": recipe + text, "train.sh": line}, "transformers")


def zero(code: str, why: str, text: str, ds: str = DS) -> Near:
    """A recipe of the Trainer with DeepSpeed."""
    return of(code, why, {"recipe.yaml": RECIPE + "deepspeed: ds.json\n" + text, "ds.json": ds}, "transformers")


def trl(code: str, why: str, method: str, text: str, *, processes: int = 1, batch: int = 1) -> Near:
    """A recipe of one of TRL's scripts."""
    line = f"torchrun --nproc_per_node {processes} {method}.py --config recipe.yaml\n"
    return of(code, why, {"recipe.yaml": RECIPE.replace("size: 1", f"size: {batch}") + text, "train.sh": line}, "trl")


def admitting(code: str, why: str, consumer: str, versions: str, text: str) -> Near:
    """A recipe, or a DeepSpeed config, of a project that admits these versions."""
    key, file = ("deepspeed", "ds.json") if text.startswith("{") else ("recipe", "recipe.yaml")
    spec = (
        f"version: 1\nruns:\n  sft:\n    script: train.py\n    {key}: {file}\n    consumer: {consumer}\n"
        f"    versions: {{{versions}}}\n"
    )
    return of(code, why, {"zerocfg.yaml": spec, file: text if key == "deepspeed" else RECIPE + text}, consumer)


def at_trl(release: str, row: Near) -> Near:
    """The same in a project that admits these releases of TRL."""
    return replace(row, facts={"versions": {"trl": release}})


EIGHT_STEPS = "gradient_accumulation_steps: 8\nnum_generations: 8\n"
THREE_STEPS = "gradient_accumulation_steps: 3\nnum_generations: 8\n"
EVALUATED = "num_generations: 8\neval_strategy: steps\nper_device_eval_batch_size: 3\n"
ENGINE = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
BF16 = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": %s}, "zero_optimization": {"stage": 2}}\n'
MASTERS = BF16 % 'true, "bf16_master_weights_and_grads": false'
COMPILED = ENGINE[:-2] + ', "compile": {"backend": "inductor"}}\n'
FOREIGN = "base_model: tiny\n"
FORMER_BEST = "load_best_model_at_end: true\nevaluation_strategy: steps\nsave_strategy: epoch\n"
FORMERLY = "load_best_model_at_end: true\nevaluation_strategy: steps\nsave_strategy: steps\n"

RELEASES = (
    admitting(
        "ZC801", "no admitted release has it", "transformers", "transformers: '>=5.23.0'", "warmup_ratio: 0.1\n"
    ).finds("error", "recipe.yaml: warmup_ratio", "5.15.0", "5.23.0", 1),
    admitting("ZC801", "the last that has it", "transformers", "transformers: 5.14.1", "warmup_ratio: 0.1\n"),
    admitting("ZC801", "the first without", "transformers", "transformers: 5.15.0", "warmup_ratio: 0.1\n").finds(
        "error", "recipe.yaml: warmup_ratio", "5.15.0", "5.15.0", 1
    ),
    admitting("ZC801", "up to the last that has it", "transformers", "transformers: '<5.15'", "warmup_ratio: 0.1\n"),
    admitting("ZC801", "up to the first without", "transformers", "transformers: '<=5.15'", "warmup_ratio: 0.1\n")
    .finds("warning", "recipe.yaml: warmup_ratio", "5.15.0", "5.15.0", "5.15", 1)
    .says("from transformers 5.15.0 on; declared: <=5.15")
    .becomes(),
    admitting("ZC801", "gone for longer", "transformers", "transformers: 5.14.1", "evaluation_strategy: 'no'\n").finds(
        "error", "recipe.yaml: evaluation_strategy", "4.51.0", "5.14.1"
    ),
    admitting("ZC801", "right at its time", "transformers", "transformers: 4.44.2", "evaluation_strategy: 'no'\n"),
    admitting("ZC801", "gone before any walked", "transformers", "transformers: 4.40.2", "sharded_ddp: simple\n").finds(
        "error", "recipe.yaml: sharded_ddp", "4.40.2"
    ),
    admitting("ZC801", "older than any walked", "transformers", "transformers: 4.20.1", "sharded_ddp: simple\n"),
    admitting("ZC801", "in between, and gone", "transformers", "transformers: 4.52.4", "tp_size: 2\n").finds(
        "error", "recipe.yaml: tp_size", "4.52.1", "4.52.4"
    ),
    *(
        trains("ZC801", f"{line}, which takes more than one line", f"{line}\n")
        .finds("warning", f"recipe.yaml: {line.partition(':')[0]}", since, "5.23.0")
        .becomes()
        for line, since in (("torchdynamo: inductor", "5.0.0"), ("logging_dir: logs", "5.15.0"))
    ),
    near("ZC840", "the option that names the recipe", good=1, versions={"trl": "0.22.2"}),
    near("ZC801", "off, which is the default", ("group_by_length: true", "group_by_length: false"), bad=3)
    .finds("warning", "recipe.yaml: group_by_length", "5.2.0", "5.23.0")
    .becomes("max_steps: 2\n"),
    near("ZC801", "on, in today's words", bad=3)
    .finds("warning", "recipe.yaml: group_by_length", "5.2.0", "5.23.0")
    .becomes("train_sampling_strategy: group_by_length\n"),
    admitting(
        "ZC801",
        "certain, so that the fix is safe",
        "transformers",
        "transformers: 5.23.0",
        "evaluation_strategy: epoch\n",
    )
    .finds("error", "recipe.yaml: evaluation_strategy", "4.51.0", "5.23.0")
    .becomes("eval_strategy: epoch\n", safe=True),
    trains("ZC801", "a name that nobody ever had", "warmup_share: 0.1\n"),
    admitting("ZC803", "the last release without clipping", "deepspeed", "deepspeed: '<0.19.3'", ENGINE),
    admitting("ZC803", "only releases that clip", "deepspeed", "deepspeed: '>=0.19.3'", ENGINE),
    admitting(
        "ZC803", "the first that clips, just admitted", "deepspeed", "deepspeed: '>=0.18,<=0.19.3'", ENGINE
    ).finds("note", "ds.json", "1.0", "0.19.3", "0.18", "0.19.3"),
    admitting("ZC803", "no versions of DeepSpeed", "deepspeed", "transformers: '>=4'", ENGINE),
    admitting("ZC865", "the release that brought it", "deepspeed", "deepspeed: 0.18.3", MASTERS),
    admitting("ZC865", "some releases know it", "deepspeed", "deepspeed: '>=0.18.2'", MASTERS).finds(
        "note", 'ds.json: "bf16_master_weights_and_grads"', "0.18.3", "0.18.2", "0.18.3"
    ),
    admitting("ZC865", "all releases before", "deepspeed", "deepspeed: '<0.18.3'", MASTERS).finds(
        "error", 'ds.json: "bf16_master_weights_and_grads"', "0.18.3", "0.18.3", "0.18.3"
    ),
    admitting("ZC865", "had before it was gone for a while", "deepspeed", "deepspeed: 0.14.3", COMPILED),
    admitting("ZC865", "gone for a while", "deepspeed", "deepspeed: 0.14.4", COMPILED).finds(
        "error", 'ds.json: "compile"', "0.16.6", "0.14.4", "0.16.6"
    ),
    admitting("ZC865", "not declared", "deepspeed", "transformers: '>=4'", MASTERS),
    admitting(
        "ZC865",
        "at the top level",
        "deepspeed",
        "deepspeed: 0.17.1",
        ENGINE[:-2] + ', "torch_autocast": {"enabled": false}}\n',
    ).finds("error", 'ds.json: "torch_autocast"', "0.17.2", "0.17.1", "0.17.2"),
    admitting(
        "ZC865", "an argument, just in time", "transformers", "transformers: '>=4.41.0'", "eval_strategy: epoch\n"
    ),
    admitting(
        "ZC865", "an argument, one release early", "transformers", "transformers: '>=4.40'", "eval_strategy: epoch\n"
    ).finds("note", "recipe.yaml: eval_strategy", "4.41.0", "4.40", "4.41.0"),
    admitting("ZC865", "what scripts declare themselves", "transformers", "transformers: 4.40.2", "use_cache: false\n"),
    admitting("ZC865", "not there yet", "transformers", "transformers: 4.49.0", "tp_size: 2\n"),
    admitting("ZC865", "any other argument", "transformers", "transformers: 5.5.4", "ddp_static_graph: true\n").finds(
        "error", "recipe.yaml: ddp_static_graph", "5.6.0", "5.5.4", "5.6.0"
    ),
    admitting(
        "ZC865", "another program's recipe", "transformers", "transformers: 4.40.2", FOREIGN + "eval_strategy: epoch\n"
    ),
    admitting("ZC865", "an own loop", "accelerate", "transformers: 4.40.2", "eval_strategy: epoch\n"),
    admitting("ZC866", "bf16 off", "deepspeed", "deepspeed: '>=0.18'", BF16 % "false"),
    admitting("ZC866", "bf16 perhaps", "deepspeed", "deepspeed: '>=0.18'", BF16 % '"auto"'),
    admitting("ZC866", "only releases that check", "deepspeed", "deepspeed: '>=0.19.3'", BF16 % "true"),
    admitting("ZC866", "only releases that do not", "deepspeed", "deepspeed: '<0.19.3'", BF16 % "true"),
    admitting(
        "ZC866",
        "false, too, says something",
        "deepspeed",
        "deepspeed: '>=0.18'",
        BF16 % 'true, "check_grad_overflow": false',
    ),
    admitting("ZC867", "only releases that report to none", "transformers", "transformers: '>=5'", ""),
    admitting("ZC867", "only releases that report to all", "transformers", "transformers: '<5'", ""),
    admitting("ZC867", "another program's recipe", "transformers", "transformers: '>=4.50'", FOREIGN),
    of(
        "ZC867",
        "said on the line",
        {
            "recipe.yaml": RECIPE,
            "train.sh": "torchrun --nproc_per_node 1 train.py --config recipe.yaml --report_to none\n",
            "requirements.txt": "transformers>=4.50\n",
        },
        "transformers",
    ),
    admitting(
        "ZC868",
        "an older release is possible",
        "transformers",
        "transformers: '>=5.22'",
        "gradient_checkpointing: true\n",
    ),
    admitting(
        "ZC868",
        "another program's recipe",
        "transformers",
        "transformers: 5.23.0",
        FOREIGN + "gradient_checkpointing: true\n",
    ),
)

VALUES = (
    trains("ZC802", "a text that is meant", "output_dir: '7'\n", recipe="max_steps: 2\n"),
    near("ZC802", "told once, by its reader", bad=3)
    .finds("error", "recipe.yaml: '1'", 1)
    .says("HfArgumentParser does not convert it")
    .becomes("warmup_steps: 1\n", safe=True),
    near("ZC802", "two numbers", ("[1.0e-5]", "[1.0e-5, 2.0e-5]"))
    .finds("error", "recipe.yaml: [1.0e-5, 2.0e-5]")
    .becomes(),
    trains("ZC802", "no number at all", "learning_rate: slow\n").finds("error", "recipe.yaml: slow"),
    trains("ZC802", "a whole number in quotes", "seed: '7'\n").finds("error", "recipe.yaml: '7'", 7),
    trl("ZC802", "TrlParser converts", "sft", "packing: true\nlearning_rate: '1.0e-5'\n"),
    trl("ZC802", "TrlParser, no number at all", "sft", "packing: true\nlearning_rate: slow\n").finds(
        "error", "recipe.yaml: slow"
    ),
    trains("ZC825", "true as text is true", "load_best_model_at_end: 'true'\n"),
    trains("ZC825", "an argument that takes words", "include_num_input_tokens_seen: 'no'\n"),
    trains("ZC825", "a text", "run_name: 'no'\n"),
    trains("ZC825", "in capitals", "bf16_full_eval: 'False'\n").finds("error", "recipe.yaml: 'False'"),
    trl("ZC825", "TrlParser converts", "sft", "packing: 'no'\n"),
    of("ZC825", "nobody knows the parser", {"recipe.yaml": RECIPE + "bf16_full_eval: 'no'\n"}, "transformers"),
    trains("ZC810", "one worker", "dataloader_num_workers: 1\ndataloader_prefetch_factor: 2\n"),
    trains("ZC810", "no workers, said", "dataloader_num_workers: 0\ndataloader_prefetch_factor: 2\n").finds(
        "error", "recipe.yaml: dataloader_prefetch_factor: 2", 0, 0, also=("recipe.yaml: dataloader_num_workers: 0",)
    ),
    trains("ZC810", "not persistent", "dataloader_persistent_workers: false\n"),
    trains("ZC810", "nothing to prefetch", "dataloader_prefetch_factor: null\n"),
    trains("ZC810", "both", "dataloader_prefetch_factor: 2\ndataloader_persistent_workers: true\n")
    .finds("error", "recipe.yaml: dataloader_prefetch_factor: 2", 0, 0)
    .finds("error", "recipe.yaml: dataloader_persistent_workers: true", 0, 0),
    trains("ZC810", "another program's recipe", FOREIGN + "dataloader_prefetch_factor: 2\n"),
    admitting("ZC811", "a word of its time", "transformers", "transformers: 4.49.0", "optim: adamw_hf\n"),
    admitting("ZC811", "a word too late", "transformers", "transformers: 4.50.0", "optim: adamw_hf\n").finds(
        "error", "recipe.yaml: adamw_hf"
    ),
    admitting("ZC811", "a word that goes", "transformers", "transformers: '>=4.49'", "optim: adamw_hf\n")
    .finds("warning", "recipe.yaml: adamw_hf", "4.50.0", "4.49")
    .becomes(),
    admitting("ZC811", "a word too early", "transformers", "transformers: 4.46.3", "save_strategy: best\n").finds(
        "error", "recipe.yaml: best"
    ),
    admitting("ZC811", "a word that comes", "transformers", "transformers: '>=4.46'", "save_strategy: best\n").finds(
        "note", "recipe.yaml: best", "4.47.0", "4.46"
    ),
    admitting(
        "ZC811", "by its former name", "transformers", "transformers: 4.40.2", "evaluation_strategy: epochs\n"
    ).finds("error", "recipe.yaml: epochs"),
    admitting("ZC804", "by its former name", "transformers", "transformers: 4.44.2", FORMERLY),
    *(
        admitting("ZC804", f"the former name wins at {release}", "transformers", f"transformers: {release}", text)
        .finds(
            "error",
            "recipe.yaml: load_best_model_at_end: true",
            also=("recipe.yaml: evaluation_strategy: steps", "recipe.yaml: save_strategy: epoch"),
        )
        .becomes(RECIPE + text.replace("y: steps", 'y: "epoch"'))
        for release in ("4.41.0", "4.45.2")
        for text in (FORMER_BEST, FORMER_BEST + "eval_strategy: epoch\n")
    ),
    admitting(
        "ZC804", "the former name wins", "transformers", "transformers: 4.44.2", FORMERLY + "eval_strategy: 'no'\n"
    ),
    admitting(
        "ZC804",
        "which name wins depends",
        "transformers",
        "transformers: '>=4.45'",
        FORMER_BEST + "eval_strategy: epoch\n",
    ),
    admitting(
        "ZC806",
        "never evaluated by its former name",
        "transformers",
        "transformers: 4.44.2",
        "lr_scheduler_type: reduce_lr_on_plateau\nevaluation_strategy: 'no'\n",
    )
    .finds("error", "recipe.yaml: lr_scheduler_type: reduce_lr_on_plateau")
    .becomes(
        RECIPE + 'lr_scheduler_type: reduce_lr_on_plateau\nevaluation_strategy: "epoch"\n',
    ),
    trains("ZC811", "known trackers", "report_to: [tensorboard, wandb]\n"),
    trains("ZC811", "an unknown one of two", "report_to: [wandb, tensorbord]\n").finds(
        "error", "recipe.yaml: [wandb, tensorbord]"
    ),
    trains("ZC811", "nothing near", "lr_scheduler_type: zigzag\n").finds("error", "recipe.yaml: zigzag"),
    trains("ZC811", "a word of old releases alone", "optim: adamw_hf\n").finds(
        "warning", "recipe.yaml: adamw_hf", "4.50.0", "5.23.0"
    ),
    trains("ZC811", "capitals", "eval_strategy: Steps\n").finds("error", "recipe.yaml: Steps"),
    trains("ZC811", "no text", "lr_scheduler_type: 3\n").finds("error", "recipe.yaml: 3", 3),
    trains("ZC811", "another program's recipe", FOREIGN + "lr_scheduler_type: cosin\n"),
    *(
        trains("ZC812", f"{name}: {least}, the least", f"{name}: {least}\n", recipe="output_dir: out\nmax_steps: 2\n")
        for name, least in {
            "per_device_train_batch_size": 1,
            "per_device_eval_batch_size": 1,
            "gradient_accumulation_steps": 1,
            "dataloader_num_workers": 0,
            "warmup_steps": 0,
            "torch_empty_cache_steps": 1,
            "learning_rate": 0.0,
            "adam_epsilon": 0.0,
            "neftune_noise_alpha": 0.0,
            "seed": 0,
        }.items()
    ),
    trains("ZC812", "nothing to evaluate at once", "per_device_eval_batch_size: 0\n").finds(
        "error", "recipe.yaml: 0", 0, 1, 1
    ),
    trains("ZC812", "another program's recipe", FOREIGN + "seed: -1\n"),
    zero("ZC812", "DeepSpeed stops first", "gradient_accumulation_steps: 0\n"),
    zero("ZC812", "with DeepSpeed, too", "seed: -1\n").finds("error", "recipe.yaml: -1", -1, 0, 0),
    trains("ZC813", "nothing near", "accelerator_config: {mixed_precision: bf16}\n").finds(
        "error", "recipe.yaml: mixed_precision"
    ),
    trains("ZC813", "a file", "accelerator_config: accelerator.json\n"),
    trains("ZC813", "another program's recipe", FOREIGN + "accelerator_config: {split_batch: true}\n"),
)

BEST = "load_best_model_at_end: true\n"

ARGUMENTS = (
    trains("ZC804", "not asked for", "save_strategy: epoch\n"),
    trains("ZC804", "switched off", "load_best_model_at_end: false\nsave_strategy: epoch\n"),
    trains("ZC804", "nothing else said", BEST).finds("error", "recipe.yaml: load_best_model_at_end: true"),
    trains("ZC804", "the best only", BEST + "save_strategy: best\neval_strategy: epoch\n"),
    trains("ZC804", "neither saved nor evaluated", BEST + "save_strategy: 'no'\n"),
    trains("ZC804", "not saved", BEST + "save_strategy: 'no'\neval_strategy: epoch\n").finds(
        "error",
        "recipe.yaml: load_best_model_at_end: true",
        also=("recipe.yaml: eval_strategy: epoch", "recipe.yaml: save_strategy: 'no'"),
    ),
    trains("ZC804", "no text", BEST + "save_strategy: 3\n"),
    trains("ZC804", "another program's recipe", FOREIGN + BEST + "save_strategy: epoch\n"),
    near("ZC805", "as often", ("save_steps: 500", "save_steps: 200")),
    near("ZC805", "one step later", ("save_steps: 500", "save_steps: 201")).finds(
        "error",
        "recipe.yaml: save_steps: 201",
        201,
        200,
        400,
        also=("recipe.yaml: eval_steps: 200", "recipe.yaml: load_best_model_at_end: true"),
    ),
    near("ZC805", "saved at every step", ("save_steps: 500", "save_steps: 1"))
    .finds(
        "error",
        "recipe.yaml: save_steps: 1",
        1,
        200,
        200,
        also=("recipe.yaml: eval_steps: 200", "recipe.yaml: load_best_model_at_end: true"),
    )
    .becomes("save_steps: 200\n"),
    near("ZC805", "evaluated at every step", ("eval_steps: 200", "eval_steps: 1")),
    near("ZC805", "shares of the training", ("save_steps: 500", "save_steps: 0.5")),
    near("ZC805", "evaluated by shares", ("eval_steps: 200", "eval_steps: 0.3")),
    near("ZC805", "saved by epochs", ("save_strategy: steps", "save_strategy: epoch")),
    near("ZC805", "evaluated by epochs", ("eval_strategy: steps", "eval_strategy: epoch")),
    near("ZC805", "the last model will do", ("at_end: true", "at_end: false")),
    near("ZC805", "not known", ("eval_steps: 200", "eval_steps: often")),
    near("ZC805", "another program's recipe", ("load_best", FOREIGN + "load_best")),
    trains("ZC805", "the defaults, which go together", BEST + "eval_strategy: steps\n"),
    trains("ZC805", "the default of saving", BEST + "eval_strategy: steps\neval_steps: 300\n").finds(
        "error", "recipe.yaml: eval_steps: 300", 500, 300, 600, also=("recipe.yaml: load_best_model_at_end: true",)
    ),
    trains(
        "ZC805", "eval_steps: 0 means logging_steps", BEST + "eval_strategy: steps\neval_steps: 0\nlogging_steps: 300\n"
    ).finds(
        "error", "recipe.yaml: logging_steps: 300", 500, 300, 600, also=("recipe.yaml: load_best_model_at_end: true",)
    ),
    trains("ZC806", "another schedule", "lr_scheduler_type: linear\n"),
    trains("ZC806", "greedy", "lr_scheduler_type: greedy\neval_strategy: 'no'\n").finds(
        "error", "recipe.yaml: lr_scheduler_type: greedy", also=("recipe.yaml: eval_strategy: 'no'",)
    ),
    trains("ZC806", "another program's recipe", FOREIGN + "lr_scheduler_type: greedy\n"),
    trains("ZC807", "another strategy", "save_strategy: epoch\n"),
    trains("ZC807", "the best model at the end implies a metric", "save_strategy: best\neval_strategy: epoch\n" + BEST),
    trains(
        "ZC807",
        "so does the plateau",
        "save_strategy: best\neval_strategy: epoch\nlr_scheduler_type: reduce_lr_on_plateau\n",
    ),
    trains("ZC807", "an implied metric, but no evaluation", "save_strategy: best\n" + BEST).finds(
        "error", "recipe.yaml: save_strategy: best"
    ),
    trains("ZC807", "another program's recipe", FOREIGN + "save_strategy: best\n"),
    *(
        trains("ZC808", why, text)
        for why, text in {
            "a whole number with a point": "save_steps: 2.0\n",
            "1.0": "save_steps: 1.0\n",
            "a share": "save_steps: 0.5\n",
            "never saved": "save_steps: 0\n",
            "another strategy": "logging_strategy: epoch\nlogging_steps: 0\n",
            "not evaluated": "eval_steps: 10.5\n",
            "another program's recipe": FOREIGN + "save_steps: 10.5\n",
        }.items()
    ),
    trains("ZC808", "just above 1", "save_steps: 1.5\n").finds("error", "recipe.yaml: 1.5", "1.5", 1),
    trains("ZC808", "evaluated", "eval_strategy: steps\neval_steps: 10.5\n").finds(
        "error", "recipe.yaml: 10.5", "10.5", 1, also=("recipe.yaml:4:16: steps",)
    ),
    *(
        trains("ZC809", why, "eval_steps: 100\n" + text, options)
        for why, text, options in (
            ("the old name", "evaluation_strategy: steps\n", ""),
            ("the old name on the line", "", "--evaluation_strategy steps"),
            ("switched off on purpose", "eval_strategy: 'no'\n", ""),
            ("evaluation is switched off", "do_eval: false\n", ""),
            ("on the line", "", "--eval_strategy steps"),
            ("a script of DeepSpeed's own", "", "--deepspeed_config ds.json"),
            ("another program's recipe", FOREIGN, ""),
        )
    ),
    of(
        "ZC809",
        "who reads the line is a guess",
        {"train.sh": "torchrun train.py --output_dir out --per_device_train_batch_size 1 --eval_steps 100\n"},
    ).finds("note", "train.sh: --eval_steps 100", 100),
    trains("ZC809", "no number", "eval_steps: 0\n"),
    trains("ZC809", "do_eval switches nothing on", "eval_steps: 100\ndo_eval: true\n").finds(
        "warning", "recipe.yaml: eval_steps: 100", 100
    ),
)

ZERO_3 = DS.replace('"stage": 2', '"stage": 3')

MODEL = (
    trains("ZC814", "compiled on purpose", "torch_compile: true\ntorch_compile_backend: inductor\n"),
    trains("ZC814", "by the backend alone", "torch_compile_backend: inductor\n"),
    trains("ZC814", "no backend", "torch_compile: false\ntorch_compile_backend: null\n"),
    trains(
        "ZC814", "a mode, too", "torch_compile: false\ntorch_compile_mode: default\ntorch_compile_backend: inductor\n"
    ).finds(
        "error",
        "recipe.yaml: torch_compile: false",
        also=("recipe.yaml: torch_compile_backend: inductor", "recipe.yaml: torch_compile_mode: default"),
    ),
    trains("ZC814", "another program's recipe", FOREIGN + "torch_compile: false\ntorch_compile_mode: default\n"),
    *(
        trains("ZC815", f"both {both}", f"gradient_checkpointing: {both}\nactivation_checkpointing: {both}\n")
        for both in ("true", "false")
    ),
    trains(
        "ZC815", "the new name switches it on", "gradient_checkpointing: false\nactivation_checkpointing: true\n"
    ).finds(
        "error", "recipe.yaml: gradient_checkpointing: false", also=("recipe.yaml: activation_checkpointing: true",)
    ),
    trains("ZC815", "the old name says nothing", "gradient_checkpointing: null\nactivation_checkpointing: true\n"),
    trains(
        "ZC815", "another program's recipe", FOREIGN + "gradient_checkpointing: true\nactivation_checkpointing: false\n"
    ),
    trains("ZC816", "no options", "gradient_checkpointing_kwargs: {}\n"),
    trains(
        "ZC816",
        "switched off on purpose",
        "gradient_checkpointing: false\ngradient_checkpointing_kwargs: {use_reentrant: false}\n",
    ),
    trains(
        "ZC816",
        "on under the new name",
        "activation_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n",
    ),
    trains("ZC816", "the new name", "activation_checkpointing_kwargs: {use_reentrant: false}\n").finds(
        "warning", "recipe.yaml: activation_checkpointing_kwargs: {use_reentrant: false}"
    ),
    trl("ZC816", "TRL switches it on", "sft", "packing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"),
    zero("ZC826", "stage 2", "device_map: auto\n"),
    zero("ZC826", "null", "device_map: null\n", ZERO_3),
    zero("ZC826", "null as text", "device_map: 'null'\n", ZERO_3),
    zero("ZC826", "empty", "device_map: ''\n", ZERO_3),
    zero("ZC826", "a mapping", "device_map: {'': 0}\n", ZERO_3).finds("error", "recipe.yaml: device_map: {'': 0}", 3),
    zero("ZC826", "another program's recipe", FOREIGN + "device_map: auto\n", ZERO_3),
)

COSINE = "lr_scheduler_type: cosine_with_min_lr\n"

SCHEDULES = (
    near("ZC234", "transformers that makes the schedule first", versions={"transformers": "5.1.0"}),
    near("ZC234", "transformers that makes it last", versions={"transformers": "5.2.0"}).finds(
        "error", "recipe.yaml: polynomial"
    ),
    near("ZC234", "transformers that may", versions={"transformers": ">=5.1"}).finds(
        "warning", "recipe.yaml: polynomial", "5.2.0", "5.1"
    ),
    near("ZC815", "transformers without the new name", versions={"transformers": "5.22.2"}),
    near("ZC815", "transformers with both names", versions={"transformers": "5.23.0"}).finds(
        "error", "recipe.yaml: gradient_checkpointing: true", also=("recipe.yaml: activation_checkpointing: false",)
    ),
    near("ZC234", "stage 0", ('"stage": 2', '"stage": 0')),
    near("ZC234", "stage 1", ('"stage": 2', '"stage": 1')).finds("error", "recipe.yaml: polynomial"),
    near("ZC234", "no DeepSpeed", ("deepspeed: ds.json\n", "")),
    near("ZC234", "a schedule of DeepSpeed's", ('"zero', '"scheduler": {"type": "WarmupLR", "params": {}}, "zero')),
    near("ZC234", "an optimizer of DeepSpeed's", ('"zero', '"optimizer": {"type": "AdamW", "params": {}}, "zero')),
    near("ZC234", "another power", ("polynomial", "polynomial\nlr_scheduler_kwargs: {power: 2}")).finds(
        "error", "recipe.yaml: polynomial"
    ),
    near("ZC234", "a lowest rate", ("polynomial", "cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1.0e-6}")).finds(
        "error", "recipe.yaml: cosine_with_min_lr"
    ),
    near("ZC234", "a lowest share", ("polynomial", "cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}")),
    near("ZC234", "arguments that are no mapping", ("polynomial", "polynomial\nlr_scheduler_kwargs: power")),
    near("ZC235", "another schedule", ("warmup_stable_decay", "cosine")),
    near(
        "ZC235",
        "a lowest rate",
        ("cosine_with_min_lr", "cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0.1}"),
        bad=2,
    ),
    near(
        "ZC235",
        "a lowest share",
        ("cosine_with_min_lr", "cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}"),
        bad=2,
    ),
    near("ZC235", "a schedule of DeepSpeed's", ('"zero', '"scheduler": {"type": "WarmupLR", "params": {}}, "zero')),
    near("ZC235", "no DeepSpeed", ("deepspeed: ds.json\n", "")).finds("error", "recipe.yaml: warmup_stable_decay"),
)

STEPS = (
    trains("ZC817", "two pairs", "optim_args: rank=64, scale=0.5\n"),
    trains("ZC817", "nothing", "optim_args: {}\n"),
    trains("ZC817", "two equals signs", "optim_args: a=1=2\n").finds("error", "recipe.yaml: a=1=2"),
    trains("ZC817", "one pair and a word", "optim_args: rank=64,fast\n").finds("error", "recipe.yaml: rank=64,fast"),
    trains("ZC817", "a list in a mapping", "optim_args: {modules: [a, b]}\n").finds(
        "error", "recipe.yaml: {modules: [a, b]}"
    ),
    trains("ZC817", "the line says it", "optim_args: {rank: 64}\n", "--optim_args rank=64"),
    trains("ZC817", "another program's recipe", FOREIGN + "optim_args: {rank: 64}\n"),
    trains(
        "ZC819",
        "what all schedules take",
        "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {last_epoch: -1, num_cycles: 1.0}\n",
    ),
    trains("ZC819", "the default schedule", "lr_scheduler_kwargs: {min_lr: 1.0e-6}\n").finds(
        "error", "recipe.yaml: min_lr"
    ),
    trains("ZC819", "the default schedule with what it takes", "lr_scheduler_kwargs: {last_epoch: -1}\n"),
    trains("ZC819", "another schedule has it", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr: 1.0e-6}\n")
    .finds("error", "recipe.yaml: min_lr")
    .becomes("lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1.0e-6}\n"),
    trains("ZC819", "misspelt", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycle: 1.0}\n")
    .finds("error", "recipe.yaml: num_cycle")
    .says("write num_cycles")
    .becomes("lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 1.0}\n"),
    trains("ZC819", "nothing near", "lr_scheduler_type: linear\nlr_scheduler_kwargs: {power: 2}\n").finds(
        "error", "recipe.yaml: power"
    ),
    trains("ZC819", "the line says it", "lr_scheduler_kwargs: {min_lr: 1.0e-6}\n", "--lr_scheduler_kwargs {}"),
    trains("ZC819", "a schedule that nobody has", "lr_scheduler_type: zigzag\nlr_scheduler_kwargs: {min_lr: 1.0e-6}\n"),
    trains("ZC819", "another program's recipe", FOREIGN + "lr_scheduler_kwargs: {min_lr: 1.0e-6}\n"),
    zero("ZC819", "DeepSpeed's schedule", "lr_scheduler_kwargs: {min_lr: 1.0e-6}\n", OWN_SCHEDULE),
    near("ZC820", "as long", ("warmup_steps: 100", "warmup_steps: 4")),
    near("ZC820", "one step longer", ("warmup_steps: 100", "warmup_steps: 5")).finds(
        "warning", "recipe.yaml: warmup_steps: 5", 5, 4, 1, also=("recipe.yaml: max_steps: 4",)
    ),
    near("ZC820", "a tenth of 50 steps", ("max_steps: 4", "max_steps: 50")).finds(
        "warning", "recipe.yaml: warmup_steps: 100", 100, 50, 5, also=("recipe.yaml: max_steps: 50",)
    ),
    near("ZC820", "epochs end it", ("max_steps: 4", "max_steps: -1")),
    near("ZC820", "one step of two", ("max_steps: 4\nwarmup_steps: 100", "max_steps: 1\nwarmup_steps: 2")).finds(
        "warning", "recipe.yaml: warmup_steps: 2", 2, 1, 1, also=("recipe.yaml: max_steps: 1",)
    ),
    near(
        "ZC820",
        "a constant rate, which another rule tells",
        ("max_steps: 4", "lr_scheduler_type: constant\nmax_steps: 4"),
    ),
    near("ZC820", "another program's recipe", ("max_steps: 4", FOREIGN + "max_steps: 4")),
    zero("ZC820", "DeepSpeed's schedule", "warmup_steps: 100\n", OWN_SCHEDULE),
    near("ZC821", "no warmup", ("warmup_steps: 4", "warmup_steps: 0")),
    near("ZC821", "a share", ("warmup_steps: 4", "warmup_steps: 0.1")).finds(
        "error", "recipe.yaml: warmup_steps: 0.1", "0.1", also=("recipe.yaml: lr_scheduler_type: constant",)
    ),
    near("ZC821", "another program's recipe", ("warmup_steps: 4", FOREIGN + "warmup_steps: 4")),
    zero("ZC821", "DeepSpeed's schedule", "lr_scheduler_type: constant\nwarmup_steps: 4\n", OWN_SCHEDULE),
    near("ZC822", "no end by steps", ("max_steps: 1", "max_steps: -1")),
    near("ZC822", "no steps", ("max_steps: 1", "max_steps: 0")),
    near("ZC822", "no epochs", ("num_train_epochs: 3", "num_train_epochs: 0")),
    near("ZC822", "a part of an epoch", ("num_train_epochs: 3", "num_train_epochs: 0.5")).finds(
        "note", "recipe.yaml: num_train_epochs: 0.5", "0.5", 1, also=("recipe.yaml: max_steps: 1",)
    ),
    near("ZC822", "another program's recipe", ("max_steps: 1", FOREIGN + "max_steps: 1")),
    near("ZC823", "without DeepSpeed it counts", ("gradient_accumulation_steps: 2\n", "")),
    near("ZC823", "without DeepSpeed, beside 1", ("accumulation_steps: 2", "accumulation_steps: 1")),
    near("ZC823", "its fix takes one of the two")
    .finds("error", "recipe.yaml: num_steps: 4", 4, 2)
    .becomes("gradient_accumulation_steps: 2\n"),
    near("ZC823", "its fix moves the number", bad=2)
    .finds("error", "recipe.yaml: num_steps: 4", 4)
    .becomes("gradient_accumulation_steps: 4\n", safe=True),
    near(
        "ZC823",
        "its fix corrects a number that is written",
        ("deepspeed: ds.json", "deepspeed: ds.json\ngradient_accumulation_steps: 1"),
        bad=2,
    )
    .finds("error", "recipe.yaml: num_steps: 4", 4)
    .becomes("gradient_accumulation_steps: 4\n", safe=True),
    near("ZC823", "one step", ("num_steps: 4", "num_steps: 1"), bad=2),
    near("ZC823", "two steps", ("num_steps: 4", "num_steps: 2"), bad=2).finds("error", "recipe.yaml: num_steps: 2", 2),
    near("ZC823", "no steps", ("num_steps: 4", "num_steps: 0")),
    near("ZC823", "a truth", ("num_steps: 4", "num_steps: true")),
    near("ZC823", "one step beside two", ("num_steps: 4", "num_steps: 1")).finds(
        "error", "recipe.yaml: num_steps: 1", 1, 2
    ),
    near("ZC823", "another program's recipe", ("output_dir", FOREIGN + "output_dir")),
    near("ZC824", "one process", ("--nproc_per_node 2", "--nproc_per_node 1")),
    near("ZC824", "processes not known", ("--nproc_per_node 2", "--nproc_per_node $N")),
    near("ZC824", "three processes", ("--nproc_per_node 2", "--nproc_per_node 3")).finds(
        "error", "recipe.yaml: split_batches: true", 4, 3
    ),
    near(
        "ZC824",
        "the default batch",
        ("per_device_train_batch_size: 4", "gradient_accumulation_steps: 1\nsave_steps: 5"),
    ).finds("warning", "recipe.yaml: split_batches: true", 8, 2, 4),
    near("ZC824", "no truth", ("split_batches: true", "split_batches: 'true'")),
    near("ZC824", "another program's recipe", ("output_dir", FOREIGN + "output_dir")),
)

TRL_NAMES = (
    admitting(
        "ZC840", "no admitted release has it", "trl", "trl: 1.16.0", "packing: true\nmax_seq_length: 512\n"
    ).finds("error", "recipe.yaml: max_seq_length", "0.20.0", "1.16.0"),
    admitting("ZC840", "the last that has it", "trl", "trl: 0.19.1", "packing: true\nmax_seq_length: 512\n"),
    admitting("ZC840", "some have it", "trl", "trl: '>=0.19.1'", "packing: true\nmax_seq_length: 512\n")
    .finds("warning", "recipe.yaml: max_seq_length", "0.20.0", "0.20.0", "0.19.1")
    .says("from TRL 0.20.0 on; declared: >=0.19.1")
    .becomes(),
    admitting("ZC840", "certain", "trl", "trl: '>=0.20'", "packing: true\nmax_seq_length: 512\n")
    .finds("error", "recipe.yaml: max_seq_length", "0.20.0", "0.20")
    .becomes("max_length: 512\n", safe=True),
    admitting("ZC840", "before there was such a config", "trl", "trl: 0.8.6", "packing: true\nmax_seq_length: 512\n"),
    admitting("ZC865", "TRL's, too early", "trl", "trl: 0.15.2", "packing: true\nmax_length: 512\n").finds(
        "error", "recipe.yaml: max_length", "0.16.0", "0.15.2", "0.16.0"
    ),
    trl("ZC840", "the new name stands there, too", "sft", "max_length: 512\nmax_seq_length: 512\n").finds(
        "warning", "recipe.yaml: max_seq_length", "0.20.0", "1.16.0"
    ),
    trl(
        "ZC840",
        "an argument of transformers, which another rule tells",
        "sft",
        "packing: true\nevaluation_strategy: epoch\n",
    ),
    trains("ZC840", "a recipe of the Trainer", "max_seq_length: 512\n"),
    trains("ZC841", "eight letters", "max_stps: 2\n"),
    trains("ZC841", "nine letters", "max_stepz: 2\n", recipe="output_dir: out\nper_device_train_batch_size: 1\n").finds(
        "warning", "recipe.yaml: max_stepz"
    ),
    trains("ZC841", "a plural", "learning_rates: 1.0e-5\n"),
    trains("ZC841", "a singular", "logging_step: 5\n"),
    trains("ZC841", "eleven letters, two away", "lerning_rat: 1.0e-5\n"),
    trains("ZC841", "twelve letters, two away", "lerning_rats: 1.0e-5\n").finds("warning", "recipe.yaml: lerning_rats"),
    trains("ZC841", "twelve letters, three away", "lerming_rats: 1.0e-5\n"),
    trains("ZC841", "the right name stands there, too", "learning_rate: 1.0e-5\nlearning_rtae: 1.0e-5\n")
    .finds("warning", "recipe.yaml: learning_rtae")
    .says("`learning_rate` is written too")
    .becomes(),
    trains("ZC841", "a list, which the argument does not take", "learning_rtae: [1.0e-5]\n")
    .finds("warning", "recipe.yaml: learning_rtae")
    .becomes(),
    trains("ZC841", "a second one beside the first", "learning_rate: 1.0e-5\nlearning_rate2: 1.0e-5\n"),
    trl("ZC841", "an argument of GRPO alone", "grpo", "num_genertions: 4\nmax_completion_length: 64\n").finds(
        "warning", "recipe.yaml: num_genertions"
    ),
    trl("ZC841", "an argument of GRPO alone, for SFT", "sft", "num_genertions: 4\npacking: true\n"),
    trains("ZC841", "a name of TRL's", "max_length: 512\n"),
    trains("ZC841", "near by chance", "lora_rank: 16\n"),
    trains("ZC841", "a letter too many, in capitals", "learning_Rate: 1.0e-5\n").finds(
        "warning", "recipe.yaml: learning_Rate"
    ),
    trains("ZC841", "another program's recipe", FOREIGN + "learning_rtae: 1.0e-5\n"),
    near("ZC842", "a recipe of the Trainer", ("max_length: 512\npacking: true\n", ""), consumer="transformers"),
    admitting("ZC842", "no line", "trl", "trl: 1.16.0", "max_length: 512\npacking: true\n"),
    trl("ZC843", "one of the losses", "dpo", "loss_type: [sigmoid, apo_zero]\n"),
    trl("ZC843", "a way of packing", "sft", "packing: true\npacking_strategy: wrapped\n"),
    trl("ZC843", "another trainer", "grpo", "num_generations: 2\nloss_type: df\n"),
    trl("ZC843", "a word of an older release", "sft", "packing: true\npacking_strategy: ffd\n").finds(
        "note", "recipe.yaml: ffd"
    ),
    admitting(
        "ZC843", "no admitted release has the word", "trl", "trl: 1.16.0", "packing: true\npacking_strategy: ffd\n"
    ).finds("error", "recipe.yaml: ffd"),
    trl("ZC843", "nothing near", "sft", "packing: true\npacking_strategy: zigzag\n").finds(
        "error", "recipe.yaml: zigzag"
    ),
    trl("ZC847", "4 bit alone", "sft", "packing: true\nload_in_4bit: true\nload_in_8bit: false\n"),
    trl("ZC847", "8 bit alone", "sft", "packing: true\nload_in_4bit: false\nload_in_8bit: true\n"),
    trains("ZC847", "a script of your own", "load_in_4bit: true\nload_in_8bit: true\n"),
)

TRL_OPTIONS = (
    trl("ZC844", "no smoothing, said", "dpo", "loss_type: exo_pair\nlabel_smoothing: 0.0\n").finds(
        "error", "recipe.yaml: loss_type: exo_pair", 0, "1.0e-3", also=("recipe.yaml: label_smoothing: 0.0",)
    ),
    trl("ZC844", "the divergence of all losses", "dpo", "loss_type: apo_zero\nf_divergence_type: reverse_kl\n"),
    trl("ZC844", "a loss that has it", "dpo", "loss_type: hinge\nf_divergence_type: js_divergence\n"),
    trl(
        "ZC844",
        "an unknown loss, which another rule tells",
        "dpo",
        "loss_type: apo_zro\nf_divergence_type: js_divergence\n",
    ),
    trl(
        "ZC844", "one of two losses", "dpo", "loss_type: [sigmoid, apo_zero]\nf_divergence_type: js_divergence\n"
    ).finds(
        "error", "recipe.yaml: f_divergence_type: js_divergence", also=("recipe.yaml: loss_type: [sigmoid, apo_zero]",)
    ),
    trl("ZC844", "another trainer", "sft", "loss_type: exo_pair\npacking: true\n"),
    trl(
        "ZC844",
        "all losses at once",
        "dpo",
        f"loss_type: [{', '.join(DPO_LOSSES)}]\nlabel_smoothing: 0.1\nf_divergence_type: js_divergence\n",
    ).finds(
        "error",
        "recipe.yaml: f_divergence_type: js_divergence",
        also=(f"recipe.yaml: loss_type: [{', '.join(DPO_LOSSES)}]",),
    ),
    trl("ZC845", "one of each", "dpo", "loss_type: sigmoid\nloss_weights: [1.0]\n"),
    trl("ZC845", "two weights for one loss", "dpo", "loss_type: sigmoid\nloss_weights: [1.0, 0.5]\n").finds(
        "error", "recipe.yaml: loss_weights: [1.0, 0.5]", 2, 1, also=("recipe.yaml: loss_type: sigmoid",)
    ),
    trl("ZC845", "two weights for the default", "dpo", "loss_weights: [1.0, 0.5]\n").finds(
        "error", "recipe.yaml: loss_weights: [1.0, 0.5]", 2, 1
    ),
    trl("ZC845", "no weights", "dpo", "loss_type: [sigmoid, sft]\nloss_weights: null\n"),
    trl("ZC846", "one alone", "dpo", "precompute_ref_log_probs: true\nsync_ref_model: false\n"),
    trains("ZC846", "a script of your own", "precompute_ref_log_probs: true\nsync_ref_model: true\n"),
    trl("ZC848", "no length to enforce", "sft", "padding_free: true\nmax_length: null\n"),
    trl("ZC848", "not packed, said", "sft", "padding_free: true\npacking: false\nmax_length: 512\n").finds(
        "error", "recipe.yaml: padding_free: true", 512, also=("recipe.yaml: max_length: 512",)
    ),
    trl("ZC848", "padded", "sft", "padding_free: false\n"),
    trl("ZC848", "another trainer", "dpo", "padding_free: true\nbeta: 0.1\n"),
    trl("ZC849", "TRL's default", "sft", "packing: true\n"),
    trl("ZC849", "not packed", "sft", "packing: false\nmax_length: null\n"),
    admitting(
        "ZC850", "the first that lost it", "trl", "trl: 0.29.0", "padding_free: true\nprecompute_ref_log_probs: true\n"
    ).finds("warning", "recipe.yaml: padding_free: true", "0.29"),
    admitting(
        "ZC850", "the last that had it", "trl", "trl: 0.28.0", "padding_free: true\nprecompute_ref_log_probs: true\n"
    ),
    admitting(
        "ZC850",
        "an older release is possible",
        "trl",
        "trl: '>=0.28'",
        "padding_free: true\nprecompute_ref_log_probs: true\n",
    ).finds("warning", "recipe.yaml: padding_free: true", "0.29", "0.29.0", "0.28"),
    trl("ZC850", "another trainer", "sft", "padding_free: true\npacking: true\n"),
    trl("ZC851", "switched off on purpose", "sft", "packing: true\nuse_peft: false\nlora_r: 16\n"),
    trl("ZC851", "off, like LoRA", "sft", "packing: true\nuse_dora: false\nlora_target_modules: null\n"),
    trl("ZC851", "on without LoRA", "sft", "packing: true\nuse_dora: true\n").finds(
        "error", "recipe.yaml: use_dora: true"
    ),
    trains("ZC851", "a script of your own", "lora_r: 16\n"),
    trl("ZC852", "no variables", "sft", "packing: true\n"),
    trl("ZC852", "a text", "sft", "packing: true\nenv: WANDB_PROJECT=sft\n").finds(
        "error", "recipe.yaml: WANDB_PROJECT=sft"
    ),
    trl("ZC852", "words that are no variables", "sft", "packing: true\nenv: [my project]\n")
    .finds("error", "recipe.yaml: [my project]")
    .becomes(),
    trl("ZC852", "one that is none", "sft", "packing: true\nenv: [A=1, my project]\n")
    .finds("error", "recipe.yaml: [A=1, my project]")
    .becomes(),
    trl("ZC852", "two variables", "sft", "packing: true\nenv: [A=1, B=x]\n")
    .finds("error", "recipe.yaml: [A=1, B=x]")
    .becomes('env: {A: "1", B: "x"}\n', safe=True),
    trl("ZC852", "an empty list", "sft", "packing: true\nenv: []\n").finds("error", "recipe.yaml: []").becomes(),
    trains("ZC852", "a script of your own", "env: [WANDB_PROJECT=sft]\n"),
)

GROUPS = "num_generations: %s\n"

BATCHES = (
    trl("ZC855", "one group", "grpo", "gradient_accumulation_steps: 4\nnum_generations: 8\n", processes=2),
    trl("ZC855", "GRPO's default group", "grpo", "gradient_accumulation_steps: 4\nlog_completions: false\n").finds(
        "error",
        "recipe.yaml: per_device_train_batch_size: 1",
        1,
        1,
        4,
        4,
        8,
        8,
        also=("recipe.yaml: gradient_accumulation_steps: 4",),
    ),
    trl("ZC855", "RLOO's default group", "rloo", "gradient_accumulation_steps: 3\nlog_completions: false\n").finds(
        "error",
        "recipe.yaml: per_device_train_batch_size: 1",
        1,
        1,
        3,
        3,
        2,
        6,
        also=("recipe.yaml: gradient_accumulation_steps: 3",),
    ),
    trl(
        "ZC855",
        "three steps of two for groups of four",
        "grpo",
        "gradient_accumulation_steps: 3\nnum_generations: 4\n",
        batch=2,
    ).finds(
        "error",
        "recipe.yaml: num_generations: 4",
        2,
        1,
        3,
        6,
        4,
        6,
        also=("recipe.yaml: per_device_train_batch_size: 2", "recipe.yaml: gradient_accumulation_steps: 3"),
    ),
    trl("ZC855", "the batch of generation is written", "grpo", "num_generations: 8\ngeneration_batch_size: 4\n"),
    trl("ZC855", "no groups, which another rule tells", "grpo", "num_generations: 0\n"),
    trl("ZC855", "another trainer", "dpo", "beta: 0.1\ngradient_accumulation_steps: 3\n"),
    of(
        "ZC855", "processes not known", {"recipe.yaml": RECIPE + "num_generations: 8\nsteps_per_generation: 2\n"}, "trl"
    ),
    # TRL 0.15 and 0.16 count one micro batch of all processes, 0.17 the accumulation steps, too; 0.14 looks at none
    at_trl("0.14.0", trl("ZC855", "before groups had to be whole", "grpo", EIGHT_STEPS, processes=7)),
    at_trl("0.16.1", trl("ZC855", "a group over all processes", "grpo", EIGHT_STEPS, processes=8)),
    at_trl("0.17.0", trl("ZC855", "a group over the steps", "grpo", EIGHT_STEPS, processes=7)),
    at_trl(">=0.16,<0.18", trl("ZC855", "steps count in one of the releases", "grpo", EIGHT_STEPS, processes=7)),
    at_trl("0.16.1", trl("ZC855", "RLOO before it held whole groups", "rloo", "num_generations: 8\n", processes=7)),
    *(
        at_trl(release, trl("ZC855", f"steps do not count at {release}", "grpo", EIGHT_STEPS, processes=7))
        .finds(
            "error",
            "recipe.yaml: num_generations: 8",
            1,
            7,
            7,
            8,
            8,
            also=("recipe.yaml: per_device_train_batch_size: 1",),
        )
        .becomes(RECIPE.replace("size: 1", "size: 8") + EIGHT_STEPS)
        for release in ("0.15.0", "0.16.1")
    ),
    at_trl("0.17.0", trl("ZC855", "no group over three steps", "grpo", THREE_STEPS, processes=7)).finds(
        "error",
        "recipe.yaml: num_generations: 8",
        1,
        7,
        3,
        21,
        8,
        8,
        also=("recipe.yaml: per_device_train_batch_size: 1", "recipe.yaml: gradient_accumulation_steps: 3"),
    ),
    at_trl("0.14.0", trl("ZC859", "before groups had a least size", "grpo", "num_generations: 1\n", processes=2)),
    at_trl("0.15.0", trl("ZC859", "a group of one", "grpo", "num_generations: 1\n", processes=2)).finds(
        "error", "recipe.yaml:4:18: 1", 1, 2, 2
    ),
    at_trl("0.14.0", trl("ZC858", "before it was checked", "grpo", EVALUATED, processes=8)),
    at_trl("0.15.0", trl("ZC858", "three of each process", "grpo", EVALUATED, processes=7)).finds(
        "error",
        "recipe.yaml: per_device_eval_batch_size: 3",
        3,
        7,
        8,
        8,
        also=("recipe.yaml: num_generations: 8", "recipe.yaml: eval_strategy: steps"),
    ),
    trl("ZC856", "the batch alone", "grpo", "num_generations: 2\ngeneration_batch_size: 4\n"),
    trl(
        "ZC856",
        "nothing in one of them",
        "grpo",
        "num_generations: 2\ngeneration_batch_size: 4\nsteps_per_generation: null\n",
    ),
    trl(
        "ZC857",
        "whole groups, but not of the processes",
        "grpo",
        "num_generations: 2\ngeneration_batch_size: 6\n",
        processes=4,
    ).finds(
        "error",
        "recipe.yaml: generation_batch_size: 6",
        6,
        1,
        4,
        2,
        8,
        also=("recipe.yaml: per_device_train_batch_size: 1", "recipe.yaml: num_generations: 2"),
    ),
    trl(
        "ZC857",
        "all processes, but no whole groups",
        "grpo",
        "num_generations: 3\ngeneration_batch_size: 8\n",
        processes=2,
    ).finds(
        "error",
        "recipe.yaml: generation_batch_size: 8",
        8,
        1,
        2,
        3,
        12,
        also=("recipe.yaml: per_device_train_batch_size: 1", "recipe.yaml: num_generations: 3"),
    ),
    trl("ZC857", "the least", "grpo", "num_generations: 3\ngeneration_batch_size: 6\n", processes=2),
    trl(
        "ZC857",
        "steps beside it, which another rule tells",
        "grpo",
        "num_generations: 3\ngeneration_batch_size: 8\nsteps_per_generation: 4\n",
    ),
    trl("ZC857", "nothing", "grpo", "num_generations: 3\ngeneration_batch_size: 0\n"),
    near("ZC858", "never evaluated", ("eval_strategy: steps", "eval_strategy: 'no'")),
    near("ZC858", "the default batch", ("per_device_eval_batch_size: 8\n", "")).finds(
        "error", "recipe.yaml: num_generations: 6", 8, 1, 6, 12, also=("recipe.yaml: eval_strategy: steps",)
    ),
    near(
        "ZC858",
        "other groups for the evaluation",
        ("num_generations: 6", "num_generations: 6\nnum_generations_eval: 4"),
    ),
    near(
        "ZC858", "other groups that do not fit", ("num_generations: 6", "num_generations: 8\nnum_generations_eval: 3")
    ).finds(
        "error",
        "recipe.yaml: per_device_eval_batch_size: 8",
        8,
        1,
        3,
        9,
        also=("recipe.yaml: num_generations: 8", "recipe.yaml: eval_strategy: steps"),
    ),
    near(
        "ZC858",
        "groups over two processes",
        ("--nproc_per_node 1", "--nproc_per_node 2"),
        ("eval_batch_size: 8", "eval_batch_size: 3"),
    ),
    near(
        "ZC858",
        "no groups over two processes",
        ("--nproc_per_node 1", "--nproc_per_node 2"),
        ("eval_batch_size: 8", "eval_batch_size: 4"),
    ).finds(
        "error",
        "recipe.yaml: per_device_eval_batch_size: 4",
        4,
        2,
        6,
        6,
        also=("recipe.yaml: num_generations: 6", "recipe.yaml: eval_strategy: steps"),
    ),
    near("ZC858", "processes not known", ("--nproc_per_node 1", "--nproc_per_node $N")),
    trl("ZC859", "a default that is enough", "grpo", "gradient_accumulation_steps: 8\n"),
    trl("ZC859", "none", "rloo", "num_generations: 0\n").finds("error", "recipe.yaml: 0", 0, 2, 2),
    trl("ZC860", "another trainer", "sft", "packing: true\nauto_find_batch_size: true\n"),
    trl("ZC861", "nowhere to", "grpo", "num_generations: 2\nlog_completions: false\nlog_completions_hub_repo: null\n"),
    trl(
        "ZC861", "switched off", "grpo", "num_generations: 2\nlog_completions: false\nlog_completions_hub_repo: me/c\n"
    ).finds("error", "recipe.yaml: log_completions_hub_repo: me/c", also=("recipe.yaml: log_completions: false",)),
)

CALL = (
    "from transformers import TrainingArguments\nfrom trl import SFTConfig, SFTTrainer\n\n"
    'args = %s(output_dir="out", per_device_train_batch_size=1, max_seq_length=512)\n'
    'SFTTrainer(model="org/name", args=args, train_dataset=data).train()\n'
)
CALLS = (
    of("ZC841", "a slip in a call", {"train.py": CALL.replace("max_seq_length=512", "learning_rat=1e-5") % "SFTConfig"})
    .finds("warning", "train.py: 1e-5")
    .says("there is no argument `learning_rat`; `learning_rate` is one, and SFTConfig stops", "write learning_rate"),
    of("ZC841", "nothing near in a call", {"train.py": CALL.replace("max_seq_length", "own_switch") % "SFTConfig"}),
    at_trl("1.16.0", of("ZC840", "a call of TRL's class", {"train.py": CALL % "SFTConfig"})).finds(
        "error", "train.py: 512", "0.20.0", "1.16.0"
    ),
    at_trl("0.19.1", of("ZC840", "a call while it was there", {"train.py": CALL % "SFTConfig"})),
    at_trl("1.16.0", of("ZC840", "a call of another class", {"train.py": CALL % "TrainingArguments"})),
)

ARGS = "train.py:6:45: args"
CUT = (
    near("ZC873", "made in the call", ("args=args", 'args=TrainingArguments(output_dir="o")')).finds(
        "note", 'train.py: TrainingArguments(output_dir="o")', 1024
    ),
    near(
        "ZC873",
        "TRL's own arguments",
        ("import TrainingArguments", "import AutoTokenizer"),
        ("import SFTTrainer", "import SFTConfig as TrainingArguments, SFTTrainer"),
    ),
    near("ZC873", "another trainer", ("import SFTTrainer", "import DPOTrainer as SFTTrainer")),
    near(
        "ZC873",
        "the Trainer",
        ("import TrainingArguments", "import Trainer as SFTTrainer, TrainingArguments"),
        ("from trl import SFTTrainer\n", ""),
    ),
    near("ZC873", "no arguments, whose default is TRL's", (" args=args,", "")),
    near(
        "ZC873",
        "a trainer of its own",
        ("args = ", "class Own(SFTTrainer): ...\n\nargs = "),
        ("= SFTTrainer(", "= Own("),
    ),
    near(
        "ZC873",
        "arguments of its own",
        ("args = Tr", "class Own(TrainingArguments): ...\n\nargs = Own(output_dir=1)\nother = Tr"),
    ),
    near("ZC873", "a length as older releases took it", ("args=args", "args=args, max_seq_length=512")),
    near("ZC873", "another keyword of older releases", ("args=args", "args=args, packing=True")),
    near("ZC873", "a keyword of today's", ("args=args", "args=args, peft_config=None")).finds("note", ARGS, 1024),
    near("ZC873", "unsloth replaces the trainer", ("from datasets", "import unsloth\nfrom datasets")),
    near("ZC873", "0.14", versions={"trl": "==0.14.0"}),
    near("ZC873", "0.15", versions={"trl": "==0.15.0"}).finds("note", ARGS, 1024),
    near("ZC873", "before and after", versions={"trl": ">=0.14"}).finds("note", ARGS, 1024),
)

EIGHT = ("load_in_8bit=True, use_flash_attention_2=True", "load_in_8bit=True")
FLASH = ("load_in_8bit=True, use_flash_attention_2=True", "use_flash_attention_2=True")
ADMITS = "requirements.txt: transformers>=4.40"
LOADS = (
    near("ZC878", "the last that takes it", EIGHT, versions={"transformers": "==4.57.6"}),
    near("ZC878", "the first that refuses it", EIGHT, versions={"transformers": "==5.0.0"}).finds(
        "error", "train.py: True", "5.0", "1", "5.0.0", also=(ADMITS,)
    ),
    near("ZC878", "flash attention was lost before", FLASH, versions={"transformers": "==4.52.4"}),
    near("ZC878", "by 4.53", FLASH, versions={"transformers": "==4.53.0"}).finds(
        "error", "train.py: True", "4.53", "1", "4.53.0", also=(ADMITS,)
    ),
    near("ZC878", "one of the two", versions={"transformers": "==4.57.6"})
    .finds("error", "train.py:3:100: True", "4.53", "1", "4.57.6", also=(ADMITS,))
    .says('write attn_implementation="flash_attention_2" instead of use_flash_attention_2'),
    near("ZC878", "older ones alone", ("transformers>=4.40", "transformers>=4.40,<4.53")),
    near("ZC878", "switched off", EIGHT, ("=True)\n", "=False)\n"))
    .finds("warning", "train.py: False", "5.0", "5.0.0", "1", "4.40", also=(ADMITS,))
    .says("leave load_in_8bit out"),
    near("ZC878", "what it takes", EIGHT, ("load_in_8bit=", "low_cpu_mem_usage=")),
    near("ZC878", "an attribute of the config", EIGHT, ("load_in_8bit=", "use_cache=")),
    near("ZC878", "in a branch", ("model = Auto", "model = None\nif flag:\n    model = Auto")),
    near("ZC878", "code of the model's", ("True)\n", "True, trust_remote_code=True)\n")),
)

OWN_ACCELERATOR = """
class Own(Trainer):
    def create_accelerator_and_postprocess(self):
        self.accelerator = Accelerator()

Own("""


def pins(why: str, transformers: str, accelerate: str, *swaps: tuple[str, str]) -> Near:
    pair = (f"transformers{transformers}", f"accelerate{accelerate}")
    return near("ZC879", why, ("transformers==4.37.2\naccelerate>=1.0", "\n".join(pair)), *swaps)


def clashing(why: str, transformers: str, accelerate: str, severity: Literal["error", "warning"] = "error") -> Near:
    of, beside = transformers.lstrip("=>"), accelerate.lstrip("=>")
    named = (of, beside) if severity == "error" else (of,)
    return pins(why, transformers, accelerate).finds(
        severity,
        f"requirements.txt: transformers{transformers}",
        *(*named, 1, of, 2, beside, "1.0.0", "4.40.0"),
        also=(f"requirements.txt: accelerate{accelerate}",),
    )


CLASHES = (
    pins("the last that does not pass it", "==4.31.0", "==1.0.0"),
    clashing("the first that passes it", "==4.32.0", "==1.0.0").says("dispatch_batches", "`Trainer()` stops"),
    clashing("the last that passes it", "==4.39.3", "==1.0.0"),
    pins("the first that passes it otherwise", "==4.40.0", "==1.0.0"),
    pins("the last that takes it", "==4.39.3", "==0.34.2"),
    clashing("a new install takes it no longer", "==4.39.3", ">=0.21", "warning"),
    pins("an installer keeps them apart", "==4.34.1", ""),
    pins("a new install of both", ">=4.37", ">=0.21"),
    pins("held back", "==4.37.2", ">=0.21,<1.0"),
    pins("a commit", "==4.37.2", " @ git+https://github.com/huggingface/accelerate"),
    pins("an Accelerator of its own", "==4.37.2", "==1.0.0", ("\nTrainer(", OWN_ACCELERATOR)),
    pins("another loop", "==4.37.2", "==1.0.0", ("\nTrainer(", "\nOwn(")),
)

TABLE = (
    *CALLS,
    *CUT,
    *LOADS,
    *CLASHES,
    *RELEASES,
    *VALUES,
    *ARGUMENTS,
    *MODEL,
    *SCHEDULES,
    *STEPS,
    *TRL_NAMES,
    *TRL_OPTIONS,
    *BATCHES,
)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
