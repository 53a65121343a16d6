"""``zerocfg rules``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.cli.terminal import columns
from zerocfg.report.table import Column, folded, table, wrap
from zerocfg.rules.registry import ALL

if TYPE_CHECKING:
    from zerocfg.rules.api import Rule
    from zerocfg.rules.docs import Safety

_PAGE = re.compile(r"ZC\d{3}\.md")


@click.command("rules")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--write",
    "target",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a page for each rule into this folder.",
)
def command(output_format: str, target: Path | None) -> None:
    """List every rule: code, severity, how it is proven, name and what it finds."""
    if target is not None:
        _write(target)
    elif output_format == "json":
        click.echo(json.dumps({"version": 1, "rules": [_row(rule) for rule in ALL]}, indent=2))
    else:
        _list(columns(sys.stdout))


def _list(width: int | None) -> None:
    rows = [
        (
            rule.code,
            rule.severity.value,
            rule.proof.status,
            "fix" if rule.fixable else "",
            rule.name,
            ("" if rule.status == "stable" else f"({rule.status}) ") + rule.summary,
        )
        for rule in ALL
    ]
    lines = table([Column()] * 6, rows, indent="")
    if width is not None and max(map(len, lines)) > width:  # what a rule finds stands below its name
        heads = table([Column()] * 5, [row[:5] for row in rows], indent="")
        below = [folded(f"       {row[5]}\n", width).rstrip("\n") for row in rows]
        lines = [line for pair in zip(heads, below, strict=True) for line in pair]
    click.echo("\n".join(lines))
    executed = sum(rule.proof.status == "executed" for rule in ALL)
    own = sum(rule.proof.status == "self" for rule in ALL)
    count = (
        f"{len(ALL)} rules, {executed} with a proof that the test suite executes on the real libraries; "
        f"{own} are about zerocfg itself."
    )
    click.echo("\n" + "\n".join(wrap(count, width or len(count))))


def _row(rule: Rule) -> dict[str, object]:
    from zerocfg.cli.examples import fix_safety
    from zerocfg.rules.docs import FAMILIES
    from zerocfg.rules.engine import DOCS

    return {
        "code": rule.code,
        "name": rule.name,
        "family": FAMILIES[rule.code[2]],
        "summary": rule.summary,
        "severity": rule.severity.value,
        "status": rule.status,
        "since": rule.since,
        "replaced_by": rule.replaced_by or None,
        "fixable": rule.fixable,
        "fix_safety": fix_safety(rule),
        "consumers": sorted(rule.consumers),
        "needs": sorted(rule.needs),
        "versions": rule.versions or None,
        "proof": rule.proof.status,
        "proof_phase": rule.proof.phase if rule.proof.status == "executed" else None,
        "url": f"{DOCS}{rule.code}.md",
    }


def pages() -> dict[str, str]:
    """Every page by its file name."""
    from zerocfg.cli.examples import as_shown, fix_safety
    from zerocfg.rules.docs import as_markdown, index

    safeties: dict[str, Safety] = {rule.code: fix_safety(rule) for rule in ALL}
    found = {f"{rule.code}.md": as_markdown(as_shown(rule), safeties[rule.code]) for rule in ALL}
    return {"index.md": index(ALL, safeties), **found}


def _write(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    written = pages()
    for old in target.iterdir():
        if _PAGE.fullmatch(old.name) and old.name not in written:
            old.unlink()
    for name, text in written.items():
        (target / name).write_text(text, encoding="utf-8", newline="\n")
    click.echo(f"{len(written)} pages written to {target}.")
