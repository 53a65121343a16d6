"""What ends a smoke-run before it starts."""

from __future__ import annotations


class SmokeError(Exception):
    """The smoke-run could not be made; says what is missing and what to do (exit code 2)."""
