"""Training arguments by release: the histories against the compiled schema, and what releases were seen to do."""

from __future__ import annotations

import pytest

from zerocfg.catalog import fields
from zerocfg.catalog.admitted import Admitted, admitted, life, releases_where
from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.versions import release

OTHERWISE = {"include_num_input_tokens_seen", "parallelism_config", "debug", "liger_kernel_config"}
"""Arguments of types that only the schema tells apart."""


def test_the_histories_end_with_the_compiled_schema() -> None:
    """Names, types, defaults and words of the newest release are those of the models."""
    known, schema = histories("transformers"), load_schema("training-arguments")
    newest = known.releases[-1]
    today = {name for name, key in schema.root.keys.items() if "removed" not in key.facts}
    assert {name for name in known.raw if "." not in name and fields.exists(name, newest)} == today
    for name in sorted(today):
        key = schema.root.keys[name]
        if name not in OTHERWISE:
            assert fields.kind(name, newest) == key.facts["cli"]["type"], name
        if "computed" not in (known.state(name, newest) or {}):
            assert fields.default(name, newest) == key.default, name
        words = fields.choices(name, newest)
        assert not words or words == key.raw.get("enum", words), name


def test_what_was_removed_is_no_longer_there() -> None:
    known, schema = histories("transformers"), load_schema("training-arguments")
    gone = [name for name, key in schema.root.keys.items() if "removed" in key.facts]
    assert len(gone) > 30
    assert not [name for name in gone if fields.exists(name, known.releases[-1])]


def test_every_removed_argument_of_trl_is_gone_from_the_configs_that_had_it() -> None:
    schema, newest = load_schema("trl"), histories("trl").releases[-1]
    inherited = load_schema("training-arguments").root.names
    gone = [name for name, key in schema.root.keys.items() if "removed" in key.facts and name not in inherited]
    assert len(gone) > 15
    for name in gone:
        assert not [key for key in fields.in_trl(name) if histories("trl").state(key, newest) is not None], name


@pytest.mark.parametrize(
    ("name", "there", "gone", "back"),
    [
        ("evaluation_strategy", "4.50.3", "4.51.0", ""),
        ("warmup_ratio", "5.14.1", "5.15.0", ""),
        ("eval_strategy", "4.41.0", "", "4.41.0"),
        ("tp_size", "4.51.3", "4.52.1", "4.50.0"),
    ],
)
def test_the_life_of_an_argument(name: str, there: str, gone: str, back: str) -> None:
    found = life("transformers", (name,))
    assert found is not None and found.at(release(there))
    assert found.gone(release("5.23.0")) == (release(gone) if gone else None)
    assert found.since(release("4.36.0")) == (release(back) if back else None)


@pytest.mark.parametrize(
    ("name", "at", "kind"),
    [
        ("warmup_steps", "4.57.6", "int"),
        ("warmup_steps", "5.0.0", "float"),
        ("eval_strategy", "4.40.2", None),
        ("learning_rate", "4.36.0", "float"),
    ],
)
def test_types(name: str, at: str, kind: str | None) -> None:
    assert fields.kind(name, release(at)) == kind


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([True, True], ""),
        ([False, False], None),
        ([False, True], "from TRL 2.0.0 on"),
        ([True, False], "before TRL 2.0.0"),
        ([True, False, True], "with some releases of TRL"),
        ([False, True, False], "with some releases of TRL"),
    ],
)
def test_in_which_releases(held: list[bool], words: str | None) -> None:
    among = Admitted(((1,), (2,), (3,))[: len(held)], below=False)
    assert releases_where(lambda one: held[among.releases.index(one)], among, "trl") == words


@pytest.mark.parametrize(
    ("declared", "first", "last", "below"),
    [
        ("==4.44.2", "4.44.2", "4.44.2", False),
        ("==4.46.0", "4.45.2", "4.45.2", False),  # withdrawn, so never walked
        (">=5.22", "5.22.0", "5.23.0", False),
        ("<4.37", "4.36.0", "4.36.2", True),
        (">=7", "5.23.0", "5.23.0", False),
    ],
)
def test_admitted(declared: str, first: str, last: str, below: bool) -> None:
    found = admitted("transformers", declared)
    assert found is not None and found.below is below
    assert (found.releases[0], found.newest) == (release(first), release(last))


@pytest.mark.parametrize("declared", [None, "", "newest", ">=2,<1"])
def test_nothing_is_known(declared: str | None) -> None:
    assert admitted("transformers", declared) is None


def test_of_a_release_before_the_first_known_one_nothing_is_known() -> None:
    assert admitted("transformers", "==4.20.1") == Admitted((), below=True)
