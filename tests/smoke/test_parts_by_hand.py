"""Parts of a smoke-run on values made by hand: what a command proves, what a processor changes, what a certificate
holds, who is to blame for a launch, and the job that a scheduler gets."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.memory.options import Options as ZeroOptions
from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.judge import command, prediction
from zerocfg.smoke.launch import operator_locks, stacks, warm
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.launch.warm import zygote_process
from zerocfg.smoke.model.certificate import Check, Command, Measured
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Kind, Reduced
from zerocfg.smoke.prepare import reduce
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.nodes import Nodes
from zerocfg.smoke.remote import request
from zerocfg.smoke.smoke import Options

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU, CARD = Device("cpu", "cpu"), Device("cuda", "NVIDIA H100 80GB HBM3", 2, 80 << 30)


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 8} | facts))


def changes(found: Reduced) -> list[tuple[Kind, object, object]]:
    return [(item.kind, item.planned, item.run) for item in found.changes]


class TestCommand:
    """Reports of two ranks that did three steps of the Trainer."""

    def reports(self, **more: Any) -> list[Any]:
        told = {"loop": "Trainer", "stopped": True, "world_size": 2} | more.pop("command", {})
        return [{"step_seconds": [1.0, 1.0, 1.0], "command": told} | more for _ in (0, 1)]

    def launched(self, reports: list[Any], **more: Any) -> Any:
        outcome = {"seconds": 5.0, "failure": None, "detail": [], "kind": ""} | more
        unwatched = outcome.pop("unwatched", None)
        return SimpleNamespace(outcome=Outcome(reports, **outcome), unwatched=unwatched, configs=[])

    def judged(self, loop: str | None, reports: list[Any] | None = None, **more: Any) -> Outcome:
        item = self.launched(self.reports() if reports is None else reports, **more)
        command._judge(item, Command("x", loop), 10.0, ["tail"])
        found: Outcome = item.outcome
        return found

    def test_a_training_that_was_seen_proves_something(self) -> None:
        assert self.judged("Trainer").failure is None
        assert self.judged("Trainer", seconds=10.0).failure is None, "a limit that was reached by a training"

    def test_nothing_that_can_be_watched(self) -> None:
        found = self.judged(None)
        assert found.failure is not None and found.failure.startswith("the command ended without an error, but none of")
        assert found.detail == ["tail"]
        late = self.judged(None, seconds=10.0)
        assert (late.failure, late.kind) == ("no training that zerocfg can watch began within 10 s", "time")
        assert self.judged(None, seconds=9.9).kind == ""
        assert self.judged(None, seconds=10.0, detail=["own"]).detail == ["own"]

    def test_no_step(self) -> None:
        found = self.judged("Trainer", [{"step_seconds": [1.0]}, {}])
        assert found.failure == "the command ended without an error, but before its first optimizer step"

    def test_a_failure_before_any_training(self) -> None:
        early = self.judged(None, [{}], failure="exit code 1")
        assert early.failure == "exit code 1, before any training that zerocfg can watch began"
        assert early.detail == ["tail"]
        for loop, reports in (("Trainer", [{}]), (None, [{"error": {}}])):
            assert self.judged(loop, reports, failure="exit code 1", detail=["d"]).failure == "exit code 1"
        assert self.judged(None, [{}], failure="Ctrl-C", interrupted=True).failure == "Ctrl-C"

    def test_a_launch_that_was_not_watched(self) -> None:
        found = self.judged("Trainer", unwatched="no hook", failure="x", rank=1)
        assert (found.failure, found.kind, found.detail, found.rank) == ("no hook", "launcher", [], None)

    def notes(self, reports: list[Any], tmp_path: Path, device: Device = CARD, again: int = 0) -> list[str]:
        (tmp_path / "reports").mkdir()
        (tmp_path / "reports" / "rank0.json").write_text("")
        for number in range(again):
            (tmp_path / "reports" / f"again{number}").mkdir()
        return command._notes(reports, 3, tmp_path / "written", device)

    def test_notes_of_a_training(self, tmp_path: Path) -> None:
        assert self.notes(self.reports(), tmp_path) == [
            "training: the Trainer, stopped by zerocfg after 3 optimizer steps"
        ]

    def test_notes_of_one_that_ended_and_saved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "log.txt").write_text("")
        told = {
            "stopped": False,
            "loop": "torch",
            "redirected": [str(tmp_path / "out"), str(tmp_path / "out" / "a"), "/elsewhere"],
            "wrote": [str(tmp_path / "log.txt"), str(tmp_path / "never.txt")],
            "removed": [str(tmp_path / "gone"), str(tmp_path / "log.txt")],
        }
        reports = self.reports(weights={}, step_seconds=[1.0], command=told)
        assert self.notes(reports, tmp_path, CPU, again=2) == [
            "training: a loop of torch alone, ended by itself after 1 optimizer step",
            "saving: the script's own, checked",
            "redirected: /elsewhere, to a temporary folder",
            "redirected: out, to a temporary folder",
            "written by the script itself: log.txt",
            "removed by the script itself: gone",
            "the command trained 3 times; the first training is checked",
        ]

    def test_notes_of_the_trainer_on_a_processor(self, tmp_path: Path) -> None:
        assert self.notes(self.reports(), tmp_path, CPU)[1:] == [
            "use_cpu: true was added to its TrainingArguments; else each rank would train alone"
        ]

    @pytest.mark.parametrize(
        ("told", "why"),
        [
            ({"weights": {}}, None),
            ({"command": {"saved": "it saves shards"}}, "it saves shards"),
            ({"command": {"left": True}}, "not reached, zerocfg ended the script after 3 optimizer steps"),
            ({}, "the script saved no model after its training"),
        ],
    )
    def test_why_saving_is_not_proven(self, told: dict[str, Any], why: str | None) -> None:
        assert command._unsaved(self.reports(**told)) == why

    def test_the_configs_that_were_read(self, tmp_path: Path) -> None:
        (tmp_path / "read-1").write_text("")
        found = command._reads([Path("a/ds.json"), Path("a/acc.yaml")], tmp_path)
        assert found == [
            Check("ds.json of the run", "read", "not read by the command", False),
            Check("acc.yaml of the run", "read", "read", True),
        ]

    def test_as_many_ranks_as_planned_asked_for_or_started(self, make_run: MakeRun) -> None:
        run, reports = read(make_run(3)), self.reports()
        planned = command._expected(run, reports, None)
        assert planned.ranks == 4 and planned.changes == []
        asked = command._expected(run, reports, 3)
        assert asked.ranks == asked.plan["num_processes"] == 3
        assert changes(asked) == [(Kind.WORLD_SIZE, 4, 3)] and run.plan["num_processes"] == 4
        assert command._expected(run, reports, 4).changes == []
        run.plan.pop("num_processes")
        assert command._expected(run, reports, None).ranks == 2
        assert command._expected(run, [{}, {}, {}], None).ranks == 3  # type: ignore[list-item]

    def test_tails_are_what_was_said_last(self, tmp_path: Path) -> None:
        assert command._tail(tmp_path) == []
        (tmp_path / "log.txt").write_text("\n".join(f"line {n}\n" for n in range(20)))
        assert command._tail(tmp_path) == [f"line {n}" for n in range(8, 20)]


class TestProcessor:
    """What a processor cannot do is replaced, and told."""

    def test_fp16_of_deepspeed(self) -> None:
        found = reduced(
            deepspeed={"fp16": {"enabled": True}},
            accelerate={"mixed_precision": "fp16"},
            plan={"fp16.enabled": True},
            arguments={"fp16": True},
        )
        reduce._processor_only(found)
        assert found.deepspeed == {"bf16": {"enabled": True}} and found.accelerate == {"mixed_precision": "bf16"}
        assert found.plan == {"fp16.enabled": False, "bf16.enabled": True}
        assert found.arguments == {"fp16": False, "bf16": True}
        assert changes(found) == [(Kind.PRECISION, "fp16", "bf16")]
        for kept in ({"deepspeed": None}, {"plan": {"fp16.enabled": False}}):
            other = reduced(**{"deepspeed": {}, "plan": {"fp16.enabled": True}} | kept)
            reduce._processor_only(other)
            assert other.changes == []

    @pytest.mark.parametrize("optim", ["adamw_8bit", "paged_adamw_32bit", "adamw_bnb_8bit", "adamw_apex_fused"])
    def test_optimizers_of_cards(self, optim: str) -> None:
        found = reduced(arguments={"optim": optim})
        reduce._processor_only(found)
        assert found.arguments == {} and changes(found) == [(Kind.OPTIM, optim, "the default")]
        kept = reduced(arguments={"optim": "adamw_torch"})
        reduce._processor_only(kept)
        assert kept.arguments == {"optim": "adamw_torch"} and kept.changes == []

    def test_fsdp_1_saves_nothing_there(self) -> None:
        section: dict[str, Any] = {"fsdp_offload_params": "True"}
        found = reduced(accelerate={"distributed_type": "FSDP", "fsdp_config": section})
        reduce._processor_only(found)
        loading = {"fsdp_sync_module_states": False, "fsdp_cpu_ram_efficient_loading": False}
        assert section == {"fsdp_offload_params": False, **loading}
        assert found.plan == {f"fsdp_config.{name}": False for name in section}
        kinds = [kind for kind, *_ in changes(found)]
        assert kinds == [Kind.FSDP_OFFLOAD, Kind.FSDP_LOADING, Kind.SAVING]
        reduce._fsdp_on_processor(found)
        assert [kind for kind, *_ in changes(found)].count(Kind.SAVING) == 1

    def test_fsdp_2_does(self) -> None:
        section: dict[str, Any] = {"fsdp_version": 2, "fsdp_offload_params": False}
        found = reduced(accelerate={"distributed_type": "FSDP", "fsdp_config": dict(section)})
        reduce._fsdp_on_processor(found)
        assert found.changes == [] and found.accelerate == {"distributed_type": "FSDP", "fsdp_config": section}
        other = reduced(accelerate={"distributed_type": "MULTI_GPU", "fsdp_config": {}})
        reduce._fsdp_on_processor(other)
        assert other.changes == []

    @pytest.mark.parametrize(
        ("stage", "device", "shrunk", "kinds"),
        [
            (3, CPU, True, [Kind.PERSISTENCE, Kind.REDUCE_BUCKET]),
            (3, CPU, False, [Kind.REDUCE_BUCKET]),
            (2, CPU, True, [Kind.REDUCE_BUCKET, Kind.ALLGATHER_BUCKET]),
            (3, CARD, True, [Kind.PERSISTENCE]),
            (2, CARD, True, []),
        ],
    )
    def test_sizes_for_the_planned_model(self, stage: int, device: Device, shrunk: bool, kinds: list[Kind]) -> None:
        found = reduced(deepspeed={"zero_optimization": {"stage": stage}})
        reduce._buckets(found, device, shrunk)
        assert [kind for kind, *_ in changes(found)] == kinds
        zero: Any = found.deepspeed["zero_optimization"]  # type: ignore[index]
        planned = {Kind.PERSISTENCE: 100_000, Kind.REDUCE_BUCKET: 500_000_000, Kind.ALLGATHER_BUCKET: 500_000_000}
        for kind, before, after in changes(found):
            assert before == planned[kind]
            assert zero[kind.value] == after == (64 if kind is Kind.PERSISTENCE else reduce.CPU_BUCKET)

    def test_sizes_that_are_small_stay(self) -> None:
        small = {"stage": 3, "stage3_param_persistence_threshold": 64, "reduce_bucket_size": reduce.CPU_BUCKET}
        found = reduced(deepspeed={"zero_optimization": dict(small)})
        reduce._buckets(found, CPU, True)
        assert found.changes == [] and found.deepspeed == {"zero_optimization": small}
        none = reduced(deepspeed={})
        reduce._buckets(none, CPU, True)
        assert none.deepspeed == {} and none.changes == []


class TestWorld:
    def test_fewer_ranks_take_fewer_samples(self) -> None:
        config = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
        accelerate = {"main_process_ip": "a", "machine_rank": 1, "gpu_ids": "all", "num_machines": 2}
        found = reduced(deepspeed=config, accelerate=accelerate, plan={"num_processes": 4})
        reduce._world(found, None)
        assert found.accelerate == {"num_machines": 1, "num_processes": 2}
        assert found.plan["num_processes"] == 2 and config["train_batch_size"] == 8
        assert changes(found) == [(Kind.WORLD_SIZE, 4, 2), (Kind.TRAIN_BATCH, 16, 8)]

    def test_as_many_ranks_change_nothing(self) -> None:
        found = reduced(deepspeed={"train_batch_size": 7}, plan={"num_processes": 2})
        reduce._world(found, None)
        assert found.changes == [] and found.deepspeed == {"train_batch_size": 7}

    @pytest.mark.parametrize(
        ("batch", "micro", "steps", "after"),
        [(6, 1, 1, 3), (7, 1, 1, 3), (7, 3, 1, 3), (5, 1, 1, 3), (1, 1, 1, 1), (3, 1, 1, 1)],
    )
    def test_a_batch_that_fits_no_sizes_still_does_not(self, batch: int, micro: int, steps: int, after: int) -> None:
        """Of four ranks two: half, and where that is no whole number one beside it that is not what the sizes give."""
        config = {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps}
        assert reduce._scaled(config, batch, 4, reduced(ranks=2)) == after
        assert reduce._scaled(config, batch, None, reduced(ranks=2)) == batch
        assert reduce._scaled(config, batch, 0, reduced(ranks=2)) == batch

    @pytest.mark.parametrize(("split", "after"), [(8, 2), (3, 2), (2, 2), (1, 1)])
    def test_groups_of_hpz_have_as_many_ranks_as_there_are(self, split: int, after: int) -> None:
        zero = {"zero_hpz_partition_size": split}
        found = reduced(deepspeed={"zero_optimization": zero}, plan={"num_processes": 2})
        reduce._world(found, None)
        assert zero["zero_hpz_partition_size"] == after
        assert changes(found) == ([(Kind.HPZ_PARTITION, split, 2)] if split > 2 else [])

    def test_nodes_are_told(self) -> None:
        found = reduced(ranks=4, accelerate={}, plan={"num_processes": 4})
        reduce._world(found, Nodes(2, 0, "a", 1, 2))
        assert found.nodes == 2 and found.accelerate == {"num_processes": 4, "num_machines": 2}
        assert [kind for kind, *_ in changes(found)] == [Kind.NODES]

    def test_drives(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def offload(path: object) -> Reduced:
            section = {"device": "nvme", "nvme_path": path}
            found = reduced(deepspeed={"zero_optimization": {"offload_optimizer": section}})
            reduce._offload(found, tmp_path)
            return found

        monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
        found = offload(str(tmp_path))
        assert found.deepspeed == {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
        assert changes(found) == [(Kind.OFFLOAD_OPTIMIZER, "nvme", "cpu")]
        assert found.plan == {"zero_optimization.offload_optimizer.device": "cpu"}
        monkeypatch.setattr("ctypes.util.find_library", lambda name: "libaio.so")
        assert offload(str(tmp_path)).changes == []
        gone = offload("/no/such/drive")
        folder = str(tmp_path / "nvme")
        assert changes(gone) == [(Kind.OPTIMIZER_DRIVE, "/no/such/drive", folder)] and Path(folder).is_dir()
        assert gone.deepspeed["zero_optimization"]["offload_optimizer"]["nvme_path"] == folder  # type: ignore[index]

    def test_arguments_say_what_the_plan_says(self) -> None:
        scheduler = {"params": {"total_num_steps": 50}}
        plan = {"gradient_clipping": 0.5, "gradient_accumulation_steps": None, "train_micro_batch_size_per_gpu": 3}
        found = reduced(deepspeed={"scheduler": scheduler}, plan=plan, arguments={"max_grad_norm": 1.0})
        reduce._arguments(found)
        assert found.arguments == {"max_grad_norm": 1.0, "per_device_train_batch_size": 3, "max_steps": 50}
        stated = reduced(deepspeed={"scheduler": scheduler}, arguments={"max_steps": 7})
        reduce._arguments(stated)
        assert stated.arguments == {"max_steps": 7}
        for arguments in ({"max_steps": -1}, {"max_steps": 0}):
            open_end = reduced(deepspeed={"scheduler": scheduler}, arguments=arguments)
            reduce._arguments(open_end)
            assert open_end.arguments == {"max_steps": 50}
        without = reduced(arguments={})
        reduce._arguments(without)
        assert without.arguments == {}


class TestCertificate:
    MEASURED = Measured(
        seconds=12.5,
        step_seconds=(2.0, 0.5),
        losses=(4.0, 3.5),
        peaks=(100, None),
        memory=({"init": {"seconds": 0.5, "rss": 7}},),
        start=({"rss": 3},),
        device_memory=80,
        of="rss",
        points=((0.5, 7, "init"), (1.0, 9, "step")),
        median=0.5,
        first=2.0,
        collectives=({"all_reduce": {"calls": 2, "sent": 8}},),
        tokens=64,
        tokens_per_second=128.0,
        tflops=0.25,
        predicted={"unknown": "no"},
    )

    def test_what_was_measured_is_read_as_it_was_written(self) -> None:
        written = json.loads(json.dumps(self.MEASURED.data()))
        assert certificate_file._measured(written) == self.MEASURED

    @pytest.mark.parametrize("point", [[1, 2], [1, 2, "a", 4], ["1", 2, "a"], [1, 2, 3], "abc", None])
    def test_points_that_are_none_are_left_out(self, point: Any) -> None:
        found = certificate_file._measured({"timeline": {"of": "rss", "points": [point, [1, 2, "a"]]}})
        assert found.points == ((1, 2, "a"),)

    @pytest.mark.parametrize(
        ("verdict", "passed", "state"),
        [
            (None, True, "passed"),
            (None, False, "failed"),
            ("passed", True, "passed"),
            ("passed", False, "failed"),
            ("failed", True, "failed"),
            ("incomplete", False, "incomplete"),
            ("incomplete", True, "failed"),
        ],
    )
    def test_one_that_contradicts_itself_failed(self, verdict: object, passed: bool, state: str) -> None:
        assert certificate_file._state(verdict, passed) == state

    def test_reductions_of_before_kinds_were_recorded(self) -> None:
        old = certificate_file._reductions({"reductions": ["layers : 32 to 2", "other"]})
        assert [(item.kind, item.words) for item in old] == [("layers", "layers : 32 to 2"), ("other", "other")]
        new = certificate_file._reductions({"reductions": ["words"], "reduced": [{"kind": "layers", "run": 2}]})
        assert [(item.kind, item.words, item.data) for item in new] == [
            ("layers", "words", {"kind": "layers", "run": 2})
        ]


class TestBlame:
    def test_a_fork_is_to_blame_where_cuda_says_so_or_the_zygote_is_gone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own: Any = SimpleNamespace(executable=tmp_path / "python", folder=tmp_path, refusal="")
        forked, fresh = [str(own.executable), "-m", "x"], [sys.executable]
        cuda = [f"RuntimeError: {warm.OF_FORKS[0]} ..."]
        monkeypatch.setattr(warm, "_active", [])
        assert not warm.is_to_blame(forked, cuda)
        monkeypatch.setattr(warm, "_active", [own])
        assert not warm.is_to_blame(fresh, cuda) and own.refusal == ""
        assert not warm.is_to_blame(forked, ["ValueError: no such key"]) and own.refusal == ""
        assert warm.is_to_blame(forked, ["x", *cuda])
        assert own.refusal == "CUDA could not be used in a forked process"
        (tmp_path / warm.LOST).write_text("")
        assert warm.is_to_blame(forked, [])

    def test_why_there_is_no_zygote(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert zygote_process.obstacle(tmp_path) == ""
        long = Path("/" + "a" * (107 - len("//socket")))
        assert zygote_process.obstacle(long) == ""
        assert zygote_process.obstacle(Path(f"{long}a")).endswith(f"too long for a socket: {long}a")
        for executable in ("/with a space/python", "/" + "p" * 130):
            monkeypatch.setattr(sys, "executable", executable)
            assert zygote_process.obstacle(tmp_path) == f"the path of Python is too long, or has a space: {executable}"
        monkeypatch.setattr(sys, "executable", "/" + "p" * (127 - len("#!/ -IS\n")))
        assert zygote_process.obstacle(tmp_path) == ""


class TestLocks:
    def test_the_file_system_of_a_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_locks, "PROC", tmp_path)
        assert operator_locks.file_system(Path("/a")) is None
        lines = [
            "dev / ext4 rw",
            r"dev /with\040space nfs rw",
            "dev /a tmpfs rw",
            "dev /a/b xfs rw",
            "dev /a/b btrfs rw",
        ]
        (tmp_path / "mounts").write_text("\n".join(lines))
        found = {
            path: operator_locks.file_system(Path(path))
            for path in ("/x", "/a", "/a/c", "/a/b/c", "/ab", "/with space/y")
        }
        assert found == {
            "/x": "ext4",
            "/a": "tmpfs",
            "/a/c": "tmpfs",
            "/a/b/c": "btrfs",
            "/ab": "ext4",
            "/with space/y": "nfs",
        }

    def test_when_the_machine_was_started(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_locks, "PROC", tmp_path)
        assert operator_locks._boot() is None
        (tmp_path / "stat").write_text("cpu 1 2\nbtime 1700000000\nprocesses 3\n")
        assert operator_locks._boot() == 1700000000.0

    def test_the_first_namespace_sees_all_processes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_locks, "PROC", tmp_path)
        assert not operator_locks._sees_all_processes()
        place = tmp_path / "self" / "ns" / "pid"
        place.parent.mkdir(parents=True)
        place.write_text("")
        assert not operator_locks._sees_all_processes()
        monkeypatch.setattr(operator_locks, "FIRST_NAMESPACE", place.stat().st_ino)
        assert operator_locks._sees_all_processes()

    @pytest.mark.parametrize(
        ("age", "words"),
        [(30, "30 s"), (119, "119 s"), (600, "10 minutes"), (2 * 86400 - 60, "2879 minutes"), (3 * 86400, "3 days")],
    )
    def test_how_old_a_lock_is(self, tmp_path: Path, age: int, words: str) -> None:
        lock = tmp_path / "lock"
        lock.write_text("")
        os.utime(lock, (time.time() - age, time.time() - age))
        assert operator_locks._left(lock).startswith(f"left {words} ago by a process")
        assert operator_locks._left(tmp_path / "gone").startswith("left 0 s ago")


class TestStacks:
    def test_frames_of_the_main_thread_before_which_autograd_stands(self) -> None:
        """faulthandler's own words: the newest thread first."""
        text = (
            'Thread 0x0001 (most recent call first):\n  File "/x/threading.py", line 9 in wait\n'
            '  File "/x/a.py", line 3 in _bootstrap\n\n'
            'Thread 0x0002 (most recent call first):\n  File "/u/own.py", line 5 in hook\n\n'
            "Current thread 0x0003 (most recent call first):\n"
            '  File "/v/lib/python3.11/site-packages/torch/autograd/graph.py", line 7 in run\n'
            '  File "/u/train.py", line 11 in main\n  File "<frozen runpy>", line 8 in run\n'
        )
        assert stacks.parse(text) == [
            "/u/own.py:5 in hook",
            "torch/autograd/graph.py:7 in run",
            "/u/train.py:11 in main",
        ]
        other = text.replace("torch/autograd/graph.py", "torch/nn/functional.py")
        assert stacks.parse(other) == ["torch/nn/functional.py:7 in run", "/u/train.py:11 in main"]
        assert stacks.parse('File "/u/a.py", line 1 in f\n') == ["/u/a.py:1 in f"] and stacks.parse("") == []

    def test_four_frames_and_the_first_of_the_users_own(self) -> None:
        frames = [f"torch/{n}.py:1 in f" for n in range(6)]
        assert stacks.shown(frames) == " < ".join(frames[:4])
        own = [*frames, "/u/train.py:3 in main", "/u/other.py:9 in main"]
        assert stacks.shown(own) == " < ".join([*frames[:4], "/u/train.py:3 in main"])

    def test_only_ranks_that_may_be_asked_are(self, tmp_path: Path) -> None:
        (tmp_path / "rank0.stack").write_text("")
        reports: Any = [{"pid": os.getpid()}, {"pid": os.getpid()}]
        assert stacks.ask(tmp_path, reports, set()) == {}
        assert stacks.ask(tmp_path, reports[1:], set()) == {}


