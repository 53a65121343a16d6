"""The comparison of real runs: no difference where the job gets the same, one where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.real_runs.compare import UNSET, _environment
from benchmarks.real_runs.report import COLUMNS, listing
from benchmarks.real_runs.repository import Row, rows_of
from zerocfg.run.model import Effective, Origin, Run, Setting

ZERO2 = json.dumps(
    {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",
    }
)
IGNORES = (  # TrainingArguments without `deepspeed`: the option of the line is read by nobody
    "from trl import GRPOConfig, GRPOTrainer\n\n"
    "args = GRPOConfig(output_dir='out', bf16=True, per_device_train_batch_size=8, max_steps=10)\n"
    "GRPOTrainer(model='m', args=args, reward_funcs=[len]).train()\n"
)
PARSED = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(args=args).train()\n"
)
ALTERED = (  # a parser of its own, and code that alters the arguments: nobody knows what they are in the end
    "from alignment import H4ArgumentParser\nfrom trl import DPOConfig, DPOTrainer\n\n"
    "args = H4ArgumentParser((DPOConfig,)).parse()\nargs.bf16 = args.bf16 and True\nDPOTrainer(args=args).train()\n"
)
LAUNCHED = (
    "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: 'no'\ndeepspeed_config:\n  zero_stage: 3\n"
    "  zero3_save_16bit_model: true\n"
)
RECIPE = "output_dir: out\nmax_steps: 10\nbf16: true\nper_device_train_batch_size: 2\nbeta: 0.1\n"


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("deepspeed --num_gpus 4 train.py --deepspeed_config ds.json", {"train.py": IGNORES, "ds.json": ZERO2}),
        (
            "accelerate launch train.py --deepspeed ds.json --bf16 --max_steps 9 --output_dir out",
            {"train.py": PARSED, "ds.json": ZERO2},
        ),
        (
            "accelerate launch --config_file zero3.yaml --mixed_precision bf16 train.py recipe.yaml --bf16 True",
            {"train.py": ALTERED, "zero3.yaml": LAUNCHED, "recipe.yaml": RECIPE},
        ),
    ],
)
def test_the_same_job(tmp_path: Path, line: str, files: dict[str, str]) -> None:
    tree = tmp_path / "owner+name"
    tree.mkdir()
    for name, text in {**files, "run.sh": f"{line}\n"}.items():
        (tree / name).write_text(text)
    (row,) = rows_of(tree)
    assert (row.outcome, row.compared, row.unexplained) == ("built", True, []), row
    assert row.line != ""


def _with(**variables: str) -> Run:
    settings = {name: Setting(value, Origin("computed", "")) for name, value in variables.items()}
    return Run("a", effective=Effective(settings, {}, (), ()))


PLAIN, COMPILED = {"ACCELERATE_DYNAMO_BACKEND": "NO"}, {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}


@pytest.mark.parametrize(
    ("source", "emitted", "settings", "found"),
    [
        (PLAIN, {}, {}, []),
        (COMPILED, {}, {}, ["$ACCELERATE_DYNAMO_BACKEND"]),
        (PLAIN, COMPILED, {}, ["$ACCELERATE_DYNAMO_BACKEND"]),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, {}, {"bf16.enabled": True}, []),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, {}, {"bf16.enabled": False}, ["$ACCELERATE_MIXED_PRECISION"]),
        ({"ACCELERATE_MIXED_PRECISION": "fp16"}, {}, {"bf16.enabled": True}, ["$ACCELERATE_MIXED_PRECISION"]),
    ],
)
def test_variables(source: dict[str, str], emitted: dict[str, str], settings: dict[str, Any], found: list[str]) -> None:
    written = {name: SimpleNamespace(value=value) for name, value in settings.items()}
    plan: Any = SimpleNamespace(engine="deepspeed", settings=written)
    assert [one.name for one in _environment(plan, _with(**source), _with(**emitted))] == found


def test_a_precision_counts_where_the_engine_has_none_of_its_own() -> None:
    plan: Any = SimpleNamespace(engine="ddp", settings={"bf16.enabled": SimpleNamespace(value=True)})
    (one,) = _environment(plan, _with(ACCELERATE_MIXED_PRECISION="bf16"), _with())
    assert one.source == "'bf16'"


@pytest.mark.libs
def test_variables_that_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate's own plugin reads the same from them as from none; the shapes are nothing without a backend."""
    from accelerate.utils import TorchDynamoPlugin

    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    bare = TorchDynamoPlugin().to_dict()
    for name, value in UNSET.items():
        monkeypatch.setenv(name, value)
    stated = TorchDynamoPlugin().to_dict()
    assert {**bare, "dynamic": None} == {**stated, "dynamic": None} and bare["backend"] == "no"
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR")
    assert TorchDynamoPlugin().to_dict()["backend"] == "inductor"


def test_the_listing_holds_names_alone() -> None:
    reasons = [("script", "secret words"), ("lint ZC101", "x")]
    row = Row("owner+name", "a", "run.sh:1", outcome="refused", reasons=reasons, commit="c0ffee")
    head, line = listing([row]).splitlines()
    assert head.split("\t") == [*COLUMNS]
    assert line.split("\t")[:6] == ["owner/name", "c0ffee", "run.sh:1", "a", "refused", "script,lint ZC101"]
    assert "secret words" not in line
