"""More than one rank on one card: which mode works here is tried before it is used."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocfg.smoke.launch import process, warm
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Kind, Reduction
from zerocfg.smoke.worker.job import MODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from zerocfg.smoke.prepare.device import Device

TRIAL = "zerocfg_worker.sharing"
PATIENCE = 60.0
"""Seconds for the trial of one mode: importing torch, a dozen small collectives, and time to notice a hang."""
CONTEXT = 1 << 30
"""Bytes of the card that each rank takes beside tensors: the CUDA context, and what libraries take on their own."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """``mode`` of `zerocfg.smoke.worker.job.MODES` that works, ``refused``: why the ones before it do not."""

    mode: str
    refused: dict[str, str]

    def reduction(self, ranks: int, card: str) -> Reduction:
        return Reduction(Kind.SHARED_CARD, run={"ranks": ranks, "card": card, "collectives": self.mode})


_FOUND: dict[tuple[int, str], Sharing] = {}


def cached(ranks: int, device: str = "cuda") -> Sharing | None:
    """The result of an earlier trial in this process; consecutive runs share one."""
    return _FOUND.get((ranks, device))


def one_card(device: Device) -> Device:
    """The first card, for all ranks. Raises SmokeError where there is none."""
    if device.kind != "cuda":
        raise SmokeError(
            "--share-gpu needs an NVIDIA card, and none is used here; on a processor ranks share it anyway"
        )
    return replace(device, count=1, shared=True)


def memory_of_a_rank(device: Device, ranks: int) -> int | None:
    """Bytes of tensors that each rank may have; None where the memory of the card is not known: there is no limit."""
    return None if device.room is None else max(CONTEXT, device.room // ranks - CONTEXT)


def first_card() -> dict[str, str]:
    """The environment variable that leaves the ranks one card."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": "0" if visible is None else visible.split(",")[0].strip()}


def find(
    ranks: int,
    scratch: Path,
    device: str = "cuda",
    modes: Iterable[str] = tuple(MODES),
    progress: Callable[[str], None] | None = None,
    patience: float = PATIENCE,
) -> Sharing:
    """The first of ``modes`` in which ``ranks`` processes do all collectives and get the right results.

    Raises SmokeError with every mode's own error where none does.
    """
    with warm.shared_imports():
        return _try_modes(ranks, scratch, device, modes, progress, patience)


def _try_modes(
    ranks: int,
    scratch: Path,
    device: str,
    modes: Iterable[str],
    progress: Callable[[str], None] | None,
    patience: float,
) -> Sharing:
    refused: dict[str, str] = {}
    for mode in modes:
        folder = scratch / f"sharing-{len(refused)}"
        folder.mkdir()
        (folder / "job.json").write_text(
            json.dumps({"reports": str(folder / "reports"), "mode": mode, "device": device})
        )
        if progress is not None:
            progress(f"trying whether {ranks} ranks can share a card: {mode}")
        outcome = process.run(trial(ranks, folder), folder, ranks, device, patience, None, environment(folder, device))
        if outcome.interrupted:  # what is launched next ends at once
            return Sharing(mode, refused)
        if outcome.failure is None:
            return _FOUND.setdefault((ranks, device), Sharing(mode, refused))
        refused[mode] = outcome.failure[:300]
    reasons = "; ".join(f"{mode}: {why}" for mode, why in refused.items())
    raise SmokeError(
        f"{ranks} ranks cannot share a card here. {reasons}. Without --share-gpu one rank can be tried (--ranks 1)"
    )


def trial(ranks: int, folder: Path) -> list[str]:
    """The command of the trial."""
    *words, _ = process.launcher(False, ranks, process.free_port())
    return [*words, TRIAL, str(folder / "job.json")]


def environment(folder: Path, device: str) -> dict[str, str]:
    """Variables of the trial's ranks."""
    paths = [str(process.program(folder)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), **(first_card() if device == "cuda" else {})}
