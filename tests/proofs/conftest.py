"""Marks and counts the proofs."""

from __future__ import annotations

import pytest

from tests.conftest import COUNT

PROOFS = f"{COUNT}proofs executed on the real libraries"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All proofs of a rule on one pytest-xdist worker (under --dist loadgroup); each worker has one
    zygote."""
    for item in items:
        spec = getattr(item, "callspec", None)
        if "/proofs/" in item.nodeid:
            item.add_marker(pytest.mark.libs)
        if spec is not None and "code" in spec.params:
            item.add_marker(pytest.mark.xdist_group(str(spec.params["code"])))
