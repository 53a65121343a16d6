"""Configs of DeepSpeed and accelerate at older releases: the corpus, where there is one, as people wrote it, the
examples of rules and generated configs. Compared are refusals and, for accelerate, the exported variables."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import hjson
import yaml
from hypothesis import strategies as st

from tests.conftest import texts_of_corpus
from tests.parity import generated
from tests.parity.released import Comparison, Said, Versions, drawn
from tests.parity.test_generated import (
    ACCELERATE,
    BY_INITIALIZE,
    DEEPSPEED,
    LIMITS,
    errors,
    launch_differs,
    texts_of_people,
)
from tests.parity.verdicts import ABOUT_THE_MACHINE, Real, accelerate_run, claims, deepspeed_run, lint
from zerocfg.run.resolve_settings import with_settings

_BATCH = "train_micro_batch_size_per_gpu"
WORLDS = (1, 2, 8)
READ_OTHERWISE = ("ZC009",)
"""Rules of texts that are read as something else than they say, at which DeepSpeed stops or trains with that."""
Config = tuple[str, int]
"""A text and a number of ranks."""


def _texts(name: str, *, corpus: bool) -> Iterator[str]:
    """The texts of people as they wrote them, as far as they are UTF-8."""
    kind = "deepspeed" if name == "ds.json" else "accelerate"
    for text in texts_of_corpus(kind) if corpus else texts_of_people(name):
        with contextlib.suppress(UnicodeEncodeError):
            text.encode()
            yield text


def _filled(text: str) -> Iterator[str]:
    """A config for the Trainer as an own loop could have it: with a batch size, without what is left to be filled."""
    with contextlib.suppress(ValueError, OverflowError):
        tree = hjson.loads(text)
        without = _without_autos(tree)
        if without != tree:
            yield generated.json_text(without)


def _without_autos(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    found = {name: _without_autos(held) for name, held in tree.items() if held != "auto"}
    return {**found, _BATCH: 1} if tree.get(_BATCH) == "auto" else found


def _is_mapping(text: str) -> bool:
    with contextlib.suppress(ValueError, yaml.YAMLError):
        return isinstance(yaml.safe_load(text), dict)
    return False


def _deepspeed(corpus: bool) -> list[Config]:
    texts = list(_texts("ds.json", corpus=corpus))
    return [(text, 2) for text in [*texts, *(filled for text in texts for filled in _filled(text))]]


def _accelerate(corpus: bool) -> list[str]:
    return [text for text in _texts("accelerate.yaml", corpus=corpus) if _is_mapping(text)]


def _deepspeed_differs(versions: Versions, config: Config, error: Said) -> Iterator[str]:
    diagnostics = lint(with_settings(replace(deepspeed_run(*config), versions=versions)))
    sure, maybe = claims(diagnostics, "read", "parse")
    newer = any(one.code == "ZC865" and one.severity.value == "error" for one in diagnostics)
    if error is None:
        wrong = [one for one in sure if one.code not in (*BY_INITIALIZE, *READ_OTHERWISE)]
        yield from [f"accepted, but {one.code}: {one.message}" for one in wrong[:1]]
    elif not (sure or maybe or newer or ABOUT_THE_MACHINE in error):
        yield f"refused, and no error says so: {error[:200]!r}; {errors(diagnostics)[:3]}"


def _accelerate_differs(versions: Versions, config: str, said: Said) -> Iterator[str]:
    real = Real(**said)
    if not real.here:
        run = with_settings(replace(accelerate_run(config), versions=versions))
        yield from launch_differs(run, lint(run), real)


DEEPSPEED_CONFIGS = Comparison(
    program="tools.facts.parse_deepspeed",
    releases=("0.10.3", "0.12.6", "0.14.5", "0.15.4", "0.16.3", "0.16.9", "0.17.6", "0.18.9", "0.19.5"),
    people=_deepspeed,
    made=partial(drawn, st.tuples(DEEPSPEED.map(generated.json_text), st.sampled_from(WORLDS))),
    differs=_deepspeed_differs,
    limits={
        **LIMITS,
        "DeepSpeed before 0.14.1 calls a type of communication bfp16, and refuses bf16": re.compile(
            r"Invalid communication_data_type.*'bfp16'"
        ),
    },
    examples=1000,
)
ACCELERATE_CONFIGS = Comparison(
    program="tools.facts.parse_accelerate",
    releases=("0.24.1", "0.27.2", "0.30.1", "0.34.2", "1.0.1", "1.3.0", "1.6.0", "1.10.1", "1.12.0"),
    people=_accelerate,
    made=partial(drawn, ACCELERATE.map(generated.yaml_text)),
    differs=_accelerate_differs,
    limits=LIMITS,
    examples=1000,
)
