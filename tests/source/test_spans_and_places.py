"""Small pieces that readers and edits share: ranges of characters, words of quoted texts, surrogates, empty values."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import hjson
import pytest
import yaml

from zerocfg.source import disk
from zerocfg.source.edit import apply_edits, delete_duplicate, delete_entry, insert_entry
from zerocfg.source.hjson_scanner import scan_hjson
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.launch.shell_places import words_in_text
from zerocfg.source.launch.shell_spans import span_of
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.load import load_as
from zerocfg.source.node import Mapping, Scalar
from zerocfg.source.text import SourceText, Span

ELSEWHERE = Span(100, 101)


@pytest.mark.parametrize(
    ("at", "span"),
    [
        (range(2, 5), Span(2, 5)),
        ([3, 4, 5], Span(3, 6)),
        ((7, 7, 9), Span(7, 10)),  # several characters of one that is escaped
        ([0, 84], Span(0, 85)),  # one gap of 84 is 2 x 2 + 80
        ([0, 85], ELSEWHERE),
        ([1000, 1084], Span(1000, 1085)),
        ([1000, 1085], ELSEWHERE),
        ([5, 4], ELSEWHERE),
        ([], ELSEWHERE),
        (None, ELSEWHERE),
    ],
)
def test_the_range_that_characters_come_from(at: object, span: Span) -> None:
    assert span_of(at, ELSEWHERE) == span


@pytest.mark.parametrize(
    "text",
    [
        "'--lr 1e-5'",
        "'a  b\tc'",
        "'a'",
        "bare",
        '"--lr 1e-5 x"',
        '"a\\" b"',
    ],
)
def test_the_words_of_a_quoted_text_are_those_of_bash(text: str) -> None:
    """Bash assigns the text to a variable and splits it where that is used without quotes."""
    script = f"a={text}; printf '%s\\n' $a"
    words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    found = [text[start:end] for start, end in words_in_text(Chars(text, range(len(text))))]
    assert [word.replace('\\"', '"') for word in found] == words


@pytest.mark.parametrize("text", ["'a' 'b'", "'a'b", "''c", "'", '"a"b', '"'])
def test_a_text_that_is_put_together_has_no_places(text: str) -> None:
    assert list(words_in_text(Chars(text, range(len(text))))) == []


@pytest.mark.parametrize("high", ["d800", "d801", "dbff", "dc00", "d7ff", "0041"])
@pytest.mark.parametrize("low", ["\\udc00", "\\udc01", "\\udfff", "\\ud800", "\\u0041", "\\u00", "x", ""])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_pairs_of_surrogates(quote: str, high: str, low: str) -> None:
    text = f"{{a: {quote}\\u{high}{low}{quote}}}"
    try:
        value = hjson.loads(text)["a"]
    except hjson.HjsonDecodeError:
        return  # what is refused is compared elsewhere
    root, _ = scan_hjson(text)
    assert isinstance(root, Mapping)
    held = root.entries[0].value
    assert isinstance(held, Scalar) and held.value == value


def edited(text: str, *path: str) -> str:
    return apply_edits(text, delete_entry(load_as(SourceText("a.yaml", text), "yaml"), path))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a:\nb: 1\n", "b: 1\n"),
        ("b: 1\na:\n", "b: 1\n"),
        ("a:   # why\nb: 1\n", "b: 1\n"),
        ("{a: , b: 1}\n", "{b: 1}\n"),
        ("{b: 1, a: }\n", "{b: 1}\n"),
    ],
)
def test_an_entry_without_a_value_goes(text: str, after: str) -> None:
    assert yaml.safe_load(edited(text, "a")) == yaml.safe_load(after)
    assert "why" in text or edited(text, "a").replace(" ", "") == after.replace(" ", "")


def test_one_of_two_equal_keys_goes() -> None:
    for format, text in (
        ("yaml", "a: 1\nb: 2\na: 3\n"),
        ("yaml", "{a: 1, b: 2, a: 3}"),
        ("json", '{"a":1,"b":2,"a":3}'),
    ):
        document = load_as(SourceText(f"a.{format}", text), format)
        root = document.root
        assert isinstance(root, Mapping)
        first, second, last = root.entries
        assert yaml.safe_load(apply_edits(text, delete_duplicate(document, ("a",), first.key_span))) == {"b": 2, "a": 3}
        assert yaml.safe_load(apply_edits(text, delete_duplicate(document, ("a",), last.key_span))) == {"a": 1, "b": 2}
        with pytest.raises(ValueError, match="not written there"):
            delete_duplicate(document, ("a",), second.key_span)
        with pytest.raises(ValueError, match="not written there"):
            delete_duplicate(document, ("a",), Span(0, 0))


def test_an_entry_comes_into_an_empty_section() -> None:
    text = "a:\n  b:\nc: 1\n"
    document = load_as(SourceText("a.yaml", text), "yaml")
    assert apply_edits(text, insert_entry(document, ("a", "b"), "d", "2")) == "a:\n  b:\n    d: 2\nc: 1\n"
    assert apply_edits(text, insert_entry(document, (), "d", "2", after="a")) == "a:\n  b:\nd: 2\nc: 1\n"


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("python -u", None),
        ("python -u\ntorchrun train.py", "torchrun"),
        ("python -m\ntorchrun train.py", "torchrun"),
        ("python -m accelerate\ntorchrun train.py", "torchrun"),
        ("python -m", None),
        ("python -m accelerate.commands.accelerate_cli", None),
        ("python -m torch.distributed.run", None),
        ("python -u -m torch.distributed.run train.py", "torchrun"),
        ("python -m accelerate.commands.launch train.py", "accelerate"),
        ("python -m accelerate.commands.accelerate_cli launch train.py", "accelerate"),
        ("accelerate", None),
        ("accelerate launch", None),
        ("accelerate config", None),
    ],
)
def test_a_command_that_ends_early(command: str, launcher: str | None) -> None:
    lines = read_launch_lines(SourceText("run.sh", command)).lines
    assert [line.launcher for line in lines if line.launcher != "python"] == ([launcher] if launcher else [])


def test_the_folder_that_a_command_changes_to() -> None:
    """As bash sets PWD; a word is told as a program sees it there."""
    text = "torchrun $PWD/a.py\ncd sub\ntorchrun $PWD/b.py\n(cd inner; torchrun $PWD/c.py)\ntorchrun $PWD/d.py\n"
    scripts = [line.script for line in read_launch_lines(SourceText("run.sh", text)).lines]
    assert [word.value for word in scripts if word is not None] == ["a.py", "b.py", "c.py", "d.py"]
    text = "cd /data/x/..\ntorchrun $PWD/a.py\n"
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    assert line.script is not None and line.script.value == "/data/a.py"


def test_a_file_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert disk.whole(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 0 KiB"):
        disk.whole(path, 4)


def test_positions_of_keys_agree_with_the_text() -> None:
    text = '{"a": {"b": [1, {"c": null}]}}'
    document = load_as(SourceText("a.json", text), "json")
    node = document.get(("a", "b", 1, "c"))
    assert node is not None and text[node.span.start : node.span.end] == "null"
    assert json.loads(text)["a"]["b"][1] == {"c": None}
