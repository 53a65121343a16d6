"""ZC880: what a script imports from modules of its own repository that do not have it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, at, rule
from zerocfg.run.model import BrokenImport, Run


@rule("ZC880", "own-import-missing", Severity.ERROR, WHOLE_RUN)
def own_import_missing(run: Run) -> Iterator[Finding]:
    broken = run.script.broken if run.script is not None else ()
    place = at(broken[0].origin) if broken else None
    if place is None:
        return
    first, others = broken[0], len(broken) - 1
    more = f" (and {others} more of its imports fail)" if others else ""
    yield Finding(
        place,
        f"{_lacking(first)}: the script stops at the import{more}",
        "import what the module has, or add it" if first.name else "correct the path, or add the module",
        # whoever has a module that is not in the repository does not see this
        severity=None if first.name else Severity.WARNING,
    )


def _lacking(item: BrokenImport) -> str:
    if not item.name:
        return f"the repository has no module `{item.module}`"
    return f"{item.file.name if item.file is not None else item.module} has no `{item.name}`"
