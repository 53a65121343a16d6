"""``zerocfg probe``: write down this machine's hardware as a profile, or compare it with one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile


@click.command()
@click.option(
    "-o",
    "--out",
    "--output",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the profile here, not to standard output.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure rates for a minute or so: drives, memory, copies to devices, matrix products, collectives.",
)
@click.option(
    "--check",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PROFILE",
    help="Compare this machine with a profile; exit code 1 when they differ.",
)
def command(output: Path | None, measure: bool, check: Path | None) -> int:
    """Describe this machine: devices and how they are joined, CPUs, memory, limits, drives, networks.

    The JSON profile can be given wherever a name such as 8xA100-80GB can. What could not be read is listed
    under "notes" and on standard error. Started on each node by torchrun or srun (which need MASTER_ADDR), the first
    rank writes one profile of all nodes.
    """
    if check is not None and (output is not None or measure):
        raise click.UsageError("--check compares with a profile: it goes with neither --out nor --measure")
    from zerocfg.hardware.measure import MeasureError
    from zerocfg.hardware.probe_job import probe_job

    if check is not None:
        return _check(check)
    try:
        profile = probe_job(measure, _progress)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except MeasureError as error:
        raise click.ClickException(f"the ranks could not be gathered: {error}") from None
    if profile is not None:
        _write(profile, output)
    return 0


def _write(profile: HardwareProfile, output: Path | None) -> None:
    from zerocfg.hardware.profile import write_text
    from zerocfg.source.write import write_atomic

    for note in profile.notes:
        click.echo(f"note: {note}", err=True)
    if output is None:
        click.echo(write_text(profile), nl=False)
        return
    try:
        write_atomic(output, write_text(profile).encode())
    except OSError as error:
        raise click.ClickException(f"{output}: cannot be written: {error.strerror}") from None
    click.echo(f"{output}: {profile.name}", err=True)


def _check(path: Path) -> int:
    """1 when this machine differs from the profile."""
    import datetime

    from zerocfg.hardware.probe import probe
    from zerocfg.hardware.profile import read_profile
    from zerocfg.hardware.profile_drift import OLD, age, compare

    try:
        profile = read_profile(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    machine = probe(progress=_progress)
    for note in machine.notes:
        click.echo(f"note: {note}", err=True)
    days = age(profile, datetime.datetime.now(datetime.timezone.utc).date())
    if days is not None and days > OLD:
        click.echo(f"note: {path} is {days} days old: probe again, drivers and drives change", err=True)
    differences = compare(profile, machine)
    for difference in differences:
        click.echo(f"{path}: {difference}")
    if not differences:
        click.echo(f"{path}: this machine is as described")
    return 1 if differences else 0


def _progress(phase: str) -> None:
    """What takes longer than a moment is said, where somebody watches."""
    if sys.stderr.isatty():
        click.echo(f"{phase} ...", err=True)
