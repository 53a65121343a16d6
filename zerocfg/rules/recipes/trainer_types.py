"""ZC8xx: training arguments of another type than the Trainer takes."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import FALSE_WORDS, RefusedError, whole_number
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.argument_reader import reader
from zerocfg.rules.arguments import Argument, arguments, type_of, word_type
from zerocfg.rules.calls import given_in_calls, key_of_call
from zerocfg.rules.effects import under_trainer
from zerocfg.rules.failures import failures, reported
from zerocfg.rules.key import Key, recipe
from zerocfg.rules.repairs import plain_number
from zerocfg.rules.taken import in_call
from zerocfg.run.model import Run
from zerocfg.run.stages.arguments import converted, is_template, parsed
from zerocfg.source.node import Scalar


@rule("ZC802", "argument-type", Severity.ERROR, WHOLE_RUN)
def argument_type(run: Run) -> Iterator[Finding]:
    yield from _texts_in_calls(run)
    if not under_trainer(run):
        return
    reported_places = set()
    for failure in failures(run, "ZC802"):
        finding = reported(run, failure, "write a plain number", where="value")
        place = finding.location
        key = recipe(run, *map(str, place.path[:1]))
        if isinstance(key.value, str) and run.recipe_reader != "trl":
            continue  # below
        reported_places.add(place.path or place.span)
        finding.fix = _plain_number(key)
        yield finding
    if reader(run) is None:
        return
    for argument in arguments(run):
        place = argument.at("value")
        if (place.path or place.span) not in reported_places:
            yield from _on_the_line(run, argument, place) if argument.on_line else _in_the_recipe(run, argument, place)


def _texts_in_calls(run: Run) -> Iterator[Finding]:
    """Texts that calls in the script give where a number is wanted: the class takes them as they are."""
    for given in given_in_calls(run):
        if word_type(key_of_call(given)) in ("int", "float") and isinstance(given.value, str):
            yield given.finding(
                f"{given.name} is the text {given.value!r}, not a number; {given.of} does not convert it",
                "write a plain number",
            )


def _on_the_line(run: Run, argument: Argument, place: Location) -> Iterator[Finding]:
    """A word of the launch line that argparse does not convert. Not told where the script's parser is not known:
    an option of its own may have this name."""
    kind, text = type_of(run, argument.name), argument.held
    if kind in _WANTED and isinstance(text, str) and parsed(run) and _refused(kind, text):
        wanted = "yes or no" if kind == "bool" else kind
        yield Finding(place, f"{argument.name}: {text!r} is no {wanted}", f"write {_WANTED[kind]}")


_WANTED = {"int": "a plain number", "float": "a plain number", "bool": "true or false"}


def _in_the_recipe(run: Run, argument: Argument, place: Location) -> Iterator[Finding]:
    """A text where a number is wanted: HfArgumentParser hands it over, TrlParser converts those that are numbers. It
    also converts the words for yes and no, and stops at any other where one is wanted."""
    kind, text = type_of(run, argument.name), argument.held
    if kind not in _WANTED or not isinstance(text, str) or in_call(argument):
        return
    if kind == "bool":
        if run.recipe_reader == "trl" and _refused(kind, text):
            yield Finding(place, f"{argument.name}: {text!r} is no yes or no", f"write {_WANTED[kind]}")
        return
    node = run.recipe.document.get(place.path) if run.recipe is not None and run.recipe.document is not None else None
    if not isinstance(node, Scalar) or (number_in(text) is not None and not node.quoted):
        return  # ZC005 knows how such a number is written
    if run.recipe_reader == "hf":
        yield Finding(
            place,
            f"{argument.name} is the text {text!r}, not a number; HfArgumentParser does not convert it",
            "write a plain number",
            fix=_plain_number(recipe(run, argument.name)),
        )
    elif run.consumer is not None and _refused(kind, text):
        # TrlParser converts the others
        yield Finding(place, f"{argument.name}: {text!r} is no {kind}", "write a plain number")


def _refused(kind: str, text: str) -> bool:
    """Whether a parser stops at a text. What becomes of a placeholder nobody knows."""
    try:
        converted(kind, text)
    except RefusedError:
        return not is_template(text)
    return False


def number_in(text: object) -> float | None:
    """The number that a text says."""
    try:
        return float(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _signed(text: str) -> int | None:
    number = whole_number(text.lstrip("+-"))
    return None if number is None else -number if text.startswith("-") else number


def _plain_number(key: Key) -> Fix | None:
    """A quoted number without its quotes, a list of one number without its brackets."""
    value = key.value
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str) and number_in(value) is not None:
        value = float(value) if set("eE.") & set(value) else _signed(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    text = plain_number(value)
    return key.replace(text, f"write {text}")


@rule("ZC825", "false-as-text", Severity.ERROR, WHOLE_RUN, consumers={"transformers"})
def false_as_text(run: Run) -> Iterator[Finding]:
    if run.recipe_reader != "hf":
        return
    names = load_schema("training-arguments").root.names
    for key in recipe(run):
        if word_type(names.get(key.name)) != "bool" or key.name in run.arguments or key.name in _TAKES_WORDS:
            continue
        if isinstance(key.value, str) and key.value.lower() in FALSE_WORDS:
            yield key.finding(
                f"`{key.name}` is the text {key.value!r}, which counts as true: it is switched on",
                "write false without quotes",
                fix=key.replace("false", "write false"),
                where="value",
            )


_TAKES_WORDS = ("include_num_input_tokens_seen",)
