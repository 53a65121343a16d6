"""Stand-ins for functions, which record how they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Log = list[tuple[Any, ...]]
"""Calls in their order: the name of the function, its arguments, then named ones as pairs."""


def logged(log: Log, name: str, value: Any = None) -> Callable[..., Any]:
    """A function that records its calls and answers ``value``, or raises it where it is an exception."""

    def called(*words: Any, **named: Any) -> Any:
        log.append((name, *words, *named.items()))
        if isinstance(value, BaseException):
            raise value
        return value

    return called
