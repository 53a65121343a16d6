"""ZC8xx: training arguments, and what changes from one release to the next."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import FALSE_WORDS, RefusedError
from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import (
    Argument,
    arguments,
    dropped,
    own_option,
    reader,
    renamed,
    type_of,
)
from zerocfg.rules.calls import given_in_calls, key_of_call
from zerocfg.rules.effects import TRAINERS, admitted, admitting, deepspeed_data, recipe_data
from zerocfg.rules.failures import failures, primary_location
from zerocfg.rules.fixes import edited, rewritten
from zerocfg.rules.taken import declares, in_call, lets_through, removed, said_for, what_happens
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.run.stages.arguments import converted, is_template, parsed
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Scalar


@rule("ZC801", "argument-removed", Severity.NOTE)
def argument_removed(run: Run) -> Iterator[Finding]:
    names = load_schema("training-arguments").root.names
    for held in arguments(run):
        if own_option(run, held.name) or (held.on_line and (reader(run) is None or lets_through(run, held))):
            continue
        key = names.get(held.name)
        instead = str(key.facts.get("removed", "")) if key is not None else ""
        if not declares(run, "transformers"):
            if instead:
                yield _gone_today(run, held, instead)
            continue
        lack = removed(run, held)
        if lack is None or lack.library != "transformers":
            continue
        sentence = f"transformers {lack.edge} removed" if lack.edge else "transformers no longer has"
        finding = Finding(
            held.at(),
            f"{sentence} the argument `{held.name}`; {what_happens(run, held, lack)}",
            instead or "leave it out",
            fix=_modernized(run, held, instead, safe=not (held.on_line and run.script is None)),
            severity=Severity.ERROR,
        )
        yield said_for(run, finding, lack)


def _gone_today(run: Run, held: Argument, instead: str) -> Finding:
    """Where the project does not say which releases it is for."""
    return Finding(
        held.at(),
        f"transformers {VERSIONS['transformers']} has no argument `{held.name}`; a release that still has it is needed",
        instead,
        fix=_modernized(run, held, instead, safe=False),
    )


_TURNED: dict[str, tuple[str, str]] = {
    "group_by_length": ("train_sampling_strategy", "group_by_length"),
    "adafactor": ("optim", "adafactor"),
    "include_inputs_for_metrics": ("include_for_metrics", "[inputs]"),
}
"""Switches that became a word of another argument when they are on."""


def _modernized(run: Run, held: Argument, instead: str, *, safe: bool) -> Fix | None:
    """The argument as today's release wants it; None where that takes more than one line."""
    name, said, recipe = held.name, held.held, run.recipe
    names = {other.name for other in arguments(run)}
    new = instead.removeprefix("write ") if instead.startswith("write ") else ""
    if name == "warmup_ratio":
        # a ratio of 1 would become one step
        ratio = _fraction(said) if held.on_line else said
        fits = isinstance(ratio, float) and 0 <= ratio < 1 and "warmup_steps" not in names
        return renamed(run, held, "warmup_steps", "write warmup_steps", safe=safe) if fits else None
    if name in _TURNED and isinstance(said, bool) and not held.on_line:
        other, text = _TURNED[name]
        if not said:
            return dropped(run, held, "remove the line", safe=safe)
        if other in names:
            return None
        return rewritten(recipe, (name,), other, text, why=f"write {other}: {text}", safe=safe)
    if new.isidentifier() and new not in names and name not in ("sharded_ddp", "torchdynamo"):
        return renamed(run, held, new, f"write {new}", safe=safe)
    if instead.endswith("delete the line"):
        return dropped(run, held, "remove the option" if held.on_line else "remove the line", safe=safe)
    return None


def _fraction(text: object) -> float | None:
    """The number that a word of a launch line says."""
    try:
        return float(text) if isinstance(text, str) else None
    except ValueError:
        return None


@rule("ZC802", "argument-type", Severity.ERROR)
def argument_type(run: Run) -> Iterator[Finding]:
    yield from _texts_in_calls(run)
    if run.consumer not in TRAINERS:
        return
    told = set()
    for failure in failures(run, "ZC802"):
        location, related = primary_location(run, failure.places, "value")
        held = recipe_data(run).get(str(location.path[0])) if location.path else None
        if isinstance(held, str) and run.recipe_reader != "trl":
            continue  # below
        told.add(location.path or location.span)
        yield Finding(location, failure.message, "write a plain number", related, _plain_number(run, location))
    if reader(run) is None:
        return
    for one in arguments(run):
        place = one.at("value")
        if (place.path or place.span) in told:
            continue
        finding = _on_the_line(run, one, place) if one.on_line else _in_the_recipe(run, one, place)
        if finding is not None:
            yield finding


