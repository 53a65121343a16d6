"""``zerocfg gate``: what CI requires before a config may be used."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerocfg.cli.settings_options import options
from zerocfg.emit.lock import NAME as LOCK
from zerocfg.internal_errors import REPORT
from zerocfg.rules.api import Severity
from zerocfg.run.discover import display_name
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import folded
from zerocfg.workspace.baseline import read_baseline_file
from zerocfg.workspace.job import Job, excludes_path
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import Settings, SettingsOptions

if TYPE_CHECKING:
    from zerocfg.gate.model import Check, Outcome, Reason
    from zerocfg.gate.policy import Policy
    from zerocfg.linter.engine import Diagnostic


@click.command("gate")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
@click.option("--fail-on", type=click.Choice(["error", "warning", "note"]), help="Lint findings from this severity on.")
@click.option("--require", type=click.Choice(["all", "changed", "none"]), help="Which runs need a certificate.")
@click.option("--base", metavar="REF", help="With --require changed: what git compares with (default: origin/main).")
@click.option(
    "--signers",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Every certificate must be signed by one of these (allowed signers of OpenSSH and git).",
)
@click.option(
    "--only",
    type=click.Choice(["lint", "build", "certificate", "policy"]),
    multiple=True,
    help="Make this check alone; several times for several.",
)
@options
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    folder: Path,
    fail_on: str | None,
    require: str | None,
    base: str | None,
    signers: Path | None,
    only: tuple[str, ...],
    output_format: str,
    **given: Any,
) -> None:
    """Check that FOLDER (default: the current one) lints clean, that its builds are what their sources give, and that
    every run is covered by a certificate of `zerocfg smoke` for these files, releases and this hardware.

    Needs no accelerator and no training library. What it requires is set in [tool.zerocfg.gate]; see docs/gate.md.

    Exit codes: 0 passed, 1 there are problems, 2 wrong use, or invalid settings or policies.
    """
    from zerocfg.gate.gate import gate
    from zerocfg.gate.model import CHECKS, GateError
    from zerocfg.gate.policy import read_policy

    checks = [check for check in CHECKS if check in only] or list(CHECKS)
    settings = SettingsOptions(**given).settings(folder)
    try:
        policy = read_policy(settings.gate, settings.source)
        policy = replace(
            policy, require=require or policy.require, base=base or policy.base, signers=signers or policy.signers
        )
        if policy.base.startswith("-"):
            raise GateError("--base must name a branch or commit of git, as origin/main")
        level = fail_on or policy.fail_on or settings.fail_on
        with Working("comparing builds and certificates with their sources"):
            outcome = gate(folder, policy, settings.versions, lambda path: excludes_path(settings, path), checks=checks)
    except GateError as error:
        raise click.UsageError(str(error)) from None
    if "lint" in checks:
        files, found = _lint(folder, settings, level)
        outcome.reasons = [*found, *outcome.reasons]
        outcome.looked_at["lint"] = files
    if output_format == "json":
        click.echo(_data(outcome, checks), nl=False)
    else:
        click.echo(folded(_text(outcome, policy, level, checks), columns(sys.stdout)), nl=False)
    if not outcome.passed:
        raise click.exceptions.Exit(1)


def _lint(folder: Path, settings: Settings, level: str) -> tuple[int, list[Reason]]:
    """How many files lint looked at, and its findings from a severity on."""
    from zerocfg.gate.model import Reason

    selection = selection_of(settings, "", "", False)
    job = Job([folder], settings, selection, known=read_baseline_file(None, settings))
    with Working("linting", job.progress):
        result = job.lint()
    threshold = Severity(level).rank
    failed = [
        Reason("lint", "internal-error", internal_error.file or display_name(folder), internal_error.message, REPORT)
        for internal_error in result.internal_errors
    ]
    return result.files, failed + [
        Reason(
            "lint",
            diagnostic.code,
            diagnostic.span.file.name,
            " ".join(diagnostic.message.split()).rstrip("."),
            " ".join(diagnostic.help.split()).rstrip(".") or f"zerocfg explain {diagnostic.code}",
            diagnostic.run,
            diagnostic.span.start.line,
            diagnostic.span.start.column,
        )
        for diagnostic in result.diagnostics
        if diagnostic.severity.rank >= threshold and not _between_build_and_sources(diagnostic)
    ]


def _between_build_and_sources(diagnostic: Diagnostic) -> bool:
    """Whether a built file disagrees with a file outside of its build; the check of builds reports that."""
    path = diagnostic.span.file.path
    if path is None or not (path.parent / LOCK).is_file():
        return False
    return any(span.file.path is not None and span.file.path.parent != path.parent for span in diagnostic.related)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _text(outcome: Outcome, policy: Policy, level: str, checks: list[Check]) -> str:
    if not outcome.passed:
        counts = [(check, sum(reason.check == check for reason in outcome.reasons)) for check in checks]
        per = ", ".join(f"{number} {check}" for check, number in counts if number)
        reasons = "".join(f"{reason}\n" for reason in outcome.reasons)
        return f"{reasons}\ngate: failed ({_count(len(outcome.reasons), 'problem')}: {per})\n"
    seen = outcome.looked_at
    proofs = " proven" if policy.require == "all" else f' that need a certificate (require = "{policy.require}")'
    said = {
        "lint": lambda: f"{_count(seen['lint'], 'file')}, nothing from {level} on",
        "build": lambda: f"{_count(seen['build'], 'run')} as the sources give it",
        "certificate": lambda: _count(seen["certificate"], "run") + proofs,
        "policy": lambda: f"{_count(seen['policy'], 'schema')} met",
    }
    return "gate: passed\n" + "".join(f"  {check:<11}  {said[check]()}\n" for check in checks)


def _data(outcome: Outcome, names: list[Check]) -> str:
    reasons: list[dict[str, object]] = [
        {
            "check": reason.check,
            "kind": reason.kind,
            "run": reason.run or None,
            "file": reason.file,
            "line": reason.line or None,
            "column": reason.column or None,
            "message": reason.message,
            "help": reason.help,
        }
        for reason in outcome.reasons
    ]
    checks = {
        check: {
            "looked_at": outcome.looked_at.get(check, 0),
            "reasons": sum(reason["check"] == check for reason in reasons),
        }
        for check in names
    }
    content = {"version": 1, "passed": outcome.passed, "checks": checks, "reasons": reasons}
    return json.dumps(content, indent=2) + "\n"
