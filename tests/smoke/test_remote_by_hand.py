"""A job of smoke-runs with a scheduler that is a list of answers: what a refusal leaves, how a job is ended, which
cards it asks for; and the rows and lines of a verdict. No library runs, no scheduler either."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.cluster.job import AwayError, ClusterError, State
from zerocfg.smoke import smoke, text
from zerocfg.smoke.certify.certificate_file import values_hash
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch import failure_cause
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.remote import request, submit
from zerocfg.smoke.smoke import Options

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU = Device("cpu", "cpu")


class Scheduler:
    """Answers in their order; an error among them is raised."""

    def __init__(self, *states: Any, cancels: tuple[Any, ...] = (None,), identity: Any = "17") -> None:
        self.answers, self.cancels, self.identity = list(states), list(cancels), identity
        self.cancelled: list[str] = []

    def submit(self, job: Any, folder: Path) -> str:
        assert folder.is_dir()
        return str(said(self.identity))

    def cancel(self, identity: str) -> None:
        self.cancelled.append(identity)
        said(self.cancels.pop(0))

    def states(self, identity: str, count: int) -> list[Any]:
        answer = said(self.answers.pop(0))
        assert len(answer) == count
        return [SimpleNamespace(state=item) for item in answer]


def said(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


class TestSubmit:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")

    def records(self) -> list[Path]:
        return [item.parent for item in Path.cwd().rglob("*.json")]

    def submitted(self, make_run: MakeRun, engine: Any, **options: Any) -> Any:
        given = Options(device="cpu", **options)
        return submit.submit(engine, "slurm", [make_run(3)], given, request.Wanted(), [Path("before")])

    def test_the_record_of_a_job(self, make_run: MakeRun, tmp_path: Path) -> None:
        made = self.submitted(make_run, Scheduler())
        assert (made.engine, made.identity) == ("slurm", "17")
        assert made.tasks == ({"name": "tiny", "path": str(tmp_path / "out/tiny")},)
        assert made.options == {"kind": "smoke", "nodes": 1, "sign": "", "before": [str(Path("before").resolve())]}
        assert self.records() == [made.folder]

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (AwayError("no route"), "the scheduler does not answer: no route"),
            (ClusterError("no such queue"), "no such"),
        ],
    )
    def test_a_refusal_leaves_nothing(self, error: Exception, words: str, make_run: MakeRun) -> None:
        with pytest.raises(ClusterError, match=words):
            self.submitted(make_run, Scheduler(identity=error))
        assert [item for item in Path.cwd().rglob("*") if item.is_dir() and "-" in item.name] == []


class TestCancel:
    def made(self) -> Any:
        removed: list[bool] = []
        return SimpleNamespace(identity="17", tasks=("a", "b"), remove=lambda: removed.append(True), removed=removed)

    def test_asked_once_until_all_are_over(self) -> None:
        over, running = State.CANCELLED, State.RUNNING
        engine: Any = Scheduler([running, running], [over, running], [over, State.ENDED])
        made = self.made()
        assert submit.cancel(engine, made, lambda: True)
        assert engine.cancelled == ["17"] and made.removed == [True] and engine.answers == []

    def test_asked_again_where_nobody_answered(self) -> None:
        engine: Any = Scheduler([State.GONE, State.GONE], cancels=(AwayError("x"), AwayError("x"), None))
        made = self.made()
        assert submit.cancel(engine, made, lambda: True)
        assert engine.cancelled == ["17", "17", "17"] and made.removed == [True]

    def test_an_answer_may_come_later(self) -> None:
        engine: Any = Scheduler(AwayError("x"), [State.FAILED, State.ENDED])
        assert submit.cancel(engine, self.made(), lambda: True) and engine.cancelled == ["17"]

    def test_patience_ends(self) -> None:
        waits = iter([True, True, False])
        engine: Any = Scheduler(*[[State.QUEUED, State.ENDED]] * 3)
        made = self.made()
        assert not submit.cancel(engine, made, lambda: next(waits))
        assert made.removed == [] and engine.answers == []


class TestRequest:
    @pytest.mark.parametrize(("value", "used"), [(3, 3), (1, 1), (0, 7), (-1, 7), (None, 7), ("4", 7)])
    def test_a_planned_number(self, value: object, used: int) -> None:
        run: Any = SimpleNamespace(plan={"num_machines": value})
        assert request._planned(run, "num_machines", 7) == used

    def test_the_job_takes_the_cards_of_its_largest_run(self, make_run: MakeRun) -> None:
        run = read(make_run(3))
        run.lock.hardware["vendor"] = "nvidia"
        job = request.job_of([run], Options(device="auto"), request.Wanted(), "slurm")
        assert job.cards == 2 and job.nodes == 1
        assert request.job_of([run], Options(device="auto"), request.Wanted(nodes=4), "slurm").cards == 1
        assert json.loads(job.tasks[0].program[1])["device"] == "auto"
        run.plan["num_processes"] = "auto"
        assert request.job_of([run], Options(device="auto"), request.Wanted(), "slurm").cards == 1, "not planned"

    def test_what_the_spec_says_about_slurm(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        run: Any = SimpleNamespace(
            path=Path(make_run(3)), name="tiny", lock=SimpleNamespace(spec_folder="..", source=lambda kind: "z.yaml")
        )
        assert request._target(run) is None, "the spec is gone"
        (run.path.parent / "z.yaml").write_text("x")
        slurm: Any = SimpleNamespace(partition="gpu")
        runs: dict[str, Any] = {"tiny": SimpleNamespace(targets=SimpleNamespace(slurm=slurm))}
        spec: Any = SimpleNamespace(runs=runs)
        monkeypatch.setattr(request, "read_spec", lambda path: SimpleNamespace(spec=spec))
        assert request._target(run) is slurm
        runs["tiny"].targets = None
        assert request._target(run) is None
        runs.clear()
        assert request._target(run) is None
        monkeypatch.setattr(request, "read_spec", lambda path: SimpleNamespace(spec=None))
        assert request._target(run) is None
        for folder, source in ((None, "z.yaml"), ("..", None)):
            run.lock = SimpleNamespace(spec_folder=folder, source=lambda kind, source=source: source)
            assert request._target(run) is None


class TestText:
    def row(self, name: str, further: Any = "", ok: bool | None = True) -> Check:
        return Check(name, "1", "1", ok, further)

    def verdict(self, make_run: MakeRun, tmp_path: Path, checks: list[Check], **ended: Any) -> Verdict:
        run = read(make_run(3))
        found = Verdict(run, CPU, reduce(run, CPU, 2, tmp_path), Outcome([{"losses": [4.0]}], **ended), checks)
        found.expected = "nothing was predicted"
        return found

    def names(self, verdict: Verdict) -> list[str]:
        return [" ".join(line.split()) for line in text.table(verdict, 200)]

    def test_further_settings_follow_those_of_the_engine(self, make_run: MakeRun, tmp_path: Path) -> None:
        checks = [self.row("stage"), self.row("device"), self.row("x", "acting"), self.row("saved"), self.row("end")]
        lines = self.names(self.verdict(make_run, tmp_path, checks))
        wanted = ("stage 1", "device 1", "1 further setting as planned read where they act ok", "saved 1", "end 1")
        at = [next(n for n, line in enumerate(lines) if line.startswith(word)) for word in wanted]
        assert at == list(range(at[0], at[0] + 5))

    def test_without_the_device_they_come_last(self, make_run: MakeRun, tmp_path: Path) -> None:
        checks = [self.row("saved"), self.row("end"), self.row("x", "parsed"), self.row("y", "parsed")]
        lines = self.names(self.verdict(make_run, tmp_path, checks))
        assert lines[-3:] == ["saved 1 1 ok", "end 1 1 ok", "2 further settings as planned as parsed ok"]

    def test_a_further_one_that_failed_has_a_row(self, make_run: MakeRun, tmp_path: Path) -> None:
        checks = [self.row("device"), self.row("x", "acting", ok=False), self.row("y", "unseen", None), self.row("end")]
        lines = self.names(self.verdict(make_run, tmp_path, checks))
        assert lines[-4:] == [
            "device 1 1 ok",
            "x 1 1 FAIL",
            "1 further setting as planned not observable",
            "end 1 1 ok",
        ]
        assert self.names(SimpleNamespace(checks=[])) == []  # type: ignore[arg-type]

    def test_the_failure_and_its_rank(self, make_run: MakeRun, tmp_path: Path) -> None:
        verdict = self.verdict(make_run, tmp_path, [self.row("device")], failure="it broke", rank=0, detail=["line 3"])
        assert "\n\nThe run failed (rank 0): it broke\n  line 3\n" in text.render(verdict)
        verdict.outcome.rank = None
        assert "\n\nThe run failed: it broke\n" in text.render(verdict)
        verdict.outcome.failure = None
        assert "The run failed" not in text.render(verdict)


def test_the_folder_of_keep(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    assert smoke._kept_in(deep) == deep and deep.is_dir()
    assert smoke._kept_in(deep) == deep, "one that is there is taken"
    assert smoke._kept_in(None) is None
    (tmp_path / "file").write_text("x")
    with pytest.raises(SmokeError, match=r"cannot create the folder of --keep: .*file.*: "):
        smoke._kept_in(tmp_path / "file")


def test_an_interruption_comes_before_what_it_broke() -> None:
    error = {"type": "RuntimeError", "text": "lost a partner", "time": 1.0, "traceback": []}
    reports: list[Any] = [{"rank": 0, "error": error}]
    seen = failure_cause.Seen(reports, 1, "", None, Path("s"), interrupted=True, vanished=0)
    found = failure_cause.find(seen)
    assert found is not None and (found.kind, found.text, found.rank) == ("interrupted", "interrupted", None)


def test_a_hash_of_values_alone() -> None:
    def hashed(**content: Any) -> str:
        lock: Any = SimpleNamespace(content=content)
        return values_hash(lock)

    plain = hashed(settings={"a": {"value": 1, "why": "x"}}, plan={"b": 2})
    assert plain == hashed(plan={"b": 2}, settings={"a": {"why": "y", "value": 1}}), "neither reasons nor the order"
    assert plain != hashed(settings={"a": {"value": 2, "why": "x"}}, plan={"b": 2})
    assert plain != hashed(settings={"a": {"value": 1, "why": "x"}}, plan={"b": 3})
    assert len(plain) == 64
    said = '{"plan": {"b": "\u00fc"}, "settings": {"a": 1}}'
    assert hashed(settings={"a": {"value": 1}}, plan={"b": "\u00fc"}).endswith(
        hashlib.sha256(said.encode()).hexdigest()
    )
