"""A smoke-run on a cluster, each step from the words of the step before: what is sent, what a node says, what is made
of it. Neither a scheduler nor a library runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.recorded_calls import Log, logged
from zerocfg.cluster.job import State, TaskState
from zerocfg.cluster.submission import Submission
from zerocfg.cluster.wait import Progress
from zerocfg.smoke.certify.certificate_file import CertificateError
from zerocfg.smoke.certify.signature import SignatureError
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.remote import gather, node, request, submit
from zerocfg.smoke.remote.gather import RemoteResult
from zerocfg.smoke.smoke import Options

if TYPE_CHECKING:
    from .conftest import MakeRun


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return read(make_run(3))


def verdict(passed: Any = True, **more: Any) -> dict[str, Any]:
    return {"event": "verdict", "passed": passed, "text": "table", "data": {"a": 1}} | more


def progress(*verdicts: dict[str, Any], hosts: tuple[str, ...] = (), state: State = State.ENDED) -> Progress:
    return Progress(TaskState(state), hosts, {number: [item] for number, item in enumerate(verdicts)})


class TestGather:
    def gathered(self, run: RunFolder, *verdicts: dict[str, Any], **more: Any) -> RemoteResult:
        return gather.gather(run, progress(*verdicts, **more), len(verdicts))

    def test_one_node(self, run: RunFolder) -> None:
        passed = self.gathered(run, verdict())
        assert passed == RemoteResult(run.path, "tiny", "passed", None, "table", {"a": 1}, ()) and passed.passed
        failed = self.gathered(run, verdict(False, data={"verdict": "incomplete"}))
        assert failed == RemoteResult(run.path, "tiny", "incomplete", None, "table", {"verdict": "incomplete"}, ())
        assert not failed.passed
        odd = self.gathered(run, verdict(False, text=7, data=[1]))
        assert (odd.state, odd.text, odd.data, odd.notes) == ("failed", "", {}, ())

    def test_of_two_the_one_that_tells_is_named(self, run: RunFolder) -> None:
        far = verdict(False, text="far", data={"failure": {"rank": 1}})
        found = self.gathered(run, verdict(), far, hosts=("n1",))
        assert (found.text, found.notes, found.state) == ("far", ("this is what node 1 says",), "failed")
        near = verdict(False, text="near", data={"failure": {"rank": 0}})
        assert self.gathered(run, near, verdict(), hosts=("n1",)).notes == ("this is what n1 says",)
        assert self.gathered(run, verdict(), verdict()).notes == ()

    def test_the_certificate_is_that_of_the_node_that_tells(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gather, "_certified", lambda run, text, key: (f"{text} {key}",))
        first, second = verdict(certificate="of 0"), verdict(certificate="of 1")
        key = Path("/k")
        assert gather.gather(run, progress(first, second), 2, key).notes == ("of 0 /k",)
        failed = verdict(False, data={"failure": {"rank": 1}}, certificate="of 1")
        assert gather.gather(run, progress(first, failed), 2, key).notes == ("this is what node 1 says",)

    def test_what_is_no_true_is_no_pass(self, run: RunFolder) -> None:
        found = self.gathered(run, verdict(), verdict("yes", text="odd"))
        assert (found.text, found.state) == ("odd", "failed")

    def test_without_a_verdict(self, run: RunFolder) -> None:
        found = gather.gather(run, progress(verdict(), state=State.CANCELLED), 1)
        assert found == RemoteResult(run.path, "tiny", problem="the job was cancelled")
        assert gather.gather(run, progress(verdict()), 2).problem == "number 1 never started the smoke-run"
        assert gather.gather(run, progress(), 2).problem == "the smoke-run never started"

    def test_what_a_certificate_said_before(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        found = SimpleNamespace(result=SimpleNamespace(data=lambda: {"b": 2}))
        monkeypatch.setattr(gather.certificate_file, "read", {run.path / "smoke.json": found}.__getitem__)
        monkeypatch.setattr(gather, "is_certified", lambda item: item is run)
        assert gather.certified(run) == RemoteResult(run.path, "tiny", "passed", data={"b": 2}, earlier=True)
        assert gather.certified(replace(run)) is None


class TestCertificate:
    @pytest.fixture
    def made(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Any:
        def write(text: object = "{}", key: Path | None = None, **more: Any) -> tuple[tuple[str, ...], Log]:
            log: Log = []
            found = {"result": "r", "steps": None, "versions": {"torch": "2"}, "files": dict(run.hashes)} | more
            parsed = found.pop("parsed", SimpleNamespace(**found))
            monkeypatch.setattr(gather.certificate_file, "parse", logged(log, "parse", parsed))
            monkeypatch.setattr(
                gather.certificate_file, "write", logged(log, "write", more.get("written", Path("/c.json")))
            )
            monkeypatch.setattr(gather, "sign", logged(log, "sign", more.get("signed")))
            monkeypatch.setattr(gather, "code_hashes", lambda path, lock: {"code": f"{path.name} {lock is run.lock}"})
            return gather._certified(run, text, key), log

        return write

    def test_it_is_written_beside_the_build(self, run: RunFolder, made: Any) -> None:
        notes, log = made("text", steps=7)
        assert notes == ("certificate: /c.json",) and log[0] == ("parse", b"text")
        bound = {"versions": {"torch": "2"}, "files": run.hashes, "lock": run.lock, "code": {"code": "tiny True"}}
        assert log[1:] == [("write", run.path, "r", ("steps", 7), *bound.items())]
        assert made()[1][1][3] == ("steps", 0)

    def test_none_was_made(self, made: Any) -> None:
        assert made(None) == ((), []) == made(7)

    def test_a_key_signs_it(self, made: Any) -> None:
        notes, log = made(key=Path("/k"))
        assert notes == ("certificate: /c.json",) and log[-1] == ("sign", Path("/c.json"), Path("/k"))
        notes, _ = made(key=Path("/k"), signed=SignatureError("no agent"))
        assert notes == ("certificate: /c.json", "not signed, no agent")

    def test_what_cannot_be_taken(self, run: RunFolder, made: Any) -> None:
        notes, _ = made(parsed=CertificateError("is none"))
        assert notes == ("certificate: not written, what the node made is none",)
        notes, log = made(files={**run.hashes, "launch.sh": "other"})
        assert notes == ("certificate: not written, launch.sh is not the file that ran",) and len(log) == 1
        notes, _ = made(written=PermissionError(13, "Permission denied"))
        assert notes == (f"certificate: not written, {run.path}: Permission denied",)


class TestNode:
    ASKED = node.Request("runs/0/tiny", 2, 3, "cuda", 5, 60.0, 7, "/keep", 90)

    def test_options_of_a_request(self) -> None:
        wanted = Options(ranks=3, device="cuda", steps=5, limit=60.0, memory_limit=7, keep=Path("/keep"), nodes=2)
        assert self.ASKED.options() == wanted
        assert replace(self.ASKED, keep=None).options() == replace(wanted, keep=None)

    @pytest.fixture
    def play(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def played(reports: Any = (), error: Exception | None = None, **more: Any) -> tuple[bool, Log]:
            log: Log = []
            outcome = SimpleNamespace(interrupted=True, kind="killed", reports=reports)
            found = SimpleNamespace(certificate=more.get("certificate"), passed=more.get("passed", True))
            found.outcome = outcome

            def smoke(path: Path, options: Options, say: Any) -> Any:
                say("init")
                assert path == Path("runs/0/tiny") and options == self.ASKED.options()
                if error is not None:
                    raise error
                return found

            monkeypatch.setattr(node, "smoke", smoke)
            monkeypatch.setattr(node, "render", lambda verdict, width: f"{verdict.certificate} {width}")
            monkeypatch.setattr(node, "data", lambda verdict: {"passed": verdict.passed})
            words = [json.dumps(vars(self.ASKED)), "other"]
            return node.run(words, lambda event, **named: log.append((event, named))), log

        return played

    def test_a_verdict(self, play: Any, tmp_path: Path) -> None:
        (tmp_path / "c.json").write_text("\u00fc", encoding="utf-8")
        reports = [{"error": {"time": 5.0}}, {}, {"error": {"time": 3.0}}]
        passed, log = play(reports, certificate=tmp_path / "c.json")
        assert passed is True and log[0] == ("phase", {"text": "init"})
        told = {"passed": True, "interrupted": True, "cause": "killed", "failed_at": 3.0, "text": "None 90"}
        assert log[1:] == [("verdict", {**told, "data": {"passed": True}, "certificate": "\u00fc"})]

    def test_one_without_errors_and_certificate(self, play: Any) -> None:
        passed, log = play([{}], passed=False)
        assert passed is False and log[1][1]["failed_at"] is None and log[1][1]["certificate"] is None

    def test_what_could_not_be_tried(self, play: Any) -> None:
        assert play(error=SmokeError("no card")) == (
            False,
            [("phase", {"text": "init"}), ("problem", {"text": "no card"})],
        )


class TestRequest:
    @pytest.fixture
    def runs(self, run: RunFolder) -> list[RunFolder]:
        """Two builds whose folders are called alike."""
        lock = replace(run.lock, run="second", plan=dict(run.plan), hardware={"vendor": "nvidia"})
        run.lock.hardware["vendor"] = "nvidia"
        return [run, replace(run, lock=lock)]

    def test_a_task_for_each(self, runs: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slurm: Any = SimpleNamespace(partition="gpu", account=None, qos=None, options=("-x",), setup=["module load a"])
        monkeypatch.setattr(request, "_target", lambda run: slurm)
        runs[1].plan["num_processes"] = 1
        runs[0].plan["num_machines"] = runs[1].plan["num_machines"] = 2
        options = Options(device="auto", limit=90.7, keep=tmp_path / "k", ranks=None, memory_limit=5, steps=4)
        job = request.job_of(runs, options, request.Wanted(extra=("--y",), width=70), "slurm")
        assert (job.name, job.nodes, job.seconds, job.cards) == ("zerocfg-smoke", 2, 90, 2)
        assert job.options == ("--partition=gpu", "-x", "--y") and job.setup == ("module load a",)
        asked = [json.loads(task.program[1]) for task in job.tasks]
        assert [task.name for task in job.tasks] == ["tiny", "second"]
        assert {task.program[0] for task in job.tasks} == {"zerocfg.smoke.remote.node"}
        sent = node.Request("runs/0/tiny", 2, None, "auto", 4, 90.7, 5, str(tmp_path / "k"), 70)
        assert asked == [vars(sent), vars(replace(sent, folder="runs/1/tiny"))]
        names = ("accelerate.yaml", "ds_config.json", "launch.sh", "zerocfg.lock")
        assert sorted(job.files) == [f"runs/{number}/tiny/{name}" for number in (0, 1) for name in names]

    def test_another_scheduler_is_told_no_words_of_slurm(
        self, runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request, "_target", lambda run: pytest.fail("only for slurm"))
        job = request.job_of(runs[:1], Options(device="cpu"), request.Wanted(), "local")
        assert (job.options, job.setup, job.nodes, job.cards) == ((), (), 1, 0)

    def test_builds_for_other_numbers_of_nodes(self, runs: list[RunFolder]) -> None:
        runs[1].plan["num_machines"] = 2
        with pytest.raises(SmokeError, match=r"nodes of tiny is 1, of second 2 \(--nodes\)"):
            request.job_of(runs, Options(device="cpu"), request.Wanted(), "local")
        assert request.job_of(runs, Options(device="cpu"), request.Wanted(nodes=3), "local").nodes == 3


class TestSubmit:
    def made(self, folder: Path, **options: Any) -> Submission:
        tasks = ({"name": "a", "path": str(folder / "a")}, {"name": "b", "path": str(folder / "b")})
        return Submission("slurm", "7", tasks, {"nodes": 2, "sign": "/key", **options}, folder / "job")

    def test_a_key_travels_with_the_record(
        self, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        engine: Any = SimpleNamespace(submit=lambda job, folder: "7")
        options = Options(device="cpu", sign=Path("key"))
        made = submit.submit(engine, "slurm", [make_run(3)], options, request.Wanted(), [])
        assert made.options == {"kind": "smoke", "nodes": 1, "sign": str(tmp_path / "key"), "before": []}
        assert json.loads((made.folder / "submission.json").read_text())["identity"] == "7"

    def test_a_task_is_gathered_as_it_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        made = self.made(tmp_path)
        removed: list[Path] = []
        monkeypatch.setattr(submit.records, "discard", removed.append)
        results = [RemoteResult(tmp_path, name) for name in ("a", "b")]

        def follow(engine: Any, identity: str, tasks: Any, folder: Path, *, look: Any, ended: Any) -> None:
            log.append((engine, identity, len(tasks), folder, look("away")))
            ended(1)
            ended(0)

        def gathered(made: Any, number: int, task: Any, nodes: int, sign: object) -> RemoteResult:
            log.append((number, isinstance(task, Progress), nodes, sign))
            return results[number]

        monkeypatch.setattr(submit, "follow", follow)
        monkeypatch.setattr(submit, "_gathered", gathered)
        seen: list[RemoteResult] = []
        looks: list[Any] = []

        def look(tasks: list[Progress], words: str) -> bool:
            looks.append((len(tasks), words))
            return True

        engine: Any = "engine"
        assert submit.gather_all(engine, made, look=look, ended=seen.append) == results
        assert log == [("engine", "7", 2, made.folder, True), (1, True, 2, "/key"), (0, True, 2, "/key")]
        assert seen == [results[1], results[0]] and looks == [(2, "away")] and removed == [made.folder]
        log.clear()
        submit.gather_all(engine, replace(made, options={"sign": ""}), look=look, ended=seen.append)
        assert log[1] == (1, True, 1, ""), "an older record"

    def test_what_explains_a_failure_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = self.made(tmp_path)
        made.folder.mkdir()
        results = [RemoteResult(tmp_path, "a"), RemoteResult(tmp_path, "b", problem="p")]
        monkeypatch.setattr(submit, "follow", lambda *words, look, ended: [ended(0), ended(1)])
        monkeypatch.setattr(submit, "_gathered", lambda made, number, *rest: results[number])
        engine: Any = None
        assert submit.gather_all(engine, made, look=lambda *words: True, ended=lambda item: None) == results
        record = json.loads((made.folder / "submission.json").read_text())
        assert record["options"] == {"nodes": 2, "sign": "/key", "gathered": True}

    def test_one_task(self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        result = RemoteResult(run.path, "tiny")
        monkeypatch.setattr(submit, "gather", logged(log, "gather", result))
        tasks = ({"name": "a", "path": str(run.path)}, {"name": "b", "path": str(tmp_path / "gone")})
        made = replace(self.made(tmp_path), tasks=tasks)
        task = Progress()
        for sign, key in (("/key", Path("/key")), ("", None), (None, None), (7, None)):
            assert submit._gathered(made, 0, task, 2, sign) is result
            name, folder, *rest = log.pop()
            assert (name, folder.path, rest) == ("gather", run.path, [task, 2, key])
        found = submit._gathered(made, 1, task, 2, "")
        problem = f"there is no folder or file '{tmp_path / 'gone'}'"
        assert found == RemoteResult(tmp_path / "gone", "b", problem=problem) and log == []

    def test_those_that_were_certified_before(
        self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = RemoteResult(run.path, "tiny", "passed", earlier=True)
        monkeypatch.setattr(submit, "certified", lambda item: result if item.path == run.path else None)
        other = tmp_path / "other"
        other.mkdir()
        for name in ("zerocfg.lock", "accelerate.yaml", "ds_config.json", "launch.sh"):
            (other / name).write_bytes((run.path / name).read_bytes())
        paths = [str(run.path), str(other), str(tmp_path / "gone")]
        assert submit.earlier(self.made(tmp_path, before=paths)) == [result]
        assert submit.earlier(self.made(tmp_path)) == [] == submit.earlier(self.made(tmp_path, before="x"))

    def test_the_end_is_asked_for_once(self) -> None:
        log: Log = []
        states = iter([[State.RUNNING], [State.ENDED]])
        engine: Any = SimpleNamespace(
            cancel=logged(log, "cancel"),
            states=lambda identity, count: [SimpleNamespace(state=item) for item in next(states)],
        )
        made: Any = SimpleNamespace(identity="7", tasks=("a",), remove=logged(log, "remove"))
        assert submit.cancel(engine, made, lambda: True) is True and log == [("cancel", "7"), ("remove",)]
        states = iter([[State.RUNNING]])
        log.clear()
        assert submit.cancel(engine, made, lambda: False) is False and log == [("cancel", "7")]
