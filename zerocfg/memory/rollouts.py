"""What a rank holds while completions are sampled and scored, before it trains on them: GRPO by TRL.

Between two steps everything stays that a rank never lets go of. Beside it are, in `_generate_and_score_completions` of
trl/trainer/grpo_trainer.py (1.15 and 1.16): a frozen reference model (`beta`; adapters are switched off instead), what
generates, and under ZeRO-3 and FSDP the parameters that are gathered for it. The policy's own scoring is a forward like
that of training and never more. Token ids, masks, log-probabilities and advantages of a generation batch are left out:
some 60 bytes a token.

vLLM beside the training takes `vllm_gpu_memory_utilization` of what the driver reports as the card's total, for
weights, activations and cache together (cited from its source, v1/worker/gpu_worker.py: determine_available_memory;
not run here); its CUDA graphs may come on top. Asleep (level 2, which TRL asks for) it has discarded weights and cache
(cited from its documentation: Sleep Mode). A vLLM server takes nothing of these cards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.activations.generation import generated, scored
from zerocfg.memory.fsdp.units import units_of
from zerocfg.memory.options import BYTES, Options, Rollouts, TorchOptions, Workload
from zerocfg.memory.terms import ALWAYS, SAMPLING, TRAINING, Kind, Moment, Place, Term

if TYPE_CHECKING:
    from zerocfg.models.hardware import Accelerator
    from zerocfg.models.model_facts import ModelFacts

HOLDS_FOR = "trl>=1.15,<1.17"
GIB = 1 << 30
BOTH: frozenset[Moment] = frozenset(SAMPLING)
GENERATION: frozenset[Moment] = frozenset({"generation"})
SCORING: frozenset[Moment] = frozenset({"scoring"})
_TRAINER = "trl/trainer/grpo_trainer.py: "
_GATHERS: tuple[Kind, ...] = ("parameters", "buffers")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are sampled, and of what: a micro batch (None: not known) of the model with this config.json."""

    rollouts: Rollouts
    workload: Workload | None
    config: Mapping[str, object]


def sampling_terms(
    facts: ModelFacts,
    options: Options | TorchOptions,
    terms: Iterable[Term],
    accelerator: Accelerator | None,
    sampling: Sampling,
) -> tuple[Term, ...]:
    """The terms of both moments; ``terms`` are those of the training alone.

    Raises ValueError where something of it is not known.
    """
    found = _Sampled(facts, options, tuple(terms), accelerator, sampling)
    return tuple(term for term in found.terms() if term.size > 0)


