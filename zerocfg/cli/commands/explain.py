"""``zerocfg explain``: a rule, a key by release, an effective setting of a run, or a value of a build."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.cli.commands.explain_built import explain_lock, find_key, lock_at, locks_below, read_lock
from zerocfg.cli.screens.settings_table import settings_table
from zerocfg.cli.settings_options import options
from zerocfg.compare.lock_table import table
from zerocfg.linter.selection import Selection
from zerocfg.report.runs import releases_of, why
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.codes import REMOVED
from zerocfg.rules.registry import every, find
from zerocfg.run.discover import Files, display_name
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.origins import origin_label, place_of
from zerocfg.run.releases import with_versions
from zerocfg.source.secrets import masked
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import folded, reflowed
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import SettingsOptions

_CODE = re.compile(r"[Zz][Cc]\d+")


@click.command("explain")
@click.argument("what", required=False)
@click.option(
    "--run",
    "run_name",
    metavar="RUN",
    help="A build (OUT/RUN, or its lock), or a run: its name in zerocfg.yaml, a launch line (train.sh:3), or a config "
    "file.",
)
@click.option(
    "--in",
    "folder",
    type=click.Path(exists=True, path_type=Path),
    default=".",
    help="Where to look for runs.",
)
@options
def command(what: str | None, run_name: str | None, folder: Path, **given: Any) -> None:
    """Explain a rule (ZC103, key-accelerate-ignores), or a setting (zero_optimization.stage) of a run or a build.

    A setting needs --run, unless exactly one build lies here (OUT/RUN/zerocfg.lock). Where none does, a key of a config
    is explained by what it is in each release of its library. Without WHAT, --run prints every setting of the run; with
    neither, the runs found are listed.
    """
    built = lock_at(run_name) if run_name is not None else None
    if built is not None:
        click.echo(masked(explain_lock(built, what)), nl=False)
        return
    if run_name is None and what is not None:
        click.echo(masked(_rule_or_built(what, folder)), nl=False)
        return
    runs = _runs(run_name, folder, SettingsOptions(**given))
    if run_name is None:
        click.echo("\n".join(f"{run.name}  ({_files(run)})" for run in runs) or "no runs found here")
        return
    run = _choose(runs, run_name)
    click.echo(masked(explain_setting(run, what) if what else explain_run(run)), nl=False)


def _rule_or_built(what: str, folder: Path) -> str:
    """A rule, else a value of the one build that lies here."""
    locks = locks_below(folder)
    text = explain_key(what) if find(what) is None and not _CODE.fullmatch(what) and not locks else ""
    if text:
        return text
    if find(what) is not None or what.upper() in REMOVED or _CODE.fullmatch(what) or not locks:
        return explain_rule(what)
    if len(locks) == 1:
        near = closest(what, [known.name for known in every()])
        if near is not None and not find_key(table(read_lock(locks[0])), what):
            return explain_rule(what)
        return explain_lock(locks[0], what)
    names = ", ".join(display_name(path.parent) for path in locks[:8]) + (", ..." if len(locks) > 8 else "")
    raise click.UsageError(f"no rule is called '{what}', and several builds lie here: {names}; name one: --run RUN")


def _runs(name: str | None, folder: Path, given: SettingsOptions) -> list[Run]:
    target = Path(name) if name is not None and Path(name).is_file() else folder
    settings = given.settings(target)
    job = Job([target], settings, Selection())
    job.runs = job.read(with_versions(find_runs([target], Files(), scripts=True)[0], settings.versions))
    return job.included


def _choose(runs: list[Run], name: str) -> Run:
    found = [run for run in runs if run.name == name]
    found = found or [run for run in runs if any(file.name == name for file in run.files)]
    found = found or [
        run for run in runs if any(file.path and file.path.resolve() == Path(name).resolve() for file in run.files)
    ]
    if not found:
        known = ", ".join(run.name for run in runs[:8]) or "none"
        raise click.UsageError(f"there is no run '{name}' here; runs found: {known}")
    return found[0]


def _files(run: Run) -> str:
    return ", ".join(dict.fromkeys(file.name for file in run.files))


def explain_key(name: str) -> str:
    """What a key of a config is in each release of its library that is known; empty for what is none."""
    from zerocfg.catalog.changes import called, keys_called, known_libraries, states
    from zerocfg.catalog.history import with_classes
    from zerocfg.catalog.versions import library_name

    blocks = []
    for library in known_libraries():
        known = with_classes(library)
        for key in keys_called(library, name):
            lines = [f"{called(key).replace('`', '')}  ({library_name(library)} {known.names[0]} to {known.names[-1]})"]
            lines += [f"  {f'from {since}':<14} {words}" for since, words in states(known, key)]
            blocks.append("\n".join(lines))
    return folded("\n\n".join(blocks) + "\n", columns(sys.stdout)) if blocks else ""


def explain_rule(what: str) -> str:
    """A rule's page."""
    rule = find(what)
    if rule is None:
        gone = REMOVED.get(what.upper())
        if gone is not None:
            raise click.UsageError(f"{what.upper()} ({gone.name}) was removed in {gone.since}: {gone.why}")
        near = closest(what, [known.name for known in every()])
        hint = f"; did you mean {near}?" if near else "; for a setting, name the run: --run RUN"
        raise click.UsageError(f"no rule is called '{what}'{hint}")
    if rule.package:
        page = page_of(rule)
        head = f"{rule.code} {rule.name} ({rule.severity.value}, of the package {rule.package})"
        return reflowed("\n\n".join(filter(None, (head, page.summary, page.why))) + "\n", columns(sys.stdout))
    from zerocfg.rulebook.rendering import as_text
    from zerocfg.workspace.examples import as_shown

    return reflowed(as_text(rule, as_shown(page_of(rule))), columns(sys.stdout))


