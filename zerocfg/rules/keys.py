"""ZC1xx: keys and types. What the catalog found in one file, in the words of its reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.check import Issue, check
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import edited
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


def documents(run: Run) -> Iterator[tuple[SourceFile, str]]:
    """The files of a run that a compiled schema describes, with its name."""
    if run.accelerate is not None:
        data = run.accelerate.data()
        environment = data.get("compute_environment", "LOCAL_MACHINE") if isinstance(data, dict) else None
        yield (
            run.accelerate,
            "accelerate" if environment in (None, "LOCAL_MACHINE") else "accelerate-sagemaker",
        )
    if run.deepspeed is not None:
        yield run.deepspeed, "deepspeed"
    if run.spec is not None:
        yield run.spec, "spec"


def issues(run: Run, *kinds: str) -> Iterator[tuple[SourceFile, str, Issue]]:
    """The catalog's issues of these kinds, with the file and the name of the library that reads it."""
    for file, name in documents(run):
        if file.document is None:
            continue
        library = {"deepspeed": "DeepSpeed", "spec": "zerocfg"}.get(name, "accelerate")
        for issue in check(file.document.root, load_schema(name)):
            if issue.kind in kinds:
                yield file, library, issue


def _key(file: SourceFile, issue: Issue) -> Location:
    return Location(file, issue.path, "key", span=issue.entry.key_span)


def _value(file: SourceFile, issue: Issue) -> Location:
    node = issue.entry.value
    # A whole section would be underlined otherwise: the key alone says where.
    return Location(file, issue.path, "value", span=issue.entry.key_span if isinstance(node, Mapping) else node.span)


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


_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2%s}}\n'
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"


@rule(
    "ZC101",
    "unknown-key",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ', "allreduce_bucket_size": 500000000'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % ', "reduce_bucket_size": 500000000'}, consumer="deepspeed"),
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
            _key(file, issue),
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
    good=Example({"ds.json": _DS % ""}, consumer="deepspeed"),
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
            _key(file, issue),
            f"DeepSpeed reads no key `{name}` {where}; it is silently ignored",
            f"did you mean `{issue.suggestion}`?" if issue.suggestion else "remove it, unless your own code reads it",
            fix=_rename(file, issue, issue.suggestion) if issue.suggestion else None,
            severity=None if issue.suggestion else Severity.WARNING,
        )


@rule(
    "ZC103",
    "key-accelerate-ignores",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML + "  reduce_bucket_size: 200000000\n"}, consumer="transformers"),
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
            _key(file, issue),
            f"accelerate ignores `{name}` in `{section}`: {why}",
            help_text,
            fix=fix,
        )


@rule(
    "ZC104",
    "wrong-type",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ', "reduce_bucket_size": "5e8"'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % ', "reduce_bucket_size": 5e8'}, consumer="deepspeed"),
    proof=crashes("parse", "unable to parse string as an integer"),
)
def wrong_type(run: Run) -> Iterator[Finding]:
    """A value of a type that the library refuses.

    What happens: DeepSpeed's typed sections convert what pydantic converts ("500000000", 5e8 and true for a
    whole number; "yes" and 1 for true) and stop at everything else with a ValidationError. accelerate turns
    values into text for the environment and converts them back in every rank: `ValueError: invalid literal for
    int() with base 10`.
    """
    for file, library, issue in issues(run, "type"):
        yield Finding(
            _value(file, issue),
            f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}; {library} stops at it",
        )


@rule(
    "ZC105",
    "out-of-range",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ', "reduce_bucket_size": 0'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % ', "reduce_bucket_size": 1000000'}, consumer="deepspeed"),
    proof=crashes("parse", "greater than 0"),
)
def out_of_range(run: Run) -> Iterator[Finding]:
    """A number outside of what the library allows.

    What happens: DeepSpeed's typed sections stop with a ValidationError that names the bound.
    """
    for file, library, issue in issues(run, "range"):
        raw = issue.key is not None and issue.key.facts.get("reads") == "raw"
        end = "nothing checks this before it is used" if raw else f"{library} stops at it"
        yield Finding(_value(file, issue), f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}; {end}")


