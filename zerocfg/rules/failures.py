"""Failures that :mod:`zerocfg.run` predicts, the rule that reports each, and its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zerocfg.record import replace
from zerocfg.rules.api import Finding, Fix, Location, at
from zerocfg.run.model import Failure, Ignored, Origin, Run

_KINDS = {
    # said by the reading and catalog rules when the value stands in a file, by ZC711 when on a launch line
    "ZC006": "mixed-precision-type",
    "ZC008": "ds-not-a-mapping not-a-mapping",
    "ZC101": "unknown-top-key",
    "ZC103": "dead-sub-key",
    "ZC104": "batch-type ds-batch-type ds-scale-power-type dynamo-mode-type fp8-override-type gpu-ids-type "
    "gradient-clipping-type machine-rank-type main-process-ip-type main-process-port-type num-machines-type "
    "num-processes-type parallelism-type use-cpu-type zero-stage-type zero3-init-flag-type",
    "ZC106": "distributed-type dynamo-backend mixed-precision",
    "ZC108": "ds-section-type section-type",
    "ZC110": "ds-removed-key",
    "ZC716": "sagemaker",
    "ZC802": "argument-type",
    "ZC865": "newer-top-key",
    # batch, accumulation, what the Trainer and the engine disagree about
    "ZC201": "trainer-mismatch",  # split by key into ZC201, ZC202 and ZC302
    "ZC203": "ds-batch-mismatch",
    "ZC204": "ds-batch-zero",
    "ZC205": "ds-batch-missing",
    "ZC207": "gas-not-int",
    # precision
    "ZC301": "ds-fp16-and-bf16 fp16-and-bf16",
    "ZC303": "ds-precision-conflict",
    "ZC306": "ds-master-weights-stage ds-bf16-states",
    "ZC307": "msamp-zero3",
    # ZeRO
    "ZC406": "auto-unfilled",
    "ZC407": "hidden-size-missing",
    "ZC409": "ds-allreduce-sum",
    "ZC411": "ds-zero-missing",
    "ZC412": "save-only-model-best auto-find-batch-size-zero3",
    "ZC415": "ds-batch-auto",
    # offload
    "ZC506": "nvme-path-dead",
    "ZC511": "offload-optimizer-null",
    # FSDP and engines
    "ZC601": "fsdp-ram-sync",
    "ZC604": "section-not-used",
    # launch
    "ZC701": "num-processes-missing",
    "ZC702": "ds-conflict-fields",
    "ZC705": "main-process-missing",
    "ZC706": "use-cpu-ignored",
    "ZC707": "ds-file-beaten",
    "ZC708": "dead-top-key",
    "ZC710": "gpu-ids-count",
    "ZC711": "flag-unknown flag-type flag-choice flags-exclusive multi-gpu-processes parallelism-without-fsdp2",
    "ZC712": "dynamo-ignored fp8-ignored",
    "ZC713": "flag-wins",
    "ZC714": "distributed-type-missing",
    "ZC720": "file-wins",
}
RULE_FOR_FAILURE = {kind: code for code, kinds in _KINDS.items() for kind in kinds.split()}
"""Every kind of failure and of ignored value that :mod:`zerocfg.run` can predict, and the one rule that tells it."""


def failures(run: Run, *codes: str) -> Iterator[Failure]:
    """The predicted failures that the rule of one of these codes tells."""
    return (failure for failure in run.effective.failures if RULE_FOR_FAILURE.get(failure.kind) in codes)


def ignored(run: Run, code: str) -> Iterator[Ignored]:
    return (item for item in run.effective.ignored if RULE_FOR_FAILURE.get(item.kind) == code)


def primary_location(run: Run, origins: Iterable[Origin], where: str = "entry") -> tuple[Location, list[Location]]:
    """The first of the origins that is a place, and the other places; without any, the file nearest to the engine."""
    found: list[Location] = []
    for origin in origins:
        location = at(origin, "", where)
        if location is not None and location not in found:
            found.append(location)
    if found:
        return found[0], [replace(location, label="the other value") for location in found[1:]]
    for file in (run.deepspeed, run.accelerate, run.recipe, run.launch_file, run.spec):
        if file is not None:
            return Location(file), []
    if run.script is not None:
        return Location(run.script.file), []
    raise ValueError("a run without files")


def reported(
    run: Run, failure: Failure, help_text: str = "", fix: Fix | None = None, *, where: str = "entry", message: str = ""
) -> Finding:
    """A failure at its first place, in its own words where no ``message`` tells it better."""
    location, related = primary_location(run, failure.places, where)
    return Finding(location, message or failure.message, help_text, related, fix)
