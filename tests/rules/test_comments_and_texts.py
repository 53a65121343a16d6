"""Comments that are put into launch scripts, texts after several fixes, and releases of which something is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.test_linter_steps import JSON, cut, found, made, offer, rule
from zerocfg.catalog.history import histories
from zerocfg.catalog.rule_outcomes import rule_outcomes
from zerocfg.catalog.versions import release
from zerocfg.linter.add_ignores import ignores_for
from zerocfg.linter.engine import diagnose
from zerocfg.linter.fixed_texts import edited, edited_together
from zerocfg.linter.ignores import directives, not_understood, removal
from zerocfg.linter.independent import offers
from zerocfg.linter.release_ranges import _known_from, _library, _releases
from zerocfg.rulebook import older_releases
from zerocfg.rules.api import Finding, Fix, Location
from zerocfg.rules.registry import ALL
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import Span

TOLD = "# zerocfg: ignore[ZC901] TODO"


@pytest.mark.parametrize(
    ("text", "word", "after"),
    [
        ("ls\ntorchrun a.py\n", "a.py", f"ls\n{TOLD}\ntorchrun a.py\n"),
        ("torchrun \\\n  a.py \\\n  --x 1\n", "--x", f"{TOLD}\ntorchrun \\\n  a.py \\\n  --x 1\n"),
        ("if x; then\n  torchrun a.py\nfi\n", "a.py", f"if x; then\n  {TOLD}\n  torchrun a.py\nfi\n"),
        ("ls\r\ntorchrun a.py\r\n", "a.py", f"ls\r\n{TOLD}\r\ntorchrun a.py\r\n"),
        ("\ufefftorchrun a.py\n", "a.py", f"\ufeff{TOLD}\ntorchrun a.py\n"),
        ("torchrun a.py", "a.py", f"{TOLD}\ntorchrun a.py"),
        (
            "# zerocfg: ignore[ZC1] x\ntorchrun \\\n a.py\n",
            "a.py",
            "# zerocfg: ignore[ZC1, ZC901] x\ntorchrun \\\n a.py\n",
        ),
        ("A='x\ntorchrun'\neval $A a.py\n", "torchrun", None),
    ],
)
def test_a_comment_above_a_command(text: str, word: str, after: str | None) -> None:
    script = made("run.sh", text, "launch")
    start = text.index(word)
    told = diagnose(rule(), Finding(Location(script, span=Span(start, start + len(word))), "m"), Run("one"))
    added = ignores_for([told])
    assert added.texts == ({} if after is None else {"run.sh": after})
    assert bool(added.patterns) is (after is None) and added.count == 1


def test_a_comment_of_make_begins_its_line() -> None:
    """An indented one would be handed to the shell."""
    script = made("Makefile", "all:\n\ttorchrun a.py\n", "launch")
    start = script.source.text.index("a.py")
    told = diagnose(rule(), Finding(Location(script, span=Span(start, start + 4)), "m"), Run("one"))
    assert ignores_for([told]).texts == {"Makefile": f"all:\n{TOLD}\n\ttorchrun a.py\n"}


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a: 1  # zerocfg: ignore[ZC901] why\nb: 2\n", "a: 1\nb: 2\n"),
        ("a: 1\n  # zerocfg: ignore[ZC901]  \nb: 2\n", "a: 1\nb: 2\n"),
        ("a: 1\n# zerocfg: ignore[ZC901]", "a: 1"),
        ("a: 1\r\n# zerocfg: ignore[ZC901]", "a: 1"),
        ("# zerocfg: ignore[ZC901]", ""),
        ("\ufeff# zerocfg: ignore[ZC901]\na: 1\n", "\ufeffa: 1\n"),
        ("a: 1 # zerocfg: ignore[ZC901] # more\n", "a: 1 # more\n"),
        ("# zerocfg: ignore[ZC901] # more\n", "# more\n"),
    ],
)
def test_a_comment_that_is_taken_out(text: str, after: str) -> None:
    file = made("a.yaml", text, "accelerate")
    (directive,) = directives(file)
    assert apply_edits(text, [removal(file.source, directive)]) == after


@pytest.mark.parametrize(
    ("comment", "told", "after"),
    [
        ("ignored[ZC101]", "zerocfg has no comment `ignored`; did you mean `ignore`?", "ignore[ZC101]"),
        (
            "ignore-files[ZC101]",
            "zerocfg has no comment `ignore-files`; did you mean `ignore-file`?",
            "ignore-file[ZC101]",
        ),
        ("see below", "", None),
        (
            "ignore[ZC101 why",
            "the list of `ignore[` is not closed, so the comment silences nothing",
            "ignore[ZC101] why",
        ),
        ("ignore[ZC101, zc102 a, b", "the list of `ignore[` is not closed", "ignore[ZC101, zc102] a, b"),
        ("ignore[why", "the list of `ignore[` is not closed", None),
        ("ignore[ZC1]", "'ZC1' is the beginning of several codes; a comment names whole codes", None),
        ("ignore[ZC999]", "no rule is called 'ZC999'", ""),
        ("ignore[ZC101, ZC999]", "no rule is called 'ZC999'", "ignore[ZC101]"),
        (
            "ignore[weights-not-svaed]",
            "no rule is called 'weights-not-svaed'; did you mean weights-not-saved?",
            "ignore[weights-not-saved]",
        ),
        ("ignore[ZC101]", "", None),
    ],
)
def test_comments_that_are_not_understood(comment: str, told: str, after: str | None) -> None:
    text = f"a: 1 # zerocfg: {comment}\n"
    file = made("a.yaml", text, "accelerate")
    findings = list(not_understood(Run("one", accelerate=file), ALL))
    assert [item.message[: len(told)] for item in findings] == ([told] if told else [])
    word = told.split("'")[1] if "'" in told else comment.partition("[")[0] if "`ignore" in told[:40] else None
    for item in findings if word is not None else ():
        span = item.location.span
        assert span is not None and text[slice(*span)] in (word, text[5:-1])
        assert "'" not in told or text[slice(*span)] == word
    if after is not None:
        assert findings[0].fix is not None
        mended = apply_edits(text, [edit for _, edit in findings[0].fix.edits])
        assert mended == (f"a: 1 # zerocfg: {after}\n" if after else "a: 1\n")


# --- texts after fixes ------------------------------------------------------------------------------------------------


def test_a_fix_of_two_files_is_made_in_both_or_in_neither(tmp_path: Path) -> None:
    item, two = (made(f"{name}.json", JSON, folder=tmp_path) for name in "ab")
    both = Fix("f", (cut(item, "1", "7"), cut(two, "4", "8")))
    path = str(tmp_path / "{}.json")
    assert edited(found(item, "a", fix=both)) == {
        path.format("a"): JSON.replace("1", "7"),
        path.format("b"): JSON.replace("4", "8"),
    }
    overlapping = Fix("f", (cut(item, "1", "7"), cut(two, '"e": 4', "8"), cut(two, "4", "8")))
    assert edited(found(item, "a", fix=overlapping)) is None and edited(found(item, "a")) is None
    first = offers([found(item, "a", fix=both)])[0]
    second = offer(two, ": 4", "e", new=": 9")
    assert edited_together([second, first], []) == ([second], {path.format("b"): JSON.replace(": 4", ": 9")})
    third = offer(item, "5", "f", new="6")
    fitting, texts = edited_together([first, third, second], [])
    assert fitting == [first, third]
    assert texts == {
        path.format("a"): JSON.replace("1", "7").replace("5", "6"),
        path.format("b"): JSON.replace("4", "8"),
    }


def test_words_of_other_launch_lines_stay(tmp_path: Path) -> None:
    """A fix is of the lines in which its finding is met; where no run is known, of any."""
    text = "torchrun a.py\ntorchrun b.py\n"
    script = made("run.sh", text, "launch", tmp_path)
    lines = read_launch_lines(script.source).lines
    runs = [Run(name, launch=line, launch_file=script) for name, line in zip("xy", lines, strict=True)]
    fix = Fix("f", (cut(script, "b.py", "c.py"),))
    told = found(script, fix=fix, run="y")
    after = {str(tmp_path / "run.sh"): text.replace("b.py", "c.py")}
    assert edited(told, runs) == edited(told) == after
    other = replace(told, met_in=frozenset({"x"}))
    assert edited(other, runs) is None and edited(other) == after
    assert edited(replace(told, met_in=frozenset({"x", "y"})), runs) == after
    config = made("a.yaml", "a: 1\n", "accelerate", tmp_path)
    assert edited(found(config, "a", fix=Fix("f", (cut(config, "1", "2"),)), run="x"), runs) == {
        str(tmp_path / "a.yaml"): "a: 2\n"
    }


def test_a_fix_that_splits_a_word_is_not_made(tmp_path: Path) -> None:
    script = made("run.sh", "torchrun 'a b.py' --x 1\n", "launch", tmp_path)
    at = script.source.text.index("b.py")
    assert (
        edited(
            found(
                script,
                fix=Fix(
                    "f",
                    (
                        (
                            script,
                            Edit(Span(at, at), "'"),
                        ),
                    ),
                ),
            )
        )
        is None
    )
    assert edited(found(script, fix=Fix("f", (cut(script, "--x 1", "--y 2"),)))) is not None


# --- releases ---------------------------------------------------------------------------------------------------------


def test_since_when_something_is_known_of_a_rule() -> None:
    """Of every release where the histories tell; as far back as its examples were played; else of today's alone."""
    known = _releases("deepspeed")
    assert known == tuple(histories("deepspeed").names) and known[-1] == "0.19.8"
    assert _releases("torch") == _releases("nothing") == _releases("") == ()
    histories_tell = next(item.code for item in ALL if item.histories == "keys")
    assert _known_from(histories_tell, "deepspeed", known) == known[0]
    by_releases = next(item for item in ALL if item.versions and not item.histories)
    assert _known_from(by_releases.code, "deepspeed", known) == known[0]
    assert _known_from("ZC000", "deepspeed", known) == known[-1]
    played = {}
    for item in ALL:
        if item.versions or item.histories:
            continue
        played[item.code] = since = older_releases.since(item)
        start = _known_from(item.code, "deepspeed", known)
        assert start is not None
        if since is None:
            assert start == known[-1]
        else:
            of_set = rule_outcomes().sets[since].get("deepspeed", "0.19.8")
            assert release(start) >= release(of_set)
            assert not any(release(of_set) <= release(name) < release(start) for name in known)
    assert len({since for since in played.values() if since}) > 1 and None in played.values()


def test_the_library_that_decides() -> None:
    config, recipe, script = made("ds.json", JSON), made("r.yaml", "a: 1\n", "recipe"), made("run.sh", "ls\n", "launch")
    by_key = next(item for item in ALL if not item.versions and item.code == "ZC101")
    assert _library(found(config, "a", code=by_key.code)) == "deepspeed"
    assert _library(found(recipe, "a", code=by_key.code)) == "transformers"
    assert _library(found(made("a.yaml", "a: 1\n", "accelerate"), "a", code=by_key.code)) == "accelerate"
    assert _library(found(script, code=by_key.code)) is None and _library(found(config, "a", code="ZC000")) is None
    assert _library(found(config, "a", code="ZC010")) is None, "about zerocfg"
    compares = next(item for item in ALL if "versions" in item.needs)
    assert _library(found(config, "a", code=compares.code)) is None
    stated = next(item for item in ALL if item.versions.startswith("transformers") and "versions" not in item.needs)
    assert _library(found(config, "a", code=stated.code)) == "transformers"
