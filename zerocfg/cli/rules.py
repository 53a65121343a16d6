"""``zerocfg rules``."""

from __future__ import annotations

import json

import click

from zerocfg.rules.registry import ALL


@click.command("rules")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output_format: str) -> None:
    """List every rule: code, severity, how it is proven, name and what it finds."""
    if output_format == "json":
        table = [
            {
                "code": rule.code,
                "name": rule.name,
                "summary": rule.summary,
                "severity": rule.severity.value,
                "status": rule.status,
                "since": rule.since,
                "fixable": rule.fixable,
                "consumers": sorted(rule.consumers),
                "proof": rule.proof.status,
            }
            for rule in ALL
        ]
        click.echo(json.dumps({"version": 1, "rules": table}, indent=2))
        return
    width = max(len(rule.name) for rule in ALL)
    for rule in ALL:
        fix = "fix" if rule.fixable else "   "
        columns = (rule.code, f"{rule.severity.value:<7}", f"{rule.proof.status:<9}", fix, f"{rule.name:<{width}}")
        click.echo("  ".join((*columns, rule.summary)))
    executed = sum(rule.proof.status == "executed" for rule in ALL)
    click.echo(f"\n{len(ALL)} rules, {executed} with a proof that the test suite executes on the real libraries.")
