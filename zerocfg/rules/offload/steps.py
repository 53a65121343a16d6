"""ZC5xx: which optimizer steps on the host, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import TRAINERS, deepspeed_data, effective_value, section, stage_of
from zerocfg.rules.fixes import edited, present
from zerocfg.rules.offload.devices import number_of, on_host, place
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

_ZERO = ("zero_optimization",)


def optimizer_type(run: Run) -> str | None:
    """The optimizer of the DeepSpeed config, in small letters."""
    name = section(run, "optimizer").get("type")
    return name.lower() if isinstance(name, str) else None


@rule("ZC512", "torch-adam-on-the-host", Severity.WARNING)
def torch_adam_on_the_host(run: Run) -> Iterator[Finding]:
    path = ("optimizer", "params", "torch_adam")
    if optimizer_type(run) not in ("adam", "adamw") or stage_of(run) not in (1, 2, 3):
        return
    if section(run, *path[:2]).get("torch_adam") is True and on_host(run, "offload_optimizer"):
        location, related = place(run, "offload_optimizer")
        yield Finding(
            Location(run.deepspeed or location.file, path),
            "the optimizer is offloaded, but `torch_adam` makes torch's AdamW of it instead of DeepSpeedCPUAdam: "
            "a slow step on the processors",
            "remove `torch_adam`",
            [location, *related],
            fix=edited(delete_entry, run.deepspeed, path, why="let DeepSpeedCPUAdam step", safe=False),
        )


@rule("ZC513", "cpu-adam-switched-off", Severity.WARNING, consumers=TRAINERS)
def cpu_adam_switched_off(run: Run) -> Iterator[Finding]:
    key = "zero_force_ds_cpu_optimizer"
    data = deepspeed_data(run)
    if run.deepspeed is None or data.get(key) is not False or "optimizer" in data:
        return
    asked = argument(run, "optim")
    if asked is None or asked.held != "adamw_torch" or not on_host(run, "offload_optimizer"):
        return
    if stage_of(run) in (1, 2, 3) and effective_value(run, "engine") == "deepspeed":
        yield Finding(
            Location(run.deepspeed, (key,)),
            f"`{key}: false` lets torch's AdamW (`optim: {asked.held}`) step on the processors instead of "
            "DeepSpeedCPUAdam",
            "remove the key",
            [asked.at("entry")],
            fix=edited(delete_entry, run.deepspeed, (key,), why="let DeepSpeedCPUAdam step", safe=False),
        )


@rule("ZC514", "ratio-with-another-optimizer", Severity.ERROR)
def ratio_with_another_optimizer(run: Run) -> Iterator[Finding]:
    path = (*_ZERO, "offload_optimizer", "ratio")
    ratio = number_of(section(run, *path[:2]).get("ratio"))
    name = optimizer_type(run)
    if ratio is None or not 0 <= ratio < 1 or name is None or run.deepspeed is None:
        return
    torch_adam = section(run, "optimizer", "params").get("torch_adam") is True
    if name in ("adam", "adamw") and not torch_adam:
        return
    if stage_of(run) == 3 and on_host(run, "offload_optimizer"):
        written = section(run, "optimizer")["type"]
        yield Finding(
            Location(run.deepspeed, path),
            f"`ratio` {show(ratio)} works with DeepSpeedCPUAdam only, and `{written}`"
            + (" with `torch_adam`" if torch_adam else "")
            + " becomes another optimizer; the engine stops when it is built",
            "remove the ratio, or use AdamW",
            [Location(run.deepspeed, ("optimizer", "type"))],
            fix=edited(delete_entry, run.deepspeed, path, why="offload all of it", safe=False),
        )


@rule("ZC515", "ratio-of-too-few-groups", Severity.ERROR, needs={"model"})
def ratio_of_too_few_groups(run: Run) -> Iterator[Finding]:
    path = (*_ZERO, "offload_optimizer", "ratio")
    ratio = number_of(section(run, *path[:2]).get("ratio"))
    size = number_of(effective_value(run, "zero_optimization.sub_group_size"))
    total = run.model.parameters if run.model else None
    if ratio is None or not 0 <= ratio < 1 or not total or not size or size < 1 or run.deepspeed is None:
        return
    ranks = number_of(effective_value(run, "num_processes")) or 1
    share = total / max(ranks, 1)
    groups = int(share // size) + 1
    if stage_of(run) != 3 or not on_host(run, "offload_optimizer") or int((1 - ratio) * groups) > 0:
        return
    yield Finding(
        Location(run.deepspeed, path),
        f"`ratio` {show(ratio)} offloads everything: a rank's {share:,.0f} elements are "
        f"{'one group' if groups == 1 else f'{groups} groups'} of `sub_group_size` {size:,.0f}, of which none stays "
        "on the accelerator",
        "lower sub_group_size",
        fix=_sub_group_size(run, max(1, int(share / 10))),
    )


def _sub_group_size(run: Run, size: int) -> Fix | None:
    path = (*_ZERO, "sub_group_size")
    why = "divide a rank's share into ten groups"
    if present(run.deepspeed, path):
        return edited(replace_value, run.deepspeed, path, str(size), why=why, safe=False)
    return edited(insert_entry, run.deepspeed, _ZERO, "sub_group_size", str(size), why=why, safe=False)
