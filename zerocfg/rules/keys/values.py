"""ZC1xx: values. Types, ranges and choices, judged as the library that reads the file would."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.calls import given_in_calls
from zerocfg.rules.effects import effective_value
from zerocfg.rules.failures import failures, reported
from zerocfg.rules.issues import KeyIssue, issues, python_word, scientific_text
from zerocfg.rules.key import deepspeed, from_origin
from zerocfg.rules.repairs import as_section, repaired
from zerocfg.rules.subjects import EACH_KEY, each_issue, issues_of_document
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.run.stages.batches import MICRO, STEPS, TRAIN
from zerocfg.run.stages.options import PRECISIONS
from zerocfg.source.node import Node, Scalar, dotted


def _shown(key: KeyIssue) -> str:
    """The key with its value, and what is wrong with it."""
    return f"`{dotted(key.path)}: {show(key.value)}` {key.issue.reason}"


def _told_elsewhere(key: KeyIssue) -> bool:
    """Whether ZC013 or ZC009 knows why the value is none that the key takes."""
    return key.unfilled or python_word(key.run, key.file, key.issue.entry.value) is not None


@rule("ZC104", "wrong-type", Severity.ERROR, EACH_KEY, histories="keys")
def wrong_type(run: Run) -> Iterator[Finding]:
    for key in issues(run, "type"):
        if not _told_elsewhere(key):
            fix = repaired(key)
            yield key.finding(
                f"{_shown(key)}; {_consequence(key)}",
                _read_as_text(key.file, key.issue.entry.value, fix),
                fix=fix,
                severity=Severity.WARNING if _unread(key) else None,
            )
    yield from _unsaid(run, "ZC104")


def _read_as_text(file: SourceFile, node: object, fix: Fix | None) -> str:
    """Why a number in scientific notation is none, which its file does not show; empty for other values."""
    raw = scientific_text(file, node)
    if raw is None:
        return ""
    return f"YAML 1.1 reads {raw} as a text; {fix.description if fix is not None else 'write the number in full'}"


def _consequence(key: KeyIssue) -> str:
    return f"{key.library} does not look at it in this launch" if _unread(key) else f"{key.library} stops at it"


def _unread(key: KeyIssue) -> bool:
    """Whether the launcher gets past a key of accelerate's top level: the road to the training is walked, and nothing
    on it stops."""
    run = key.run
    if key.file is not run.accelerate or len(key.path) != 1 or "num_processes" not in run.effective.settings:
        return False
    return not any(
        failure.phase == "launch" or any(place.file is key.file and place.path == key.path for place in failure.places)
        for failure in run.effective.failures
    )


def _unsaid(run: Run, code: str) -> Iterator[Finding]:
    """What the road to the engine stops at although the key by itself may hold the value: null where the launcher
    divides, a text where it compares."""
    said = {(id(key.file), key.path) for key in issues(run, *_STOPPING)}
    loose = {(id(key.file), key.path): key for key in issues(run, "raw-type")}
    for failure in failures(run, code):
        place = failure.places[0] if failure.places else None
        # A word of the launch line is ZC711's matter.
        if place is None or (place.kind not in ("flag", "environment") and (id(place.file), place.path) not in said):
            finding = reported(run, failure, where="value")
            key = loose.get((id(place.file), place.path)) if place is not None and code == "ZC104" else None
            finding.fix = repaired(key) if key is not None else None
            if place is not None and place.file is not None and place.file.document is not None and not finding.help:
                finding.help = _read_as_text(place.file, place.file.document.get(place.path), finding.fix)
            if finding.fix is not None and not finding.help:
                finding.help = finding.fix.description
            if place is not None and _left_to_line(run, place):
                finding.severity = Severity.NOTE
            yield finding


def _left_to_line(run: Run, place: Origin) -> bool:
    """Whether a file that no known line starts a job with leaves a number to that line: `num_processes: null`."""
    node = place.file.document.get(place.path) if place.file is not None and place.file.document else None
    counts = place.path in (("num_processes",), ("num_machines",))
    return run.launch is None and counts and isinstance(node, Scalar) and node.value is None


_STOPPING = ("unknown-crash", "removed", "type", "range", "choice", "null", "section-type")


@rule("ZC105", "out-of-range", Severity.ERROR, each_issue("range"), histories="keys")
def out_of_range(key: KeyIssue) -> Iterator[Finding]:
    raw = (
        key.issue.key is not None
        and key.issue.key.facts.get("reads") == "raw"
        and key.name not in (TRAIN, MICRO, STEPS)
    )
    end = "nothing checks this before it is used" if raw else f"{key.library} stops at it"
    advice = "write a number in that range, or remove the key"
    yield key.finding(f"{_shown(key)}; {end}", advice, fix=key.delete("take the default", safe=False))


@rule("ZC106", "not-a-choice", Severity.ERROR, EACH_KEY, histories="keys")
def not_a_choice(run: Run) -> Iterator[Finding]:
    for key in issues(run, "choice"):
        node = key.issue.entry.value
        # ZC006 tells of an unquoted yes or no, ZC013 of a placeholder
        if key.unfilled or (isinstance(node, Scalar) and node.raw.lower() in _SWITCHES):
            continue
        if not _is_switched_off(key):
            yield key.finding(f"{_shown(key)}; {key.library} stops at it", fix=_meant(key))
    yield from _unsaid(run, "ZC106")
    for given in given_in_calls(run):
        if given.call.name != "accelerate.Accelerator" or given.name != "mixed_precision":
            continue
        if isinstance(given.value, str) and given.value not in PRECISIONS:
            near = closest(given.value, PRECISIONS)
            yield given.finding(
                f"`mixed_precision={given.value!r}` is none of {', '.join(PRECISIONS)}; Accelerator stops at it",
                f"write {near}" if near else "",
            )


_SWITCHES = ("yes", "no", "on", "off")


def _is_switched_off(key: KeyIssue) -> bool:
    """Whether DeepSpeed never validates the value: AutoEP validates its section only if that is enabled."""
    run, section = key.run, "expert_parallel"
    return key.file is run.deepspeed and key.path[0] == section and not deepspeed(run, section).get("enabled")


def _meant(key: KeyIssue) -> Fix | None:
    """The word that the catalog takes a wrong one for."""
    if not isinstance(key.value, str) or key.issue.key is None:
        return None
    choices = [word for branch in key.issue.key.branches for word in branch.get("enum", ()) if isinstance(word, str)]
    near = closest(key.value, choices)
    return key.replace(f'"{near}"', f"write {near}", safe=False) if near else None


@rule("ZC107", "null-value", Severity.ERROR, WHOLE_RUN, histories="keys")
def null_value(run: Run) -> Iterator[Finding]:
    why = "take the default"
    for issue in issues(run, "null"):
        yield issue.finding(
            f"`{dotted(issue.path)}` is null; {issue.library} stops at it",
            "leave the key out",
            fix=issue.delete(why, safe=False),
        )
    for variable in run.effective.environment.values():
        key = from_origin(run, variable.origin)
        if run.accelerate is None or variable.value != "None" or key.file is not run.accelerate:
            continue
        # FSDP 2 takes no sharding strategy.
        strategy = key.path[-1:] == ("fsdp_sharding_strategy",)
        if (strategy and effective_value(run, "fsdp_config.fsdp_version") == 1) or key.path[-1:] == ("fsdp_version",):
            yield key.finding(
                f"`{dotted(key.path)}` is null, which reaches every process as the text None; the plugin stops at it",
                "leave the key out",
                fix=key.delete(why, safe=False),
                where="value",
            )


@rule("ZC108", "section-not-a-mapping", Severity.ERROR, EACH_KEY, histories="keys")
def section_not_a_mapping(run: Run) -> Iterator[Finding]:
    for key in issues(run, "section-type"):
        if key.unfilled:
            continue
        fix = as_section(key)
        yield key.finding(
            f"`{dotted(key.path)}` {key.issue.reason}; {_consequence(key)}",
            _as_mapping(key) if fix is None or isinstance(key.value, str) else "",
            fix=fix,
            severity=Severity.WARNING if _unread(key) else None,
        )
    yield from _unsaid(run, "ZC108")


def _as_mapping(key: KeyIssue) -> str:
    """What to write in the place of a section that is none."""
    if key.path == ("deepspeed_config",) and isinstance(key.value, str):
        return f"write `deepspeed_config: {{deepspeed_config_file: {key.value}}}`"
    keys = list(key.issue.section.keys) if key.issue.section is not None else []
    if not 0 < len(keys) <= _FEW:
        return ""
    names = " and ".join(filter(None, (", ".join(f"`{name}`" for name in keys[:-1]), f"`{keys[-1]}`")))
    return f"write a mapping, whose key{'s are' if len(keys) > 1 else ' is'} {names}, or remove it"


_FEW = 4
"""So many keys of a section are listed in a help text."""


@rule("ZC109", "unchecked-type", Severity.WARNING, WHOLE_RUN, histories="keys")
def unchecked_type(run: Run) -> Iterator[Finding]:
    stopping = {(id(place.file), place.path) for failure in failures(run, "ZC104") for place in failure.places}
    for key in issues(run, "raw-type"):
        if (id(key.file), key.path) in stopping or _told_elsewhere(key):
            continue  # ZC104: the road to the engine breaks at it
        if key.value is False and key.issue.key is not None and key.issue.key.raw.get("default") == 0:
            continue  # as an unchecked number false is 0, which is the default
        text, known = isinstance(key.value, str), key.issue.key
        a_truth = known is not None and any(branch.get("type") == "boolean" for branch in known.scalars)
        fix = repaired(key)
        truthy = " (any non-empty string counts as true)" if text and a_truth else ""
        yield key.finding(
            f"{_shown(key)}{truthy}; {key.library} does not check it",
            _read_as_text(key.file, key.issue.entry.value, fix) or (_as_value(key.issue.entry.value) if text else ""),
            fix=fix,
        )


def _as_value(node: Node) -> str:
    """How to make a value of what is read as a text."""
    if isinstance(node, Scalar) and not node.quoted and node.raw.endswith(","):
        return "remove the comma at the end, which YAML takes for a part of the value"
    return "write the value without quotes"


@rule("ZC113", "missing-key", Severity.ERROR, issues_of_document("missing"), histories="keys")
def missing_key(key: KeyIssue) -> Iterator[Finding]:
    absent, known = key.issue.reason, key.issue.key
    yield key.finding(
        f"the run `{key.name}` has no `{absent}`; zerocfg build stops at it",
        f"add `{absent}:`" + (f" ({known.description})" if known else ""),
    )


@rule("ZC119", "unmade-run", Severity.ERROR, WHOLE_RUN)
def unmade_run(run: Run) -> Iterator[Finding]:
    for origin, message, way_out in run.troubles:
        if origin.file is not None:
            place = Location(origin.file, origin.path, origin.note or "value")
            asks = [Location(run.spec, ("runs",), "key", label="these runs need it")] if run.spec else []
            related = asks if origin.file is not run.spec else []
            yield Finding(place, f"{message}; zerocfg build stops at it", way_out, related)
