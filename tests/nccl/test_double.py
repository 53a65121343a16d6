"""The double's manners, each against those of gloo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import nccl

from .launched import ranks

pytestmark = pytest.mark.libs

SYNCHRONOUS = "t = torch.ones(2); print(dist.all_reduce(t) is None, t.tolist())"
RAW = """
t = torch.ones(2)
pg = dist.group.WORLD
options = dist.AllreduceOptions(); options.asyncOp = False
print(pg.allreduce([t], options) is None, t.tolist())
"""
KEPT = """
t = torch.ones(2, device=group.device())
work = dist.all_reduce(t, async_op=True)
print("before", t.tolist())
work.wait()
print("after", t.tolist())
"""
DROPPED = """
t = torch.ones(2, device=group.device())
dist.all_reduce(t, async_op=True)
time.sleep(1)
print(t.tolist())
"""
RING = """
mine, theirs = torch.full((2,), float(rank), device=group.device()), torch.zeros(2, device=group.device())
{first}
if rank < 2:
    other = 1 - rank
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)]):
        work.wait()
    print(theirs.tolist())
"""


def said(folder: Path, own: str = "", body: str = "own.call()", **more: object) -> list[str]:
    ended = ranks(folder, own, body, **more)  # type: ignore[arg-type]
    assert [one.code for one in ended] == [0] * len(ended), ended[0].error
    return [one.said for one in ended]


def test_a_synchronous_collective_gives_no_work_and_its_result(tmp_path: Path) -> None:
    assert said(tmp_path, body=RAW) == ["True [2.0, 2.0]\n"] * 2


def test_gloo_gives_a_work(tmp_path: Path) -> None:
    assert [lines.split()[0] for lines in said(tmp_path, body=RAW, double=False)] == ["False"] * 2


@pytest.mark.parametrize(("double", "before"), [(True, "[nan, nan]"), (False, None)])
def test_a_result_is_there_when_its_work_was_waited_for(tmp_path: Path, double: bool, before: str | None) -> None:
    for lines in said(tmp_path, KEPT, double=double):
        first, last = lines.splitlines()
        assert last == "after [2.0, 2.0]"
        assert before is None or first == f"before {before}"


@pytest.mark.parametrize(("double", "seen"), [(True, "[nan, nan]\n"), (False, "[2.0, 2.0]\n")])
def test_a_work_that_is_dropped_leaves_no_result(tmp_path: Path, double: bool, seen: str) -> None:
    assert said(tmp_path, DROPPED, double=double) == [seen] * 2


def test_a_library_keeps_its_works(tmp_path: Path) -> None:
    body = "t = torch.ones(2); w = dist.all_reduce(t, async_op=True); w.wait(); print(t.tolist())"
    assert said(tmp_path, body=body) == ["[2.0, 2.0]\n"] * 2


class TestExchanges:
    def test_as_the_first_call_without_all_ranks_they_hang(self, tmp_path: Path) -> None:
        ended = ranks(tmp_path, RING.format(first=""), size=3)
        assert [one.code for one in ended] == [1, 1, 0]
        assert "NCCL hangs" in ended[0].error and "2 of 3 ranks make it" in ended[0].error

    def test_gloo_does_not(self, tmp_path: Path) -> None:
        assert said(tmp_path, RING.format(first=""), size=3, double=False) == ["[1.0, 1.0]\n", "[0.0, 0.0]\n", ""]

    def test_after_a_collective_some_ranks_are_enough(self, tmp_path: Path) -> None:
        first = "dist.all_reduce(torch.zeros(1, device=group.device()))"
        assert said(tmp_path, RING.format(first=first), size=3) == ["[1.0, 1.0]\n", "[0.0, 0.0]\n", ""]

    def test_with_all_ranks_they_may_be_the_first(self, tmp_path: Path) -> None:
        assert said(tmp_path, RING.format(first="")) == ["[1.0, 1.0]\n", "[0.0, 0.0]\n"]


class TestOwnCode:
    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            ("dist.all_reduce(torch.ones(1))", "No backend type associated with device type cpu"),
            ("dist.all_reduce(torch.ones(1, device='cpu'))", "No backend type associated with device type cpu"),
            ("dist.barrier()", "a barrier without device_ids"),
        ],
    )
    def test_what_nccl_does_not_take(self, tmp_path: Path, lines: str, words: str) -> None:
        ended = ranks(tmp_path, lines)
        assert [one.code for one in ended] == [1, 1] and words in ended[0].error

    @pytest.mark.parametrize(
        "lines",
        [
            "dist.all_reduce(torch.ones(1, device=group.device()))",
            "dist.all_reduce(torch.ones_like(torch.zeros(1, device=group.device())))",
            "dist.barrier(device_ids=[0])",
            "group.barrier()",
            "dist.all_gather_object([None, None], rank)",
            "dist.all_reduce(torch.ones(1), group=dist.new_group(backend='gloo'))",
            "assert group.total([1.0, 2.0]) == [2.0, 4.0]",
        ],
    )
    def test_what_it_takes(self, tmp_path: Path, lines: str) -> None:
        said(tmp_path, lines)

    @pytest.mark.parametrize("lines", ["dist.all_reduce(torch.ones(1))", "dist.barrier()"])
    def test_a_library_knows_what_it_does(self, tmp_path: Path, lines: str) -> None:
        said(tmp_path, body=lines)


class TestErrors:
    GONE = """
