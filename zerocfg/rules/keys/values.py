"""ZC1xx: values. Types, ranges and choices, judged as the library that reads the file would."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.check import Issue
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.calls import given_in_calls
from zerocfg.rules.effects import edited, effective, failures, told
from zerocfg.rules.issues import DS, YAML, at_value, issues, limited, python_word, unfilled
from zerocfg.rules.proof import crashes, itself, shows
from zerocfg.rules.repairs import as_section, repaired
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.run.options import PRECISIONS
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Scalar, dotted


@rule(
    "ZC104",
    "wrong-type",
    Severity.ERROR,
    bad=Example({"ds.json": DS % ', "reduce_bucket_size": "5e8"'}, consumer="deepspeed").finds(
        "error", 'ds.json: "5e8"', "5e8"
    ),
    good=Example({"ds.json": DS % ', "reduce_bucket_size": 5e8'}, consumer="deepspeed"),
    proof=crashes("parse", "unable to parse string as an integer"),
    fixable=True,
)
def wrong_type(run: Run) -> Iterator[Finding]:
    """A value of a type that the library refuses.

    The job stops at it when its accelerators are reserved and, under the Trainer, the model is loaded.

    What happens: DeepSpeed's typed sections convert what pydantic converts ("500000000", 5e8 and true for a
    whole number; "yes" and 1 for true) and stop at everything else with a ValidationError. accelerate turns
    values into text for the environment and converts them back in every rank: `ValueError: invalid literal for
    int() with base 10`. A key of accelerate that the launch at hand does not look at (`use_cpu` beside
    `distributed_type: MULTI_GPU`) stops nothing and is a warning. `num_processes` and `num_machines` without a value
    are a note where no launch line is known to name the file: that line may give them.

    Fix: writes the number that a text spells (safe where only quotes go), the nearest whole number for a fraction,
    "auto" in small letters, true or false for enabled or disabled.
    """
    for file, library, issue in issues(run, "type"):
        if unfilled(file, issue) or python_word(run, file, issue.entry.value):
            continue  # ZC013 and ZC009 know why
        yield limited(
            run,
            issue,
            Finding(
                at_value(file, issue),
                f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}; "
                + _consequence(run, file, library, issue),
                fix=repaired(file, issue),
                severity=Severity.WARNING if _unread(run, file, issue) else None,
            ),
        )
    yield from _unsaid(run, "ZC104")


def _consequence(run: Run, file: SourceFile, library: str, issue: Issue) -> str:
    return f"{library} does not look at it in this launch" if _unread(run, file, issue) else f"{library} stops at it"


def _unread(run: Run, file: SourceFile, issue: Issue) -> bool:
    """Whether the launcher gets past a key of accelerate's top level: the road to the training is walked, and nothing
    on it stops."""
    if file is not run.accelerate or len(issue.path) != 1 or "num_processes" not in run.effective.settings:
        return False
    return not any(
        failure.phase == "launch" or any(place.file is file and place.path == issue.path for place in failure.places)
        for failure in run.effective.failures
    )


def _unsaid(run: Run, code: str) -> Iterator[Finding]:
    """What the road to the engine stops at although the key by itself may hold the value: null where the launcher
    divides, a text where it compares."""
    said = {(id(file), issue.path) for file, _, issue in issues(run, *_STOPPING)}
    loose = {(id(file), issue.path): (file, issue) for file, _, issue in issues(run, "raw-type")}
    for failure in failures(run, code):
        place = failure.places[0] if failure.places else None
        # A word of the launch line is ZC711's matter.
        if place is None or (place.kind not in ("flag", "environment") and (id(place.file), place.path) not in said):
            finding = told(run, failure, where="value")
            found = loose.get((id(place.file), place.path)) if place is not None and code == "ZC104" else None
            finding.fix = repaired(*found) if found is not None else None
            if place is not None and _left_to_line(run, place):
                finding.severity = Severity.NOTE
            yield finding


def _left_to_line(run: Run, place: Origin) -> bool:
    """Whether a file that no known line starts a job with leaves a number to that line: `num_processes: null`."""
    node = place.file.document.get(place.path) if place.file is not None and place.file.document else None
    counts = place.path in (("num_processes",), ("num_machines",))
    return run.launch is None and counts and isinstance(node, Scalar) and node.value is None


_STOPPING = ("unknown-crash", "removed", "type", "range", "choice", "null", "section-type")


@rule(
    "ZC105",
    "out-of-range",
    Severity.ERROR,
    bad=Example({"ds.json": DS % ', "reduce_bucket_size": 0'}, consumer="deepspeed").finds("error", "ds.json: 0", 0, 0),
    good=Example({"ds.json": DS % ', "reduce_bucket_size": 1000000'}, consumer="deepspeed"),
    proof=crashes("parse", "greater than 0"),
    fixable=True,
)
def out_of_range(run: Run) -> Iterator[Finding]:
    """A number outside of what the library allows.

    0 or -1 often stands for "no limit" or "choose for me" in other programs. Here it stops the job, or does something
    else much later.

    What happens: DeepSpeed's typed sections stop with a ValidationError that names the bound.

    Fix: removes the key, so that the default counts.
    """
    for file, library, issue in issues(run, "range"):
        raw = issue.key is not None and issue.key.facts.get("reads") == "raw"
        end = "nothing checks this before it is used" if raw else f"{library} stops at it"
        yield limited(
            run,
            issue,
            Finding(
                at_value(file, issue),
                f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}; {end}",
                fix=edited(delete_entry, file, issue.path, why="take the default", safe=False),
            ),
        )


@rule(
    "ZC106",
    "not-a-choice",
    Severity.ERROR,
    bad=Example({"ds.json": DS % ', "offload_optimizer": {"device": "CPU"}'}, consumer="deepspeed").finds(
        "error", 'ds.json: "CPU"'
    ),
    good=Example({"ds.json": DS % ', "offload_optimizer": {"device": "none"}'}, consumer="deepspeed"),
    proof=crashes("parse", "Input should be 'none', 'cpu' or 'nvme'"),
    fixable=True,
)
def not_a_choice(run: Run) -> Iterator[Finding]:
    """A word that is none of those allowed for the key. Most are case-sensitive.

    `CPU` for `cpu` costs a place in the queue and the time to load the model.

    What happens: DeepSpeed's typed sections stop with a ValidationError; accelerate stops at launch
    (`ValueError: 'deepspeed' is not a valid DistributedType`); a script stops at its own
    `Accelerator(mixed_precision='bfloat16')` (`ValueError: Unknown mixed_precision mode: bfloat16`).

    Fix: writes the word that this one is most likely meant to be.
    """
    for file, library, issue in issues(run, "choice"):
        if isinstance(issue.entry.value, Scalar) and issue.entry.value.raw.lower() in _SWITCHES:
            continue  # an unquoted yes or no: ZC006 says so
        if unfilled(file, issue):
            continue  # ZC013
        yield limited(
            run,
            issue,
            Finding(
                at_value(file, issue),
                f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}; {library} stops at it",
                fix=_meant(file, issue),
            ),
        )
    yield from _unsaid(run, "ZC106")
    for one in given_in_calls(run):
        if one.call.name != "accelerate.Accelerator" or one.name != "mixed_precision" or one.origin.file is None:
            continue
        if isinstance(one.value, str) and one.value not in PRECISIONS:
            near = closest(one.value, PRECISIONS)
            yield Finding(
                Location(one.origin.file, span=one.origin.span),
                f"`mixed_precision={one.value!r}` is none of {', '.join(PRECISIONS)}; Accelerator stops at it",
                f"write {near}" if near else "",
            )


_SWITCHES = ("yes", "no", "on", "off")


def _meant(file: SourceFile, issue: Issue) -> Fix | None:
    """The word that the catalog takes a wrong one for."""
    if not isinstance(issue.value, str) or issue.key is None:
        return None
    near = closest(
        issue.value, [word for one in issue.key.branches for word in one.get("enum", ()) if isinstance(word, str)]
    )
    return edited(replace_value, file, issue.path, f'"{near}"', why=f"write {near}", safe=False) if near else None


@rule(
    "ZC107",
    "null-value",
    Severity.ERROR,
    bad=Example({"ds.json": DS % ', "reduce_bucket_size": null'}, consumer="deepspeed").finds("error", "ds.json: null"),
    good=Example({"ds.json": DS % ""}, consumer="deepspeed"),
    proof=crashes("parse", "Input should be a valid integer"),
    fixable=True,
)
def null_value(run: Run) -> Iterator[Finding]:
    """null where the library needs a value.

    It is written to say "the default", which is what leaving the key out says.

    What happens: a ValidationError; null does not mean "the default" in DeepSpeed's typed sections. accelerate exports
    a `fsdp_version` or `fsdp_sharding_strategy` without a value as the text None: `ValueError: invalid literal for
    int() with base 10: 'None'`, `KeyError: 'NONE'`.

    Fix: removes the key, so that the default counts.
    """
    for file, library, issue in issues(run, "null"):
        yield limited(
            run,
            issue,
            Finding(
                at_value(file, issue),
                f"`{dotted(issue.path)}` is null; {library} stops at it",
                "leave the key out",
                fix=edited(delete_entry, file, issue.path, why="take the default", safe=False),
            ),
        )
    for setting in run.effective.environment.values():
        path = setting.origin.path
        if run.accelerate is None or setting.value != "None" or setting.origin.file is not run.accelerate:
            continue
        # FSDP 2 takes no sharding strategy.
        strategy = path[-1:] == ("fsdp_sharding_strategy",) and effective(run, "fsdp_config.fsdp_version") == 1
        if not strategy and path[-1:] != ("fsdp_version",):
            continue
        yield Finding(
            Location(run.accelerate, path, "value"),
            f"`{dotted(path)}` is null, which reaches every process as the text None; the plugin stops at it",
            "leave the key out",
            fix=edited(delete_entry, run.accelerate, path, why="take the default", safe=False),
        )


@rule(
    "ZC108",
    "section-not-a-mapping",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: ds.json\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n',
        },
        consumer="accelerate",
    ).finds("error", "accelerate.yaml: ds.json"),
    good=Example({"accelerate.yaml": YAML}),
    proof=crashes("launch", "'str' object has no attribute 'keys'"),
    fixable=True,
)
def section_not_a_mapping(run: Run) -> Iterator[Finding]:
    """A section that is written as a single value, a list or null.

    The message of the library names neither the key nor the file.

    What happens: DeepSpeed stops with `TypeError: ... argument after ** must be a mapping`, accelerate with
    `AttributeError: 'str' object has no attribute 'keys'`. The path of a DeepSpeed config goes into
    `deepspeed_config: {deepspeed_config_file: PATH}`. A section of accelerate that the launch at hand does not read
    (`deepspeed_config: ds.json` beside `distributed_type: MULTI_GPU`) stops nothing and is a warning.

    Fix: makes a section of it where one word says which: the path of a config, `true` for `{"enabled": true}`. null
    is removed.
    """
    for file, library, issue in issues(run, "section-type"):
        if unfilled(file, issue):
            continue
        help_text = ""
        if issue.path == ("deepspeed_config",) and isinstance(issue.value, str):
            help_text = f"write `deepspeed_config: {{deepspeed_config_file: {issue.value}}}`"
        yield limited(
            run,
            issue,
            Finding(
                at_value(file, issue),
                f"`{dotted(issue.path)}` {issue.reason}; {_consequence(run, file, library, issue)}",
                help_text,
                fix=as_section(file, issue),
                severity=Severity.WARNING if _unread(run, file, issue) else None,
            ),
        )
    yield from _unsaid(run, "ZC108")


@rule(
    "ZC109",
    "unchecked-type",
    Severity.WARNING,
    bad=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "prescale_gradients": "false"}\n'},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "false"'),
    good=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "prescale_gradients": false}\n'},
        consumer="deepspeed",
    ),
    proof=shows("parse", {"engine.prescale_gradients": ("false", False)}),
    fixable=True,
)
def unchecked_type(run: Run) -> Iterator[Finding]:
    """A value of the wrong type in a place where nothing checks types.

    A switch that says "false" and is on, or a crash far away from its cause.

    What happens: DeepSpeed's top level and its untyped sections take any value. A string travels on until
    something breaks (`TypeError: unsupported operand type(s) for //: 'str' and 'int'`), and the string "false"
    counts as true.

    Fix: takes the quotes off a number, true or false; makes a text of numbers where a text is needed (`gpu_ids`).

    When to ignore: your own code is what reads the value.
    """
    stopping = {(id(place.file), place.path) for failure in failures(run, "ZC104") for place in failure.places}
    for file, library, issue in issues(run, "raw-type"):
        if (id(file), issue.path) in stopping:
            continue  # ZC104: the road to the engine breaks at it
        if unfilled(file, issue) or python_word(run, file, issue.entry.value):
            continue  # ZC013 and ZC009 know why
        a_truth = issue.key is not None and any(one.get("type") == "boolean" for one in issue.key.scalars)
        truthy = " (any non-empty string counts as true)" if isinstance(issue.value, str) and a_truth else ""
        yield limited(
            run,
            issue,
            Finding(
                at_value(file, issue),
                f"`{dotted(issue.path)}: {show(issue.value)}` {issue.reason}{truthy}; {library} does not check it",
                "write the value without quotes" if isinstance(issue.value, str) else "",
                fix=repaired(file, issue),
            ),
        )


@rule(
    "ZC113",
    "missing-key",
    Severity.ERROR,
    bad=Example({"zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: trl\n    recipe: recipe.yaml\n"}).finds(
        "error", "zerocfg.yaml: sft"
    ),
    good=Example(
        {"zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: trl\n    script: sft.py\n    recipe: recipe.yaml\n"}
    ),
    proof=itself("tests/build/test_spec.py"),
)
def missing_key(run: Run) -> Iterator[Finding]:
    """A run of zerocfg.yaml without a key that every run needs.

    Nothing can be built or launched from a run that names no script or no config.

    What happens: `zerocfg build` stops with exit code 2 before it resolves anything.

    When to ignore: the file is unfinished.
    """
    for file, _, issue in issues(run, "missing"):
        yield Finding(
            Location(file, issue.path, "key", span=issue.entry.key_span),
            f"the run `{issue.path[-1]}` has no `{issue.reason}`; zerocfg build stops at it",
            f"add `{issue.reason}:`" + (f" ({issue.key.description})" if issue.key else ""),
        )


@rule(
    "ZC119",
    "unmade-run",
    Severity.ERROR,
    bad=Example(
        {
            "zerocfg.yaml": "version: 1\nbases:\n  common: {consumer: trl, recipe: recipe.yaml}\n"
            "runs:\n  sft: {extends: comon, script: sft.py}\n"
        }
    ).finds("error", "zerocfg.yaml: comon"),
    good=Example(
        {
            "zerocfg.yaml": "version: 1\nbases:\n  common: {consumer: trl, recipe: recipe.yaml}\n"
            "runs:\n  sft: {extends: common, script: sft.py}\n"
        }
    ),
    proof=itself("tests/build/test_wrong_specs.py"),
)
def unmade_run(run: Run) -> Iterator[Finding]:
    """`extends` or `matrix` of a zerocfg.yaml makes no run.

    A base that there is not, bases that extend each other, an axis without values, two runs of one name. Nothing else
    can be said about such a run.

    What happens: `zerocfg build` stops with exit code 2 before it resolves anything.

    When to ignore: the file is unfinished.
    """
    for origin, message, way_out in run.troubles:
        if origin.file is not None:
            place = Location(origin.file, origin.path, origin.note or "value")
            asks = [Location(run.spec, ("runs",), "key", label="these runs need it")] if run.spec else []
            related = asks if origin.file is not run.spec else []
            yield Finding(place, f"{message}; zerocfg build stops at it", way_out, related)


RULES = (
    wrong_type,
    out_of_range,
    not_a_choice,
    null_value,
    section_not_a_mapping,
    unchecked_type,
    missing_key,
    unmade_run,
)
