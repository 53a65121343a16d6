"""Time of one optimizer step, by a roofline: work over rates, named part by named part.

A part says how its seconds were found. Its band comes from the bands of the rates (:mod:`.rates`); that of the whole
step from how far published steps lay from the sum of the parts (:mod:`.spread`).

Assumed about overlap: ZeRO-3, FSDP and DDP communicate beside the computation of the same phase and only what is longer
costs time (in the high value half of the computation hides it); ZeRO 1 and 2 do so
when ``overlap_comm`` is on, ZeRO-0 and the optimizer step never do.

The host is a resource of its own (:mod:`.host_cost`): the device waits where launching its kernels takes longer than
running them. Under ZeRO-3 only a part of the device's time passes beside the host's.

Not modelled: input pipelines, pipeline bubbles, stragglers, throttling, saving of checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocfg.memory.options import BYTES, Device, Options, TorchOptions, Workload
from zerocfg.memory.time import rates
from zerocfg.memory.time.device_rates import GB, TERA, device_rates
from zerocfg.memory.time.flops import Kernels, Pass, Work, work
from zerocfg.memory.time.host_cost import HostCost, host_cost
from zerocfg.memory.time.links import Links, from_host, nvme
from zerocfg.memory.time.measured_spread import HOST_STEP_NS, MEASURED
from zerocfg.memory.time.rates import ONCE, Band, exactly, longer, taken_by
from zerocfg.memory.time.spread import Circumstances
from zerocfg.memory.time.wire import Traffic, WireOptions, traffic

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts

ADAM_BYTES = 28  # through the host's memory for each parameter: four fp32 values read, three written
DEVICE_ADAM_BYTES = 38  # the same, and the gradient converted, the 16-bit parameter written, the gradient cleared
# With ZeRO, which besides looks for overflows, computes norms in fp64 and clips in copies: fitted (host_cost).
ZERO_ADAM_BYTES = {1: 45, 2: 45, 3: 85}
SLOWER = "slower than tuned code"  # the part of a step
SWAPPED_BYTES = 12  # master weight and two moments, to NVMe and back


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of one optimizer step that go into one thing, the formula, and what was put into it.

    ``on_host``: an optimizer works on the host; ``launching``: the device waits for launches, however fast its code is.
    """

    name: str
    seconds: Band
    formula: str
    inputs: tuple[tuple[str, float], ...] = ()
    on_host: bool = False
    launching: bool = False


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step: its parts, and what follows from their sum. Rates are those of the expected time.

    ``scale``: how many times the parts on the device published steps took, as tuned code would take them.
    """

    parts: tuple[Part, ...]
    tokens: int  # of all ranks
    samples: int  # of all ranks
    devices: int
    work: Work  # of one micro batch of one rank
    micro_steps: int
    peak_tflops: float
    traffic: Traffic
    notes: tuple[str, ...] = ()
    scale: Band = ONCE

    @property
    def seconds(self) -> Band:
        """The whole step."""
        return self.scale * self.as_tuned + self.on_host

    @property
    def as_tuned(self) -> float:
        """Expected seconds of what is not on the host, over the expected scale."""
        return sum(part.seconds.expected for part in self.parts if not part.on_host) / self.scale.expected

    @property
    def on_host(self) -> Band:
        """Seconds of the optimizer on the host, there and back."""
        total = exactly(0.0)
        for part in self.parts:
            total = total + part.seconds if part.on_host else total
        return total

    def scaled(self, scale: Band) -> StepTime:
        """The same step with another :attr:`scale`."""
        tuned = [part for part in self.parts if part.name != SLOWER]
        slower = _slower(tuned, scale)
        return replace(self, parts=(*tuned, slower) if slower.seconds.high > 0 else tuple(tuned), scale=scale)

    @property
    def tokens_per_second(self) -> float:
        """Of the whole job."""
        return self.tokens / self.seconds.expected

    @property
    def samples_per_second(self) -> float:
        """Of the whole job."""
        return self.samples / self.seconds.expected

    @property
    def tflops(self) -> float:
        """Model operations of one device in one second, 1e12; recomputation does not count."""
        return self.work.model_flops * self.micro_steps / self.seconds.expected / TERA

    @property
    def mfu(self) -> float:
        """:attr:`tflops` as a share of the peak."""
        return self.tflops / self.peak_tflops

    def cost_per_step(self, price_per_device_hour: float) -> Band:
        """In the currency of the price."""
        return self.seconds * (self.devices * price_per_device_hour / 3600)

    def cost_per_billion_tokens(self, price_per_device_hour: float) -> Band:
        """In the currency of the price."""
        return self.cost_per_step(price_per_device_hour) * (1e9 / self.tokens)


def step_time(
    facts: ModelFacts,
    options: Options | TorchOptions,
    workload: Workload,
    profile: HardwareProfile,
    *,
    wire: WireOptions | None = None,
    kernels: Kernels = "eager",
) -> StepTime:
    """The time of one optimizer step. Raises ValueError when the model or the rates of the device are not known."""
    if options.tensor_parallel > 1:
        raise ValueError("how long a step takes is not modelled where ranks share each layer")
    done = work(facts, workload, kernels, width=BYTES[options.precision])
    notes = list(done.notes)
    sent = traffic(facts, options, workload, profile, wire)
    micro = options.gradient_accumulation_steps
    device = device_rates(
        profile.accelerator, options.precision, newer=kernels != "fused" and workload.attention != "eager"
    )
    products, attention, memory = device.products, device.attention, device.memory

    forward = _compute("forward", done.forward, micro, products, attention, memory)
    backward = _compute("backward", done.backward, micro, products, attention, memory)
    recomputed = _compute("recomputation", done.recomputed, micro, products, attention, memory)
    behind = backward.seconds + recomputed.seconds
    launch = _launch(profile, notes)
    added = host_cost(facts, options)
    offload = place_of_optimizer(options) != "none"
    around = Circumstances(kernels, done.tokens, (facts.num_experts or 0) > 1, device.elsewhere, offload)
    scale = MEASURED[around.group]
    waits = _waits(done, added, launch, (forward.seconds * scale.expected, behind * scale.expected), micro)
    parts = [forward, backward, recomputed, *waits, _stepping(added, launch)]
    links = Links(profile, notes)
    fetched = from_host(facts, options, links) * micro
    busy = (forward.seconds + waits[0].seconds, behind + waits[1].seconds)
    parts += _communication(sent, options, links, fetched, busy, micro)
    parts += _optimizer(facts, options, profile, memory, micro, notes)
    parts.append(_slower(parts, scale))
    notes += [around.why_wide] if around.why_wide else []
    samples = workload.micro_batch * micro * options.world_size
    return StepTime(
        tuple(part for part in parts if part.seconds.high > 0),
        samples * workload.sequence_length,
        samples,
        options.world_size,
        done,
        micro,
        device.peak,
        sent,
        tuple(notes),
        scale,
    )


def _compute(name: str, one: Pass, micro: int, products: Band, attention: Band, memory: Band) -> Part:
    once = taken_by(one.products, products) + taken_by(one.attention, attention) + taken_by(one.bytes, memory)
    return Part(
        name,
        once * micro,
        "micro steps x (products / their rate + attention / its rate + other bytes / memory bandwidth)",
        (
            ("micro steps", micro),
            ("operations in products", one.products),
            ("their rate", products.expected),
            ("operations in attention", one.attention),
            ("its rate", attention.expected),
            ("other bytes", one.bytes),
            ("memory bandwidth", memory.expected),
        ),
    )


def _launch(profile: HardwareProfile, notes: list[str]) -> Band:
    """Seconds of one launch."""
    measured = profile.host.launch_us if profile.host is not None else None
    if measured is not None:
        return exactly(measured * 1e-6)
    notes.append("how long the host takes to launch a kernel is not measured: assumed (zerocfg probe measures it)")
    return rates.LAUNCH_US * 1e-6


def _waits(done: Work, added: HostCost, launch: Band, computation: tuple[Band, Band], micro: int) -> tuple[Part, Part]:
    """What the host takes longer than the device beside it, forward and behind."""
    launches = (
        ("forward", done.forward.kernels + added.forward),
        (
            "backward",
            done.backward.kernels
            + added.backward
            + (done.recomputed.kernels and done.recomputed.kernels + added.recomputed),
        ),
    )
    forward, backward = (
        _wait(name, launch * (count * micro), device, added.hidden, count * micro)
        for (name, count), device in zip(launches, computation, strict=True)
    )
    return forward, backward


def _wait(name: str, host: Band, device: Band, hidden: float, launches: float) -> Part:
    beside = device.expected * hidden
    return Part(
        f"waiting for the host in {name}",
        Band(*(max(0.0, one - beside) for one in (host.low, host.expected, host.high))),
        "what is left of launches x time of one beside the computation that it overlaps with",
        (("launches", launches), ("seconds of one", host.expected / launches), ("seconds beside it", beside)),
        launching=True,
    )


def _stepping(added: HostCost, launch: Band) -> Part:
    """The engine goes through the tensors one by one; little of it passes beside the device."""
    return Part(
        "waiting for the host in the optimizer",
        launch * added.step,
        "launches x time of one",
        (("launches", added.step), ("seconds of one", launch.expected)),
        launching=True,
    )


def _slower(parts: list[Part], scale: Band) -> Part:
    """Rates come from tuned code; what published steps of this kind took beyond it."""
    base = sum(part.seconds.expected for part in parts if not part.on_host and not part.launching)
    beyond = Band(*(max(0.0, one - 1) * base for one in (scale.low, scale.expected, scale.high)))
    return Part(
        SLOWER,
        beyond if scale.expected > 1 else exactly(0.0),
        "seconds on the device x (time of published steps / time of tuned code - 1)",
        (("seconds on the device", base), ("time of published steps / time of tuned code", scale.expected)),
    )


def _communication(
    sent: Traffic,
    options: Options | TorchOptions,
    links: Links,
    fetched: Band,
    computation: tuple[Band, Band],
    micro: int,
) -> Iterator[Part]:
    """``fetched``: seconds in which a phase gets its parameters from the host; ``computation``: forward, backward."""
    overlaps = options.overlaps if isinstance(options, Options) else True
    for phase, beside in (("forward", computation[0]), ("backward", computation[1]), ("step", None)):
        here = [one for one in sent.collectives if one.phase == phase]
        total = exactly(0.0) if beside is None else fetched
        for one in here:
            total = total + links.seconds(one)
        inputs = [(f"bytes sent, {one.name}", one.sent) for one in here]
        formula = "bytes sent by a rank / bus bandwidth + calls x latency"
        if beside is not None and fetched.expected:
            formula += " + seconds of parameters from the host"
            inputs.append(("seconds of parameters from the host", fetched.expected))
        if beside is not None and overlaps and total.high > 0:
            # What happens once in an accumulated step has one micro step to hide behind.
            often = max((one.times for one in here), default=micro)
            room = beside.expected * min(1.0, often / micro)
            total = Band(max(0.0, total.low - room), max(0.0, total.expected - room), max(0.0, total.high - room / 2))
            formula = f"what is left of ({formula}) beside the computation"
            inputs.append(("seconds of computation beside it", room))
        yield Part(f"communication, {phase}", total, formula, tuple(inputs))


def place_of_optimizer(options: Options | TorchOptions) -> Device:
    """Where the optimizer's states are and its step is computed."""
    if isinstance(options, Options):
        return options.offload_optimizer
    return "cpu" if options.cpu_offload else "none"


