"""ZC875: a dataclass of the script with a field that the training arguments have, too."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.admitted import admitted, releases_where
from zerocfg.catalog.versions import library_name
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.fields_twice import FieldTwice, fields_twice
from zerocfg.rules.release_scope import limited
from zerocfg.rules.taken import as_installed
from zerocfg.run.model import Run


@rule("ZC875", "field-declared-twice", Severity.ERROR, WHOLE_RUN, histories="arguments")
def field_declared_twice(run: Run) -> Iterator[Finding]:
    for item in fields_twice(run):
        if item.origin.file is None:
            continue
        of = f"the arguments of {library_name(item.library)}"
        finding = Finding(
            Location(item.origin.file, span=item.origin.span),
            f"`{item.name}` is a field of {of}, too: HfArgumentParser stops at the option that both make",
            "remove it and read it from the training arguments, or give it another name",
        )
        if item.always:
            yield finding
        else:
            yield from _in_some(run, item, finding)


def _in_some(run: Run, item: FieldTwice, finding: Finding) -> Iterator[Finding]:
    installed = as_installed(run, item.library)
    among = admitted(item.library, installed[0].versions[item.library]) if installed is not None else None
    if installed is None or among is None:
        return
    judged, finding.severity = installed
    words = releases_where(item.life.at, among, item.library)
    if words is not None:
        yield limited(judged, finding, item.library, words)
