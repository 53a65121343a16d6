"""Who called torch.distributed: code of zerocfg, which has to know NCCL's manners, or a library, which does."""

from __future__ import annotations

import sys
from types import FrameType

API = ("torch.distributed.distributed_c10d", "torch.distributed.c10d_logger")
OWN = ("zerocfg_worker", "zerocfg.preflight", "zerocfg.hardware.measuring")
DOUBLE = "nccl_double"


def module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def own_caller() -> str | None:
    """The module of zerocfg that called a function of torch.distributed with tensors of its own; else None.

    Between that function and a kernel lie torch's dispatcher and zerocfg's counter of collectives. The functions for
    objects make their tensors themselves.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and module(frame) not in API:
        if not below(module(frame), ("torch", "zerocfg_worker", DOUBLE)):
            return None
        frame = frame.f_back
    functions: list[str] = []
    while frame is not None and (module(frame) in API or below(module(frame), (DOUBLE,))):
        functions.append(frame.f_code.co_name)
        frame = frame.f_back
    if frame is None or any("object" in function for function in functions):
        return None
    name = module(frame)
    return name if below(name, OWN) else None


def asker() -> str:
    """The module that called a function of torch.distributed which the double has wrapped."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (module(frame) in API or below(module(frame), (DOUBLE,))):
        frame = frame.f_back
    return module(frame) if frame is not None else ""
