"""The zygote and the Python that stands for it, each step on its own: what is asked, answered, closed, killed and put
in place. The system is a list of calls here; `test_warm_launches.py` plays real processes."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.recorded_calls import Log, logged
from zerocfg.smoke.launch.warm import interpreter, zygote

if TYPE_CHECKING:
    from collections.abc import Iterator


class EndedError(BaseException):
    """The process would have ended, or become another program, here."""


class Connection:
    def __init__(self, log: Log, name: str) -> None:
        self.log, self.name = log, name

    def close(self) -> None:
        self.log.append(("close", self.name))

    def __repr__(self) -> str:
        return self.name


class Selector:
    """Gives the rounds of events that a test lists, by what was registered."""

    def __init__(self, log: Log, *rounds: Any) -> None:
        self.log, self.rounds, self.map = log, list(rounds), {}
        self.watched: list[int] = []

    def register(self, what: Any, events: int, data: tuple[str, int]) -> None:
        self.map[what] = SimpleNamespace(fileobj=what, fd=what, data=data)

    def unregister(self, what: Any) -> None:
        del self.map[what]

    def select(self) -> list[tuple[Any, int]]:
        self.watched.append(len(self.map))
        return [(self.map[item], 1) for item in self.rounds.pop(0)]

    def get_map(self) -> dict[Any, Any]:
        return self.map

    def close(self) -> None:
        self.log.append(("close", "selector"))


class TestServe:
    """What the zygote does with one event after the other. Process 7 has handle 1007, process 8 handle 1008."""

    @pytest.fixture
    def serve(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        def played(
            *rounds: Any, forks: tuple[int, ...] = (7, 8), refused: bool = False, requests: Any = None
        ) -> tuple[Any, Log, Selector]:
            log: Log = []
            first, second = Connection(log, "first"), Connection(log, "second")
            connections, children = iter([first, second]), iter(forks)
            listening: Any = Connection(log, "listening")
            listening.accept = lambda: (next(connections), None)
            asked = iter(requests or [{"files": [5, 6, 4]}, {"files": [15, 16, 14]}])
            places = {"ask": listening, "first": first, "second": second}
            selector = Selector(log, *[[places.get(item, item) for item in some] for some in rounds])
            monkeypatch.setattr(zygote.selectors, "DefaultSelector", lambda: selector)
            system = {"setsid": logged(log, "setsid"), "close": logged(log, "close")}
            system |= {"pidfd_open": lambda process: 1000 + process, "waitpid": logged(log, "wait", (7, 3 << 8))}
            system |= {"waitstatus_to_exitcode": os.waitstatus_to_exitcode}
            monkeypatch.setattr(zygote, "os", SimpleNamespace(**system))
            monkeypatch.setattr(zygote, "receive", lambda connection: next(asked))
            monkeypatch.setattr(zygote, "send_answer", lambda item, answer: log.append(("send", item.name, answer)))
            monkeypatch.setattr(zygote, "kill", logged(log, "kill"))
            monkeypatch.setattr(zygote, "fork", lambda: next(children))
            return zygote.serve(listening, lambda request: refused), log, selector

        return played

    ASKED = (("close", 5), ("close", 6), ("close", 4), ("send", "first", 7))

    def test_a_program_from_its_request_to_its_end(self, serve: Any) -> None:
        found, log, selector = serve(["ask"], [1007], [0])
        ended = [("close", 1007), ("wait", 7, 0), ("send", "first", 3), ("close", "first")]
        assert found is None and log == [*self.ASKED, *ended]
        assert len(selector.map) == 2, "the end and the requests"

    def test_one_whose_side_is_gone_is_killed_and_ends_then(self, serve: Any) -> None:
        found, log, selector = serve(["ask"], ["first"], [1007], [0])
        ended = [("kill", 7), ("close", 1007), ("wait", 7, 0), ("send", "first", 3), ("close", "first")]
        assert found is None and log == [*self.ASKED, *ended] and len(selector.map) == 2
        assert selector.watched == [2, 4, 3, 2], "it is heard once that the side is gone"

    def test_at_the_end_all_that_run_are_killed(self, serve: Any) -> None:
        second = [("close", 15), ("close", 16), ("close", 14), ("send", "second", 8)]
        found, log, _ = serve(["ask"], ["ask"], [0])
        assert found is None and log == [*self.ASKED, *second, ("kill", 7), ("kill", 8)]

    def test_a_refused_program_is_told_so(self, serve: Any) -> None:
        found, log, selector = serve(["ask"], [0], refused=True, forks=())
        assert found is None and len(selector.map) == 2
        assert log == [("send", "first", "fresh"), *self.ASKED[:3], ("close", "first")]

    def test_no_whole_request(self, serve: Any) -> None:
        found, log, selector = serve(["ask"], ["ask"], [0], requests=[None, {"files": [1, 2, 3]}], forks=(8,))
        assert found is None and log[0] == ("close", "first") and ("send", "second", 8) in log
        assert len(selector.map) == 4, "the end, the requests, and the second program with its connection"

    def test_where_no_further_process_is_allowed(self, serve: Any) -> None:
        found, log, selector = serve(["ask"], [0], forks=(-1,))
        assert found is None and log == [*self.ASKED[:3], ("close", "first")] and len(selector.map) == 2

    def test_the_new_process_keeps_nothing_of_the_zygotes(self, serve: Any) -> None:
        found, log, _ = serve(["ask"], ["ask"], forks=(7, 0))
        assert found == {"files": [15, 16, 14]}, "its own three files stay open"
        closed = [("close", "first"), ("close", "second"), ("close", 1007), ("close", "selector")]
        assert log == [*self.ASKED, ("setsid",), *closed]


def test_a_process_more_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "os", SimpleNamespace(fork=lambda: 41))
    assert zygote.fork() == 41
    monkeypatch.setattr(zygote, "os", SimpleNamespace(fork=logged([], "fork", BlockingIOError(11, "again"))))
    assert zygote.fork() == -1


class Recorded(socket.socket):
    times: list[float | None]

    def settimeout(self, value: float | None) -> None:
        self.times.append(value)
        super().settimeout(value)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Recorded]]:
    item, other = socket.socketpair()
    end = Recorded(fileno=other.detach())
    end.times = []
    with item, end:
        yield item, end


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


class TestReceive:
    @pytest.mark.parametrize(("files", "whole"), [(3, True), (2, False), (1, False)])
    def test_a_request_has_three_files(self, pair: Any, files: int, whole: bool) -> None:
        body, before = json.dumps({"words": ["a.py"], "folder": "\u00fc" * 300}).encode(), handles()
        with open(os.devnull) as null:  # noqa: PTH123
            socket.send_fds(pair[0], [len(body).to_bytes(4, "big")], [null.fileno()] * files)
        pair[0].sendall(body)
        found = zygote.receive(pair[1])
        assert (found is not None) is whole and pair[1].times == [5.0, None]
        if found is not None:
            assert found["words"] == ["a.py"] and found["folder"] == "\u00fc" * 300 and len(found["files"]) == 3
            for handle in found["files"]:
                assert os.fstat(handle).st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116
                os.close(handle)
        assert handles() == before, "those of a request that is not whole are closed"

    @pytest.mark.parametrize("body", [b"[]", b"3", b"null", b'"words"'])
    def test_what_is_no_request_leaves_no_file_open(self, pair: Any, body: bytes) -> None:
        before = handles()
        with open(os.devnull) as null:  # noqa: PTH123
            socket.send_fds(pair[0], [len(body).to_bytes(4, "big")], [null.fileno()] * 3)
        pair[0].sendall(body)
        assert zygote.receive(pair[1]) is None and handles() == before

    @pytest.mark.parametrize("body", [b"", b'{"words": ', b"no json"])
    def test_what_does_not_come_whole_leaves_no_file_open(self, pair: Any, body: bytes) -> None:
        before = handles()
        with open(os.devnull) as null:  # noqa: PTH123
            socket.send_fds(pair[0], [(20).to_bytes(4, "big")], [null.fileno()] * 3)
        pair[0].sendall(body)
        pair[0].shutdown(socket.SHUT_WR)
        assert zygote.receive(pair[1]) is None and handles() == before


def test_an_answer_is_a_line_and_may_be_unheard(pair: Any) -> None:
    zygote.send_answer(pair[1], 12)
    zygote.send_answer(pair[1], "fresh")
    assert pair[0].recv(100) == b"12\nfresh\n"
    pair[0].close()
    zygote.send_answer(pair[1], 12)


@pytest.mark.parametrize("gone", [None, ProcessLookupError()])
def test_the_group_is_killed_and_the_process_that_may_have_none_yet(gone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = []
    monkeypatch.setattr(zygote, "os", SimpleNamespace(killpg=logged(log, "group", gone), kill=logged(log, "one", gone)))
    zygote.kill(7)
    assert log == [("group", 7, signal.SIGKILL), ("one", 7, signal.SIGKILL)]


class TestEnvironment:
    def test_the_memory_that_the_kernel_shows(self) -> None:
        start, size = zygote.environment_room()
        assert size == len(Path("/proc/self/environ").read_bytes()) > 0 and start > 0

    def test_what_is_shown_fills_the_room(self) -> None:
        assert zygote.as_block({"A": "1", "\u00fc": "b=c"}) == b"A=1\0\xc3\xbc=b=c\0" and zygote.as_block({}) == b""
        memory = ctypes.create_string_buffer(b"x" * 24, 24)
        zygote.show({"A": "1"}, (ctypes.addressof(memory), 20))
        assert memory.raw == b"A=1" + bytes(17) + b"xxxx"

    def test_names_that_are_read_are_recorded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZYGOTE_THERE", "1")
        kind = type(os.environ)
        before = kind.__getitem__, kind.__contains__
        with zygote.recorded_reads() as names:
            assert os.environ["ZYGOTE_THERE"] == "1" and "ZYGOTE_THERE" in os.environ
            assert "ZYGOTE_ASKED" not in os.environ and os.environ.get("ZYGOTE_GOT") is None
        assert names == {"ZYGOTE_THERE", "ZYGOTE_ASKED", "ZYGOTE_GOT"}
        assert (kind.__getitem__, kind.__contains__) == before and os.environ.get("ZYGOTE_AFTER") is None
        assert "ZYGOTE_AFTER" not in names

    @pytest.mark.parametrize(
        ("asked", "started", "differs"),
        [
            ({"A": "1"}, {"A": "1"}, False),
            ({"A": "1"}, {"A": "2"}, False),  # nothing has read it
            ({"READ": "1"}, {"READ": "2"}, True),
            ({}, {"READ": "2"}, True),
            ({"READ": "2"}, {"READ": "2"}, False),
            ({"OMP_X": "1"}, {}, True),
            ({}, {"CUDA_X": "1"}, True),
            ({"OMP_X": "1"}, {"OMP_X": "1"}, False),
            ({"PATH": "1"}, {"PATH": "2"}, False),
            ({"PYTHONPATH": "/nowhere"}, {}, False),
            ({}, {"PYTHONPATH": "/nowhere"}, True),
        ],
    )
    def test_an_import_may_have_been_another(self, asked: Any, started: Any, differs: bool) -> None:
        assert zygote.differs({"environment": asked}, started, {"READ", "PATH"}) is differs

    def test_why_is_written_into_the_log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        monkeypatch.setattr(zygote, "print", logged(log, "print"), raising=False)
        zygote.differs({"environment": {"OMP_X": "1", "MKL_X": "1"}}, {"LD_X": "1"}, set())
        assert log == [("print", "refused, other variables:", "LD_X", "MKL_X", "OMP_X", ("flush", True))]
        (tmp_path / "json.py").write_text("")
        assert not zygote.same_libraries(str(tmp_path), "")
        assert log[1:] == [("print", "refused, another copy of a library in", str(tmp_path), ("flush", True))]

    @pytest.mark.parametrize(
        ("asked", "own", "same"),
        [
            ("/a:/b", "/a:/b", True),
            ("/b:/a", "/a:/b", False),
            ("/new:/a::/b", "/a:/b", True),
            ("/a", "/a:/b", False),
            ("", "", True),
        ],
    )
    def test_folders_in_the_same_order(self, asked: str, own: str, same: bool) -> None:
        assert zygote.same_libraries(asked, own) is same

    @pytest.mark.parametrize(
        ("name", "same"),
        [
            ("json", False),
            ("json.py", False),
            ("json.cpython-312-x86_64-linux-gnu.so", False),
            ("json.yaml", True),
            ("jsonx.py", True),
            ("sitecustomize.py", True),
            ("usercustomize.py", True),
        ],
    )
    def test_a_folder_with_a_copy_of_what_is_imported(self, name: str, same: bool, tmp_path: Path) -> None:
        (tmp_path / name).write_text("")
        assert zygote.same_libraries(str(tmp_path), "") is same
        assert zygote.same_libraries(str(tmp_path), str(tmp_path)), "the zygote had it, too"

    @pytest.mark.parametrize(
        ("name", "imported"), [("a", True), ("a.py", True), ("a.pyc", True), ("a.so", True), ("a.yaml", False)]
    )
    def test_what_python_takes_for_a_module(self, name: str, imported: bool) -> None:
        assert zygote.can_be_imported(name) is imported


class TestCuda:
    def asked(
        self, monkeypatch: pytest.MonkeyPatch, ready: bool = False, bad: bool = False, child: int = 77, status: int = 0
    ) -> tuple[str, Log]:
        log: Log = []
        cuda = SimpleNamespace(is_initialized=lambda: ready, _is_in_bad_fork=lambda: bad)
        monkeypatch.setattr(zygote, "sys", SimpleNamespace(modules={"torch": SimpleNamespace(cuda=cuda)}))
        system = {"fork": lambda: child, "_exit": logged(log, "exit", EndedError())}
        system["waitpid"] = logged(log, "wait", (child, status))
        monkeypatch.setattr(zygote, "os", SimpleNamespace(**system))
        return zygote.initialised_cuda(), log

    def test_a_fork_says_whether_the_driver_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.asked(monkeypatch) == ("", [("wait", 77, 0)])
        assert self.asked(monkeypatch, status=256)[0] == "importing the libraries has started CUDA's runtime"
        assert self.asked(monkeypatch, ready=True) == ("importing the libraries has initialised CUDA", [])

    @pytest.mark.parametrize(("bad", "code"), [(True, 1), (False, 0)])
    def test_what_the_fork_answers(self, bad: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        monkeypatch.setattr(zygote, "os", SimpleNamespace(fork=lambda: 0, _exit=logged(log, "exit", EndedError())))
        cuda = SimpleNamespace(is_initialized=lambda: False, _is_in_bad_fork=lambda: bad)
        monkeypatch.setattr(zygote, "sys", SimpleNamespace(modules={"torch": SimpleNamespace(cuda=cuda)}))
        with pytest.raises(EndedError):
            zygote.initialised_cuda()
        assert log == [("exit", code)]

    def test_an_open_driver(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        driver = tmp_path / "nvidia-uvm"
        driver.write_text("")
        monkeypatch.setattr(zygote, "DRIVER", str(driver))
        with driver.open():
            assert self.asked(monkeypatch) == (f"importing the libraries has opened {driver}", [])
        assert self.asked(monkeypatch)[0] == ""

    def test_without_torch_nothing_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(zygote, "sys", SimpleNamespace(modules={}))
        monkeypatch.setattr(zygote, "os", SimpleNamespace())
        assert zygote.initialised_cuda() == ""


class Stream(io.StringIO):
    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.through: bool | None = None
        self.flushed, self.broken = 0, broken

    def reconfigure(self, write_through: bool | None = None) -> None:
        self.through = write_through

    def flush(self) -> None:
        self.flushed += 1
        if self.broken:
            raise OSError(32, "Broken pipe")


class TestBecome:
    def became(self, monkeypatch: pytest.MonkeyPatch, words: list[str], **more: Any) -> tuple[Any, Log]:
        log: Log = []

        class Environ(dict[str, str]):
            def clear(self) -> None:
                log.append(("clear",))
                super().clear()

            def update(self, other: Any) -> None:  # type: ignore[override]
                log.append(("update",))
                super().update(other)

        environ = Environ(OLD="1", PYTHONPATH="/old")
        system: dict[str, Any] = {"environ": environ, "pathsep": ":", "getcwd": lambda: "/now"}
        system |= {name: logged(log, name) for name in ("dup2", "close", "chdir")}
        monkeypatch.setattr(zygote, "os", SimpleNamespace(**system))
        modules = {"sitecustomize": "old", **more.get("modules", {})}
        own: Any = SimpleNamespace(stdout=Stream(), stderr=Stream(), executable="/z", argv=[], path=["/z"])
        own.modules, own.environ = modules, environ
        monkeypatch.setattr(zygote, "sys", own)
        absent = None if more.get("custom") else ModuleNotFoundError("sitecustomize")
        loader = {"invalidate_caches": logged(log, "caches"), "import_module": logged(log, "import", absent)}
        monkeypatch.setattr(zygote, "importlib", SimpleNamespace(**loader))
        own.temporary = SimpleNamespace(tempdir="/t")
        monkeypatch.setattr(zygote, "tempfile", own.temporary)
        monkeypatch.setattr(zygote, "environment_room", lambda: (1, 2))
        monkeypatch.setattr(zygote, "show", logged(log, "show"))
        environment = {"NEW": "2", **more.get("environment", {})}
        request = {"files": [5, 6, 4], "folder": "/f", "environment": environment, "unbuffered": more.get("u", False)}
        zygote.become(request | {"executable": "/e/python", "words": words}, ["/below"])
        return own, log

    def test_each_thing_in_its_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own, log = self.became(monkeypatch, ["/a/../b/train.py", "x"], u=True, environment={"PYTHONPATH": "/p::/q"})
        files = [("dup2", 5, 0), ("close", 5), ("dup2", 6, 1), ("close", 6), ("dup2", 4, 2), ("close", 4)]
        environment = {"NEW": "2", "PYTHONPATH": "/p::/q"}
        variables = [("clear",), ("show", environment, (1, 2)), ("update",)]
        assert log == [*files, ("chdir", "/f"), *variables, ("caches",), ("import", "sitecustomize")]
        assert own.environ == environment and own.executable == "/e/python" and own.temporary.tempdir is None
        assert own.argv == ["/a/../b/train.py", "x"] and own.path == ["/b", "/p", "/q", "/below"]
        assert (own.stdout.through, own.stderr.through) == (True, True) and own.modules == {}

    def test_a_module(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own, _ = self.became(monkeypatch, ["-m", "pack.age", "x"], custom=True)
        assert own.argv == ["pack.age", "x"] and own.path == ["/now", "/below"]
        assert (own.stdout.through, own.stderr.through) == (False, False)

    def test_random_numbers_are_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seeds: Log = []
        numpy = SimpleNamespace(random=SimpleNamespace(seed=logged(seeds, "seed")))
        own, _ = self.became(monkeypatch, ["a.py"], modules={"numpy": numpy})
        assert seeds == [("seed",)] and own.modules == {"numpy": numpy}


class TestEnd:
    def ended(
        self, monkeypatch: pytest.MonkeyPatch, raised: BaseException | None, broken: bool = False
    ) -> tuple[Any, Log]:
        log: Log = []
        own: Any = SimpleNamespace(stdout=Stream(broken), stderr=Stream(), excepthook=logged(log, "hook"))
        monkeypatch.setattr(zygote, "sys", own)
        monkeypatch.setattr(zygote, "os", SimpleNamespace(_exit=logged(log, "exit", EndedError())))
        monkeypatch.setattr(zygote, "threading", SimpleNamespace(_shutdown=logged(log, "threads")))
        monkeypatch.setattr(zygote, "atexit", SimpleNamespace(_run_exitfuncs=logged(log, "atexit")))
        with pytest.raises(EndedError):
            zygote.end(logged(log, "program", raised))
        return own, log

    @pytest.mark.parametrize(
        ("raised", "code", "said"),
        [
            (None, 0, ""),
            (SystemExit(), 0, ""),
            (SystemExit(0), 0, ""),
            (SystemExit(3), 3, ""),
            (SystemExit(-1), 255, ""),
            (SystemExit(261), 5, ""),
            (SystemExit("no such file"), 1, "no such file\n"),
        ],
    )
    def test_the_code_is_that_of_python(
        self, raised: Any, code: int, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own, log = self.ended(monkeypatch, raised)
        assert log == [("program",), ("threads",), ("atexit",), ("exit", code)]
        assert own.stderr.getvalue() == said and (own.stdout.flushed, own.stderr.flushed) == (1, 1)

    def test_what_nobody_caught_is_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        error = ValueError("x")
        own, log = self.ended(monkeypatch, error, broken=True)
        assert log[1] == ("hook", ValueError, error, error.__traceback__) and log[-1] == ("exit", 1)
        assert (own.stdout.flushed, own.stderr.flushed) == (1, 1), "the second is flushed, too"


def test_a_program_is_the_main_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = []
    runs = SimpleNamespace(run_path=logged(log, "path"), run_module=logged(log, "module"))
    modules = {"pack.age": 1, "x": 2}
    monkeypatch.setattr(zygote, "runpy", runs)
    monkeypatch.setattr(zygote, "sys", SimpleNamespace(modules=modules))
    zygote.run(["/a.py", "x"])
    zygote.run(["-m", "pack.age", "x"])
    assert log == [
        ("path", "/a.py", ("run_name", "__main__")),
        ("module", "pack.age", ("run_name", "__main__"), ("alter_sys", True)),
    ]
    assert modules == {"x": 2}, "imported as a library before"


class Variables(dict[str, str]):
    """An environment whose reads can be recorded."""


class TestMain:
    """From the start of the zygote to the first program: imports, refusals, the end."""

    def started(self, monkeypatch: pytest.MonkeyPatch, folder: Path, **more: Any) -> Any:
        log: Log = []
        heard: Any = SimpleNamespace(log=log, path=["/script", "/first", "/own", "/lib", ""])
        words = ["zygote.py", str(folder), "9", "/imports.py", more.get("mode", "same")]
        monkeypatch.setattr(zygote, "sys", SimpleNamespace(argv=words, path=heard.path, modules={}))
        monkeypatch.setattr(zygote, "print", logged([], "print"), raising=False)
        limits = {"RLIMIT_CORE": 4, "getrlimit": lambda what: (5, 7), "setrlimit": logged(log, "limit")}
        monkeypatch.setattr(zygote, "resource", SimpleNamespace(**limits))
        environ = Variables(PYTHONPATH=":/own:")
        system = {"environ": environ, "pathsep": ":", "dup2": lambda handle, at: log.append(("dup2", at))}
        monkeypatch.setattr(zygote, "os", SimpleNamespace(**system, fsencode=os.fsencode))
        monkeypatch.setattr(zygote, "runpy", SimpleNamespace(run_path=logged(log, "imports", more.get("raises"))))
        monkeypatch.setattr(zygote, "traceback", SimpleNamespace(print_exc=logged(log, "traceback")))
        monkeypatch.setattr(zygote, "initialised_cuda", lambda: more.get("cuda", ""))
        monkeypatch.setattr(zygote, "gc", SimpleNamespace(collect=logged(log, "collect"), freeze=logged(log, "freeze")))
        monkeypatch.setattr(zygote, "environment_room", lambda: (0, 32))

        class Listening:
            def __init__(self, fileno: int | None = None) -> None:
                log.append(("listen", fileno))

            def __enter__(self) -> Listening:
                return self

            def __exit__(self, *_: object) -> None:
                log.append(("closed",))

        def serve(listening: Any, refuses: Any) -> Any:
            heard.refuses = {
                name: refuses({"environment": dict(environ) | more_of})
                for name, more_of in {
                    "same": {},
                    "other": {"OMP_X": "1"},
                    "fits": {"A": "x" * (32 - len("PYTHONPATH=:/own:") - 4)},
                    "long": {"A": "x" * (32 - len("PYTHONPATH=:/own:") - 3)},
                }.items()
            }
            return more.get("request")

        monkeypatch.setattr(zygote, "socket", SimpleNamespace(socket=Listening))
        monkeypatch.setattr(zygote, "serve", serve)
        monkeypatch.setattr(zygote, "shutil", SimpleNamespace(rmtree=logged(log, "removed")))
        monkeypatch.setattr(zygote, "become", logged(log, "become"))
        monkeypatch.setattr(zygote, "end", lambda program: (log.append(("end",)), program()))
        monkeypatch.setattr(zygote, "run", logged(log, "run"))
        zygote.main()
        return heard

    BEGINNING = (("limit", 4, (0, 7)), ("dup2", 1), ("dup2", 2), ("imports", "/imports.py"))
    SERVED = (("collect",), ("freeze",), ("listen", 9), ("closed",))

    def test_it_serves_until_it_is_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.started(monkeypatch, tmp_path)
        assert found.log == [*self.BEGINNING, *self.SERVED, ("removed", tmp_path, ("ignore_errors", True))]
        assert found.path == ["/own", "/first", "/lib", ""], "its own folder is none that modules are searched in"
        assert found.refuses == {"same": False, "other": True, "fits": False, "long": True}
        assert [item.name for item in tmp_path.iterdir()] == ["log.txt"]

    def test_a_fork_becomes_the_program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        request = {"words": ["a.py"]}
        found = self.started(monkeypatch, tmp_path, request=request)
        ran = [("become", request, ["/first", "/lib", ""]), ("end",), ("run", ["a.py"])]
        assert found.log == [*self.BEGINNING, *self.SERVED, *ran]

    def test_any_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.started(monkeypatch, tmp_path, mode="any")
        assert found.refuses == {"same": False, "other": False, "fits": False, "long": True}

    @pytest.mark.parametrize(
        ("more", "refusal"),
        [
            (
                {"raises": ImportError("no such library")},
                "the libraries cannot be imported: ImportError: no such library",
            ),
            ({"raises": KeyError("a"), "cuda": "x"}, "the libraries cannot be imported: KeyError: 'a'"),
            ({"cuda": "importing has initialised CUDA"}, "importing has initialised CUDA"),
        ],
    )
    def test_why_every_program_is_refused(
        self, more: Any, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = self.started(monkeypatch, tmp_path, mode="any", **more)
        assert (tmp_path / "refused").read_text() == refusal and set(found.refuses.values()) == {True}
        assert (("traceback",) in found.log) is ("raises" in more)


class TestInterpreter:
    """The executable that stands for Python."""

    @pytest.fixture
    def play(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def played(*options: str, answers: Any = b"77\n0\n", fails: BaseException | None = None) -> Log:
            log: Log = []
            lines = io.BytesIO(answers)

            class Zygote:
                settimeout = staticmethod(logged(log, "timeout"))
                connect = staticmethod(logged(log, "connect", fails))
                sendall = staticmethod(lambda body: log.append(("request", json.loads(body))))
                recv = staticmethod(lambda size: lines.read(size))
                close = staticmethod(logged(log, "closed"))

            def send(zygote: Any, parts: list[bytes], files: list[int]) -> None:
                log.append(("files", parts[0], files))

            kinds = SimpleNamespace(socket=lambda family: Zygote(), AF_UNIX=socket.AF_UNIX, send_fds=send)
            monkeypatch.setattr(interpreter, "socket", kinds)
            masks = {name: getattr(signal, name) for name in ("SIG_BLOCK", "SIG_UNBLOCK", "SIG_DFL")}
            monkeypatch.setattr(interpreter, "signal", SimpleNamespace(**masks, pthread_sigmask=logged(log, "mask")))
            system = SimpleNamespace(
                path=os.path, getcwd=lambda: "/here", environ={"A": "1"}, execv=logged(log, "exec", EndedError())
            )
            monkeypatch.setattr(interpreter, "os", system)
            argv = [str(tmp_path / "python"), *options]
            monkeypatch.setattr(interpreter, "sys", SimpleNamespace(argv=argv, executable="/real/python"))
            monkeypatch.setattr(interpreter, "follow", lambda zygote, *rest: log.append(("follow", *rest)))
            with contextlib.suppress(EndedError):
                interpreter.main()
            return log

        return played

    @pytest.mark.parametrize(
        ("options", "words", "unbuffered"),
        [
            (("train.py", "-u"), ["train.py", "-u"], False),
            (("-m", "pack.age", "x"), ["-m", "pack.age", "x"], False),
            (("-u", "-m", "pack.age"), ["-m", "pack.age"], True),
            (("-u", "a.py"), ["a.py"], True),
        ],
    )
    def test_a_program_is_asked_for(
        self, options: Any, words: Any, unbuffered: bool, play: Any, tmp_path: Path
    ) -> None:
        request = {"executable": str(tmp_path / "python"), "words": words, "unbuffered": unbuffered}
        request |= {"folder": "/here", "environment": {"A": "1"}}
        size = len(json.dumps(request)).to_bytes(4, "big")
        assert play(*options) == [
            ("mask", signal.SIG_BLOCK, interpreter.PASSED_ON),
            ("timeout", 90.0),
            ("connect", str(tmp_path / "socket")),
            ("files", size, [0, 1, 2]),
            ("request", request),
            ("follow", 77, str(tmp_path / "refused")),
        ]

    @pytest.mark.parametrize("options", [(), ("-c", "pass"), ("-V",), ("-u",), ("-u", "-c", "pass"), ("-",)])
    def test_what_is_no_program_is_run_afresh(self, options: Any, play: Any) -> None:
        assert play(*options) == [("exec", "/real/python", ["/real/python", *options])]

    def test_once_refused_nothing_is_asked(self, play: Any, tmp_path: Path) -> None:
        (tmp_path / "refused").write_text("")
        assert play("a.py") == [("exec", "/real/python", ["/real/python", "a.py"])]

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"answers": b"fresh\n"}, None),
            ({"answers": b""}, None),
            ({"answers": b"7"}, None),  # it died within its answer
            ({"fails": ConnectionRefusedError()}, None),
            ({"fails": TimeoutError()}, "importing the libraries took more than 90 s"),
        ],
    )
    def test_where_the_zygote_does_not_start_it(self, more: Any, why: str | None, play: Any, tmp_path: Path) -> None:
        log = play("-u", "a.py", **more)
        unblocked = ("mask", signal.SIG_UNBLOCK, interpreter.PASSED_ON)
        assert log[-3:] == [("closed",), unblocked, ("exec", "/real/python", ["/real/python", "-u", "a.py"])]
        refused = tmp_path / "refused"
        assert (refused.read_text() if refused.exists() else None) == why


class TestFollow:
    @pytest.fixture
    def follow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def followed(answer: bytes, handle: Any = 1077) -> tuple[Log, dict[int, Any]]:
            log: Log = []
            handlers: dict[int, Any] = {}
            lines = io.BytesIO(answer)
            given: Any = SimpleNamespace(recv=lines.read, settimeout=logged(log, "timeout"), fileno=lambda: 3)
            system = {"kill": logged(log, "kill"), "getpid": lambda: 55, "path": os.path}
            system |= {"pidfd_open": logged([], "open", handle), "_exit": logged(log, "exit", EndedError())}
            monkeypatch.setattr(interpreter, "os", SimpleNamespace(**system))
            monkeypatch.setattr(interpreter, "select", SimpleNamespace(select=logged(log, "select")))

            def handle_by(sign: int, handler: Any) -> None:
                log.append(("default", sign)) if handler is signal.SIG_DFL else handlers.setdefault(sign, handler)

            signals = SimpleNamespace(
                signal=handle_by,
                pthread_sigmask=logged(log, "mask"),
                SIG_UNBLOCK=signal.SIG_UNBLOCK,
                SIG_DFL=signal.SIG_DFL,
            )
            monkeypatch.setattr(interpreter, "signal", signals)
            with pytest.raises(EndedError):
                interpreter.follow(given, 77, str(tmp_path / "refused"))
            return log, handlers

        return followed

    BEGAN = (("mask", signal.SIG_UNBLOCK, interpreter.PASSED_ON), ("select", [3, 1077], [], []), ("timeout", 5.0))

    @pytest.mark.parametrize(
        ("answer", "ends"),
        [
            (b"0\n", [("exit", 0)]),
            (b"1\n", [("exit", 1)]),
            (b"77\n", [("exit", 77)]),
            (b"-15\n", [("default", 15), ("kill", 55, 15), ("exit", -15)]),
            (b"-9\n", [("kill", 55, 9), ("exit", -9)]),
            (b"-1\n", [("default", 1), ("kill", 55, 1), ("exit", -1)]),
        ],
    )
    def test_it_ends_as_the_program_ended(self, answer: bytes, ends: Log, follow: Any, tmp_path: Path) -> None:
        log, handlers = follow(answer)
        assert log == [*self.BEGAN, *ends] and list(tmp_path.iterdir()) == []
        assert set(handlers) == {1, 2, 3, 10, 12, 15}, "HUP, INT, QUIT, USR1, USR2, TERM"
        handlers[10](10, None)
        assert log[-1] == ("kill", 77, 10), "to the program"

    @pytest.mark.parametrize("answer", [b"", b"-1", b"what\n"])
    def test_a_zygote_that_says_nothing_is_lost(self, answer: bytes, follow: Any, tmp_path: Path) -> None:
        log, _ = follow(answer)
        assert log == [*self.BEGAN, ("select", [1077], [], []), ("exit", 1)]
        words = "the process that imported the libraries ended, or hangs"
        assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {"refused": words, "lost": ""}

    def test_a_program_that_has_ended_already(self, follow: Any) -> None:
        log, _ = follow(b"4\n", ProcessLookupError())
        assert log == [self.BEGAN[0], self.BEGAN[2], ("exit", 4)]
