"""What a device holds beside tensors: workspaces, the CUDA context, communication buffers, the allocator's reserve.

Three counters answer "how much memory": ``torch.cuda.max_memory_allocated`` (tensors and workspaces),
``max_memory_reserved`` (what the caching allocator took from the driver for them) and what ``nvidia-smi`` shows for the
process (reserved, context, and what libraries took on their own). The first follows from formulas, the others from it;
all three are stated as bands, as wide as published runs lie around their predictions (`spread`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, hypot
from typing import TYPE_CHECKING

from zerocfg.memory.band_tier import RESERVE, BandTier
from zerocfg.memory.measured_spread import MEASURED
from zerocfg.memory.options import Options, TorchOptions
from zerocfg.memory.spread import ENDS, Spread
from zerocfg.memory.terms import TRAINING, WORK, Term

if TYPE_CHECKING:
    from zerocfg.memory.terms import Held
    from zerocfg.models.hardware import Accelerator

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Band:
    """Bytes: what is expected, and between which ends nine runs of ten lie."""

    low: int
    expected: int
    high: int


# Expected outside of torch's allocator; how far runs lie from these is in `measured_spread` and `card_spread`.
CONTEXT = int(0.75 * GIB)  # CUDA and the kernels of a training step: one H200 with torch 2.11, 0.749 GiB in both runs
ONE_RANK = int(0.55 * GIB)  # the communicator that DeepSpeed makes for a single rank: 1.28 to 1.33 GiB with the context
NCCL = int(1.0 * GIB)  # channels of one communicator; published measurements show 1 to 2 GiB after the first barrier


def workspaces(accelerator: Accelerator | None) -> tuple[Term, ...]:
    """cuBLAS workspaces, which torch takes from its caching allocator: they count as allocated.

    One for each thread that multiplies matrices: the main thread (forward) and autograd's (backward). 32 MiB each on
    compute capability 9, 10 and 12, else 8.125 MiB; cuBLASLt shares them. From the first kernel on, for good.
    Source: aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize, getNewWorkspace), torch 2.9 and later.
    """
    if accelerator is None or accelerator.vendor != "nvidia":
        return ()
    major = (accelerator.architecture or "").split(".")[0]
    each = 32 * MIB if major in ("9", "10", "12") else 8 * MIB + 128 * 1024
    source = "CublasHandlePool.cpp: getNewWorkspace"
    return (Term("cuBLAS workspaces", 2 * each, "device", TRAINING | WORK, "outside", source, "torch>=2.9"),)


def figures(
    held: Held, error: float, accelerator: Accelerator | None, options: Options | TorchOptions, tier: BandTier
) -> tuple[Band, Band, Band]:
    """``max_memory_allocated``, ``max_memory_reserved`` and what the driver shows, for the peak ``held``.

    ``error``: half of the width of the activations' own band, as a share of them.
    """
    beside, share = outside(accelerator, options), shared(held)
    spread = tier.spread
    if tier.narrow and options.world_size > 1:
        spread = replace(spread, outside=MEASURED.outside)  # one rank was measured: NCCL's channels were not
    found = [around(*one) for one in doubts(held.size - share, traced(held), error, beside, spread, tier.reserve)]
    allocated, reserved, device = (Band(one.low + share, one.expected + share, one.high + share) for one in found)
    return allocated, reserved, device


def shared(held: Held) -> int:
    """Bytes that are given away as a share of the card, which is not exceeded and no less."""
    return sum(size for term, size in held.parts if term.kind == "share")


def traced(held: Held) -> int:
    """Bytes of what a trace says, or the formula in its place."""
    return sum(size for term, size in held.parts if term.kind in ("activations", "logits"))


def doubts(
    size: int,
    activations: int,
    error: float,
    beside: int,
    spread: Spread = MEASURED,
    reserve: float = RESERVE,
) -> tuple[tuple[int, float], tuple[int, float], tuple[int, float]]:
    """Expected bytes and their spread (:mod:`.spread`) for each of the three counters.

    ``size`` bytes are allocated, ``activations`` of them traced; ``beside`` is expected outside of torch's allocator,
    which reserves ``reserve`` times what it allocates.
    """
    doubt = hypot(spread.states * (size - activations), hypot(spread.activations, error / ENDS) * activations)
    kept = int(size * reserve)
    kept_doubt = hypot(doubt * reserve, spread.reserve * kept)
    return (size, doubt), (kept, kept_doubt), (kept + beside, hypot(kept_doubt, spread.outside * beside))


def outside(accelerator: Accelerator | None, options: Options | TorchOptions) -> int:
    """Bytes that the driver shows beside what torch reserved: the context, and the communicators of NCCL.

    DeepSpeed makes one for a single rank, too.
    """
    if accelerator is None or accelerator.vendor == "cpu":
        return 0
    alone = ONE_RANK if isinstance(options, Options) else 0
    return CONTEXT + (NCCL if options.world_size > 1 else alone)


def around(expected: int, doubt: float) -> Band:
    """The band around ``expected`` bytes whose spread is ``doubt`` bytes; its ends are as far off as factors."""
    factor = exp(ENDS * doubt / expected) if expected else 1.0
    return Band(int(expected / factor), expected, int(expected * factor))
