"""Which releases zerocfg takes for the runs of whole public repositories, held against the lines that it points at.

    python -m benchmarks.wild.releases FOLDER [--write RESULTS]

FOLDER holds the trees that `python -m benchmarks.wild.repositories` brings. Each line that is pointed at is read by
itself, with `packaging`: what zerocfg says must admit the same releases, or all of theirs where they are a choice.
Where a line of another package, or of Python, holds a library back (`README.md:9#Python`), it must admit fewer.
Where it says nothing of a library, the files of the folders above the run are searched for a line that does. With
--write also puts releases.tsv into RESULTS.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from benchmarks.wild import data
from benchmarks.wild.repositories import commit_of
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Origin, Run
from zerocfg.run.releases import with_versions
from zerocfg.run.requirements.companions import limiting_package

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl")
Verdict = Literal["same", "choice", "held back", "not comparable", "wrong"]
_SIGNS = r"(?:===|==|~=|!=|>=|<=|>|<)"
_FILES = re.compile(r"require|setup\.(?:py|cfg)$|pyproject|environment|dockerfile|\.lock$|conda|install.*sh$|env.*sh$")
_LARGEST = 3 << 20
_CANDIDATES = [
    *(Version(f"0.{minor}.{patch}") for minor, patch in product(range(5, 40), range(10))),
    *(Version(f"{major}.{minor}.{patch}") for major, minor, patch in product((1, 4, 5), range(60), range(6))),
]


@dataclass(frozen=True)
class Row:
    """What is taken for some runs of a repository. ``declared`` empty: nothing is said of the library."""

    repository: str
    library: str
    declared: str
    where: tuple[str, ...]
    runs: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    target = given.write.resolve() if given.write else None
    rows: list[Row] = []
    verdicts: Counter[Verdict] = Counter()
    missed = 0
    for one in data.repositories():
        tree = one.tree(given.folder.resolve())
        if commit_of(tree) != one.commit:
            continue
        for row, starts in _rows(one.name, tree):
            rows.append(row)
            if row.declared:
                verdict = _compared(row, tree)
                verdicts[verdict] += 1
                if verdict in ("not comparable", "wrong"):
                    print(f"{verdict}: {row.repository} {row.library} {row.declared}, {', '.join(row.where)}")
            else:
                lines = sorted({line for start in starts for line in _near(row.library, start, tree)})
                missed += bool(lines)
                if lines:
                    print(f"nothing: {row.repository} {row.library} in {row.runs} runs; {'; '.join(lines[:2])}")
    told = sum(verdicts.values())
    print(f"{len({row.repository for row in rows})} repositories, {told} statements: {dict(verdicts)}")
    print(f"{len(rows) - told} times nothing is said, {missed} of them beside a line that names a release or a commit")
    if target is not None:
        lines = ["repository\tlibrary\tdeclared\twhere\truns"]
        lines += ["\t".join((r.repository, r.library, r.declared, " ".join(r.where), str(r.runs))) for r in rows]
        (target / "releases.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _rows(repository: str, tree: Path) -> Iterator[tuple[Row, list[Path]]]:
    os.chdir(tree)  # names of files are told relative to it
    runs = with_versions(find_runs([tree], Files(), root=tree, scripts=True)[0], {})
    found: dict[tuple[str, str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        for library in LIBRARIES:
            where = tuple(_where(place, library) for place in run.version_places.get(library, ()))
            found.setdefault((library, run.versions.get(library, ""), where), []).append(run)
    for (library, declared, where), every in sorted(found.items(), key=lambda item: item[0]):
        folders = [file.path.parent for run in every for file in run.files if file.path is not None]
        yield Row(repository, library, declared, where, len(every)), list(dict.fromkeys(folders))


def _where(place: Origin, library: str) -> str:
    if place.file is None or place.span is None:
        return place.note.replace(" ", "-")
    line = f"{place.file.name}:{place.file.source.place(place.span.start).line}".replace(" ", "%20")
    package = limiting_package(place, library)
    return f"{line}#{package}" if package else line


def _compared(row: Row, tree: Path) -> Verdict:
    own = [where.replace("%20", " ") for where in row.where if "#" not in where]
    stated = [_line(row.library, where, tree) for where in own]
    if not stated or None in stated:
        return "not comparable"
    mine = _admitted(row.declared)
    each = [_admitted(one or "") for one in stated]
    beside = [where.replace("%20", " ") for where in row.where if "#" in where]
    if beside:
        return "held back" if mine < set.union(*each) and all(_names(where, tree) for where in beside) else "wrong"
    if mine == set.intersection(*each):
        return "same"
    return "choice" if set.union(*each) <= mine else "wrong"


def _names(where: str, tree: Path) -> bool:
    """Whether the line that is pointed at names the package that holds a library back."""
    place, _, package = where.partition("#")
    name, _, number = place.rpartition(":")
    line = (tree / name).read_text(encoding="utf-8", errors="replace").splitlines()[int(number) - 1].lower()
    return package in line.replace("_", "-") or (package == "Python" and re.search(r"\b3\.\d+", line) is not None)


def _admitted(clauses: str) -> set[Version]:
    asked = SpecifierSet(clauses)
    return {one for one in _CANDIDATES if asked.contains(one)}


def _line(library: str, where: str, tree: Path) -> str | None:
    """The clauses of the line that is pointed at, by a reading of its own; None where it has none."""
    name, _, number = where.rpartition(":")
    if not name or not (tree / name).is_file():
        return None
    line = (tree / name).read_text(encoding="utf-8", errors="replace").splitlines()[int(number) - 1]
    if name.endswith(".lock"):
        found = re.search(r'"([^"]+)"', line)
        return f"=={found[1]}" if found else None
    checked = re.search(r"""check_min_version\(["']([\d.]+\d)""", line)
    if checked:
        return f">={checked[1]}"
    matched = re.search(rf"(?<![\w/.-]){library}(?:\[[^\]]*\])?\s*((?:{_SIGNS}\s*[\w.*+]+\s*,?\s*)+)", line, re.I)
    poetry = re.search(rf"""(?<![\w/.-]){library}["']?\s*=\s*["'](\d[\w.]*)["']""", line, re.I)
    clauses = re.sub(r"\s", "", matched[1]).rstrip(",") if matched else f"=={poetry[1]}" if poetry else None
    try:
        return None if clauses is None else str(SpecifierSet(clauses))
    except InvalidSpecifier:
        return None


def _near(library: str, start: Path, tree: Path) -> Iterator[str]:
    """Lines that name a release or a commit of a library, in files of the folders from one up to the root."""
    names = re.compile(
        rf"(?<![\w/.-]){library}(?:\[[^\]]*\])?[\"']?\s*(?:[:=]\s*[\"'])?\s*(?:{_SIGNS}|@ *(?:git|http))", re.I
    )
    for folder in (start, *start.parents):
        if not folder.is_relative_to(tree):
            return
        for path in sorted(folder.iterdir()):
            if _FILES.search(path.name.lower()) and path.is_file() and path.stat().st_size < _LARGEST:
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                for number, line in enumerate(lines, 1):
                    if names.search(line):
                        yield f"{path.relative_to(tree).as_posix()}:{number}"


if __name__ == "__main__":
    main()
