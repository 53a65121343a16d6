"""``zerocfg schema``: the JSON Schemas of the config formats, for editors; written and checked for the repository."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from zerocfg.budgets import FILE_BYTES
from zerocfg.source import disk
from zerocfg.source.write import write_atomic
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import folded

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("schema")
@click.argument("name", required=False)
@click.option("--path", "form", flag_value="path", help="Print where the schema NAME lies on this machine.")
@click.option("--line", "form", flag_value="line", help="Print the line of a file that tells editors the schema NAME.")
@click.option("--settings", is_flag=True, help="Print the settings by which VS Code finds the schemas.")
@click.option("--write", "target", type=_FOLDER, help="Write every schema into this folder.")
@click.option("--check", "against", type=_FOLDER, help="Exit with 1 unless the schemas of this folder are fresh.")
def command(name: str | None, form: str | None, settings: bool, target: Path | None, against: Path | None) -> None:
    """Print the JSON Schema NAME for editors; without a NAME list what there is."""
    if sum((name is not None, settings, target is not None, against is not None)) > 1:
        raise click.UsageError("give one of NAME, --settings, --write and --check")
    if form is not None and name is None:
        raise click.UsageError(f"--{form} needs the NAME of a schema")
    if target is not None:
        _write(target)
    elif against is not None:
        _check(against)
    elif settings:
        click.echo(json.dumps(_settings(), indent=2))
    else:
        _show(name, form)


def _show(name: str | None, form: str | None) -> None:
    from zerocfg.models.editor.listing import EDITOR_SCHEMAS

    if name is None:
        listed = "".join(f"{entry.name:<20}{entry.description}\n" for entry in EDITOR_SCHEMAS.values())
        click.echo(folded(listed, columns(sys.stdout)), nl=False)
        return
    if name not in EDITOR_SCHEMAS:
        raise click.UsageError(f"no schema {name!r}; there are: {', '.join(EDITOR_SCHEMAS)}")
    path = _installed(name)
    if form == "path":
        click.echo(path)
    elif form == "line":
        address = path.as_uri()
        yaml = EDITOR_SCHEMAS[name].yaml
        click.echo(f"# yaml-language-server: $schema={address}" if yaml else f'"$schema": "{address}",')
    else:
        click.echo(path.read_text(encoding="utf-8"), nl=False)


def _installed(name: str) -> Path:
    from zerocfg.catalog.schema import schema_folder

    return schema_folder() / "editor" / f"{name}.json"


def _settings() -> dict[str, object]:
    """The settings of VS Code's JSON and YAML extensions; other clients hand the same words to the same servers."""
    from zerocfg.models.editor.listing import LISTED

    found = [entry for entry in LISTED if entry.matches]
    return {
        "json.schemas": [
            {"fileMatch": list(entry.matches), "url": _installed(entry.name).as_uri()}
            for entry in found
            if not entry.yaml
        ],
        "yaml.schemas": {_installed(entry.name).as_uri(): list(entry.matches) for entry in found if entry.yaml},
    }


def _texts() -> dict[str, str]:
    """Every file of the folder of schemas, by its path below it."""
    from zerocfg.models.editor.listing import CATALOG, EDITOR_SCHEMAS, catalog_text, editor_text
    from zerocfg.models.schema import SCHEMAS, schema_text

    texts = {f"{name}.json": schema_text(name) for name in SCHEMAS}
    texts |= {f"editor/{name}.json": editor_text(name) for name in EDITOR_SCHEMAS}
    return {**texts, f"editor/{CATALOG}.json": catalog_text()}


def _write(target: Path) -> None:
    try:
        disk.check_inside(target)
        (target / "editor").mkdir(parents=True, exist_ok=True)
        for name, text in _texts().items():
            write_atomic(target / name, text.encode())
    except OSError as error:
        raise click.UsageError(f"cannot write {error.filename or target}: {error.strerror}") from None


def _check(against: Path) -> None:
    stale = [name for name, text in _texts().items() if _read(against / name) != text]
    for name in stale:
        click.echo(f"{against / name} is not what the models say; run: zerocfg schema --write {against}")
    if stale:
        raise click.exceptions.Exit(1)


def _read(path: Path) -> str | None:
    try:
        return disk.whole(path, FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
