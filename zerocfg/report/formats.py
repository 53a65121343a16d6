"""The formats of a lint's result, by name. Each is loaded when it is wanted: start-up counts."""

from __future__ import annotations

from zerocfg.linter.engine import Result
from zerocfg.source.foreign import harmless
from zerocfg.source.secrets import masked

FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


def render(
    result: Result, output_format: str, colour: bool = False, width: int | None = None, quiet: bool = False
) -> str:
    """The result as text; for the formats that people read ``colour``, ``width`` in columns, and ``quiet`` for findings
    without a summary."""
    people = output_format in ("full", "concise")
    text = masked(_rendered(result, output_format, colour, width, quiet))
    return harmless(text, commands=people, coloured=people and colour)


def _rendered(result: Result, output_format: str, colour: bool, width: int | None, quiet: bool) -> str:
    if output_format == "json":
        from zerocfg.report.json_format import render_json

        return render_json(result)
    if output_format == "sarif":
        from zerocfg.report.sarif import render_sarif

        return render_sarif(result)
    if output_format == "github":
        from zerocfg.report.github import render_github

        return render_github(result)
    if output_format == "gitlab":
        from zerocfg.report.gitlab import render_gitlab

        return render_gitlab(result)
    if output_format == "junit":
        from zerocfg.report.junit import render_junit

        return render_junit(result)
    from zerocfg.report.full import render_concise, render_full

    if output_format == "concise":
        return render_concise(result, colour, quiet)
    return render_full(result, colour, width, quiet)
