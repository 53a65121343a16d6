"""Patterns that are compiled when they are first used: those of `re` are the oracle."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from zerocfg import patterns
from zerocfg.patterns import compiled_when_used, pattern

TEXTS = [r"(?P<word>[a-z]+)(\d*)", r"\s*", "[\u2028x]"]


def _looks(compiled: re.Pattern[str]) -> Iterator[object]:
    for text in ("ab1 Cd", "", "x\u2028"):
        for find in (compiled.match, compiled.search, compiled.fullmatch):
            found = find(text)
            yield found and (found.span(), found.groups(), found.re.pattern)
        yield [one.span() for one in compiled.finditer(text)]
        yield (compiled.findall(text), compiled.split(text), compiled.sub("-", text), compiled.subn("-", text))
        yield compiled.match(text, 1, 3) is not None
    yield (compiled.pattern, compiled.flags, compiled.groups, dict(compiled.groupindex))


@pytest.mark.parametrize("flags", [0, re.IGNORECASE, re.ASCII | re.DOTALL], ids=str)
@pytest.mark.parametrize("text", TEXTS)
def test_a_pattern_finds_what_that_of_re_finds(text: str, flags: int) -> None:
    assert [*_looks(pattern(text, flags))] == [*_looks(re.compile(text, flags))]


def test_a_pattern_is_compiled_once_and_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_: Callable[..., re.Pattern[str]] = re.compile
    monkeypatch.setattr(patterns, "_compile", lambda text, flags: [compiled.append(text), compile_(text, flags)][1])
    one = pattern("a+")
    assert not hasattr(one, "__len__")
    assert compiled == []
    assert [one.match("aab")[0], one.search("ba")[0], one.match("b")] == ["aa", "a", None]  # type: ignore[index]
    assert compiled == ["a+"]


def test_what_is_no_pattern_is_refused_when_it_is_used() -> None:
    broken = pattern("(")
    with pytest.raises(re.error, match="unterminated subpattern"):
        broken.match("")
    with pytest.raises(AttributeError):
        _ = pattern("a").unheard_of  # type: ignore[attr-defined]


def test_re_is_itself_again_after_an_import_that_fails() -> None:
    before = re.compile
    with pytest.raises(ImportError), compiled_when_used():
        assert type(re.compile("a")) is not re.Pattern
        raise ImportError
    assert re.compile is before
    assert type(re.compile("a")) is re.Pattern


YAML = """
a: [1, 0x1F, 0b11, 017, 1_000, 1.5, 5e8, 1.0e+8, .inf, -.INF, .nan, 1:30, 190:20:30.15, ~, null, yes, Off, on, '5']
when: [2001-12-14, 2001-12-14t21:59:43.10-05:00, 2001-12-15 2:59:43.10]
<<: {b: 1}
=: value
text: "\u00e9\u2028"
binary: !!binary aGVsbG8=
"""


def test_pyyaml_reads_the_same_with_patterns_compiled_when_used() -> None:
    show = f"text = {YAML!r}\nprint([repr(yaml.load(text, one)) for one in (yaml.SafeLoader, yaml.CSafeLoader)])"
    lazy = "from zerocfg.patterns import compiled_when_used\nwith compiled_when_used():\n    import yaml\n"
    type_ = "print(type(yaml.reader.Reader.NON_PRINTABLE).__name__)\n"
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
        for code in (f"{lazy}{type_}{show}", f"import yaml\n{type_}{show}")
    ]
    assert [one[0] for one in outputs] == ["_Pattern", "Pattern"]
    assert outputs[0][1] == outputs[1][1]
