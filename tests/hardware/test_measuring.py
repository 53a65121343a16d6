"""Launchers, and the program that measures: in a process of its own, whatever happens to it."""

from __future__ import annotations

import os
import socket
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.hardware import launcher, measure
from zerocfg.hardware.launcher import Place
from zerocfg.hardware.measure import MeasureError
from zerocfg.hardware.probe import quietly
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host

if TYPE_CHECKING:
    from pathlib import Path

CPU = HardwareProfile(
    name="cpu", accelerators_per_node=1, accelerator=Accelerator(name="cpu", vendor="cpu"), host=Host(cpus=1)
)


class TestLauncher:
    def test_no_launcher(self) -> None:
        assert launcher.find({}) is None
        assert launcher.find({"RANK": "0", "WORLD_SIZE": "1"}) is None

    def test_torchrun(self) -> None:
        found = launcher.find(
            {
                "RANK": "9",
                "LOCAL_RANK": "1",
                "WORLD_SIZE": "16",
                "GROUP_RANK": "1",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "1234",
                "SLURM_PROCID": "1",
                "SLURM_STEP_ID": "0",
                "SLURM_NTASKS": "2",
            }
        )
        assert found and (found.rank, found.local_rank, found.world, found.node) == (9, 1, 16, "1")
        assert found.environment["MASTER_PORT"] == "1234"

    def test_srun(self) -> None:
        slurm = {
            "SLURM_PROCID": "3",
            "SLURM_NTASKS": "4",
            "SLURM_LOCALID": "1",
            "SLURM_NODEID": "1",
            "SLURM_STEP_ID": "0",
            "MASTER_ADDR": "node01",
        }
        found = launcher.find(slurm)
        assert found and (found.rank, found.local_rank, found.world, found.node) == (3, 1, 4, "1")
        assert found.environment == {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_PORT": "29500"}
        batch_script = {name: value for name, value in slurm.items() if name != "SLURM_STEP_ID"}
        assert launcher.find(batch_script) is None
        assert launcher.find({**slurm, "SLURM_STEP_NUM_TASKS": "1"}) is None
        del slurm["SLURM_NODEID"]
        alone = launcher.find(slurm)
        assert alone and alone.node == socket.gethostname()

    @pytest.mark.parametrize(
        "names",
        [
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
            ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        ],
    )
    def test_mpirun(self, names: tuple[str, str, str]) -> None:
        environment = dict(zip(names, ("5", "8", "1"), strict=True))
        found = launcher.find({**environment, "MASTER_ADDR": "node01"})
        assert found and (found.rank, found.world, found.local_rank) == (5, 8, 1)
        assert found.node == socket.gethostname()
        with pytest.raises(ValueError, match=f"{names[1]} is 8, but MASTER_ADDR"):
            launcher.find(environment)
        del environment[names[2]]
        assert launcher.find(environment) is None, "what srun's PMI leaves out as well"

    @pytest.mark.parametrize(
        ("environment", "words"),
        [
            ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "WORLD_SIZE is 2, but MASTER_ADDR is not set"),
            ({"RANK": "zero", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK is 'zero'"),
            ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "LOCAL_RANK is not set"),
            ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a"}, "RANK is 2 and WORLD_SIZE is 2"),
            (
                {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"},
                "SLURM_NTASKS is 2, but MASTER_ADDR",
            ),
        ],
    )
    def test_variables_that_make_no_sense(self, environment: dict[str, str], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            launcher.find(environment)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts another program in the place of the one that measures."""

    def put(code: str) -> None:
        package = tmp_path / "zerocfg/hardware/measuring"
        package.mkdir(parents=True)
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {tmp_path / "code.py"} "$@"\n')
        script.chmod(0o755)
        (tmp_path / "code.py").write_text(
            "import json, os, pathlib, sys, time\nanswer = pathlib.Path(sys.argv[2])\n" + code
        )
        monkeypatch.setattr(sys, "executable", str(script))

    return put


class TestAsk:
    def test_the_answer_and_the_phases(self, program: Any, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "told")
        program(
            f"answer.with_name('phase').write_text('thinking'); pathlib.Path({str(tmp_path / 'told')!r}).read_text()\n"
            "answer.write_text(json.dumps({'ranks': os.environ['RANK']}))"
        )
        told: list[str] = []

        def progress(phase: str) -> None:
            told.append(phase)
            (tmp_path / "told").write_text(phase)

        assert measure.ask({}, [{"RANK": "5"}], progress) == {"ranks": "5"}
        assert told == ["thinking"]

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            ("print('Bus error'); os._exit(7)", "it ended with code 7: Bus error"),
            ("os.kill(os.getpid(), 11)", "it ended with code -11"),
            ("answer.write_text('{')", "it ended with code 0"),
            ("answer.write_text(json.dumps({'error': 'no memory'}))", "no memory"),
        ],
    )
    def test_whatever_happens_to_it_is_one_line(self, program: Any, code: str, words: str) -> None:
        program(code)
        with pytest.raises(MeasureError, match=words) as error:
            measure.ask({}, [{}], quietly)
        assert "\n" not in str(error.value)

    def test_after_the_limit_it_is_killed(self, program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """By a clock that stands still until the program has told what it does."""
        program("answer.with_name('phase').write_text('sleeping'); time.sleep(60); answer.write_text('{}')")
        now = [0.0]
        monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
        with pytest.raises(MeasureError, match=r"^it was killed while sleeping \(after 90 s at the latest\)$"):
            measure.ask({}, [{}], lambda _: now.append(now.pop() + 90), limit=90)

    def test_the_others_end_when_one_dies(self, program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        program("if os.environ['RANK'] == '1': os._exit(3)\ntime.sleep(60)\nanswer.write_text('{}')")
        monkeypatch.setattr(measure, "GRACE", 0.0)
        with pytest.raises(MeasureError, match=r"^it was killed while starting"):
            measure.ask({}, [{"RANK": "0"}, {"RANK": "1"}], quietly)

    def test_several_own_ranks_free_of_an_outer_launcher(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
        monkeypatch.setenv("RANK", "7")
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        profile = CPU.model_copy(update={"host": Host(cpus=8)})
        ranks = measure._own_ranks(2, profile)
        assert [rank["RANK"] for rank in ranks] == ["0", "1"]
        assert ranks[0]["OMP_NUM_THREADS"] == "4" and ranks[0]["TORCHELASTIC_RUN_ID"] is None
        assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"]
        assert measure._own_ranks(1, profile)[0]["RANK"] is None

    def test_devices_that_are_hidden_get_no_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert measure._visible(8) == 8
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
        assert measure._visible(8) == 2


class TestThisMachine:
    def test_without_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measure, "has_torch", lambda: False)
        done = measure.of_this_machine(CPU, quietly)
        assert done.notes == ["nothing was measured but the drives: torch is not installed in this Python"]
        with pytest.raises(MeasureError, match="torch is not installed"):
            measure.of_all_nodes(Place(0, 0, 2, "0"), None, False, quietly)

    def test_several_devices_that_fail_together_are_tried_alone(
        self, program: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measure, "has_torch", lambda: True)
        program(
            "if os.environ.get('WORLD_SIZE') == '2': os._exit(1)\n"
            "answer.write_text(json.dumps({'ranks': [{'node': 'a', 'host': 'a', 'local_rank': 0, 'profile': None,"
            " 'notes': [], 'device': 'cuda', 'threads': 1, 'torch': '2', 'matrix_products': {'bf16': 600.0}}]}))"
        )
        card = Accelerator(name="L4", vendor="nvidia")
        profile = CPU.model_copy(update={"accelerator": card, "accelerators_per_node": 2})
        done = measure.of_this_machine(profile, quietly)
        assert done.accelerator.measured_tflops == {"bf16": 600}
        assert "measuring with 2 ranks failed: it ended with code 1" in done.notes
        assert any("collectives were not measured" in note for note in done.notes)

    @pytest.mark.libs
    def test_for_real(self) -> None:
        told: list[str] = []
        done = measure.of_this_machine(CPU, told.append)
        assert set(done.accelerator.measured_tflops) >= {"fp32"}
        assert done.host and done.host.memory_gb_s and done.accelerator.measured_memory_gb_s == done.host.memory_gb_s
        assert done.host.launch_us and 1 < done.host.launch_us < 1000
        assert "measuring matrix products" in told
        assert any("collectives were not measured" in note for note in done.notes)
        assert any("1 thread" in note for note in done.notes) or os.cpu_count() != 1

    @pytest.mark.libs
    def test_a_rank_that_never_comes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measure, "PATIENCE", 2.0)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        place = Place(0, 0, 2, "0", {**environment, "MASTER_PORT": port})
        with pytest.raises(MeasureError, match=r"1/2 clients joined"):
            measure.of_all_nodes(place, CPU, False, quietly)


@pytest.mark.libs
@pytest.mark.several_ranks
def test_two_ranks_measure_their_link() -> None:
    request = measure._request(CPU)
    request["measure"] = True
    found = measure.ask(request, measure._own_ranks(2, CPU), quietly)
    links = [report["links"] for report in found["ranks"]]
    assert [{name: rates["ranks"] for name, rates in one.items()} for one in links] == [{"within": 2}] * 2
    assert all(one["within"]["busbw_gb_s"] > 0 and one["within"]["latency_us"] > 0 for one in links)
    assert [report["notes"] for report in found["ranks"]] == [[], []]


@pytest.mark.libs
def test_a_measured_layer_launches_as_many_kernels_as_one_of_transformers() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode
    from transformers import LlamaConfig, LlamaForCausalLM

    from zerocfg.hardware.measuring import launches
    from zerocfg.hardware.measuring.library import Device

    class Kernels(TorchDispatchMode):
        """Counts what is no view."""

        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += not function.is_view and "unsafe_view" not in str(function)
            return function(*args, **(kwargs or {}))

    def counted(run: Any) -> int:
        with Kernels() as kernels:
            run()
        return kernels.count

    def of_transformers(layers: int) -> int:
        shape = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 512}
        model = LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=layers, use_cache=False))
        ids = torch.randint(0, 512, (1, 8))
        return counted(lambda: model(input_ids=ids))

    torch = pytest.importorskip("torch")
    ours = counted(launches.layers(Device("cpu")))
    assert ours == launches.LAYERS * launches.KERNELS
    assert (of_transformers(6) - of_transformers(2)) / 4 == launches.KERNELS
