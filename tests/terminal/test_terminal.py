"""What people see: colours, columns, progress, and an end without noise when nobody reads on."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal.conftest import Seen, environment, started

Terminal = Callable[..., Seen]
YAML = "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n"
YAML += "deepspeed_config:\n  zero_stage: 3\n  stage3_gather_16bit_weights_on_model_save: true\n"
RECIPE = "output_dir: out\nper_device_train_batch_size: 4\nlearning_rate: 2e-5\nbf16: true\n"
ESCAPE = re.compile(r"\x1b\[[0-9;]*[a-zA-Z]")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "accelerate.yaml").write_text(YAML)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "train.sh").write_text("accelerate launch --config_file accelerate.yaml train.py recipe.yaml\n")
    return tmp_path


def _piped(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "zerocfg", *words], cwd=cwd, env=environment(**env), capture_output=True, timeout=60
    )


@pytest.mark.parametrize(
    ("words", "env", "coloured"),
    [
        ([], {}, True),
        ([], {"NO_COLOR": "1"}, False),
        ([], {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ([], {"TERM": "dumb"}, False),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
    ],
)
def test_colour_in_a_terminal(
    words: list[str], env: dict[str, str], coloured: bool, project: Path, terminal: Terminal
) -> None:
    seen = terminal("lint", *words, columns=200, **env)
    assert seen.code == 1 and "zero_stage" in seen.out
    assert ("\x1b[31;1merror[ZC401]" in seen.out) is coloured, seen.out


@pytest.mark.parametrize(
    ("words", "env", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        (["--color", "always"], {}, True),
        (["--color", "always", "--statistics"], {}, True),
        (["--color", "always", "--output-format", "concise"], {}, True),
        (["--color", "always", "--output-format", "json"], {}, False),
        (["--color", "always", "--output-format", "github"], {}, False),
    ],
)
def test_colour_in_a_pipe(words: list[str], env: dict[str, str], coloured: bool, project: Path) -> None:
    done = _piped("lint", *words, cwd=project, **env)
    assert done.returncode == 1 and b"ZC401" in done.stdout
    assert (b"\x1b[" in done.stdout) is coloured, done.stdout


def test_a_file_is_never_coloured(project: Path) -> None:
    _piped("lint", "--color", "always", "--output-file", "report.txt", cwd=project)
    text = (project / "report.txt").read_text()
    assert "ZC401" in text and "\x1b" not in text


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_nothing_is_wider_than_the_terminal(columns: int, project: Path, terminal: Terminal) -> None:
    (project / "accelerate.yaml").write_text(YAML.replace("true\n", f"true  # {'why ' * 80}\n"))
    seen = terminal("lint", columns=columns, NO_COLOR="1")
    assert all(len(line) <= columns or len(line.split()) == 1 for line in seen.lines), "a long word stays whole"
    text = " ".join(ESCAPE.sub("", seen.out).split())
    assert "the Trainer writes sharded states but no model weights, not even at the end" in text
    assert "stage3_gather_16bit_weig" in text and "--> accelerate.yaml:6:3" in text
    source, marks = next(
        (line, below) for line, below in zip(seen.lines, seen.lines[1:], strict=False) if line.startswith("6 |")
    )
    assert source.endswith("...") and len(source) == columns
    assert marks.index("^") == source.index("stage3_")


def test_a_long_line_is_cut_around_what_is_marked(tmp_path: Path, terminal: Terminal) -> None:
    text = '{"train_batch_size": 8, "steps_per_print": 10, "gradient_cliping": 1.0, "bf16": {"enabled": true}}'
    (tmp_path / "ds.json").write_text(text)
    seen = terminal("lint", "--select", "ZC102", columns=50, NO_COLOR="1")
    (at,) = (number for number, line in enumerate(seen.lines) if line.startswith("1 |"))
    source, marks = seen.lines[at : at + 2]
    assert source.startswith("1 | ...") and source.endswith("...") and len(source) <= 50
    assert source[marks.index("^") : marks.rindex("^") + 1] == '"gradient_cliping"'


def test_marks_stand_below_wide_characters_and_tabs(tmp_path: Path, terminal: Terminal) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 8,\n\t"训练": 1, "gradient_cliping": 1.0}', encoding="utf-8"
    )
    seen = terminal("lint", "--select", "ZC102", columns=120, NO_COLOR="1")
    at = max(number for number, line in enumerate(seen.lines) if line.startswith("2 |"))
    before = seen.lines[at].split('"gradient_cliping"')[0]
    assert "\t" not in before
    assert seen.lines[at + 1].index("^^^^^^^^^^^^^^^^^^") == len(before) + 2  # two characters of two columns


def test_no_edge_in_a_pipe(project: Path) -> None:
    """What is kept or sent on is not wrapped, whatever the terminal it was made in."""
    done = _piped("lint", cwd=project, COLUMNS="40")
    assert max(map(len, done.stdout.decode().splitlines())) > 150


def test_progress_is_shown_and_gone_at_the_end(tmp_path: Path, terminal: Terminal) -> None:
    for number in range(150):
        (tmp_path / f"config-{number}.yaml").write_text(YAML.replace("stage3_gather", "gather"))
    impatient = "import zerocfg.terminal.progress as progress; progress.PATIENCE = progress.PAUSE = 0.01"
    seen = terminal("lint", "--exit-zero", columns=60, piped=True, first=impatient)
    drawn = [ESCAPE.sub("", line) for line in seen.out.split("\r") if line]
    assert seen.code == 0 and any(re.fullmatch(r"linting, \d+ files read \(\d+ s\)", line) for line in drawn), seen.out
    assert max(map(len, drawn)) < 60 and seen.out.endswith("\r\x1b[K")
    assert terminal("lint", "--exit-zero", columns=20, piped=True, TERM="dumb", first=impatient).out == ""
    script = [sys.executable, "-c", f"{impatient}; from zerocfg.cli.main import run; run()", "lint", "--exit-zero"]
    done = subprocess.run(script, cwd=tmp_path, env=environment(), capture_output=True, timeout=60)
    assert done.stderr == b""


def test_what_is_quick_shows_no_progress(project: Path, terminal: Terminal) -> None:
    """A line that flickers is noise."""
    patient = "import zerocfg.terminal.progress as progress; progress.PATIENCE = 60"
    assert terminal("lint", "--exit-zero", piped=True, first=patient).out == ""


def test_a_live_table_is_drawn_in_its_place(project: Path) -> None:
    """As the product writes to a terminal, which shows control characters of any other text as escapes."""
    script = "from zerocfg.terminal.streams import prepare; prepare()\n"
    script += "from zerocfg.cli.screens.live_table import LiveTable\nlive = LiveTable()\n"
    script += "live.draw(['run', 'one \\x1b[9F']); live.draw(['run']); live.clear(); live.clear()\n"
    script += "live.draw([str(at) for at in range(49)]); live.clear(); live.draw([str(at) for at in range(60)])"
    with started([sys.executable, "-c", script], project) as (process, read):
        seen = b"".join(iter(read, b"")).decode().replace("\r\n", "\n")
        assert process.wait() == 0
    fits = "".join(f"{at}\n" for at in range(49))  # the terminal has 50 lines, the cursor one of them
    more = "".join(f"{at}\n" for at in range(48)) + "... 12 more\n"
    assert seen == f"run\none \\u001b[9F\n\x1b[2F\x1b[Jrun\n\x1b[1F\x1b[J{fits}\x1b[49F\x1b[J{more}"


@pytest.mark.parametrize("command", ["lint", "rules", "lint --output-format json", "explain ZC401", "schema deepspeed"])
def test_nobody_reads_on(command: str, project: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "zerocfg", *command.split()],
        cwd=project,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # nobody at all: the first write fails
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) in (0, 1) and errors == b""


def test_watch_shows_again_after_a_change(project: Path) -> None:
    """In a terminal it is cleared first, and ends at Ctrl-C."""
    # A shell's background job, such as a whole test run, ignores Ctrl-C.
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script += "from zerocfg.__main__ import main\nmain()"
    with started([sys.executable, "-c", script, "lint", "--watch"], project) as (process, read):

        def report() -> bytes:
            seen = b""
            while b"watching for changes" not in seen:
                part = read()
                assert part, seen
                seen += part
            return seen

        first = report()
        (project / "new").write_text(RECIPE.replace("2e-5", "2.0e-5"))
        (project / "new").replace(project / "recipe.yaml")  # never half a file
        second = report()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert b"ZC005" in first and b"ZC005" not in second and b"ZC401" in second
    assert b"\x1b[2J" in second
