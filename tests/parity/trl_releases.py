"""Recipes at older releases of TRL, each with the oldest transformers that it asks for: those of the corpus as far as
their keys were ever arguments, and one for each argument that any release of TRL has had in a config."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml

from tests.parity.recipe_releases import OF_THE_MACHINE, Recipe, texts_of_people
from tests.parity.released import Comparison, Said, Versions
from tests.parity.verdicts import claims, lint
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import admits, release
from zerocfg.run.model import Run, Script, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

Case = tuple[str, Recipe]
"""A config class, and a recipe for it."""
CONFIGS = ("SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig", "KTOConfig")
GROUPS = frozenset(
    "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_generations "
    "num_generations_eval generation_batch_size steps_per_generation max_steps".split()
)
"""Arguments of batches, which rules of their own compare."""
TOLD_OF_DROPPED = frozenset(("ZC801", "ZC840", "ZC841", "ZC865"))
LATER = ("ZC844", "ZC846", "ZC848", "ZC849", "ZC860")
"""Rules of what a trainer stops at when it is made, which no parser tells."""


def _base(recipe: Recipe) -> Recipe:
    """A recipe with batches that GRPO can make whole groups of, whatever a release takes for their size."""
    kept = {name: held for name, held in recipe.items() if name not in GROUPS}
    return {"output_dir": "out", "use_cpu": True, "dataset_name": "x", **kept, "per_device_train_batch_size": 16}


def _of_people(corpus: bool) -> list[Case]:
    found = []
    fields = histories("trl")
    for text in texts_of_people(corpus=corpus):
        try:
            tree = json.loads(json.dumps(yaml.safe_load(text)))  # dates and the like are not for JSON
        except (ValueError, TypeError, yaml.YAMLError):
            continue
        for config in CONFIGS if isinstance(tree, dict) else ():
            of = [f"{config}.", "ScriptArguments.", "ModelConfig."]
            own = [name for name in tree if any(f"{one}{name}" in fields.raw for one in of)]
            base = [name for name in tree if name in histories("transformers").raw and name not in OF_THE_MACHINE]
            if any(f"{config}.{name}" in fields.raw for name in set(own) - set(base)):
                found.append((config, _base({name: tree[name] for name in tree if name in {*own, *base}})))
    return found


def _one_by_one(_examples: int) -> list[Case]:
    found = []
    fields = histories("trl")
    for key, history in fields.raw.items():
        config, _, name = key.rpartition(".")
        default = next((state["default"] for _, state in reversed(history) if state and "default" in state), None)
        plain = default is not None and not isinstance(default, (dict, list))
        if config in CONFIGS and plain and name not in OF_THE_MACHINE:
            found.append((config, _base({name: default})))
    return found


def _pinned(versions: Versions, config: str, recipe: Recipe) -> Run:
    """A run of a script that parses the recipe by TrlParser, of a project with these releases."""
    text = SourceText("recipe.yaml", yaml.safe_dump(recipe, sort_keys=False))
    file = SourceFile("recipe.yaml", "recipe", text, load_as(text, "yaml"))
    parsed = frozenset((f"trl.{config}", "trl.ScriptArguments", "trl.ModelConfig"))
    script = Script(SourceFile("train.py", "script", SourceText("train.py", "")), "trl", parsed=parsed)
    run = Run(
        "case",
        consumer="trl",
        recipe=file,
        recipe_reader="trl",
        versions=versions,
        script=script,
        arguments_whole=True,
    )
    return with_settings(run)


def _differs(versions: Versions, case: Case, error: Said) -> Iterator[str]:
    diagnostics = lint(_pinned(versions, *case))
    sure, maybe = claims(diagnostics, "read", "parse", "arguments")
    sure += [one for one in diagnostics if one.code == "ZC865" and one.severity.value == "error"]
    if error is None:
        drops = admits(versions["trl"], at_least="0.13") and not admits(versions["trl"], at_least="0.19")
        wrong = [one for one in sure if one.code not in LATER and not (drops and one.code in TOLD_OF_DROPPED)]
        yield from [f"accepted, but {one.code}: {one.message}" for one in wrong[:1]]
    elif not (sure or maybe):
        yield f"refused, and no error says so: {error[:300]!r}"


def _fits(version: str, case: Case) -> bool:
    return histories("trl").state(case[0], release(version)) is not None


TRL_RECIPES = Comparison(
    program="tools.facts.parse_trl",
    releases=("0.13.0", "0.16.1", "0.19.1", "0.22.2", "0.29.1", "1.5.1"),
    people=_of_people,
    made=_one_by_one,
    differs=_differs,
    fits=_fits,
    limits={
        "values of TRL's own arguments, which are judged as today's release has them": re.compile(
            r"SystemExit.*: (argument --|invalid)"
        ),
        "a tracker that nobody knows, which old releases look up when the Trainer is made": re.compile(
            "`report_to` knows"
        ),
    },
)
