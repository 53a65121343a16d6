"""``python -m tools.proof_counts``: writes into docs/proofs.md how many rules have a proof of each kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL

FILE = Path(__file__).resolve().parent.parent / "docs" / "proofs.md"
_ROW = re.compile(r"^(\| (executed|cited|self|needs GPU) \|.*\| )\d+( \|)$", re.MULTILINE)


def with_counts(text: str, counts: Mapping[str, int]) -> str:
    """The page with these numbers in its table, by what the first column says."""
    return _ROW.sub(lambda row: f"{row[1]}{counts[row[2]]}{row[3]}", text)


def main() -> None:
    counts = Counter(page_of(rule).proof.status.replace("needs_gpu", "needs GPU") for rule in ALL)
    FILE.write_text(with_counts(FILE.read_text(encoding="utf-8"), counts), encoding="utf-8")


if __name__ == "__main__":
    main()
