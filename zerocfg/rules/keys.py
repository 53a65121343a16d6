"""ZC1xx: keys. What the catalog found in one file, in the words of its reader."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.check import Issue
from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import edited
from zerocfg.rules.issues import DS, YAML, at_key, issues
from zerocfg.rules.proof import ABSENT, crashes, shows
from zerocfg.rules.saving import misplaced_gather
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import Edit, delete_entry, replace_value
from zerocfg.source.node import Mapping, dotted

# Spellings of DeepSpeed's own keys inside an accelerate config, and what accelerate reads instead.
ACCELERATE_SPELLING = {
    "stage3_gather_16bit_weights_on_model_save": "zero3_save_16bit_model",
    "gather_16bit_weights_on_model_save": "zero3_save_16bit_model",
    "stage": "zero_stage",
    "offload_optimizer": "offload_optimizer_device",
    "offload_param": "offload_param_device",
}


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


@rule(
    "ZC101",
    "unknown-key",
    Severity.ERROR,
    bad=Example({"ds.json": DS % ', "allreduce_bucket_size": 500000000'}, consumer="deepspeed"),
    good=Example({"ds.json": DS % ', "reduce_bucket_size": 500000000'}, consumer="deepspeed"),
    proof=crashes("parse", "Extra inputs are not permitted"),
    fixable=True,
)
def unknown_key(run: Run) -> Iterator[Finding]:
    """A key that the library does not know, where unknown keys stop it.

    What happens: DeepSpeed's sections for ZeRO, offload, fp16, bf16, monitors and compile refuse unknown keys,
    also when the section is switched off: `pydantic ValidationError: Extra inputs are not permitted`.
    accelerate refuses unknown keys at the top level of its file: `ValueError: The config file at ... had
    unknown keys`. Under the Trainer this comes after the model was loaded.
    """
    for file, library, issue in issues(run, "unknown-crash"):
        where = f"in `{_section(issue)}`" if len(issue.path) > 1 else "at the top level"
        help_text = f"did you mean `{issue.suggestion}`?" if issue.suggestion else "remove it"
        if library == "DeepSpeed" and issue.path[0] == "bf16":
            help_text = "bf16 needs no loss scaling: remove it (fp16 has this key)"
        yield Finding(
            at_key(file, issue),
            f"{library} knows no key `{issue.path[-1]}` {where} and stops at it",
            help_text,
            fix=_rename(file, issue, issue.suggestion) if issue.suggestion else None,
        )


@rule(
    "ZC102",
    "ignored-key",
    Severity.ERROR,
    bad=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 2}}\n'},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": DS % ""}, consumer="deepspeed"),
    proof=shows("parse", {"engine.zero_config.stage": (0, 2)}),
    fixable=True,
)
def ignored_key(run: Run) -> Iterator[Finding]:
    """A key that nobody reads: DeepSpeed looks up the keys it knows and never looks at the others.

    What happens: nothing, and that is the trouble. The top level, optimizer, scheduler,
    activation_checkpointing, aio, checkpoint, data_types, flops_profiler and others are read key by key, so a
    misspelt key has no effect and no message. A warning only where no known key is close: your own code may
    read it.

    When to ignore: your training script reads the key itself.
    """
    for file, library, issue in issues(run, "unknown-ignored"):
        name = str(issue.path[-1])
        if library != "DeepSpeed" or name.startswith(("_", "//", "#", "$")) or name in ("comment", "comments"):
            continue
        where = f"in `{_section(issue)}`" if len(issue.path) > 1 else "at the top level"
        yield Finding(
            at_key(file, issue),
            f"DeepSpeed reads no key `{name}` {where}; it is silently ignored",
            f"did you mean `{issue.suggestion}`?" if issue.suggestion else "remove it, unless your own code reads it",
            fix=_rename(file, issue, issue.suggestion) if issue.suggestion else None,
            severity=None if issue.suggestion else Severity.WARNING,
        )


@rule(
    "ZC103",
    "key-accelerate-ignores",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": YAML + "  reduce_bucket_size: 200000000\n"}, consumer="transformers"),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 1\n"
            "deepspeed_config:\n  deepspeed_config_file: ds.json\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
            '"zero_optimization": {"stage": 2, "reduce_bucket_size": 200000000}}\n',
        },
        consumer="transformers",
    ),
    proof=shows("init", {"config.zero_optimization.reduce_bucket_size": (ABSENT, 200000000)}),
)
def key_accelerate_ignores(run: Run) -> Iterator[Finding]:
    """A key in a section of the accelerate config that accelerate never reads.

    What happens: the launcher copies every key of every section into its arguments without a check and exports
    only those it knows. DeepSpeed's own keys (`overlap_comm`, bucket sizes, `bf16`,
    `stage3_gather_16bit_weights_on_model_save`) have no effect there, without a message; DeepSpeed's defaults
    apply. They belong in a DeepSpeed JSON that `deepspeed_config_file` points to.
    """
    for file, library, issue in issues(run, "unknown-ignored"):
        if library != "accelerate":
            continue
        name, section = str(issue.path[-1]), _section(issue)
        if misplaced_gather(run) == issue.path and run.effective.value("zero_optimization.stage") == 3:
            continue  # ZC401 says what that costs
        spelling = ACCELERATE_SPELLING.get(name) if section == "deepspeed_config" else None
        deepspeed = load_schema("deepspeed")
        native = section == "deepspeed_config" and (
            deepspeed.find((name,)) is not None or deepspeed.find(("zero_optimization", name)) is not None
        )
        fix = None
        if spelling:
            if name.endswith("gather_16bit_weights_on_model_save"):
                help_text = f"the spelling that works here is `{spelling}: true`"
                fix = _rename(file, issue, spelling) if issue.value is True else None
            else:
                help_text = f"accelerate's spelling is `{spelling}`"
        elif native:
            help_text = "put it in a DeepSpeed JSON and point `deepspeed_config_file` to it"
        elif issue.suggestion:
            help_text = f"did you mean `{issue.suggestion}`?"
            fix = _rename(file, issue, issue.suggestion)
        else:
            help_text = "remove it"
        why = "it is a key of DeepSpeed's own JSON and has no effect here" if native else "it has no effect"
        yield Finding(
            at_key(file, issue),
            f"accelerate ignores `{name}` in `{section}`: {why}",
            help_text,
            fix=fix,
        )


@rule(
    "ZC110",
    "removed-key",
    Severity.ERROR,
    bad=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "amp": {"enabled": false}}\n'},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": '{"train_micro_batch_size_per_gpu": 1}\n'}, consumer="deepspeed"),
    proof=crashes("parse", "Apex AMP integration|removed"),
    fixable=True,
)
def removed_key(run: Run) -> Iterator[Finding]:
    """A key of a feature that was removed; its presence alone is refused.

    What happens: DeepSpeed 0.19.8 raises `DeepSpeedConfigError` for each of these keys, whatever its value, even
    `{"enabled": false}`. accelerate refuses the ones it dropped as unknown keys.
    """
    for file, library, issue in issues(run, "removed"):
        yield Finding(
            at_key(file, issue),
            f"{library} refuses `{dotted(issue.path)}` by its presence, whatever its value",
            issue.reason,
            fix=edited(delete_entry, file, issue.path, why="remove the key", safe=False),
        )


@rule(
    "ZC111",
    "deprecated-key",
    Severity.WARNING,
    bad=Example({"ds.json": DS % ', "cpu_offload": true'}, consumer="deepspeed"),
    good=Example({"ds.json": DS % ', "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
    proof=shows("parse", {"log": ("deprecated", "^(?!.*cpu_offload.*deprecated)")}),
    fixable=True,
)
def deprecated_key(run: Run) -> Iterator[Finding]:
    """A key that still works under an old name.

    What happens: DeepSpeed maps it to the new name and prints a warning among hundreds of lines.
    """
    for file, library, issue in issues(run, "deprecated"):
        new = issue.suggestion
        yield Finding(
            at_key(file, issue),
            f"`{dotted(issue.path)}` is deprecated in {library}",
            issue.reason if issue.reason != "renamed" else f"it is called `{new}` now",
            fix=_rename(file, issue, new) if new and issue.reason == "renamed" else _old_offload(file, issue),
        )


def _old_offload(file: SourceFile, issue: Issue) -> Fix | None:
    """`cpu_offload: true` in today's words."""
    new = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}.get(str(issue.path[-1]))
    if new is None or not isinstance(issue.value, bool):
        return None
    rename = _rename(file, issue, new)
    device = "cpu" if issue.value else "none"
    value = edited(replace_value, file, issue.path, f'{{"device": "{device}"}}', why=f"write {new}")
    return Fix(f"write {new}", (*rename.edits, *value.edits)) if rename and value else None


