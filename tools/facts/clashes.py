"""``python -m tools.facts.clashes``: releases of two packages with which no training starts, or none ends, although an
installer puts them beside each other, to ``schemas/releases/clashes.json``. ``--only peft/accelerate`` plays one pair
and leaves the others as they are.

Two releases are installed with all that they ask for, today's releases of that, in a folder of their own; torch alone
comes from this environment, where it is not one of the two. A short program then imports the one, or trains and saves a
tiny model by the Trainer, and tells how far it came. What the installer refuses is no clash: nobody has it installed.
Of two releases that do not come equally far those between them are played, until the two at which it changes are
known. In the file stand, by the release of the first package from which on it holds, the releases of the second that
stop, each with how far the program came and what it said.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tools.facts.beside import newest
from tools.facts.environment import CACHE, HERE
from zerocfg.run.config import VERSIONS

WRITTEN = HERE.parent.parent / "schemas" / "releases" / "clashes.json"
PLAYED = CACHE / "clashes"
"""What each pair of releases came to, so that a run that was stopped goes on."""
_PLAIN = "3.12"
"""The Python for which packages are resolved; where it has no builds of so old ones, 3.10."""
GOOD, REFUSED = "", "refused"
_OLDEST = {
    "accelerate": "0.16",
    "datasets": "2.8",
    "deepspeed": "0.9.3",
    "huggingface-hub": "0.16",
    "peft": "0.3",
    "pyarrow": "16",
    "torch": "2.2",
    "transformers": "4.28",
    "trl": "0.7",
}
_TORCHES = ("2.2.2", "2.3.1", "2.4.0")
"""The releases before this environment's that are played: each of them takes gigabytes."""
_PYTHONS = tuple(f"3.{minor}" for minor in range(9, 14))
_IMPORT = """
say("import {name}")
import {name}
"""
_IMPORT_AND_TRAINER = """
say("import {name}")
import {name}
say("from transformers import Trainer")
from transformers import Trainer
"""
_TRAINER = """
say("from transformers import Trainer")
import tempfile, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=8, n_embd=16, n_layer=1, n_head=2))
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(4)]
with tempfile.TemporaryDirectory() as folder:
    say("TrainingArguments()")
    cpu = "use_cpu" if "use_cpu" in TrainingArguments.__dataclass_fields__ else "no_cuda"
    args = TrainingArguments(output_dir=folder, max_steps=2, save_steps=1, report_to=[], **{cpu: True})
    say("Trainer()")
    trainer = Trainer(model=model, args=args, train_dataset=data)
    say("Trainer.train()")
    trainer.train()
    say("Trainer.save_model()")
    trainer.save_model(folder)
"""
_OF_TRL = """
say("from trl import SFTTrainer")
from trl import SFTTrainer
say("from trl import DPOTrainer")
from trl import DPOTrainer
"""
_PROGRAM = """
import contextlib, io, json, os, sys, warnings
os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.simplefilter("ignore")
came_to, said, kept = "", "", sys.stdout
def say(phase):
    global came_to
    came_to = phase
try:
    with contextlib.redirect_stdout(io.StringIO()):
        exec(sys.argv[1], {"say": say, "__name__": "played"})
except BaseException as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps([came_to, said]), file=kept, flush=True)
os._exit(0)
"""


_LIMITS: dict[str, dict[str, tuple[str, ...]]] = {
    "datasets": {
        "python": _PYTHONS,
        "pyarrow": ("12", "15", "21"),
        "huggingface-hub": ("0.19", "0.21.2", "0.24", "0.25"),
    },
    "huggingface-hub": {"python": _PYTHONS},
    "peft": {
        "python": _PYTHONS,
        "accelerate": ("0.17", "0.19", "0.20", "0.21", "0.26"),
        "huggingface-hub": ("0.17", "0.25"),
        "torch": ("1.13", "2.0"),
    },
    "pyarrow": {"python": _PYTHONS},
    "torch": {"python": _PYTHONS},
}
"""Below which releases of other packages, or of Python, only older ones of a package may be had; ``beside.json`` says
it of the training libraries."""


@dataclass(frozen=True)
class Pair:
    """``beside``: further packages that the program needs, in releases that go with all of both. ``edges``: releases
    of the first whose source differs from the one before in what it asks of the other; both are played."""

    library: str
    other: str
    program: str
    beside: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.library}/{self.other}"


