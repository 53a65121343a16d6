"""More than one rank on one card: which of the ways to do it works here, found out by a trial before it is used."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocfg.smoke.launch import process
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Kind, Reduction
from zerocfg.smoke.worker.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from zerocfg.smoke.prepare.device import Device

TRIAL = "zerocfg_worker.sharing"
PATIENCE = 60.0
"""Seconds for the trial of one way: importing torch, a dozen small collectives, and a hang that has to be told."""
CONTEXT = 1 << 30
"""Bytes of the card that each rank takes beside tensors: the CUDA context, and what libraries take on their own."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """``way`` of `zerocfg.smoke.worker.ways.WAYS` that works, ``refused``: why the ones before it do not."""

    way: str
    refused: dict[str, str]

    def reduction(self, ranks: int, card: str) -> Reduction:
        return Reduction(Kind.SHARED_CARD, run={"ranks": ranks, "card": card, "collectives": self.way})


_FOUND: dict[tuple[int, str], Sharing] = {}


def known(ranks: int, device: str = "cuda") -> Sharing | None:
    """What an earlier trial of this process found: many runs in a row need one."""
    return _FOUND.get((ranks, device))


def one_card(device: Device) -> Device:
    """The first card, for all ranks. Raises SmokeError where there is none."""
    if device.kind != "cuda":
        raise SmokeError(
            "--share-gpu needs an NVIDIA card, and none is used here; on a processor ranks share it anyway"
        )
    return replace(device, count=1, shared=True)


def memory_of_a_rank(device: Device, ranks: int) -> int:
    """Bytes of tensors that each rank may have."""
    return max(CONTEXT, (device.free or device.memory) // ranks - CONTEXT)


def first_card() -> dict[str, str]:
    """The variable that leaves the ranks one card."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": "0" if visible is None else visible.split(",")[0].strip()}


def find(
    ranks: int,
    scratch: Path,
    device: str = "cuda",
    ways: Iterable[str] = tuple(WAYS),
    progress: Callable[[str], None] | None = None,
    patience: float = PATIENCE,
) -> Sharing:
    """The first of ``ways`` in which ``ranks`` processes do all collectives and get the right results.

    Raises SmokeError with every way's own error where none does.
    """
    refused: dict[str, str] = {}
    for way in ways:
        folder = scratch / f"sharing-{len(refused)}"
        folder.mkdir()
        (folder / "job.json").write_text(json.dumps({"reports": str(folder / "reports"), "way": way, "device": device}))
        if progress is not None:
            progress(f"trying whether {ranks} ranks can share a card: {way}")
        outcome = process.run(trial(ranks, folder), folder, ranks, device, patience, None, environment(folder, device))
        if outcome.interrupted:  # what is launched next ends at once
            return Sharing(way, refused)
        if outcome.failure is None:
            return _FOUND.setdefault((ranks, device), Sharing(way, refused))
        refused[way] = outcome.failure[:300]
    told = "; ".join(f"{way}: {why}" for way, why in refused.items())
    raise SmokeError(
        f"{ranks} ranks cannot share a card here. {told}. Without --share-gpu one rank can be tried (--ranks 1)"
    )


def trial(ranks: int, folder: Path) -> list[str]:
    """The command of the trial."""
    *words, _ = process.launcher(False, ranks, process.free_port())
    return [*words, TRIAL, str(folder / "job.json")]


def environment(folder: Path, device: str) -> dict[str, str]:
    """Variables of the trial's ranks."""
    paths = [str(process.program(folder)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), **(first_card() if device == "cuda" else {})}
