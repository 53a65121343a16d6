"""Why a run failed, from what is seen at its end: exit codes, logs, reports, memory, disks. Words by hand, codes as
bash gives them; and what looks at ranks and signals meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.launch import compiling, failure_cause, interrupts, rank_reports, stacks
from zerocfg.smoke.launch.failure_cause import Cause, Seen, ended, find, last_rank_output

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
OUT_OF_MEMORY = "; the kernel's out-of-memory killer ended a process meanwhile: this run needs more host memory"
BY_SOMEBODY = "; the kernel recorded no out-of-memory kill, so a user or a batch system ended it"


@pytest.fixture(autouse=True)
def disks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that are free wherever it is asked."""
    free = {"free": 3 * MIB, "total": 5 * MIB}
    monkeypatch.setattr(failure_cause, "shutil", SimpleNamespace(disk_usage=lambda path: SimpleNamespace(**free)))
    return free


def table(*codes: tuple[int, int]) -> str:
    """The failures as torchrun prints them."""
    rows = "".join(
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 9)\n" for rank, code in codes
    )
    return f"hello\n{'=' * 60}\ntrain.py FAILED\n{rows}"


def seen(reports: Any = ({}, {}), code: int = 1, log: str = "", limit: float | None = None, **more: Any) -> Seen:
    return Seen(list(reports), code, log, limit, Path("/tmp/run/scratch"), **more)


def told(*arguments: Any, **more: Any) -> tuple[str, str, int | None]:
    cause = find(seen(*arguments, **more))
    assert cause is not None
    return cause.kind, cause.text, cause.rank


def error(rank: int, at: float, text: str = "x", kind: str = "ValueError") -> Any:
    return {"rank": rank, "phase": "init", "error": {"type": kind, "text": text, "time": at, "traceback": ["frame"]}}


