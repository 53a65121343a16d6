"""The protocol for a card, without one: what it keeps, when it stops, how it goes on, and that it fetches nothing."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import checks, place, processes, run, sweeps  # noqa: E402
from benchmarks.gpu.budget import Clock  # noqa: E402
from benchmarks.gpu.checks import Check  # noqa: E402
from benchmarks.gpu.place import Place  # noqa: E402
from benchmarks.gpu.record import Record  # noqa: E402
from benchmarks.gpu.sweeps import Sweep  # noqa: E402
from tests.processes import ends  # noqa: E402

CARD = {"name": "NVIDIA H200", "memory.total": "143771 MiB", "driver_version": "570.1"}
STUB = """
import argparse, json, os, subprocess, sys, time
parser = argparse.ArgumentParser()
for name in ("--budget-s", "--case-s", "--out", "--device"):
    parser.add_argument(name)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--only", nargs="*")
given = parser.parse_args()
status = json.loads(os.environ["STUB"])
def keep(line):
    with open(given.out, "a") as lines:
        lines.write(json.dumps(line) + "\\n")
keep({"case": "machine", "status": "ok", "card": "NVIDIA H200"})
for case in given.only:
    if status[case] == "hangs":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        keep({"case": "machine", "status": "ok", "card": "NVIDIA H200", "child": child.pid})
        open(given.out, "a").write('{"case": "' + case)
        time.sleep(600)
    keep({"case": case, "status": status[case], "wall_s": 3.0})
"""
WORDS = {"a": "fits", "b": "does not fit", "c": "likely", "d": "unlikely", "e": "fits"}


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep of five cases whose program does what $STUB says; the folder for its results."""
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "gpu.py").write_text(STUB)
    (folder / "compare.py").write_text("import sys; print(open(sys.argv[1]).read().count('case'), 'cases compared')")
    (folder / "predictions.json").write_text(
        json.dumps({"cases": {name: {"word": word} for name, word in WORDS.items()}})
    )
    monkeypatch.setattr(sweeps, "ROOT", tmp_path)
    allow(monkeypatch, folder, 540)
    monkeypatch.setattr(run, "find_cards", lambda: [CARD])
    return tmp_path / "out"


def allow(monkeypatch: pytest.MonkeyPatch, folder: Path, seconds: float) -> None:
    sweep = Sweep("memory", folder / "gpu.py", 60, "compare.py")
    monkeypatch.setattr(run, "IN_ORDER", (Check("memory", sweep, 1, seconds),))


def play(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str, **status: str) -> tuple[int, dict[str, Any]]:
    """The exit code of the sweep, and the result that it wrote."""
    monkeypatch.setenv("STUB", json.dumps({**dict.fromkeys(WORDS, "ok"), **status}))
    code = run.main(["memory", "--out", str(out), *words])
    return code, json.loads((out / "memory.json").read_text())


def statuses(out: Path) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in (out / "memory.jsonl").read_text().splitlines()]
    return [(line["case"], line["status"]) for line in lines if line["case"] != "machine"]


# -- memory that runs out ----------------------------------------------------------------------------------------------


