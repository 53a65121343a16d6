"""Tests on several ranks that do not run with the double of NCCL, and why: it would show nothing that they look at."""

from __future__ import annotations

EXEMPT: dict[str, str] = {}
"""By module and name below ``tests``."""
