"""ZC6xx: `parallelism_config` of the accelerate config, and Megatron."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.record import record
from zerocfg.rules.api import Finding, Fix, Severity, rule
from zerocfg.rules.effects import effective_value
from zerocfg.rules.fsdp.plugin import fsdp_key
from zerocfg.rules.key import Key, accelerate
from zerocfg.rules.subjects import given_by, in_accelerate
from zerocfg.run.model import Run

SIZES = ("dp_replicate", "dp_shard", "tp", "cp", "sp")


def option(run: Run, name: str) -> Key:
    """A key of `parallelism_config`, by its name without the prefix that all of them have."""
    return accelerate(run, "parallelism_config", f"parallelism_config_{name}")


def size_key(run: Run, name: str) -> Key:
    return option(run, f"{name}_size")


def sizes_of(run: Run) -> dict[str, int] | None:
    """The sizes that accelerate's launcher exports; None if it exports none, or a value is unknown or invalid."""
    sizes = {}
    for name in SIZES:
        setting = run.effective.environment.get(f"PARALLELISM_CONFIG_{name.upper()}_SIZE")
        if setting is None and name == "sp":  # accelerate before 1.12 has no sequence parallelism
            sizes[name] = 1
            continue
        text = str(setting.value) if setting is not None else ""
        if not text.isdecimal() or len(text) > 9 or int(text) < 1:
            return None
        sizes[name] = int(text)
    return sizes


def written_sizes(run: Run, *names: str) -> list[Key]:
    """The keys of these sizes, as far as the file sets them."""
    return [key for name in names if (key := size_key(run, name))]


@record(frozen=True, slots=True)
class ParallelSizes:
    """The sizes that a run exports, by name."""

    run: Run
    sizes: dict[str, int]


def _parallel_sizes(run: Run) -> ParallelSizes | None:
    sizes = sizes_of(run)
    return None if sizes is None else ParallelSizes(run, sizes)


PARALLEL_SIZES = given_by(_parallel_sizes, "run")


def impossible(sizes: dict[str, int]) -> bool:
    """Whether ParallelismConfig refuses these sizes for every number of processes."""
    return (sizes["cp"] > 1 and sizes["sp"] > 1) or (
        (sizes["tp"] > 1 or sizes["cp"] > 1) and sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1
    )


