"""What watches a user's own training from inside never ends it: each function of the hooks raises, one at a time."""

from __future__ import annotations

import ast
import atexit
import importlib
import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from zerocfg.smoke.worker import votes
from zerocfg.smoke.worker.hooks import import_hook
from zerocfg.smoke.worker.job import Job

pytestmark = pytest.mark.libs

HOOKS = ROOT / "zerocfg" / "smoke" / "worker" / "hooks"
MODULES = ("patch_accelerate", "patch_deepspeed", "patch_torch", "patch_trainer", "session")
STEPS, PLANNED = 2, 4
"""After so many steps a rank ends; so many would be done without that."""
PROTECT = {
    "patch_trainer:_quiet": "keeps a Trainer from services and the user's folders",
    "patch_trainer:_callback": "makes the callback that stops a Trainer; what that calls is behind the fence",
    "patch_trainer:Few": "keeps an evaluation short",
    "session:Places": "where the user's files are written instead",
    "session:quietly": "the fence of the hooks",
    "session:current": "there is no hook without it",
    "session:Session.__init__": "as session:current",
    "session:Session.active": "whether files are redirected",
    "session:Session.leave": "ends a rank; what breaks in it leaves the training on",
    "session:_end_soon": "ends a rank that does not end",
    "patch_torch:_before": "torch keeps the function itself; what it calls is behind the fence",
    "patch_torch:_after": "as patch_torch:_before",
}
"""What does not watch, but protects the user's files or ends the rank, and what the others are called through."""


@cache
def functions() -> tuple[str, ...]:
    """The functions that watch: not those that patch a library while it is imported, which get its ``original``."""
    found = []
    for name in MODULES:
        for node in ast.parse((HOOKS / f"{name}.py").read_text(encoding="utf-8")).body:
            inside = node.body if isinstance(node, ast.ClassDef) else [node]
            above = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for one in inside:
                if not isinstance(one, ast.FunctionDef) or one.name.startswith("patch_"):
                    continue
                if "original" not in [argument.arg for argument in one.args.args]:
                    found.append(f"{name}:{above}{one.name}")
    return tuple(place for place in found if not place.startswith(tuple(PROTECT)))


def by_torch(steps: int) -> int:
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return steps


def by_accelerate(steps: int) -> int:
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    loader = torch.utils.data.DataLoader(torch.ones(2 * steps, 4), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for batch in loader:
        accelerator.backward(model(batch).sum())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return steps


def by_deepspeed(steps: int) -> int:
    import deepspeed
    import torch

    model = torch.nn.Linear(4, 1)
    config = {"train_micro_batch_size_per_gpu": 2}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
    for _ in range(steps):
        engine.backward(engine(torch.ones(2, 4)).sum())
        engine.step()
    return steps


def by_trainer(steps: int) -> int:
    import tempfile

    import torch
    import transformers

    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, vocab_size=16,
                                      num_attention_heads=2, num_key_value_heads=2)  # fmt: skip
    row = {"input_ids": torch.arange(4), "labels": torch.arange(4)}
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(), max_steps=steps, per_device_train_batch_size=1, use_cpu=True, report_to=[]
    )
    trainer = transformers.Trainer(transformers.LlamaForCausalLM(config), arguments, train_dataset=[row] * 8)
    trainer.train()
    trainer.save_model()
    return int(trainer.state.global_step)


def failing(steps: int) -> int:
    raise ValueError("the script's own error")


ALONE = "no rank"
"""A process that no launcher made a rank."""
LOOPS: dict[str, Callable[[int], int]] = {
    "torch": by_torch, "accelerate": by_accelerate, "deepspeed": by_deepspeed, "Trainer": by_trainer,
    "failing": failing, ALONE: by_torch,
}  # fmt: skip
OWN = {
    "torch": ("SystemExit: 0", PLANNED),
    "accelerate": ("SystemExit: 0", PLANNED),
    "deepspeed": ("SystemExit: 0", PLANNED),
    "Trainer": (STEPS, PLANNED),
    ALONE: ("SystemExit: 0", PLANNED),
    "failing": ("ValueError: the script's own error",),
}
"""How each of them ends: stopped after the steps of the job, or by itself."""


def loops_of(place: str) -> tuple[str, ...]:
    """The loops that may call a function."""
    own = {"patch_accelerate": "accelerate", "patch_deepspeed": "deepspeed", "patch_torch": "torch",
           "patch_trainer": "Trainer"}  # fmt: skip
    module = place.partition(":")[0]
    return (own[module],) if module in own else tuple(LOOPS)


