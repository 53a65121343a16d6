"""What a smoke-run finds out before it starts: cards, folders, the run of a command, memory for files, operators, what
files ask for, trainers of TRL. Expectations by hand; no library runs, no program either."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.recorded_calls import Log, logged
from zerocfg.hardware import linux
from zerocfg.resolve.plan import Decision
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Kind, Reduced
from zerocfg.smoke.prepare import (
    device,
    folder,
    linked_run,
    memory_files,
    nvidia_smi,
    operators,
    requested_settings,
    trl_trainers,
)
from zerocfg.smoke.prepare.line import run_of_command
from zerocfg.smoke.prepare.nvidia_smi import Card, NvidiaSmiError, Slice
from zerocfg.smoke.prepare.strategies import with_strategy
from zerocfg.smoke.prepare.visible_cards import Visible

from .sets import ACCELERATE, RECIPE, TORCHRUN, WITHOUT_DEEPSPEED, Set, launched, plain, trainer, zero

if TYPE_CHECKING:
    from .conftest import MakeRun


MIB, GIB = 1 << 20, 1 << 30


class TestNvidiaSmi:
    WITH_MODE = "--query-gpu=index,uuid,name,memory.total,memory.free,mig.mode.current"
    WITHOUT = "--query-gpu=index,uuid,name,memory.total,memory.free"
    FORM = "--format=csv,noheader,nounits"
    UNKNOWN = 'Field "{}" is not a valid field to query.\n'

    @pytest.fixture
    def listed(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        def listing(*answers: Any) -> tuple[list[Card], Log]:
            log: Log = []
            left = list(answers)

            def call(words: list[str]) -> Any:
                log.append(tuple(words))
                out, error = (left.pop(0), "") if isinstance(left[0], str) else left.pop(0)
                return SimpleNamespace(stdout=out, stderr=error)

            monkeypatch.setattr(nvidia_smi.shutil, "which", lambda name: f"/bin/{name}")
            monkeypatch.setattr(nvidia_smi, "_call", call)
            return nvidia_smi.list_cards(), log

        return listing

    def test_cards_by_their_index(self, listed: Any) -> None:
        text = "warning, x, y, z\n1, GPU-b, B, 2, 1, [N/A]\n0, GPU-a, A, C, 4, 3, Disabled\n\n"
        cards, log = listed(text)
        assert cards == [Card(0, "GPU-a", "A, C", 4 * MIB, 3 * MIB), Card(1, "GPU-b", "B", 2 * MIB, MIB)]
        assert log == [("/bin/nvidia-smi", self.WITH_MODE, self.FORM)]

    @pytest.mark.parametrize("where", [0, 1])
    def test_an_old_driver_is_asked_for_less(self, where: int, listed: Any) -> None:
        answer = ["", ""]
        answer[where] = self.UNKNOWN.format("mig.mode.current")
        cards, log = listed(tuple(answer), "0, GPU-a, A, B, 4, 3\n")
        assert cards == [Card(0, "GPU-a", "A, B", 4 * MIB, 3 * MIB)]
        assert log == [("/bin/nvidia-smi", item, self.FORM) for item in (self.WITH_MODE, self.WITHOUT)]

    def test_a_driver_that_knows_no_field_is_not_asked_for_ever(self, listed: Any) -> None:
        mode = self.UNKNOWN.format("mig.mode.current")
        with pytest.raises(NvidiaSmiError, match=r'^nvidia-smi lists none: Field "mig.mode.current" is not a valid'):
            listed(mode, mode)

    def test_slices_of_the_cards_in_mig_mode(self, listed: Any) -> None:
        text = "0, GPU-a, A, 4, 3, Enabled\n1, GPU-b, B, 2, 1, Disabled\n"
        listing = (
            "GPU 0: A (UUID: GPU-a)\n  MIG 3g.40gb     Device  0: (UUID: MIG-1)\n  MIG 1c.2g.20gb  Device  1: "
            "(UUID: MIG-2)\nother\nGPU 1: B (UUID: GPU-b)\n  MIG 1g.10gb  Device  0: (UUID: MIG-3)\n"
        )
        cards, log = listed(text, listing)
        slices = [Slice("MIG-1", "3g.40gb", 40 * 10**9), Slice("MIG-2", "1c.2g.20gb", 20 * 10**9)]
        assert cards[0] == Card(0, "GPU-a", "A", 4 * MIB, 3 * MIB, mig=True, slices=slices)
        assert cards[1].slices == [] and log[1] == ("/bin/nvidia-smi", "-L")

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (("No devices\n were found", "and this"), "nvidia-smi lists none: No devices were found and this"),
            ("", "nvidia-smi lists none"),
            ("x" * 300, f"nvidia-smi lists none: {'x' * 200}"),
            (UNKNOWN.format("uuid"), 'nvidia-smi lists none: Field "uuid" is not a valid field to query.'),
        ],
    )
    def test_no_card(self, answer: Any, said: str, listed: Any) -> None:
        with pytest.raises(NvidiaSmiError) as raised:
            listed(answer)
        assert str(raised.value) == said

    @pytest.mark.parametrize(
        ("line", "mode", "card"),
        [
            ("0, GPU-a, A, B, 4, 3, Enabled", True, Card(0, "GPU-a", "A, B", 4 * MIB, 3 * MIB, mig=True)),
            ("0, GPU-a, A, B, 4, 3", False, Card(0, "GPU-a", "A, B", 4 * MIB, 3 * MIB)),
            ("0, GPU-a, A, 4, Enabled", False, Card(0, "GPU-a", "A", 4 * MIB, 4 * MIB)),
            ("0, GPU-a, A, [N/A], [N/A], [N/A]", True, Card(0, "GPU-a", "A", None, None, unified=True)),
            ("0, GPU-a, A, N/A, 3, x", True, Card(0, "GPU-a", "A", None, 3 * MIB, unified=True)),
            ("0, GPU-a, A, [not supported], 3, x", True, Card(0, "GPU-a", "A", None, 3 * MIB, unified=True)),
            ("0, GPU-a, A, [N/A], 3, Enabled", True, Card(0, "GPU-a", "A", None, 3 * MIB, mig=True)),
            ("0, GPU-a, A, [Unknown Error], 3, x", True, Card(0, "GPU-a", "A", None, 3 * MIB)),
            ("0, GPU-a, A, 4, [N/A], x", True, Card(0, "GPU-a", "A", 4 * MIB, 4 * MIB)),
            ("0, GPU-a, A, 4, 3", True, Card(0, "GPU-a", "A", 4 * MIB, 3 * MIB)),
            ("0, GPU-a", True, None),
            ("0", False, None),
            ("x, GPU-a, A, 4, 3, x", True, None),
            ("\u00b2, GPU-a, A, 4, 3, x", True, None),
            ("0, GPU-a, A, \u00b2, 3, x", True, Card(0, "GPU-a", "A", None, 3 * MIB)),
            ("0, GPU-a, A, 4", False, None),
            ("0, GPU-a, A", True, None),
        ],
    )
    def test_a_line(self, line: str, mode: bool, card: Card | None) -> None:
        assert nvidia_smi._card(line, mode) == card

    def test_how_it_is_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        monkeypatch.setattr(nvidia_smi.subprocess, "run", logged(log, "run", "done"))
        assert nvidia_smi._call(["a", "b"]) == "done"
        named = {"capture_output": True, "text": True, "errors": "replace", "timeout": 30.0, "check": False}
        assert log == [("run", ["a", "b"], *named.items())]
        for error in (PermissionError(13, "denied"), subprocess.TimeoutExpired("a", 30)):
            monkeypatch.setattr(nvidia_smi.subprocess, "run", logged(log, "run", error))
            with pytest.raises(NvidiaSmiError, match=r"^nvidia-smi cannot be run: "):
                nvidia_smi._call(["a"])
        monkeypatch.setattr(nvidia_smi.shutil, "which", lambda name: None)
        with pytest.raises(NvidiaSmiError, match=r"^there is no nvidia-smi on the PATH$"):
            nvidia_smi.list_cards()


class TestDevice:
    @pytest.mark.parametrize(
        ("memory", "free", "unified", "host", "limit", "found"),
        [
            (80, 70, False, (1, 1), 1, (80, 70)),
            (None, None, False, (1, 1), 1, (0, 0)),
            (None, None, True, (119, 100), None, (119, 100)),
            (None, None, True, (119, 50), 64, (64, 50)),
            (None, None, True, (None, None), 64, (64, 64)),
            (None, None, True, (None, None), None, (0, 0)),
            (None, None, True, (None, 50), None, (0, 50)),
        ],
    )
    def test_memory_of_one(
        self,
        memory: Any,
        free: Any,
        unified: bool,
        host: Any,
        limit: Any,
        found: tuple[int, int],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(linux, "memory", lambda root: host)
        monkeypatch.setattr(linux, "memory_limit", lambda root: limit)
        assert device._memory(Visible(Card(0, "GPU-a", "A", memory, free, unified))) == found

    def test_the_least_of_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cards = [Card(0, "GPU-a", "A", 8, 7), Card(1, "GPU-b", "B", 9, 3), Card(2, "GPU-c", "C", 4, 4)]
        monkeypatch.setattr(device, "list_cards", lambda: cards)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert device.choose("auto") == device.Device("cuda", "A", 3, 4, 3)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert device.choose("cuda") == device.Device("cuda", "B", 1, 9, 3)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        none = "CUDA_VISIBLE_DEVICES='7' names no card of this machine"
        assert device.choose("auto") == device.Device("cpu", "cpu", note=none)
        with pytest.raises(SmokeError, match=r"^no NVIDIA card is seen here \(CUDA.*'7'.*\); use --device cpu$"):
            device.choose("cuda")
        monkeypatch.setattr(device, "list_cards", lambda: pytest.fail("nobody wants a card"))
        assert device.choose("cpu") == device.Device("cpu", "cpu")

    def test_room_of_a_card(self) -> None:
        rooms = [device.Device("cuda", "x", 1, memory, free).room for memory, free in ((8, 7), (8, 0), (0, 0))]
        assert rooms == [7, 8, None]


class TestFolder:
    def lock(self, path: Path, **changes: Any) -> None:
        content = json.loads((path / "zerocfg.lock").read_text())
        for name, value in changes.items():
            content[name] = value
        (path / "zerocfg.lock").write_text(json.dumps({key: item for key, item in content.items() if item is not None}))

    def test_names_that_a_lock_leaves_out(self, make_run: MakeRun) -> None:
        path = make_run(3)
        self.lock(path, run=None, consumer=None)
        run = folder.read(path)
        assert (run.name, run.consumer) == ("tiny", "transformers") and run.plan is run.lock.plan
        self.lock(path, run="sft", consumer="trl")
        run = folder.read(path)
        assert (run.name, run.consumer) == ("sft", "trl")

    def test_every_file_and_its_hash(self, make_run: MakeRun) -> None:
        path = make_run(3)
        (path / "launch.sh").write_text("other")
        run = folder.read(path)
        assert run.hashes == {item.name: hashlib.sha256(item.read_bytes()).hexdigest() for item in path.iterdir()}
        assert list(run.changed) == ["launch.sh"] and run.changed["launch.sh"] == run.lock.files["launch.sh"]
        assert run.accelerate is not None and run.accelerate["num_processes"] == 4 and run.handwritten is None

    @pytest.mark.parametrize(
        ("consumer", "launcher", "refused"),
        [
            ("transformers", None, True),
            ("transformers", "accelerate", True),
            ("transformers", "torchrun", False),
            ("deepspeed", None, False),
            ("deepspeed", "accelerate", False),
        ],
    )
    def test_who_needs_a_config_of_accelerate(
        self, consumer: str, launcher: str | None, refused: bool, make_run: MakeRun
    ) -> None:
        path = make_run(3)
        (path / "accelerate.yaml").unlink()
        files = json.loads((path / "zerocfg.lock").read_text())["files"]
        del files["accelerate.yaml"]
        self.lock(path, consumer=consumer, launcher=launcher, files=files)
        if refused:
            with pytest.raises(SmokeError, match=r"holds no accelerate\.yaml; build the run again"):
                folder.read(path)
        else:
            assert folder.read(path).accelerate is None

    @pytest.mark.parametrize("text", ["- 1\n", "word", "[1"])
    def test_configs_that_are_no_mapping(self, text: str, make_run: MakeRun) -> None:
        path = make_run(3)
        (path / "accelerate.yaml").write_text(text)
        with pytest.raises(SmokeError, match=r"accelerate\.yaml (does not hold a mapping|cannot be read: while)"):
            folder.read(path)

    def test_a_file_that_is_gone(self, make_run: MakeRun) -> None:
        path = make_run(3)
        (path / "launch.sh").unlink()
        with pytest.raises(SmokeError, match=r"launch\.sh is missing; build the run again$"):
            folder.read(path)

    def test_a_file_that_cannot_be_read(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        path = make_run(3)
        whole = folder.disk.whole

        def refuse(file: Path, most: int) -> bytes:
            if file.name == "launch.sh":
                raise PermissionError(13, "Permission denied")
            return whole(file, most)

        monkeypatch.setattr(folder.disk, "whole", refuse)
        with pytest.raises(SmokeError, match=r"launch\.sh cannot be read: Permission denied$"):
            folder.read(path)

    def test_files_by_hand(self, tmp_path: Path) -> None:
        Set(trainer(zero(2))).write(tmp_path)
        hashes = {
            name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("recipe.yaml", "ds.json")
        }
        for path in (tmp_path, tmp_path / "train.sh"):
            run = folder.read(path)
            assert run.path == tmp_path and run.handwritten is not None and run.accelerate is None
            assert {Path(name).name: item for name, item in run.hashes.items() if "train" not in name} == hashes
            assert run.deepspeed is not None and run.deepspeed["zero_optimization"]["stage"] == 2  # type: ignore[index]
            assert run.lock.recipe["max_steps"] == 4 and run.changed == {}
        (tmp_path / "empty").mkdir()
        with pytest.raises(SmokeError, match=r"^'.*empty' holds no zerocfg\.lock, so that it is taken as written by"):
            folder.read(tmp_path / "empty")
        (tmp_path / "notes.txt").write_text("x")
        with pytest.raises(SmokeError, match=r"^'.*notes\.txt' is no config that zerocfg knows"):
            folder.read(tmp_path / "notes.txt")


class TestLine:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        line = "torchrun --nproc_per_node {} train.py recipe.yaml\n"
        Set(
            {"recipe.yaml": RECIPE, "ds.json": zero(2), "one.sh": line.format(2), "one.txt": line.format(5)}
            | {"two.sh": line.format(3) + line.format(4), "none.sh": "echo\n"}
        ).write(tmp_path)

    @pytest.mark.parametrize(
        ("command", "name", "ranks"),
        [
            ("torchrun --nproc_per_node 7 train.py recipe.yaml", "the command.sh:1", 7),
            ("bash one.sh", "one.sh:1", 2),
            ("bash none.sh gone.sh one.sh", "one.sh:1", 2),
            ("bash one.sh two.sh", "one.sh:1", 2),
        ],
    )
    def test_the_one_launch_line(self, command: str, name: str, ranks: int) -> None:
        run = run_of_command(command)
        assert run is not None and (run.name, run.consumer) == (name, "transformers")
        assert run.effective.settings["num_processes"].value == ranks and run.recipe is not None

    @pytest.mark.parametrize(
        "command",
        [
            "torchrun a.py recipe.yaml; torchrun b.py recipe.yaml",
            "bash two.sh one.sh",
            "bash one.txt",
            "bash gone.sh",
            "echo one.sh 'unclosed",
            "echo hi",
            "torchrun train.py",
        ],
    )
    def test_no_single_one(self, command: str) -> None:
        assert run_of_command(command) is None


class TestLinked:
    def test_the_first_of_the_folder_with_the_reader_of_the_lock(self, make_run: MakeRun) -> None:
        run = folder.read(make_run(3, consumer="accelerate"))
        found = linked_run.linked_run(run)
        assert found is not None and found.accelerate is not None and found.consumer == "accelerate"
        other = linked_run.linked_run(replace(run, lock=replace(run.lock, consumer="verl")))
        assert other is not None and other.consumer is None, "none that zerocfg starts"

    def test_what_is_known_already(self, make_run: MakeRun) -> None:
        run = folder.read(make_run(3))
        own: Any = SimpleNamespace(run="by hand")
        line: Any = "line"
        assert linked_run.linked_run(replace(run, handwritten=own, line=line)) == "by hand"  # type: ignore[comparison-overlap]
        assert linked_run.linked_run(replace(run, line=line)) == "line"  # type: ignore[comparison-overlap]
        bare = replace(run, lock=replace(run.lock, plan={}), hashes={})
        assert linked_run.linked_run(bare) is None
        assert linked_run.linked_run(replace(run, hashes={})) is not None
        assert linked_run.linked_run(replace(run, lock=replace(run.lock, plan={}))) is not None

    def test_a_folder_without_a_run(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        run = folder.read(make_run(3))
        for name in ("accelerate.yaml", "ds_config.json", "launch.sh"):
            (run.path / name).unlink()
        assert linked_run.linked_run(run) is None

        def denied(*_: Any, **named: Any) -> Any:
            raise PermissionError

        monkeypatch.setattr(linked_run, "find_runs", denied)
        assert linked_run.linked_run(run) is None

    def test_only_runs_with_a_config(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        run = folder.read(make_run(3))
        empty = {"accelerate": None, "deepspeed": None, "recipe": None, "consumer": "trl"}
        made: list[Any] = [SimpleNamespace(**empty | more) for more in ({}, {"deepspeed": 1}, {"recipe": 1})]
        monkeypatch.setattr(linked_run, "find_runs", lambda paths, files, root: (made, None))
        assert linked_run.linked_run(run) is made[1]
        del made[1]
        assert linked_run.linked_run(run) is made[1]

    def test_the_folder_of_the_spec(self, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = folder.read(make_run(3))
        tops = {"../..": tmp_path, None: run.path, ".": run.path, "../other": run.path, "/no/such": run.path}
        (tmp_path / "out" / "other").mkdir()
        for spec, top in tops.items():
            changed = replace(run, lock=replace(run.lock, spec_folder=spec))
            assert linked_run._top(changed) == top
        seen: Log = []
        monkeypatch.setattr(linked_run, "find_runs", logged(seen, "find", ([], None)))
        linked_run.linked_run(replace(run, lock=replace(run.lock, spec_folder="../..")))
        assert seen[0][1] == [run.path] and seen[0][-1] == ("root", tmp_path)


class TestMemoryFiles:
    def test_four_fifths_of_what_is_free(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory_files, "memory_folder", lambda root: tmp_path)
        disks = SimpleNamespace(disk_usage=lambda path: SimpleNamespace(free=1000))
        monkeypatch.setattr(memory_files, "shutil", disks)
        assert memory_files.memory_room() == 800
        disks.disk_usage = logged([], "usage", PermissionError())
        assert memory_files.memory_room() == 0
        monkeypatch.setattr(memory_files, "memory_folder", lambda root: None)
        assert memory_files.memory_room() == 0

    def test_a_folder_that_may_not_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in memory_files.CHOSEN_BY:
            monkeypatch.delenv(name, raising=False)
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/mounts").write_text("shm /dev/shm tmpfs rw 0 0\n")
        modes: Log = []
        monkeypatch.setattr(os, "access", logged(modes, "access", False))
        assert memory_files.memory_folder(tmp_path) is None
        assert modes == [("access", tmp_path / "dev/shm", os.W_OK | os.X_OK)]


def on(device: str) -> dict[str, Any]:
    """An optimizer that is kept there."""
    return {"zero_optimization": {"offload_optimizer": {"device": device}}}


class TestOperators:
    @pytest.mark.parametrize(
        ("config", "found"),
        [
            ({"optimizer": {"type": "Adagrad"}}, []),
            ({"optimizer": {"type": "Adagrad"}} | on("cpu"), ["cpu_adagrad"]),
            ({"optimizer": {"type": "LAMB"}} | on("cpu"), ["fused_lamb"]),
            ({"optimizer": {"type": "Lion"}} | on("nvme"), ["cpu_lion", "async_io"]),
            ({"optimizer": {"type": "AdamW", "params": {"torch_adam": False}}}, ["fused_adam"]),
            ({"optimizer": {"params": {}}} | on("cpu"), ["cpu_adam"]),
            ({"zero_optimization": {"offload_optimizer": {}, "offload_param": {}}}, []),
            ({"zero_optimization": 3, "optimizer": "x"}, []),
            ({"zero_force_ds_cpu_optimizer": True}, []),
        ],
    )
    def test_by_optimizer_and_place(self, config: Any, found: list[str]) -> None:
        assert operators.operators_of(config) == found

    def test_where_tools_are_looked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        log: Log = []
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "setuptools" else None)
        monkeypatch.setattr(shutil, "which", logged(log, "which"))
        monkeypatch.setenv("PATH", "/bin:/x")
        said = operators.missing_tools({"optimizer": {"type": "Adam"}})
        assert said == "DeepSpeed compiles fused_adam for this config, and ninja is not installed: pip install ninja"
        assert log == [("which", "ninja", ("path", f"{Path(sys.executable).parent}:/bin:/x"))]

    def test_what_is_built_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "git_version_info_installed.py").write_text("ops={'cpu_adam': True, 'fused_adam': False}")
        places: list[Any] = [SimpleNamespace(submodule_search_locations=["/no/such", str(tmp_path)])]
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: places[0])
        assert [operators._is_built_in(name) for name in ("cpu_adam", "fused_adam", "adam")] == [True, False, False]
        for places[0] in (None, SimpleNamespace(submodule_search_locations=None)):
            assert not operators._is_built_in("cpu_adam")


def asked(path: Path, files: dict[str, str], consumer: str) -> dict[str, list[tuple[Any, str]]]:
    """What is asked for, each with its words and its place below the folder."""
    run = folder.read(Set(files).write(path), consumer)
    assert run.handwritten is not None
    where = f"({path}/"
    return {
        name: [(claim.value, str(claim).replace(where, "(").replace(f"({path.name}/", "(")) for claim in found]
        for name, found in run.handwritten.requested.items()
    }


class TestAsked:
    KIND, SECTION = "distributed_type: ", "deepspeed: deepspeed_config: {...}"

    def test_a_recipe_with_a_config_in_it(self, tmp_path: Path) -> None:
        more = "optim: adamw_torch\nlr_scheduler_type: cosine\ndeepspeed:\n  zero_optimization:\n    stage: 2\n"
        more += "    offload_param: {device: cpu}\n    stage3_gather_16bit_weights_on_model_save: true\n"
        files = {"recipe.yaml": f"{WITHOUT_DEEPSPEED}{more}  fp16: {{enabled: false}}\n", "train.sh": TORCHRUN}
        zero_2 = "deepspeed.zero_optimization"
        assert asked(tmp_path, files, "transformers") == {
            "dtype": [("bf16", "bf16: True (recipe.yaml:7)")],
            "micro_batch": [(1, "per_device_train_batch_size: 1 (recipe.yaml:2)")],
            "gradient_accumulation_steps": [(2, "gradient_accumulation_steps: 2 (recipe.yaml:3)")],
            "gradient_clipping": [(0.5, "max_grad_norm: 0.5 (recipe.yaml:5)")],
            "optimizer": [("adamw_torch", "optim: adamw_torch (recipe.yaml:8)")],
            "scheduler": [("cosine", "lr_scheduler_type: cosine (recipe.yaml:9)")],
            "engine": [("deepspeed", "deepspeed: {...} (recipe.yaml:10)")],
            "stage": [(2, f"{zero_2}.stage: 2 (recipe.yaml:12)")],
            "offload_param": [("cpu", f"{zero_2}.offload_param.device: cpu (recipe.yaml:13)")],
            "weights": [(True, f"{zero_2}.stage3_gather_16bit_weights_on_model_save: True (recipe.yaml:14)")],
        }

    def test_a_recipe_without_an_engine(self, tmp_path: Path) -> None:
        found = asked(tmp_path, {"recipe.yaml": WITHOUT_DEEPSPEED, "train.sh": TORCHRUN}, "transformers")
        assert set(found) == {"dtype", "micro_batch", "gradient_accumulation_steps", "gradient_clipping"}

    def test_a_recipe_that_names_its_config(self, tmp_path: Path) -> None:
        config = zero(3, gradient_clipping=1.0, bf16=None, bfloat16={"enabled": True})
        found = asked(tmp_path, trainer(config), "transformers")
        assert found["engine"] == [("deepspeed", "deepspeed: ds.json (recipe.yaml:8)")]
        both = [("bf16", "bf16: True (recipe.yaml:7)"), ("bf16", "bfloat16.enabled: True (ds.json:10)")]
        assert found["dtype"] == both
        assert found["gradient_clipping"][1] == (1, "gradient_clipping: 1.0 (ds.json:4)")

    def test_a_config_of_accelerate(self, tmp_path: Path) -> None:
        section = "deepspeed_config:\n  zero_stage: '3'\n  zero3_save_16bit_model: true\n  gradient_clipping: 1.0\n"
        section += "  offload_optimizer_device: cpu\n  zero_optimization:\n    stage: 2\n"
        assert asked(tmp_path, launched("DEEPSPEED", section), "accelerate") == {
            "engine": [("deepspeed", "distributed_type: DEEPSPEED (accelerate.yaml:1)")],
            "dtype": [("bf16", "mixed_precision: bf16 (accelerate.yaml:3)")],
            "stage": [
                (3, "deepspeed_config.zero_stage: 3 (accelerate.yaml:5)"),
                (2, "deepspeed_config.zero_optimization.stage: 2 (accelerate.yaml:10)"),
            ],
            "offload_optimizer": [("cpu", "deepspeed_config.offload_optimizer_device: cpu (accelerate.yaml:8)")],
            "gradient_clipping": [(1, "deepspeed_config.gradient_clipping: 1.0 (accelerate.yaml:7)")],
            "weights": [(True, "deepspeed_config.zero3_save_16bit_model: True (accelerate.yaml:6)")],
        }

    @pytest.mark.parametrize(
        ("kind", "section", "engines"),
        [
            ("FSDP", "deepspeed_config:\n  zero_stage: 2\n", [f"fsdp: {KIND}FSDP", SECTION]),
            ("FSDP", "deepspeed_config: {}\n", [f"fsdp: {KIND}FSDP"]),
            ("MULTI_GPU", "deepspeed_config: 3\n", [f"ddp: {KIND}MULTI_GPU"]),
            ("MULTI_CPU", "", [f"ddp: {KIND}MULTI_CPU"]),
            ("MULTI_GPU", "deepspeed_config:\n  zero_stage: 2\n", [SECTION]),
            ("NO", "", []),
        ],
    )
    def test_the_engine_that_is_asked_for(self, kind: str, section: str, engines: list[str], tmp_path: Path) -> None:
        found = asked(tmp_path, launched(kind, section), "accelerate").get("engine", [])
        assert [f"{value}: {words.rpartition(' (')[0]}" for value, words in found] == engines

    def test_no_precision_is_accelerates_default(self, tmp_path: Path) -> None:
        files = {"accelerate.yaml": "distributed_type: MULTI_GPU\nmixed_precision: 'no'\n", "train.sh": ACCELERATE}
        assert set(asked(tmp_path, files, "accelerate")) == {"engine"}

    def test_options_of_the_launcher_and_of_a_loop_of_its_own(self, tmp_path: Path) -> None:
        line = (
            "accelerate launch --use_deepspeed --zero_stage 3 --mixed_precision fp16 --gradient_accumulation_steps '2' "
            "train.py --per_device_train_batch_size 4 --max_grad_norm 0.3 --gradient_accumulation_steps 5\n"
        )
        assert asked(tmp_path, {"train.sh": line}, "accelerate") == {
            "micro_batch": [(4, "--per_device_train_batch_size 4 (train.sh:1)")],
            "gradient_accumulation_steps": [
                (5, "--gradient_accumulation_steps 5 (train.sh:1)"),
                (2, "--gradient_accumulation_steps 2 (train.sh:1)"),
            ],
            "engine": [("deepspeed", "--use_deepspeed (train.sh:1)")],
            "stage": [(3, "--zero_stage 3 (train.sh:1)")],
            "dtype": [("fp16", "--mixed_precision fp16 (train.sh:1)")],
        }

    def test_options_of_a_trainer(self, tmp_path: Path) -> None:
        line = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --max_grad_norm 0.3 --bf16 --fp16 False\n"
        found = asked(tmp_path, {"ds.json": plain(), "train.sh": f"set -e\n\n{line}"}, "transformers")
        assert found == {
            "engine": [("deepspeed", "--deepspeed ds.json (train.sh:3)")],
            "gradient_clipping": [(0.3, "--max_grad_norm 0.3 (train.sh:3)")],
            "dtype": [("bf16", "--bf16 (train.sh:3)")],
            "micro_batch": [(1, "train_micro_batch_size_per_gpu: 1 (ds.json:2)")],
            "stage": [(1, "zero_optimization.stage: 1 (ds.json:4)")],
        }

    def test_options_of_an_engines_own_loop(self, tmp_path: Path) -> None:
        line = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json --max_grad_norm 0.3 --bf16\n"
        config = plain(fp16={"enabled": "True"}, train_batch_size="auto")
        found = asked(tmp_path, {"ds.json": config, "train.sh": line}, "deepspeed")
        assert set(found) == {"engine", "micro_batch", "stage", "dtype"}
        assert found["engine"] == [("deepspeed", "--deepspeed_config ds.json (train.sh:1)")]
        assert found["dtype"] == [("fp16", "fp16.enabled: True (ds.json:7)")]

    def test_keys_by_what_ranks_report(self) -> None:
        keys = requested_settings.deepspeed_keys()
        assert (
            keys["zero_optimization", "offload_param", "device"] == keys["offload_param", "device"] == "offload_param"
        )
        assert ("stage",) not in keys and keys["bfloat16", "enabled"] == keys["fp16", "enabled"] == "dtype"
        assert len(keys) == 10 + 2 + 1
        accelerate = requested_settings.accelerate_keys()
        assert accelerate["mixed_precision"] == "dtype" and accelerate["zero_stage"] == "stage"
        assert set(accelerate.values()) == {
            *("dtype", "stage", "offload_optimizer", "offload_param"),
            *("gradient_accumulation_steps", "gradient_clipping"),
        }
        recipe = requested_settings.arguments()
        assert (recipe["optim"], recipe["lr_scheduler_type"], recipe["fp16"]) == ("optimizer", "scheduler", "dtype")
        assert recipe["per_device_train_batch_size"] == "micro_batch" and "learning_rate" not in recipe
        gather = ("stage3_gather_16bit_weights_on_model_save", "zero3_save_16bit_model")
        assert requested_settings.gather_keys() == gather

    @pytest.mark.parametrize(
        ("value", "number"), [("3", 3), ("0.5", 0.5), ("x", "x"), (2.0, 2), (2.5, 2.5), (True, True)]
    )
    def test_a_number_that_is_meant(self, value: object, number: object) -> None:
        found = requested_settings._number(value)
        assert found == number and type(found) is type(number)


class TestTrl:
    def reduced(self, ranks: int = 2, **arguments: Any) -> Reduced:
        return Reduced(ranks, {}, None, None, arguments, {}, sequence=32)

    @pytest.mark.parametrize(
        ("longest", "given"), [(None, 24), (24, 24), (25, 24), (23, 23), (0, 24), (True, 24), ("x", 24), (1, 1)]
    )
    def test_completions(self, longest: Any, given: int) -> None:
        found = self.reduced(**({} if longest is None else {"max_completion_length": longest}))
        trl_trainers._completions(found)
        assert found.arguments == {"max_completion_length": given}

    def test_a_sample_that_is_hardly_longer_than_a_prompt(self) -> None:
        for sequence, given in ((8, 1), (9, 1), (10, 2), (2000, 512)):
            found = self.reduced()
            found.sequence = sequence
            trl_trainers._completions(found)
            assert found.arguments == {"max_completion_length": given}

    @pytest.mark.parametrize(
        ("arguments", "planned", "changed"),
        [
            # 8 * 4 completions a step make 4 groups of 8; 2 ranks make 2.
            ({}, 4, {}),
            # 8 * 4 * 1 hold a group of 32, 8 * 2 need 2 steps.
            ({"num_generations": 32}, 4, {"steps_per_generation": 2}),
            ({"num_generations": 32, "gradient_accumulation_steps": 3}, 4, {"steps_per_generation": 6}),
            (
                {"num_generations": 32, "gradient_accumulation_steps": 3, "steps_per_generation": 1},
                4,
                {"steps_per_generation": 2},
            ),
            ({"num_generations": 32}, 2, {}),
            ({"num_generations": 32}, None, {}),
            ({"num_generations": 32}, "4", {}),
            ({"num_generations": 5}, 4, {}),
            # 3 * 4 * 1 hold groups of 12 and of 6; 3 * 2 hold one of 6.
            ({"num_generations": 12, "per_device_train_batch_size": 3}, 4, {"steps_per_generation": 2}),
            ({"num_generations": 6, "per_device_train_batch_size": 3}, 4, {}),
            # 96 = 3 steps of 8 * 4; 3 steps of 16 hold whole groups of 48 and of 24.
            ({"num_generations": 48, "generation_batch_size": 96}, 4, {"generation_batch_size": 48}),
            ({"num_generations": 24, "generation_batch_size": 96}, 4, {"generation_batch_size": 48}),
            ({"num_generations": 32, "generation_batch_size": 96}, 4, {"generation_batch_size": 96}),
            ({"num_generations": 7, "generation_batch_size": 96}, 4, {}),
            ({"num_generations": 16, "generation_batch_size": 16}, 4, {}),
        ],
    )
    def test_whole_groups(self, arguments: Any, planned: Any, changed: dict[str, int]) -> None:
        found = self.reduced(**arguments)
        trl_trainers._groups(found, planned)
        assert found.arguments == arguments | changed
        kinds = {"steps_per_generation": Kind.GENERATION_STEPS, "generation_batch_size": Kind.GENERATION_BATCH}
        ((name, value),) = changed.items() or [("", 0)]
        if not changed or arguments.get(name) == value:
            assert found.changes == []
        else:
            before = arguments.get(name) or arguments.get("gradient_accumulation_steps", 1)
            (change,) = found.changes
            assert (change.kind, change.planned, change.run, change.keys) == (kinds[name], before, value, (name,))

    @pytest.mark.parametrize(("longest", "given"), [(None, 32), (16, 16), (33, 32), (0, 32), (True, 32)])
    def test_samples_of_preferences(self, longest: Any, given: int) -> None:
        found = self.reduced(**({} if longest is None else {"max_length": longest}))
        found.trainer = "DPOTrainer"
        trl_trainers.fit(found, 4, {"use_vllm": True})
        assert found.arguments == {"max_length": given} and found.changes == []
        found.sequence = 2000
        found.arguments = {}
        trl_trainers.fit(found, 4, {})
        assert found.arguments == {"max_length": 1024}, "TRL's default"

    def test_who_generates(self) -> None:
        for asks in (True, False):
            found = self.reduced(num_generations=32)
            found.trainer = "GRPOTrainer"
            trl_trainers.fit(found, 4, {"use_vllm": asks})
            assert found.arguments["steps_per_generation"] == 2 and found.arguments["max_completion_length"] == 24
            vllm = [item for item in found.changes if item.kind is Kind.GENERATION]
            assert [(item.planned, item.run, item.keys) for item in vllm] == [(True, False, ("use_vllm",))] * asks

    def test_arguments_of_its_own(self) -> None:
        recipe = {"num_generations": 4, "beta": 0.1, "max_steps": 3, "use_vllm": True, "vllm_mode": "x", "ld_alpha": 1}
        recipe |= {"log_completions": True, "nothing": 1, "eos_token": "x", "dataset_num_proc": 2}
        assert trl_trainers.own_arguments("GRPOTrainer", recipe) == {"num_generations": 4, "beta": 0.1}
        assert trl_trainers.own_arguments("DPOTrainer", recipe) == {"beta": 0.1, "ld_alpha": 1}

    def chosen(self, monkeypatch: pytest.MonkeyPatch, run: Any, release: str = "1.16.0", **more: Any) -> Any:
        monkeypatch.setattr(trl_trainers, "linked_run", lambda item: more.get("linked", "linked"))
        monkeypatch.setattr(trl_trainers, "trainer_of", lambda linked, recipe: more.get("trainer", "GRPOTrainer"))
        monkeypatch.setattr(trl_trainers, "trainer_of_arguments", lambda recipe: "DPOTrainer")
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if more.get("there", True) else None)
        monkeypatch.setattr(trl_trainers.metadata, "version", lambda name: release)
        return trl_trainers.choose(run)

    def test_which_trains(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        run = folder.read(make_run(3, consumer="trl"))
        assert self.chosen(monkeypatch, run) == ("GRPOTrainer", "")
        assert self.chosen(monkeypatch, run, linked=None) == ("DPOTrainer", "")
        assert self.chosen(monkeypatch, run, "1.0.0") == ("GRPOTrainer", "")
        assert self.chosen(monkeypatch, run, "0.99.0") == (None, "TRL 0.99.0 is older than 1.0")
        assert self.chosen(monkeypatch, run, there=False) == (None, "TRL is not installed")
        assert self.chosen(monkeypatch, run, trainer="SFTTrainer") == (None, "")
        assert self.chosen(monkeypatch, replace(run, lock=replace(run.lock, consumer="transformers"))) == (None, "")
        sees = replace(run, lock=replace(run.lock, model_config={"vision_config": {}}))
        assert self.chosen(monkeypatch, sees) == (None, "the model wants a processor for its images")
        unknown = replace(run, lock=replace(run.lock, model_config=None))
        assert self.chosen(monkeypatch, unknown) == ("GRPOTrainer", "")


class TestStrategies:
    def test_settings_follow_the_plan(self, make_run: MakeRun) -> None:
        run = folder.read(make_run(3))
        run.changed["x"] = "y"
        names = ("zero_optimization.stage", "gradient_clipping", "engine")
        run.lock.settings.update({name: Decision(run.plan[name], "because") for name in names})
        two, _ = with_strategy(run, "2")
        assert {name: item.value for name, item in two.lock.settings.items()} == {
            "zero_optimization.stage": 2,
            "gradient_clipping": 0.5,
            "engine": "deepspeed",
        }
        assert two.lock.settings["gradient_clipping"].reason == "because" and two.changed == {}
        none, _ = with_strategy(run, "ddp")
        assert {name: item.value for name, item in none.lock.settings.items()} == {
            "gradient_clipping": 0.5,
            "engine": "ddp",
        }
        assert none.accelerate is not None and none.accelerate["distributed_type"] == "MULTI_GPU"
        assert run.lock.settings["zero_optimization.stage"].value == 3 and run.changed == {"x": "y"}

    def test_a_loop_of_the_engine_has_no_other(self, make_run: MakeRun) -> None:
        run = folder.read(make_run(3, consumer="deepspeed"))
        with pytest.raises(SmokeError, match="a loop of DeepSpeed's own engine has no run without DeepSpeed"):
            with_strategy(run, "ddp")
        stage, _ = with_strategy(replace(run, accelerate=None), "1")
        assert stage.accelerate is None and stage.plan["zero_optimization.stage"] == 1

    def test_sections_that_are_made_where_there_are_none(self, make_run: MakeRun) -> None:
        run = folder.read(make_run(3))
        assert run.accelerate is not None and run.deepspeed is not None
        run.accelerate["deepspeed_config"] = "x"
        del run.deepspeed["zero_optimization"]
        changed, words = with_strategy(run, "1")
        section = {"zero3_init_flag": False, "deepspeed_config_file": "ds_config.json"}
        assert changed.accelerate is not None and changed.accelerate["deepspeed_config"] == section
        assert changed.deepspeed is not None and changed.deepspeed["zero_optimization"] == {"stage": 1} and words == []