@rule(
    "ZC112",
    "two-spellings",
    Severity.ERROR,
    bad=Example(
        {"ds.json": DS % ', "stage3_prefetch_bucket_size": 10, "prefetch_bucket_size": 10'},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": DS % ', "stage3_prefetch_bucket_size": 10'}, consumer="deepspeed"),
    proof=crashes("parse", "Extra inputs are not permitted"),
)
def two_spellings(run: Run) -> Iterator[Finding]:
    """One setting under both of its names.

    What happens: DeepSpeed's ZeRO section takes `stage3_prefetch_bucket_size` and `prefetch_bucket_size`, but
    not both: `Extra inputs are not permitted` on the plain name.
    """
    file = run.deepspeed
    if file is None or file.document is None:
        return
    section = file.document.get(("zero_optimization",))
    schema = load_schema("deepspeed").find(("zero_optimization",))
    keys = schema.section(load_schema("deepspeed")) if schema else None
    if not isinstance(section, Mapping) or keys is None:
        return
    for name, key in keys.names.items():
        if name == key.name or section.entry(name) is None or section.entry(key.name) is None:
            continue
        yield Finding(
            Location(file, ("zero_optimization", name), "key"),
            f"`{name}` and `{key.name}` are the same setting; DeepSpeed stops when both are written",
            "remove one of the two",
            [Location(file, ("zero_optimization", key.name), "key", label="the other spelling")],
        )


RULES = (
    unknown_key,
    ignored_key,
    key_accelerate_ignores,
    removed_key,
    deprecated_key,
    two_spellings,
)
