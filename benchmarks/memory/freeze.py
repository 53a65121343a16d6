"""One hash over the formulas, and which committed results were made with them.

    python benchmarks/memory/freeze.py [--write]

Prints a line for each result; ``--write`` also puts the statements into results/state.json. The hash is that of the
syntax: comments, docstrings and line ends change no figure, and so no hash.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FORMULAS = ("zerocfg/memory", "zerocfg/tracer")
STATE = HERE / "results" / "state.json"
RESULTS = {
    "published": HERE / "results" / "published.json",
    "predictions": HERE / "predictions.json",
    "predictions for an H100": HERE / "predictions-h100.json",
    "gpu": HERE / "results" / "gpu.json",
}


def formula_hash(root: Path = ROOT, folders: Iterable[str] = FORMULAS) -> str:
    """SHA-256 (first 16 digits) over path and syntax of every Python file of the formulas (in folders, or single)."""
    digest = hashlib.sha256()
    for folder in folders:
        place = root / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            syntax = _syntax(ast.parse(path.read_bytes()))
            digest.update(f"{path.relative_to(root).as_posix()} {len(syntax)}\n{syntax}".encode())
    return digest.hexdigest()[:16]


def _syntax(node: object) -> str:
    """A syntax tree as text that is the same in every Python that reads the code, without texts that stand alone.

    ``ast.dump`` is not: what it leaves out differs between Pythons, as do the fields of later ones, empty here.
    """
    if isinstance(node, list):
        return f"[{','.join(_syntax(one) for one in node if not _stands_alone(one))}]"
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({','.join(f'{name}={_syntax(value)}' for name, value in fields)})"


def _stands_alone(node: object) -> bool:
    """Whether it is a docstring, or another text that is a statement by itself."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def states() -> dict[str, str]:
    """Result -> "present formulas", "formulas changed since" or "not made yet"."""
    now = formula_hash()
    found = {}
    for name, path in RESULTS.items():
        if not path.is_file():
            found[name] = "not made yet"
            continue
        made_with = json.loads(path.read_text())["formulas"]
        found[name] = "present formulas" if made_with == now else "formulas changed since"
    return found


def write_state() -> None:
    """Keep today's statements in results/state.json."""
    STATE.parent.mkdir(exist_ok=True)
    STATE.write_text(json.dumps(states(), indent=2) + "\n")


def untrue(stated: dict[str, str], found: dict[str, str]) -> list[str]:
    """Results that are said to be of the present formulas and are not."""
    return [
        name for name, state in found.items() if state != stated.get(name) and stated.get(name) == "present formulas"
    ]


if __name__ == "__main__":
    for result, state in states().items():
        print(f"{result}: {state}")
    if "--write" in sys.argv[1:]:
        write_state()
