"""ZC1xx: keys. What the catalog found in one file, in the words of its reader."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.counterparts import Counterpart
from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, rule
from zerocfg.rules.effects import brings, deepspeed_data
from zerocfg.rules.fixes import present, rewritten
from zerocfg.rules.issues import KeyIssue
from zerocfg.rules.key import deepspeed
from zerocfg.rules.keys.places import foreign, home
from zerocfg.rules.moving import as_json, moved
from zerocfg.rules.renaming import in_section, instead, nowhere, own_name, said_in
from zerocfg.rules.subjects import each_issue, issues_of_document
from zerocfg.rules.zero.saving import misplaced_gather
from zerocfg.run.model import Run
from zerocfg.source.node import dotted


def _renamed(key: KeyIssue, new: str) -> Fix | None:
    """The key under another name of its section, which nobody has taken."""
    taken = present(key.file, (*key.path[:-1], new))
    return None if taken or "." in new else key.rename(new, f"rename the key to {new}")


def _suggested(key: KeyIssue, otherwise: str = "remove it") -> tuple[str, Fix | None]:
    """What to do about a key that the reader does not know: the name that is near it, else ``otherwise``."""
    near = key.issue.suggestion
    if not near:
        return otherwise, None
    if present(key.file, (*key.path[:-1], near)):
        return f"remove it: `{near}` is written too", None
    return f"did you mean `{near}`?", _renamed(key, near)


@rule("ZC101", "unknown-key", Severity.ERROR, each_issue("unknown-crash"), histories="keys")
def unknown_key(key: KeyIssue) -> Iterator[Finding]:
    if key.library == "DeepSpeed" and home(key) is not None:
        return  # ZC114 says where it belongs
    help_text, fix = _meant(key)
    yield key.finding(
        f"{key.library} knows no key `{key.name}` {in_section(key.path[:-1])} and stops at it", help_text, fix=fix
    )


def _meant(key: KeyIssue) -> tuple[str, Fix | None]:
    """What to do about a key that stops the library."""
    of_fp16 = load_schema("deepspeed").find(("fp16", key.name)) is not None
    if key.library == "DeepSpeed" and key.path[0] == "bf16" and of_fp16:
        return "bf16 needs no loss scaling: remove it (fp16 has this key)", key.delete("remove the key")
    if key.library == "zerocfg":
        return _suggested(key)
    own = own_name(key, "deepspeed" if key.library == "DeepSpeed" else "accelerate")
    if own is not None and own.path != key.path:
        return instead(key, own)
    help_text, fix = _suggested(key)
    return help_text, fix or key.delete("remove the key", safe=False)


_OF_OTHERS = ("comment", "comments", "msamp")
"""Keys that are for people, and that of MS-AMP, whose own engine reads it."""


@rule("ZC102", "ignored-key", Severity.ERROR, each_issue("unknown-ignored"), histories="keys")
def ignored_key(key: KeyIssue) -> Iterator[Finding]:
    if key.library != "DeepSpeed" or key.name.startswith(("_", "//", "#", "$")) or key.name in _OF_OTHERS:
        return
    if home(key) is not None or foreign(key):
        return  # ZC114 and ZC115 say more
    of_trainer = key.name in load_schema("training-arguments").root.names
    if of_trainer:
        help_text, fix = "give it to the Trainer, whose argument it is, or remove it", None
    else:
        help_text, fix = _suggested(key, "remove it, unless your own code reads it")
    yield key.finding(
        f"DeepSpeed reads no key `{key.name}` {in_section(key.path[:-1])}; it is silently ignored",
        help_text,
        fix=fix,
        severity=None if key.issue.suggestion and not of_trainer else Severity.WARNING,
    )


@rule("ZC103", "key-accelerate-ignores", Severity.ERROR, issues_of_document("unknown-ignored"), histories="keys")
def key_accelerate_ignores(key: KeyIssue) -> Iterator[Finding]:
    if key.library != "accelerate":
        return
    section = dotted(key.path[:-1])
    lost = misplaced_gather(key.run)
    if lost is not None and lost.path == key.path and key.run.effective.value("zero_optimization.stage") == 3:
        return  # ZC401 says what that costs
    native = section == "deepspeed_config" and any(
        load_schema("deepspeed").find(path) is not None for path in ((key.name,), ("zero_optimization", key.name))
    )
    help_text, fix = _elsewhere(key, native)
    why = "it is a key of DeepSpeed's own JSON and has no effect here" if native else "it has no effect"
    yield key.finding(f"accelerate ignores `{key.name}` in `{section}`: {why}", help_text, fix=fix)


def _elsewhere(key: KeyIssue, native: bool) -> tuple[str, Fix | None]:
    """What to do about a key that accelerate passes over. ``native``: DeepSpeed's JSON has it."""
    if native and key.name == "steps_per_print":
        return "remove it: accelerate sets it by itself, in a DeepSpeed JSON too", None
    if native and key.value == "auto" and not _is_filled(key.name):
        return "remove it: the default of DeepSpeed counts", None
    said, json, fix = said_in(key, "accelerate"), key.run.deepspeed, _into_json(key)
    if fix is not None and json is not None:
        return f"move it to {json.name}", fix
    if said.places:
        ways = [instead(key, own) for own in said.places]
        lost = list(dict.fromkeys(setting.rpartition(".")[2] for setting in said.lost))
        above = [name for name in lost if load_schema("accelerate").find(("deepspeed_config", name)) is not None]
        texts = [text for text, _ in ways] + [f"write `{name}` in `deepspeed_config` itself" for name in above]
        help_text = " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
        if others := [f"`{name}`" for name in lost if name not in above]:
            help_text += f"; accelerate has no key for {', '.join(others)}, which a DeepSpeed JSON has"
        if lost:
            return help_text, None
        return help_text, ways[0][1] if len(ways) == 1 and json is None else None
    if native:
        return "put it in a DeepSpeed JSON, as `zerocfg convert --to deepspeed-json` does", None
    if said.lost:
        there = f"`{said.lost[0]}` in a DeepSpeed JSON that `deepspeed_config_file` names"
        return f"give it to the training script, or write {there}", None
    return _suggested(key) if key.issue.suggestion else nowhere(key)


