"""``zerocfg rules``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL, every
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import Column, folded, table, wrap

if TYPE_CHECKING:
    from zerocfg.rules.api import Rule


@click.command("rules")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output_format: str) -> None:
    """List every rule: code, severity, how it is proven, name and what it finds."""
    if output_format == "json":
        click.echo(json.dumps({"version": 1, "rules": [_row(rule) for rule in every()]}, indent=2))
    else:
        _list(columns(sys.stdout))


def _list(width: int | None) -> None:
    rows = [
        (
            rule.code,
            rule.severity.value,
            page_of(rule).proof.status,
            "fix" if page_of(rule).fixable else "",
            rule.name,
            ("" if rule.status == "stable" else f"({rule.status}) ") + page_of(rule).summary,
        )
        for rule in ALL
    ]
    lines = table([Column()] * 6, rows, indent="")
    if width is not None and max(map(len, lines)) > width:  # what a rule finds stands below its name
        heads = table([Column()] * 5, [row[:5] for row in rows], indent="")
        below = [folded(f"       {row[5]}\n", width).rstrip("\n") for row in rows]
        lines = [line for pair in zip(heads, below, strict=True) for line in pair]
    click.echo("\n".join(lines))
    others = [rule for rule in every() if rule.package]
    if others:
        rows_of_others = [
            (rule.code, rule.severity.value, rule.package, rule.name, page_of(rule).summary) for rule in others
        ]
        click.echo("\nOf other packages:\n" + "\n".join(table([Column()] * 5, rows_of_others, indent="")))
    executed = sum(page_of(rule).proof.status == "executed" for rule in ALL)
    own = sum(page_of(rule).proof.status == "self" for rule in ALL)
    count = (
        f"{len(ALL)} rules, {executed} with a proof that the test suite executes on the real libraries; "
        f"{own} are about zerocfg itself."
    )
    click.echo("\n" + "\n".join(wrap(count, width or len(count))))


def _row(rule: Rule) -> dict[str, object]:
    from zerocfg.linter.engine import DOCS
    from zerocfg.rulebook.rendering import FAMILIES

    own = not rule.package
    return {
        "code": rule.code,
        "name": rule.name,
        "family": FAMILIES[rule.code[2]] if own else None,
        "package": rule.package or None,
        "summary": page_of(rule).summary,
        "severity": rule.severity.value,
        "status": rule.status,
        "since": rule.since,
        "replaced_by": rule.replaced_by or None,
        "fixable": page_of(rule).fixable,
        "fix_safety": page_of(rule).fix_safety,
        "consumers": sorted(rule.consumers),
        "needs": sorted(rule.needs),
        "versions": rule.versions or None,
        "proof": page_of(rule).proof.status if own else None,
        "proof_phase": page_of(rule).proof.phase if page_of(rule).proof.status == "executed" else None,
        "url": f"{DOCS}{rule.code}.md" if own else None,
    }
