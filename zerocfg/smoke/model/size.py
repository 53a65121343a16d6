"""The needs of a model, against what a machine offers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

GIB = 1 << 30
NANO = 1e-9

START = 30.0
"""Seconds before the model is made and until the engine works: imports, launch, CUDA, NCCL and DeepSpeed's operators.
Measured on an H200 (25.7 s and 28.3 s with two models)."""
MADE = 3.0
"""Nanoseconds a parameter to make random weights by tiles. Measured on one core of a processor: 2.4 to 2.7."""
PREPARED = 3.0
"""Nanoseconds a parameter for an engine to take the weights. Bounded on an H200: 28.0 s for 1.79 billion parameters, of
which 4.9 s are the start of a tiny model and 20 s are weights that were drawn one by one."""
STEP = 1.5
"""Nanoseconds a parameter for an optimizer step on a card. Measured on an H200: 5.2 s for 2 steps of 1.79 billion."""
STEP_ON_HOST = 8.0
"""The same with the optimizer's states in the host's memory: 30 bytes a parameter. Assumed from 4 GB/s."""
WEIGHTS = 4
"""Bytes of a saved parameter at most."""
CHECKPOINT = 14
"""Bytes of a checkpoint for a parameter: 16 bit weights, the fp32 copy and Adam's states."""
ON_DISK = 1.6
"""Nanoseconds for a byte that is written to disk. Measured beside an H200: 25 GB at 0.63 GB/s."""
IN_MEMORY = 1.0
"""The same in a file system in memory. Measured on a processor: 0.97 to 1.2."""
READ = 1.0
"""Nanoseconds for a byte that is read again: from the page cache, or from memory. Measured on a processor."""
COPIED = 10.0
"""Seconds of resuming and comparing from which on a narrow copy does it: about 130 million parameters on a card."""
COPY = 2.0
"""Seconds of one training of a narrow copy. Measured on a processor: 1.3 to 1.6."""
READ_BACK = 6.0
"""Nanoseconds a parameter to load saved weights and to compare checksums. Measured on a processor: 5.7."""

RESUME, REFERENCE = "checkpoint and resume", "comparison with ZeRO-0"

WHOLE_SHARE = 0.6
"""Share of the time limit that a whole model may take: other machines are slower than those that were measured."""
CUT_SHARE = 0.15
"""Share of the time limit that a model may take which is not whole anyway: more layers of the same kind prove little
more. 45 s of the default."""
LEAST_SHARE = 0.9
"""The same of the fewest layers: a model of other widths proves less than one that may be late."""


@dataclass(frozen=True, slots=True)
class Room:
    """Resources: bytes of a rank's share of a card and of host memory (None: unknown), of disk, and seconds.

    ``unified_ranks``: ranks on one card whose memory is the host's; 0: cards have their own memory. ``memory_files``:
    bytes of files that may be kept in the host's memory besides what ``host`` is needed for.
    """

    device: int | None
    host: int | None
    disk: int
    seconds: float
    memory_files: int = 0
    unified_ranks: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch does with its model, see `zerocfg.smoke.worker.parts`.

    ``steps`` of the planned training. ``saves``: its weights are saved and read back. ``resumes``: the first steps are
    trained again up to a checkpoint, and the others from it. ``compares``: the same is trained under ZeRO-0.
    ``on_host``: the optimizer works in the host's memory. ``copied``: a narrow copy is resumed and compared instead.
    """

    steps: int = 3
    saves: bool = True
    resumes: bool = True
    compares: bool = True
    on_host: bool = False
    copied: bool = False

    @classmethod
    def of(cls, parts: Collection[str], **more: bool) -> Work:
        """The work of these parts (`Options.parts`)."""
        return replace(cls(resumes="resume" in parts, compares="reference" in parts), **more)

    @property
    def file_bytes(self) -> int:
        """Bytes of files for a parameter."""
        return WEIGHTS * self.saves + (CHECKPOINT + WEIGHTS) * (self.resumes and not self.copied)

    def seconds(self, parameters: int, in_memory: bool = False) -> dict[str, float]:
        """Seconds of each part of the work, without `START`. ``in_memory``: where its files are."""
        write = IN_MEMORY if in_memory else ON_DISK
        step = STEP_ON_HOST if self.on_host else STEP
        once = MADE + PREPARED
        found = {"weights and engine": once, "training": self.steps * step}
        if self.saves:
            found |= {"saving": WEIGHTS * write, "reading back": READ_BACK}
        if self.resumes and not self.copied:
            found[RESUME] = 2 * once + self.steps * step + (CHECKPOINT + WEIGHTS) * (write + READ)
        if self.compares and not self.copied:
            found[REFERENCE] = once + MADE + self.steps * STEP
        seconds = {name: parameters * each * NANO for name, each in found.items()}
        if self.copied and (self.resumes or self.compares):
            seconds["trainings of a narrow copy"] = (1 + 2 * self.resumes + self.compares) * COPY
        return seconds

    def needs_copy(self, parameters: int) -> bool:
        """Whether resuming and comparing so many parameters would take longer than it is worth."""
        parts = replace(self, copied=False).seconds(parameters)
        return parts.get(RESUME, 0.0) + parts.get(REFERENCE, 0.0) > COPIED


ALL = Work()
"""Everything, where the caller does not say it."""


@dataclass(frozen=True, slots=True)
class Size:
    """Upper bounds of a model's needs: bytes of a rank on the device, of all ranks on the host; elements."""

    parameters: int
    device: int
    host: int
    work: Work = ALL

    def fits_memory_files(self, room: Room) -> bool:
        """Whether the files of the work are clearly affordable in the host's memory, beside what the ranks take."""
        files = self.parameters * self.work.file_bytes
        return room.host is not None and files <= room.memory_files and files + self.host <= room.host

    def against(self, room: Room, share: float = WHOLE_SHARE) -> str | None:
        """The first resource that is too small, as text; None when the model fits.

        ``share`` of the seconds that may be used.
        """
        both = self.device * room.unified_ranks + self.host
        if room.unified_ranks and room.host is not None and both > room.host:
            return f"{both / GIB:.1f} of {room.host / GIB:.1f} GiB of the memory that card and host share"
        if room.device is not None and self.device > room.device:
            return f"up to {self.device / GIB:.1f} of {room.device / GIB:.1f} GiB of a card"
        if room.host is not None and self.host > room.host:
            return f"{self.host / GIB:.1f} of {room.host / GIB:.1f} GiB of the host's memory"
        in_memory = self.fits_memory_files(room)
        files = self.parameters * self.work.file_bytes
        if files > room.disk and not in_memory:
            return f"{files / GIB:.1f} of {room.disk / GIB:.1f} GiB of disk space"
        parts = self.work.seconds(self.parameters, in_memory)
        seconds = START + sum(parts.values())
        if seconds > room.seconds * share:
            longest = sorted(parts, key=lambda name: -parts[name])[:2]
            most = " and ".join(f"{parts[name]:.0f} s for {name}" for name in longest)
            return f"about {seconds:.0f} s, {most}, of {room.seconds * share:.0f} s ({share:.0%} of --time-limit)"
        return None
