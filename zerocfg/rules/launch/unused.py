"""ZC7xx: keys of the accelerate config that the launcher does not hand on, or hands on long after they were needed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_data, stage_of, under_deepspeed_launcher
from zerocfg.rules.key import Key, accelerate
from zerocfg.rules.line import line_option, started_by
from zerocfg.rules.subjects import IgnoredOfRun, each_ignored, in_accelerate
from zerocfg.run.model import Run


@rule("ZC706", "cpu-not-used", Severity.ERROR, each_ignored("ZC706"))
def cpu_not_used(unused: IgnoredOfRun) -> Iterator[Finding]:
    key = unused.key
    yield key.finding(
        unused.item.message, "remove it, or write `distributed_type: MULTI_CPU`", fix=key.delete("remove the key")
    )


@rule("ZC708", "key-never-taken-from-file", Severity.WARNING, each_ignored("ZC708"))
def key_never_taken_from_file(unused: IgnoredOfRun) -> Iterator[Finding]:
    key = unused.key
    name, value = key.name, accelerate_data(unused.run).get(key.name)
    if name == "downcast_bf16" and str(value).lower() in ("no", "false"):
        return
    if name == "same_network":  # `accelerate config` writes it into every file
        return
    harmless = name in ("tpu_use_sudo", "downcast_bf16")
    yield key.finding(
        f"the launcher never takes `{name}` from a config file: {show(value)} has no effect",
        "" if harmless else f"give --{name} on the command line",
        fix=key.delete("remove the key"),
        severity=Severity.NOTE if harmless else None,
    )


@rule("ZC712", "section-without-effect", Severity.WARNING, each_ignored("ZC712"))
def section_without_effect(unused: IgnoredOfRun) -> Iterator[Finding]:
    if unused.item.kind == "dynamo-ignored":
        section = accelerate(unused.run, "dynamo_config")
        backend = section.get("dynamo_backend", section.get("backend"))
        if str(backend).lower() in ("no", "false", "none"):
            return
    key = unused.key
    yield key.finding(unused.item.message, fix=key.delete("remove the section"), where="key")


@rule(
    "ZC724",
    "init-flag-does-not-stop-sharding",
    Severity.NOTE,
    in_accelerate("deepspeed_config", "zero3_init_flag"),
    consumers=TRAINERS,
    versions="accelerate>=1.0",
)
def init_flag_does_not_stop_sharding(key: Key) -> Iterator[Finding]:
    if key.value is False and stage_of(key.run) == 3 and under_deepspeed_launcher(key.run):
        yield key.finding(
            "`zero3_init_flag: false` does not keep `from_pretrained` from sharding the weights at stage 3",
            "remove it",
            fix=key.delete("remove the key", safe=False),
        )


@rule("ZC723", "debug-left-on", Severity.NOTE, WHOLE_RUN)
def debug_left_on(run: Run) -> Iterator[Finding]:
    option, key = line_option(run, "debug"), accelerate(run, "debug")
    if option and started_by(run, "accelerate"):
        fix = option.delete("remove --debug", safe=False)
        yield option.finding("--debug adds a collective to every operation", "remove it", fix=fix)
    elif key.value is True:
        yield key.finding(
            "`debug: true` adds a collective to every gather, reduce and broadcast",
            "remove it when the hang is found",
            fix=key.delete("remove the key", safe=False),
        )
