"""Around the launches: which runs there are and how each ended, how many ranks, what is kept, which releases ran, what
belongs to a run's processes. No library runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke import many, smoke
from zerocfg.smoke.judge import diagnosis
from zerocfg.smoke.launch import leftovers
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.many import Result
from zerocfg.smoke.model.certificate import Check, exit_code_of
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Reduced
from zerocfg.smoke.prepare import requested_settings
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.linked_run import linked_run
from zerocfg.smoke.smoke import Options

from .sets import GOOD

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

    from .conftest import MakeRun


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return read(make_run(3))


def ended(state: str = "passed", **more: Any) -> Any:
    outcome = Outcome([], seconds=more.pop("seconds", 7.4), **more.pop("outcome", {}))
    given = {"unmeasured": [], "checks": [], "run": SimpleNamespace(name="sft")} | more
    return SimpleNamespace(state=state, passed=state == "passed", outcome=outcome, **given)


class TestMany:
    def test_a_table_of_all(self) -> None:
        wrong = [Check("a", "1", "1", True), Check("b", "1", "2", False), Check("c", "1", "3", False)]
        results = [
            Result(Path("x"), ended()),
            Result(Path("x"), ended("failed", outcome={"failure": "it broke"}, checks=wrong)),
            Result(Path("x"), ended("failed", checks=wrong)),
            Result(Path("x"), ended("incomplete", unmeasured=["engine", "steps"])),
            Result(Path("x"), ended("failed", outcome={"failure": "Ctrl-C", "interrupted": True})),
            Result(Path("some/folder"), problem="no lock"),
        ]
        lines = [line.split()[:3] for line in many.summary(results).splitlines()]
        assert [line for line in lines if line and line[0] in ("sft", "some/folder")] == [
            *[["sft", word, "7"] for word in ("passed", "FAILED", "FAILED", "INCOMPLETE", "interrupted")],
            ["some/folder", "not", "tried"],
        ]
        assert [many._first(item) for item in results] == [
            "",
            "it broke",
            "b: planned 1, seen 2",
            "not measured: engine, steps",
            "Ctrl-C",
            "no lock",
        ]
        assert [many._word(item) for item in results][-2:] == ["interrupted", "not tried"]
        assert [item.passed for item in results] == [True] + [False] * 5
        assert [item.interrupted for item in results] == [False] * 4 + [True, False]
        assert many._first(Result(Path("x"), ended("failed", outcome={"failure": "f" * 200}))) == "f" * 160

    @pytest.mark.parametrize(
        ("states", "code"),
        [
            ([], 0),
            (["passed", "passed"], 0),
            (["passed", "failed"], 1),
            (["failed", "problem"], 2),
            (["incomplete", "passed"], 3),
            (["incomplete", "failed"], 1),
        ],
    )
    def test_the_exit_code(self, states: list[Any], code: int) -> None:
        assert exit_code_of(states) == code
        results = [Result(Path("x")) if state == "problem" else Result(Path("x"), ended(state)) for state in states]
        assert many.exit_code(results) == code

    def test_builds_below_folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SmokeError, match="no build is below"):
            many.find([])
        for name in ("a/one", "a/one/inner", "b/two", ".hidden/x", "node_modules/x"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "zerocfg.lock").write_text("")
        assert sorted(many.find([])) == [Path("a/one"), Path("b/two")], "what lies in a build belongs to it"
        assert many.find([Path("b"), Path("a/one"), tmp_path / "b" / "two", Path("c")]) == [
            Path("b/two"),
            Path("a/one"),
            Path("c"),
        ]

    def played(
        self, monkeypatch: pytest.MonkeyPatch, verdicts: list[Any], **more: Any
    ) -> tuple[list[Result], list[Any]]:
        asked: list[Any] = []

        def once(path: Path, options: Options, progress: Any) -> Any:
            asked.append((str(path), options.keep))
            if progress is not None:
                progress("init")
            verdict = verdicts[len(asked) - 1]
            if isinstance(verdict, Exception):
                raise verdict
            return verdict

        monkeypatch.setattr(many, "smoke", once)
        monkeypatch.setattr(many.warm, "shared_imports", contextlib.nullcontext)
        paths = [Path(name) for name in ("x/sft", "y/sft", "z/dpo")][: len(verdicts)]
        seen: list[Any] = []
        results = many.run_all(
            paths, Options(keep=more.get("keep")), seen.append, more.get("progress"), more.get("fast", False)
        )
        assert seen == results
        return results, asked

    def test_one_after_the_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[str] = []
        results, asked = self.played(
            monkeypatch, [ended("failed"), SmokeError("no lock"), ended()], keep=Path("k"), progress=said.append
        )
        assert [item.problem for item in results] == [None, "no lock", None]
        assert asked == [("x/sft", Path("k/sft")), ("y/sft", Path("k/sft-2")), ("z/dpo", Path("k/dpo"))]
        assert said == ["1 of 3: sft: init", "2 of 3: sft: init", "3 of 3: dpo: init"]

    def test_one_alone_keeps_its_words_and_its_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[str] = []
        _, asked = self.played(monkeypatch, [ended()], keep=Path("k"), progress=said.append)
        assert asked == [("x/sft", Path("k"))] and said == ["init"]

    def test_where_it_ends_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stopped = ended("failed", outcome={"interrupted": True})
        assert len(self.played(monkeypatch, [ended(), stopped, ended()])[0]) == 2
        assert len(self.played(monkeypatch, [ended(), ended("failed"), ended()], fast=True)[0]) == 2
        assert len(self.played(monkeypatch, [ended(), SmokeError("x"), ended()], fast=True)[0]) == 2
        assert len(self.played(monkeypatch, [ended(), ended(), ended()], fast=True)[0]) == 3


class TestRanks:
    @pytest.mark.parametrize(
        ("planned", "device", "wanted", "nodes", "ranks"),
        [
            (4, Device("cpu", "cpu"), None, 1, 2),
            (1, Device("cpu", "cpu"), None, 1, 1),
            (None, Device("cpu", "cpu"), None, 1, 1),
            (4, Device("cpu", "cpu"), 3, 1, 3),
            (4, Device("cuda", "x", 1), None, 1, 1),
            (4, Device("cuda", "x", 8), None, 1, 2),
            (4, Device("cuda", "x", 1, shared=True), None, 1, 2),
            (4, Device("cuda", "x", 1, shared=True), 4, 1, 4),
            (2, Device("cuda", "x", 8), None, 2, 1),
        ],
    )
    def test_at_most_two_where_nobody_asks_for_more(
        self, run: RunFolder, planned: Any, device: Device, wanted: int | None, nodes: int, ranks: int
    ) -> None:
        run.plan["num_processes"] = planned
        assert smoke.ranks_for(run, device, wanted, nodes) == ranks

    def test_what_cannot_be(self, run: RunFolder) -> None:
        with pytest.raises(SmokeError, match=r"3 ranks need 3 cards; 2 are here \(--ranks 2, or --share-gpu\)"):
            smoke.ranks_for(run, Device("cuda", "x", 2), 3)
        assert run.accelerate is not None
        run.accelerate["distributed_type"] = "FSDP"
        with pytest.raises(SmokeError, match="FSDP on a processor needs two ranks"):
            smoke.ranks_for(run, Device("cpu", "cpu"), 1)
        assert smoke.ranks_for(run, Device("cpu", "cpu"), 2) == 2
        assert smoke.ranks_for(run, Device("cuda", "x", 1), 1) == 1


class TestReleases:
    def of(self, run: RunFolder, reports: list[Any], **more: Any) -> dict[str, str]:
        empty: dict[str, Any] = {"model": {}, "accelerate": None, "arguments": {}, "plan": {}}
        reduced = Reduced(2, deepspeed=more.get("deepspeed"), trainer=more.get("trainer"), **empty)
        item: Any = SimpleNamespace(outcome=Outcome(reports), reduced=reduced, command=more.get("command"), run=run)
        return smoke._releases(item)

    def test_only_what_the_run_uses(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        versions = {"torch": "2", "deepspeed": "0.19", "trl": "1"}
        reports = [{}, {"versions": versions, "seen": {"engine": "ddp"}}]
        assert self.of(run, reports) == {"torch": "2"}
        assert self.of(run, reports, deepspeed={}) == {"torch": "2", "deepspeed": "0.19"}
        assert self.of(run, reports, trainer="DPOTrainer") == {"torch": "2", "trl": "1"}
        by_engine = [{"versions": versions, "seen": {"engine": "deepspeed"}}]
        assert self.of(run, by_engine) == {"torch": "2", "deepspeed": "0.19"}
        monkeypatch.setattr(smoke, "installed_versions", lambda: {"torch": "9", "trl": "8"})
        assert self.of(run, [{}]) == {"torch": "9"} and self.of(run, [{}], command=object()) == {}

    def test_what_is_kept(self, tmp_path: Path) -> None:
        made, keep = tmp_path / "made", tmp_path / "keep"
        for name in ("weights/a", "weights/b.reserve", "tmp/x", "log.txt", smoke.LOCK):
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(name)
        assert smoke._keep(made, None) is None
        assert smoke._keep(made, smoke._kept_in(keep)) == keep
        assert sorted(str(item.relative_to(keep)) for item in keep.rglob("*") if item.is_file()) == [
            "log.txt",
            "weights/a",
        ]
        assert smoke._kept_in(None) is None
        with pytest.raises(SmokeError, match="cannot create the folder of --keep"):
            smoke._kept_in(made / "log.txt" / "x")

    def test_libraries_that_are_missing(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        here = {"torch", "transformers", "accelerate", "safetensors"}
        monkeypatch.setattr(smoke.importlib.util, "find_spec", lambda name: object() if name in here else None)
        smoke._require(replace(run, deepspeed=None))
        with pytest.raises(SmokeError, match=r"^deepspeed is not installed; a smoke-run needs the real libraries"):
            smoke._require(run)
        here.remove("torch")
        with pytest.raises(SmokeError, match=r"^torch, deepspeed are not installed"):
            smoke._require(run)


class TestMarked:
    def test_a_process_has_the_mark_that_it_inherited(self, tmp_path: Path) -> None:
        mark = str(tmp_path)
        words = [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()"]
        with subprocess.Popen(
            words, env=os.environ | {leftovers.MARK: mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == b"here\n"
            assert leftovers.is_marked(child.pid, mark) and leftovers.marked(mark) == {child.pid}
            assert not leftovers.is_marked(child.pid, f"{mark}x") and not leftovers.is_marked(os.getpid(), mark)
            assert leftovers.kill(mark) == {child.pid}
        assert leftovers.marked(mark) == set() and not leftovers.is_marked(2**30, mark)

    def test_without_proc_it_is_assumed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leftovers, "PROC", tmp_path / "none")
        assert leftovers.is_marked(2**30, "x")


class TestAsked:
    def test_weights_that_are_not_saved_lead_to_the_stage_and_to_what_gathers(self, tmp_path: Path) -> None:
        built = read(GOOD["deepspeed-loop"].write(tmp_path))
        own = linked_run(built)
        requested = requested_settings.claims(own) if own is not None else {}
        stage = requested[requested_settings.STAGE]
        places = diagnosis._places(stage + requested.get(requested_settings.GATHER, []))
        finding: Any = SimpleNamespace(code="ZC000", span=places[0], related=[])
        other: Any = SimpleNamespace(
            code="ZC000", span=SimpleNamespace(**{"file": places[0].file, "keys": ("x",)}), related=[]
        )
        found = diagnosis._of_check(Check("saved parameters", "1", "2", False), requested, own, [other, finding])
        assert found == [finding]
        assert diagnosis._of_check(Check("ZeRO stage", "1", "2", False), requested, own, [other, finding]) == [finding]
        assert diagnosis._of_check(Check("optimizer", "1", "2", False), {}, own, [other, finding]) == []
