"""ZC1xx: keys. What the catalog found in one file, in the words of its reader."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.check import Issue
from zerocfg.catalog.counterparts import Counterpart
from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import deepspeed_data
from zerocfg.rules.fixes import edited, rewritten
from zerocfg.rules.issues import at_key, issues, limited
from zerocfg.rules.keys.places import foreign, home
from zerocfg.rules.moving import as_json, moved
from zerocfg.rules.renaming import instead, nowhere, own_name, said_in
from zerocfg.rules.zero.saving import misplaced_gather
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.script.arguments import call_of
from zerocfg.source.edit import Edit, delete_entry
from zerocfg.source.node import Mapping, dotted, plain


def _rename(file: SourceFile, issue: Issue, new: str) -> Fix | None:
    parent = file.document.get(issue.path[:-1]) if file.document else None
    if not isinstance(parent, Mapping) or parent.entry(new) is not None or "." in new:
        return None
    span = issue.entry.key_span
    raw = file.source.text[span.start : span.end]
    quote = raw[0] if raw[:1] in "\"'" else ""
    return Fix(f"rename the key to {new}", ((file, Edit(span, f"{quote}{new}{quote}")),))


def _section(issue: Issue) -> str:
    return dotted(issue.path[:-1])


@rule("ZC101", "unknown-key", Severity.ERROR)
def unknown_key(run: Run) -> Iterator[Finding]:
    for file, library, issue in issues(run, "unknown-crash"):
        if library == "DeepSpeed" and home(issue) is not None:
            continue  # ZC114 says where it belongs
        where = f"in `{_section(issue)}`" if len(issue.path) > 1 else "at the top level"
        help_text, fix = _meant(run, file, library, issue)
        yield limited(
            run,
            issue,
            Finding(
                at_key(file, issue),
                f"{library} knows no key `{issue.path[-1]}` {where} and stops at it",
                help_text,
                fix=fix,
            ),
        )


def _meant(run: Run, file: SourceFile, library: str, issue: Issue) -> tuple[str, Fix | None]:
    """What to do about a key that stops the library."""
    of_fp16 = load_schema("deepspeed").find(("fp16", str(issue.path[-1]))) is not None
    if library == "DeepSpeed" and issue.path[0] == "bf16" and of_fp16:
        fix = edited(delete_entry, file, issue.path, why="remove the key")
        return "bf16 needs no loss scaling: remove it (fp16 has this key)", fix
    own = own_name(issue, "deepspeed" if library == "DeepSpeed" else "accelerate") if library != "zerocfg" else None
    if own is not None and own.path != issue.path:
        return instead(file, issue, own)
    fix = _rename(file, issue, issue.suggestion) if issue.suggestion else None
    if fix is None and library != "zerocfg":
        fix = edited(delete_entry, file, issue.path, why="remove the key", safe=False)
    return f"did you mean `{issue.suggestion}`?" if issue.suggestion else "remove it", fix


_OF_OTHERS = ("comment", "comments", "msamp")
"""Keys that are for people, and that of MS-AMP, whose own engine reads it."""


@rule("ZC102", "ignored-key", Severity.ERROR)
def ignored_key(run: Run) -> Iterator[Finding]:
    for file, library, issue in issues(run, "unknown-ignored"):
        name = str(issue.path[-1])
        if library != "DeepSpeed" or name.startswith(("_", "//", "#", "$")) or name in _OF_OTHERS:
            continue
        if home(issue) is not None or foreign(issue):
            continue  # ZC114 and ZC115 say more
        where = f"in `{_section(issue)}`" if len(issue.path) > 1 else "at the top level"
        yield limited(
            run,
            issue,
            Finding(
                at_key(file, issue),
                f"DeepSpeed reads no key `{name}` {where}; it is silently ignored",
                f"did you mean `{issue.suggestion}`?"
                if issue.suggestion
                else "remove it, unless your own code reads it",
                fix=_rename(file, issue, issue.suggestion) if issue.suggestion else None,
                severity=None if issue.suggestion else Severity.WARNING,
            ),
        )


@rule("ZC103", "key-accelerate-ignores", Severity.ERROR)
def key_accelerate_ignores(run: Run) -> Iterator[Finding]:
    for file, library, issue in issues(run, "unknown-ignored"):
        if library != "accelerate":
            continue
        name, section = str(issue.path[-1]), _section(issue)
        lost = misplaced_gather(run)
        if lost is not None and lost.path == issue.path and run.effective.value("zero_optimization.stage") == 3:
            continue  # ZC401 says what that costs
        deepspeed = load_schema("deepspeed")
        native = section == "deepspeed_config" and (
            deepspeed.find((name,)) is not None or deepspeed.find(("zero_optimization", name)) is not None
        )
        said = said_in(issue, "accelerate")
        fix = _into_json(run, file, issue)
        if fix is not None and run.deepspeed is not None:
            help_text = f"move it to {run.deepspeed.name}"
        elif said.places:
            ways = [instead(file, issue, own) for own in said.places]
            help_text = " and ".join(text for text, _ in ways)
            if said.lost:
                names = ", ".join(f"`{setting.rpartition('.')[2]}`" for setting in said.lost)
                help_text += f"; accelerate has no key for {names}, which a DeepSpeed JSON has"
            elif len(ways) == 1 and run.deepspeed is None:
                fix = ways[0][1]
        elif native or said.lost:
            help_text = "put it in a DeepSpeed JSON and point `deepspeed_config_file` to it"
            if not native:
                there = f"`{said.lost[0]}` in a DeepSpeed JSON that `deepspeed_config_file` names"
                help_text = f"give it to the training script, or write {there}"
        elif issue.suggestion:
            help_text = f"did you mean `{issue.suggestion}`?"
            fix = _rename(file, issue, issue.suggestion)
        else:
            help_text, fix = nowhere(file, issue)
        why = "it is a key of DeepSpeed's own JSON and has no effect here" if native else "it has no effect"
        yield limited(
            run,
            issue,
            Finding(
                at_key(file, issue),
                f"accelerate ignores `{name}` in `{section}`: {why}",
                help_text,
                fix=fix,
            ),
        )


def _into_json(run: Run, file: SourceFile, issue: Issue) -> Fix | None:
    """The key in the DeepSpeed JSON that the accelerate config names, and no longer here."""
    to = run.deepspeed
    if to is None or run.deepspeed_route != "accelerate" or issue.path[0] != "deepspeed_config":
        return None
    schema, own = load_schema("deepspeed"), own_name(issue, "deepspeed")
    section = schema.find((str(issue.path[-1]),))
    if isinstance(issue.value, dict) and section is not None and section.section(schema) is not None:
        own = Counterpart((section.name,), issue.value)
    text = as_json(own.value) if own is not None and own.fits and len(issue.path) == 2 else None
    if own is None or text is None:
        return None
    return moved(file, issue.path, to, own.path, text, f"move it to {to.name}")


@rule("ZC110", "removed-key", Severity.ERROR)
def removed_key(run: Run) -> Iterator[Finding]:
    for file, library, issue in issues(run, "removed"):
        dead = issue.path[0] == "optimizer" and _brings_optimizer(run)
        yield limited(
            run,
            issue,
            Finding(
                at_key(file, issue),
                f"{library} refuses `{dotted(issue.path)}` by its presence, whatever its value",
                issue.reason,
                fix=edited(delete_entry, file, issue.path, why="remove the key", safe=False),
                severity=Severity.NOTE if dead else None,
            ),
        )


def _brings_optimizer(run: Run) -> bool:
    """Whether the script has an optimizer of its own, so that DeepSpeed makes none of the config's section. Where no
    reader is known, a config that speaks of untested optimizers is meant for such a script."""
    if run.consumer is None:
        return "zero_allow_untested_optimizer" in deepspeed_data(run)
    call = call_of(run.script, "deepspeed.initialize") if run.consumer == "deepspeed" else None
    given = call.arguments.get("optimizer") if call is not None else None
    return given is not None and given.value is not None


@rule("ZC111", "deprecated-key", Severity.WARNING)
def deprecated_key(run: Run) -> Iterator[Finding]:
    for file, library, issue in issues(run, "deprecated"):
        new = issue.suggestion
        yield limited(
            run,
            issue,
            Finding(
                at_key(file, issue),
                f"`{dotted(issue.path)}` is deprecated in {library}",
                issue.reason if issue.reason != "renamed" else f"it is called `{new}` now",
                fix=_rename(file, issue, new) if new and issue.reason == "renamed" else _old_offload(file, issue),
            ),
        )


def _old_offload(file: SourceFile, issue: Issue) -> Fix | None:
    """`cpu_offload: true` in today's words."""
    new = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}.get(str(issue.path[-1]))
    if new is None or not isinstance(issue.value, bool):
        return None
    if _rename(file, issue, new) is None:
        return None
    device = "cpu" if issue.value else "none"
    return rewritten(file, issue.path, new, f'{{"device": "{device}"}}', why=f"write {new}")


@rule("ZC112", "two-spellings", Severity.ERROR)
def two_spellings(run: Run) -> Iterator[Finding]:
    file = run.deepspeed
    if file is None or file.document is None:
        return
    for top in ("zero_optimization", "tensor_parallel"):
        section = file.document.get((top,))
        schema = load_schema("deepspeed").find((top,))
        keys = schema.section(load_schema("deepspeed")) if schema else None
        if not isinstance(section, Mapping) or keys is None:
            continue
        values = plain(section)
        for name, key in keys.names.items():
            # DeepSpeed drops whatever is "auto" before it looks at the names.
            if name == key.name or "auto" in (values.get(name, "auto"), values.get(key.name, "auto")):
                continue
            yield Finding(
                Location(file, (top, name), "key"),
                f"`{name}` and `{key.name}` are the same setting; DeepSpeed stops when both are written",
                "remove one of the two",
                [Location(file, (top, key.name), "key", label="the other spelling")],
                edited(
                    delete_entry,
                    file,
                    (top, name),
                    why=f"keep {key.name}",
                    safe=values[name] == values[key.name],
                ),
            )
