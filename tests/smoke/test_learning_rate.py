"""The learning rate of a smoke-run's steps: the planned one, or a higher one where that could show nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.judge import training
from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.worker import learning_rate

from .conftest import MODEL
from .test_training import report

if TYPE_CHECKING:
    from .conftest import MakeRun


def optimizer(*rates: Any) -> Any:
    return SimpleNamespace(param_groups=[{"lr": rate} for rate in rates])


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        ({"hidden_size": 64}, 0.3 / 64),
        ({"hidden_size": 4096}, 0.3 / 4096),
        ({"n_embd": 768}, 0.3 / 768),
        ({"d_model": 512, "hidden_size": 256}, 0.3 / 256),
        ({"text_config": {"hidden_size": 2048}, "hidden_size": 7}, 0.3 / 2048),
        ({}, 0.3 / 64),
    ],
)
def test_the_wider_the_smaller(model: dict[str, object], rate: float) -> None:
    job: Any = SimpleNamespace(model=model)
    assert learning_rate.deciding_rate(job) == rate


def rates_of(given: Any) -> list[Any]:
    return [group["lr"] for group in given.param_groups]


def test_only_lower_rates_are_raised_and_for_one_step() -> None:
    given, rates = optimizer(1e-9, 0.01, None, 0.004, 0.005), learning_rate.Rates()
    rates.begin(given, 0.005)
    assert rates_of(given) == [0.005, 0.01, None, 0.005, 0.005]
    rates.begin(given, 0.005)  # of the next micro step
    assert rates.end(given) == 0.01
    assert rates_of(given) == [1e-9, 0.01, None, 0.004, 0.005]


def test_the_rate_that_a_schedule_sets_meanwhile_stays() -> None:
    given, rates = optimizer(1e-9, 2e-9), learning_rate.Rates()
    rates.begin(given, 0.005)
    given.param_groups[0]["lr"] = 3e-9
    assert rates.end(given) == 2e-9, "that of the step which is done"
    assert rates_of(given) == [3e-9, 2e-9]
    rates.begin(given, 0.005)
    assert rates.end(given) == 3e-9


def test_without_a_least_rate_the_schedule_is_only_read() -> None:
    given, rates = optimizer(1e-9), learning_rate.Rates()
    rates.begin(given, None)
    assert rates_of(given) == [1e-9] and rates.end(given) == 1e-9
    rates.begin(None, 0.005)
    assert rates.end(None) is None


def test_the_highest_rate_of_all_groups_is_that_of_the_step() -> None:
    assert learning_rate.scheduled_rate(optimizer(1e-9, 0.01, None)) == 0.01
    assert learning_rate.scheduled_rate(optimizer(None)) is learning_rate.scheduled_rate(None) is None


def test_ranks_agree_before_they_raise_anything() -> None:
    given, met = optimizer(1e-9, None, 0.5), []
    job: Any = SimpleNamespace(model={"hidden_size": 100})
    assert learning_rate.agreed(lambda: met.append([group["lr"] for group in given.param_groups]), job, given) == 0.003
    assert met == [[1e-9, None, 0.5]], "what was tried is taken back"


@pytest.mark.libs
def test_rates_that_are_tensors() -> None:
    import torch

    rate = torch.tensor(1e-9)
    given, rates = optimizer(rate), learning_rate.Rates()
    rates.begin(given, 0.3 / 64)
    assert float(rate) == pytest.approx(0.3 / 64) and given.param_groups[0]["lr"] is rate
    assert rates.end(given) == pytest.approx(1e-9)
    assert float(rate) == pytest.approx(1e-9) and given.param_groups[0]["lr"] is rate


class TestJudged:
    """A rate that was raised is the one with which things are decided, and both are said."""

    def seen(self, **changes: Any) -> dict[str, Any]:
        return {row.name: row for row in training.check([report(parts={}, **changes)], 3)}

    def test_both_rates_are_in_the_row(self) -> None:
        found = self.seen(rates=[1e-9, 2e-9, 3e-9], trial_rate=0.005)["loss falls"]
        rate = "with a learning rate of 0.005: that of the plan is 3e-09 at most in these steps"
        assert (found.ok, found.seen) == (True, f"4 to 3.7, {rate}")

    @pytest.mark.parametrize("rates", [[0.005, 0.005, 0.005], [0.01, 0.02, 0.03], [None, None, None]])
    def test_the_planned_rate_is_not_mentioned_where_it_was_used(self, rates: list[float | None]) -> None:
        assert self.seen(rates=rates, trial_rate=0.005)["loss falls"].seen == "4 to 3.7"

    def test_a_loss_that_rises_with_it_fails(self) -> None:
        found = self.seen(losses=[4.0] * 4 + [4.2] * 2, rates=[0.0, 0.0, 0.0], trial_rate=0.005)["loss falls"]
        assert found.ok is False and found.seen.endswith(": it does not fall")

    def test_no_warmup_is_an_excuse_any_more(self) -> None:
        assert self.seen(changed=0, rates=[0.0, 0.0, 0.0], trial_rate=0.005)["parameters change"].ok is False
        assert self.seen(changed=0, rates=[0.0, 0.0, 0.0])["parameters change"].ok is None

    def test_ranks_with_rates_of_their_own_decide_nothing(self) -> None:
        """Where the rate of one rank could not be raised the ranks come apart, and not by a fault of the config."""
        apart = report(
            parts={}, sums={"embed.weight": 12, "norm.weight": 7}, instruments={"learning rate": "KeyError: 'lr'"}
        )
        found = {row.name: row for row in training.check([report(parts={}), apart], 3)}["parameters alike on all ranks"]
        assert (found.ok, found.measured) == (None, False)
        assert found.seen == "not measured: KeyError: 'lr' (rank 1)"


@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("stage", [None, 2, 3])
def test_a_schedule_that_warms_up_shows_a_falling_loss(make_run: MakeRun, stage: int | None) -> None:
    """Two steps of 1e-9 would change nothing that bf16 can show; what was planned is read back as planned."""
    recipe = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "bf16": True}
    recipe |= {"learning_rate": 1e-6, "lr_scheduler_type": "linear", "warmup_steps": 1000}
    settings = {"optimizer.params.lr": {"value": 1e-6}}
    folder = make_run(stage, recipe=recipe, settings=settings)
    found = smoke(folder, Options(ranks=1, device="cpu", steps=3))
    rows = {row.name: row for row in found.checks}
    assert found.state == "passed", (found.outcome.failure, [row for row in found.checks if row.ok is False])
    assert (
        rows["loss falls"].ok is True
        and f"learning rate of {0.3 / MODEL['hidden_size']:.3g}" in rows["loss falls"].seen
    )
    assert rows["parameters change"].ok is True
    assert (rows["optimizer.params.lr"].planned, rows["optimizer.params.lr"].ok) == ("1e-06", True)
    assert any("the planned learning rate, 2e-09 at most so early: 0.00469 was used" in words for words in proof(found))


def proof(found: Any) -> list[str]:
    from zerocfg.smoke.certify.evidence import evidence

    return list(evidence(found).not_proven)
