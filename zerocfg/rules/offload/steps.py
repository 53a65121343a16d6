"""ZC5xx: which optimizer steps on the host, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import TRAINERS, effective_value, stage_of
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.offload.devices import device_key, number_of, on_host
from zerocfg.rules.subjects import in_deepspeed, in_zero
from zerocfg.run.model import Run


def optimizer_type(run: Run) -> str | None:
    """The optimizer of the DeepSpeed config, in small letters."""
    name = deepspeed(run, "optimizer", "type").value
    return name.lower() if isinstance(name, str) else None


@rule("ZC512", "torch-adam-on-the-host", Severity.WARNING, in_deepspeed("optimizer", "params", "torch_adam"))
def torch_adam_on_the_host(key: Key) -> Iterator[Finding]:
    if key.value is not True or optimizer_type(key.run) not in ("adam", "adamw") or stage_of(key.run) not in (1, 2, 3):
        return
    if on_host(key.run, "offload_optimizer"):
        yield key.finding(
            "the optimizer is offloaded, but `torch_adam` makes torch's AdamW of it instead of DeepSpeedCPUAdam: "
            "a slow step on the processors",
            "remove `torch_adam`",
            [device_key(key.run, "offload_optimizer")],
            fix=key.delete("let DeepSpeedCPUAdam step", safe=False),
        )


@rule(
    "ZC513", "cpu-adam-switched-off", Severity.WARNING, in_deepspeed("zero_force_ds_cpu_optimizer"), consumers=TRAINERS
)
def cpu_adam_switched_off(key: Key) -> Iterator[Finding]:
    if key.value is not False or "optimizer" in deepspeed(key.run):
        return
    asked = argument(key.run, "optim")
    if asked is None or asked.held != "adamw_torch" or not on_host(key.run, "offload_optimizer"):
        return
    if stage_of(key.run) in (1, 2, 3) and effective_value(key.run, "engine") == "deepspeed":
        yield key.finding(
            f"`{key.name}: false` lets torch's AdamW (`optim: {asked.held}`) step on the processors instead of "
            "DeepSpeedCPUAdam",
            "remove the key",
            [asked.at("entry")],
            fix=key.delete("let DeepSpeedCPUAdam step", safe=False),
        )


@rule("ZC514", "ratio-with-another-optimizer", Severity.ERROR, in_zero("offload_optimizer", "ratio"))
def ratio_with_another_optimizer(key: Key) -> Iterator[Finding]:
    optimizer = deepspeed(key.run, "optimizer")
    ratio, name = number_of(key.value), optimizer_type(key.run)
    if ratio is None or not 0 <= ratio < 1 or name is None:
        return
    torch_adam = optimizer["params"].get("torch_adam") is True
    if name in ("adam", "adamw") and not torch_adam:
        return
    if stage_of(key.run) == 3 and on_host(key.run, "offload_optimizer"):
        yield key.finding(
            f"`ratio` {show(ratio)} works with DeepSpeedCPUAdam only, and `{optimizer.get('type')}`"
            + (" with `torch_adam`" if torch_adam else "")
            + " becomes another optimizer; the engine stops when it is built",
            "remove the ratio, or use AdamW",
            [optimizer["type"]],
            fix=key.delete("offload all of it", safe=False),
        )


@rule("ZC515", "ratio-of-too-few-groups", Severity.ERROR, in_zero("offload_optimizer", "ratio"), needs={"model"})
def ratio_of_too_few_groups(key: Key) -> Iterator[Finding]:
    run = key.run
    ratio = number_of(key.value)
    size = number_of(effective_value(run, "zero_optimization.sub_group_size"))
    total = run.model.parameters if run.model else None
    if ratio is None or not 0 <= ratio < 1 or not total or not size or size < 1:
        return
    ranks = number_of(effective_value(run, "num_processes")) or 1
    share = total / max(ranks, 1)
    groups = int(share // size) + 1
    if stage_of(run) != 3 or not on_host(run, "offload_optimizer") or int((1 - ratio) * groups) > 0:
        return
    smaller = str(max(1, int(share / 10)))
    yield key.finding(
        f"`ratio` {show(ratio)} offloads everything: a rank's {share:,.0f} elements are "
        f"{'one group' if groups == 1 else f'{groups} groups'} of `sub_group_size` {size:,.0f}, of which none stays "
        "on the accelerator",
        "lower sub_group_size",
        fix=deepspeed(run, "zero_optimization", "sub_group_size").set(
            smaller, "divide a rank's share into ten groups", safe=False
        ),
    )
