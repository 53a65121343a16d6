"""The page of a rule as a file that an editor can open: the documentation of the very release that runs."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from zerocfg.linter.engine import DOCS
from zerocfg.lsp.documents import file_uri
from zerocfg.rulebook.pages import page_of
from zerocfg.rulebook.rendering import as_markdown
from zerocfg.rules.registry import find
from zerocfg.source.write import write_atomic
from zerocfg.version import __version__
from zerocfg.workspace.examples import as_shown

_CHECKOUT = Path(__file__).parent.parent.parent / DOCS


def folder() -> Path | None:
    """Where the pages are: in a checkout those of its documentation, else a folder of the user's cache."""
    if _CHECKOUT.is_dir():
        return _CHECKOUT
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        cache_folder = Path(home) if home else Path.home() / ".cache"
    except RuntimeError:
        return None
    return cache_folder / "zerocfg" / "rules" / __version__


@cache
def page(code: str) -> str | None:
    """The URI of a rule's page, written to a file on first use; None if it cannot be written."""
    rule, where = find(code), folder()
    if rule is None or rule.package or where is None:
        return None
    file = where / f"{rule.code}.md"
    try:
        if not file.is_file():
            where.mkdir(parents=True, exist_ok=True)
            write_atomic(file, as_markdown(rule, as_shown(page_of(rule))).encode("utf-8"), anywhere=True)
    except OSError:
        return None
    return file_uri(file.resolve())
