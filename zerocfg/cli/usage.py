"""Wrong use, as click tells it, imported where there is some: a lint of plain paths needs nothing else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def usage_error(message: str) -> click.UsageError:
    """To be raised: the message on standard error, and exit code 2."""
    from click import UsageError

    return UsageError(message)
