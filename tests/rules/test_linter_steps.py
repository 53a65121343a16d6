"""The steps of a lint by themselves: what is reported once, what silences it, which fixes go together and which hold,
what the next lint may use again. Made findings and made runs; the expected values are worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import text
from zerocfg.internal_errors import Containment
from zerocfg.linter import engine
from zerocfg.linter.add_ignores import ignores_for
from zerocfg.linter.applicability import within
from zerocfg.linter.baseline import baseline_text, entry_of, fingerprint, read_baseline, without_known
from zerocfg.linter.engine import Diagnostic, Result, _Lint, diagnose, lint_runs, without_notes
from zerocfg.linter.fix_outcome import (
    ALONE,
    IN_ITS_RUNS,
    TOGETHER,
    Groups,
    Identities,
    Reach,
    Try,
    _as_intended,
    _come,
    _same,
)
from zerocfg.linter.fix_outcome import Readers as FileReaders
from zerocfg.linter.fixed_texts import edited_together
from zerocfg.linter.fixing import _fitting, _next
from zerocfg.linter.ignores import Ignores, command_lines, directives
from zerocfg.linter.independent import Independence, Offer, _Ranges, offers
from zerocfg.linter.kept import Kept
from zerocfg.linter.reader_agreement import Readers, possible
from zerocfg.linter.release_ranges import _with, with_release_ranges
from zerocfg.linter.selection import Selection, covers, fits
from zerocfg.rules import registry
from zerocfg.rules.api import Finding, Fix, Intent, Location, Rule, Severity
from zerocfg.run.discover import Files
from zerocfg.run.model import Effective, Origin, Run, Setting, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.edit import Edit
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

JSON = '{"a": 1, "b": {"c": 2, "d": 3},\n "e": 4, "f": 5}\n'


def made(name: str, text: str, kind: Any = "deepspeed", folder: Path | None = None) -> SourceFile:
    source = SourceText(name, text)
    form: Any = None if kind == "launch" else "yaml" if name.endswith(".yaml") else "json"
    document = load_as(source, form) if form else None
    return SourceFile(name, kind, source, document, folder / name if folder else None)


def rule(code: str = "ZC901", severity: Severity = Severity.ERROR, **more: Any) -> Rule:
    return Rule(code, f"rule-{code}", severity, lambda run: iter(()), **more)


def finding(file: SourceFile, *path: str, message: str = "m", fix: Fix | None = None, **more: Any) -> Finding:
    return Finding(Location(file, path), message, "h", fix=fix, **more)


def found(file: SourceFile, *path: str, code: str = "ZC901", run: str = "one", **more: Any) -> Diagnostic:
    told = diagnose(rule(code), finding(file, *path, **more), Run(run))
    return replace(told, met_in=frozenset({run}))


def lint(asked: set[int] | None = None, excluded: frozenset[int] = frozenset(), **more: Any) -> _Lint:
    settings = {"contained": None, "notes": True, "fixes": True, "kept": None, **more}
    selection = settings.pop("selection", Selection())
    return _Lint(selection, asked, excluded, **settings)


def cut(file: SourceFile, text: str, new: str = "") -> tuple[SourceFile, Edit]:
    start = file.source.text.index(text)
    return file, Edit(Span(start, start + len(text)), new)


# --- reported once ----------------------------------------------------------------------------------------------------


def test_what_several_runs_have_in_common_is_told_once() -> None:
    file, one = made("ds.json", JSON), lint()
    for run, message in (("one", "m"), ("two", "m"), ("three", "other"), ("one", "m"), ("two", "m")):
        one.take(rule(), finding(file, "a", message=message), Run(run))
    one.take(rule(), finding(file, "e"), Run("two"))
    one.take(rule("ZC902"), finding(file, "a"), Run("two"))
    told = [one.everywhere(each) for each in one.result.diagnostics]
    assert [(each.code, each.span.path, each.run) for each in told] == [
        ("ZC901", "a", "one"),
        ("ZC901", "e", "two"),
        ("ZC902", "a", "two"),
    ]
    assert told[0].also_in == ("two",) and told[0].met_in == {"one", "two", "three"}
    assert told[0].full_message == "m (and in 1 more run)" and told[1].full_message == "m"


def test_a_finding_is_met_where_the_same_edits_mend() -> None:
    file, one = made("ds.json", JSON), lint()
    fix = Fix("f", (cut(file, '"a": 1, '),))
    one.take(rule(), finding(file, "a", fix=fix), Run("one"))
    one.take(rule(), finding(file, "e", fix=fix), Run("two"))
    one.take(rule(), finding(file, "f"), Run("three"))
    assert [one.everywhere(each).met_in for each in one.result.diagnostics] == [
        {"one", "two"},
        {"one", "two"},
        {"three"},
    ]


@pytest.mark.parametrize(
    ("asked", "excluded", "place", "related", "told"),
    [
        (None, "", "a", "", True),
        ("a", "", "a", "", True),
        ("b", "", "a", "", False),
        ("b", "", "a", "b", True),
        (None, "a", "a", "", False),
        (None, "b", "a", "", True),
        (None, "a", "a", "b", True),
        (None, "ab", "a", "b", False),
    ],
)
def test_files_that_somebody_asked_for(asked: str | None, excluded: str, place: str, related: str, told: bool) -> None:
    files = {name: made(f"{name}.json", JSON) for name in "ab"}
    one = lint(None if asked is None else {id(files[asked])}, frozenset(id(files[name]) for name in excluded))
    one.take(rule(), finding(files[place], "a", related=[Location(files[name]) for name in related]), Run("one"))
    assert bool(one.result.diagnostics) is told


@pytest.mark.parametrize("by", ["comments", "settings", ""])
def test_what_silences_a_finding(by: str) -> None:
    comment = {"comments": " # zerocfg: ignore[ZC901] why", "settings": "", "": " # zerocfg: ignore[ZC902]"}[by]
    file = made("a.yaml", f"a: 1{comment}\nb: 2\n", "accelerate")
    per_file = (("a.yaml:a" if by == "settings" else "a.yaml:b", ("ZC901",)),)
    one = lint(selection=Selection(per_file=per_file))
    one.take(rule(), finding(file, "a"), Run("one"))
    reason = "why" if by == "comments" else ""
    assert [(each.by, each.reason) for each in one.result.suppressed] == ([(by, reason)] if by else [])
    assert len(one.result.diagnostics) == (not by)


class Agreeing:
    def __init__(self, answer: bool) -> None:
        self.answer = answer

    def agree(self, *about: object) -> bool:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "notes", "severity", "offered"),
    [
        (True, True, Severity.ERROR, True),
        (False, True, Severity.ERROR, False),
        (True, True, Severity.NOTE, True),
        (True, False, Severity.NOTE, False),
        (True, False, Severity.ERROR, True),
    ],
)
def test_a_fix_that_is_right_for_everybody(answer: bool, notes: bool, severity: Severity, offered: bool) -> None:
    file = made("ds.json", JSON)
    told = found(file, "a", code="ZC101", fix=Fix("f", (cut(file, '"a": 1, '),)), severity=severity)
    readers: Any = Agreeing(answer)
    kept = lint(notes=notes).agreed(told, readers)
    assert (kept.fix is not None) is offered and replace(kept, fix=told.fix) == told


def test_notes_that_nobody_asked_for_are_counted() -> None:
    file = made("ds.json", JSON)
    note = found(file, "a", severity=Severity.NOTE)
    result = Result([note, found(file, "e", code="ZC902")])
    assert [one.code for one in without_notes(result, Selection()).diagnostics] == ["ZC902"]
    assert without_notes(result, Selection()).notes == 1
    for word, shown in (("ZC901", 2), ("rule-ZC901", 2), ("ZC9", 1)):
        left = without_notes(result, Selection(select=(word,)))
        assert (len(left.diagnostics), left.notes) == (shown, 2 - shown)


# --- comments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "a: 1 # zerocfg: ignore\n", ["ignore"]),
        ("a.yaml", "a: '1 # zerocfg: ignore'\n", []),
        ("a.yaml", "'a # zerocfg: ignore': 1\n", []),
        ("a.yaml", "a: |\n  x # zerocfg: ignore\n", []),
        ("a.yaml", "a: [1, # zerocfg: ignore\n  2]\n", ["ignore"]),
        ("a.yaml", "a: 1 // zerocfg: ignore\n", []),
        ("a.json", '{"a": 1} // zerocfg: ignore\n', ["ignore"]),
        ("a.json", '{"a": "1 // zerocfg: ignore"}\n', []),
        ("a.json", '{"a": 1, "b": "x"} # zerocfg: ignore-file[ZC1]\n', ["ignore-file"]),
        ("a.yaml", "a: 1# zerocfg: ignore\n", []),
        ("a.yaml", "\ufeff# zerocfg: ignore\na: 1\n", ["ignore"]),
    ],
)
def test_what_is_a_comment(name: str, text: str, words: list[str]) -> None:
    assert [one.word for one in directives(made(name, text, "other"))] == words


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1\n", "# zerocfg: ignore[ZC901, ZC902] TODO\na: 1\n"),
        ("a: 1  # zerocfg: ignore[ZC1] x\n", "a: 1  # zerocfg: ignore[ZC1, ZC901, ZC902] x\n"),
        ("# zerocfg: ignore[ZC1]\na: 1\n", "# zerocfg: ignore[ZC1, ZC901, ZC902]\na: 1\n"),
        (
            "b: 1  # zerocfg: ignore[ZC1]\na: 1\n",
            "b: 1  # zerocfg: ignore[ZC1]\n# zerocfg: ignore[ZC901, ZC902] TODO\na: 1\n",
        ),
        ("a: 1  # zerocfg: ignore[]\n", "# zerocfg: ignore[ZC901, ZC902] TODO\na: 1  # zerocfg: ignore[]\n"),
        ("a: 1  # zerocfg: ignore[ZC1\n", "# zerocfg: ignore[ZC901, ZC902] TODO\na: 1  # zerocfg: ignore[ZC1\n"),
        ("a: 1  # zerocfg: ignored[ZC1]\n", "# zerocfg: ignore[ZC901, ZC902] TODO\na: 1  # zerocfg: ignored[ZC1]\n"),
        (
            "# zerocfg: ignore-file[ZC1]\nb: 1\na: 1\n",
            "# zerocfg: ignore-file[ZC1]\nb: 1\n# zerocfg: ignore[ZC901, ZC902] TODO\na: 1\n",
        ),
    ],
)
def test_a_comment_that_is_added(before: str, after: str) -> None:
    file = made("a.yaml", before, "accelerate")
    told = [found(file, "a", code=code) for code in ("ZC902", "ZC901", "ZC902")]
    added = ignores_for([*told, found(file, "a", code="ZC010")])
    assert (added.texts, added.patterns, added.count) == ({"a.yaml": after}, [], 3)


def test_a_file_that_takes_no_comment() -> None:
    files = [made("ds.json", JSON), made("README.md", "```bash\ntorchrun a.py\n```\n", "launch")]
    files.append(replace(made("x.yaml", "a: 1\n"), reread_of=files[0]))
    for file in files:
        added = ignores_for([found(file, "a"), found(file, "a", code="ZC902")])
        assert added.texts == {} and added.patterns == [(file, "a", "ZC901"), (file, "a", "ZC902")]


# --- which fixes go together ------------------------------------------------------------------------------------------


def offer(file: SourceFile, text: str, *path: str, new: str = "", run: str = "one", gives: Any = ()) -> Offer:
    fix = Fix("f", (cut(file, text, new),), gives=gives)
    return offers([found(file, *path, run=run, fix=fix)])[0]


def test_findings_with_the_same_edits_are_one_offer() -> None:
    file = made("ds.json", JSON)
    fix = Fix("f", (cut(file, '"a": 1, '),))
    other = replace(fix, edits=(cut(file, "4", "5"),))
    told = [found(file, path, fix=one) for path, one in (("a", fix), ("e", None), ("f", fix), ("e", other))]
    assert [[one.span.path for one in each.findings] for each in offers(told)] == [["a", "f"], ["e"]]


def test_a_mapping_keeps_one_of_its_keys() -> None:
    """One that loses all of them is written in another way, so the last has to wait."""
    file = made("ds.json", JSON)

    def added(*which: tuple[str, str]) -> list[bool]:
        together = Independence()
        return [together.add(offer(file, text, *path.split(".")), chosen=True, any_place=False) for text, path in which]

    assert added(('"c": 2, ', "b.c"), ('"d": 3', "b.d")) == [True, False]
    assert added(('"a": 1, ', "a"), ('"e": 4, ', "e")) == [True, True]
    assert added(('"d": 3', "b.d"), ('"a": 1, ', "a")) == [True, True]
    alone = made("ds.json", '{"b": {"c": 2}, "a": 1}')
    assert Independence().add(offer(alone, '"c": 2', "b", "c"), chosen=True, any_place=False)


def test_fixes_that_depend_on_each_other() -> None:
    file, other = made("ds.json", JSON), made("other.json", JSON)
    gives = (Intent("x", 1),)

    def second(first: Offer, then: Offer, any_place: bool = False, chosen: bool = True) -> bool:
        together = Independence()
        assert together.add(first, chosen=chosen, any_place=False) is chosen
        return together.add(then, chosen=True, any_place=any_place)

    a, e = offer(file, "1", "a", new="7"), offer(file, "4", "e", new="7")
    assert second(a, e) and not second(a, offer(file, "5", "a", new="7")), "the same key"
    assert second(a, offer(file, "5", "a", new="7"), any_place=True)
    assert not second(offer(file, "2", "b", "c", new="7"), offer(file, "5", "b", new="7")), "the section around it"
    assert not second(offer(file, "5", "b", new="7"), offer(file, "2", "b", "c", new="7"))
    assert second(offer(file, "2", "b", "c", new="7"), offer(file, "3", "b", "d", new="7"))
    assert not second(a, offer(file, ": 1", "e", new="7"), any_place=True), "edits that meet"
    assert second(a, offer(file, ": 1", "e", new="7"), chosen=False, any_place=True)
    assert second(a, offer(other, "1", "a", new="7"))
    sets = offer(file, "1", "a", new="7", gives=gives)
    assert not second(sets, offer(file, "4", "e", new="7", gives=gives)), "both set the same"
    assert second(sets, offer(file, "4", "e", new="7", gives=gives, run="two"))
    assert second(sets, offer(file, "4", "e", new="7", gives=(Intent("x", 1, "argument"),)))


def test_ranges_of_one_text() -> None:
    ranges = _Ranges()
    for span in (Span(10, 20), Span(30, 40), Span(20, 25)):
        ranges.add(span)
    meeting = [(0, 9), (0, 10), (26, 29), (25, 26), (29, 30), (40, 50), (41, 50)]
    assert [ranges.meets(Span(*one)) for one in meeting] == [False, True, False, True, True, True, False]
    ranges.add(Span(25, 30))
    assert ranges._joined == [Span(10, 40)]


def tried(file: SourceFile, text: str, *path: str, level: int = TOGETHER, runs: str = "one") -> Try:
    return Try(offer(file, text, *path, new="7"), level, set(runs.split()))


@pytest.mark.parametrize(
    ("tries", "chosen"),
    [
        ([(TOGETHER, "x"), (TOGETHER, "x")], [0, 1]),
        ([(IN_ITS_RUNS, "x"), (IN_ITS_RUNS, "x")], [0]),
        ([(IN_ITS_RUNS, "x"), (IN_ITS_RUNS, "y")], [0, 1]),
        ([(TOGETHER, "x"), (IN_ITS_RUNS, "x")], [0]),
        ([(TOGETHER, "x"), (IN_ITS_RUNS, "y")], [0, 1]),
        ([(IN_ITS_RUNS, "x"), (TOGETHER, "x")], [0]),
        ([(IN_ITS_RUNS, "x"), (TOGETHER, "y")], [0, 1]),
        ([(ALONE, "x"), (TOGETHER, "y")], [0]),
        ([(TOGETHER, "x"), (ALONE, "y")], [0]),
        ([(ALONE, "x"), (ALONE, "y")], [0]),
        ([(IN_ITS_RUNS, "x y"), (IN_ITS_RUNS, "y z"), (TOGETHER, "z")], [0]),
        ([(IN_ITS_RUNS, "x"), (IN_ITS_RUNS, "x z"), (TOGETHER, "w")], [0, 2]),
    ],
)
def test_what_is_tried_next(tries: list[tuple[int, str]], chosen: list[int]) -> None:
    """In one file: all together, one for each run, or one alone. Nothing overtakes what waits."""
    file = made("ds.json", JSON)
    places = [("1", "a"), ("4", "e"), ("5", "f")]
    every = [tried(file, *place, level=level, runs=runs) for place, (level, runs) in zip(places, tries, strict=False)]
    assert [every.index(one) for one in _next(Result(), every)] == chosen


def test_one_alone_in_each_group_of_files() -> None:
    files = [made(f"{name}.json", JSON) for name in "ab"]
    every = [tried(file, "1", "a", level=ALONE, runs=name) for file, name in zip(files, "xy", strict=True)]
    assert _next(Result(), every) == every
    joined = Result(together=[frozenset({"a.json", "b.json"})], runs=[Run("x")])
    assert _next(joined, every) == every[:1]


def test_texts_of_offers_that_fit(tmp_path: Path) -> None:
    file = made("ds.json", JSON, folder=tmp_path)
    name = str(tmp_path / "ds.json")
    one, two, over = offer(file, "1", "a", new="7"), offer(file, "4", "e", new="8"), offer(file, ": 1", "a", new=": 9")
    fitting, texts = edited_together([one, two], [])
    assert (fitting, texts) == ([one, two], {name: JSON.replace("1", "7").replace("4", "8")})
    assert edited_together([one, over], []) == ([one], {name: JSON.replace("1", "7")})
    nowhere = made("ds.json", JSON)
    assert edited_together([offer(nowhere, "1", "a", new="7")], []) == ([], {})


# --- which fixes hold -------------------------------------------------------------------------------------------------


def test_files_that_bear_on_each_other() -> None:
    files = {name: made(f"{name}.json", JSON) for name in "abcd"}
    result = Result(
        [replace(found(files["c"], "a"), met_in=frozenset({"two"}))],
        together=[frozenset({"a.json", "b.json"}), frozenset({"d.json"})],
        runs=[Run("one"), Run("two")],
    )
    group = Groups(result)
    by_file = {name: group(found(file)) for name, file in files.items()}
    assert by_file["a"] == by_file["b"] != by_file["c"] == by_file["d"]
    assert group.of({"b.json"}) == by_file["a"] and group.of(()) == ""


def test_the_runs_that_a_fix_bears_on() -> None:
    text = "torchrun a.py\ntorchrun b.py\n"
    script, config = made("run.sh", text, "launch"), made("ds.json", JSON)
    lines = read_launch_lines(script.source).lines
    runs = [
        Run(name, launch=line, launch_file=script, deepspeed=config) for name, line in zip("xy", lines, strict=True)
    ]
    result = Result(
        runs=[*runs, Run("z", deepspeed=config)],
        together=[frozenset({"run.sh", "ds.json"})] * 2 + [frozenset({"ds.json"})],
    )
    reach = Reach(result)
    assert reach(offer(script, "b.py", new="c.py", run="y")) == {"y"}
    assert reach(offer(script, "a.py", new="c.py", run="w")) == {"w", "x"}
    assert reach(offer(config, "1", "a", new="7", run="w")) == {"w", "x", "y", "z"}
    assert FileReaders(result).of(["run.sh"]) == [0, 1] and FileReaders(result).of(["other"]) == []
    numbers = Identities(result)
    assert numbers(found(script, run="y"))[3] == 1 and numbers(found(script, run="x"))[3] == 0
    assert numbers(found(script, run="w"))[3] == -1 and numbers(found(config, "a", run="y"))[3] == -1


@pytest.mark.parametrize(
    ("values", "of", "come"),
    [
        ([], "setting", True),
        ([[3]], "setting", True),
        ([[3], [3]], "setting", True),
        ([[3], [2]], "setting", False),
        ([[True]], "setting", False),
        ([[2, 3]], "setting", False),
    ],
)
def test_a_fix_gives_what_it_means_to(values: list[list[Any]], of: Any, come: bool) -> None:
    here = Origin("flag")
    runs = []
    for newest, *older in values:
        setting = Setting(newest, here, tuple(Setting(value, here) for value in older))
        runs.append(Run("a", effective=Effective(settings={"x": setting})))
    assert _come(Intent("x", 3, of), [*runs, Run("has none")]) is come


def test_an_option_of_the_launcher_that_a_line_beats() -> None:
    """Of two runs that read the file one has the new value, and the launch line of the other says something else."""
    file = made("acc.yaml", "distributed_type: DEEPSPEED\nnum_processes: 4\n", "accelerate")
    line = read_launch_lines(SourceText("run.sh", "accelerate launch --num_processes 2 t.py\n")).lines[0]
    flags = {"num_processes": Setting("2", Origin("flag"))}
    plain, beaten = Run("a", accelerate=file), Run("b", accelerate=file, launch=line, flags=flags)
    intent = Intent("num_processes", 4, "option")
    assert _come(intent, [plain, beaten]) and _come(intent, [plain])
    assert not _come(intent, [beaten]) and not _come(Intent("num_processes", 5, "option"), [plain, beaten])
    assert _same(1, 1.0) and not _same(True, 1) and not _same(0, False) and _same(False, False)


# --- what the next lint uses again ------------------------------------------------------------------------------------


def test_what_is_kept_for_the_next_lint() -> None:
    kept, settled = Kept(), []

    def settle(run: Run) -> Run:
        settled.append(run.name)
        return replace(run, parts=True)

    file, call = made("ds.json", JSON), kept.settling(settle)
    linked = Run("one", deepspeed=file)
    kept.begin(Files())
    first = call(linked)
    rules = [rule()]
    assert kept.findings(first, rules) is None
    kept.keep(first, rules, [])
    kept.begin(Files())
    again = call(replace(linked))
    assert again is first and kept.findings(again, rules) == [] and (kept.settled, kept.checked) == (1, 1)
    assert kept.findings(again, [rule("ZC902")]) is None and kept.findings(replace(first), rules) is None
    kept.begin(Files())
    assert call(linked) is first and kept.findings(first, rules) == [], "what was used is kept once more"
    assert call(Run("one", deepspeed=made("ds.json", JSON))) is not first and settled == ["one", "one"]
    kept.begin(Files())
    kept.begin(Files())
    assert call(linked) is not first, "a lint that does not use it forgets it"
    assert kept.findings(first, rules) is None
    kept.keep(first, rules, [])
    kept.begin(Files())
    kept.forget()
    assert kept.findings(first, rules) is None and (kept.settled, kept.checked) == (3, 2)


# --- baselines, selections --------------------------------------------------------------------------------------------


def test_entries_of_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = made("ds.json", JSON, folder=tmp_path / "in")
    told = [found(file, "a"), found(file, "e"), found(file, "b")]
    root = tmp_path.resolve()
    entries = [entry_of(one, root) for one in told]
    # the first twelve digits of the SHA-256 of the values' JSON
    assert entries == [
        ("ZC901", "in/ds.json", "a", "6b86b273ff34"),
        ("ZC901", "in/ds.json", "e", "4b227777d4dd"),
        ("ZC901", "in/ds.json", "b", ""),
    ]
    known = read_baseline(baseline_text(Result([*told, told[0]]), root))
    assert known == {entries[0]: 2, entries[1]: 1, entries[2]: 1}
    looked_at = frozenset({str(root / "in/ds.json")})
    known = {("ZC101", *entry[1:]): count for entry, count in known.items()}
    here = [found(file, "a", code="ZC101"), found(file, "f", code="ZC101")]
    left = without_known(Result(here), known, root, looked_at)
    assert ([one.span.path for one in left.diagnostics], left.stale) == (["f"], 3)
    assert [(one.diagnostic.span.path, one.by) for one in left.suppressed] == [("a", "baseline")]
    assert without_known(Result(here), known, root, frozenset()).stale == 0
    assert without_known(Result(here, selection=Selection(select=("ZC2",))), known, root, looked_at).stale == 0


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        ({}, 1),
        ({"count": 2}, 2),
        ({"count": 0}, None),
        ({"count": 1.0}, None),
        ({"path": 1}, None),
        ({"code": None}, None),
    ],
)
def test_counts_of_a_baseline(entry: dict[str, Any], count: int | None) -> None:
    text = json.dumps({"version": 1, "findings": [{"code": "a", "file": "b", "path": "c", "value": "d"} | entry]})
    if count is None:
        with pytest.raises(ValueError, match="entry"):
            read_baseline(text)
    else:
        assert read_baseline(text) == {("a", "b", "c", "d"): count}


@pytest.mark.parametrize(
    ("select", "ignore", "preview", "wanted"),
    [
        ("", "", False, "ZC101 ZC102 ZC201"),
        ("", "", True, "ZC101 ZC102 ZC201 ZC202"),
        ("ZC2", "", False, "ZC201"),
        ("ZC2", "", True, "ZC201 ZC202"),
        ("ZC202", "", False, "ZC202"),
        ("rule-ZC202", "", False, "ZC202"),
        ("", "ZC1", False, "ZC201"),
        ("ZC101", "ZC1", False, "ZC101"),
        ("ZC1", "ZC101", False, "ZC102"),
        ("ZC101", "ZC101", False, "ZC101"),
        ("ALL", "ZC1", False, "ZC201"),
        ("ZC1", "ALL", False, "ZC101 ZC102"),
        ("ZC101", "rule-ZC101", False, ""),
        ("ZC3", "", False, ""),
        ("", "Z", False, ""),
        ("", "ZC20", True, "ZC101 ZC102"),
    ],
)
def test_rules_that_are_selected(select: str, ignore: str, preview: bool, wanted: str) -> None:
    rules = [
        rule(code, status="preview" if code == "ZC202" else "stable") for code in "ZC101 ZC102 ZC201 ZC202".split()
    ]
    chosen = Selection(tuple(select.split()), tuple(ignore.split()), preview=preview).among(rules)
    assert [one.code for one in chosen] == wanted.split()


def test_patterns_of_the_settings(tmp_path: Path) -> None:
    assert fits("*.json", "a/ds.json") and fits("ds.json", "a/ds.json") and not fits("s.json", "a/ds.json")
    assert covers(["ZC1"], "ZC101", "x") and covers(["x"], "ZC101", "x") and covers(["ALL"], "ZC101", "x")
    assert not covers(["ZC2", "y"], "ZC101", "x")
    root = tmp_path.resolve()
    file = replace(made("shown.json", JSON, folder=root / "in"), name="shown.json")
    one = Selection(per_file=(("in/*.json:b.*", ("ZC1",)),), root=root)
    assert one.ignores("ZC101", "x", file, "b.c") and not one.ignores("ZC101", "x", file, "a")
    assert not one.ignores("ZC201", "x", file, "b.c")
    assert not replace(one, root=root / "else").ignores("ZC101", "x", file, "b.c")


# --- readers and releases ---------------------------------------------------------------------------------------------


def test_who_may_read_a_run() -> None:
    assert possible(Run("a")) == ("deepspeed", "accelerate", "transformers", "trl")
    assert possible(Run("a", deepspeed_route="accelerate")) == ("accelerate", "transformers", "trl")


def test_a_fix_for_every_reader() -> None:
    file = made("ds.json", '{"train_micro_batch_size_per_gpu": 1, "mine": 1}')
    fix = Fix("f", (cut(file, ', "mine": 1'),))
    asked: list[str | None] = []

    def offering(*consumers: str, severity: Severity = Severity.ERROR, **more: Any) -> Rule:
        def check(run: Run) -> Any:
            asked.append(run.consumer)
            if run.consumer in consumers:
                yield finding(file, "mine", fix=fix, severity=severity)

        return replace(rule(**more), check=check)

    run = with_settings(Run("a", deepspeed=file))
    every = "deepspeed accelerate transformers trl".split()
    assert Readers([run]).agree(offering(*every), Severity.ERROR, fix) and asked == every
    assert not Readers([run]).agree(offering(*every[1:]), Severity.ERROR, fix)
    assert not Readers([run]).agree(offering(*every, severity=Severity.WARNING), Severity.ERROR, fix)
    assert Readers([run]).agree(offering(*every), Severity.WARNING, fix)
    assert not Readers([run]).agree(offering(*every, consumers=frozenset({"trl"})), Severity.ERROR, fix)
    assert Readers([replace(run, consumer="trl")]).agree(offering(), Severity.ERROR, fix), "its reader is known"
    other = Fix("f", (cut(file, "1", "2"),))

    def differing(run: Run) -> Any:
        yield finding(file, "mine", fix=fix if run.consumer != "trl" else other)

    assert not Readers([run]).agree(replace(rule(), check=differing), Severity.ERROR, fix)
    elsewhere = made("other.json", JSON)
    assert Readers([run]).agree(offering(), Severity.ERROR, Fix("f", (cut(elsewhere, "1"),)))
    assert Readers([run]).agree(offering(code="ZC010"), Severity.ERROR, fix), "a comment to zerocfg"
    asked.clear()
    known = offering(*every)
    before = Readers([run])
    assert before.agree(known, Severity.ERROR, fix) and before.agree(known, Severity.ERROR, fix)
    assert Readers([run], before).agree(known, Severity.ERROR, fix) and len(asked) == 4, "asked once"
    assert Readers([replace(run)], before).agree(known, Severity.ERROR, fix) and len(asked) == 8


def test_a_key_that_no_admitted_release_has() -> None:
    """DeepSpeed 0.14.5 knew no `zenflow`; `gradient_clipping` was always there."""
    file = made("ds.json", '{"zero_optimization": {"stage": 2, "zenflow": {}}, "gradient_clipping": 1.0}')

    def told(declared: str, *path: str, **more: Any) -> str | None:
        run = Run("a", deepspeed=file, versions={"deepspeed": declared} if declared else {})
        one = within(run, rule(**more), finding(file, *path), "")
        return None if one is None else one.message

    zenflow = ("zero_optimization", "zenflow")
    assert told("", *zenflow) == told("==0.19.8", *zenflow) == "m"
    assert told("==0.14.5", *zenflow) is None
    assert told("==0.14.5", "gradient_clipping") == "m" and told("==0.14.5") == "m"
    assert told("==0.14.5", *zenflow, needs=frozenset({"versions"})) == "m"
    between = told(">=0.14", *zenflow)
    assert between is not None and between != "m" and "DeepSpeed" in between


def test_libraries_whose_releases_a_rule_asks_for_in_vain() -> None:
    run = Run("a", versions={"deepspeed": "==0.19.8"})
    assert run.declared("deepspeed") == "==0.19.8" and run.undeclared == set()
    assert run.declared("trl") is None and run.undeclared == {"trl"}
    assert "accelerate" not in run.versions and run.undeclared == {"trl"}, "looking at the mapping notes nothing"
    assert Run("b").undeclared == set()


def test_two_keys_of_one_rule_hold_in_their_own_releases() -> None:
    """`loss_scale` of `bf16` is refused since that section is typed; a key that nobody reads was never read."""
    text = '{"train_batch_size": 1, "bf16": {"enabled": true, "loss_scale": 0}, "zero_optimization": {"stag": 1}}'
    file = made("ds.json", text)
    run = with_settings(Run("a", consumer="deepspeed", deepspeed_route="engine", deepspeed=file))
    told = [
        found(file, *path.split("."), code="ZC101", run="a") for path in ("bf16.loss_scale", "zero_optimization.stag")
    ]
    words = [one.releases.words if one.releases else None for one in with_release_ranges(told, [run])]
    assert words == ["DeepSpeed 0.17.1 and later", "all known releases of DeepSpeed, 0.10.0 to 0.19.8"]


# --- edges ------------------------------------------------------------------------------------------------------------


def test_rules_are_asked_once_for_a_run_that_stays_as_it_is() -> None:
    kept = Kept()
    run = with_settings(Run("a", consumer="deepspeed", deepspeed_route="engine", deepspeed=made("ds.json", JSON)))
    told = []
    for _ in range(2):
        kept.begin(Files())
        told.append([(one.code, one.span.path) for one in lint_runs([run], kept=kept).diagnostics])
    assert told[0] == told[1] != [] and kept.checked == 1


def test_a_block_keeps_one_of_its_keys() -> None:
    file = made("a.yaml", "b:\n  c: 2\n  d: 3\n", "accelerate")
    together = Independence()
    cuts = [offer(file, "c: 2\n  ", "b", "c"), offer(file, "d: 3", "b", "d")]
    assert [together.add(one, chosen=True, any_place=False) for one in cuts] == [True, False]


def test_a_rule_that_also_finds_what_it_cannot_mend() -> None:
    file = made("ds.json", JSON)
    fix = Fix("f", (cut(file, '"a": 1, '),))

    def check(run: Run) -> Any:
        yield finding(file, "e")
        yield finding(file, "a", fix=fix)

    assert Readers([with_settings(Run("a", deepspeed=file))]).agree(replace(rule(), check=check), Severity.ERROR, fix)


def test_edits_of_launch_lines(tmp_path: Path) -> None:
    script = made("run.sh", "deepspeed --num_gpus 2 t.py # zerocfg: ignore\n", "launch", tmp_path)
    name = str(tmp_path / "run.sh")
    word = Fix("f", (cut(script, "2", "3"),))
    comment = Fix("f", (cut(script, " # zerocfg: ignore"),))

    def after(fix: Fix, code: str) -> str | None:
        return edited_together(offers([found(script, fix=fix, code=code)]), [])[1].get(name)

    assert after(word, "ZC901") == script.source.text.replace("2", "3")
    assert after(word, "ZC010") is None, "about a comment, and changes a word"
    assert after(comment, "ZC010") == "deepspeed --num_gpus 2 t.py\n"


def test_findings_at_one_place_of_a_script() -> None:
    script = made("run.sh", "deepspeed --num_gpus 2 t.py\ndeepspeed --num_gpus 4 u.py\n", "launch")

    def at_span(start: int, end: int, text: str) -> Offer:
        place = Location(script, span=Span(start, end))
        told = diagnose(rule(), Finding(place, "m", fix=Fix("f", (cut(script, text, "7"),))), Run("one"))
        return offers([told])[0]

    def second(*which: tuple[int, int, str]) -> bool:
        together = Independence()
        return [together.add(at_span(*one), chosen=True, any_place=False) for one in which][-1]

    assert not second((0, 22, "2"), (10, 22, "t.py")) and not second((10, 22, "2"), (22, 27, "t.py"))
    assert second((10, 21, "2"), (22, 27, "t.py")) and second((22, 27, "t.py"), (10, 21, "2"))
    assert second((10, 21, "2"), (23, 27, "t.py")) and second((10, 22, "2"), (38, 50, "4"))


def test_no_fix_of_what_is_its_authors_to_change() -> None:
    script = made("train.py", "a = 1\n", "launch")
    for kind, editable, offered in (("launch", True, True), ("script", True, False), ("deepspeed", False, False)):
        file = made("ds.json", JSON) if kind == "deepspeed" else replace(script, kind=kind)
        if file.document is not None:
            file = replace(file, document=replace(file.document, editable=editable))
        assert (found(file, fix=Fix("f", (cut(file, "1", "2"),))).fix is not None) is offered, kind


def test_a_comment_that_would_become_a_part_of_a_value() -> None:
    file = made("a.yaml", "a: |\n  x\n  y\nb: 1\n", "accelerate")
    inside = Location(file, span=Span(file.source.text.index("y"), file.source.text.index("y") + 1))
    told = diagnose(rule(), Finding(inside, "m"), Run("one"))
    added = ignores_for([told])
    assert (added.texts, added.patterns) == ({}, [(file, "", "ZC901")])


def test_releases_in_a_row_are_one_part() -> None:
    known = histories("deepspeed").releases
    names = [text(one) for one in known]
    one = found(made("ds.json", JSON), "a", code="ZC101")

    def parts(*at: int) -> tuple[tuple[str, str], ...]:
        where = ("one", "ZC101", one.span.file.name, one.span.start, one.span.path)
        told = _with(one, {where: {names[each] for each in at}})
        assert told.releases is not None and told.releases.known == tuple(names)
        return told.releases.parts

    assert parts() == () and parts(-1) == ((names[-1], names[-1]),)
    assert parts(-3, -2, -1) == ((names[-3], names[-1]),)
    assert parts(-5, -4, -2, -1) == ((names[-5], names[-4]), (names[-2], names[-1]))
    assert parts(-5, -3, -1) == tuple((names[each],) * 2 for each in (-5, -3, -1))


def test_a_baseline_of_no_objects() -> None:
    for item in ("1", '"a"', "[]", "null"):
        with pytest.raises(ValueError, match="an entry is not an object"):
            read_baseline(f'{{"version": 1, "findings": [{item}]}}')


def test_entries_that_occur_again_are_not_stale(tmp_path: Path) -> None:
    file = made("ds.json", JSON, folder=tmp_path)
    here = Result([found(file, "a", code="ZC101"), found(file, "e", code="ZC101")])
    known = read_baseline(baseline_text(here, tmp_path.resolve()))
    left = without_known(here, known, tmp_path.resolve(), frozenset({str(tmp_path.resolve() / "ds.json")}))
    assert (left.diagnostics, left.stale, left.suppressed_by) == ([], 0, {"baseline": 2})


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("ignore", "unused `ignore`: no rule finds anything on the line that it is for"),
        ("ignore-file", "unused `ignore-file`: no rule finds anything in this file"),
        ("ignore[ZC901]", "unused `ignore`: ZC901 finds nothing on the line that it is for"),
        ("ignore-file[ZC901, ZC902]", "unused `ignore-file`: ZC901 and ZC902 find nothing in this file"),
        ("ignore[ZC901, ZC902, rule-x]", "unused `ignore`: ZC901, ZC902 and rule-x find nothing on the line"),
        ("ignore[ZC903]", ""),
        ("ignore[ZC010]", ""),
    ],
)
def test_comments_of_no_use(comment: str, message: str) -> None:
    file = made("a.yaml", f"a: 1 # zerocfg: {comment}\n", "accelerate")
    told = [one.message for one in Ignores().unused([file], {"ZC901", "ZC902", "rule-x"}, everything=True)]
    assert [one[: len(message)] for one in told] == ([message] if message else [])
    some = [one.message for one in Ignores().unused([file], {"ZC901", "ZC902", "rule-x"}, everything=False)]
    assert some == ([] if "[" not in comment else told)


def test_the_end_of_a_launch_line_is_its_own() -> None:
    text = "torchrun a.py\ntorchrun b.py\n"
    script = made("run.sh", text, "launch")
    lines = read_launch_lines(script.source).lines
    runs = [Run(name, launch=line, launch_file=script) for name, line in zip("xy", lines, strict=True)]
    reach = Reach(Result(runs=runs, together=[frozenset({"run.sh"})] * 2))
    for offset, reached in ((0, {"w", "x"}), (13, {"w", "x"}), (14, {"w", "y"}), (27, {"w", "y"})):
        fix = Fix("f", ((script, Edit(Span(offset, offset), "z")),))
        assert reach(offers([found(script, run="w", fix=fix)])[0]) == reached, offset


def test_the_first_line_of_a_command() -> None:
    for command, line, expected in (
        ("a \\\nb\n", 1, (1, 2)),
        ("a \\\nb\n", 2, (1, 2)),
        ("a\nb \\\nc\n", 3, (2, 3)),
        ("a\n", 1, (1, 1)),
        ("\\\n\\\na\n", 3, (1, 3)),
    ):
        lines = command_lines(SourceText("x.sh", command), line)
        assert (lines[0], lines[-1]) == expected


def test_findings_in_a_script_are_compared_by_their_ranges() -> None:
    """A launch script has no keys, also where it was read as a document."""
    script = replace(made("run.sh", "deepspeed t.py\n", "launch"), document=made("a.yaml", "a: 1\n").document)
    config = made("a.yaml", "a: 1\nb: 2\n", "accelerate")

    def place(file: SourceFile, start: int, text: str, *path: str) -> Offer:
        where = Location(file, path, span=Span(start, start + 1))
        fix = Fix("f", (cut(file, text, "7"),))
        return offers([diagnose(rule(), Finding(where, "m", fix=fix), Run("one"))])[0]

    def second(*both: Offer) -> bool:
        together = Independence()
        return [together.add(one, chosen=True, any_place=False) for one in both][-1]

    assert second(place(script, 0, "deepspeed"), place(script, 12, ".py"))
    assert not second(place(script, 0, "deepspeed"), place(script, 1, ".py"))
    assert not second(place(config, 0, "1", "a"), place(config, 8, "2", "a")), "of one key, wherever it is shown"
    assert second(place(config, 0, "1", "a"), place(config, 0, "2", "b"))


def test_answers_of_readers_are_those_of_the_same_run() -> None:
    file = made("ds.json", JSON)
    fix = Fix("f", (cut(file, '"a": 1, '),))
    asked: list[str] = []

    def check(run: Run) -> Any:
        asked.append(run.name)
        yield finding(file, "a", fix=fix)

    known, gone = (with_settings(Run(name, deepspeed=file)) for name in "ab")
    before = Readers([known, gone])
    assert before.agree(replace(rule(), check=check), Severity.ERROR, fix) and asked == ["a"] * 4 + ["b"] * 4
    after = Readers([known], before)
    assert {key for _, key in after._offered} == {id(known)} == set(after._read)


def test_links_are_made_anew_with_other_texts() -> None:
    """`begin` hands on which files have a text in their place: with others none is used again."""
    kept = Kept()
    seen: list[Files] = []
    kept.links.begin = lambda files: seen.append(files)  # type: ignore[method-assign]
    files = Files()
    kept.begin(files)
    assert seen == [files]


def sha(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def test_fingerprints_are_of_the_value() -> None:
    """Of its JSON where the file has keys, else of its words."""
    config = made("a.yaml", "a: [2, {z: 1, b: 2}]\nd: 2024-05-01\ns: {x: 1}\ne: ''\n", "accelerate")
    every = {path: fingerprint(found(config, path)) for path in "adse"}
    assert every == {"a": sha('[2, {"b": 2, "z": 1}]'), "d": sha('"2024-05-01"'), "s": "", "e": sha('""')}
    script = made("run.sh", "torchrun  a.py \\\n  --x 1\nls\n", "launch")

    def words(start: int, end: int) -> str:
        return fingerprint(diagnose(rule(), Finding(Location(script, span=Span(start, end)), "m"), Run("one")))

    assert words(0, 24) == sha("torchrun a.py \\ --x 1") and words(10, 14) == words(10, 15) == sha("a.py")
    assert words(8, 10) == words(3, 3) == ""
    moved = made("run.sh", "ls\n\ntorchrun  a.py\n", "launch")
    told = diagnose(rule(), Finding(Location(moved, span=Span(14, 18)), "m"), Run("one"))
    assert fingerprint(told) == sha("a.py"), "wherever it stands"
    assert sha("\ud800") == fingerprint(
        diagnose(rule(), Finding(Location(made("x.sh", "\ud800\n", "launch"), span=Span(0, 1)), "m"), Run("one"))
    )


def test_a_fix_of_a_launch_line_is_a_matter_of_its_run() -> None:
    """Of the other lines of a script nobody's reader is asked; of a config that they name all are."""
    text = "torchrun a.py\ntorchrun b.py\n"
    script, config = made("run.sh", text, "launch"), made("ds.json", JSON)
    lines = read_launch_lines(script.source).lines
    one, two = (with_settings(Run("x", launch=line, launch_file=script, deepspeed=config)) for line in lines)
    runs = [one, replace(two, consumer="trl")]
    asked: list[str] = []

    def check(run: Run) -> Any:
        asked.append(run.name)
        yield from ()

    silent = replace(rule(), check=check)

    def agreed(file: SourceFile, start: int, end: int) -> bool:
        return Readers(runs).agree(silent, Severity.ERROR, Fix("f", ((file, Edit(Span(start, end), "z")),)))

    assert not agreed(script, 0, 8) and not agreed(script, 13, 13), "up to its end"
    assert agreed(script, 14, 22) and agreed(script, 27, 27)
    assert not agreed(config, 6, 7) and agreed(made("other.json", JSON), 6, 7)
    asked.clear()
    assert agreed(script, 14, 22) and asked == []
    assert not agreed(script, 0, 8) and set(asked) == {"x"}


