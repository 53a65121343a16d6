"""The same setting in the words of another format, from the facts ``setting`` and ``elsewhere`` of the keys.

A setting is named as DeepSpeed's config calls it, dotted ("zero_optimization.stage"), and where DeepSpeed has no key
for it as accelerate's config does ("num_machines").
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Literal

from zerocfg.catalog.check import refusal
from zerocfg.catalog.schema import Key, Section, load_schema
from zerocfg.catalog.values import yaml_number
from zerocfg.record import record, replace

Format = Literal["deepspeed", "accelerate", "training-arguments"]
Names = tuple[str, ...]

_HOMES: tuple[Names, ...] = (
    (),
    ("zero_optimization",),
    ("fp16",),
    ("bf16",),
    ("activation_checkpointing",),
    ("aio",),
    ("flops_profiler",),
    ("comms_logger",),
    ("checkpoint",),
    ("data_types",),
)
"""Sections of DeepSpeed's config that keys are looked for in when they stand elsewhere."""
_COMMON = frozenset("enabled verbose type params name device dtype".split())
"""Keys that several sections have."""


@record(frozen=True, slots=True)
class Counterpart:
    """Where a format has a setting, and the value in its form. ``fits``: the key takes that value. ``per_machine``:
    the number was that of one machine, and this key counts all."""

    path: Names
    value: object
    fits: bool = True
    per_machine: bool = False


@record(frozen=True, slots=True)
class Translation:
    """A key of another format, translated. ``lost``: settings of a section that the target format cannot express."""

    places: tuple[Counterpart, ...] = ()
    lost: tuple[str, ...] = ()


def translated(name: str, value: object, to: Format) -> Translation:
    """The translation into format ``to`` of a key that it does not have at this path."""
    places: list[Counterpart] = []
    lost: list[str] = []
    for setting, said, per_machine in _said(name, value):
        found = list(_in_words_of(to, setting, said))
        places += [replace(counterpart, per_machine=per_machine) for counterpart in found]
        if not found:
            lost.append(setting)
    return Translation(tuple(places), tuple(lost))


@lru_cache(maxsize=256)  # in an editor most names are asked for once: halves of words
def homes(name: str) -> tuple[Names, ...]:
    """The sections of DeepSpeed's config that have a key of this name; none for names that many have."""
    if name in _COMMON:
        return ()
    schema = load_schema("deepspeed")
    keys = {section: schema.find((*section, name)) for section in _HOMES}
    return tuple(
        section
        for section, key in keys.items()
        if key is not None and not {"removed", "deprecated", "inert"} & set(key.facts)
    )


@cache
def paths(format: Format) -> dict[str, Names]:
    """By setting: the key of accelerate's config or the training argument that takes the same value."""
    return {setting: path for path, setting, word in _stated(format) if word is None}


def settings(format: Format) -> dict[str, str]:
    """By the name of a key of accelerate's config or a training argument: its setting."""
    return {path[-1]: setting for setting, path in paths(format).items()}


def called(name: str) -> dict[str, bool]:
    """What the launchers call the option that one of them calls so: every name, with whether it counts the ranks of one
    machine only."""
    for path, key in _keys("accelerate"):
        names = {path[-1]: "same", **key.facts.get("elsewhere", {})}
        if name in names:
            return {item: how == "machine" for item, how in names.items()}
    return {}


def _said(name: str, value: object) -> Iterator[tuple[str, object, bool]]:
    """The settings that a key of this name states, each with its value in DeepSpeed's form, and whether it is a number
    for each machine."""
    if isinstance(value, dict):
        yield from ((setting, said, False) for setting, said in _of_section(name, value))
        return
    for format in ("accelerate", "training-arguments"):
        for path, setting, word in _stated(format):
            if path[-1] != name or (format == "training-arguments" and path[:-1]):
                continue  # words within a section of the Trainer's, as "version", are too common
            if word is None:
                yield setting, value, False
                return
            if isinstance(value, str) and value.lower() == word:
                yield setting, True, False
                return
    for path, key in _keys("accelerate"):
        if path[-1] == name and ".".join(path) in paths("training-arguments"):
            yield ".".join(path), value, False
            return
        how = key.facts.get("elsewhere", {}).get(name)
        if how is not None:
            yield ".".join(path), value, how == "machine"
            return
    path = _parameters().get(name) or next(((*home, name) for home in homes(name)), ())
    if path:
        key_ = load_schema("deepspeed").find(path)
        yield ".".join((*path[:-1], key_.name if key_ is not None else name)), value, False


