"""SARIF 2.1.0, as code scanning services read it.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. Lines and columns count from 1, columns in code
points.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zerocfg.internal_errors import REPORT
from zerocfg.linter.engine import Diagnostic, Result, Suppressed
from zerocfg.report.checkout import GITHUB, in_checkout
from zerocfg.report.fingerprints import fingerprints
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Fix, Rule
from zerocfg.rules.place import FileSpan
from zerocfg.rules.registry import find
from zerocfg.run.model import SourceFile
from zerocfg.source.text import Place
from zerocfg.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "zerocfg/v1"


BASE = "REPOSITORY"
"""What the paths of a run are relative to, where a log has runs about several repositories."""


def render_sarif(result: Result) -> str:
    """One log with one run; suppressed findings are in it as such."""
    return json.dumps(log([run_of(result)]), indent=2) + "\n"


def log(runs: list[dict[str, object]]) -> dict[str, object]:
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}


def run_of(result: Result, repository: Path | None = None) -> dict[str, object]:
    """What is told of a result. ``repository``: the folder that the names of its files are relative to; without one
    they are relative to the checkout of a CI service, or to where zerocfg was started."""
    reported = [(diagnostic, None) for diagnostic in result.diagnostics]
    found: list[tuple[Diagnostic, Suppressed | None]] = [
        *reported,
        *((item.diagnostic, item) for item in result.suppressed),
    ]
    codes = sorted({diagnostic.code for diagnostic, _ in found})
    keys = fingerprints(diagnostic for diagnostic, _ in found)
    based = repository is not None
    return {
        "tool": {
            "driver": {
                "name": "zerocfg",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in map(find, codes) if rule is not None],
            }
        },
        "columnKind": "unicodeCodePoints",
        **({"originalUriBaseIds": {BASE: {"uri": f"{repository.as_uri()}/"}}} if repository is not None else {}),
        "invocations": [_invocation(result)],
        "results": [
            _result(diagnostic, codes.index(diagnostic.code), key, suppressed, based)
            for (diagnostic, suppressed), key in zip(found, keys, strict=True)
        ],
    }


def _invocation(result: Result) -> dict[str, object]:
    """What was met and not checked belongs to the run of the tool, not to its findings."""
    entries = [{"level": "warning", "message": {"text": f"{item.file}: {item.reason}"}} for item in result.unread]
    entries += [
        {"level": "error", "message": {"text": f"{internal_error}. {REPORT}"}}
        for internal_error in result.internal_errors
    ]
    notifications = {"toolExecutionNotifications": entries} if entries else {}
    return {"executionSuccessful": not result.internal_errors, **notifications}


def _rule(rule: Rule) -> dict[str, object]:
    page = page_of(rule)
    labelled = {"What happens": page.happens, "Instead": page.instead, "Fix": page.fix, "When to ignore": page.ignore}
    texts = [page.summary, page.why, *(f"{label}: {text}" for label, text in labelled.items() if text)]
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": page.summary},
        "fullDescription": {"text": page.why or page.summary},
        "help": {
            "text": "\n\n".join(filter(None, texts)),
            "markdown": "\n\n".join(filter(None, [*texts, f"`zerocfg explain {rule.code}` shows examples."])),
        },
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": sorted({"configuration", *rule.consumers})},
    }


def _result(
    diagnostic: Diagnostic, index: int, key: str, suppressed: Suppressed | None, based: bool
) -> dict[str, object]:
    # An alert shows the message alone; the way out belongs to it.
    text = f"{diagnostic.full_message}\n{_sentence(diagnostic.help)}" if diagnostic.help else diagnostic.full_message
    result: dict[str, object] = {
        "ruleId": diagnostic.code,
        "ruleIndex": index,
        "level": diagnostic.severity.value,
        "message": {"text": text},
        "locations": [_location(diagnostic.span, based)],
        "partialFingerprints": {FINGERPRINT: key},
    }
    if diagnostic.related:
        result["relatedLocations"] = [
            {"id": number, **_location(span, based), "message": {"text": span.label or span.path or "see here"}}
            for number, span in enumerate(diagnostic.related, start=1)
        ]
    if diagnostic.fix is not None:
        result["fixes"] = [_fix(diagnostic.fix, based)]
    if suppressed is not None:
        result["suppressions"] = [_suppression(suppressed)]
    return result


def _suppression(suppressed: Suppressed) -> dict[str, object]:
    kind = "inSource" if suppressed.by == "comments" else "external"
    why = suppressed.reason if suppressed.by == "comments" else f"by the {suppressed.by} of zerocfg"
    return {"kind": kind, **({"justification": why} if why else {})}


def _location(span: FileSpan, based: bool) -> dict[str, object]:
    location: dict[str, object] = {
        "physicalLocation": {"artifactLocation": _artifact(span.file, based), "region": _region(span.start, span.end)}
    }
    if span.path:
        location["logicalLocations"] = [{"fullyQualifiedName": span.path, "kind": "member"}]
    return location


def _fix(fix: Fix, based: bool) -> dict[str, object]:
    changes: dict[str, dict[str, Any]] = {}
    for file, edit in fix.edits:
        change = changes.setdefault(file.name, {"artifactLocation": _artifact(file, based), "replacements": []})
        place = file.source.place
        change["replacements"].append(
            {
                "deletedRegion": _region(place(edit.span.start), place(edit.span.end)),
                "insertedContent": {"text": edit.replacement},
            }
        )
    text = fix.description if fix.safe else f"{fix.description} (makes a choice for you)"
    return {"description": {"text": text}, "artifactChanges": list(changes.values())}


def _region(start: Place, end: Place) -> dict[str, int]:
    return {"startLine": start.line, "startColumn": start.column, "endLine": end.line, "endColumn": end.column}


def _artifact(file: SourceFile, based: bool) -> dict[str, str]:
    """Relative to the repository, to the checkout on GitHub, else to where zerocfg was started: services find the file
    by that."""
    name = file.name.replace("\\", "/") if based else in_checkout(file.name, GITHUB)
    if Path(name).is_absolute():
        return {"uri": Path(name).as_uri()}
    return {"uri": quote(os.fsencode(name)), **({"uriBaseId": BASE} if based else {})}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
