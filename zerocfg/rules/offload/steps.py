"""ZC5xx: which optimizer steps on the host, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import (
    TRAINERS,
    deepspeed_data,
    edited,
    effective,
    present,
    section,
    stage_of,
)
from zerocfg.rules.offload.devices import number_of, on_host, place
from zerocfg.rules.proof import Between, crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

_ZERO = ("zero_optimization",)
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_ADAM = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4%s}}, '
    '"zero_optimization": {"stage": %s}}\n'
)
_TRAINER = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", %s'
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\noptim: adamw_torch\n"
_CPU = '"offload_optimizer": {"device": "cpu"%s}'
_SAVED = '3, "stage3_gather_16bit_weights_on_model_save": true, "reduce_bucket_size": 1000000, '


def optimizer_type(run: Run) -> str | None:
    """The optimizer of the DeepSpeed config, in small letters."""
    name = section(run, "optimizer").get("type")
    return name.lower() if isinstance(name, str) else None


@rule(
    "ZC512",
    "torch-adam-on-the-host",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _ADAM % (', "torch_adam": true', "2, " + _CPU % "")},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "torch_adam": true', also=('ds.json: "device": "cpu"',)),
    good=Example({"ds.json": _ADAM % ("", "2, " + _CPU % "")}, consumer="deepspeed"),
    proof=shows("init", {"engine.optimizer": ("AdamW", "DeepSpeedCPUAdam")}),
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8",),
)
def torch_adam_on_the_host(run: Run) -> Iterator[Finding]:
    """`torch_adam: true` for an optimizer that is offloaded.

    The step then takes several times as long: every parameter is updated on the processors, and DeepSpeedCPUAdam was
    written because torch's own loop is slow there.

    What happens: DeepSpeed builds `torch.optim.AdamW` in place of DeepSpeedCPUAdam. The check that otherwise speaks
    of "poor performance" looks only at optimizers that a script brings.

    Fix: removes `torch_adam`; DeepSpeedCPUAdam computes the same update.

    When to ignore: DeepSpeedCPUAdam cannot be compiled on the machine.
    """
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


@rule(
    "ZC513",
    "cpu-adam-switched-off",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _TRAINER % '"zero_force_ds_cpu_optimizer": false, ', "recipe.yaml": _RECIPE},
        consumer="transformers",
    ).finds("warning", 'ds.json: "zero_force_ds_cpu_optimizer": false', also=("recipe.yaml: optim: adamw_torch",)),
    good=Example({"ds.json": _TRAINER % "", "recipe.yaml": _RECIPE}, consumer="transformers"),
    proof=shows("init", {"engine.optimizer": ("AdamW", "DeepSpeedCPUAdam")}),
    consumers=TRAINERS,
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8", "deepspeedai/DeepSpeed#2971"),
)
def cpu_adam_switched_off(run: Run) -> Iterator[Finding]:
    """`zero_force_ds_cpu_optimizer: false` for an AdamW that is offloaded.

    torch's AdamW steps on the processors, where DeepSpeedCPUAdam would compute the same update several times faster.

    What happens: the optimizer of the training arguments is kept. With the key at its default, DeepSpeed refuses
    that: `You are using ZeRO-Offload with a client provided optimizer (...) which in most cases will yield poor
    performance.`

    Fix: removes the key.

    When to ignore: DeepSpeedCPUAdam cannot be compiled on the machine.
    """
    key = "zero_force_ds_cpu_optimizer"
    data = deepspeed_data(run)
    if run.deepspeed is None or data.get(key) is not False or "optimizer" in data:
        return
    asked = argument(run, "optim")
    if asked is None or asked.held != "adamw_torch" or not on_host(run, "offload_optimizer"):
        return
    if stage_of(run) in (1, 2, 3) and effective(run, "engine") == "deepspeed":
        yield Finding(
            Location(run.deepspeed, (key,)),
            f"`{key}: false` lets torch's AdamW (`optim: {asked.held}`) step on the processors instead of "
            "DeepSpeedCPUAdam",
            "remove the key",
            [asked.at("entry")],
            fix=edited(delete_entry, run.deepspeed, (key,), why="let DeepSpeedCPUAdam step", safe=False),
        )


@rule(
    "ZC514",
    "ratio-with-another-optimizer",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _ADAM % (', "torch_adam": true', _SAVED + _CPU % ', "ratio": 0.5')},
        consumer="deepspeed",
    ).finds("error", 'ds.json: "ratio": 0.5', "0.5", also=('ds.json: "type": "AdamW"',)),
    good=Example({"ds.json": _ADAM % ("", _SAVED + _CPU % ', "ratio": 0.5')}, consumer="deepspeed"),
    proof=crashes("init", "Hybrid Optimizer Only Supports DeepSpeedCPUAdam"),
    fixable=True,
    references=("deepspeed/runtime/zero/stage3.py@0.19.8",),
)
def ratio_with_another_optimizer(run: Run) -> Iterator[Finding]:
    """A partial offload (`ratio` below 1) of an optimizer that is not DeepSpeedCPUAdam.

    The job ends after the model was loaded. Only Adam has the twin that steps on the accelerator.

    What happens: `AssertionError: Hybrid Optimizer Only Supports DeepSpeedCPUAdam` when the engine is built.

    Fix: removes the ratio, so that the whole optimizer is offloaded.
    """
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


_SMALL_MODEL = (
    "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n    deepspeed: ds.json\n"
    "    model: {parameters: 1073472, hidden_size: 64}\n"
)


@rule(
    "ZC515",
    "ratio-of-too-few-groups",
    Severity.ERROR,
    bad=Example({"zerocfg.yaml": _SMALL_MODEL, "ds.json": _ADAM % ("", _SAVED + _CPU % ', "ratio": 0.5')}).finds(
        "error", 'ds.json: "ratio": 0.5', "0.5", "1,073,472", "1,000,000,000"
    ),
    good=Example(
        {
            "zerocfg.yaml": _SMALL_MODEL,
            "ds.json": _ADAM % ("", _SAVED + '"sub_group_size": 100000, ' + _CPU % ', "ratio": 0.5'),
        }
    ),
    proof=shows(
        "init",
        {"optimizer.partial_offload": (0.5, 0.5), "optimizer.fp16_partitioned_groups_flat": (1, Between(4, 12))},
    ),
    fixable=True,
    needs={"model"},
    references=("deepspeed/runtime/zero/stage3.py@0.19.8",),
)
def ratio_of_too_few_groups(run: Run) -> Iterator[Finding]:
    """A partial offload (`ratio` below 1) that rounds to an offload of everything.

    The accelerator keeps memory free that the ratio was to fill, and the step stays as slow as with a full offload.

    What happens: the optimizer works through groups of `sub_group_size` elements (1e9 by default), and
    `int((1 - ratio) * groups)` of them stay on the accelerator. A rank whose share of the model is a single group
    keeps `int((1 - 0.5) * 1)`, none.

    Fix: a `sub_group_size` that divides a rank's share into ten.

    When to ignore: never; a full offload is written as no ratio at all.
    """
    path = (*_ZERO, "offload_optimizer", "ratio")
    ratio = number_of(section(run, *path[:2]).get("ratio"))
    size = number_of(effective(run, "zero_optimization.sub_group_size"))
    total = run.model.parameters if run.model else None
    if ratio is None or not 0 <= ratio < 1 or not total or not size or size < 1 or run.deepspeed is None:
        return
    ranks = number_of(effective(run, "num_processes")) or 1
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


RULES = (
    torch_adam_on_the_host,
    cpu_adam_switched_off,
    ratio_with_another_optimizer,
    ratio_of_too_few_groups,
)