PAIRS = (
    Pair(
        "transformers",
        "accelerate",
        _TRAINER,
        ("setuptools<80",),
        edges=("4.30.0", "4.32.0", "4.34.0", "4.35.0", "4.36.0", "4.40.0", "4.45.0", "4.49.0", "4.52.1", "5.0.0"),
    ),
    Pair("peft", "transformers", _IMPORT_AND_TRAINER.format(name="peft"), ("accelerate",)),
    Pair("peft", "accelerate", _IMPORT_AND_TRAINER.format(name="peft"), ("transformers==4.57.6", "setuptools<80")),
    Pair("trl", "transformers", _OF_TRL, edges=("0.8.2", "0.9.2", "0.12.0", "0.29.0")),
    Pair("deepspeed", "torch", _IMPORT.format(name="deepspeed"), ("pydantic<2", "numpy<2")),
    Pair("datasets", "pyarrow", _IMPORT.format(name="datasets"), ("huggingface-hub<0.26",)),
    Pair("datasets", "huggingface-hub", _IMPORT.format(name="datasets"), ("pyarrow<15", "numpy<2")),
)


@cache
def published(package: str) -> list[str]:
    """The releases that are played, oldest first, none newer than those that zerocfg knows."""
    if package == "torch":
        return [*_TORCHES, importlib.metadata.version("torch").partition("+")[0]]
    words = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", package]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    listed = re.search(r"Available versions: (.*)", said)
    assert listed is not None, said
    found = sorted(map(Version, listed[1].split(", ")))
    newest = Version(VERSIONS.get(package, str(found[-1])))
    return [str(one) for one in found if Version(_OLDEST[package]) <= one <= newest and not one.is_prerelease]


@cache
def torch_alone(version: str) -> Path:
    """A folder with torch and what it asks for, and nothing else: links to this environment's, or another release."""
    folder = CACHE / "torch" / version
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent))
    if version == importlib.metadata.version("torch").partition("+")[0]:
        _link("torch", new, set())
    else:
        _install(new, [f"torch=={version}"])
    new.rename(folder)
    return folder


def _link(package: str, folder: Path, seen: set[str]) -> None:
    if package in seen:
        return
    seen.add(package)
    distribution = importlib.metadata.distribution(package)
    for name in {Path(file).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        (folder / name).symlink_to(Path(str(distribution.locate_file(name))))
    for line in distribution.requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            _link(wanted.name, folder, seen)


def _install(folder: Path, packages: Sequence[str], *options: str) -> str:
    """What the installer says where it refuses; empty where it installed."""
    uv = Path(sys.executable).with_name("uv")
    words = [
        str(uv),
        "pip",
        "install",
        "-q",
        "--no-config",
        "--python",
        sys.executable,
        "--target",
        str(folder),
        *options,
        *packages,
    ]
    words += ["--only-binary", ":all:", "--no-binary", "deepspeed"]
    environment = {**os.environ, "UV_COMPILE_BYTECODE": "0", "DS_BUILD_OPS": "0"}
    said = ""
    for build in ([], ["--no-build-isolation-package", "deepspeed"]):
        done = subprocess.run([*words, *build], capture_output=True, text=True, env=environment)
        said = done.stderr.strip()
        if done.returncode == 0:
            return ""
    return said or "no word"


def play(pair: Pair, version: str, other: str) -> tuple[str, str]:
    """How far the program came and with which error it stopped; `GOOD` where with none, `REFUSED` where the installer
    does not put these releases beside each other or has no build of one for this Python, and where a third package
    stops the program."""
    name = f"{pair.library}-{version}-{pair.other}-{other}"
    kept = PLAYED / f"{name}.json"
    if not kept.exists():
        found = list(_play(pair, version, other))
        PLAYED.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found), encoding="utf-8")
        print(name, *found, file=sys.stderr, flush=True)
    phase, said = json.loads(kept.read_text(encoding="utf-8"))
    return (phase, said) if phase == GOOD or _concerned(pair, said) else (REFUSED, "")


def _concerned(pair: Pair, said: str) -> bool:
    """Whether an error is one of these two, and not of a third package that is installed for them."""
    return any(name.replace("-", "_").rstrip("e") in said.lower() for name in (pair.library, pair.other))


def _play(pair: Pair, version: str, other: str) -> tuple[str, str]:
    torch = other if pair.other == "torch" else importlib.metadata.version("torch").partition("+")[0]
    wanted = [
        f"{pair.library}=={version}",
        *([f"{pair.other}=={other}"] if pair.other != "torch" else ()),
        *pair.beside,
    ]
    overrides = CACHE / "without-torch.txt"
    overrides.parent.mkdir(parents=True, exist_ok=True)
    overrides.write_text('torch ; sys_platform == "never"\ntriton ; sys_platform == "never"\n', encoding="utf-8")
    folder = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        refused = _install(folder, wanted, "--override", str(overrides))
        if refused:
            return REFUSED, refused.splitlines()[-1][:200]
        path = os.pathsep.join(map(str, (folder, torch_alone(torch))))
        words = [sys.executable, "-S", "-c", _PROGRAM, pair.program]
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600)
        lines = done.stdout.splitlines()
        if not lines:
            raise RuntimeError(f"{wanted}: {done.stderr[-800:]}")
        phase, said = json.loads(lines[-1])
        return (phase, _plain(said)) if said else (GOOD, "")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _plain(said: str) -> str:
    """The first line of an error, of one that tells of another the last, without what differs from folder to folder,
    or from release to release."""
    lines = said.strip().splitlines()
    told = len(lines) > 1 and "following error" in lines[0]
    line = re.sub(r" \(/\S*\)| from '/\S*'", "", lines[-1] if told else lines[0])
    return re.sub(r",? but found \S+$", "", line)[:200]


