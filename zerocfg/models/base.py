"""How a key of a config file is declared.

A model is a pydantic class; a key is a field made with :func:`key`. What pydantic cannot say (unit, who fills
an ``auto``, since which release, what happens to unknown keys) is kept as data and lands in the compiled
schema under ``x-zerocfg``:

on a property
    ``unit``        what the number counts: "elements", "bytes", "GiB", "samples", "steps", "ranks", ...
    ``source``      where the fact comes from: "deepspeed/runtime/zero/config.py"
    ``since`` / ``until``   first release that reads the key / first release that no longer does
    ``auto``        who fills a literal ``"auto"``: {"transformers": "per_device_train_batch_size", ...}; a
                    consumer that is absent does not fill it
    ``auto_raw``    what the reading library itself does with an unfilled "auto":
                    "default" (silently its default), "kept" (the string travels on), "error"
    ``aliases``     other spellings that are read as this key
    ``deprecated``  why the key should not be written any more, and what to write instead
    ``renamed_to``  the key that replaced this one (same section unless it holds a dot)
    ``removed``     the key is refused by its presence alone; the text says why
    ``inert``       the key is read by nobody in effect; the text says so
    ``reads``       how the value is read: "lax" (pydantic's lax conversion), "raw" (taken as it is, nothing
                    checks), "int" / "float" / "bool" (converted from the text of an environment variable),
                    "str", "true" (only the word true, in any case, is True), "truth" (Python's truth: any
                    text is True)
    ``default_before``  former defaults: {first release with the next default: the default until then}
    ``never``       why no value that a file can hold is accepted
    ``no_bool``     true and false are refused although the conversion would take them for 1 and 0
    ``no_text``     a number in quotes is refused although the conversion would take it
    ``ignore_case`` the value is brought to one case before it is compared
    ``cli``         the launcher's option: {"flags", "type", "default", "choices", "action"}; see
                    accelerate/facts.py
    ``setting``     what the key sets, as DeepSpeed's config calls it: "gradient_clipping", an item of a list by its
                    number; {word of the value: key that is true with it} where several are meant
    ``elsewhere``   what the other launchers call it: {"nnodes": "same"}; "machine" where theirs counts one machine
    ``env``         the environment variables that carry the value to the job, a list; see accelerate/facts.py
    ``variable``    of a key that is not exported: the environment variable that the job reads for it
    ``facts``       (argument of `key` only) further facts of one format, kept under their own names
on a section (object)
    ``unknown``     what an unknown key does: "error", "ignored", or "passed" (handed on to someone else, who
                    may know it)
    ``null``        what `section: null` does: "absent", "error", or "falsy" (null, false, 0, "" and [] are all absent)
    ``library``     the name of the library that reads the section
    ``prefix``      what the library puts before a key that lacks it, or (``prefix_optional`` false) what
                    must be written
    ``also``        name of a schema whose keys take effect here too
    ``yaml_numbers``  text that YAML 1.1 does not take for a number, as ``7e9``, is read as the number it looks like
    ``required_unless``   (of the class; compiled to ``anyOf``) keys beside which no key is required; None: none ever is
    ``shared``      the file holds keys of other readers as well, and may be written for another release: unknown and
                    removed keys are taken
    ``readers``     reader -> what it does with text where a number or truth value is wanted: "converted" or "kept"
on a property that holds a section
    ``variants``    {"key": name of a sibling, "any_case": bool, "cases": {value: "#/$defs/Name"}}: which
                    section it is for these values of the sibling; for others the declared section holds
``reads`` and ``auto_raw`` may be stated once for a section; they then hold for each of its keys that says
nothing else.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from zerocfg.models.reading import Reads, read, refused
from zerocfg.models.walked import walked_default

Consumer = Literal["deepspeed", "accelerate", "transformers", "trl"]
Unknown = Literal["error", "ignored", "passed"]
Null = Literal["absent", "error", "falsy"]
AutoRaw = Literal["default", "kept", "error"]


@dataclass(frozen=True)
class Variants:
    """Which section a key holds, decided by the value of the key beside it that is named ``key``."""

    key: str
    cases: dict[str, type[Section]]
    any_case: bool = False

    def section(self, value: object) -> type[Section] | None:
        """The section for a value of the key beside it; None where the declared one holds."""
        return self.cases.get(value.lower() if self.any_case else value) if isinstance(value, str) else None


class Section(BaseModel):
    """One mapping of a config file.

    Facts that subclasses set: ``unknown`` (what the library does with an unknown key), ``null`` (what it does
    with ``section: null``), ``source`` (file of the library that reads it), ``library`` (its name),
    ``reads`` and ``auto_raw`` (what holds for each key that does not state its own), ``variants`` (by name of
    the key), ``known_as`` (what ``schemas/releases/LIBRARY.json`` calls the section: dotted, "" for the file itself.
    Keys that state no default have the one of the newest release there. None: the section was not walked).

    ``Model.model_validate(data)`` takes the data of a file as the library does: keys under each of their names, values
    converted (:mod:`zerocfg.models.reading`), what counts as not written left out. Keys that nobody reads here are in
    ``model_extra``.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True, protected_namespaces=())

    unknown: ClassVar[Unknown] = "error"
    null: ClassVar[Null] = "error"
    source: ClassVar[str] = ""
    library: ClassVar[str] = ""
    known_as: ClassVar[str | None] = None
    prefix: ClassVar[str] = ""
    prefix_optional: ClassVar[bool] = False
    also: ClassVar[str] = ""
    shared: ClassVar[bool] = False
    readers: ClassVar[dict[str, str]] = {}
    yaml_numbers: ClassVar[bool] = False
    required_unless: ClassVar[tuple[str, ...] | None] = ()
    reads: ClassVar[Reads | None] = None
    auto_raw: ClassVar[AutoRaw | None] = None
    variants: ClassVar[dict[str, Variants]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """The constraints of all keys, as pydantic states them, and the defaults that are the library's own."""
        refused = cls.unknown == "error" and not cls.shared
        cls.model_config["extra"] = "forbid" if refused else "allow"
        cls.model_config["strict"] = cls.reads == "raw"
        if cls.known_as is not None:
            for name, field in cls.model_fields.items():
                if field.is_required():
                    field.default = walked_default(cls.library, cls.known_as, name)

    @model_validator(mode="before")
    @classmethod
    def _entries(cls, data: object) -> object:
        return _entries(cls, data) if isinstance(data, dict) else data

    @field_validator("*", mode="wrap")
    @classmethod
    def _value(cls, value: object, take: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        name = info.field_name or ""
        declared = keys_of(cls)[name]
        variants = cls.variants.get(name) if isinstance(value, dict) else None
        case = variants.section(info.data.get(variants.key)) if variants is not None else None
        if case is not None:
            return case.model_validate(value)
        if "removed" in declared.facts:
            return value if cls.shared else refused(declared.facts)
        return read(value, take, declared.facts) if declared.scalar else take(value)


@dataclass(frozen=True)
class Declared:
    """A key of a section: its facts with those of the section, the section that it holds, whether null is a value."""

    facts: dict[str, object]
    section: type[Section] | None
    nullable: bool
    scalar: bool
    """Whether it is read at all: neither a section nor something of which anything is taken."""


@cache
def keys_of(model: type[Section]) -> dict[str, Declared]:
    """Every key of a section by the name of its field."""
    found: dict[str, Declared] = {}
    for name, field in model.model_fields.items():
        facts = stated(field)
        parts = list(_parts(field.annotation))
        section = next((part for part in parts if isinstance(part, type) and issubclass(part, Section)), None)
        if section is None and "removed" not in facts:
            for fact, value in (("reads", model.reads), ("auto_raw", model.auto_raw)):
                if value is not None:
                    facts.setdefault(fact, value)
        free = object in parts
        nullable = free or None in parts or type(None) in parts
        found[name] = Declared(facts, section, nullable, section is None and (not free or "never" in facts))
    return found


def stated(field: FieldInfo) -> dict[str, object]:
    """A copy of the facts that `key` was given."""
    extra = field.json_schema_extra
    known = extra.get("x-zerocfg") if isinstance(extra, dict) else None
    return dict(known) if isinstance(known, dict) else {}


def spellings(model: type[Section], name: str) -> list[str]:
    """The other names under which a key is read."""
    aliases = keys_of(model)[name].facts.get("aliases")
    short = name.removeprefix(model.prefix) if model.prefix_optional else name
    return [*(aliases if isinstance(aliases, list) else ()), *([short] if short != name else [])]


@cache
def _names(model: type[Section]) -> dict[str, str]:
    """Field by every name under which it is read."""
    fields = list(keys_of(model))
    return {other: name for name in fields for other in spellings(model, name)} | {name: name for name in fields}


def _entries(model: type[Section], data: dict[str, object]) -> dict[str, object]:
    """The entries of a mapping that its library sees, by the names of the fields."""
    found: dict[str, object] = {}
    names = _names(model)
    for written, value in data.items():
        name = names.get(written)
        if name is None:
            if value != "auto" or model.reads != "lax":
                found[written] = value
        elif name != written and data.get(name) is not None:
            found[written] = value  # nobody reads it under this name
        elif not _absent(model, name, value, other_name=name != written):
            passed_on = value is None and name != written and keys_of(model)[name].section is not None
            found[name] = _PASSED_ON if passed_on else value
    return found


_PASSED_ON = object()
"""Stands for a null that the library unpacks as a section, which no section takes, even if it may be null."""


def _absent(model: type[Section], name: str, value: object, *, other_name: bool) -> bool:
    """Whether the library takes a key with this value for one that is not written."""
    key = keys_of(model)[name]
    if value == "auto":
        if key.section is not None:
            return key.section.library == "deepspeed" and key.facts.get("auto_raw") != "error"
        return model.reads == "lax" and "auto" not in key.facts
    if key.section is None:
        read_as = key.facts.get("reads")
        return value is None and not key.nullable and read_as in ("int", "float", "bool", "str")
    if key.section.null == "falsy" and not value:
        return True
    # Under its other name the section is taken as it is: `bfloat16: null` is passed on, `bf16: null` is not.
    return value is None and not other_name and not key.nullable and key.section.null == "absent"


def _parts(annotation: Any) -> typing.Iterator[Any]:
    """The alternatives of a type."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _parts(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from _parts(part)
    elif origin is Literal and None in typing.get_args(annotation):
        yield from (annotation, None)
    else:
        yield annotation


def key(
    doc: str = "",
    *,
    default: object = ...,
    unit: str | None = None,
    source: str | None = None,
    since: str | None = None,
    until: str | None = None,
    auto: dict[str, str] | None = None,
    auto_raw: AutoRaw | None = None,
    aliases: tuple[str, ...] = (),
    deprecated: str | None = None,
    renamed_to: str | None = None,
    removed: str | None = None,
    inert: str | None = None,
    reads: Reads | None = None,
    ignore_case: bool | None = None,
    default_before: dict[str, object] | None = None,
    setting: str | dict[str, str] | None = None,
    elsewhere: dict[str, str] | None = None,
    cli: dict[str, object] | None = None,
    env: list[dict[str, object]] | None = None,
    facts: dict[str, object] | None = None,
    **field: Any,
) -> Any:
    """Declare one key; ``field`` takes the words of pydantic: ``ge``, ``gt``, ``le``, ``lt``, ``examples``...

    Without ``default`` the key has the one of its library's newest walked release (see `Section.known_as`); where the
    section was not walked it is required. A :class:`Section` class as default: absent is the same as an empty section.
    """
    known: dict[str, Any] = {
        "unit": unit,
        "source": source,
        "since": since,
        "until": until,
        "auto": auto,
        "auto_raw": auto_raw,
        "aliases": list(aliases) or None,
        "deprecated": deprecated,
        "renamed_to": renamed_to,
        "removed": removed,
        "inert": inert,
        "reads": reads,
        "ignore_case": ignore_case,
        "default_before": default_before,
        "setting": setting,
        "elsewhere": elsewhere,
        "cli": cli,
        "env": env,
        **(facts or {}),
    }
    known = {name: value for name, value in known.items() if value is not None}
    if default is ... and removed is not None:
        default = None
    if isinstance(default, type) and issubclass(default, Section):
        field["default_factory"] = default
    elif isinstance(default, (dict, list)):
        field["default_factory"] = default.copy
    else:
        field["default"] = default
    return Field(description=doc or None, json_schema_extra={"x-zerocfg": known} if known else None, **field)
