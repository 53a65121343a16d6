"""ZC6xx: sequence parallelism, and options of it that reach nobody."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section, edited, effective
from zerocfg.rules.fsdp.parallelism import (
    PREFIX,
    SECTION,
    example,
    impossible,
    place_of,
    runs_fsdp2,
    size_path,
    sizes_of,
    sizes_text,
    written_sizes,
)
from zerocfg.rules.fsdp.plugin import WRAPPED
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value

_DEEPSPEED = (
    "distributed_type: DEEPSPEED\nnum_processes: %s\ndeepspeed_config:\n  zero_stage: 2\n"
    "  gradient_accumulation_steps: 1\nparallelism_config:\n"
)
_BATCH = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"


@rule(
    "ZC637",
    "sequence-parallel-attention",
    Severity.ERROR,
    bad=example(
        _DEEPSPEED % 2 + "  parallelism_config_sp_size: 2\n  parallelism_config_sp_attn_implementation: eager\n"
    ).finds("error", "accelerate.yaml: parallelism_config_sp_attn_implementation: eager"),
    good=example(
        _DEEPSPEED % 2 + "  parallelism_config_sp_size: 2\n  parallelism_config_sp_attn_implementation: sdpa\n"
    ),
    proof=crashes("arguments", "Invalid sp_attn_implementation", ranks=2),
    fixable=True,
    references=("accelerate/utils/dataclasses.py@1.15.0",),
)
def sequence_parallel_attention(run: Run) -> Iterator[Finding]:
    """Sequence parallelism with eager or flex attention.

    Each process holds a part of the sequence and all-to-all exchanges heads for tokens around the attention; only
    implementations that need no mask of the whole sequence can work there.

    What happens: `ValueError: Invalid sp_attn_implementation: eager. 'eager' and 'flex_attention' are not supported
    with sequence parallelism.`, in every process, when the Accelerator is made.

    Fix: sdpa is written, the default; that is a choice.
    """
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


@rule(
    "ZC638",
    "sequence-parallel-without-deepspeed",
    Severity.ERROR,
    bad=example(WRAPPED % 2 + sizes_text(sp=2)).finds("error", "accelerate.yaml: parallelism_config_sp_size: 2", 2, 2),
    good=example(WRAPPED % 2 + sizes_text(cp=2)),
    proof=crashes("arguments", "no dimension for FSDP to shard across", ranks=2),
    fixable=True,
    references=("accelerate/parallelism_config.py@1.15.0", "accelerate/accelerator.py@1.15.0"),
    versions="accelerate>=1.15",
)
def sequence_parallel_without_deepspeed(run: Run) -> Iterator[Finding]:
    """`sp_size` above 1 where DeepSpeed does not run.

    Sequence parallelism (Ulysses) is done by DeepSpeed. With FSDP each process would train whole sequences, and the
    memory of long ones is not divided.

    What happens: FSDP 2 stops with `the parallelism config has no dimension for FSDP to shard across`; with
    `dp_shard_size` beside it the size is dropped without a word.

    Fix: under FSDP 2 `sp_size` becomes `cp_size`, which cuts the sequence there; that is a choice.
    """
    sizes = sizes_of(run)
    place = place_of(run, "sp")
    engine = effective(run, "engine")
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


@rule(
    "ZC639",
    "sequence-parallel-batch",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _DEEPSPEED % 4 + "  parallelism_config_sp_size: 2\n",
            "recipe.yaml": _BATCH,
        },
        consumer="accelerate",
    ).finds("error", "accelerate.yaml: parallelism_config_sp_size: 2", 4, 2, 2, 1, 2),
    good=Example(
        {
            "accelerate.yaml": _DEEPSPEED % 4
            + "  parallelism_config_sp_size: 2\n  parallelism_config_dp_shard_size: 2\n",
            "recipe.yaml": _BATCH,
        },
        consumer="accelerate",
    ),
    proof=crashes("parse", "Check batch related parameters", ranks=4),
    fixable=True,
    references=("accelerate/accelerator.py@1.15.0",),
)
def sequence_parallel_batch(run: Run) -> Iterator[Finding]:
    """Sequence parallelism over fewer processes than there are, and the others are not counted as data parallel.

    accelerate does not compare these sizes with the number of processes, but it counts the samples of a step with
    them.

    What happens: accelerate writes a `train_batch_size` for `dp_replicate_size` times `dp_shard_size` processes, and
    DeepSpeed divides all processes by `sp_size`: `AssertionError: Check batch related parameters. train_batch_size is
    not equal to micro_batch_per_gpu * gradient_acc_step * world_size 1 != 1 * 1 * 2.0`.

    Fix: `dp_shard_size` becomes the number of processes divided by `sp_size`.
    """
    sizes, processes = sizes_of(run), effective(run, "num_processes")
    place = place_of(run, "sp")
    if sizes is None or sizes["sp"] < 2 or place is None or effective(run, "engine") != "deepspeed":
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


@rule(
    "ZC640",
    "parallel-option-without-size",
    Severity.WARNING,
    bad=example(WRAPPED % 2 + sizes_text(dp_shard=2) + "  parallelism_config_cp_comm_strategy: alltoall\n").finds(
        "warning", "accelerate.yaml: parallelism_config_cp_comm_strategy: alltoall", 1
    ),
    good=example(WRAPPED % 2 + sizes_text(dp_shard=2)),
    proof=shows(
        "launch",
        {
            "read.parallelism_config": (
                {"parallelism_config_dp_shard_size": 2, "parallelism_config_cp_comm_strategy": "alltoall"},
                {"parallelism_config_dp_shard_size": 2},
            ),
            "env.PARALLELISM_CONFIG_CP_COMM_STRATEGY": ("<absent>", "<absent>"),
        },
        extent="that the launcher exports no strategy although one is written.",
    ),
    fixable=True,
    references=("accelerate/utils/launch.py@1.15.0",),
)
def parallel_option_without_size(run: Run) -> Iterator[Finding]:
    """An option of context or sequence parallelism whose size is 1.

    Somebody chose how to cut the sequence, and the sequence is not cut: the memory for its activations stays whole.

    What happens: accelerate exports `cp_comm_strategy` only where `cp_size` is above 1, and the `sp_` options only
    where `sp_size` is; otherwise they reach nobody.

    Fix: the option is removed; nothing changes by that.

    When to ignore: the size comes from the launch line at other times.
    """
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


@rule(
    "ZC649",
    "context-parallel-under-deepspeed",
    Severity.ERROR,
    bad=Example(
        {"accelerate.yaml": _DEEPSPEED % 2 + "  parallelism_config_cp_size: 2\n", "recipe.yaml": _BATCH},
        consumer="accelerate",
    ).finds("error", "accelerate.yaml: parallelism_config_cp_size: 2", 2, 2),
    good=Example(
        {"accelerate.yaml": _DEEPSPEED % 2 + "  parallelism_config_dp_shard_size: 2\n", "recipe.yaml": _BATCH},
        consumer="accelerate",
    ),
    proof=shows(
        "init",
        {"env.PARALLELISM_CONFIG_CP_SIZE": ("2", "1"), "config.train_batch_size": (2, 2)},
        ranks=2,
        extent="that the batch which DeepSpeed is told is the same with and without the size.",
    ),
    fixable=True,
    references=("accelerate/state.py@1.15.0", "accelerate/accelerator.py@1.15.0"),
)
def context_parallel_under_deepspeed(run: Run) -> Iterator[Finding]:
    """`cp_size` above 1 under DeepSpeed.

    Context parallelism is FSDP 2's way to cut a sequence. Under DeepSpeed every process trains whole sequences of its
    own: the memory of long ones is not divided, and a step sees more samples than was counted with.

    What happens: the size is exported and DeepSpeed is not told of it. Two processes with `cp_size: 2` and one sample
    each make a `train_batch_size` of 2, as two data-parallel processes do.

    Fix: `cp_size` becomes `sp_size`, which DeepSpeed does (Ulysses); that is a choice.

    When to ignore: never; the size has no effect.
    """
    sizes, place = sizes_of(run), place_of(run, "cp")
    if sizes is None or sizes["cp"] < 2 or sizes["sp"] > 1 or place is None or impossible(sizes):
        return
    if effective(run, "engine") != "deepspeed":
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


RULES = (
    sequence_parallel_attention,
    sequence_parallel_without_deepspeed,
    sequence_parallel_batch,
    parallel_option_without_size,
    context_parallel_under_deepspeed,
)
