"""The forecast of a resolved run: memory of a rank by phase, host memory, step time, and changes that save memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.host import loading_terms, node_bytes
from zerocfg.memory.options import Options, TorchOptions
from zerocfg.memory.overhead import GIB
from zerocfg.memory.predict import predict, terms_of
from zerocfg.memory.time.expected import expected_step_time
from zerocfg.memory.time.step_time import StepTime
from zerocfg.memory.verdict import UNKNOWN, Ladder, Setting, Verdict, Word, compare, judge, ladder, workloads
from zerocfg.resolve.explain.refused_values import require_accepted_values
from zerocfg.resolve.model.activations import Activations, base_of, of_rank
from zerocfg.resolve.model.fused_loss import fused_by
from zerocfg.resolve.model.gaps import Gap, gaps_of, touching, untimed, verdict_with
from zerocfg.resolve.model.register import Standing
from zerocfg.resolve.model.room import device_room, host_needed, host_room
from zerocfg.resolve.model.setup import Setup, arguments_written, setup_of_run

if TYPE_CHECKING:
    from zerocfg.memory.activations.tracing import Traced
    from zerocfg.memory.overhead import Band
    from zerocfg.memory.predict import Prediction
    from zerocfg.memory.time.flops import Kernels
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.resolve.build import BuildResult


LITTLE = GIB // 10
"""Bytes of a node's memory that any has."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """One run; sizes in bytes.

    ``capacity`` is what the driver reports as the device's total, on a processor (``on_host``) a rank's share of the
    node. ``host`` is what all ranks of a node hold of its
    memory at the worst moment, ``loading`` what they hold while the model is loaded in another dtype than its files
    have (else the files are mapped, and the system takes the pages back), ``room`` what a node has, ``nvme`` what they
    write to its drives. ``verdict`` is that for device and host, ``gaps`` what is set and not in the figures.
    ``ladder`` None: not needed or not possible;
    ``time`` None: not known, and ``no_time`` is the reason ("" where the notes give it already, or nothing is missing
    but a model, a batch or hardware). ``price`` is that of one device for an hour. ``assumptions`` are what the figures
    rest on and what could not be predicted; ``samples`` says how many samples a step takes where that is unexpected.
    """

    setup: Setup
    facts: ModelFacts
    prediction: Prediction
    capacity: int | None
    host: Band
    loading: int
    room: int | None
    nvme: int
    verdict: Verdict
    ladder: Ladder | None
    time: StepTime | None
    price: float | None
    assumptions: tuple[str, ...]
    no_time: str = ""
    samples: str = ""
    gaps: tuple[Gap, ...] = ()
    on_host: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """All that is said about the figures."""
        without = f"no time is predicted: {self.no_time}" if self.no_time else ""
        return (*self.assumptions, *filter(None, (without, self.samples)))

    @property
    def word(self) -> Word:
        return self.verdict.word

    @property
    def of_host(self) -> Verdict:
        """The verdict for the memory of a node."""
        if self.host.expected < LITTLE:
            return Verdict("fits", 1.0)
        return UNKNOWN if self.room is None else compare(self.host, self.room)

    @property
    def complete(self) -> bool:
        """Whether all that takes memory is in the figures; else they are bounds, or less."""
        return self.prediction.complete and not touching(self.gaps, "memory")

    @property
    def standing(self) -> Standing:
        """What the figures of memory are: all of it, a bound, or neither."""
        standings = {gap.standing for gap in touching(self.gaps, "memory")}
        if not self.prediction.complete:
            standings.add("at least")
        return "modelled" if not standings else standings.pop() if len(standings) == 1 else "not modelled"


def forecast(built: BuildResult, *, tracing: bool = True, python: str | None = None, changes: bool = True) -> Forecast:
    """The forecast of a run that resolved. Raises ValueError with one line when nothing can be said about it."""
    assert built.plan is not None
    require_accepted_values(built)
    plan, inputs = built.plan, built.inputs
    profile = inputs.profile
    device = profile.accelerator if profile else None
    values = {name: decision.value for name, decision in plan.settings.items()}
    setup = setup_of_run(built.run, values.get, inputs.spec, plan.num_processes)
    gaps = gaps_of(built.run, setup, values.get, arguments_written(built.run), plan.model_config)
    facts = of_rank(inputs.facts, plan.model_config, setup)
    activations = Activations(facts, plan.model_config, tracing=tracing, python=python)
    timeline = activations.of(setup, setup.workload)
    if facts.parameters is None and activations.built is not None:
        facts = _counted(facts, activations.built)

    def evaluate(setting: Setting) -> Prediction:
        sampling = activations.sampling(setup, setting.workload)
        return predict(facts, setting.options, activations.of(setup, setting.workload), device, sampling=sampling)

    def slowness(setting: Setting) -> float | None:
        time = _time(facts, setting, profile, setup.kernels)
        return time.seconds.expected / time.tokens if isinstance(time, StepTime) else None

    def fuses(options: Options | TorchOptions) -> str:
        return fused_by(inputs, stage=options.stage if isinstance(options, Options) else None)

    ranks = profile.accelerators_per_node if profile else 1
    capacity, room = device_room(profile), host_room(profile)

    def judged(prediction: Prediction) -> Verdict:
        return judge(prediction, capacity, host_needed(prediction, profile, ranks), room)

    own = Setting(setup.options, setup.workload)
    base = base_of(plan.model_config, setup)
    terms, sampling = terms_of(facts, setup.options, device, base), activations.sampling(setup, setup.workload)
    prediction = predict(facts, setup.options, timeline, device, terms, sampling)
    steps = None
    followed = all(gap.standing == "at most" for gap in touching(gaps, "memory"))
    # What becomes of a quantised base under another engine is not modelled.
    changes = changes and followed and base is None
    if changes and capacity and timeline and judge(prediction, capacity).word != "fits":
        activations.prepare(setup, workloads(own, fuses))
        steps = ladder(own, evaluate, judged, slowness, fuses)
    host = host_needed(prediction, profile, ranks)
    loading = 0
    if isinstance(setup.options, Options):
        loading = node_bytes(loading_terms(facts, setup.options), ranks)
    nvme = ranks * prediction.estimate.peak("nvme").size
    verdict = verdict_with(judged(prediction), gaps)
    late = untimed(gaps)
    time = (
        _time(facts, own, profile, setup.kernels)
        if not late
        else f"it is not modelled with {', '.join(map(str, late))}"
    )
    known, no_time = (time, "") if isinstance(time, StepTime) else (None, time)
    assumptions = [*setup.assumed, *([setup.unknown] if setup.unknown else []), *activations.notes]
    assumptions += known.notes if known is not None else ()
    price = inputs.spec.price_per_hour
    return Forecast(
        setup,
        facts,
        prediction,
        capacity,
        host,
        loading,
        room,
        nvme,
        verdict,
        steps,
        known,
        price,
        tuple(assumptions),
        no_time,
        _samples(setup),
        gaps,
        on_host=device is not None and device.vendor == "cpu",
    )


def _samples(setup: Setup) -> str:
    """How many samples a step takes where that is fewer than its ranks seem to read."""
    options, load = setup.options, setup.workload
    if options.tensor_parallel == 1 or load is None:
        return ""
    samples = load.micro_batch * options.gradient_accumulation_steps * options.data_parallel
    said = f"{samples} sample{'s' if samples > 1 else ''} an optimizer step"
    return f"{said}: the {options.tensor_parallel} ranks that share each layer read the same ones"


def _time(facts: ModelFacts, setting: Setting, profile: HardwareProfile | None, kernels: Kernels) -> StepTime | str:
    """The time of a step, or why there is none ("" where that is said elsewhere)."""
    if setting.workload is None or profile is None:
        return ""
    try:
        return expected_step_time(facts, setting.options, setting.workload, profile, kernels=kernels)
    except ValueError as error:
        return str(error)


def _counted(facts: ModelFacts, built: Traced) -> ModelFacts:
    """The facts of a model type that zerocfg does not know, as the model turned out when it was built."""
    counts = {
        "parameters": built.parameters,
        "largest_parameter": max(size for size, _ in built.tensors),
        "largest_module": built.largest_module,
        "largest_block": built.largest_block or None,
        "tensor_sizes": sorted(built.tensors, reverse=True),
        "unknown_because": None,
    }
    return facts.model_copy(update=counts)
