"""The predicted memory and time of the launched run: the reduced model on these ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.overhead import Band
from zerocfg.memory.predict import Prediction, predict
from zerocfg.memory.tensor_parallel import timeline_of_rank
from zerocfg.memory.time.expected import expected_step_time
from zerocfg.memory.time.flops import work
from zerocfg.memory.time.step_time import StepTime
from zerocfg.memory.time.wire import Traffic, WireOptions, traffic
from zerocfg.models.hardware import Accelerator, HardwareProfile
from zerocfg.models.model_facts import from_config
from zerocfg.models.spec import RunSpec
from zerocfg.resolve.model.activations import of_rank
from zerocfg.resolve.model.setup import Setup, setup_of
from zerocfg.run.config import AUTO

if TYPE_CHECKING:
    from zerocfg.memory.options import Precision
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.device import Device

_WIDTHS: dict[str, Precision] = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "bfp16": "bf16"}
"""Values of `communication_data_type` (deepspeed/runtime/config.py)."""
MOST = 4096
"""Samples: the largest micro batch that is predicted."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One rank of a run, before it is launched. All sizes are bytes.

    ``prediction`` of its memory, as on a card: a processor counts no tensors. ``time`` of an optimizer step, None where
    the device's rates are not known. ``flops``: model operations of one rank in one step; None: not known. ``traffic``:
    what it sends in one step.
    """

    facts: ModelFacts
    setup: Setup
    prediction: Prediction
    time: StepTime | None
    flops: float | None
    traffic: Traffic

    @property
    def allocated(self) -> Band:
        return self.prediction.allocated

    def data(self) -> dict[str, object]:
        """As JSON; bands as [low, expected, high]."""
        prediction = self.prediction
        found: dict[str, object] = {
            name: _ends(getattr(prediction, name)) for name in ("allocated", "reserved", "device")
        }
        found |= {"complete": prediction.complete, "worst": prediction.worst.moment}
        found["phases"] = {phase: item.size for phase, item in prediction.estimate.phases("device").items()}
        found["host"] = prediction.estimate.peak("host").size
        if self.time is not None:
            seconds = self.time.seconds
            found["step_seconds"] = [round(item, 6) for item in (seconds.low, seconds.expected, seconds.high)]
            found["tokens_per_second"] = round(self.time.tokens_per_second, 1)
            found["tflops"] = round(self.time.tflops, 3)
        found["communication"] = {name: asdict(collective) for name, collective in self.collectives().items()}
        return found

    def collectives(self) -> dict[str, Sent]:
        """What one rank sends in one step, by kind of collective."""
        found: dict[str, Sent] = {}
        for collective in self.traffic.collectives:
            known = found.get(collective.operation, Sent(0, 0))
            found[collective.operation] = Sent(
                known.payload + round(collective.payload), known.sent + round(collective.sent)
            )
        return found


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes of the whole buffers, and those that one rank sends in a ring."""

    payload: int
    sent: int


def _ends(band: Band) -> list[int]:
    return [band.low, band.expected, band.high]


def expect(reduced: Reduced, device: Device, consumer: str, micro_batch: int | None = None) -> Expected | str:
    """The expectation of a run, or why there is none. ``micro_batch``: another one than the run has."""
    if reduced.trainer is not None:
        return f"what {reduced.trainer} takes beside the training is not predicted: its reference model, its generation"
    facts = from_config(reduced.model)
    if facts.parameters is None:
        return facts.unknown_because or "the model's tensors are not known"
    try:
        setup = setup_in(reduced, consumer)
        if setup.workload is None:
            return setup.unknown
        load = setup.workload if micro_batch is None else replace(setup.workload, micro_batch=micro_batch)
        setup = replace(setup, workload=load)
        facts = of_rank(facts, reduced.model, setup)
        # The closed formula does not cover autocast: what is predicted then is what is held beside activations.
        covered = facts.layout and not load.autocast
        timeline = timeline_of_rank(facts, load, setup.precision, reduced.model, setup.options) if covered else None
        profile = profile_of(device, reduced.ranks)
        prediction = predict(facts, setup.options, timeline, profile.accelerator if profile else None)
        sent = traffic(facts, setup.options, load, profile or _here(reduced), wire_options(_values(reduced)))
    except ValueError as error:
        return str(error)
    return Expected(facts, setup, prediction, _time(facts, setup, profile), _flops(facts, setup), sent)


