"""What a lint does grows with its input, not with its square: counted in calls of functions, never in time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.report import frame as frames
from zerocfg.report.full import render_full
from zerocfg.rules import issues
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_versions
from zerocfg.source.edit import apply_edits, delete_duplicate
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

DS = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
YAML = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
RECIPE = "output_dir: out\ndeepspeed: ds.json\nlearning_rate: 1.0e-5\nnum_train_epochs: 3\n"
FEW, MANY = 100, 400

Written = Mapping[str, str]


def _many(count: int) -> dict[str, int]:
    return {f"unknown_word_{at}": at for at in range(count)}


def _keys(count: int) -> Written:
    return {"ds.json": json.dumps({**DS, **_many(count)}), "accelerate.yaml": YAML}


def _keys_of_a_section(count: int) -> Written:
    return {
        "ds.json": json.dumps({**DS, "zero_optimization": {"stage": 3, **_many(count)}}),
        "accelerate.yaml": YAML,
    }


def _arguments(count: int) -> Written:
    return {"recipe.yaml": RECIPE + "".join(f"{name}: 1\n" for name in _many(count)), "ds.json": json.dumps(DS)}


def _options(count: int) -> Written:
    return {"run.sh": "accelerate launch " + " ".join(f"--{name} 1" for name in _many(count)) + " train.py\n"}


def _twice_in_json(count: int) -> Written:
    text = json.dumps(DS)[:-1] + ', "steps_per_print": 10' * count + "}"
    return {"ds.json": text, "accelerate.yaml": YAML}


def _comments(count: int) -> Written:
    return {"acc.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\n" + "# zerocfg: ignore ZC101\n" * count}


def _launches(count: int) -> Written:
    lines = (
        f"export V{at}={at}\naccelerate launch --config_file acc.yaml train.py --a $V{at}\n" for at in range(count)
    )
    return {"run.sh": "".join(lines), "acc.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\n"}


def _calls(work: Callable[[], object]) -> int:
    """How often functions are called by some work, those of the interpreter too."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _lint(folder: Path) -> str:
    runs, asked = find_runs([folder], Files())
    return render_full(lint_runs(runs, asked=asked))


@pytest.mark.parametrize(
    "files", [_keys, _keys_of_a_section, _arguments, _options, _twice_in_json, _comments, _launches]
)
def test_four_times_the_input_is_not_sixteen_times_the_work(
    files: Callable[[int], Written], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counted = {}
    for count in (1, FEW, MANY):  # the first one pays for what is imported and read once
        folder = tmp_path / str(count)
        folder.mkdir()
        for name, text in files(count).items():
            (folder / name).write_text(text)
        counted[count] = _calls(lambda folder=folder: _lint(folder))  # type: ignore[misc]
    assert counted[MANY] < 6 * counted[FEW]


def test_the_histories_are_asked_once_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    known = issues.differing
    monkeypatch.setattr(issues, "differing", lambda name, *rest: (asked.append(name), known(name, *rest))[1])
    for name, text in _keys(3).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "requirements.txt").write_text("deepspeed>=0.14,<0.17\naccelerate>=0.30,<1.2\n")
    runs, asked_about = find_runs([tmp_path], Files())
    result = lint_runs(with_versions(runs, {}), asked=asked_about)
    assert sorted(asked) == ["accelerate", "deepspeed"]
    assert [one.code for one in result.diagnostics if "unknown_word" in one.message] == [
        "ZC102"
    ] * 3  # nobody reads them


def test_a_long_line_is_not_looked_at_whole_for_each_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    cell = frames._cell
    monkeypatch.setattr(frames, "_cell", lambda char: (looked.append(char), cell(char))[1])
    source = SimpleNamespace(line=lambda _: "word " * 50_000)
    place = SimpleNamespace
    span = place(
        file=place(source=source, reread_of=None, kind="script"),
        start=place(line=1, column=100_001),
        end=place(line=1, column=100_005),
        label="",
    )
    found = frames.frame(span, "^", 80)  # type: ignore[arg-type]
    assert found is not None
    assert (found.source[:3], found.source[26:30], found.source[-3:]) == ("...", "word", "...")
    assert len(found.source) == 80
    assert found.marks == [(26, "^^^^")]
    assert len(looked) == 2 * frames.REACH * 80


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_each_of_many_doubled_keys_is_removed_where_it_is_written(form: str) -> None:
    names = [f"key{at}" for at in range(100)]
    pairs = [f'"{name}": {value}' for name in names for value in (1, 2)]
    text = "{" + ", ".join(pairs) + "}" if form == "json" else "".join(pair.replace('"', "") + "\n" for pair in pairs)
    document = load_as(SourceText("x", text), form)  # type: ignore[arg-type]
    doubled = [problem for problem in document.problems if problem.related is not None]
    assert [problem.path for problem in doubled] == [(name,) for name in names]
    edits = [edit for one in doubled if one.related for edit in delete_duplicate(document, one.path, one.related)]
    left = load_as(SourceText("x", apply_edits(text, edits)), form)  # type: ignore[arg-type]
    assert left.data() == dict.fromkeys(names, 2)
    assert not left.problems
