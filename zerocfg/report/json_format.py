"""The JSON format, version 1. Lines and columns count from 1, columns in code points."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.rules.api import Fix
from zerocfg.rules.place import FileSpan
from zerocfg.run.origins import place_of

if TYPE_CHECKING:
    from zerocfg.linter.release_range import ReleaseRange
    from zerocfg.run.model import Origin


def render_json(result: Result) -> str:
    """One JSON object with every diagnostic."""
    document = {
        "version": 1,
        "files": result.files,
        "suppressed": {by: result.suppressed_by.get(by, 0) for by in ("comments", "settings", "baseline")},
        "stale_in_baseline": result.stale,
        "notes": result.notes,
        "assumed": result.assumed,
        "outdated": {library: _imports(item.shown, item.origin) for library, item in result.outdated.items()},
        "new_install": [
            {
                "library": stop.library,
                **_imports(stop.imported, stop.origin),
                "refused": stop.refused,
                "clash": stop.clash,
            }
            for stop in result.new_install_stops
        ],
        "outside": [asdict(item) for item in result.outside],
        "unread": [
            {
                "file": unchecked_file.file,
                "why": unchecked_file.why,
                "reason": unchecked_file.reason,
                "named": unchecked_file.named,
            }
            for unchecked_file in result.unread
        ],
        "internal_errors": [asdict(internal_error) for internal_error in result.internal_errors],
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in result.diagnostics],
    }
    return json.dumps(document, indent=2) + "\n"


def _imports(name: str, origin: Origin) -> dict[str, object]:
    """A name that a script imports, if it is one, and where."""
    where = place_of(origin)
    return {"imports": name or None, "place": str(where) if where is not None else None}


def _diagnostic(d: Diagnostic) -> dict[str, object]:
    return {
        "code": d.code,
        "name": d.name,
        "severity": d.severity.value,
        "message": d.message,
        "help": d.help or None,
        **_span(d.span),
        "related": [{**_span(span), "label": span.label or None} for span in d.related],
        "fix": None if d.fix is None else _fix(d.fix),
        "run": d.run,
        "also_in": list(d.also_in),
        "url": d.url,
        **({} if d.releases is None else {"releases": _release_range(d.releases)}),
    }


def _release_range(found: ReleaseRange) -> dict[str, object]:
    return {
        "library": found.library,
        "holds": [{"from": first, "to": last} for first, last in found.parts],
        "known_from": found.known_from,
        "newest": found.known[-1],
    }


def _span(span: FileSpan) -> dict[str, object]:
    return {
        "file": span.file.name,
        "path": span.path,
        "start": {"line": span.start.line, "column": span.start.column},
        "end": {"line": span.end.line, "column": span.end.column},
    }


def _fix(fix: Fix) -> dict[str, object]:
    edits = []
    for file, edit in fix.edits:
        start, end = file.source.place(edit.span.start), file.source.place(edit.span.end)
        edits.append(
            {
                "file": file.name,
                "start": {"line": start.line, "column": start.column},
                "end": {"line": end.line, "column": end.column},
                "text": edit.replacement,
            }
        )
    return {"description": fix.description, "safety": "safe" if fix.safe else "unsafe", "edits": edits}
