"""Files of a repository that ``zerocfg init`` looks for: training scripts, with whose loop they train, and models."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import DRAFTED_FILES, SCRIPT_BYTES
from zerocfg.run.discover import SKIPPED_FOLDERS
from zerocfg.run.hub import CONFIG
from zerocfg.source import disk
from zerocfg.source.paths import relative

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What a script that trains holds, all of it, most telling first. Loops of their own use TRL's parser, but no trainer.
_CALLS: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...] = (
    ("deepspeed", (re.compile(r"\bdeepspeed\.initialize\s*\("),)),
    ("trl", (re.compile(r"^\s*(?:from trl\b|import trl\b)", re.M), re.compile(r"Trainer\b"))),
    ("transformers", (re.compile(r"\b(?:Seq2Seq)?Trainer\s*\("),)),
    ("accelerate", (re.compile(r"\bAccelerator\s*\("),)),
)
SEEN = {
    "deepspeed": "calls deepspeed.initialize",
    "trl": "uses a trainer of TRL",
    "transformers": "calls a Trainer",
    "accelerate": "calls Accelerator",
}


def walk(folder: Path, suffix: str) -> Iterator[Path]:
    """Files of a folder by suffix, in a fixed order, without hidden folders and those that discovery skips."""
    for root, names in disk.tree(folder, lambda _, name: not name.startswith(".") and name not in SKIPPED_FOLDERS):
        for name in names:
            if name.endswith(suffix):
                yield Path(root) / name


def scripts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Python files that train, with the library whose loop they call; tests and libraries are left out."""
    for path, _ in zip(walk(folder, ".py"), range(DRAFTED_FILES), strict=False):
        if path.name.startswith(("test_", "setup.", "conftest")) or path.stem.endswith("_test"):
            continue
        calls = calls_of(path)
        if calls is not None:
            yield path.resolve(), calls


def calls_of(path: Path) -> str | None:
    """The library whose training loop a script calls at its end; None for what is no script that trains."""
    try:
        text = disk.whole(path, SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    found = next((name for name, needed in _CALLS if all(pattern.search(text) for pattern in needed)), None)
    if found is None or not ("__main__" in text or _does_something(text)):
        return None
    return found


def _does_something(text: str) -> bool:
    """Whether a module does more than define things when it is run."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) for item in body) or any(
        isinstance(item, (ast.For, ast.While, ast.With)) for item in body
    )


_OF_TESTS = re.compile(r"(?i)^_*(tests?|testing|test[-_]?data|fixtures|mocks?|dummy.*|tiny[-_].*|tokenizers?)$")


def model_configs(folder: Path) -> list[Path]:
    """Files that may be a model's config.json, at most 200; none that belongs to tests or to a tokenizer."""

    def counts(path: Path) -> bool:
        folders = path.relative_to(folder).parts[:-1]
        return path.name == CONFIG and not any(_OF_TESTS.match(part) for part in folders)

    found = filter(counts, walk(folder, CONFIG))
    return [
        path for path, _ in zip(found, range(200), strict=False) if path.is_file() and path.stat().st_size < 1 << 20
    ]


def nearest(folder: Path, paths: Sequence[Path]) -> list[Path]:
    """The paths that are the fewest steps away; the names of folders decide nothing."""

    def steps(path: Path) -> int:
        return len(Path(relative(path.parent, folder)).parts)

    least = min(map(steps, paths), default=0)
    return [path for path in paths if steps(path) == least]
