"""Time of one optimizer step, by a roofline: work over rates, named part by named part.

A part says how its seconds were found. Its band comes from the bands of the rates (:mod:`.rates`); the total's is
the sum of the parts' and so rather wide. Assumed about overlap: ZeRO-3, FSDP and DDP communicate beside the
computation of the same phase and only what is longer costs time (in the high value half of the computation hides it);
ZeRO 1 and 2 do so when ``overlap_comm`` is on, ZeRO-0 and the optimizer step never do.

Not modelled: input pipelines, pipeline bubbles, stragglers, throttling, saving of checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.options import BYTES, Options, TorchOptions, Workload
from zerocfg.memory.time import rates
from zerocfg.memory.time.flops import Kernels, Pass, Work, work
from zerocfg.memory.time.rates import Band, exactly, longer, taken_by
from zerocfg.memory.time.wire import Collective, Traffic, WireOptions, traffic

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile, Link
    from zerocfg.models.model_facts import ModelFacts

GB = 1e9
TERA = 1e12
ADAM_BYTES = 28  # through the host's memory for each parameter: four fp32 values read, three written
DEVICE_ADAM_BYTES = 38  # the same, and the gradient converted, the 16-bit parameter written, the gradient cleared
SHORT = 2048  # tokens; below, Python and the launches set the pace more than the device
SWAPPED_BYTES = 12  # master weight and two moments, to NVMe and back


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of one optimizer step that go into one thing, the formula, and what was put into it."""

    name: str
    seconds: Band
    formula: str
    inputs: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step: its parts, and what follows from their sum. Rates are those of the expected time."""

    parts: tuple[Part, ...]
    tokens: int  # of all ranks
    samples: int  # of all ranks
    devices: int
    work: Work  # of one micro batch of one rank
    micro_steps: int
    peak_tflops: float
    traffic: Traffic
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> Band:
        """The whole step."""
        total = exactly(0.0)
        for part in self.parts:
            total = total + part.seconds
        return total

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
    notes: list[str] = []
    done = work(facts, workload, kernels, width=BYTES[options.precision])
    notes += done.notes
    if done.tokens < SHORT:
        notes.append(
            f"micro batches below {SHORT} tokens: published runs took 1.3 to 5.6 times as long as expected here"
        )
    sent = traffic(facts, options, workload, profile, wire)
    micro = options.gradient_accumulation_steps
    peak, products, attention = _rates(options, profile)
    memory = _memory_rate(profile)

    forward = _compute("forward", done.forward, micro, products, attention, memory)
    backward = _compute("backward", done.backward, micro, products, attention, memory)
    recomputed = _compute("recomputation", done.recomputed, micro, products, attention, memory)
    behind = backward.seconds + recomputed.seconds
    parts = [forward, backward, recomputed, _launches(done, forward.seconds + behind, micro)]
    if kernels == "eager":
        parts.append(_ordinary(forward.seconds + behind))
    links = _Links(profile, notes)
    fetched = _from_host(facts, options, links) * micro
    parts += _communication(sent, options, links, fetched, (forward.seconds, behind), micro)
    parts += _optimizer(facts, options, profile, memory, micro, notes)
    samples = workload.micro_batch * micro * options.world_size
    return StepTime(
        tuple(part for part in parts if part.seconds.high > 0),
        samples * workload.sequence_length,
        samples,
        options.world_size,
        done,
        micro,
        peak,
        sent,
        tuple(notes),
    )


def _rates(options: Options | TorchOptions, profile: HardwareProfile) -> tuple[float, Band, Band]:
    """Peak (TFLOP/s), and the rates (FLOP/s) of products with weights and of attention."""
    device, precision = profile.accelerator, options.precision
    printed = {"bf16": device.bf16_tflops, "fp16": device.fp16_tflops, "fp32": device.fp32_tflops}[precision]
    measured = device.measured_tflops.get(precision)
    peak = printed or measured
    if peak is None:
        raise ValueError(f"the {precision} rate of {device.name} is not known")
    architecture = device.architecture or ""
    attention = rates.ATTENTION.get(architecture, rates.ATTENTION_ELSEWHERE) * (peak * TERA)
    if measured is not None:
        return peak, rates.MATMUL_OF_MEASURED * (measured * TERA), attention
    return peak, rates.MATMUL.get(architecture, rates.MATMUL_ELSEWHERE) * (peak * TERA), attention


def _memory_rate(profile: HardwareProfile) -> Band:
    """Bytes per second through the device's memory."""
    device = profile.accelerator
    if device.measured_memory_gb_s is not None:
        return exactly(device.measured_memory_gb_s * GB)
    if device.memory_gb_s is None:
        raise ValueError(f"the memory bandwidth of {device.name} is not known")
    return rates.MEMORY * (device.memory_gb_s * GB)


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


def _launches(done: Work, computation: Band, micro: int) -> Part:
    """A device that is faster than Python launches its kernels waits for them."""
    kernels = (done.forward.kernels + done.backward.kernels + done.recomputed.kernels) * micro
    needed = rates.LAUNCH_US * (kernels * 1e-6)
    return Part(
        "waiting for launches",
        Band(
            max(0.0, needed.low - computation.expected),
            max(0.0, needed.expected - computation.expected),
            max(0.0, needed.high - computation.expected),
        ),
        "what kernels x time of a launch takes longer than the computation",
        (("kernels", kernels), ("seconds of computation", computation.expected)),
    )


def _ordinary(computation: Band) -> Part:
    """Rates come from tuned code; a model whose kernels run one by one is slower than its bytes explain."""
    slower, base = rates.ORDINARY, computation.expected
    return Part(
        "slower than tuned code",
        Band((slower.low - 1) * base, (slower.expected - 1) * base, (slower.high - 1) * base),
        "computation x (time of ordinary code / time of tuned code - 1)",
        (("seconds of computation", base), ("time of ordinary code / time of tuned code", slower.expected)),
    )


