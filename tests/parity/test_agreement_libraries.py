"""The typed models read 5,000 generated configs as the real libraries do: what is refused, what values become."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.parity import generated
from tests.parity.agreement import by_model
from tests.parity.test_agreement import OF_EACH, SHARDS, drawn
from tests.parity.verdicts import Real, in_typed_section, real_accelerate, real_deepspeed
from zerocfg.models.accelerate import ClusterConfig
from zerocfg.models.base import Section, keys_of
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

pytestmark = pytest.mark.libs


def set_values(model: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[Section], Any]]:
    """Every value that the config states: path, the section's class, value."""
    for name in model.model_fields_set & set(type(model).model_fields):
        value = getattr(model, name)
        if isinstance(value, Section):
            yield from set_values(value, (*path, name))
        else:
            yield (*path, name), type(model), value


@pytest.mark.parametrize("shard", range(SHARDS))
def test_deepspeed(shard: int, count: Callable[[str, int], None]) -> None:
    seen: list[bool] = []

    def compare(tree: dict[str, Any]) -> None:
        text = generated.json_text(tree)
        real = real_deepspeed(text, 1)
        if not real.here:
            model, refused = by_model(load_as(SourceText("ds.json", text), "json").data(), DeepSpeedConfig)
            wrong = [*verdict_differs(refused, real), *(values_differ(model, real) if model and not real.error else ())]
            assert not wrong, "\n".join([*wrong, text])
            seen.append(real.error is not None)

    drawn("deepspeed", shard, OF_EACH // 2, compare)
    count("generated configs read by the models and by DeepSpeedConfig", len(seen))
    assert 0 < sum(seen) < len(seen)


def verdict_differs(refused: list[str], real: Real) -> list[str]:
    # `timers` as a text: DeepSpeed looks for a word in it.
    typed = [one for one in refused if in_typed_section(".".join(places(one))) and not one.startswith("('timers',)")]
    if typed and real.error is None:
        return [f"refused: {typed}, and DeepSpeed takes it"]
    # What its validators compare, several keys of a section or a section with the machine, is for rules.
    own = real.error is not None and real.error.startswith("ValidationError")
    own = own and not any(words in (real.error or "") for words in ("Value error", "Assertion failed"))
    return [f"taken, and DeepSpeed says {real.error}"] if own and not refused else []


def places(refusal: str) -> list[str]:
    return [part for part in ast.literal_eval(refusal.partition(": ")[0]) if str(part).islower()]


def values_differ(model: Section, real: Real) -> list[str]:
    wrong = []
    for path, section, value in set_values(model):
        name = ".".join(path)
        found = real.values.get(name, real.values.get(name.replace("stage3_", "")))
        if found is None or value in ("auto", None) or keys_of(section)[path[-1]].facts.get("reads") != "lax":
            continue
        if found != value or isinstance(found, bool) is not isinstance(value, bool):
            wrong.append(f"{name} is {value!r}, really {found!r}")
    return wrong


@pytest.mark.parametrize("shard", range(SHARDS))
def test_accelerate(shard: int, count: Callable[[str, int], None]) -> None:
    from accelerate.utils import str_to_bool

    read: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": lambda text: bool(str_to_bool(text))}
    seen: list[int] = []

    def compare(tree: dict[str, Any]) -> None:
        text = generated.yaml_text(tree)
        real = real_accelerate(text)
        model, refused = by_model(load_as(SourceText("acc.yaml", text), "yaml").data(), ClusterConfig)
        unknown = any("Extra inputs" in one for one in refused)
        told = real.error is not None and "unknown keys" in real.error
        assert told == unknown or real.error is not None, (refused, real.error, text)
        if model is None or real.error is not None:
            return
        checked = 0
        for path, section, value in set_values(model):
            facts = keys_of(section)[path[-1]].facts
            for variable in facts.get("env", ()):
                exported = real.values.get(variable["name"])
                # A word of a choice beside a truth value is for the version of FSDP to judge.
                if exported is None or value is None or isinstance(value, str) or "item" in variable:
                    continue
                if facts.get("reads") not in read:
                    continue
                assert read[facts["reads"]](exported) == value, (path, value, exported, text)
                checked += 1
        seen.append(checked)

    drawn("accelerate", shard, OF_EACH * 3 // 10, compare)
    count("generated configs read by the models and launched by accelerate", len(seen))
    assert sum(seen) > 10


@cache
def converters() -> dict[str, Callable[[str], Any]]:
    """How the parser of the command line converts each argument; of a recipe TrlParser converts text so."""
    import transformers

    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    return {action.dest: action.type for action in parser._actions if callable(action.type) and action.nargs != "+"}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_arguments(shard: int, count: Callable[[str, int], None]) -> None:
    seen: list[bool] = []
    words = ("1", "1.5", "5e-5", "1_000", " 2 ", "yes", "No", "on", "T", "0", "x", "", "nan", "1e3", "-1", "0x10")

    def compare(tree: dict[str, Any]) -> None:
        names = sorted(set(tree) & set(converters()))
        for name, text in zip(names * 4, words, strict=False):
            facts = keys_of(TrainingArguments)[name].facts
            if facts["cli"]["type"] == "str" or "removed" in facts:
                continue
            model, refused = by_model({name: text}, TrainingArguments)
            try:
                value = converters()[name](text)
            except Exception:
                assert refused or isinstance(getattr(model, name), str), (name, text)
            else:
                limit = any("greater than" in one or "less than" in one or "Input should be" in one for one in refused)
                assert limit or getattr(model, name) == value or value != value, (name, text, value, refused)
            seen.append(bool(refused))

    drawn("training-arguments", shard, OF_EACH // 5, compare)
    count("texts converted by the models and by HfArgumentParser", len(seen))
    assert 0 < sum(seen) < len(seen)
