"""ZC6xx: `parallelism_config` of the accelerate config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, accelerate_section, edited, effective
from zerocfg.rules.fsdp import WRAPPED
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.node import Path

_SECTION = "parallelism_config"
_PREFIX = "parallelism_config_"
SIZES = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
_DEEPSPEED = (
    "distributed_type: DEEPSPEED\nnum_processes: %s\ndeepspeed_config:\n  zero_stage: 2\n"
    "  gradient_accumulation_steps: 1\nparallelism_config:\n"
)
_HERE = "accelerate/parallelism_config.py@1.15.0"


def _sizes(**sizes: int) -> str:
    return "parallelism_config:\n" + "".join(f"  {_PREFIX}{name}_size: {size}\n" for name, size in sizes.items())


def _example(text: str, **more: Any) -> Example:
    return Example({"accelerate.yaml": text}, consumer="accelerate", **more)


def _path(name: str) -> Path:
    return (_SECTION, f"{_PREFIX}{name}")


def sizes_of(run: Run) -> dict[str, int] | None:
    """The sizes that accelerate's launcher exports; None where there are none, or one is not known."""
    found = {}
    for name in SIZES:
        setting = run.effective.environment.get(f"PARALLELISM_CONFIG_{name.upper()}_SIZE")
        text = str(setting.value) if setting is not None else ""
        if not text.isdigit() or int(text) < 1:
            return None
        found[name] = int(text)
    return found


def _written(run: Run, *names: str) -> list[Location]:
    """The places of those sizes that stand in the file."""
    section = accelerate_section(run, _SECTION)
    file = run.accelerate
    return [Location(file, _path(f"{name}_size")) for name in names if file and f"{_PREFIX}{name}_size" in section]


def _place(run: Run, *names: str) -> tuple[Location, list[Location]] | None:
    found = _written(run, *names)
    if not found:
        return None
    return found[0], found[1:]


def _impossible(sizes: dict[str, int]) -> bool:
    """Combinations that ParallelismConfig itself refuses, before it looks at the processes."""
    return (sizes["cp"] > 1 and sizes["sp"] > 1) or (
        (sizes["tp"] > 1 or sizes["cp"] > 1) and sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1
    )


@rule(
    "ZC632",
    "parallel-sizes-and-processes",
    Severity.ERROR,
    bad=(
        _example(WRAPPED % 2 + _sizes(dp_shard=4)),
        _example(
            (WRAPPED % 2).replace("num_processes: 2", "num_processes: 4") + _sizes(dp_shard=2),
            proof=crashes("arguments", "does not match num_processes", ranks=4),
        ),
    ),
    good=_example(WRAPPED % 2 + _sizes(dp_shard=2)),
    proof=crashes("arguments", "Mesh should not be bigger than default world size", ranks=2),
    fixable=True,
    references=(_HERE,),
)
def parallel_sizes_and_processes(run: Run) -> Iterator[Finding]:
    """The sizes of `parallelism_config` do not multiply to the number of processes.

    Every process has its place in a grid of these sizes, so that their product has to be the number of processes.
    A size that is not written is 1.

    What happens: with a larger product torch stops with `Mesh should not be bigger than default world size`, with a
    smaller one accelerate with `ValueError: ParallelismConfig total_size (2) does not match num_processes (4)`, in
    every process.

    Fix: where one size alone is above 1 it becomes the number of processes; that is a choice.
    """
    sizes, processes = sizes_of(run), effective(run, "num_processes")
    if sizes is None or not isinstance(processes, int) or isinstance(processes, bool) or _impossible(sizes):
        return
    product = 1
    for size in sizes.values():
        product *= size
    place = _place(run, *(name for name in SIZES if sizes[name] > 1))
    if product in (1, processes) or sizes["sp"] > 1 or place is None:
        return
    grown = [name for name in SIZES if sizes[name] > 1]
    words = " x ".join(f"{name} {sizes[name]}" for name in grown)
    fix = None
    if len(grown) == 1 and processes > 1:
        text = str(processes)
        fix = edited(replace_value, run.accelerate, _path(f"{grown[0]}_size"), text, why=f"write {text}", safe=False)
    yield Finding(
        place[0],
        f"the sizes of `parallelism_config` multiply to {product} ({words}), and there are {processes} processes",
        "make the product the number of processes",
        [*place[1], *([Location(run.accelerate, ("num_processes",))] if _has(run, "num_processes") else [])],
        fix=fix,
    )


