"""Terminals and pipes that know fewer characters than a config may hold: nothing stops, counterparts are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.terminal.conftest import Seen, environment

LEGACY = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "LANG": "C"}
ENCODINGS = {
    "C": LEGACY,
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "cp437": {"PYTHONIOENCODING": "cp437"},
}
LONG = "训练…×²→" * 30
CONFIG = (
    '{"train_batch_size": 8, "modèle": "' + LONG + '", "bf16": {"enabled": "é→…"}, "zero_optimization": {"stage": "2"}}'
)


def _run(*words: str, cwd: Path, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "zerocfg", *words]
    return subprocess.run(command, cwd=cwd, env=environment(**env), input=stdin, capture_output=True, timeout=120)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def _examples(folder: Path) -> Path:
    """A spec whose names and values need more than ASCII."""
    import shutil

    left = shutil.ignore_patterns("built", "runs", "__pycache__")
    shutil.copytree(ROOT / "examples" / "quickstart", folder / "métier", ignore=left)
    recipe = folder / "métier" / "recipe.yaml"
    recipe.write_text(recipe.read_text() + 'run_name: "naïve → 训练"\n', encoding="utf-8")
    return folder


COMMANDS = [
    "lint métier",
    "plan métier --no-trace",
    "build métier -o out",
    "build métier -o out --check",
    "explain ZC401",
    "explain --run métier/zerocfg.yaml",
    "rules",
    "init métier --print",
    "smoke out/absent",
    "gate métier --require none --only lint",
    "diff métier/ds_config.json métier/ds_config.json",
]


@pytest.mark.parametrize("encoding", ["C", "ascii", "cp1252"])
def test_no_command_stops_at_a_character(encoding: str, tmp_path: Path) -> None:
    """In one process each: every command after the other, in a folder whose name is not ASCII."""
    _examples(tmp_path)
    script = (
        "import io, json, os, sys\n"
        "codes = []\n"
        "os.environ['ZEROCFG_TRACEBACK'] = '1'\n"
        "from zerocfg.cli.main import run\n"
        "for words in json.loads(os.environ['COMMANDS']):\n"
        "    sys.argv = ['zerocfg', *map(os.fsdecode, words.encode().split())]\n"
        "    codes.append(run())\n"
        "sys.stderr.write('codes ' + json.dumps(codes) + chr(10))\n"
    )
    # Python under the C locale without its UTF-8 mode holds no text for such a folder: nothing can be built from it.
    commands = [words for words in COMMANDS if encoding != "C" or not words.startswith("build")]
    env = environment(**ENCODINGS[encoding], COMMANDS=json.dumps(commands))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode("ascii", "replace")
    if encoding == "cp1252":
        assert "métier" in (done.stdout + done.stderr).decode("cp1252")
    else:
        assert (done.stdout + done.stderr).isascii()
        assert (b"m??tier" if encoding == "C" else b"metier") in done.stdout
    codes = json.loads(
        done.stderr.decode(encoding if encoding != "C" else "ascii").splitlines()[-1].removeprefix("codes ")
    )
    # Of two processors nobody says how much memory they have, so that a plan is not known to fit.
    other = {"smoke": 2, "plan": 3}
    assert codes == [other.get(words.split()[0], 0) for words in commands]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_lint_writes_counterparts(encoding: str, project: Path) -> None:
    done = _run("lint", cwd=project, **ENCODINGS[encoding])
    text = done.stdout.decode(encoding if encoding != "C" else "ascii")
    assert done.returncode == 1 and not done.stderr, done.stderr
    assert "ZC402" in text and "Found " in text
    if encoding in ("C", "ascii"):
        assert "modele" in text and "->..." in text and "Ã" not in text
    if encoding in ("cp1252", "latin-1"):
        assert "modèle" in text


@pytest.mark.parametrize("output_format", ["json", "sarif", "gitlab", "junit", "github"])
def test_programs_get_utf8_whatever_the_terminal(output_format: str, project: Path) -> None:
    done = _run("lint", "--output-format", output_format, cwd=project, **ENCODINGS["cp1252"])
    text = done.stdout.decode("utf-8")
    assert done.returncode == 1 and not done.stderr
    if output_format in ("json", "sarif", "gitlab"):
        text = json.dumps(json.loads(text), ensure_ascii=False)
    assert "modèle" in text


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_fixed_text_and_diffs_keep_every_byte(encoding: str, project: Path) -> None:
    """Also the ends of lines: a text stream of Windows would add to them."""
    text = CONFIG.replace(", ", ",\r\n").encode()
    reader = ("--consumer", "transformers")
    words = ("lint", *reader, "--fix", "--exit-zero", "--stdin-filename", "ds_config.json", "-")
    done = _run(*words, cwd=project, stdin=text, **ENCODINGS[encoding])
    assert done.stdout == text.replace(b'"stage": "2"', b'"stage": 2'), done.stderr
    patch = _run("lint", *reader, "--diff", cwd=project, **ENCODINGS[encoding]).stdout
    assert patch.decode("utf-8").count(LONG) == 2


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    if os.name == "nt" or sys.platform == "darwin":
        pytest.skip("names of files are text there")
    (tmp_path / os.fsdecode(b"ds-\xff.json")).write_text(CONFIG, encoding="utf-8")
    done = _run("lint", cwd=tmp_path)
    assert done.returncode == 1 and b"ds-\xff.json" in done.stdout and not done.stderr
    done = _run("lint", cwd=tmp_path, **ENCODINGS["ascii"])
    assert done.returncode == 1 and b"ds-?.json" in done.stdout and not done.stderr
    assert _run("lint", "--output-format", "sarif", cwd=tmp_path).returncode == 1


def test_a_terminal_of_latin_letters(project: Path, terminal: Callable[..., Seen]) -> None:
    seen = terminal("lint", encoding="latin-1", NO_COLOR="1", **ENCODINGS["latin-1"])
    assert seen.code == 1 and "modèle" in seen.out and "??" in seen.out
