"""Settings of the command line: --config, --isolated, --exclude; and how much is said: --quiet, --verbose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.workspace.job import excludes

Cli = Callable[..., Outcome]
BAD = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}'  # ZC101, an error


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three configs with one error each; the settings leave out a folder."""
    for name in ("ds.json", "old/ds.json", "ci/new.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(BAD)
    (tmp_path / "zerocfg.toml").write_text('exclude = ["ci"]\n')
    return tmp_path


def files(outcome: Outcome) -> list[str]:
    return [one["file"] for one in json.loads(outcome.out)["diagnostics"]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), ["ds.json", "old/ds.json"]),
        (("--exclude", "old"), ["ci/new.json", "ds.json"]),
        (("--exclude", "old/,ci"), ["ds.json"]),
        (("--exclude", "old", "--exclude", "ci/*.json"), ["ds.json"]),
        (("--exclude", "ds.json"), ["ci/new.json"]),
        (("--extend-exclude", "old"), ["ds.json"]),
        (("--isolated",), ["ci/new.json", "ds.json", "old/ds.json"]),
        (("--isolated", "--exclude", "*.json"), []),
        (("--config", 'exclude = ["old"]'), ["ci/new.json", "ds.json"]),
        (("--config", 'ignore = ["ZC1"]'), []),
        (("--config", "other.toml"), ["ci/new.json", "ds.json"]),
        (("--config", "other.toml", "--config", "exclude = []"), ["ci/new.json", "ds.json", "old/ds.json"]),
        (("--config", "sub/pyproject.toml"), ["ds.json", "old/ds.json"]),
    ],
)
def test_which_files(words: tuple[str, ...], found: list[str], zerocfg: Cli, project: Path) -> None:
    (project / "other.toml").write_text('exclude = ["old/*"]\n')
    (project / "sub").mkdir()
    (project / "sub" / "pyproject.toml").write_text(
        '[tool.zerocfg]\nexclude = ["ci/*"]\n[tool.ruff]\nline-length = 9\n'
    )
    outcome = zerocfg("lint", "--output-format", "json", *words)
    assert files(outcome) == found, outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--config", "missing.toml"), "--config: 'missing.toml' is no file and no setting in TOML"),
        (("--config", "selct = []"), "--config: [tool.zerocfg] has no setting 'selct'"),
        (("--config", 'fail-on = "never"'), '--config: fail-on must be error, warning or note, not "never"'),
        (("--config", "wrong.toml"), "wrong.toml: "),
        (("--config", "bare/pyproject.toml"), "has no [tool.zerocfg]"),
        (("--config", "zerocfg.toml", "--config", "bare/pyproject.toml"), "--config names two files"),
        (("--config", "zerocfg.toml", "--isolated"), "--isolated reads no settings"),
        (("--isolated", "--add-ignore"), "--add-ignore may write into the settings"),
        (("-q", "-v"), "--quiet and --verbose cannot be used together"),
    ],
)
def test_wrong_use(words: tuple[str, ...], said: str, zerocfg: Cli, project: Path) -> None:
    (project / "wrong.toml").write_text("[tool\n")
    (project / "bare").mkdir()
    (project / "bare" / "pyproject.toml").write_text("[project]\n")
    outcome = zerocfg("lint", *words)
    assert outcome.code == 2 and said in outcome.err and "Traceback" not in outcome.err


def test_ignores_are_added_to_the_file_that_config_names(zerocfg: Cli, project: Path) -> None:
    (project / "ci" / "own.toml").write_text("")
    outcome = zerocfg("lint", "--config", "ci/own.toml", "--add-ignore")
    assert outcome.code == 0, outcome.out + outcome.err
    assert (project / "zerocfg.toml").read_text() == 'exclude = ["ci"]\n'
    assert "ZC101" in (project / "ci" / "own.toml").read_text()
    assert zerocfg("lint", "--config", "ci/own.toml").code == 0
    assert zerocfg("lint").code == 1


