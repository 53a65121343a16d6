"""Updates of the requirements of a project to the releases that it is migrated to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.migrate.plan import Plan
from zerocfg.migrate.steps import Left, Step
from zerocfg.rules.api import Location
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.requirements.companions import limiting_import, limiting_package
from zerocfg.source.edit import Edit
from zerocfg.source.requirements.pip import normalize_name
from zerocfg.source.text import Span

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+(?:\[[^\]]*\])?)(?P<gap>\s*\(?)(?P<clauses>[=<>!~][^;#\"')\n]*)")


def steps(run: Run, plan: Plan) -> Iterator[Step | Left]:
    for library in plan.new:
        for place in run.version_places.get(library, ()):
            if place.file is None or place.span is None:
                continue
            package, imported = limiting_package(place, library), limiting_import(place)
            at = Location(place.file, span=place.span)
            if imported:
                yield Left(at, f"`{imported}` is imported here, which {library} {plan.new[library]} may lack")
            elif package:
                yield Left(at, f"{package} holds {library} back here; see that {plan.new[library]} can be installed")
            else:
                yield from _stated(place.file, place.span, library, plan)


def _stated(file: SourceFile, place: Span, library: str, plan: Plan) -> Iterator[Step | Left]:
    text = file.source.text[place.start : place.end]
    found = next((match for match in _REQUIREMENT.finditer(text) if _named(match["name"], library)), None)
    at, wanted = Location(file, span=place), f"=={plan.new[library]}"
    if found is None or "lock" in file.name.lower():
        yield Left(at, f"the project states {library} here; {plan.new[library]} is what the files are for now")
        return
    start = place.start + found.start("clauses")
    span = Span(start, start + len(found["clauses"].rstrip()))
    before = file.source.text[span.start : span.end]
    if before != wanted:
        why = f"the project states {library} {before}; {plan.new[library]} is what the files are for now"
        yield Step(at, why, edits=(Edit(span, wanted),))


def _named(name: str, library: str) -> bool:
    return normalize_name(name.partition("[")[0]) == library
