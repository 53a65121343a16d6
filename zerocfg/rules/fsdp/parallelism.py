"""ZC6xx: `parallelism_config` of the accelerate config, and Megatron."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, accelerate_section, effective_value
from zerocfg.rules.fixes import edited
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.node import Path

SECTION = "parallelism_config"
PREFIX = "parallelism_config_"
SIZES = ("dp_replicate", "dp_shard", "tp", "cp", "sp")


def size_path(name: str) -> Path:
    return (SECTION, f"{PREFIX}{name}")


def sizes_of(run: Run) -> dict[str, int] | None:
    """The sizes that accelerate's launcher exports; None where there are none, or one is not known."""
    found = {}
    for name in SIZES:
        setting = run.effective.environment.get(f"PARALLELISM_CONFIG_{name.upper()}_SIZE")
        text = str(setting.value) if setting is not None else ""
        if not text.isdecimal() or len(text) > 9 or int(text) < 1:
            return None
        found[name] = int(text)
    return found


def written_sizes(run: Run, *names: str) -> list[Location]:
    """The places of those sizes that stand in the file."""
    section = accelerate_section(run, SECTION)
    file = run.accelerate
    return [Location(file, size_path(f"{name}_size")) for name in names if file and f"{PREFIX}{name}_size" in section]


def place_of(run: Run, *names: str) -> tuple[Location, list[Location]] | None:
    found = written_sizes(run, *names)
    if not found:
        return None
    return found[0], found[1:]


def impossible(sizes: dict[str, int]) -> bool:
    """Combinations that ParallelismConfig itself refuses, before it looks at the processes."""
    return (sizes["cp"] > 1 and sizes["sp"] > 1) or (
        (sizes["tp"] > 1 or sizes["cp"] > 1) and sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1
    )


@rule("ZC632", "parallel-sizes-and-processes", Severity.ERROR)
def parallel_sizes_and_processes(run: Run) -> Iterator[Finding]:
    sizes, processes = sizes_of(run), effective_value(run, "num_processes")
    if sizes is None or not isinstance(processes, int) or isinstance(processes, bool) or impossible(sizes):
        return
    product = 1
    for size in sizes.values():
        product *= size
    place = place_of(run, *(name for name in SIZES if sizes[name] > 1))
    if product in (1, processes) or sizes["sp"] > 1 or place is None:
        return
    grown = [name for name in SIZES if sizes[name] > 1]
    words = " x ".join(f"{name} {sizes[name]}" for name in grown)
    fix = None
    if len(grown) == 1 and processes > 1:
        text = str(processes)
        fix = edited(
            replace_value, run.accelerate, size_path(f"{grown[0]}_size"), text, why=f"write {text}", safe=False
        )
    yield Finding(
        place[0],
        f"the sizes of `parallelism_config` multiply to {product} ({words}), and there are {processes} processes",
        "make the product the number of processes",
        [*place[1], *_processes(run)],
        fix=fix,
    )


def _processes(run: Run) -> list[Location]:
    if run.accelerate is None or "num_processes" not in accelerate_data(run):
        return []
    return [Location(run.accelerate, ("num_processes",))]


@rule("ZC633", "context-and-sequence-parallel", Severity.ERROR)
def context_and_sequence_parallel(run: Run) -> Iterator[Finding]:
    sizes = sizes_of(run)
    place = place_of(run, "cp", "sp")
    if sizes is None or sizes["cp"] < 2 or sizes["sp"] < 2 or place is None:
        return
    other = {"fsdp": "sp", "deepspeed": "cp"}.get(str(effective_value(run, "engine")))
    yield Finding(
        place[0],
        f"cp_size {sizes['cp']} and sp_size {sizes['sp']} exclude each other: every process stops",
        "keep one of them: cp under FSDP 2, sp under DeepSpeed",
        place[1],
        fix=edited(delete_entry, run.accelerate, size_path(f"{other}_size"), why=f"remove {other}_size", safe=False)
        if other
        else None,
    )


@rule("ZC634", "replicas-of-parts", Severity.ERROR)
def replicas_of_parts(run: Run) -> Iterator[Finding]:
    sizes = sizes_of(run)
    if sizes is None or sizes["dp_replicate"] < 2 or sizes["dp_shard"] > 1 or max(sizes["tp"], sizes["cp"]) < 2:
        return
    place = place_of(run, "dp_replicate", "tp", "cp")
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
    new = f"{PREFIX}dp_shard_size"
    if new in accelerate_section(run, SECTION):
        return None
    return edited(rename_key, run.accelerate, size_path("dp_replicate_size"), new, why=f"write {new}", safe=False)


@rule("ZC635", "nothing-to-shard-across", Severity.ERROR, versions="accelerate>=1.15")
def nothing_to_shard_across(run: Run) -> Iterator[Finding]:
    sizes, processes = sizes_of(run), effective_value(run, "num_processes")
    if sizes is None or impossible(sizes) or sizes["dp_shard"] > 1 or sizes["cp"] > 1 or sizes["sp"] > 1:
        return
    product = sizes["dp_replicate"] * sizes["tp"]
    if effective_value(run, "engine") != "fsdp" or not runs_fsdp2(run) or product == 1:
        return
    place = place_of(run, "dp_replicate", "tp")
    if place is None or (isinstance(processes, int) and product != processes):
        return  # ZC632
    yield Finding(
        place[0],
        "FSDP 2 has nothing to shard across: dp_shard_size and cp_size are 1, and every process stops",
        "write dp_shard_size",
        place[1],
        fix=_sharded(run) if sizes["tp"] == 1 else None,
    )


def runs_fsdp2(run: Run) -> bool:
    setting = run.effective.environment.get("FSDP_VERSION")
    return setting is not None and str(setting.value) == "2"


@rule("ZC636", "parallelism-with-fsdp1", Severity.ERROR)
def parallelism_with_fsdp1(run: Run) -> Iterator[Finding]:
    sizes, version = sizes_of(run), run.effective.environment.get("FSDP_VERSION")
    if sizes is None or impossible(sizes) or max(sizes.values()) == 1 or version is None or str(version.value) != "1":
        return
    place = place_of(run, *SIZES)
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


@rule("ZC647", "megatron-context-parallel-by-default", Severity.WARNING, versions="accelerate>=1.15")
def megatron_context_parallel_by_default(run: Run) -> Iterator[Finding]:
    key = "megatron_lm_context_parallel_size"
    section = accelerate_section(run, "megatron_lm_config")
    exported = run.effective.environment
    if run.accelerate is None or "ACCELERATE_USE_MEGATRON_LM" not in exported or not section:
        return
    if key in section or "MEGATRON_LM_CONTEXT_PARALLEL_SIZE" in exported:
        return
    why = f"write {key}: 1"
    yield Finding(
        Location(run.accelerate, ("megatron_lm_config",), "key"),
        "`megatron_lm_config` names no context-parallel size, and accelerate takes 2: pairs of processes share their "
        "samples",
        why,
        fix=edited(insert_entry, run.accelerate, ("megatron_lm_config",), key, "1", why=why, safe=False),
    )
