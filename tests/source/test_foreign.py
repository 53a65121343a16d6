"""Foreign text: what a terminal or a CI runner would obey, in every format and on both streams."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.report.formats import FORMATS
from zerocfg.source.foreign import harmless, one_line

HOSTILE = {
    "stage\n::stop-commands::x": 1,
    "\x1b]0;PWN\x07": 2,
    "\x1b[2K\rall good": 3,
    "``````": 4,
    "\u202egnp.exe": 5,
    "\ud800half": 6,
    "##[error]y": 7,
    "##vso[task.setvariable]z": 8,
    "\u2028::error::line": 9,
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain key", "plain key"),
        ("prix élevé 模型", "prix élevé 模型"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b]0;PWN\x07", r"\u001b]0;PWN\u0007"),
        ("\x9b31m", r"\u009b31m"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud800", r"\ud800"),
        ("\U000e0041 tag", r"\udb40\udc41 tag"),
        ("no\u00a0break", "no\u00a0break"),
    ],
)
def test_one_line(text: str, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a: 1\n\tb: 2\n", "a: 1\n\tb: 2\n"),
        ("\x1b[31;1merror\x1b[0m", r"\u001b[31;1merror\u001b[0m"),
        ("\r\x1b[Kreading (3 s)", r"\r\u001b[Kreading (3 s)"),
        ("ds.json\r\x1b[Kgone", r"ds.json\r\u001b[Kgone"),
        ("ds.json\x1b[2J\x1b[1;1H", r"ds.json\u001b[2J\u001b[1;1H"),
        ("m\udcc3\udca9tier", "m\udcc3\udca9tier"),
        ("::error::x", r"\u003a:error::x"),
        ("ok\n  ::add-mask::x", "ok\n  \\u003a:add-mask::x"),
        ("std::vector stays", "std::vector stays"),
        ("1 | ##[group]x", r"1 | #\u0023[group]x"),
        ("##vso[x]", r"#\u0023vso[x]"),
        ("## a heading [x]", "## a heading [x]"),
    ],
)
def test_harmless(text: str, printed: str) -> None:
    assert harmless(text) == printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("\x1b[31;1merror\x1b[0m", "\x1b[31;1merror\x1b[0m"),
        ("\x1b[8mhidden", r"\u001b[8mhidden"),
        ("\x1b[30;47mdark\x1b[0m", "\\u001b[30;47mdark\x1b[0m"),
        ("\x1b[2J", r"\u001b[2J"),
    ],
)
def test_of_the_colours_only_those_of_zerocfg_stay(text: str, printed: str) -> None:
    assert harmless(text, coloured=True) == printed


def test_commands_of_the_github_format_stay() -> None:
    assert harmless("::error file=a\u202e::x", commands=False) == r"::error file=a\u202e::x"


@given(st.text())
def test_nothing_that_is_obeyed_is_left(text: str) -> None:
    printed = harmless(text)
    left = re.sub(r"[\udc80-\udcff]", "", printed)
    assert all(unicodedata.category(char) not in ("Cc", "Cf", "Cs") or char in "\n\t" for char in left)
    assert not any(line.lstrip().startswith("::") for line in printed.split("\n"))
    assert "##[" not in printed and "##vso[" not in printed
    assert printed.count("\n") == text.count("\n") and "\n" not in one_line(text)


@pytest.mark.parametrize("output_format", FORMATS)
def test_keys_of_a_config_steer_no_log(output_format: str, tmp_path: Path) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, **HOSTILE}}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    done = _zerocfg(tmp_path, "lint", "--output-format", output_format, "ds.json")
    assert done.returncode == 1
    printed = (done.stdout + done.stderr).decode("utf-8")  # raises where half a pair was written
    assert "ds.json" in printed and "half" in printed and "internal error" not in printed
    assert not set(printed) & set("\x1b\x07\x9b\r\u202e\u2028")
    own = ("::error ", "::warning ", "::notice ") if output_format == "github" else ()
    assert not [
        line for line in printed.splitlines() if line.lstrip().startswith("::") and not line.startswith(own or "\0")
    ]
    if output_format in ("full", "concise"):
        assert "##[" not in printed and "##vso[" not in printed
    if output_format in ("json", "sarif", "gitlab"):
        json.loads(printed)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        *((("--output-format", name), {}) for name in FORMATS),
        *((words, {name: "1"}) for words in ((), ("--show-runs",)) for name in ("NO_COLOR", "FORCE_COLOR")),
    ],
)
def test_names_of_files_steer_no_log(words: tuple[str, ...], variables: dict[str, str], tmp_path: Path) -> None:
    """Named on the command line, found in a folder, and named by another file; absent, too."""
    name = "a\x1b[8mx\x1b[31;1my\x1b]0;PWN\x07\r\x9b"
    (tmp_path / f"{name}.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 9}}')
    launch = f"accelerate launch --config_file '{name}.yaml' t.py --deepspeed '{name}.json'\n"
    (tmp_path / f"{name}.sh").write_text(launch)
    for paths in ((), (f"{name}.json",), (f"{name}.absent",)):
        done = _zerocfg(tmp_path, "lint", *words, *paths, ci=variables)
        assert done.returncode in (0, 1, 2)
        printed = (done.stdout + done.stderr).decode("utf-8")
        assert "internal error" not in printed and "\x1b[31;1my" not in printed
        if "FORCE_COLOR" in variables:
            printed = re.sub(r"\x1b\[(?:0|1|32|34|3[136];1)m", "", printed)
        assert not set(printed) & set("\x1b\x07\x9b\r")


def test_errors_of_other_commands_steer_no_log(tmp_path: Path) -> None:
    (tmp_path / "zerocfg.yaml").write_text('version: 1\nruns:\n  "a\\n::stop-commands::x\\e]0;PWN\\a": {}\n')
    for command in (("plan",), ("build", "-o", "out"), ("gate",)):
        done = _zerocfg(tmp_path, *command)
        printed = (done.stdout + done.stderr).decode("utf-8")
        assert done.returncode in (1, 2) and "stop-commands" in printed
        assert not set(printed) & set("\x1b\x07")
        assert not [line for line in printed.splitlines() if line.lstrip().startswith("::")]


@pytest.mark.parametrize("service", ["GITHUB_ACTIONS", "TF_BUILD", ""])
def test_a_diff_steers_no_log_and_is_exact_elsewhere(service: str, tmp_path: Path) -> None:
    text = b"distributed_type: MULTI_GPU\n# ##[group]x ##vso[y]\r\nname: >\n  ::stop-commands::x\nnum_process: 8\n"
    (tmp_path / "accelerate.yaml").write_bytes(text)
    ci = {service: "true"} if service else {}
    done = _zerocfg(tmp_path, "lint", "--diff", "accelerate.yaml", ci=ci)
    assert b"-num_process: 8\n+num_processes: 8\n" in done.stdout
    told = b"would steer this job's log" in done.stderr
    obeyed = [line for line in done.stdout.splitlines() if line.lstrip().startswith(b"::") or b"##" in line]
    assert (told, len(obeyed)) == ((True, 0) if service else (False, 2))
    assert b"vso[y]\r\n" in done.stdout
    with (tmp_path / "fix.patch").open("wb") as patch:
        _zerocfg(tmp_path, "lint", "--diff", "accelerate.yaml", into=patch, ci=ci)
    subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True)
    assert (tmp_path / "accelerate.yaml").read_bytes() == text.replace(b"num_process:", b"num_processes:")


def _zerocfg(
    folder: Path, *words: str, into: BinaryIO | int = subprocess.PIPE, ci: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    services = ("GITHUB_ACTIONS", "TF_BUILD")
    environment = {name: value for name, value in os.environ.items() if name not in services}
    environment |= {"PYTHONUTF8": "1", **(ci or {})}
    words = (sys.executable, "-m", "zerocfg", *words)
    return subprocess.run(words, cwd=folder, stdout=into, stderr=subprocess.PIPE, env=environment)
