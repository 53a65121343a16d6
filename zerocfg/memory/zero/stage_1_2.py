"""What ZeRO 1 and 2 allocate, in the order in which deepspeed/runtime/zero/stage_1_and_2.py does it (0.19.8).

One parameter group; gradients arrive in the reverse order of the parameters. Sizes are elements unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.memory.optimizers import moment_bytes, step_temporaries
from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.terms import Place
from zerocfg.memory.zero.allocation_ledger import REDUCTION, Entry, Ledger

if TYPE_CHECKING:
    from zerocfg.memory.tensors import Model

FILE = "stage_1_and_2.py"
PARAMETERS = Entry("parameters", "parameters", f"{FILE}: flatten_dense_tensors_aligned")
FROZEN = Entry("frozen parameters", "parameters", "the model")
UNFLATTENED = Entry("parameters before they are flattened", "parameters", f"{FILE}: __init__")
CLONE = Entry("partition on its way to fp32", "temporaries", f"{FILE}: __init__")
MASTER = Entry("master weights", "optimizer", f"{FILE}: __init__")
UNPINNED = Entry("host memory before it is pinned", "temporaries", f"{FILE}: __init__")
STAGING = Entry("16-bit staging of parameters", "buffers", f"{FILE}: __init__")
COPY = Entry("largest parameter, copied", "buffers", f"{FILE}: __init__")
SETUP = Entry("gradient to set up the optimizer", "temporaries", f"{FILE}: initialize_optimizer_states")
HOST_GRADIENTS = Entry("fp32 gradients", "gradients", f"{FILE}: initialize_optimizer_states")
MOMENTS = Entry("optimizer moments", "optimizer", "the optimizer's first step")
RAW = Entry("gradients", "gradients", "autograd")
ACCUMULATOR = Entry("gradient accumulator", "gradients", f"{FILE}: _fill_param_grad_accum_attribute")
CAST = Entry("gradient in fp32", "temporaries", f"{FILE}: _add_to_grad_partition_buffer")
BUCKET = Entry("reduce bucket", "buffers", f"{FILE}: setup_buckets")
FLATTENED = Entry("bucket, flattened", "buffers", f"{FILE}: allreduce_bucket")
SENT = Entry("bucket in the type of communication", "buffers", f"{FILE}: allreduce_bucket")
CLONED = Entry("gradient larger than the bucket", "temporaries", f"{FILE}: reduce_independent_p_g_buckets")
PARTITION = Entry("gradients of the partition", "gradients", f"{FILE}: copy_grads_in_partition")
COMPACT = Entry("fp32 gradients of the partition", "gradients", f"{FILE}: _build_compact_grad_partition_buffer")
PADDING = Entry("padding of the partition", "gradients", f"{FILE}: _get_flat_partition_unpadded")
ON_HOST = Entry("accumulated gradients", "gradients", f"{FILE}: async_accumulate_grad_in_cpu_via_gpu")
NORM = Entry("gradient in fp64 for its norm", "temporaries", f"{FILE}: get_grad_norm_direct")
STEP_FLAT = Entry("gradients of the step, flattened", "temporaries", f"{FILE}: step")
STEP_FP32 = Entry("gradients of the step in fp32", "temporaries", f"{FILE}: step")
TEMPORARIES = Entry("temporaries of the optimizer", "temporaries", "the optimizer's step")


@dataclass
class Partitioned:
    """One rank of ZeRO 1 or 2. ``rank`` None: the one whose partition touches the most parameters."""

    model: Model
    options: Options
    ledger: Ledger
    rank: int | None = None
    offset: dict[int, int] = field(default_factory=dict)  # of each trained tensor in the flat buffer
    raw: dict[int, int] = field(default_factory=dict)  # bytes of gradients that are still autograd's
    bucket: list[int] = field(default_factory=list)
    deferred: list[int] = field(default_factory=list)
    ready: bool = False

    def __post_init__(self) -> None:
        options, position = self.options, 0
        for index, tensor in enumerate(self.model.tensors):
            if tensor.trained:
                self.offset[index] = position
                position += tensor.size
        self.width = BYTES[options.precision]
        self.wide = BYTES[options.accumulation or options.precision]
        self.flat = -(-position // (2 * options.data_parallel)) * 2 * options.data_parallel
        self.own = self.flat // options.data_parallel
        self.offloads = options.offload_optimizer == "cpu"
        self.place: Place = "host" if self.offloads else "device"
        self.separate = self.wide != self.width  # use_separate_grad_accum
        self.attribute = self.separate and options.stage == 1  # use_grad_accum_attribute
        self.compact = self.separate and self.wide == 4
        self.contiguous = options.contiguous_gradients or self.offloads
        self.bucket_width = self.wide if self.attribute else self.width
        if self.rank is None:
            self.rank = self._fullest()
        self.mine = {index: size for index in self.offset if (size := self._in_partition(index, self.rank))}
        self.largest = max((self.model.tensors[index].size for index in self.offset), default=0)

    def _in_partition(self, index: int, rank: int) -> int:
        """Elements of a tensor that belong to the partition of ``rank``."""
        start, end = self.offset[index], self.offset[index] + self.model.tensors[index].size
        return max(0, min(end, (rank + 1) * self.own) - max(start, rank * self.own))

    def _fullest(self) -> int:
        touched: dict[int, int] = {}
        for index, start in self.offset.items():
            size = self.model.tensors[index].size
            for rank in range(start // self.own, (start + size - 1) // self.own + 1):
                touched[rank] = touched.get(rank, 0) + size
        return max(touched, key=lambda rank: touched[rank], default=0)

    def play(self) -> None:
        """From initialization through a second optimizer step; the ledger keeps the second."""
        self.start()
        for _ in range(2):
            self.ledger.forget()
            steps = min(2, self.options.gradient_accumulation_steps)
            for micro in range(steps):
                self.forward()
                self.backward(micro, boundary=micro == steps - 1)
                self.ledger.enter("step")  # engine.step returns at once before the last micro batch
            self.step()
        self.ledger.enter("save")

    def start(self) -> None:
        book, own, width, options = self.ledger, self.own, self.width, self.options
        book.enter("init")
        book.hold(FROZEN, width * sum(self.model.frozen))
        # Where a card has no room for both, they are put together on the host (flatten_on_accelerator).
        book.hold(UNFLATTENED, width * self.flat if book.cpu else 0)  # with the padding that is flattened too
        book.hold(PARAMETERS, width * self.flat)
        book.free(UNFLATTENED)
        book.hold(CLONE, width * own)
        if self.width != 4 or (self.offloads and not book.cpu):
            book.hold(MASTER, 4 * own, self.place)
            book.free(CLONE)
        else:
            book.free(CLONE)  # the clone is the master itself
            book.hold(MASTER, 4 * own, self.place)
        pins = self.offloads and options.pin_optimizer and not book.cpu
        if self.offloads:
            book.brief(UNPINNED, 4 * own if pins else 0, "host")
            book.hold(STAGING, width * own, "host")
            book.hold(COPY, width * self.largest, "host")
            book.hold(COPY, width * self.largest)
            book.hold(HOST_GRADIENTS, 4 * own, "host")
            book.brief(UNPINNED, 4 * own if pins else 0, "host")
        else:
            book.brief(SETUP, 4 * own)

    def forward(self) -> None:
        self.ledger.enter("forward")
        self.ledger.enter("loss")

    def backward(self, micro: int, boundary: bool) -> None:
        self.ledger.enter("head backward")
        if self.options.early_bucket:
            self._set_up_bucket()
        head = {index for module in self.model.modules if module.head for index in module.tensors}
        entered = False
        for index in self.model.gradients:
            if index not in head and not entered:
                self.ledger.enter("backward")
                entered = True
            self.ledger.arrives()
            held = self._gradient(index, micro, boundary)
            self.ledger.taken(self.model.tensors[index].size, held)
        if not entered:
            self.ledger.enter("backward")
        if self.options.stage == 2 or boundary:
            self.ledger.enter(REDUCTION)
            if self.options.stage == 1 and not self.options.overlaps:
                for index in self.offset:
                    self._into_bucket(index, micro, boundary)
            self._epilogue(micro, boundary)

    def _set_up_bucket(self) -> None:
        if not self.ready:
            copies = 2 if self.options.overlaps else 1
            size = copies * self.bucket_width * self.options.reduce_bucket_size
            self.ledger.hold(BUCKET, size if self.contiguous else 0)
            self.ready = True

    def _gradient(self, index: int, micro: int, boundary: bool) -> int:
        """The hook of a gradient; returns the bytes that the gradient has of its own."""
        book, size = self.ledger, self.model.tensors[index].size
        # Stage 1 adds later micro batches to the gradients of the first.
        own = self.width * size if micro == 0 or self.options.stage == 2 or self.attribute else 0
        if own:
            book.hold(RAW, own)
            self.raw[index] = own
        self._set_up_bucket()
        if self.attribute:
            if micro == 0:
                book.hold(ACCUMULATOR, self.wide * size)
            else:
                book.brief(CAST, self.wide * size)
            self._drop(index)
            self.raw[index] = 0
        if self.options.stage == 2 or (self.options.overlaps and boundary):
            self._into_bucket(index, micro, boundary)
        return own

    def _drop(self, index: int) -> None:
        size = self.raw.pop(index, 0)
        if size:
            self.ledger.free(RAW, size)

    def _into_bucket(self, index: int, micro: int, boundary: bool) -> None:
        size, limit = self.model.tensors[index].size, self.options.reduce_bucket_size
        if sum(self.model.tensors[one].size for one in self.bucket) + size > limit:
            self._reduce(micro, boundary)
        if self.contiguous and size <= limit:
            self._leave(index)  # it lives in the bucket now
        elif self.contiguous and self.offloads:
            self.ledger.hold(CLONED, self.bucket_width * size)
            self._leave(index)
            self.raw[index] = -self.bucket_width * size
        self.bucket.append(index)

    def _leave(self, index: int) -> None:
        """The gradient gives up the memory that it had of its own."""
        if self.raw.get(index, 0) < 0:
            self.ledger.free(CLONED, -self.raw.pop(index))
        elif self.attribute:
            self.ledger.free(ACCUMULATOR, min(self._size(ACCUMULATOR), self.wide * self.model.tensors[index].size))
            self.raw.pop(index, None)
        else:
            self._drop(index)

    def _size(self, entry: Entry, place: Place = "device") -> int:
        return self.ledger.held[place].get(entry, 0)

    def _reduce(self, micro: int, boundary: bool) -> None:
        """reduce_ipg_grads: average what is in the bucket, keep what belongs to the partition."""
        if not self.bucket:
            return
        book, bucket, self.bucket = self.ledger, self.bucket, []
        self._clear_deferred()
        if any(index in self.mine for index in bucket) and self.compact and not self._size(COMPACT):
            book.hold(COMPACT, 4 * self.own)
        for slices in self._calls(bucket):
            total = sum(size for size, _ in slices)
            book.hold(FLATTENED, self.bucket_width * total if len(slices) > 1 else 0)
            if self.bucket_width != self.width:
                book.hold(SENT, self.width * total)
                book.free(FLATTENED)
            if self.compact:
                for size, mine in slices:
                    book.brief(CAST, 4 * size if mine and self.width < 4 else 0)
            book.free(FLATTENED)
            book.free(SENT)
        for index in bucket:
            if index in self.mine:
                if self.contiguous:
                    self._keep(index, micro, boundary)
            elif self.options.stage == 2 and self.options.overlaps and not self.contiguous:
                self.deferred.append(index)  # freed when the next reduction starts
            elif self.options.stage == 2:
                self._leave(index)

    def _clear_deferred(self) -> None:
        for index in self.deferred:
            self._leave(index)
        self.deferred.clear()

    def _calls(self, bucket: list[int]) -> list[list[tuple[int, bool]]]:
        """(elements, are they mine) of the slices of each all-reduce: average_tensor, allreduce_and_scatter."""
        if not self.contiguous:
            return [[(self.model.tensors[index].size, index in self.mine) for index in bucket]]
        slices: list[tuple[int, int]] = []
        for index in bucket:
            start, size = self.offset[index], self.model.tensors[index].size
            while size > 0:
                rank = start // self.own
                here = min(size, (rank + 1) * self.own - start)
                merges = slices and slices[-1][1] == rank and not (self.compact and rank == self.rank)
                if merges:
                    slices[-1] = (slices[-1][0] + here, rank)
                else:
                    slices.append((here, rank))
                start, size = start + here, size - here
        calls: list[list[tuple[int, bool]]] = [[]]
        total = 0
        for size, rank in slices:
            calls[-1].append((size, rank == self.rank))
            total += size
            if total > self.options.reduce_bucket_size:
                calls.append([])
                total = 0
        return [call for call in calls if call]

    def _keep(self, index: int, micro: int, boundary: bool) -> None:
        """copy_grads_in_partition."""
        book, part = self.ledger, self.mine[index]
        if self.offloads:
            if not self.compact and (micro > 0 or not boundary) and micro == 0 and not self._accumulated:
                book.hold(ON_HOST, self.width * sum(self.model.tensors[one].size for one in self.mine), "host")
                self._accumulated = True
            if boundary:
                book.brief(NORM, 8 * part)
                book.brief(CAST, 4 * part if self.width < 4 and not self.compact else 0)
                self._leave(index)
        elif self.compact:
            if self.attribute:
                self._leave(index)
        else:
            if not self._filling:
                book.hold(PARTITION, self.width * sum(self.model.tensors[one].size for one in self.mine))
                self._filling = True
            self._leave(index)

    _accumulated: bool = False
    _filling: bool = False

    def _epilogue(self, micro: int, boundary: bool) -> None:
        book = self.ledger
        self._reduce(micro, boundary)
        self._clear_deferred()
        if micro > 0 and self._filling and self.options.stage == 2:
            # Added to what the first micro batch left.
            book.free(PARTITION, self._size(PARTITION) // 2)
        self._filling = False
        if boundary and not self.offloads and not self.compact:
            used = sum(self.mine.values())
            book.hold(PADDING, self.wide * (self.own - used))
        elsewhere = [index for index in self.offset if index not in self.mine]
        limit = self.options.reduce_bucket_size
        if self.attribute and self.contiguous:
            # Accumulators of other partitions stay until the step, and with them the bucket that they are views of.
            large = sum(self.model.tensors[index].size for index in elsewhere if self.model.tensors[index].size > limit)
            kept = 0 if self.offloads else self.wide * large  # clones, when offloaded
            held = self._size(ACCUMULATOR)
            book.free(ACCUMULATOR, max(0, held - kept))
            book.hold(ACCUMULATOR, max(0, kept - held))
            self.raw.clear()
        if not self.attribute or all(self.model.tensors[index].size > limit for index in elsewhere):
            book.free(BUCKET)
        self.ready = False
        for index in list(self.raw):
            if self.contiguous or index not in self.mine or (self.options.stage == 2 and micro > 0):
                self._leave(index)
            elif self.options.stage == 2:
                self.raw.pop(index)  # held on: later micro batches are added to it

    def step(self) -> None:
        book, options, own = self.ledger, self.options, self.own
        book.enter("step")
        name = options.optimizer
        if self.offloads:
            book.hold(MOMENTS, moment_bytes(name, own, 4) if not self._size(MOMENTS, self._host()) else 0, "host")
            for entry in (ACCUMULATOR, CLONED, BUCKET, COMPACT):
                book.free(entry)
            self.raw.clear()
            return
        parts = list(self.mine.values())
        if self.wide < 8:
            book.brief(NORM, 8 * max(parts, default=0))
        book.free(ACCUMULATOR)
        book.free(BUCKET)
        if self.compact:
            book.free(COMPACT)
            book.hold(STEP_FP32, 4 * own)
        else:
            pieces = len(self.mine) + (1 if self._size(PADDING) else 0)
            flat = self.wide * own if pieces > 1 else 0
            book.hold(STEP_FLAT, flat)
            if self.wide == 4 and flat:
                book.free(STEP_FLAT)
                book.hold(STEP_FP32, flat)
            else:
                book.hold(STEP_FP32, 4 * own if self.wide < 4 else 0)
                book.free(STEP_FLAT)
            book.free(PARTITION)
            book.free(PADDING)
            book.free(RAW)
            self.raw.clear()
        if not self._size(MOMENTS):
            book.hold(MOMENTS, moment_bytes(name, own, 4))
        book.brief(TEMPORARIES, step_temporaries(name, own, 4, own))
        book.free(STEP_FP32)

    def _host(self) -> Place:
        return "device" if self.ledger.cpu else "host"
