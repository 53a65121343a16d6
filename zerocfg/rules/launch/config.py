"""ZC7xx: what `accelerate launch` makes of its config file and its command line. Several machines and devices are in

:mod:`zerocfg.rules.launch.machines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, at, rule
from zerocfg.rules.effects import accelerate_data, accelerate_section, describe_origin
from zerocfg.rules.failures import RULE_FOR_FAILURE, failures, ignored, primary_location, reported
from zerocfg.rules.fixes import edited, together
from zerocfg.rules.line import is_page, line_fix, option_at, plain, says, written
from zerocfg.run.hub import is_hub_name
from zerocfg.run.linking.missing_files import has_similar_files, launches_other_checkout
from zerocfg.run.model import Failure, Origin, Run, SourceFile
from zerocfg.run.stages.options import OPTIONS
from zerocfg.source.edit import Edit, delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path, Scalar


@rule("ZC701", "number-of-processes-missing", Severity.ERROR)
def number_of_processes_missing(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC701"):
        if run.accelerate is None:
            continue
        yield Finding(
            primary_location(run, failure.places)[0],
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


@rule("ZC702", "fields-beside-config-file", Severity.ERROR)
def fields_beside_config_file(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC702"):
        names = failure.about
        paths: list[Path] = [
            ("deepspeed_config", name) if name in accelerate_section(run) else (name,) for name in names
        ]
        if run.accelerate is None:
            yield reported(run, failure)
            continue
        file = run.accelerate
        fixes = [edited(delete_entry, file, path, why="") for path in paths]
        in_section = "deepspeed_config_file" in accelerate_section(run)
        config = "`deepspeed_config_file`" if in_section else "the DeepSpeed config of the training arguments"
        beside = [Location(run.deepspeed, label="the DeepSpeed config")] if run.deepspeed else []
        listed = ", ".join(f"`{name}`" for name in names)
        yield Finding(
            Location(file, paths[0]),
            f"{listed} cannot be combined with {config}; accelerate raises even if the values agree",
            "set it in the DeepSpeed config only",
            [*(Location(file, path) for path in paths[1:]), *beside],
            together("remove it from the accelerate config", *fixes, safe=False),
        )


@rule("ZC703", "file-not-found", Severity.WARNING)
def file_not_found(run: Run) -> Iterator[Finding]:
    for origin in run.missing:
        path = origin.note
        if "model" in origin.path and is_hub_name(path):
            continue  # the job downloads it; only zerocfg build needs it in the hub's cache
        if not _looks_local(path) or (origin.file is not None and not _certain(origin.file, path)):
            continue
        if run.launch is not None and launches_other_checkout(run, path):
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
    return has_similar_files(file.path, path)


def _is_number(origin: Origin) -> bool:
    """Whether no path is written where one belongs (`deepspeed_config_file: 1`)."""
    node = origin.file.document.get(origin.path) if origin.file is not None and origin.file.document else None
    return origin.kind == "file" and isinstance(node, Scalar) and not isinstance(node.value, str)


_EXAMPLES = ("path/to", "your", "<", "$", "{", "...", "xxx")


def _looks_local(path: str) -> bool:
    return (
        bool(path) and path[0] not in "/~\\" and ":" not in path and not any(word in path.lower() for word in _EXAMPLES)
    )


@rule("ZC707", "two-deepspeed-files", Severity.ERROR)
def two_deepspeed_files(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC707"):
        named = run.effective.environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
        if (
            run.deepspeed is None
            or named is None
            or str(named.value).rpartition("/")[2] == run.deepspeed.name.rpartition("/")[2]
        ):
            continue
        location, related = primary_location(run, [item.place])
        yield Finding(
            location,
            f"{named.value} is silently not used: `deepspeed` of the training arguments names {run.deepspeed.name}",
            "name the file in one place",
            related,
            edited(delete_entry, item.place.file, item.place.path, why="name it in the arguments only", safe=False)
            if item.place.kind == "file"
            else None,
        )


@rule("ZC711", "launch-option-refused", Severity.ERROR)
def launch_option_refused(run: Run) -> Iterator[Finding]:
    for failure in run.effective.failures:
        code = RULE_FOR_FAILURE.get(failure.kind)
        place = failure.places[0] if failure.places else None
        on_line = place is not None and place.kind in ("flag", "environment")
        if place is not None and place.span is not None and place.file is not None and on_line:
            text = place.file.source.text[place.span.start : place.span.end]
            if _PLACEHOLDER.search(text):
                continue  # a line of a manual: the reader fills it in
        if code == "ZC711" or (on_line and code in _CATALOG):
            location, related = primary_location(run, failure.places)
            yield Finding(location, failure.message, related=related, fix=_meant(run, failure))


def _meant(run: Run, failure: Failure) -> Fix | None:
    """The refused option as the launcher takes it."""
    given = option_at(run, failure.places[0]) if failure.places else None
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


@rule("ZC713", "flag-beats-file", Severity.NOTE)
def flag_beats_file(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC713"):
        written: object = accelerate_data(run)
        for part in item.place.path:
            written = written.get(part) if isinstance(written, dict) else None
        used = item.used
        if used is None or not used.known or str(used.value).lower() == str(written).lower():
            continue
        location, related = primary_location(run, [item.place, used.origin])
        yield Finding(
            location,
            f"`{item.place.path[-1]}: {show(written)}` is replaced by {show(used.value)} "
            f"{describe_origin(used.origin)}",
            "",
            related,
        )


@rule("ZC714", "distributed-type-missing", Severity.ERROR)
def distributed_type_missing(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC714"):
        finding = reported(run, failure, "write `distributed_type: DEEPSPEED` (or FSDP, MULTI_GPU, NO)")
        kinds = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP", "megatron_lm_config": "MEGATRON_LM"}
        found = [kind for name, kind in kinds.items() if accelerate_section(run, name)]
        if len(found) == 1:
            why = f"write distributed_type: {found[0]}"
            after = next(iter(accelerate_data(run)))
            finding.fix = edited(
                insert_entry, run.accelerate, (), "distributed_type", found[0], why=why, safe=False, after=after
            )
        yield finding
