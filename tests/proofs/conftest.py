"""Counts the proofs that were executed, over all pytest-xdist workers."""

from __future__ import annotations

from typing import Any

import pytest

COUNT = pytest.StashKey[int]()
PROOFS = "executed_proof"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All proofs of a rule on one pytest-xdist worker (under --dist loadgroup); each worker has one
    zygote."""
    for item in items:
        spec = getattr(item, "callspec", None)
        if "/proofs/" in item.nodeid:
            item.add_marker(pytest.mark.libs)
        if spec is not None and "code" in spec.params:
            item.add_marker(pytest.mark.xdist_group(str(spec.params["code"])))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    proofs = [report for report in reports if (PROOFS, True) in report.user_properties]
    if proofs:
        terminalreporter.write_line(f"{len(proofs)} proofs executed")