def _is_filled(name: str) -> bool:
    """Whether somebody fills in "auto" where DeepSpeed's JSON has a key of this name."""
    schema = load_schema("deepspeed")
    found = (schema.find(path) for path in ((name,), ("zero_optimization", name)))
    return any(key is not None and "auto" in key.facts for key in found)


def _into_json(key: KeyIssue) -> Fix | None:
    """The key in the DeepSpeed JSON that the accelerate config names, and no longer here."""
    to = key.run.deepspeed
    if to is None or key.run.deepspeed_route != "accelerate" or key.path[0] != "deepspeed_config":
        return None
    schema, own = load_schema("deepspeed"), own_name(key, "deepspeed")
    section = schema.find((key.name,))
    if isinstance(key.value, dict) and section is not None and section.section(schema) is not None:
        own = Counterpart((section.name,), key.value)
    text = as_json(own.value) if own is not None and own.fits and len(key.path) == 2 else None
    if own is None or text is None:
        return None
    return moved(key.file, key.path, to, own.path, text, f"move it to {to.name}")


@rule("ZC110", "removed-key", Severity.ERROR, each_issue("removed"), histories="keys")
def removed_key(key: KeyIssue) -> Iterator[Finding]:
    dead = key.path[0] == "optimizer" and (
        brings(key.run, "optimizer")
        # a config of no known reader that speaks of untested optimizers is meant for a script that has one
        or (key.run.consumer is None and "zero_allow_untested_optimizer" in deepspeed_data(key.run))
    )
    yield key.finding(
        f"{key.library} refuses `{dotted(key.path)}` by its presence, whatever its value",
        key.issue.reason,
        fix=key.delete("remove the key", safe=False),
        severity=Severity.NOTE if dead else None,
    )


@rule("ZC111", "deprecated-key", Severity.WARNING, each_issue("deprecated"), histories="keys")
def deprecated_key(key: KeyIssue) -> Iterator[Finding]:
    new, renamed = key.issue.suggestion, key.issue.reason == "renamed"
    help_text = f"it is called `{new}` now" if renamed else key.issue.reason
    if key.name in _OFFLOADS and key.value is False:  # the reason says how to switch it on
        help_text = f"remove it, or write {_OFFLOADS[key.name]}: {{device: none}}"
    yield key.finding(
        f"`{dotted(key.path)}` is deprecated in {key.library}",
        help_text,
        fix=_renamed(key, new) if new and renamed else _old_offload(key),
        # accelerate writes the new form itself as it reads the file, and says nothing
        severity=Severity.NOTE if key.library == "accelerate" else None,
    )


_OFFLOADS = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}
"""Switches of old, and the sections that stand for them today."""


def _old_offload(key: KeyIssue) -> Fix | None:
    """`cpu_offload: true` in today's words."""
    new = _OFFLOADS.get(key.name)
    if new is None or not isinstance(key.value, bool) or present(key.file, (*key.path[:-1], new)):
        return None
    device = "cpu" if key.value else "none"
    return rewritten(key.file, key.path, new, f'{{"device": "{device}"}}', why=f"write {new}")


@rule("ZC112", "two-spellings", Severity.ERROR, WHOLE_RUN)
def two_spellings(run: Run) -> Iterator[Finding]:
    schema = load_schema("deepspeed")
    for top in ("zero_optimization", "tensor_parallel"):
        section, known_section = deepspeed(run, top), schema.find((top,))
        keys = known_section.section(schema) if known_section else None
        for name, known in keys.names.items() if keys is not None and section.section else ():
            if name == known.name or name not in section or known.name not in section:
                continue
            former, key = section[name], section[known.name]
            # DeepSpeed drops whatever is "auto" before it looks at the names.
            if "auto" in (former.value, key.value):
                continue
            yield former.finding(
                f"`{name}` and `{key.name}` are the same setting; DeepSpeed stops when both are written",
                "remove one of the two",
                [key.at("key", "the other spelling")],
                former.delete(f"keep {key.name}", safe=former.value == key.value),
                where="key",
            )
