"""Tests on several ranks run with gloo and with the double of NCCL."""

from __future__ import annotations

from tests.nccl.plugin import collectives, pytest_generate_tests

__all__ = ["collectives", "pytest_generate_tests"]
