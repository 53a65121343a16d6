"""``zerocfg report``: the file that it writes, and what stands in its way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome

Cli = Callable[..., Outcome]
LARGEST = 1_500_000


class _Outside(HTMLParser):
    """Collects what a page would load, its headings, and its identifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (name == "href" and tag != "a"):
                self.loads.append(value or "")
            if name == "id":
                self.ids.append(value or "")
            if name == "href" and tag == "a":
                self.targets.append(value or "")


def test_the_page_is_one_file_and_the_same_for_the_same_files(zerocfg: Cli, quickstart: Path) -> None:
    # A page of an earlier release is replaced.
    Path("report.html").write_text('<!doctype html>\n<meta name="generator" content="zerocfg report 0.0.1">\n')
    outcome = zerocfg("report", "quickstart", "-o", "report.html", "--no-trace")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("wrote report.html (")
    first = Path("report.html").read_bytes()
    assert len(first) < LARGEST
    # Another process has other hashes.
    words = [sys.executable, "-m", "zerocfg", "report", "quickstart", "-o", "-", "--no-trace"]
    again = subprocess.run(words, capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": "7"})
    assert again.stdout == first
    seen = _Outside()
    seen.feed(first.decode())
    assert seen.loads and all(one.startswith("data:image/svg+xml;base64,") for one in seen.loads)
    assert len(seen.ids) == len(set(seen.ids))
    assert {one.removeprefix("#") for one in seen.targets} <= set(seen.ids)
    assert b"http://" not in first.replace(b"http-equiv", b"") and b"https://" not in first


def test_other_files_are_left_alone(zerocfg: Cli, quickstart: Path) -> None:
    mine = quickstart / "notes.html"
    mine.write_text("<p>mine</p>")
    outcome = zerocfg("report", "quickstart", "-o", str(mine), "--no-trace")
    assert outcome.code == 2 and "--force replaces it" in outcome.err
    assert mine.read_text() == "<p>mine</p>"
    for place, told in ((quickstart, "is a folder"), (quickstart / "no" / "page.html", "there is no folder")):
        outcome = zerocfg("report", "quickstart", "-o", str(place), "--no-trace")
        assert outcome.code == 2 and told in outcome.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "there is no file or folder 'nowhere'"),
        (["a\0b"], "a"),
        (["quickstart", "--run", "quickstar"], "did you mean"),
        (["quickstart", "--build", "quickstart/model"], "holds no build of quickstart"),
        (["quickstart", "--hardware", "3xNothing"], "unknown accelerator"),
        (["quickstart/train.py"], "several runs; name one with --run: quickstart, "),
        (["quickstart/model"], "no run"),
        (["matrix.yaml"], "several runs; name one with --run: a, b"),
        (["binary.yaml"], "binary.yaml"),
        (["quickstart/built/quickstart", "--run", "other"], "is a build of quickstart, not of other"),
    ],
)
def test_what_is_no_run_is_told_in_a_line(zerocfg: Cli, quickstart: Path, words: list[str], told: str) -> None:
    run = "{consumer: transformers, script: t.py, hardware: 2xCPU}"
    Path("matrix.yaml").write_text(f"version: 1\nruns:\n  a: {run}\n  b: {run}\n")
    Path("binary.yaml").write_bytes(b"\x00\xff\xfe\x80")
    outcome = zerocfg("report", *words, "-o", "report.html", "--no-trace")
    assert outcome.code == 2 and told in outcome.err
    assert "Traceback" not in outcome.err and not Path("report.html").exists()


def test_a_lock_that_cannot_be_read_is_told(zerocfg: Cli, quickstart: Path) -> None:
    (quickstart / "built" / "quickstart" / "zerocfg.lock").write_text("{")
    outcome = zerocfg("report", "quickstart/built/quickstart", "-o", "report.html")
    assert outcome.code == 2 and "zerocfg.lock" in outcome.err


@pytest.mark.parametrize("name", ["jinja2", "matplotlib"])
def test_without_the_extra_one_line_says_how_to_get_it(
    zerocfg: Cli, quickstart: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one, *rest: None if one == name else real(one, *rest))
    outcome = zerocfg("report", "quickstart", "-o", "report.html")
    assert outcome.code == 2
    assert outcome.err == f"Error: a report needs {name}: pip install 'zerocfg[report]'\n"


def test_the_command_line_loads_no_extra_before_it_is_used() -> None:
    code = "import sys, zerocfg.cli.commands.report; print([m for m in ('jinja2', 'matplotlib') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "[]\n"
