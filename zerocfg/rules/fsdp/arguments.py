"""ZC6xx: the training arguments `fsdp` and `fsdp_config`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.record import record
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument, entries
from zerocfg.rules.effects import TRAINERS, effective_value, recipe_data
from zerocfg.rules.fixes import edited, rewritten
from zerocfg.rules.fsdp.plugin import ARGUMENTS, argument_key, argument_key_of, argument_version, fsdp_argument
from zerocfg.rules.key import Key, recipe
from zerocfg.rules.release_scope import among
from zerocfg.rules.subjects import given_by
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value

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


@record(frozen=True, slots=True)
class _Options:
    """The words of a text `fsdp`, and its place."""

    run: Run
    words: list[str]
    place: Location


def _options(run: Run) -> _Options | None:
    value, argued = fsdp_argument(run), argument(run, "fsdp")
    if not isinstance(value, str) or not value.strip() or argued is None:
        return None
    return _Options(run, value.split(), argued.at("value"))


OPTIONS = given_by(_options, "arguments")


@rule("ZC620", "fsdp-with-deepspeed", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def fsdp_with_deepspeed(run: Run) -> Iterator[Finding]:
    asked = fsdp_argument(run)
    place, by_argument = argument(run, "fsdp"), argument(run, "deepspeed")
    if not asked or asked is UNKNOWN or place is None:
        return
    if by_argument is not None and (not by_argument.held or by_argument.held is UNKNOWN):
        by_argument = None
    if not by_argument and effective_value(run, "engine") != "deepspeed":
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


@rule("ZC621", "fsdp-config-without-fsdp", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def fsdp_config_without_fsdp(run: Run) -> Iterator[Finding]:
    switch, config = recipe(run, "fsdp"), recipe(run, "fsdp_config")
    if not config.section or "fsdp" in run.arguments or switch.value is False or switch.value:
        return
    if not set(map(str, config.section)) - {"xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt", "min_num_params"}:
        return  # what transformers 4 wrote into every saved set of arguments
    deepspeed = bool(recipe(run, "deepspeed").value) or effective_value(run, "engine") == "deepspeed"
    elsewhere = deepspeed or "ACCELERATE_USE_FSDP" in run.effective.environment
    if deepspeed:
        fix = config.delete("remove fsdp_config")
    else:
        fix = switch.set("true", "write fsdp: true", safe=False)
    yield config.finding(
        "`fsdp_config` is not looked at without `fsdp`: "
        + ("what accelerate's launcher is told counts" if elsewhere else "every process trains the whole model"),
        "remove `fsdp_config`" if deepspeed else "write `fsdp: true`",
        fix=fix,
        where="key",
        severity=Severity.WARNING if elsewhere else None,
    )


@rule("ZC622", "fsdp-config-key-unknown", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS, versions=ARGUMENTS)
def fsdp_config_key_unknown(run: Run) -> Iterator[Finding]:
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


@rule("ZC623", "fsdp-option-unknown", Severity.ERROR, OPTIONS, consumers=TRAINERS)
def fsdp_option_unknown(options: _Options) -> Iterator[Finding]:
    words, place = options.words, options.place
    unknown = [word for word in words if word.lower() not in _OPTIONS]
    if not unknown:
        return
    text = " ".join(words)
    instead = text.lower() if text.lower() in ("true", "false") else ""
    today = among(ARGUMENTS, options.run) == ""
    separate = text.replace(",", " ").split()
    if not instead and set(separate) <= {"full_shard", "auto_wrap"}:
        instead = "true" if today else " ".join(separate)
    yield Finding(
        place,
        f"`fsdp` knows no option {show(unknown[0])}: the training arguments are refused",
        f"write `fsdp: {instead or ('true' if today else 'full_shard auto_wrap')}`",
        fix=edited(replace_value, place.file, place.path, instead, why=f"write {instead}")
        if instead and place.path
        else None,
    )


@rule("ZC624", "fsdp-option-of-version-1", Severity.ERROR, OPTIONS, consumers=TRAINERS, versions=ARGUMENTS)
def fsdp_option_of_version_1(options: _Options) -> Iterator[Finding]:
    words, place = options.words, options.place
    strategies = [word for word in words if word.lower() in _OPTIONS[:5]]
    refused = [word for word in strategies if word not in ("full_shard", "shard_grad_op")]
    if not refused or argument_version(options.run) != "2":
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


@rule("ZC625", "fsdp-option-text", Severity.NOTE, OPTIONS, consumers=TRAINERS, versions=ARGUMENTS)
def fsdp_option_text(options: _Options) -> Iterator[Finding]:
    words, place = options.words, options.place
    known = {"full_shard", "shard_grad_op", "offload", "auto_wrap"}
    if not set(words) <= known or argument_version(options.run) != "2":
        return
    yield Finding(
        place,
        f'`fsdp: "{" ".join(words)}"` is the deprecated way to say it: transformers wants true and `fsdp_config`',
        "write `fsdp: true` and the rest into `fsdp_config`",
        fix=_as_keys(options.run, words) if place.path else None,
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
    argument_key_of("auto_wrap_policy"),
    consumers=TRAINERS,
    versions=ARGUMENTS,
)
def fsdp_config_wrap_policy(key: Key) -> Iterator[Finding]:
    if key.value in _POLICIES:
        return
    word = closest(str(key.value).upper(), _POLICIES)
    yield key.finding(
        f"`{key.name}` is one of {', '.join(_POLICIES)}; {show(key.value)} is refused",
        f"write {word or _POLICIES[0]}",
        fix=key.replace(word, f"write {word}") if word else None,
        where="value",
    )
