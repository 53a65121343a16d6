"""What ``zerocfg`` looks for in a folder, printed when it finds nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from zerocfg.run.discover import LAUNCH_SUFFIXES, MAKEFILES, SKIPPED_FOLDERS
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import folded

KINDS = (
    ("DeepSpeed", "JSON with keys such as zero_optimization or train_micro_batch_size_per_gpu"),
    ("accelerate", "YAML or JSON with distributed_type, deepspeed_config or fsdp_config"),
    ("recipes", "TrainingArguments as YAML or JSON: per_device_train_batch_size, learning_rate, ..."),
    ("launch lines", "accelerate launch, deepspeed, torchrun in {launch} and notebooks"),
    ("scripts", "Python that calls TrainingArguments, Accelerator or deepspeed.initialize"),
    ("specs", "zerocfg.yaml"),
)


def tell_empty(folders: Iterable[Path]) -> None:
    """Warn on standard error that folders hold no config, and list what would be one."""
    for folder in folders:
        click.echo(f"zerocfg: warning: no configs found below '{folder}'", err=True)
    click.echo(discovery_help(), err=True, nl=False)


def discovery_help() -> str:
    """A list, fitted to the terminal."""
    launch = ", ".join((*LAUNCH_SUFFIXES, MAKEFILES[0], "Dockerfile"))
    width = max(len(kind) for kind, _ in KINDS)
    lines = ["zerocfg looks for:", *(f"  {kind:<{width}}  {what.format(launch=launch)}" for kind, what in KINDS)]
    skipped = ", ".join(sorted(SKIPPED_FOLDERS))
    lines.append(f"Hidden folders and these are left out: {skipped}.")
    lines.append("A file is linted wherever it lies when you name it: zerocfg lint FILE")
    return folded("\n".join(lines) + "\n", columns(sys.stderr))
