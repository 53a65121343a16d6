"""``python -m tests.record``: what lint says of thousands of configs, before a change and after it.

    python -m tests.record inputs configs               # rule examples and generated configs, once
    python -m tests.record lint before.json configs examples ../some-repository
    (change something)
    python -m tests.record lint after.json configs examples ../some-repository
    python -m tests.record compare before.json after.json

Lint is called as a user calls it, so the file runs with any release of zerocfg on the path. Kept of each finding: code,
severity, place, message, help and the edits of its fix.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from zerocfg.rulebook.pages import page_of

CONSUMER = "consumer"
"""File beside an example's that names who reads its config."""
SHOWN = 5
"""Differences of a rule that are printed."""

Finding = tuple[str, ...]


@click.group()
def main() -> None:
    """What lint says of many configs, before and after."""


# --- inputs -----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--count", default=5000, help="Generated configs.")
def inputs(folder: Path, count: int) -> None:
    """Write the examples of all rules and generated configs into a new FOLDER."""
    from tests.rules.examples import write
    from zerocfg.rulebook.example import Example
    from zerocfg.rules.registry import ALL

    def put(name: str, example: Example) -> None:
        write(example, folder / name)
        if example.consumer is not None:
            (folder / name / CONSUMER).write_text(example.consumer)

    for rule in ALL:
        for kind, examples in (("bad", page_of(rule).bad), ("good", page_of(rule).good)):
            for number, example in enumerate(examples):
                put(f"rules/{rule.code}-{kind}-{number}", example)
    shares = {"ds.json": count // 2, "accelerate.yaml": count // 4, "recipe.yaml": count - count // 2 - count // 4}
    for name, share in shares.items():
        consumer = {"ds.json": "deepspeed", "recipe.yaml": "transformers"}.get(name)
        for number, text in enumerate(_generated(name, share)):
            put(f"generated/{Path(name).stem}-{number:04}", Example({name: text}, consumer=consumer))
    click.echo(f"{sum(1 for _ in folder.glob('*/*'))} folders in {folder}")


def _generated(name: str, count: int) -> list[str]:
    """Texts of configs, the same ones each time."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    from tests.parity import generated
    from tests.parity.test_generated import ACCELERATE, DEEPSPEED
    from zerocfg.catalog.schema import load_schema

    recipe = {"output_dir": "out", "per_device_train_batch_size": 1, "max_steps": 2, "learning_rate": 1e-5}
    trees: dict[str, st.SearchStrategy[Any]] = {
        "ds.json": DEEPSPEED,
        "accelerate.yaml": ACCELERATE,
        "recipe.yaml": generated.typed(load_schema("training-arguments"), recipe),
    }
    texts: list[str] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(tree=trees[name])
    def collect(tree: dict[str, Any]) -> None:
        texts.append((generated.json_text if name.endswith(".json") else generated.yaml_text)(tree))

    collect()
    return texts


# --- lint -------------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
def lint(output: Path, folders: tuple[Path, ...]) -> None:
    """Lint each folder, and each example below one that `inputs` wrote; write what is found to OUTPUT."""
    record = {}
    every = [one for folder in folders for one in _roots(folder)]
    with click.progressbar(every, file=sys.stderr) as roots:
        for root in roots:
            record[root.as_posix()] = _linted(root)
    output.write_text(json.dumps(record))
    click.echo(f"{sum(map(len, record.values()))} findings in {len(record)} folders")


def _roots(folder: Path) -> list[Path]:
    below = [*folder.glob("rules/ZC*"), *folder.glob("generated/*")]
    return sorted(below) or [folder]


def _linted(root: Path) -> list[Finding]:
    from zerocfg.cli.main import cli

    words = ["lint", "--output-format", "json", "."]
    if (root / CONSUMER).is_file():
        words += ["--consumer", (root / CONSUMER).read_text()]
    here = Path.cwd()
    os.chdir(root)
    try:
        done = CliRunner().invoke(cli, words)
    finally:
        os.chdir(here)
    if done.exit_code not in (0, 1) or not done.stdout:
        return [("stopped", str(done.exit_code), done.output[-2000:], repr(done.exception))]
    return [_finding(one) for one in json.loads(done.stdout)["diagnostics"]]


def _finding(one: dict[str, Any]) -> Finding:
    place = f"{one['file']}:{one['start']['line']}:{one['start']['column']}" if one.get("start") else str(one["file"])
    fix = json.dumps(one["fix"], sort_keys=True) if one.get("fix") else ""
    return one["code"], one["severity"], place, one["message"], str(one.get("help") or ""), fix


# --- compare ----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
def compare(before: Path, after: Path) -> None:
    """Print what the records differ in, by rule; exit 1 where they do."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    changes = [*_changes(old, new)]
    for (sign, code), count in sorted(
        Counter((sign, one[0]) for sign, _, one in changes).items(), key=lambda x: x[0][::-1]
    ):
        click.echo(f"{sign} {code}: {count}")
        mine = [(root, one) for side, root, one in changes if (side, one[0]) == (sign, code)]
        for root, one in mine[:SHOWN]:
            click.echo(f"    {root}: " + " | ".join(one[1:]))
    total = sum(map(len, old.values()))
    click.echo(f"{total} findings before, {sum(map(len, new.values()))} after, {len(changes)} lines differ")
    sys.exit(1 if changes else 0)


def _changes(old: dict[str, list[list[str]]], new: dict[str, list[list[str]]]) -> Iterator[tuple[str, str, Finding]]:
    for root in sorted({*old, *new}):
        had, has = (Counter(map(tuple, side.get(root, []))) for side in (old, new))
        yield from (("-", root, one) for one in (had - has).elements())
        yield from (("+", root, one) for one in (has - had).elements())


if __name__ == "__main__":
    main()
