"""The job of the ranks, and the modes in which they can share a card."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


# Only the loopback device is used, and few blocks of the card, so that the kernels of all ranks fit.
_SMALL = {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
_LOOPBACK = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
MODES: dict[str, dict[str, str]] = {
    "nccl": {"NCCL_MULTI_RANK_GPU_ENABLE": "1", **_SMALL},
    "gloo": {},
    "nccl as hosts": {"NCCL_HOSTID": "rank{rank}", **_SMALL, **_LOOPBACK},
}
"""Modes in which ranks can share a card, the best one first, each with its environment variables.

"nccl": NCCL from 2.30 on takes several ranks of a card when it is told so, and refuses them before ("Duplicate GPU
detected"). "gloo" copies through the host's memory. "nccl as hosts": each rank calls itself another host, so that NCCL
does not compare their cards, and they talk through sockets.
"""


@dataclasses.dataclass(frozen=True)
class Job:
    """Written by the parent, read by every rank.

    ``reports``, ``saved``: folders of the ranks' reports and of the saved weights. ``by_accelerate``: accelerate's
    launcher set the engine up. ``device`` "cpu" or "cuda". ``steps``: optimizer steps. ``model``: the content of a
    config.json. ``arguments``: those of TrainingArguments that shape the engine. ``sequence``: tokens of a sample.
    ``deepspeed_config``: path of the config, None without DeepSpeed. ``memory_limit``: bytes that a rank may have.
    ``parts``: of "train", "resume" and "reference", what is done; training always is. ``no_resume``: why no checkpoint
    of this run can be resumed from, None when one should. ``share``: the mode in which all ranks use one card
    (`MODES`), None where each has its own. ``nodes``: machines whose ranks train together.
    ``saves``: whether the weights are saved at the end. ``trainer``: the class of TRL that trains, None where the
    consumer's own loop does; ``own``: those of ``arguments`` that only this class has. ``narrow``: the content of the
    config.json of a narrow copy, which "resume" and "reference" train in place of a large model.
    """

    reports: str
    saved: str
    consumer: str
    by_accelerate: bool
    device: str
    steps: int
    model: dict[str, object]
    arguments: dict[str, object]
    sequence: int
    deepspeed_config: str | None
    memory_limit: int | None = None
    parts: Sequence[str] = ("train",)
    no_resume: str | None = None
    share: str | None = None
    nodes: int = 1
    saves: bool = True
    trainer: str | None = None
    own: Sequence[str] = ()
    narrow: dict[str, object] | None = None

    @classmethod
    def read(cls, path: Path) -> Job:
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2))
