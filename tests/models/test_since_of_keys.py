"""`since=` and `until=` of the models against the walked releases (`schemas/releases`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import Key, Schema, Section, load_schema

LIBRARIES = {
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "accelerate-launcher": "accelerate",
    "training-arguments": "transformers",
    "trl": "trl",
}
EXCEPTIONS: dict[str, str] = {}
"""Keys whose model says another release than the history, by their dotted name, with the reason."""


def keys(schema: Schema, section: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Key]]:
    """Every key by its dotted name; a section inside of itself once."""
    for name, key in section.keys.items():
        yield ".".join((*path, name)), key
        inner = key.section(schema)
        if inner is not None and name not in path:
            yield from keys(schema, inner, (*path, name))


STATED = [
    (library, name, key)
    for schema, library in LIBRARIES.items()
    for name, key in keys(load_schema(schema), load_schema(schema).root)
    if {"since", "until"} & key.facts.keys()
]


def test_some_keys_say_it() -> None:
    assert {name for _, name, _ in STATED} >= {"torch_autocast", "zero_optimization.zenflow"}


@pytest.mark.parametrize(("library", "name", "key"), STATED, ids=[name for _, name, _ in STATED])
def test_a_key_is_as_old_as_the_releases_say(library: str, name: str, key: Key) -> None:
    """The first release that has the key, and the first one after it that has it no longer."""
    if name in EXCEPTIONS:
        return
    history = histories(library).raw[name]
    there = [at for at, (_, state) in enumerate(history) if state is not None]
    walked = history[there[0]][0] if there[0] else None
    gone = history[there[-1] + 1][0] if there[-1] + 1 < len(history) else None
    assert (key.facts.get("since"), key.facts.get("until")) == (walked, gone)


def test_an_exception_is_one() -> None:
    assert set(EXCEPTIONS) <= {name for _, name, _ in STATED}
