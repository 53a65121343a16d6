"""Adds entries to ``per-file-ignores`` of a settings file, whose comments and layout stay as they are."""

from __future__ import annotations

from typing import Any

from zerocfg.workspace.settings import parse_toml

_TABLE = "per-file-ignores"


def with_ignores(text: str, table: tuple[str, ...], entries: dict[str, list[str]]) -> str:
    """The text of a settings file with more entries. ``table``: the keys of zerocfg's own table, empty for the top.

    Raises ValueError where the file is not TOML, or leaves no place for a table of entries.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import InlineTable

    windows = "\r\n" in text and text.count("\r\n") == text.count("\n")
    try:
        document = tomlkit.parse(text.replace("\r\n", "\n") if windows else text)
        inner: Any = document
        for key in (*table, _TABLE):
            if key not in inner:
                inner[key] = tomlkit.inline_table() if isinstance(inner, InlineTable) else tomlkit.table()
            inner = inner[key]
        created = not inner and not isinstance(inner, InlineTable)
        for pattern, codes in entries.items():
            listed = inner.setdefault(pattern, [])
            listed.extend(code for code in codes if code not in listed)
        if created:
            inner.add(tomlkit.nl())  # an empty line before the next table
        result = tomlkit.dumps(document)
        result = result.removesuffix("\n") if created and result.endswith("\n\n") else result
        if parse_toml(result) != document.unwrap():
            raise ValueError(f"{_TABLE} cannot be edited there")
    except (TOMLKitError, AttributeError, TypeError) as error:  # a key holds something other than a table or a list
        raise ValueError(f"{_TABLE} cannot be edited there: {error}") from None
    return result.replace("\n", "\r\n") if windows else result
