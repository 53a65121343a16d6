"""What the tests of a module depend on, as far as the quick tier asks: the key of an entry `Passed`.

Itself, everything in its folder that is not another test module, the same of the folders that it imports from, the
declared parts of the product (`INPUTS`), and the releases of the training libraries. The full tier asks nothing and
runs everything.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import subprocess
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from .entries import digest

LIBRARIES = ("torch", "deepspeed", "accelerate", "transformers", "trl")
EVERYTHING = ("zerocfg", "schemas", "examples")
COMMAND_LINE = ("zerocfg/cli", "zerocfg/workspace", "zerocfg/terminal")
INPUTS: dict[str, tuple[str, ...]] = {
    "tests/api": ("zerocfg/api.py", "zerocfg/guard.py", "zerocfg/workspace", "zerocfg/memory", "zerocfg/tracer"),
    "tests/build": ("zerocfg/resolve", "zerocfg/emit", "zerocfg/memory", "zerocfg/run", "examples"),
    "tests/catalog": ("zerocfg/catalog", "schemas"),
    "tests/cli": (*COMMAND_LINE, "zerocfg/hardware", "zerocfg/memory", "zerocfg/tracer"),
    "tests/convert": ("zerocfg/convert", "zerocfg/migrate", "zerocfg/compare", "zerocfg/run", "zerocfg/catalog"),
    "tests/docs": ("README.md", "docs", "examples", *COMMAND_LINE, "zerocfg/emit", "zerocfg/smoke"),
    "tests/hardware": ("zerocfg/hardware", "zerocfg/models/hardware.py"),
    "tests/memory": ("zerocfg/memory", "zerocfg/tracer", "zerocfg/models/model_facts.py", "benchmarks/memory"),
    "tests/models": ("zerocfg/models", "zerocfg/run", "schemas"),
    "tests/parity": ("zerocfg/run", "zerocfg/catalog", "zerocfg/rules", "zerocfg/linter", "schemas"),
    "tests/preflight": ("zerocfg/preflight", "zerocfg/hardware", "zerocfg/models/hardware.py"),
    "tests/proofs": ("zerocfg/rulebook/proof.py",),
    "tests/real_files": ("zerocfg/run", "zerocfg/catalog", "zerocfg/rules", "zerocfg/linter", "schemas"),
    "tests/resume": ("zerocfg/resume",),
    "tests/smoke": ("zerocfg/smoke", "zerocfg/emit"),
    "tests/nccl": ("zerocfg/smoke", "zerocfg/preflight", "zerocfg/hardware"),
    "tests/smoke/test_gpu_bare_copy.py": (*EVERYTHING, "benchmarks/gpu", "docs/rules"),
    "tests/smoke/test_gpu_budget.py": (*EVERYTHING, "benchmarks/gpu"),
    "tests/smoke/test_examples.py": ("zerocfg/smoke", "zerocfg/emit", "zerocfg/gate", "examples"),
    "tests/source": ("zerocfg/source",),
}
"""Folder or module of tests -> parts of the product whose change has its real runs run again in the quick tier. The
longest name that fits counts; tests that stand nowhere here depend on `EVERYTHING`."""


@cache
def releases() -> dict[str, str | None]:
    """Of the installed training libraries. Without the local part: a build for another card is the same release."""
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def declared(module: str) -> tuple[str, ...]:
    """The parts of the product that the tests of ``module`` are declared to depend on."""
    names = [name for name in INPUTS if module == name or module.startswith(f"{name}/")]
    return INPUTS[max(names, key=len)] if names else EVERYTHING


@cache
def hashed(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Tree:
    """The files of a checkout that git does not ignore, as names relative to ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._keys: dict[str, str] = {}

    @cached_property
    def names(self) -> frozenset[str]:
        """OSError or CalledProcessError where this is no checkout."""
        words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        listed = subprocess.run(words, cwd=self.root, capture_output=True, text=True, check=True).stdout
        return frozenset(name for name in listed.split("\0") if name and (self.root / name).is_file())

    def below(self, part: str) -> frozenset[str]:
        return frozenset(name for name in self.names if name == part or name.startswith(f"{part}/"))

    def key(self, module: str) -> str:
        """The key of the tests of ``module``, "tests/smoke/test_runs.py"."""
        if module not in self._keys:
            names = self.tests_behind(module).union(*(self.below(part) for part in declared(module)))
            self._keys[module] = digest([releases(), {name: hashed(self.root / name) for name in names}])
        return self._keys[module]

    def tests_behind(self, module: str) -> frozenset[str]:
        """What of ``tests`` a module needs: found from module to import to folder, until nothing new comes."""
        found: set[str] = set()
        todo = {module, "tests/conftest.py"} & self.names
        while todo:
            name = todo.pop()
            found.add(name)
            if name.endswith(".py"):
                todo |= self._imported(name) - found
            todo |= self._beside(str(PurePosixPath(name).parent)) - found
        return frozenset(found)

    def _beside(self, folder: str) -> frozenset[str]:
        """Helpers and data: of the top folder none, its files belong to all and are found by their imports."""
        if folder == "tests":
            return frozenset()
        return frozenset(name for name in self.below(folder) if not PurePosixPath(name).name.startswith("test_"))

    def _imported(self, name: str) -> frozenset[str]:
        """Modules of ``tests`` that a file imports, wherever in it; the machinery of the tiers is left out."""
        package = PurePosixPath(name).parent.parts
        asked: set[str] = set()
        for node in ast.walk(_tree(self.root / name)):
            if isinstance(node, ast.Import):
                asked |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else ()
                base = ".".join([*above, *([node.module] if node.module else [])])
                asked |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        files = {f"{one.replace('.', '/')}{end}" for one in asked for end in (".py", "/__init__.py")}
        return frozenset(file for file in files & self.names if file.startswith("tests/") and not file.startswith(OWN))


OWN = "tests/ledger/"


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())
