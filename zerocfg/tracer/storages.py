"""Counts the bytes of every storage that is alive, as the caching allocator of CUDA would count them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512
"""The allocator hands out multiples of this many bytes (kMinBlockSize, c10/cuda/CUDACachingAllocator.cpp)."""

Workspace = Callable[[torch._ops.OpOverload, tuple[torch.Tensor, ...], object], int]


class Storages(TorchDispatchMode):  # type: ignore[misc]
    """Bytes alive now (``live``) and the most since the last ``restart`` (``peak``).

    A storage counts from the operator that returns its first tensor until its last reference is gone, whoever holds
    it: Python, autograd or a view. Memory that an operator takes and gives back inside is invisible here;
    ``workspace(operator, arguments, result)`` adds its bytes to the peak. It works on fake and on real tensors.
    """

    def __init__(self, outside: Iterable[torch.Tensor] = (), workspace: Workspace | None = None) -> None:
        """``outside``: tensors that never count, such as parameters."""
        super().__init__()
        self.live = 0
        self.peak = 0
        self._workspace = workspace
        # By the identity of the Python object, which torch keeps for as long as the storage lives.
        self._sizes: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        for tensor in outside:
            self._adopt(tensor.untyped_storage(), counts=False)

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[torch.Tensor, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._adopt(leaf.untyped_storage())
        if self._workspace is not None:
            self.peak = max(self.peak, self.live + self._workspace(func, args, result))
        return result

    def forget(self, tensor: torch.Tensor) -> None:
        """Excludes ``tensor`` from now on: it is counted elsewhere."""
        storage = tensor.untyped_storage()
        known = self._sizes.get(id(storage))
        if known is not None:
            self.live -= known[1]
            self._sizes[id(storage)] = (known[0], 0)

    def restart(self) -> int:
        """The peak until now; the next one starts from what is alive."""
        peak, self.peak = self.peak, self.live
        return peak

    def _adopt(self, storage: torch.UntypedStorage, counts: bool = True) -> None:
        key = id(storage)
        size = rounded(storage.nbytes()) if counts else 0
        known = self._sizes.get(key)
        if known is not None:
            if known[1] == 0 or known[1] == size:
                return
            self.live -= known[1]  # resized in place
            self._sizes[key] = (known[0], size)
        else:

            def gone(_: object) -> None:
                self.live -= self._sizes.pop(key)[1]

            self._sizes[key] = (weakref.ref(storage, gone), size)
        self.live += size
        self.peak = max(self.peak, self.live)


def rounded(size: int) -> int:
    """What the allocator sets aside for ``size`` bytes."""
    return -(-size // BLOCK) * BLOCK
