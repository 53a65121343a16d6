"""A user's own training command: the hook that stops it, what is left of their files, and its verdicts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conftest import ROOT
from zerocfg.cli.commands.smoke import command as cli
from zerocfg.smoke.certify import certificate_file as certificates
from zerocfg.smoke.certify.result import data
from zerocfg.smoke.judge import command as commands
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch import process
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.prepare.linked_run import linked_run
from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.worker.hooks import import_hook, patch_trainer, redirect, session
from zerocfg.smoke.worker.job import Job

from .conftest import MODEL
from .standin import Hurry

real = [pytest.mark.libs]


def applied(*marks: Any) -> Any:
    def wrap(test: Any) -> Any:
        for mark in marks:
            test = mark(test)
        return test

    return wrap


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The job file of a command, in a scratch folder of its own."""
    scratch = tmp_path / "scratch"
    (scratch / "reports").mkdir(parents=True)
    (scratch / "written").mkdir()
    path = scratch / "job.json"
    values: dict[str, Any] = {"model": {}, "arguments": {}, "sequence": 0, "deepspeed_config": None}
    reports, saved = str(scratch / "reports"), str(scratch / "written")
    Job(reports, saved, consumer="command", by_accelerate=False, device="cpu", steps=3, **values).write(path)
    return path


@pytest.fixture
def ours(job: Path, monkeypatch: pytest.MonkeyPatch) -> session.Session:
    """This process as one of a command's."""
    monkeypatch.setenv(import_hook.JOB, str(job))
    monkeypatch.setattr(session, "_sessions", [])
    return session.current()


# The import hook


