"""The search for the largest micro batch: few launches, the true maximum, and one real lack of memory."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.smoke import max_batch, max_batch_text
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.smoke import Options, launch_once

from .launched import MIB, no_memory, report, verdict

if TYPE_CHECKING:
    from .conftest import MakeRun


def most_launches(guess: int, upper: int) -> int:
    """No search between 1 and ``upper`` that starts at ``guess`` takes more launches than this.

    It leaves the guess by steps that double, from an eighth of it on, and halves what is left between the largest that
    fits and the smallest that does not.
    """
    guess = min(max(1, guess), upper)
    first = max(1, guess // 8)
    far = max(upper - guess, guess - 1, 1)
    doublings = math.ceil(math.log2(far / first + 1))
    return 1 + doublings + math.ceil(math.log2(first)) + max(0, doublings - 1)


@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 700))
def test_the_true_maximum_within_the_stated_launches(upper: int, guess: int, most: int) -> None:
    asked: list[int] = []

    def fits(batch: int) -> bool:
        asked.append(batch)
        return batch <= most

    bracket = max_batch.search(fits, guess, upper)
    assert bracket.closed and bracket.low == min(most, upper)
    assert len(asked) <= most_launches(guess, upper)
    assert len(set(asked)) == len(asked) and all(1 <= batch <= upper for batch in asked)


@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 700), st.integers(0, 5))
def test_launches_can_be_bounded(upper: int, guess: int, most: int, launches: int) -> None:
    asked: list[int] = []

    def fits(batch: int) -> bool:
        asked.append(batch)
        return batch <= most

    bracket = max_batch.search(fits, guess, upper, launches)
    assert len(asked) <= launches and bracket.low <= most
    assert bracket.high is None or bracket.high > most


def test_a_good_guess_takes_few_launches() -> None:
    for most in range(36, 45):
        asked: list[int] = []

        def fits(batch: int, most: int = most, asked: list[int] = asked) -> bool:
            asked.append(batch)
            return batch <= most

        max_batch.search(fits, 40, 4096)
        assert len(asked) <= 5


def test_the_batch_is_set_everywhere_and_accumulation_stays(make_run: MakeRun) -> None:
    run = read(make_run(3))
    before = copy.deepcopy((run.lock, run.deepspeed))
    changed = max_batch.with_batch(run, 8)
    assert changed.deepspeed is not None
    assert changed.deepspeed["train_micro_batch_size_per_gpu"] == 8
    assert changed.deepspeed["train_batch_size"] == changed.plan["train_batch_size"] == 64
    assert changed.deepspeed["gradient_accumulation_steps"] == 2
    assert changed.lock.recipe["per_device_train_batch_size"] == 8
    assert (run.lock, run.deepspeed) == before, "the run itself stays"


def searched(run: RunFolder, tmp_path: Path, most: int, **bounds: int) -> max_batch.Found:
    """A search where a micro batch takes one MiB for each sample and ``most`` of them fit."""

    def launched(changed: RunFolder, options: Options) -> Verdict:
        batch = changed.plan["train_micro_batch_size_per_gpu"]
        if batch > most:
            return verdict(changed, tmp_path, [report(0, {}), no_memory(1, "host")], failure="RuntimeError: no memory")
        seen = {"world_size": 2, "micro_batch": batch, "gradient_accumulation_steps": 2}
        reports = [report(rank, {"init": 200, "forward": 200 + batch, "save": 900}, seen=seen) for rank in (0, 1)]
        return verdict(changed, tmp_path, reports)

    return max_batch.find(run, Options(), launched, **bounds)


def test_the_table_names_largest_and_fastest(make_run: MakeRun, tmp_path: Path) -> None:
    found = searched(read(make_run(3)), tmp_path, 21, upper=64)
    assert found.largest == 21 and found.certain and found.problem is None
    assert found.fastest is not None and found.fastest.batch == 21
    assert next(one for one in found.tries if one.batch == 21).peak == 221 * MIB, "of training, not of saving"
    text = max_batch_text.render(found)
    assert "The largest micro batch that fits is 21." in text
    assert "rank 1 ran out of the host's memory" in text
    assert "not of the planned job" in text and "world size: 4 to 2" in text
    assert found.data()["launches"] == len(found.tries)


def test_a_plan_that_runs_whole_gets_advice(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    run.plan["num_processes"] = 2
    text = max_batch_text.render(searched(run, tmp_path, 4, upper=64))
    assert "Write per_device_train_batch_size: 4." in text
    assert "the global batch becomes 16 instead of 8; gradient_accumulation_steps: 1 would keep it" in text


def test_ends_of_a_search(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    assert "Micro batch 16 fits; the search ends there" in max_batch_text.render(searched(run, tmp_path, 999, upper=16))
    assert "Not even a micro batch of 1 fits." in max_batch_text.render(searched(run, tmp_path, 0, upper=16))
    cut = searched(run, tmp_path, 40, upper=64, launches=2)
    assert len(cut.tries) == 2 and not cut.certain
    assert "what lies between was not tried" in max_batch_text.render(cut)


def test_another_failure_ends_the_search(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))

    def broken(changed: RunFolder, options: Options) -> Verdict:
        return verdict(changed, tmp_path, [report(0, {}), report(1, {})], failure="ValueError: no such key")

    found = max_batch.find(run, Options(), broken)
    assert len(found.tries) == 1 and found.problem == "ValueError: no such key" and found.largest is None
    assert "The search ended early: ValueError: no such key" in max_batch_text.render(found)


@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_a_real_lack_of_memory_bounds_the_search(make_run: MakeRun) -> None:
    """8000 samples need more than 2 GiB, of which a rank may have 1; what is tried next is smaller."""
    run = max_batch.with_batch(read(make_run(3)), 8000)
    options = Options(ranks=1, device="cpu", steps=2, memory_limit=1 << 30, parts=("train",))
    found = max_batch.find(run, options, launch_once, upper=8000, launches=2)
    assert found.problem is None, found.problem
    first, second = found.tries
    assert not first.fits and first.why == "rank 0 ran out of the host's memory"
    assert second.batch < 8000
    assert found.bracket is not None and found.bracket.high is not None
