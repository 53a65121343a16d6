"""ZC1xx: values. Types, ranges and choices, judged as the library that reads the file would."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.check import Issue
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.calls import given_in_calls
from zerocfg.rules.effects import effective_value
from zerocfg.rules.failures import failures, reported
from zerocfg.rules.fixes import edited
from zerocfg.rules.issues import at_value, issues, limited, python_word, unfilled
from zerocfg.rules.repairs import as_section, repaired
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.run.stages.options import PRECISIONS
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Scalar, dotted


@rule("ZC104", "wrong-type", Severity.ERROR)
def wrong_type(run: Run) -> Iterator[Finding]:
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
            finding = reported(run, failure, where="value")
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


@rule("ZC105", "out-of-range", Severity.ERROR)
def out_of_range(run: Run) -> Iterator[Finding]:
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


@rule("ZC106", "not-a-choice", Severity.ERROR)
def not_a_choice(run: Run) -> Iterator[Finding]:
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


@rule("ZC107", "null-value", Severity.ERROR)
def null_value(run: Run) -> Iterator[Finding]:
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
        strategy = path[-1:] == ("fsdp_sharding_strategy",) and effective_value(run, "fsdp_config.fsdp_version") == 1
        if not strategy and path[-1:] != ("fsdp_version",):
            continue
        yield Finding(
            Location(run.accelerate, path, "value"),
            f"`{dotted(path)}` is null, which reaches every process as the text None; the plugin stops at it",
            "leave the key out",
            fix=edited(delete_entry, run.accelerate, path, why="take the default", safe=False),
        )


@rule("ZC108", "section-not-a-mapping", Severity.ERROR)
def section_not_a_mapping(run: Run) -> Iterator[Finding]:
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


@rule("ZC109", "unchecked-type", Severity.WARNING)
def unchecked_type(run: Run) -> Iterator[Finding]:
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


@rule("ZC113", "missing-key", Severity.ERROR)
def missing_key(run: Run) -> Iterator[Finding]:
    for file, _, issue in issues(run, "missing"):
        yield Finding(
            Location(file, issue.path, "key", span=issue.entry.key_span),
            f"the run `{issue.path[-1]}` has no `{issue.reason}`; zerocfg build stops at it",
            f"add `{issue.reason}:`" + (f" ({issue.key.description})" if issue.key else ""),
        )


@rule("ZC119", "unmade-run", Severity.ERROR)
def unmade_run(run: Run) -> Iterator[Finding]:
    for origin, message, way_out in run.troubles:
        if origin.file is not None:
            place = Location(origin.file, origin.path, origin.note or "value")
            asks = [Location(run.spec, ("runs",), "key", label="these runs need it")] if run.spec else []
            related = asks if origin.file is not run.spec else []
            yield Finding(place, f"{message}; zerocfg build stops at it", way_out, related)