class TestRequest:
    def run(self, make_run: MakeRun, **lock: Any) -> Any:
        return read(make_run(3, **lock))

    def test_the_job_of_a_build(self, make_run: MakeRun) -> None:
        run = self.run(make_run)
        options = Options(ranks=None, device="cpu", steps=5, limit=90.0, memory_limit=7)
        job = request.job_of([run], options, request.Wanted(extra=("--x",), width=80), "slurm")
        assert (job.name, job.nodes, job.seconds, job.cards) == ("zerocfg-smoke", 1, 90, 0)
        assert (job.options, job.setup) == (("--x",), ())
        assert set(job.files) == {
            f"runs/0/tiny/{name}" for name in ("zerocfg.lock", "accelerate.yaml", "ds_config.json", "launch.sh")
        }
        assert job.files["runs/0/tiny/ds_config.json"] == (run.path / "ds_config.json").read_bytes()
        (task,) = job.tasks
        assert task.name == "tiny" and task.program[0] == "zerocfg.smoke.remote.node"
        sent = json.loads(task.program[1])
        assert (sent["nodes"], sent["device"], sent["steps"], sent["limit"]) == (1, "cpu", 5, 90.0)
        assert (sent["memory_limit"], sent["keep"], sent["width"], sent["ranks"]) == (7, None, 80, None)

    @pytest.mark.parametrize(
        ("planned", "nodes", "options", "vendor", "cards"),
        [
            (8, 1, {}, "nvidia", 2),
            (1, 1, {}, "nvidia", 1),
            (2, 2, {}, "nvidia", 1),
            (1, 2, {}, "nvidia", 1),
            (8, 1, {"ranks": 5}, "nvidia", 5),
            (8, 1, {"device": "cpu"}, "nvidia", 0),
            (8, 1, {}, "cpu", 0),
            (8, 1, {"device": "cuda"}, "cpu", 2),
        ],
    )
    def test_cards_of_a_node(
        self, make_run: MakeRun, planned: int, nodes: int, options: dict[str, Any], vendor: str, cards: int
    ) -> None:
        run = self.run(make_run)
        run.plan["num_processes"] = planned
        run.lock.hardware["vendor"] = vendor
        assert request._cards(run, nodes, Options(**{"device": "auto", **options})) == cards

    def test_runs_of_one_job_agree(self, make_run: MakeRun) -> None:
        assert request._shared({"a": 2, "b": 2}, "nodes", "--nodes") == 2
        with pytest.raises(SmokeError, match=r"nodes of a is 2, of c 3 \(--nodes\)"):
            request._shared({"a": 2, "b": 2, "c": 3}, "nodes", "--nodes")
        by_hand = replace(self.run(make_run), handwritten=SimpleNamespace())  # type: ignore[arg-type]
        with pytest.raises(SmokeError, match="--on takes builds"):
            request.job_of([by_hand], Options(), request.Wanted(), "slurm")

    def test_words_for_sbatch(self) -> None:
        assert request._words(None) == ()
        slurm: Any = SimpleNamespace(partition="gpu", account=None, qos="high", options=("--exclusive",))
        assert request._words(slurm) == ("--partition=gpu", "--qos=high", "--exclusive")


