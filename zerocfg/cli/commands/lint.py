"""``zerocfg lint``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zerocfg.cli.fleet.options import NAMES as FLEET
from zerocfg.cli.fleet.options import options as fleet_options
from zerocfg.cli.linting.lint import Options, lint
from zerocfg.cli.output_type import PAGE, OutputType
from zerocfg.cli.settings_options import options
from zerocfg.run.consumers import consumers
from zerocfg.workspace.settings import SettingsOptions

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("lint")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--select", default="", metavar="CODES", help="Only these rules: codes, prefixes or names, separated by commas."
)
@click.option("--ignore", default="", metavar="CODES", help="Not these rules.")
@options
@click.option("--preview", is_flag=True, help="Also apply preview rules, which may still change.")
@click.option("--notes", is_flag=True, help="Also report notes: worth knowing, with no effect.")
@click.option(
    "--consumer", type=click.Choice(consumers()), help="Who reads the configs, overriding what the files say."
)
@click.option(
    "--output-format",
    "formats",
    type=OutputType(),
    multiple=True,
    help="full (default), concise, json, sarif, github, gitlab or junit, with --repos also html; several where each "
    "but one has a =FILE.",
)
@click.option("--output-file", type=_FILE, help="Write the report to this file instead of standard output.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings, and nothing else.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Also print which settings apply, which files are read and which runs found."
)
@click.option("--statistics", is_flag=True, help="Show only how often each rule found something.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    help="Exit 1 from this severity on (default: warning).",
)
@click.option("--fix", is_flag=True, help="Apply safe fixes to the files.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also apply fixes that make a choice for you.")
@click.option(
    "--diff", is_flag=True, help="Show what --fix would change as a diff, change nothing, and exit 1 if there is any."
)
@click.option("--add-ignore", is_flag=True, help="Add a comment or setting that silences each finding.")
@click.option("--baseline", type=_FILE, help="Leave out the findings recorded in this file.")
@click.option("--write-baseline", type=_FILE, help="Record what is found in this file.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours; auto heeds NO_COLOR and FORCE_COLOR.",
)
@click.option("--stdin-filename", metavar="NAME", help="With '-': the name of the file read from standard input.")
@click.option("--skip-unknown", is_flag=True, help="Skip named files that are no configs, as hooks need.")
@click.option("--show-runs", is_flag=True, help="Show which runs are found and who reads them, instead of findings.")
@click.option("--all-releases", is_flag=True, help="Also show in which releases of its library each finding holds.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 even if there are findings.")
@click.option("--no-cache", is_flag=True, help="Neither print a kept outcome nor keep this one.")
@click.option("--watch", is_flag=True, help="Lint again whenever a config or script changes, until Ctrl-C.")
@fleet_options
def command(
    config: tuple[str, ...], isolated: bool, exclude: tuple[str, ...], extend_exclude: tuple[str, ...], **given: Any
) -> None:
    """Find what will crash, be silently ignored, or lose the weights.

    PATHS are files and folders (default: the current one). In a folder zerocfg finds the accelerate configs, DeepSpeed
    configs, trainer recipes and launch lines by itself and ignores every other file. A single file stands for the runs
    that it takes part in: everything found in them is reported, in whichever file.

    Exit codes: 0 clean, 1 findings, 2 wrong use, a named file is missing, unreadable or no config, or zerocfg itself
    failed at something (what else was found is reported).
    """
    of_many = {name: given.pop(name) for name in FLEET}
    options = Options(**given, settings=SettingsOptions(config, isolated, exclude, extend_exclude))
    if not any(of_many.values()):
        if any(output.format == PAGE for output in options.formats):
            raise click.UsageError(
                "--output-format html is for --repos; `zerocfg report RUN -o FILE` is a page of one run"
            )
        raise click.exceptions.Exit(lint(options))
    from zerocfg.cli.fleet.command import Fleet, lint_fleet, refuse

    fleet = Fleet(**of_many)
    if fleet.repos is None:
        refuse(fleet)
    raise click.exceptions.Exit(lint_fleet(fleet, options))
