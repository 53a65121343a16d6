"""Any path and any bytes give a document."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.budgets import FILE_BYTES
from zerocfg.source.load import format_of, load, load_as, load_bytes
from zerocfg.source.node import Document


def kinds(document: Document) -> list[str]:
    return [problem.kind for problem in document.problems]


def test_what_is_no_readable_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    for name in ("pipe.yaml", "missing.json", "loop.yaml", ".", "a\0b", "x" * 5000):
        document = load(str(tmp_path / name))
        assert kinds(document) == ["unreadable"]
        assert document.root is None
    assert kinds(load("/dev/null")) == ["unreadable"]


def test_a_file_without_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's refusal is played, because root, as whom tests often run, may read everything."""
    path = tmp_path / "a.yaml"
    path.write_text("a: 1")

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    document = load(path)
    assert kinds(document) == ["unreadable"]
    assert "permission denied" in document.problems[0].message


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("a: 1".encode("utf-16"), "encoding"),
        ("a: 1".encode("utf-32"), "encoding"),
        (b"a: \xe9\n", "encoding"),
        (b"a\0b", "encoding"),
        (b"#" * (FILE_BYTES + 1), "too-large"),
        (b"", "empty"),
    ],
)
def test_bytes_that_are_no_text(data: bytes, kind: str) -> None:
    assert kinds(load_bytes("f.yaml", data)) == [kind]


def test_the_format_is_told_by_name_then_by_content(tmp_path: Path) -> None:
    assert format_of("a.JSON") == format_of("a.hjson") == "json"
    assert format_of("a.yml", "{}") == "yaml"
    assert format_of("<stdin>", '\ufeff {"a": 1}') == "json"
    assert format_of("<stdin>", "a: 1") == "yaml"
    path = tmp_path / "x.yaml"
    path.write_text('{"lr": 5e8}')
    document = load(path, name="shown.yaml")
    assert (document.name, document.data()) == ("shown.yaml", {"lr": "5e8"})
    assert load_as(document.source, "json").data() == {"lr": 5e8}


@given(st.binary(max_size=60), st.sampled_from(["f.yaml", "f.json", "f"]))
def test_no_bytes_raise(data: bytes, name: str) -> None:
    document = load_bytes(name, data)
    assert document.root is not None or document.problems


def test_what_cannot_be_decoded_has_a_format_all_the_same() -> None:
    """The one that is asked for, else that of its name."""
    for name, format, expected in (("a.yaml", "json", "json"), ("a.json", None, "json"), ("a.yaml", None, "yaml")):
        document = load_bytes(name, b"a: \xff", format)  # type: ignore[arg-type]
        assert (document.format, document.root, document.problems[0].kind) == (expected, None, "encoding")
