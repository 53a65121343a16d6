"""The fence of the ranks' program: what breaks behind it costs its own figure, and never hangs or fails a rank."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from tests import nccl
from zerocfg.smoke.worker.fence import ABSENT, LONGEST, Fence, reason


class TestMeasure:
    def test_a_result_is_handed_on(self) -> None:
        fence = Fence({})
        assert fence.measure("sum", lambda a, b: a + b, 2, 3) == 5
        assert fence.instruments == {"sum": ""}

    @pytest.mark.parametrize("error", [RuntimeError("no\n card"), MemoryError(), AssertionError("x"), StopIteration(3)])
    def test_an_exception_is_a_reason(self, error: Exception) -> None:
        fence = Fence({})

        def breaks() -> None:
            raise error

        assert fence.measure("sum", breaks, otherwise=7) == 7
        text = {"RuntimeError": "no card", "MemoryError": "", "AssertionError": "x", "StopIteration": "3"}
        kind = type(error).__name__
        assert fence.instruments == {"sum": f"{kind}: {text[kind]}" if text[kind] else kind}

    def test_what_broke_stays_off_and_nothing_else_does(self) -> None:
        fence, calls = Fence({}), []
        fence.measure("a", lambda: 1 / 0)
        fence.measure("a", calls.append, 1)
        fence.measure("b", calls.append, 2)
        assert calls == [2]
        assert fence.instruments == {"a": "ZeroDivisionError: division by zero", "b": ""}

    def test_an_instrument_that_breaks_later_is_broken(self) -> None:
        fence = Fence({})
        fence.measure("a", int, "1")
        fence.measure("a", int, "one")
        assert fence.instruments["a"].startswith("ValueError: invalid literal")

    @pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt()])
    def test_the_end_of_a_process_is_no_measurement(self, error: BaseException) -> None:
        def ends() -> None:
            raise error

        with pytest.raises(type(error)):
            Fence({}).measure("a", ends)

    def test_reasons_are_one_short_line(self) -> None:
        class NamelessError(Exception):
            def __str__(self) -> str:
                raise ValueError

        assert reason(NamelessError()) == "NamelessError"
        assert reason(ValueError("x" * (LONGEST + 9))) == f"ValueError: {'x' * LONGEST}"
        assert reason(ValueError("a\n  b\tc")) == "ValueError: a b c"


def together(rank: int, ranks: int, file: str, behaviour: str, patience: float, found: Any) -> None:
    """A rank that measures with the others: "meets", "breaks" before the vote, "is off", "never comes", "is late"."""
    nccl.install_here()
    import torch.distributed as dist

    from zerocfg.smoke.worker import votes

    votes.PATIENCE = patience
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    fence = Fence({"sums": "broken before"} if behaviour == "is off" else {})

    def measure(meet: Any) -> int:
        if behaviour == "breaks":
            raise RuntimeError("no sums")
        if behaviour == "is late":
            time.sleep(4)
        meet()
        import torch

        value = torch.ones(1)
        dist.all_reduce(value)
        return int(value)

    start = time.monotonic()
    result = None if behaviour == "never comes" else fence.measure_together("sums", "before", measure)
    again = fence.measure_together("sums", "after", measure) if behaviour == "meets" else None
    found.put((rank, result, again, fence.instruments.get("sums"), time.monotonic() - start))
    if behaviour == "never comes":
        time.sleep(4)  # its store is rank 0's, or the others' connection to it


def play(*behaviours: str, folder: Path, patience: float = 60.0) -> dict[int, tuple[Any, Any, str | None, float]]:
    context = multiprocessing.get_context("fork")
    found: Any = context.Queue()
    ranks = len(behaviours)
    started = [
        context.Process(target=together, args=(rank, ranks, str(folder / "meeting"), behaviour, patience, found))
        for rank, behaviour in enumerate(behaviours)
    ]
    for process in started:
        process.start()
    results = {rank: rest for rank, *rest in (found.get(timeout=60) for _ in started)}
    for process in started:
        process.join(60)
        assert process.exitcode == 0
    return results


@pytest.mark.libs
class TestTogether:
    """On real ranks over gloo. A rank that leaves the others alone costs them the figure, and hangs nobody."""

    @pytest.mark.several_ranks
    def test_all_meet(self, tmp_path: Path) -> None:
        found = play("meets", "meets", "meets", folder=tmp_path)
        assert {tuple(rest[:3]) for rest in found.values()} == {(3, 3, "")}

    @pytest.mark.several_ranks
    @pytest.mark.parametrize("rank", [0, 1])
    @pytest.mark.parametrize("behaviour", ["breaks", "is off"])
    def test_one_that_cannot_says_so_at_once(self, behaviour: str, rank: int, tmp_path: Path) -> None:
        ways = ["meets", "meets"]
        ways[rank] = behaviour
        found = play(*ways, folder=tmp_path)
        assert found[rank][:3] == [None, None, "RuntimeError: no sums" if behaviour == "breaks" else "broken before"]
        assert found[1 - rank][:3] == [None, None, ABSENT]
        assert found[1 - rank][3] < 30, "nobody waited for the patience"

    @pytest.mark.several_ranks
    def test_one_that_never_comes_is_waited_for_only_so_long(self, tmp_path: Path) -> None:
        found = play("never comes", "meets", folder=tmp_path, patience=2.0)
        assert found[1][:3] == [None, None, ABSENT]
        assert 2.0 <= found[1][3] < 20

    @pytest.mark.several_ranks
    def test_one_that_comes_late_goes_without_the_others(self, tmp_path: Path) -> None:
        """What was decided first counts: it must not enter a collective that the others left out."""
        found = play("meets", "is late", folder=tmp_path, patience=2.0)
        assert [rest[:3] for rest in found.values()] == [[None, None, ABSENT]] * 2

    def test_without_others_nobody_is_asked(self) -> None:
        fence = Fence({})
        assert fence.measure_together("sums", "before", lambda meet: (meet(), 4)[1]) == 4
        assert fence.instruments == {"sums": "", "votes": ""}
