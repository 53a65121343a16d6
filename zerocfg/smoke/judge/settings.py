"""The live engine against the plan, setting by setting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from zerocfg.smoke.judge import instruments
from zerocfg.smoke.judge.expected_settings import WRAPPED, ZERO, expected, optimizer_class
from zerocfg.smoke.model.certificate import ENGINE, STAGE, WORLD_SIZE, Check
from zerocfg.smoke.worker.report_schema import READ_BACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.folder import RunFolder
    from zerocfg.smoke.worker.report_schema import Held, RankReport

# Settings that have a row of their own, by their names.
SHOWN = {
    f"{ZERO}stage": STAGE,
    "train_micro_batch_size_per_gpu": "micro batch per rank",
    "gradient_accumulation_steps": "gradient accumulation",
    "gradient_clipping": "gradient clipping",
    f"{ZERO}offload_optimizer.device": "offload optimizer",
    f"{ZERO}offload_param.device": "offload parameters",
}
BY_PRECISION = ("bf16.enabled", "fp16.enabled")
BY_CLASS = ("optimizer.type",)
MASTER = ("bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads")
ROUNDING = 64
"""Elements by which DeepSpeed may fill a tensor or a group up, so that it splits evenly (a few for each rank)."""


def check(run: RunFolder, reduced: Reduced, reports: list[RankReport]) -> list[Check]:
    """Each setting of the plan against every rank's engine; those without a row of their own as `Check.further`."""
    planned = expected(run, reduced)
    checks = []
    for name, value, key in _rows(run, reduced, planned, reports):
        seen = [report["seen"].get(key) for report in reports]
        lost = any(item is None and _lost(report) for item, report in zip(seen, reports, strict=True))
        if lost:
            checks.append(instruments.unmeasured(name, instruments.why(reports, READ_BACK), show(value)))
            continue
        ok = None if value is None else all(same(value, item) for item in seen)
        checks.append(Check(name, show(value), together(seen), ok))
    checks += _states(reduced, planned, reports)
    named = {*SHOWN, *BY_PRECISION, *BY_CLASS}
    return [*checks, *(_further(name, planned[name], reports) for name in sorted(planned) if name not in named)]


def _lost(report: RankReport) -> bool:
    """Whether something was not read back because an instrument broke."""
    return any(reason and name.startswith(READ_BACK) for name, reason in report.get("instruments", {}).items())


def _engine(reduced: Reduced, reports: list[RankReport]) -> str:
    """The planned engine. On one rank accelerate wraps no model in DDP, and a loop that does it itself has both."""
    if reduced.deepspeed is not None:
        return "deepspeed"
    kind = str(reduced.plan.get("engine") or "ddp")
    alone = reduced.ranks == 1 and not any(report["seen"].get("engine") == "ddp" for report in reports)
    without = str((reduced.accelerate or {}).get("distributed_type")) in ("NO", "False")
    return "single" if kind == "ddp" and (alone or without) else kind


def _rows(
    run: RunFolder, reduced: Reduced, planned: dict[str, object], reports: list[RankReport]
) -> list[tuple[str, object, str]]:
    """(name, planned value, key of the report). None: nothing is planned, the value is noted."""
    kind = _engine(reduced, reports)
    dtype = next((name for name in ("bf16", "fp16") if _asked(reduced, name)), "fp32")
    found = [
        (ENGINE, kind, "engine"),
        (WORLD_SIZE, reduced.ranks, "world_size"),
        ("micro batch per rank", planned.get("train_micro_batch_size_per_gpu"), "micro_batch"),
        ("gradient accumulation", planned.get("gradient_accumulation_steps"), "gradient_accumulation_steps"),
        ("gradient clipping", planned.get("gradient_clipping"), "gradient_clipping"),
        ("precision", dtype, "dtype"),
    ]
    if kind == "deepspeed":
        found[1:1] = [(STAGE, planned.get(f"{ZERO}stage"), "stage")]
        for part in ("offload_optimizer", "offload_param"):
            name = f"{ZERO}{part}.device"
            found.append((SHOWN[name], planned.get(name) or "none", part))
    if reduced.trainer is not None:
        found.append(("trainer", reduced.trainer, "trainer"))
    return [*found, ("optimizer", optimizer_class(planned, run, reduced), "optimizer"), ("device", None, "device")]


