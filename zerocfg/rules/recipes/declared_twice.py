"""ZC875: a dataclass of the script with fields that the training arguments have, too."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.admitted import admitted, releases_where
from zerocfg.catalog.versions import library_name
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, at, rule
from zerocfg.rules.fields_twice import FieldTwice, fields_twice
from zerocfg.rules.release_scope import limited
from zerocfg.rules.taken import as_installed
from zerocfg.run.model import Run


@rule("ZC875", "field-declared-twice", Severity.ERROR, WHOLE_RUN, histories="arguments")
def field_declared_twice(run: Run) -> Iterator[Finding]:
    twice = list(fields_twice(run))
    always = [item for item in twice if item.always]
    if always:
        yield from _finding(always)
        return  # the parser stops at the first
    for library in ("transformers", "trl"):
        yield from _in_some(run, library, [item for item in twice if item.library == library])


def _finding(twice: list[FieldTwice]) -> Iterator[Finding]:
    first, *others = twice
    location = at(first.origin)
    if location is None:
        return
    names = f"`{first.name}`" + (f" and {len(others)} more are fields" if others else " is a field")
    yield Finding(
        location,
        f"{names} of the arguments of {library_name(first.library)}, too: HfArgumentParser stops at the option that "
        "both make",
        f"remove {'them and read them' if others else 'it and read it'} from the training arguments, or choose another "
        f"name{'s' * bool(others)}",
        [place for item in others if (place := at(item.origin)) is not None],
    )


def _in_some(run: Run, library: str, twice: list[FieldTwice]) -> Iterator[Finding]:
    installed = as_installed(run, library)
    among = admitted(library, installed[0].versions[library]) if installed is not None else None
    if installed is None or among is None:
        return
    judged, severity = installed
    words = {item.name: releases_where(item.life.at, among, library) for item in twice}
    there = [item for item in twice if words[item.name] is not None]
    whole = [item for item in there if words[item.name] == ""]
    for finding in _finding(whole or there[:1]) if there else ():
        finding.severity = severity
        yield limited(judged, finding, library, "" if whole else words[there[0].name] or "")
