"""Stable fingerprints of findings, so that CI services recognise one after lines moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

from zerocfg.linter.baseline import fingerprint
from zerocfg.linter.engine import Diagnostic


def fingerprints(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """One for each, all different: rule, file, key path and value; the same a second time is numbered."""
    met: Counter[str] = Counter()
    found = []
    for diagnostic in diagnostics:
        span = diagnostic.span
        words = "\0".join((diagnostic.code, span.file.name, span.path, fingerprint(diagnostic)))
        key = sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
        met[key] += 1
        found.append(key if met[key] == 1 else sha256(f"{key}{met[key]}".encode()).hexdigest())
    return found
