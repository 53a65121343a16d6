"""ZC6xx: values that one version of FSDP, or one of the two places that configure it, cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import argument, set_argument
from zerocfg.rules.effects import TRAINERS, edited
from zerocfg.rules.fsdp.plugin import (
    ARGUMENTS,
    WRAPPED,
    accelerate_example,
    argument_key,
    argument_version,
    fsdp_key,
    fsdp_version,
    launched,
    recipe_example,
    releases,
)
from zerocfg.rules.proof import crashes, logged, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import replace_value

_NUMBERS = {
    "1": "FULL_SHARD",
    "2": "SHARD_GRAD_OP",
    "3": "NO_SHARD",
    "4": "HYBRID_SHARD",
    "5": "HYBRID_SHARD_ZERO2",
}
_FULL = "  fsdp_state_dict_type: FULL_STATE_DICT\n"
_FIRST_ONLY = (
    "forward_prefetch",
    "backward_prefetch",
    "use_orig_params",
    "sync_module_states",
    "reshard_after_forward",
)


@rule(
    "ZC642",
    "adafactor-with-fsdp2",
    Severity.ERROR,
    bad=(
        launched(WRAPPED % 2 + _FULL, "optim: adafactor\n").finds("error", "recipe.yaml: optim: adafactor", 2),
        recipe_example("fsdp: true\noptim: adafactor\n").finds("error", "recipe.yaml: optim: adafactor", 2),
    ),
    good=recipe_example("fsdp: true\noptim: adamw_torch\n"),
    proof=crashes("step", "got mixed torch.Tensor and DTensor", ranks=2),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/optimization.py@5.23.0",),
    versions="transformers>=5",
)
def adafactor_with_fsdp2(run: Run) -> Iterator[Finding]:
    """`optim: adafactor` under FSDP 2.

    The job starts, loads the model and stops in its first step, when the waiting time has been paid.

    What happens: FSDP 2 hands distributed tensors to the optimizer, and Adafactor mixes them with plain ones:
    `RuntimeError: aten.add_.Tensor got mixed torch.Tensor and DTensor`. Under FSDP 1 it runs.

    Fix: `adamw_torch` is written; that is a choice, its states take two numbers a parameter.
    """
    version = argument_version(run) or fsdp_version(run)
    asked = argument(run, "optim")
    if version != "2" or asked is None or asked.held != "adafactor":
        return
    yield Finding(
        asked.at("entry"),
        "adafactor cannot step on the distributed tensors of FSDP 2: the job stops in its first step",
        "write adamw_torch",
        fix=set_argument(run, "optim", "adamw_torch", "write adamw_torch"),
    )


@rule(
    "ZC643",
    "fsdp-offload-as-text",
    Severity.ERROR,
    bad=recipe_example("fsdp: true\nfsdp_config:\n  cpu_offload: 'false'\n").finds("error", "recipe.yaml: 'false'"),
    good=recipe_example("fsdp: true\nfsdp_config:\n  cpu_offload: false\n"),
    proof=shows("arguments", {"plugin.cpu_offload": (True, False)}),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
    versions=ARGUMENTS,
)
def fsdp_offload_as_text(run: Run) -> Iterator[Finding]:
    """`cpu_offload` in the training argument `fsdp_config` is a quoted false.

    Every step moves parameters and gradients over the bus and updates them on the host: several times slower than
    what was asked for.

    What happens: transformers asks whether the value is empty, and a text that says false is not: offloading is
    switched on. The other keys of the section read such words as false.

    Fix: the quotes are removed.

    When to ignore: never; the text does the opposite of what it says.
    """
    found = argument_key(run, "cpu_offload")
    if argument_version(run) is None or found is None or not isinstance(found[2], str):
        return
    if found[2].lower() not in ("false", "no", "off", "0", "n", "f", "none"):
        return
    file, path, value = found
    yield Finding(
        Location(file, path, "value"),
        f"`{path[-1]}: {show(value)}` is a text and counts as true: parameters are offloaded",
        "write false",
        fix=edited(replace_value, file, path, "false", why="write false"),
    )


@rule(
    "ZC644",
    "fsdp1-strategy-as-boolean",
    Severity.ERROR,
    bad=(
        accelerate_example(1, "  fsdp_sharding_strategy: true\n").finds("error", "accelerate.yaml: true", 1),
        recipe_example("fsdp: true\nfsdp_config:\n  version: 1\n  reshard_after_forward: true\n").finds(
            "error", "recipe.yaml:7:26: true", 1
        ),
    ),
    good=(
        accelerate_example(1, "  fsdp_sharding_strategy: FULL_SHARD\n"),
        recipe_example("fsdp: true\nfsdp_config:\n  version: 1\n  reshard_after_forward: full_shard\n"),
    ),
    proof=crashes("arguments", "KeyError: 'TRUE'"),
    fixable=True,
    references=("accelerate/utils/dataclasses.py@1.15.0",),
)
def fsdp1_strategy_as_boolean(run: Run) -> Iterator[Finding]:
    """FSDP 1 is given true or false for its sharding strategy.

    That is how FSDP 2 is told whether to shard again after the forward pass; FSDP 1 wants the name of a strategy.

    What happens: `KeyError: 'TRUE'`, in every process, when the Accelerator is made; it is looked up among the names.

    Fix: true becomes FULL_SHARD and false SHARD_GRAD_OP, which is what they mean.
    """
    if argument_version(run) == "1":
        found = argument_key(run, "reshard_after_forward")
    elif fsdp_version(run) == "1":
        found = fsdp_key(run, "sharding_strategy")
    else:
        return
    if found is None or str(found[2]).lower() not in ("true", "false"):
        return
    file, path, value = found
    word = "FULL_SHARD" if str(value).lower() == "true" else "SHARD_GRAD_OP"
    yield Finding(
        Location(file, path, "value"),
        f"FSDP 1 knows no strategy {show(value)}: every process stops",
        f"write {word}",
        fix=edited(replace_value, file, path, word, why=f"write {word}"),
        versions=releases(run),
    )


@rule(
    "ZC645",
    "fsdp-strategy-by-number",
    Severity.NOTE,
    bad=accelerate_example(1, "  fsdp_sharding_strategy: 2\n").finds("note", "accelerate.yaml:6:27: 2", 2),
    good=accelerate_example(1, "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"),
    proof=shows(
        "launch",
        {"env.FSDP_SHARDING_STRATEGY": ("2", "SHARD_GRAD_OP")},
        extent="the word that the launcher exports for the processes.",
    ),
    fixable=True,
    references=("accelerate/commands/to_fsdp2.py@1.15.0",),
)
def fsdp_strategy_by_number(run: Run) -> Iterator[Finding]:
    """`fsdp_sharding_strategy` is written as a number.

    The numbers count from 1 and are those of torch's enumeration, not ZeRO's stages: 2 happens to mean the same, 3
    means no sharding at all.

    What happens: it works. `accelerate to-fsdp2` translates names only, so that a converted file holds
    `fsdp_reshard_after_forward: 2`, which FSDP 2 refuses.

    Fix: the name is written.

    When to ignore: the file is read by another tool that wants the number.
    """
    found = fsdp_key(run, "sharding_strategy")
    name = _NUMBERS.get(str(found[2])) if found is not None and not isinstance(found[2], bool) else None
    if fsdp_version(run) != "1" or found is None or name is None or name == "NO_SHARD":
        return
    yield Finding(
        Location(found[0], found[1], "value"),
        f"`{found[1][-1]}: {found[2]}` is {name}; the names are safer to read, and to convert",
        f"write {name}",
        fix=edited(replace_value, found[0], found[1], name, why=f"write {name}"),
    )


@rule(
    "ZC646",
    "fsdp1-of-the-trainer",
    Severity.NOTE,
    bad=recipe_example("fsdp: true\nfsdp_config:\n  version: 1\n").finds("note", "recipe.yaml: version: 1", 1, 2),
    good=recipe_example("fsdp: true\nfsdp_config:\n  version: 2\n"),
    proof=shows("arguments", {"log": logged("FSDP1 .*is deprecated")}),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
    versions=ARGUMENTS,
)
def fsdp1_of_the_trainer(run: Run) -> Iterator[Finding]:
    """The training arguments choose FSDP 1.

    The next releases of transformers are to drop it, and the keys of the two versions differ, so that the change is
    better made while both still run.

    What happens: a warning, `FSDP1 (fsdp_config['version'] = 1) is deprecated and will be removed in Transformers
    v5.20. Please migrate to FSDP2`. It still works in 5.23.

    Fix: `version: 2` is written where no key of FSDP 1 stands beside it; that is a choice.

    When to ignore: the model or the optimizer needs FSDP 1.
    """
    found = argument_key(run, "version")
    if argument_version(run) != "1" or found is None:
        return
    plain = not any(argument_key(run, name) for name in _FIRST_ONLY)
    yield Finding(
        Location(found[0], found[1]),
        "FSDP 1 is on its way out of transformers",
        "write `version: 2`",
        fix=edited(replace_value, found[0], found[1], "2", why="write 2", safe=False) if plain else None,
    )


RULES = (
    adafactor_with_fsdp2,
    fsdp_offload_as_text,
    fsdp1_strategy_as_boolean,
    fsdp_strategy_by_number,
    fsdp1_of_the_trainer,
)
