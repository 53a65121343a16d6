"""``zerocfg smoke compare`` and ``max-batch``: many launches of one run, and one result."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.terminal.streams import columns

if TYPE_CHECKING:
    from zerocfg.smoke.compare import Comparison
    from zerocfg.smoke.max_batch import Try
    from zerocfg.smoke.smoke import Options


def measure(
    path: Path,
    options: Options,
    *,
    ways: str | None,
    find_max_batch: bool,
    picture: Path | None,
    batch_limit: int | None,
    max_launches: int,
    as_json: bool,
) -> None:
    """Run the comparison or the search, print it and exit with its code."""
    from zerocfg.smoke import compare, max_batch, max_batch_text
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.prepare import strategies
    from zerocfg.smoke.prepare.folder import read
    from zerocfg.smoke.prepare.reduce import UNSAVED
    from zerocfg.smoke.smoke import launch_once

    # Saving and reading back are not what is measured here; the step that warms up needs two others behind it.
    options = replace(options, parts=("train", UNSAVED), keep=None)
    bounds = {"upper": batch_limit, "launches": max_launches}

    width = columns(sys.stdout)

    def progress(words: str) -> None:
        if sys.stderr.isatty():
            click.echo(words, err=True)

    def on_try(item: Try) -> None:
        progress(f"micro batch {item.batch}: {'fits' if item.fits else item.why}")

    try:
        if picture is not None:
            _drawable(picture, ways)
        folder = read(path, options.consumer, options.name)
        if ways is None:
            found = max_batch.find(folder, options, launch_once, **bounds, on_try=on_try)
            click.echo(
                json.dumps(found.data(), indent=2) if as_json else max_batch_text.render(found, width), nl=as_json
            )
            interrupted, good = found.interrupted, found.problem is None and found.largest is not None
        else:
            compared = compare.compare(
                folder,
                strategies.parse(ways),
                options,
                launch_once,
                compare.pin_with,
                search=bounds if find_max_batch else None,
                on_try=lambda way, item: on_try(item) if item is not None else progress(strategies.label(way)),
            )
            click.echo(
                json.dumps(compared.data(), indent=2) if as_json else compare.render(compared, width), nl=as_json
            )
            interrupted, good = compared.interrupted, compared.good
            if picture is not None and not interrupted:
                _draw(compared, picture)
    except SmokeError as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(2) from None
    if interrupted:
        raise click.Abort
    if not good:
        raise click.exceptions.Exit(1)


def _drawable(picture: Path, ways: str | None) -> None:
    from zerocfg.cli.screens.plan_picture import PictureError
    from zerocfg.cli.screens.smoke_picture import check

    if ways is None:
        raise click.UsageError("--picture draws a comparison: give --compare as well")
    try:
        check(picture)
    except PictureError as error:
        raise click.UsageError(str(error)) from None


def _draw(compared: Comparison, picture: Path) -> None:
    from zerocfg.cli.screens.plan_picture import PictureError
    from zerocfg.cli.screens.smoke_picture import draw

    try:
        draw(compared, picture)
    except PictureError as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(2) from None
    click.echo(f"picture: {picture}", err=True)