def _asked(reduced: Reduced, dtype: str) -> bool:
    """Whether the plan trains in ``dtype``; without DeepSpeed the trainer's or the launcher's word counts."""
    if reduced.plan.get(f"{dtype}.enabled") is not None:
        return bool(reduced.plan[f"{dtype}.enabled"])
    return bool(reduced.arguments.get(dtype)) or (reduced.accelerate or {}).get("mixed_precision") == dtype


def _further(name: str, value: object, reports: list[RankReport]) -> Check:
    """A setting without a row of its own. Where no rank exposes it, nothing is proven."""
    sources = {
        "acting": [report["seen"].get("settings") or {} for report in reports],
        "parsed": [report["seen"].get("parsed") or {} for report in reports],
    }
    for further, parts in sources.items():
        if all(name in part for part in parts):
            seen = [part[name] for part in parts]
            if name == WRAPPED:  # accelerate shards what is left over (embeddings, the head) in units of their own
                ok = all(_classes(value) <= _classes(item) for item in seen)
                return Check(name, show(value), together(seen), ok, further)
            return Check(name, show(value), together(seen), all(same(value, item) for item in seen), further)
    return Check(name, show(value), "-", None, "unseen")


def _classes(names: object) -> set[str]:
    return {part.strip() for part in str(names).split(",")}


def _states(reduced: Reduced, planned: dict[str, object], reports: list[RankReport]) -> list[Check]:
    """Where shards, master weights and optimizer states are."""
    helds = [row for report in reports if (row := report["seen"].get("held"))]
    stage = planned.get(f"{ZERO}stage")
    if len(helds) < len(reports):
        return []
    if all(report["seen"].get("engine") == "fsdp" for report in reports):
        return _fsdp_shards(planned, helds, reduced)
    if not isinstance(stage, int):
        return []
    checks = []
    if not any(row["experts"] for row in helds):  # experts are split among other ranks than the rest
        if stage == 3:
            shards = [row.get("shard", row["parameters"]) for row in helds]
            room = [ROUNDING * row["tensors"] for row in helds]
            checks += _shards("parameters of a rank", shards, [row["parameters"] for row in helds], room, reduced)
        states = [int((report["seen"].get("states") or {}).get("elements") or 0) for report in reports]
        if stage >= 1 and all(states):
            # Stage 3 splits each tensor by itself: one element more where the ranks do not divide it.
            room = [ROUNDING * row.get("groups", 1) + (row["tensors"] if stage == 3 else 0) for row in helds]
            checks += _shards("optimizer states of a rank", states, [row["trainable"] for row in helds], room, reduced)
    masters = [row["master"] for row in helds if "master" in row]
    if len(masters) == len(helds) and stage >= 1:
        own = any(planned.get(name) for name in MASTER)
        dtype = next((name for name in ("bf16", "fp16") if own and _asked(reduced, name)), "fp32")
        seen = [", ".join(master["dtypes"]) for master in masters]
        checks.append(Check("master weights", dtype, together(seen), all(item == dtype for item in seen), "acting"))
    return [*checks, *_places(planned, reports)]


def _fsdp_shards(planned: dict[str, object], helds: list[Held], reduced: Reduced) -> list[Check]:
    """Of FSDP, where the plan shards over all ranks of the machine."""
    whole = planned.get("fsdp_config.fsdp_sharding_strategy") == "NO_SHARD"
    meshed = any(name.startswith("parallelism_config.") for name in planned)
    if whole or meshed or reduced.nodes > 1:
        return []
    shards = [states["shard"] for states in helds]
    return _shards(
        "parameters of a rank",
        shards,
        [states["parameters"] for states in helds],
        [ROUNDING * states["tensors"] for states in helds],
        reduced,
    )


def _shards(name: str, shards: list[int], whole: list[int], room: list[int], reduced: Reduced) -> list[Check]:
    """Elements that each rank keeps, against its equal share; ``room``: those that it may keep beyond that."""
    ranks = reduced.ranks
    if ranks < 2:
        return []
    ok = all(item <= total / ranks + more for item, total, more in zip(shards, whole, room, strict=True))
    seen = [f"{item:,} of {total:,}" for item, total in zip(shards, whole, strict=True)]
    return [Check(name, f"1/{ranks}", together(seen), ok)]


