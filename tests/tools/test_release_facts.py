"""`make facts`: folding what was seen of each release into histories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.facts.environment import releases
from tools.facts.fold import changes, files, fold, told, written
from zerocfg.catalog.changes import changes as told_changes
from zerocfg.catalog.changes import states
from zerocfg.catalog.history import Histories, histories, with_classes
from zerocfg.catalog.versions import release
from zerocfg.run.config import VERSIONS

ROOT = Path(__file__).parent.parent.parent
SEEN = [
    ("1.0", {"a": {"default": 1}, "b": {"default": 1}}),
    ("1.1", {"a": {"default": 1}, "b": {"default": 2}, "c": {}}),
    ("1.10", {"b": {"default": 2}, "c": {"removed": True}}),
]


def test_a_history_says_what_changed_and_when() -> None:
    assert fold(SEEN) == {
        "a": [("1.0", {"default": 1}), ("1.10", None)],
        "b": [("1.0", {"default": 1}), ("1.1", {"default": 2})],
        "c": [("1.0", None), ("1.1", {}), ("1.10", {"removed": True})],
    }


def test_what_is_kept_of_an_option() -> None:
    flags = ["-t", "--tee_it", "--tee-it", "--no_tee"]
    keys = {
        "option.tee_it": {"action": "Store", "default": 0, "flags": flags, "type": "int"},
        "option.quiet": {"action": "StoreTrue", "default": False, "flags": ["--quiet"], "type": "str"},
        "cluster.debug": {"default": False},
    }
    assert told("accelerate", keys) == {
        "option.tee_it": {"default": 0, "type": "int", "aliases": ["-t", "--no_tee"]},
        "option.quiet": {"action": "StoreTrue", "default": False, "type": "str"},
        "cluster.debug": {"default": False},
    }
    assert told("deepspeed", keys) == keys


def test_classes_have_a_file_of_their_own() -> None:
    seen = fold([("1.0", {"option.a": {}, "Plugin.a": {"default": 1}, "Plugin": {}})])
    parts = files("accelerate", seen)
    assert {name: list(part) for name, part in parts.items()} == {
        "accelerate": ["option.a"],
        "accelerate-classes": ["Plugin", "Plugin.a"],
    }
    assert list(files("trl", seen)) == ["trl"]
    key = "FullyShardedDataParallelPlugin.fsdp_version"
    assert key not in histories("accelerate").raw
    assert with_classes("accelerate").since(key) == "1.6.0"
    assert with_classes("trl").raw == histories("trl").raw


def test_what_a_release_changed() -> None:
    assert changes(fold(SEEN), "1.1") == ['~ b {"default": 1} -> {"default": 2}', "+ c {}"]
    assert changes(fold(SEEN), "1.10") == ["- a", '~ c {} -> {"removed": true}']
    assert changes(fold(SEEN), "1.0") == []


def test_one_line_a_key() -> None:
    text = written("lib", [name for name, _ in SEEN], fold(SEEN))
    assert [line[:3] for line in text.splitlines() if line.startswith('"') and "[[" in line] == ['"a"', '"b"', '"c"']
    known = Histories(json.loads(text))
    assert known.state("a", release("1.0")) == {"default": 1}
    assert known.state("a", release("1.9.9")) == {"default": 1}
    assert known.state("a", release("1.10")) is None
    assert known.state("a", release("0.1")) == {"default": 1}
    assert known.state("b", release("1.1")) == {"default": 2}
    assert (known.since("a"), known.since("b"), known.since("c")) == (None, None, None)


def test_since_is_the_last_time_that_a_key_came() -> None:
    seen = [("1", {}), ("2", {"a": {}}), ("3", {}), ("4", {"a": {}}), ("5", {"a": {"default": 1}})]
    assert Histories({"releases": ["1", "2", "3", "4", "5"], "keys": fold(seen)}).since("a") == "4"


@pytest.mark.parametrize("library", sorted({one.library for one in releases()}))
def test_the_histories_are_of_the_releases_that_are_listed(library: str) -> None:
    path = ROOT / "schemas" / "releases" / f"{library}.json"
    listed = [one.version for one in releases() if one.library == library]
    assert json.loads(path.read_text(encoding="utf-8"))["releases"] == listed
    assert listed[-1] == VERSIONS[library]
    assert path.stat().st_size < 400_000


def test_what_false_is_read_as() -> None:
    known = histories("accelerate")
    told = [("0.23.0", 'text; false is read as "no"'), ("0.34.0", "text")]
    assert list(states(known, "cluster.mixed_precision")) == told
    changed = [one.words for one in told_changes("accelerate")["0.34.0"] if one.key == "cluster.mixed_precision"]
    assert changed == [('false is no longer read as "no"',)]
