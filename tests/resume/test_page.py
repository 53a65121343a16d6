"""docs/resume.md: its table is that of the proofs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.resume.test_real import CASES, Case

PAGE = Path(__file__).parents[2] / "docs" / "resume.md"


def engine(case: Case) -> str:
    if case.stage is not None:
        extra = ", load_universal" if case.universal else ""
        return f"ZeRO {case.stage}, {'bf16' if case.bf16 else 'fp32'}{extra}"
    if case.fsdp:
        return f"FSDP 2, {case.fsdp}"
    return "DDP" if case.ranks > 1 else "one process"


def table() -> str:
    rows = ["| case | saved | resumed by | verdict | why |", "|---|---|---|---|---|"]
    for name, case in CASES.items():
        ranks = f"{case.ranks} rank{'s' * (case.ranks > 1)}, {engine(case)}"
        rows.append(f"| {name} | {case.saved} | {ranks} | {case.outcome} | {', '.join(sorted(case.kinds))} |")
    return "\n".join(rows) + "\n"


def test_the_table_is_that_of_the_proofs() -> None:
    found = re.search(r"<!-- table -->\n(.*)<!-- end of table -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert found[1] == table(), f"the page should have\n{table()}"
