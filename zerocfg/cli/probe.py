"""``zerocfg probe``: write down this machine's hardware as a profile."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the terminal."
)
def command(output: Path | None) -> None:
    """Describe this machine: devices, memory and its limits, NVMe drives.

    The JSON profile can be given wherever a name such as 8xA100-80GB can. What could not be read is listed
    under "notes" and on standard error.
    """
    from zerocfg.hardware.probe import probe
    from zerocfg.hardware.profile import write_text
    from zerocfg.source.write import write_atomic

    profile = probe()
    for note in profile.notes:
        click.echo(f"note: {note}", err=True)
    if output is None:
        click.echo(write_text(profile), nl=False)
    else:
        try:
            write_atomic(output, write_text(profile).encode())
        except OSError as error:
            raise click.ClickException(f"{output}: cannot be written: {error.strerror}") from None
        click.echo(f"{output}: {profile.name}", err=True)
