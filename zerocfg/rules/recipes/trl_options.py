"""ZC8xx: TRL's recipes: options that do not go together. See also :mod:`trl_batches`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.versions import only_from
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.argument_reader import reader
from zerocfg.rules.arguments import TRAINING_ARGUMENTS, ArgumentsOfRun, arguments_of
from zerocfg.rules.effects import recipe_data
from zerocfg.rules.key import recipe
from zerocfg.rules.recipes.trl_recipe import DPO_LOSSES
from zerocfg.run.model import Run


@rule("ZC844", "loss-option-missing", Severity.ERROR, arguments_of("DPOConfig"), versions="trl>=0.29")
def loss_option_missing(given: ArgumentsOfRun) -> Iterator[Finding]:
    loss = given.value("loss_type", "sigmoid")
    losses = {str(item) for item in (loss if isinstance(loss, list) else [loss])}
    if "exo_pair" in losses and given.number("label_smoothing", 0.0) == 0:
        yield given.written("loss_type", "label_smoothing").finding(
            "the loss `exo_pair` needs a `label_smoothing` above 0; DPOTrainer stops without it",
            "write `label_smoothing: 1.0e-3`",
            given.set("label_smoothing", "1.0e-3", "write the smoothing of the paper", after="loss_type"),
        )
    plain = {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}
    divergence = given.word("f_divergence_type", "reverse_kl")
    if divergence not in (None, "reverse_kl") and losses <= set(DPO_LOSSES) and not losses <= plain:
        yield given.written("f_divergence_type", "loss_type").finding(
            f"`f_divergence_type: {divergence}` does not go with the loss {', '.join(sorted(losses - plain))}; "
            "DPOTrainer stops at it",
            "remove it, or take another loss",
            given.drop("f_divergence_type", "remove f_divergence_type"),
            versions="trl>=1.10",
        )


@rule("ZC845", "loss-weights-length", Severity.ERROR, arguments_of("DPOConfig"), versions="trl>=0.22.2")
def loss_weights_length(given: ArgumentsOfRun) -> Iterator[Finding]:
    losses, weights = given.value("loss_type", ["sigmoid"]), given.value("loss_weights")
    losses = [losses] if isinstance(losses, str) else losses
    if not isinstance(losses, list) or not isinstance(weights, list):
        return
    if len(losses) != len(weights):
        yield given.written("loss_weights", "loss_type").finding(
            f"{len(weights)} `loss_weights` for {len(losses)} losses; DPOConfig stops at it",
            "write one weight for each loss",
        )


@rule("ZC846", "reference-precomputed-and-moving", Severity.ERROR, arguments_of("DPOConfig"))
def reference_precomputed_and_moving(given: ArgumentsOfRun) -> Iterator[Finding]:
    names = ("precompute_ref_log_probs", "sync_ref_model")
    if all(given.value(name) is True for name in names):
        yield given.written(*names).finding(
            "`precompute_ref_log_probs` needs a reference model that stays, and `sync_ref_model` moves it; DPOTrainer "
            "stops at it",
            "switch one of the two off",
            given.set("precompute_ref_log_probs", "false", "compute the reference at each step"),
        )


@rule("ZC847", "two-quantizations", Severity.ERROR, TRAINING_ARGUMENTS)
def two_quantizations(given: ArgumentsOfRun) -> Iterator[Finding]:
    names = ("load_in_8bit", "load_in_4bit")
    if given.reader == "trl" and all(given.value(name) is True for name in names):
        yield given.written(*names).finding(
            "`load_in_4bit` and `load_in_8bit` exclude each other; TRL stops at it",
            "keep one of the two",
            given.set("load_in_8bit", "false", "load in 4 bit"),
        )


@rule("ZC848", "padding-free-not-cut", Severity.ERROR, arguments_of("SFTConfig"), versions="trl>=1.0")
def padding_free_not_cut(given: ArgumentsOfRun) -> Iterator[Finding]:
    limit = given.number("max_length", 1024)
    if given.value("padding_free") is not True or limit is None:
        return
    if given.value("packing", False) is False:
        yield given.written("padding_free", "max_length").finding(
            f"`padding_free` without packing cuts nothing to `max_length` ({limit:g}); SFTTrainer stops at it",
            "write `packing: true`, or `max_length: null`",
            given.set("packing", "true", "cut the samples by packing them", after="padding_free"),
        )


@rule("ZC849", "packing-without-length", Severity.ERROR, arguments_of("SFTConfig"))
def packing_without_length(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.value("packing") is True and given.value("max_length", 1024) is None:
        yield given.written("max_length", "packing").finding(
            "`packing: true` needs a `max_length`, which is null; SFTTrainer stops at it",
            "write a number of tokens",
            given.set("max_length", "1024", "write TRL's default"),
        )


@rule("ZC850", "padding-free-unavailable", Severity.WARNING, arguments_of("DPOConfig"), versions="trl>=0.29")
def padding_free_unavailable(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.value("padding_free") is True:
        certain = only_from(given.run.declared("trl"), "0.29")
        yield given.written("padding_free").finding(
            "`padding_free: true` is not used: DPOTrainer pads its batches all the same since TRL 0.29",
            "write `padding_free: false`",
            given.set("padding_free", "false", "say what happens", safe=certain),
        )


_LORA = (
    "lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters lora_modules_to_save use_rslora "
    "use_dora".split()
)


@rule("ZC851", "lora-without-peft", Severity.ERROR, TRAINING_ARGUMENTS)
def lora_without_peft(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.reader != "trl" or given.given("use_peft") is not None or not _model_config(given.run):
        return
    stated = [(name, setting) for name in _LORA if (setting := given.given(name)) is not None]
    names = [name for name, setting in stated if setting.origin.file is not None and setting.value not in (None, False)]
    if names:
        yield given.written(*names).finding(
            f"`{names[0]}` has no effect: `use_peft` is not written, so TRL trains the whole model",
            "write `use_peft: true`, or remove the LoRA settings",
            given.set("use_peft", "true", "train with LoRA"),
        )


def _model_config(run: Run) -> bool:
    """Whether TRL's ModelConfig takes these: its script parses it, or a recipe names a data set as TRL does."""
    if run.script is not None:
        return "trl.ModelConfig" in run.script.parsed
    data_sets = {"dataset_name", "dataset_mixture", "datasets"}
    return run.recipe_reader == "trl" or not data_sets.isdisjoint({*recipe_data(run), *run.arguments})


@rule("ZC852", "recipe-env-not-mapping", Severity.ERROR, WHOLE_RUN)
def recipe_env_not_mapping(run: Run) -> Iterator[Finding]:
    key = recipe(run, "env")
    if reader(run) != "trl" or not key or isinstance(key.value, dict):
        return
    pairs = [str(item.value).partition("=") for item in key] if isinstance(key.value, list) else []
    plain = bool(pairs) and all(_VARIABLE.fullmatch("".join(pair)) for pair in pairs)
    text = "{" + ", ".join(f'{name}: "{content}"' for name, _, content in pairs) + "}"
    yield key.finding(
        "`env` must be a mapping of names to values; TrlParser stops at it",
        "write NAME: value",
        fix=key.replace(text, "write a mapping") if plain else None,
        where="value",
    )


_VARIABLE = re.compile(r"[A-Za-z_]\w*=[\w./:-]*", re.ASCII)
