"""Before and after a launch: the environment, the files in the scratch folder, the order of a search, and which
explanation an error gets. Expectations by hand."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from zerocfg.memory.options import Options as ZeroOptions
from zerocfg.memory.options import TorchOptions
from zerocfg.run.script.modules import Imported
from zerocfg.smoke import max_batch
from zerocfg.smoke.certify import code
from zerocfg.smoke.judge import diagnosis
from zerocfg.smoke.judge.expected_settings import expected
from zerocfg.smoke.launch import job_folder, process, scratch, warm
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.prepare import fit
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.nodes import Nodes
from zerocfg.smoke.worker.job import Job

from .sets import GOOD

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

    from .conftest import MakeRun

CPU = Device("cpu", "cpu")


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return read(make_run(3))


def as_it_is(run: RunFolder, **more: Any) -> Reduced:
    given: dict[str, Any] = {
        "ranks": 2,
        "model": run.lock.model_config,
        "accelerate": run.accelerate,
        "deepspeed": run.deepspeed,
        "arguments": dict(run.lock.recipe),
        "plan": dict(run.plan),
        "sequence": 32,
    }
    return Reduced(**given | more)


SET = {"RANK": "1", "MASTER_PORT": "7", "ACCELERATE_X": "1", "FSDP_X": "1", "TORCHELASTIC_X": "1", "MINE": "1"}


class TestEnvironment:
    def of(self, monkeypatch: pytest.MonkeyPatch, device: str, own: bool, **more: str) -> dict[str, str]:
        for name in list(os.environ):
            monkeypatch.delenv(name)
        for name, value in {**SET, "PATH": "/bin", **more}.items():
            monkeypatch.setenv(name, value)
        return process.environment(device, own)

    def test_of_a_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What other launchers set is left out, the network is not asked, and Python's own programs come first."""
        beside = str(Path(sys.executable).parent)
        expected_here = {"MINE": "1", "HF_HUB_OFFLINE": "1", "PATH": os.pathsep.join([beside, "/bin"])}
        assert self.of(monkeypatch, "cuda", False) == expected_here
        processor = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        assert self.of(monkeypatch, "cpu", False) == expected_here | processor
        assert self.of(monkeypatch, "cpu", False, OMP_NUM_THREADS="4")["OMP_NUM_THREADS"] == "4"

    def test_of_the_users_own_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Address and port, and what accelerate is told, are theirs; programs beside Python come last."""
        kept = self.of(monkeypatch, "cuda", True)
        assert set(kept) == {"MASTER_PORT", "ACCELERATE_X", "FSDP_X", "MINE", "PATH"}
        assert kept["PATH"] == os.pathsep.join(["/bin", str(Path(sys.executable).parent)])


class TestScratch:
    def test_a_lock_is_let_go_with_its_folder(self) -> None:
        before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with scratch.scratch() as folder:
            assert not scratch._dead(folder / scratch.LOCK)
            assert scratch.sweep() == [] and folder.is_dir()
        assert not folder.exists()
        assert len(set(os.listdir("/proc/self/fd"))) == len(before)  # noqa: PTH208

    def test_temporary_files(self, tmp_path: Path) -> None:
        place = str(tmp_path / "tmp")
        assert scratch.temporary(tmp_path) == {"TMPDIR": place, "TEMP": place, "TMP": place}
        assert (tmp_path / "tmp").is_dir()
        deep = tmp_path / ("d" * (scratch.LONGEST - len(str(tmp_path)) - 1))
        deep.mkdir()
        assert len(str(deep)) == scratch.LONGEST and scratch.temporary(deep, sockets=True)
        longer = tmp_path / ("d" * (scratch.LONGEST - len(str(tmp_path))))
        assert scratch.temporary(longer, sockets=True) == {}


class TestJob:
    def prepared(
        self, run: RunFolder, folder: Path, reduced: Reduced | None = None, **more: Any
    ) -> tuple[list[str], Job]:
        folder.mkdir()
        command = job_folder.prepare(run, reduced or as_it_is(run), more.pop("device", CPU), 3, folder, **more)
        assert command[-1] == str(folder / "job.json")
        return command, Job.read(folder / "job.json")

    def test_files_and_job_of_a_build(self, run: RunFolder, tmp_path: Path) -> None:
        folder = tmp_path / "scratch"
        command, job = self.prepared(run, folder, memory_limit=7, parts=("train", "resume"), share="a")
        assert json.loads((folder / "ds_config.json").read_text()) == run.deepspeed
        accelerate = yaml.safe_load((folder / "accelerate.yaml").read_text())
        assert accelerate["deepspeed_config"]["deepspeed_config_file"] == str(folder / "ds_config.json")
        assert (folder / "weights").is_dir() and not (folder / "weights").is_symlink()
        assert (job.reports, job.saved) == (str(folder / "reports"), str(folder / "weights"))
        assert (job.consumer, job.device, job.steps, job.sequence) == ("transformers", "cpu", 3, 32)
        assert job.deepspeed_config == str(folder / "ds_config.json") and job.by_accelerate is True
        assert (job.memory_limit, tuple(job.parts), job.share, job.nodes) == (7, ("train", "resume"), "a", 1)
        assert job.no_resume is None and job.saves is True and "deepspeed" not in job.arguments
        assert "accelerate.commands.launch" in command

    def test_why_nothing_is_resumed(self, run: RunFolder, tmp_path: Path) -> None:
        def why(name: str, reduced: Reduced | None = None, **more: Any) -> str | None:
            return self.prepared(run, tmp_path / name, reduced, **more)[1].no_resume

        unsaved = as_it_is(run)
        unsaved.changes.append(Reduction(Kind.SAVING, why="x"))
        assert why("a", unsaved) == "a checkpoint needs saved weights"
        assert (why("b", nodes=Nodes(3, 0, "a", 1)) or "").startswith("not tried over 3 nodes")
        run.lock.recipe["save_only_model"] = True
        assert (why("c", unsaved) or "").startswith("save_only_model is true")

    def test_without_configs(self, run: RunFolder, tmp_path: Path) -> None:
        bare = as_it_is(run, accelerate=None, deepspeed=None)
        command, job = self.prepared(run, tmp_path / "s", bare)
        assert job.deepspeed_config is None and job.by_accelerate is False
        assert not (tmp_path / "s" / "ds_config.json").exists() and "torch.distributed.run" in command

    @pytest.mark.parametrize(("route", "given"), [("trainer", True), (None, True), ("accelerate", False)])
    def test_a_config_that_the_trainer_is_given(
        self, run: RunFolder, tmp_path: Path, route: str | None, given: bool
    ) -> None:
        own: Any = SimpleNamespace(
            texts={"deepspeed": b"{ }"},
            by_accelerate=False,
            options=[],
            variables={},
            run=SimpleNamespace(deepspeed_route=route, deepspeed=None, flags={}),
        )
        by_hand = replace(run, handwritten=own)
        _, job = self.prepared(by_hand, tmp_path / "s", as_it_is(run, accelerate=None))
        assert (tmp_path / "s" / "ds_config.json").read_bytes() == b"{ }", "as it is"
        assert ("deepspeed" in job.arguments) is given

    def test_the_users_own_options(self, run: RunFolder, tmp_path: Path) -> None:
        command = process.launcher(True, 2, 29501, None)
        at = command.index("-m", command.index("accelerate.commands.launch"))
        own: Any = SimpleNamespace(
            options=["--mixed_precision", "bf16"],
            run=SimpleNamespace(deepspeed=object(), flags={"deepspeed_config_file": "x"}),
        )
        words = job_folder._as_written(command, own, 2, tmp_path)
        added = words[words.index("--mixed_precision") :][:8]
        assert added == [
            *["--mixed_precision", "bf16", "--num_processes", "2", "--num_machines", "1"],
            *["--deepspeed_config_file", str(tmp_path / "ds_config.json")],
        ]
        assert "--config_file" not in words and words[-len(command[at:]) :] == command[at:]
        (tmp_path / "accelerate.yaml").write_text("")
        own.run.flags = {}
        kept = job_folder._as_written(command, own, 2, tmp_path)
        assert kept == [*command[:at], "--mixed_precision", "bf16", *command[at:]]

    def test_variables_of_the_ranks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
        alone = job_folder.variables(tmp_path)
        assert list(alone) == ["PYTHONPATH"] and os.pathsep not in alone["PYTHONPATH"]
        monkeypatch.setenv("PYTHONPATH", "/mine")
        own: Any = SimpleNamespace(variables={"X": "1"})
        assert job_folder.variables(tmp_path, own) == {
            "PYTHONPATH": f"{alone['PYTHONPATH']}{os.pathsep}/mine",
            "X": "1",
        }


class TestWarm:
    """A launch by a zygote reads the environment of the libraries that it has imported."""

    def prepared(self, monkeypatch: pytest.MonkeyPatch, words: list[str], ranks: int | None, **more: Any) -> Any:
        started: list[dict[str, str]] = []
        own: Any = SimpleNamespace(
            executable=Path("/z/python"),
            start=started.append,
            show=lambda progress: None,
            problem=lambda: more.get("problem", ""),
        )
        monkeypatch.setattr(warm, "_active", [own] if more.get("active", True) else [])
        command, environment = warm.prepare(words, {"A": "1", **more.get("given", {})}, ranks)
        return command, environment, started

    @pytest.mark.parametrize(
        ("module", "ranks", "threads"),
        [
            ("torch.distributed.run", 2, "1"),
            ("torch.distributed.run", 1, None),
            ("torch.distributed.run", None, None),
            ("accelerate.commands.launch", 1, "1"),
            ("accelerate.commands.launch", None, "1"),
        ],
    )
    def test_threads_as_the_launchers_set_them(
        self, monkeypatch: pytest.MonkeyPatch, module: str, ranks: int | None, threads: str | None
    ) -> None:
        words = [sys.executable, "-m", module]
        command, environment, started = self.prepared(monkeypatch, words, ranks)
        assert command == ["/z/python", "-m", module]
        assert environment == {"A": "1"} | ({"OMP_NUM_THREADS": threads} if threads else {}) and started == [
            environment
        ]
        own = self.prepared(monkeypatch, words, ranks, given={"OMP_NUM_THREADS": "5"})[1]
        assert own == {"A": "1", "OMP_NUM_THREADS": "5"}

    def test_without_a_zygote_nothing_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        words = [sys.executable, "-m", "torch.distributed.run"]
        assert self.prepared(monkeypatch, words, 2, active=False) == (words, {"A": "1"}, [])
        other = ["/other/python", "x"]
        assert self.prepared(monkeypatch, other, 2) == (other, {"A": "1"}, [])
        assert self.prepared(monkeypatch, words, 2, problem="gone")[0] == words


def test_imports_of_a_script() -> None:
    text = "import a.b, c\nfrom . import d\nfrom e.f import g, h\ndef run():\n    from ..i import *\n"
    assert list(code._imports("\ufeff" + text)) == [
        Imported("a.b"),
        Imported("c"),
        Imported("", "d", 1),
        Imported("", "", 1),
        Imported("e.f", "g", 0),
        Imported("e.f", "h", 0),
        Imported("e.f", "", 0),
        Imported("i", "", 2),
    ]


def test_the_script_and_what_it_imports_are_hashed(tmp_path: Path) -> None:
    """Of the repository alone; the other modules are the environment's."""
    for name, text in {
        "train.py": "from lib import a\nimport os\nfrom lib.b import *\n",
        "lib/__init__.py": "",
        "lib/a.py": "from . import c\n",
        "lib/b.py": "",
        "lib/c.py": "",
        "lib/unused.py": "",
        "built/sft/zerocfg.lock": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    lock: Any = SimpleNamespace(script="train.py", spec_folder="../..")
    found = code.code_hashes(tmp_path / "built" / "sft", lock)
    assert list(found) == ["lib/__init__.py", "lib/a.py", "lib/b.py", "lib/c.py", "train.py"]
    assert found["lib/b.py"] == hashlib.sha256(b"").hexdigest()
    for missing in ({"script": None}, {"spec_folder": None}, {"script": "a\0"}):
        assert code.code_hashes(tmp_path, SimpleNamespace(**vars(lock) | missing)) == {}  # type: ignore[arg-type]


class TestSearch:
    """Which micro batches are asked for, in order: steps from an eighth of the guess, doubling, then halves."""

    def asked(self, most: int, guess: int, upper: int, **more: Any) -> tuple[list[int], int, int | None]:
        batches: list[int] = []

        def fits(batch: int) -> bool:
            batches.append(batch)
            return batch <= most

        bracket = max_batch.search(fits, guess, upper, **more)
        return batches, bracket.low, bracket.high

    def test_up(self) -> None:
        assert self.asked(30, 16, 64) == ([16, 18, 22, 30, 46, 38, 34, 32, 31], 30, 31)
        assert self.asked(99, 60, 64) == ([60, 64], 64, None)

    def test_down(self) -> None:
        assert self.asked(3, 16, 64) == ([16, 14, 10, 2, 6, 4, 3], 3, 4)
        assert self.asked(0, 3, 64) == ([3, 2, 1], 0, 1)
        assert self.asked(0, 1, 64) == ([1], 0, 1)

    def test_a_guess_outside_of_the_bounds(self) -> None:
        assert self.asked(99, 0, 2)[0] == [1, 2] and self.asked(99, 50, 4)[0] == [4]

    def test_what_is_known_is_not_asked_again(self) -> None:
        known = max_batch.Bracket(64, 8, None)
        assert self.asked(10, 4, 64, known=known)[0] == [9, 10, 12, 11]
        known = max_batch.Bracket(64, 0, 8)
        assert self.asked(5, 20, 64, known=known)[0] == [7, 6, 4, 5]
        known = max_batch.Bracket(64, 7, 8)
        assert self.asked(7, 20, 64, known=known)[0] == []

    def test_so_many_launches_and_no_more(self) -> None:
        assert self.asked(30, 16, 64, launches=2) == ([16, 18], 18, None)
        assert self.asked(30, 16, 64, launches=0) == ([], 0, None)

    def test_a_bracket(self) -> None:
        bracket = max_batch.Bracket(10)
        for batch, fits in ((4, True), (2, True), (9, False), (12, False)):
            bracket.add(batch, fits)
        assert (bracket.low, bracket.high, bracket.closed) == (4, 9, False)
        bracket.add(8, True)
        assert bracket.closed and max_batch.Bracket(10, 10).closed and not max_batch.Bracket(10, 9).closed


class TestHost:
    """Bytes of the host: of each rank a whole copy of the weights in fp32, or what the optimizer keeps there."""

    def host(self, options: Any, ranks: int) -> int:
        from zerocfg.models.model_facts import ModelFacts, Part

        facts = ModelFacts(parameters=1000, largest_parameter=1000, layout=[Part(modules=[[1000]])])
        return fit._host(facts, SimpleNamespace(options=options), 1000, ranks)  # type: ignore[arg-type]

    def test_copies_of_the_weights(self) -> None:
        assert self.host(TorchOptions("ddp", 2), 2) == 4 * 1000 * 2
        assert self.host(ZeroOptions(2, 3), 3) == 4 * 1000 * 3
        assert self.host(ZeroOptions(3, 3), 3) == 4 * 1000 * 3, "also where one rank alone reads the checkpoint"

    def test_what_is_offloaded_where_that_is_more(self) -> None:
        """Master weights, moments and gradients of half of the elements, staging and a copy; blocks of powers of 2."""
        size = self.host(ZeroOptions(2, 2, offload_optimizer="cpu"), 2)
        states = 2 * (4 * 500 + 8 * 500 + 4 * 500 + 2 * 500 + 2 * 1000)
        rounding = 2 * ((2048 - 2000) + (2048 - 2000) + (1024 - 1000) + (2048 - 2000))
        assert size == states + rounding > 4 * 1000 * 2


class TestExpected:
    def test_what_was_taken_out_of_the_config_is_not_planned(self, run: RunFolder) -> None:
        less = json.loads(json.dumps(run.deepspeed))
        del less["zero_optimization"]["reduce_bucket_size"]
        less["zero_optimization"]["overlap_comm"] = False
        run.lock.settings["zero_optimization.reduce_bucket_size"] = SimpleNamespace(value=100000)  # type: ignore[assignment]
        planned = expected(run, as_it_is(run, deepspeed=less))
        assert "zero_optimization.reduce_bucket_size" not in planned
        assert planned["zero_optimization.overlap_comm"] is False
        kept = expected(run, as_it_is(run))
        assert kept["zero_optimization.reduce_bucket_size"] == 100000
        assert planned["train_batch_size"] == 2 * 2 * 2 and "num_processes" not in planned


class TestDiagnosis:
    def test_a_rule_that_nothing_in_the_files_shows(self, tmp_path: Path) -> None:
        outcome = Outcome(
            [{"rank": 0, "phase": "step 1"}],
            failure="AssertionError: Check batch related parameters. 48 != 2 * 4 * 8",
            rank=0,
        )
        (found,) = diagnosis.diagnose(read(GOOD["deepspeed-loop"].write(tmp_path)), [], outcome)
        assert (found.code, found.file, found.line, found.column, found.why) == ("ZC203", None, None, None, "error")
        assert found.message == "The three batch sizes do not fit the number of processes."

    @pytest.mark.parametrize(
        ("rank", "reports", "phase"),
        [
            (None, [{"phase": "init"}], "launch"),
            (1, [{"phase": "init"}], "launch"),
            (0, [{"phase": "init"}], "init"),
            (0, [{}], "launch"),
        ],
    )
    def test_what_the_failing_rank_was_doing(self, rank: int | None, reports: list[Any], phase: str) -> None:
        assert diagnosis._phase(Outcome(reports, failure="x", rank=rank)) == phase

    @pytest.mark.parametrize(
        ("keys", "error", "named"),
        [
            (("a", "stage"), "ValueError: stage is wrong", True),
            (("a", "stage"), "ValueError: `stage` is wrong", True),
            (("a", "stage"), "ValueError: stages are wrong", False),
            (("a", "stage"), "ValueError: zero_stage is wrong", False),
            (("stage", "a"), "ValueError: stage is wrong", False),
            (("lrs",), "ValueError: lrs is wrong", False),
            ((), "ValueError: stage", False),
        ],
    )
    def test_an_error_that_names_a_key(self, keys: tuple[str, ...], error: str, named: bool) -> None:
        place: Any = SimpleNamespace(keys=keys)
        assert diagnosis._in(place, error) is named

    def spot(self, keys: tuple[str, ...], start: int = 0, end: int = 0, name: str = "a") -> Any:
        return SimpleNamespace(file=SimpleNamespace(name=name), keys=keys, start=start, end=end)

    @pytest.mark.parametrize(
        ("place", "other", "same", "around"),
        [
            (("a", "b"), ("a", "b"), True, True),
            (("a", "b"), ("a",), False, True),
            (("a",), ("a", "b"), False, True),
            (("a", "b"), ("a", "c"), False, False),
            (("a", "b"), (), False, False),
            ((), ("a",), False, False),
        ],
    )
    def test_places(self, place: Any, other: Any, same: bool, around: bool) -> None:
        finding: Any = SimpleNamespace(span=self.spot(("z",)), related=[self.spot(other)])
        assert diagnosis._same(self.spot(place), finding) is same
        assert diagnosis._around(self.spot(place), finding) is around
        elsewhere: Any = SimpleNamespace(span=self.spot(other, name="b"), related=[])
        assert not diagnosis._same(self.spot(place), elsewhere) and not diagnosis._around(self.spot(place), elsewhere)

    @pytest.mark.parametrize(
        ("start", "end", "same"), [(3, 5, True), (0, 3, True), (5, 9, True), (6, 9, False), (0, 2, False)]
    )
    def test_places_without_keys_overlap(self, start: int, end: int, same: bool) -> None:
        finding: Any = SimpleNamespace(span=self.spot((), start, end), related=[])
        assert diagnosis._same(self.spot((), 3, 5), finding) is same
