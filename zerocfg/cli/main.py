"""The command group: names and one-line descriptions here, each command's module imported only on use."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from zerocfg.cli.bounded import bounded
from zerocfg.cli.exit_code import exit_code
from zerocfg.cli.usage import shows_usage
from zerocfg.terminal.streams import prepare

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "init": "Write a first zerocfg.yaml from what is found in a repository.",
    "lint": "Find what will crash, be silently ignored, or lose the weights.",
    "plan": "Predict memory and time of the runs of a spec, and say what would make them fit.",
    "build": "Resolve every auto and emit runnable configs with the reason for every value.",
    "smoke": "Train a few steps with the emitted configs and check what really runs.",
    "report": "Write one HTML page about a run.",
    "gate": "Check in CI that configs lint clean, builds are fresh and runs are certified.",
    "check-resume": "Say whether a run can resume from a checkpoint, and how to get there if not.",
    "explain": "Explain a rule, or a value of a run or of a build.",
    "diff": "Compare two builds, two configs or two sets of releases by effective meaning.",
    "migrate": "Update configs to other releases without changing what they mean.",
    "convert": "Convert an accelerate config to another form or engine, with a table of what maps.",
    "rules": "List the rules.",
    "probe": "Describe this machine's hardware in a profile.",
    "preflight": "Name the slow or broken node before a job starts.",
    "info": "Show this installation: what to paste into an issue.",
    "schema": "Print or write the JSON Schemas of the file formats.",
    "lsp": "Serve an editor: findings, hover, completion and fixes while typing.",
    "completion": "Print or install the completion of the shell.",
}
EXAMPLES = {
    "init": "zerocfg init --print",
    "lint": "zerocfg lint --fix train.sh",
    "plan": "zerocfg plan zerocfg.yaml --hardware 8xA100-80GB",
    "build": "zerocfg build zerocfg.yaml -o built",
    "smoke": "zerocfg smoke run built/sft --ranks 2 --device cpu",
    "report": "zerocfg report built/sft -o report.html",
    "gate": "zerocfg gate --require none",
    "check-resume": "zerocfg check-resume checkpoint built/sft",
    "explain": "zerocfg explain --run train.sh:1 gradient_clipping",
    "diff": "zerocfg diff ds_config.json built/sft/ds_config.json",
    "migrate": "zerocfg migrate --to deepspeed==0.19.8,transformers==5.23.0",
    "convert": "zerocfg convert accelerate.yaml --to fsdp2",
    "rules": "zerocfg rules",
    "probe": "zerocfg probe -o hw.json",
    "preflight": "zerocfg preflight --on local --nodes 2 --ranks 2",
    "info": "zerocfg info --output-format json",
    "schema": "zerocfg schema deepspeed",
    "lsp": "zerocfg lsp",
    "completion": "zerocfg completion bash --install",
}
"""What the help of each command ends with."""
OTHER_NAMES = {
    "check": "zerocfg lint",
    "validate": "zerocfg lint",
    "fix": "zerocfg lint --fix",
    "compile": "zerocfg build",
    "run": "zerocfg smoke",
    "estimate": "zerocfg plan",
    "upgrade": "zerocfg migrate",
    "doctor": "zerocfg info",
    "env": "zerocfg info",
    "help": "zerocfg --help",
    "version": "zerocfg --version",
}
"""What other tools call a command, and what to type here."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return _command(name) if name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'.{_meant(args[0])}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Names and sentences of this table: no command is imported for them."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=said) for name, said in COMMANDS.items() if name.startswith(incomplete)]
        return found + super(click.Group, self).shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@cache
def _command(name: str) -> click.Command:
    module: Any = import_module(f"zerocfg.cli.commands.{name.replace('-', '_')}")
    command: click.Command = module.command
    command.epilog = f"Example:\n\n\b\n  {EXAMPLES[name]}"
    return shows_usage(bounded(command))


def _meant(word: str) -> str:
    """What the user most likely wanted: a name written nearly so, another tool's name of a command, a file to lint."""
    from difflib import get_close_matches
    from pathlib import Path

    plain = word.lower().replace("_", "-")
    if plain in OTHER_NAMES:
        found = [OTHER_NAMES[plain]]
    else:
        near = [plain] if plain in COMMANDS else get_close_matches(plain, COMMANDS, n=2)
        found = [f"zerocfg {name}" for name in near]
        if not found and Path(word).exists():
            found = [f"zerocfg lint {word}"]
    return f" Did you mean {' or '.join(f'`{item}`' for item in found)}?" if found else ""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(None, "--version", "-V", package_name="zerocfg", prog_name="zerocfg")
def cli() -> None:
    """A compiler and linter for distributed-training configs.

    Reads accelerate YAML, DeepSpeed JSON, trainer recipes and launch scripts together, and says what the training
    process will really get.
    """


def run() -> int:
    """Run the command line; the exit code as `exit_code` has it."""
    prepare()
    if "_ZEROCFG_COMPLETE" in os.environ:
        import_module("zerocfg.cli.shells")
    # Without standalone mode click returns the code that a command exits with.
    return exit_code(lambda: cli.main(standalone_mode=False))
