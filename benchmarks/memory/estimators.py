"""What others predict for the same row: DeepSpeed's estimators, accelerate's, and the EleutherAI cookbook's calculator.

Bytes on one device, or None where the tool does not know the case. The first two run the installed code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.options import Options, TorchOptions, Workload

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts

NAMES = ("DeepSpeed", "accelerate", "EleutherAI cookbook")


def deepspeed_estimate(facts: ModelFacts, options: Options | TorchOptions) -> int | None:
    """``estimate_zero2/3_model_states_mem_needs`` for one node; it knows ZeRO 2 and 3 only."""
    if not isinstance(options, Options) or options.stage < 2 or facts.parameters is None:
        return None
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    offload = options.offload_optimizer != "none"
    if options.stage == 2:
        _, device = estimate_zero2_model_states_mem_needs(facts.parameters, options.world_size, 1, offload)
    else:
        _, device, _ = estimate_zero3_model_states_mem_needs(
            facts.parameters, facts.largest_module, options.world_size, 1, offload, options.offload_param != "none"
        )
    return int(device)


def accelerate_estimate(facts: ModelFacts, options: Options | TorchOptions) -> int | None:
    """What ``accelerate estimate-memory`` prints as "Training using Adam"; it knows no ranks and no batch."""
    if facts.parameters is None or facts.trainable != facts.parameters:
        return None
    from accelerate.commands.estimate import estimate_training_usage

    dtype = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[options.precision]
    return int(max(estimate_training_usage(4 * facts.parameters, dtype).values()))


def cookbook_estimate(facts: ModelFacts, options: Options | TorchOptions, workload: Workload) -> int | None:
    """calc_transformer_mem.py with its defaults, in our words; it knows neither offload nor adapters.

    Mixed precision: 2 bytes for each parameter, 4 for its gradient, 12 for the optimizer, each divided by the ranks
    from the stage on that shards it; buckets of 5e8 elements and at ZeRO-3 1e9 live parameters; activations after
    Korthikanti et al.: 34 s b h L bytes with checkpointing, (34 + 5 a s / h) s b h L without.
    """
    heads, layers, width = facts.num_attention_heads, facts.num_hidden_layers, facts.hidden_size
    count = facts.parameters
    if heads is None or layers is None or width is None or count is None or facts.trainable != count:
        return None
    if isinstance(options, Options):
        if options.offload_optimizer != "none" or options.precision == "fp32":
            return None
        stage = options.stage
    else:
        stage = 3 if options.kind.startswith("fsdp") else 0
    shards = [options.world_size if stage >= first else 1 for first in (3, 2, 1)]
    states = sum(size * count // ranks for size, ranks in zip((2, 4, 12), shards, strict=True))
    buckets = 0 if stage == 0 else 2 * 500_000_000 + (2 * 1_000_000_000 if stage == 3 else 0)
    tokens = workload.micro_batch * workload.sequence_length
    factor = 34.0 if workload.gradient_checkpointing else 34 + 5 * heads * workload.sequence_length / width
    return states + buckets + int(factor * tokens * width * layers)


def others(facts: ModelFacts, options: Options | TorchOptions, workload: Workload) -> dict[str, int | None]:
    """Tool -> bytes, for every tool of ``NAMES``."""
    values = (
        deepspeed_estimate(facts, options),
        accelerate_estimate(facts, options),
        cookbook_estimate(facts, options, workload),
    )
    return dict(zip(NAMES, values, strict=True))