class _Links:
    """Rates of the links of a profile, in bytes per second of one direction; says once what is not known."""

    def __init__(self, profile: HardwareProfile, notes: list[str]) -> None:
        self.notes = notes
        self.profile = profile
        self.within = self._rate(profile.link_within_node)
        self.between = self._rate(profile.link_between_nodes)
        device, host = profile.accelerator, profile.host
        if host is not None and host.pinned_gb_s is not None:
            self.host = exactly(host.pinned_gb_s * GB)
        else:
            self.host = rates.PINNED * ((device.host_gb_s or rates.HOST_LINK_GB_S) / 2 * GB)

    @staticmethod
    def _rate(link: Link | None) -> Band | None:
        if link is not None and link.busbw_gb_s is not None:
            return exactly(link.busbw_gb_s * GB)
        if link is None or link.gb_s is None:
            return None
        return rates.LINK.get(link.kind, rates.LINK_ELSEWHERE) * (link.gb_s / 2 * GB)

    def seconds(self, one: Collective) -> Band:
        """A ring is as slow as its slowest hop; each call waits for the latency."""
        total = exactly(0.0)
        for size, rate, place in (
            (one.within, self.within, "within a node"),
            (one.between, self.between, "between nodes"),
        ):
            if size and rate is None:
                note = f"the link {place} is not known: its share of the communication is left out"
                if note not in self.notes:
                    self.notes.append(note)
            elif size and rate is not None:
                total = longer(total, taken_by(size, rate))
        link = self.profile.link_between_nodes if one.between else self.profile.link_within_node
        if link is not None and link.latency_us is not None:
            latency = exactly(link.latency_us)
        else:
            latency = rates.LATENCY_BETWEEN_US if one.between else rates.LATENCY_WITHIN_US
        return total + latency * (one.messages * 1e-6)


def _communication(
    sent: Traffic,
    options: Options | TorchOptions,
    links: _Links,
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


def _from_host(facts: ModelFacts, options: Options | TorchOptions, links: _Links) -> Band:
    """Seconds of one pass in which a rank's own parameters come from the host (or NVMe) where they are kept there."""
    if isinstance(options, Options):
        place, ranks = options.offload_param, options.world_size
    else:
        place, ranks = ("cpu" if options.cpu_offload else "none"), options.shard_ranks or options.world_size
    if place == "none":
        return exactly(0.0)
    own = (facts.parameters or 0) * BYTES[options.precision] / ranks
    copied = taken_by(own, links.host)
    if place == "cpu":
        return copied
    beside = min(options.world_size, links.profile.accelerators_per_node)
    return longer(copied, taken_by(own * beside, _nvme(links.profile)[0]))


def _nvme(profile: HardwareProfile) -> tuple[Band, Band]:
    """Bytes per second of one node, reading and writing: of the fastest mount that was measured."""
    mounts = profile.host.nvme if profile.host else []
    reads = [mount.read_gb_s for mount in mounts if mount.read_gb_s is not None]
    writes = [mount.write_gb_s for mount in mounts if mount.write_gb_s is not None]
    return (
        exactly(max(reads) * GB) if reads else rates.NVME_READ_GB_S * GB,
        exactly(max(writes) * GB) if writes else rates.NVME_WRITE_GB_S * GB,
    )


def _optimizer(
    facts: ModelFacts,
    options: Options | TorchOptions,
    profile: HardwareProfile,
    memory: Band,
    micro: int,
    notes: list[str],
) -> Iterator[Part]:
    trained = facts.trainable or 0
    if isinstance(options, Options):
        own = trained / options.world_size if options.stage else float(trained)
        place = options.offload_optimizer
        copies = micro if options.stage >= 2 else 1
    else:
        sharded = options.kind in ("fsdp1", "fsdp2")
        own = trained / (options.shard_ranks or options.world_size) if sharded else float(trained)
        place, copies = ("cpu" if options.cpu_offload else "none"), micro
    if place == "none":
        inputs = (("parameters", own), ("bytes of each", DEVICE_ADAM_BYTES), ("memory bandwidth", memory.expected))
        yield Part(
            "optimizer", taken_by(own * DEVICE_ADAM_BYTES, memory), "parameters x bytes / memory bandwidth", inputs
        )
        return
    yield from _host_optimizer(own, copies, BYTES[options.precision], options.world_size, profile, notes)
    if place == "nvme":
        ranks = min(options.world_size, profile.accelerators_per_node)
        read, write = _nvme(profile)
        size = own * SWAPPED_BYTES * ranks
        if profile.host is None or not any(mount.read_gb_s for mount in profile.host.nvme):
            notes.append("the rates of NVMe are not known: assumed")
        yield Part(
            "optimizer states from NVMe and back",
            taken_by(size, read) + taken_by(size, write),
            "parameters of the node x 12 bytes x (1 / read rate + 1 / write rate)",
            (("parameters of the node", own * ranks), ("read rate", read.expected), ("write rate", write.expected)),
        )


def _host_optimizer(
    own: float, copies: int, width: int, world: int, profile: HardwareProfile, notes: list[str]
) -> Iterator[Part]:
    host, link = profile.host, _Links(profile, []).host
    notes.append("offload to the host: the published runs (2024, host not described) took 2.6 to 3 times as long")
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
    )
    threads, once = rates.HOST_THREADS, rates.HOST_STEP_NS
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
    )
    yield Part(
        "parameters from the host",
        taken_by(own * width, link),
        "parameters x bytes / link to the host",
        (("parameters", own), ("link to the host", link.expected)),
    )