@pytest.mark.parametrize(
    ("text", "first", "second", "both"),
    [
        ('{"b": {"c": 2,  "d": 3}, "a": 1}', '"c": 2,', '"d": 3', False),
        ('{"b": {"c": 2,  "d": 3,  "e": 4}, "a": 1}', '"c": 2,', '"d": 3,', True),
        ('{"b": {"c": 2},  "a": {"d": 3}}', '"c": 2', '"d": 3', True),
    ],
)
def test_cuts_with_blanks_between_them(text: str, first: str, second: str, both: bool) -> None:
    """They meet nowhere; what is left of the mapping decides."""
    file = made("ds.json", text)
    together = Independence()
    cuts = [offer(file, first, "x"), offer(file, second, "y")]
    assert [together.add(one, chosen=True, any_place=False) for one in cuts] == [True, both]


def test_comments_of_a_page_count_in_its_shell_blocks() -> None:
    text = "# zerocfg: ignore[ZC1]\n```bash\n```\n```bash\ntorchrun a.py # zerocfg: ignore[ZC2]\n```\n"
    text += "# zerocfg: ignore[ZC3]\n"
    for name, codes in (("README.md", ["ZC2"]), ("run.sh", ["ZC1", "ZC2", "ZC3"])):
        found = directives(made(name, text, "launch"))
        assert [code.text for one in found for code in one.codes or ()] == codes