def test_a_module_is_patched_after_it_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "fakelib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "engine.py").write_text("def start():\n    return 'real'\n")
    (package / "user.py").write_text("from fakelib.engine import start\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ran: list[str] = []

    def patch(module: types.ModuleType) -> None:
        ran.append(module.__name__)
        original = module.start
        module.__dict__["start"] = lambda: f"patched {original()}"

    finder = import_hook.Finder({"fakelib.engine": patch})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    try:
        import fakelib.user  # type: ignore[import-not-found]

        assert fakelib.user.start() == "patched real", "also for those who take the name from the module"
        assert ran == ["fakelib.engine"]
        loader = sys.modules["fakelib.engine"].__spec__.loader  # type: ignore[union-attr]
        assert "exec_module" not in vars(loader), "the loader is as it was"
    finally:
        for name in [name for name in sys.modules if name.startswith("fakelib")]:
            del sys.modules[name]


def test_a_patch_that_does_not_fit_a_release_stops_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unwatched it would be the user's whole training, into the user's folders."""
    odd = types.ModuleType("transformers.trainer")
    with pytest.raises(RuntimeError, match=r"cannot watch this release: transformers\.trainer: .*Trainer"):
        import_hook._late("patch_trainer", "patch_trainer")(odd)


def python(code: str, job: Path, *paths: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python process as a command starts it."""
    program = job.parent / "program"
    if not program.exists():
        process.program(job.parent)
        shutil.copy2(program / process.PROGRAM / "hooks" / "sitecustomize.py", program)
    environment = {name: value for name, value in os.environ.items() if name not in process.RANKS}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, [program, *paths])), import_hook.JOB: str(job)}
    environment |= {import_hook.REPORTS: str(job.parent / "reports"), **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


LOADED = "import sys; print(sorted(one for one in sys.modules if one.startswith('zerocfg')))"


def test_other_processes_load_the_hook_alone(job: Path) -> None:
    done = python(LOADED, job)
    loaded = [f"zerocfg_worker{name}" for name in ("", ".hooks", ".hooks.audit", ".hooks.import_hook")]
    assert done.stdout.strip() == str(loaded), done.stderr


def test_the_users_own_sitecustomize_runs(job: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("MINE = 'yes'\n")
    done = python("import sitecustomize; print(sitecustomize.MINE)", job, own)
    assert done.stdout == "yes\n", done.stderr


def test_a_rank_tells_its_error_and_its_children_stay_silent(job: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', '0/0']); raise ValueError('of the rank')"
    done = python(code, job, RANK="1", WORLD_SIZE="2")
    assert done.returncode == 1
    report = json.loads((job.parent / "reports" / "rank1.json").read_text())
    assert (report["error"]["type"], report["error"]["text"]) == ("ValueError", "of the rank")
    assert (report["command"]["world_size"], report["command"]["loop"]) == (2, None)


def test_reading_a_file_of_the_run_is_told(job: Path, tmp_path: Path) -> None:
    config = tmp_path / "ds_config.json"
    config.write_text("{}")
    other = tmp_path / "other.json"
    other.write_text("{}")
    reads = {"ZEROCFG_SMOKE_FILES": os.pathsep.join([str(other), str(config)])}
    done = python(f"open({os.path.relpath(config)!r}).read()", job, **reads)
    assert done.returncode == 0, done.stderr
    assert [one.name for one in (job.parent / "reports").iterdir()] == ["read-1"]


# What would be written


def test_places_are_one_to_one(tmp_path: Path) -> None:
    places = session.Places(tmp_path / "scratch" / "written")
    there = places.of("runs/a")
    assert there == f"{tmp_path}/scratch/written{Path.cwd()}/runs/a"
    assert places.of(there) == there and places.of(Path(there) / "x") == f"{there}/x"
    assert places.origin(there) == f"{Path.cwd()}/runs/a"
    assert places.origin("/elsewhere/x") == "/elsewhere/x"


def test_saving_is_redirected_in_ranks_alone(
    ours: session.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("torch.serialization")
    module.save = lambda obj, f: Path(f).parent.mkdir(parents=True, exist_ok=True) or Path(f).write_text(obj)
    module.load = lambda f: Path(f).read_text()
    redirect.patch(module)
    monkeypatch.delenv("RANK", raising=False)
    module.save("prepared", tmp_path / "data.pt")
    monkeypatch.setenv("RANK", "0")
    module.save("trained", tmp_path / "model.pt")
    assert (tmp_path / "data.pt").read_text() == "prepared"
    assert not (tmp_path / "model.pt").exists()
    assert module.load(tmp_path / "model.pt") == "trained" and module.load(f=tmp_path / "data.pt") == "prepared"


def test_nothing_reaches_the_hub() -> None:
    class Hub:
        endpoint = "https://hub"

        def upload_folder(self, **_: Any) -> None:
            raise AssertionError("uploaded")

        create_repo = create_commit = upload_folder

    module: Any = types.ModuleType("huggingface_hub.hf_api")
    module.HfApi, module.RepoUrl = Hub, str
    redirect.patch_hub(module)
    assert Hub().upload_folder(repo_id="me/x", folder_path=".") is None
    assert str(Hub().create_repo("me/x", private=True)) == "https://hub/me/x"


def test_arguments_are_made_quiet(ours: session.Session) -> None:
    class Arguments:
        use_cpu, push_to_hub, report_to, output_dir = False, True, ["wandb"], "runs/mine"

        def __post_init__(self) -> None:
            self.seen = self.use_cpu

    module: Any = types.ModuleType("transformers.training_args")
    module.TrainingArguments = Arguments
    patch_trainer.patch_arguments(module)
    arguments = Arguments()
    arguments.__post_init__()
    assert arguments.seen is True, "before accelerate chooses the device"
    assert (arguments.push_to_hub, arguments.report_to) == (False, [])
    assert arguments.output_dir == ours.places.of("runs/mine")


# Commands that train nothing


def environment_of(place: Path) -> bytes:
    try:
        return (place / "environ").read_bytes()
    except OSError:
        return b""


def smoked(line: str, limit: float = 20) -> Verdict:
    return smoke(Path(), Options(command=line, unplanned=True, device="cpu", limit=limit))


@pytest.mark.parametrize(
    ("line", "said", "last"),
    [
        ("echo hello", "none of its processes trained with the Trainer, accelerate", "hello"),
        ("echo so; exit 3", "the command ended with exit code 3, before any training", "so"),
        ("zerocfg-has-no-such-program", "ended with exit code 127, before any training", "not found"),
        (f"RANK=0 {sys.executable} -c '1/0'", "ZeroDivisionError: division by zero", "ZeroDivisionError"),
        (f"PYTHONPATH=. {sys.executable} -c 'import time; time.sleep(60)'", "overwrites PYTHONPATH", ""),
    ],
)
def test_commands_that_do_not_train(
    line: str, said: str, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = smoked(line)
    assert not verdict.passed and said in (verdict.outcome.failure or "")
    assert last in "\n".join(verdict.outcome.detail)
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_never_trains_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEROCFG_TEST_FOLDER", str(tmp_path))

    def sleeping() -> list[Path]:
        mine = [one for one in Path("/proc").glob("[0-9]*") if str(tmp_path).encode() in environment_of(one)]
        return [one for one in mine if (one / "comm").read_text() == "sleep\n"]

    options = Options(command="echo waiting; sleep 600 & setsid sleep 600", unplanned=True, device="cpu", limit=20)
    with Hurry(20, ("launch",), lambda: len(sleeping()) == 2) as progress:
        verdict = smoke(Path(), options, progress)
    assert not [one for one in Path("/proc").glob("[0-9]*") if str(tmp_path).encode() in environment_of(one)]
    assert verdict.outcome.failure == "no training that zerocfg can watch began within 20 s"
    assert verdict.outcome.detail == ["waiting"]


def test_the_environment_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("MASTER_PORT", "4711")
    monkeypatch.setenv("WORLD_SIZE", "7")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    verdict = smoked('echo "$ACCELERATE_MIXED_PRECISION $MASTER_PORT [$WORLD_SIZE] [$HF_HUB_OFFLINE] $PWD"')
    assert verdict.outcome.detail == [f"bf16 4711 [] [] {tmp_path}"]


def test_one_command_is_of_one_run() -> None:
    result = CliRunner().invoke(cli, ["a", "b", "--command", "true"])
    assert result.exit_code == 2 and "name one RUN" in result.output


def told(**command: Any) -> dict[str, Any]:
    """A rank's report as the hook leaves it."""
    seen = {"world_size": 2, "engine": "deepspeed", "stage": 2, "dtype": "bf16"}
    return {"seen": seen, "losses": [2.0, 3.0], "step_seconds": [0.1, 0.1], "command": {"world_size": 2, **command}}


def test_a_run_whose_config_is_not_read_is_not_proven(tmp_path: Path) -> None:
    files = [tmp_path / "accelerate.yaml", tmp_path / "ds_config.json"]
    (tmp_path / "read-1").touch()
    checks = commands._reads(files, tmp_path)
    assert [(one.name, one.seen, one.ok) for one in checks] == [
        ("accelerate.yaml of the run", "not read by the command", False),
        ("ds_config.json of the run", "read", True),
    ]


def test_saving_that_was_not_seen_is_told() -> None:
    ended = "not reached, zerocfg ended the script after 2 optimizer steps"
    assert commands._unsaved([told(left=True)]) == ended
    assert commands._unsaved([told()]) == "the script saved no model after its training"
    assert commands._unsaved([told(saved="adapter_model.safetensors (a PeftModel, not checked)")])
    assert commands._unsaved([told() | {"weights": {}}]) is None


def test_without_a_run_nothing_is_planned_but_the_ranks_are_together() -> None:
    reports = [told(stopped=False), told(stopped=False)]
    outcome = process.Outcome(reports)
    reduced = commands._expected(commands.without_plan(), reports, None)
    checks = {one.name: one for one in commands._checks(commands.without_plan(), reduced, outcome, 3)}
    assert (checks["ZeRO stage"].planned, checks["ZeRO stage"].seen, checks["ZeRO stage"].ok) == ("-", "2", None)
    assert checks["world size"].ok is True
    assert checks["optimizer steps, loss finite"].ok is True, "it ended by itself after 2 steps"
    assert checks["loss falls"].ok is not False, "its own batches differ"
    reports[1]["seen"]["world_size"] = 1
    alone = commands._checks(commands.without_plan(), reduced, outcome, 3)
    assert [one.name for one in alone if one.ok is False] == ["world size"]


# Real training


def state(folder: Path) -> dict[str, str]:
    """Every file and folder below, with the content's hash; a certificate is what a smoke-run may write."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name != "smoke.json":
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return found


def trained(
    example: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str = "bash {}/launch.sh"
) -> Verdict:
    """A run of an example by its own launch.sh; no file of the example changes."""
    for name in ("quickstart", example):
        shutil.copytree(
            ROOT / "examples" / name, tmp_path / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs")
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(probe.getsockname()[1]))
    monkeypatch.chdir(tmp_path)
    before = state(tmp_path)
    folder = tmp_path / example / "built" / run
    verdict = smoke(folder, Options(command=line.format(folder), device="cpu"))
    assert state(tmp_path) == before
    assert verdict.outcome.failure is None, "\n".join([verdict.outcome.failure or "", *verdict.outcome.detail])
    assert [one for one in verdict.checks if one.ok is False] == []
    assert [len(report["step_seconds"]) for report in verdict.outcome.reports] == [3, 3]
    assert certificates.read(folder / "smoke.json").result.passed, "the gate can read it"
    certificate = json.loads((folder / "smoke.json").read_text())
    assert certificate["passed"] is True and certificate["command"]["line"] == line.format(folder)
    assert certificate["reductions"] == verdict.reduced.descriptions
    return verdict


def seen(verdict: Verdict) -> dict[str, tuple[str, str, bool | None]]:
    return {one.name: (one.planned, one.seen, one.ok) for one in verdict.checks}


@pytest.mark.several_ranks
@applied(*real)
def test_a_launch_script_of_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 steps, ZeRO-3: stopped after 3, saved whole, and none of it into the user's folders."""
    verdict = trained("quickstart", "quickstart", tmp_path, monkeypatch)
    checks = seen(verdict)
    assert checks["ZeRO stage"] == ("3", "3", True) and checks["world size"] == ("2", "2", True)
    assert checks["saved parameters"] == ("100,672", "100,672 in model.safetensors", True)
    assert checks["accelerate.yaml of the run"][2] and checks["ds_config.json of the run"][2]
    assert verdict.reduced.descriptions == []
    notes = "\n".join(data(verdict)["command"]["notes"])
    assert "training: the Trainer, stopped by zerocfg after 3 optimizer steps" in notes
    assert "use_cpu: true was added" in notes
    assert "redirected: quickstart/runs/quickstart" in notes and "by the script itself" not in notes


@pytest.mark.several_ranks
@applied(*real)
@pytest.mark.parametrize(("library", "loop"), [("accelerate", "accelerate"), ("deepspeed", "DeepSpeed")])
def test_a_launch_script_of_an_own_loop(
    library: str, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = trained(f"{library}-loop", "loop", tmp_path, monkeypatch)
    checks = seen(verdict)
    assert checks["engine"] == ("deepspeed", "deepspeed", True) and checks["world size"] == ("2", "2", True)
    assert verdict.reduced.descriptions == ["saving: not reached, zerocfg ended the script after 3 optimizer steps"]
    notes = data(verdict)["command"]["notes"]
    assert f"training: a loop around {loop}, stopped by zerocfg after 3 optimizer steps" in notes


NOISY = """
import sys, torch, transformers
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments
config = AutoConfig.for_model(**{model!r})
rows = [dict(input_ids=torch.arange(16) % 8, labels=torch.arange(16) % 8) for _ in range(64)]
arguments = TrainingArguments(
    "runs/mine", max_steps=50, per_device_train_batch_size=2, save_strategy="steps", save_steps=1,
    eval_strategy="steps", eval_steps=1, load_best_model_at_end=True, push_to_hub=True, save_total_limit=1,
    hub_model_id="nobody/nothing", report_to=["none"], logging_steps=1,
)
arguments.report_to = ["wandb"]
trainer = Trainer(model=AutoModelForCausalLM.from_config(config), args=arguments, train_dataset=rows, eval_dataset=rows)
trainer.train()
print("evaluated", trainer.evaluate()["eval_loss"], trainer.state.global_step)
trainer.model.save_pretrained("final", push_to_hub=True)
torch.save(trainer.model.state_dict(), "weights.pt")
trainer.push_to_hub()
open("own.txt", "w").write("the script's own")
"""


@applied(*real)
def test_a_noisy_script_without_a_launcher_and_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints, evaluation, the hub, a service: all off. What it writes by itself is told."""
    (tmp_path / "train.py").write_text(NOISY.format(model=MODEL))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = state(tmp_path)
    kept = tmp_path.parent / f"{tmp_path.name}-kept"
    options = Options(command=f"{sys.executable} train.py", unplanned=True, device="cpu", keep=kept)
    verdict = smoke(Path(), options)
    assert verdict.passed, "\n".join([verdict.outcome.failure or "", *verdict.outcome.detail])
    assert "evaluated " in (kept / "log.txt").read_text() and verdict.certificate is None
    own = tmp_path / "own.txt"
    assert own.exists()
    own.unlink()
    assert state(tmp_path) == before
    notes = data(verdict)["command"]["notes"]
    assert "written by the script itself: own.txt" in notes and "saving: the script's own, checked" in notes
    assert {f"redirected: {one}, to a temporary folder" for one in ("final", "weights.pt")} <= set(notes)
    checks = seen(verdict)
    assert checks["engine"] == ("-", "single", None) and checks["world size"] == ("1", "1", True)
    assert checks["saved parameters"][2] and not any("checkpoint" in path.name for path in kept.rglob("*"))
    shutil.rmtree(kept)


PLAIN = """
import torch
torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1_000_000):
    for _ in range(2):
        (model(torch.ones(2, 4)) ** 2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.save(model.state_dict(), "weights.pt")
"""


@pytest.mark.several_ranks
@applied(*real)
def test_a_loop_of_torch_alone_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    before = state(tmp_path)
    line = f"{sys.executable} -m torch.distributed.run --standalone --nproc_per_node 2 train.py"
    verdict = smoke(Path(), Options(command=line, unplanned=True, device="cpu"))
    assert verdict.passed, "\n".join([verdict.outcome.failure or "", *verdict.outcome.detail])
    assert state(tmp_path) == before
    checks = seen(verdict)
    assert checks["engine"] == ("-", "ddp", None) and checks["world size"] == ("2", "2", True)
    assert checks["gradient accumulation"] == ("-", "2", None)
    assert (
        "training: a loop of torch alone, stopped by zerocfg after 3 optimizer steps"
        in (data(verdict)["command"]["notes"])
    )


# What the line names


ACCELERATE = (
    "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\n"
    "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 2\n  gradient_clipping: 0.5\n"
)
LOOP = "from accelerate import Accelerator\n\naccelerator = Accelerator()\naccelerator.prepare(1)\n"


@pytest.mark.parametrize("script", [False, True])
def test_planned_values_come_from_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: bool) -> None:
    """Of the command itself or of the script that it starts; what the line does not tell stays open."""
    monkeypatch.chdir(tmp_path)
    Path("acc.yaml").write_text(ACCELERATE)
    Path("train.py").write_text(LOOP)
    command = "accelerate launch --config_file acc.yaml train.py --seed 1"
    if script:
        Path("go.sh").write_text(f"#!/bin/bash\n{command}\n")
        command = "bash go.sh --more"
    line = commands.without_plan(command).line
    assert line is not None

    def row(name: str, seen: str) -> tuple[str, bool | None]:
        found = commands._of_line(Check(name, "-", seen, None), line)
        return found.planned, found.ok

    assert row("engine", "deepspeed") == ("deepspeed", True)
    assert row("ZeRO stage", "2") == ("2", True)
    assert row("gradient accumulation", "2") == ("2", True)
    assert row("gradient clipping", "0.5") == ("0.5", True)
    assert row("gradient clipping", "1") == ("0.5", None), "the script may mean to"
    assert row("precision", "bf16") == ("bf16", True)
    assert row("micro batch per rank", "4") == ("-", None), "the script's data loader decides it"
    assert row("optimizer", "AdamW") == ("-", None)


def test_two_lines_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("acc.yaml").write_text(ACCELERATE)
    line = "accelerate launch --config_file acc.yaml train.py"
    assert commands.without_plan(f"{line}; {line} --seed 2").line is None
    assert commands.without_plan("./train --fast").line is None
    folder = commands.without_plan("./train --fast")
    assert linked_run(folder) is None, "another config of the current folder explains nothing"
    assert linked_run(commands.without_plan(line)) is not None
