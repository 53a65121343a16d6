"""JUnit's XML: one suite a file, one case a finding; notes are cases that passed."""

from __future__ import annotations

import re
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.source.foreign import one_line

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


def render_junit(result: Result) -> str:
    """The whole document; a clean result is one case that passed."""
    root = Element("testsuites", name="zerocfg")
    suites = [(name, list(found)) for name, found in groupby(result.diagnostics, lambda d: d.span.file.name)]
    for name, found in suites or [("zerocfg", [])]:
        counts = {"tests": len(found) or 1, "failures": sum(map(_fails, found)), "errors": 0, "skipped": 0, "time": 0}
        attributes = {"name": _text(name), **{key: str(count) for key, count in counts.items()}}
        suite = SubElement(root, "testsuite", attributes)
        for diagnostic in found:
            _case(suite, diagnostic)
        if not found:
            SubElement(suite, "testcase", name=f"{result.files} files", classname="zerocfg", time="0")
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _fails(diagnostic: Diagnostic) -> bool:
    return diagnostic.severity.rank > 0


def _case(suite: Element, diagnostic: Diagnostic) -> None:
    span = diagnostic.span
    name = f"{diagnostic.code} {diagnostic.name} ({span.start.line}:{span.start.column})"
    case = SubElement(suite, "testcase", name=name, classname=_text(span.file.name), time="0")
    said = [f"{one_line(span.file.name)}:{span.start.line}:{span.start.column}: {diagnostic.full_message}"]
    said += [f"help: {diagnostic.help}"] if diagnostic.help else []
    if _fails(diagnostic):
        failure = SubElement(case, "failure", message=_text(diagnostic.full_message), type=diagnostic.severity.value)
        failure.text = _text("\n".join(said))
    else:
        SubElement(case, "system-out").text = _text("\n".join(said))


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
