"""``python -m tools.every_command CHECKOUTS``: every command over many checkouts, and a table of what went wrong.

CHECKOUTS is a folder of repositories, or a file with a path a line. Each command is started in a copy of the checkout,
which it may change only where that is its work: a fix changes files that were there, a build and a report write what
the command line says. The table shows internal errors and tracebacks, exit codes that no command has, more than ten
seconds of CPU, and files that changed although they should not. Rows go to ``--rows`` as they
come; a later call goes on there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from zerocfg.fleet.listing import ListError, below, listed
from zerocfg.report.formats import FORMATS

SECONDS = 10.0
"""CPU of a command, above which it is in the table."""
LIMIT = 300
"""Seconds on the clock after which a command is killed."""
SIGNS = ("internal error", "Traceback (most recent call last)", "failed inside zerocfg")
RELEASES = ("deepspeed==0.16.9", "deepspeed==0.19.8")
RUNS = 20
"""Runs of a checkout that are explained one by one."""
NEW = "zerocfg-output"
"""Where commands write, in the copy."""

Allowed = Callable[[str, bool], bool]
"""Whether a command may change a file, by its path in the copy and whether it was there before."""


def nothing(path: str, there: bool) -> bool:
    return False


def output(path: str, there: bool) -> bool:
    return path.startswith(NEW)


def files_and_settings(path: str, there: bool) -> bool:
    return there or path in ("zerocfg.toml", "zerocfg.yaml")


@dataclass(frozen=True)
class Row:
    """One command in one checkout. ``seconds`` of CPU; ``error``: the line that shows one; ``changed``: the files."""

    checkout: str
    command: str
    code: int
    seconds: float
    error: str = ""
    changed: tuple[str, ...] = ()

    @property
    def wrong(self) -> bool:
        return bool(self.error or self.changed) or self.seconds > SECONDS


def commands(folder: Path, zerocfg: Sequence[str]) -> Iterator[tuple[list[str], Allowed]]:
    """The commands for a checkout. Those that write come last, each in the copy that the ones before left."""
    yield ["init", "--print", "--force"], nothing
    for form in FORMATS:
        yield ["lint", "--no-cache", "--output-format", form, "."], nothing
    yield ["lint", "--no-cache", "--all-releases", "--notes", "."], nothing
    yield ["lint", "--no-cache", "--diff", "--unsafe-fixes", "."], nothing
    yield ["explain", "--in", "."], nothing
    for name in _runs(folder, zerocfg):
        yield ["explain", "--run", name], nothing
    yield ["migrate", "--to", RELEASES[1], "."], nothing
    yield ["diff", "--releases", *RELEASES, "."], nothing
    yield ["gate", "--require", "none"], nothing
    yield ["check-resume", "."], nothing
    for config in _accelerate(folder, zerocfg):
        yield ["convert", config, "--to", "deepspeed-json"], nothing
        yield ["convert", config, "--to", "fsdp2"], nothing
        yield ["diff", config, config], nothing
        yield ["report", config, "-o", f"{NEW}.html"], output
    yield ["init", "--force"], files_and_settings
    yield ["plan", ".", "--no-trace", "--hardware", "8xA100-80GB"], nothing
    yield ["build", ".", "-o", NEW, "--hardware", "8xA100-80GB"], output
    yield ["lint", "--no-cache", "--fix", "--unsafe-fixes", "."], files_and_settings
    yield ["lint", "--no-cache", "--add-ignore", "."], files_and_settings


def _runs(folder: Path, zerocfg: Sequence[str]) -> list[str]:
    return [str(run["name"]) for run in _shown_runs(folder, zerocfg)][:RUNS]


def _accelerate(folder: Path, zerocfg: Sequence[str]) -> list[str]:
    files = [
        str(one["file"])
        for run in _shown_runs(folder, zerocfg)
        for one in run.get("files", ())
        if one["role"] == "accelerate"
    ]
    return list(dict.fromkeys(files))[:RUNS]


def _shown_runs(folder: Path, zerocfg: Sequence[str]) -> list[dict[str, list[dict[str, str]]]]:
    """The runs that lint finds; none where it fails, which its own rows tell."""
    words = [*zerocfg, "lint", "--no-cache", "--show-runs", "--output-format", "json", "."]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=LIMIT, check=False)
    try:
        return list(json.loads(done.stdout)["runs"])
    except (ValueError, KeyError):
        return []


def play(checkout: Path, zerocfg: Sequence[str]) -> Iterator[Row]:
    """Every command in a copy of a checkout, without its history."""
    with tempfile.TemporaryDirectory(prefix="zerocfg-") as scratch:
        copy = Path(scratch) / checkout.name
        shutil.copytree(checkout, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        (copy / ".git").mkdir()  # where a repository ends
        before = _hashes(copy)
        for words, allowed in commands(copy, zerocfg):
            code, seconds, error = _run([*zerocfg, *words], copy)
            after = _hashes(copy)
            changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            wrong = tuple(name for name in changed if not allowed(name, name in before))
            before = after
            yield Row(checkout.name, " ".join(words), code, round(seconds, 2), error, wrong)


def _run(words: list[str], folder: Path) -> tuple[int, float, str]:
    """Exit code, CPU seconds, and the line that shows an error of zerocfg's own."""
    environment = {key: value for key, value in os.environ.items() if key != "ZEROCFG_TRACEBACK"}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
        seconds = _waited(process)
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
    error = next((line.strip()[:300] for line in text.splitlines() if any(sign in line for sign in SIGNS)), "")
    if not error and process.returncode not in (0, 1, 2, 3):
        error = f"exit code {process.returncode}"
    return process.returncode, seconds, error


