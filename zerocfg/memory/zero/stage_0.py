"""What DeepSpeed allocates without ZeRO, and in ZeRO-1 with fp32 accumulation of bf16 gradients (0.19.8).

Three wrappers: none in fp32; fp16/fused_optimizer.py for DeepSpeed's own fused Adam, fp16/unfused_optimizer.py for any
other optimizer, both also for bf16 (engine.py: _do_optimizer_sanity_check); bf16_optimizer.py for ZeRO-1 with
``grad_accum_dtype: fp32``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.caching_allocator import CachingAllocator
from zerocfg.memory.optimizers import moment_bytes, moments_of, step_temporaries
from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.zero.allocation_ledger import REDUCTION, Entry, Ledger

if TYPE_CHECKING:
    from zerocfg.memory.tensors import Model

REDUCED_AT_ONCE = 500_000_000  # elements; engine.py: MEMORY_OPT_ALLREDUCE_SIZE
PARAMETERS = Entry("parameters", "parameters", "the model")
FROZEN = Entry("frozen parameters", "parameters", "the model")
CLONES = Entry("parameters, cloned to be flattened", "temporaries", "fused_optimizer.py: __init__")
MASTER = Entry("master weights", "optimizer", "fused_optimizer.py, unfused_optimizer.py, bf16_optimizer.py")
ON_THE_WAY = Entry("parameters on their way to fp32", "temporaries", "the optimizer's wrapper: __init__")
SETUP = Entry("gradients to set up the optimizer", "temporaries", "initialize_optimizer_states")
MOMENTS = Entry("optimizer moments", "optimizer", "the optimizer's first step")
RAW = Entry("gradients", "gradients", "autograd")
FLATTENED = Entry("reduce bucket", "buffers", "engine.py: allreduce_bucket")
CONVERTED = Entry("gradients of the step in fp32", "temporaries", "the optimizer's wrapper: step")
STEP_FLAT = Entry("gradients of the step, flattened", "temporaries", "fused_optimizer.py: step")
TEMPORARIES = Entry("temporaries of the optimizer", "temporaries", "the optimizer's step")
GRADIENTS = Entry("fp32 gradients", "gradients", "bf16_optimizer.py: _setup_for_real_optimizer")
REMAINDERS = Entry("remainders of the allocator's blocks", "buffers", "CUDACachingAllocator.cpp: should_split")
CAST = Entry("gradient in fp32", "temporaries", "bf16_optimizer.py: _update_hp_grad")


@dataclass
class Replicated:
    """One rank; all are alike. ``own`` is its share of the optimizer: everything but in ZeRO-1."""

    model: Model
    options: Options
    ledger: Ledger

    def __post_init__(self) -> None:
        self.width = BYTES[self.options.precision]
        self.sizes = self.model.trained
        self.total = sum(self.sizes)
        self.flat = bool(self.options.stage)  # bf16_optimizer.py
        padding = 2 * self.options.data_parallel
        self.padded = -(-self.total // padding) * padding if self.flat else self.total
        self.own = self.padded // self.options.data_parallel if self.flat else self.total
        # engine.py: _configure_fp16_optimizer takes the fused wrapper for DeepSpeed's FusedAdam alone.
        self.fused = self.options.optimizer == "fused_adam"
        self._simulate_allocator()

    def _simulate_allocator(self) -> None:
        """Bytes that the allocator hands out beyond what tensors ask for, where they are not flattened: of all states,
        of each gradient, and of the converted gradients of the step. Activations are left out, so that gradients find
        more room in a row than between them: the least of what they take. A processor has no such allocator.
        """
        self.lost_states, self.lost_converted, self.lost_gradients = 0, 0, [0] * len(self.model.gradients)
        if self.ledger.cpu or self.flat or (self.fused and self.width < 4):
            return
        blocks, masters = CachingAllocator(), self.width < 4
        kept = blocks.lost(self.width * size for size in (*self.model.frozen, *self.sizes))
        for size in self.sizes if masters else ():
            clone = blocks.allocate(self.width * size)
            kept += blocks.lost([4 * size])
            blocks.release(clone)
        setup = [blocks.allocate(4 * size) for size in self.sizes]
        for size in self.sizes:
            kept += blocks.lost([4 * size] * moments_of(self.options.optimizer))
        for block in setup:
            blocks.release(block)
        self.lost_states = kept
        self.lost_gradients = [blocks.lost([self.width * self.model.tensors[one].size]) for one in self.model.gradients]
        self.lost_converted = blocks.lost(4 * size for size in self.sizes) if masters else 0

    def play(self) -> None:
        """From initialization through a second optimizer step; the ledger keeps the second."""
        self.start()
        for _ in range(2):
            self.ledger.forget()
            self.ledger.enter("forward")
            self.ledger.enter("loss")
            self.backward()
            self.step()
        self.ledger.enter("save")

    def start(self) -> None:
        book, total, width = self.ledger, self.total, self.width
        book.enter("init")
        book.hold(FROZEN, width * sum(self.model.frozen))
        book.hold(PARAMETERS, width * total)
        if self.flat:
            book.hold(CLONES, width * self.padded)
            book.free(PARAMETERS)
            book.hold(PARAMETERS, width * self.padded)
            book.free(CLONES)
            book.hold(ON_THE_WAY, width * self.own)
            book.hold(MASTER, 4 * self.own)
            book.free(ON_THE_WAY)
            book.hold(GRADIENTS, 4 * self.padded)
        elif width < 4 and self.fused:
            book.hold(CLONES, width * total)
            book.hold(ON_THE_WAY, width * total)  # the flat copy that becomes the parameters
            book.free(CLONES)
            book.free(ON_THE_WAY)
            book.hold(ON_THE_WAY, width * total)
            book.hold(MASTER, 4 * total)
            book.free(ON_THE_WAY)
            book.hold(SETUP, 4 * total)
            self._optimize(self.total, self.total)
            book.free(SETUP)
        elif width < 4:
            book.hold(MASTER, 4 * total)
            book.hold(SETUP, (width + 4) * total)
            self._optimize(self.total, max(self.sizes, default=0))
            book.free(SETUP)
        book.hold(REMAINDERS, self.lost_states)

    def _optimize(self, elements: int, largest: int) -> None:
        book, name = self.ledger, self.options.optimizer
        if MOMENTS not in book.held["device"]:
            sizes = [(size, 1) for size in self.sizes] if elements != largest else []
            book.hold(MOMENTS, moment_bytes(name, elements, 4, sizes))
        book.brief(TEMPORARIES, step_temporaries(name, elements, 4, largest))

    def backward(self) -> None:
        book, accumulates = self.ledger, self.options.gradient_accumulation_steps > 1
        self._pass(first=True)
        if accumulates and not self.flat:
            # The gradients of the first micro batch are held while the next one goes forward and back.
            for moment in ("forward", "loss"):
                book.enter(moment)
            self._pass(first=False)
        book.enter(REDUCTION)
        for size, count in self._reductions():
            if self.flat:
                book.brief(FLATTENED, self.width * size)  # fp32, sent as bf16
            else:
                book.brief(FLATTENED, self.width * size if count > 1 else 0)

    def _pass(self, first: bool) -> None:
        """Backward of a micro batch. Gradients of a later one are added where those of the first lie."""
        book = self.ledger
        head = {index for module in self.model.modules if module.head for index in module.tensors}
        for moment, inside in (("head backward", True), ("backward", False)):
            book.enter(moment)
            for index, lost in zip(self.model.gradients, self.lost_gradients, strict=True):
                if (index in head) is inside:
                    size = self.model.tensors[index].size
                    book.arrives()
                    book.hold(RAW, self.width * size if first else 0)
                    book.hold(REMAINDERS, lost if first else 0)
                    book.brief(CAST, 4 * size if self.flat else 0)
                    book.taken(size, self.width * size if first else 0)

    def _reductions(self) -> list[tuple[int, int]]:
        """(elements, tensors) of each all-reduce: engine.py: allreduce_no_retain."""
        if self.flat:
            return [(self.padded, 1)]
        found, size, count = [], 0, 0
        for one in self.sizes:
            size, count = size + one, count + 1
            if size > REDUCED_AT_ONCE:
                found.append((size, count))
                size = count = 0
        return [*found, (size, count)] if count else found

    def step(self) -> None:
        book, total = self.ledger, self.total
        book.enter("step")
        if self.flat:
            self._optimize(self.own, self.own)
        elif self.width < 4 and self.fused:
            book.hold(CONVERTED, 4 * total)
            book.hold(STEP_FLAT, 4 * total if len(self.sizes) > 1 else 0)
            book.free(CONVERTED)
            self._drop()
            self._optimize(total, total)
            book.free(STEP_FLAT)
        elif self.width < 4:
            book.hold(CONVERTED, 4 * total)
            book.hold(REMAINDERS, self.lost_converted)
            self._optimize(total, max(self.sizes, default=0))
            book.free(CONVERTED)
        else:
            self._optimize(total, max(self.sizes, default=0))
        self._drop()

    def _drop(self) -> None:
        self.ledger.free(RAW)
        self.ledger.free(REMAINDERS)
        self.ledger.hold(REMAINDERS, self.lost_states)
