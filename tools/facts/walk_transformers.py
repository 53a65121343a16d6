"""The fields of TrainingArguments, the words they take, and which settings fill a DeepSpeed config's `auto`."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import transformers
from transformers import training_args

from tools.facts import describe

WORDS = (
    "FSDPOption",
    "HubStrategy",
    "IntervalStrategy",
    "SaveStrategy",
    "SchedulerType",
    "OptimizerNames",
)


def words() -> dict[str, object]:
    from transformers import trainer_utils

    found: dict[str, object] = {}
    for name in WORDS:
        for module in (training_args, trainer_utils, transformers):
            holder = getattr(module, name, None)
            if isinstance(holder, type) and issubclass(holder, enum.Enum):
                found[name] = {"words": describe.choices(holder)}
                break
    return found


class Arguments(SimpleNamespace):
    """Stands for the training arguments, whatever their release calls them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return {"world_size": 1, "train_batch_size": 1, "n_gpu": 1, "gradient_accumulation_steps": 1}.get(name, False)

    def get_warmup_steps(self, steps: int) -> int:
        return 0


def filled() -> dict[str, object]:
    """By key of the DeepSpeed config: the training argument that fills its "auto", as ``fill_match`` is told."""
    try:
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
    except ImportError:
        from transformers.deepspeed import HfTrainerDeepSpeedConfig  # before 4.36 it lay here
    found: dict[str, object] = {}

    def note(self: object, key: str, value: object, name: str | None = None, must_match: bool = True) -> None:
        found[key] = {"from": name}

    config = HfTrainerDeepSpeedConfig.__new__(HfTrainerDeepSpeedConfig)
    config.config = {"fp16": {}, "bf16": {}}
    config._dtype = None
    config.mismatches = []
    for name in ("fill_match", "fill_only"):
        if hasattr(HfTrainerDeepSpeedConfig, name):
            setattr(
                HfTrainerDeepSpeedConfig,
                name,
                note if name == "fill_match" else lambda self, key, value: found.setdefault(key, {"from": None}),
            )
    config.trainer_config_process(Arguments())
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=8, hidden_sizes=None, text_config=None))
    config.get_value = lambda key, default=None: "auto"
    config.is_auto = lambda key: True
    config.is_zero3 = lambda: True
    config.trainer_config_finalize(Arguments(), model, 8)
    return found


describe.tell(
    {
        "version": transformers.__version__,
        "keys": {
            **describe.fields(training_args.TrainingArguments),
            **{
                f"Seq2Seq.{name}": facts
                for name, facts in describe.fields(transformers.Seq2SeqTrainingArguments).items()
                if name not in describe.fields(training_args.TrainingArguments)
            },
            **{f"words.{name}": facts for name, facts in words().items()},
            **{f"filled.{name}": facts for name, facts in filled().items()},
        },
    }
)
