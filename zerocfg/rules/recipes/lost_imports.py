"""ZC876: what a script imports and releases of the library that the project admits no longer have."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.versions import library_name, only_from
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, at, rule
from zerocfg.rules.effects import written_at
from zerocfg.run.model import LostImport, Run


@rule("ZC876", "import-removed", Severity.ERROR, WHOLE_RUN, needs={"versions"})
def import_removed(run: Run) -> Iterator[Finding]:
    by_library: dict[str, list[LostImport]] = {}
    for item in run.lost_imports:
        by_library.setdefault(item.imported.library, []).append(item)
    for library, every in by_library.items():
        first = min(every, key=lambda item: tuple(map(int, item.since.split("."))))
        origin, name = first.imported.origin, library_name(library)
        if origin.file is None:
            continue
        certain = bool(first.declared) and only_from(first.declared, first.since)
        others = len({item.imported.shown for item in every}) - 1
        more = f", and {others} more of its imports," if others else ""
        yield Finding(
            Location(origin.file, span=origin.span),
            f"`{first.imported.shown}`{more} cannot be imported from {name} {first.since} on: the script stops before "
            f"it starts ({_admitted(first)})",
            f"require {first.imported.package}<{first.since}, or write what the newer releases have",
            [location for place in first.places if (location := at(place, "the versions that the project admits"))],
            severity=None if certain else Severity.WARNING,
        )


def _admitted(item: LostImport) -> str:
    if not item.declared:
        return "no release is declared, so that a new install gets the newest"
    places = [written_at(place) for place in item.places]
    return f"{' and '.join(places[:2])} admit{'s' * (len(places[:2]) == 1)} {item.declared}"
