"""ZC4xx: ZenFlow, the optimizer offload that updates important gradients first."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, deepspeed_data, effective_value, section, stage_of
from zerocfg.rules.fixes import edited, put
from zerocfg.rules.offload.devices import device
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import number, truth
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Path

_ZENFLOW: Path = ("zero_optimization", "zenflow")


def _zenflow(run: Run) -> dict[str, object] | None:
    """The section, also where it is empty: its presence switches ZenFlow on."""
    value = section(run, "zero_optimization").get("zenflow")
    return value if isinstance(value, dict) and run.deepspeed is not None else None


def _written(run: Run, key: str) -> Path:
    """The place of a key of the section, or the section where the key is absent."""
    return (*_ZENFLOW, key) if key in (_zenflow(run) or {}) else _ZENFLOW


def _set(run: Run, key: str, text: str, why: str) -> Fix | None:
    return put(run.deepspeed, (*_ZENFLOW, key), text, why=why)


@rule("ZC431", "zenflow-without-offload", Severity.ERROR)
def zenflow_without_offload(run: Run) -> Iterator[Finding]:
    if _zenflow(run) is None or stage_of(run) not in (1, 2) or run.deepspeed is None:
        return
    where = device(run, "offload_optimizer")
    if where != "none":
        return
    path = ("zero_optimization", "offload_optimizer")
    written = isinstance(section(run, path[0]).get(path[1]), dict)
    yield Finding(
        Location(run.deepspeed, _ZENFLOW, "key"),
        "`zenflow` needs the optimizer on the CPU; DeepSpeed stops when the engine is built",
        'add "offload_optimizer": {"device": "cpu"}, or remove `zenflow`',
        fix=put(
            run.deepspeed,
            (*path, "device") if written else path,
            '"cpu"' if written else '{"device": "cpu"}',
            why="offload the optimizer",
        ),
    )


@rule("ZC432", "zenflow-interval-and-strategy", Severity.ERROR)
def zenflow_interval_and_strategy(run: Run) -> Iterator[Finding]:
    zenflow = _zenflow(run)
    if zenflow is None or run.deepspeed is None:
        return
    strategy, interval = zenflow.get("select_strategy", "auto"), zenflow.get("select_interval", "auto")
    if strategy == "auto" and isinstance(interval, int) and not isinstance(interval, bool):
        yield Finding(
            Location(run.deepspeed, _written(run, "select_interval")),
            f'`select_interval` {interval} needs a `select_strategy`: under "auto" DeepSpeed refuses a number',
            'write "select_strategy": "step" or "epoch", or remove the interval',
            fix=_set(run, "select_strategy", '"step"', "count the interval in steps"),
        )
    elif strategy in ("step", "epoch") and interval == "auto":
        yield Finding(
            Location(run.deepspeed, _written(run, "select_strategy")),
            f'`select_strategy: "{strategy}"` needs a number as `select_interval`; DeepSpeed stops at "auto"',
            "write the interval as a number",
            fix=_set(run, "select_strategy", '"auto"', "leave the choice to ZenFlow"),
        )


@rule("ZC433", "zenflow-selects-too-often", Severity.ERROR)
def zenflow_selects_too_often(run: Run) -> Iterator[Finding]:
    zenflow = _zenflow(run)
    if zenflow is None or run.deepspeed is None or zenflow.get("select_strategy") != "step":
        return
    select, update = zenflow.get("select_interval"), zenflow.get("update_interval")
    if isinstance(select, int) and isinstance(update, int) and 0 < select < update:
        path = (*_ZENFLOW, "select_interval")
        yield Finding(
            Location(run.deepspeed, path),
            f"`select_interval` {select} is shorter than `update_interval` {update}; DeepSpeed refuses that",
            f"write at least {update}",
            [Location(run.deepspeed, (*_ZENFLOW, "update_interval"), label="the update interval")],
            edited(replace_value, run.deepspeed, path, str(update), why=f"select every {update} steps", safe=False),
        )


@rule("ZC434", "zenflow-replaces-accumulation", Severity.ERROR)
def zenflow_replaces_accumulation(run: Run) -> Iterator[Finding]:
    zenflow, steps = _zenflow(run), effective_value(run, "gradient_accumulation_steps")
    if zenflow is None or run.deepspeed is None or stage_of(run) not in (1, 2, 3):
        return
    update = zenflow.get("update_interval", "auto")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps <= 1 or update == steps:
        return
    if update != "auto" and not isinstance(number(update), int):
        return
    becomes = "0 (its default, auto)" if "update_interval" not in zenflow else 0 if update == "auto" else update
    setting = run.effective.get("gradient_accumulation_steps")
    other = setting.origin if setting else None
    related = [Location(other.file, other.path, label="the accumulation")] if other and other.file else []
    yield Finding(
        Location(run.deepspeed, _written(run, "update_interval")),
        f"gradients are accumulated over {steps} steps, but ZenFlow's `update_interval` makes that {becomes}",
        f'write "update_interval": {steps}',
        related,
        _set(run, "update_interval", f"{steps}", "update as often as gradients are accumulated"),
    )


@rule("ZC435", "zenflow-without-optimizer", Severity.ERROR)
def zenflow_without_optimizer(run: Run) -> Iterator[Finding]:
    optimizer = deepspeed_data(run).get("optimizer")
    if _zenflow(run) is None or run.deepspeed is None or stage_of(run) not in (1, 2):
        return
    if device(run, "offload_optimizer") not in ("cpu", "nvme"):
        return
    if optimizer is None or (isinstance(optimizer, dict) and optimizer.get("params") is None):
        names = ("lr", "betas", "eps", "weight_decay")
        text = '{"type": "AdamW", "params": {%s}}' % ", ".join(f'"{name}": "auto"' for name in names)  # noqa: UP031
        fix = None
        if run.consumer in TRAINERS and "optimizer" not in deepspeed_data(run):
            fix = edited(insert_entry, run.deepspeed, (), "optimizer", text, why="let ZenFlow build AdamW", safe=False)
        yield Finding(
            Location(run.deepspeed, _ZENFLOW, "key"),
            "`zenflow` takes its optimizer from `optimizer.params`, which is not there; the engine cannot be built",
            'add an "optimizer" of type AdamW with its "params"',
            fix=fix,
        )


@rule("ZC436", "zenflow-at-stage-0", Severity.ERROR)
def zenflow_at_stage_0(run: Run) -> Iterator[Finding]:
    if _zenflow(run) is not None and stage_of(run) == 0 and run.deepspeed is not None:
        yield Finding(
            Location(run.deepspeed, _ZENFLOW, "key"),
            "`zenflow` needs ZeRO, which is off at stage 0; the first step stops with an AttributeError",
            "use stage 1 or 2 with optimizer offload, or remove `zenflow`",
        )


@rule("ZC437", "zenflow-offload-without-overlap", Severity.ERROR)
def zenflow_offload_without_overlap(run: Run) -> Iterator[Finding]:
    zenflow, stage = _zenflow(run), stage_of(run)
    if zenflow is None or run.deepspeed is None or stage not in (1, 2) or not truth(zenflow.get("offload")):
        return
    if device(run, "offload_optimizer") not in ("cpu", "nvme"):
        return
    if effective_value(run, "zero_optimization.overlap_comm") is not False:
        return
    yield Finding(
        Location(run.deepspeed, (*_ZENFLOW, "offload")),
        "`zenflow.offload` needs `overlap_comm`, which is off; DeepSpeed stops when the engine is built",
        'write "overlap_comm": true, or remove `offload`',
        fix=put(run.deepspeed, ("zero_optimization", "overlap_comm"), "true", why="overlap the communication"),
    )