@rule(
    "ZC106",
    "not-a-choice",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ', "offload_optimizer": {"device": "CPU"}'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % ', "offload_optimizer": {"device": "none"}'}, consumer="deepspeed"),
    proof=crashes("parse", "Input should be 'none', 'cpu' or 'nvme'"),
    fixable=True,
)
def not_a_choice(run: Run) -> Iterator[Finding]:
    """A word that is none of those allowed for the key. Most are case-sensitive.

    What happens: DeepSpeed's typed sections stop with a ValidationError; accelerate stops at launch
    (`ValueError: 'deepspeed' is not a valid DistributedType`).
    """
    for file, library, issue in issues(run, "choice"):
        if isinstance(issue.value, bool):
            continue  # an unquoted yes or no: ZC006 says so
        yield Finding(
            _value(file, issue),
            f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}; {library} stops at it",
            fix=_meant(file, issue),
        )


def _meant(file: SourceFile, issue: Issue) -> Fix | None:
    """The word that the catalog takes a wrong one for."""
    near = re.search(r"did you mean ([\w.-]+)\?", issue.reason)
    if near is None or not isinstance(issue.value, str):
        return None
    return edited(replace_value, file, issue.path, f'"{near[1]}"', why=f"write {near[1]}", safe=False)


@rule(
    "ZC107",
    "null-value",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ', "reduce_bucket_size": null'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % ""}, consumer="deepspeed"),
    proof=crashes("parse", "Input should be a valid integer"),
)
def null_value(run: Run) -> Iterator[Finding]:
    """null where the library needs a value.

    What happens: a ValidationError; null does not mean "the default" in DeepSpeed's typed sections. Leave the
    key out.
    """
    for file, library, issue in issues(run, "null"):
        yield Finding(
            _value(file, issue), f"`{dotted(issue.path)}` is null; {library} stops at it", "leave the key out"
        )


@rule(
    "ZC108",
    "section-not-a-mapping",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: ds.json\n"}),
    good=Example({"accelerate.yaml": _YAML}),
    proof=crashes("launch", "'str' object has no attribute 'keys'"),
)
def section_not_a_mapping(run: Run) -> Iterator[Finding]:
    """A section that is written as a single value, a list or null.

    What happens: DeepSpeed stops with `TypeError: ... argument after ** must be a mapping`, accelerate with
    `AttributeError: 'str' object has no attribute 'keys'`. The path of a DeepSpeed config goes into
    `deepspeed_config: {deepspeed_config_file: PATH}`.
    """
    for file, library, issue in issues(run, "section-type"):
        help_text = ""
        if issue.path == ("deepspeed_config",) and isinstance(issue.value, str):
            help_text = f"write `deepspeed_config: {{deepspeed_config_file: {issue.value}}}`"
        yield Finding(_value(file, issue), f"`{dotted(issue.path)}` {issue.reason}; {library} stops at it", help_text)


@rule(
    "ZC109",
    "unchecked-type",
    Severity.WARNING,
    bad=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "prescale_gradients": "false"}\n'},
        consumer="deepspeed",
    ),
    good=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "prescale_gradients": false}\n'},
        consumer="deepspeed",
    ),
    proof=shows("parse", {"engine.prescale_gradients": ("false", False)}),
)
def unchecked_type(run: Run) -> Iterator[Finding]:
    """A value of the wrong type in a place where nothing checks types.

    What happens: DeepSpeed's top level and its untyped sections take any value. A string travels on until
    something breaks (`TypeError: unsupported operand type(s) for //: 'str' and 'int'`), and the string "false"
    counts as true.
    """
    for file, library, issue in issues(run, "raw-type"):
        truthy = (
            " (any non-empty string counts as true)"
            if isinstance(issue.value, str) and "true nor" in issue.reason
            else ""
        )
        yield Finding(
            _value(file, issue),
            f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}{truthy}; {library} does not check it",
            "write the value without quotes" if isinstance(issue.value, str) else "",
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
            _key(file, issue),
            f"{library} refuses `{dotted(issue.path)}` by its presence, whatever its value",
            issue.reason,
            fix=edited(delete_entry, file, issue.path, why="remove the key", safe=False),
        )


@rule(
    "ZC111",
    "deprecated-key",
    Severity.WARNING,
    bad=Example({"ds.json": _DS % ', "cpu_offload": true'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % ', "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
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
            _key(file, issue),
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
        {"ds.json": _DS % ', "stage3_prefetch_bucket_size": 10, "prefetch_bucket_size": 10'},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": _DS % ', "stage3_prefetch_bucket_size": 10'}, consumer="deepspeed"),
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
    wrong_type,
    out_of_range,
    not_a_choice,
    null_value,
    section_not_a_mapping,
    unchecked_type,
    removed_key,
    deprecated_key,
    two_spellings,
)