def _has(run: Run, key: str) -> bool:
    return run.accelerate is not None and key in accelerate_data(run)


@rule(
    "ZC633",
    "context-and-sequence-parallel",
    Severity.ERROR,
    bad=_example(WRAPPED % 2 + _sizes(cp=2, sp=2)),
    good=_example(WRAPPED % 2 + _sizes(cp=2)),
    proof=crashes("arguments", "are mutually exclusive", ranks=2),
    fixable=True,
    references=(_HERE,),
)
def context_and_sequence_parallel(run: Run) -> Iterator[Finding]:
    """`cp_size` and `sp_size` are both above 1.

    Both cut the sequence into parts, FSDP 2 with the one and DeepSpeed with the other.

    What happens: `ValueError: Context Parallelism (CP) and Sequence Parallelism (SP) are mutually exclusive`, in every
    process, when the Accelerator is made.

    Fix: the one that the chosen `distributed_type` does not know is removed: `sp_size` under FSDP, `cp_size` under
    DeepSpeed; that is a choice.
    """
    sizes = sizes_of(run)
    place = _place(run, "cp", "sp")
    if sizes is None or sizes["cp"] < 2 or sizes["sp"] < 2 or place is None:
        return
    other = {"fsdp": "sp", "deepspeed": "cp"}.get(str(effective(run, "engine")))
    yield Finding(
        place[0],
        f"cp_size {sizes['cp']} and sp_size {sizes['sp']} exclude each other: every process stops",
        "keep one of them: cp under FSDP 2, sp under DeepSpeed",
        place[1],
        fix=edited(delete_entry, run.accelerate, _path(f"{other}_size"), why=f"remove {other}_size", safe=False)
        if other
        else None,
    )


@rule(
    "ZC634",
    "replicas-of-parts",
    Severity.ERROR,
    bad=_example((WRAPPED % 2).replace("num_processes: 2", "num_processes: 4") + _sizes(dp_replicate=2, tp=2)),
    good=_example((WRAPPED % 2).replace("num_processes: 2", "num_processes: 4") + _sizes(dp_shard=2, tp=2)),
    proof=crashes("arguments", "cannot be used with pure data parallelism", ranks=4),
    fixable=True,
    references=(_HERE,),
)
def replicas_of_parts(run: Run) -> Iterator[Finding]:
    """Tensor or context parallelism together with replicas that are not sharded.

    Replicas (`dp_replicate_size`) are plain data parallelism, which cannot hold a model that is cut into parts;
    `dp_shard_size` can.

    What happens: `ValueError: Tensor/Context parallelism (tp/cp_size > 1) cannot be used with pure data parallelism
    (dp_replicate_size > 1 and dp_shard_size == 1)`, in every process, when the Accelerator is made.

    Fix: `dp_replicate_size` becomes `dp_shard_size`; that is a choice.
    """
    sizes = sizes_of(run)
    if sizes is None or sizes["dp_replicate"] < 2 or sizes["dp_shard"] > 1 or max(sizes["tp"], sizes["cp"]) < 2:
        return
    place = _place(run, "dp_replicate", "tp", "cp")
    if place is None or (sizes["cp"] > 1 and sizes["sp"] > 1):
        return
    yield Finding(
        place[0],
        f"{sizes['dp_replicate']} replicas without sharding cannot hold a model that tp or cp cuts: every process "
        "stops",
        "write dp_shard_size instead of dp_replicate_size",
        place[1],
        fix=_sharded(run),
    )


def _sharded(run: Run) -> Fix | None:
    """`dp_replicate_size` under the name of `dp_shard_size`."""
    new = f"{_PREFIX}dp_shard_size"
    if new in accelerate_section(run, _SECTION):
        return None
    return edited(rename_key, run.accelerate, _path("dp_replicate_size"), new, why=f"write {new}", safe=False)


