"""The command lines that are played in a checkout, and which files each may change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from zerocfg.report.formats import FORMATS

RELEASES = ("deepspeed==0.16.9", "deepspeed==0.19.8")
RUNS = 20
"""Runs of a checkout that are explained one by one."""
CONFIGS = 4
"""Accelerate configs of a checkout that are converted, compared and reported on."""
LARGE_RUNS, LARGE_CONFIGS, LARGE_FORMATS = 2, 1, ("full", "sarif")
"""The same for a large checkout, where each command takes seconds."""
NEW = "zerocfg-output"
"""Where commands write, in the copy."""
SHOW_RUNS = ("lint", "--no-cache", "--show-runs", "--output-format", "json", ".")
"""Names the runs that the other command lines are about."""

Allowed = Callable[[str, bool], bool]
"""Whether a command may change a file, by its path in the copy and whether it was there before."""


def nothing(path: str, existed: bool) -> bool:
    return False


def output(path: str, existed: bool) -> bool:
    return path.startswith(NEW)


def files_and_settings(path: str, existed: bool) -> bool:
    return existed or path in ("zerocfg.toml", "zerocfg.yaml")


def commands(shown_runs: str, large: bool) -> Iterator[tuple[Sequence[str], Allowed]]:
    """The commands after `SHOW_RUNS`, whose output is ``shown_runs``. Those that write come last, each in the copy that
    the ones before left."""
    names, configs = _runs_and_configs(shown_runs)
    if large:
        names, configs = names[:LARGE_RUNS], configs[:LARGE_CONFIGS]
    yield ["init", "--print", "--force"], nothing
    for form in LARGE_FORMATS if large else FORMATS:
        yield ["lint", "--no-cache", "--output-format", form, "."], nothing
    yield ["lint", "--no-cache", "--all-releases", "--notes", "."], nothing
    yield ["lint", "--no-cache", "--diff", "--unsafe-fixes", "."], nothing
    yield ["explain", "--in", "."], nothing
    for name in names:
        yield ["explain", "--run", name], nothing
    yield ["migrate", "--to", RELEASES[1], "."], nothing
    yield ["diff", "--releases", *RELEASES, "."], nothing
    yield ["check-resume", "."], nothing
    for config in configs:
        yield ["convert", config, "--to", "deepspeed-json"], nothing
        yield ["convert", config, "--to", "fsdp2"], nothing
        yield ["diff", config, config], nothing
        yield ["report", config, "-o", f"{NEW}.html"], output
    yield ["init", "--force"], files_and_settings
    yield ["plan", ".", "--no-trace", "--hardware", "8xA100-80GB"], nothing
    yield ["build", ".", "-o", NEW, "--hardware", "8xA100-80GB"], output
    yield ["gate", "--require", "none"], nothing
    yield ["lint", "--no-cache", "--fix", "--unsafe-fixes", "."], files_and_settings
    yield ["migrate", "--to", RELEASES[1], "--write", "."], files_and_settings
    yield ["lint", "--no-cache", "--add-ignore", "."], files_and_settings


def _runs_and_configs(shown_runs: str) -> tuple[list[str], list[str]]:
    """Names of runs, and accelerate configs; none where lint failed, which its own row tells."""
    try:
        runs = json.loads(shown_runs)["runs"]
    except (ValueError, KeyError):
        return [], []
    configs = [file["file"] for run in runs for file in run.get("files", ()) if file["role"] == "accelerate"]
    return [run["name"] for run in runs][:RUNS], list(dict.fromkeys(configs))[:CONFIGS]
