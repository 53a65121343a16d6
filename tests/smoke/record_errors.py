"""The real errors of the rules' bad examples, played on the real libraries.

``python -m tests.smoke.record_errors`` adds those that ``library_errors.json`` does not have yet; ``--all`` plays every
one again. It takes a few minutes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from tests.proofs.harness import observe
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import page_of
from zerocfg.rulebook.proof import Proof
from zerocfg.rules.registry import ALL

FILE = Path(__file__).with_name("library_errors.json")
LIBRARIES = ("accelerate", "deepspeed", "transformers", "trl", "torch")
LONGEST = 260
AROUND = 110
PATHS = re.compile(r"/[\w.-]+/[^\s'\",;:)\]]*")


def crashes() -> Iterator[tuple[str, Example, Proof]]:
    """Name, example and proof of every bad example that stops with an error."""
    for rule in ALL:
        if page_of(rule).proof.status != "executed":
            continue
        for at, example in enumerate(page_of(rule).bad):
            proof = example.proof or page_of(rule).proof
            if proof.raises is not None:
                yield f"{rule.code}-{at}", example, proof


def told(kind: str, text: str, raises: str) -> str:
    """One line: the type and the words, of a long one what is around those of the proof; without paths."""
    words = " ".join(text.split())
    match = re.search(raises, f"{kind}: {words}")
    line = f"{kind}: {words}"
    if match is not None and len(line) > LONGEST:
        start = max(match.start() - AROUND, len(kind) + 2)
        line = f"{kind}: {'... ' if start > len(kind) + 2 else ''}{line[start : match.end() + AROUND]}"
    return PATHS.sub("/PATH", line)


def main() -> None:
    known = json.loads(FILE.read_text())["errors"] if FILE.exists() and "--all" not in sys.argv else {}
    for name, example, proof in crashes():
        if name in known:
            continue
        seen = observe(example.files, example.consumer, proof.phase, proof.ranks)
        if seen.error is not None:
            known[name] = told(seen.error.type, seen.error.text, proof.raises or "")
        content = {"versions": {library: version(library) for library in LIBRARIES}, "errors": known}
        FILE.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
