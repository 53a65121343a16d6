"""Whether a run could compute its loss without all logits by Liger's kernels, and whether its author allows that.

The Trainer's `use_liger_kernel` needs the package liger-kernel, which transformers does not bring along: without it the
Trainer stops. So zerocfg turns it on only where the author has the package: the spec states its release
(`versions: {liger-kernel: ">=0.8"}`), or the project requires it. Elsewhere it is a change that is offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.catalog.versions import admits
from zerocfg.models.liger import FUSED_SINCE, NEWEST
from zerocfg.resolve.model.setup import arguments_written
from zerocfg.resolve.model.trl_trainer import SFT, trainer_of
from zerocfg.run.config import VERSIONS
from zerocfg.run.releases import requirement
from zerocfg.run.requirements.declared import LIGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.resolve.inputs import Inputs
    from zerocfg.run.model import Run

_SAID = ("use_liger_kernel", "liger_kernel_config", "use_liger", "use_liger_loss")
"""Arguments by which an author decides about Liger."""
_OWN_LOSS = ("label_smoothing_factor", "loss_type", "lora_modules_to_save")
"""Arguments with which the loss is another, or its head another layer."""
TRAINERS = ("transformers", "trl")
_TRITON = ("nvidia", "amd")  # vendors


def can_fuse(inputs: Inputs, *, stage: int | None) -> bool:
    """Whether Liger computes the loss of this model in pieces in this run's releases, where a Trainer is told to.

    ``stage`` of ZeRO, as in :func:`fused_by`.
    """
    return inputs.run.consumer in TRAINERS and bool(fused_by(inputs, stage=stage))


def fused_by(inputs: Inputs, *, stage: int | None) -> str:
    """What computes the loss of this model in pieces: `use_liger_kernel` of a Trainer, Liger's kernels in a script;
    "" where they do not, in this run's releases.

    Under ``stage`` 3 of ZeRO, where the head is not there unless it is gathered, only with the releases that were seen
    to do so.
    """
    known = _knows(inputs, stage)
    return ("use_liger_kernel" if inputs.run.consumer in TRAINERS else "Liger's kernels") if known else ""


def _knows(inputs: Inputs, stage: int | None) -> bool:
    run, profile = inputs.run, inputs.profile
    if profile is None or profile.accelerator.vendor not in _TRITON:
        return False
    written = arguments_written(run)
    if trainer_of(run, written) not in (None, SFT) or any(written.get(name) for name in _OWN_LOSS):
        return False
    since = FUSED_SINCE.get(inputs.facts.model_type or "")
    if since is None:
        return False
    clauses = stated(run)
    if clauses and not admits(clauses, at_least=since):
        return False
    return stage != 3 or _seen_together(run.versions, clauses)


def _seen_together(versions: Mapping[str, str], clauses: str | None) -> bool:
    asked = {name: versions.get(name) for name in ("deepspeed", "transformers")}
    newest = all(not item or admits(item, at_least=VERSIONS[name]) for name, item in asked.items())
    return newest and (not clauses or admits(clauses, at_least=NEWEST))


def leaves_open(inputs: Inputs) -> bool:
    """Whether neither the recipe, the command line nor the spec says how the loss is computed."""
    return inputs.spec.fused_loss is None and not any(name in arguments_written(inputs.run) for name in _SAID)


def stated(run: Run) -> str | None:
    """The clauses that are stated for liger-kernel ("": any release); None: it is not known to be there."""
    own = run.versions.get(LIGER)
    if own is not None:
        return own
    found = requirement(run, LIGER)
    return found.clauses or "" if found is not None else None


def where_stated(run: Run) -> str:
    """In words: who says that liger-kernel is there."""
    if LIGER in run.versions:
        return "the spec states it"
    found = requirement(run, LIGER)
    place: Any = found.places[0] if found is not None and found.places else None
    return "the project requires it" if place is None or place.file is None else f"{place.file.name} requires it"
