"""What every rank without DeepSpeed keeps of parameters and optimizer. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.memory.optimizers import moment_bytes, step_temporaries
from zerocfg.memory.options import BYTES, TorchOptions
from zerocfg.memory.terms import TRAINING, Kind, Moment, Place, Term

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts

HOLDS_FOR = ">=2.13,<2.14"
STEP: frozenset[Moment] = frozenset({"step"})


def term(
    name: str,
    size: int,
    moments: frozenset[Moment],
    kind: Kind,
    source: str,
    place: Place = "device",
    grows: bool = False,
) -> Term:
    return Term(name, size, place, moments, kind, source, HOLDS_FOR, grows)


def widths(options: TorchOptions) -> tuple[int, int]:
    """Bytes of a parameter as it is kept and trained, and as it is computed with."""
    low = BYTES[options.precision]
    return (4 if options.master else low), low


def optimizer_terms(
    facts: ModelFacts, options: TorchOptions, trained: int, largest: int, sizes: list[tuple[int, int]], side: int | None
) -> Iterator[Term]:
    """Moments and step of an optimizer that is given ``trained`` elements in tensors of these sizes."""
    kept, _ = widths(options)
    # bitsandbytes' Lion, the Trainer's, keeps fp32 whatever the parameter is
    moments = moment_bytes(options.optimizer, trained, 4 if options.optimizer == "lion" else kept, sizes, side)
    place: Place = "host" if options.cpu_offload else "device"
    yield term("optimizer moments", moments, TRAINING, "optimizer", "the optimizer's first step", place)
    temporaries = step_temporaries(options.optimizer, trained, kept, largest)
    yield term("temporaries of the optimizer", temporaries, STEP, "temporaries", "torch/optim/adam.py", place)
