"""How many small faults do the tests notice? For instance `--package rules --family zero --sample 100 --seed 7`.

Ends with 1 when less than `--at-least` percent of a row were noticed or are equivalent, or a single severity was not.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import click

from . import report
from .faults import KINDS
from .session import Outcome, Session, Wanted

ROOT = Path(__file__).resolve().parent.parent.parent

BUILD = (
    "choice_limits draft_limits expand forecast_limits fsdp gaps grpo levers nearest open_engines plan_limits "
    "refused_values register resolve road_limits search setup spec wrong_specs "
    "collected init_parts model_parts resolver_parts search_parts setup_parts"
)
LINTER = "all_releases contained fixing lint suppression"
EMIT = "check emit_parts emitted_texts examples launch launchers lock names releases resolve targets typed write"
PACKAGES = {
    "rules": ("tests/rules",),
    "linter": ("tests/rules", *(f"tests/cli/test_{name}.py" for name in LINTER.split())),
    "catalog": ("tests/catalog",),
    "run": (
        *("tests/run", "tests/rules", "tests/cli/test_forbidden.py"),
        *(f"tests/build/test_{name}.py" for name in ("expand", "spec", "wrong_specs")),
    ),
    "resolve": (
        *(f"tests/build/test_{name}.py" for name in BUILD.split()),
        *(f"tests/cli/test_{name}.py" for name in ("explain_built", "init", "plan", "plan_model", "plan_table")),
        "tests/rules/test_told_memory.py",
    ),
    "smoke": ("tests/smoke",),
    "memory": ("tests/memory", "tests/rules/test_told_memory.py"),
    "migrate": tuple(
        f"tests/cli/test_{name}.py" for name in ("migrate", "migrate_parts", "migrate_programs", "diff_releases")
    ),
    "convert": ("tests/convert",),
    "source": ("tests/source", "tests/run"),
    "emit": tuple(f"tests/build/test_{name}.py" for name in EMIT.split()),
    "gate": ("tests/gate",),
    "lsp": ("tests/lsp",),
}
"""Where the tests of a package are. Those marked ``libs`` are left out: their ranks are processes of their own."""
LEFT_OUT = {"smoke": ("worker",)}
"""Folders of a package that run in ranks alone, where only tests marked ``libs`` see them."""


@click.command(help=__doc__)
@click.option("--package", "packages", multiple=True, type=click.Choice(list(PACKAGES)), help="All when none is named.")
@click.option("--family", "families", multiple=True, help="A folder of the package; each is sampled by itself.")
@click.option("--module", "module", type=click.Path(exists=True, path_type=Path), help="One file of the package.")
@click.option("--tests", "paths", multiple=True, help="Test files or folders instead of the package's own.")
@click.option("--sample", type=int, default=100, show_default=True, help="Faults drawn a package; 0: every one.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Faults of this kind alone.")
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--budget", default=3.0, show_default=True, help="CPU seconds of tests tried on one fault.")
@click.option("--at-least", default=0, show_default=True, help="Percent of each row.")
@click.option("--write", type=click.Path(path_type=Path), help="Where to write the table, as Markdown.")
def main(
    packages: tuple[str, ...],
    families: tuple[str, ...],
    module: Path | None,
    paths: tuple[str, ...],
    sample: int,
    kinds: tuple[str, ...],
    seed: int,
    jobs: int,
    budget: float,
    at_least: int,
    write: Path | None,
) -> None:
    packages = packages or tuple(PACKAGES)
    if (families or module) and len(packages) != 1:
        raise click.UsageError("--family and --module are of one --package")
    groups = {}
    for package, family in product(packages, families or ("",)):
        folder = ROOT / "zerocfg" / package / family
        name = "/".join(filter(None, (package, family)))
        left_out = [ROOT / "zerocfg" / package / inner for inner in LEFT_OUT.get(package, ())]
        every = [path for path in sorted(folder.rglob("*.py")) if not any(map(path.is_relative_to, left_out))]
        groups[name] = [module.resolve()] if module else every
    tests = paths or tuple(dict.fromkeys(path for package in packages for path in PACKAGES[package]))
    wanted = Wanted(ROOT, groups, tests, sample or None, kinds, seed, jobs, budget, near=bool(families or module))

    def heard(one: Outcome) -> None:
        if (text := report.line(one)) is not None:
            click.echo(text)

    session = Session(wanted, lambda text: click.echo(text, err=True), heard)
    session.run()
    if not session.done:
        sys.exit(2)
    rows = report.rows(session)
    click.echo(f"survivors by kind: {report.kinds(session)}\n")
    click.echo(report.table(rows))
    if write:
        write.write_text(report.page(rows, wanted), encoding="utf-8")
    sys.exit(any(row.percent < (100 if row.severities else at_least) for row in rows) if at_least else 0)


if __name__ == "__main__":
    main()
