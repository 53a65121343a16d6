"""``zerocfg schema``: print, write or check the JSON Schemas of the config formats."""

from __future__ import annotations

from pathlib import Path

import click

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("schema")
@click.argument("name", required=False)
@click.option("--write", "target", type=_FOLDER, help="Write every schema into this folder.")
@click.option("--check", "against", type=_FOLDER, help="Exit with 1 unless the schemas of this folder are fresh.")
def command(name: str | None, target: Path | None, against: Path | None) -> None:
    """Print the JSON Schema NAME; without a NAME list what there is."""
    from zerocfg.models.schema import ENTRIES, SCHEMAS, schema_text

    if sum(option is not None for option in (name, target, against)) > 1:
        raise click.UsageError("give one of NAME, --write and --check")
    if target is not None:
        try:
            target.mkdir(parents=True, exist_ok=True)
            for each in SCHEMAS:
                (target / f"{each}.json").write_text(schema_text(each), encoding="utf-8", newline="\n")
        except OSError as error:
            raise click.UsageError(f"cannot write {error.filename or target}: {error.strerror}") from None
    elif against is not None:
        stale = [each for each in SCHEMAS if _read(against / f"{each}.json") != schema_text(each)]
        for each in stale:
            click.echo(f"{against / each}.json is not what the models say; run: zerocfg schema --write {against}")
        if stale:
            raise click.exceptions.Exit(1)
    elif name is None:
        for entry in ENTRIES:
            click.echo(f"{entry.name}  {entry.title}")
    elif name in SCHEMAS:
        click.echo(schema_text(name), nl=False)
    else:
        raise click.UsageError(f"no schema {name!r}; there are: {', '.join(SCHEMAS)}")


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
