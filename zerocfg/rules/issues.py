"""What the catalog finds in the files of a run, and where: shared by the rules of keys and of values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from zerocfg.catalog.check import Issue, check
from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Location
from zerocfg.rules.versions import only_below
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.templates import blank
from zerocfg.source.node import Mapping, Scalar

DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2%s}}\n'
YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
"""Sound files that the examples of these rules start from."""


_TYPED_SINCE = "0.17.1"
"""The release of DeepSpeed from which the sections fp16 and bf16 refuse unknown keys and convert values."""


def documents(run: Run) -> Iterator[tuple[SourceFile, str]]:
    """The files of a run that a compiled schema describes, with its name."""
    if run.accelerate is not None:
        data = run.accelerate.data()
        environment = data.get("compute_environment", "LOCAL_MACHINE") if isinstance(data, dict) else None
        if environment in (None, "LOCAL_MACHINE"):
            yield run.accelerate, "accelerate"
        elif environment == "AMAZON_SAGEMAKER":
            yield run.accelerate, "accelerate-sagemaker"
    if run.deepspeed is not None:
        yield run.deepspeed, "deepspeed"
    if run.spec is not None:
        yield run.spec, "spec"


def issues(run: Run, *kinds: str) -> Iterator[tuple[SourceFile, str, Issue]]:
    """The catalog's issues of these kinds, with the file and the name of the library that reads it."""
    for file, name in documents(run):
        if file.document is None:
            continue
        library = {"deepspeed": "DeepSpeed", "spec": "zerocfg"}.get(name, "accelerate")
        loose = name == "deepspeed" and only_below(run.versions.get("deepspeed"), _TYPED_SINCE)
        for issue in _checked(file, name):
            if not file.document.editable and unfilled(file, issue):
                continue  # a value that the script makes
            if issue.kind in kinds and not (loose and issue.path[0] in ("fp16", "bf16") and len(issue.path) > 1):
                yield file, library, issue


@lru_cache(maxsize=256)
def _checked(file: SourceFile, name: str) -> tuple[Issue, ...]:
    """Checked once, however many rules and runs look at the file."""
    return tuple(check(file.document.root if file.document else None, load_schema(name)))


PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_PYTHON_WORD = re.compile(r"(True|False|None)\b")


def python_word(run: Run, file: SourceFile, node: object) -> str | None:
    """True, False or None as a bare word of a JSON that DeepSpeed alone reads, where it begins a text."""
    if run.consumer != "deepspeed" or file is not run.deepspeed or not isinstance(node, Scalar) or node.quoted:
        return None
    found = _PYTHON_WORD.match(node.value) if isinstance(node.value, str) else None
    return found[0] if found else None


def unfilled(file: SourceFile, issue: Issue) -> bool:
    """Whether the value is a placeholder: ZC013 tells those."""
    return file.document is not None and blank(issue.entry.value, file.document) is not None


def at_key(file: SourceFile, issue: Issue) -> Location:
    return Location(file, issue.path, "key", span=issue.entry.key_span)


def at_value(file: SourceFile, issue: Issue) -> Location:
    node = issue.entry.value
    # A whole section would be underlined otherwise: the key alone says where.
    return Location(file, issue.path, "value", span=issue.entry.key_span if isinstance(node, Mapping) else node.span)
