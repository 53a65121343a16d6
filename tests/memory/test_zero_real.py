"""Predicted against allocated bytes of real DeepSpeed on CPU ranks; all configurations: benchmarks/memory/cpu."""

from __future__ import annotations

import pytest

NAMES = [
    "1, overlap, GA 2",
    "2",
    "2, optimizer on cpu",
    "3, parameters let go early, GA 2",
    "3, both on cpu, large bucket, llama",
]


@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_every_byte_of_real_ranks_is_predicted() -> None:
    pytest.importorskip("deepspeed")
    pytest.importorskip("transformers")
    from benchmarks.memory.cpu.cases import CASES
    from benchmarks.memory.cpu.compare import explained

    cases = [case for case in CASES if case.name in NAMES]
    assert len(cases) == len(NAMES)
    for case, ranks, _ in explained(cases):
        for rank, rows in enumerate(ranks):
            for row in rows:
                assert row.unexplained == 0, (case.name, rank, row)
                assert row.small < 500, "what is called scalars is small"