@cache
def _parameters() -> dict[str, Names]:
    """Optimizer and scheduler parameters that a training argument sets as well: paths by argument name."""
    said = {tuple(setting.split(".")[:3]) for setting in paths("training-arguments")}
    return {path[-1]: path for path in said if path[1:2] == ("params",)}


def _of_section(name: str, value: dict[object, object]) -> Iterator[tuple[str, object]]:
    """The keys of a section of DeepSpeed's config that stands somewhere else."""
    home = next(iter(homes(name)), None)
    key = load_schema("deepspeed").find((*home, name)) if home is not None else None
    section = key.section(load_schema("deepspeed")) if key is not None else None
    if home is None or section is None:
        return
    for inner, item in value.items():
        known = section.key(str(inner))
        path = ".".join((*home, name, known.name if known is not None else str(inner)))
        yield from _leaves(path, item)


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(f"{path}.{name}", item)
    else:
        yield path, value


def _in_words_of(to: Format, setting: str, value: object) -> Iterator[Counterpart]:
    if to == "deepspeed":
        path = tuple(setting.split("."))
        yield from _fitting(to, path, value)
        return
    for path, stated, word in _stated(to):
        if stated == setting and (word is None or value is True):
            yield from _fitting(to, path, value if word is None else word)
            return
        if isinstance(value, list) and stated.rpartition(".")[0] == setting and stated.rpartition(".")[2].isdigit():
            at = int(stated.rpartition(".")[2])
            if at < len(value):
                yield from _fitting(to, path, value[at])
    schema = load_schema(to)
    if setting not in paths(to) and schema.find(tuple(setting.split("."))) is not None and to == "accelerate":
        yield from _fitting(to, tuple(setting.split(".")), value)


def _fitting(format: Format, path: Names, value: object) -> Iterator[Counterpart]:
    """The value as the key takes it: numbers out of texts, lists of names as one text and back."""
    key = load_schema(format).find(path)
    if key is None:
        return
    forms = [value, yaml_number(value)]
    if isinstance(value, str) and any(branch.get("type") == "array" for branch in key.scalars):
        forms.insert(0, value.split(","))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        forms.insert(0, ",".join(value))
    if isinstance(value, float) and value.is_integer():
        forms.append(int(value))
    fitting = (form for form in forms if form is not None and refusal(key, form) is None)
    form = next(fitting, None)
    yield Counterpart(path, value if form is None else form, fits=form is not None)


@cache
def _stated(format: Format) -> tuple[tuple[Names, str, str | None], ...]:
    """Path, setting and the value's meaning, for every key whose model declares a setting."""
    found: list[tuple[Names, str, str | None]] = []
    for path, key in _keys(format):
        stated = key.facts.get("setting")
        if isinstance(stated, str):
            found.append((path, stated, None))
        elif isinstance(stated, dict):
            found += [(path, setting, word) for word, setting in stated.items()]
    return tuple(found)


@cache
def _keys(format: Format) -> tuple[tuple[Names, Key], ...]:
    return tuple(_walk(load_schema(format).root, (), format))


def _walk(section: Section, path: Names, format: Format) -> Iterator[tuple[Names, Key]]:
    for name, key in section.keys.items():
        yield (*path, name), key
        inner = key.section(load_schema(format))
        if inner is not None:
            yield from _walk(inner, (*path, name), format)
