"""Defaults of a Trainer that memory depends on, in the releases that a run admits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zerocfg.catalog import fields
from zerocfg.catalog.admitted import admitted
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import release
from zerocfg.memory.options import OptimizerName

if TYPE_CHECKING:
    from zerocfg.run.model import Run

_CHUNKED, _CHUNKED_BY_DEFAULT, _ALWAYS = release("1.4.0"), release("1.7.0"), release("1.15.0")
"""Releases of TRL: SFTTrainer knows the loss `chunked_nll`; takes it where nothing is written; computes every `nll` so.
Read in trl/trainer/sft_trainer.py and sft_config.py of 1.3.0, 1.4.0, 1.6.0, 1.8.0, 1.14.2 and 1.15.0."""


def optimizer(versions: Mapping[str, str]) -> OptimizerName:
    """The fused AdamW where every admitted transformers has it as its default."""
    among = admitted("transformers", versions.get("transformers"))
    named = {fields.default("optim", item) for item in among.releases} if among is not None else {"adamw_torch_fused"}
    return "adamw_fused" if named == {"adamw_torch_fused"} else "adamw"


def recomputes(consumer: str | None, versions: Mapping[str, str]) -> bool:
    """Whether activations are recomputed: TRL's configs switch it on, and those of older releases do not."""
    if consumer != "trl":
        return False
    among = admitted("trl", versions.get("trl"))
    if among is None:
        return True
    on = [True in fields.of_trl("gradient_checkpointing", item) for item in among.releases]
    return bool(on) and all(on)


def loss_in_pieces(loss_type: object, smoothed: bool, versions: Mapping[str, str]) -> bool:
    """Whether SFTTrainer computes the loss without all logits at once, in every admitted TRL."""
    among = admitted("trl", versions.get("trl"))
    whole = smoothed and loss_type != "dft"
    if among is None:
        return not whole
    for item in among.releases:
        if item >= _ALWAYS:
            chunked = not whole
        else:
            chunked = item >= _CHUNKED and (
                loss_type == "chunked_nll" or (item >= _CHUNKED_BY_DEFAULT and not loss_type)
            )
        if not chunked:
            return False
    return bool(among.releases)


def loads_in_fp32(run: Run) -> bool:
    """Whether a script loads its model as TRL's ModelConfig says and nothing says otherwise: in fp32, whatever the
    model's config.json names, in every admitted release that has this default."""
    script = run.script
    if run.consumer != "trl" or script is None or "trl.ModelConfig" not in script.parsed:
        return False
    among = admitted("trl", run.versions.get("trl"))
    known = histories("trl")
    if among is None:
        return True
    states = [known.state("ModelConfig.dtype", item) or {} for item in among.releases]
    return bool(states) and all(state.get("default") == "float32" for state in states)
