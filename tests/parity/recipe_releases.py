"""Recipes at older releases of transformers, which make TrainingArguments of each: those of the corpus, where there is
one, as far as their keys were ever training arguments, those of the rules' examples, one for each argument and each
word of any release, and generated ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.conftest import texts_of_corpus
from tests.parity.released import Comparison, Said, Versions, drawn
from tests.parity.verdicts import claims, lint
from zerocfg.catalog import fields
from zerocfg.catalog.history import histories
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL
from zerocfg.run.model import Run, Script, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

Recipe = dict[str, Any]
OF_THE_MACHINE = frozenset(
    "bf16 fp16 tf32 bf16_full_eval fp16_full_eval deepspeed fsdp fsdp_config torch_compile torch_compile_backend "
    "torch_compile_mode jit_mode_eval use_ipex torchdynamo accelerator_config parallelism_config use_mps_device "
    "tpu_num_cores local_rank ddp_backend push_to_hub output_dir logging_dir mp_parameters sharded_ddp "
    "half_precision_backend fp16_backend tp_size push_to_hub_model_id".split()
)
"""Arguments whose values a machine without accelerators refuses, or that name files."""
LATER = ("ZC807", "ZC825")
"""Rules of what a parser takes, and the Trainer stops at or reads in another sense than it is meant."""
PARSER = Script(
    SourceFile("train.py", "script", SourceText("train.py", "")),
    "transformers",
    options=frozenset(name for name in histories("transformers").raw if "." not in name),
    parsed=frozenset(("transformers.TrainingArguments",)),
)
_PLAIN = {"int": 2, "float": 0.5, "bool": True, "str": "x"}


def arguments() -> list[str]:
    """Every training argument that some release has, without those that depend on the machine."""
    return [name for name in histories("transformers").raw if "." not in name and name not in OF_THE_MACHINE]


def _made(examples: int) -> list[Recipe]:
    valued = st.sampled_from(arguments()).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(_values(name))))
    mixed = st.lists(valued, min_size=2, max_size=6, unique_by=lambda one: one[0]).map(dict)
    return [{"output_dir": "out", **one} for one in (*_one_by_one(), *drawn(mixed, examples))]


def texts_of_people(*, corpus: bool) -> list[str]:
    """The recipes of the corpus, where there is one, and else those of the rules' examples, too."""
    texts = [
        example.files.get("recipe.yaml", "") for rule in ALL for example in (*page_of(rule).bad, *page_of(rule).good)
    ]
    return [*([] if corpus else texts), *texts_of_corpus("trainer-recipe", "other")]


def _of_people(corpus: bool) -> list[Recipe]:
    taken = frozenset(arguments())
    found = []
    for text in texts_of_people(corpus=corpus):
        try:
            tree = json.loads(json.dumps(yaml.safe_load(text)))  # dates and the like are not for JSON
        except (ValueError, TypeError, yaml.YAMLError):
            continue
        kept = {name: held for name, held in tree.items() if name in taken} if isinstance(tree, dict) else {}
        if kept:
            found.append({"output_dir": "out", **kept})
    return found


def _one_by_one() -> Iterator[Recipe]:
    for name in arguments():
        yield from ({name: value} for value in _values(name))


def _values(name: str) -> list[Any]:
    """Values of an argument: its words in any release, one that none has and false, or one of its type."""
    words = sorted(fields.ever(name))
    if words:
        return [*words, "nosuchword", False]
    at = next(at for at in histories("transformers").edges(name) if fields.exists(name, at))
    default = fields.default(name, at)
    return [default if default is not None else _PLAIN[fields.kind(name, at) or "str"]]


def _pinned(versions: Versions, recipe: Recipe) -> Run:
    """A run of the Trainer whose script parses the recipe by HfArgumentParser, of a project with these releases."""
    text = SourceText("recipe.yaml", yaml.safe_dump(recipe, sort_keys=False))
    file = SourceFile("recipe.yaml", "recipe", text, load_as(text, "yaml"))
    run = Run(
        "case",
        consumer="transformers",
        recipe=file,
        recipe_reader="hf",
        versions=versions,
        script=PARSER,
        arguments_whole=True,
    )
    return with_settings(run)


def _differs(versions: Versions, recipe: Recipe, error: Said) -> Iterator[str]:
    diagnostics = lint(_pinned(versions, recipe))
    sure, maybe = claims(diagnostics, "read", "parse", "arguments")
    newer = [one for one in diagnostics if one.code == "ZC865" and one.severity.value == "error"]
    if error is None:
        yield from [f"accepted, but {one.code}: {one.message}" for one in (*sure, *newer) if one.code not in LATER][:1]
    elif not (sure or maybe or newer):
        yield f"refused, and no error says so: {error[:300]!r}"


RECIPES = Comparison(
    program="tools.facts.parse_arguments",
    releases=("4.36.2", "4.40.2", "4.44.2", "4.46.3", "4.51.3", "4.57.6", "5.0.0", "5.14.1"),
    people=_of_people,
    made=_made,
    differs=_differs,
    limits={
        "a tracker that nobody knows, which old releases look up when the Trainer is made": re.compile(
            "`report_to` knows"
        ),
    },
    examples=300,
)
