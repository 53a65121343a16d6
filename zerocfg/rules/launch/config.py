"""ZC7xx: what `accelerate launch` makes of its config file and its command line. Several machines and devices are in

:mod:`zerocfg.rules.launch.machines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, at, rule
from zerocfg.rules.effects import (
    TOLD_BY,
    accelerate_data,
    accelerate_section,
    anchor,
    edited,
    failures,
    ignored,
    together,
    told,
    words,
)
from zerocfg.rules.line import is_page, line_fix, plain, says, written
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.hub import is_hub_name
from zerocfg.run.model import Failure, Origin, Run, SourceFile
from zerocfg.run.options import OPTIONS
from zerocfg.run.written import among_others, of_elsewhere
from zerocfg.source.edit import Edit, delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path, Scalar

_SECTION = "deepspeed_config:\n  zero_stage: 2\n"
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\n" + _SECTION
_WITH_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": %s}}\n'
)
_LINE = "accelerate launch --config_file accelerate.yaml %strain.py\n"
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"


@rule(
    "ZC701",
    "number-of-processes-missing",
    Severity.ERROR,
    bad=Example(
        {"accelerate.yaml": "distributed_type: DEEPSPEED\ngpu_ids: 0,1\n" + _SECTION, "train.sh": _LINE % ""}
    ).finds("error", "accelerate.yaml"),
    good=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % ""}),
    proof=crashes("launch", "You need to manually pass in `--num_processes`"),
    fixable=True,
    references=("accelerate/commands/launch.py@1.15.0",),
)
def number_of_processes_missing(run: Run) -> Iterator[Finding]:
    """The accelerate config does not say how many processes to start.

    Without a config accelerate counts the accelerators; with one it does not, and the job stops at once.

    What happens: `ValueError: You need to manually pass in --num_processes using this config yaml.` The number
    counts the processes of all machines together.

    Fix: writes as many as `gpu_ids` names, or as the hardware of `zerocfg.yaml` has.

    A note where no launch line is known to name the file: it may leave the number to the line that starts it. Where
    zerocfg sees a line that gives the number, it says nothing.

    When to ignore: every launch gives `--num_processes`.
    """
    for failure in failures(run, "ZC701"):
        if run.accelerate is None:
            continue
        yield Finding(
            anchor(run, failure.places)[0],
            "no `num_processes`: the launcher stops"
            + ("" if run.launch else " unless each launch line gives --num_processes"),
            "write `num_processes: N`, the number of accelerators of all machines together",
            fix=_counted(run),
            severity=None if run.launch else Severity.NOTE,
        )


def _counted(run: Run) -> Fix | None:
    """The number of processes, where something else tells it."""
    data = accelerate_data(run)
    ids, machines = data.get("gpu_ids"), data.get("num_machines", 1)
    count = run.hardware.accelerators if run.hardware is not None else None
    if count is None and isinstance(ids, str) and ids.replace(",", "").replace(" ", "").isdecimal():
        named = len([part for part in ids.split(",") if part.strip()])
        count = named * machines if isinstance(machines, int) and not isinstance(machines, bool) else None
    if count is None or count < 1:
        return None
    why, name = f"write num_processes: {count}", "num_processes"
    if name in data:
        return edited(replace_value, run.accelerate, (name,), str(count), why=why, safe=False)
    return edited(insert_entry, run.accelerate, (), name, str(count), why=why, safe=False, after="distributed_type")


@rule(
    "ZC702",
    "fields-beside-config-file",
    Severity.ERROR,
    bad=Example(
        {"accelerate.yaml": _WITH_FILE + "mixed_precision: bf16\n", "ds.json": _DS % 2}, consumer="accelerate"
    ).finds("error", "accelerate.yaml: mixed_precision: bf16", also=("ds.json",)),
    good=Example({"accelerate.yaml": _WITH_FILE, "ds.json": _DS % 2}, consumer="accelerate"),
    proof=crashes("arguments", "the following accelerate config variables will be ignored: .*mixed_precision"),
    fixable=True,
)
def fields_beside_config_file(run: Run) -> Iterator[Finding]:
    """The accelerate config names a DeepSpeed file and also sets what belongs into that file.

    accelerate's own template and its questionnaire lead there, and the message calls fatal what it names ignored.

    Nine keys may not stand beside a DeepSpeed config, whatever their value: gradient_accumulation_steps,
    gradient_clipping, zero_stage, both offload devices, both NVMe paths, zero3_save_16bit_model and mixed_precision
    (even `'no'`). The same holds when the training arguments name the DeepSpeed file.

    What happens: every process stops with `ValueError: When using deepspeed_config_file, the following accelerate
    config variables will be ignored: [...]`. It says "ignored", but it is fatal.

    Fix: removes the keys from the accelerate config, so that the DeepSpeed config decides.
    """
    for failure in failures(run, "ZC702"):
        names = failure.about
        paths: list[Path] = [
            ("deepspeed_config", name) if name in accelerate_section(run) else (name,) for name in names
        ]
        if run.accelerate is None:
            yield told(run, failure)
            continue
        file = run.accelerate
        fixes = [edited(delete_entry, file, path, why="") for path in paths]
        by = run.deepspeed.name if run.deepspeed else "a DeepSpeed config"
        beside = [Location(run.deepspeed, label="the DeepSpeed config")] if run.deepspeed else []
        listed = ", ".join(f"`{name}`" for name in names)
        yield Finding(
            Location(file, paths[0]),
            f"{listed} may not stand beside {by}: every process stops, whatever the values",
            "say it in the DeepSpeed config only",
            [*(Location(file, path) for path in paths[1:]), *beside],
            together("remove what the DeepSpeed config decides", *fixes, safe=False),
        )


@rule(
    "ZC703",
    "file-not-found",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _WITH_FILE, "train.sh": _LINE % ""}, consumer="accelerate").finds(
        "warning", "accelerate.yaml: deepspeed_config_file: ds.json"
    ),
    good=Example({"accelerate.yaml": _WITH_FILE, "train.sh": _LINE % "", "ds.json": _DS % 2}, consumer="accelerate"),
    proof=crashes("arguments", "Expected a string path to an existing deepspeed config"),
)
def file_not_found(run: Run) -> Iterator[Finding]:
    """A config file that is pointed at is nowhere to be found.

    Nothing looks before the job has its accelerators, and then the message speaks of base64.

    Looked for from the folder that zerocfg runs in, the `cd` of the launch line, and the folders around the
    pointing file. Paths that are absolute, made of variables or plainly examples are not judged, and of those on a page
    of documentation only such as lie in a folder that is there, with other files of their kind.

    What happens: the launcher does not look; every process stops with `Expected a string path to an existing
    deepspeed config, or a dictionary, or a base64 encoded string`.

    A warning where a launch line leads to it; a note where a config stands alone and may be used from another
    folder; an error where a number stands in place of a path. Nothing is said of a file that the launch script or one
    beside it writes, nor below a `cd` to an absolute folder, nor where the script that the line starts is not here
    either, nor any other config of the line: that line belongs to a checkout of something else.
    """
    for origin in run.missing:
        path = origin.note
        if "model" in origin.path and is_hub_name(path):
            continue  # the job downloads it; only zerocfg build needs it in the hub's cache
        if not _looks_local(path) or (origin.file is not None and not _certain(origin.file, path)):
            continue
        if run.launch is not None and of_elsewhere(run, path):
            continue
        location = at(origin)
        if location is not None:
            yield Finding(
                location,
                f"{path} was not found; every process that looks for it stops",
                "correct the path; it counts from the folder in which the job is started",
                severity=Severity.ERROR if _is_number(origin) else None if run.launch else Severity.NOTE,
            )


def _certain(file: SourceFile, path: str) -> bool:
    """Whether a page of documentation names a file that should be there: its folder is, with other files of its kind.
    What else a page names may be the reader's to write. Of all other files this is certain."""
    if not is_page(file) or file.path is None:
        return True
    return among_others(file.path, path)


