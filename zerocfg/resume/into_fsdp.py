"""Whether a run under FSDP can read a checkpoint: the kinds of its state dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.resume.checkpoint import FULL, SHARDED
from zerocfg.resume.finding import DISTRIBUTED, Finding
from zerocfg.resume.remediations import weights_alone
from zerocfg.resume.trainer_files import random_generators, trainer_files

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint
    from zerocfg.resume.target import Target


def into_fsdp(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """Findings for a run under FSDP."""
    found = trainer_files(checkpoint, target)
    fsdp, wanted = checkpoint.fsdp, target.state_dict_type
    if fsdp is None:
        found.append(
            Finding(
                "stops",
                "not-fsdp",
                "FSDP did not save this: there is neither pytorch_model_fsdp_0 nor pytorch_model_fsdp.bin",
                DISTRIBUTED if wanted == SHARDED else "FileNotFoundError: [Errno 2] No such file or directory",
                remediations=weights_alone(checkpoint),
            )
        )
        return found
    for what, saved in (("model", fsdp.model), ("optimizer", fsdp.optimizer)):
        if wanted is None or saved == wanted:
            continue
        name = "pytorch_model_fsdp" if what == "model" else "optimizer"
        if saved is None and what == "optimizer":
            if fsdp.model == wanted:
                found.append(
                    Finding(
                        "loses", "optimizer", "no optimizer state was saved", lost="optimizer state and learning rates"
                    )
                )
            continue
        missing = f"{name}.bin" if wanted == FULL else f"{name}_0"
        error = (
            f"FileNotFoundError: [Errno 2] No such file or directory: '{checkpoint.path}/{missing}'"
            if wanted == FULL
            else DISTRIBUTED
        )
        found.append(
            Finding(
                "stops",
                "state-dict",
                f"the {what} was saved as {saved or 'nothing'}, and the run reads {wanted}"
                f"{target.provenance('state_dict_type')}",
                error,
                remediations=(f"set fsdp_state_dict_type: {saved or fsdp.model}", *weights_alone(checkpoint)),
            )
        )
    return found + random_generators(checkpoint, target)
