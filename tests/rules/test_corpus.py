"""The rules over real files: nothing raises, and every kind of finding was looked at and holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.rules.api import Severity

from .examples import lint

if TYPE_CHECKING:
    from pathlib import Path

REVIEWED = {
    "ZC212": (1, "one file with ZeroOneAdam, which DeepSpeed 0.19.8 refuses by name"),
    "ZC216": (6, "six files of DeepSpeed's own tests with the type Adam and a weight decay"),
    "ZC333": (3, "three test files of DeepSpeed in fp16 at stage 0, whose loss its present release does not scale"),
    "ZC401": (11, "stage 3 whose gather key is absent, false or auto, in files that nothing else completes"),
    "ZC501": (1, "one file with pin_memory: false for the optimizer in so many words"),
    "ZC502": (3, "three files with offload_param below stage 3"),
    "ZC716": (1, "a test file of accelerate"),
    "ZC722": (1, "TRL's single_gpu.yaml says 8 processes under 'NO', of which one is started"),
    "ZC726": (1, "a test file of accelerate: four machines at 127.0.0.1"),
    "ZC457": (3, "three test files of DeepSpeed with disable_allgather, which DeepSpeed parses and never uses"),
    "ZC512": (3, "torch_adam beside offloading in a template and two test files of accelerate"),
    "ZC614": (2, "two FSDP 2 test files without a wrapping policy"),
    "ZC850": (1, "a DPO recipe with padding_free, which today's DPOTrainer does not use"),
    "ZC903": (1, "a test file of accelerate whose threshold keeps every parameter whole"),
}
"""Rules of ZC2xx to ZC8xx that report warnings or errors in the corpus: how often, and what was found there."""


def test_findings_of_the_corpus_are_known(corpus: Path) -> None:
    seen: dict[str, list[str]] = {}
    for repository in sorted(path for path in corpus.iterdir() if path.is_dir()):
        for diagnostic in lint(repository, None).diagnostics:
            if diagnostic.code >= "ZC200" and diagnostic.severity is not Severity.NOTE:
                place = f"{repository.name}/{diagnostic.span.file.name}:{diagnostic.span.start.line}"
                seen.setdefault(diagnostic.code, []).append(f"{place} {diagnostic.message}")
    counted = {code: len(places) for code, places in seen.items()}
    assert counted == {code: count for code, (count, _) in REVIEWED.items()}, seen