@rule("ZC632", "parallel-sizes-and-processes", Severity.ERROR, PARALLEL_SIZES)
def parallel_sizes_and_processes(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes, processes = parallel.sizes, effective_value(parallel.run, "num_processes")
    if not isinstance(processes, int) or isinstance(processes, bool) or impossible(sizes):
        return
    product = 1
    for size in sizes.values():
        product *= size
    dimensions = [name for name in SIZES if sizes[name] > 1]
    keys = written_sizes(parallel.run, *dimensions)
    if product in (1, processes) or sizes["sp"] > 1 or not keys:
        return
    words, count = " x ".join(f"{name} {sizes[name]}" for name in dimensions), accelerate(parallel.run, "num_processes")
    single = len(dimensions) == 1 and processes > 1
    yield keys[0].finding(
        f"the sizes of `parallelism_config` multiply to {product} ({words}), and there are {processes} processes",
        "make the product the number of processes",
        [*keys[1:], *([count] if count else [])],
        size_key(parallel.run, dimensions[0]).replace(str(processes), f"write {processes}", safe=False)
        if single
        else None,
    )


@rule("ZC633", "context-and-sequence-parallel", Severity.ERROR, PARALLEL_SIZES)
def context_and_sequence_parallel(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes = parallel.sizes
    keys = written_sizes(parallel.run, "cp", "sp")
    if sizes["cp"] < 2 or sizes["sp"] < 2 or not keys:
        return
    other = {"fsdp": "sp", "deepspeed": "cp"}.get(str(effective_value(parallel.run, "engine")))
    yield keys[0].finding(
        f"cp_size {sizes['cp']} and sp_size {sizes['sp']} exclude each other: every process stops",
        "keep one of them: cp under FSDP 2, sp under DeepSpeed",
        keys[1:],
        size_key(parallel.run, other).delete(f"remove {other}_size", safe=False) if other else None,
    )


@rule("ZC634", "replicas-of-parts", Severity.ERROR, PARALLEL_SIZES)
def replicas_of_parts(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes = parallel.sizes
    if sizes["dp_replicate"] < 2 or sizes["dp_shard"] > 1 or max(sizes["tp"], sizes["cp"]) < 2:
        return
    keys = written_sizes(parallel.run, "dp_replicate", "tp", "cp")
    if not keys or (sizes["cp"] > 1 and sizes["sp"] > 1):
        return
    yield keys[0].finding(
        f"{sizes['dp_replicate']} replicas without sharding cannot hold a model that tp or cp cuts: every process "
        "stops",
        "write dp_shard_size instead of dp_replicate_size",
        keys[1:],
        _sharded(parallel.run),
    )


def _sharded(run: Run) -> Fix | None:
    """A fix that shards over the replicas: `dp_replicate_size` becomes `dp_shard_size`."""
    return renamed_size(run, "dp_replicate", "dp_shard")


def renamed_size(run: Run, old: str, new: str) -> Fix | None:
    """A fix that renames one size to another; None if the file sets that one already."""
    target = size_key(run, new)
    return None if target else size_key(run, old).rename(target.name, f"write {target.name}", safe=False)


@rule("ZC635", "nothing-to-shard-across", Severity.ERROR, PARALLEL_SIZES, versions="accelerate>=1.10")
def nothing_to_shard_across(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes, processes = parallel.sizes, effective_value(parallel.run, "num_processes")
    if impossible(sizes) or sizes["dp_shard"] > 1 or sizes["cp"] > 1 or sizes["sp"] > 1:
        return
    product = sizes["dp_replicate"] * sizes["tp"]
    if effective_value(parallel.run, "engine") != "fsdp" or not runs_fsdp2(parallel.run) or product == 1:
        return
    keys = written_sizes(parallel.run, "dp_replicate", "tp")
    if not keys or (isinstance(processes, int) and product != processes):
        return  # ZC632
    yield keys[0].finding(
        "FSDP 2 has nothing to shard across: dp_shard_size and cp_size are 1, and every process stops",
        "write dp_shard_size",
        keys[1:],
        _sharded(parallel.run) if sizes["tp"] == 1 else None,
    )


def runs_fsdp2(run: Run) -> bool:
    setting = run.effective.environment.get("FSDP_VERSION")
    return setting is not None and str(setting.value) == "2"


@rule("ZC636", "parallelism-with-fsdp1", Severity.ERROR, PARALLEL_SIZES)
def parallelism_with_fsdp1(parallel: ParallelSizes) -> Iterator[Finding]:
    sizes, version = parallel.sizes, parallel.run.effective.environment.get("FSDP_VERSION")
    if impossible(sizes) or max(sizes.values()) == 1 or version is None or str(version.value) != "1":
        return
    keys, key = written_sizes(parallel.run, *SIZES), fsdp_key(parallel.run, "version")
    if keys:
        why = "write fsdp_version: 2"
        yield keys[0].finding(
            "`parallelism_config` needs FSDP 2, and the job runs with FSDP 1: every process stops",
            why,
            [key] if key else [],
            key.replace("2", why, safe=False) if key else None,
        )


@rule(
    "ZC647",
    "megatron-context-parallel-by-default",
    Severity.WARNING,
    in_accelerate("megatron_lm_config"),
    versions="accelerate>=1.15",
)
def megatron_context_parallel_by_default(section: Key) -> Iterator[Finding]:
    exported = section.run.effective.environment
    key = section["megatron_lm_context_parallel_size"]
    if not section.section or key or "ACCELERATE_USE_MEGATRON_LM" not in exported:
        return
    if "MEGATRON_LM_CONTEXT_PARALLEL_SIZE" not in exported:
        why = f"write {key.name}: 1"
        yield section.finding(
            f"`megatron_lm_config` names no context-parallel size, and accelerate takes 2: {_of_pairs(section)}",
            why,
            fix=key.set("1", why, safe=False),
            where="key",
        )


def _of_pairs(section: Key) -> str:
    """The consequence of a context-parallel size of 2 for this number of processes, for a message."""
    processes = section.run.effective.value("num_processes")
    degrees = [section[f"megatron_lm_{name}_degree"] for name in ("tp", "pp")]
    sizes = [key.value if key else 1 for key in degrees]
    if isinstance(processes, int) and all(isinstance(size, int) and size > 0 for size in sizes):
        product = 2 * sizes[0] * sizes[1]
        if processes % product:
            return f"{processes} processes cannot be shared out by {sizes[0]} * {sizes[1]} * 2, and Megatron stops"
    return "pairs of processes train on the same samples, each on half of every sequence"
