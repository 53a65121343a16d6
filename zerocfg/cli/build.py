"""``zerocfg build``."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from zerocfg.cli.build_check import check_outputs
from zerocfg.cli.build_output import finished, problems, stopped
from zerocfg.cli.spec_argument import read_or_exit, resolved
from zerocfg.emit.files import Emitted, emit
from zerocfg.emit.problems import problems as emit_problems
from zerocfg.emit.verify import differences, emitted_run
from zerocfg.emit.write import RefusedError, check, write
from zerocfg.resolve.build import Built
from zerocfg.resolve.places import placed
from zerocfg.rules.api import Severity
from zerocfg.rules.engine import Diagnostic, Result, lint_runs
from zerocfg.run.config import AUTO
from zerocfg.run.discover import display_name
from zerocfg.source.node import Path as KeyPath
from zerocfg.source.node import Scalar, dotted, walk


class InTheWayError(click.ClickException):
    """A file that the build will not replace."""

    exit_code = 2


@click.command("build")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to."
)
@click.option("--hardware", metavar="PROFILE", help="8xA100-80GB, a probed profile (.json), or 'this' machine.")
@click.option("--run", "only", metavar="NAME", help="Only this run of the spec.")
@click.option("--force", is_flag=True, help="Replace files that zerocfg did not write or that were changed since.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 where OUT is not what SPEC gives.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    spec: Path,
    out: Path,
    hardware: str | None,
    only: str | None,
    force: bool,
    only_check: bool,
    output_format: str,
) -> None:
    """Resolve every auto of SPEC (a zerocfg.yaml, or the folder that holds one) and write runnable configs.

    For each run: OUT/RUN/accelerate.yaml, ds_config.json, launch.sh, and zerocfg.lock with the reason for
    every value. Nothing is written unless every run resolves and the result lints clean.

    Exit codes: 0 built, or with --check up to date; 1 something in the configs prevents it, or OUT is out of date; 2
    wrong use, an unreadable spec or an unreadable lock.
    """
    read = read_or_exit(spec)
    built = resolved(read, only, hardware)
    for one in built:
        if one.plan is not None:
            one.problems += placed(emit_problems(one.plan), read, one.run)
    if any(problem.key == "goals" for one in built for problem in one.problems):
        _stop_on_problems(built, read.path, output_format)  # lint would judge a run that was not chosen to its end
    warnings = _stop_on_findings(built, output_format)
    if any(one.problems for one in built):
        _stop_on_problems(built, read.path, output_format)
    emitted = [emit(one.plan, out) for one in built if one.plan is not None]
    _verify(emitted, built, output_format)
    if only_check:
        raise click.exceptions.Exit(check_outputs(emitted, read.path, out, only, output_format))
    try:
        check(emitted, force=force)
    except RefusedError as refused:
        raise InTheWayError(str(refused)) from None
    click.echo(finished(emitted, write(emitted), output_format), nl=False)
    if warnings and output_format == "text":
        found = f"lint has {warnings} warning{'s' * (warnings > 1)} about the sources"
        click.echo(f"{found}: zerocfg lint {display_name(read.path)}")


def _stop_on_problems(built: list[Built], spec: Path, output_format: str) -> NoReturn:
    click.echo(problems(built, display_name(spec), output_format), nl=False, err=output_format == "text")
    raise click.exceptions.Exit(1)


def _stop_on_findings(built: list[Built], output_format: str) -> int:
    """Errors of lint end the build, except about values that it replaces. Returns the number of warnings."""
    found = lint_runs([one.run for one in built])
    errors = [one for one in found.diagnostics if one.severity is Severity.ERROR and not _is_replaced(one)]
    if errors:
        click.echo(stopped(Result(errors, found.hidden, found.files), output_format), nl=False)
        raise click.exceptions.Exit(1)
    return sum(one.severity is Severity.WARNING for one in found.diagnostics)


def _is_replaced(diagnostic: Diagnostic) -> bool:
    """Whether the emitted files hold another value: an auto, or the processes of a hardware that the build knows."""
    if diagnostic.spot.path in ("num_processes", "num_machines"):
        return True
    document = diagnostic.spot.file.document
    path = _path(diagnostic)
    node = document.get(path) if document is not None and path else None
    return isinstance(node, Scalar) and node.value == AUTO


def _path(diagnostic: Diagnostic) -> KeyPath:
    document = diagnostic.spot.file.document
    if document is None or document.root is None:
        return ()
    return next((path for path, _, _ in walk(document.root) if dotted(path) == diagnostic.spot.path), ())


def _verify(emitted: list[Emitted], built: list[Built], output_format: str) -> None:
    """What was emitted must mean what was planned; a difference is a bug of zerocfg. Nothing is written."""
    runs = [emitted_run(one, source.run) for one, source in zip(emitted, built, strict=False)]
    for one, run in zip(emitted, runs, strict=False):
        wrong = differences(one, run)
        if wrong:
            raise RuntimeError(f"run {one.plan.name}: {wrong[0].key}: {wrong[0].message}")
    found = lint_runs(runs)
    errors = [one for one in found.diagnostics if one.severity is Severity.ERROR]
    if errors:
        click.echo(stopped(Result(errors, found.hidden, found.files), output_format), nl=False)
        raise click.exceptions.Exit(1)
