"""Dataclasses that cost nothing to define: `record` stands for `dataclasses.dataclass` in what a lint imports.

`dataclass` writes the text of up to eight methods for each class and compiles it, half a millisecond a class: 39 of the
122 ms of CPU time in which two files were linted (73 classes; 26.11, Python 3.11). Importing `dataclasses`, with the
`inspect` that it needs, is 8% of the instructions of what was left. So the methods are closures over the fields, and
`dataclasses` is imported when one of its own functions is asked about a record: `fields`, `asdict` and the others work.
A class of which many instances are made gets a compiled ``__init__`` then, as `dataclass` writes it.
A type checker takes `record`, `field` and `replace` for those of `dataclasses`.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType

TYPE_CHECKING = False  # see `zerocfg`
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from dataclasses import Field, field, replace
    from dataclasses import dataclass as record
    from typing import Any
else:

    def record(cls=None, /, *, frozen=False, slots=False, eq=True):
        """As `dataclasses.dataclass` with the same arguments. There are no others, and no ``__post_init__``."""

        def make(of):
            return _made(of, frozen, slots, eq)

        return make if cls is None else make(cls)

    def field(**given):
        """As `dataclasses.field` with the arguments of `_Field`."""
        return _Field(**given)

    def replace(one, /, **changes):
        """As `dataclasses.replace`."""
        every = vars(type(one)).get("__record_fields__")
        if every is None:
            import dataclasses

            return dataclasses.replace(one, **changes)
        positional = []
        for name, about in every.items():
            if not about.init:
                if name in changes:
                    raise ValueError(f"'{name}' of {type(one).__name__} is set by itself")
            elif about.kw_only:
                changes.setdefault(name, getattr(one, name))
            else:
                positional.append(changes.pop(name) if name in changes else getattr(one, name))
        return type(one)(*positional, **changes)


__all__ = ["field", "record", "replace"]

MISSING: Any = object()
_MANY = 64
"""Instances of a class after which compiling its ``__init__`` pays: a call takes 1 us less then, compiling 100 us."""
_set = object.__setattr__


class _Field:
    """What `dataclasses.Field` has of a field."""

    name: str
    type: Any
    default: Any = MISSING
    default_factory: Any = MISSING
    init = True
    repr = True
    compare = True
    kw_only = False

    def __init__(self, **given: Any) -> None:
        self.__dict__ = given


class _Fields:
    """``__dataclass_fields__`` of a record: what the functions of `dataclasses` ask for, made when they do."""

    def __init__(self, every: dict[str, _Field]) -> None:
        self.every = every
        self.made: dict[str, Field[Any]] | None = None

    def __get__(self, item: object, kind: type) -> dict[str, Field[Any]]:
        if self.made is None:
            self.made = {name: _for_dataclasses(about) for name, about in self.every.items()}
        return self.made


def _for_dataclasses(about: _Field) -> Field[Any]:
    import dataclasses

    defaults = {name: getattr(about, name) for name in ("default", "default_factory")}
    given = {name: value for name, value in defaults.items() if value is not MISSING}
    made: Any = dataclasses.field(
        init=about.init, repr=about.repr, compare=about.compare, kw_only=about.kw_only, **given
    )
    made.name, made.type, made._field_type = about.name, about.type, dataclasses._FIELD  # type: ignore[attr-defined]
    return made  # type: ignore[no-any-return]


def _taken(item: Any) -> _Field:
    """What a class writes for a field: a `field` of this module or of `dataclasses`, or the default."""
    if type(item) is _Field:
        return item
    if item is MISSING:
        return _Field()
    dataclasses = sys.modules.get("dataclasses")
    if dataclasses is None or not isinstance(item, dataclasses.Field):
        return _Field(default=item)
    given = {name: getattr(item, name) for name in ("default", "default_factory", "init", "repr", "compare", "kw_only")}
    given = {name: value for name, value in given.items() if value is not dataclasses.MISSING}
    return _Field(**given, name=item.name, type=item.type)


def _made(cls: type, frozen: bool, slots: bool, eq: bool) -> type:
    inherited: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        value = vars(base).get("__record_fields__", vars(base).get("__dataclass_fields__", {}))
        inherited |= {name: _taken(item) for name, item in value.items()}
    own = _own_fields(cls)
    every = {**inherited, **own}
    positional = [item for item in every.values() if item.init and not item.kw_only]
    whole: list[type] = []
    methods: dict[str, Any] = {
        "__record_fields__": every,
        "__dataclass_fields__": _Fields(every),
        "__match_args__": tuple(item.name for item in positional),
        "__repr__": _represent,
        "__init__": _initializer(positional, [item for item in every.values() if item not in positional], whole),
    }
    if eq:
        values = _values([item.name for item in every.values() if item.compare])
        methods |= {"__eq__": _equality(values), "__hash__": _hash(values) if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if frozen and slots:  # what copies and pickles would do otherwise is refused
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    written = {name: value for name, value in vars(cls).items() if name not in (*own, "__dict__", "__weakref__")}
    if slots:
        names = tuple(name for name in own if name not in inherited)
        made = type(cls)(cls.__name__, cls.__bases__, {**methods, **written, "__slots__": names})
        made.__qualname__ = cls.__qualname__
    else:
        made = cls
        for item in own.values():
            if item.default is not MISSING:
                setattr(cls, item.name, item.default)
            elif item.name in vars(cls):
                delattr(cls, item.name)
        for name, method in methods.items():
            if name not in written:
                setattr(cls, name, method)
    whole.append(made)
    return made


def _own_fields(cls: type) -> dict[str, _Field]:
    found = {}
    for name, kind in vars(cls).get("__annotations__", {}).items():
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        one = _taken(vars(cls).get(name, MISSING))
        if type(one.default).__hash__ is None:
            raise ValueError(f"the default of {cls.__name__}.{name} can be changed: use default_factory")
        one.name, one.type = name, kind
        found[name] = one
    return found


def _initializer(positional: Sequence[_Field], named: Sequence[_Field], whole: list[Any]) -> Callable[..., None]:
    """``named``: the fields that are given by name alone, or not at all. ``whole``: the class, once it is made."""
    names = [item.name for item in positional]
    every = [(item.name, item.init, item.default, item.default_factory) for item in (*positional, *named)]
    made = 0

    def initialize(self: object, /, *given: Any, **by_name: Any) -> None:
        nonlocal made
        made += 1
        if made == _MANY:
            whole[0].__init__ = _compiled(whole[0], [*positional, *named])
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


def _compiled(of: type, every: Iterable[_Field]) -> Callable[..., None]:
    """The same in Python's own words; ``every`` field, those by name alone last. Where assignments are refused, a slot
    is set by its own descriptor, which need not look for its name."""
    known: dict[str, Any] = {"_set": _set, "MISSING": MISSING}
    words, lines, by_name = ["self"], [], False
    for item in every:
        default, factory = f"_default_{item.name}", f"_factory_{item.name}"
        known |= {default: item.default, factory: item.default_factory}
        value = item.name
        if not item.init:
            value = f"{factory}()" if item.default is MISSING else default
        else:
            if item.kw_only and not by_name:
                words.append("*")
                by_name = True
            optional = item.default is not MISSING or item.default_factory is not MISSING
            words.append(f"{item.name}={default}" if optional else item.name)
            if item.default_factory is not MISSING:
                value = f"{factory}() if {item.name} is MISSING else {item.name}"
        slot = getattr(of, item.name, None)
        if getattr(of, "__setattr__", None) is _set:
            lines.append(f"    self.{item.name} = {value}\n")
        elif isinstance(slot, MemberDescriptorType):
            known[f"_set_{item.name}"] = slot.__set__
            lines.append(f"    _set_{item.name}(self, {value})\n")
        else:
            lines.append(f"    _set(self, {item.name!r}, {value})\n")
    exec(f"def __init__({', '.join(words)}):\n{''.join(lines) or '    pass'}", known)
    compiled: Callable[..., None] = known["__init__"]
    return compiled


@recursive_repr()
def _represent(self: Any) -> str:
    shown = (name for name, record_field in self.__record_fields__.items() if record_field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


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
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__record_fields__]


def _restore(self: Any, state: list[object]) -> None:
    for name, value in zip(self.__record_fields__, state, strict=True):
        _set(self, name, value)
