"""Does the library take this value? One function for each way in which libraries read values.

"lax"   pydantic's lax conversion: "500000000", 5e8, true for an int; "yes", 1, "off" for a bool
"lax 1"   the same by pydantic 1: a fraction is cut off for an int, a number becomes text for a string
"raw"   nothing converts and nothing checks; a wrong type travels until something breaks
"int", "float", "bool"   the text of an environment variable, converted later
"str"   anything has a text
"argument"   text is converted as argparse does with a word of a command line, other values are taken as they are

The typed models read by the same functions (`zerocfg.models.reading`), but for "lax": there pydantic itself does.
"""

from __future__ import annotations

import json
import math

from zerocfg.budgets import DIGITS
from zerocfg.patterns import pattern

ON_WORDS = frozenset(("1", "on", "t", "true", "y", "yes"))
OFF_WORDS = frozenset(("0", "off", "f", "false", "n", "no"))
"""What pydantic, and accelerate in an environment variable, take for true and for false."""
# ASCII digits: pydantic takes no others in a text, though Python's int() does.
_INTEGER = pattern(r"\s*[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?\s*")
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_FLOAT = pattern(rf"\s*[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?[0-9]+)?\s*")


class RefusedError(ValueError):
    """A value that the library does not accept; the message gives the reason."""


def as_int(value: object) -> int:
    """Pydantic's lax reading of an integer. Raises RefusedError."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        if abs(value) >= 1 << 4300:
            raise RefusedError("is too large for an integer")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RefusedError("is not a finite number")
        if value != int(value):
            raise RefusedError("has a fractional part where a whole number is needed")
        if abs(value) >= 2**63:
            raise RefusedError("is too large for an integer")
        return int(value)
    if isinstance(value, str):
        if _INTEGER.fullmatch(value):
            try:
                return int(value.split(".")[0])
            except ValueError:  # more digits than Python reads
                raise RefusedError("is too large for an integer") from None
        raise RefusedError("is a string that is not a whole number")
    raise RefusedError(f"is {kind_of(value)}, not a whole number")


def whole_number(text: object) -> int | None:
    """The number of a text of decimal digits alone; None for any other, and for more digits than any setting has, where
    Python gives up."""
    plain = text.strip() if isinstance(text, str) else ""
    return int(plain) if plain.isdecimal() and len(plain) <= DIGITS else None


def yaml_number(value: object) -> object:
    """The number that a text such as ``7e9`` looks like to everybody but YAML 1.1; other values as they are."""
    return as_float(value) if isinstance(value, str) and len(value) <= 40 and _FLOAT.fullmatch(value) else value


def as_float(value: object) -> float:
    """Pydantic's lax reading of a float. Raises RefusedError."""
    if isinstance(value, (bool, int, float)):
        try:
            return float(value)
        except OverflowError:
            raise RefusedError("is too large for a number") from None
    if isinstance(value, str):
        text = value.strip().lower().lstrip("+-")
        if _FLOAT.fullmatch(value) or text in ("nan", "inf", "infinity"):
            return float(value.replace("_", ""))
        raise RefusedError("is a string that is not a number")
    raise RefusedError(f"is {kind_of(value)}, not a number")


def as_bool(value: object) -> bool:
    """Pydantic's lax reading of a truth value. Raises RefusedError."""
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.lower()
        if word in ON_WORDS:
            return True
        if word in OFF_WORDS:
            return False
        raise RefusedError("is a string that is neither true nor false")
    raise RefusedError(f"is {kind_of(value)}, neither true nor false")


def env_bool(text: str) -> bool:
    """The reading of a truth value from an environment variable (accelerate's str_to_bool). Raises RefusedError."""
    word = text.lower()
    if word in ON_WORDS:
        return True
    if word in OFF_WORDS:
        return False
    raise RefusedError("is neither true nor false")


TRUE_WORDS = ("yes", "true", "t", "y", "1")
FALSE_WORDS = ("no", "false", "f", "n", "0")
"""What HfArgumentParser takes for true and for false."""


def convert(kind: str | None, value: object, reads: str) -> object:  # noqa: C901
    """A value as the library reads it where it wants ``kind``, a type of JSON. Raises RefusedError."""
    if kind in ("integer", "number", "boolean"):
        if reads in ("int", "float", "bool"):
            return from_text(kind, value)
        if reads == "argument" and isinstance(value, str):
            return argument(kind, value)
    if reads == "lax 1" and kind == "integer" and isinstance(value, float) and math.isfinite(value):
        return int(value)
    if reads == "lax 1" and kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if kind == "integer":
        if reads == "raw" and isinstance(value, (str, bool)):
            raise RefusedError(f"is {kind_of(value)}, not a whole number")
        return as_int(value)
    if kind == "number":
        if reads == "raw" and isinstance(value, (str, bool)):
            raise RefusedError(f"is {kind_of(value)}, not a number")
        return as_float(value)
    if kind == "boolean":
        if reads == "raw" and not isinstance(value, bool) and value not in (0, 1):
            raise RefusedError(f"is {kind_of(value)}, neither true nor false")
        return as_bool(value)
    if kind == "string":
        if isinstance(value, str) or reads == "str":
            return value
        raise RefusedError(f"is {kind_of(value)}, not a string")
    if kind == "array":
        if isinstance(value, (list, tuple)):
            return value
        raise RefusedError(f"is {kind_of(value)}, not a list")
    if kind == "object":
        if isinstance(value, dict):
            return value
        raise RefusedError(f"is {kind_of(value)}, not a mapping")
    if kind == "null":
        raise RefusedError("is not null")
    return value


def from_text(kind: str, value: object) -> object:
    """A value that travels as the text of an environment variable. Raises RefusedError."""
    text = str(value)
    if kind == "boolean":
        return env_bool(text)
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError:
        raise RefusedError(
            f"becomes the text '{text[:40]}', which is no {'whole ' * (kind == 'integer')}number"
        ) from None


def argument(kind: str, text: str) -> int | float | bool:
    """A text as HfArgumentParser converts a word of the command line. Raises RefusedError."""
    if kind == "boolean":
        word = text.lower()
        if word not in (*TRUE_WORDS, *FALSE_WORDS):
            raise RefusedError("is a string that is neither true nor false")
        return word in TRUE_WORDS
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError:
        raise RefusedError(f"is a string that is not a {'whole ' * (kind == 'integer')}number") from None


def kind_of(value: object) -> str:
    """What a value is, in the words of someone who writes config files."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (int, float)):
        return "a number"
    return f"a {type(value).__name__}"


def show(value: object, limit: int = 60) -> str:
    """A value as a message shows it, as it would be written in JSON; long ones are cut."""
    if value is True or value is False or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        # What a terminal would obey, or not show, is written as JSON writes it.
        text = f'"{"".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in value[: limit + 1])}"'
    elif isinstance(value, float) and value == int(value if math.isfinite(value) else 0) and 1e5 <= abs(value) < 1e16:
        text = f"{int(value)}"
    else:
        try:
            text = str(value)
        except ValueError:
            text = "a very large number"
    return text if len(text) <= limit else text[: limit - 1] + "…"