t = torch.ones(1, device=group.device())
dist.all_reduce(t)
if rank:
    os._exit(0)
time.sleep(0.5)
dist.all_reduce(t)
"""

    def test_a_partner_that_is_gone_is_waited_for_until_the_process_is_ended(self, tmp_path: Path) -> None:
        first, _ = ranks(tmp_path, self.GONE, patience=3)
        assert first.code == -6 and "Watchdog caught collective operation timeout" in first.error

    def test_gloo_raises_at_once(self, tmp_path: Path) -> None:
        first, _ = ranks(tmp_path, self.GONE, double=False)
        assert first.code == 1 and "RuntimeError" in first.error

    def test_an_error_comes_with_the_next_call(self, tmp_path: Path) -> None:
        """Of an operation that gloo's thread refuses."""
        lines = """
t = torch.ones(1, device=group.device())
dist.all_reduce(t, op=dist.ReduceOp.BAND)
print("went on")
try:
    group.barrier()
except RuntimeError as error:
    print(type(error).__name__, str(error)[:29])
group.barrier()
"""
        assert said(tmp_path, lines) == ["went on\nDistBackendError NCCL error of an earlier call\n"] * 2


def test_a_counter_in_front_sees_what_nccl_gives(tmp_path: Path) -> None:
    body = """
op, key = torch.ops.c10d.allreduce_.default, torch._C.DispatchKey.BackendSelect
seen = []
def counter(keyset, *args, **named):
    result = op.redispatch(keyset.remove(key), *args, **named)
    seen.append(dist.Work.unbox(result[-1]) is None)
    return result
library = torch.library.Library("c10d", "IMPL")
library.impl("allreduce_", counter, "BackendSelect", with_keyset=True)
t = torch.ones(1)
dist.all_reduce(t)
dist.all_reduce(t, async_op=True).wait()
print(seen, t.tolist())
"""
    assert said(tmp_path, body=body) == ["[True, False] [4.0]\n"] * 2


def test_engines_train_on_it(tmp_path: Path) -> None:
    body = """
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
def gradient(wrap):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    model = wrap(model) or model
    model(torch.full((2, 4), rank + 1.0)).sum().backward()
    total = sum(p.grad.to_local().sum() if hasattr(p.grad, "to_local") else p.grad.sum() for p in model.parameters())
    return float(total)
print(gradient(torch.nn.parallel.DistributedDataParallel))
one = torch.tensor(gradient(lambda m: FullyShardedDataParallel(m, device_id=torch.device("cpu"))))
two = torch.tensor(gradient(fully_shard))
dist.all_reduce(one); dist.all_reduce(two)
print(float(one), float(two))
"""
    # Of a mean over ranks: 16 weights get 2 rows of 1 or 2, 4 biases 2.
    assert said(tmp_path, body=body) == ["56.0\n56.0 56.0\n"] * 2


def test_another_sitecustomize_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.other = 'run'\n")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), before]))
    try:
        assert str(nccl.INSTALLED) in nccl.variables(True)["PYTHONPATH"]
        assert said(tmp_path, body="print(other); " + SYNCHRONOUS) == ["run\nTrue [2.0, 2.0]\n"] * 2
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
