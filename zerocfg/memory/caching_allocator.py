"""What torch's caching allocator hands out beyond what is asked for: a replay of its rule.

c10/cuda/CUDACachingAllocator.cpp (torch 2.11): sizes are rounded up to 512 bytes; up to 1 MiB they come from segments
of 2 MiB, below 10 MiB from segments of 20 MiB, and larger ones from segments of their own, rounded up to 2 MiB. The
smallest free block that is large enough is taken, and what is left of it becomes a free block: from 512 bytes on in
small segments, only above 1 MiB in the others. Less than that stays part of the block, and counts as allocated.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

MIB = 1 << 20
ROUNDING = 512
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
MEDIUM_SEGMENT = 20 * MIB
LARGE = 10 * MIB
LARGE_ROUNDING = 2 * MIB


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment, with its neighbours in it."""

    size: int
    small: bool
    free: bool = False
    before: Block | None = None
    after: Block | None = None


class CachingAllocator:
    """``allocated``: bytes of all blocks that are handed out, as ``torch.cuda.memory_allocated`` counts them."""

    def __init__(self) -> None:
        self.allocated = 0
        self._free: dict[bool, list[tuple[int, int, Block]]] = {False: [], True: []}

    def allocate(self, size: int) -> Block:
        """Hand out a block of at least ``size`` bytes."""
        size = -(-size // ROUNDING) * ROUNDING
        small = size <= SMALL
        free = self._free[small]
        at = bisect_left(free, (size,))
        block = free.pop(at)[2] if at < len(free) else Block(_segment(size), small)
        block.free = False
        left = block.size - size
        if left >= ROUNDING if small else left > SMALL:
            rest = Block(left, small, True, block, block.after)
            if block.after:
                block.after.before = rest
            block.after, block.size = rest, size
            self._keep(rest)
        self.allocated += block.size
        return block

    def lost(self, sizes: Iterable[int]) -> int:
        """Allocate blocks of these bytes for good; returns the bytes that they have beyond them."""
        return sum(self.allocate(size).size - size for size in sizes if size)

    def release(self, block: Block) -> None:
        """Take a block back and join it with free neighbours."""
        self.allocated -= block.size
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._free[other.small].remove((other.size, id(other), other))
                block.size += other.size
                if other is block.before:
                    block.before = other.before
                    if other.before:
                        other.before.after = block
                else:
                    block.after = other.after
                    if other.after:
                        other.after.before = block
        self._keep(block)

    def _keep(self, block: Block) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, id(block), block))


def _segment(size: int) -> int:
    if size <= SMALL:
        return SMALL_SEGMENT
    return MEDIUM_SEGMENT if size < LARGE else -(-size // LARGE_ROUNDING) * LARGE_ROUNDING