def _is_number(origin: Origin) -> bool:
    """Whether no path is written where one belongs (`deepspeed_config_file: 1`)."""
    node = origin.file.document.get(origin.path) if origin.file is not None and origin.file.document else None
    return origin.kind == "file" and isinstance(node, Scalar) and not isinstance(node.value, str)


_EXAMPLES = ("path/to", "your", "<", "$", "{", "...", "xxx")


def _looks_local(path: str) -> bool:
    return (
        bool(path) and path[0] not in "/~\\" and ":" not in path and not any(word in path.lower() for word in _EXAMPLES)
    )


@rule(
    "ZC707",
    "two-deepspeed-files",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _WITH_FILE + "  zero3_init_flag: false\n",
            "ds.json": _DS % 1,
            "other.json": _DS % 2,
            "recipe.yaml": _RECIPE + "deepspeed: other.json\n",
            "train.sh": _LINE.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        consumer="transformers",
    ).finds("error", "accelerate.yaml: deepspeed_config_file: ds.json"),
    good=Example(
        {
            "accelerate.yaml": _WITH_FILE,
            "ds.json": _DS % 1,
            "recipe.yaml": _RECIPE,
            "train.sh": _LINE.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        consumer="transformers",
    ),
    proof=shows(
        "parse", {"read.deepspeed_config.deepspeed_config_file": ("ds.json", "ds.json"), "engine.stage": (2, 1)}
    ),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def two_deepspeed_files(run: Run) -> Iterator[Finding]:
    """The accelerate config names one DeepSpeed file and the training arguments another.

    The one that is edited for days may be the one that nobody reads.

    What happens: the training arguments win without a word.

    Fix: removes the name from the accelerate config.

    When to ignore: never.
    """
    for item in ignored(run, "ZC707"):
        named = run.effective.environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
        if (
            run.deepspeed is None
            or named is None
            or str(named.value).rpartition("/")[2] == run.deepspeed.name.rpartition("/")[2]
        ):
            continue
        location, related = anchor(run, [item.place])
        yield Finding(
            location,
            f"{named.value} is silently not used: `deepspeed` of the training arguments names {run.deepspeed.name}",
            "name the file in one place",
            related,
            edited(delete_entry, item.place.file, item.place.path, why="name it in the arguments only", safe=False)
            if item.place.kind == "file"
            else None,
        )


@rule(
    "ZC711",
    "launch-option-refused",
    Severity.ERROR,
    bad=(
        Example({"train.sh": "accelerate launch --use_deepspeed --num_processes 2.0 train.py\n"}).finds(
            "error", "train.sh: --num_processes 2.0", "2.0"
        ),
        Example(
            {"train.sh": "accelerate launch --use_deepspeed --num_processes 2 --mixed_precison bf16 train.py\n"},
            proof=crashes("launch", "unrecognized arguments: --mixed_precison"),
        ).finds("error", "train.sh: --mixed_precison bf16"),
        Example(
            {"train.sh": "accelerate launch --use_deepspeed --num_processes 2 --mixed_precision BF16 train.py\n"},
            proof=crashes("launch", "invalid choice: 'BF16'"),
        ).finds("error", "train.sh: --mixed_precision BF16"),
    ),
    good=Example({"train.sh": "accelerate launch --use_deepspeed --num_processes 2 --mixed_precision bf16 train.py\n"}),
    proof=crashes("launch", "invalid int value: '2.0'"),
    fixable=True,
    references=("accelerate/commands/launch.py@1.15.0",),
)
def launch_option_refused(run: Run) -> Iterator[Finding]:
    """An option of a launch line that its launcher does not take.

    The job ends in its first second, but only after it has waited in the queue.

    What happens: argparse prints its usage and leaves, or the launcher stops at options that exclude each other.

    Fix: writes the option, the word or the whole number that the written one is most likely meant to be.
    """
    for failure in run.effective.failures:
        code = TOLD_BY.get(failure.kind)
        place = failure.places[0] if failure.places else None
        on_line = place is not None and place.kind in ("flag", "environment")
        if place is not None and place.span is not None and place.file is not None and on_line:
            words = place.file.source.text[place.span.start : place.span.end]
            if _PLACEHOLDER.search(words):
                continue  # a line of a manual: the reader fills it in
        if code == "ZC711" or (on_line and code in _CATALOG):
            location, related = anchor(run, failure.places)
            yield Finding(location, failure.message, related=related, fix=_meant(run, failure))


def _meant(run: Run, failure: Failure) -> Fix | None:
    """The refused option as the launcher takes it."""
    span = failure.places[0].span if failure.places else None
    given = next((one for one in run.launch.options if one.span == span), None) if run.launch is not None else None
    text = written(run, given) if given is not None else None
    if given is None or text is None:
        return None
    name, value = plain(given.name), given.value.value if given.value is not None else None
    means = value
    if failure.kind == "flag-unknown":
        near = closest(name, OPTIONS)
        new = text.replace(given.name, f"--{near}", 1) if near is not None else None
        name = near or name
    elif value is None or given.value is None or not text.endswith(value):
        return None
    elif failure.kind == "flag-choice":
        near = closest(value, OPTIONS[name].choices) if name in OPTIONS else None
        new, means = (text[: -len(value)] + near, near) if near is not None else (None, None)
    else:
        whole = re.fullmatch(r"(\d+)\.0*", value) if failure.kind == "flag-type" else None
        new, means = (text[: -len(value)] + whole[1], whole[1]) if whole is not None else (None, None)
    return line_fix(run, f"write {new}", [Edit(given.span, new)], gives=says(name, means)) if new is not None else None


_PLACEHOLDER = re.compile(r"\{\w+\}|<[\w -]+>|\.\.\.")
_CATALOG = ("ZC006", "ZC008", "ZC101", "ZC104", "ZC106", "ZC108", "ZC109", "ZC110")


@rule(
    "ZC713",
    "flag-beats-file",
    Severity.NOTE,
    bad=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % "--zero_stage 1 "}).finds(
        "note", "accelerate.yaml: zero_stage: 2", 2, 1, also=("train.sh: --zero_stage 1",)
    ),
    good=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % ""}),
    proof=shows("launch", {"env.ACCELERATE_DEEPSPEED_ZERO_STAGE": ("1", "2")}),
)
def flag_beats_file(run: Run) -> Iterator[Finding]:
    """An option of the launch line replaces a different value of the config file.

    That is what it is for; the note helps who reads the file alone.

    What happens: the launcher takes the option and never looks at the key.

    When to ignore: the line is meant to differ from the file.
    """
    for item in ignored(run, "ZC713"):
        written: object = accelerate_data(run)
        for part in item.place.path:
            written = written.get(part) if isinstance(written, dict) else None
        used = item.used
        if used is None or not used.known or str(used.value).lower() == str(written).lower():
            continue
        location, related = anchor(run, [item.place, used.origin])
        yield Finding(
            location,
            f"`{item.place.path[-1]}: {show(written)}` is replaced by {show(used.value)} {words(used.origin)}",
            "",
            related,
        )


