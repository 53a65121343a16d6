"""Sizes of DeepSpeed's buffers where no source names them: from what the links need, not from defaults of large jobs.

DeepSpeed's defaults hold 5e8 elements a bucket whatever the model: 1 GiB in 16 bit, twice with ``overlap_comm``. A
bucket need not be larger than what makes the latency of a collective small beside its transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.memory.time import rates
from zerocfg.resolve.plan import Decision

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.resolve.search.choice import Choice

ZERO = "zero_optimization."
TRANSFERS = 20  # a bucket's transfer takes that many latencies, so that waiting costs at most 5 percent
LEAST, MOST, UNKNOWN_LINK = 10_000_000, 200_000_000, 50_000_000  # elements
WIDTH = 2  # bytes of an element that is reduced
SUB_GROUP = 100_000_000  # elements
FAST_DRIVE_GB_S = 3.0


def buffer_sizes(choice: Choice, facts: ModelFacts, profile: HardwareProfile) -> dict[str, Decision]:
    """Decisions for a stage from 0 to 3, by dotted name; sizes are elements."""
    stage = choice.stage
    if not stage:
        return {}
    bucket = _bucket(choice, profile)
    alone = choice.processes == 1
    overlap = "one rank sends nothing" if alone else "gradients are reduced while backward goes on"
    found = {
        ZERO + "reduce_bucket_size": bucket,
        ZERO + "overlap_comm": _chosen(not alone, overlap, num_processes=choice.processes),
        ZERO + "contiguous_gradients": _chosen(True, "gradients are copied together as they come: no fragments"),
    }
    if stage < 3:
        return found | {ZERO + "allgather_bucket_size": bucket}
    found[ZERO + "stage3_prefetch_bucket_size"] = bucket
    trained = facts.trainable or 0
    shard = trained // choice.processes
    if choice.offload_optimizer == "nvme" or (choice.offload_optimizer == "none" and shard > SUB_GROUP):
        why = f"the optimizer's temporaries are those of one group, not of the rank's {shard / 1e9:.1f}e9 elements"
        given = {"trainable_parameters": trained, "num_processes": choice.processes}
        found[ZERO + "sub_group_size"] = _chosen(SUB_GROUP, why, **given)
    return found


def _bucket(choice: Choice, profile: HardwareProfile) -> Decision:
    """Elements of one bucket."""
    if choice.processes == 1:
        return _chosen(LEAST, "one rank sends nothing: no need for a large bucket", num_processes=1)
    between = choice.nodes > 1
    link = profile.link_between_nodes if between else profile.link_within_node
    latency = rates.LATENCY_BETWEEN_US if between else rates.LATENCY_WITHIN_US
    where = "between the nodes" if between else "within the node"
    if link is None or (link.gb_s is None and link.busbw_gb_s is None):
        why = f"the link {where} is not known: enough for any usual one"
        return _chosen(UNKNOWN_LINK, why)
    if link.busbw_gb_s is not None:
        speed = link.busbw_gb_s
    else:
        share = rates.LINK.get(link.kind, rates.LINK_ELSEWHERE).expected
        speed = share * (link.gb_s or 0.0) / 2
    wait = link.latency_us if link.latency_us is not None else latency.expected
    wanted = int(speed * 1e9 * wait * 1e-6 * TRANSFERS / WIDTH)
    size = min(MOST, max(LEAST, round(wanted, -6)))
    why = f"{TRANSFERS} x the latency of {link.kind} {where} ({wait:g} us) at {speed:.0f} GB/s, {WIDTH} bytes each"
    if size != round(wanted, -6):
        why += f", at least {LEAST} and at most {MOST}"
    return _chosen(size, why, link=link.kind, gb_s=round(speed, 1), latency_us=wait)


def aio(profile: HardwareProfile) -> dict[str, Decision]:
    """DeepSpeed's asynchronous I/O for the node's drives. Source: deepspeed/runtime/swap_tensor/constants.py."""
    reads = [mount.read_gb_s for mount in profile.host.nvme if mount.read_gb_s] if profile.host else []
    fast = bool(reads) and max(reads) >= FAST_DRIVE_GB_S
    speed = f"the drive reads {max(reads):.1f} GB/s" if reads else "the drive was not measured (probe --measure)"
    depth, threads = (32, 4) if fast else (8, 1)
    given = {"read_gb_s": max(reads)} if reads else {}
    return {
        "aio.block_size": _chosen(1 << 20, f"requests of 1 MiB; {speed}", **given),
        "aio.queue_depth": _chosen(depth, f"requests in flight for each thread; {speed}", **given),
        "aio.intra_op_parallelism": _chosen(threads, f"threads for each file; {speed}", **given),
        "aio.overlap_events": _chosen(True, "requests are submitted while others are still running"),
    }


def _chosen(value: Any, why: str, **inputs: Any) -> Decision:
    return Decision(value, f"zerocfg's choice: {why}", "chosen", inputs=inputs)
