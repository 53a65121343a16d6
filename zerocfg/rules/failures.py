"""Failures that :mod:`zerocfg.run` predicts, the rule that reports each, and its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zerocfg.rules.api import Finding, Location, at
from zerocfg.run.model import Failure, Ignored, Origin, Run

RULE_FOR_FAILURE: dict[str, str] = {
    # said by the reading and catalog rules when the value stands in a file, by ZC711 when on a launch line
    "argument-type": "ZC802",
    "batch-type": "ZC104",
    "ds-batch-type": "ZC104",
    "ds-not-a-mapping": "ZC008",
    "ds-removed-key": "ZC110",
    "ds-scale-power-type": "ZC104",
    "ds-section-type": "ZC108",
    "dead-sub-key": "ZC103",
    "distributed-type": "ZC106",
    "dynamo-backend": "ZC106",
    "dynamo-mode-type": "ZC104",
    "fp8-override-type": "ZC104",
    "gpu-ids-type": "ZC104",
    "gradient-clipping-type": "ZC104",
    "machine-rank-type": "ZC104",
    "main-process-ip-type": "ZC104",
    "main-process-port-type": "ZC104",
    "mixed-precision": "ZC106",
    "mixed-precision-type": "ZC006",
    "not-a-mapping": "ZC008",
    "num-machines-type": "ZC104",
    "num-processes-type": "ZC104",
    "parallelism-type": "ZC104",
    "sagemaker": "ZC716",
    "section-type": "ZC108",
    "unknown-top-key": "ZC101",
    "newer-top-key": "ZC865",
    "use-cpu-type": "ZC104",
    "zero-stage-type": "ZC104",
    "zero3-init-flag-type": "ZC104",
    # batch, accumulation, what the Trainer and the engine disagree about
    "trainer-mismatch": "ZC201",  # split by key into ZC201, ZC202 and ZC302
    "ds-batch-mismatch": "ZC203",
    "ds-batch-zero": "ZC204",
    "ds-batch-missing": "ZC205",
    "gas-not-int": "ZC207",
    # precision
    "ds-fp16-and-bf16": "ZC301",
    "fp16-and-bf16": "ZC301",
    "ds-precision-conflict": "ZC303",
    "ds-master-weights-stage": "ZC306",
    "ds-bf16-states": "ZC306",
    "msamp-zero3": "ZC307",
    "fp8-ignored": "ZC712",
    # ZeRO
    "auto-unfilled": "ZC406",
    "hidden-size-missing": "ZC407",
    "ds-allreduce-sum": "ZC409",
    "ds-zero-missing": "ZC411",
    "save-only-model-best": "ZC412",
    "auto-find-batch-size-zero3": "ZC412",
    # offload
    "nvme-path-dead": "ZC506",
    "offload-optimizer-null": "ZC511",
    # FSDP and engines
    "fsdp-ram-sync": "ZC601",
    "section-not-used": "ZC604",
    # launch
    "num-processes-missing": "ZC701",
    "ds-conflict-fields": "ZC702",
    "main-process-missing": "ZC705",
    "use-cpu-ignored": "ZC706",
    "ds-file-beaten": "ZC707",
    "dead-top-key": "ZC708",
    "gpu-ids-count": "ZC710",
    "flag-unknown": "ZC711",
    "flag-type": "ZC711",
    "flag-choice": "ZC711",
    "flags-exclusive": "ZC711",
    "multi-gpu-processes": "ZC711",
    "parallelism-without-fsdp2": "ZC711",
    "dynamo-ignored": "ZC712",
    "flag-wins": "ZC713",
    "file-wins": "ZC720",
    "distributed-type-missing": "ZC714",
}
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
        location = at(origin, "" if not found else "the other value", where)
        if location is not None and location not in found:
            found.append(location)
    if found:
        return found[0], found[1:]
    for file in (run.deepspeed, run.accelerate, run.recipe, run.launch_file, run.spec):
        if file is not None:
            return Location(file), []
    if run.script is not None:
        return Location(run.script.file), []
    raise ValueError("a run without files")


def reported(run: Run, failure: Failure, help_text: str = "", where: str = "entry") -> Finding:
    """A failure in its own words, at its first place."""
    location, related = primary_location(run, failure.places, where)
    return Finding(location, failure.message, help_text, related)
