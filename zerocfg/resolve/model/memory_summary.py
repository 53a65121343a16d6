"""Memory predictions for the rules: computed without torch from the run's settings, its model and its hardware.

A rule calls a run wrong where even the least exceeds what there is. What no file says is therefore taken twice: as it
costs least for the low ends, and as libraries do it when nobody asks for anything for the high ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocfg.budgets import LARGEST_NUMBER
from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.host import rounding_terms
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.overhead import GIB
from zerocfg.memory.predict import predict
from zerocfg.memory.rollouts import Sampling
from zerocfg.memory.terms import TRAINING, Estimate, Place, Term
from zerocfg.memory.zero.replay import zero_terms
from zerocfg.resolve.model.gaps import gaps_of, touching
from zerocfg.resolve.model.setup import Setup, arguments_written, setup_of_run
from zerocfg.run.facts import MemorySummary
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.fsdp import PARALLEL

if TYPE_CHECKING:
    from zerocfg.memory.terms import Timeline
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.models.spec import RunSpec

TRAINERS = ("transformers", "trl")


def memory_summary(
    run: Run, facts: ModelFacts, spec: RunSpec, config: dict[str, Any] | None, profile: HardwareProfile | None
) -> MemorySummary:
    """The summary of a run whose effective settings are computed; ``config`` is the model's config.json."""
    started = run.effective.value("num_processes")
    ranks = profile.world_size if profile else started if isinstance(started, int) and started > 0 else 1
    setup = _setup(run, spec, ranks)
    likely = setup.workload if setup else None
    found = _Predicted(run, facts, spec, config, profile, setup, likely)
    memory = MemorySummary()
    if likely is not None:
        memory = MemorySummary(
            logits_gib=found.logits(likely), micro_batch=likely.micro_batch, sequence_length=likely.sequence_length
        )
    if profile is None or facts.parameters is None or facts.parameters > LARGEST_NUMBER:
        return memory  # more than any model has is a slip, and its bytes fit no float
    if _is_split(run) or (setup is not None and not _are_bounds(run, setup, config)):
        return memory
    memory = replace(memory, states_gib=found.states(), vllm_gib=found.vllm())
    return found.configured(memory, profile.accelerators_per_node) if setup else memory


def _is_split(run: Run) -> bool:
    """Whether ranks hold a part of each layer, of which nothing is said here."""
    named = (run.effective.value(name) for name in ("tensor_parallel.autotp_size", f"{PARALLEL}tp_size"))
    return any(isinstance(size, int) and size > 1 for size in named)


def _are_bounds(run: Run, setup: Setup, config: dict[str, Any] | None) -> bool:
    """Whether the run takes no less than the figures, whatever they leave out."""
    gaps = gaps_of(run, setup, run.effective.value, arguments_written(run), config)
    return all(gap.standing == "at least" for gap in touching(gaps, "memory"))


