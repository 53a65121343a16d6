"""Whether a run can resume from a checkpoint: the library's error, what is lost, and the remediation.

These statements were observed on real checkpoints with transformers 5.23.0, accelerate 1.15.0 and DeepSpeed 0.19.8
(`tests/resume/test_real.py`), except where a comment cites a source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from zerocfg.resume.faults import own_faults
from zerocfg.resume.finding import Finding
from zerocfg.resume.into_deepspeed import into_deepspeed
from zerocfg.resume.into_fsdp import into_fsdp
from zerocfg.resume.into_plain import into_plain
from zerocfg.resume.trainer_files import steps_of_state

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint
    from zerocfg.resume.target import Target

Outcome = Literal["resumes", "resumes with a loss", "does not resume", "described"]


@dataclass(slots=True)
class Verdict:
    """``judged`` False: without a run, or with one whose reads are unknown, only the checkpoint was examined."""

    findings: list[Finding] = field(default_factory=list)
    judged: bool = True

    @property
    def outcome(self) -> Outcome:
        if any(finding.effect == "stops" for finding in self.findings):
            return "does not resume"
        if any(finding.effect == "loses" for finding in self.findings):
            return "resumes with a loss"
        return "resumes" if self.judged else "described"

    @property
    def lost(self) -> list[str]:
        return [finding.lost for finding in self.findings if finding.effect == "loses"]


def judge(checkpoint: Checkpoint, target: Target | None) -> Verdict:
    """Every finding, the blocking ones first. Without a target only defects of the checkpoint itself."""
    found = own_faults(checkpoint, target)
    if target is not None:
        found += _fit(checkpoint, target)
    order = {"stops": 0, "loses": 1, "note": 2}
    seen: dict[tuple[str, str], Finding] = {}
    for item in sorted(found, key=lambda entry: order[entry.effect]):
        seen.setdefault((item.kind, item.message), item)
    open_question = any(item.kind in ("engine", "loop") for item in found)
    return Verdict(list(seen.values()), judged=target is not None and not open_question)


def _fit(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    return _fit_of_engine(checkpoint, target) + steps_of_state(checkpoint, target)


def _fit_of_engine(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    if target.engine == "deepspeed":
        return into_deepspeed(checkpoint, target)
    if target.engine == "fsdp":
        return into_fsdp(checkpoint, target)
    if target.engine not in ("ddp", "single"):
        known = (
            "is not known" if target.engine is None else f"is {target.engine}, whose checkpoints zerocfg does not know"
        )
        return [Finding("note", "engine", f"the engine of the run {known}: its fit with the checkpoint is not judged")]
    return into_plain(checkpoint, target)
