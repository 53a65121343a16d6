"""Which rules speak of which key: those that point at it when zerocfg lints the rules' own bad examples.

Rules about any key (families 0 and 1: reading, names, types) are left out. Linting all examples takes some seconds, so
the answer is kept in ``.cache`` until what it follows from changes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from zerocfg.rulebook.pages import page_of

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "website"
GENERAL = "01"
"""First digits of the families that are left out."""
_SCHEMAS = {
    "deepspeed": ("deepspeed",),
    "accelerate": ("accelerate",),
    "recipe": ("training-arguments", "trl"),
    "spec": ("spec",),
}
"""Kind of a file -> the schemas of its keys."""


def rules_of_keys() -> dict[tuple[str, str], list[str]]:
    """(schema, key path) -> codes, in order."""
    path = CACHE / f"{_fingerprint()}.json"
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
    else:
        found = _lint_examples()
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob("*.json"):
            old.unlink()
        path.write_text(json.dumps(found), encoding="utf-8")
    return {(schema, key): codes for schema, key, codes in found}


def _lint_examples() -> list[tuple[str, str, list[str]]]:
    from zerocfg.rules.registry import ALL
    from zerocfg.workspace.examples import lint_example

    found: dict[tuple[str, str], set[str]] = {}
    for rule in ALL:
        if rule.code[2] in GENERAL:
            continue
        for example in page_of(rule).bad:
            for diagnostic in lint_example(example).diagnostics:
                if diagnostic.code != rule.code:
                    continue
                for span in (diagnostic.span, *diagnostic.related):
                    for schema in _SCHEMAS.get(span.file.kind, ()):
                        found.setdefault((schema, _path(span.path)), set()).add(rule.code)
    return [(schema, key, sorted(codes)) for (schema, key), codes in sorted(found.items()) if key]


def _path(path: str) -> str:
    """As the pages name it: the runs of a spec have names of their own."""
    parts = path.split(".")
    if parts[0] in ("runs", "bases") and len(parts) > 1:
        parts[1] = "NAME"
    return ".".join(parts)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    read = [f"zerocfg/{package}/**/*.py" for package in ("source", "catalog", "run", "rules")]
    for pattern in (*read, "schemas/*.json", "website/rules_of_keys.py"):
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
