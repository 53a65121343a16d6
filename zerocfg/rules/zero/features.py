"""ZC4xx: other sections of the DeepSpeed config: data, checkpoints, activations, experts."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import passed
from zerocfg.rules.effects import TRAINERS, deepspeed_data, recipe_data, section
from zerocfg.rules.fixes import edited, present, together, without
from zerocfg.rules.issues import issues
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path, dotted

_DATA = "data_efficiency"
_NEEDED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("data_sampling", "curriculum_learning"), "curriculum_metrics"),
    (("data_sampling", "dynamic_batching"), "max_tokens"),
    (("data_routing", "random_ltd"), "total_layer_num"),
)


@rule("ZC445", "data-efficiency-incomplete", Severity.ERROR)
def data_efficiency_incomplete(run: Run) -> Iterator[Finding]:
    for place, needed in _NEEDED:
        part = section(run, _DATA, *place)
        if run.deepspeed is None or part.get("enabled") is not True or needed in part:
            continue
        path = (_DATA, *place, "enabled")
        yield Finding(
            Location(run.deepspeed, path),
            f"`{place[-1]}` is on without `{needed}`; DeepSpeed stops, whatever the switches further out say",
            f"write `{needed}`, or false here",
            fix=edited(replace_value, run.deepspeed, path, "false", why=f"switch {place[-1]} off", safe=False),
            versions="deepspeed>=0.16.5" if place[-1] == "dynamic_batching" else "",
        )


@rule("ZC446", "data-loader-of-deepspeed-not-used", Severity.ERROR, consumers={"accelerate", *TRAINERS})
def data_loader_of_deepspeed_not_used(run: Run) -> Iterator[Finding]:
    data = deepspeed_data(run)
    paths: list[Path] = [("dataloader_drop_last",)] if data.get("dataloader_drop_last") is True else []
    if section(run, _DATA).get("enabled") is True and section(run, _DATA, "data_sampling").get("enabled") is True:
        paths.append((_DATA, "data_sampling"))
    if run.deepspeed is not None and paths:
        yield Finding(
            Location(run.deepspeed, paths[0], "key"),
            f"`{dotted(paths[0])}` has no effect: DeepSpeed makes no data loader under "
            f"{'accelerate' if run.consumer == 'accelerate' else 'the Trainer'}",
            "remove it; use the arguments of the Trainer or of your own loader",
            [Location(run.deepspeed, path, "key", label="no effect either") for path in paths[1:]],
            without(run.deepspeed, paths, "remove what has no effect"),
            Severity.WARNING if len(paths) == 1 and paths[0] == ("dataloader_drop_last",) else None,
        )


@rule("ZC454", "datastates-switched-on", Severity.ERROR)
def datastates_switched_on(run: Run) -> Iterator[Finding]:
    path: Path = ("datastates_ckpt",)
    value = deepspeed_data(run).get("datastates_ckpt", False)
    off = value is None or value == {} or (isinstance(value, dict) and value.get("enabled") is False)
    if run.deepspeed is not None and off:
        yield Finding(
            Location(run.deepspeed, path),
            "`datastates_ckpt` is switched on by every value but a plain false, also by this one; the engine cannot be "
            "built without the DataStates library",
            "remove it, or write false",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
        )


@rule("ZC455", "expert-balance-not-supported", Severity.ERROR, versions="deepspeed>=0.19.2")
def expert_balance_not_supported(run: Run) -> Iterator[Finding]:
    path = ("expert_parallel", "load_balance_coeff")
    value = section(run, path[0]).get(path[1])
    if run.deepspeed is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        yield Finding(
            Location(run.deepspeed, path),
            f"`load_balance_coeff` {value} is not supported; DeepSpeed stops at every value but null",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key", safe=False),
        )


@rule("ZC456", "activation-checkpointing-not-configured", Severity.WARNING, consumers=TRAINERS)
def activation_checkpointing_not_configured(run: Run) -> Iterator[Finding]:
    wanted = section(run, "activation_checkpointing")
    path: Path = ("activation_checkpointing",)
    if run.deepspeed is None or not (run.recipe or passed(run)) or not any(value is True for value in wanted.values()):
        return
    name = "gradient_checkpointing"
    other = name in recipe_data(run) or name in run.arguments
    fix = edited(delete_entry, run.deepspeed, path, why="remove the section")
    more = None if other else edited(insert_entry, run.recipe, (), name, "true", why="use the Trainer's")
    if fix is not None and more is not None:
        fix = together("use the Trainer's gradient checkpointing", fix, more, safe=False)
    yield Finding(
        Location(run.deepspeed, path, "key"),
        "`activation_checkpointing` has no effect under the Trainer: models of transformers never set it up",
        "remove it" if other else f"write `{name}: true` in the training arguments instead",
        fix=fix,
    )


@rule("ZC457", "key-without-effect", Severity.WARNING)
def key_without_effect(run: Run) -> Iterator[Finding]:
    partitions: Path = ("zero_optimization", "allgather_partitions")
    if run.deepspeed is not None and section(run, "zero_optimization").get("allgather_partitions") is False:
        yield Finding(
            Location(run.deepspeed, partitions, "key"),
            "`allgather_partitions: false` has no effect in DeepSpeed: parameters are gathered all the same",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, partitions, why="remove the key"),
        )
    for file, library, issue in issues(run, "inert"):
        if library != "DeepSpeed" or issue.value in (None, False, "auto") or not present(file, issue.path):
            continue
        if str(issue.path[-1]).startswith("cpu_offload"):
            continue  # deprecated as well, and told as that
        yield Finding(
            Location(file, issue.path, "key"),
            f"`{dotted(issue.path)}` has no effect in DeepSpeed: {issue.reason}",
            "remove it",
            fix=edited(delete_entry, file, issue.path, why="remove the key"),
        )


@rule("ZC438", "accumulation-not-managed-under-accelerate", Severity.ERROR, consumers={"accelerate", *TRAINERS})
def accumulation_not_managed_under_accelerate(run: Run) -> Iterator[Finding]:
    path: Path = ("managed_gradient_accumulation",)
    if run.deepspeed is not None and deepspeed_data(run).get("managed_gradient_accumulation") is False:
        yield Finding(
            Location(run.deepspeed, path),
            "`managed_gradient_accumulation: false` is for loops of your own; accelerate's first step stops at it",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key", safe=False),
        )
