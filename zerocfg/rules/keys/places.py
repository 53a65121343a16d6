"""ZC1xx: keys that stand in the wrong section, or in the file of another program."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.check import Issue
from zerocfg.catalog.counterparts import homes
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, accelerate_section, deepspeed_data
from zerocfg.rules.fixes import edited
from zerocfg.rules.issues import at_key, issues, limited
from zerocfg.rules.moving import moved, text_at
from zerocfg.rules.renaming import instead, own_name
from zerocfg.run.model import Run
from zerocfg.run.stages.namespace import spelled
from zerocfg.run.stages.options import OPTIONS, SECTIONS, TOP_LEVEL
from zerocfg.source.edit import delete_entry
from zerocfg.source.node import Path, dotted

_OPTIMIZER = frozenset("lr betas eps weight_decay momentum adam_w_mode torch_adam".split())
_SCHEDULER = frozenset("warmup_min_lr warmup_max_lr warmup_num_steps total_num_steps warmup_type".split())


def home(issue: Issue) -> Path | None:
    """The one section of the DeepSpeed config that has the key which stands in another one."""
    name, here = str(issue.path[-1]), issue.path[:-1]
    if here in (("optimizer",), ()) and name in _OPTIMIZER:
        return ("optimizer", "params") if here else None
    if here == ("scheduler",) and name in _SCHEDULER:
        return ("scheduler", "params")
    found = homes(name)
    if here in (("bf16",), ("bfloat16",)) and found == (("fp16",),):
        return None  # bf16 has no use for the keys of loss scaling: nothing is to be moved
    return found[0] if len(found) == 1 and found[0] != here else None


@rule("ZC114", "key-in-wrong-section", Severity.ERROR)
def key_in_wrong_section(run: Run) -> Iterator[Finding]:
    for file, library, issue in issues(run, "unknown-crash", "unknown-ignored"):
        where = home(issue) if library == "DeepSpeed" else None
        if where is None:
            continue
        name, text = str(issue.path[-1]), text_at(file, issue.path)
        target = f"in `{dotted(where)}`" if where else "at the top level"
        here = f"in `{dotted(issue.path[:-1])}`" if len(issue.path) > 1 else "at the top level"
        stops = issue.kind == "unknown-crash"
        fix = moved(file, issue.path, file, (*where, name), text, f"move it {target}") if text else None
        yield limited(
            run,
            issue,
            Finding(
                at_key(file, issue),
                f"`{name}` belongs {target}; {here} DeepSpeed {'stops at it' if stops else 'never looks at it'}",
                f"move it {target}",
                fix=fix,
            ),
        )


_FOREIGN = frozenset(
    "mixed_precision distributed_type num_processes num_machines machine_rank main_process_ip main_process_port "
    "zero3_init_flag deepspeed_multinode_launcher deepspeed_config_file".split()
)


_OPENED = ("optimizer", "scheduler")
"""Sections that are nothing without a type: a single parameter makes none."""


def foreign(issue: Issue) -> bool:
    """Whether a key at the top level of DeepSpeed's config, which nobody reads there, is one of another program."""
    if len(issue.path) != 1 or home(issue) is not None:
        return False
    return issue.path[0] in _FOREIGN or own_name(issue, "deepspeed") is not None


@rule("ZC115", "key-of-another-program", Severity.ERROR)
def key_of_another_program(run: Run) -> Iterator[Finding]:
    for file, library, issue in issues(run, "unknown-ignored"):
        if library != "DeepSpeed" or not foreign(issue):
            continue
        name, own = str(issue.path[0]), own_name(issue, "deepspeed")
        if own is None:
            yield limited(
                run,
                issue,
                Finding(
                    at_key(file, issue),
                    f"DeepSpeed never looks at `{name}`, which is a key of accelerate's config",
                    "say it in the accelerate config or on the launch line",
                    severity=Severity.WARNING,
                ),
            )
            continue
        lacking = own.path[0] in _OPENED and own.path[0] not in deepspeed_data(run)
        advice, fix = instead(file, issue, own)
        yield limited(
            run,
            issue,
            Finding(
                at_key(file, issue),
                f"DeepSpeed never looks at `{name}`: its own name for it is `{dotted(own.path)}`",
                advice + (f", and give `{own.path[0]}` a type" if lacking else ""),
                fix=None if lacking else fix,
                severity=Severity.WARNING if lacking else None,
            ),
        )


@rule("ZC116", "section-beats-top-level", Severity.ERROR)
def section_beats_top_level(run: Run) -> Iterator[Finding]:
    data = accelerate_data(run)
    if run.accelerate is None:
        return
    for section in SECTIONS:
        for name, value in accelerate_section(run, section).items():
            option = spelled(section, str(name))
            if option not in OPTIONS or option not in TOP_LEVEL or data.get(option) is None or value is None:
                continue
            if data[option] == value or isinstance(value, (dict, list)) or option in run.flags:
                continue
            path: Path = (section, str(name))
            yield Finding(
                Location(run.accelerate, path),
                f"`{option}: {show(value)}` inside `{section}` replaces {show(data[option])} of the top level",
                "keep the key at the top level only",
                [Location(run.accelerate, (option,))],
                edited(delete_entry, run.accelerate, path, why="keep the top level", safe=False),
            )
