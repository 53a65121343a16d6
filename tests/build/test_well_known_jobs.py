"""docs/well-known-jobs.md says what the program says, and what it says can be true."""

from __future__ import annotations

import pytest

from tests.build.well_known_jobs import JOBS, PAGE, Job, jobs, page
from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import percent

PUBLISHED = {"8B": 8.03e9, "70B": 70.55e9, "405B": 405.85e9, "Mixtral": 46.70e9, "13B": 13.02e9, "vision": 8.29e9}
"""Parameters, as the hub shows them."""
FULL = 16
"""Bytes that mixed precision with Adam keeps of a parameter: weights and gradients of 2, fp32 weights and moments of 4
(Rajbhandari et al., ZeRO, 2020, section 3.1)."""


def job(title: str) -> Job:
    (found,) = [one for one in jobs() if one.title == title]
    return found


def test_the_page_is_what_the_program_computes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "python -m tests.build.well_known_jobs writes it anew"


def test_all_twelve_are_there() -> None:
    assert [one.title for one in jobs()] == list(JOBS) and len(JOBS) == 12


@pytest.mark.parametrize("title", JOBS)
def test_no_plan_is_chosen_that_is_expected_to_need_more_than_the_card(title: str) -> None:
    one = job(title)
    device, verdict = one.best.device, one.best.verdict
    assert device is not None and verdict.chance is not None and not one.lacking
    assert device.expected <= one.capacity and verdict.chance > 0.5
    assert verdict.word == ("fits" if device.high <= one.capacity else "likely")
    assert one.next is not None and one.next.verdict.chance is not None and one.why_not


def test_of_grpo_the_share_of_vllm_is_on_every_card() -> None:
    """A share of 0.3 (GRPOConfig's default), and whole 16-bit weights beside it where they are not sharded."""
    one = job("GRPO, 1.5B")
    assert one.best.device is not None and "ZeRO-3" not in one.best.words and "FSDP" not in one.best.words
    assert one.best.device.low > 0.3 * one.capacity + 2 * one.parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_full_training_takes_at_least_its_states(name: str) -> None:
    """Sixteen bytes of a parameter over all ranks, where nothing is offloaded; else the part that stays."""
    for one in jobs():
        if not one.title.startswith(name) or "LoRA" in one.title:
            continue
        assert one.parameters == pytest.approx(PUBLISHED[name], rel=1e-3)
        states = FULL * one.parameters / one.ranks
        assert one.best.device is not None
        if "on cpu" in one.best.words:
            nodes = -(-one.ranks // 8)
            assert one.best.host * nodes > 12 * one.parameters, "fp32 weights and moments are on the hosts"
        else:
            assert states < one.best.device.expected and states < one.capacity


def test_where_states_do_not_fit_they_are_offloaded() -> None:
    mixtral = job("Mixtral 8x7B")
    assert FULL * mixtral.parameters / mixtral.ranks / GIB == pytest.approx(87, abs=0.5)
    assert FULL * mixtral.parameters / mixtral.ranks > mixtral.capacity and "on cpu" in mixtral.best.words
    old = job("13B in fp16 on V100")
    assert FULL * old.parameters / old.ranks / GIB == pytest.approx(24, abs=0.5) and "on cpu" in old.best.words


def test_adapters_leave_the_base_model_alone() -> None:
    """What is resident is 16-bit weights: whole on one card, a share of them with FSDP 2."""
    alone, shared = job("LoRA, 8B on one card of 24 GB"), job("FSDP 2 with LoRA, 70B")
    for one in (alone, shared):
        weights = 2 * one.parameters / one.ranks
        assert one.best.device is not None and weights < one.best.device.expected < FULL * one.parameters / one.ranks


def test_one_card_needs_no_engine() -> None:
    assert job("LoRA, 8B on one card of 24 GB").best.words.startswith("one process, ")


def test_what_the_page_says_of_the_network_and_of_row_12() -> None:
    """Of two plans that are about as fast, and fit, the one with the usual engine comes first."""
    twelfth = job("13B on two nodes")
    assert twelfth.next is not None and twelfth.best.words.startswith("ZeRO-3, 2 x")
    assert twelfth.next.words.startswith("FSDP 2, 1 x")
    chances = [plan.verdict.chance for plan in (twelfth.best, twelfth.next)]
    assert [percent(chance) for chance in chances if chance is not None] == ["96%", "98%"]
    assert twelfth.why_not == "about as fast, with another engine that shards as much"
