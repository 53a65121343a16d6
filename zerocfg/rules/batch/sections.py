"""The sections `optimizer` and `scheduler` of the DeepSpeed config: the engine builds what their type names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from zerocfg.catalog.schema import Section, load_schema
from zerocfg.catalog.values import show
from zerocfg.catalog.versions import admits
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, Subject, rule
from zerocfg.rules.arguments import under_deepspeed
from zerocfg.rules.effects import BUILT, TRAINERS, brings, describe_origin, effective_value, with_accelerate
from zerocfg.rules.key import Key, deepspeed, from_origin, trainer_argument
from zerocfg.rules.subjects import given_by
from zerocfg.run.model import UNKNOWN, Run


def may_be_deepspeed(run: Run) -> bool:
    """Whether DeepSpeed is the engine, as far as anybody knows."""
    return effective_value(run, "engine") in (None, UNKNOWN, "deepspeed")


def type_of(run: Run, section: str) -> Key | None:
    """The type that a section names, a text; None where it is "auto", where the script brings what it names, and where
    DeepSpeed is not the engine."""
    key = deepspeed(run, section, "type")
    if not isinstance(key.value, str) or key.value == "auto" or not may_be_deepspeed(run):
        return None
    return None if section in BUILT and brings(run, section) else key


@cache
def known_types(section: str) -> dict[str, Section]:
    """The types of a section whose parameters the schema knows; those of `optimizer`, which count in any case, in lower
    case."""
    schema = load_schema("deepspeed")
    params = schema.find((section, "params"))
    names = params.facts["variants"]["cases"] if params is not None else ()
    return {name: known for name in names if params and (known := params.variant(name, schema)) is not None}


def without_type(run: Run, section: str) -> Key | None:
    """A section that names no type. One that is empty counts only under accelerate, which asks whether it is there."""
    key = deepspeed(run, section)
    if not isinstance(key.value, dict) or key.get("type") is not None or not may_be_deepspeed(run):
        return None
    return key if key.section or with_accelerate(run) else None


def section_without_type(section: str) -> Subject[Key]:
    """Such a section, for rules."""
    return given_by(lambda run: without_type(run, section), config="deepspeed")


@rule("ZC211", "optimizer-of-json-wins", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def optimizer_of_json_wins(run: Run) -> Iterator[Finding]:
    if not under_deepspeed(run):
        return
    for name, argument in (("optimizer", "optim"), ("scheduler", "lr_scheduler_type")):
        section, asked = deepspeed(run, name), trainer_argument(run, argument)
        kind = section["type"]
        if not asked or not isinstance(asked.value, str) or not isinstance(kind.value, str):
            continue
        if not _same(name, kind.value, asked.value):
            both = name == "scheduler" and deepspeed(run, "optimizer") and _needs_both(run)
            yield asked.finding(
                f"`{argument}: {asked.value}` {describe_origin(asked.origin)} is silently ignored: {section.file_name} "
                f"brings the {name} {show(kind.value)}",
                f"remove `{name}`{' and `optimizer`' if both else ''} from {section.file_name}, or `{argument}` here",
                [kind.at(label="this one is used")],
                None if both else section.delete("let the training argument count", safe=False),
            )


@rule("ZC252", "section-and-script", Severity.ERROR, WHOLE_RUN, consumers={"accelerate"})
def section_and_script(run: Run) -> Iterator[Finding]:
    if not under_deepspeed(run) or run.script is None:
        return
    for name, placeholder in (("optimizer", "DummyOptim"), ("scheduler", "DummyScheduler")):
        section, made = deepspeed(run, name), run.script.prepared.get(name)
        if section and made is not None:
            yield section.finding(
                f"`{name}` is here and in the script, too: accelerator.prepare() stops at what the script makes",
                f"remove the section, or hand accelerate.utils.{placeholder} to prepare()",
                [from_origin(run, made).at(label=f"the script's own {name}")],
                section.delete(f"let the script's {name} count", safe=False),
                where="key",
            )
            return  # it does not come to the other


def _needs_both(run: Run) -> bool:
    """Whether an admitted Trainer refuses an optimizer of DeepSpeed's beside a scheduler of its own: before 4.33."""
    return admits(run.declared("transformers"), below="4.33")


_LIKE = {
    "linear": ("WarmupDecayLR",),
    "cosine": ("WarmupCosineLR", "CosineAnnealingLR"),
    "constant": ("WarmupLR",),
    "constant_with_warmup": ("WarmupLR",),
    "warmup_stable_decay": (),
}


def _same(section: str, kind: str, asked: str) -> bool:
    """Whether both names stand for one thing: AdamW in its many builds, a schedule of the same shape."""
    if section == "optimizer":
        return kind.lower().replace("w", "") in asked.lower().replace("w", "")
    return kind in _LIKE.get(asked, (kind,))
