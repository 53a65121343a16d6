"""Which proofs are played together."""

from __future__ import annotations

import pytest

from tests.ledger.plugin import TIER


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those of a rule on one worker of pytest-xdist, so that what two of them show alike is played once. Those that are
    drawn together too: each worker that plays starts a process that imports the libraries."""
    tier = config.stash.get(TIER, None)
    drawn = {proof.partition(" ")[0] for proof in tier.drawn} if tier is not None and tier.name == "quick" else set()
    for item in items:
        spec = getattr(item, "callspec", None)
        if item.get_closest_marker("proof") is not None and spec is not None:
            example = spec.params["example"]
            item.add_marker(pytest.mark.xdist_group("drawn" if example in drawn else example.partition("-")[0]))
