"""ZC7xx: keys of the accelerate config that the launcher does not hand on, or hands on long after they were needed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    TRAINERS,
    accelerate_data,
    accelerate_section,
    anchor,
    edited,
    ignored,
    stage_of,
    under_deepspeed_launcher,
)
from zerocfg.rules.line import at_option, line_fix, option_named, started_by, without
from zerocfg.rules.proof import ABSENT, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry

_YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
_STAGE_3 = (
    "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: %s\n"
    "  zero3_save_16bit_model: true\n"
)
_LINE = "accelerate launch --config_file accelerate.yaml %strain.py\n"


@rule(
    "ZC706",
    "cpu-not-used",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML + "use_cpu: true\n"}).finds("error", "accelerate.yaml: use_cpu: true"),
    good=Example({"accelerate.yaml": "distributed_type: 'NO'\nnum_processes: 1\nuse_cpu: true\n"}),
    proof=shows("launch", {"read.use_cpu": (True, True), "env.ACCELERATE_USE_CPU": (ABSENT, "True")}),
    fixable=True,
    references=("accelerate/utils/launch.py@1.15.0",),
)
def cpu_not_used(run: Run) -> Iterator[Finding]:
    """`use_cpu: true` with a distributed type that does not look at it.

    A trial run that was meant for the processors takes the accelerators.

    What happens: only the launcher of a single process passes it on; with DEEPSPEED, FSDP or MULTI_GPU it is
    dropped.

    Fix: removes the key, which changes nothing in what runs.

    When to ignore: the file is also used with `--cpu`.
    """
    for item in ignored(run, "ZC706"):
        location, related = anchor(run, [item.place])
        fix = edited(delete_entry, item.place.file, item.place.path, why="remove the key")
        yield Finding(location, item.message, "remove it, or write `distributed_type: MULTI_CPU`", related, fix)


@rule(
    "ZC708",
    "key-never-taken-from-file",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _YAML + "enable_cpu_affinity: true\n"}).finds(
        "warning", "accelerate.yaml: enable_cpu_affinity: true"
    ),
    good=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % "--enable_cpu_affinity "}),
    proof=shows("launch", {"read.enable_cpu_affinity": (True, ABSENT), "env.ACCELERATE_CPU_AFFINITY": (ABSENT, "1")}),
    fixable=True,
    references=("accelerate/commands/launch.py@1.15.0",),
)
def key_never_taken_from_file(run: Run) -> Iterator[Finding]:
    """A key of the accelerate config that the launcher never takes from a file.

    The rendezvous or the binding to cores that somebody measured is not in effect.

    What happens: rdzv_backend, enable_cpu_affinity, downcast_bf16 and tpu_use_sudo are options with a default, and the
    file is asked only for options without one. On the command line they work. `same_network`, which `accelerate config`
    writes into every file, is one of them; nothing is lost by it, and nothing is told.

    Fix: removes the key, which changes nothing in what runs.

    When to ignore: the file is written by `accelerate config` and the value is the default.
    """
    for item in ignored(run, "ZC708"):
        name = str(item.place.path[-1])
        value = accelerate_data(run).get(name)
        if name == "downcast_bf16" and str(value).lower() in ("no", "false"):
            continue
        if name == "same_network":  # `accelerate config` writes it into every file
            continue
        location, related = anchor(run, [item.place])
        harmless = name in ("tpu_use_sudo", "downcast_bf16")
        yield Finding(
            location,
            f"the launcher never takes `{name}` from a config file: {show(value)} has no effect",
            "" if harmless else f"give --{name} on the command line",
            related,
            edited(delete_entry, item.place.file, item.place.path, why="remove the key"),
            severity=Severity.NOTE if harmless else None,
        )


@rule(
    "ZC712",
    "section-without-effect",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _YAML + "dynamo_config: {dynamo_backend: INDUCTOR}\n"}).finds(
        "warning", "accelerate.yaml: dynamo_config"
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_config:\n  dynamo_backend: "
            "INDUCTOR\n"
        }
    ),
    proof=shows(
        "launch",
        {
            "read.dynamo_config.dynamo_backend": ("INDUCTOR", "INDUCTOR"),
            "env.ACCELERATE_DYNAMO_BACKEND": (ABSENT, "INDUCTOR"),
        },
    ),
    fixable=True,
    references=("accelerate/utils/launch.py@1.15.0",),
)
def section_without_effect(run: Run) -> Iterator[Finding]:
    """`dynamo_config` with DeepSpeed, or `fp8_config` without `mixed_precision: fp8`.

    The speed that was counted on does not come.

    What happens: the DeepSpeed launcher exports no compile settings, and fp8 settings are exported with fp8 only.
    The model is not compiled, nothing runs in fp8, and nothing is said.

    Fix: removes the section, which changes nothing in what runs.

    When to ignore: the section waits for a launch line with `--mixed_precision fp8`, or without DeepSpeed.
    """
    for item in ignored(run, "ZC712"):
        if item.kind == "dynamo-ignored":
            section = accelerate_section(run, "dynamo_config")
            backend = section.get("dynamo_backend", section.get("backend"))
            if str(backend).lower() in ("no", "false", "none"):
                continue
        location, related = anchor(run, [item.place], "key")
        fix = edited(delete_entry, item.place.file, item.place.path, why="remove the section")
        yield Finding(location, item.message, "", related, fix)


@rule(
    "ZC724",
    "init-flag-does-not-stop-sharding",
    Severity.NOTE,
    consumers=TRAINERS,
    bad=Example(
        {
            "accelerate.yaml": _STAGE_3 % 3 + "  zero3_init_flag: false\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n",
        },
        consumer="transformers",
    ).finds("note", "accelerate.yaml: zero3_init_flag: false", 3),
    good=Example(
        {
            "accelerate.yaml": _STAGE_3 % 2 + "  zero3_init_flag: false\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n",
        },
        consumer="transformers",
    ),
    proof=shows(
        "arguments",
        {"read.deepspeed_config.zero3_init_flag": (False, False), "model.partitioned": (True, False)},
    ),
    fixable=True,
    references=("transformers/modeling_utils.py@5.23.0", "accelerate/utils/operations.py@1.15.0"),
)
def init_flag_does_not_stop_sharding(run: Run) -> Iterator[Finding]:
    """`zero3_init_flag: false` at ZeRO stage 3.

    Who writes it wants whole weights while the model is built, to change or to count them, and gets empty ones.

    What happens: `from_pretrained` asks only whether the stage is 3 and shards every parameter as it loads. The flag
    only makes accelerate's own helper for gathering parameters do nothing.

    Fix: removes the key; at stage 3 it is true by default.

    When to ignore: the model is not loaded by `from_pretrained`.
    """
    if accelerate_section(run).get("zero3_init_flag") is not False or run.accelerate is None:
        return
    if stage_of(run) != 3 or not under_deepspeed_launcher(run):
        return
    path = ("deepspeed_config", "zero3_init_flag")
    yield Finding(
        Location(run.accelerate, path),
        "`zero3_init_flag: false` does not keep `from_pretrained` from sharding the weights at stage 3",
        "remove it",
        fix=edited(delete_entry, run.accelerate, path, why="remove the key", safe=False),
    )


@rule(
    "ZC723",
    "debug-left-on",
    Severity.WARNING,
    bad=(
        Example({"accelerate.yaml": "debug: true\n" + _YAML}).finds("warning", "accelerate.yaml: debug: true"),
        Example({"accelerate.yaml": _YAML, "train.sh": _LINE % "--debug "}).finds("warning", "train.sh: --debug"),
    ),
    good=Example({"accelerate.yaml": _YAML}),
    proof=shows("step", {"env.ACCELERATE_DEBUG_MODE": ("true", ABSENT), "accelerator.checks": (1, 0)}, ranks=2),
    fixable=True,
    references=("accelerate/utils/operations.py@1.15.0", "accelerate/state.py@1.15.0"),
)
def debug_left_on(run: Run) -> Iterator[Finding]:
    """accelerate's debug mode is on.

    Each gather, reduce and broadcast is preceded by another collective that compares the shapes on all processes. It
    finds a hang's cause, and slows every step down for as long as it stays on.

    What happens: the launcher exports `ACCELERATE_DEBUG_MODE=true`. Before a tensor is gathered the processes then
    exchange its shapes, each time.

    Fix: removes the key or the option.

    When to ignore: you are looking for a hang right now.
    """
    given = option_named(run, "debug")
    if given is not None and started_by(run, "accelerate"):
        fix = line_fix(run, "remove --debug", without(run, given))
        yield Finding(at_option(run, given), "--debug adds a collective to every operation", "remove it", fix=fix)
    elif accelerate_data(run).get("debug") is True and run.accelerate is not None:
        yield Finding(
            Location(run.accelerate, ("debug",)),
            "`debug: true` adds a collective to every gather, reduce and broadcast",
            "remove it when the hang is found",
            fix=edited(delete_entry, run.accelerate, ("debug",), why="remove the key", safe=False),
        )


RULES = (
    debug_left_on,
    init_flag_does_not_stop_sharding,
    cpu_not_used,
    key_never_taken_from_file,
    section_without_effect,
)
