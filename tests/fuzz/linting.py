"""Whole lints of made repositories: they end, and what they find depends on nothing that means nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.conftest import ROOT
from tests.fuzz.campaign import BrokenError, Campaign, Input
from tests.fuzz.command import zerocfg
from tests.fuzz.texts import HOSTILE_WORDS, damaged, form_of, repositories, text, words
from zerocfg.report.formats import FORMATS

OTHERS = (
    "pyproject.toml",
    "requirements.txt",
    "zerocfg.yaml",
    "README.md",
    "Makefile",
    "run.sh",
    "train.py",
    "a/b.json",
)


def repository(random: Random) -> Input:
    """Files that hang together, some damaged, with others beside them."""
    files = {name: data.encode("utf-8", "replace") for name, data in random.choice(repositories()).items()}
    for name in list(files):
        if random.random() < 0.6 and (form := form_of(name)) in ("yaml", "json", "shell", "python", "markdown", "make"):
            files[name] = damaged(files[name].decode("utf-8", "replace"), form, random).encode("utf-8", "replace")
    for name in random.sample(OTHERS, random.choice((0, 0, 1, 1, 2, 4))):
        files.setdefault(name, text(form_of(name), random))
    return files


def _lint(folder: Path, random: Random) -> None:
    zerocfg("lint", *random.choice(((), ("--notes",), ("--all-releases",), ("--output-format", "json"))), ".")


def _commands(folder: Path, random: Random) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    name = random.choice(names)
    target = "deepspeed==0.19.8,transformers==5.23.0"
    zerocfg(
        *random.choice(
            (
                ("explain", "--run", name),
                ("lint", name),
                ("migrate", "--to", target, "."),
                ("diff", "--releases", "deepspeed==0.16.9", "deepspeed==0.19.8", "."),
                ("diff", name, random.choice(names)),
                ("init", "--print", "--force"),
                ("gate", "--only", "lint"),
                ("plan", "."),
                ("convert", name),
                ("check-resume", "."),
            )
        )
    )


# What a terminal and the CI services obey, apart from colours, which zerocfg writes by itself.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]|[\ud800-\udc7f]")
_COMMAND = re.compile(r"^\s*(?:::[a-z-]+|##vso\[|##\[)", re.MULTILINE)


def hostile_texts(random: Random) -> Input:
    """Configs whose keys, values and names hold what a terminal or a CI service would obey."""

    def word() -> str:
        return "".join(random.choice((*HOSTILE_WORDS, *words()[:40])) for _ in range(random.randrange(1, 4)))

    keys = {word(): random.choice((word(), 1, None, {word(): word()})) for _ in range(random.randrange(1, 6))}
    config = json.dumps({"train_batch_size": word(), "zero_optimization": {"stage": word(), **keys}, **keys})
    name = word().replace("/", "").replace("\0", "").encode("utf-8", "replace").decode()[:50] or "x"
    line = f"accelerate launch --config_file '{word()}' train.py --deepspeed 'ds.json' --{word()}\n"
    recipe = f"output_dir: {json.dumps(word())}\ndeepspeed: ds.json\nlearning_rate: {json.dumps(word())}\n"
    files = {
        f"{name}.json": config.encode(),
        "ds.json": config.encode(),
        "run.sh": line.encode("utf-8", "replace"),
        "recipe.yaml": recipe.encode("utf-8", "replace"),
    }
    return files


def _terminals(folder: Path, random: Random) -> None:
    for form in FORMATS:
        _shown(zerocfg("lint", "--output-format", form, ".").out, form, commands=form != "github")
    odd = next(path.name for path in folder.iterdir() if path.name not in ("ds.json", "run.sh", "recipe.yaml"))
    for line in (
        ("lint", f"./{odd}"),
        ("explain", "--run", random.choice(("run.sh", "recipe.yaml"))),
        ("diff", "ds.json", f"./{odd}"),
        ("convert", f"./{odd}", "--to", "fsdp2"),
        ("plan", f"./{odd}"),
        ("gate", "--only", "lint"),
        ("check-resume", "."),
    ):
        done = zerocfg(*line)
        _shown(done.out, f"{line[0]} on standard output")
        _shown(done.err, f"{line[0]} on standard error")


def _shown(printed: str, where: str, *, commands: bool = True) -> None:
    """Nothing of it is obeyed by who shows it. ``commands``: nor by who runs CI jobs."""
    found = _OBEYED.search(printed)
    if found is not None:
        around = printed[max(0, found.start() - 60) : found.end() + 20]
        raise BrokenError(f"{where} prints U+{ord(found[0]):04X}: {around!r}")
    if commands and (command := _COMMAND.search(printed)) is not None:
        raise BrokenError(f"{where} prints a workflow command: {command[0]!r}")


def findings(where: str = ".") -> set[tuple[str, str, str, str]]:
    """Code, severity, file and key of every finding: what does not depend on lines."""
    done = json.loads(zerocfg("lint", "--output-format", "json", "--notes", where).out)
    return {(one["code"], one["severity"], one["file"], one["path"]) for one in done["diagnostics"]}


def sound(random: Random) -> Input:
    """Files as they stand in the rules' pages, with a key or two more: their texts mean what they seem to."""
    files = {name: data.encode("utf-8", "replace") for name, data in random.choice(repositories()).items()}
    for name in list(files):
        if form_of(name) == "yaml" and random.random() < 0.5:
            files[name] = (
                files[name].rstrip() + f"\n{random.choice(words())}: {random.choice(('1', 'true', 'auto'))}\n".encode()
            )
    return files


