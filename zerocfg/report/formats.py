"""The formats of a lint's result, by name. Each is loaded when it is wanted: start-up counts."""

from __future__ import annotations

from zerocfg.rules.engine import Result

FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


def render(result: Result, output_format: str, colour: bool = False, width: int | None = None) -> str:
    """The result as text; ``colour``, and ``width`` in columns, for the formats that people read."""
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

    return render_concise(result, colour) if output_format == "concise" else render_full(result, colour, width)
