"""Training arguments that nobody writes, in the releases that a project admits. What is expected was seen by running
those releases."""

from __future__ import annotations

import pytest

from zerocfg.run.model import UNKNOWN, Consumer, Run, SourceFile
from zerocfg.run.stages.arguments import Arguments, arguments_of
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText


def arguments(consumer: Consumer, recipe: str, **versions: str) -> Arguments:
    text = SourceText("recipe.yaml", f"output_dir: out\n{recipe}")
    file = SourceFile("recipe.yaml", "recipe", text, load_as(text, "yaml"))
    return arguments_of(Run("case", consumer, recipe=file, versions=versions))


@pytest.mark.parametrize(
    ("declared", "optim"),
    [
        ("==4.53.3", "adamw_torch"),
        ("==5.0.0", "adamw_torch_fused"),
        (">=5.0.0", "adamw_torch_fused"),
        (">=4.53", UNKNOWN),
        ("==4.30.0", UNKNOWN),
        ("newest", "adamw_torch_fused"),
    ],
)
def test_optimizer(declared: str, optim: object) -> None:
    assert arguments("transformers", "", transformers=declared).get("optim") == optim


def test_releases_older_than_any_that_is_known() -> None:
    """What never changed is as in training_args.py of transformers 4.26.1 and 4.30.2; of the rest nothing is said."""
    found = arguments("transformers", "", transformers="==4.30.0")
    names = ("per_device_train_batch_size", "max_grad_norm", "bf16", "fp16", "lr_scheduler_type", "optim")
    assert [found.get(name) for name in names] == [8, 1.0, False, False, "linear", UNKNOWN]
    assert found.get("warmup_steps") is not None and found.setting("bf16").origin.note.endswith("the oldest known")


@pytest.mark.parametrize(
    ("declared", "bf16"),
    [("==0.18.2", False), ("==0.19.1", True), (">=0.18", UNKNOWN), ("==0.4.0", UNKNOWN), ("newest", True)],
)
def test_bf16_of_trl(declared: str, bf16: object) -> None:
    assert arguments("trl", "packing: true\n", trl=declared).get("bf16") == bf16


@pytest.mark.parametrize(
    ("declared", "share"),
    [("==4.46.3", 0.1), ("==5.14.1", 0.1), (">=5.14", UNKNOWN), ("==5.15.0", UNKNOWN), ("==4.30", UNKNOWN)],
)
def test_warmup_ratio(declared: str, share: object) -> None:
    assert arguments("transformers", "warmup_ratio: 0.1\n", transformers=declared).get("warmup_steps") == share


@pytest.mark.parametrize(
    ("declared", "recipe", "enabled"),
    [
        ("==4.57.6", "", False),
        ("==4.57.6", "half_precision_backend: apex\n", UNKNOWN),
        (">=4.57", "", UNKNOWN),
        ("==4.30.0", "", UNKNOWN),
        ("==5.0.0", "", None),
        ("newest", "", None),
    ],
)
def test_apex(declared: str, recipe: str, enabled: object) -> None:
    apex = arguments("transformers", recipe, transformers=declared).apex()
    assert (apex[0].value if apex is not None else None) is enabled
