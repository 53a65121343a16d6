"""The error that ends a smoke-run before it starts."""

from __future__ import annotations


class SmokeError(Exception):
    """The smoke-run could not be tried; the text says what is missing and what to do (exit code 2)."""