def _commented(folder: Path, random: Random) -> None:
    for path in folder.rglob("*.y*ml"):
        lines = path.read_text("utf-8").splitlines()
        if any(mark in line for line in lines for mark in ("|", ">", "zerocfg:", '"', "'", "\t")) or not lines:
            continue
        at = random.randrange(len(lines) + 1)
        lines[at:at] = ["# nothing"] * random.randrange(1, 4)
        path.write_text("\n".join(lines) + "\n\n", "utf-8")


def _reordered(folder: Path, random: Random) -> None:
    for path in folder.rglob("*.json"):
        try:
            data = json.loads(path.read_text("utf-8"), object_pairs_hook=_once)
        except ValueError:
            continue
        if isinstance(data, dict):
            pairs = list(data.items())
            random.shuffle(pairs)
            path.write_text(json.dumps(dict(pairs), indent=random.choice((None, 1, 4))), "utf-8")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is written twice")
    return dict(pairs)


def _moved(folder: Path, random: Random) -> None:
    """The same files in a folder of another name, made in another order."""
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    names = list(files)
    random.shuffle(names)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(files[name])


def _unchanged_by(change: Callable[[Path, Random], None]) -> Callable[[Path, Random], None]:
    def check(folder: Path, random: Random) -> None:
        before = findings()
        change(folder, random)
        after = findings()
        if before != after:
            raise BrokenError(f"{change.__name__}: gone {sorted(before - after)}, come {sorted(after - before)}")

    return check


def _several(random: Random) -> Input:
    return {f"r{at}/{name}": data for at in range(20) for name, data in repository(random).items()}


def _hash_seeds(folder: Path, random: Random) -> None:
    """The same words in the same order, however sets are ordered."""
    printed = [
        subprocess.run(
            [sys.executable, "-m", "zerocfg", "lint", "--output-format", form, "--notes", "."],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=folder,
            capture_output=True,
        ).stdout
        for form in ("json",)
        for seed in ("0", "1")
    ]
    if printed[0] != printed[1]:
        lines = zip(printed[0].splitlines(), printed[1].splitlines(), strict=False)
        raise BrokenError(f"depends on PYTHONHASHSEED: {next(((a, b) for a, b in lines if a != b), 'length')}")


LINTS = (
    Campaign("lint", 1500, 100_000, repository, _lint),
    Campaign("commands", 500, 20_000, repository, _commands),
    Campaign("terminals", 200, 10_000, hostile_texts, _terminals, measured=False),
    Campaign("comments", 200, 10_000, sound, _unchanged_by(_commented), measured=False),
    Campaign("order-of-keys", 200, 10_000, sound, _unchanged_by(_reordered), measured=False),
    Campaign("order-of-files", 200, 10_000, sound, _unchanged_by(_moved), measured=False),
    Campaign("hash-seeds", 5, 500, _several, _hash_seeds, measured=False),
)
