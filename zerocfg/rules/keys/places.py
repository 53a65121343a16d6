"""ZC1xx: keys that stand in the wrong section, or in the file of another program."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.counterparts import homes
from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import deepspeed_data
from zerocfg.rules.issues import KeyIssue
from zerocfg.rules.key import accelerate
from zerocfg.rules.moving import moved, text_at
from zerocfg.rules.renaming import in_section, instead, own_name
from zerocfg.rules.subjects import issues_of_document
from zerocfg.run.model import Run
from zerocfg.run.stages.namespace import spelled
from zerocfg.run.stages.options import OPTIONS, SECTIONS, TOP_LEVEL
from zerocfg.source.node import Path, dotted

_OPTIMIZER = frozenset("lr betas eps weight_decay momentum adam_w_mode torch_adam".split())
_SCHEDULER = frozenset("warmup_min_lr warmup_max_lr warmup_num_steps total_num_steps warmup_type".split())


def home(key: KeyIssue) -> Path | None:
    """The one section of the DeepSpeed config that has the key which stands in another one."""
    here = key.path[:-1]
    if here in (("optimizer",), ()) and key.name in _OPTIMIZER:
        return ("optimizer", "params") if here else None
    if here == ("scheduler",) and key.name in _SCHEDULER:
        return ("scheduler", "params")
    sections = homes(key.name)
    if here in (("bf16",), ("bfloat16",)) and sections == (("fp16",),):
        return None  # bf16 has no use for the keys of loss scaling: nothing is to be moved
    return sections[0] if len(sections) == 1 and sections[0] != here else None


@rule(
    "ZC114",
    "key-in-wrong-section",
    Severity.ERROR,
    issues_of_document("unknown-crash", "unknown-ignored"),
    histories="keys",
)
def key_in_wrong_section(key: KeyIssue) -> Iterator[Finding]:
    where = home(key) if key.library == "DeepSpeed" else None
    if where is None:
        return
    advice, text = f"move it {in_section(where)}", text_at(key.file, key.path)
    happens = "stops at it" if key.issue.kind == "unknown-crash" else "never looks at it"
    yield key.finding(
        f"`{key.name}` belongs {in_section(where)}; {in_section(key.path[:-1])} DeepSpeed {happens}",
        advice,
        fix=moved(key.file, key.path, key.file, (*where, key.name), text, advice) if text else None,
    )


_FOREIGN = frozenset(
    "mixed_precision distributed_type num_processes num_machines machine_rank main_process_ip main_process_port "
    "zero3_init_flag deepspeed_multinode_launcher deepspeed_config_file".split()
)


_OPENED = ("optimizer", "scheduler")
"""Sections that are nothing without a type: a single parameter makes none."""


def foreign(key: KeyIssue) -> bool:
    """Whether a key at the top level of DeepSpeed's config, which nobody reads there, is one of another program."""
    if len(key.path) != 1 or home(key) is not None:
        return False
    return key.name in _FOREIGN or own_name(key, "deepspeed") is not None


@rule("ZC115", "key-of-another-program", Severity.ERROR, issues_of_document("unknown-ignored"), histories="keys")
def key_of_another_program(key: KeyIssue) -> Iterator[Finding]:
    if key.library != "DeepSpeed" or not foreign(key):
        return
    own = own_name(key, "deepspeed")
    if own is None:
        yield key.finding(
            f"DeepSpeed never looks at `{key.name}`, which is a key of accelerate's config",
            "say it in the accelerate config or on the launch line",
            severity=Severity.WARNING,
        )
        return
    lacking = own.path[0] in _OPENED and own.path[0] not in deepspeed_data(key.run)
    advice, fix = instead(key, own)
    yield key.finding(
        f"DeepSpeed never looks at `{key.name}`: its own name for it is `{dotted(own.path)}`",
        advice + (f", and give `{own.path[0]}` a type" if lacking else ""),
        fix=None if lacking else fix,
        severity=Severity.WARNING if lacking else None,
    )


@rule("ZC116", "section-beats-top-level", Severity.ERROR, WHOLE_RUN)
def section_beats_top_level(run: Run) -> Iterator[Finding]:
    for section in SECTIONS:
        for key in accelerate(run, section):
            option = spelled(section, key.name)
            above = accelerate(run, option)
            if option not in OPTIONS or option not in TOP_LEVEL or above.value is None or key.value is None:
                continue
            if above.value == key.value or isinstance(key.value, (dict, list)) or option in run.flags:
                continue
            yield key.finding(
                f"`{option}: {show(key.value)}` inside `{section}` replaces {show(above.value)} of the top level",
                "keep the key at the top level only",
                [above],
                key.delete("keep the top level", safe=False),
            )
