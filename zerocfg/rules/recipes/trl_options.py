"""ZC8xx: TRL's recipes: options of SFT and DPO that do not go together. See also :mod:`trl_batches`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.versions import only_from
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import (
    drop_argument,
    given,
    methods,
    number,
    reader,
    set_argument,
    value,
    word,
    written,
)
from zerocfg.rules.effects import recipe_data
from zerocfg.rules.fixes import edited
from zerocfg.rules.recipes.trl_recipe import DPO_LOSSES
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.source.edit import replace_value


@rule("ZC844", "loss-option-missing", Severity.ERROR, versions="trl>=0.29")
def loss_option_missing(run: Run) -> Iterator[Finding]:
    if methods(run) != {"DPOConfig"}:
        return
    held = value(run, "loss_type", "sigmoid")
    losses = {str(item) for item in (held if isinstance(held, list) else [held])}
    if "exo_pair" in losses and number(run, "label_smoothing", 0.0) == 0:
        location, related = written(run, "loss_type", "label_smoothing")
        yield Finding(
            location,
            "the loss `exo_pair` needs a `label_smoothing` above 0; DPOTrainer stops without it",
            "write `label_smoothing: 1.0e-3`",
            related,
            set_argument(run, "label_smoothing", "1.0e-3", "write the smoothing of the paper", after="loss_type"),
        )
    plain = {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}
    divergence = word(run, "f_divergence_type", "reverse_kl")
    if divergence not in (None, "reverse_kl") and losses <= set(DPO_LOSSES) and not losses <= plain:
        location, related = written(run, "f_divergence_type", "loss_type")
        yield Finding(
            location,
            f"`f_divergence_type: {divergence}` does not go with the loss {', '.join(sorted(losses - plain))}; "
            "DPOTrainer stops at it",
            "remove it, or take another loss",
            related,
            drop_argument(run, "f_divergence_type", "remove f_divergence_type"),
            versions="trl>=1.10",
        )


@rule("ZC845", "loss-weights-length", Severity.ERROR, versions="trl>=0.29")
def loss_weights_length(run: Run) -> Iterator[Finding]:
    if methods(run) != {"DPOConfig"}:
        return
    losses, weights = value(run, "loss_type", ["sigmoid"]), value(run, "loss_weights")
    losses = [losses] if isinstance(losses, str) else losses
    if not isinstance(losses, list) or not isinstance(weights, list) or len(losses) == len(weights):
        return
    location, related = written(run, "loss_weights", "loss_type")
    yield Finding(
        location,
        f"{len(weights)} `loss_weights` for {len(losses)} losses; DPOConfig stops at it",
        "write one weight for each loss",
        related,
    )


@rule("ZC846", "reference-precomputed-and-moving", Severity.ERROR)
def reference_precomputed_and_moving(run: Run) -> Iterator[Finding]:
    if methods(run) != {"DPOConfig"}:
        return
    if value(run, "precompute_ref_log_probs") is not True or value(run, "sync_ref_model") is not True:
        return
    location, related = written(run, "precompute_ref_log_probs", "sync_ref_model")
    yield Finding(
        location,
        "`precompute_ref_log_probs` needs a reference model that stays, and `sync_ref_model` moves it; DPOTrainer "
        "stops at it",
        "switch one of the two off",
        related,
        set_argument(run, "precompute_ref_log_probs", "false", "compute the reference at each step"),
    )


@rule("ZC848", "padding-free-not-cut", Severity.ERROR, versions="trl>=1.0")
def padding_free_not_cut(run: Run) -> Iterator[Finding]:
    if methods(run) != {"SFTConfig"} or value(run, "padding_free") is not True:
        return
    if value(run, "packing", False) is not False or number(run, "max_length", 1024) is None:
        return
    location, related = written(run, "padding_free", "max_length")
    yield Finding(
        location,
        f"`padding_free` without packing cuts nothing to `max_length` ({number(run, 'max_length', 1024):g}); "
        "SFTTrainer stops at it",
        "write `packing: true`, or `max_length: null`",
        related,
        set_argument(run, "packing", "true", "cut the samples by packing them", after="padding_free"),
    )


@rule("ZC849", "packing-without-length", Severity.ERROR)
def packing_without_length(run: Run) -> Iterator[Finding]:
    limit = given(run, "max_length")
    if methods(run) != {"SFTConfig"} or value(run, "packing") is not True or limit is None or limit.value is not None:
        return
    location, related = written(run, "max_length", "packing")
    yield Finding(
        location,
        "`packing: true` needs a `max_length`, which is null; SFTTrainer stops at it",
        "write a number of tokens",
        related,
        set_argument(run, "max_length", "1024", "write TRL's default"),
    )


@rule("ZC850", "padding-free-unavailable", Severity.WARNING)
def padding_free_unavailable(run: Run) -> Iterator[Finding]:
    if methods(run) != {"DPOConfig"} or value(run, "padding_free") is not True:
        return
    certain = only_from(run.versions.get("trl"), VERSIONS["trl"])
    location, related = written(run, "padding_free")
    yield Finding(
        location,
        f"`padding_free: true` is not used: DPOTrainer of TRL {VERSIONS['trl']} pads its batches all the same",
        "write `padding_free: false`",
        related,
        set_argument(run, "padding_free", "false", "say what happens", safe=certain),
        None if certain or not run.versions.get("trl") else Severity.NOTE,
    )


_LORA = (
    "lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters lora_modules_to_save use_rslora "
    "use_dora".split()
)


@rule("ZC851", "lora-without-peft", Severity.ERROR)
def lora_without_peft(run: Run) -> Iterator[Finding]:
    if reader(run) != "trl" or given(run, "use_peft") is not None or not _model_config(run):
        return
    there = {name: found for name in _LORA if (found := given(run, name)) is not None and found.origin.file is not None}
    names = [name for name, found in there.items() if found.value not in (None, False)]
    if not names:
        return
    location, related = written(run, *names)
    yield Finding(
        location,
        f"`{names[0]}` has no effect: `use_peft` is not written, so TRL trains the whole model",
        "write `use_peft: true`, or remove the LoRA settings",
        related,
        set_argument(run, "use_peft", "true", "train with LoRA"),
    )


def _model_config(run: Run) -> bool:
    """Whether TRL's ModelConfig takes these: its script parses it, or a recipe names a data set as TRL does."""
    if run.script is not None:
        return "trl.ModelConfig" in run.script.parsed
    data_sets = {"dataset_name", "dataset_mixture", "datasets"}
    return run.recipe_reader == "trl" or not data_sets.isdisjoint({*recipe_data(run), *run.arguments})


@rule("ZC852", "recipe-env-not-mapping", Severity.ERROR)
def recipe_env_not_mapping(run: Run) -> Iterator[Finding]:
    data = recipe_data(run)
    held = data.get("env")
    if reader(run) != "trl" or "env" not in data or isinstance(held, dict) or run.recipe is None:
        return
    pairs = [str(item).partition("=") for item in held] if isinstance(held, list) else []
    plain = bool(pairs) and all(_VARIABLE.fullmatch("".join(pair)) for pair in pairs)
    text = "{" + ", ".join(f'{name}: "{held}"' for name, _, held in pairs) + "}"
    yield Finding(
        Location(run.recipe, ("env",), "value"),
        "`env` must be a mapping of names to values; TrlParser stops at it",
        "write NAME: value",
        fix=edited(replace_value, run.recipe, ("env",), text, why="write a mapping") if plain else None,
    )


_VARIABLE = re.compile(r"[A-Za-z_]\w*=[\w./:-]*", re.ASCII)