@pytest.mark.parametrize(
    ("declared", "own", "limits"),
    [(Severity.ERROR, None, True), (Severity.NOTE, None, False), (Severity.ERROR, Severity.NOTE, False)],
)
def test_a_note_is_told_as_it_is(declared: Severity, own: Severity | None, limits: bool) -> None:
    """What is graver says in which of the admitted releases it holds."""
    file = made("ds.json", '{"zero_optimization": {"stage": 2, "zenflow": {}}}')
    run = Run("a", deepspeed=file, versions={"deepspeed": ">=0.14"})
    told = within(run, rule(severity=declared), finding(file, "zero_optimization", "zenflow", severity=own), "")
    assert told is not None and (told.message != "m") is limits


def test_a_run_on_which_a_rule_failed_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its failure is told in every lint; of the other runs the findings are kept."""
    failing = [True]
    rules = [one for one in registry.ALL if one.code == "ZC101"]
    check = rules[0].check

    def broken(run: Run) -> Any:
        if failing[0] and run.name == "a":
            raise ValueError("broken")
        yield from check(run)

    monkeypatch.setattr(registry, "ALL", [replace(rules[0], check=broken)])
    monkeypatch.setattr(registry, "WITHOUT_RECIPES", registry.ALL)
    text = '{"train_batch_size": 1, "zero_optimization": {"stag": 1}}'
    runs = [
        with_settings(Run(name, consumer="deepspeed", deepspeed_route="engine", deepspeed=made(f"{name}.json", text)))
        for name in "ab"
    ]
    kept, told = Kept(), []
    for _ in range(3):
        kept.begin(Files())
        contained = Containment()
        found = lint_runs(runs, contained=contained, kept=kept)
        told.append((len(contained.met), sorted({one.span.file.name for one in found.diagnostics}), kept.checked))
        failing[0] = len(told) < 2
    assert told == [(1, ["b.json"], 1), (1, ["b.json"], 1), (0, ["a.json", "b.json"], 2)]


def test_a_fix_of_a_launch_line_means_its_own_run() -> None:
    """One of a config means every run that reads it."""
    script, config = made("run.sh", "torchrun a.py\ntorchrun b.py\n", "launch"), made("ds.json", JSON)
    here = Origin("flag")
    runs = [
        Run(name, effective=Effective(settings={"s": Setting(value, here)})) for name, value in (("x", 3), ("y", 2))
    ]
    result = Result(runs=runs, together=[frozenset({"run.sh", "ds.json"})] * 2)
    gives = (Intent("s", 3),)
    for edits, run, intended in (
        ((cut(script, "a.py", "c.py"),), "x", True),
        ((cut(script, "b.py", "c.py"),), "y", False),
        ((cut(config, "1", "2"),), "x", False),
        ((cut(script, "a.py", "c.py"), cut(config, "1", "2")), "x", False),
    ):
        told = found(config, "a", run=run, fix=Fix("f", edits, gives=gives))
        assert _as_intended(told, result, FileReaders(result)) is intended
    nothing = found(config, "a", run="x", fix=Fix("f", (cut(config, "1", "2"),)))
    assert _as_intended(nothing, result, FileReaders(result))


def test_what_cannot_be_made_lets_nothing_behind_it_go_first(tmp_path: Path) -> None:
    files = {name: made(f"{name}.json", JSON, folder=tmp_path) for name in "ab"}
    paths = {name: str(tmp_path / f"{name}.json") for name in "ab"}
    one, over = tried(files["a"], "1", "a", runs="x"), tried(files["a"], ": 1", "a", runs="x")
    alone = {paths["a"]: JSON.replace("1", "7")}
    for runs, goes in (("x", False), ("y", True)):
        behind = tried(files["b"], "4", "e", runs=runs)
        spoiling: list[Try] = []
        left, texts = _fitting([one, over, behind], Result(), spoiling)
        assert left == [one, *[behind] * goes] and spoiling == [over], runs
        assert texts == alone | ({paths["b"]: JSON.replace("4", "7")} if goes else {})
        before, after = _fitting([one, behind], Result(), [over], [over, one, behind])
        assert before == [behind] * goes and list(after) == [paths["b"]] * goes


def test_files_that_were_looked_at() -> None:
    """One that cannot be read counts where that is told."""
    broken, whole = made("ds.json", "{"), made("acc.yaml", "num_processes: 1\n", "accelerate")
    run = with_settings(Run("a", deepspeed=broken, accelerate=whole))
    told = lint_runs([run])
    assert {one.code for one in told.diagnostics if one.span.file is broken} and told.files == 2
    assert lint_runs([run], Selection(select=("ZC101",))).files == 1


def test_help_of_a_rule_that_another_replaces() -> None:
    file = made("ds.json", JSON)

    def told(help: str, **more: Any) -> str:
        return diagnose(rule(**more), Finding(Location(file, ("a",)), "m", help), Run("one")).help

    assert told("h") == told("h", replaced_by="ZC902") == "h"
    old = {"status": "deprecated", "replaced_by": "ZC902"}
    assert told("h", **old) == "h (this rule is deprecated, ZC902 replaces it)"
    assert told("", **old) == "this rule is deprecated, ZC902 replaces it"
    assert told("h", status="deprecated") == "h (this rule is deprecated)"


def test_names_of_files_are_readable_in_a_baseline(tmp_path: Path) -> None:
    file = made("größe.json", JSON, folder=tmp_path)
    text = baseline_text(Result([found(file, "a")]), tmp_path.resolve())
    assert '"file": "größe.json"' in text
    assert list(read_baseline(text)) == [("ZC901", "größe.json", "a", "6b86b273ff34")]


def test_a_key_of_accelerate_that_no_admitted_release_has() -> None:
    """`parallelism_config` came with accelerate 1.10; the file of another library is not asked."""
    config, other = made("a.yaml", "parallelism_config: {}\nnum_processes: 1\n", "accelerate"), made("ds.json", JSON)

    def told(path: str, file: SourceFile = config, **versions: str) -> bool:
        run = Run("a", deepspeed=other, accelerate=config, versions=versions)
        return within(run, rule(), finding(file, path), "") is not None

    assert told("parallelism_config") and told("parallelism_config", accelerate="==1.15.0")
    assert not told("parallelism_config", accelerate="==1.4.0") and told("num_processes", accelerate="==1.4.0")
    assert told("parallelism_config", deepspeed="==0.14.5") and told("parallelism_config", other, accelerate="==1.4.0")


def test_what_was_checked_in_part_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the findings of the lint before are used."""
    rules = {one.code: one for one in registry.ALL if one.code in ("ZC101", "ZC015")}
    file = made("ds.json", JSON)

    def many(run: Run) -> Any:
        yield from (finding(file, name) for name in "abef")

    monkeypatch.setattr(registry, "ALL", [replace(rules["ZC101"], check=many)])
    monkeypatch.setattr(registry, "WITHOUT_RECIPES", registry.ALL)
    monkeypatch.setattr(engine, "FINDINGS", 3)
    run, kept = with_settings(Run("a", consumer="deepspeed", deepspeed=file)), Kept()
    told = []
    for _ in range(2):
        kept.begin(Files())
        told.append([(one.code, one.span.path) for one in lint_runs([run], kept=kept).diagnostics])
    assert sorted(told[0]) == [("ZC015", "f"), ("ZC101", "a"), ("ZC101", "b"), ("ZC101", "e")]
    assert told[1] == told[0] and kept.checked == 1
