"""How a value of a file becomes the value of a model: as the library that reads the key takes it.

One function for each word of ``reads`` (see :mod:`zerocfg.models.base`). "lax" is pydantic's own conversion, because
DeepSpeed's typed sections are pydantic models; the others convert by the functions that linting uses as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NoReturn, TypeGuard

from pydantic import ValidationError

from zerocfg.catalog.values import RefusedError, argument, from_text, kind_of

Take = Callable[[object], object]
"""Validates a value against the type of its key; raises pydantic's ValidationError."""

Reads = Literal["lax", "raw", "int", "float", "bool", "str", "true", "truth", "argument"]

_FROM_TEXT = {"int": "integer", "float": "number", "bool": "boolean"}
_OF_NUMBERS = frozenset("greater_than greater_than_equal less_than less_than_equal".split())
_OF_OTHERS = frozenset("literal_error string_too_short string_pattern_mismatch none_required".split())
"""Kinds of errors of pydantic that are not about the type of a value."""


def read(value: object, take: Take, facts: Mapping[str, object]) -> object:
    """The value of a key as its library keeps it. Raises ValueError where the library refuses it."""
    if value == "auto" and ("auto" in facts or "auto_raw" in facts):
        return value  # somebody fills it, or it stands in the way of whoever uses it
    if "never" in facts:
        raise ValueError(str(facts["never"]))
    if (isinstance(value, bool) and "no_bool" in facts) or (isinstance(value, str) and "no_text" in facts):
        raise RefusedError(f"is {kind_of(value)}, not a number")
    reads, words = facts.get("reads"), _spellings(value) if "ignore_case" in facts else (value,)
    if reads == "raw":
        return _as_it_is(value, words, take, used=facts.get("auto_raw") == "error")
    if reads == "true":
        return None if value is None else str(value).lower() == "true"
    if reads == "truth":
        return None if value is None else bool(value)
    if value is not None and isinstance(reads, str) and reads in _FROM_TEXT:
        return _text(value, words, take, _FROM_TEXT[reads])
    if reads == "str" and value is not None:
        text = str(value)
        return _first(take, *words, text, *((int(text),) if text.isdecimal() else ()))
    if reads == "argument":
        return _argument(value, take, facts.get("cli"))
    return _first(take, *words)


def refused(facts: Mapping[str, object]) -> NoReturn:
    """Of a key that was removed. Raises ValueError."""
    raise ValueError(f"this key was removed; its presence alone is an error: {facts['removed']}")


def _as_it_is(value: object, words: Sequence[object], take: Take, *, used: bool) -> object:
    """Nothing checks the type, so only ranges and choices count; ``used``: the library calculates with the value, and
    a text, a list or a mapping where none belongs stops it."""
    if value is None and not used:
        return None
    exact = (int(value),) if isinstance(value, float) and abs(value) < 2**53 and value.is_integer() else ()
    try:
        _first(take, *exact, *words)  # what is wrong with a whole number, before that it is written as 2.0
    except ValidationError as error:
        wrong = [
            error_details
            for error_details in error.errors()
            if error_details.get("ctx", {}).get("expected") != "'auto'"
        ]
        limits = _OF_OTHERS if isinstance(value, (str, bool)) else _OF_OTHERS | _OF_NUMBERS
        stops = used and (value is None or isinstance(value, (str, list, dict)))
        if stops or any(error_details["type"] in limits for error_details in wrong):
            raise
    return value


def _text(value: object, words: Sequence[object], take: Take, kind: str) -> object:
    """What the process makes of the text of an environment variable; a word of a choice stays one."""
    try:
        return take(from_text(kind, value))
    except (RefusedError, ValidationError):
        taken = _first(take, *words) if isinstance(value, str) else None
        if not isinstance(taken, str):
            raise
        return taken


def _argument(value: object, take: Take, cli: object) -> object:
    """Text as a word of a command line, where the key is no text itself."""
    kind = _FROM_TEXT.get(str(cli["type"])) if _is_facts(cli) else None
    if not isinstance(value, str) or kind is None or (_is_facts(cli) and cli.get("nargs") == "+"):
        return take(value)
    try:
        return take(argument(kind, value))
    except (RefusedError, ValidationError):
        taken = take(value)  # a choice of words beside the number
        if not isinstance(taken, str):
            raise
        return taken


def _is_facts(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict) and "type" in value


def _spellings(value: object) -> tuple[object, ...]:
    """A word and the same in other cases: what is taken first counts."""
    return (value, value.lower(), value.upper(), value.capitalize()) if isinstance(value, str) else (value,)


def _first(take: Take, *values: object) -> object:
    """What the type makes of the first value that it takes. Raises its error about the first of all."""
    first: ValidationError | None = None
    for value in values:
        try:
            return take(value)
        except ValidationError as error:
            first = first or error
    assert first is not None
    raise first