@rule(
    "ZC714",
    "distributed-type-missing",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "compute_environment: LOCAL_MACHINE\nnum_processes: 2\n" + _SECTION}).finds(
        "error", "accelerate.yaml"
    ),
    good=Example({"accelerate.yaml": _YAML}),
    proof=crashes("launch", "A `distributed_type` must be specified in the config file"),
    fixable=True,
    references=("accelerate/commands/config/config_args.py@1.15.0",),
)
def distributed_type_missing(run: Run) -> Iterator[Finding]:
    """The accelerate config has no `distributed_type`.

    It is the only key that every accelerate config needs.

    What happens: `ValueError: A distributed_type must be specified in the config file.`

    Fix: writes DEEPSPEED where there is a `deepspeed_config`, FSDP where there is an `fsdp_config`, and nothing where
    there are both or none.
    """
    for failure in failures(run, "ZC714"):
        finding = told(run, failure, "write `distributed_type: DEEPSPEED` (or FSDP, MULTI_GPU, NO)")
        kinds = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP", "megatron_lm_config": "MEGATRON_LM"}
        found = [kind for name, kind in kinds.items() if accelerate_section(run, name)]
        if len(found) == 1:
            why = f"write distributed_type: {found[0]}"
            after = next(iter(accelerate_data(run)))
            finding.fix = edited(
                insert_entry, run.accelerate, (), "distributed_type", found[0], why=why, safe=False, after=after
            )
        yield finding


RULES = (
    number_of_processes_missing,
    fields_beside_config_file,
    file_not_found,
    two_deepspeed_files,
    launch_option_refused,
    flag_beats_file,
    distributed_type_missing,
)
