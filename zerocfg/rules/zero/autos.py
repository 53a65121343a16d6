"""ZC4xx: values of the DeepSpeed config that are left to "auto"."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.effects import WITH_ACCELERATE, changed_before, under_trainer
from zerocfg.rules.key import delete_all, finding_at
from zerocfg.rules.subjects import FailureOfRun, each_failure
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.parser import parser_of
from zerocfg.source.node import Path, Scalar, dotted, walk

_BREAKS_LATER = (
    "gradient_clipping",
    "steps_per_print",
    "data_types.grad_accum_dtype",
    "data_types.param_dtype",
    "data_types.buffer_dtype",
)
"""Keys at whose "auto" the engine stops after the config was parsed."""
_OWN_RULE = ("zero_optimization.stage", "fp16.enabled", "bf16.enabled")


def _autos(run: Run) -> Iterator[Path]:
    """Every literal "auto" of the DeepSpeed config."""
    if run.deepspeed is not None and run.deepspeed.document is not None and run.deepspeed.document.root is not None:
        for path, node, entry in walk(run.deepspeed.document.root):
            if entry is not None and isinstance(node, Scalar) and node.value == "auto":
                yield path


@rule("ZC406", "auto-that-nobody-fills", Severity.ERROR, each_failure("ZC406"), consumers=WITH_ACCELERATE)
def auto_that_nobody_fills(predicted: FailureOfRun) -> Iterator[Finding]:
    trainer = under_trainer(predicted.run)
    if trainer and only_below(predicted.run.declared("transformers"), "4.30"):
        return
    (name,) = predicted.failure.about
    who = "neither the Trainer nor accelerate fills" if trainer else "accelerate does not fill"
    keys = predicted.keys
    yield finding_at(
        predicted.run,
        keys,
        f'`{name}` is "auto", which {who}; prepare() stops at it',
        "write a value",
        keys[0].delete("leave it to DeepSpeed's default", safe=False) if keys else None,
    )


@rule("ZC407", "hidden-size-missing", Severity.ERROR, each_failure("ZC407"), needs={"model"})
def hidden_size_missing(predicted: FailureOfRun) -> Iterator[Finding]:
    keys = [key for key in predicted.keys if key.origin.kind == "file"]
    in_one_file = all(key.file is keys[0].file for key in keys)
    fix = delete_all(keys, "leave them to DeepSpeed's defaults", safe=False) if in_one_file else None
    yield predicted.finding("write numbers of elements, or leave the keys out", fix)


@rule("ZC415", "auto-without-filler", Severity.ERROR, WHOLE_RUN, consumers={"deepspeed"})
def auto_without_filler(run: Run) -> Iterator[Finding]:
    if run.deepspeed is None or changed_before(run):
        return
    stopping: list[Path] = []
    dropped: list[Path] = []
    parser = parser_of(run)
    for path in _autos(run):
        name = dotted(path)
        if name in _OWN_RULE or "gather" in name:
            continue
        if (
            name in _BREAKS_LATER
            or _stops_parsing(path)
            or path[:2] in (("optimizer", "params"), ("scheduler", "params"))
        ):
            stopping.append(path)
        elif path[0] in ("zero_optimization", "fp16", "bf16") and "zenflow" not in path and parser.typed(path[0]):
            dropped.append(path)
    if stopping:
        yield Finding(
            Location(run.deepspeed, stopping[0]),
            f'{_named(stopping)} "auto", which deepspeed.initialize does not fill; it stops at the text',
            "write a value, or let accelerate or the Trainer read this file",
            [Location(run.deepspeed, path) for path in stopping[1:]],
        )
    elif dropped:  # it does not come to these where it stops
        default = run.effective.value(dotted(dropped[0])) if len(dropped) == 1 else UNKNOWN
        yield Finding(
            Location(run.deepspeed, dropped[0]),
            f'{_named(dropped)} "auto", which nobody fills here: DeepSpeed silently takes its default'
            + (f" ({show(default)})" if default not in (None, UNKNOWN, "auto") else ""),
            "write a value or leave the key out",
            [Location(run.deepspeed, path) for path in dropped[1:]],
            severity=Severity.WARNING,
        )


def _stops_parsing(path: Path) -> bool:
    """Whether DeepSpeed stops at "auto" there as it parses; in the place of a section ZC108 says so."""
    schema = load_schema("deepspeed")
    key = schema.find(tuple(str(part) for part in path))
    return key is not None and key.facts.get("auto_raw") == "error" and key.section(schema) is None


def _named(paths: list[Path]) -> str:
    """ "`a` is", "`a` and 3 more are"."""
    more = f" and {len(paths) - 1} more are" if len(paths) > 1 else " is"
    return f"`{dotted(paths[0])}`{more}"
