"""``python -m tools.facts.beside``: the newest release of a library that an installer takes beside older packages.

uv resolves each library beside each bound (``tokenizers<0.20``, Python 3.9). What it finds goes to
``schemas/releases/beside.json``, where it is older than what is taken without the bound. ``--only trl/accelerate``
resolves one pair and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.facts.environment import HERE, releases
from zerocfg.catalog.versions import release

WRITTEN = HERE.parent.parent / "schemas" / "releases" / "beside.json"
_PYTHON = "3.12"
"""Where the bounds of packages are tried; where that Python has no wheels of so old a torch, on an older one."""
_OLDER_PYTHON = "3.10"
_AT_ONCE = 6
"""They wait for the index more than they work."""
_PYTHONS = [f"3.{minor}" for minor in range(9, 15)]
_TORCH = ["2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13"]
_TOKENIZERS = ["0.14", "0.15", "0.19", "0.20", "0.21", "0.22", "0.23"]
_ACCELERATE = ["0.21", "0.26", "0.34", "1.1", "1.4", "1.10.1"]
"""The lowest releases that any release of TRL, or of transformers with its extra, asks for."""
_DATASETS = ["2.21", "3.0", "4.7"]
_HUB = ["0.19", "0.23", "0.24", "0.26", "0.30", "0.34", "1.0", "1.3", "1.5", "1.10", "1.20", "1.31"]


def tried() -> Iterator[tuple[str, str, list[str]]]:
    """A library, perhaps with an extra; a package beside it, and the releases below which it may be held."""
    for library in ("transformers", "accelerate", "trl"):
        yield library, "python", _PYTHONS
    yield "transformers", "tokenizers", _TOKENIZERS
    yield "transformers", "huggingface-hub", _HUB
    yield "accelerate", "huggingface-hub", ["0.21"]
    for library in ("transformers[torch]", "accelerate", "trl"):
        yield library, "torch", _TORCH
    for library in ("transformers[torch]", "trl"):
        yield library, "accelerate", _ACCELERATE
    for package, edges in (("tokenizers", _TOKENIZERS), ("huggingface-hub", _HUB), ("datasets", _DATASETS)):
        yield "trl", package, edges
    known = [one.version for one in releases() if one.library == "transformers"]
    yield "trl", "transformers", [*dict.fromkeys(".".join(version.split(".")[:2]) for version in known)][1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", metavar="LIBRARY/PACKAGE", help="a pair; may be repeated")
    only = parser.parse_args().only
    found: dict[str, dict[str, dict[str, str]]] = json.loads(WRITTEN.read_text(encoding="utf-8")) if only else {}
    for library, package, edges in tried():
        if only and f"{library}/{package}" not in only:
            continue
        found.get(library, {}).pop(package, None)
        free = {python: newest(library, (), python) for python in (_PYTHON, _OLDER_PYTHON)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            held = list(pool.map(lambda edge: _beside(library, package, edge, free), edges))  # noqa: B023
        newest_yet = ""
        for edge, (left, without) in zip(edges, held, strict=True):
            # uv need not find the newest release: what a lower bound leaves, a higher one leaves, too
            left = left and max(left, newest_yet, key=release)
            newest_yet = left or newest_yet
            if left is not None and left != without:
                found.setdefault(library, {}).setdefault(package, {})[edge] = left
        print(f"{library} beside {package}: {found.get(library, {}).get(package, {})}", file=sys.stderr, flush=True)
    WRITTEN.write_text(written(found), encoding="utf-8")
    return 0


def _beside(library: str, package: str, edge: str, free: dict[str, str | None]) -> tuple[str | None, str | None]:
    """The newest release beside a package below a bound, and without the bound."""
    if package == "python":
        minor = int(edge.rpartition(".")[2]) - 1
        return newest(library, (), f"3.{minor}", "--no-deps"), free[_PYTHON]
    for python in (_PYTHON, _OLDER_PYTHON):
        left = newest(library, (f"{package}<{edge}",), python)
        if left is not None:
            return left, free[python]
    return None, None


def newest(library: str, beside: tuple[str, ...], python: str, *options: str) -> str | None:
    """The release that uv resolves for a Python on Linux; None where it finds none."""
    uv = str(Path(sys.executable).with_name("uv"))
    words = [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", "--python-version", python]
    words += ["--python-platform", "linux", *options, "-"]
    asked = "\n".join((library, *beside))
    done = subprocess.run(words, input=asked, capture_output=True, text=True, check=False)
    name = re.escape(library.partition("[")[0])
    match = re.search(rf"^{name}(?:\[\w+\])?==(\S+)", done.stdout, re.MULTILINE)
    return match[1] if match else None


def written(found: dict[str, dict[str, dict[str, str]]]) -> str:
    """A line for each pair of a library and a package, in an order that keeps differences small."""
    lines = []
    for library, packages in found.items():
        inner = [f'  "{package}": {json.dumps(edges)}' for package, edges in packages.items()]
        lines.append(f'"{library}": {{\n' + ",\n".join(inner) + "\n}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
