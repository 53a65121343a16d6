"""``--output-format``, as click reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.cli.outputs import Output
from zerocfg.report.formats import FORMATS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


PAGE = "html"
"""A page about many repositories; it is no format of a single lint's result."""


class OutputType(click.ParamType):  # type: ignore[type-arg]
    """``FORMAT`` or ``FORMAT=FILE``."""

    name = "format"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        if isinstance(value, Output):
            return value
        name, equals, file = str(value).partition("=")
        if name not in (*FORMATS, PAGE):
            self.fail(f"'{name}' is none of {', '.join((*FORMATS, PAGE))}", param, ctx)
        if equals and not file:
            self.fail(f"'{value}' names no file behind the =", param, ctx)
        return Output(name, Path(file) if file else None)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in (*FORMATS, PAGE) if name.startswith(incomplete)]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "FORMAT[=FILE]"