def test_memory_that_was_to_run_out_is_counted_as_predicted(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, found = play(monkeypatch, swept, a="oom", b="oom", c="oom", d="oom")
    assert found["out of memory"] == {
        "as predicted": ["b", "d"],
        "though likely to fit": ["c"],
        "though said to fit": ["a"],
    }
    assert code == 0 and found["passed"] and found["ran"] == 1 and found["left"] == []


@pytest.mark.parametrize(
    ("status", "passed"),
    [
        (dict.fromkeys(WORDS, "oom"), True),
        ({"a": "failed", "b": "failed", "c": "oom", "d": "failed", "e": "oom"}, False),
        ({**dict.fromkeys(WORDS, "failed"), "d": "oom"}, True),
        (dict.fromkeys(WORDS, "failed"), False),
    ],
)
def test_a_sweep_in_which_nothing_went_as_predicted_failed(
    swept: Path, monkeypatch: pytest.MonkeyPatch, status: dict[str, str], passed: bool
) -> None:
    code, found = play(monkeypatch, swept, **status)
    assert (code == 0) is found["passed"] is passed


# -- going on ----------------------------------------------------------------------------------------------------------


def test_a_sweep_that_hangs_is_ended_with_all_it_started_and_goes_on_later(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, swept.parent / "bench", sweeps.COMPARING + sweeps.ENDING_CASE + 5)
    code, found = play(monkeypatch, swept, c="hangs")
    assert code == 1 and not found["passed"] and found["error"] == "no end within 8 s"
    assert statuses(swept) == [("a", "ok"), ("b", "ok")] and found["left"] == ["c", "d", "e"]
    (child,) = [line["child"] for line in found["lines"] if "child" in line]
    assert ends(child)
    allow(monkeypatch, swept.parent / "bench", 540)
    code, found = play(monkeypatch, swept, a="failed", b="failed")  # which are not asked again
    assert code == 0 and found["passed"] and found["left"] == [] and found["ran"] == 5
    assert statuses(swept) == [(name, "ok") for name in "abcde"]


def test_cases_that_the_budget_cut_off_are_measured_later(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, found = play(monkeypatch, swept, d="timeout", e="not reached")
    assert code == 3 and found["passed"] and found["left"] == ["d", "e"]
    code, found = play(monkeypatch, swept, a="failed")
    assert code == 0 and found["left"] == []
    assert statuses(swept)[-2:] == [("d", "ok"), ("e", "ok")] and len(statuses(swept)) == 7


def test_a_case_that_had_all_its_time_is_not_tried_for_ever() -> None:
    lines = [{"case": name, "status": "timeout", "wall_s": seconds} for name, seconds in (("a", 60.0), ("b", 59.9))]
    assert sweeps.find_ended(lines, 60) == {"a"}


def test_what_was_measured_is_not_lost_by_a_later_run_that_did_not_reach_it() -> None:
    lines = [
        {"case": "a", "status": "ok"},
        {"case": "b", "status": "not reached"},
        {"case": "a", "status": "not reached"},
    ]
    assert sweeps.last_lines(lines) == {"a": lines[0], "b": lines[1]}


def test_cases_that_an_earlier_folder_of_the_same_card_has_are_left_out(
    swept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    play(monkeypatch, before, c="not reached", d="killed", e="timeout")
    code, found = play(monkeypatch, swept, "--earlier", str(before), a="failed", b="failed")
    assert code == 0 and found["ran"] == 5 and found["left"] == []
    assert statuses(swept) == [("c", "ok"), ("d", "ok"), ("e", "ok")]
    monkeypatch.setattr(run, "find_cards", lambda: [{**CARD, "name": "NVIDIA H100 80GB HBM3"}])
    assert run.main(["memory", "--out", str(tmp_path / "other"), "--earlier", str(before)]) == 2


def test_each_model_gets_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty seconds for the cases of a model, the rest of the check's time for the last one."""
    now, given = [1000.0], []

    def run_within(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        budget = float(command[command.index("--budget-s") + 1])
        given.append((command[command.index("--only") + 1].rsplit("-z", 1)[0], budget, seconds - budget))
        now[0] += seconds
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(sweeps, "run_within", run_within)
    sweep = next(check.work for check in checks.IN_ORDER if check.name == "plan")
    sweep.play(Place(tmp_path), Record(tmp_path / "plan.json", {}), Clock(170, lambda: now[0]))
    ending = sweeps.ENDING_CASE
    assert given == [
        ("qwen2.5-0.5b", 60 - ending, ending),
        ("tinyllama-1.1b", 60 - ending, ending),
        ("llama-3.2-3b", 170 - 120 - sweeps.COMPARING - ending, ending),
    ]


def test_what_passed_is_not_repeated_unless_asked(
    swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, first = play(monkeypatch, swept)
    code, second = play(monkeypatch, swept, **dict.fromkeys(WORDS, "failed"))
    assert code == 0 and first == second and f"memory: passed on {first['date']}" in capsys.readouterr().out
    code, third = play(monkeypatch, swept, "--again", **dict.fromkeys(WORDS, "failed"))
    assert code == 1 and not third["passed"] and statuses(swept) == [(name, "failed") for name in "abcde"]


def test_results_of_another_card_are_not_mixed_in(
    swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a check that ended, and the lines of one that was stopped."""
    play(monkeypatch, swept, e="not reached")
    before = (swept / "memory.jsonl").read_text()
    monkeypatch.setattr(run, "find_cards", lambda: [{**CARD, "name": "NVIDIA H100 80GB HBM3"}])
    for _ in range(2):
        assert run.main(["memory", "--out", str(swept)]) == 2
        assert "results of NVIDIA H200; name another folder" in capsys.readouterr().err
        (swept / "memory.json").unlink(missing_ok=True)
    assert (swept / "memory.jsonl").read_text() == before


def test_each_check_is_written_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Looks:
        def play(self, place: Place, record: Record, clock: Clock) -> bool:
            seen.append(
                [f"{path.name} {json.loads(path.read_text())['state']}" for path in sorted(place.out.iterdir())]
            )
            if len(seen) == 2:
                raise KeyboardInterrupt
            return True

    monkeypatch.setattr(run, "IN_ORDER", (Check("one", Looks(), 1, 9), Check("two", Looks(), 1, 9)))
    monkeypatch.setattr(run, "find_cards", lambda: [CARD])
    with pytest.raises(KeyboardInterrupt):
        run.main(["--out", str(tmp_path)])
    assert seen == [["one.json running"], ["one.json passed", "two.json running"]]
    assert json.loads((tmp_path / "two.json").read_text())["state"] == "killed"
    assert run.main(["--out", str(tmp_path)]) == 0
    assert seen[2:] == [["one.json passed", "two.json running"]], "the one that was stopped alone"


def sweep_of(name: str) -> Sweep:
    work = next(check.work for check in checks.IN_ORDER if check.name == name)
    assert isinstance(work, Sweep)
    return work


def words_of(name: str) -> dict[str, str]:
    return sweeps.find_verdicts(json.loads(sweep_of(name).program.with_name("predictions.json").read_text()))


def test_each_card_has_its_predictions(tmp_path: Path) -> None:
    h100, h200 = (Place(tmp_path, ({"name": name},)) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"))
    assert sweep_of("memory").find_predictions(h100).name == "predictions-h100.json"
    assert sweep_of("memory").find_predictions(h200).name == "predictions.json"
    assert sweep_of("memory-second-round").find_predictions(h200).name == "predictions-second-round.json"
    assert sweep_of("plan").find_predictions(h100).name == "predictions-h100.json"
    assert sweep_of("plan").find_predictions(h200).name == "predictions.json"
    assert {len(words_of("memory")), len(words_of("plan"))} & {0} == set()


def test_plans_are_measured_as_predicted_for_this_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 other plans are to be measured than on an H200, so that the program has to be handed the same file."""
    commands: list[list[str]] = []

    def run_within(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(sweeps, "run_within", run_within)
    place = Place(tmp_path, ({"name": "NVIDIA H100 80GB HBM3"},))
    sweep_of("plan").play(place, Record(tmp_path / "plan.json", {}), Clock(200, lambda: 0.0))
    folder = Path(checks.__file__).parents[1] / "plan"
    for command in commands:
        given = Path(command[command.index("--predictions") + 1])
        assert given == folder / "predictions-h100.json"
        measured = {name for model in json.loads(given.read_text())["models"].values() for name in model["measured"]}
        assert set(command[command.index("--only") + 1 :]) <= measured
    assert len(commands) == 3


# -- no network --------------------------------------------------------------------------------------------------------

GUARD = """
import os, socket, sys
def told(what):
    with open(os.environ["GUARD"], "a") as log:
        log.write(what + "\\n")
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("pip", "ensurepip", "uv"):
            told("import " + name)
            raise ImportError(name)
sys.meta_path.insert(0, Finder)
HERE = (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname())
def audit(event, arguments):
    if event == "socket.getaddrinfo" and arguments[0] not in HERE:
        told("look up " + str(arguments[0]))
        raise OSError("no network here")
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] not in HERE:
        told("connect " + str(arguments[1][0]))
        raise OSError("no network here")
sys.addaudithook(audit)
"""
PROGRAMS = ("pip", "pip3", "uv", "uvx", "curl", "wget", "conda", "git", "apt-get", "npm")


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every Python and every program of fetching writes down that it was used, and fails."""
    log, programs, modules = tmp_path / "used.txt", tmp_path / "programs", tmp_path / "modules"
    programs.mkdir()
    modules.mkdir()
    for name in PROGRAMS:
        path = programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{log}"\nexit 97\n')
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
    (modules / "sitecustomize.py").write_text(GUARD)
    monkeypatch.setenv("GUARD", str(log))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{modules}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def environment() -> dict[str, str]:
        found = place.environment()
        return {**found, "PATH": f"{programs}{os.pathsep}{found['PATH']}", "OMP_NUM_THREADS": "1"}

    monkeypatch.setattr(processes, "environment", environment)
    return log


def test_the_guard_sees_who_fetches(guarded: Path) -> None:
    code = "import socket, subprocess\n"
    code += "for name in ('pip', 'curl'): assert subprocess.run([name, 'x']).returncode == 97\n"
    code += "try: import pip\nexcept ImportError: pass\n"
    code += "try: socket.create_connection(('192.0.2.1', 9), 1)\nexcept OSError: pass\n"
    assert processes.run_within([sys.executable, "-c", code], 60).returncode == 0
    assert guarded.read_text().splitlines() == ["pip x", "curl x", "import pip", "look up 192.0.2.1"]
    assert all(place.environment()[name] == "1" for name in ("HF_HUB_OFFLINE", "PIP_NO_INDEX", "UV_OFFLINE"))


@pytest.mark.libs
def test_a_case_and_a_build_fetch_nothing(guarded: Path, tmp_path: Path) -> None:
    """The last case of a sweep that was stopped, on a processor, and builds of what is smoke-run."""
    pytest.importorskip("deepspeed")
    out, last = tmp_path / "out", "torch-autocast"
    out.mkdir()
    done = [json.dumps({"case": name, "status": "ok"}) for name in words_of("memory") if name != last]
    (out / "memory.jsonl").write_text("\n".join(done) + "\n")
    assert run.main(["memory", "--tiny", "--out", str(out)]) == 0
    found = json.loads((out / "memory.json").read_text())
    measured = found["lines"][-1]
    assert (measured["case"], measured["status"], found["left"]) == (last, "ok", []) and len(measured["steps"]) == 5
    for spec in ("quickstart", "pretrain-zero1"):
        command = [sys.executable, "-m", "zerocfg", "build", str(ROOT / "examples" / spec / "zerocfg.yaml")]
        built = processes.run_within([*command, "-o", str(tmp_path / spec)], 300)
        assert built.returncode == 0, built.stderr
    assert not guarded.exists(), guarded.read_text()