def _setup(run: Run, spec: RunSpec, world_size: int) -> Setup | None:
    """What decides the memory of the run as it is configured; None where a part is not known or not possible."""
    effective = run.effective
    devices = [effective.value(f"zero_optimization.{part}.device") for part in ("offload_optimizer", "offload_param")]
    halves = [effective.value(f"{name}.enabled") for name in ("bf16", "fp16")]
    if any(device not in (None, "none", "cpu", "nvme") for device in devices) or UNKNOWN in halves:
        return None
    if effective.value("engine") == "deepspeed" and not isinstance(effective.value("zero_optimization.stage"), int):
        return None
    try:
        return setup_of_run(run, effective.value, spec, world_size)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _Predicted:
    run: Run
    facts: ModelFacts
    spec: RunSpec
    config: dict[str, Any] | None
    profile: HardwareProfile | None
    setup: Setup | None
    likely: Workload | None

    def logits(self, work: Workload) -> float | None:
        """GiB when backward begins: log softmax, its gradient and that of the logits, 4 bytes each."""
        if work.fused_loss:
            return 0.0
        vocabulary = self.facts.vocab_size
        return None if vocabulary is None else work.micro_batch * work.sequence_length * vocabulary * 12 / GIB

    def states(self) -> dict[int, float]:
        """By stage, with nothing offloaded."""
        return {stage: _peak(zero_terms(self.facts, self.at(stage))) for stage in range(4)}

    def vllm(self) -> float:
        """GiB of an accelerator that vLLM keeps while the run trains."""
        rollouts = self.setup.rollouts if self.setup else None
        memory = self.profile.accelerator.planning_gib if self.profile else None
        if rollouts is None or memory is None or rollouts.by != "colocated vLLM" or rollouts.sleeps:
            return 0.0
        return memory * rollouts.share

    def at(self, stage: int) -> Options:
        own = self.setup.options if self.setup else None
        if not isinstance(own, Options):
            own = Options(0, self.profile.world_size if self.profile else 1)
        return replace(own, stage=stage, offload_optimizer="none", offload_param="none")

    def configured(self, memory: MemorySummary, ranks: int) -> MemorySummary:
        """What holds for the run as it is. Of tensors whose sizes are not known only bounds are: no peak then."""
        assert self.setup is not None
        own = self.setup.options
        if isinstance(own, Options):
            terms = zero_terms(self.facts, _least(own))
            rounding = _resting(rounding_terms(self.facts, own), "host") * ranks
            memory = replace(
                memory,
                resting_gib=_resting(terms, "device"),
                step_gib=Estimate(terms).held("device", "step").size / GIB if self.facts.layout else None,
                host_states_gib=_resting(terms, "host") * ranks + rounding,
                pinned_rounding_gib=rounding,
                nvme_gib=_resting(terms, "nvme") * ranks,
            )
        if self.likely is None or not self.facts.layout:
            return memory
        twice = replace(self.likely, micro_batch=2 * self.likely.micro_batch)
        peak = self.peak(own, self.likely)
        stages = {stage: self.at(stage) for stage in range(4)}
        bands = {stage: peak if at == own else self.peak(at, self.likely) for stage, at in stages.items()}
        return replace(
            memory,
            peak_gib=peak,
            stage_peaks_gib={stage: band for stage, band in bands.items() if band},
            doubled_peak_gib=self.peak(own, twice),
        )

    def peak(self, options: Options | TorchOptions, work: Workload) -> tuple[float, float] | None:
        """The least and the most that the driver will show, in GiB."""
        low, high = self.timeline(self.least(work)), self.timeline(work)
        if low is None or high is None or self.profile is None:
            return None
        device = self.profile.accelerator
        try:
            least = predict(self.facts, _least(options), low, device, sampling=self.sampling(work))
            most = predict(self.facts, options, high, device, sampling=self.sampling(work))
        except ValueError:
            return None  # what it generates with is not known
        return least.device.low / GIB, most.device.high / GIB

    def sampling(self, work: Workload) -> Sampling | None:
        rollouts = self.setup.rollouts if self.setup else None
        return None if rollouts is None else Sampling(rollouts, work, self.config or {})

    def timeline(self, work: Workload) -> Timeline | None:
        assert self.setup is not None
        try:
            return by_formula(self.facts, work, self.setup.precision, self.config)
        except ValueError:
            return None

    def least(self, work: Workload) -> Workload:
        """The workload with everything that a script may do on its own account."""
        trainer = self.spec.consumer in TRAINERS and self.run.recipe is not None
        recomputed = self.spec.gradient_checkpointing is None and not trainer
        pieces = work.fused_loss or (self.spec.fused_loss is None and not trainer)
        return replace(work, gradient_checkpointing=work.gradient_checkpointing or recomputed, fused_loss=pieces)


def _least(options: Any) -> Any:
    """An optimizer that no file names may need nothing for its step but gradients."""
    return replace(options, optimizer="adamw_fused") if options.optimizer == "adamw" else options


def _peak(terms: tuple[Term, ...]) -> float:
    return Estimate(terms).peak("device", TRAINING).size / GIB


def _resting(terms: tuple[Term, ...], place: Place) -> float:
    """GiB of one rank between two steps."""
    return sum(term.size for term in terms if term.place == place and term.moments >= TRAINING) / GIB
