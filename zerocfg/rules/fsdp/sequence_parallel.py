"""ZC6xx: sequence parallelism, and options of it that reach nobody."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section, effective_value
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.parallelism import (
    PREFIX,
    SECTION,
    impossible,
    place_of,
    runs_fsdp2,
    size_path,
    sizes_of,
    written_sizes,
)
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value


@rule("ZC637", "sequence-parallel-attention", Severity.ERROR)
def sequence_parallel_attention(run: Run) -> Iterator[Finding]:
    sizes = sizes_of(run)
    word = accelerate_section(run, SECTION).get(f"{PREFIX}sp_attn_implementation")
    if sizes is None or sizes["sp"] < 2 or word not in ("eager", "flex_attention") or run.accelerate is None:
        return
    path = size_path("sp_attn_implementation")
    yield Finding(
        Location(run.accelerate, path),
        f"sequence parallelism cannot work with {word} attention: every process stops",
        "write sdpa or flash_attention_2",
        fix=edited(replace_value, run.accelerate, path, "sdpa", why="write sdpa", safe=False),
    )


@rule("ZC638", "sequence-parallel-without-deepspeed", Severity.ERROR, versions="accelerate>=1.15")
def sequence_parallel_without_deepspeed(run: Run) -> Iterator[Finding]:
    sizes = sizes_of(run)
    place = place_of(run, "sp")
    engine = effective_value(run, "engine")
    if sizes is None or sizes["sp"] < 2 or sizes["cp"] > 1 or place is None or engine not in ("fsdp", "ddp", "single"):
        return
    new = f"{PREFIX}cp_size"
    fits = engine == "fsdp" and runs_fsdp2(run) and new not in accelerate_section(run, SECTION)
    yield Finding(
        place[0],
        f"sp_size {sizes['sp']} is done by DeepSpeed, which does not run here: no sequence is divided",
        "choose DEEPSPEED, or cp_size with FSDP 2",
        fix=edited(rename_key, run.accelerate, size_path("sp_size"), new, why=f"write {new}", safe=False)
        if fits and sizes["dp_shard"] == 1
        else None,
    )


@rule("ZC639", "sequence-parallel-batch", Severity.ERROR)
def sequence_parallel_batch(run: Run) -> Iterator[Finding]:
    sizes, processes = sizes_of(run), effective_value(run, "num_processes")
    place = place_of(run, "sp")
    if sizes is None or sizes["sp"] < 2 or place is None or effective_value(run, "engine") != "deepspeed":
        return
    if not isinstance(processes, int) or processes % sizes["sp"] or impossible(sizes):
        return
    needed, counted = processes // sizes["sp"], sizes["dp_replicate"] * sizes["dp_shard"]
    if needed == counted:
        return
    yield Finding(
        place[0],
        f"{processes} processes with sp_size {sizes['sp']} make {needed} data-parallel groups, and dp_shard_size times "
        f"dp_replicate_size counts {counted}: DeepSpeed refuses the batch size",
        f"write dp_shard_size: {needed}",
        written_sizes(run, "dp_shard", "dp_replicate"),
        fix=_data_parallel(run, needed) if sizes["dp_replicate"] == 1 else None,
    )


def _data_parallel(run: Run, needed: int) -> Fix | None:
    name, why = f"{PREFIX}dp_shard_size", f"write dp_shard_size: {needed}"
    if name in accelerate_section(run, SECTION):
        return edited(replace_value, run.accelerate, size_path("dp_shard_size"), str(needed), why=why)
    return edited(insert_entry, run.accelerate, (SECTION,), name, str(needed), why=why)


@rule("ZC640", "parallel-option-without-size", Severity.WARNING)
def parallel_option_without_size(run: Run) -> Iterator[Finding]:
    sizes = sizes_of(run)
    if sizes is None or run.accelerate is None:
        return
    options = {
        "cp_comm_strategy": "cp",
        "sp_seq_length": "sp",
        "sp_seq_length_is_variable": "sp",
        "sp_attn_implementation": "sp",
    }
    section = accelerate_section(run, SECTION)
    for option, size in options.items():
        if f"{PREFIX}{option}" in section and sizes[size] == 1:
            yield Finding(
                Location(run.accelerate, size_path(option)),
                f"`{PREFIX}{option}` has no effect: {size}_size is 1",
                f"write {PREFIX}{size}_size, or remove the option",
                fix=edited(delete_entry, run.accelerate, size_path(option), why="remove an option that has no effect"),
            )


@rule("ZC649", "context-parallel-under-deepspeed", Severity.ERROR)
def context_parallel_under_deepspeed(run: Run) -> Iterator[Finding]:
    sizes, place = sizes_of(run), place_of(run, "cp")
    if sizes is None or sizes["cp"] < 2 or sizes["sp"] > 1 or place is None or impossible(sizes):
        return
    if effective_value(run, "engine") != "deepspeed":
        return
    new = f"{PREFIX}sp_size"
    yield Finding(
        place[0],
        f"cp_size {sizes['cp']} is done by FSDP 2; under DeepSpeed every process trains whole sequences of its own",
        "write sp_size",
        fix=edited(rename_key, run.accelerate, size_path("cp_size"), new, why=f"write {new}", safe=False)
        if new not in accelerate_section(run, SECTION)
        else None,
    )
