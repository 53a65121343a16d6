"""Records are dataclasses: the standard library's are the oracle."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, asdict, fields
from functools import cached_property
from typing import Any, ClassVar

import pytest

from zerocfg.record import _MANY, record
from zerocfg.record import field as own_field
from zerocfg.record import replace as own_replace

Decorator = Callable[..., Any]
FORMS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"frozen": True, "slots": True, "eq": False},
]


def _classes(decorator: Decorator, field: Callable[..., Any], **form: bool) -> tuple[Any, Any, Any]:
    """The same three classes by either decorator."""

    @decorator(**form)
    class Point:
        """Two fields with defaults, one without."""

        kinds: ClassVar[tuple[str, ...]] = ("point",)
        x: int
        y: object = 2
        seen: list[int] = field(default_factory=list)

        def total(self) -> int:
            return self.x + len(self.seen)

    @decorator(**form)
    class Named(Point):
        """One field more, one with another default, one that is given by name."""

        y: object = "other"
        note: str = field(default="", compare=False, repr=False)
        name: str = field(kw_only=True)

    @decorator(**form)
    class Nothing:
        """No field."""

    return Point, Named, Nothing


def _seen(action: Callable[[], object]) -> object:
    """What an action gives: a value, or the type of what it raises."""
    try:
        return action()
    except (TypeError, AttributeError, ValueError) as error:
        return type(error)


def _looks(
    decorator: Decorator,
    form: dict[str, bool],
    field: Callable[..., Any] = dataclasses.field,
    replace: Callable[..., Any] = dataclasses.replace,
    earlier: int = 0,
) -> Iterator[tuple[str, object]]:
    """Everything that can be seen of the classes, with what was looked at. ``earlier``: instances that they had."""
    point, named, nothing = _classes(decorator, field, **form)
    for number in range(earlier):
        assert (point(number).x, named(number, name="n").x, len(vars(nothing)) > 0) == (number, number, True)
        nothing()
    yield "no argument", _seen(lambda: repr(point()))
    yield "too many", _seen(lambda: repr(point(1, 2, [], 4)))
    yield "unknown", _seen(lambda: repr(point(1, z=2)))
    yield "twice", _seen(lambda: repr(point(1, x=2)))
    yield "by name alone", _seen(lambda: repr(named(1, 2, [], "", "name")))
    yield "lacks the name", _seen(lambda: repr(named(1)))
    made = [
        (point(1), point(1, 2), point(x=1, y=3), point(1, seen=[4])),
        (named(1, name="a"), named(1, name="a", note="n"), named(1, name="b"), named(1, "p", [1], "q", name="a")),
        (nothing(), nothing()),
    ]
    for kind, group in zip(("point", "named", "nothing"), made, strict=True):
        for at, one in enumerate(group):
            where = f"{kind} {at}"
            hidden = "eq" in form and form["eq"] is False
            yield f"{where} repr", repr(one).partition("<locals>.")[2]
            yield f"{where} equal", [one == other for several in made for other in several]
            yield f"{where} differs", [one != other for other in group]
            yield f"{where} hash", hidden or _seen(lambda one=one: hash(one) == hash(copy.copy(one)))
            yield f"{where} as dict", asdict(one)
            yield f"{where} copied", repr(copy.deepcopy(one)) == repr(one)
            yield f"{where} set", _seen(lambda one=one: setattr(copy.copy(one), "x", 5)) is None
            # 3.11 loses itself where a frozen class with slots has no such field: that it refuses is all that counts
            yield f"{where} set new", _seen(lambda one=one: setattr(copy.copy(one), "unheard_of", 5)) is None
            yield f"{where} deleted", _seen(lambda one=one: delattr(copy.copy(one), "x")) is None
            yield f"{where} dict", hasattr(one, "__dict__")
    yield "own list", made[0][0].seen is not made[0][1].seen
    yield "replaced", repr(replace(made[1][0], x=9, name="c")).partition("<locals>.")[2]
    yield "replaced by a name that there is not", _seen(lambda: replace(made[0][0], z=1))
    yield "replaced by itself", replace(made[1][3]) == made[1][3] or form.get("eq") is False
    yield "fields", [(one.name, one.type, one.default, one.kw_only, one.init, one.compare) for one in fields(named)]
    yield "matched", (point.__match_args__, named.__match_args__)
    yield "class attributes", (point.kinds, hasattr(point, "x"), hasattr(point, "seen"), point(1, seen=[1]).total())
    yield "names", (point.__name__, point.__module__, point.__doc__, named.__mro__[1] is point)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_record_looks_like_a_dataclass(form: dict[str, bool]) -> None:
    theirs = dict(_looks(dataclasses.dataclass, form))
    for ours in (
        dict(_looks(record, form)),
        dict(_looks(record, form, own_field, own_replace)),
        dict(_looks(record, form, own_field, own_replace, earlier=_MANY)),
    ):
        assert {name: (seen, theirs[name]) for name, seen in ours.items() if seen != theirs[name]} == {}
        assert len(ours) > 100


@pytest.mark.parametrize("earlier", [0, _MANY])
def test_a_field_that_is_not_given_is_set_by_itself(earlier: int) -> None:
    def kept(decorator: Decorator, field: Callable[..., Any], replace: Callable[..., Any]) -> Iterator[object]:
        @decorator(slots=True)
        class Kept:
            """What was worked out is kept with it."""

            a: int
            worked_out: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
            best: int = field(default=4, init=False)

        for _ in range(earlier):
            Kept(1)
        one = Kept(1)
        one.worked_out["b"] = 2
        one.best = 5
        other = replace(one, a=3)
        yield (other.a, other.worked_out, other.best, one.worked_out, one.best)
        yield (repr(one).partition("<locals>.")[2], one == Kept(1), one == replace(one))
        yield (_seen(lambda: replace(one, best=1)), _seen(lambda: Kept(1, 2)), _seen(lambda: Kept(1, best=2)))

    assert [*kept(record, own_field, own_replace)] == [
        *kept(dataclasses.dataclass, dataclasses.field, dataclasses.replace)
    ]


def test_replacing_works_on_dataclasses_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Pair:
        """No record."""

        a: int
        b: int = 2

    @record(frozen=True)
    class Both:
        """A record, and below a class that is not declared anew."""

        a: int
        b: int = 2

    class Below(Both):
        pass

    assert (own_replace(Pair(1), b=3), own_replace(Below(1), b=3)) == (Pair(1, 3), Below(1, 3))


def test_importing_records_imports_neither_dataclasses_nor_inspect() -> None:
    code = (
        "import sys; before = set(sys.modules); import zerocfg.record; "
        "print(sorted({'dataclasses', 'inspect', 'typing'} & (sys.modules.keys() - before)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@record(frozen=True, slots=True)
class Sent:
    """What can be pickled is at the top of a module."""

    text: str
    number: int = 3


def test_frozen_slots_are_pickled_and_refuse_to_change() -> None:
    sent = Sent("a")
    assert pickle.loads(pickle.dumps(sent)) == sent == copy.copy(sent)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'text'"):
        sent.text = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'text'"):
        del sent.text
    with pytest.raises(TypeError, match="Sent lacks the argument 'text'"):
        Sent()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Sent takes no argument 'texts'"):
        Sent("a", texts=1)  # type: ignore[call-arg]


def test_a_dataclass_and_a_record_may_inherit_from_each_other() -> None:
    @dataclasses.dataclass(frozen=True)
    class Base:
        """A dataclass."""

        a: int

    @record(frozen=True)
    class Middle(Base):
        """A record."""

        b: int = 2

    @dataclasses.dataclass(frozen=True)
    class Last(Middle):
        """A dataclass again."""

        c: int = 3

    assert repr(Last(1)).endswith("Last(a=1, b=2, c=3)")
    assert (Middle(1), hash(Middle(1))) == (Middle(1, 2), hash(Middle(1, 2)))
    assert Middle(1) != Last(1)


def test_a_record_may_inherit_from_one_without_fields() -> None:
    @record
    class Nothing:
        """No field."""

    @record
    class Some(Nothing):
        """One."""

        a: int

    assert (Some(1), [one.name for one in fields(Some)]) == (Some(a=1), ["a"])


def test_what_is_computed_once_is_kept() -> None:
    @record(frozen=True)
    class Text:
        """Without slots, as `cached_property` wants it."""

        text: str

        @cached_property
        def length(self) -> int:
            return len(self.text)

    text = Text("four")
    assert (text.length, vars(text)) == (4, {"text": "four", "length": 4})


def test_a_default_that_can_be_changed_is_refused() -> None:
    for decorator in (record, dataclasses.dataclass):
        with pytest.raises(ValueError, match="use default_factory"):
            decorator(type("Wrong", (), {"__annotations__": {"a": "list"}, "a": []}))


def test_a_method_that_a_class_writes_itself_is_kept() -> None:
    @record(frozen=True, slots=True)
    class Own:
        """Its own text."""

        a: int

        def __repr__(self) -> str:
            return "mine"

    assert repr(Own(1)) == "mine"
    assert isinstance(inspect.getattr_static(Own, "a"), types.MemberDescriptorType)
