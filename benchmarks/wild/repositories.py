"""Brings the repositories of the study to a folder, each at its commit.

    python -m benchmarks.wild.repositories FOLDER [--from TEMPLATE] [--also FILE]

TEMPLATE says where they are cloned from, with `{owner}` and `{name}` in it; FILE lists more of them in the same form,
as `benchmarks/real_runs/repositories.yaml` does. Files of more than one MiB are left out:
nothing that zerocfg reads is as large. What is there already at its commit stays as it is.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import yaml

from benchmarks.wild.data import Repository, repositories

MOST = 1 << 20


def git(tree: Path, *words: str, text: bytes = b"") -> bytes:
    done = subprocess.run(["git", "-C", str(tree), *words], input=text, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{tree}: git {words[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def commit_of(tree: Path) -> str:
    """The commit that is checked out; empty where there is none."""
    done = subprocess.run(["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def bring(repository: Repository, folder: Path, source: str) -> None:
    tree = repository.tree(folder)
    if commit_of(tree) == repository.commit:
        return
    tree.mkdir(parents=True, exist_ok=True)
    owner, _, name = repository.name.partition("/")
    git(tree, "init", "-q")
    git(tree, "fetch", "-q", "--depth", "1", source.format(owner=owner, name=name), repository.commit)
    git(tree, "update-ref", "HEAD", repository.commit)
    blobs = [entry.partition(b"\t") for entry in git(tree, "ls-tree", "-r", "-z", "HEAD").split(b"\0") if entry]
    plain = [(about.split()[2], path) for about, _, path in blobs if about.startswith(b"100")]
    asked = b"".join(name + b"\n" for name, _ in plain)
    sizes = git(tree, "cat-file", "--batch-check=%(objectsize)", text=asked).splitlines()
    for (blob, path), size in zip(plain, sizes, strict=True):
        if size.isdigit() and int(size) <= MOST:
            file = tree / path.decode()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(git(tree, "cat-file", "blob", blob.decode()))


def listed(path: Path) -> list[Repository]:
    """The repositories of another list."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Repository(str(row["repository"]), str(row["commit"]), "") for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--from", dest="source", default="https://github.com/{owner}/{name}")
    parser.add_argument("--also", type=Path)
    given = parser.parse_args()
    for repository in [*repositories(), *(listed(given.also) if given.also is not None else ())]:
        bring(repository, given.folder, given.source)
        print(repository.name)


if __name__ == "__main__":
    main()
