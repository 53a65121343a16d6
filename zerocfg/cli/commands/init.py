"""``zerocfg init``."""

from __future__ import annotations

from pathlib import Path

import click

from zerocfg.hardware.probe import probe
from zerocfg.resolve.init.infer_runs import draft_runs
from zerocfg.resolve.init.text import spec_text, summary
from zerocfg.resolve.spec.spec_file import check_spec
from zerocfg.run.discover import Files, display_name
from zerocfg.run.model_source import not_found, open_model
from zerocfg.source.load import load_bytes
from zerocfg.source.write import write_atomic

_NOTHING = (
    "no launch line, training script, recipe, accelerate or DeepSpeed config was found in {folder}; name what there "
    "is, for example: zerocfg init --consumer transformers --script train.py --hardware 8xA100-80GB"
)


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".")
@click.option("--name", metavar="NAME", help="Name of the run.")
@click.option("--consumer", type=click.Choice(["deepspeed", "accelerate", "transformers", "trl"]))
@click.option("--script", metavar="FILE", help="The Python script that trains.")
@click.option(
    "--model",
    metavar="MODEL",
    help="A config.json, or the name of a model on the hub (well known, or in the local cache).",
)
@click.option("--recipe", metavar="FILE", help="TrainingArguments, as YAML or JSON.")
@click.option("--accelerate", metavar="FILE", help="An accelerate config to start from.")
@click.option("--deepspeed", metavar="FILE", help="A DeepSpeed JSON to start from.")
@click.option("--hardware", metavar="PROFILE", help="8xA100-80GB, a probed profile (.json), or 'this' machine.")
@click.option("--sequence-length", type=click.IntRange(1), help="Tokens of one sample.")
@click.option("--train-samples", type=click.IntRange(1), help="Samples of the training set.")
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="Default: FOLDER/zerocfg.yaml.")
@click.option("--force", is_flag=True, help="Replace a spec that is there.")
@click.option("--print", "only_print", is_flag=True, help="Print the spec and write nothing.")
def command(folder: Path, out: Path | None, force: bool, only_print: bool, **given: object) -> None:
    """Write a first zerocfg.yaml for the repository in FOLDER.

    Runs come from the launch lines of its scripts; without any from its recipes, configs and training scripts. Each
    value says in a comment whether a file states it (found) or it is a guess; what no file states is a comment to
    fill in. Paths are relative to FOLDER. Naming --script, --recipe, --accelerate or --deepspeed asks for
    one run with them.

    Exit codes: 0 written, 2 nothing was found, or a spec is there already.
    """
    target = out or folder / "zerocfg.yaml"
    if target.exists() and not force and not only_print:
        raise click.UsageError(
            f"there is a '{display_name(target)}' already; --force replaces it, --print shows the new one"
        )
    if target.resolve().parent != folder.resolve():
        raise click.UsageError(f"the spec has to lie in {folder}, which its paths are relative to; not '{target}'")
    drafts = draft_runs(folder, given, probe)
    if not drafts:
        raise click.UsageError(_NOTHING.format(folder=f"'{folder}'"))
    text = spec_text(drafts)
    read = check_spec(target, load_bytes(display_name(target), text.encode("utf-8"), "yaml"))
    if read.problems:
        raise click.UsageError(f"that makes no spec: {read.problems[0].message}")
    for line in summary(drafts):
        click.echo(line, err=True)
    model = given.get("model")
    if isinstance(model, str) and open_model(model, folder, Files()) is None:
        click.echo("note: {}. {}".format(*not_found(model)), err=True)
    if only_print:
        click.echo(text, nl=False)
        return
    try:
        write_atomic(target, text.encode("utf-8"))
    except OSError as error:
        raise click.UsageError(f"cannot write {target}: {(error.strerror or str(error)).lower()}") from None
    click.echo(f"wrote {display_name(target)} ({len(drafts)} run{'s' * (len(drafts) > 1)})")
