"""What ZeRO-3 allocates, in the order in which deepspeed/runtime/zero/stage3.py does it (0.19.8).

One parameter group; modules work in the order of the model. Sizes are elements unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.memory.optimizers import moment_bytes, step_temporaries
from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.terms import Place
from zerocfg.memory.zero.allocation_ledger import REDUCTION, Entry, Ledger
from zerocfg.memory.zero.parameter_gathering import Coordinator

if TYPE_CHECKING:
    from zerocfg.memory.tensors import Model

FILE = "stage3.py"
PARAMETERS = Entry("parameters", "parameters", "partition_parameters.py: _partition_param, defragment")
WHOLE = Entry("parameters before they are partitioned", "parameters", "partition_parameters.py: _partition_param")
MASTER = Entry("master weights", "optimizer", f"{FILE}: _create_fp32_partitions")
ON_THE_WAY = Entry("sub group on its way to fp32", "temporaries", f"{FILE}: _create_fp32_partitions")
SETUP = Entry("gradient to set up the optimizer", "temporaries", f"{FILE}: initialize_optimizer_states")
FP32_GRADIENTS = Entry("fp32 gradients", "gradients", f"{FILE}: initialize_optimizer_states")
UNPINNED = Entry("host memory before it is pinned", "temporaries", f"{FILE}: initialize_optimizer_states")
BUCKET = Entry("reduce bucket", "buffers", f"{FILE}: _setup_for_real_optimizer")
GRADIENTS = Entry("gradients of the partition", "gradients", f"{FILE}: _setup_for_real_optimizer")
MOMENTS = Entry("optimizer moments", "optimizer", "the optimizer's first step")
HOOKED = Entry("parameter gathered to hook its gradient", "temporaries", f"{FILE}: create_reduce_and_remove_grad_hooks")
RAW = Entry("gradients before they are reduced", "gradients", "autograd")
SCATTERED = Entry("bucket, sorted by rank", "buffers", "coalesced_collectives.py: reduce_scatter_coalesced")
GLOO = Entry("copy of the bucket (gloo only)", "buffers", "torch.distributed: reduce_scatter_tensor")
CAST = Entry("reduced gradients in the type of accumulation", "temporaries", f"{FILE}: __avg_scatter_grads")
BACK = Entry("partition of a gradient, back from the host", "temporaries", f"{FILE}: partition_grads")
NORM = Entry("gradient in fp64 for its norm", "temporaries", f"{FILE}: _constant_buffered_norm2, get_grad_norm_direct")
TO_FP32 = Entry("gradient in fp32 for the host", "temporaries", f"{FILE}: _offload_grad_partition_at_boundary")
INFINITE = Entry("search for infinite gradients", "temporaries", f"{FILE}: has_overflow")
STEP_FLAT = Entry("gradients of the step, flattened", "temporaries", f"{FILE}: _prepare_fp32_grad_for_sub_group")
STEP_FP32 = Entry("gradients of the step in fp32", "temporaries", f"{FILE}: _prepare_fp32_grad_for_sub_group")
TEMPORARIES = Entry("temporaries of the optimizer", "temporaries", "the optimizer's step")
CONVERTED = Entry("updated parameters in 16 bit on the host", "temporaries", "torch: aten/native/cuda/Copy.cu")
SWAP_BUFFERS = Entry("swap buffers of the optimizer", "buffers", "optimizer_utils.py: OptimizerSwapper")
SWAP_PARAMETERS = Entry("swap buffers of parameters", "buffers", "partitioned_param_swapper.py")
ON_CPU = Entry("parameters kept on the host", "parameters", f"{FILE}: _create_param_groups_fp16_flat_cpu_memory")
SAVED = Entry("parameters gathered to be saved", "parameters", "engine.py: _zero3_consolidated_16bit_state_dict")
STATE_DICT = Entry("16-bit weights to be saved (rank 0)", "parameters", SAVED.source)
NORM_AT_ONCE = 250_000_000  # elements; stage3.py: _constant_buffered_norm2


@dataclass
class Sharded:
    """One rank of ZeRO-3; all hold the same, whatever of it is padding."""

    model: Model
    options: Options
    ledger: Ledger
    bucket: list[int] = field(default_factory=list)
    raw: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = self.options
        self.width = BYTES[options.precision]
        self.wide = BYTES[options.accumulation or options.precision]
        self.parts = {index: -(-one.size // options.data_parallel) for index, one in enumerate(self.model.tensors)}
        self.trained = [index for index, one in enumerate(self.model.tensors) if one.trained]
        self.own = sum(self.parts[index] for index in self.trained)
        self.groups = self._sub_groups()
        self.offloads = options.offload_optimizer != "none"
        self.place: Place = "host" if self.offloads else "device"
        self.kept_groups = self._kept_groups()
        self.coordinator = Coordinator(self.model, options, self.ledger)

    def _sub_groups(self) -> list[list[int]]:
        """_create_fp16_sub_groups: a group ends after the parameter that reaches the limit."""
        if self.options.sub_group_size >= self.own:
            return [self.trained]
        groups: list[list[int]] = [[]]
        size = 0
        for index in self.trained:
            groups[-1].append(index)
            size += self.parts[index]
            if size >= self.options.sub_group_size:
                groups.append([])
                size = 0
        return [group for group in groups if group]

    def _kept_groups(self) -> int:
        """The first sub groups, whose states stay on the device: _create_fp32_partitions, `subgroup_to_device`."""
        options = self.options
        return int((1 - options.offload_ratio) * len(self.groups)) if options.offload_optimizer == "cpu" else 0

    def _states_of(self, number: int) -> Place:
        """Where master weights and moments of a sub group lie."""
        if number < self.kept_groups:
            return "device"
        return "nvme" if self.options.offload_optimizer == "nvme" else self.place

    def _size(self, group: list[int]) -> int:
        return sum(self.parts[index] for index in group)

    def play(self) -> None:
        """From initialization through a second optimizer step; the ledger keeps the second."""
        self.start()
        for _ in range(2):
            self.ledger.forget()
            steps = min(2, self.options.gradient_accumulation_steps)
            for micro in range(steps):
                self.pass_through(boundary=micro == steps - 1)
            self.step()
        self.save()

    def start(self) -> None:
        book, options, width = self.ledger, self.options, self.width
        book.enter("init")
        every = sum(self.parts.values())
        if options.offload_param == "nvme":
            book.hold(PARAMETERS, width * every, "nvme")
            book.hold(SWAP_PARAMETERS, width * options.nvme_param_buffers * options.nvme_param_buffer_size, "host")
            book.hold(ON_CPU, width * min(every, options.nvme_max_in_cpu), "host")
        else:
            book.hold(PARAMETERS, width * every, "host" if options.offload_param == "cpu" else "device")
        for index in self.parts:
            self.coordinator.keep_secondary(index)
        book.brief(WHOLE, width * max((one.size for one in self.model.tensors), default=0))
        for number, group in enumerate(self.groups):
            size = self._size(group)
            converted = 4 * size if self.width < 4 or (self.offloads and not book.cpu) else 0
            way: Place = "device" if number < self.kept_groups else self.place
            book.hold(ON_THE_WAY, converted, way)
            book.hold(MASTER, 4 * size, self._states_of(number))
            book.free(ON_THE_WAY, converted, way)
        largest = max(map(self._size, self.groups), default=0)
        book.hold(SETUP, 4 * largest, self.place)
        pins = self.offloads and options.pin_optimizer and not book.cpu
        if options.offload_optimizer == "nvme":
            # initialize_optimizer_states swaps gradients and moments out with the master weights.
            book.hold(SWAP_BUFFERS, 4 * options.nvme_optimizer_buffers * largest, "host")
        elif self.offloads:
            for number, group in enumerate(self.groups):
                # Made on the host and pinned there in any case; what stays on the device is copied to it.
                staged = pins or number < self.kept_groups
                book.hold(UNPINNED, 4 * self._size(group) if staged else 0, "host")
                book.hold(FP32_GRADIENTS, 4 * self._size(group), self._states_of(number))
                book.free(UNPINNED, place="host")
        book.free(SETUP, place=self.place)
        book.hold(BUCKET, width * options.reduce_bucket_size if options.contiguous_gradients else 0)
        book.hold(GRADIENTS, self.wide * self.own, self.place)
        if self.coordinator.copies:
            book.brief(HOOKED, width * max(map(self.coordinator.aligned, self.trained), default=0))

    def pass_through(self, boundary: bool) -> None:
        """One micro batch, forward and backward."""
        book, modules, plan, width = self.ledger, self.model.modules, self.coordinator, self.width
        book.enter("forward")
        plan.begin()
        for index in self.model.forward:
            if modules[index].head and modules[index].tensors and book.moment == "forward":
                book.enter("loss")
            plan.fetch(index)
            plan.release(index)
        if book.moment == "forward":
            book.enter("loss")
        book.enter("head backward")
        first = self._first_users()
        # Its input has no gradient, so that the hook that would release it never runs: release_backward_leftovers.
        entrance = next((index for index in self.model.forward if modules[index].tensors), None)
        arriving: dict[int, list[int]] = {}
        for one in self.model.gradients:
            arriving.setdefault(first[one], []).append(one)
        for index in self.model.backward:
            if modules[index].tensors and not modules[index].head and book.moment == "head backward":
                book.enter("backward")
            plan.fetch(index)
            for one in arriving.get(index, ()):
                book.arrives()
                self._gradient(one, boundary)
                book.taken(self.model.tensors[one].size, width * self.model.tensors[one].size)
            if index != entrance:
                plan.release(index)
        book.enter(REDUCTION)
        self._reduce(boundary)
        plan.release_all()

    def _first_users(self) -> dict[int, int]:
        """The module whose backward completes the gradient of a tensor: the first that used it."""
        found: dict[int, int] = {}
        for module in self.model.forward:
            for tensor in self.model.modules[module].tensors:
                found.setdefault(tensor, module)
        return found

    def _gradient(self, index: int, boundary: bool) -> None:
        """reduce_independent_p_g_buckets_and_remove_grads."""
        size, limit = self.model.tensors[index].size, self.options.reduce_bucket_size
        self.ledger.hold(RAW, self.width * size)
        filled = sum(self.model.tensors[one].size for one in self.bucket)
        if filled + size > limit and filled > 0:
            self._reduce(boundary)
            filled = 0
        if self.options.contiguous_gradients and filled + size <= limit:
            self.ledger.free(RAW, self.width * size)
        else:
            self.raw[index] = self.width * size
        self.bucket.append(index)

    def _reduce(self, boundary: bool) -> None:
        book, bucket, self.bucket = self.ledger, self.bucket, []
        if not bucket:
            return
        ranks = self.options.data_parallel
        aligned = sum(self.parts[index] for index in bucket) * ranks
        alone = len(bucket) == 1 and self.model.tensors[bucket[0]].size % ranks == 0
        book.hold(SCATTERED, 0 if alone else self.width * aligned)
        book.brief(GLOO, self.width * aligned if book.cpu else 0)
        book.hold(CAST, self.wide * aligned // ranks if self.wide != self.width else 0)
        for index in bucket:
            part = self.parts[index]
            if self.offloads:
                back = 0 if book.cpu else self.wide * part
                book.hold(BACK, back)
                if boundary:
                    book.brief(NORM, 8 * min(part, NORM_AT_ONCE))
                    book.brief(TO_FP32, 4 * part if self.wide < 4 else 0)
                book.free(BACK)
            if self.raw.get(index):
                book.free(RAW, self.raw.pop(index))
        book.free(CAST)
        book.free(SCATTERED)

    def step(self) -> None:
        book, options, name = self.ledger, self.options, self.options.optimizer
        book.enter("step")
        self.coordinator.partition_all()
        if options.precision == "fp16":
            book.hold(INFINITE, self.wide * self.own, self.place)
            book.hold(INFINITE, self.own, self.place)
            book.free(INFINITE, place=self.place)
        if not self.offloads:
            book.brief(NORM, 8 * max((self.parts[index] for index in self.trained), default=0))
        first = not any(MOMENTS in held for held in book.held.values())
        for number, group in enumerate(self.groups):
            size = self._size(group)
            if first:
                book.hold(MOMENTS, moment_bytes(name, size, 4), self._states_of(number))
            if number < self.kept_groups:
                book.brief(TEMPORARIES, step_temporaries("adamw_foreach", size, 4, size))  # stage3.py: backup_optimizer
            elif self.offloads:
                # A blocking copy from the host converts there: _reassign_or_swap_out_partitioned_parameters.
                crosses = self.width < 4 and options.offload_param == "none" and not book.cpu
                book.brief(CONVERTED, self.width * size if crosses else 0, "host")
            if self.offloads:
                continue
            flat = self.wide * size if len(group) > 1 else 0
            book.hold(STEP_FLAT, flat)
            book.hold(STEP_FP32, 4 * size if self.wide < 4 else 0)
            if self.wide < 4:
                book.free(STEP_FLAT)
            book.brief(TEMPORARIES, step_temporaries(name, size, 4, size))
            book.free(STEP_FP32)
            book.free(STEP_FLAT)
        self.coordinator.persist()
        self.coordinator.forget_secondary(set(self.trained))

    def save(self) -> None:
        book = self.ledger
        book.enter("save")
        if self.options.gather_on_save:
            largest = max(
                (sum(self.coordinator.aligned(one) for one in module.tensors) for module in self.model.modules),
                default=0,
            )
            book.brief(SAVED, self.width * largest if self.coordinator.copies else 0)
            book.hold(STATE_DICT, self.width * sum(one.size for one in self.model.tensors), "host")
