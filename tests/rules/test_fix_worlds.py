"""Which fixes are kept in small made worlds of runs and files, against trying one after the other by hand.

A key of a file that holds 1 is a finding, and its fix writes 2. Some sets of fixes bring a new finding, or a new reason
to refuse a run, once all of them are made: what is kept then is worked out on numbers alone, without lints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from zerocfg.internal_errors import InternalError
from zerocfg.linter.engine import Diagnostic, Result, diagnose
from zerocfg.linter.fixing import fix_all, without_spoiling
from zerocfg.rules.api import Finding, Fix, Intent, Location, Rule, Severity
from zerocfg.run.model import Effective, Origin, Run, Setting, SourceFile
from zerocfg.source.edit import Edit
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

Key = tuple[str, str]
"""A file and one of its keys."""
KEYS = "abc"


def rule(code: str) -> Rule:
    return Rule(code, f"rule-{code}", Severity.ERROR, lambda run: iter(()))


@dataclass(frozen=True)
class Trouble:
    """What comes up in a run once all of ``when`` are fixed. ``refused``: a reason to refuse it, else a finding."""

    run: str
    when: frozenset[Key]
    refused: bool = False
    code: str = ""


@dataclass
class World:
    """``runs``: by name the files that each reads. ``bad``: the keys that are wrong, with the runs in which that is
    found (all that read the file, unless it is said)."""

    folder: Path
    runs: dict[str, list[str]]
    bad: dict[Key, frozenset[str] | None]
    troubles: list[Trouble] = field(default_factory=list)
    misses: frozenset[Key] = frozenset()
    """Fixes that do not give what they mean to."""
    keys: str = KEYS
    settled: frozenset[Key] = frozenset()
    """Keys on which no setting depends, where none is found."""
    blind: frozenset[str] = frozenset()
    """Runs whose settings do not depend on any file."""
    ends: dict[str, Key] = field(default_factory=dict)
    """Runs that are no longer there once a fix is made."""
    unsafe: frozenset[Key] = frozenset()
    broken: frozenset[Key] = frozenset()
    """Fixes with which a rule fails inside zerocfg."""
    lints: list[set[Key]] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        return sorted({name for read in self.runs.values() for name in read})

    def text(self, name: str) -> str:
        return json.dumps({key: 1 if (name, key) in self.bad else 0 for key in self.keys} | {"z": 0}, indent=1)

    def met(self, key: Key) -> frozenset[str]:
        readers = frozenset(run for run, read in self.runs.items() if key[0] in read)
        named = self.bad[key]
        return readers if named is None else named

    def __call__(self, texts: Mapping[str, str] | None = None) -> Result:
        """A lint of the world with some texts in the place of its files."""
        by_path = {str(self.folder / name): name for name in self.files}
        held = {name: (texts or {}).get(path, self.text(name)) for path, name in by_path.items()}
        sources = {name: self._file(name, text) for name, text in held.items()}
        fixed = {(name, key) for name in held for key in self.keys if sources[name].data().get(key) == 2}
        self.lints.append(fixed)
        there = {run: read for run, read in self.runs.items() if self.ends.get(run) not in fixed}
        runs, failures = [], []
        for run, read in there.items():
            values = {f"{name}.{key}": value for name in read for key, value in sources[name].data().items()}
            values |= {f"{name}.{key}": 1 for name, key in self.misses if name in read}
            for key in self.settled:
                if run not in self.met(key):
                    values.pop(".".join(key), None)
            settings = {key: Setting(value, Origin("file")) for key, value in values.items() if run not in self.blind}
            first, *more = (sources[name] for name in read)
            parts: dict[str, Any] = dict(zip(("accelerate", "recipe"), more, strict=False))
            runs.append(Run(run, deepspeed=first, effective=Effective(settings=settings), **parts))
            struck = [
                at for at, item in enumerate(self.troubles) if item.run == run and item.refused and item.when <= fixed
            ]
            failures.append(frozenset((f"refused{at}", "") for at in struck))
        found = [self._found(sources[name], (name, key)) for name, key in sorted(self.bad) if (name, key) not in fixed]
        for at, item in enumerate(self.troubles):
            if not item.refused and item.when <= fixed:
                place = Location(sources[self.runs[item.run][0]], ("z",))
                told = diagnose(rule(item.code or f"ZC98{at}"), Finding(place, "trouble"), Run(item.run))
                found.append(replace(told, met_in=frozenset({item.run})))
        together = [frozenset(str(self.folder / name) for name in read) for read in there.values()]
        errors = tuple(InternalError("check", name, key, "here") for name, key in sorted(self.broken & fixed))
        return Result(found, runs=runs, failures=failures, together=together, internal_errors=errors)

    def _file(self, name: str, text: str) -> SourceFile:
        source = SourceText(name, text)
        return SourceFile(name, "deepspeed", source, load_as(source, "json"), self.folder / name)

    def _found(self, file: SourceFile, key: Key) -> Diagnostic:
        assert file.document is not None
        node = file.document.get((key[1],))
        assert node is not None
        edits = ((file, Edit(node.span, "2")),)
        fix = Fix("f", edits, key not in self.unsafe, (Intent(f"{key[0]}.{key[1]}", 2),))
        met = self.met(key)
        code = f"ZC90{self.keys.index(key[1])}"
        told = diagnose(rule(code), Finding(Location(file, (key[1],)), "m", fix=fix), Run(min(met)))
        return replace(told, met_in=met)

    def kept(self) -> set[Key]:
        """The fixes that are made, by hand: one after the other in the order of rules, each that brings nothing; those
        that did once more after others were made."""
        made: set[Key] = set()
        order = sorted(self.bad, key=lambda key: (key[1], key[0]))
        again = True
        while again:
            again = False
            for key in order:
                if key not in made and self._sound(made | {key}) and self._fair(key):
                    made.add(key)
                    again = True
        return made

    def _sound(self, made: set[Key]) -> bool:
        return not any(item.when <= made for item in self.troubles)

    def _fair(self, key: Key) -> bool:
        """Whether it gives what it means to, and every run that reads its file is one in which it was found."""
        readers = {run for run, read in self.runs.items() if key[0] in read and run not in self.blind}
        return key not in self.misses | self.unsafe | self.broken and readers <= self.met(key)

    def fixed(self, **more: Any) -> tuple[set[Key], Result, int]:
        texts, after, count = fix_all(self(), self, **more)
        changed = {
            (name, key)
            for name in self.files
            for key in self.keys
            if json.loads(texts.get(str(self.folder / name), self.text(name)))[key] == 2
        }
        return changed, after, count


A, B, C = ("f", "a"), ("f", "b"), ("f", "c")
OTHER = ("g", "a")
EVERY: dict[Key, frozenset[str] | None] = dict.fromkeys((A, B, C, OTHER))
TWO = {"x": ["f"], "y": ["g"]}
WORLDS: dict[str, tuple[dict[str, Any], set[Key], int]] = {
    "nothing comes up": ({}, {A, B, C, OTHER}, 2),
    "one brings a finding": ({"troubles": [Trouble("x", frozenset({B}))]}, {A, C, OTHER}, 7),
    "the first brings a finding": ({"troubles": [Trouble("x", frozenset({A}))]}, {B, C, OTHER}, 7),
    "one lets its run be refused": ({"troubles": [Trouble("x", frozenset({B}), True)]}, {A, C, OTHER}, 7),
    "two together": ({"troubles": [Trouble("x", frozenset({A, C}))]}, {A, B, OTHER}, 6),
    "one of another file": ({"troubles": [Trouble("y", frozenset({OTHER}))]}, {A, B, C}, 3),
    "none holds": (
        {"troubles": [Trouble("x", frozenset({item})) for item in (A, B, C)] + [Trouble("y", frozenset({OTHER}))]},
        set(),
        5,
    ),
    "one does not give what it means to": ({"misses": frozenset({B})}, {A, C, OTHER}, 6),
    "a run in which it was not found": (
        {"bad": EVERY | {A: frozenset({"x"})}, "runs": {**TWO, "w": ["f"]}},
        {B, C, OTHER},
        6,
    ),
    "a run in which it was not found, and which does not change": (
        {"bad": EVERY | {A: frozenset({"x"})}, "runs": {**TWO, "w": ["f"]}, "blind": frozenset({"w"})},
        {A, B, C, OTHER},
        2,
    ),
    "one that is unsafe": ({"unsafe": frozenset({B})}, {A, C, OTHER}, 2),
    "a rule that fails": ({"broken": frozenset({OTHER})}, {A, B, C}, 7),
    "a run that is gone": ({"ends": {"y": OTHER}}, {A, B, C, OTHER}, 2),
}


@pytest.mark.parametrize("case", WORLDS)
def test_what_is_kept(case: str, tmp_path: Path) -> None:
    """``lints``: no more than these are needed, the first included."""
    parts, kept, lints = WORLDS[case]
    world = World(tmp_path, **{"runs": TWO, "bad": EVERY, **parts})
    assert world.kept() == kept, "by hand"
    made, after, count = world.fixed()
    assert (made, count) == (kept, len(kept))
    assert {(item.span.file.name, item.span.path) for item in after.diagnostics} == set(world.bad) - kept
    offered = {(item.span.file.name, item.span.path) for item in after.diagnostics if item.fix is not None}
    assert offered == world.unsafe, "what did not hold is no longer offered"
    assert len(world.lints) <= lints


@pytest.mark.parametrize(("code", "kept"), [("ZC980", True), ("ZC010", False), ("ZC011", False)])
def test_a_comment_that_comes_to_nothing_is_a_matter_of_every_reader(code: str, kept: bool, tmp_path: Path) -> None:
    """In whichever run it was met; of anything else only the runs in which it was met."""
    trouble = Trouble("x", frozenset({OTHER}), code=code)
    world = World(tmp_path, {"x": ["f"], "w": ["g", "f"]}, {OTHER: None}, [trouble])
    assert world.fixed()[0] == ({OTHER} if kept else set())


def test_fixes_that_are_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path, TWO, dict(EVERY), unsafe=frozenset({B, OTHER}))
    assert world.fixed(unsafe=True)[0] == set(EVERY)
    assert world.fixed(wanted=lambda found: found.span.path == "a")[0] == {A}
    assert world.fixed(wanted=lambda found: found.span.path == "a", unsafe=True)[0] == {A, OTHER}


def offered(world: World) -> set[Key]:
    """The fixes that a lint offers."""
    result = without_spoiling(world(), world)
    assert [item.span.path for item in result.diagnostics] == [key for _, key in sorted(world.bad)]
    return {(item.span.file.name, item.span.path) for item in result.diagnostics if item.fix is not None}


def test_fixes_that_are_offered(tmp_path: Path) -> None:
    """Those that change a run without their finding are not; only they are tried, and no others are looked at."""
    runs = {**TWO, "w": ["f"]}
    only = EVERY | {A: frozenset({"x"})}
    world = World(tmp_path, runs, only, misses=frozenset({B}))
    assert offered(world) == {B, C, OTHER} and world.lints == [set(), {A}]
    blind = World(tmp_path, runs, only, blind=frozenset({"w"}))
    assert offered(blind) == set(EVERY) and blind.lints == [set(), {A}]
    plain = World(tmp_path, runs, dict(EVERY))
    assert offered(plain) == set(EVERY) and plain.lints == [set()]


@pytest.mark.parametrize(("more", "lost"), [("", "a"), ("b", ""), ("bc", ""), ("bcd", ""), ("bcde", "abcde")])
def test_few_fixes_are_tried_by_themselves(more: str, lost: str, tmp_path: Path) -> None:
    """The first changes a run that it is not for, and those behind it wait: up to four are tried once more."""
    keys = [("f", key) for key in f"a{more}"]
    world = World(tmp_path, {"x": ["f"], "w": ["f"]}, dict.fromkeys(keys, frozenset({"x"})), keys="abcde")
    world.settled = frozenset(keys[1:])
    assert offered(world) == {key for key in keys[1:] if key[1] not in lost}
    assert world.lints[2:] == ([] if lost else [{key} for key in keys])


def random_world(random: Random, folder: Path) -> World:
    files = "fghi"[: random.randint(1, 4)]
    runs = {
        name: random.sample(files, random.randint(1, min(3, len(files)))) for name in "uvwx"[: random.randint(1, 4)]
    }
    read = sorted({name for some in runs.values() for name in some})
    keys = [(name, key) for name in read for key in KEYS]
    bad = dict.fromkeys(random.sample(keys, random.randint(1, min(6, len(keys)))))
    world = World(folder, runs, dict(bad))
    for _ in range(random.randint(0, 3)):
        run = random.choice(list(runs))
        own = [key for key in bad if key[0] in runs[run]]
        if own:
            when = frozenset(random.sample(own, min(len(own), random.randint(1, 2))))
            world.troubles.append(Trouble(run, when, random.random() < 0.5))
    if random.random() < 0.3:
        world.misses = frozenset({random.choice(list(bad))})
    return world


def test_together_is_one_after_the_other(tmp_path: Path) -> None:
    refused = 0
    for number in range(60):
        world = random_world(Random(f"world/{number}"), tmp_path)
        made, _, count = world.fixed()
        assert (made, count) == (world.kept(), len(made)), number
        refused += len(world.bad) > len(made)
    assert refused >= 20
