"""Keys of a dataclass that HfArgumentParser reads: one function for each way in which text becomes a value.

``cli`` of such a key
    ``type``   "str", "int", "float", "bool" (a truth word), "dict" (cannot be given as text)
    ``nargs``  "+" for a list: one or more words; "?" when the value may be left out
There are two readers of a YAML recipe. TrlParser makes the values defaults of the command line parser, which
converts *text* by ``type`` and takes anything else as it is. HfArgumentParser.parse_yaml_file converts
nothing.
"""

from __future__ import annotations

from typing import Any, Literal

from zerocfg.models.base import key


def _make(
    type: Literal["str", "int", "float", "bool", "dict"],
    default: Any,
    doc: str,
    nargs: str | None,
    **facts: Any,
) -> Any:
    return key(default, doc, cli={"type": type} if nargs is None else {"type": type, "nargs": nargs}, **facts)


def number(default: Any, doc: str = "", **facts: Any) -> Any:
    """A float."""
    return _make("float", default, doc, None, **facts)


def integer(default: Any, doc: str = "", **facts: Any) -> Any:
    """An int."""
    return _make("int", default, doc, None, **facts)


def switch(default: Any, doc: str = "", **facts: Any) -> Any:
    """A bool; on the command line the word may be left out."""
    return _make("bool", default, doc, "?", **facts)


def optional_switch(default: Any, doc: str = "", **facts: Any) -> Any:
    """A bool or None, whose word must be given."""
    return _make("bool", default, doc, None, **facts)


def text(default: Any, doc: str = "", **facts: Any) -> Any:
    """A string, or one of several words."""
    return _make("str", default, doc, None, **facts)


def mapping(default: Any, doc: str = "", **facts: Any) -> Any:
    """A mapping; as text it is JSON when it starts with a brace, and otherwise the path of a JSON file."""
    return _make("str", default, doc, None, **facts)


def items(default: Any, doc: str = "", type: Literal["str", "float"] = "str", **facts: Any) -> Any:
    """A list."""
    return _make(type, default, doc, "+", **facts)
