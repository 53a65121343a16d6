"""Which parameters ZeRO-3 holds whole at what time: deepspeed/runtime/zero/partitioned_param_coordinator.py (0.19.8).

The second and later steps are replayed, when the order of the modules is known and prefetching works. Modules work one
after the other; a parameter of one fetch that is alone is gathered into a buffer of its own, several into one flat
buffer that is then copied apart and lives until the last of them is used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.zero.allocation_ledger import Entry, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocfg.memory.tensors import Model

SOURCE = "partition_parameters.py: all_gather_coalesced"
GATHERED = Entry("gathered parameters", "parameters", SOURCE)
IN_FLIGHT = Entry("gathered parameters before they are copied apart", "buffers", SOURCE)
PERSISTENT = Entry("persistent small parameters", "parameters", "stage3.py: _post_step")
SECONDARY = Entry("secondary partitions (hpZ)", "parameters", "partition_parameters.py: _partition_param_sec")


@dataclass
class Gather:
    """One fetch: its flat buffer, in bytes, is held until nothing in ``waiting`` is left."""

    tensors: tuple[int, ...]
    flat: int
    waiting: set[int]
    copied: bool = False


@dataclass
class Coordinator:
    """Plays fetches and releases of one forward and backward pass on a ledger."""

    model: Model
    options: Options
    ledger: Ledger
    order: list[int] = field(default_factory=list)
    step: int = 0
    available: dict[int, int] = field(default_factory=dict)  # bytes held for a whole parameter; 0 while in flight
    gathers: dict[int, Gather] = field(default_factory=dict)
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    last_fetched_for: dict[int, int] = field(default_factory=dict)
    elements: int = 0
    secondary: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.width = BYTES[self.options.precision]
        self.small = self._persistent()
        self.order = [*self.model.forward, *self.model.backward]
        sizes = [sum(self.model.tensors[index].size for index in self._of(module)) for module in self.order]
        self.before = [0, *accumulate(sizes)]  # elements that all modules before a place of the order own
        self.uses: dict[int, list[int]] = {}
        for at, module in enumerate(self.order):
            for index in self._of(module):
                self.uses.setdefault(index, []).append(at)
        # One rank holds everything: what is gathered is the partition itself, unless that is on the host.
        self.copies = self.options.data_parallel > 1 or (self.options.offload_param != "none" and not self.ledger.cpu)

    def _persistent(self) -> frozenset[int]:
        """parameter_offload.py: mark_persistent_parameters."""
        total, found = 0, []
        limit, whole = self.options.param_persistence_threshold, self.options.model_persistence_threshold
        for index, tensor in enumerate(self.model.tensors):
            if tensor.size <= limit and (whole is None or tensor.size + total <= whole):
                found.append(index)
                total += tensor.size
        return frozenset(found)

    def aligned(self, index: int) -> int:
        """Elements of a parameter padded to a multiple of the ranks."""
        ranks = self.options.data_parallel
        return -(-self.model.tensors[index].size // ranks) * ranks

    def begin(self) -> None:
        """Start of a forward pass: reset_step."""
        self.step, self.elements = 0, 0
        self.queue = deque((index, at) for at, module in enumerate(self.order) for index in self._of(module))
        self.last_fetched_for = {}

    def _of(self, module: int) -> tuple[int, ...]:
        return self.model.modules[module].tensors

    def fetch(self, module: int) -> None:
        """fetch_sub_module: gather what the module needs, wait for it, then gather what comes next."""
        needed = self._of(module)
        self._gather([index for index in needed if self._absent(index)])
        for index in needed:
            self._wait(index)
        fresh = {index for index in needed if self.last_fetched_for.get(index, -1) < self.step}
        for _ in fresh:
            if self.queue:
                index, at = self.queue.popleft()
                self.last_fetched_for[index] = at
        room = min(self.options.max_live_parameters - self.elements, self.options.prefetch_bucket_size)
        ahead: list[int] = []
        total = 0
        while self.options.prefetch_bucket_size > 0 and self.queue and total < room:
            index, at = self.queue.popleft()
            self.last_fetched_for[index] = max(self.last_fetched_for.get(index, -1), at)
            if self._absent(index) and index not in ahead:
                ahead.append(index)
                total += self.model.tensors[index].size
        self._gather(ahead)
        self.step += 1

    def _absent(self, index: int) -> bool:
        return index not in self.available and index not in self.small

    def _gather(self, tensors: list[int]) -> None:
        if not tensors:
            return
        self.elements += sum(self.model.tensors[index].size for index in tensors)
        hpz = self.options.secondary_partition_size
        with_secondary = [index for index in tensors if index in self.secondary]
        groups = [with_secondary, [index for index in tensors if index not in self.secondary]] if hpz > 1 else [tensors]
        for group in groups:
            if group:
                self._gather_together(tuple(group))

    def _gather_together(self, tensors: tuple[int, ...]) -> None:
        for index in tensors:
            self.available[index] = 0
        if not self.copies:
            return
        if self.options.data_parallel == 1:
            # Copied to the device one by one: _no_gather_coalesced.
            for index in tensors:
                self._arrive(index, self.model.tensors[index].size)
        elif len(tensors) == 1:
            self._arrive(tensors[0], self.aligned(tensors[0]))
        else:
            flat = self.width * sum(map(self.aligned, tensors))
            self.ledger.hold(IN_FLIGHT, flat)
            gather = Gather(tensors, flat, set(tensors))
            self.gathers.update(dict.fromkeys(tensors, gather))

    def _arrive(self, index: int, elements: int) -> None:
        self.ledger.hold(GATHERED, self.width * elements)
        self.available[index] = self.width * elements

    def _wait(self, index: int) -> None:
        gather = self.gathers.pop(index, None)
        if gather is None:
            return
        if not gather.copied:
            for one in gather.tensors:
                self._arrive(one, self.model.tensors[one].size)
            gather.copied = True
        gather.waiting.discard(index)
        if not gather.waiting:
            self.ledger.free(IN_FLIGHT, gather.flat)

    def release(self, module: int) -> None:
        """release_sub_module: what is used again soon, or was fetched for a later use, stays."""
        self._drop(index for index in self._of(module) if not self._is_kept(index))

    def _is_kept(self, index: int) -> bool:
        if self.last_fetched_for.get(index, -1) > self.step:
            return True
        uses = self.uses[index]
        later = bisect_left(uses, self.step)
        distance = self.options.max_reuse_distance
        return later < len(uses) and self.before[uses[later]] - self.before[self.step] < distance

    def _drop(self, tensors: Iterable[int]) -> None:
        for index in tensors:
            if index in self.available and index not in self.gathers:
                size = self.available.pop(index)
                self.keep_secondary(index)
                if size:
                    self.ledger.free(GATHERED, size)
                self.elements -= self.model.tensors[index].size

    def keep_secondary(self, index: int) -> None:
        """With hpZ, what is released leaves a partition among the ranks of the node."""
        ranks = self.options.secondary_partition_size
        if ranks > 1 and index not in self.secondary:
            self.secondary.add(index)
            self.ledger.hold(SECONDARY, self.width * self.aligned(index) // ranks)

    def release_all(self) -> None:
        """The end of backward, and of everything before the step."""
        for gather in {id(gather): gather for gather in self.gathers.values()}.values():
            for index in list(gather.waiting):
                self._wait(index)
        self._drop(list(self.available))

    def persist(self) -> None:
        """End of a step: the small parameters are gathered, one by one."""
        if self.copies:
            self.ledger.hold(PERSISTENT, self.width * sum(map(self.aligned, self.small)))

    def partition_all(self) -> None:
        """Start of a step: the small parameters are released too."""
        for index in self.small:
            self.keep_secondary(index)
        self.ledger.free(PERSISTENT)

    def forget_secondary(self, trained: set[int]) -> None:
        """End of a step: the secondary partitions of what was trained are out of date."""
        self.secondary -= trained
        self.ledger.free(SECONDARY)
        ranks = self.options.secondary_partition_size
        self.ledger.hold(SECONDARY, self.width * sum(map(self.aligned, self.secondary)) // ranks)
