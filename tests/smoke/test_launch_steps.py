"""A launch step by step, without a process: what is started and with which variables, how long it is followed, whom a
failure stops, who is asked and who is killed. Clocks that only waiting moves, calls that are written down."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import zerocfg.smoke.worker
from tests.recorded_calls import Log, logged
from zerocfg.smoke.launch import operator_cache, process
from zerocfg.smoke.launch.failure_cause import Cause
from zerocfg.smoke.launch.interrupts import Interrupts
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.nodes import Nodes

if TYPE_CHECKING:
    pass


SECOND = Nodes(2, 1, "10.0.0.1", 29501, each=2)


class Interrupted(Interrupts):
    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class TestRun:
    """Everything around the run itself."""

    @pytest.fixture
    def play(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def played(*outcomes: Outcome, blamed: bool = False, stop: int = 0, **more: Any) -> tuple[Outcome, Any]:
            heard: Any = SimpleNamespace(made=[], played=[], blamed=[], warm=[], said=[])
            left = list(outcomes)

            class Run:
                def __init__(self, *words: Any) -> None:
                    heard.made.append(words)

                def play(self, variables: dict[str, str], place: Path) -> Outcome:
                    heard.played.append((variables, place))
                    (tmp_path / "reports" / f"rank{len(left)}.json").write_text("")
                    return left.pop(0)

            def warmed(command: list[str], variables: dict[str, str], ranks: Any, progress: Any) -> Any:
                heard.warm.append((list(command), ranks, progress))
                return ["warm", *command[1:]], variables | {"WARM": "1"}

            def blame(command: list[str], failure: list[str]) -> bool:
                heard.blamed.append((command, failure))
                return blamed

            monkeypatch.setattr(process, "_Run", Run)
            monkeypatch.setattr(process, "interrupts", lambda: Interrupted(stop))
            monkeypatch.setattr(process.operator_locks, "clear", lambda: ["removed a lock"])
            cache = operator_cache.Cache({"TORCH_EXTENSIONS_DIR": "/x"}, more.pop("message", None))
            monkeypatch.setattr(process.operator_cache, "find", lambda folder: cache)
            monkeypatch.setattr(process, "environment", lambda device, own: {"device": device, "own": str(own)})
            monkeypatch.setattr(process.warm, "prepare", warmed)
            monkeypatch.setattr(process.warm, "is_to_blame", blame)
            given: dict[str, Any] = {"ranks": 2, "device": "cpu", "limit": 60.0, "progress": heard.said.append}
            command = ["python", "--master_port", "7", "x"]
            return process.run(command, tmp_path, **given | more), heard

        return played

    def variables(self, folder: Path, **more: str) -> dict[str, str]:
        places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder / "tmp"))
        own = {"device": "cpu", "own": "False", "TORCH_EXTENSIONS_DIR": "/x", "ZEROCFG_SMOKE_RUN": str(folder)}
        return {**own, **places, **more}

    def test_a_launch_of_zerocfgs_own(self, play: Any, tmp_path: Path) -> None:
        (tmp_path / "reports").mkdir()
        first = Outcome([{}])
        found, heard = play(first, variables={"MINE": "1", "TMP": "/other", "ZEROCFG_SMOKE_RUN": "x"}, message="m")
        assert found is first and found.cleared == heard.said == ["removed a lock", "m"]
        assert heard.warm == [(["python", "--master_port", "7", "x"], 2, heard.said.append)]
        variables = self.variables(tmp_path, MINE="1", TMP="/other", WARM="1")
        assert heard.played == [(variables, tmp_path)] and heard.blamed == []
        ((command, folder, ranks, limit, stop, progress, nodes, started),) = heard.made
        assert (command, folder, ranks, limit) == (["warm", "--master_port", "7", "x"], tmp_path, 2, 60.0)
        assert not stop and progress == heard.said.append and nodes is None and started == "the launcher"

    def test_the_users_own_command(self, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mine").mkdir()
        monkeypatch.setattr(process, "temporary", lambda folder, sockets: {"sockets": str(sockets)})
        found, heard = play(Outcome([], "x"), place=tmp_path / "mine", progress=None, message="m", blamed=True)
        assert found.failure == "x" and found.cleared == ["removed a lock"] and heard.said == heard.warm == []
        own = {"device": "cpu", "own": "True", "sockets": "True", "ZEROCFG_SMOKE_RUN": str(tmp_path)}
        assert heard.played == [(own, tmp_path / "mine")] and heard.blamed == []
        assert heard.made[0][0] == ["python", "--master_port", "7", "x"] and heard.made[0][-1] == "the command"

    def test_over_nodes_no_zygote_is_asked(self, play: Any, tmp_path: Path) -> None:
        _, heard = play(Outcome([]), nodes=SECOND)
        assert heard.warm == [] and heard.made[0][-2:] == (SECOND, "the launcher")
        assert heard.played == [(self.variables(tmp_path), tmp_path)]

    def test_a_fork_that_is_to_blame_costs_another_launch(self, play: Any, tmp_path: Path) -> None:
        good = Outcome([{}])
        found, heard = play(Outcome([{}], "broken", detail=["d"]), good, blamed=True, variables={"A": "1"})
        assert found is good and heard.blamed == [(["warm", "--master_port", "7", "x"], ["broken", "d"])]
        words = heard.made[1][0]
        assert words[:2] == ["warm", "--master_port"] and words[2] != "7" and words[3:] == ["x"], "another port"
        assert heard.made[1][1:4] == (tmp_path, 2, 60.0) and heard.made[1][5] == heard.said.append
        assert heard.played[1][0]["A"] == "1" and [item.name for item in (tmp_path / "reports").iterdir()] == [
            "rank1.json"
        ]

    @pytest.mark.parametrize(
        ("outcome", "blamed", "asked"),
        [
            (Outcome([], "x"), False, 1),
            (Outcome([], "x", interrupted=True), True, 0),
            (Outcome([], None), True, 0),
        ],
    )
    def test_other_outcomes_are_as_they_are(self, outcome: Outcome, blamed: bool, asked: int, play: Any) -> None:
        found, heard = play(outcome, blamed=blamed)
        assert found is outcome and len(heard.blamed) == asked

    @pytest.mark.parametrize(("ranks", "reports"), [(2, [{}, {}]), (None, [])])
    def test_who_was_asked_to_end_before_launches_nothing(self, ranks: Any, reports: Any, play: Any) -> None:
        found, heard = play(stop=1, ranks=ranks)
        assert found == Outcome(reports, "interrupted", interrupted=True, kind="interrupted") and heard.made == []


class TestPlay:
    """From the start of the launcher to the outcome."""

    @pytest.fixture
    def play(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def played(cause: Cause | None, reports: Any = ({"trained": True},), **more: Any) -> tuple[Outcome, Any]:
            heard: Any = SimpleNamespace(log=[], seen=None, started=None)
            child = SimpleNamespace(pid=77, returncode=3)

            def start(command: list[str], **named: Any) -> Any:
                heard.started = command, named
                named["stdout"].write(b"hello")
                if "fails" in more:
                    raise more["fails"]
                return child

            def find(seen: Any) -> Cause | None:
                heard.seen = seen
                return cause

            def follow(run: Any, deadline: float) -> bool:
                heard.log.append(("follow", deadline))
                run.vanished, run.lock, run.waiting, run.stopped = 1, "left", {0: ["a"]}, [1]
                run.compiling.seconds = 7.0
                if "interrupts" in more:
                    run.stop.requests = more["interrupts"]
                return bool(more.get("late", False))

            monkeypatch.setattr(
                process, "subprocess", SimpleNamespace(Popen=start, DEVNULL=-3, STDOUT=-2, TimeoutExpired=ValueError)
            )
            times = iter([100.0, 112.5])
            monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: next(times)))
            monkeypatch.setattr(process.failure_cause, "find", find)
            monkeypatch.setattr(process.out_of_memory, "kills", lambda: {"a": 1})
            monkeypatch.setattr(process.out_of_memory, "struck", lambda before: before == {"a": 1})
            monkeypatch.setattr(process.operator_locks, "snapshot", lambda: {"locks"})
            monkeypatch.setattr(process.leftovers, "Segments", lambda: "segments")
            monkeypatch.setattr(process, "_no_core_files", logged(heard.log, "no core files"))
            monkeypatch.setattr(process._Run, "_follow", follow)
            monkeypatch.setattr(process._Run, "_reports", lambda self: list(reports))
            monkeypatch.setattr(process._Run, "_end", lambda self, reports: heard.log.append(("end", reports)))
            run = process._Run(["launch", "x"], tmp_path, 1, 60.0, Interrupts(), None, more.get("nodes"), "the words")
            return run.play({"A": "1"}, tmp_path / "place"), heard

        return played

    def test_what_is_started_and_seen(self, play: Any, tmp_path: Path) -> None:
        reports = [{"done": True}]
        found, heard = play(Cause("killed", "it broke", 1, ["d"]), reports)
        words, named = heard.started
        assert words == ["launch", "x"] and named.pop("stdout").name == str(tmp_path / "log.txt")
        assert named == {
            "cwd": tmp_path / "place",
            "env": {"A": "1"},
            "stdin": -3,
            "stderr": -2,
            "start_new_session": True,
        }
        assert heard.log == [("no core files", 77), ("follow", 160.0), ("end", reports)]
        assert (found.failure, found.kind, found.rank, found.detail) == ("it broke", "killed", 1, ["d"])
        assert (found.reports, found.seconds, found.interrupted, found.compiled) == (reports, 12.5, False, 7.0)
        seen = heard.seen
        assert (seen.reports, seen.code, seen.log, seen.limit, seen.scratch) == (reports, 3, "hello", None, tmp_path)
        assert (seen.vanished, seen.interrupted, seen.waiting, seen.stopped) == (1, False, {0: ["a"]}, [1])
        assert (seen.lock, seen.killer, seen.own, seen.started) == ("left", True, None, "the words")

    def test_late_interrupted_and_of_several_nodes(self, play: Any) -> None:
        found, heard = play(Cause("time", "late"), late=True, interrupts=1, nodes=SECOND)
        assert heard.seen.limit == 60.0 and heard.seen.interrupted is True and heard.seen.own == range(2, 4)
        assert found.interrupted is True and found.failure == "late" and found.cut is None

    def test_no_cause_is_no_failure(self, play: Any) -> None:
        found, _ = play(None)
        assert (found.failure, found.kind, found.rank, found.cut) == (None, None, None, None)

    @pytest.mark.parametrize(
        ("reports", "cut"),
        [
            (({"trained": True}, {"trained": True}), True),
            (({"trained": True}, {"trained": False}), False),
            (({"trained": True}, {}), False),
            ((), False),
        ],
    )
    def test_what_was_trained_before_is_only_cut(self, reports: Any, cut: bool, play: Any) -> None:
        found, _ = play(Cause("time", "late"), reports)
        assert (found.cut, found.failure) == (("late", None) if cut else (None, "late"))

    def test_a_launcher_that_is_not_there(self, play: Any) -> None:
        with pytest.raises(SmokeError, match=r"^'launch' cannot be started: Permission denied$"):
            play(None, fails=PermissionError(13, "Permission denied"))


class Launcher:
    """A process that ends after some seconds of a clock; waiting takes a fixed time."""

    pid = 77

    def __init__(self, starts: float, lasts: float, step: float, log: Log) -> None:
        self.now, self.end, self.step, self.log = starts, starts + lasts, step, log

    def monotonic(self) -> float:
        return self.now

    def poll(self) -> int | None:
        return 0 if self.now >= self.end else None

    def wait(self, seconds: float) -> None:
        self.log.append(("wait", seconds))
        self.now += self.step
        raise subprocess.TimeoutExpired("x", seconds)


class TestFollow:
    @pytest.fixture
    def follow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def followed(
            limit: float = 1000.0, lasts: float = 1000.0, step: float = 1.0, starts: float = 100.0, **more: Any
        ) -> tuple[bool, Any, Log]:
            log: Log = []
            launcher = Launcher(starts, lasts, step, log)
            reports = more.get("reports", lambda after: [{}])
            progress = more.get("progress", lambda phase: log.append(("phase", phase)))
            run: Any = process._Run([], tmp_path, 1, limit, Interrupts(), progress, more.get("nodes"))
            run.process, run.lock = launcher, more.get("lock")
            run.stop.requests = more.get("requests", 0)
            run.segments = SimpleNamespace(look=lambda members: log.append(("look", launcher.now - starts, members)))
            compiled = more.get("compiling", SimpleNamespace(look=lambda now: None, allowed=0.0, now=None))
            run.compiling = compiled
            monkeypatch.setattr(process, "time", launcher)
            monkeypatch.setattr(process, "_vanished", lambda report: bool(report.get("gone")))
            monkeypatch.setattr(process._Run, "_reports", lambda self: reports(launcher.now - starts))
            monkeypatch.setattr(process._Run, "_members", lambda self, seen: {len(seen)})
            monkeypatch.setattr(process._Run, "_ask", lambda self: log.append(("ask", launcher.now - starts)))
            monkeypatch.setattr(process._Run, "_kill", lambda self, seen: log.append(("kill", seen)))
            monkeypatch.setattr(process._Run, "_find_lock", lambda self, seen: log.append(("lock", seen)))
            return run._follow(starts + limit), run, log

        return followed

    def of(self, log: Log, name: str) -> Log:
        return [words[1:] for words in log if words[0] == name]

    def test_the_end_comes_first(self, follow: Any) -> None:
        late, _, log = follow(limit=10.0, lasts=9.0)
        assert late is False and self.of(log, "ask") == [] and self.of(log, "wait") == [(0.1,)] * 9

    def test_the_limit_comes_first(self, follow: Any) -> None:
        late, _, log = follow(limit=10.0)
        assert late is True and self.of(log, "ask") == [(10.0,)]

    @pytest.mark.parametrize("more", [{"requests": 1}, {"lock": "left"}])
    def test_nobody_waits_longer(self, more: dict[str, Any], follow: Any) -> None:
        assert follow(**more)[::2] == (False, [])

    @pytest.mark.parametrize("key", ["error", "apart"])
    def test_after_a_failure_the_others_get_fifteen_seconds(self, key: str, follow: Any) -> None:
        late, run, log = follow(reports=lambda after: [{}, {key: "x"} if after >= 4 else {}])
        assert late is False and self.of(log, "ask") == [(19.0,)] and run.vanished is None
        late, _, log = follow(limit=19.0, reports=lambda after: [{key: "x"} if after >= 4 else {}])
        assert late is True and self.of(log, "ask") == [(19.0,)]

    def test_where_a_rank_vanished_the_others_are_killed(self, follow: Any) -> None:
        gone = [{}, {"gone": 1}, {"gone": 1}]
        late, run, log = follow(reports=lambda after: gone if after >= 4 else [{}])
        assert late is False and run.vanished == 1 and self.of(log, "kill") == [(gone,)]
        assert self.of(log, "ask") == [(19.0,)]

    def test_an_error_that_is_told_comes_before_one_that_is_not(self, follow: Any) -> None:
        _, run, log = follow(reports=lambda after: [{"gone": 1}, {"error": {}}])
        assert run.vanished is None and self.of(log, "kill") == [] and self.of(log, "ask") == [(15.0,)]

    def test_what_is_held_is_looked_at_twice_a_second(self, follow: Any) -> None:
        _, _, log = follow(lasts=1.25, step=0.25, starts=0.5, reports=lambda after: [{}, {}])
        assert self.of(log, "look") == [(0.0, {2}), (0.5, {2}), (1.0, {2})]
        assert self.of(log, "lock") == [([{}, {}],)] * 3

    def test_each_phase_is_shown_once(self, follow: Any) -> None:
        phases = ["init", "init", "step 1", "init"]
        _, _, log = follow(lasts=5.0, reports=lambda after: [{"phase": phases[int(after) - 1]}] if after else [])
        assert self.of(log, "phase") == [("launch",), ("init",), ("step 1",), ("init",)]
        assert follow(lasts=2.0, progress=None)[0] is False

    def test_of_several_nodes_the_first_own_rank_is_shown(self, follow: Any) -> None:
        reports = [{"phase": f"step {rank}"} for rank in range(4)]
        _, _, log = follow(lasts=1.0, nodes=SECOND, reports=lambda after: reports)
        assert self.of(log, "phase") == [("step 2",)]

    def test_a_compilation_is_shown_and_counted(self, follow: Any) -> None:
        class Compiles:
            allowed, now, looks = 6.0, "cpu_adam", list[float]()

            def look(self, now: float) -> None:
                self.looks.append(now)

        compiles = Compiles()
        late, _, log = follow(limit=4.0, compiling=compiles)
        assert late is True and self.of(log, "ask") == [(10.0,)] and self.of(log, "phase") == [("compile cpu_adam",)]
        assert compiles.looks == [100.0 + after for after in range(11)]


class TestParts:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Any:
        made: Any = process._Run([], tmp_path, 2, 60.0, Interrupts(), None)
        made.log = []
        return made

    def test_processes_of_the_ranks(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        marks = {(7, str(run.folder)), (8, str(run.folder)), (9, "other")}
        monkeypatch.setattr(process.leftovers, "is_marked", lambda item, mark: (item, mark) in marks)
        reports = [{"pid": 7}, {}, {"pid": 8}, {"pid": 9}]
        assert run._members(reports) == {7, 8}

        def kill(item: int, sign: int) -> None:
            log.append((item, sign))
            raise ProcessLookupError if item == 7 else PermissionError

        monkeypatch.setattr(process, "os", SimpleNamespace(kill=kill))
        run._kill(reports)
        assert sorted(log) == [(7, signal.SIGKILL), (8, signal.SIGKILL)]

    def test_where_ranks_hang(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        reports = [{"pid": 7}, {}, {"pid": 8}]
        monkeypatch.setattr(process._Run, "_reports", lambda self: reports)
        monkeypatch.setattr(process._Run, "_members", lambda self, seen: {7} if seen is reports else set())
        asked = logged(log, "stopped", False)
        monkeypatch.setattr(process.stacks, "stopped", lambda item: asked(item) or item == 8)
        monkeypatch.setattr(process.stacks, "ask", logged(log, "ask", {0: ["a"]}))
        monkeypatch.setattr(process._Run, "_find_lock", lambda self, *words, **named: log.append((words, named)))
        run._ask()
        assert run.stopped == [2] and run.waiting == {0: ["a"]}
        assert log == [
            *[("stopped", 7), ("stopped", 0), ("stopped", 8)],
            ("ask", run.folder / "reports", reports, {7}),
            ((reports,), {"quiet": 0}),
        ]

    @pytest.fixture
    def lock(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A lock that is there; ``looks``: when it was looked at, and how long nothing may have been written."""
        heard: Any = SimpleNamespace(now=100.0, looks=[], abandoned=True, asked=0, frames=[])
        frames = {0: ["torch/utils/file_baton.py:49 in wait"]}

        def ask(folder: Path, reports: Any, members: Any) -> Any:
            heard.asked += 1
            return heard.frames or frames

        def look(path: Path, quiet: float) -> bool:
            heard.looks.append((heard.now, quiet))
            return bool(heard.abandoned)

        monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: heard.now))
        monkeypatch.setattr(process.operator_locks, "find", lambda: [Path("/l/lock")])
        monkeypatch.setattr(process.operator_locks, "abandoned", look)
        monkeypatch.setattr(process.operator_locks, "describe", lambda path: f"{path} was left")
        monkeypatch.setattr(process.stacks, "ask", ask)
        monkeypatch.setattr(process._Run, "_members", lambda self, seen: set())
        return heard

    def test_a_lock_is_looked_at_after_five_seconds_each(self, run: Any, lock: Any) -> None:
        lock.abandoned = False
        for lock.now in (100.0, 104.5, 105.0, 109.5, 110.0):
            run._find_lock([{}])
        assert lock.looks == [(105.0, 180.0), (110.0, 180.0)] and run.lock is None and lock.asked == 0
        run._find_lock([{}], quiet=0)
        assert lock.looks[-1] == (110.0, 0)

    def test_an_abandoned_one_that_a_rank_waits_for(self, run: Any, lock: Any) -> None:
        run._find_lock([{}], quiet=0)
        assert run.lock == "/l/lock was left" and lock.asked == 1
        run.lock, run.waiting = None, {1: ["a.py:1 in f", "torch/utils/file_baton.py:49 in wait"]}
        run._find_lock([{}], quiet=0)
        assert run.lock == "/l/lock was left" and lock.asked == 1, "it is known where they wait"

    @pytest.mark.parametrize("frames", [["a", "b", "file_baton.py:49 in wait"], ["baton.py"]])
    def test_one_that_nobody_waits_for(self, frames: list[str], run: Any, lock: Any) -> None:
        lock.frames = {0: frames}
        run._find_lock([{}], quiet=0)
        assert run.lock is None

    @pytest.mark.parametrize(
        ("ends", "marked", "steps"),
        [
            (0, set(), []),
            (0, {9}, ["locks"]),
            (1, set(), ["locks"]),
            (None, set(), ["asked", "killed", "locks"]),
        ],
    )
    def test_how_all_is_ended(
        self, ends: int | None, marked: set[int], steps: list[str], run: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: Log = []
        run.process = SimpleNamespace(poll=lambda: ends, pid=77)
        run.locks = {"before"}
        look, remove = logged(log, "look"), logged(log, "segments")
        run.segments = SimpleNamespace(look=look, remove=remove)
        monkeypatch.setattr(process.leftovers, "marked", lambda mark: {"of", mark})
        monkeypatch.setattr(process.leftovers, "kill", logged(log, "kill", marked))
        monkeypatch.setattr(process.operator_locks, "remove", logged(log, "locks"))
        monkeypatch.setattr(process, "os", SimpleNamespace(killpg=logged(log, "group", ProcessLookupError())))
        monkeypatch.setattr(process._Run, "_wait", lambda self, seconds: log.append(("wait", seconds)))
        run._end([{"pid": 5}])
        named = {"asked": signal.SIGTERM, "killed": signal.SIGKILL}
        signals: Log = []
        for step in steps:
            signals += [("group", 77, named[step]), ("wait", 3.0)] if step in named else []
        folder = str(run.folder)
        wanted = [("look", {"of", folder}), *signals, ("kill", folder)]
        wanted += [("locks", {"before"})] * ("locks" in steps)
        assert log == [*wanted, ("segments",)]

    def test_without_proc_the_reports_name_the_ranks(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        run.process, run.locks = SimpleNamespace(poll=lambda: 0), set()
        run.segments = SimpleNamespace(look=lambda members: None, remove=lambda: None)
        monkeypatch.setattr(process.leftovers, "PROC", run.folder / "none")
        monkeypatch.setattr(process.leftovers, "marked", lambda mark: set())
        monkeypatch.setattr(process.leftovers, "kill", lambda mark: set())
        monkeypatch.setattr(process, "os", SimpleNamespace(kill=logged(log, "kill", ProcessLookupError())))
        run._end([{"pid": 5}, {}, {"pid": 6}])
        assert log == [("kill", 5, signal.SIGKILL), ("kill", 6, signal.SIGKILL)]

    @pytest.mark.parametrize(
        ("lasts", "requests", "waits"), [(10.0, 0, 3), (10.0, 1, 3), (10.0, 2, 0), (10.0, 3, 0), (2.0, 0, 2)]
    )
    def test_how_long_an_end_is_waited_for(
        self, lasts: float, requests: int, waits: int, run: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: Log = []
        run.process = Launcher(100.0, lasts, 1.0, log)
        run.stop.requests = requests
        monkeypatch.setattr(process, "time", run.process)
        run._wait(3.0)
        assert log == [("wait", 0.1)] * waits

    @pytest.mark.parametrize(
        ("report", "error", "gone"),
        [
            ({}, ProcessLookupError(), False),
            ({"pid": 7}, ProcessLookupError(), True),
            ({"pid": 7, "done": True}, ProcessLookupError(), False),
            ({"pid": 7, "done": False}, ProcessLookupError(), True),
            ({"pid": 7}, PermissionError(), False),
            ({"pid": 7}, None, False),
        ],
    )
    def test_a_rank_that_vanished(self, report: Any, error: Any, gone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        monkeypatch.setattr(process, "os", SimpleNamespace(kill=logged(log, "kill", error)))
        assert process._vanished(report) is gone
        assert log == [] or log == [("kill", 7, 0)]

    def test_reports_so_far(self, tmp_path: Path) -> None:
        assert process._reports(tmp_path, None) == [] and process._reports(tmp_path, 2) == [{}, {}]
        for name in ("rank0", "rank12", "rankx", "rank"):
            (tmp_path / f"{name}.json").write_text(f'{{"phase": "{name}"}}')
        found = process._reports(tmp_path, None)
        assert len(found) == 13 and (found[0], found[1], found[12]) == ({"phase": "rank0"}, {}, {"phase": "rank12"})
        assert process._reports(tmp_path, 1) == [{"phase": "rank0"}]
        (tmp_path / "rank12.json").unlink()
        assert process._reports(tmp_path, None) == [{"phase": "rank0"}]

    def test_the_end_of_a_long_log(self, tmp_path: Path) -> None:
        log = tmp_path / "log.txt"
        log.write_bytes(b"a" + b"b" * (1 << 20))
        assert process._tail(log) == "b" * (1 << 20)
        log.write_bytes(b"a\xff")
        assert process._tail(log) == "a\ufffd"

    def test_core_files_are_off_and_may_be_put_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        module = SimpleNamespace(RLIMIT_CORE=4, prlimit=logged(log, "limit", (5, 7)))
        monkeypatch.setitem(sys.modules, "resource", module)
        process._no_core_files(77)
        assert log == [("limit", 77, 4), ("limit", 77, 4, (0, 7))]


class TestCommands:
    def test_the_ranks_program_is_copied_whole(self, tmp_path: Path) -> None:
        (source,) = map(Path, zerocfg.smoke.worker.__path__)
        found = process.program(tmp_path)
        assert found == tmp_path / "program" == process.program(tmp_path), "again, too"
        copied = {str(item.relative_to(found / "zerocfg_worker")) for item in found.rglob("*.py")}
        assert copied == {str(item.relative_to(source)) for item in source.rglob("*.py")} and "job.py" in copied
        assert (found / "zerocfg_worker/hooks/audit.py").read_bytes() == (source / "hooks/audit.py").read_bytes()

    def test_the_words_of_a_launcher(self) -> None:
        python = [sys.executable, "-m"]
        torchrun, accelerate = [*python, "torch.distributed.run"], [*python, "accelerate.commands.launch"]
        config, end = ["--config_file", "accelerate.yaml"], ["-m", "zerocfg_worker"]
        words = ["--nproc_per_node", "4", "--master_port", "7"]
        assert process.launcher(False, 4, 7) == [*torchrun, *words, *end]
        assert process.launcher(True, 4, 7) == [*accelerate, *config, "--main_process_port", "7", *end]
        words = ["--nproc_per_node", "2", "--master_port", "29501", "--nnodes", "2", "--node_rank", "1"]
        assert process.launcher(False, 4, 7, SECOND) == [*torchrun, *words, "--master_addr", "10.0.0.1", *end]
        words = ["--main_process_port", "29501", "--machine_rank", "1", "--main_process_ip", "10.0.0.1"]
        assert process.launcher(True, 4, 7, SECOND) == [*accelerate, *config, *words, *end]

    def test_a_port_that_can_be_bound(self) -> None:
        port = process.free_port()
        assert port > 1023
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))

    def test_the_same_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "free_port", lambda: 9)
        words = ["1", "--master_port", "1", "2", "--main_process_port", "1", "--master_port"]
        assert process.elsewhere(words) == ["1", "--master_port", "9", "2", "--main_process_port", "9", "--master_port"]
        assert process.elsewhere(["x", "--master_port"]) == ["x", "--master_port"]
