"""A double of NCCL: gloo on a processor, with NCCL's manners where code of zerocfg could rely on those of gloo.

`install` is called at the start of a process, before or after torch is imported. ``ZEROCFG_TEST_NCCL`` has the double
installed; ``ZEROCFG_TEST_LAUNCHES`` names a socket that every rank of several writes to. `tests.nccl.differences`
lists what differs between gloo and NCCL, and which part of the double, or which test, plays it.
"""

from __future__ import annotations

import os

from . import imports


def install() -> None:
    """What the environment asks for."""
    imports.after("torch", _torch)
    if os.environ.get("ZEROCFG_TEST_NCCL"):
        imports.after("zerocfg_worker.group", _own("worker_device"))
        imports.after("zerocfg.hardware.measuring.library", _own("measuring_device"))
        imports.before("zerocfg_worker", _own("own_torch"))


def _torch(torch: object) -> None:
    # Not earlier: torch imports its distributed part before it has what kernels are registered by.
    import torch.distributed

    if not torch.distributed.is_available():
        return
    from . import groups

    groups.follow()
    if os.environ.get("ZEROCFG_TEST_NCCL"):
        from . import exchanges, kernels

        kernels.install()
        exchanges.install()


def _own(function: str) -> object:
    def call(module: object) -> None:
        from . import cards

        getattr(cards, function)(module)

    return call
