"""Dataclasses that cost nothing to define: `record` stands for `dataclasses.dataclass` in what a lint imports.

`dataclass` writes the text of up to eight methods for each class and compiles it, half a millisecond a class: 39 of the
122 ms of CPU time in which two files were linted (73 classes; 26.11, Python 3.11). Here the methods are closures over
the fields. A type checker takes `record` for `dataclass`; `field`, `fields`, `replace` and `asdict` work on records.
Making an instance takes twice as long (1 us more), so the few types of which a lint makes thousands stay dataclasses.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass as record
else:

    def record(cls=None, /, *, frozen=False, slots=False, eq=True):
        """As `dataclasses.dataclass` with the same arguments. There are no others, and no ``__post_init__``."""

        def make(of):
            return _made(of, frozen, slots, eq)

        return make if cls is None else make(cls)


__all__ = ["record"]

_set = object.__setattr__


def _made(cls: type, frozen: bool, slots: bool, eq: bool) -> type:
    inherited: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited |= base.__dict__.get("__dataclass_fields__", {})
    own = _own_fields(cls)
    every = {**inherited, **own}
    positional = [one for one in every.values() if one.init and not one.kw_only]
    methods: dict[str, Any] = {
        "__dataclass_fields__": every,
        "__match_args__": tuple(one.name for one in positional),
        "__init__": _initializer(positional, [one for one in every.values() if one not in positional]),
        "__repr__": _repr([one.name for one in every.values() if one.repr]),
    }
    if eq:
        values = _values([one.name for one in every.values() if one.compare])
        methods |= {"__eq__": _equality(values), "__hash__": _hash(values) if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if frozen and slots:  # what copies and pickles would do otherwise is refused
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    written = {name: held for name, held in vars(cls).items() if name not in (*own, "__dict__", "__weakref__")}
    if slots:
        names = tuple(name for name in own if name not in inherited)
        made = type(cls)(cls.__name__, cls.__bases__, {**methods, **written, "__slots__": names})
        made.__qualname__ = cls.__qualname__
        return made
    for one in own.values():
        if one.default is not MISSING:
            setattr(cls, one.name, one.default)
        elif one.name in vars(cls):
            delattr(cls, one.name)
    for name, method in methods.items():
        if name not in written:
            setattr(cls, name, method)
    return cls


def _own_fields(cls: type) -> dict[str, Field[Any]]:
    found = {}
    for name, kind in vars(cls).get("__annotations__", {}).items():
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = vars(cls).get(name, MISSING)
        one = given if isinstance(given, Field) else dataclasses.field(default=given)
        if type(one.default).__hash__ is None:
            raise ValueError(f"the default of {cls.__name__}.{name} can be changed: use default_factory")
        one.name, one.type = name, kind
        one.kw_only = one.kw_only is True
        one._field_type = dataclasses._FIELD  # type: ignore[attr-defined,union-attr]
        found[name] = one
    return found


def _initializer(positional: Sequence[Field[Any]], named: Sequence[Field[Any]]) -> Callable[..., None]:
    """``named``: the fields that are given by name alone, or not at all."""
    names = [one.name for one in positional]
    every = [(one.name, one.init, one.default, one.default_factory) for one in (*positional, *named)]

    def initialize(self: object, /, *given: Any, **by_name: Any) -> None:
        for name, value in zip(names, given):  # noqa: B905 - fewer may be given
            _set(self, name, value)
        for name, taken, default, factory in every[len(given) :]:
            if taken and name in by_name:
                _set(self, name, by_name.pop(name))
            elif default is not MISSING:
                _set(self, name, default)
            elif factory is not MISSING:
                _set(self, name, factory())
            else:
                raise TypeError(f"{type(self).__name__} lacks the argument '{name}'")
        if len(given) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} positional arguments, {len(given)} were given")
        if by_name:
            raise TypeError(f"{type(self).__name__} takes no argument '{next(iter(by_name))}', or has it twice")

    return initialize


def _repr(names: Sequence[str]) -> Callable[[object], str]:
    @recursive_repr()
    def represent(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return represent


def _values(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    return attrgetter(*names) if len(names) > 1 else lambda self: tuple([getattr(self, name) for name in names])


def _equality(values: Callable[[object], object]) -> Callable[[object, object], bool]:
    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hash(values: Callable[[object], object]) -> Callable[[object], int]:
    def hashed(self: object) -> int:
        return hash(values(self))

    return hashed


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _restore(self: Any, state: list[object]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        _set(self, name, value)