@rule(
    "ZC635",
    "nothing-to-shard-across",
    Severity.ERROR,
    bad=_example(WRAPPED % 2 + _sizes(dp_replicate=2)),
    good=_example(WRAPPED % 2 + _sizes(dp_shard=2)),
    proof=crashes("arguments", "no dimension for FSDP to shard across", ranks=2),
    fixable=True,
    references=(_HERE,),
)
def nothing_to_shard_across(run: Run) -> Iterator[Finding]:
    """FSDP 2 with a `parallelism_config` that leaves no process to shard across.

    FSDP shards across `dp_shard_size` times `cp_size` processes. Where both are 1, all processes are taken by
    replicas or by tensor parallelism.

    What happens: `ValueError: FSDP is enabled but the parallelism config has no dimension for FSDP to shard across
    (both dp_shard_size and cp_size are 1)`, in every process, when the Accelerator is made.

    Fix: a `dp_replicate_size` that stands alone becomes `dp_shard_size`; that is a choice.
    """
    sizes, processes = sizes_of(run), effective(run, "num_processes")
    if sizes is None or _impossible(sizes) or sizes["dp_shard"] > 1 or sizes["cp"] > 1 or sizes["sp"] > 1:
        return
    product = sizes["dp_replicate"] * sizes["tp"]
    if effective(run, "engine") != "fsdp" or not _second(run) or product == 1:
        return
    place = _place(run, "dp_replicate", "tp")
    if place is None or (isinstance(processes, int) and product != processes):
        return  # ZC632
    yield Finding(
        place[0],
        "FSDP 2 has nothing to shard across: dp_shard_size and cp_size are 1, and every process stops",
        "write dp_shard_size",
        place[1],
        fix=_sharded(run) if sizes["tp"] == 1 else None,
    )


def _second(run: Run) -> bool:
    setting = run.effective.environment.get("FSDP_VERSION")
    return setting is not None and str(setting.value) == "2"


@rule(
    "ZC636",
    "parallelism-with-fsdp1",
    Severity.ERROR,
    bad=_example(WRAPPED % 1 + _sizes(dp_shard=2)),
    good=_example(WRAPPED % 2 + _sizes(dp_shard=2)),
    proof=crashes("arguments", "is only compatible DistributedType.FSDP .version 2.", ranks=2),
    fixable=True,
    references=(_HERE, "accelerate/state.py@1.15.0"),
)
def parallelism_with_fsdp1(run: Run) -> Iterator[Finding]:
    """A `parallelism_config` with sizes above 1 under FSDP 1.

    The grid of processes that the sizes describe is one of FSDP 2; FSDP 1 shards across all processes.

    What happens: `ValueError: ParallelismConfig is only compatible DistributedType.FSDP (version 2) ...`, with
    `cp_size` above 1 `Using cp_size>1 requires FSDP2`, in every process, when the Accelerator is made.

    Fix: `fsdp_version: 2` is written; that is a choice.
    """
    sizes, version = sizes_of(run), run.effective.environment.get("FSDP_VERSION")
    if sizes is None or _impossible(sizes) or max(sizes.values()) == 1 or version is None or str(version.value) != "1":
        return
    place = _place(run, *SIZES)
    if place is None:
        return
    why = "write fsdp_version: 2"
    section = accelerate_section(run, "fsdp_config")
    spelling = next((key for key in ("fsdp_version", "version") if key in section), None)
    yield Finding(
        place[0],
        "`parallelism_config` needs FSDP 2, and the job runs with FSDP 1: every process stops",
        why,
        [Location(run.accelerate, ("fsdp_config", spelling))] if spelling and run.accelerate else [],
        fix=edited(replace_value, run.accelerate, ("fsdp_config", spelling), "2", why=why, safe=False)
        if spelling
        else None,
    )