class TestEnded:
    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (0, "ended with exit code 0"),
            (3, "ended with exit code 3"),
            (128, "ended with exit code 128"),
            (129, "was killed by signal 1 (SIGHUP)"),
            (137, "was killed by signal 9 (SIGKILL)"),
            (250, "ended with exit code 250"),
            (-9, "was killed by signal 9 (SIGKILL)"),
            (-1, "was killed by signal 1 (SIGHUP)"),
            (-99, "was killed by signal 99"),
        ],
    )
    def test_codes(self, code: int, words: str) -> None:
        assert ended(code) == words

    @pytest.mark.parametrize(
        ("code", "killer", "hint"),
        [
            (-9, True, OUT_OF_MEMORY),
            (137, True, OUT_OF_MEMORY),
            (-9, False, BY_SOMEBODY),
            (137, False, BY_SOMEBODY),
            (-10, True, ""),
            (138, False, ""),
            (9, True, ""),
            (1, False, ""),
            (-18, False, ""),
            (-14, False, ""),
            (-8, False, ""),
        ],
    )
    def test_what_a_signal_hints_at(self, code: int, killer: bool, hint: str) -> None:
        assert failure_cause._hint(code, seen(killer=killer)) == hint

    @pytest.mark.parametrize("code", [-7, 135])
    def test_shared_memory_that_is_full(self, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(failure_cause, "SHARED", tmp_path)
        words = f"; a full {tmp_path} causes this: 3 of 5 MiB are free (docker run --shm-size=8g)"
        assert failure_cause._hint(code, seen()) == words
        monkeypatch.setattr(failure_cause, "SHARED", tmp_path / "none")
        assert failure_cause._hint(code, seen()) == ""


class TestFind:
    DONE = ({"rank": 0, "done": True}, {"rank": 1, "done": True})

    def test_every_rank_finished(self) -> None:
        assert find(seen(self.DONE, 0)) is None
        assert find(seen(self.DONE, 0, limit=5.0)) is None, "just in time"
        assert told(self.DONE, 3) == ("launcher", "the launcher ended with exit code 3", None)
        some = (self.DONE[0], {"rank": 1})
        words = "the command ended with exit code 0 although not every rank finished"
        assert told(some, 0, started="the command") == ("launcher", words, None)

    def test_what_counts_before_what(self) -> None:
        reports = (error(0, 2.0), error(1, 1.0))
        everything: dict[str, Any] = {"limit": 5.0, "vanished": 0, "lock": "left", "interrupted": True}
        assert told(reports, **everything)[0] == "interrupted"
        del everything["interrupted"]
        assert told(reports, **everything)[:2] == ("killed", "rank 0 vanished in 'init'")
        del everything["vanished"]
        assert told(reports, **everything) == ("error", "ValueError: x", 1), "the first by time"
        cause = find(seen(({}, {}), **everything))
        assert cause == Cause("lock", "the ranks wait for an abandoned lock", None, ["left"])
        del everything["lock"]
        assert told(({}, {}), **everything)[0] == "time"

    def test_errors_at_one_moment_are_told_by_the_first_rank(self) -> None:
        assert told((error(0, 1.0), error(1, 1.0)))[2] == 0
        assert told(({}, error(1, 9.0)))[2] == 1

    def test_the_words_of_an_error(self) -> None:
        assert told((error(0, 1.0, "a\n  b"),))[1] == "ValueError: a b"
        assert told((error(0, 1.0, ""),))[1] == "ValueError"
        assert told((error(0, 1.0, "y" * 2002),))[1] == f"ValueError: {'y' * 2000}"
        cause = find(seen((error(0, 1.0),), own=range(1)))
        assert cause is not None and cause.detail[0] == "frame" and len(cause.detail) == 2

    @pytest.mark.parametrize(
        ("kind", "text", "where"),
        [
            ("OutOfMemoryError", "CUDA out of memory.", "the card's memory"),
            ("MemoryError", "", "host memory"),
            ("OSError", "[Errno 12] Cannot allocate memory", "host memory"),
        ],
    )
    def test_whose_memory(self, kind: str, text: str, where: str) -> None:
        words = f"out of {where} in 'init': {kind}" + (f": {text}" if text else "")
        assert told((error(0, 1.0, text, kind),)) == ("memory", words, 0)

    def test_pinned_memory_is_the_hosts(self) -> None:
        report = error(0, 1.0, "CUDA error: out of memory", "AcceleratorError")
        report["error"]["traceback"] = ['  File "a.py", line 3, in f', "    x.pin_memory()"]
        words = "out of host memory (page-locked) in 'launch': AcceleratorError: CUDA error: out of memory"
        del report["phase"]
        assert told((report,)) == ("memory", words, 0)

    def test_the_table_names_a_rank(self) -> None:
        killed = told(({}, {"phase": "save"}), log=table((1, -9), (0, -15)))
        assert killed == ("killed", f"rank 1 was killed by signal 9 (SIGKILL) in 'save'{BY_SOMEBODY}", 1)
        first = told(({}, {}, {}), log=table((0, -15), (2, 3), (1, 4)))
        assert first == ("killed", "rank 2 ended with exit code 3 in 'launch'", 2), "the first was ended by torchrun"
        both = told(({}, {}), log=table((1, -15), (0, -15)))
        assert both[2] == 1 and "signal 15 (SIGTERM)" in both[1]
        beyond = told(({}, {}), log=table((2, 3)))
        assert beyond == ("launcher", "the launcher ended with exit code 1", None)

    @pytest.mark.parametrize(
        ("code", "killer", "kind", "text"),
        [
            (None, True, "memory", f"rank 0 vanished in 'step 1'{OUT_OF_MEMORY}"),
            (None, False, "killed", "rank 0 vanished in 'step 1'"),
            (-9, True, "memory", f"rank 0 was killed by signal 9 (SIGKILL) in 'step 1'{OUT_OF_MEMORY}"),
            (137, True, "memory", f"rank 0 was killed by signal 9 (SIGKILL) in 'step 1'{OUT_OF_MEMORY}"),
            (-9, False, "killed", f"rank 0 was killed by signal 9 (SIGKILL) in 'step 1'{BY_SOMEBODY}"),
            (-10, True, "killed", "rank 0 was killed by signal 10 (SIGUSR1) in 'step 1'"),
            (138, True, "killed", "rank 0 was killed by signal 10 (SIGUSR1) in 'step 1'"),
            (3, True, "killed", "rank 0 ended with exit code 3 in 'step 1'"),
        ],
    )
    def test_a_rank_that_vanished(self, code: int | None, killer: bool, kind: str, text: str) -> None:
        log = table((0, code)) if code is not None else "hello\n"
        cause = find(seen(({"phase": "step 1"},), log=log, vanished=0, killer=killer))
        assert cause == Cause(kind, text, 0, ["hello"])

    def test_the_one_that_ended_it_may_have_no_report(self) -> None:
        log = table((0, -15), (1, 3))
        assert told(({},), log=log, vanished=0) == ("killed", "rank 1 ended with exit code 3 in 'launch'", 1)

    @pytest.mark.parametrize(("free", "full"), [(MIB - 1, True), (MIB, False)])
    def test_a_full_disk(self, free: int, full: bool, disks: dict[str, int]) -> None:
        disks["free"] = free
        words = "; no space left in /tmp/run, the working folder of the run (set TMPDIR to use another)" * full
        kind = "space" if full else "killed"
        assert told(({},), vanished=0, log=table((0, 1))) == (
            kind,
            f"rank 0 ended with exit code 1 in 'launch'{words}",
            0,
        )
        assert told(({},), vanished=0, log=table((0, -9)))[0] == "killed", "a kill explains itself"
        kind = "space" if full else "launcher"
        assert told(log="ValueError: x") == (
            kind,
            f"the launcher ended with exit code 1{words or ': ValueError: x'}",
            None,
        )

    def test_a_folder_that_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def gone(path: Path) -> None:
            raise FileNotFoundError

        monkeypatch.setattr(failure_cause, "shutil", SimpleNamespace(disk_usage=gone))
        assert told(({},), vanished=0)[0] == "killed"

    @pytest.mark.parametrize("words", ["EADDRINUSE", "Address already in use", "another process is utilizing it"])
    def test_a_port_that_is_taken(self, words: str) -> None:
        cause = find(seen(log=f"RuntimeError: {words}\n"))
        assert cause == Cause("port", "another program uses the rendezvous port", None, [f"RuntimeError: {words}"])
        assert told(log="RuntimeError: no address")[0] == "launcher"

    @pytest.mark.parametrize(
        ("code", "killer", "kind", "text"),
        [
            (-9, True, "memory", f"the launcher was killed by signal 9 (SIGKILL){OUT_OF_MEMORY}"),
            (-9, False, "launcher", f"the launcher was killed by signal 9 (SIGKILL){BY_SOMEBODY}"),
            (137, True, "launcher", f"the launcher was killed by signal 9 (SIGKILL){OUT_OF_MEMORY}"),
            (0, True, "launcher", "the launcher ended with exit code 0 although not every rank finished"),
            (2, False, "launcher", "the launcher ended with exit code 2"),
        ],
    )
    def test_how_the_launcher_ended(self, code: int, killer: bool, kind: str, text: str) -> None:
        cause = find(seen(code=code, killer=killer, log="usage: x\n"))
        assert cause == Cause(kind, text, None, ["usage: x"])


class TestLate:
    def test_where_each_rank_is(self) -> None:
        reports = ({"phase": "init"}, {}, {"phase": "save"})
        cause = find(seen(reports, limit=2.5, stopped=[1, 2], waiting={2: ["b.py:2 in g"], 0: ["a.py:1 in f"]}))
        places = "rank 0 in 'init', rank 1 in 'launch' (stopped), rank 2 in 'save' (stopped)"
        halted = "; a rank that is stopped (SIGSTOP, a debugger) keeps all others waiting"
        assert cause == Cause(
            "time",
            f"not finished within 2.5 s: {places}{halted}",
            1,
            ["rank 0 waits in a.py:1 in f", "rank 2 waits in b.py:2 in g"],
        )

    def test_without_a_report_and_with_all_done(self) -> None:
        assert told((), limit=60) == ("time", "not finished within 60 s: no rank reported", None)
        words = "not finished within 60 s: every rank finished its work, but the processes do not exit"
        assert told(TestFind.DONE, -9, limit=60) == ("time", words, None)
        assert "rank 1 in 'launch'" in told(({"done": True}, {}), limit=60)[1]

    @pytest.mark.parametrize(
        ("own", "text", "hint"),
        [
            (None, "rank 0 in 'a', rank 1 in 'b'", []),
            (
                range(1, 2),
                "rank 1 in 'b'",
                ["the other nodes report their own ranks: the failure may have begun on one of them"],
            ),
        ],
    )
    def test_of_several_nodes_the_own_ranks(self, own: Any, text: str, hint: list[str]) -> None:
        cause = find(seen(({"phase": "a"}, {"phase": "b"}), limit=5, own=own))
        assert cause == Cause("time", f"not finished within 5 s: {text}", None, hint)

    def test_where_none_of_the_own_ranks_began(self) -> None:
        cause = find(seen(({"phase": "a"}, {}), limit=5, own=range(1, 2)))
        assert cause is not None
        assert cause.detail == [
            "the ranks wait for those of the other nodes: the same command has to run on each of them"
        ]


class TestLog:
    LAUNCHER = "[rank0]:W1127 10:00:00.000000 1 torch/distributed/elastic/x.py:3] hello"

    def test_what_a_rank_wrote_last(self) -> None:
        frames = [f'  File "/u/train.py", line {n}, in f' for n in range(7)]
        own = ["Traceback (most recent call last):", *frames, "ValueError: x"]
        launchers = [
            "Traceback (most recent call last):",
            '  File "/bin/torchrun", line 8, in <module>',
            "ValueError: y",
        ]
        lines = ["one", "", self.LAUNCHER, "*" * 5, "Setting OMP_NUM_THREADS", *own, *launchers, "late"]
        assert last_rank_output("\n".join(lines)) == ["one", *own]
        assert last_rank_output("one\n" + "=" * 19 + "\ntwo\n" + "=" * 20 + "\nthree") == ["one", "=" * 19, "two"]
        assert last_rank_output("one\nx.ChildFailedError: y\ntwo") == ["one"]
        assert last_rank_output("") == []

    def test_a_short_traceback_of_a_rank_above_the_launchers(self) -> None:
        own = ["Traceback (most recent call last):", '  File "/u/train.py", line 3, in <module>', "ValueError: x"]
        launchers = ["Traceback (most recent call last):", '  File "/bin/torchrun", line 8, in <module>', "y.E: z"]
        assert last_rank_output("\n".join([*own, *launchers])) == own
        assert last_rank_output("\n".join([*own[:1], *own, *launchers])) == [*own[:1], *own], "two ranks at once"
        module = ['  File "<frozen runpy>", line 198, in _run', '  File "<frozen runpy>", line 88, in _run', "    x"]
        late = [launchers[0], *module, '  File "/lib/torch/distributed/run.py", line 1, in <module>']
        assert last_rank_output("\n".join([*own, *late])) == own

    def test_twelve_lines_of_five_hundred_characters(self) -> None:
        lines = [f"line {n}" for n in range(14)]
        assert last_rank_output("\n".join(lines)) == lines[2:]
        assert last_rank_output("x" * 600) == ["x" * 500]
        assert failure_cause._last_error("\n".join(lines)) == lines[2:]
        assert failure_cause._last_error("x" * 600) == ["x" * 500]

    @pytest.mark.parametrize("frame", ["torch/distributed/run.py", "accelerate/commands/launch.py", "bin/torchrun"])
    @pytest.mark.parametrize(("lines", "its"), [(6, True), (7, False)])
    def test_the_launchers_own_traceback_is_known_by_its_first_eight_lines(
        self, frame: str, lines: int, its: bool
    ) -> None:
        log = ["one", "Traceback", *["    x"] * lines, f'  File "/v/{frame}", line 1, in main', "z"]
        assert last_rank_output("\n".join(log)) == (["one"] if its else log)

    @pytest.mark.parametrize(
        ("lines", "error"),
        [
            (["ValueError: x"], ["ValueError: x"]),
            (["a", "b"], ["a", "b"]),
            ([], []),
            (["ValueError: x", "a"], ["ValueError: x"]),
            (["ValueError: x", "a", "b"], ["ValueError: x"]),
            (["KeyError: x", "a", "my.own.OSError: y", "", "b"], ["my.own.OSError: y"]),
            (['  File "a"', "SystemExit", "b"], ['  File "a"', "SystemExit"]),
            (['  File "a"', "    f()", "KeyError: x"], ['  File "a"', "    f()", "KeyError: x"]),
            (['  File "a"', "  f()", "  ^^^", "more", "KeyError: x"], ['  File "a"', "  f()", "  ^^^", "KeyError: x"]),
            (['  File "a"', '  File "b"', "  f()", "KeyError: x"], ['  File "b"', "  f()", "KeyError: x"]),
            (["KeyError: x", '  File "late"'], ["KeyError: x"]),
            ([LAUNCHER, "word Error: x"], ["word Error: x"]),
        ],
    )
    def test_the_last_exception_and_its_frame(self, lines: list[str], error: list[str]) -> None:
        assert failure_cause._last_error("\n".join(lines)) == error


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.now, self.slept = 5.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now = round(self.now + seconds, 6)


class TestAsk:
    DUMP = 'Current thread 0x1 (most recent call first):\n  File "/u/a.py", line {} in f\n'

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        clock = Clock()
        monkeypatch.setattr(stacks, "time", clock)
        return clock

    def asked(self, folder: Path, monkeypatch: pytest.MonkeyPatch, silent: tuple[int, ...] = ()) -> dict[int, int]:
        signals: dict[int, int] = {}

        def kill(process: int, sign: int) -> None:
            signals[process] = sign
            if process in silent:
                raise ProcessLookupError
            with (folder / f"rank{process - 100}.stack").open("a") as file:
                file.write(self.DUMP.format(process))

        monkeypatch.setattr(stacks, "os", SimpleNamespace(kill=kill))
        return signals

    def test_ranks_that_answer_at_once(self, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        signals = self.asked(tmp_path, monkeypatch)
        (tmp_path / "rank0.stack").write_text(self.DUMP.format(1) * 3)
        (tmp_path / "rank1.stack").write_text("")
        reports: Any = [{"pid": 100}, {"pid": 101}, {"pid": 102}, {}]
        found = stacks.ask(tmp_path, reports, {100, 101, 102})
        assert found == {0: ["/u/a.py:100 in f"], 1: ["/u/a.py:101 in f"]}, "what was written before is another dump"
        assert signals == {100: signal.SIGUSR1, 101: signal.SIGUSR1}, "the third said no place to write to"
        assert clock.slept == [0.05, 0.05]

    def test_one_that_does_not_answer_is_waited_for_a_second(
        self, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.asked(tmp_path, monkeypatch, silent=(101,))
        for rank in (0, 1):
            (tmp_path / f"rank{rank}.stack").write_text("")
        found = stacks.ask(tmp_path, [{"pid": 100}, {"pid": 101}], {100, 101})
        assert found == {0: ["/u/a.py:100 in f"]} and 20 <= len(clock.slept) <= 21 and clock.slept[0] == 0.05

    def test_a_process_that_is_not_allowed_is_not_asked(
        self, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        signals = self.asked(tmp_path, monkeypatch)
        (tmp_path / "rank0.stack").write_text("")
        assert stacks.ask(tmp_path, [{"pid": 100}], {7}) == {} and signals == {} and clock.slept == []

    def test_without_the_signal(self, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        signals = self.asked(tmp_path, monkeypatch)
        monkeypatch.setattr(stacks, "signal", SimpleNamespace())
        (tmp_path / "rank0.stack").write_text("")
        assert stacks.ask(tmp_path, [{"pid": 100}], {100}) == {} and signals == {}

    @pytest.mark.parametrize(
        ("stat", "stopped"),
        [
            ("7 (a) b) T 1 2", True),
            ("7 (a) t 1 2", True),
            ("7 (T) S T 2", False),
            ("7 (T) R", False),
            ("7 (T)", False),
            (None, False),
        ],
    )
    def test_a_process_that_is_stopped(
        self, stat: str | None, stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if stat is not None:
            (tmp_path / "_proc_7_stat").write_text(stat)
        monkeypatch.setattr(stacks, "Path", lambda name: tmp_path / name.replace("/", "_"))
        assert stacks.stopped(7) is stopped

    def test_one_own_frame_behind_four(self) -> None:
        frames = ["a:1 in f", "b:1 in f", "/c:1 in f", "d:1 in f", "e:1 in f", "/g:1 in f", "/h:1 in f"]
        assert stacks.shown(frames) == "a:1 in f < b:1 in f < /c:1 in f < d:1 in f < /g:1 in f"


@pytest.mark.parametrize(("error", "runs"), [(None, True), (PermissionError(), True), (ProcessLookupError(), False)])
def test_a_process_that_may_not_be_signalled_runs(
    error: OSError | None, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[tuple[int, int]] = []

    def kill(process: int, sign: int) -> None:
        signals.append((process, sign))
        if error is not None:
            raise error

    monkeypatch.setattr(compiling, "os", SimpleNamespace(kill=kill))
    assert compiling._runs(7) is runs and signals == [(7, 0)]


def test_marks_that_name_no_process(tmp_path: Path) -> None:
    for name in ("abc", "", "-5"):
        (tmp_path / f"compiling-{name}").write_text("cpu_adam")
    watched = compiling.Compiling(tmp_path)
    watched.look(1.0)
    assert watched.now is None
    (tmp_path / f"compiling-{os.getpid()}").mkdir()
    watched.look(2.0)
    assert (watched.now, watched.seconds, watched.allowed) == (None, 0.0, 0.0), "one that cannot be read"


def test_an_hour_of_compilations_is_allowed(tmp_path: Path) -> None:
    (tmp_path / f"compiling-{os.getpid()}").write_text("cpu_adam")
    watched = compiling.Compiling(tmp_path)
    for second, allowed in ((10.0, 0.0), (3609.0, 3599.0), (3611.0, 3600.0), (9000.0, 3600.0)):
        watched.look(second)
        assert watched.allowed == allowed


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("losses", [1, 2.5], True),
        ("losses", "12", False),
        ("losses", {"0": 1}, False),
        ("instruments", {"loss": ""}, True),
        ("instruments", [], False),
        ("instruments", {"loss": 1}, False),
        ("seen", [], False),
        ("parts", {"resume": []}, False),
        ("error", {"type": "E", "text": "t", "time": 1, "traceback": ["a"]}, True),
        ("error", {"time": True}, False),
        ("error", {"time": "1"}, False),
        ("pid", 1.5, False),
        ("momentum", None, True),
        ("momentum", 2, True),
        ("momentum", "2", False),
    ],
)
def test_a_report_has_the_types_of_its_fields(name: str, value: Any, fits: bool) -> None:
    assert rank_reports.is_report({name: value}) is fits


def test_a_form_that_is_not_known_fits_nothing() -> None:
    assert not rank_reports._fits("int", "int")


class TestInterrupts:
    @pytest.fixture(autouse=True)
    def handlers(self) -> Iterator[None]:
        """As in a shell's foreground, but for SIGHUP, which nohup ignores."""
        kept = {item: signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        yield
        for item, handler in kept.items():
            signal.signal(item, handler)

    def test_they_are_counted_and_nothing_else(self) -> None:
        with interrupts.interrupts() as stop:
            assert not stop and stop.requests == 0
            signal.raise_signal(signal.SIGTERM)
            assert stop and stop.requests == 1
            signal.raise_signal(signal.SIGINT)
            assert stop.requests == 2
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "nohup"
            with interrupts.interrupts() as inner:
                assert inner is stop
            assert interrupts._active == [stop]
        assert interrupts._active == []
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_thread_has_a_count_of_its_own(self) -> None:
        found: list[Any] = []

        def entered() -> None:
            with interrupts.interrupts() as stop:
                found.append((stop, list(interrupts._active), signal.getsignal(signal.SIGTERM)))

        def in_a_thread() -> Any:
            thread = threading.Thread(target=entered)
            thread.start()
            thread.join()
            return found.pop()

        stop, active, handler = in_a_thread()
        assert not stop and active == [] and handler is signal.SIG_DFL
        with interrupts.interrupts() as outer:
            stop, active, _ = in_a_thread()
            assert stop is not outer and active == [outer]

    def test_a_system_without_one_of_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(interrupts, "SIGNALS", ("SIGNONE", "SIGTERM"))
        with interrupts.interrupts() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert stop.requests == 1 and signal.getsignal(signal.SIGINT) is signal.default_int_handler
