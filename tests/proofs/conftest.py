"""Which proofs are played together."""

from __future__ import annotations

import pytest

from tests.ledger.plugin import DRAWN_GROUP, TIER

from .harness import zygote

PLAYING = ("tests/proofs", "tests/proofs/", "test_proofs.py", "test_harness.py")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where proofs are asked for by name, the libraries are imported while the tests are collected."""
    config = session.config
    elsewhere = hasattr(config, "workerinput") or config.getoption("numprocesses", None) or config.option.collectonly
    named = any(word.partition("::")[0].endswith(PLAYING) for word in config.args)
    if named and not elsewhere and TIER not in config.stash:
        zygote()


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
            item.add_marker(pytest.mark.xdist_group(DRAWN_GROUP if example in drawn else example.partition("-")[0]))
