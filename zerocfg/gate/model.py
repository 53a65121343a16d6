"""Types of the gate: the problems that it reports, the runs that it judges, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.emit.files import Emitted
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.spec.spec_file import SpecFile

Check = Literal["lint", "build", "certificate", "policy"]
CHECKS: tuple[Check, ...] = ("lint", "build", "certificate", "policy")


class GateError(ValueError):
    """The gate could not do its work: settings, policies or the repository are not as they must be (exit code 2)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One problem for which the gate fails: a sentence, and the remediation.

    ``kind`` is a stable short name ("certificate-expired"). ``line`` and ``column`` count from 1; 0: the whole file.
    """

    check: Check
    kind: str
    file: str
    message: str
    help: str
    run: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.kind}: {self.message}; {self.help}"


@dataclass(slots=True)
class Target:
    """A run as its sources give it now, and the folder of its build."""

    spec: SpecFile
    built: BuildResult
    emitted: Emitted
    folder: Path

    @property
    def name(self) -> str:
        return self.emitted.plan.name


@dataclass(slots=True)
class Outcome:
    """``looked_at``: how many things each check judged."""

    reasons: list[Reason] = field(default_factory=list)
    looked_at: dict[Check, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.reasons
