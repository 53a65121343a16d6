"""The counts of proofs that a command writes."""

from __future__ import annotations

from tools.proof_counts import with_counts

PAGE = "| status | what | rules |\n| executed | in 3 runs | 355 |\n| needs GPU | later | 9 |\n\n| other | x | 5 |\n"


def test_only_the_rows_of_the_table_change() -> None:
    counts = {"executed": 356, "needs GPU": 10}
    assert with_counts(PAGE, counts) == PAGE.replace("| 355 |", "| 356 |").replace("| 9 |", "| 10 |")
