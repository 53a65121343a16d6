"""Shared by all tests: where the corpus of real configs is, when there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def corpus_folder() -> Path | None:
    """The folder of real config files: $ZEROCFG_CORPUS, or shared/corpus beside the checkout; None when absent."""
    named = os.environ.get("ZEROCFG_CORPUS")
    folder = Path(named) if named else ROOT.parent / "shared" / "corpus"
    return folder if (folder / "INDEX.tsv").is_file() else None


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real config files; the test is skipped with a message where it is absent."""
    folder = corpus_folder()
    if folder is None:
        pytest.skip("no corpus of real configs here (set ZEROCFG_CORPUS)")
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT
