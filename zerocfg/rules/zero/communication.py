"""ZC4xx: what ZeRO sends, how it scales it, and the buckets that it sends it in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.effects import effective_value, stage_of
from zerocfg.rules.key import deepspeed, setting
from zerocfg.rules.memory.buffers import half, without_buckets
from zerocfg.rules.subjects import FailureOfRun, each_failure
from zerocfg.run.model import Run
from zerocfg.source.text import Span

_CLAIM = (
    r"""bucket_size["']?\s*[:=]?\s*(?P<number>\d[\d.e+]*)?.*?"""
    r"(?:#|//)(?P<note>.*?(?P<claim>\d+(?:\.\d+)?)\s*(?P<unit>[MG])i?B\b)"
)


@rule("ZC408", "scaling-with-reduce-scatter", Severity.ERROR, WHOLE_RUN)
def scaling_with_reduce_scatter(run: Run) -> Iterator[Finding]:
    scatter, stage = deepspeed(run, "zero_optimization", "reduce_scatter"), stage_of(run)
    if stage not in (2, 3) or (scatter and not scatter.on and scatter.value != "auto"):
        return
    scaling, factor = deepspeed(run, "prescale_gradients"), deepspeed(run, "gradient_predivide_factor")
    for key, bad in (
        (scaling, scaling.value is True),
        (factor, isinstance(factor.value, (int, float)) and factor.value != 1.0),
    ):
        if bad:
            yield key.finding(
                f"`{key.name}` does not work with ZeRO {stage} and reduce_scatter; DeepSpeed stops when the engine is "
                "built",
                'remove it, or write "reduce_scatter": false',
                fix=scatter.set("false", "reduce without scatter", safe=False),
            )


@rule("ZC409", "gradient-sum-refused", Severity.ERROR, each_failure("ZC409"), versions="deepspeed>=0.19.6")
def gradient_sum_refused(predicted: FailureOfRun) -> Iterator[Finding]:
    fix = deepspeed(predicted.run, "gradient_allreduce_op").replace('"mean"', "average the gradients", safe=False)
    yield predicted.finding('write "mean" and scale the loss instead', fix)


@rule("ZC413", "bucket-counted-in-bytes", Severity.NOTE, WHOLE_RUN)
def bucket_counted_in_bytes(run: Run) -> Iterator[Finding]:
    for file in (run.deepspeed, run.accelerate):
        if file is None or "bucket_size" not in file.source.text or {"#", "/"}.isdisjoint(file.source.text):
            continue
        for match in re.finditer(_CLAIM, file.source.text, re.IGNORECASE):
            if _right(match):
                continue
            start, end = match.span("note")
            yield Finding(
                Location(file, span=Span(start, end)),
                "bucket sizes count elements, not bytes: 5e8 is 0.93 GiB in 16 bit, twice that with overlap_comm",
                "correct the comment, or halve the number",
            )


def _right(match: re.Match[str]) -> bool:
    """Whether a comment gives the bytes of the elements that the number before it counts."""
    try:
        elements = float(match["number"] or "nan")
        claimed = float(match["claim"]) * {"M": 1e6, "G": 1e9}[match["unit"].upper()]
    except ValueError:
        return False
    return any(0.9 < claimed / (elements * size) < 1.1 for size in (2, 4, 8)) if elements > 0 else False


@rule("ZC414", "bucket-larger-than-model", Severity.NOTE, WHOLE_RUN, needs={"model"})
def bucket_larger_than_model(run: Run) -> Iterator[Finding]:
    key, stage = setting(run, "zero_optimization.reduce_bucket_size"), stage_of(run)
    parameters = run.model.parameters if run.model else None
    if not isinstance(key.value, int) or not parameters or stage not in (1, 2, 3):
        return
    if key.value <= parameters or key.value.bit_length() > 63 or without_buckets(run):
        return  # beyond 63 bits torch allocates nothing, and there is no figure to tell
    copies = 2 if stage < 3 and effective_value(run, "zero_optimization.overlap_comm") is True else 1
    width = 4 if half(run) is False else 2
    gib = key.value * width * copies / 2**30
    default = " (the default)" if key.origin.kind == "default" else ""
    yield key.finding(
        f"reduce_bucket_size is {key.value:,} elements{default}, more than the {parameters:,} parameters of "
        f"the model; the {gib:.2f} GiB (at {8 * width} bit{', twice for overlap_comm' if copies == 2 else ''}) are "
        "allocated all the same",
        "a tenth of the model's parameters is plenty",
        fix=deepspeed(run, "zero_optimization", "reduce_bucket_size").set(
            str(parameters), f"write {parameters}", safe=False
        ),
    )
