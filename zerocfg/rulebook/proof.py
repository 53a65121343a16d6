"""What a rule claims that the real libraries do with its examples: pure data, executed by `tests/proofs`.

An example is run up to a phase: "read" (its own reader: yaml, json, hjson), "launch" (accelerate's launcher parses,
validates and builds the environment), "arguments" (TrainingArguments, Accelerator or its plugin), "parse"
(DeepSpeedConfig), "init" (the engine is built), "step" (two optimizer steps), "save" (weights written and read back),
"load" (a checkpoint is written, and a new engine, Trainer or Accelerator, whose weights start at 0, continues from it).

Names of observed values:
    ``env.NAME``             variable the launcher exports
    ``read.a.b``             value as the file's reader sees it
    ``args.name``            attribute of the parsed TrainingArguments / script config
    ``config.a.b``           key of the dict that reaches deepspeed.initialize (absent: "<absent>")
    ``engine.kind``          "deepspeed", "ddp", "single"
    ``engine.stage``, ``engine.world_size``, ``engine.micro_batch``, ``engine.gradient_accumulation_steps``,
    ``engine.gradient_clipping``, ``engine.dtype``, ``engine.optimizer``, ``engine.scheduler``
    ``plugin.name``          attribute of the FSDP plugin of the live Accelerator
    ``engine.units``, ``engine.share``, ``engine.param_dtype``  FSDP: class names of the modules sharded as one, part
                             of the elements that a rank holds, dtypes of the parameters
    ``engine.a.b``           attribute path on the parsed DeepSpeedConfig: ``engine.zero_config.overlap_comm``
    ``engine.processes``     all ranks of the job
    ``engine.batch``         samples of an optimizer step as the engine counts them
    ``engine.own_data_loader``  whether the engine made a data loader
    ``engine.activation_checkpointing``  whether DeepSpeed's own activation checkpointing was set up
    ``engine.waits``         how often, from then on, DeepSpeed had the host wait for the device
    ``engine.gathered``      elements of the tensors that, from then on, were gathered from the parts of all ranks
    ``optimizer.name``       plain attribute of DeepSpeed's wrapper around the optimizer, of a list its length
    ``inner.name``           plain attribute of the innermost optimizer, or of its first parameter group (lr, betas)
    ``schedule.name``        plain attribute of the learning-rate schedule: ``schedule.max_lrs``
    ``engine.wrapper``       class of the outermost optimizer, DeepSpeed's own around the one asked for
    ``engine.parameters``    dtype of the parameters; ``engine.buffers`` the sorted dtypes of the buffers
    ``step.skipped``, ``step.loss_scale``  after "step": optimizer steps skipped for overflow, the loss scale reached
    ``weights``              after "save": "complete", "empty" (tensors without elements) or "missing"
    ``checkpoint.files``     in "load": the sorted names in the checkpoint's folder; ``checkpoint.weights`` and
                             ``checkpoint.optimizer``: whether whole model weights and optimizer states are among them
    ``load.matches``         the parameters after loading are those of the engine that wrote the checkpoint
    ``load.global_step``     the optimizer step that training goes on from (2 where all is well)
    ``memory.MOMENT``        bytes of all live tensors of a rank, ``memory.MOMENT.bytes_per_parameter`` rounded to 0.1;
                             moments: "init" (engine built), "backward" (the most held during the first),
                             "update" (when the inner optimizer begins), "step" (after the first optimizer step),
                             "second_update" (when it begins for the second time, and has its states);
                             host and accelerator together, each storage once. Only measured where a proof names one
    ``memory.pinned``        bytes that DeepSpeed asks its accelerator to page-lock
    ``engine.sent``          sorted dtypes of the gradients that were summed over the ranks
    ``engine.autocast``      dtype in which torch would compute on a card with what DeepSpeed hands to its autocast
    ``step.clipped``         whether the gradients that reached the inner optimizer were shorter than those computed,
                             whose norm is ``step.norm``; of one rank alone
    ``model.checkpointing``  after "step": whether the model checkpoints activations
    ``accelerator.checks``   after "step" of an own loop: how often the ranks compared shapes to gather one tensor
    ``uses.a.b``             how often that attribute of the DeepSpeedConfig was read once it was made: 0 for a key
                             that is accepted and has no effect; ``uses.optimizer.name`` of the ZeRO optimizer
    ``threads``              threads that a new process takes in the environment that the launcher made, where that
                             names OMP_NUM_THREADS
    ``log``                  everything printed or logged, compared with ``printed`` or ``unprinted``
"""

from __future__ import annotations

import re
from typing import Literal

from zerocfg.record import field, record
from zerocfg.run.model import Phase

ABSENT = "<absent>"


@record(frozen=True, slots=True)
class Between:
    """A claimed value of which only the bounds are claimed, both included."""

    low: float
    high: float = float("inf")

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high


def at_least(low: float) -> Between:
    return Between(low)


def at_most(high: float) -> Between:
    return Between(float("-inf"), high)


@record(frozen=True, slots=True)
class Printed:
    """A claim about the whole log: how often a regular expression is found in it."""

    pattern: str
    times: Between

    def of(self, log: str) -> bool:
        return sum(1 for _ in re.finditer(self.pattern, log)) in self.times


def printed(pattern: str, times: int = 1) -> Printed:
    return Printed(pattern, at_least(times))


def unprinted(pattern: str, times: int = 1) -> Printed:
    """Printed less than ``times`` times."""
    return Printed(pattern, at_most(times - 1))


def logged(pattern: str) -> tuple[Printed, Printed]:
    """What is said of the bad example and never of the good one."""
    return printed(pattern), unprinted(pattern)


@record(frozen=True, slots=True)
class Proof:
    """``status`` "executed": run by the test suite on the real libraries; "cited": read in the source named;
    "needs_gpu": waits for a card; "self": says something about zerocfg, whose own tests show it.

    ``raises``: regular expression found in the error of the bad example in ``phase``; the good one passes that phase.
    ``within``: a function on the error's way, where the error has no words of its own.
    ``shows``: observed name -> (value with the bad example, value with the good one).
    ``extent``: exactly what was shown, where that is less than what the rule claims or is only what was read; it stands
    on the rule's page.
    ``ranks``: processes that the example is run with.
    """

    status: Literal["executed", "cited", "needs_gpu", "self"]
    phase: Phase = "parse"
    raises: str | None = None
    within: str = ""
    shows: dict[str, tuple[object, object]] = field(default_factory=dict)
    extent: str = ""
    ranks: int = 1
    source: str = ""


def crashes(phase: Phase, raises: str, *, within: str = "", ranks: int = 1, source: str = "") -> Proof:
    """The bad example stops in ``phase`` with an error matching ``raises``; the good one gets past that phase."""
    return Proof("executed", phase, raises=raises, within=within, ranks=ranks, source=source)


def shows(
    phase: Phase, values: dict[str, tuple[object, object]], *, extent: str = "", ranks: int = 1, source: str = ""
) -> Proof:
    """Both examples reach ``phase``; the named values are seen as (bad, good)."""
    return Proof("executed", phase, shows=values, extent=extent, ranks=ranks, source=source)
