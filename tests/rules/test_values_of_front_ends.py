"""Rules about single values, and about values that contradict each other, in recipes of zerocfg's own front ends."""

from __future__ import annotations

import pytest

from tests.rules.by_hand import found, shown, yaml_file
from zerocfg.rules.api import Finding
from zerocfg.run.lowered import with_front_end
from zerocfg.run.model import Run


def said(reader: str, code: str, text: str) -> list[Finding]:
    return found(code, with_front_end(Run("a"), reader, yaml_file("neighbour", text)))


CASES = [
    ("axolotl", "ZC812", "micro_batch_size: 0", "micro_batch_size: 1", "`micro_batch_size: 0` is below 1"),
    ("axolotl", "ZC812", "learning_rate: -2e-5", "learning_rate: 2e-5", "`learning_rate: -2e-05` is below 0"),
    ("swift", "ZC812", "adam_epsilon: '-1e-8'", "adam_epsilon: '1e-8'", "`adam_epsilon: -1e-08` is below 0"),
    ("llamafactory", "ZC812", "seed: -1", "seed: 0", "`seed: -1` is below 0"),
    ("llamafactory", "ZC811", "lr_scheduler_type: cosin", "lr_scheduler_type: cosine", "knows no `cosin`"),
    ("llamafactory", "ZC808", "logging_steps: 0", "logging_steps: 1", "`logging_steps: 0` is refused"),
    (
        "llamafactory",
        "ZC820",
        "warmup_steps: 20\nmax_steps: 10",
        "warmup_steps: 10\nmax_steps: 10",
        "warms up for 20 steps, but training ends after 10",
    ),
    (
        "llamafactory",
        "ZC821",
        "warmup_steps: 20\nlr_scheduler_type: constant",
        "warmup_steps: 0\nlr_scheduler_type: constant",
        "`warmup_steps: 20` is not used",
    ),
    (
        "llamafactory",
        "ZC822",
        "num_train_epochs: 3\nmax_steps: 10",
        "num_train_epochs: 3\nmax_steps: -1",
        "`num_train_epochs: 3` is not used: `max_steps: 10` ends",
    ),
    (
        "llamafactory",
        "ZC804",
        "load_best_model_at_end: true\neval_strategy: epoch\nsave_strategy: steps",
        "load_best_model_at_end: true\neval_strategy: steps\nsave_strategy: steps",
        "evaluates by `epoch` and saves by `steps`",
    ),
    (
        "llamafactory",
        "ZC810",
        "dataloader_persistent_workers: true",
        "dataloader_persistent_workers: true\ndataloader_num_workers: 1",
        "needs `dataloader_num_workers` above 0",
    ),
]


@pytest.mark.parametrize(("reader", "code", "bad", "good", "message"), CASES)
def test_what_the_trainer_does_with_a_value(reader: str, code: str, bad: str, good: str, message: str) -> None:
    (finding,) = said(reader, code, f"{bad}\n")
    assert message in finding.message
    assert finding.location.path == (bad.partition(":")[0],), "it stands at the key of the recipe"
    assert finding.fix is None, "recipes of frameworks are judged, and not edited"
    assert said(reader, code, f"{good}\n") == []


@pytest.mark.parametrize(
    ("reader", "code", "text"),
    [
        ("axolotl", "ZC820", "warmup_steps: 20\nmax_steps: 10\n"),  # it does not hand on the steps of a warmup
        ("axolotl", "ZC812", "gradient_accumulation_steps: 0\nbatch_size: 16\n"),
        ("swift", "ZC821", "warmup_steps: 20\nlr_scheduler_type: constant\n"),
        ("swift", "ZC810", "dataloader_persistent_workers: true\n"),  # its defaults are its own
        ("llamafactory", "ZC811", "report_to: nobody\n"),  # it says by itself what is reported
        ("llamafactory", "ZC812", "learning_rate: ${rate}\n"),
    ],
)
def test_what_a_framework_decides_by_itself(reader: str, code: str, text: str) -> None:
    assert said(reader, code, text) == []


def test_the_place_is_the_value() -> None:
    (finding,) = said("axolotl", "ZC812", "base_model: m\nmicro_batch_size: 0\n")
    assert shown(finding) == "0"
