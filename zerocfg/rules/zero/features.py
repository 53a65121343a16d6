"""ZC4xx: other sections of the DeepSpeed config: data, checkpoints, activations, experts."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import passed
from zerocfg.rules.effects import TRAINERS, WITH_ACCELERATE
from zerocfg.rules.fixes import present, together
from zerocfg.rules.issues import issues
from zerocfg.rules.key import Key, deepspeed, delete_all, recipe
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, in_deepspeed
from zerocfg.run.model import Run
from zerocfg.source.node import dotted

_DATA = "data_efficiency"
_NEEDED: tuple[tuple[tuple[str, str], str], ...] = (
    (("data_sampling", "curriculum_learning"), "curriculum_metrics"),
    (("data_sampling", "dynamic_batching"), "max_tokens"),
    (("data_routing", "random_ltd"), "total_layer_num"),
)


@rule("ZC445", "data-efficiency-incomplete", Severity.ERROR, in_deepspeed(_DATA))
def data_efficiency_incomplete(data: Key) -> Iterator[Finding]:
    for (area, name), needed in _NEEDED:
        part = data[area][name]
        key = part["enabled"]
        if key.value is True and needed not in part:
            yield key.finding(
                f"`{part.name}` is on without `{needed}`; DeepSpeed stops, whatever the switches further out say",
                f"write `{needed}`, or false here",
                fix=key.replace("false", f"switch {part.name} off", safe=False),
                versions="deepspeed>=0.16.5" if part.name == "dynamic_batching" else "",
            )


@rule("ZC446", "data-loader-of-deepspeed-not-used", Severity.ERROR, DEEPSPEED_CONFIG, consumers=WITH_ACCELERATE)
def data_loader_of_deepspeed_not_used(config: Key) -> Iterator[Finding]:
    drop_last, data = config["dataloader_drop_last"], config[_DATA]
    sampling = data["data_sampling"]
    samples = data.get("enabled") is True and sampling.get("enabled") is True
    keys = [drop_last] * (drop_last.value is True) + [sampling] * samples
    if keys:
        yield keys[0].finding(
            f"`{dotted(keys[0].path)}` has no effect: DeepSpeed makes no data loader under "
            f"{'accelerate' if config.run.consumer == 'accelerate' else 'the Trainer'}",
            "remove it; use the arguments of the Trainer or of your own loader",
            [key.at("key", "no effect either") for key in keys[1:]],
            delete_all(keys, "remove what has no effect"),
            where="key",
            severity=None if samples else Severity.WARNING,
        )


@rule("ZC454", "datastates-switched-on", Severity.ERROR, DEEPSPEED_CONFIG)
def datastates_switched_on(config: Key) -> Iterator[Finding]:
    key = config["datastates_ckpt"]
    if key and (key.value is None or key.value == {} or key.get("enabled") is False):
        yield key.finding(
            "`datastates_ckpt` is switched on by every value but a plain false, also by this one; the engine cannot be "
            "built without the DataStates library",
            "remove it, or write false",
            fix=key.delete("remove the key"),
        )


@rule("ZC455", "expert-balance-not-supported", Severity.ERROR, DEEPSPEED_CONFIG, versions="deepspeed>=0.19.2")
def expert_balance_not_supported(config: Key) -> Iterator[Finding]:
    key = config["expert_parallel"]["load_balance_coeff"]
    if isinstance(key.value, (int, float)) and not isinstance(key.value, bool):
        yield key.finding(
            f"`load_balance_coeff` {key.value} is not supported; DeepSpeed stops at every value but null",
            "remove it",
            fix=key.delete("remove the key", safe=False),
        )


@rule(
    "ZC456",
    "activation-checkpointing-not-configured",
    Severity.WARNING,
    in_deepspeed("activation_checkpointing"),
    consumers=TRAINERS,
)
def activation_checkpointing_not_configured(section: Key) -> Iterator[Finding]:
    run = section.run
    instead = recipe(run, "gradient_checkpointing")
    if not (run.recipe or passed(run)) or not any(key.value is True for key in section):
        return
    stated = bool(instead) or instead.name in run.arguments
    fix = section.delete("remove the section")
    more = None if stated else instead.set("true", "use the Trainer's")
    if fix is not None and more is not None:
        fix = together("use the Trainer's gradient checkpointing", fix, more, safe=False)
    yield section.finding(
        "`activation_checkpointing` has no effect under the Trainer: models of transformers never set it up",
        "remove it" if stated else f"write `{instead.name}: true` in the training arguments instead",
        fix=fix,
        where="key",
    )


@rule("ZC457", "key-without-effect", Severity.WARNING, WHOLE_RUN)
def key_without_effect(run: Run) -> Iterator[Finding]:
    partitions = deepspeed(run, "zero_optimization", "allgather_partitions")
    if partitions.value is False:
        yield partitions.finding(
            "`allgather_partitions: false` has no effect in DeepSpeed: parameters are gathered all the same",
            "remove it",
            fix=partitions.delete("remove the key"),
            where="key",
        )
    for inert in issues(run, "inert"):
        if inert.library != "DeepSpeed" or inert.value in (None, False, "auto") or not present(inert.file, inert.path):
            continue
        key = Key(run, inert.file, inert.path, inert.value)
        if key.name.startswith("cpu_offload"):
            continue  # deprecated as well, and reported as that
        yield key.finding(
            f"`{dotted(key.path)}` has no effect in DeepSpeed: {inert.issue.reason}",
            "remove it",
            fix=key.delete("remove the key"),
            where="key",
        )


@rule("ZC438", "accumulation-not-managed-under-accelerate", Severity.ERROR, DEEPSPEED_CONFIG, consumers=WITH_ACCELERATE)
def accumulation_not_managed_under_accelerate(config: Key) -> Iterator[Finding]:
    key = config["managed_gradient_accumulation"]
    if key.value is False:
        yield key.finding(
            "`managed_gradient_accumulation: false` is for loops of your own; accelerate's first step stops at it",
            "remove it",
            fix=key.delete("remove the key", safe=False),
        )
