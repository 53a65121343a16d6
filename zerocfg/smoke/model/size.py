"""The needs of a model, against what a machine offers."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_PER_PARAMETER = 100e-9
"""Assumed. Measured on one core of a processor: 18 ns to make random weights, which training, resuming and the
comparison with ZeRO-0 do each, and 6 ns to save them; the rest is for checkpoints with the optimizer's states, and for
an optimizer on the host."""
TIME_SHARE = 0.6
"""Usable share of the time limit: starting the libraries and compiling operators take time as well."""
SAVED = 16
"""Bytes of disk for a parameter: weights and a checkpoint with the optimizer's states."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Room:
    """Resources: bytes of a rank's share of a card and of host memory (None: unknown), of disk, and seconds.

    ``unified_ranks``: ranks on one card whose memory is the host's; 0: cards have their own memory.
    """

    device: int | None
    host: int | None
    disk: int
    seconds: float
    unified_ranks: int = 0


@dataclass(frozen=True, slots=True)
class Size:
    """Upper bounds of a model's needs: bytes of a rank on the device, of all ranks on the host; elements."""

    parameters: int
    device: int
    host: int

    def against(self, room: Room, share: float = TIME_SHARE) -> str | None:
        """The first resource that is too small, as text; None when the model fits."""
        both = self.device * room.unified_ranks + self.host
        if room.unified_ranks and room.host is not None and both > room.host:
            return f"{both / GIB:.1f} of {room.host / GIB:.1f} GiB of the memory that card and host share"
        if room.device is not None and self.device > room.device:
            return f"up to {self.device / GIB:.1f} of {room.device / GIB:.1f} GiB of a card"
        if room.host is not None and self.host > room.host:
            return f"{self.host / GIB:.1f} of {room.host / GIB:.1f} GiB of the host's memory"
        if self.parameters * SAVED > room.disk:
            return f"{self.parameters * SAVED / GIB:.1f} of {room.disk / GIB:.1f} GiB of disk space"
        seconds = self.parameters * SECONDS_PER_PARAMETER
        if seconds > room.seconds * share:
            return f"about {seconds:.0f} s to make, train and save, of {room.seconds:.0f} s (--time-limit)"
        return None