@rule(
    "ZC637",
    "sequence-parallel-attention",
    Severity.ERROR,
    bad=_example(
        _DEEPSPEED % 2 + "  parallelism_config_sp_size: 2\n  parallelism_config_sp_attn_implementation: eager\n"
    ),
    good=_example(
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
    word = accelerate_section(run, _SECTION).get(f"{_PREFIX}sp_attn_implementation")
    if sizes is None or sizes["sp"] < 2 or word not in ("eager", "flex_attention") or run.accelerate is None:
        return
    path = _path("sp_attn_implementation")
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
    bad=_example(WRAPPED % 2 + _sizes(sp=2)),
    good=_example(WRAPPED % 2 + _sizes(cp=2)),
    proof=crashes("arguments", "no dimension for FSDP to shard across", ranks=2),
    fixable=True,
    references=(_HERE, "accelerate/accelerator.py@1.15.0"),
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
    place = _place(run, "sp")
    engine = effective(run, "engine")
    if sizes is None or sizes["sp"] < 2 or sizes["cp"] > 1 or place is None or engine not in ("fsdp", "ddp", "single"):
        return
    new = f"{_PREFIX}cp_size"
    fits = engine == "fsdp" and _second(run) and new not in accelerate_section(run, _SECTION)
    yield Finding(
        place[0],
        f"sp_size {sizes['sp']} is done by DeepSpeed, which does not run here: no sequence is divided",
        "choose DEEPSPEED, or cp_size with FSDP 2",
        fix=edited(rename_key, run.accelerate, _path("sp_size"), new, why=f"write {new}", safe=False)
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
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n",
        },
        consumer="accelerate",
    ),
    good=Example(
        {
            "accelerate.yaml": _DEEPSPEED % 4
            + "  parallelism_config_sp_size: 2\n  parallelism_config_dp_shard_size: 2\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n",
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
    place = _place(run, "sp")
    if sizes is None or sizes["sp"] < 2 or place is None or effective(run, "engine") != "deepspeed":
        return
    if not isinstance(processes, int) or processes % sizes["sp"] or _impossible(sizes):
        return
    needed, counted = processes // sizes["sp"], sizes["dp_replicate"] * sizes["dp_shard"]
    if needed == counted:
        return
    yield Finding(
        place[0],
        f"{processes} processes with sp_size {sizes['sp']} make {needed} data-parallel groups, and dp_shard_size times "
        f"dp_replicate_size counts {counted}: DeepSpeed refuses the batch size",
        f"write dp_shard_size: {needed}",
        _written(run, "dp_shard", "dp_replicate"),
        fix=_data_parallel(run, needed) if sizes["dp_replicate"] == 1 else None,
    )


def _data_parallel(run: Run, needed: int) -> Fix | None:
    name, why = f"{_PREFIX}dp_shard_size", f"write dp_shard_size: {needed}"
    if name in accelerate_section(run, _SECTION):
        return edited(replace_value, run.accelerate, _path("dp_shard_size"), str(needed), why=why)
    return edited(insert_entry, run.accelerate, (_SECTION,), name, str(needed), why=why)


@rule(
    "ZC640",
    "parallel-option-without-size",
    Severity.WARNING,
    bad=_example(WRAPPED % 2 + _sizes(dp_shard=2) + "  parallelism_config_cp_comm_strategy: alltoall\n"),
    good=_example(WRAPPED % 2 + _sizes(dp_shard=2)),
    proof=shows(
        "launch",
        {
            "read.parallelism_config": (
                {"parallelism_config_dp_shard_size": 2, "parallelism_config_cp_comm_strategy": "alltoall"},
                {"parallelism_config_dp_shard_size": 2},
            ),
            "env.PARALLELISM_CONFIG_CP_COMM_STRATEGY": ("<absent>", "<absent>"),
        },
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
    section = accelerate_section(run, _SECTION)
    for option, size in options.items():
        if f"{_PREFIX}{option}" in section and sizes[size] == 1:
            yield Finding(
                Location(run.accelerate, _path(option)),
                f"`{_PREFIX}{option}` has no effect: {size}_size is 1",
                f"write {_PREFIX}{size}_size, or remove the option",
                fix=edited(delete_entry, run.accelerate, _path(option), why="remove an option that has no effect"),
            )


RULES = (
    parallel_sizes_and_processes,
    context_and_sequence_parallel,
    replicas_of_parts,
    nothing_to_shard_across,
    parallelism_with_fsdp1,
    sequence_parallel_attention,
    sequence_parallel_without_deepspeed,
    sequence_parallel_batch,
    parallel_option_without_size,
)