class TestExpected:
    def test_the_loop_of_the_ranks_decides_what_is_predicted(self) -> None:
        """A loop of DeepSpeed's own knows no zero.Init, the Trainer does; TRL's runs are trained by the Trainer."""
        found = reduced(
            deepspeed={
                "zero_optimization": {"stage": 3},
                "train_micro_batch_size_per_gpu": 2,
                "bf16": {"enabled": True},
            },
            sequence=32,
        )
        inits = {}
        for consumer in ("deepspeed", "transformers", "trl"):
            setup = prediction.setup_in(found, consumer)
            assert isinstance(setup.options, ZeroOptions) and setup.workload is not None
            assert (setup.workload.micro_batch, setup.workload.sequence_length) == (2, 32)
            inits[consumer] = setup.options.zero_init
        assert inits == {"deepspeed": False, "transformers": True, "trl": True}
        assert prediction.setup_in(found, "trl") == prediction.setup_in(found, "transformers")

    def test_a_processor_has_no_rates(self) -> None:
        assert prediction.profile_of(CPU, 2) is None
        card = prediction.profile_of(CARD, 2)
        assert card is not None and card.accelerators_per_node == 2 and card.accelerator.name.startswith("H100")
        assert card.link_within_node is not None
        alone = prediction.profile_of(CARD, 1)
        assert alone is not None and alone.link_within_node is None
        unknown = prediction.profile_of(Device("cuda", "Card X", 1), 1)
        assert unknown is not None and (unknown.accelerator.name, unknown.accelerator.vendor) == ("Card X", "nvidia")