def _optimizer(
    facts: ModelFacts,
    options: Options | TorchOptions,
    profile: HardwareProfile,
    memory: Band,
    micro: int,
    notes: list[str],
) -> Iterator[Part]:
    trained = facts.trainable or 0
    place = place_of_optimizer(options)
    if isinstance(options, Options):
        own = trained / options.world_size if options.stage else float(trained)
        copies = micro if options.stage >= 2 else 1
    else:
        sharded = options.kind in ("fsdp1", "fsdp2")
        own = trained / (options.shard_ranks or options.world_size) if sharded else float(trained)
        copies = micro
    if place == "none":
        stage = options.stage if isinstance(options, Options) else 0
        width = ZERO_ADAM_BYTES.get(stage, DEVICE_ADAM_BYTES)
        inputs = (("parameters", own), ("bytes of each", width), ("memory bandwidth", memory.expected))
        yield Part("optimizer", taken_by(own * width, memory), "parameters x bytes / memory bandwidth", inputs)
        return
    yield from _host_optimizer(own, copies, BYTES[options.precision], options.world_size, profile, notes)
    if place == "nvme":
        ranks = min(options.world_size, profile.accelerators_per_node)
        read, write = nvme(profile)
        size = own * SWAPPED_BYTES * ranks
        if profile.host is None or not any(mount.read_gb_s for mount in profile.host.nvme):
            notes.append("the rates of NVMe are not known: assumed")
        yield Part(
            "optimizer states from NVMe and back",
            taken_by(size, read) + taken_by(size, write),
            "parameters of the node x 12 bytes x (1 / read rate + 1 / write rate)",
            (("parameters of the node", own * ranks), ("read rate", read.expected), ("write rate", write.expected)),
            on_host=True,
        )


