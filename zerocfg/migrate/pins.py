"""The requirements that a project states for itself, set to the releases that it is migrated to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.migrate.plan import Plan
from zerocfg.migrate.steps import Left, Step
from zerocfg.rules.api import Location
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+(?:\[[^\]]*\])?)(?P<gap>\s*\(?)(?P<clauses>[=<>!~][^;#\"')]*)")


def steps(run: Run, plan: Plan) -> Iterator[Step | Left]:
    stated = [(library, place) for library in plan.new for place in run.version_places.get(library, ())]
    for library, place in stated:
        if place.file is None or place.span is None:
            continue
        at = Location(place.file, span=place.span)
        why = f"the project states {library} {run.versions[library]}"
        text = place.file.source.text[place.span.start : place.span.end]
        found = _REQUIREMENT.match(text)
        if found is None or "lock" in place.file.name.lower() or "\n" in found["clauses"]:
            yield Left(at, f"{why}: state {plan.new[library]}, and lock again")
            continue
        start = place.span.start + found.start("clauses")
        span = Span(start, start + len(found["clauses"].rstrip()))
        wanted = f"=={plan.new[library]}"
        if place.file.source.text[span.start : span.end] != wanted:
            yield Step(at, f"{why}; {plan.new[library]} is what the files are for now", edits=(Edit(span, wanted),))