@dataclass(frozen=True)
class _Sampled:
    facts: ModelFacts
    options: Options | TorchOptions
    training: tuple[Term, ...]
    accelerator: Accelerator | None
    sampling: Sampling

    @property
    def every(self) -> int:
        return self.facts.parameters or 0

    @property
    def low(self) -> int:
        """Bytes of a parameter as it is computed with."""
        return BYTES[self.options.precision]

    @property
    def kept(self) -> int:
        """Bytes of a trained parameter of FSDP as it is kept."""
        return 4 if isinstance(self.options, TorchOptions) and self.options.master else self.low

    @property
    def shards(self) -> int:
        """Ranks that share the parameters of the model."""
        if isinstance(self.options, Options):
            return self.options.world_size if self.options.stage == 3 else 1
        sharded = self.options.kind.startswith("fsdp")
        return (self.options.shard_ranks or self.options.world_size) if sharded else 1

    def terms(self) -> Iterator[Term]:
        yield from self.resting()
        how = self.sampling.rollouts
        if how.reference:
            yield from self.reference()
        if how.by == "transformers":
            yield from self.gathered()
        else:
            yield from self.synchronised()
        if how.by == "colocated vLLM":
            total = self.accelerator.planning_gib if self.accelerator else None
            moments = GENERATION if how.sleeps else ALWAYS | BOTH
            source = "trl/generation/vllm_generation.py: _init_vllm"
            yield _term("share of the card for vLLM", int((total or 0) * GIB * how.share), moments, "share", source)
        work = self.sampling.workload
        if work is not None:
            yield from self.activations(work)

    def resting(self) -> Iterator[Term]:
        """What is there in every moment of training, and the gradients of micro batches that wait for others."""
        how, steps = self.sampling.rollouts, self.options.gradient_accumulation_steps
        between = ((how.steps or steps) * how.iterations) % steps != 0
        by_name: defaultdict[tuple[str, Place], list[Term]] = defaultdict(list)
        for term in self.training:
            by_name[term.name, term.place].append(term)
        for (name, place), terms in by_name.items():
            held = {moment: sum(one.size for one in terms if moment in one.moments) for moment in TRAINING}
            kind, source = terms[0].kind, terms[0].source
            size = held["forward"] if between and kind == "gradients" else min(held.values())
            yield Term(name, size, place, BOTH, kind, source, terms[0].holds_for)

    def reference(self) -> Iterator[Term]:
        """models/utils.py: prepare_deepspeed, prepare_fsdp; else accelerate's prepare_model, in evaluation mode."""
        options = self.options
        if isinstance(options, Options):
            away, width = options.stage == 3 and options.offload_param != "none", self.low
            source = "trl/models/utils.py: prepare_deepspeed"
        else:
            away, width = options.cpu_offload, self.sampling.rollouts.reference_width
            source = "trl/models/utils.py: prepare_fsdp" if self.shards > 1 else _TRAINER + "__init__"
        place: Place = "host" if away else "device"
        yield _term(
            "reference model", width * -(-self.every // self.shards), ALWAYS | BOTH, "parameters", source, place
        )
        small = sum(one.size for one in self.training if one.name == "persistent small parameters" and _rests(one))
        yield _term("reference model, small parameters", small, ALWAYS | BOTH, "parameters", source)
        if isinstance(options, TorchOptions) and options.kind == "fsdp2" and self.shards > 1:
            # One unit: gathered into a buffer, and copied out of it.
            yield _term("reference model, gathered", 2 * self.low * self.every, SCORING, "parameters", source)

    def gathered(self) -> Iterator[Term]:
        """What the model generates with, where each rank has a part of it only."""
        options, source = self.options, "trl/models/utils.py: unwrap_model_for_generation"
        whole = isinstance(options, Options) and options.stage == 3 and self.sampling.rollouts.gathers
        if whole and (self.shards > 1 or (isinstance(options, Options) and options.offload_param != "none")):
            yield _term("model gathered to generate", self.low * self.every, GENERATION, "parameters", source)
            return
        size = sum(one.size for one in self.training if self.comes_and_goes(one))
        yield _term("parameters gathered to generate", size, GENERATION, "parameters", source)
        if isinstance(options, TorchOptions) and options.kind == "fsdp1" and self.shards > 1:
            rest = self.kept * units_of(self.facts, fsdp1=True).tail
            source = "trl/distributed.py: summon_full_params"
            yield _term("root of FSDP, gathered to generate", rest, GENERATION, "parameters", source)

    def comes_and_goes(self, term: Term) -> bool:
        return term.place == "device" and "forward" in term.moments and not _rests(term) and term.kind in _GATHERS

    def synchronised(self) -> Iterator[Term]:
        """vLLM gets one parameter after the other, whole; of a model with adapters under ZeRO-3 all at once."""
        if self.shards == 1:
            return
        largest, source = self.facts.largest_parameter or 0, "trl/generation/vllm_generation.py: _iter_named_params"
        if isinstance(self.options, Options):
            size = self.low * (self.every if self.facts.adapters else largest)
        elif self.options.kind == "fsdp2":
            size = 2 * self.kept * largest  # gathered, and put together
        else:
            units = units_of(self.facts, fsdp1=True)
            size = self.kept * max(units.tail, *units.blocks)
        yield _term("parameters gathered for vLLM", size, GENERATION, "parameters", source)

    def activations(self, work: Workload) -> Iterator[Term]:
        how, precision, config = self.sampling.rollouts, self.options.precision, self.sampling.config
        if how.by == "transformers":
            sequences = work.micro_batch * (how.steps or self.options.gradient_accumulation_steps)
            size = generated(self.facts, work, sequences, how.per_logit, precision, config)
            source = "transformers/generation/utils.py: _sample"
            yield _term("cache and logits of completions", size, GENERATION, "activations", source)
        if how.reference:
            source = _TRAINER + "_get_per_token_logps_and_entropies"
            size = scored(self.facts, work, precision, config)
            yield _term("activations of the reference", size, SCORING, "activations", source)


def _rests(term: Term) -> bool:
    return term.moments >= TRAINING


def _term(name: str, size: int, moments: frozenset[Moment], kind: Kind, source: str, place: Place = "device") -> Term:
    return Term(name, size, place, moments, kind, source, HOLDS_FOR)
