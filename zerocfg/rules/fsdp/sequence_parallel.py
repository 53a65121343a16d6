"""ZC6xx: sequence parallelism, and options of it that reach nobody."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import effective_value
from zerocfg.rules.fsdp.parallelism import (
    PARALLEL_SIZES,
    ParallelSizes,
    impossible,
    option,
    renamed_size,
    runs_fsdp2,
    size_key,
    written_sizes,
)


@rule("ZC637", "sequence-parallel-attention", Severity.ERROR, PARALLEL_SIZES)
def sequence_parallel_attention(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes, key = parallel.sizes, option(parallel.run, "sp_attn_implementation")
    if sizes["sp"] > 1 and key.value in ("eager", "flex_attention"):
        yield key.finding(
            f"sequence parallelism cannot work with {key.value} attention: every process stops",
            "write sdpa or flash_attention_2",
            fix=key.replace("sdpa", "write sdpa", safe=False),
        )


@rule("ZC638", "sequence-parallel-without-deepspeed", Severity.ERROR, PARALLEL_SIZES, versions="accelerate>=1.15")
def sequence_parallel_without_deepspeed(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes, key, engine = parallel.sizes, size_key(parallel.run, "sp"), effective_value(parallel.run, "engine")
    if sizes["sp"] < 2 or sizes["cp"] > 1 or not key or engine not in ("fsdp", "ddp", "single"):
        return
    fits = engine == "fsdp" and runs_fsdp2(parallel.run) and sizes["dp_shard"] == 1
    yield key.finding(
        f"sp_size {sizes['sp']} is done by DeepSpeed, which does not run here: no sequence is divided",
        "choose DEEPSPEED, or cp_size with FSDP 2",
        fix=renamed_size(parallel.run, "sp", "cp") if fits else None,
    )


@rule("ZC639", "sequence-parallel-batch", Severity.ERROR, PARALLEL_SIZES)
def sequence_parallel_batch(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes, processes, key = parallel.sizes, effective_value(parallel.run, "num_processes"), size_key(parallel.run, "sp")
    if sizes["sp"] < 2 or not key or effective_value(parallel.run, "engine") != "deepspeed":
        return
    if not isinstance(processes, int) or processes % sizes["sp"] or impossible(sizes):
        return
    needed, counted = processes // sizes["sp"], sizes["dp_replicate"] * sizes["dp_shard"]
    if needed == counted:
        return
    why = f"write dp_shard_size: {needed}"
    yield key.finding(
        f"{processes} processes with sp_size {sizes['sp']} make {needed} data-parallel groups, and dp_shard_size times "
        f"dp_replicate_size counts {counted}: DeepSpeed refuses the batch size",
        why,
        written_sizes(parallel.run, "dp_shard", "dp_replicate"),
        size_key(parallel.run, "dp_shard").set(str(needed), why) if sizes["dp_replicate"] == 1 else None,
    )


_OF_SIZE = {
    "cp_comm_strategy": "cp",
    "sp_seq_length": "sp",
    "sp_seq_length_is_variable": "sp",
    "sp_attn_implementation": "sp",
}
"""Options, and the size without which each has no effect."""


@rule("ZC640", "parallel-option-without-size", Severity.WARNING, PARALLEL_SIZES)
def parallel_option_without_size(parallel: ParallelSizes) -> Iterator[Finding]:
    for name, size in _OF_SIZE.items():
        key = option(parallel.run, name)
        if key and parallel.sizes[size] == 1:
            yield key.finding(
                f"`{key.name}` has no effect: {size}_size is 1",
                f"write {size_key(parallel.run, size).name}, or remove the option",
                fix=key.delete("remove an option that has no effect"),
            )


@rule("ZC649", "context-parallel-under-deepspeed", Severity.ERROR, PARALLEL_SIZES)
def context_parallel_under_deepspeed(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes, key = parallel.sizes, size_key(parallel.run, "cp")
    if sizes["cp"] < 2 or sizes["sp"] > 1 or not key or impossible(sizes):
        return
    if effective_value(parallel.run, "engine") == "deepspeed":
        yield key.finding(
            f"cp_size {sizes['cp']} is done by FSDP 2; under DeepSpeed every process trains whole sequences of its own",
            "write sp_size",
            fix=renamed_size(parallel.run, "cp", "sp"),
        )
