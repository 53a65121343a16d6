"""`zerocfg smoke` as subcommands, and as options of one command, which it was before: both mean the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from zerocfg.cli.commands import smoke as commands
from zerocfg.cli.commands.smoke import command
from zerocfg.smoke.smoke import Options

Cli = Callable[..., Outcome]
SEARCH = {"batch_limit": None, "max_launches": 12, "picture": None}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, zerocfg: Cli, tmp_path: Path) -> Callable[..., tuple[Any, ...]]:
    """What a command line has done with the build ``sft``: the function, the paths, the options, and the rest."""
    seen: list[tuple[Any, ...]] = []
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "zerocfg.lock").touch()

    def play(runs: list[Path], options: Options, as_json: bool, fail_fast: bool = False) -> None:
        seen.append(("play", runs, options, {"as_json": as_json, "fail_fast": fail_fast}))

    def measure(path: Path, options: Options, **how: Any) -> None:
        seen.append(("measure", [path], options, how))

    def submit(engine: str, runs: list[Path], options: Options, **how: Any) -> None:
        seen.append((engine, runs, options, how))

    monkeypatch.setattr(commands, "play", play)
    monkeypatch.setattr(commands.smoke_measure, "measure", measure)
    monkeypatch.setattr(commands.smoke_on, "submit", submit)
    monkeypatch.setattr(commands.smoke_on, "attach", lambda job, as_json: seen.append(("attach", job, as_json)))

    def ask(line: list[str]) -> tuple[Any, ...]:
        seen.clear()
        outcome = zerocfg("smoke", *line)
        assert outcome.code == 0, outcome.err
        (one,) = seen
        return one

    return ask


RUN = [Path("sft")]
LINE = "bash launch.sh"


@pytest.mark.parametrize(
    ("former", "now", "expected"),
    [
        (["sft"], ["run", "sft"], ("play", RUN, Options(), {"as_json": False, "fail_fast": False})),
        (
            ["sft", "--ranks", "2", "--steps", "5", "--fail-fast", "--output-format", "json", "--keep", "w"],
            ["run", "--keep", "w", "--fail-fast", "sft", "--ranks=2", "--output-format=json", "--steps=5"],
            ("play", RUN, Options(ranks=2, steps=5, keep=Path("w")), {"as_json": True, "fail_fast": True}),
        ),
        (
            ["--compare", "0,3,ddp", "sft", "--picture", "p.svg", "--time-limit", "9"],
            ["compare", "sft", "0,3,ddp", "--picture", "p.svg", "--time-limit", "9"],
            (
                "measure",
                RUN,
                Options(limit=9.0),
                {**SEARCH, "picture": Path("p.svg"), "ways": "0,3,ddp", "find_max_batch": False, "as_json": False},
            ),
        ),
        (
            ["sft", "--compare", "2,3", "--find-max-batch", "--batch-limit", "8", "--max-launches", "4"],
            ["compare", "sft", "2,3", "--find-max-batch", "--batch-limit", "8", "--max-launches", "4"],
            (
                "measure",
                RUN,
                Options(),
                {
                    "batch_limit": 8,
                    "max_launches": 4,
                    "picture": None,
                    "ways": "2,3",
                    "find_max_batch": True,
                    "as_json": False,
                },
            ),
        ),
        (
            ["sft", "--find-max-batch", "--memory-limit", "0.5", "--device", "cpu", "--share-gpu"],
            ["max-batch", "sft", "--memory-limit", "0.5", "--device", "cpu", "--share-gpu"],
            (
                "measure",
                RUN,
                Options(memory_limit=1 << 29, device="cpu", share_gpu=True),
                {**SEARCH, "ways": None, "find_max_batch": True, "as_json": False},
            ),
        ),
        (
            ["sft", "--command", LINE, "--consumer", "trl"],
            ["script", LINE, "sft", "--consumer", "trl"],
            ("play", RUN, Options(command=LINE, consumer="trl"), {"as_json": False, "fail_fast": False}),
        ),
        (
            ["--command", LINE],
            ["script", LINE],
            ("play", [Path()], Options(command=LINE, unplanned=True), {"as_json": False, "fail_fast": False}),
        ),
        (["--attach"], ["attach"], ("attach", "", False)),
        (
            ["--attach", "smoke-3", "--output-format", "json"],
            ["attach", "smoke-3", "--output-format=json"],
            ("attach", "smoke-3", True),
        ),
        (
            ["sft", "--on", "local", "--nodes", "2", "--detach", "--on-option", "-v"],
            ["run", "sft", "--on", "local", "--nodes", "2", "--detach", "--on-option", "-v"],
            (
                "local",
                RUN,
                Options(nodes=2),
                {"before": [], "nodes": 2, "words": ("-v",), "detach": True, "as_json": False},
            ),
        ),
    ],
)
def test_both_spellings_mean_the_same(
    asked: Callable[..., tuple[Any, ...]], former: list[str], now: list[str], expected: tuple[Any, ...]
) -> None:
    assert asked(former) == expected
    assert asked(now) == expected


def test_without_words_the_builds_below_are_run(asked: Callable[..., tuple[Any, ...]]) -> None:
    for words in ([], ["run"]):
        what, runs, *_ = asked(words)
        assert (what, [path.name for path in runs]) == ("play", ["sft"])


def test_a_folder_that_is_called_like_a_subcommand(asked: Callable[..., tuple[Any, ...]], tmp_path: Path) -> None:
    (tmp_path / "sft").rename(tmp_path / "compare")
    assert asked(["./compare"])[1] == asked(["run", "compare"])[1] == [Path("compare")]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["compare", "sft"], "Missing argument 'STAGES'."),
        (["max-batch"], "Missing argument 'RUN'."),
        (["script"], "Missing argument 'LINE'."),
        (["compare", "sft", "0,1", "--on", "local"], "No such option '--on'."),
        (["script", LINE, "--share-gpu"], "No such option '--share-gpu'."),
        (["sft", "--command", LINE, "--share-gpu"], "--share-gpu is for zerocfg's own launch"),
        (["sft", "--compare", "0,1", "--nodes", "2"], "--nodes takes builds, without --command"),
        (["--detach"], "--on-option and --detach are about a job: give --on as well"),
        (["sft", "--picture", "p.svg"], "--picture draws a comparison: give --compare as well"),
        (["sft", "--attach", "x"], "name no RUN and no --on"),
    ],
)
def test_what_does_not_go_together_is_refused(
    asked: Callable[..., tuple[Any, ...]], zerocfg: Cli, words: list[str], error: str
) -> None:
    outcome = zerocfg("smoke", *words)
    assert outcome.code == 2 and error in outcome.err


def test_several_runs_are_not_measured(asked: Callable[..., tuple[Any, ...]], zerocfg: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "zerocfg.lock").touch()
    for words in (["max-batch", "out"], ["compare", "out", "0,1"]):
        outcome = zerocfg("smoke", *words)
        assert outcome.code == 2 and "out holds 2 runs: name one of them" in outcome.err
    outcome = zerocfg("smoke", "script", LINE, "out")
    assert outcome.code == 2 and "LINE is one training, and out holds 2 runs: name one" in outcome.err


def test_the_help_lists_the_subcommands_and_hides_the_former_options(zerocfg: Cli) -> None:
    text = zerocfg("smoke", "--help").out
    assert [name for name in ("run", "compare", "max-batch", "script", "attach") if f"\n  {name} " not in text] == []
    shown = zerocfg("smoke", "run", "--help").out
    former = ("--command", "--compare", "--picture", "--find-max-batch", "--batch-limit", "--max-launches", "--attach")
    assert [name for name in former if name in shown] == [] and "--on-option" in shown
    assert [*getattr(command, "commands")] == ["run", "compare", "max-batch", "script", "attach"]  # noqa: B009
