"""ZC8xx: TRL's recipes: options of SFT and DPO that do not go together. See also :mod:`trl_batches`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.versions import only_from
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
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
from zerocfg.rules.effects import edited, recipe_data
from zerocfg.rules.proof import crashes, logged, shows
from zerocfg.rules.recipes.trl_recipe import DPO_LOSSES, trl_example
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.source.edit import replace_value


@rule(
    "ZC844",
    "loss-option-missing",
    Severity.ERROR,
    bad=(
        trl_example("dpo", "loss_type: exo_pair\nbeta: 0.1\n").finds(
            "error", "recipe.yaml: loss_type: exo_pair", 0, "1.0e-3"
        ),
        Example(
            trl_example("dpo", "loss_type: apo_zero\nf_divergence_type: js_divergence\n").files,
            consumer="trl",
            proof=crashes("arguments", "is only supported for the following loss types"),
        ).finds("error", "recipe.yaml: f_divergence_type: js_divergence", also=("recipe.yaml: loss_type: apo_zero",)),
    ),
    good=trl_example("dpo", "loss_type: exo_pair\nlabel_smoothing: 1.0e-3\nbeta: 0.1\n"),
    proof=crashes("arguments", "Label smoothing must be greater than 0.0 when using 'exo_pair' loss"),
    fixable=True,
    references=("trl/trainer/dpo_trainer.py@1.16.0",),
    versions="trl>=0.29",
)
def loss_option_missing(run: Run) -> Iterator[Finding]:
    """A DPO loss with an option that it needs or does not have.

    DPOTrainer looks at it after both models were loaded.

    What happens: `ValueError: Label smoothing must be greater than 0.0 when using 'exo_pair' loss`, and
    `f_divergence_type='js_divergence' is only supported for the following loss types: [...]`.

    Fix: writes the label smoothing of the paper, 1.0e-3, or removes the divergence. Both change the loss, so it is
    unsafe.
    """
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


@rule(
    "ZC845",
    "loss-weights-length",
    Severity.ERROR,
    bad=trl_example("dpo", "loss_type: [sigmoid, sft]\nloss_weights: [1.0]\n").finds(
        "error", "recipe.yaml: loss_weights: [1.0]", 1, 2, also=("recipe.yaml: loss_type: [sigmoid, sft]",)
    ),
    good=trl_example("dpo", "loss_type: [sigmoid, sft]\nloss_weights: [1.0, 0.5]\n"),
    proof=crashes("arguments", "`loss_weights` must have the same length as `loss_type`"),
    references=("trl/trainer/dpo_config.py@1.16.0",),
    versions="trl>=0.29",
)
def loss_weights_length(run: Run) -> Iterator[Finding]:
    """Several DPO losses, and another number of weights.

    The two lists belong together item by item; with a weight too few or too many the config is refused.

    What happens: `ValueError: loss_weights must have the same length as loss_type when combining multiple losses. Got
    1 weights for 2 loss types.`
    """
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


@rule(
    "ZC846",
    "reference-precomputed-and-moving",
    Severity.ERROR,
    bad=trl_example("dpo", "precompute_ref_log_probs: true\nsync_ref_model: true\n").finds(
        "error", "recipe.yaml: precompute_ref_log_probs: true", also=("recipe.yaml: sync_ref_model: true",)
    ),
    good=trl_example("dpo", "precompute_ref_log_probs: false\nsync_ref_model: true\n"),
    proof=crashes("arguments", "You cannot use `sync_ref_model=True` together with `precompute_ref_log_probs=True`"),
    fixable=True,
    references=("trl/trainer/dpo_trainer.py@1.16.0",),
)
def reference_precomputed_and_moving(run: Run) -> Iterator[Finding]:
    """The reference model's answers are computed once, and the reference model is to move along.

    Precomputed log probabilities belong to the model of the first step; a reference that follows the training would
    need new ones. DPOTrainer refuses it after the models were loaded.

    What happens: `ValueError: You cannot use sync_ref_model=True together with precompute_ref_log_probs=True.`

    Fix: switches the precomputing off, which needs the reference model in memory; unsafe.
    """
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


@rule(
    "ZC848",
    "padding-free-not-cut",
    Severity.ERROR,
    bad=trl_example("sft", "padding_free: true\n").finds("error", "recipe.yaml: padding_free: true", 1024),
    good=trl_example("sft", "padding_free: true\npacking: true\n"),
    proof=crashes("arguments", "When `padding_free=True` without packing, `max_length` is not enforced"),
    fixable=True,
    references=("trl/trainer/sft_trainer.py@1.16.0",),
    versions="trl>=1.0",
)
def padding_free_not_cut(run: Run) -> Iterator[Finding]:
    """SFT with `padding_free`, without packing, and with a `max_length` that nothing would enforce.

    `max_length` is 1024 where nobody writes it, so `padding_free: true` by itself is enough to stop the job, after the
    model was loaded.

    What happens: `ValueError: When padding_free=True without packing, max_length is not enforced. Either enable packing
    (...), provide already truncated inputs, or set max_length=None.`

    Fix: switches packing on, which cuts samples to `max_length`; samples then share a sequence, so it is unsafe.
    """
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


@rule(
    "ZC849",
    "packing-without-length",
    Severity.ERROR,
    bad=trl_example("sft", "packing: true\nmax_length: null\n").finds(
        "error", "recipe.yaml: max_length: null", also=("recipe.yaml: packing: true",)
    ),
    good=trl_example("sft", "packing: true\nmax_length: 1024\n"),
    proof=crashes("arguments", "When packing is enabled, `max_length` can't be `None`"),
    fixable=True,
    references=("trl/trainer/sft_trainer.py@1.16.0",),
)
def packing_without_length(run: Run) -> Iterator[Finding]:
    """Packing without a length to pack to.

    Packing fills sequences of `max_length` tokens; null leaves it nothing to fill. The job stops after the model was
    loaded and the data set was tokenized.

    What happens: `ValueError: When packing is enabled, max_length can't be None.`

    Fix: writes TRL's default, 1024; the length decides over memory, so it is unsafe.
    """
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


@rule(
    "ZC850",
    "padding-free-unavailable",
    Severity.WARNING,
    bad=trl_example("dpo", "padding_free: true\nbeta: 0.1\n").finds(
        "warning", "recipe.yaml: padding_free: true", "1.16.0"
    ),
    good=trl_example("dpo", "padding_free: false\nbeta: 0.1\n"),
    proof=shows(
        "arguments",
        {"log": logged("`padding_free=True` is temporarily unavailable")},
    ),
    fixable=True,
    references=("trl/trainer/dpo_trainer.py@1.16.0",),
)
def padding_free_unavailable(run: Run) -> Iterator[Finding]:
    """DPO with `padding_free`, which DPOTrainer has lost for now.

    The batches are padded to their longest sample. A batch size that was chosen for flattened batches may not fit any
    more, and the time that padding takes is back.

    What happens: `padding_free=True is temporarily unavailable after a refactor and is currently disabled. Falling back
    to standard padding`, as one warning at the start.

    Fix: writes `padding_free: false`, which is what happens anyway; unsafe while an older TRL is possible.

    When to ignore: you know it and wait for the release that has it again.
    """
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


@rule(
    "ZC851",
    "lora-without-peft",
    Severity.ERROR,
    bad=trl_example("sft", "packing: true\nlora_r: 16\nlora_alpha: 32\n").finds(
        "error", "recipe.yaml: lora_r: 16", also=("recipe.yaml: lora_alpha: 32",)
    ),
    good=trl_example("sft", "packing: true\nuse_peft: true\nlora_r: 16\nlora_alpha: 32\n"),
    proof=shows(
        "arguments",
        {"args.use_peft": (False, True)},
        extent="the switch as TRL's parser hands it on; that `get_peft_config` then returns nothing was read in "
        "the source.",
    ),
    fixable=True,
    references=("trl/trainer/model_config.py@1.16.0", "trl/trainer/utils.py@1.16.0"),
)
def lora_without_peft(run: Run) -> Iterator[Finding]:
    """LoRA's numbers are written, and `use_peft` is not: the whole model is trained.

    Full fine-tuning takes many times the memory of LoRA, and where it fits the result is a whole new model instead of a
    small adapter. The lines with `lora_` look as if they had taken care of it.

    What happens: `use_peft` is false where nobody writes it, and TRL's `get_peft_config` returns nothing then. Nothing
    is said.

    Fix: writes `use_peft: true`. What is trained changes, so it is unsafe.

    When to ignore: the script builds its LoRA config without asking `use_peft`.
    """
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


@rule(
    "ZC852",
    "recipe-env-not-mapping",
    Severity.ERROR,
    bad=trl_example("sft", "packing: true\nenv: [WANDB_PROJECT=sft]\n").finds(
        "error", "recipe.yaml: [WANDB_PROJECT=sft]"
    ),
    good=trl_example("sft", "packing: true\nenv: {WANDB_PROJECT: sft}\n"),
    proof=crashes("arguments", "`env` field should be a dict in the YAML file"),
    fixable=True,
    references=("trl/scripts/utils.py@1.16.0",),
)
def recipe_env_not_mapping(run: Run) -> Iterator[Finding]:
    """`env` of a TRL recipe is written as a list or a text, as in a compose file.

    TrlParser puts the entries into the environment before anything else, and takes a mapping only.

    What happens: `ValueError: env field should be a dict in the YAML file.`

    Fix: writes the same variables as a mapping.
    """
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

RULES = (
    lora_without_peft,
    recipe_env_not_mapping,
    loss_option_missing,
    loss_weights_length,
    reference_precomputed_and_moving,
    padding_free_not_cut,
    packing_without_length,
    padding_free_unavailable,
)
