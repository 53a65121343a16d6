"""docs/memory.md says what the program says: the figures of its table of claims."""

from __future__ import annotations

from tests.conftest import ROOT
from zerocfg.memory.options import Options
from zerocfg.memory.terms import TRAINING, Estimate
from zerocfg.memory.zero.replay import zero_terms
from zerocfg.models.model_facts import from_config

TEXT = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
LLAMA = from_config({"model_type": "llama"})
GIB = 1 << 30


def figures(options: Options) -> tuple[float, float]:
    """GiB between two steps and at the worst moment of one, without activations."""
    terms = zero_terms(LLAMA, options)
    rest = sum(term.size for term in terms if term.place == "device" and term.moments >= TRAINING)
    return rest / GIB, Estimate(terms).peak("device", TRAINING).size / GIB


def test_seven_billion_parameters_on_four_cards() -> None:
    found = [figures(Options(stage, 4, optimizer="fused_adam")) for stage in range(4)]
    assert " / ".join(f"{rest:.1f}" for rest, _ in found) + " GiB" in TEXT
    assert " / ".join(f"{peak:.1f}" for _, peak in found) + " GiB" in TEXT


def test_stage_one_on_eight_ranks() -> None:
    assert f"({figures(Options(1, 8))[0]:.1f} GiB on 8 ranks)" in TEXT
    assert f"6N + 12N/W ({figures(Options(1, 8, accumulation='fp32'))[0]:.1f} GiB)" in TEXT


def test_the_states_of_each_stage() -> None:
    parameters = LLAMA.parameters
    assert parameters is not None
    for ranks in (2, 8):
        expected = [14, 2 + 12 / ranks, 2 + 12 / ranks]
        found = [figures(Options(stage, ranks))[0] * GIB / parameters for stage in range(3)]
        assert all(abs(one - other) < 0.01 for one, other in zip(found, expected, strict=True))
        bucket = 2 * 500_000_000 / parameters
        assert abs(figures(Options(3, ranks))[0] * GIB / parameters - 16 / ranks - bucket) < 0.01