def _here(reduced: Reduced) -> HardwareProfile:
    """The processors of the ranks; for who sends to whom, not for how fast."""
    return HardwareProfile(
        name="cpu",
        nodes=reduced.nodes,
        accelerators_per_node=max(1, reduced.ranks // reduced.nodes),
        accelerator=Accelerator(name="cpu", vendor="cpu"),
        origin="catalogue",
    )


def wire_options(values: dict[str, object]) -> WireOptions:
    """Settings of DeepSpeed, by dotted name, that only what is sent depends on."""
    zero = "zero_optimization."
    stated = str(values.get("communication_data_type")).removeprefix("torch.")
    return WireOptions(
        communication=_WIDTHS.get(stated),
        multi_rank_allreduce=values.get(f"{zero}use_multi_rank_bucket_allreduce") is not False,
        reduce_scatter=values.get(f"{zero}reduce_scatter") is not False,
        quantized_weights=values.get(f"{zero}zero_quantized_weights") is True,
        quantized_gradients=values.get(f"{zero}zero_quantized_gradients") is True,
    )


def setup_in(reduced: Reduced, consumer: str) -> Setup:
    """The engine and the workload of the ranks' own program. Raises ValueError for what cannot be built."""
    loop = "transformers" if consumer == "trl" else consumer  # TRL's runs are trained by the plain Trainer
    recomputes = bool(reduced.arguments.get("gradient_checkpointing"))
    known = {"consumer": loop, "script": "train.py", "gradient_checkpointing": recomputes}
    spec = RunSpec.model_validate({**known, "sequence_length": reduced.sequence})
    values = _values(reduced)
    dtype = reduced.model.get("dtype") or reduced.model.get("torch_dtype")
    setup = setup_of(values.get, reduced.arguments, spec, reduced.ranks, str(dtype) if dtype else None)
    if isinstance(setup.options, Options) and consumer == "deepspeed":
        setup = replace(setup, options=replace(setup.options, zero_init=False))  # that loop knows no zero.Init
    return setup


def _values(reduced: Reduced) -> dict[str, object]:
    """Effective settings by dotted name: what the engine's own file says goes over the plan."""
    values = dict(reduced.plan)
    if reduced.deepspeed is not None:
        values |= _flat(reduced.deepspeed)
        values["engine"] = "deepspeed"
    else:
        values = _flat(reduced.accelerate or {}) | values
        for name in ("bf16", "fp16"):
            values.setdefault(f"{name}.enabled", reduced.arguments.get(name))
    return values


def _flat(section: dict[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in section.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        elif value is not None and value != AUTO:
            found[prefix + key] = value
    return found


def profile_of(device: Device, ranks: int) -> HardwareProfile | None:
    """The hardware that the ranks run on; None for a processor. An unknown card has no rates."""
    if device.kind != "cuda":
        return None
    accelerator, link = find_accelerator(device.name) or (Accelerator(name=device.name, vendor="nvidia"), None)
    return HardwareProfile(
        name=device.name,
        nodes=1,
        accelerators_per_node=ranks,
        accelerator=accelerator,
        link_within_node=link if ranks > 1 else None,
        origin="catalogue",
    )


def _time(facts: ModelFacts, setup: Setup, profile: HardwareProfile | None) -> StepTime | None:
    if profile is None or setup.workload is None:
        return None
    try:
        return expected_step_time(facts, setup.options, setup.workload, profile, kernels=setup.kernels)
    except ValueError:
        return None


def _flops(facts: ModelFacts, setup: Setup) -> float | None:
    if setup.workload is None or setup.options.tensor_parallel > 1:
        return None
    try:
        one = work(facts, setup.workload, width=BYTES[setup.options.precision])
    except ValueError:
        return None
    return one.model_flops * setup.options.gradient_accumulation_steps


def largest_expected(
    reduced: Reduced, device: Device, consumer: str, room: int, seen: tuple[int, int] | None = None
) -> int | None:
    """The largest micro batch whose need is within ``room`` bytes; None where nothing is known of it, 1 at least.

    ``seen``: a micro batch, and the bytes that a rank was seen to hold with it. Of the prediction only what another
    batch takes more is needed then; without it, all of it: on a card what the driver shows, else the tensors.
    """

    def need(size: int) -> int | None:
        found = expect(reduced, device, consumer, size)
        if isinstance(found, str) or not found.prediction.complete:
            return None
        return (found.prediction.device if device.kind == "cuda" and seen is None else found.allocated).expected

    more = 0
    if seen is not None:
        batch, peak = seen
        more = peak - (need(batch) or 0)
    if need(1) is None:
        return None

    def fits(size: int) -> bool:
        return (need(size) or 0) + more <= room

    low, high = 1, 2
    while high < MOST and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
