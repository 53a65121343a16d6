"""Which trainer of TRL a run uses: told by its script, else by the arguments that only some trainers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zerocfg.catalog import fields
from zerocfg.catalog.schema import load_schema

if TYPE_CHECKING:
    from zerocfg.run.model import Run

SFT, GRPO = "SFTTrainer", "GRPOTrainer"
_OF_ALL = ("ModelConfig", "ScriptArguments", "BaseConfig", "_BaseConfig", "SFTConfig")
"""Classes whose arguments do not tell the trainer."""


def trainer_of(run: Run, arguments: Mapping[str, Any]) -> str | None:
    """The class of TRL that trains ("KTOTrainer"), "another trainer" where only that is known; None where nothing
    tells, or the consumer is another."""
    if run.consumer != "trl":
        return None
    called = {call.name for call in run.script.calls if call.name.startswith("trl.")} if run.script else set()
    made = sorted(name.removeprefix("trl.") for name in called if name.endswith("Trainer"))
    if made:
        return SFT if SFT in made else made[0]
    return trainer_of_arguments(arguments)


def trainer_of_arguments(arguments: Mapping[str, Any]) -> str | None:
    """The trainer that some argument belongs to, where SFTTrainer has none of that name."""
    found: set[str] | None = None
    of_every_trainer = load_schema("training-arguments").root
    for name in arguments:
        if of_every_trainer.key(name) is not None:
            continue  # some trainers have another default of it
        classes = {item.partition(".")[0] for item in fields.in_trl(name)}
        if classes and not classes & set(_OF_ALL):
            trainers = {item.removesuffix("Config") + "Trainer" for item in classes if item.endswith("Config")}
            found = trainers if found is None else found & trainers
    if found is None:
        return None
    return next(iter(found)) if len(found) == 1 else "another trainer"
