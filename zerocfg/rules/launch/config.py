"""ZC7xx: what `accelerate launch` makes of its config file and its command line. Several machines and devices are in

:mod:`zerocfg.rules.launch.machines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, at, rule
from zerocfg.rules.effects import accelerate_section, describe_origin
from zerocfg.rules.failures import RULE_FOR_FAILURE, ignored, primary_location, reported
from zerocfg.rules.key import accelerate, deepspeed, delete_all, finding_at, from_origin
from zerocfg.rules.launch.options import listed, machines_of
from zerocfg.rules.line import is_page, line_fix, line_option, option_at, options_without_value, says
from zerocfg.rules.subjects import FailureOfRun, IgnoredOfRun, each_failure, each_ignored
from zerocfg.run.hub import is_hub_name
from zerocfg.run.linking.missing_files import has_similar_files, launches_other_checkout
from zerocfg.run.model import Failure, Origin, Run, SourceFile
from zerocfg.run.stages.options import OPTIONS
from zerocfg.source.node import Scalar


@rule("ZC701", "number-of-processes-missing", Severity.ERROR, each_failure("ZC701"))
def number_of_processes_missing(predicted: FailureOfRun) -> Iterator[Finding]:
    run = predicted.run
    if run.accelerate is None:
        return
    yield Finding(
        primary_location(run, predicted.failure.places)[0],
        "no `num_processes`: the launcher stops"
        + ("" if run.launch else " unless each launch line gives --num_processes"),
        "write `num_processes: N`, the number of accelerators of all machines together",
        fix=_counted(run),
        severity=None if run.launch else Severity.NOTE,
    )


def _counted(run: Run) -> Fix | None:
    """The number of processes, where something else tells it."""
    ids, machines = accelerate(run, "gpu_ids").value, machines_of(run)
    count = run.hardware.accelerators if run.hardware is not None else None
    if count is None and isinstance(ids, str) and ids.replace(",", "").replace(" ", "").isdecimal():
        count = len(listed(ids)) * machines
    if not count or count < 1:
        return None
    key = accelerate(run, "num_processes")
    return key.set(str(count), f"write num_processes: {count}", safe=False, after="distributed_type")


@rule("ZC702", "fields-beside-config-file", Severity.ERROR, each_failure("ZC702"))
def fields_beside_config_file(predicted: FailureOfRun) -> Iterator[Finding]:
    run, names = predicted.run, predicted.failure.about
    if run.accelerate is None:
        yield predicted.finding()
        return
    section, top = accelerate(run, "deepspeed_config"), accelerate(run)
    keys = [section[name] or top[name] for name in names]
    config = "`deepspeed_config_file`"
    if "deepspeed_config_file" not in section:
        config = "the DeepSpeed config of the training arguments"
    shown = ", ".join(f"`{name}`" for name in names)
    yield keys[0].finding(
        f"{shown} cannot be combined with {config}; accelerate raises even if the values agree",
        "set it in the DeepSpeed config only",
        [*keys[1:], *([deepspeed(run).at(label="the DeepSpeed config")] if run.deepspeed else [])],
        delete_all(keys, "remove it from the accelerate config", safe=False) if all(keys) else None,
    )


@rule("ZC703", "file-not-found", Severity.WARNING, WHOLE_RUN)
def file_not_found(run: Run) -> Iterator[Finding]:
    for origin in run.missing:
        path, location = origin.note, at(origin)
        if origin in run.folders:
            if location is not None:
                message = f"{path} is a folder, and a file is read there; every process stops at it"
                yield Finding(location, message, "name the file in it")
            continue
        if "model" in origin.path and is_hub_name(path):
            continue  # the job downloads it; only zerocfg build needs it in the hub's cache
        if not _looks_local(path) or (origin.file is not None and not _certain(origin.file, path)):
            continue
        if run.launch is not None and (launches_other_checkout(run, path) or _may_be_a_name(run, path)):
            continue
        if location is not None:
            yield Finding(
                location,
                f"{path} was not found; every process that looks for it stops",
                "commit the file or correct the path, which counts from the folder in which the job is started",
                severity=Severity.ERROR if _is_number(origin) else None if run.launch else Severity.NOTE,
            )


def _certain(file: SourceFile, path: str) -> bool:
    """Whether a page of documentation names a file that should be there: its folder is, with other files of its kind.
    What else a page names may be the reader's to write. Of all other files this is certain."""
    return not is_page(file) or file.path is None or has_similar_files(file.path, path)


def _may_be_a_name(run: Run, path: str) -> bool:
    """Whether a script that was not read is given a plain word: ms-swift takes `zero2` for a config that it ships."""
    return run.script is None and "/" not in path and "." not in path


