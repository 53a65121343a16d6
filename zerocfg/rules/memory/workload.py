"""ZC9xx: what a micro batch costs: parameters gathered for it, and logits over a large vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Fix, Severity, rule
from zerocfg.rules.effects import TRAINERS, anchor, fits_at, gathers, put, stage_of
from zerocfg.rules.proof import at_least, at_most, cited, shows
from zerocfg.run.model import Run

_LLAMA_13B = (
    '{"model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, '
    '"num_attention_heads": 40, "vocab_size": 32000, "dtype": "bfloat16"}\n'
)
_LLAMA_3 = (
    '{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, '
    '"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": true, '
    '"dtype": "bfloat16"}\n'
)
_SPEC = (
    "version: 1\nruns:\n  sft:\n    consumer: %s\n    script: train.py\n    deepspeed: ds.json\n%s"
    "    model: config.json\n    hardware: %s\n    sequence_length: %s\n    gradient_checkpointing: true\n"
)
_DS = (
    '{"train_micro_batch_size_per_gpu": %s, "gradient_accumulation_steps": %s, "bf16": {"enabled": true}, '
    '"zero_optimization": {"stage": %s}}\n'
)
_SAVED = '3, "stage3_gather_16bit_weights_on_model_save": true, "reduce_bucket_size": 1000000'
_RECIPE = "output_dir: out\nper_device_train_batch_size: 8\nbf16: true\nmax_steps: 2\n%s"


def _accumulating(micro: int, steps: int) -> Example:
    return Example(
        {
            "zerocfg.yaml": _SPEC % ("deepspeed", "", "8xA100-80GB", 512),
            "train.py": "import deepspeed\n",
            "config.json": _LLAMA_13B,
            "ds.json": _DS % (micro, steps, _SAVED),
        }
    )


@rule("ZC906", "parameters-gathered-for-small-batches", Severity.NOTE, needs={"model", "hardware"})
def parameters_gathered_for_small_batches(run: Run) -> Iterator[Finding]:
    hardware, memory = run.hardware, run.memory
    steps = run.effective.get("gradient_accumulation_steps")
    if hardware is None or hardware.memory_gib is None or memory is None or memory.doubled_peak_gib is None:
        return
    if steps is None or not isinstance(steps.value, int) or steps.value < 4 or steps.value % 2:
        return
    low, high = memory.doubled_peak_gib
    if stage_of(run) != 3 or hardware.accelerators < 2 or high > hardware.memory_gib or fits_at(run, 2):
        return
    location, related = anchor(run, [steps.origin])
    micro = memory.micro_batch or 1
    yield Finding(
        location,
        f"{steps.value} accumulation steps at stage 3 gather all parameters {gathers(run) * steps.value} times a step, "
        f"and a micro batch of {2 * micro} takes about {low:.0f} to {high:.0f} of {hardware.memory_gib:.0f} GiB",
        f"micro batch {2 * micro} with {steps.value // 2} accumulation steps sends half the bytes",
        related,
    )


def _with_logits(option: str) -> Example:
    return Example(
        {
            "zerocfg.yaml": _SPEC % ("transformers", "    recipe: recipe.yaml\n", "8xA100-80GB", 2048),
            "train.py": "import transformers\n",
            "config.json": _LLAMA_3,
            "recipe.yaml": _RECIPE % option,
            "ds.json": _DS % ('"auto"', '"auto"', 2),
        }
    )


@rule("ZC907", "all-logits-at-once", Severity.NOTE, needs={"model"})
def all_logits_at_once(run: Run) -> Iterator[Finding]:
    memory, model = run.memory, run.model
    if memory is None or model is None or not memory.logits_gib or run.consumer == "trl":
        return
    room = run.hardware.memory_gib if run.hardware else None
    if memory.logits_gib < (room / 5 if room else 8.0):
        return
    micro = run.effective.get("train_micro_batch_size_per_gpu")
    location, related = anchor(run, [micro.origin] if micro else [])
    yield Finding(
        location,
        f"logits and loss of {memory.micro_batch} x {memory.sequence_length} tokens over a vocabulary of "
        f"{model.vocab_size} words take about {memory.logits_gib:.0f}"
        + (f" of {room:.0f}" if room else "")
        + " GiB of each accelerator",
        "compute the loss in pieces (`use_liger_kernel: true`, cut cross entropy), or take a smaller micro batch",
        related,
        fix=_liger(run),
    )


def _liger(run: Run) -> Fix | None:
    if run.consumer not in TRAINERS:
        return None
    return put(run.recipe, ("use_liger_kernel",), "true", why="compute the loss in pieces")


RULES = (parameters_gathered_for_small_batches, all_logits_at_once)
