"""Measures what DDP and FSDP really hold: ranks of processors over gloo, every storage followed from birth to death.

torch shards tensors of processors as it shards those of cards, so the bytes are the same; only what streams keep alive
for longer on a card cannot be seen here.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_HIDDEN = ("/torch/utils/", "/torch/_ops.py", "/torch/autograd/", "/torch/nn/modules/", "/torch/_tensor.py", __file__)


class Tracker(TorchDispatchMode):
    """Follows every storage that an operator returns: bytes now, the peak, and where the bytes of both were made.

    Operators that only C++ runs are seen too. Storages that are resized in place (FSDP frees and fills its flat
    parameters so) are followed through ``UntypedStorage.resize_``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[int, str]] = {}
        self.now = self.peak = self.begin = 0
        self.at_peak: Counter[str] = Counter()
        self._rising = False
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> Tracker:
        tracker = self

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = tracker._resize(storage, size)
            if storage._cdata in tracker.live:
                tracker._add(storage._cdata, storage.nbytes() - tracker.live[storage._cdata][0])
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.follow(leaf)
        return result

    def start(self) -> None:
        """The peak from here on."""
        self.begin = self.peak = self.now
        self._rising = True

    def follow_all(self) -> None:
        """Also what was there before."""
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.Tensor):  # isinstance would wake deprecated objects
                self.follow(thing, "before")

    def follow(self, tensor: torch.Tensor, site: str = "") -> None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.live:
            self.live[key] = (0, site or _site())
            weakref.finalize(storage, self._gone, key)
            self._add(key, storage.nbytes())

    def sites(self) -> Counter[str]:
        """Bytes alive by the place that made them."""
        found: Counter[str] = Counter()
        for size, site in self.live.values():
            found[site] += size
        return found

    def settle(self) -> None:
        """Note the sites of the peak, when this is it. Done before anything is freed."""
        if self._rising and self.now == self.peak:
            self.at_peak = self.sites()
        self._rising = False

    def _add(self, key: int, size: int) -> None:
        if size < 0:
            self.settle()
        held, site = self.live[key]
        self.live[key] = (held + size, site if held or size < 0 else _site() if site != "before" else site)
        self.now += size
        if self.now > self.peak:
            self.peak = self.now
            self._rising = True

    def _gone(self, key: int) -> None:
        self.settle()
        self.now -= self.live.pop(key)[0]


def _site() -> str:
    """The innermost two functions that are not torch's own machinery."""
    frame = sys._getframe(1)
    names: list[str] = []
    while frame is not None and len(names) < 2:  # type: ignore[redundant-expr]
        code = frame.f_code
        if not any(part in code.co_filename for part in _HIDDEN):
            names.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(names)
