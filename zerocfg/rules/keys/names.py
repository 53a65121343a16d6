"""ZC1xx: keys. What the catalog found in one file, in the words of its reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.check import Issue
from zerocfg.catalog.counterparts import Counterpart
from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import deepspeed_data, edited, rewritten
from zerocfg.rules.issues import DS, YAML, at_key, issues, limited
from zerocfg.rules.keys.places import foreign, home
from zerocfg.rules.moving import as_json, moved
from zerocfg.rules.proof import ABSENT, crashes, logged, shows
from zerocfg.rules.renaming import instead, nowhere, own_name, said_in
from zerocfg.rules.zero.saving import misplaced_gather
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.script.arguments import call_of
from zerocfg.source.edit import Edit, delete_entry
from zerocfg.source.node import Mapping, dotted, plain

SCIENTIFIC = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
_POINTS = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_POINTED = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"gradient_clipping": "auto", "zero_optimization": {"stage": 2%s}}\n'
)


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
    bad=Example({"ds.json": DS % ', "allreduce_bucket_size": 500000000'}, consumer="deepspeed").finds(
        "error", 'ds.json: "allreduce_bucket_size"'
    ),
    good=Example({"ds.json": DS % ', "reduce_bucket_size": 500000000'}, consumer="deepspeed"),
    proof=crashes("parse", "Extra inputs are not permitted"),
    fixable=True,
)
def unknown_key(run: Run) -> Iterator[Finding]:
    """A key that the library does not know, where unknown keys stop it.

    The job dies of one word, after it waited for its accelerators and, under the Trainer, after the model was loaded.

    What happens: DeepSpeed's sections for ZeRO, offload, fp16, bf16, monitors and compile refuse unknown keys,
    also when the section is switched off: `pydantic ValidationError: Extra inputs are not permitted`.
    accelerate refuses unknown keys at the top level of its file: `ValueError: The config file at ... had
    unknown keys`.

    Fix: writes the key that this one is most likely meant to be. A key that another program calls so (`nnodes`,
    `max_grad_norm`) gets the name that is read here, and its value goes along. Where no key is near it is removed.
    """
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


@rule(
    "ZC102",
    "ignored-key",
    Severity.ERROR,
    bad=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 2}}\n'},
        consumer="deepspeed",
    ).finds("error", 'ds.json: "zero_optimisation"'),
    good=Example({"ds.json": DS % ""}, consumer="deepspeed"),
    proof=shows("parse", {"engine.zero_config.stage": (0, 2)}),
    fixable=True,
)
def ignored_key(run: Run) -> Iterator[Finding]:
    """A key that nobody reads: DeepSpeed looks up the keys it knows and never looks at the others.

    `zero_optimisation` trains without ZeRO, and the file that says so looks right to everybody who reviews it.

    What happens: nothing, and that is the trouble. The top level, optimizer, scheduler,
    activation_checkpointing, aio, checkpoint, data_types, flops_profiler and others are read key by key, so a
    misspelt key has no effect and no message. A warning only where no known key is close: your own code may
    read it.

    Fix: writes the key that this one is most likely meant to be.

    When to ignore: your training script reads the key itself.
    """
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


@rule(
    "ZC103",
    "key-accelerate-ignores",
    Severity.ERROR,
    bad=(
        Example(
            {"accelerate.yaml": _POINTS + "  reduce_bucket_size: 200000000\n", "ds.json": _POINTED % ""},
            consumer="transformers",
        ).finds("error", "accelerate.yaml: reduce_bucket_size"),
        Example(
            {"accelerate.yaml": YAML + "  bf16: {enabled: true}\n"},
            consumer="accelerate",
            proof=shows(
                "launch", {"env.ACCELERATE_MIXED_PRECISION": ("no", "bf16")}, extent="what the launcher exports."
            ),
        ).finds("error", "accelerate.yaml: bf16"),
        Example(
            {"accelerate.yaml": YAML.replace("zero_stage", "stage")},
            consumer="accelerate",
            proof=shows("launch", {"env.ACCELERATE_DEEPSPEED_ZERO_STAGE": (ABSENT, "2")}),
        ).finds("error", "accelerate.yaml: stage"),
    ),
    good=(
        Example(
            {"accelerate.yaml": _POINTS, "ds.json": _POINTED % ', "reduce_bucket_size": 200000000'},
            consumer="transformers",
        ),
        Example(
            {"accelerate.yaml": "mixed_precision: bf16\n" + YAML},
            consumer="accelerate",
            proof=shows(
                "launch", {"env.ACCELERATE_MIXED_PRECISION": ("no", "bf16")}, extent="what the launcher exports."
            ),
        ),
        Example(
            {"accelerate.yaml": YAML},
            consumer="accelerate",
            proof=shows("launch", {"env.ACCELERATE_DEEPSPEED_ZERO_STAGE": (ABSENT, "2")}),
        ),
    ),
    proof=shows("init", {"config.zero_optimization.reduce_bucket_size": (ABSENT, 200000000)}),
    fixable=True,
    references=("accelerate/commands/launch.py@1.15.0", "accelerate#2298", "LlamaFactory#253"),
)
def key_accelerate_ignores(run: Run) -> Iterator[Finding]:
    """A key in a section of the accelerate config that accelerate never reads.

    The file says what its author wants, and the job does something else: other bucket sizes, no bf16, no weights in
    the checkpoint.

    What happens: the launcher copies every key of every section into its arguments without a check and exports
    only those it knows. DeepSpeed's own keys (`overlap_comm`, bucket sizes, `bf16`,
    `stage3_gather_16bit_weights_on_model_save`) have no effect there, without a message; DeepSpeed's defaults
    apply. They belong in a DeepSpeed JSON that `deepspeed_config_file` points to.

    Fix: takes the value to where it counts. A key that accelerate has under another name gets that name (`bf16` becomes
    `mixed_precision`, the Trainer's `max_grad_norm` becomes `gradient_clipping`); where `deepspeed_config_file` names a
    JSON without the key, it moves there: both files change, or neither. The path of a JSON in the place of a key
    becomes `deepspeed_config_file`. A key that nobody has is removed; an argument of the Trainer only as an unsafe fix.

    When to ignore: your own code reads the file.
    """
    for file, library, issue in issues(run, "unknown-ignored"):
        if library != "accelerate":
            continue
        name, section = str(issue.path[-1]), _section(issue)
        if misplaced_gather(run) == issue.path and run.effective.value("zero_optimization.stage") == 3:
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


@rule(
    "ZC110",
    "removed-key",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "amp": {"enabled": false}}\n'},
            consumer="deepspeed",
        ).finds("error", 'ds.json: "amp"'),
        Example(
            {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "quantize_training": {"enabled": false}}\n'},
            consumer="deepspeed",
            proof=crashes("parse", "Mixture-of-Quantization .MoQ. / 'quantize_training' has been removed"),
        ).finds("error", 'ds.json: "quantize_training"'),
    ),
    good=Example({"ds.json": '{"train_micro_batch_size_per_gpu": 1}\n'}, consumer="deepspeed"),
    proof=crashes("parse", "NVIDIA Apex AMP integration has been removed"),
    fixable=True,
)
def removed_key(run: Run) -> Iterator[Finding]:
    """A key of a feature that was removed; its presence alone is refused.

    Such keys come with a file from an older release or a template, and the release that drops them stops every job
    that used to run.

    What happens: DeepSpeed 0.19.8 raises `DeepSpeedConfigError` for each of these keys, whatever its value, even
    `{"enabled": false}`. accelerate refuses the ones it dropped as unknown keys.

    Fix: removes the key, and with it what the older release did with it.
    """
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


@rule(
    "ZC111",
    "deprecated-key",
    Severity.WARNING,
    bad=Example({"ds.json": DS % ', "cpu_offload": true'}, consumer="deepspeed").finds(
        "warning", 'ds.json: "cpu_offload"'
    ),
    good=Example({"ds.json": DS % ', "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
    proof=shows("parse", {"log": logged("cpu_offload.*deprecated")}),
    fixable=True,
)
def deprecated_key(run: Run) -> Iterator[Finding]:
    """A key that still works under an old name.

    It is refused one day, as the keys of ZC110 were, and until then it hides from everybody who searches for the new
    name.

    What happens: DeepSpeed maps it to the new name and prints a warning among hundreds of lines.

    Fix: writes the new name, with the value in its new form.

    When to ignore: the file also serves a release that does not know the new name.
    """
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


@rule(
    "ZC112",
    "two-spellings",
    Severity.ERROR,
    bad=Example(
        {"ds.json": DS % ', "stage3_prefetch_bucket_size": 10, "prefetch_bucket_size": 10'},
        consumer="deepspeed",
    ).finds("error", 'ds.json: "prefetch_bucket_size"', also=('ds.json: "stage3_prefetch_bucket_size"',)),
    good=Example({"ds.json": DS % ', "stage3_prefetch_bucket_size": 10'}, consumer="deepspeed"),
    proof=crashes("parse", "Extra inputs are not permitted"),
    fixable=True,
)
def two_spellings(run: Run) -> Iterator[Finding]:
    """One setting under both of its names.

    Both names are right, and each alone works, so that the message points at a key that every example has.

    What happens: DeepSpeed's ZeRO section takes `stage3_prefetch_bucket_size` and `prefetch_bucket_size`, but
    not both: `Extra inputs are not permitted` on the plain name.

    Fix: removes the second name, where both say the same it is a safe one.
    """
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


RULES = (
    unknown_key,
    ignored_key,
    key_accelerate_ignores,
    removed_key,
    deprecated_key,
    two_spellings,
)