def _waited(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process that has ended, killed at the limit."""
    before = os.times()
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _hashes(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def table(rows: Sequence[Row]) -> str:
    """What went wrong, after the counts."""
    wrong = [row for row in rows if row.wrong]
    counts = Counter(row.command.split()[0] for row in rows)
    lines = [
        f"{len({row.checkout for row in rows})} checkouts, {len(rows)} commands "
        f"({', '.join(f'{number} {name}' for name, number in sorted(counts.items()))}):",
        f"{sum(bool(row.error) for row in rows)} internal errors, {sum(row.seconds > SECONDS for row in rows)} above "
        f"{SECONDS:g} s of CPU, {sum(bool(row.changed) for row in rows)} that changed what they should not.",
    ]
    if wrong:
        lines += ["", "| checkout | command | exit code | CPU, s | error | changed |", "|---|---|---:|---:|---|---|"]
    for row in wrong:
        cells = (row.checkout, f"`{row.command}`", row.code, row.seconds, row.error, ", ".join(row.changed[:5]))
        lines.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("checkouts", type=click.Path(exists=True, path_type=Path))
@click.option("--rows", type=click.Path(path_type=Path), required=True, help="A row of JSON a line; goes on there.")
def main(checkouts: Path, rows: Path) -> None:
    """Play every command over checkouts and print the table. Exits with 1 where anything went wrong."""
    try:
        repositories = (
            below(checkouts) if checkouts.is_dir() else listed(checkouts.read_text().splitlines(), checkouts.parent)
        )
    except ListError as error:
        raise click.UsageError(str(error)) from None
    known = [_row(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    played = {row.checkout for row in known}
    for repository in repositories:
        folder = Path(repository.path)
        if folder.name in played:
            continue
        found = list(play(folder, (sys.executable, "-m", "zerocfg")))
        with rows.open("a") as file:
            file.writelines(json.dumps(asdict(row)) + "\n" for row in found)
        known += found
        click.echo(f"{folder.name}: {len(found)} commands, {sum(row.wrong for row in found)} wrong", err=True)
    click.echo(table(known), nl=False)
    sys.exit(1 if any(row.wrong for row in known) else 0)


def _row(line: str) -> Row:
    data = json.loads(line)
    return Row(**{**data, "changed": tuple(data["changed"])})


if __name__ == "__main__":
    main()