def explain_run(run: Run) -> str:
    """Every effective setting with its origin, in columns."""
    settings = run.effective.settings
    if not settings:
        return f"{run.name}: nothing can be told about this run\n"
    width = columns(sys.stdout)
    head = [f"{run.name}  ({_files(run)}; consumer: {run.consumer or 'unknown'}{why(run)})\n"]
    head += [f"  release: {release.library} {release.words}\n" for release in releases_of(run)]
    rows = [(name, _value(settings[name].shown), _origin(settings[name].origin)) for name in sorted(settings)]
    failures = (f"  will fail ({failure.phase}): {failure.message}\n" for failure in run.effective.failures)
    return folded("".join(head), width) + settings_table(rows) + folded("".join(failures), width)


def explain_setting(run: Run, name: str) -> str:
    """One setting: value, origin, what it replaced."""
    settings = run.effective.settings
    setting = settings.get(name)
    if setting is None:
        below = [known for known in settings if known.startswith(f"{name}.")]
        if below:
            width = max(len(known) for known in below)
            return "".join(
                f"{known:<{width}}  {_value(settings[known].shown)}  ({_origin(settings[known].origin)})\n"
                for known in sorted(below)
            )
        near = closest(name, settings)
        raise click.UsageError(
            f"the run {run.name} has no setting '{name}'" + (f"; did you mean {near}?" if near else "")
        )
    lines = [f"{name} = {_value(setting.shown)}", f"  from  {_origin(setting.origin)}"]
    lines += [f"  overrides {_value(old.shown)} from {_origin(old.origin)}" for old in _replaced(setting)]
    return "\n".join(lines) + "\n"


def _replaced(setting: Setting) -> list[Setting]:
    found: list[Setting] = []
    for old in setting.overridden:
        found += [old, *_replaced(old)]
    return found


def _value(value: object) -> str:
    return "unknown" if value is UNKNOWN else show(value)


def _origin(origin: Origin) -> str:
    where = place_of(origin)
    return f"{where} ({origin_label(origin)})" if where and origin.note else str(where or origin_label(origin))
