"""ZC4xx: what ZeRO sends, how it scales it, and the buckets that it sends it in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import anchor, deepspeed_data, effective, failures, section, stage_of, told
from zerocfg.rules.proof import cited, crashes
from zerocfg.run.engine import truth
from zerocfg.run.model import Run
from zerocfg.source.text import Span

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_CLAIM = re.compile(r"bucket_size\b.*?(?:#|//)(?P<note>.*?\d+(?:\.\d+)?\s*[MG]i?B\b)", re.IGNORECASE)


@rule(
    "ZC408",
    "scaling-with-reduce-scatter",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "prescale_gradients": true, "bf16": {"enabled": true}, '
            '"zero_optimization": {"stage": 2}}\n'
        },
        consumer="deepspeed",
    ),
    good=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "prescale_gradients": true, "bf16": {"enabled": true}, '
            '"zero_optimization": {"stage": 2, "reduce_scatter": false}}\n'
        },
        consumer="deepspeed",
    ),
    proof=crashes("init", "is not yet supported with ZeRO-2 with reduce scatter enabled"),
)
def scaling_with_reduce_scatter(run: Run) -> Iterator[Finding]:
    """prescale_gradients or gradient_predivide_factor with ZeRO 2 or 3.

    What happens: `AssertionError: pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled`
    when the engine is built; the same for `gradient_predivide_factor != 1.0`. `reduce_scatter` is on by default.
    """
    data, zero = deepspeed_data(run), section(run, "zero_optimization")
    stage, scatter = stage_of(run), zero.get("reduce_scatter", True)
    if run.deepspeed is None or stage not in (2, 3) or not (truth(scatter) or scatter == "auto"):
        return
    factor = data.get("gradient_predivide_factor", 1.0)
    for name, bad in (
        ("prescale_gradients", data.get("prescale_gradients") is True),
        ("gradient_predivide_factor", isinstance(factor, (int, float)) and factor != 1.0),
    ):
        if bad:
            yield Finding(
                Location(run.deepspeed, (name,)),
                f"`{name}` does not work with ZeRO {stage} and reduce_scatter; DeepSpeed stops when the engine is "
                "built",
                'remove it, or write "reduce_scatter": false',
            )


@rule(
    "ZC409",
    "sum-with-stage-3",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_allreduce_op": "sum", '
            '"zero_optimization": {"stage": 3}}\n'
        },
        consumer="deepspeed",
    ),
    good=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_allreduce_op": "sum", '
            '"zero_optimization": {"stage": 2}}\n'
        },
        consumer="deepspeed",
    ),
    proof=crashes("parse", "gradient_allreduce_op"),
)
def sum_with_stage_3(run: Run) -> Iterator[Finding]:
    """`"gradient_allreduce_op": "sum"` with ZeRO 3.

    What happens: DeepSpeed refuses it when it reads the config: summing is not supported at stage 3.
    """
    for failure in failures(run, "ZC409"):
        yield told(run, failure, 'write "mean" and scale the loss instead')


@rule(
    "ZC413",
    "bucket-counted-in-bytes",
    Severity.NOTE,
    bad=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2,\n'
            '  "reduce_bucket_size": 5e8 // 500 MB\n}}\n'
        },
        consumer="deepspeed",
    ),
    good=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2,\n'
            '  "reduce_bucket_size": 5e8 // elements\n}}\n'
        },
        consumer="deepspeed",
    ),
    proof=cited("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8"),
)
def bucket_counted_in_bytes(run: Run) -> Iterator[Finding]:
    """A comment gives a bucket size in bytes, but DeepSpeed counts elements.

    `reduce_bucket_size: 5e8` is 500 million elements: 0.93 GiB in 16 bit, twice that with `overlap_comm` at stage 1
    and 2 or in fp32. The buffer is allocated in full, however small the model is.
    """
    for file in (run.deepspeed, run.accelerate):
        if file is None or "bucket_size" not in file.source.text:
            continue
        for match in _CLAIM.finditer(file.source.text):
            start, end = match.span("note")
            yield Finding(
                Location(file, span=Span(start, end)),
                "bucket sizes count elements, not bytes: 5e8 is 0.93 GiB in 16 bit, twice that with overlap_comm",
                "correct the comment, or halve the number",
            )


@rule(
    "ZC414",
    "bucket-larger-than-model",
    Severity.NOTE,
    bad=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n"
            "    deepspeed: ds.json\n    model: {parameters: 125000000, hidden_size: 768}\n",
            "ds.json": _DS % '2, "reduce_bucket_size": 500000000',
        },
    ),
    good=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n"
            "    deepspeed: ds.json\n    model: {parameters: 125000000, hidden_size: 768}\n",
            "ds.json": _DS % '2, "reduce_bucket_size": 50000000',
        },
    ),
    proof=cited("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8"),
)
def bucket_larger_than_model(run: Run) -> Iterator[Finding]:
    """The reduce bucket holds more elements than the model has parameters.

    What happens: stages 1 and 2 allocate the bucket in full at each backward pass (twice with overlap_comm), stage
    3 once and for good, whatever the size of the model. The default is 500 million elements.
    """
    bucket = run.effective.get("zero_optimization.reduce_bucket_size")
    parameters = run.model.parameters if run.model else None
    stage = stage_of(run)
    if bucket is None or not isinstance(bucket.value, int) or not parameters or stage not in (1, 2, 3):
        return
    if bucket.value <= parameters:
        return
    copies = 2 if stage < 3 and effective(run, "zero_optimization.overlap_comm") is True else 1
    gib = bucket.value * 2 * copies / 2**30
    location, related = anchor(run, [bucket.origin])
    default = " (the default)" if bucket.origin.kind == "default" else ""
    yield Finding(
        location,
        f"reduce_bucket_size is {bucket.value:,} elements{default}, more than the {parameters:,} parameters of "
        "the model; "
        f"the {gib:.2f} GiB (at 16 bit) are allocated all the same",
        "a tenth of the model's parameters is plenty",
        related,
    )


RULES = (scaling_with_reduce_scatter, sum_with_stage_3, bucket_counted_in_bytes, bucket_larger_than_model)
