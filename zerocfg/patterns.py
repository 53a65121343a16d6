"""Regular expressions that are compiled when they are first used.

Of the 58 that a lint of two files imports (PyYAML's and those of `json` among them) it uses 15. Compiling all of them
took 15% of its instructions, a third of that for one class of characters in PyYAML (26.11, Python 3.11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # see `zerocfg`
if TYPE_CHECKING:
    from re import compile as pattern
    from typing import Any
else:

    def pattern(text, flags=0):
        """As `re.compile`. What it gives has the methods and attributes of a pattern; `re.sub` and its like do not
        take it."""
        return _Pattern(text, flags)


__all__ = ["compiled_when_used", "pattern"]

_compile = re.compile


class _Pattern:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags

    def match(self, *arguments: Any) -> Any:
        """A method of its own, so that a module may take it as a default, as `json` does; bound to the compiled pattern
        from the first use on."""
        return self.__getattr__("match")(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copies and pickles ask for
            raise AttributeError(name)
        compiled = _compile(self._text, self._flags)
        vars(self).update({method: getattr(compiled, method) for method in dir(compiled) if method[0] != "_"})
        return getattr(compiled, name)


@contextmanager
def compiled_when_used() -> Iterator[None]:
    """For importing modules of others: what they compile at their top becomes such a pattern. For a process that is a
    command; where other people's code runs, too, it shall find patterns of `re`."""
    re.compile = pattern
    try:
        yield
    finally:
        re.compile = _compile