@pytest.mark.parametrize(
    ("pattern", "name", "left_out"),
    [
        ("build", "build/ds.json", True),
        ("build", "a/build/ds.json", True),
        ("ds.json", "a/ds.json", True),
        ("build*", "a/build-2/ds.json", True),
        ("build/", "a/build/ds.json", True),
        ("a/build", "a/build/b/ds.json", True),
        ("a/*.json", "a/ds.json", True),
        ("build", "rebuild/ds.json", False),
        ("build", "a/build.json", False),
        ("a/build", "b/a/build/ds.json", False),
        ("home", "/home/me/ds.json", False),
    ],
)
def test_what_a_pattern_leaves_out(pattern: str, name: str, left_out: bool) -> None:
    assert excludes([pattern], name) is left_out


@pytest.mark.parametrize("output_format", ["full", "concise"])
def test_quiet(output_format: str, zerocfg: Cli, project: Path) -> None:
    loud = zerocfg("lint", "--output-format", output_format)
    quiet = zerocfg("lint", "-q", "--output-format", output_format)
    assert loud.out.startswith(quiet.out) and "Found 2 errors" in loud.out and "Found" not in quiet.out
    assert (quiet.out.count("ZC101"), quiet.code, quiet.err) == (loud.out.count("ZC101"), 1, "")
    clean = zerocfg("lint", "-q", "--ignore", "ZC1", "--output-format", output_format)
    assert (clean.code, clean.out, clean.err) == (0, "", "")


def test_quiet_does_not_hide_what_was_not_checked(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    outcome = zerocfg("lint", "-q", "notes.txt")
    assert outcome.code == 2 and "'notes.txt' was not checked" in outcome.err
    empty = zerocfg("lint", "-q", "empty")
    assert (empty.code, empty.out, empty.err) == (0, "", "")


def test_verbose(zerocfg: Cli, project: Path) -> None:
    (project / "acc.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 2}\n"
    )
    (project / "train.sh").write_text("accelerate launch --config_file acc.yaml train.py\n")
    plain, verbose = (zerocfg("lint", *words, "--config", "preview = false") for words in ((), ("-v",)))
    assert (verbose.out, verbose.code) == (plain.out, plain.code)
    lines = verbose.err.splitlines()
    assert lines[:2] == ["zerocfg: settings from zerocfg.toml", "zerocfg: --config preview = false"]
    assert "zerocfg: read acc.yaml (accelerate)" in lines
    assert "zerocfg: read ci/new.json (deepspeed), excluded" in lines
    assert "zerocfg: run train.sh:1, read by unknown" in lines
    assert lines[-1].startswith("zerocfg: 5 files read, 4 runs found, ")


def test_explain_lists_the_runs_of_these_files(zerocfg: Cli, project: Path) -> None:
    def runs(*words: str) -> set[str]:
        return {line.split()[0] for line in zerocfg("explain", *words).out.splitlines()}

    assert runs() == {"ds.json", "old/ds.json"}
    assert runs("--exclude", "old") == {"ds.json", "ci/new.json"}
    assert runs("--isolated") == {"ds.json", "old/ds.json", "ci/new.json"}
    assert zerocfg("explain", "--config", 'exclude = ["*.json"]').out == "no runs found here\n"
    assert zerocfg("explain", "--config", "exclude = 3").code == 2


def test_migrate_changes_only_these_files(zerocfg: Cli, tmp_path: Path) -> None:
    for name in ("a", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "args.yaml").write_text(
            "output_dir: out\nevaluation_strategy: steps\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-4\n"
        )

    def diffed(*words: str) -> list[str]:
        outcome = zerocfg("migrate", "--to", "transformers==5.23.0", "--output-format", "json", *words)
        return [file["file"] for file in json.loads(outcome.out)["files"]]

    assert diffed() == ["a/args.yaml", "old/args.yaml"]
    assert diffed("--exclude", "old") == diffed("--config", 'exclude = ["old"]') == ["a/args.yaml"]


def test_smoke_tries_no_excluded_build(zerocfg: Cli, tmp_path: Path) -> None:
    for name in ("built/a", "built/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "zerocfg.lock").write_text("{}")
    outcome = zerocfg("smoke", "--exclude", "built")
    assert outcome.code == 2 and "every run here is excluded" in outcome.err
