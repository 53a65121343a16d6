"""A candidate plan and its prediction: memory of device, host and drives, and the time of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.between_nodes import with_network
from zerocfg.memory.options import Options, TorchOptions
from zerocfg.memory.overhead import GIB
from zerocfg.memory.predict import Prediction, predict, terms_of
from zerocfg.memory.time.expected import expected_step_time
from zerocfg.memory.verdict import Verdict, Word, judge
from zerocfg.resolve.model.fused_loss import can_fuse
from zerocfg.resolve.model.gaps import Gap, gaps_of, touching, untimed, verdict_with
from zerocfg.resolve.model.room import device_room, host_needed, host_room
from zerocfg.resolve.model.setup import Setup, arguments_written, setup_of_run
from zerocfg.resolve.search import buffer_sizes
from zerocfg.resolve.search.choice import GATHER, LIGER, ZERO, Choice, Lever
from zerocfg.run.config import AUTO
from zerocfg.run.model import UNKNOWN, Effective, Setting

if TYPE_CHECKING:
    from zerocfg.memory.lora import Base
    from zerocfg.memory.terms import Term
    from zerocfg.memory.time.step_time import StepTime
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.model.activations import Activations

FOR_STATES = 0.675  # of a device, where activations are not known: a tenth for its driver, a quarter of the rest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice with what is predicted of it. ``host`` and ``nvme`` are bytes of one node.

    ``judged`` is the verdict for device, host and drives together, on the figures; plans are compared by it. ``short``
    names what there is too little of. ``gaps``: what is not in the figures. ``without``: of the best plan, what it
    would be without each of its levers.
    """

    choice: Choice
    setup: Setup
    prediction: Prediction
    time: StepTime | None
    host: int
    nvme: int
    judged: Verdict
    short: str = ""
    gaps: tuple[Gap, ...] = ()
    without: tuple[tuple[Lever, Candidate], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all that takes memory is in the figures."""
        return self.prediction.complete and not touching(self.gaps, "memory")

    @property
    def word(self) -> Word:
        return self.judged.word

    @property
    def verdict(self) -> Word:
        """What is certain of ``word``."""
        return self.certain.word

    @property
    def certain(self) -> Verdict:
        """What is certain of ``judged``."""
        return verdict_with(self.judged, self.gaps)

    @property
    def seconds_per_token(self) -> float | None:
        """Of the whole job, as expected: what plans are compared by and what is shown of them."""
        return per_token(self.time)


class Candidates:
    """Predicts choices of one run; what several of them share is computed once.

    ``effective`` are the settings of the run before anything is chosen: what a source names there stays.
    """

    def __init__(
        self,
        inputs: Inputs,
        effective: Effective,
        facts: ModelFacts,
        activations: Activations,
        *,
        resize: bool = False,
        base: Base | None = None,
    ) -> None:
        self.inputs, self.effective, self.facts, self.activations = inputs, effective, facts, activations
        self.resize, self.base = resize, base
        self._terms: dict[Options | TorchOptions, tuple[Term, ...]] = {}
        self.recipe = arguments_written(inputs.run)
        self._fuses: dict[int | None, bool] = {}

    def setup(self, choice: Choice) -> Setup:
        """The run with these values. Raises ValueError with one line for an engine that cannot be built so."""
        return self._setup(choice)[0]

    def _setup(self, choice: Choice) -> tuple[Setup, tuple[Gap, ...]]:
        chosen: dict[str, Any] = {}
        if self.resize and choice.stage is not None:
            found = buffer_sizes.buffer_sizes(choice, self.facts, self.profile(choice))
            chosen = {name: decision.value for name, decision in found.items() if not is_named(self.effective, name)}
        chosen |= choice.settings()
        if choice.stage == 3 and not is_set(self.effective.get(GATHER)):
            chosen[GATHER] = True  # as choose.gather_weights does

        def value(name: str) -> Any:
            if name in chosen:
                return chosen[name]
            setting = self.effective.get(name)
            # Defaults of another stage do not hold for this one: the engine's own are better.
            if setting is None or setting.value is UNKNOWN:
                return None
            return None if setting.origin.kind == "default" and name.startswith(ZERO) else setting.value

        recipe = dict(self.recipe)
        if choice.checkpointing is not None:
            recipe["gradient_checkpointing"] = choice.checkpointing
        if choice.fused_loss is not None:
            recipe[LIGER] = choice.fused_loss
        run = self.inputs.run
        setup = setup_of_run(run, value, self.inputs.spec, choice.processes, recipe)
        return setup, gaps_of(run, setup, value, recipe, self.activations.config)

    def profile(self, choice: Choice) -> HardwareProfile:
        """The hardware, or the part of it that the choice uses."""
        profile = self.inputs.profile
        assert profile is not None
        if (choice.nodes, choice.per_node) == (profile.nodes, profile.accelerators_per_node):
            return profile
        part = {"nodes": choice.nodes, "accelerators_per_node": choice.per_node}
        return with_network(profile.model_copy(update=part))

    def of(self, choice: Choice) -> Candidate:
        """What is predicted. Raises ValueError with one line where nothing can be."""
        (setup, gaps), profile = self._setup(choice), self.profile(choice)
        timeline = self.activations.of(setup, setup.workload)
        device = profile.accelerator
        sampling = self.activations.sampling(setup, setup.workload)
        prediction = predict(self.facts, setup.options, timeline, device, self._terms_of(setup.options), sampling)
        capacity = device_room(profile)
        host = host_needed(prediction, profile, choice.per_node)
        judged, short = judge(prediction, capacity, host, host_room(profile)), ""
        if capacity is not None and prediction.device.low > capacity:
            has = "each rank has" if device.vendor == "cpu" else "the card has"
            short = f"needs at least {prediction.device.low / GIB:.1f} GiB, {has} {capacity / GIB:.1f}"
        if judged.word == "unknown" and capacity is not None and prediction.allocated.expected > capacity * FOR_STATES:
            states = f"states alone take {prediction.allocated.expected / GIB:.1f} GiB a rank"
            short = f"{states}, which leaves less than a third of {device.name} to activations"
            judged = Verdict("unlikely")
        nvme, drives = choice.per_node * prediction.estimate.peak("nvme").size, free_on_drives(profile)
        if nvme and drives is not None and nvme > drives:
            judged = Verdict("does not fit", 0.0)
        for what, needed, room in (
            ("the node's memory", host.expected, host_room(profile)),
            ("the drives", nvme, drives),
        ):
            if needed and room is not None and needed > room:
                short = short or f"needs {needed / GIB:,.0f} GiB of {what}, of which there are {room / GIB:,.0f}"
        time = self._time(setup, gaps, profile)
        return Candidate(choice, setup, prediction, time, host.expected, nvme, judged, short, gaps)

    def seconds_per_token(self, choice: Choice) -> float | None:
        """:attr:`Candidate.seconds_per_token`, without its memory: much sooner known."""
        setup, gaps = self._setup(choice)
        return per_token(self._time(setup, gaps, self.profile(choice)))

    def can_fuse(self, choice: Choice) -> bool:
        """Whether Liger computes the loss in pieces there, where it is told to."""
        if choice.stage not in self._fuses:
            self._fuses[choice.stage] = can_fuse(self.inputs, stage=choice.stage)
        return self._fuses[choice.stage]

    def _time(self, setup: Setup, gaps: tuple[Gap, ...], profile: HardwareProfile) -> StepTime | None:
        if setup.workload is None or untimed(gaps):
            return None
        try:
            return expected_step_time(self.facts, setup.options, setup.workload, profile, kernels=setup.kernels)
        except ValueError:
            return None  # the rates of the device are not known: plans are then ranked without

    def _terms_of(self, options: Options | TorchOptions) -> tuple[Term, ...]:
        """States and buffers; they tell one micro batch from several, but not how many."""
        steps = min(2, options.gradient_accumulation_steps)
        alike = replace(options, gradient_accumulation_steps=steps)
        if alike not in self._terms:
            profile = self.inputs.profile
            self._terms[alike] = terms_of(self.facts, alike, profile.accelerator if profile else None, self.base)
        return self._terms[alike]


def per_token(time: StepTime | None) -> float | None:
    """Expected seconds of the whole job for one token; None: the time is not known."""
    return None if time is None else time.seconds.expected / time.tokens


def is_named(effective: Effective, name: str) -> bool:
    """Whether a source mentions the setting, even as ``"auto"``: then zerocfg does not choose it."""
    setting = effective.get(name)
    if setting is None:
        return False
    every = (setting, *setting.overridden)
    return any(item.origin.kind in ("file", "flag", "environment") for item in every)


def is_set(setting: Setting | None) -> bool:
    """Whether a source gives the value itself, not only its key."""
    return setting is not None and setting.value != AUTO and setting.origin.kind in ("file", "flag", "environment")


def free_on_drives(profile: HardwareProfile) -> int | None:
    """Bytes that are free on the roomiest NVMe drive of a node; None: not known."""
    if profile.host is None:
        return None
    return int(max((mount.free_gib for mount in profile.host.nvme), default=0.0) * GIB)