def _places(planned: dict[str, object], reports: list[RankReport]) -> list[Check]:
    """On a card: whether what is offloaded really lies on the host, and what is not, does not.

    On a processor both are the same memory; there the flags of the engine's objects are all that can be compared.
    """
    if not all(str(report["seen"].get("device", "")).startswith("cuda") for report in reports):
        return []
    checks = []
    places = {"cpu": "cpu", "none": "cuda"}
    device = places.get(str(planned.get(f"{ZERO}offload_optimizer.device") or "none"))
    states = [state for report in reports if (state := report["seen"].get("states"))]
    if device and len(states) == len(reports):
        expected_on = [_states_on(device, planned, report["seen"]["held"]) for report in reports]
        seen = [", ".join(state["devices"]) for state in states]
        ok = seen == expected_on if not _zenflow(planned) else None
        checks.append(Check("optimizer states on", together(expected_on), together(seen), ok))
    if device == "cpu" and planned.get(f"{ZERO}offload_optimizer.pin_memory") is not None:
        pinned = [(report["seen"]["held"].get("master") or {}).get("pinned") for report in reports]
        value = planned[f"{ZERO}offload_optimizer.pin_memory"]
        ok = None if None in pinned else all(same(value, item) for item in pinned)
        if planned.get(f"{ZERO}stage") == 3:
            # Stage 3 pins its gradients alone: its master weights are plain copies (runtime/zero/stage3.py,
            # _create_fp32_partitions), whatever is configured. Those of stages 1 and 2 are pinned.
            value, ok = None, None
        checks.append(Check("master weights pinned", show(value), together(pinned), ok, "acting"))
    device = places.get(str(planned.get(f"{ZERO}offload_param.device") or "none"))
    shards = [devices for report in reports if (devices := report["seen"]["held"].get("shard_devices"))]
    if device and len(shards) == len(reports):
        seen = [", ".join(shard) for shard in shards]
        checks.append(Check("parameters on", device, together(seen), all(item == device for item in seen)))
    return checks


def _states_on(device: str, planned: dict[str, object], states: Held) -> str:
    """Where a rank's optimizer states are expected; ``device`` is what offload_optimizer says.

    A ratio below 1 leaves the first groups on the card (runtime/zero/stage3.py, subgroup_to_device).
    """
    ratio = planned.get(f"{ZERO}offload_optimizer.ratio")
    if device != "cpu" or planned.get(f"{ZERO}stage") != 3 or not isinstance(ratio, (int, float)):
        return device
    groups = states.get("groups", 1)
    on_card = int((1 - ratio) * groups)
    return "cpu" if on_card == 0 else "cuda" if on_card >= groups else "cpu, cuda"


def _zenflow(planned: dict[str, object]) -> bool:
    """Whether ZenFlow divides the states between card and host step by step."""
    return any(name.startswith(f"{ZERO}zenflow") and value is not None for name, value in planned.items())


def same(planned: object, seen: object) -> bool:
    """Equal in meaning: 5e8 and 500000000, "inf" and infinity; true is not 1."""
    if isinstance(planned, bool) or isinstance(seen, bool):
        return planned is seen
    if isinstance(planned, (int, float)) and isinstance(seen, (int, float)):
        return math.isclose(planned, seen, rel_tol=1e-9)
    if isinstance(planned, (list, tuple)) and isinstance(seen, (list, tuple)):
        return len(planned) == len(seen) and all(map(same, planned, seen))
    return bool(planned == seen)


def together(values: Sequence[object]) -> str:
    """One value when all ranks agree, else each rank's own."""
    shown = [show(value) for value in values]
    if len(set(shown)) == 1:
        return shown[0]
    return ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(shown))


def show(value: object) -> str:
    """A value as a row shows it."""
    if value is None:
        return "-"
    if isinstance(value, float) and value.is_integer():
        return str(int(value)) if abs(value) < 1e15 else f"{value:g}"
    return str(value)
