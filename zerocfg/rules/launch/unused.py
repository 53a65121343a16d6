"""ZC7xx: keys of the accelerate config that the launcher does not hand on, or hands on long after they were needed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_data, accelerate_section, stage_of, under_deepspeed_launcher
from zerocfg.rules.failures import ignored, primary_location
from zerocfg.rules.fixes import edited
from zerocfg.rules.line import at_option, line_fix, option_named, started_by, without
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry


@rule("ZC706", "cpu-not-used", Severity.ERROR)
def cpu_not_used(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC706"):
        location, related = primary_location(run, [item.place])
        fix = edited(delete_entry, item.place.file, item.place.path, why="remove the key")
        yield Finding(location, item.message, "remove it, or write `distributed_type: MULTI_CPU`", related, fix)


@rule("ZC708", "key-never-taken-from-file", Severity.WARNING)
def key_never_taken_from_file(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC708"):
        name = str(item.place.path[-1])
        value = accelerate_data(run).get(name)
        if name == "downcast_bf16" and str(value).lower() in ("no", "false"):
            continue
        if name == "same_network":  # `accelerate config` writes it into every file
            continue
        location, related = primary_location(run, [item.place])
        harmless = name in ("tpu_use_sudo", "downcast_bf16")
        yield Finding(
            location,
            f"the launcher never takes `{name}` from a config file: {show(value)} has no effect",
            "" if harmless else f"give --{name} on the command line",
            related,
            edited(delete_entry, item.place.file, item.place.path, why="remove the key"),
            severity=Severity.NOTE if harmless else None,
        )


@rule("ZC712", "section-without-effect", Severity.WARNING)
def section_without_effect(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC712"):
        if item.kind == "dynamo-ignored":
            section = accelerate_section(run, "dynamo_config")
            backend = section.get("dynamo_backend", section.get("backend"))
            if str(backend).lower() in ("no", "false", "none"):
                continue
        location, related = primary_location(run, [item.place], "key")
        fix = edited(delete_entry, item.place.file, item.place.path, why="remove the section")
        yield Finding(location, item.message, "", related, fix)


@rule("ZC724", "init-flag-does-not-stop-sharding", Severity.NOTE, consumers=TRAINERS)
def init_flag_does_not_stop_sharding(run: Run) -> Iterator[Finding]:
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


@rule("ZC723", "debug-left-on", Severity.WARNING)
def debug_left_on(run: Run) -> Iterator[Finding]:
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
