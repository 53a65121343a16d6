"""``zerocfg completion``: words completed by the shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from zerocfg.cli.shells import NAMES as SHELLS


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write it to where the shell looks for it, instead of printing it.")
def command(shell: str | None, install: bool) -> None:
    """Print the completion script of SHELL (default: the one in $SHELL), or install it.

    bash and fish find the installed file by themselves; zsh needs its folder in `fpath`; if it is missing
    there, the command says so.

    Exit codes: 0 done, 2 an unknown shell or a file that cannot be written.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise click.UsageError(f"which shell? {' or '.join(SHELLS)}, as in `zerocfg completion bash`")
    script = completion_script(name)
    if not install:
        click.echo(script)
        return
    file = place(name)
    from zerocfg.source.write import write_atomic

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, f"{script}\n".encode(), anywhere=True)
    except OSError as error:
        raise click.ClickException(f"'{file}' cannot be written: {error.strerror or error}") from None
    click.echo(f"{file} written; new shells complete the words of zerocfg")
    if name == "zsh" and not _in_fpath(file.parent):
        click.echo(f"zsh does not look there yet; write into ~/.zshrc, before compinit: fpath+=({file.parent})")


def completion_script(shell: str) -> str:
    """The script for a shell. It asks zerocfg itself, so it knows the commands and options of any release."""
    from zerocfg.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(cli, {}, "zerocfg", "_ZEROCFG_COMPLETE")
    return complete.source_template % complete.source_vars()


def place(shell: str) -> Path:
    """Where a shell looks for the completions of a user."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "zerocfg",
        "zsh": data / "zsh" / "site-functions" / "_zerocfg",
        "fish": config / "fish" / "completions" / "zerocfg.fish",
    }[shell]


def _in_fpath(folder: Path) -> bool:
    """Whether an interactive zsh looks into a folder; False where there is no zsh to ask."""
    try:
        words = ["zsh", "-ic", "print -l $fpath"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return False
    return str(folder) in done.stdout.splitlines()
