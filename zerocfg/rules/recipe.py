"""ZC8xx: training arguments, and what changes from one release to the next."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, admitted, admitting, anchor, deepspeed_data, edited, failures, recipe_data
from zerocfg.rules.proof import cited, crashes
from zerocfg.rules.versions import admits, only_from
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry, rename_key

_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"


@rule(
    "ZC801",
    "argument-removed",
    Severity.NOTE,
    bad=Example({"recipe.yaml": _RECIPE + "evaluation_strategy: 'no'\n"}, consumer="transformers"),
    good=Example({"recipe.yaml": _RECIPE + "eval_strategy: 'no'\n"}, consumer="transformers"),
    proof=crashes("arguments", "evaluation_strategy"),
    fixable=True,
)
def argument_removed(run: Run) -> Iterator[Finding]:
    """A training argument that transformers no longer has.

    What happens: HfArgumentParser stops with `Some keys are not used by the HfArgumentParser`, TrlParser with
    `Unknown arguments from config file`. An error when the declared version of transformers is a release that lacks
    it; a note otherwise, because an older release may still take it.
    """
    if run.recipe is None:
        return
    names = load_schema("training-arguments").root.names
    here = VERSIONS["transformers"]
    declared = run.versions.get("transformers")
    certain = only_from(declared, here)
    for name in recipe_data(run):
        key = names.get(str(name))
        if key is None or "removed" not in key.facts:
            continue
        instead = str(key.facts["removed"])
        new = instead.removeprefix("write ") if instead.startswith("write ") else ""
        path = (str(name),)
        yield Finding(
            Location(run.recipe, path, "key"),
            f"transformers {here} has no argument `{name}`"
            + (
                f"; its parsers stop at it ({admitted(run, 'transformers')})"
                if certain
                else "; a release that still has it is needed"
            ),
            instead,
            admitting(run, "transformers") if certain else [],
            fix=edited(rename_key, run.recipe, path, new, why=f"write {new}", safe=certain)
            if new == "eval_strategy" or (new.startswith("per_device_") and new.isidentifier())
            else None,
            severity=Severity.ERROR if certain else None,
        )


@rule(
    "ZC802",
    "argument-type",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE + "learning_rate: [1.0e-5]\n",
            "train.sh": "torchrun --nproc_per_node 1 train.py recipe.yaml\n",
        },
        consumer="transformers",
    ),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "learning_rate: 1.0e-5\n",
            "train.sh": "torchrun --nproc_per_node 1 train.py recipe.yaml\n",
        },
        consumer="transformers",
    ),
    proof=crashes("init", "TypeError"),
    consumers=TRAINERS,
)
def argument_type(run: Run) -> Iterator[Finding]:
    """A training argument whose value its reader does not convert.

    What happens: HfArgumentParser hands the values of a file over as they are, and the training stops where they
    are used; on a command line and in TrlParser a text that is no number stops the parser.
    """
    for failure in failures(run, "ZC802"):
        location, related = anchor(run, failure.places, "value")
        if (
            location.path
            and isinstance(recipe_data(run).get(str(location.path[0])), str)
            and run.recipe_reader != "trl"
        ):
            continue  # ZC005 knows how such a number is written
        yield Finding(location, failure.message, "write a plain number", related)


@rule(
    "ZC803",
    "clipping-default-changed",
    Severity.NOTE,
    bad=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    script: train.py\n    deepspeed: ds.json\n"
            "    consumer: deepspeed\n"
            "    versions: {deepspeed: '>=0.18'}\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n',
        }
    ),
    good=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    script: train.py\n    deepspeed: ds.json\n"
            "    consumer: deepspeed\n"
            "    versions: {deepspeed: '>=0.18'}\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, '
            '"zero_optimization": {"stage": 2}}\n',
        }
    ),
    proof=cited("deepspeed/runtime/constants.py@0.19.8, #8068"),
    fixable=True,
)
def clipping_default_changed(run: Run) -> Iterator[Finding]:
    """The config leaves clipping to DeepSpeed, whose default changed within the declared versions.

    Before DeepSpeed 0.19.3 a config without `gradient_clipping` did not clip; from 0.19.3 on it clips at 1.0.
    """
    declared = run.versions.get("deepspeed")
    if run.deepspeed is None or "gradient_clipping" in deepspeed_data(run) or not deepspeed_data(run):
        return
    if admits(declared, below="0.19.3", at_least="0.19.3"):
        yield Finding(
            Location(run.deepspeed),
            "no `gradient_clipping`: DeepSpeed clips at 1.0 from 0.19.3 on and not at all before ("
            f"{admitted(run, 'deepspeed')})",
            "write the value that you want",
            admitting(run, "deepspeed"),
            fix=edited(
                insert_entry,
                run.deepspeed,
                (),
                "gradient_clipping",
                "1.0",
                why="write today's default",
                safe=False,
            ),
        )


RULES = (
    argument_removed,
    argument_type,
    clipping_default_changed,
)
