"""Outcomes that are kept: printed again to the byte while nothing changed, and never after anything did."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from zerocfg.report.formats import FORMATS

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Place:
    """A folder that is linted, and the cache beside it."""

    folder: Path
    cache: Path

    def python(self, *words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "PYTHONPATH": str(ROOT), **variables}
        for name in ("FORCE_COLOR", "COLUMNS", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
            if name not in variables:
                environment.pop(name, None)
        return subprocess.run([sys.executable, *words], cwd=self.folder, env=environment, capture_output=True)

    def lint(self, *words: str, **variables: str) -> tuple[int, bytes, bytes]:
        done = self.python("-m", "zerocfg", "lint", *words, **variables)
        assert b"Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    @property
    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("zerocfg/lint/*"))

    def mark(self) -> None:
        """Let the kept report tell that it is the kept one."""
        for path in self.entries:
            entry = json.loads(path.read_text())
            path.write_text(json.dumps({**entry, "text": f"kept {entry['text']}"}))

    def kept(self, *words: str, **variables: str) -> bool:
        """Whether a lint prints the kept report."""
        return self.lint(*words, **variables)[1].startswith(b"kept ")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "repo"
    (folder / "inner").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "accelerate.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    (folder / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}\n')
    (folder / "run.sh").write_text("accelerate launch --config_file accelerate.yaml train.py\n")
    (folder / "train.py").write_text("from accelerate import Accelerator\nfrom helper import x\nAccelerator()\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "a"\nversion = "1"\ndependencies = ["deepspeed==0.19.8"]\n'
    )
    (folder / "requirements.txt").write_text("accelerate==1.15.0\n")
    return Place(folder, tmp_path / "cache")


def test_the_second_lint_prints_the_kept_report_and_imports_no_rules(place: Place) -> None:
    code, out, err = place.lint()
    assert (code, err) == (1, b"")
    assert b"ZC101" in out
    assert place.lint() == (code, out, err)
    place.mark()
    assert place.lint() == (code, b"kept " + out, err)
    script = (
        "import sys\nsys.argv = ['zerocfg', 'lint']\nfrom zerocfg.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('click', 'yaml', 'dataclasses')"
        " or n.startswith(('zerocfg.rules', 'zerocfg.run', 'zerocfg.linter', 'zerocfg.report'))])"
    )
    done = place.python("-c", script)
    assert done.stdout.startswith(b"kept ")
    assert done.stdout.endswith(b"[]\n")


def _append(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write(text)

    return change


def _same_times(folder: Path) -> None:
    """Another content of the same size, with the times of the file as they were."""
    path = folder / "ds.json"
    about = path.stat()
    path.write_text(path.read_text().replace('"stage": 2', '"stage": 3'))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _write(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    return change


CHANGES: dict[str, Callable[[Path], None]] = {
    "a config": _append("accelerate.yaml", "mixed_precision: bf16\n"),
    "a config, with its times kept": _same_times,
    "what a config names": _write("ds.json", '{"train_batch_size": 8}\n'),
    "a launch script": _append("run.sh", "echo done\n"),
    "the training script": _append("train.py", "print(1)\n"),
    "what the project asks for": _write("requirements.txt", "accelerate==1.0.0\n"),
    "settings that appear": _append("pyproject.toml", '[tool.zerocfg]\nignore = ["ZC101"]\n'),
    "settings of their own": _write("zerocfg.toml", 'ignore = ["ZC101"]\n'),
    "a comment": _append("run.sh", "# zerocfg: ignore[ZC101]\n"),
    "a new config": _write("inner/other.json", '{"train_batch_size": 8, "zero_optimization": {}}\n'),
    "a new module of the script": _write("helper.py", "x = 1\n"),
    "a config that goes": lambda folder: (folder / "ds.json").unlink(),
    "another file that goes": lambda folder: (folder / "requirements.txt").unlink(),
    "a repository that is none": lambda folder: (folder / ".git").rmdir(),
    "a file that is a link now": lambda folder: (
        (folder / "ds.json").rename(folder / "inner" / "real.json"),
        (folder / "ds.json").symlink_to(folder / "inner" / "real.json"),
    )[0],
    "a file that was none of ours": _write("data.json", '{"bf16": {"enabled": true}}\n'),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(place: Place, change: Callable[[Path], None]) -> None:
    (place.folder / "data.json").write_text('{"text": "a line"}\n')
    place.lint()
    place.mark()
    assert place.kept()
    change(place.folder)
    assert not place.kept()
    assert place.lint() == place.lint("--no-cache")


def test_another_question_is_another_outcome(place: Place, tmp_path: Path) -> None:
    place.lint()
    place.mark()
    for words in (["--select", "ZC1"], ["--notes"], ["--quiet"], ["."], ["ds.json"], ["--output-format", "json"]):
        assert not place.kept(*words)
    for variables in ({"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}, {"HOME": str(tmp_path)}):
        assert not place.kept(**variables)
    assert place.kept()


def test_another_zerocfg_is_another_outcome(place: Place, tmp_path: Path) -> None:
    place.lint()
    place.mark()
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "zerocfg", copy / "zerocfg", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "schemas", copy / "schemas")
    assert not place.kept(PYTHONPATH=str(copy))
    place.mark()
    with (copy / "zerocfg" / "rules" / "__init__.py").open("a") as file:
        file.write("\n")
    assert not place.kept(PYTHONPATH=str(copy))


@pytest.mark.parametrize("words", [["--no-cache"], ["--config", "cache = false"]])
def test_it_can_be_turned_off(place: Place, words: list[str]) -> None:
    place.lint(*words)
    assert place.entries == []


@pytest.mark.parametrize(
    "words", [["--fix"], ["--diff"], ["--show-runs"], ["--verbose"], ["--output-file", "report"], ["-"]]
)
def test_what_does_more_than_report_is_not_kept(place: Place, words: list[str]) -> None:
    place.lint(*words)
    assert place.entries == []


def test_a_spec_is_not_kept(place: Place) -> None:
    """It is read with what this machine knows of its model and hardware."""
    (place.folder / "zerocfg.yaml").write_text("version: 1\nruns:\n  a:\n    consumer: accelerate\n")
    place.lint()
    assert place.entries == []


BROKEN = {
    "empty": b"",
    "half": b'{"asked": [',
    "deep": b"[" * 100_000,
    "another form": b"[1, 2]",
    "a number": b"9" * 10_000,
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_entry_is_replaced(place: Place, content: bytes) -> None:
    expected = place.lint()
    (entry,) = place.entries
    whole = entry.read_bytes()
    entry.write_bytes(content)
    assert place.lint() == expected
    assert entry.read_bytes() == whole


HOSTILE = {
    "another code": {"code": 3},
    "a code that is none": {"code": True},
    "text that is none": {"text": ["a"]},
    "answers that are none": {"notes": {"kind": {"ds.json": 1}}},
    "questions that are none": {"notes": {"run": {"touch /tmp/pwned": ""}}},
    "a question without numbers": {"notes": {"content x y": {"ds.json": ""}}},
    "a device": {"notes": {"content 100 100": {"/dev/zero": ""}}},
    "more": {"more": 1},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_entry_is_nothing(place: Place, change: dict[str, object]) -> None:
    expected = place.lint()
    (entry,) = place.entries
    entry.write_text(json.dumps({**json.loads(entry.read_text()), **change}))
    assert place.lint() == expected


@pytest.mark.parametrize("output_format", ["full", "json"])
def test_the_text_of_a_hostile_entry_steers_nothing(place: Place, output_format: str) -> None:
    place.lint("--output-format", output_format)
    (entry,) = place.entries
    hostile = "a\x1b]0;PWN\x07\n::stop-commands::x\n##[command]x\n\u202e\udcff\ud800\n"
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "text": hostile}))
    out = place.lint("--output-format", output_format)[1].decode("utf-8", "replace")
    assert out.startswith("a\\u001b]0;PWN\\u0007\n")
    assert not any(line.lstrip().startswith(("::stop", "##[")) for line in out.splitlines())
    assert "\u202e" not in out


def test_a_cache_that_cannot_be_written_costs_nothing(place: Place) -> None:
    expected = place.lint()
    shutil.rmtree(place.cache)
    place.cache.write_text("a file, no folder")
    assert place.lint() == expected
    assert place.cache.read_text() == "a file, no folder"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocfg.workspace import cache

    monkeypatch.setattr(cache, "CACHE_BYTES", 250)
    for number in range(4):
        cache._write(str(tmp_path / f"{number}.json"), b"x" * 100)
        os.utime(tmp_path / f"{number}.json", (number, number))
    cache._sweep(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.json", "3.json"]


def test_what_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocfg.workspace import cache

    monkeypatch.setattr(cache, "CACHED_BYTES", 10)
    cache._write(str(tmp_path / "a.json"), b"x" * 10)
    cache._write(str(tmp_path / "b.json"), b"x" * 11)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_is_the_same_to_the_byte(place: Place, output_format: str) -> None:
    words = ["--output-format", output_format, "--notes"]
    cold = place.lint("--no-cache", *words)
    assert place.lint(*words) == cold
    assert place.lint(*words) == cold
    assert len(place.entries) == (output_format != "github")  # whose commands no cache may hold


@pytest.mark.parametrize("name", ["pitfalls", "grpo-zero3", "fsdp"])
def test_examples_without_their_specs_are_the_same_to_the_byte(place: Place, name: str) -> None:
    folder = place.folder / "example"
    shutil.copytree(ROOT / "examples" / name, folder, ignore=shutil.ignore_patterns("zerocfg.yaml", "built"))
    cold = place.lint("--no-cache", "example")
    assert [place.lint("example") for _ in range(2)] == [cold, cold]
    assert len(place.entries) == 1


def test_the_corpus_is_the_same_to_the_byte(place: Place, corpus: Path) -> None:
    words = ("--output-format", "json", "--notes")
    there = Place(corpus, place.cache)
    cold = there.lint("--no-cache", *words)
    assert [there.lint(*words) for _ in range(2)] == [cold, cold]
    assert place.entries
