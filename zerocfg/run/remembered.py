"""What follows from a file is kept with the file: worked out once, and gone with it.

A cache of a function would hold the last thousand files instead, which in an editor are as many versions of one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from zerocfg.run.model import SourceFile

T = TypeVar("T")
P = ParamSpec("P")


def remembered(
    function: Callable[Concatenate[SourceFile, P], T],
) -> Callable[Concatenate[SourceFile, P], T]:
    """A pure function of a file, and of further arguments that can be keys. Arguments are given by position."""

    @wraps(function)
    def call(file: SourceFile, /, *arguments: P.args, **named: P.kwargs) -> T:
        key = (function, *arguments) if arguments else function
        kept: dict[object, T] = file.remembered
        try:
            return kept[key]
        except KeyError:
            found = kept[key] = function(file, *arguments, **named)
            return found

    return call
