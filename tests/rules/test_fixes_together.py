"""Fixes that are tried together give what one at a time gives, by a few lints whatever their number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.campaign import put
from tests.fuzz.linting import repository
from tests.fuzz.shell_edits import TRAIN, project
from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.linter.fixed_texts import Texts
from zerocfg.linter.fixing import fix_all
from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

SHARDS = range(4)
EACH = 6


class Lints:
    """The lints of one folder, counted."""

    def __init__(self, folder: Path) -> None:
        self.job = Job([folder], Settings(), Selection())
        self.count = 0

    def __call__(self, texts: Mapping[str, str] | None = None) -> Result:
        self.count += 1
        return self.job.lint(texts)

    def changed(self, texts: Texts) -> Texts:
        return {path: text for path, text in texts.items() if text != self.job.original(path)}


def together(folder: Path) -> Texts:
    lints = Lints(folder)
    texts, _, _ = fix_all(lints(), lints, unsafe=True)
    return lints.changed(texts)


def one_at_a_time(folder: Path) -> Texts:
    """Each fix by itself, in the order of codes, on what the ones before it left; those that did not hold once more
    after others did."""
    lints = Lints(folder)
    texts: Texts = {}
    result = lints()
    applied, failed = True, set[tuple[str, ...]]()
    while applied:
        applied, failed = False, set()
        while (found := next(iter(_open(result, failed)), None)) is not None:
            more, _, count = fix_all(
                result,
                lambda new, before=dict(texts): lints({**before, **new}),  # type: ignore[misc]
                unsafe=True,
                wanted=lambda one, only=found: one is only,  # type: ignore[misc]
            )
            failed.add(_key(found))
            if count:
                texts, result, applied = {**texts, **more}, lints({**texts, **more}), True
    return lints.changed(texts)


def _open(result: Result, failed: set[tuple[str, ...]]) -> list[Diagnostic]:
    found = [one for one in result.diagnostics if one.fix is not None and _key(one) not in failed]
    return sorted(found, key=lambda one: one.code)


def _key(found: Diagnostic) -> tuple[str, ...]:
    return found.code, found.span.file.name, found.span.path, found.message, found.run


_FAULTS = (
    '"gradient_cliping": 1.0',
    '"zero_optimization": {"stage": 2, "overlap_com": true, "stage3_param_persistence_threshold": 10}',
    '"zero_optimization": {"stage": 3, "offload_optimizer": {"ratio": 0.5}, "cpu_offload": true}',
    '"fp16": {"enabled": "true", "initial_scale": 16}',
    '"steps_per_prin": 10',
    '"bf16": {"enable": true}',
    '"optimizer": {"type": "Adamw", "params": {"learning_rate": 1e-4}}',
    '"train_batch_size": "auto"',
)
_OPTIONS = ("--evaluation_strategie no", "--logging_stepss 5", "--bf16", "--max_grad_norm 0.5", "--learning_rte 1e-4")
_STARTS = ("deepspeed --num_gpus 2", "accelerate launch --num_proceses 2", "python -m torch.distributed.launch")


def crowd(random: Random, size: int = 8) -> dict[str, bytes]:
    """A script that starts many trainings, each with a config of its own or one that others read, too."""
    files, lines = {"train.py": TRAIN}, []
    for number in range(size):
        own = random.randrange(number + 1) if random.random() < 0.3 else number
        keys = ",\n  ".join(random.sample(_FAULTS, random.randint(1, 4)))
        files.setdefault(f"ds{own}.json", f'{{\n  "train_micro_batch_size_per_gpu": "auto",\n  {keys}\n}}\n')
        options = " ".join(random.sample(_OPTIONS, random.randint(0, 2)))
        lines.append(f"{random.choice(_STARTS)} train.py --output_dir out --deepspeed ds{own}.json {options}\n")
    return {name: text.encode() for name, text in {**files, "run.sh": "".join(lines)}.items()}


_PROJECTS = (project, repository, crowd)


@pytest.mark.parametrize("shard", SHARDS)
def test_together_is_one_at_a_time(shard: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = 0
    for number in range(EACH):
        random = Random(f"together/{shard}/{number}")
        folder = tmp_path / str(number)
        put(_PROJECTS[number % len(_PROJECTS)](random), folder)
        monkeypatch.chdir(folder)
        expected = one_at_a_time(folder)
        assert together(folder) == expected, number
        edited += bool(expected)
    assert edited >= EACH // 3


@pytest.mark.parametrize("size", [10, 40])
def test_the_number_of_lints_is_not_that_of_the_fixes(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for what there is, and a few for each kind of fault that a run has: no more for four times the runs."""
    line = "deepspeed --num_gpus 2 train.py --output_dir out --deepspeed ds{}.json\n"
    config = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2, "overlap_com": true}}\n'
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "run.sh").write_text("".join(line.format(at) for at in range(size)))
    for at in range(size):
        (tmp_path / f"ds{at}.json").write_text(config)
    monkeypatch.chdir(tmp_path)
    lints = Lints(tmp_path)
    texts, after, applied = fix_all(lints(), lints, unsafe=True)
    assert applied == size and len(texts) == size
    assert all(text == config.replace("overlap_com", "overlap_comm") for text in texts.values())
    assert not after.diagnostics
    assert lints.count == 2
