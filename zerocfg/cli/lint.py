"""``zerocfg lint``."""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatch
from pathlib import Path

import click

from zerocfg.cli.settings import Settings, find_settings
from zerocfg.rules.api import Severity
from zerocfg.rules.engine import Result, Selection, lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import declare_versions


@click.command("lint")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--select", default="", metavar="CODES", help="Only these rules: codes, prefixes or names, by comma.")
@click.option("--ignore", default="", metavar="CODES", help="Not these rules.")
@click.option("--output-format", type=click.Choice(["full", "concise", "json"]), default="full", show_default=True)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    help="Exit 1 from this severity on (default: warning).",
)
@click.option("--fix", is_flag=True, help="Apply safe fixes to the files.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also fixes that make a choice for you.")
@click.option("--diff", is_flag=True, help="Show what --fix would change; change nothing.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("--stdin-filename", metavar="NAME", help="With '-': what to call the file read from standard input.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 whatever is found.")
def command(
    paths: tuple[Path, ...],
    select: str,
    ignore: str,
    output_format: str,
    fail_on: str | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    color: str,
    stdin_filename: str | None,
    exit_zero: bool,
) -> None:
    """Find what will crash, be silently ignored, or lose the weights.

    PATHS are files and folders (default: the current one). In a folder zerocfg finds the accelerate configs, DeepSpeed
    configs, trainer recipes and launch lines by itself and is silent about every other file. A single file is checked
    together with the files that point to it.

    Exit codes: 0 clean, 1 findings, 2 wrong use or unreadable input.
    """
    files = Files()
    targets = _targets(paths, files, stdin_filename)
    settings = find_settings(targets[0] if targets[0].is_dir() else targets[0].parent)
    result = lint(targets, files, settings, _selection(settings, select, ignore))
    if fix or diff:
        from zerocfg.cli.fixing import fix_files

        result = fix_files(
            result, targets, settings, _selection(settings, select, ignore), unsafe=unsafe_fixes, dry=diff
        )
        if diff:
            return
    click.echo(render(result, output_format, color), nl=False)
    threshold = Severity(fail_on or settings.fail_on).rank
    if not exit_zero and any(diagnostic.severity.rank >= threshold for diagnostic in result.diagnostics):
        raise click.exceptions.Exit(1)


def lint(targets: list[Path], files: Files, settings: Settings, selection: Selection) -> Result:
    """Lint files and folders."""
    runs, asked = find_runs(targets, files)
    declare_versions(runs, settings.versions)
    if settings.exclude:
        excluded = {
            id(file) for file in files.all() if any(_matches(file.name, pattern) for pattern in settings.exclude)
        }
        asked -= excluded
    if any(run.spec is not None for run in runs):
        from zerocfg.resolve.facts import with_facts

        runs = with_facts(runs, files)
    return lint_runs(runs, selection, asked, complete=True)


def render(result: Result, output_format: str, color: str = "never") -> str:
    """The result as text."""
    if output_format == "json":
        from zerocfg.report.json_format import render_json

        return render_json(result)
    from zerocfg.report.full import render_concise, render_full

    if output_format == "concise":
        return render_concise(result, _colour(color))
    return render_full(result, _colour(color))


def _matches(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) or fnmatch(name, f"{pattern.rstrip('/')}/*")


def _selection(settings: Settings, select: str, ignore: str) -> Selection:
    chosen = tuple(code.strip() for code in select.split(",") if code.strip())
    dropped = tuple(code.strip() for code in ignore.split(",") if code.strip())
    _check_codes((*chosen, *dropped))
    base = settings.selection
    return Selection(chosen or base.select, (*base.ignore, *dropped), base.per_file)


def _check_codes(codes: tuple[str, ...]) -> None:
    from zerocfg.rules.registry import ALL

    for code in codes:
        if code != "ALL" and not any(rule.code.startswith(code) or rule.name == code for rule in ALL):
            raise click.UsageError(f"no rule is called '{code}' or begins with it; see 'zerocfg rules'")


def _targets(paths: tuple[Path, ...], files: Files, stdin_filename: str | None) -> list[Path]:
    targets = []
    for path in paths or (Path(),):
        if str(path) == "-":
            name = Path(stdin_filename or "stdin.yaml")
            text = sys.stdin.buffer.read().decode("utf-8", "replace")
            files.open(name, text)
            targets.append(name)
        elif not path.exists():
            raise click.UsageError(f"there is no file or folder '{path}'")
        else:
            targets.append(path)
    return targets


def _colour(choice: str) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()
