"""``lint --show-runs``: the runs that were found, their files, who reads them and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from zerocfg.report.full import Paint
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import EvidenceSource, ImportedName, Origin, ReaderEvidence, Run, SourceFile, files_of
from zerocfg.run.origins import origin_label, place_of
from zerocfg.run.reader import reader_evidence
from zerocfg.run.releases import training_libraries
from zerocfg.source.foreign import one_line
from zerocfg.source.text import Where


def render_runs(runs: Sequence[Run], colour: bool = False) -> str:
    """A block for each run, in the order of their names."""
    paint = Paint(colour)
    blocks = ["\n".join(_block(run, paint)) for run in _sorted(runs)]
    count = len(blocks)
    return "\n\n".join([*blocks, f"{count} run{'s' * (count != 1)} found."]) + "\n"


def render_runs_json(runs: Sequence[Run]) -> str:
    """The same as one JSON object."""
    return json.dumps({"version": 1, "runs": [_data(run) for run in _sorted(runs)]}, indent=2) + "\n"


def _sorted(runs: Sequence[Run]) -> list[Run]:
    """By file and line of the launch line, then by name."""

    def order(run: Run) -> tuple[str, int, str]:
        line = _line(run)
        return (line.file, line.line, run.name) if line is not None else (run.name, 0, "")

    return sorted(runs, key=order)


def _block(run: Run, paint: Paint) -> list[str]:
    rows = [(role, file.name) for role, file in _roles(run)]
    launched = _launched(run)
    if launched:
        rows.insert(0, ("line", launched))
    rows += [("missing", origin.note) for origin in run.missing]
    rows += [("release", f"{release.library} {release.words}") for release in releases_of(run)]
    rows.append(("read by", f"{_reader(run) or 'unknown'}{why(run) or _WAY_OUT}"))
    return [paint(one_line(run.name), "bold"), *(f"  {label:<10} {one_line(text)}" for label, text in rows)]


class Held(NamedTuple):
    """What is known of the releases of one library in a run. ``declared`` None: the newest known is assumed, unless the
    script imports something that it lacks (``outdated``)."""

    library: str
    declared: str | None
    places: tuple[Origin, ...]
    outdated: ImportedName | None = None

    @property
    def words(self) -> str:
        if self.outdated is not None:
            where = place_of(self.outdated.origin)
            return f"not {VERSIONS[self.library]}: {where} imports `{self.outdated.shown}`, which that does not have"
        if self.declared is None:
            return f"{VERSIONS[self.library]}, the newest known: no file tells which"
        places = [str(place_of(place) or origin_label(place)) for place in self.places]
        return f"{self.declared}, says {' and '.join(places) if places else 'the spec or the settings'}"


def releases_of(run: Run) -> list[Held]:
    """Of the libraries that a run trains with, and of the others whose releases its project states."""
    used = training_libraries(run)
    return [
        Held(name, run.versions.get(name), run.version_places.get(name, ()), run.outdated.get(name))
        for name in (*VERSIONS, *sorted(run.versions.keys() - VERSIONS.keys()))
        if name in used or name in run.versions
    ]


def _roles(run: Run) -> list[tuple[str, SourceFile]]:
    parts = [
        ("spec", run.spec),
        ("accelerate", run.accelerate),
        ("deepspeed", run.deepspeed),
        ("recipe", run.recipe),
    ]
    known = [(role, file) for role, file in parts if file is not None]
    seen = {id(file) for _, file in known} | ({id(run.launch_file)} if run.launch_file is not None else set())
    return [*known, *(("script", file) for file in files_of(run) if id(file) not in seen)]


def _line(run: Run) -> Where | None:
    if run.launch is None or run.launch_file is None:
        return None
    return Where(run.launch_file.name, *run.launch_file.source.place(run.launch.span.start))


def _launched(run: Run) -> str:
    """The launch line as it is written, its line breaks taken out."""
    if run.launch is None or run.launch_file is None:
        return ""
    start, end = run.launch.span
    return " ".join(run.launch_file.source.text[start:end].replace("\\\n", " ").replace("\\\r\n", " ").split())


def _reader(run: Run) -> str:
    """The consumer, or the framework that the script shows in its place."""
    return run.consumer or (run.script.foreign if run.script is not None else "")


def why(run: Run) -> str:
    """The evidence for the consumer of a run: ``, says the spec at zerocfg.yaml:4:5``; empty without any."""
    evidence = reader_evidence(run)
    if evidence is None:
        return ""
    where = place_of(evidence.place) if evidence.place is not None else None
    return f", says {_WORDS[evidence.by].format(evidence.pattern)}{f' at {where}' if where is not None else ''}"


_WAY_OUT = " (--consumer, or `consumers` in the settings, can say it)"
_WORDS: dict[EvidenceSource, str] = {
    "command": "--consumer",
    "path": "`consumers` in the settings for {}",
    "spec": "the spec",
    "script": "the training script",
    "option": "the launch line",
    "recipe": "the recipe",
    "sibling": "another recipe of its tree",
    "settings": "`consumer` in the settings",
}


def _data(run: Run) -> dict[str, object]:
    line, evidence = _line(run), reader_evidence(run)
    return {
        "name": run.name,
        "consumer": run.consumer,
        "framework": (run.script.foreign or None) if run.script is not None else None,
        "told": None if evidence is None else _evidence(evidence),
        "line": None if line is None else _place(line),
        "files": [{"role": role, "file": file.name} for role, file in _roles(run)],
        "missing": [origin.note for origin in run.missing],
        "releases": [_release(release) for release in releases_of(run)],
    }


def _release(release: Held) -> dict[str, object]:
    found = [place_of(place) for place in release.places]
    return {
        "library": release.library,
        "declared": release.declared,
        "assumed": VERSIONS[release.library] if release.declared is None and release.outdated is None else None,
        "places": [_place(where) for where in found if where is not None],
        "by": [place.note for place in release.places if place.file is None],
    }


def _evidence(evidence: ReaderEvidence) -> dict[str, object]:
    where = place_of(evidence.place) if evidence.place is not None else None
    return {"by": evidence.by, "pattern": evidence.pattern or None, "place": None if where is None else _place(where)}


def _place(where: Where) -> dict[str, object]:
    return {"file": where.file, "line": where.line, "column": where.column}
