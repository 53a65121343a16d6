"""ZC756: options that the script's parser does not declare. Python itself starts each script with the line's words."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.rules.place import FileSpan
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

SCRIPT = """\
import argparse
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--max_length", type=int)
parser.add_argument("--lr", type=float)
parser.add_argument("--packing", action=argparse.BooleanOptionalAction)
parser.add_argument("-o", "--output_dir")
parser.add_argument("--deepspeed_config")
{parse}
if __name__ == "nowhere":
    import deepspeed

    deepspeed.initialize(args=args)
"""
STRICT, LENIENT = "args = parser.parse_args()", "args, _ = parser.parse_known_args()"
KNOWN = "--lr 1e-5 --output_dir out --deepspeed_config ds.json"


def said(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str, str]]:
    monkeypatch.chdir(folder)
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    (folder / "run.sh").write_text(line + "\n", encoding="utf-8")
    found = Job([folder], Settings(), Selection(select=("ZC756",))).lint().diagnostics
    text = line + "\n"
    return [(one.severity.value, _at(one.span, text), one.message, one.help) for one in found]


def _at(span: FileSpan, text: str) -> str:
    """What stands at a place of the first line."""
    return text[span.start.column - 1 : span.end.column - 1]


@pytest.mark.parametrize(
    ("parse", "words", "refused"),
    [
        (STRICT, KNOWN, ""),
        (STRICT, f"{KNOWN} --max_seq_length 77", "--max_seq_length 77"),
        (STRICT, f"{KNOWN} --max_seq_length=77", "--max_seq_length=77"),
        (STRICT, f"{KNOWN} --max_len 77", ""),  # an abbreviation
        (STRICT, f"{KNOWN} --max_lengths 77", "--max_lengths 77"),
        (STRICT, f"{KNOWN} --no-packing", ""),
        (STRICT, f"{KNOWN} --no-max_length", "--no-max_length"),
        (STRICT, f"{KNOWN} -o out2", ""),
        (LENIENT, f"{KNOWN} --max_seq_length 77", ""),
    ],
)
def test_as_python_takes_them(
    parse: str, words: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(parse=parse), encoding="utf-8")
    command = [sys.executable, "train.py", *shlex.split(words)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ("unrecognized arguments" in done.stderr) is bool(refused)
    found = said(tmp_path, f"torchrun --nproc_per_node 2 train.py {words}", monkeypatch)
    assert [(severity, place) for severity, place, *_ in found] == ([("error", refused)] if refused else [])


def test_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(parse=STRICT), encoding="utf-8")
    start = f"torchrun --nproc_per_node 2 train.py {KNOWN}"
    (one,) = said(tmp_path, f"{start} --max_lengths 77", monkeypatch)
    assert one[2:] == (
        "the script's parser does not declare `--max_lengths`: it stops there",
        "did you mean `--max_length`?",
    )
    (two,) = said(tmp_path, f"{start} --use_lora --rank 8", monkeypatch)
    assert two[1:] == (
        "--use_lora",
        "the script's parser does not declare `--use_lora` and `--rank`: it stops there",
        "declare them in the parser, or take them from the line",
    )
    (more,) = said(tmp_path, f"{start} --max_length 5 --use_lora --rank 8 --alpha 16 --drop 0", monkeypatch)
    assert "does not declare `--use_lora`, `--rank` and 2 more: it stops there" in more[2]


def test_a_line_for_another_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the options may be unknown; more, and the script of that name is not the one that is meant."""
    (tmp_path / "train.py").write_text(SCRIPT.format(parse=STRICT), encoding="utf-8")
    start = "torchrun --nproc_per_node 2 train.py --deepspeed_config ds.json --lr 1"
    assert len(said(tmp_path, f"{start} --prompt a --steps 2", monkeypatch)) == 1
    assert said(tmp_path, f"{start} --prompt a --steps 2 --guidance 3", monkeypatch) == []


def test_options_that_a_variable_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(parse=STRICT), encoding="utf-8")
    line = f"torchrun $ARGS train.py {KNOWN} --use_lora"
    assert said(tmp_path, line, monkeypatch) == []


def test_a_config_that_the_parser_refuses_has_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a script without `--deepspeed` nothing follows from what its Trainer would do."""
    (tmp_path / "train.py").write_text(
        SCRIPT.format(parse=STRICT).replace('parser.add_argument("--deepspeed_config")\n', ""), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2}', encoding="utf-8")
    (tmp_path / "run.sh").write_text("deepspeed train.py --lr 1 --deepspeed ds.json\n", encoding="utf-8")
    found = Job([tmp_path], Settings(), Selection(select=("ZC202", "ZC756"))).lint().diagnostics
    assert [one.code for one in found] == ["ZC756"]
