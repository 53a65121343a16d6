"""The runs that a command line means, and how they are launched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerocfg.workspace.job import excludes_path
from zerocfg.workspace.settings import SettingsOptions

if TYPE_CHECKING:
    from zerocfg.smoke.smoke import Options

GIB = 1 << 30
LAUNCH = ("ranks", "device", "steps", "consumer", "name", "time_limit", "memory_limit")
"""Values of the options `launch`; the others are `SettingsOptions`."""


def chosen(runs: list[Path], given: dict[str, Any], **more: Any) -> tuple[list[Path], Options]:
    """The runs that are not excluded, and the options for all of them. ``given``: the values of the options `launch`;
    ``more``: further fields of `Options`. A command line that compares its training with nothing has no run."""
    from zerocfg.smoke.many import find
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.smoke import Options

    launch = {name: given.pop(name) for name in LAUNCH}
    try:
        found = [Path()] if more.get("unplanned") else find(list(runs))
    except SmokeError as error:
        raise click.UsageError(str(error)) from None
    settings = SettingsOptions(**given).settings(found[0])
    found = [run for run in found if run in runs or not excludes_path(settings, run)]
    if not found:
        raise click.UsageError("every run here is excluded, by the settings or --exclude")
    consumer, limit = launch.pop("consumer") or settings.consumer, launch.pop("memory_limit")
    return found, Options(
        limit=launch.pop("time_limit"),
        consumer=consumer,
        memory_limit=int(limit * GIB) if limit else None,
        **launch,
        **more,
    )


def certified(runs: list[Path]) -> list[Path]:
    """Those with a certificate of what is here now."""
    return [run for run in runs if _is_certified(run)]


def _is_certified(path: Path) -> bool:
    from zerocfg.smoke.certify.current import is_certified
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.prepare.folder import read

    try:
        return is_certified(read(path))
    except SmokeError:
        return False  # the smoke-run says why
