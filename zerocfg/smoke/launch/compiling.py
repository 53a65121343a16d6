"""How long the ranks of a run compile operators (`zerocfg.smoke.worker.compiling` leaves a file while one does)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.smoke.worker.compiling import PREFIX

if TYPE_CHECKING:
    from pathlib import Path

LONGEST = 3600.0
"""Seconds that may go by with compilations; what takes longer hangs."""


@dataclass(slots=True)
class Compiling:
    """``seconds``: of the run, in which any rank compiled; ``now``: the operator that is compiled at the last look."""

    folder: Path
    seconds: float = 0.0
    now: str | None = None
    _looked: float | None = None

    def look(self, time: float) -> None:
        """Count the seconds since the last look, if something was compiled then."""
        if self.now is not None and self._looked is not None:
            self.seconds += time - self._looked
        self._looked, self.now = time, self._name()

    @property
    def allowed(self) -> float:
        """Seconds that the limit is put off by."""
        return min(self.seconds, LONGEST)

    def _name(self) -> str | None:
        for mark in sorted(self.folder.glob(f"{PREFIX}*")):
            process = mark.name.removeprefix(PREFIX)
            try:
                if process.isdigit() and _runs(int(process)):
                    return mark.read_text()
            except OSError:
                continue
        return None


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
