"""ZC4xx: parameters that stage 3 does not shard."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import put, section, stage_of
from zerocfg.rules.proof import at_least, at_most, shows
from zerocfg.run.engine import number
from zerocfg.run.model import Run

_ZERO = "zero_optimization"
_MODEL = (
    '{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, '
    '"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 2048}\n'
)
_DS = (
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, '
    '"zero_optimization": {"stage": 3, "reduce_bucket_size": 1000000%s}}\n'
)
_MATRIX = 16_384**2
"""Elements of a square weight of the widest open model, hidden size 16384."""


@rule(
    "ZC425",
    "parameters-stay-whole",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % ', "stage3_param_persistence_threshold": 1000000000', "model/config.json": _MODEL},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": _DS % "", "model/config.json": _MODEL}, consumer="deepspeed"),
    proof=shows(
        "step",
        {
            "optimizer.persistent_parameters": (21, 5),
            "memory.step.bytes_per_parameter": (at_least(10.2), at_most(8.4)),
        },
        ranks=2,
    ),
    fixable=True,
)
def parameters_stay_whole(run: Run) -> Iterator[Finding]:
    """A `stage3_param_persistence_threshold` so high that the model's matrices are not sharded.

    Parameters of at most that many elements, counted before sharding, stay whole on every rank. The default of 100,000
    is meant for biases and norms. Above the size of a weight matrix, stage 3 holds all 16-bit parameters on every rank:
    the memory of stage 2 at the cost of stage 3.

    What happens: after the first step nearly all parameters are resident, 2 bytes each on every rank instead of 2
    divided by the ranks.

    Fix: the default, 100000.

    When to ignore: there is memory to spare, and `stage3_model_persistence_threshold` is known to be the limit.
    """
    zero = section(run, _ZERO)
    names = ("stage3_param_persistence_threshold", "param_persistence_threshold")
    name = next((one for one in names if one in zero), None)
    capped = "stage3_model_persistence_threshold" in zero or "model_persistence_threshold" in zero
    if run.deepspeed is None or name is None or capped or stage_of(run) != 3:
        return
    size = number(zero[name])
    width = (run.model.hidden_size or run.model.text_hidden_size) if run.model else None
    matrix = width**2 if width else _MATRIX
    if not isinstance(size, int) or size < matrix or size <= 100_000:
        return
    whose = (
        f"of {run.model.name} ({width} x {width})" if width and run.model else "of every model up to hidden size 16384"
    )
    yield Finding(
        Location(run.deepspeed, (_ZERO, name)),
        f"parameters of up to {size:,} elements stay whole on every rank, which includes the square weights {whose}: "
        "stage 3 shards little of the parameters",
        "write 100000, or 10 times the hidden size",
        fix=put(run.deepspeed, (_ZERO, name), "100000", why="write the default"),
    )


RULES = (parameters_stay_whole,)
