"""The ledger of ZeRO 0 to 3 against what real DeepSpeed allocated on CPU ranks, as benchmarks/memory/cpu recorded it.

Every case, rank and moment; ``test_zero_real.py`` plays a few of them anew.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from zerocfg.memory.tensors import Model, Module, Tensor
from zerocfg.memory.zero.replay import replay

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cpu.cases import CASES  # noqa: E402
from benchmarks.memory.cpu.compare import MOMENTS, PARTS  # noqa: E402

RECORD = ROOT / "benchmarks" / "memory" / "cpu" / "results.json"


def odd(frozen: str, partitioned: bool) -> Model:
    """As torch reports the first model of ``measure.py``: sizes, the modules in the order of ``modules()``, and the
    order of hooks. The gradient of a linear layer's bias comes before that of its weight, and after it where ZeRO-3 has
    put its own function in the layer's place (deepspeed/runtime/zero/linear.py)."""
    sizes, modules, forward, gradients = [97 * 24], [(), (0,), ()], [0, 1], [21, 19, 20]
    for block in range(3):
        first, module = 1 + 6 * block, 3 + 4 * block
        sizes += [24, 24, 61 * 24, 61, 24 * 61, 24]
        modules += [(), (first, first + 1), (first + 2, first + 3), (first + 4, first + 5)]
        forward += range(module, module + 4)
    for first in (13, 7, 1):
        pairs = [(first + 5, first + 4), (first + 3, first + 2)]
        gradients += [index for pair in pairs for index in (pair[::-1] if partitioned else pair)]
        gradients += [first, first + 1]
    names = ["embed", *["norm", "norm", "up", "up", "down", "down"] * 3, "norm", "norm", "head"]
    sizes += [24, 24, 97 * 24]
    modules += [(19, 20), (21,)]
    backward = [0, 16, 15, *(base + at for base in (11, 7, 3) for at in (0, 3, 2, 1)), 1]
    return shaped(sizes, names, frozen, modules, [*forward, 15, 16], backward, [*gradients, 0])


def llama(frozen: str, _: bool) -> Model:
    """The second model: two norms, four projections and three matrices a layer, with grouped keys and values."""
    sizes, modules, forward, backward, gradients = [211 * 40], [(), (), (0,), ()], [0, 1, 2, 44], [44, 2], [0]
    for layer in range(3):
        first, module = 1 + 9 * layer, 4 + 13 * layer
        sizes += [1600, 800, 800, 1600, 4160, 4160, 4160, 40, 40]
        of = {2: 0, 3: 1, 4: 2, 5: 3, 7: 4, 8: 5, 9: 6, 11: 7, 12: 8}  # tensors by their module's place in the layer
        modules += [(first + of[place],) if place in of else () for place in range(13)]
        forward += [module + place for place in (0, 11, 1, 2, 3, 4, 5, 12, 6, 7, 10, 8, 9)]
        backward = [module + place for place in (0, 6, 9, 8, 10, 7, 12, 1, 5, 4, 3, 2, 11)] + backward
        gradients = [first + at for at in (6, 5, 4, 8, 3, 2, 1, 0, 7)] + gradients
    sizes += [40, 211 * 40]
    modules += [(28,), (), (29,)]
    order = [0, 45, 1, 43, *backward]
    return shaped(sizes, [""] * 30, frozen, modules, [*forward, 43, 45], order, [29, 28, *gradients])


def shaped(
    sizes: list[int],
    names: list[str],
    frozen: str,
    modules: list[tuple[int, ...]],
    forward: list[int],
    backward: list[int],
    gradients: list[int],
) -> Model:
    tensors = tuple(Tensor(size, not (frozen and frozen in name)) for size, name in zip(sizes, names, strict=True))
    return Model(
        tensors,
        tuple(Module(tuple(owned), False) for owned in modules),
        tuple(index for index in gradients if tensors[index].trained),
        tuple(forward),
        tuple(backward),
    )


@cache
def recorded() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(RECORD.read_text())["rows"]:
        found.setdefault(row["case"], []).append(row)
    return found


def test_stage_0_holds_what_was_allocated() -> None:
    holds(0)


def test_stage_1_holds_what_was_allocated() -> None:
    holds(1)


def test_stage_2_holds_what_was_allocated() -> None:
    holds(2)


def test_stage_3_holds_what_was_allocated() -> None:
    holds(3)


def holds(stage: int) -> None:
    """Peaks between what was allocated with and without scalars (norms, loss scales, step counters), and to the byte
    what is held at the end of a moment; of every case of a stage and every rank."""
    cases = [case for case in CASES if case.options.stage == stage]
    assert len(cases) >= 4
    for case in cases:
        model = {"odd": odd, "llama": llama}[case.model](case.frozen, stage == 3)
        rows = recorded()[case.name]
        assert {row["rank"] for row in rows} == set(range(case.options.world_size))
        for rank in range(case.options.world_size):
            ledger = replay(model, case.options, rank, cpu=True)
            seen = {row["moment"]: row for row in rows if row["rank"] == rank}
            assert tuple(seen) == MOMENTS
            for moment, row in seen.items():
                where = case.name, rank, moment
                peak = max(ledger.peak(part) for part in PARTS[moment])
                assert row["allocated_peak"] - row["small"] <= peak <= row["allocated_peak"], where
                held = sum(ledger.ends["device", PARTS[moment][-1]].values())
                assert held == row["allocated_end"] - row["small_end"], where
