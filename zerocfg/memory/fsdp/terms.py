"""What a rank of FSDP keeps, and what it holds for a while."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.memory.fsdp.first import AdaptersWalk, FirstWalk
from zerocfg.memory.fsdp.second import SecondWalk
from zerocfg.memory.fsdp.walk import BUFFERS, SHARDS
from zerocfg.memory.options import TorchOptions
from zerocfg.memory.terms import ALWAYS, BACKWARD, Place, Term
from zerocfg.memory.torch_states import STEP, optimizer_terms, term, widths

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts


def fsdp_terms(facts: ModelFacts, options: TorchOptions) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    kept, low = widths(options)
    first = options.kind == "fsdp1"
    accumulates = options.gradient_accumulation_steps > 1
    apart = first and bool(facts.adapters)
    walk = (AdaptersWalk if apart else FirstWalk if first else SecondWalk)(facts, options)
    place: Place = "host" if options.cpu_offload else "device"
    file = "_flat_param.py: shard" if first else "_fsdp_param.py: _init_sharded_param"
    # A flat parameter has one dtype and one gradient, whatever part of it is trained.
    wide = trained if not first or walk.whole or apart else sum(walk.units.blocks)
    parameters = kept * walk.share(wide) + low * walk.share(every - wide)
    yield term("parameters", parameters, ALWAYS, "parameters", file, place)
    yield from walk.terms()
    shards = kept * walk.share(wide)
    source = BUFFERS[SHARDS][1 if first else 2]
    # FSDP 1 keeps on the card what it has copied to the host until backward is over.
    on_card = STEP if accumulates else BACKWARD | STEP
    if options.cpu_offload:
        on_card = BACKWARD if first else frozenset()
        yield term(SHARDS, shards, ALWAYS if first else BACKWARD | STEP, "gradients", source, "host")
    yield term(SHARDS, shards, on_card, "gradients", source, grows=not accumulates)
    # Which rank holds the trained part of a flat parameter depends on where it lies: at worst one holds all.
    share = min(trained, walk.share(wide)) if first else walk.share(trained)
    sizes = [] if first or trained < every else [(walk.share(size), count) for size, count in facts.tensor_sizes]
    if apart:
        share, sizes = walk.share(trained), [(walk.share(size), len(walk.units.blocks)) for size in facts.adapters]
    largest = max(facts.adapters) if apart else min(facts.largest_parameter or trained, trained)
    yield from optimizer_terms(
        facts, options, share, largest if first and not apart else walk.share(largest), sizes, None
    )
