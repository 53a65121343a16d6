"""Reads a JSON request, writes a JSON answer: ``python -m zerocfg.hardware.measuring REQUEST ANSWER`` (two paths).

Their forms are those of :mod:`zerocfg.hardware.measuring.messages`. The ranks come from RANK, LOCAL_RANK and
WORLD_SIZE; without them there is one. While it works, what it is doing stands in a file beside the answer, named
``phase``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.hardware.measuring.collectives import Ranks
    from zerocfg.hardware.measuring.library import Device
    from zerocfg.hardware.measuring.messages import Request, XpuDevice


def answer(request: Request, say: Callable[[str], None]) -> dict[str, object]:
    """What the request asks for; raises what torch raises."""
    say("importing torch")
    from zerocfg.hardware.measuring.library import Device, device_of

    if request["task"] == "devices":
        return {"devices": _xpu_devices()}
    rank, local, world = (int(os.environ.get(name) or item) for name, item in _RANKS)
    device = device_of(local) if request["measure"] else Device("cpu")
    ranks = None
    if world > 1:
        say(f"waiting for {world} ranks")
        from zerocfg.hardware.measuring.collectives import Ranks

        ranks = Ranks(device, request["patience"])
    try:
        report = _report(request, ranks, device, rank, local, say)
        return {"ranks": ranks.gather(report) if ranks else [report]}
    finally:
        if ranks:
            ranks.close()


_RANKS = (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))


def _report(
    request: Request, ranks: Ranks | None, device: Device, rank: int, local: int, say: Callable[[str], None]
) -> dict[str, object]:
    """What one rank found. Between two meetings all ranks do the same, so that they share what they would share in a
    training step; a rank whose measurement fails notes that and goes on to the next meeting."""
    from zerocfg.hardware.measuring import launches, rates
    from zerocfg.hardware.measuring.library import Device, torch

    notes: list[str] = []
    report: dict[str, object] = {
        "node": request["node"],
        "host": socket.gethostname(),
        "local_rank": local,
        "profile": request["profile"],
        "notes": notes,
    }
    if not request["measure"]:
        return report
    report |= {"device": device.kind, "threads": torch.get_num_threads(), "torch": torch.__version__}

    def attempt(name: str, run: Callable[[], object]) -> None:
        if ranks:
            ranks.meet()
        say(f"measuring {name}")
        try:
            found = run()
        except Exception as error:
            lines = str(error).strip().splitlines()
            notes.append(f"not measured: {name}: {lines[0] if lines else type(error).__name__}")
        else:
            if found is not None:
                report[name.replace(" ", "_")] = found

    threads = torch.get_num_threads()
    attempt("matrix products", lambda: rates.products(device, notes))
    if device.kind != "cpu":
        attempt("memory of the device", lambda: rates.memory(device))
        attempt("copies from and to the host", lambda: rates.pinned(device))
    # A launch is one thread's work, whatever the others do.
    torch.set_num_threads(1)
    attempt("launch of a kernel", lambda: launches.launch(device))
    # The node's memory is measured by one rank with the threads of all.
    if local == 0:
        torch.set_num_threads(max(1, request["cpus"]))
    attempt("memory of the host", lambda: rates.memory(Device("cpu")) if local == 0 else None)
    torch.set_num_threads(threads)
    if ranks:
        nodes, places = zip(*ranks.gather((request["node"], local)), strict=True)
        say("measuring collectives")
        # No attempt: a collective that fails in one rank leaves the others inside theirs.
        report["links"] = ranks.links(list(nodes), list(places), rank)
    return report


def _xpu_devices() -> list[XpuDevice]:
    from zerocfg.hardware.measuring.library import torch

    xpu = getattr(torch, "xpu", None)
    if xpu is None or not xpu.is_available():
        return []
    found: list[XpuDevice] = []
    for index in range(xpu.device_count()):
        properties = xpu.get_device_properties(index)
        found.append(
            {
                "name": str(properties.name),
                "total": int(properties.total_memory),
                "driver": str(getattr(properties, "driver_version", "") or ""),
                "bf16": bool(xpu.is_bf16_supported()) if hasattr(xpu, "is_bf16_supported") else None,
            }
        )
    return found


def main() -> None:
    """The answer is written whole or not at all."""
    request, result = Path(sys.argv[1]), Path(sys.argv[2])

    def say(phase: str) -> None:
        result.with_name("phase").write_text(phase)

    try:
        found = answer(json.loads(request.read_text()), say)
    except Exception as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        found = {"error": lines[0].strip() if lines else type(error).__name__}
    partial = result.with_suffix(".part")
    partial.write_text(json.dumps(found))
    partial.replace(result)


if __name__ == "__main__":
    main()
