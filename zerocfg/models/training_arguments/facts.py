"""Keys of a dataclass that HfArgumentParser reads: one function for each way in which text becomes a value.

``cli`` of such a key
    ``type``   "str", "int", "float", "bool" (a truth word), "dict" (cannot be given as text)
    ``nargs``  "+" for a list: one or more words; "?" when the value may be left out
There are two readers of a YAML recipe. TrlParser makes the values defaults of the command line parser, which
converts *text* by ``type`` and takes anything else as it is. HfArgumentParser.parse_yaml_file converts
nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from zerocfg.models.base import key


def _make(
    type: Literal["str", "int", "float", "bool", "dict"],
    nargs: str | None,
    doc: str,
    **facts: Any,
) -> Any:
    return key(doc, cli={"type": type} if nargs is None else {"type": type, "nargs": nargs}, **facts)


number = partial(_make, "float", None)
integer = partial(_make, "int", None)
switch = partial(_make, "bool", "?")
"""A bool; on the command line the word may be left out."""
optional_switch = partial(_make, "bool", None)
"""A bool or None, whose word must be given."""
text = partial(_make, "str", None)
"""A string, or one of several words."""
mapping = partial(_make, "str", None)
"""A mapping; as text it is JSON when it starts with a brace, and otherwise the path of a JSON file."""
items = partial(_make, "str", "+")
"""A list."""