def _host_optimizer(
    own: float, copies: int, width: int, world: int, profile: HardwareProfile, notes: list[str]
) -> Iterator[Part]:
    host, link = profile.host, Links(profile, []).host
    ranks = min(world, profile.accelerators_per_node)
    if host is not None and host.memory_gb_s is not None:
        memory = exactly(host.memory_gb_s * GB)
    else:
        memory = rates.HOST_MEMORY_GB_S * GB
        notes.append("the memory bandwidth of the host is not known: assumed")
    yield Part(
        "gradients to the host",
        taken_by(own * width * copies, link),
        "parameters x bytes x copies / link to the host",
        (("parameters", own), ("copies", copies), ("link to the host", link.expected)),
        on_host=True,
    )
    threads, once = rates.HOST_THREADS, HOST_STEP_NS
    computed = Band(once.low / threads.high, once.expected / threads.expected, once.high / threads.low) * (own * 1e-9)
    yield Part(
        "optimizer on the host",
        longer(taken_by(own * ranks * ADAM_BYTES, memory), computed),
        "the longer of parameters of the node x 28 bytes / memory bandwidth and parameters x time / threads",
        (
            ("parameters", own),
            ("ranks of the node", ranks),
            ("memory bandwidth of the host", memory.expected),
            ("threads of a rank", threads.expected),
            ("nanoseconds of one thread for one parameter", once.expected),
        ),
        on_host=True,
    )
    yield Part(
        "parameters from the host",
        taken_by(own * width, link),
        "parameters x bytes / link to the host",
        (("parameters", own), ("link to the host", link.expected)),
        on_host=True,
    )
