"""ZC6xx: the training arguments `fsdp` and `fsdp_config`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument, entries
from zerocfg.rules.effects import TRAINERS, edited, effective, recipe_data, rewritten
from zerocfg.rules.fsdp.plugin import ARGUMENTS, argument_key, argument_version, fsdp_argument, recipe_example
from zerocfg.rules.proof import crashes, logged, shows
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value

_DEEPSPEED = "deepspeed: {train_micro_batch_size_per_gpu: auto, zero_optimization: {stage: 2}}\n"
_HERE = "transformers/training_args.py@5.23.0"
_BOTH = (
    "version min_num_params transformer_layer_cls_to_wrap xla xla_fsdp_v2 xla_fsdp_settings xla_fsdp_grad_ckpt "
    "cpu_offload auto_wrap_policy cpu_ram_efficient_loading state_dict_type activation_checkpointing "
    "reshard_after_forward"
).split()
_FIRST = "forward_prefetch backward_prefetch use_orig_params sync_module_states limit_all_gathers".split()
_INSTEAD = {
    "offload_params": "cpu_offload",
    "offload": "cpu_offload",
    "transformer_cls_names_to_wrap": "transformer_layer_cls_to_wrap",
    "transformer_cls_to_wrap": "transformer_layer_cls_to_wrap",
    "gradient_checkpointing": "activation_checkpointing",
}
_OPTIONS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "offload", "auto_wrap")
_POLICIES = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")


def _options(run: Run) -> tuple[list[str], Location | None]:
    """The words of a text `fsdp`, and where it stands."""
    value = fsdp_argument(run)
    if not isinstance(value, str) or not value.strip():
        return [], None
    found = argument(run, "fsdp")
    return value.split(), found.at("value") if found is not None else None


_HANDED = "what the plugin holds that the live Accelerator hands to torch."


@rule(
    "ZC620",
    "fsdp-with-deepspeed",
    Severity.ERROR,
    bad=recipe_example(
        "fsdp: true\ndeepspeed: {train_micro_batch_size_per_gpu: auto, zero_optimization: {stage: 2}}\n"
    ).finds("error", "recipe.yaml: fsdp: true", also=("recipe.yaml: deepspeed",)),
    good=recipe_example("fsdp: true\n"),
    proof=crashes("arguments", "Using --fsdp xxx together with --deepspeed is not possible"),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/trainer.py@5.23.0",),
)
def fsdp_with_deepspeed(run: Run) -> Iterator[Finding]:
    """The training arguments switch on FSDP, and DeepSpeed runs as well.

    Both shard the same parameters, gradients and optimizer; only one of them can.

    What happens: `ValueError: Using --fsdp xxx together with --deepspeed is not possible, deactivate one of those
    flags.`, in every process, when the Trainer is made. It does not matter whether DeepSpeed comes from the argument
    `deepspeed` or from accelerate's launcher.

    Fix: `fsdp` and `fsdp_config` are removed; that is a choice, DeepSpeed stays.
    """
    asked = fsdp_argument(run)
    place, by_argument = argument(run, "fsdp"), argument(run, "deepspeed")
    if not asked or asked is UNKNOWN or place is None:
        return
    if by_argument is not None and (not by_argument.held or by_argument.held is UNKNOWN):
        by_argument = None
    if not by_argument and effective(run, "engine") != "deepspeed":
        return
    yield Finding(
        place.at("entry"),
        "`fsdp` is switched on beside DeepSpeed: the Trainer stops, it can use one of them",
        "remove `fsdp`, or DeepSpeed",
        [by_argument.at()] if by_argument is not None else [],
        fix=_without(run, "fsdp", "fsdp_config") if place.origin.path else None,
    )


def _without(run: Run, *keys: str, safe: bool = False) -> Fix | None:
    """A fix that removes keys of the recipe."""
    file = run.recipe
    if file is None or file.document is None:
        return None
    try:
        edits = [edit for key in keys if key in recipe_data(run) for edit in delete_entry(file.document, (key,))]
    except ValueError:
        return None
    return Fix(f"remove {' and '.join(keys)}", tuple((file, edit) for edit in edits), safe) if edits else None


@rule(
    "ZC621",
    "fsdp-config-without-fsdp",
    Severity.ERROR,
    bad=recipe_example("fsdp_config:\n  state_dict_type: FULL_STATE_DICT\n").finds("error", "recipe.yaml: fsdp_config"),
    good=recipe_example("fsdp: true\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n"),
    proof=shows("init", {"engine.kind": ("ddp", "fsdp")}, ranks=2),
    consumers=TRAINERS,
    fixable=True,
    references=(_HERE,),
)
def fsdp_config_without_fsdp(run: Run) -> Iterator[Finding]:
    """The training arguments hold an `fsdp_config` and no `fsdp`.

    The recipe looks as if the model were sharded, and every process holds all of it.

    What happens: `fsdp_config` is looked at only where `fsdp` is true; without it the Trainer trains with plain data
    parallelism, without a word. A warning where accelerate's launcher chooses FSDP or DeepSpeed: then that one is
    used, with its own settings.

    Fix: `fsdp: true` is written; that is a choice, the section could also be left over. Under DeepSpeed the section
    is removed.

    When to ignore: the script switches FSDP on in its code.
    """
    data = recipe_data(run)
    if run.recipe is None or not isinstance(data.get("fsdp_config"), dict) or not data["fsdp_config"]:
        return
    if "fsdp" in run.arguments or data.get("fsdp") is False or data.get("fsdp"):
        return
    if not set(map(str, data["fsdp_config"])) - {"xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt", "min_num_params"}:
        return  # what transformers 4 wrote into every saved set of arguments
    launcher = run.effective.environment
    deepspeed = bool(data.get("deepspeed")) or effective(run, "engine") == "deepspeed"
    elsewhere = deepspeed or "ACCELERATE_USE_FSDP" in launcher
    why = "write fsdp: true"
    if deepspeed:
        fix = _without(run, "fsdp_config", safe=True)
    elif data.get("fsdp") is None and "fsdp" in data:
        fix = edited(replace_value, run.recipe, ("fsdp",), "true", why=why, safe=False)
    else:
        fix = edited(insert_entry, run.recipe, (), "fsdp", "true", why=why, safe=False)
    yield Finding(
        Location(run.recipe, ("fsdp_config",), "key"),
        "`fsdp_config` is not looked at without `fsdp`: "
        + ("what accelerate's launcher is told counts" if elsewhere else "every process trains the whole model"),
        "remove `fsdp_config`" if deepspeed else "write `fsdp: true`",
        fix=fix,
        severity=Severity.WARNING if elsewhere else None,
    )


@rule(
    "ZC622",
    "fsdp-config-key-unknown",
    Severity.ERROR,
    bad=(
        recipe_example("fsdp: true\nfsdp_config:\n  offload_params: true\n").finds(
            "error", "recipe.yaml: offload_params: true"
        ),
        recipe_example(
            "fsdp: true\nfsdp_config:\n  sharding_strategy: SHARD_GRAD_OP\n",
            proof=shows("arguments", {"plugin.reshard_after_forward": (True, False)}, extent=_HANDED),
        ).finds("error", "recipe.yaml: sharding_strategy: SHARD_GRAD_OP"),
    ),
    good=(
        recipe_example("fsdp: true\nfsdp_config:\n  cpu_offload: true\n"),
        recipe_example(
            "fsdp: true\nfsdp_config:\n  reshard_after_forward: false\n",
            proof=shows("arguments", {"plugin.reshard_after_forward": (True, False)}, extent=_HANDED),
        ),
    ),
    proof=shows("arguments", {"plugin.cpu_offload": (False, True)}, extent=_HANDED),
    consumers=TRAINERS,
    fixable=True,
    references=(_HERE,),
    versions=ARGUMENTS,
)
def fsdp_config_key_unknown(run: Run) -> Iterator[Finding]:
    """A key of the training argument `fsdp_config` that transformers does not know.

    The names are not those of accelerate's own `fsdp_config`, so that a key copied from there is written in good
    faith and does nothing: no offloading, say, and the job runs out of memory.

    What happens: transformers looks up the names that it knows and passes over all others without a word.
    accelerate's `offload_params` is called `cpu_offload` here, its `sharding_strategy` is `reshard_after_forward`.

    Fix: the key gets the name that transformers reads, where that one is certain.

    When to ignore: your script reads the key itself.
    """
    asked, config = fsdp_argument(run), entries(run, "fsdp_config")
    if not asked or asked is UNKNOWN or config is None:
        return
    if str(config.held.get("fsdp_version", config.held.get("version", 2))) not in ("1", "2"):
        return
    for key, value in config.held.items():
        name = key.removeprefix("fsdp_")
        if name in _BOTH or name in _FIRST:
            continue
        instead = _INSTEAD.get(name) or closest(name, (*_BOTH, *_FIRST))
        if name == "sharding_strategy":
            instead = "reshard_after_forward"
        yield Finding(
            config.at(key),
            f"transformers knows no `{key}` in `fsdp_config`: {show(value)} is dropped"
            + (f" (its name for it is `{instead}`)" if instead else ""),
            f"write `{instead}`" if instead else "remove the key",
            fix=_renamed(run, key, instead, value) if instead and config.argument.origin.path else None,
        )


def _renamed(run: Run, key: str, new: str, value: object) -> Fix | None:
    file, path = run.recipe, ("fsdp_config", key)
    if argument_key(run, new) is not None:
        return None
    if not key.endswith("sharding_strategy"):
        return edited(rename_key, file, path, new, why=f"write {new}")
    word = {"FULL_SHARD": "true", "SHARD_GRAD_OP": "false"}.get(str(value).upper())
    if word is None or argument_version(run) != "2":
        return None
    return rewritten(file, path, new, word, why=f"write {new}: {word}")


@rule(
    "ZC623",
    "fsdp-option-unknown",
    Severity.ERROR,
    bad=(
        recipe_example("fsdp: 'true'\n").finds("error", "recipe.yaml: 'true'"),
        recipe_example("fsdp: full_shard,auto_wrap\n").finds("error", "recipe.yaml: full_shard,auto_wrap"),
    ),
    good=(recipe_example("fsdp: true\n"), recipe_example("fsdp: full_shard auto_wrap\n")),
    proof=crashes("arguments", "Unknown `fsdp` option"),
    consumers=TRAINERS,
    fixable=True,
    references=(_HERE,),
    versions=ARGUMENTS,
)
def fsdp_option_unknown(run: Run) -> Iterator[Finding]:
    """The training argument `fsdp` is a text that transformers does not know.

    The argument is true or false; of the texts of older releases it takes a few words with spaces between them. A
    quoted "true" is none of them, nor is a list with commas.

    What happens: `ValueError: Unknown fsdp option: true`, in every process, when the training arguments are made.

    Fix: a quoted true or false loses its quotes; `full_shard,auto_wrap` becomes true, which is the same.
    """
    words, place = _options(run)
    unknown = [word for word in words if word.lower() not in _OPTIONS]
    if not unknown or place is None:
        return
    text = " ".join(words)
    instead = text.lower() if text.lower() in ("true", "false") else ""
    if not instead and set(text.replace(",", " ").split()) <= {"full_shard", "auto_wrap"}:
        instead = "true"
    yield Finding(
        place,
        f"`fsdp` knows no option {show(unknown[0])}: the training arguments are refused",
        f"write `fsdp: {instead or 'true'}`",
        fix=edited(replace_value, place.file, place.path, instead, why=f"write {instead}")
        if instead and place.path
        else None,
    )


@rule(
    "ZC624",
    "fsdp-option-of-version-1",
    Severity.ERROR,
    bad=(
        recipe_example("fsdp: FULL_SHARD\n").finds("error", "recipe.yaml: FULL_SHARD", 1, 2, 1),
        recipe_example("fsdp: hybrid_shard auto_wrap\n").finds("error", "recipe.yaml: hybrid_shard auto_wrap", 1, 2, 1),
    ),
    good=recipe_example("fsdp: true\n"),
    proof=crashes("arguments", "is only available with FSDP1"),
    consumers=TRAINERS,
    fixable=True,
    references=(_HERE,),
    versions=ARGUMENTS,
)
def fsdp_option_of_version_1(run: Run) -> Iterator[Finding]:
    """The training argument `fsdp` names a strategy that FSDP 2 does not have.

    transformers now takes FSDP 2 unless `fsdp_config` says otherwise, and FSDP 2 has no such strategies. Only the
    small letters of `full_shard` and `shard_grad_op` are still understood.

    What happens: `ValueError: fsdp=hybrid_shard is only available with FSDP1. Set fsdp_config['version'] = 1 to use
    it`, in every process, when the training arguments are made.

    Fix: `fsdp: true` is written, which is FULL_SHARD; for the other strategies that is a choice.
    """
    words, place = _options(run)
    strategies = [word for word in words if word.lower() in _OPTIONS[:5]]
    refused = [word for word in strategies if word not in ("full_shard", "shard_grad_op")]
    if not refused or place is None or argument_version(run) != "2":
        return
    if any(word.lower() not in _OPTIONS for word in words):
        return  # ZC623
    plain = {word.lower() for word in words} <= {"full_shard", "auto_wrap"}
    simple = {word.lower() for word in words} <= {*_OPTIONS[:5], "auto_wrap"}
    yield Finding(
        place,
        f"`fsdp: {' '.join(words)}`: {refused[0]} belongs to FSDP 1, and FSDP 2 is the default: the training "
        "arguments are refused",
        "write `fsdp: true`, or `version: 1` in `fsdp_config`",
        fix=edited(replace_value, place.file, place.path, "true", why="write true", safe=plain)
        if simple and place.path
        else None,
    )


@rule(
    "ZC625",
    "fsdp-option-text",
    Severity.NOTE,
    bad=(
        recipe_example("fsdp: full_shard auto_wrap\n").finds("note", "recipe.yaml: full_shard auto_wrap"),
        recipe_example("fsdp: shard_grad_op auto_wrap offload\n").finds(
            "note", "recipe.yaml: shard_grad_op auto_wrap offload"
        ),
    ),
    good=recipe_example("fsdp: true\n"),
    proof=shows("arguments", {"log": logged("Passing `fsdp` as a string is deprecated")}),
    consumers=TRAINERS,
    fixable=True,
    references=(_HERE,),
    versions=ARGUMENTS,
)
def fsdp_option_text(run: Run) -> Iterator[Finding]:
    """The training argument `fsdp` is a text of options.

    The next releases are to refuse it, and what it says has moved: the strategy and offloading are keys of
    `fsdp_config` now.

    What happens: a warning, `Passing fsdp as a string is deprecated and will be removed in Transformers v5.20. Use
    fsdp=True and configure everything via fsdp_config instead.` The text still works in 5.23.

    Fix: `fsdp: true` is written; `shard_grad_op` becomes `reshard_after_forward: false` and `offload` becomes
    `cpu_offload: true` in `fsdp_config`. The result is the same.

    When to ignore: the recipe is also used with transformers 4.
    """
    words, place = _options(run)
    known = {"full_shard", "shard_grad_op", "offload", "auto_wrap"}
    if not words or place is None or not set(words) <= known or argument_version(run) != "2":
        return
    yield Finding(
        place,
        f'`fsdp: "{" ".join(words)}"` is the deprecated way to say it: transformers wants true and `fsdp_config`',
        "write `fsdp: true` and the rest into `fsdp_config`",
        fix=_as_keys(run, words) if place.path else None,
    )


def _as_keys(run: Run, words: list[str]) -> Fix | None:
    file = run.recipe
    keys = {"shard_grad_op": ("reshard_after_forward", "false"), "offload": ("cpu_offload", "true")}
    wanted = [keys[word] for word in keys if word in words]
    if file is None or file.document is None or ("full_shard" in words and "shard_grad_op" in words):
        return None
    config = recipe_data(run).get("fsdp_config")
    wanted = [(key, value) for key, value in wanted if argument_key(run, key) is None]
    if config is not None and (not isinstance(config, dict) or not config or len(wanted) > 1):
        return None
    try:
        edits = replace_value(file.document, ("fsdp",), "true")
        if wanted and config is None:
            inner = ", ".join(f"{key}: {value}" for key, value in wanted)
            edits += insert_entry(file.document, (), "fsdp_config", "{" + inner + "}")
        elif wanted:
            edits += insert_entry(file.document, ("fsdp_config",), *wanted[0])
    except ValueError:
        return None
    return Fix("write fsdp: true", tuple((file, edit) for edit in edits))


@rule(
    "ZC626",
    "fsdp-config-wrap-policy",
    Severity.ERROR,
    bad=recipe_example("fsdp: true\nfsdp_config:\n  auto_wrap_policy: transformer_based_wrap\n").finds(
        "error", "recipe.yaml: transformer_based_wrap"
    ),
    good=recipe_example("fsdp: true\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"),
    proof=crashes("arguments", "`auto_wrap_policy` must be one of"),
    consumers=TRAINERS,
    fixable=True,
    references=(_HERE,),
    versions=ARGUMENTS,
)
def fsdp_config_wrap_policy(run: Run) -> Iterator[Finding]:
    """`auto_wrap_policy` in the training argument `fsdp_config` is none of the three words.

    accelerate's own config takes the words in any case; here only capitals are known.

    What happens: `ValueError: auto_wrap_policy must be one of ['TRANSFORMER_BASED_WRAP', 'SIZE_BASED_WRAP',
    'NO_WRAP']`, in every process, when the training arguments are made.

    Fix: the word is written in capitals, or the nearest of the three.
    """
    found = argument_key(run, "auto_wrap_policy")
    if argument_version(run) is None or found is None or found[2] in _POLICIES:
        return
    file, path, value = found
    word = closest(str(value).upper(), _POLICIES)
    yield Finding(
        Location(file, path, "value"),
        f"`{path[-1]}` is one of {', '.join(_POLICIES)}; {show(value)} is refused",
        f"write {word or _POLICIES[0]}",
        fix=edited(replace_value, file, path, word, why=f"write {word}") if word else None,
    )


RULES = (
    fsdp_with_deepspeed,
    fsdp_config_without_fsdp,
    fsdp_config_key_unknown,
    fsdp_option_unknown,
    fsdp_option_of_version_1,
    fsdp_option_text,
    fsdp_config_wrap_policy,
)