def _texts_in_calls(run: Run) -> Iterator[Finding]:
    """Texts that calls in the script give where a number is wanted: the class takes them as they are."""
    for one in given_in_calls(run):
        key = key_of_call(one)
        kind = (key.facts.get("cli") or {}).get("type") if key is not None else None
        if kind not in ("int", "float") or not isinstance(one.value, str) or one.origin.file is None:
            continue
        yield Finding(
            Location(one.origin.file, span=one.origin.span),
            f"{one.name} is the text {one.value!r}, not a number; {one.of} does not convert it",
            "write a plain number",
        )


def _on_the_line(run: Run, one: Argument, place: Location) -> Finding | None:
    """A word of the launch line that argparse does not convert. Not told where the script's parser is not known:
    an option of its own may have this name."""
    kind = type_of(run, one.name)
    if kind not in ("int", "float", "bool") or not isinstance(one.held, str) or not parsed(run):
        return None
    if is_template(one.held) or not _refused(kind, one.held):
        return None
    wanted = "yes or no" if kind == "bool" else kind
    return Finding(place, f"{one.name}: {one.held!r} is no {wanted}", f"write {_WANTED[kind]}")


_WANTED = {"int": "a plain number", "float": "a plain number", "bool": "true or false"}


def _in_the_recipe(run: Run, one: Argument, place: Location) -> Finding | None:
    """A text where a number is wanted: HfArgumentParser hands it over, TrlParser converts those that are numbers. It
    also converts the words for yes and no, and stops at any other where one is wanted."""
    kind, text = type_of(run, one.name), one.held
    if not isinstance(text, str) or in_call(one):
        return None
    if kind == "bool":
        stops = run.recipe_reader == "trl" and not is_template(text) and _refused(kind, text)
        return Finding(place, f"{one.name}: {text!r} is no yes or no", "write true or false") if stops else None
    if kind not in ("int", "float"):
        return None
    node = run.recipe.document.get(place.path) if run.recipe is not None and run.recipe.document is not None else None
    if not isinstance(node, Scalar) or (_number(text) and not node.quoted):
        return None  # ZC005 knows how such a number is written
    if run.recipe_reader != "hf":
        if run.consumer is None or is_template(text) or not _refused(kind, text):
            return None  # TrlParser converts it, or nobody knows who reads the recipe
        return Finding(place, f"{one.name}: {text!r} is no {kind}", "write a plain number")
    return Finding(
        place,
        f"{one.name} is the text {text!r}, not a number; HfArgumentParser does not convert it",
        "write a plain number",
        fix=_plain_number(run, place),
    )


def _refused(kind: str, text: str) -> bool:
    try:
        converted(kind, text)
    except RefusedError:
        return True
    return False


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _plain_number(run: Run, location: Location) -> Fix | None:
    """A quoted number without its quotes, a list of one number without its brackets."""
    held = recipe_data(run).get(str(location.path[0])) if location.path else None
    if isinstance(held, list) and len(held) == 1:
        held = held[0]
    if isinstance(held, str) and _number(held):
        held = float(held) if set("eE.") & set(held) else int(held, 10) if held.strip("+-").isdigit() else None
    if isinstance(held, bool) or not isinstance(held, (int, float)):
        return None
    text = repr(held)
    text = text.replace("e", ".0e") if "e" in text and "." not in text else text
    return edited(replace_value, run.recipe, location.path, text, why=f"write {text}")


@rule("ZC825", "false-as-text", Severity.ERROR, consumers={"transformers"})
def false_as_text(run: Run) -> Iterator[Finding]:
    if run.recipe_reader != "hf" or run.recipe is None:
        return
    names = load_schema("training-arguments").root.names
    for name, text in recipe_data(run).items():
        key = names.get(str(name))
        kind = (key.facts.get("cli") or {}).get("type") if key is not None else None
        if kind != "bool" or not isinstance(text, str) or text.lower() not in FALSE_WORDS or str(name) in run.arguments:
            continue
        if name == "include_num_input_tokens_seen":
            continue  # takes words
        path = (str(name),)
        yield Finding(
            Location(run.recipe, path, "value"),
            f"`{name}` is the text {text!r}, which counts as true: it is switched on",
            "write false without quotes",
            fix=edited(replace_value, run.recipe, path, "false", why="write false"),
        )


@rule("ZC803", "clipping-default-changed", Severity.NOTE, needs={"versions"}, versions="deepspeed>=0.19.3")
def clipping_default_changed(run: Run) -> Iterator[Finding]:
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