def _is_number(origin: Origin) -> bool:
    """Whether no path is written where one belongs (`deepspeed_config_file: 1`)."""
    node = origin.file.document.get(origin.path) if origin.file is not None and origin.file.document else None
    return origin.kind == "file" and isinstance(node, Scalar) and not isinstance(node.value, str)


_EXAMPLES = ("path/to", "your", "<", "$", "{", "...", "xxx", ":")


def _looks_local(path: str) -> bool:
    return path[:1] not in ("", "/", "~", "\\") and not any(word in path.lower() for word in _EXAMPLES)


@rule("ZC707", "two-deepspeed-files", Severity.ERROR, WHOLE_RUN)
def two_deepspeed_files(run: Run) -> Iterator[Finding]:
    named = run.effective.environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
    if run.deepspeed is None or named is None:
        return
    if str(named.value).rpartition("/")[2] == run.deepspeed.name.rpartition("/")[2]:
        return
    for item in ignored(run, "ZC707"):
        key = from_origin(run, item.place)
        yield key.finding(
            f"{named.value} is silently not used: `deepspeed` of the training arguments names {run.deepspeed.name}",
            "name the file in one place",
            fix=key.delete("name it in the arguments only", safe=False),
        )


@rule("ZC711", "launch-option-refused", Severity.ERROR, WHOLE_RUN)
def launch_option_refused(run: Run) -> Iterator[Finding]:
    if options_without_value(run):
        return  # ZC749: the parser stops there, and no other option is looked at
    for failure in run.effective.failures:
        code = RULE_FOR_FAILURE.get(failure.kind)
        place = failure.places[0] if failure.places else None
        on_line = place is not None and place.kind in ("flag", "environment")
        if place is not None and place.span is not None and place.file is not None and on_line:
            text = place.file.source.text[place.span.start : place.span.end]
            if _PLACEHOLDER.search(text):
                continue  # a line of a manual: the reader fills it in
        if code == "ZC711" or (on_line and code in _CATALOG):
            yield reported(run, failure, fix=_meant(run, failure))


def _meant(run: Run, failure: Failure) -> Fix | None:
    """The refused option as the launcher takes it."""
    option = option_at(run, failure.places[0]) if failure.places else line_option(run)
    text, name = option.words, option.plain
    if text is None:
        return None
    value, means, new = option.text, option.text, None
    if failure.kind == "flag-unknown":
        near = closest(name, OPTIONS)
        new = text.replace(option.name, f"--{near}", 1) if near is not None else None
        name = near or name
    elif value is not None and text.endswith(value):
        if failure.kind == "flag-choice":
            means = closest(value, OPTIONS[name].choices) if name in OPTIONS else None
        else:
            whole = re.fullmatch(r"(\d+)\.0*", value) if failure.kind == "flag-type" else None
            means = whole[1] if whole is not None else None
        new = text.removesuffix(value) + means if means is not None else None
    return line_fix(run, f"write {new}", option.reworded(new), gives=says(name, means)) if new is not None else None


_PLACEHOLDER = re.compile(r"\{\w+\}|<[\w -]+>|\.\.\.")
_CATALOG = ("ZC006", "ZC008", "ZC101", "ZC104", "ZC106", "ZC108", "ZC109", "ZC110")


@rule("ZC713", "flag-beats-file", Severity.NOTE, each_ignored("ZC713"))
def flag_beats_file(unused: IgnoredOfRun) -> Iterator[Finding]:
    key, used = accelerate(unused.run, *map(str, unused.item.place.path)), unused.item.used
    if used is None or not used.known or str(used.value).lower() == str(key.value).lower():
        return
    yield finding_at(
        unused.run,
        [unused.key, from_origin(unused.run, used.origin)],
        f"`{key.name}: {show(key.value)}` is replaced by {show(used.value)} {describe_origin(used.origin)}",
    )


@rule("ZC714", "distributed-type-missing", Severity.ERROR, each_failure("ZC714"))
def distributed_type_missing(predicted: FailureOfRun) -> Iterator[Finding]:
    kinds = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP", "megatron_lm_config": "MEGATRON_LM"}
    names = [kind for section, kind in kinds.items() if accelerate_section(predicted.run, section)]
    fix = None
    if len(names) == 1:
        after, key = next(iter(accelerate(predicted.run).section)), accelerate(predicted.run, "distributed_type")
        fix = key.set(names[0], f"write distributed_type: {names[0]}", safe=False, after=after)
    yield predicted.finding("write `distributed_type: DEEPSPEED` (or FSDP, MULTI_GPU, NO)", fix)