def script(loop: str, folder: str, place: str | None, port: int, found: Any, rank: int, ranks: int) -> None:
    """A process of a command whose script is the loop: how it ended, and whether the function was called. Rank 0 has
    the broken function, the others watch on."""
    atexit._clear()  # what the forked process would do at its end is not the child's
    path = Path(folder)
    for name in ("accelerate", "deepspeed", "transformers", "transformers.trainer"):
        importlib.import_module(name)
    votes.PATIENCE = 3.0
    os.environ.update({import_hook.JOB: str(path / "job.json"), import_hook.REPORTS: str(path / "reports")})
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    if loop == ALONE:
        del os.environ["RANK"]
    os.environ.update(DS_ACCELERATOR="cpu", TMPDIR=folder)
    os.chdir(folder)
    for name, (module, function) in import_hook.PATCHES.items():
        if name in sys.modules:
            import_hook._late(module, function)(sys.modules[name])
    called: list[int] = []
    if place is not None and rank == 0:
        _break(place, called)
    ended: Any = None
    try:
        import_hook.enlist()
        ended = LOOPS[loop](PLANNED)
    except BaseException as error:
        ended = f"{type(error).__name__}: {error}"
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, None)
    atexit._run_exitfuncs()
    report = path / "reports" / f"rank{rank}.json"
    content = json.loads(report.read_text()) if report.exists() else {}
    found.put((rank, ended, bool(called), content))


def write_job(folder: Path) -> None:
    """What all ranks read; one of them would find it half written by another."""
    values: dict[str, Any] = {
        "model": {},
        "arguments": {},
        "sequence": 0,
        "deepspeed_config": None,
        "by_accelerate": False,
    }
    job = Job(str(folder / "reports"), str(folder / "written"), "command", device="cpu", steps=STEPS, **values)
    job.write(folder / "job.json")


def _break(place: str, called: list[int]) -> None:
    name, _, path = place.partition(":")
    module: Any = importlib.import_module(f"zerocfg.smoke.worker.hooks.{name}")
    *above, last = path.split(".")
    owner = module
    for one in above:
        owner = getattr(owner, one)
    original = vars(owner)[last]

    def broken(*_: object, **__: object) -> None:
        called.append(1)
        raise RuntimeError(f"broken for a test: {place}")

    setattr(owner, last, property(broken) if isinstance(original, property) else broken)


CLEAN: Any = multiprocessing.get_context("forkserver")
"""Starts processes by a fork of one that has imported the libraries and computed nothing: torch's threads do not come
along with a fork."""


@pytest.fixture(scope="module", autouse=True)
def preloaded() -> Iterator[None]:
    """A server of forks of our own: one that other tests have started imports the libraries anew in each process."""
    own = forkserver.ForkServer()
    own.set_forkserver_preload(["accelerate", "deepspeed", "transformers.trainer", __name__])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ensure_running", "connect_to_new_process", "get_inherited_fds"):
            patch.setattr(forkserver, name, getattr(own, name))
        yield


def run(loop: str, folder: Path, place: str | None, ranks: int = 1) -> list[tuple[Any, bool, dict[str, Any]]]:
    """By rank. Raises queue.Empty where one of them hangs."""
    for each in (folder, folder / "reports", folder / "written"):
        each.mkdir()
    write_job(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = CLEAN.Queue()
    arguments = (loop, str(folder), place, port, found)
    started = [CLEAN.Process(target=script, args=(*arguments, rank, ranks), daemon=True) for rank in range(ranks)]
    for process in started:
        process.start()
    try:
        results = sorted(found.get(timeout=180) for _ in started)
    finally:
        for process in started:
            process.kill()
            process.join()
    return [(ended, called, content) for _, ended, called, content in results]


def test_an_error_of_the_script_is_reported(tmp_path: Path) -> None:
    ((ended, _, content),) = run("failing", tmp_path / "run", None)
    assert [ended] == list(OWN["failing"]) and content["error"]["text"] == "the script's own error"


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "failing"])
def test_a_loop_that_is_watched_is_stopped(loop: str, tmp_path: Path) -> None:
    """What the others are compared with: the loop is found, read back, counted and ended."""
    ((ended, _, content),) = run(loop, tmp_path / "run", None)
    assert ended == OWN[loop][0] and content["done"]
    assert len(content["step_seconds"]) == STEPS and content["command"]["loop"] == ("torch" if loop == ALONE else loop)
    assert "hooks" not in content["instruments"] and not any(content["instruments"].values()), content["instruments"]


@pytest.mark.parametrize("place", functions())
def test_a_hook_that_breaks_leaves_the_training_alone(place: str, tmp_path: Path) -> None:
    """It is stopped after the steps of the job, or goes on to its own end, as without us."""
    called = False
    for loop in loops_of(place):
        ((ended, was_called, _),) = run(loop, tmp_path / loop, place)
        called = called or was_called
        assert ended in OWN[loop], f"{place} ends the loop of {loop}: {ended}"
    assert called, f"no loop calls {place}"


@pytest.mark.several_ranks
@pytest.mark.parametrize(
    ("loop", "place"),
    [
        (loop, place)
        for place in functions()
        for loop in loops_of(place)
        if loop in ("accelerate", "deepspeed", "Trainer")
    ],
)
def test_a_hook_that_breaks_on_one_of_two_ranks(loop: str, place: str, tmp_path: Path) -> None:
    """They still train together: none leaves its partner in a collective."""
    ends = [ended for ended, _, _ in run(loop, tmp_path / "run", place, ranks=2)]
    assert all(ended in OWN[loop] for ended in ends), f"{place} ends the loop of {loop}: {ends}"
