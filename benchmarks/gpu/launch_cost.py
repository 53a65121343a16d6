"""Measure what the host takes to launch work on a device, in microseconds, and print it as JSON.

    python benchmarks/gpu/launch_cost.py [--device cuda|cpu]

``launch``: an element-wise operation on one element, launched without waiting. ``linear``: a module of one element.
``forward_backward``: its forward and backward pass, as autograd launches them. ``wait``: one launch and waiting for it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

TIMES, REPEATS = 500, 9


def microseconds(work: Callable[[], Any], synchronize: Callable[[], None], *, each: bool = False) -> float:
    """The median over some repeats of what one call takes. ``each``: the device is waited for after every call."""
    found = []
    for _ in range(REPEATS + 1):
        synchronize()
        start = time.perf_counter()
        for _ in range(TIMES):
            work()
            if each:
                synchronize()
        found.append((time.perf_counter() - start) / TIMES * 1e6)
        synchronize()
    return round(statistics.median(found[1:]), 2)  # the first one warms up


def measure(device: str) -> dict[str, Any]:
    import torch

    def synchronize() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    one = torch.zeros(1, device=device)
    linear = torch.nn.Linear(1, 1, device=device)

    def forward_backward() -> None:
        linear(one).sum().backward()

    with torch.no_grad():
        found = {
            "launch": microseconds(lambda: one.add_(1), synchronize),
            "linear": microseconds(lambda: linear(one), synchronize),
            "wait": microseconds(lambda: one.add_(1), synchronize, each=True),
        }
    found["forward_backward"] = microseconds(forward_backward, synchronize)
    card = torch.cuda.get_device_name(0) if device == "cuda" else ""
    return {"device": device, "card": card, "torch": torch.__version__, "microseconds": found}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the host takes to launch work on a device.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    print(json.dumps(measure(parser.parse_args().device)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