Key = tuple[object, ...]


def changes(count: int, asked: Sequence[int], key: Callable[[int], Key]) -> list[int]:
    """Where a key differs from the one before it, of so many things in a row: between two of those asked first that
    differ, all changes that halving finds."""
    found: list[int] = []

    def look(low: int, high: int) -> None:
        if key(low) == key(high):
            return
        if high == low + 1:
            found.append(high)
            return
        middle = (low + high) // 2
        look(low, middle)
        look(middle, high)

    for low, high in pairwise(sorted({0, count - 1, *asked})):
        look(low, high)
    return found


class Played:
    """One pair of packages, all whose releases lie on two axes."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.versions, self.others = published(pair.library), published(pair.other)
        self.rows: dict[int, Key] = {}
        self.edges: dict[int, list[int]] = {}
        """Where a release of the other changes something, by release of the first."""

    def row(self, at: int) -> Key:
        """For one release of the first package: from which release of the other on it comes to what."""
        if at not in self.rows:
            count = len(self.others)
            near = self.edges[min(self.edges, key=lambda other: abs(other - at))] if self.edges else []
            asked = {count // 2, *near, *(edge - 1 for edge in near)}

            def key(other: int) -> Key:
                return play(self.pair, self.versions[at], self.others[other])

            found = [0, *changes(count, sorted(asked), key)]
            self.edges[at] = found[1:]
            self.rows[at] = tuple((self.others[edge], *key(edge)) for edge in found)
        return self.rows[at]

    def table(self) -> dict[str, dict[str, list[str]]]:
        """By release of the first package, from that one on: the releases of the other that stop it."""
        count = len(self.versions)
        known = [self.versions.index(version) for version in self.pair.edges]
        asked = [*known, *(at - 1 for at in known)] or range(0, count, max(1, count // 8))
        edges = [0, *changes(count, asked, self.row)]
        found: dict[str, dict[str, list[str]]] = {}
        for edge in edges:
            stops = stopped(self.row(edge))
            if not found or stops != next(reversed(found.values())):
                found[self.versions[edge]] = stops
        return found


def stopped(row: Key) -> dict[str, list[str]]:
    """The clauses of the other's releases that stop, with how far the program came and what it said. Nothing where none
    of them lets it through, so that something else may stop it."""
    pieces: list[tuple[str, str, str]] = [piece for piece in row if isinstance(piece, tuple)]
    if not any(phase == GOOD for _, phase, _ in pieces):
        return {}
    found = {}
    for at, (since, phase, said) in enumerate(pieces):
        until = pieces[at + 1][0] if at + 1 < len(pieces) else ""
        clauses = ",".join(filter(None, (f">={since}" if at else "", f"<{until}" if until else "")))
        if phase not in (GOOD, REFUSED):
            found[clauses] = [phase, said]
    return found


def limits(package: str) -> dict[str, dict[str, str]]:
    """By another package, or Python, and a release of it: the newest that is left below that one, where it is older."""
    free = newest(package, (), _PLAIN)
    found: dict[str, dict[str, str]] = {}
    for other, edges in _LIMITS[package].items():
        for edge in edges:
            left = _left(package, other, edge)
            if left is not None and left != free:
                found.setdefault(other, {})[edge] = left
    return found


def _left(package: str, other: str, edge: str) -> str | None:
    if other == "python":
        return newest(package, (), f"3.{int(edge.rpartition('.')[2]) - 1}", "--no-deps")
    return newest(package, (f"{other}<{edge}",), _PLAIN) or newest(package, (f"{other}<{edge}",), "3.10")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", metavar="LIBRARY/OTHER", help="a pair; may be repeated")
    only = parser.parse_args().only
    found = {pair.name: Played(pair).table() for pair in PAIRS if not only or pair.name in only}
    known = json.loads(WRITTEN.read_text(encoding="utf-8")) if WRITTEN.exists() else {"pairs": {}, "limits": {}}
    pairs: dict[str, dict[str, object]] = {pair.library: dict(known["pairs"].get(pair.library, {})) for pair in PAIRS}
    for pair in PAIRS:
        if pair.name in found:
            pairs[pair.library][pair.other] = found[pair.name]
    left = known["limits"] if only else {package: limits(package) for package in _LIMITS}
    WRITTEN.write_text(json.dumps({"pairs": pairs, "limits": left}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
